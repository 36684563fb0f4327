"""Synchronisation and tensor copies: mbarriers, clusters, named barriers, `warp.tensor_load`, `warp.tensor_store`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerAttr, UnitAttr
from xdsl.ir import Operation, SSAValue

from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.layout import LANES
from ...dialect.warp.synchronisation import (
    BARRIER_BYTES,
    MOST_BARRIERS,
    MOST_CTAS,
    ArriveCopiesOp,
    ArriveOp,
    AtomicIncOp,
    AwaitOp,
    BarrierAnyOp,
    ClusterArriveOp,
    ClusterBarrierOp,
    ClusterRankOp,
    ClusterWaitOp,
    MakeBarriersOp,
    NamedBarrierOp,
)
from ...dialect.warp.tensor_copies import BulkCommitOp, BulkWaitOp, ExpectOp, ProxyFenceOp, TensorLoadOp, TensorStoreOp
from ...dialect.warp.tensor_maps import TensorMapType
from ...dialect.warp.warpgroup import ROWS
from ..allocate import offset_of
from ..diagnostics import fail
from .addressing import SharedBarriers
from .control_flow import is_alone
from .emitter import SINK, At, IndexValue, TensorBox, VirtualRegister, divisor_of
from .kernel import KernelLowering, lowers
from .memory import memory_name
from .products import shared_place

# mbarrier objects: `warp.make_barriers`, `warp.arrive`, `warp.arrive_copies`, `warp.await`.


def barrier_address(lowering: KernelLowering, op: Operation, barriers: SSAValue, number: SSAValue) -> At:
    """The address of one of several barriers."""
    held = lowering.values[barriers]
    if not isinstance(held, SharedBarriers):
        fail(op, f"expected barriers made in this kernel, got {barriers.type}")
    along = lowering.scalars.multiply(lowering.scalar(number), BARRIER_BYTES)
    return lowering.addressing.shared_bytes_at(held.offset, along)


@lowers(MakeBarriersOp)
def _make(lowering: KernelLowering, op: MakeBarriersOp) -> None:
    kind = op.barriers.type
    start = offset_of(op)
    lowering.values[op.barriers] = SharedBarriers(start)
    lowering.emitter.comment(f"{kind.count.data} barriers of {op.arrivals.value.data} arrivals")
    # One thread makes them all: of addresses that differ between lanes, or guards, the assembler makes loops.
    emitter = lowering.emitter
    places = [lowering.addressing.shared_bytes_at(start, number * BARRIER_BYTES) for number in range(kind.count.data)]
    others = lowering.scalars.compare("ne", lowering.thread, 0)
    with emitter.loop():
        made = emitter.fresh_label("made")
        emitter.branch(made, guard=others)
        for place in places:
            emitter.emit("mbarrier.init.shared.b64", place, op.arrivals.value.data)
        emitter.label(made)


@lowers(ArriveOp)
def _arrive(lowering: KernelLowering, op: ArriveOp) -> None:
    here, emitter = barrier_address(lowering, op, op.barriers, op.number), lowering.emitter
    first = is_alone(op) or lowering.scalars.compare("eq", lowering.lane, 0)
    if op.cta is None:
        emitter.emit("mbarrier.arrive.shared.b64", SINK, here, guard=first)
        return
    there = emitter.pure("mapa.shared::cluster.u32", here.base, lowering.scalar(op.cta))
    # A release for the cluster would be a fence of all memory, but nothing is published: the stage has been read.
    emitter.emit("mbarrier.arrive.shared::cluster.b64", SINK, At(there, here.offset), guard=first)


@lowers(ArriveCopiesOp)
def _arrive_copies(lowering: KernelLowering, op: ArriveCopiesOp) -> None:
    place = barrier_address(lowering, op, op.barriers, op.number)
    lowering.emitter.emit("cp.async.mbarrier.arrive.noinc.shared.b64", place)


@lowers(AwaitOp)
def _await(lowering: KernelLowering, op: AwaitOp) -> None:
    place, emitter = barrier_address(lowering, op, op.barriers, op.number), lowering.emitter
    sleeping, polling = (f"mbarrier.{name}.parity.shared.b64" for name in ("try_wait", "test_wait"))
    label = emitter.fresh_label("wait")
    emitter.label(label)
    wait = sleeping if emitter.has(sleeping) else polling
    ended = emitter.compute(wait, place, lowering.scalar(op.parity))
    emitter.branch(label, unless=ended)


# Clusters and named barriers: `warp.cluster_rank`, `warp.cluster_barrier` and its halves, `warp.named_barrier`.


@lowers(ClusterRankOp)
def _rank(lowering: KernelLowering, op: ClusterRankOp) -> None:
    lowering.values[op.rank] = lowering.scalars.special("%cluster_ctarank", MOST_CTAS)


@lowers(ClusterArriveOp)
def _arrive_at_cluster(lowering: KernelLowering, _: ClusterArriveOp) -> None:
    lowering.emitter.emit("barrier.cluster.arrive.aligned")


@lowers(ClusterWaitOp)
def _wait(lowering: KernelLowering, _: ClusterWaitOp) -> None:
    lowering.emitter.emit("barrier.cluster.wait.aligned")


@lowers(ClusterBarrierOp)
def _barrier(lowering: KernelLowering, op: ClusterBarrierOp) -> None:
    if op.mbarriers is not None:
        lowering.emitter.emit("fence.mbarrier_init.release.cluster")
    how = "" if op.mbarriers is None else ".relaxed"
    lowering.emitter.emit(f"barrier.cluster.arrive{how}.aligned")
    lowering.emitter.emit("barrier.cluster.wait.aligned")


@lowers(NamedBarrierOp)
def _named(lowering: KernelLowering, op: NamedBarrierOp) -> None:
    number, threads = lowering.scalar(op.number), op.threads.value.data
    if isinstance(number, int) and not 0 < number < MOST_BARRIERS:
        fail(op, f"expected a barrier from 1 to {MOST_BARRIERS - 1}, got {number}; gpu.barrier is the first")
    if threads > lowering.threads:
        fail(op, f"expected at most the {lowering.threads} threads of the kernel, got {threads}")
    lowering.emitter.emit("bar.sync" if op.arrive is None else "bar.arrive", number, threads)


# What threads tell each other: `warp.atomic_inc`, `warp.barrier_any`.


@lowers(AtomicIncOp)
def _atomic_inc(lowering: KernelLowering, op: AtomicIncOp) -> None:
    emitter, counters, limit = lowering.emitter, lowering.matrix(op, op.counters), lowering.scalar(op.limit)
    place = lowering.scalars.address(counters.base, [(lowering.scalar(op.number), counters.element_bytes)])
    emitter.comment(f"{op.name}: {memory_name(op.counters)}")
    taken, seen = lowering.predicate(op.taken), emitter.register("b32")
    if taken is not True:
        emitter.clear([seen])
    emitter.emit("atom.acq_rel.gpu.global.inc.u32", seen, place, limit, guard=taken)
    lowering.values[op.seen] = seen


@lowers(BarrierAnyOp)
def _barrier_any(lowering: KernelLowering, op: BarrierAnyOp) -> None:
    value, barrier = lowering.predicate(op.value), (0,)
    if op.number is not None and op.threads is not None:
        barrier = (op.number.value.data, op.threads.value.data)
    if isinstance(value, VirtualRegister):
        lowering.values[op.any] = lowering.emitter.compute("bar.red.or.pred", *barrier, value)
    else:
        lowering.emitter.emit("bar.sync", *barrier)
        lowering.values[op.any] = value


# Tensor copies: `warp.tensor_load`, `warp.tensor_store`, what they arrive at, and proxies.

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
