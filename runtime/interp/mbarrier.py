"""Barriers in shared memory: PTX ISA 9.7.13.15."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...dialect.ptx.syntax import Operand, Symbol
from . import phases
from .access import locate, space_of
from .decode import Context, opcode
from .errors import FaultError
from .observer import Kind
from .state import Action, Array, Selection, Source, State, Step
from .words import Modifiers

_VARIANTS = {
    "arrive": ("noComplete", "expect_tx"),
    "arrive_drop": ("noComplete", "expect_tx"),
    "test_wait": ("parity",),
    "try_wait": ("parity",),
}
_ORDER = ("acquire", "release", "relaxed", "cta", "cluster")

Find: TypeAlias = Callable[[Selection], Array]
"""The numbers of the 64-bit words of shared memory that some threads name."""


@opcode("mbarrier")
def mbarrier(ctx: Context, m: Modifiers) -> Action:
    """Objects made and ended, arrivals, transactions, and tests."""
    form = m.expect(*_FORMS, "pending_count")
    if form == "pending_count":
        return _pending_count(ctx, m)
    forms = [form, *(word for word in _VARIANTS.get(form, ()) if m.flag(word))]
    m.drop(*_ORDER)
    space = space_of(m)
    m.type("b64")
    if space not in ("shared", "cluster", "generic"):
        ctx.fail(f"an mbarrier object lies in shared memory, not in .{space}")
    return _FORMS[form](ctx, forms, space)


def objects(ctx: Context, operand: Operand, space: str, kind: Kind = "atomic") -> Callable[[State], Find]:
    """Where the objects of an address operand lie."""
    place = locate(ctx, operand, space, kind)

    def bind(state: State) -> Find:
        find, shared = place(state), state.memory.shared.buffer

        def found(sel: Selection) -> Array:
            parts = find(sel, 8)
            if len(parts) != 1 or parts[0].buffer is not shared:
                away = next(p for p in parts if p.buffer is not shared)
                first = 0 if away.chosen is None else int(away.chosen[0])
                thread = first if sel.lanes is None else int(sel.lanes[first])
                raise FaultError("an mbarrier object lies in shared memory; the address leads elsewhere", thread)
            return parts[0].index

        return found

    return bind


def _init(ctx: Context, forms: list[str], space: str) -> Action:
    where, n = ctx.take(2)
    place, count = objects(ctx, where, space, "store"), ctx.source(n, "u32")

    def bind(state: State) -> Step:
        find, counts, barriers = place(state), count(state), state.mbarriers
        return lambda sel: barriers.init(find(sel), sel.pick(counts).astype(np.int64), sel)

    return bind


def _inval(ctx: Context, forms: list[str], space: str) -> Action:
    place = objects(ctx, ctx.take(1)[0], space, "store")

    def bind(state: State) -> Step:
        find, barriers = place(state), state.mbarriers
        return lambda sel: barriers.inval(find(sel), sel)

    return bind


def _arrive(ctx: Context, forms: list[str], space: str) -> Action:
    """Takes arrivals off a phase. The state that the object had before is what the threads can wait with."""
    operands = ctx.take(2, 3)
    drop, complete, expects = forms[0] == "arrive_drop", "noComplete" not in forms, "expect_tx" in forms
    if len(operands) == 2 and (expects or not complete):
        ctx.take(3)
    dropped = operands[0] == Symbol("_")
    dest = None if dropped else ctx.dest(operands[0], "b64")
    place = objects(ctx, operands[1], space)
    given = ctx.source(operands[2], "u32") if len(operands) == 3 else None

    def bind(state: State) -> Step:
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


def _transact(ctx: Context, forms: list[str], space: str) -> Action:
    """More transactions to wait for, or fewer."""
    where, n = ctx.take(2)
    place, count = objects(ctx, where, space), ctx.source(n, "u32")
    sign = 1 if forms[0] == "expect_tx" else -1

    def bind(state: State) -> Step:
        find, counts, barriers = place(state), count(state), state.mbarriers
        return lambda sel: barriers.transact(find(sel), sel, sign * sel.pick(counts).astype(np.int64))

    return bind


def _wait(ctx: Context, forms: list[str], space: str) -> Action:
    """Whether a phase is complete. The time that `try_wait` may take has no meaning here."""
    operands = ctx.take(*((3, 4) if forms[0] == "try_wait" else (3,)))
    parity, pc = "parity" in forms, ctx.pc
    dest, place = ctx.dest(operands[0], "pred"), objects(ctx, operands[1], space)
    given: Source = ctx.source(operands[2], "u32" if parity else "b64")
    if len(operands) == 4:
        ctx.source(operands[3], "u32")

    def bind(state: State) -> Step:
        out, find, values, barriers = dest(state), place(state), given(state), state.mbarriers

        def step(sel: Selection) -> int | None:
            return barriers.wait(find(sel), sel, sel.pick(values).astype(np.uint64), parity, out, pc)

        return step

    return bind


def _pending_count(ctx: Context, m: Modifiers) -> Action:
    """The arrivals that were missing when a state was taken."""
    m.type("b64")
    d, a = ctx.take(2)
    dest, source = ctx.dest(d, "u32"), ctx.source(a, "b64")

    def bind(state: State) -> Step:
        out, states = dest(state), source(state)
        return lambda sel: sel.put(out, phases.pending(sel.pick(states)))

    return bind


def arrive_later(ctx: Context, m: Modifiers) -> Action:
    """`cp.async.mbarrier.arrive`, of which `mbarrier` is taken: an arrival when copies are complete.

    Without `.noinc` the phase waits for one arrival more, which is this one.
    """
    m.expect("arrive")
    more = not m.one("noinc")
    space = m.one("shared", "shared::cta") and "shared"
    m.type("b64")
    place = objects(ctx, ctx.take(1)[0], space or "generic")

    def bind(state: State) -> Step:
        find, barriers = place(state), state.mbarriers

        def step(sel: Selection) -> None:
            index = find(sel)
            if more:
                barriers.expect_more(index, sel)
            barriers.arrive_later(index, sel)

        return step

    return bind


_FORMS: dict[str, Callable[[Context, list[str], str], Action]] = {
    "init": _init,
    "inval": _inval,
    "arrive": _arrive,
    "arrive_drop": _arrive,
    "expect_tx": _transact,
    "complete_tx": _transact,
    "test_wait": _wait,
    "try_wait": _wait,
}
