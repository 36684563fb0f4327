"""Tensor copies: boxes between tensors in global memory and tiles in shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from ...dialect.warp.synchronisation import MOST_CTAS
from ...dialect.warp.tensor_maps import TensorLoadOp, TensorMapType, TensorStoreOp
from ...dialect.warp.tensor_memory import in_pairs
from ...dialect.warp.warpgroup import ROWS
from ..diagnostics import fail
from .emitter import At, IndexValue, TensorBox, VirtualRegister
from .kernel import KernelLowering, lowers
from .scalars import divisor_of
from .synchronisation import barrier_address, group_of, one_thread

FIRST_OF_PAIR = 0xFEFFFFFF

COMPLETES = "mbarrier::complete_tx::bytes"


def _box(lowering: KernelLowering, op: Operation, map: SSAValue, coordinates: Sequence[SSAValue]) -> TensorBox:
    address = lowering.values.get(map)
    if not isinstance(address, VirtualRegister) or not isinstance(map.type, TensorMapType):
        fail(op, "expected a tensor map that is an argument of the kernel")
    return TensorBox(address, lowering.indices(coordinates)[::-1])


def _place(lowering: KernelLowering, op: TensorLoadOp | TensorStoreOp) -> At:
    """Where the box lies in shared memory."""
    tile, (stage, row, column) = lowering.shared_place(op, op.tile, op.indices)
    places: tuple[tuple[str, IndexValue, int], ...] = (
        ("row", row, ROWS), ("column", column, tile.swizzle // tile.element_bytes)
    )  # fmt: skip
    for name, value, unit in places:
        if divisor_of(value) % unit:
            got = value if isinstance(value, int) else f"one that is known to be a multiple of {value.divisor}"
            fail(op, f"a box begins at a {name} of the tile that is a multiple of {unit}, got {got}")
    return lowering.addressing.origin(tile, stage, row, column)


@lowers(TensorLoadOp)
def _load(lowering: KernelLowering, op: TensorLoadOp) -> None:
    place, box = _place(lowering, op), _box(lowering, op, op.map, op.coordinates)
    barrier = barrier_address(lowering, op, op.barriers, op.number)
    mode = "im2col" if op.offsets else "tile"
    opcode = f"cp.async.bulk.tensor.{len(op.coordinates)}d.shared::cluster.global.{mode}.{COMPLETES}"
    offsets = [_short(lowering, offset) for offset in lowering.indices(op.offsets)[::-1]]
    ctas = [] if op.mask is None else [_mask(lowering, op, lowering.scalar(op.mask))]
    if ctas:
        opcode = f"{opcode}.multicast::cluster"
    if in_pairs(op):
        # Bit 24 of an address is the lowest of the CTA's rank: the barrier is that of the first of the pair.
        opcode = f"{opcode}.{group_of(op)}"
        barrier = At(lowering.emitter.pure("and.b32", barrier.base, FIRST_OF_PAIR), barrier.offset)
    lowering.emitter.comment(f"{op.name}: {op.map.type}")
    others = (*([offsets] if offsets else ()), *ctas)
    lowering.emitter.emit(opcode, place, box, barrier, *others, guard=one_thread(lowering, op, op.by))


def _mask(lowering: KernelLowering, op: TensorLoadOp, ctas: IndexValue) -> VirtualRegister:
    """The CTAs of a cluster that a copy goes to, a bit for each."""
    if isinstance(ctas, int) and not 0 < ctas < 1 << MOST_CTAS:
        fail(op, f"expected a bit for each of 1 to {MOST_CTAS} CTAs of a cluster, got {ctas:#x}")
    return _short(lowering, ctas)


def _short(lowering: KernelLowering, number: IndexValue) -> VirtualRegister:
    """A number in 16 bits."""
    return lowering.emitter.pure("cvt.u16.u32" if isinstance(number, VirtualRegister) else "mov.b16", number)


@lowers(TensorStoreOp)
def _store(lowering: KernelLowering, op: TensorStoreOp) -> None:
    place, box = _place(lowering, op), _box(lowering, op, op.map, op.coordinates)
    opcode = f"cp.async.bulk.tensor.{len(op.coordinates)}d.global.shared::cta.tile.bulk_group"
    lowering.emitter.comment(f"{op.name}: {op.map.type}")
    lowering.emitter.emit(opcode, box, place, guard=one_thread(lowering, op, op.by, op.each_warpgroup))
