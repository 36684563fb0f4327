"""mbarrier objects: `warp.make_barriers`, `warp.arrive`, `warp.arrive_copies`, `warp.await`."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from ...dialect.warp.barriers import BARRIER_BYTES, ArriveCopiesOp, ArriveOp, AwaitOp, MakeBarriersOp
from ..allocate import offset_of
from ..diagnostics import fail
from .addressing import SharedBarriers
from .branches import is_alone
from .kernel import KernelLowering
from .operands import SINK, At
from .registry import lowers


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
