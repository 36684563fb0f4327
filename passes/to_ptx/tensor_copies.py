"""Tensor copies: `warp.tensor_load`, `warp.tensor_store`, what they arrive at, and proxies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import IntegerAttr, UnitAttr
from xdsl.ir import Operation, SSAValue

from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.layout import LANES
from ...dialect.warp.clusters import MOST_CTAS
from ...dialect.warp.tensor_copies import (
    BulkCommitOp,
    BulkWaitOp,
    ExpectOp,
    ProxyFenceOp,
    TensorLoadOp,
    TensorStoreOp,
)
from ...dialect.warp.tensor_maps import TensorMapType
from ...dialect.warp.warpgroup import ROWS
from ..diagnostics import fail
from .barriers import barrier_address
from .branches import is_alone
from .emitter import divisor_of
from .matrix_ops import shared_place
from .operands import SINK, At, IndexValue, TensorBox, VirtualRegister
from .registry import lowers

if TYPE_CHECKING:
    from .kernel import KernelLowering

WARPGROUP = WARPS * LANES
"""Threads of a warpgroup."""

COMPLETES = "mbarrier::complete_tx::bytes"


def _one(
    lowering: KernelLowering, op: Operation, by: IntegerAttr | None, each_warpgroup: UnitAttr | None = None
) -> VirtualRegister | bool:
    """The guard of the one thread of the CTA, or of each warpgroup, that does it; True if no other comes here."""
    if is_alone(op):
        if by is not None:
            fail(op, f"the elected lane does {op.name} here; leave 'by' out")
        return True
    number, threads = by.value.data if by is not None else 0, lowering.threads
    among: IndexValue = lowering.thread
    if each_warpgroup is not None:
        threads, among = WARPGROUP, lowering.scalars.mask(among, WARPGROUP - 1)
    if not 0 <= number < threads:
        whose = "a warpgroup" if each_warpgroup else "the kernel"
        fail(op, f"expected one of the {threads} threads of {whose}, got thread {number}")
    return lowering.scalars.compare("eq", among, number)


def _box(lowering: KernelLowering, op: Operation, map: SSAValue, coordinates: Sequence[SSAValue]) -> TensorBox:
    held = lowering.values.get(map)
    if not isinstance(held, VirtualRegister) or not isinstance(map.type, TensorMapType):
        fail(op, "expected a tensor map that is an argument of the kernel")
    return TensorBox(held, lowering.indices(coordinates)[::-1])


def _place(lowering: KernelLowering, op: TensorLoadOp | TensorStoreOp) -> At:
    """Where the box lies in shared memory."""
    tile, (stage, row, column) = shared_place(lowering, op, op.tile, op.indices)
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
    opcode = f"cp.async.bulk.tensor.{len(op.coordinates)}d.shared::cluster.global.tile.{COMPLETES}"
    ctas = [] if op.mask is None else [_mask(lowering, op, lowering.scalar(op.mask))]
    if ctas:
        opcode = f"{opcode}.multicast::cluster"
    lowering.emitter.comment(f"{op.name}: {op.map.type}")
    lowering.emitter.emit(opcode, place, box, barrier, *ctas, guard=_one(lowering, op, op.by))


def _mask(lowering: KernelLowering, op: TensorLoadOp, ctas: IndexValue) -> VirtualRegister:
    """The CTAs of a cluster that a copy goes to, a bit for each."""
    if isinstance(ctas, VirtualRegister):
        return lowering.emitter.pure("cvt.u16.u32", ctas)
    if not 0 < ctas < 1 << MOST_CTAS:
        fail(op, f"expected a bit for each of 1 to {MOST_CTAS} CTAs of a cluster, got {ctas:#x}")
    return lowering.emitter.pure("mov.b16", ctas)


@lowers(TensorStoreOp)
def _store(lowering: KernelLowering, op: TensorStoreOp) -> None:
    place, box = _place(lowering, op), _box(lowering, op, op.map, op.coordinates)
    opcode = f"cp.async.bulk.tensor.{len(op.coordinates)}d.global.shared::cta.tile.bulk_group"
    lowering.emitter.comment(f"{op.name}: {op.map.type}")
    lowering.emitter.emit(opcode, box, place, guard=_one(lowering, op, op.by, op.each_warpgroup))


@lowers(ExpectOp)
def _expect(lowering: KernelLowering, op: ExpectOp) -> None:
    place, bytes = barrier_address(lowering, op, op.barriers, op.number), op.bytes.value.data
    guard = _one(lowering, op, op.by)
    lowering.emitter.emit("mbarrier.arrive.expect_tx.shared::cta.b64", SINK, place, bytes, guard=guard)


@lowers(BulkCommitOp)
def _bulk_commit(lowering: KernelLowering, op: BulkCommitOp) -> None:
    lowering.emitter.emit("cp.async.bulk.commit_group", guard=_one(lowering, op, op.by, op.each_warpgroup))


@lowers(BulkWaitOp)
def _bulk_wait(lowering: KernelLowering, op: BulkWaitOp) -> None:
    opcode = f"cp.async.bulk.wait_group{'' if op.read is None else '.read'}"
    guard = _one(lowering, op, op.by, op.each_warpgroup)
    lowering.emitter.emit(opcode, op.pending.value.data, guard=guard)


@lowers(ProxyFenceOp)
def _proxy_fence(lowering: KernelLowering, _: ProxyFenceOp) -> None:
    lowering.emitter.emit("fence.proxy.async.shared::cta")
