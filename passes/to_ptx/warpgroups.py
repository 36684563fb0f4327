"""Warpgroups: `warp.wgmma`, its fence and groups, `warp.set_registers`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Operation, SSAValue

from ...dialect.isa.descriptor import UNIT
from ...dialect.isa.wgmma import WARPS, Wgmma
from ...dialect.layouts.layout import LANES
from ...dialect.ptx.text.syntax import Immediate
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.warpgroup import (
    ROWS,
    SetRegistersOp,
    WgmmaCommitOp,
    WgmmaFenceOp,
    WgmmaOp,
    WgmmaWaitOp,
    descriptor_of,
)
from ..diagnostics import fail
from .emitter import divisor_of
from .loops import only_use_is_here
from .matrix_ops import shared_place
from .operands import VirtualRegister
from .registry import lowers

if TYPE_CHECKING:
    from .kernel import KernelLowering

ADDRESS_BITS, UNIT_BITS = 18, UNIT.bit_length() - 1
"""Of an address in shared memory, the bits that a descriptor holds. Source: PTX ISA 9.7.15.5.1.2.2."""

STEP = 32
"""Bytes along K that one instruction takes."""


def _warpgroups(lowering: KernelLowering, op: Operation) -> None:
    if lowering.threads % (WARPS * LANES):
        fail(op, f"expected whole warpgroups of {WARPS * LANES} threads, the kernel has {lowering.threads} threads")


@lowers(WgmmaOp)
def _wgmma(lowering: KernelLowering, op: WgmmaOp) -> None:
    _warpgroups(lowering, op)
    row, held = op.row, lowering.fragment(op.c)
    if not only_use_is_here(op.c, op):
        fail(op, "C of warp.wgmma is written while the product runs: nothing else may use it")
    words = {
        role: _descriptor(lowering, op, memory, indices, along_mn=op.major(role))
        for role, memory, indices in op.tiles()
    }
    a = lowering.fragment(op.a) if op.a_in_registers else words["a"]
    metadata = [] if op.e is None or op.selector is None else [*lowering.fragment(op.e), op.selector.value.data]
    lowering.emitter.comment(f"{op.name}: {row.shape} of {'registers and ' if op.a_in_registers else ''}shared memory")
    lowering.emitter.emit(row.spelling, held, a, words["b"], *metadata, *_constants(op, row))
    lowering.values[op.d] = held


def _constants(op: WgmmaOp, row: Wgmma) -> Iterator[int]:
    """Whether D is added to, the signs of A and B, and how they lie."""
    yield 0 if op.overwrite is not None else 1
    if row.a.is_float:
        yield from (1 if word is None else -1 for word in (op.negate_a, op.negate_b))
    yield from (int(op.major(role)) for role in row.transposable(a_shared=not op.a_in_registers))


def _descriptor(
    lowering: KernelLowering, op: WgmmaOp, memory: SSAValue, indices: Sequence[SSAValue], *, along_mn: bool
) -> VirtualRegister:
    """The matrix descriptor of the operand that begins where indices say."""
    tile, (stage, row, column) = shared_place(lowering, op, memory, indices)
    how = descriptor_of(memory_of(memory), mn_major=along_mn)
    step = tile.swizzle if along_mn else min(STEP, tile.swizzle)
    for name, value, unit in (("row", row, ROWS), ("column", column, step // tile.element_bytes)):
        if divisor_of(value) % unit:
            got = value if isinstance(value, int) else f"one that is known to be a multiple of {value.divisor}"
            fail(op, f"an operand of warp.wgmma begins at a {name} that is a multiple of {unit}, got {got}")
    base, offset = lowering.addressing.origin(tile, stage, row, column)
    emitter = lowering.emitter
    # In a cluster the rank of the CTA stands above the address.
    units = emitter.pure("bfe.u32", base, UNIT_BITS, ADDRESS_BITS - UNIT_BITS)
    place = emitter.pure("cvt.u64.u32", units)
    return emitter.pure("add.s64", place, Immediate(f"{how.encode() + offset // UNIT:#x}"))


@lowers(WgmmaFenceOp)
def _fence(lowering: KernelLowering, op: WgmmaFenceOp) -> None:
    _warpgroups(lowering, op)
    lowering.emitter.emit("wgmma.fence.sync.aligned")


@lowers(WgmmaCommitOp)
def _commit(lowering: KernelLowering, op: WgmmaCommitOp) -> None:
    _warpgroups(lowering, op)
    lowering.emitter.emit("wgmma.commit_group.sync.aligned")


@lowers(WgmmaWaitOp)
def _wait(lowering: KernelLowering, op: WgmmaWaitOp) -> None:
    _warpgroups(lowering, op)
    lowering.emitter.emit("wgmma.wait_group.sync.aligned", op.pending.value.data)


@lowers(SetRegistersOp)
def _set_registers(lowering: KernelLowering, op: SetRegistersOp) -> None:
    _warpgroups(lowering, op)
    way = "dec" if op.grow is None else "inc"
    lowering.emitter.emit(f"setmaxnreg.{way}.sync.aligned.u32", op.count.value.data)
