"""Synchronisation: mbarriers, and tensor copies whose bytes they count; fences, barriers of every scope, counters."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr, UnitAttr
from xdsl.ir import Operation, SSAValue

from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.layout import LANES
from ...dialect.warp.attributes import enclosing, in_pairs
from ...dialect.warp.cta import some_warps
from ...dialect.warp.op_shapes import bounds
from ...dialect.warp.synchronisation import (
    AFTER_SYNC,
    ARITHMETIC,
    BARRIER_BYTES,
    BEFORE_SYNC,
    CLUSTER,
    CONSUMERS_BARRIER,
    MAX_BARRIERS,
    MAX_CTAS,
    WGMMA,
    ArriveLastOp,
    ArriveOp,
    AwaitOp,
    FenceOp,
    MakeBarriersOp,
    ScopedBarrierOp,
)
from ...dialect.warp.tensor_maps import PrefetchOp, TensorLoadOp, TensorMapType, TensorStoreOp
from ...dialect.warp.warpgroup import BOX_ALIGNMENT, WgmmaOp
from ..allocate import offset_of
from ..diagnostics import fail
from .addressing import TENSOR_MAPS, GlobalPlace, SharedBarriers
from .control_flow import is_alone
from .emitter import SINK, At, Condition, IndexValue, TensorBox, VirtualRegister, in_cta
from .kernel import KernelLowering, check_multiple, lowers
from .memory import memory_name
from .products import check_warpgroups, descriptors

# Who does what one thread does alone.

WARPGROUP = WARPS * LANES
"""Threads of a warpgroup."""


def one_thread(
    lowering: KernelLowering, op: Operation, by: IntegerAttr | None, each_warpgroup: UnitAttr | None = None
) -> Condition:
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


# mbarrier objects: `warp.make_barriers`, `warp.arrive`, `warp.await`.


def barrier_address(lowering: KernelLowering, op: Operation, barriers: SSAValue, number: SSAValue) -> At:
    """The address of one of several barriers."""
    barriers_ = lowering.values[barriers]
    if not isinstance(barriers_, SharedBarriers):
        fail(op, f"expected barriers made in this kernel, got {barriers.type}")
    along = lowering.scalars.multiply(lowering.scalar(number), BARRIER_BYTES)
    return lowering.addressing.shared_bytes_at(barriers_.offset, along)


@lowers(MakeBarriersOp)
def _make(lowering: KernelLowering, op: MakeBarriersOp) -> None:
    kind = op.barriers.type
    start = offset_of(op)
    lowering.values[op.barriers] = SharedBarriers(start)
    lowering.emitter.comment(f"{kind.count.data} barriers of {op.arrivals.value.data} arrivals")
    # One thread makes them all: of addresses that differ between lanes, or guards, the assembler makes loops.
    emitter = lowering.emitter
    places = [lowering.addressing.shared_bytes_at(start, number * BARRIER_BYTES) for number in range(kind.count.data)]
    with emitter.skipping("made", guard=lowering.scalars.compare("ne", lowering.thread, 0)):
        for place in places:
            emitter.emit("mbarrier.init.shared.b64", place, op.arrivals.value.data)


def group_of(op: Operation) -> str:
    """How many CTAs multiply together in tensor memory, as all instructions of a kernel say it. PTX ISA 9.7.16.5."""
    return f"cta_group::{2 if in_pairs(op) else 1}"


@lowers(ArriveOp)
def _arrive(lowering: KernelLowering, op: ArriveOp) -> None:
    here, emitter = barrier_address(lowering, op, op.barriers, op.number), lowering.emitter
    if op.products is not None:
        first = one_thread(lowering, op, None, UnitAttr())
        commit, both = f"tcgen05.commit.{group_of(op)}.mbarrier::arrive::one.shared::cluster", in_pairs(op)
        ctas = [emitter.pure("mov.b16", 0b11)] if both else []
        emitter.emit(f"{commit}{'.multicast::cluster' if both else ''}.b64", here, *ctas, guard=first)
        return
    if op.copies is not None:
        emitter.emit("cp.async.mbarrier.arrive.noinc.shared.b64", here)
        return
    there = None
    if op.cta is not None:
        there = in_cta(emitter, here, lowering.scalar(op.cta))
    if op.bytes is not None:
        guard, space = one_thread(lowering, op, op.by), "shared::cta" if there is None else "shared::cluster"
        emitter.emit(f"mbarrier.arrive.expect_tx.{space}.b64", SINK, there or here, op.bytes.value.data, guard=guard)
        return
    of_group = None if op.by is None else one_thread(lowering, op, op.by, UnitAttr())
    first = of_group or is_alone(op) or lowering.scalars.compare("eq", lowering.lane, 0)
    if there is None:
        emitter.emit("mbarrier.arrive.shared.b64", SINK, here, guard=first)
        return
    # A release for the cluster would be a fence of all memory, but nothing is published: the stage has been read.
    emitter.emit("mbarrier.arrive.shared::cluster.b64", SINK, there, guard=first)


def _first_products(op: AwaitOp) -> list[WgmmaOp]:
    """The products behind a wait that begin sums, of memory that is known before it, if all sums there begin anew.
    Nothing is under way while they are awaited, so that the tensor cores would wait for their addresses too."""
    ops = [] if op.parent is None else list(op.parent.ops)
    behind = ops[ops.index(op) + 1 :] if ops else []
    products = [one for one in behind if isinstance(one, WgmmaOp)]
    firsts = [one for one in products if one.overwrite is not None or not isinstance(one.c.owner, WgmmaOp)]
    if any(one.overwrite is None or one.a_in_registers for one in firsts):
        return []
    later = {*behind}
    return [one for one in firsts if all(at.owner not in later for _, _, place in one.tiles() for at in place)]


@lowers(AwaitOp)
def _await(lowering: KernelLowering, op: AwaitOp) -> None:
    place, emitter = barrier_address(lowering, op, op.barriers, op.number), lowering.emitter
    sleeping, polling = (f"mbarrier.{name}.parity.shared.b64" for name in ("try_wait", "test_wait"))
    for product in _first_products(op):
        descriptors(lowering, product)
    emitter.until(sleeping if emitter.has(sleeping) else polling, place, lowering.scalar(op.parity))


# Fences: `warp.fence`.


@lowers(FenceOp)
def _fence(lowering: KernelLowering, op: FenceOp) -> None:
    if op.before.data in (BEFORE_SYNC, AFTER_SYNC):
        lowering.emitter.emit(f"tcgen05.fence::{op.before.data}")
        return
    if op.before.data != WGMMA:
        lowering.emitter.emit("fence.acq_rel.cta" if op.before.data == ARITHMETIC else "fence.proxy.async.shared::cta")
        return
    check_warpgroups(lowering, op)
    lowering.emitter.emit("wgmma.fence.sync.aligned")


# Barriers of every scope: `warp.barrier`.


@lowers(ScopedBarrierOp)
def _barrier(lowering: KernelLowering, op: ScopedBarrierOp) -> None:
    if op.scope.data == CLUSTER:
        _cluster_barrier(lowering, op)
    else:
        _cta_barrier(lowering, op)


def _cluster_barrier(lowering: KernelLowering, op: ScopedBarrierOp) -> None:
    if op.mbarriers is not None:
        lowering.emitter.emit("fence.mbarrier_init.release.cluster")
    how = "" if op.mbarriers is None else ".relaxed"
    if op.wait is None:
        lowering.emitter.emit(f"barrier.cluster.arrive{how}.aligned")
    if op.arrive is None:
        lowering.emitter.emit("barrier.cluster.wait.aligned")


def _cta_barrier(lowering: KernelLowering, op: ScopedBarrierOp) -> None:
    emitter, barrier = lowering.emitter, list[IndexValue]((0,))
    if op.number is not None and op.threads is not None:
        number, threads = lowering.scalar(op.number), op.threads.value.data
        if isinstance(number, int) and not 0 < number < MAX_BARRIERS:
            fail(op, f"expected a barrier from 1 to {MAX_BARRIERS - 1}, got {number}; gpu.barrier is the first")
        if threads > lowering.threads:
            fail(op, f"expected at most the {lowering.threads} threads of the kernel, got {threads}")
        barrier = [number, threads]
    emitter.emit("bar.sync" if op.arrive is None else "bar.arrive", *barrier)


# What CTAs tell each other: `warp.arrive_last`.


@lowers(ArriveLastOp)
def _arrive_last(lowering: KernelLowering, op: ArriveLastOp) -> None:
    """After a barrier, the first thread counts the CTA, and tells the others whether it is the last one."""
    emitter, s, counters = lowering.emitter, lowering.scalars, lowering.matrix(op, op.counters)
    some, last = some_warps(op), s.add(lowering.scalar(op.of), -1)
    barrier = (0,) if some is None else (CONSUMERS_BARRIER, some * LANES)
    emitter.emit("bar.sync", *barrier)
    first = s.compare("eq", lowering.thread, 0)
    place = s.address(counters.base, [(lowering.scalar(op.number), counters.element_bytes)])
    emitter.comment(f"{op.name}: {memory_name(op.counters)}")
    seen = emitter.register("b32")
    emitter.clear([seen])
    emitter.emit("atom.acq_rel.gpu.global.inc.u32", seen, place, last, guard=first)
    last_of_all = emitter.compute("bar.red.or.pred", *barrier, s.both(s.compare("eq", seen, last), first))
    # In a loop over tiles ptxas would take warps for divided behind it, and hold stages of rings in registers of lanes.
    in_tiles = some is not None and any(isinstance(around, scf.ForOp) for around in enclosing(op))
    lowering.values[op.last] = emitter.any(last_of_all) if in_tiles else last_of_all


# Tensor copies: boxes between tensors in global memory and tiles in shared memory.


FIRST_OF_PAIR = 0xFEFFFFFF

COMPLETES = "mbarrier::complete_tx::bytes"


def map_address(lowering: KernelLowering, op: Operation, value: SSAValue) -> VirtualRegister:
    """The register with the address of a tensor map."""
    address = lowering.values.get(value)
    if not isinstance(address, VirtualRegister) or value.type.name not in TENSOR_MAPS:
        fail(op, "expected a tensor map that is an argument of the kernel")
    return address


def _box(lowering: KernelLowering, op: Operation, map: SSAValue, coordinates: Sequence[SSAValue]) -> TensorBox:
    return TensorBox(map_address(lowering, op, map), lowering.indices(coordinates)[::-1])


def _tile_place(lowering: KernelLowering, op: TensorLoadOp | TensorStoreOp) -> At:
    tile, stage, row, column = lowering.shared_place(op, op.tile, op.indices)
    rows, columns = BOX_ALIGNMENT // gcd(BOX_ALIGNMENT, tile.swizzle), tile.swizzle // tile.element_bytes
    for name, value, unit in (("row", row, rows), ("column", column, columns)):
        check_multiple(op, f"a box begins at a {name} of the tile", value, unit)
    return lowering.addressing.origin(tile, stage, row, column)


@lowers(TensorLoadOp)
def _tensor_load(lowering: KernelLowering, op: TensorLoadOp) -> None:
    place, box = _tile_place(lowering, op), _box(lowering, op, op.map, op.coordinates)
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
    """The mask of the CTAs of a cluster that receive a copy."""
    if isinstance(ctas, int) and not 0 < ctas < 1 << MAX_CTAS:
        fail(op, f"expected a bit for each of 1 to {MAX_CTAS} CTAs of a cluster, got {ctas:#x}")
    return _short(lowering, ctas)


def _short(lowering: KernelLowering, number: IndexValue) -> VirtualRegister:
    return lowering.emitter.pure("cvt.u16.u32" if isinstance(number, VirtualRegister) else "mov.b16", number)


@lowers(PrefetchOp)
def _prefetch(lowering: KernelLowering, op: PrefetchOp) -> None:
    if op.fragment is None:
        opcode = f"cp.async.bulk.prefetch.tensor.{len(op.indices)}d.L2.global.tile"
        lowering.emitter.emit(opcode, _box(lowering, op, op.memory, op.indices), guard=one_thread(lowering, op, None))
        return
    matrix = lowering.matrix(op, op.memory, steps=True)
    row, column = lowering.indices(op.indices)
    lowering.globals.prefetch(op.fragment, GlobalPlace(matrix, row, column, bounds(op.in_bounds)))


@lowers(TensorStoreOp)
def _tensor_store(lowering: KernelLowering, op: TensorStoreOp) -> None:
    place, box = _tile_place(lowering, op), _box(lowering, op, op.map, op.coordinates)
    mode = "im2col_no_offs" if isinstance(kind := op.map.type, TensorMapType) and kind.im2col.data else "tile"
    opcode = f"cp.async.bulk.tensor.{len(op.coordinates)}d.global.shared::cta.{mode}.bulk_group"
    lowering.emitter.comment(f"{op.name}: {op.map.type}")
    lowering.emitter.emit(opcode, box, place, guard=one_thread(lowering, op, op.by, op.each_warpgroup))
