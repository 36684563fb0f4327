"""`warp-allocate`: where tiles and mbarriers lie in a CTA's shared memory, and how much of it a launch gives."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import IntegerAttr, MemRefType, ModuleOp, StridedLayoutAttr, SymbolRefAttr, i32, i64
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from ..dialect.mlir.gpu import LaunchFuncOp
from ..dialect.schedule import SHARED_ALIGNMENT
from ..dialect.warp.attributes import BYTE, TENSOR_SPACE, element_row, in_place_of, is_shared, memory_of, memory_space
from ..dialect.warp.cta import MakeRingOp
from ..dialect.warp.memory import StoreOp
from ..dialect.warp.synchronisation import BARRIER_BYTES, MakeBarriersOp
from .diagnostics import fail
from .patterns import IndexBuilder, operations_of

ADDRESS_BYTES = 4
"""Bytes of an address in tensor memory. PTX ISA 9.7.16.7.1."""

OFFSET = "warp.offset"
"""On an allocation: its first byte, from the start of the CTA's shared memory."""


def offset_of(op: Operation) -> int:
    """Where an allocation lies. It has been allocated."""
    offset = op.attributes[OFFSET]
    return offset.value.data if isinstance(offset, IntegerAttr) else 0


def allocate(kernel: gpu.FuncOp) -> int:
    """Assigns an offset to each allocation of a kernel, in order, and returns the total in bytes.

    Existing offsets are kept: tiles that are not used at the same time may share memory.
    """
    end = 0
    for op in operations_of(kernel):
        if (wanted := needed(op)) is None:
            continue
        size, alignment = wanted
        offset = op.attributes.setdefault(OFFSET, IntegerAttr(-(-end // alignment) * alignment, i64))
        if not isinstance(offset, IntegerAttr) or offset.value.data < 0 or offset.value.data % alignment:
            fail(op, f"expected {OFFSET} to be a multiple of {alignment}, got {offset}")
        end = max(end, offset.value.data + size)
    return end


ALLOCATING = frozenset(kind.name for kind in (MakeRingOp, MakeBarriersOp, memref.AllocOp))
"""The names of operations that may allocate shared memory."""


def needed(op: Operation) -> tuple[int, int] | None:
    """The size and the alignment in bytes of the shared memory that an operation allocates; None for other
    operations."""
    if op.name not in ALLOCATING:
        return None
    if isinstance(op, MakeRingOp) and op.writers is not None:
        return 2 * op.ring.type.count.data * BARRIER_BYTES, BARRIER_BYTES
    if isinstance(op, MakeBarriersOp):
        return op.barriers.type.count.data * BARRIER_BYTES, BARRIER_BYTES
    if isinstance(op, memref.AllocOp) and memory_space(op.memref.type) == TENSOR_SPACE:
        return ADDRESS_BYTES, ADDRESS_BYTES  # to which `tcgen05.alloc` writes where tensor memory begins
    if not isinstance(op, memref.AllocOp) or not is_shared(op.memref.type):
        return None
    element, shape = element_row(op.memref.type.element_type), op.memref.type.get_shape()
    if element is None or min(shape, default=1) <= 0:
        return None  # which is no tile, as `convert-warp-to-ptx` says
    return math.prod(shape) * element.memory_bits // BYTE, SHARED_ALIGNMENT


def allocate_all(module: ModuleOp) -> None:
    """Allocates shared memory in every kernel. A launch that does not say how much it gives is given what the kernel
    needs."""
    taken: dict[SymbolRefAttr, int] = {}
    ops = operations_of(module)
    for kernel in [op for op in ops if isinstance(op, gpu.FuncOp)]:
        within = kernel.parent_op()
        if isinstance(within, gpu.ModuleOp):
            taken[SymbolRefAttr(within.sym_name.data, [kernel.sym_name.data])] = allocate(kernel)
    for launch in [op for op in ops if isinstance(op, gpu.LaunchFuncOp)]:
        if launch.dynamicSharedMemorySize is None and taken.get(launch.kernel):
            _give(launch, taken[launch.kernel])


def _give(launch: gpu.LaunchFuncOp, size: int) -> None:
    """Puts a launch in place of another that gives `size` bytes of shared memory."""
    bytes_ = arith.ConstantOp(IntegerAttr(size, i32))
    clusters = (launch.clusterSizeX, launch.clusterSizeY, launch.clusterSizeZ)
    new = LaunchFuncOp(
        launch.kernel,
        (launch.gridSizeX, launch.gridSizeY, launch.gridSizeZ),
        (launch.blockSizeX, launch.blockSizeY, launch.blockSizeZ),
        None if any(size is None for size in clusters) else clusters,  # pyright: ignore[reportArgumentType]
        kernelOperands=launch.kernelOperands,
        dynamicSharedMemorySize=bytes_.result,
    )
    Rewriter.replace_op(launch, [bytes_, in_place_of(launch, new)], [])


class AllocatePass(ModulePass):
    """Writes the offset of each allocation in shared memory into the IR, and the total size into each launch.

    Existing offsets and sizes are kept. `convert-warp-to-ptx` does the same for kernels without offsets.
    """

    name = "warp-allocate"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        allocate_all(op)


def with_stages(alloc: SSAValue, stages: int) -> None:
    """Gives a shared-memory tile a leading dimension of stages, in place. What is stored to it once is stored to each
    stage."""
    for store in [op for use in alloc.uses if isinstance(op := use.operation, StoreOp)]:
        index = IndexBuilder(store)
        for stage in range(stages):
            index.insert(StoreOp(store.fragment, alloc, [index.value(stage), *store.indices]))
        Rewriter.erase_op(store)
    with_shape(alloc, [stages, *memory_of(alloc).get_shape()])


def with_shape(alloc: SSAValue, shape: Sequence[int]) -> None:
    """Gives a shared-memory tile another shape, in place."""
    op, kind = alloc.owner, memory_of(alloc)
    if isinstance(op, memref.AllocOp):
        strides = [math.prod(shape[at:]) for at in range(1, len(shape) + 1)]
        layout = StridedLayoutAttr(strides) if isinstance(kind.layout, StridedLayoutAttr) else kind.layout
        new = memref.AllocOp([], [], MemRefType(kind.element_type, shape, layout, kind.memory_space))
        if (block := op.parent_block()) is not None:
            block.insert_op_before(new, op)
            alloc.replace_all_uses_with(new.memref)
            op.detach()
            op.erase()
