"""`warp-pack`: operands copied to whole tiles of aligned rows before the product, the `pack` of a schedule.

Rows that are no multiple of 16 bytes apart cannot be copied to shared memory 16 bytes at a time, and every edge of a
matrix that is no multiple of the tile costs predicates in the K loop. A product that reads each element many times
gains by copying the operand once, in a kernel of its own, to scratch memory where both are well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import gpu
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from ...dialect.gpu import BlockIdOp, ReturnOp
from ...dialect.warp.attributes import element_row, fragment_of, memory_of
from ...dialect.warp.copy import CopyOp, PackOp
from ...dialect.warp.memory import bounds_attribute
from ...dialect.warp.warpgroup import WgmmaOp
from ..diagnostics import remark
from ..linalg.operand import VectorOperand
from ..schedule.packing import roles
from .index_builder import IndexBuilder
from .launches import LaunchedKernel, launches

THREADS = 256

CHUNKS = 4
"""Chunks of 16 bytes that a thread copies: enough loads in flight, and enough CTAs to share the work evenly."""


def _copies(launch: LaunchedKernel) -> dict[str, CopyOp]:
    """The copies of A and B to shared memory, by the role of what is loaded from there."""
    found: dict[str, CopyOp] = {}
    loop = launch.loop()
    for copy in [] if loop is None else [op for op in loop.body.block.ops if isinstance(op, CopyOp)]:
        for use in copy.destination.uses:
            found |= dict.fromkeys(_role(use.operation, copy.destination), copy)
    return found


def _role(op: Operation, tile: SSAValue) -> Iterator[str]:
    """Which operand an operation takes from a tile."""
    if isinstance(op, WgmmaOp):
        yield "a" if op.a == tile else "b"
    elif op.results:
        yield fragment_of(op.results[0]).role.data


def _packed(copy: CopyOp) -> MemRefType:
    """Memory of as many whole tiles as cover the source of a copy."""
    source, tile = memory_of(copy.source), memory_of(copy.destination).get_shape()
    shape = [-(-size // step) * step for size, step in zip(source.get_shape(), tile, strict=True)]
    return MemRefType(source.element_type, shape)


def _pack(launch: LaunchedKernel, sources: dict[CopyOp, BlockArgument]) -> None:
    """Lets a kernel copy what a kernel before it has packed."""
    pairs: list[tuple[VectorOperand, VectorOperand]] = []
    for copy, source in sources.items():
        name, value = source.name_hint or "", launch.operands[source.index]
        scratch = launch.host.scratch(_packed(copy))
        pairs.append((VectorOperand(name, value), VectorOperand(f"{name}_packed", scratch)))
        launch.replace(source, [copy], scratch, f"{name}_packed")
        copy.in_bounds = bounds_attribute(True, True)
    kernel = _launch(launch, pairs)
    kernel.detach()
    launch.host.kernels.body.block.insert_op_before(kernel, launch.kernel)
    launch.finish()


def _bytes(memory: SSAValue) -> int:
    kind, element = memory_of(memory), element_row(memory_of(memory).element_type)
    return 0 if element is None else kind.element_count() * element.memory_bits // 8


def _launch(launch: LaunchedKernel, pairs: Sequence[tuple[VectorOperand, VectorOperand]]) -> gpu.FuncOp:
    """One kernel packs all operands: every CTA does a share of each."""
    shares = -(-sum(_bytes(to.value) for _, to in pairs) // (16 * THREADS * CHUNKS))
    operands = [operand for pair in pairs for operand in pair]
    body = Block(arg_types=[operand.value.type for operand in operands])
    index = IndexBuilder(Builder(InsertPoint.at_end(body)))
    share = index.insert(BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X))).result
    for source, destination in zip(body.args[::2], body.args[1::2], strict=True):
        index.insert(PackOp(source, destination, share, shares))
    index.insert(ReturnOp([]))
    return launch.host.launch("pack", operands, body, shares, THREADS)


class PackPass(ModulePass):
    """Copies the operands that a schedule's `pack` names to whole tiles of aligned rows, in a separate launch.

    It runs after `warp-tile`. Without it, the kernel copies the operands from their own memory.
    """

    name = "warp-pack"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for launch in launches(op):
            if wanted := roles(launch.schedule.operands.pack):
                found = _copies(launch)
                copies = [found[role] for role in wanted if role in found]
                sources = {copy: copy.source for copy in copies if isinstance(copy.source, BlockArgument)}
                if len(sources) < len(wanted) or any(min(memory_of(s).get_shape()) < 0 for s in sources.values()):
                    reason = "packing takes tiles that are copied from single matrices of known size"
                    remark(launch.kernel, self.name, f"operands stay as they lie: {reason}")
                else:
                    _pack(launch, sources)
