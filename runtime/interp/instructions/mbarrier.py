"""Barriers in shared memory: PTX ISA 9.7.13.15."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.text.syntax import Operand, Symbol
from ...numerics.array import Array
from ..decode import Context, meaning
from ..errors import FaultError
from ..machine import phases
from ..machine.memory import Buffer, Part
from ..machine.state import Action, Source, State
from ..machine.threads import BoundStep, Selection
from ..observers.events import AccessKind
from .access import locate, space_of

Find: TypeAlias = Callable[[Selection], Array]
"""The numbers of the 64-bit words of shared memory that some threads name."""


def objects(ctx: Context, operand: Operand, space: str, kind: AccessKind = "atomic") -> Callable[[State], Find]:
    """Where the objects of an address operand lie."""
    place = locate(ctx, operand, space, kind)

    def bind(state: State) -> Find:
        find, shared = place(state), state.memory.shared.buffer

        return lambda sel: in_shared(find(sel, 8), shared, sel, "an mbarrier object lies")

    return bind


def in_shared(parts: tuple[Part, ...], shared: Buffer, sel: Selection, what: str) -> Array:
    """The numbers of the words that accesses are to, which all have to be in shared memory.

    Raises:
        FaultError: `what` that is not so, and that the address leads elsewhere.
    """
    away = next((part for part in parts if part.buffer is not shared), None)
    if away is not None:
        first = 0 if away.chosen is None else int(away.chosen[0])
        thread = first if sel.lanes is None else int(sel.lanes[first])
        raise FaultError(f"{what} in shared memory; the address leads elsewhere", thread)
    return parts[0].index


@meaning("mbarrier.init")
def init(ctx: Context, bound: Bindings) -> Action:
    """Makes an object."""
    where, n = ctx.operands
    place, count = objects(ctx, where, space_of(bound), "store"), ctx.source(n, "u32")

    def bind(state: State) -> BoundStep:
        find, counts, barriers = place(state), count(state), state.mbarriers
        return lambda sel: barriers.init(find(sel), sel.pick(counts).astype(np.int64), sel)

    return bind


@meaning("mbarrier.inval")
def inval(ctx: Context, bound: Bindings) -> Action:
    """Ends an object."""
    place = objects(ctx, ctx.operands[0], space_of(bound), "store")

    def bind(state: State) -> BoundStep:
        find, barriers = place(state), state.mbarriers
        return lambda sel: barriers.inval(find(sel), sel)

    return bind


@meaning("mbarrier.arrive")
def arrive(ctx: Context, bound: Bindings) -> Action:
    """Takes arrivals off a phase. The state that the object had before is what the threads can wait with."""
    operands, form = ctx.operands, bound.get("F", "")
    drop, complete, expects = bound["K"] == "arrive_drop", form != "noComplete", form == "expect_tx"
    dropped = operands[0] == Symbol("_")
    dest = None if dropped else ctx.dest(operands[0], "b64")
    place = objects(ctx, operands[1], space_of(bound))
    given = ctx.source(operands[2], "u32") if len(operands) == 3 else None

    def bind(state: State) -> BoundStep:
        find, barriers = place(state), state.mbarriers
        out, numbers = dest(state) if dest else None, given(state) if given else None

        def step(sel: Selection) -> None:
            ones = np.ones(sel.count, np.int64)
            number = ones if numbers is None else sel.pick(numbers).astype(np.int64)
            arrivals, transactions = (ones, number) if expects else (number, None)
            found = barriers.arrive(find(sel), sel, arrivals, transactions, drop, complete)
            if out is not None:
                sel.put(out, found)

        return step

    return bind


@meaning("mbarrier.expect_tx")
def transact(ctx: Context, bound: Bindings) -> Action:
    """More transactions to wait for, or fewer."""
    where, n = ctx.operands
    place, count = objects(ctx, where, space_of(bound)), ctx.source(n, "u32")
    sign = 1 if bound["K"] == "expect_tx" else -1

    def bind(state: State) -> BoundStep:
        find, counts, barriers = place(state), count(state), state.mbarriers
        return lambda sel: barriers.transact(find(sel), sel, sign * sel.pick(counts).astype(np.int64))

    return bind


@meaning("mbarrier.test_wait")
def wait(ctx: Context, bound: Bindings) -> Action:
    """Whether a phase is complete. The time that `try_wait` may take has no meaning here."""
    operands, parity, pc = ctx.operands, "F" in bound, ctx.pc
    dest, place = ctx.dest(operands[0], "pred"), objects(ctx, operands[1], space_of(bound))
    given: Source = ctx.source(operands[2], "u32" if parity else "b64")
    if len(operands) == 4:
        ctx.source(operands[3], "u32")

    def bind(state: State) -> BoundStep:
        out, find, values, barriers = dest(state), place(state), given(state), state.mbarriers

        def step(sel: Selection) -> int | None:
            return barriers.wait(find(sel), sel, sel.pick(values).astype(np.uint64), parity, out, pc)

        return step

    return bind


@meaning("mbarrier.pending_count")
def pending_count(ctx: Context, bound: Bindings) -> Action:
    """The arrivals that were missing when a state was taken."""
    d, a = ctx.operands
    dest, source = ctx.dest(d, "u32"), ctx.source(a, "b64")

    def bind(state: State) -> BoundStep:
        out, states = dest(state), source(state)
        return lambda sel: sel.put(out, phases.pending(sel.pick(states)))

    return bind


@meaning("cp.async.mbarrier.arrive")
def arrive_later(ctx: Context, bound: Bindings) -> Action:
    """An arrival when copies are complete. Without `.noinc` the phase waits for one arrival more, which is this one."""
    more = not bound["F"]
    place = objects(ctx, ctx.operands[0], space_of(bound))

    def bind(state: State) -> BoundStep:
        find, barriers = place(state), state.mbarriers

        def step(sel: Selection) -> None:
            index = find(sel)
            if more:
                barriers.expect_more(index, sel)
            barriers.arrive_later(index, sel)

        return step

    return bind
