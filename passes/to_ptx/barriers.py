"""mbarrier objects: `warp.make_barriers`, `warp.arrive`, `warp.arrive_copies`, `warp.await`."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from ...dialect.isa.targets import Version
from ...dialect.warp.barriers import BARRIER_BYTES, BARRIER_SM, ArriveCopiesOp, ArriveOp, AwaitOp, MakeBarriersOp
from ..allocate import offset_of
from ..diagnostics import fail
from .addressing import SharedBarriers
from .branches import is_alone
from .clusters import require
from .emitter import VirtualRegister
from .kernel import KernelLowering
from .registry import lowers
from .scalars import at

SLEEPING_SM = 90
"""The first target where a wait may sleep until the phase ends, `try_wait` (PTX ISA 9.7.13.15.16)."""

PARITY_VERSION: Version = (7, 1)
REMOTE_VERSION: Version = (8, 0)
SLEEPING_VERSION: Version = (7, 8)


def barrier_address(
    lowering: KernelLowering, op: Operation, barriers: SSAValue, number: SSAValue
) -> tuple[VirtualRegister, int]:
    """The address of one of several barriers, as (register, offset)."""
    held = lowering.values[barriers]
    if not isinstance(held, SharedBarriers):
        fail(op, f"expected barriers made in this kernel, got {barriers.type}")
    along = lowering.scalars.multiply(lowering.scalar(number), BARRIER_BYTES)
    return lowering.addressing.shared_bytes_at(held.offset, along)


@lowers(MakeBarriersOp)
def _make(lowering: KernelLowering, op: MakeBarriersOp) -> None:
    if lowering.target.sm < BARRIER_SM:
        fail(op, f"{lowering.target} has no mbarrier; sm_{BARRIER_SM} and later have it")
    kind = op.barriers.type
    start = offset_of(op)
    lowering.values[op.barriers] = SharedBarriers(start)
    lowering.emitter.comment(f"{kind.count.data} barriers of {op.arrivals.value.data} arrivals")
    if lowering.threads < kind.count.data:
        fail(op, f"expected at most one barrier for each of {lowering.threads} threads, got {kind.count.data}")
    mine = lowering.scalars.compare("lt", lowering.thread, kind.count.data)
    base, offset = lowering.addressing.shared_bytes_at(start, lowering.scalars.multiply(lowering.thread, BARRIER_BYTES))
    form = f"{at('?', offset)}, {op.arrivals.value.data}"
    guard = mine if isinstance(mine, VirtualRegister) else None
    lowering.emitter.emit("mbarrier.init.shared.b64", form, base, guard=guard)


@lowers(ArriveOp)
def _arrive(lowering: KernelLowering, op: ArriveOp) -> None:
    base, offset = barrier_address(lowering, op, op.barriers, op.number)
    first = True if is_alone(op) else lowering.scalars.compare("eq", lowering.lane, 0)
    guard = first if isinstance(first, VirtualRegister) else None
    if op.cta is None:
        lowering.emitter.require(PARITY_VERSION)
        lowering.emitter.emit("mbarrier.arrive.shared.b64", f"_, {at('?', offset)}", base, guard=guard)
        return
    require(lowering, op, "barriers of other CTAs")
    lowering.emitter.require(REMOTE_VERSION)
    rank, emitter = lowering.scalar(op.cta), lowering.emitter
    named = "?" if isinstance(rank, VirtualRegister) else str(rank)
    held = [rank] if isinstance(rank, VirtualRegister) else []
    there = emitter.pure("b32", "mapa.shared::cluster.u32", f"?, {named}", base, *held)
    # A release for the cluster would be a fence of all memory, but nothing is published: the stage has been read.
    emitter.emit("mbarrier.arrive.shared::cluster.b64", f"_, {at('?', offset)}", there, guard=guard)


@lowers(ArriveCopiesOp)
def _arrive_copies(lowering: KernelLowering, op: ArriveCopiesOp) -> None:
    base, offset = barrier_address(lowering, op, op.barriers, op.number)
    lowering.emitter.emit("cp.async.mbarrier.arrive.noinc.shared.b64", at("?", offset), base)


@lowers(AwaitOp)
def _await(lowering: KernelLowering, op: AwaitOp) -> None:
    base, offset = barrier_address(lowering, op, op.barriers, op.number)
    emitter, parity = lowering.emitter, lowering.scalar(op.parity)
    sleeping = lowering.target.sm >= SLEEPING_SM
    emitter.require(SLEEPING_VERSION if sleeping else PARITY_VERSION)
    label, ended = emitter.fresh_label("wait"), emitter.register("pred")
    emitter.label(label)
    form = f"?, {at('?', offset)}, {'?' if isinstance(parity, VirtualRegister) else parity}"
    operands = [ended, base, *([parity] if isinstance(parity, VirtualRegister) else [])]
    emitter.emit(f"mbarrier.{'try' if sleeping else 'test'}_wait.parity.shared.b64", form, *operands)
    emitter.emit("bra", label, unless=ended)
