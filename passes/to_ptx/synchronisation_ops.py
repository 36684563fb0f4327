"""What threads tell each other: `warp.atomic_inc`, `warp.barrier_any`."""

from __future__ import annotations

from ...dialect.warp.synchronisation import AtomicIncOp, BarrierAnyOp, SyncLanesOp
from .kernel import KernelLowering
from .memory import memory_name
from .operands import VirtualRegister
from .registry import lowers


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


@lowers(SyncLanesOp)
def _sync_lanes(lowering: KernelLowering, op: SyncLanesOp) -> None:
    lowering.emitter.emit("bar.warp.sync", -1)


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
