"""What threads tell each other: `warp.atomic_inc`, `warp.barrier_any`."""

from __future__ import annotations

from ...dialect.warp.synchronisation import AtomicIncOp, BarrierAnyOp, SyncLanesOp
from .emitter import VirtualRegister
from .kernel import KernelLowering
from .memory import memory_name
from .registry import lowers
from .scalars import at


@lowers(AtomicIncOp)
def _atomic_inc(lowering: KernelLowering, op: AtomicIncOp) -> None:
    emitter, counters, limit = lowering.emitter, lowering.matrix(op, op.counters), lowering.scalar(op.limit)
    base, offset = lowering.scalars.address(counters.base, [(lowering.scalar(op.number), counters.element_bytes)])
    emitter.comment(f"{op.name}: {memory_name(op.counters)}")
    taken, seen = lowering.predicate(op.taken), emitter.register("b32")
    if taken is not True:
        emitter.emit("mov.b32", "?, 0", seen)
    if taken is not False:
        known, operands = ("?", (limit,)) if isinstance(limit, VirtualRegister) else (str(limit), ())
        guard = taken if isinstance(taken, VirtualRegister) else None
        form = f"?, {at('?', offset)}, {known}"
        emitter.emit("atom.acq_rel.gpu.global.inc.u32", form, seen, base, *operands, guard=guard)
    lowering.values[op.seen] = seen


@lowers(SyncLanesOp)
def _sync_lanes(lowering: KernelLowering, op: SyncLanesOp) -> None:
    lowering.emitter.emit("bar.warp.sync", "-1")


@lowers(BarrierAnyOp)
def _barrier_any(lowering: KernelLowering, op: BarrierAnyOp) -> None:
    value, result = lowering.predicate(op.value), lowering.emitter.register("pred")
    barrier = "0"
    if op.number is not None and op.threads is not None:
        barrier = f"{op.number.value.data}, {op.threads.value.data}"
    if isinstance(value, VirtualRegister):
        lowering.emitter.emit("bar.red.or.pred", f"?, {barrier}, ?", result, value)
        lowering.values[op.any] = result
    else:
        lowering.emitter.emit("bar.sync", barrier)
        lowering.values[op.any] = value
