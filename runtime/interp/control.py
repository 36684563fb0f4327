"""Control flow and barriers: PTX ISA 9.7.12 and 9.7.13.1 to 9.7.13.4."""

from __future__ import annotations

import numpy as np

from .calls import return_
from .clusters import cluster_barrier
from .decode import Context, opcode
from .errors import FaultError
from .state import Action, Selection, State, Step
from .words import Modifiers


@opcode("bra")
def bra(ctx: Context, m: Modifiers) -> Action:
    """To a label. The machine splits the threads where a guard holds for some only."""
    m.drop("uni")
    (label,) = ctx.take(1)
    target = ctx.label(label)
    return lambda state: lambda sel: target


@opcode("ret", "exit")
def leave(ctx: Context, m: Modifiers) -> Action:
    """The end of these threads, or of a function."""
    m.drop("uni")
    ctx.take(0)
    if ctx.frame is not None and m.root == "ret":
        return return_(ctx.frame)
    return lambda state: state.flow.exit


@opcode("trap")
def trap(ctx: Context, m: Modifiers) -> Action:
    """Ends the launch with an error."""

    def step(sel: Selection) -> int | None:
        raise FaultError("the kernel executed a trap", _first(sel))

    return lambda state: step


@opcode("brkpt", "membar", "fence")
def in_order_already(ctx: Context, m: Modifiers) -> Action:
    """Steps happen one after the other, so fences have nothing to do."""
    m.words.clear()
    return lambda state: lambda sel: None


@opcode("bar", "barrier")
def barrier(ctx: Context, m: Modifiers) -> Action:
    """`sync` and `arrive` of a CTA; `bar.warp.sync` of a warp; `barrier.cluster` of a cluster."""
    if m.root == "barrier" and m.one("cluster"):
        return cluster_barrier(ctx, m)
    cta = m.flag("cta")
    if not cta and m.one("warp"):
        return _warp_barrier(ctx, m)
    aligned = m.flag("aligned") or m.root == "bar"
    wait = m.expect("sync", "arrive") == "sync"
    operands = ctx.take(1, 2)
    number = ctx.source(operands[0], "u32")
    count = ctx.integer(operands[1]) if len(operands) == 2 else 0
    if count < 0 or count % 32 or (not count and not wait):
        ctx.fail(f"expected a number of threads that is a positive multiple of 32, got {count}")
    pc = ctx.pc

    def bind(state: State) -> Step:
        numbers, flow = number(state), state.flow

        def step(sel: Selection) -> int | None:
            if aligned:
                flow.check_aligned(sel, ctx.instruction.opcode)
            chosen = np.unique(sel.pick(numbers))
            if chosen.size == 1:
                return flow.arrive(sel, _checked(int(chosen[0])), pc, count, wait)
            result = None
            for one in chosen:
                part = sel.where(numbers == one)
                if flow.arrive(part, _checked(int(one)), pc, count, wait) is None:
                    flow.go(pc + 1, flow.mask(part))
                result = -1
            return result

        return step

    return bind


def _checked(number: int) -> int:
    if not 0 <= number <= 15:
        raise FaultError(f"expected a barrier from 0 to 15, got {number}")
    return number


def _warp_barrier(ctx: Context, m: Modifiers) -> Action:
    m.expect("sync")
    (members,) = ctx.take(1)
    source, pc = ctx.source(members, "u32"), ctx.pc

    def bind(state: State) -> Step:
        mask, flow = source(state), state.flow
        return lambda sel: -1 if flow.meet(sel, mask, pc) is None else None

    return bind


def _first(sel: Selection) -> int:
    lanes = sel.lanes
    return 0 if lanes is None else int(lanes[0])
