"""Barriers, mbarriers, fences, control flow, clusters. PTX ISA 9.7.12, 9.7.13, 9.7.9.23."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NoReturn, TypeAlias

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.ptx.text.syntax import Address, Immediate, Operand, Symbol
from ...numerics.floats import Array, ArrayFunction
from ..machine import mbarriers
from ..machine.calls import return_
from ..machine.decode import Context, meaning
from ..machine.events import LANES, LEFT, AccessKind, BoundStep, Selection
from ..machine.flow import Complete
from ..machine.memory import RANK_BITS, SHARED_WINDOW, Buffer, FaultError, Part, thread_of
from ..machine.state import Action, Source, State, absent, acting
from .access import computes, locate, space_of

# Barriers of a CTA, a warp and a cluster: PTX ISA 9.7.13.1 to .3.

_MAX = 15


@meaning("bar.sync", "bar.arrive", "bar.red")
def barrier(ctx: Context, bound: Bindings) -> Action:
    """Threads arrive at a barrier of the CTA, and wait for the others but with `arrive`. `red` is a question to all of
    them, which all get the answer. Operands are the barrier's number and the number of threads."""
    kind, operands, answer = ctx.row.means, ctx.operands, absent
    if kind == "bar.red":
        d, *operands, c = operands
        answer = partial(_answer, bound["O"], ctx.dest(d, bound["T"]), *ctx.predicate(c))
    number, pc = ctx.source(operands[0], "u32"), ctx.pc
    if len(operands) == 2 and isinstance(operands[1], Immediate):
        _check_count(ctx.integer(operands[1]), ctx.fail)
    count = ctx.source(operands[1], "u32") if len(operands) == 2 else absent

    def step(
        state: State, numbers: Array, counts: Array | None, complete: Complete | None, sel: Selection
    ) -> int | None:
        parts, flow = list(_alike(sel, numbers, counts)), state.flow
        for part, one, expected in parts:
            gone_on = flow.arrive(part, one, pc, expected, kind != "bar.arrive", complete)
            if len(parts) == 1:
                return gone_on
            if gone_on is None:
                flow.go(pc + 1, flow.mask(part))
        return LEFT

    return acting(step, number, count, answer)


def _answer(mode: str, dest: Source, source: Source, negated: bool, state: State) -> Complete:
    """Writes the result of `bar.red` when the barrier completes, given the mask of all threads that arrived."""
    out, values, cta, ctas = dest(state), source(state), state.geometry.cta(), state.geometry.ctas

    def complete(arrived: Array) -> None:
        yes = np.bincount(cta[arrived & (values ^ negated)], minlength=ctas)
        everyone = np.bincount(cta[arrived], minlength=ctas)
        answer = {"popc": yes, "and": yes == everyone, "or": yes > 0}[mode]
        out[arrived] = answer[cta[arrived]]

    return complete


def _alike(sel: Selection, numbers: Array, counts: Array | None) -> Iterator[tuple[Selection, int, int]]:
    """Threads that name the same barrier and the same number of threads, with both."""
    for part, one in sel.by_value(numbers):
        if one > _MAX:
            _fault(part, f"expected a barrier from 0 to {_MAX}, got {one}")
        for some, count in [(part, 0)] if counts is None else part.by_value(counts):
            if counts is not None:
                _check_count(count, partial(_fault, some))
            yield some, one, count


def _check_count(count: int, fail: Callable[[str], NoReturn]) -> None:
    if count <= 0 or count % LANES:
        fail(f"expected a number of threads that is a positive multiple of {LANES}, got {count}")


def _fault(sel: Selection, message: str) -> NoReturn:
    raise FaultError(message, thread_of(0, sel.lanes))


@meaning("barrier.cluster.arrive", "barrier.cluster.wait")
def cluster_barrier(ctx: Context, bound: Bindings) -> Action:
    """Threads come to the barrier of the cluster, or wait until all of it have come."""
    arrives, pc = ctx.row.means == "barrier.cluster.arrive", ctx.pc

    def bind(state: State) -> BoundStep:
        act = state.cluster_barrier.arrive if arrives else state.cluster_barrier.wait
        return lambda sel: act(sel, pc)

    return bind


# Barriers in shared memory: PTX ISA 9.7.13.15.

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
    """The numbers of the words that accesses are to. Raises FaultError, of `what` is to be in shared memory, if an
    address leads elsewhere."""
    away = next((part for part in parts if part.buffer is not shared), None)
    if away is not None:
        first = 0 if away.chosen is None else int(away.chosen[0])
        raise FaultError(f"{what} in shared memory; the address leads elsewhere", thread_of(first, sel.lanes))
    return parts[0].index


@meaning("mbarrier.init")
def init(ctx: Context, bound: Bindings) -> Action:
    """`mbarrier.init`."""
    where, n = ctx.operands

    def step(state: State, find: Find, counts: Array, sel: Selection) -> None:
        state.mbarriers.init(find(sel), sel.pick(counts).astype(np.int64), sel)

    return acting(step, objects(ctx, where, space_of(bound), "store"), ctx.source(n, "u32"))


@meaning("mbarrier.inval")
def inval(ctx: Context, bound: Bindings) -> Action:
    """Ends an object."""

    def step(state: State, find: Find, sel: Selection) -> None:
        state.mbarriers.inval(find(sel), sel)

    return acting(step, objects(ctx, ctx.operands[0], space_of(bound), "store"))


@meaning("mbarrier.arrive")
def arrive(ctx: Context, bound: Bindings) -> Action:
    """`mbarrier.arrive` and its variants. The result is the state before the arrival, for a later wait."""
    operands, form = ctx.operands, bound.get("F", "")
    drop, complete, expects = bound["K"] == "arrive_drop", form != "noComplete", form == "expect_tx"
    dest = absent if operands[0] == Symbol("_") else ctx.dest(operands[0], "b64")
    place = objects(ctx, operands[1], space_of(bound))
    count = ctx.source(operands[2], "u32") if len(operands) == 3 else absent

    def step(state: State, out: Array | None, find: Find, numbers: Array | None, sel: Selection) -> None:
        ones = np.ones(sel.count, np.int64)
        number = ones if numbers is None else sel.pick(numbers).astype(np.int64)
        arrivals, transactions = (ones, number) if expects else (number, None)
        before = state.mbarriers.arrive(mbarriers.Arrivals(find(sel), sel, arrivals, transactions, drop, complete))
        if out is not None:
            sel.put(out, before)

    return acting(step, dest, place, count)


@meaning("mbarrier.expect_tx")
def transact(ctx: Context, bound: Bindings) -> Action:
    """More transactions to wait for, or fewer."""
    where, n = ctx.operands
    sign = 1 if bound["K"] == "expect_tx" else -1

    def step(state: State, find: Find, counts: Array, sel: Selection) -> None:
        state.mbarriers.transact(find(sel), sel, sign * sel.pick(counts).astype(np.int64))

    return acting(step, objects(ctx, where, space_of(bound)), ctx.source(n, "u32"))


@meaning("mbarrier.test_wait")
def wait(ctx: Context, bound: Bindings) -> Action:
    """`mbarrier.test_wait` and `try_wait`: whether a phase is complete. The time limit of `try_wait` is ignored."""
    operands, parity = ctx.operands, "F" in bound
    dest, place = ctx.dest(operands[0], "pred"), objects(ctx, operands[1], space_of(bound))
    phase: Source = ctx.source(operands[2], "u32" if parity else "b64")
    if len(operands) == 4:
        ctx.source(operands[3], "u32")

    def step(state: State, out: Array, find: Find, values: Array, sel: Selection) -> int | None:
        return state.mbarriers.wait(find(sel), sel, sel.pick(values).astype(np.uint64), parity, out, ctx.pc)

    return acting(step, dest, place, phase)


@computes("mbarrier.pending_count")
def pending_count(ctx: Context, bound: Bindings) -> ArrayFunction:
    """The arrivals that were missing when a state was taken."""
    return mbarriers.pending


@meaning("cp.async.mbarrier.arrive")
def arrive_later(ctx: Context, bound: Bindings) -> Action:
    """An arrival when copies are complete. Without `.noinc` the phase waits for one arrival more, which is this one."""
    more = not bound["F"]

    def step(state: State, find: Find, sel: Selection) -> None:
        index = find(sel)
        if more:
            state.mbarriers.expect_more(index, sel)
        state.mbarriers.arrive_later(index, sel)

    return acting(step, objects(ctx, ctx.operands[0], space_of(bound)))


# Control flow and fences: PTX ISA 9.7.12 and 9.7.13.4.


@meaning("bra")
def bra(ctx: Context, bound: Bindings) -> Action:
    """`bra`. The machine splits the threads if the guard holds for some of them only."""
    (label,) = ctx.operands
    target = ctx.label(label)
    return lambda state: lambda sel: target


@meaning("ret", "exit")
def leave(ctx: Context, bound: Bindings) -> Action:
    """The end of these threads, or of a function."""
    if ctx.frame is not None and ctx.row.root == "ret":
        return return_(ctx, ctx.frame)
    return lambda state: state.flow.exit


@meaning("trap")
def trap(ctx: Context, bound: Bindings) -> Action:
    """Ends the launch with an error."""

    def step(state: State, sel: Selection) -> NoReturn:
        _fault(sel, f"the kernel executed a trap, thread {state.geometry.thread_index(thread_of(0, sel.lanes))}")

    return acting(step)


@meaning("brkpt", "membar", "fence", "tcgen05.fence")
def in_order_already(ctx: Context, bound: Bindings) -> Action:
    """A fence: it does nothing, for the interpreter executes steps in order. Its address is evaluated for observers."""
    for operand in ctx.operands:
        if isinstance(operand, Address):
            ctx.address(operand, np.uint64)
    return lambda state: lambda sel: None


# Addresses of shared memory in a cluster of CTAs: PTX ISA 9.7.9.23 and .24.


@meaning("mapa")
def mapa(ctx: Context, bound: Bindings) -> Action:
    """The address of a shared variable in another CTA of the cluster."""
    generic, type = not bound["P"], bound["T"]
    d, a, rank = ctx.operands
    if generic and isinstance(a, Symbol):
        ctx.fail("expected a generic address in a 64-bit register; others are for .shared::cluster")

    def step(state: State, out: Array, values: Array, ranks: Array, sel: Selection) -> None:
        window, offset = _in_window(sel, values, generic)
        number, size = sel.pick(ranks).astype(np.uint64), state.geometry.cluster_size
        message = f"expected a CTA from 0 to {size - 1} of the cluster, got {{}}"
        sel.refuse(number >= size, message, number)
        plain = offset & np.uint64((1 << RANK_BITS) - 1)
        sel.put(out, window + plain + (number << np.uint64(RANK_BITS)))

    return acting(step, ctx.dest(d, type), ctx.source(a, type), ctx.source(rank, "u32"))


@meaning("getctarank")
def getctarank(ctx: Context, bound: Bindings) -> Action:
    """The rank of the CTA whose shared memory an address is of."""
    generic, type = not bound["P"], bound["T"]
    d, a = ctx.operands

    def step(state: State, out: Array, values: Array, sel: Selection) -> None:
        _, offset = _in_window(sel, values, generic)
        sel.put(out, offset >> np.uint64(RANK_BITS))

    return acting(step, ctx.dest(d, "u32"), ctx.source(a, type))


def _in_window(sel: Selection, values: Array, generic: bool) -> tuple[np.uint64, Array]:
    """The base of the window of shared memory, and the offsets of addresses in it. Other addresses are a fault."""
    address = sel.pick(values).view(f"u{values.itemsize}").astype(np.uint64)
    outside = address >> np.uint64(32) != np.uint64(SHARED_WINDOW >> 32)
    sel.refuse(outside & generic, "expected an address of shared memory, got {:#x}", address)
    window = np.uint64(SHARED_WINDOW if generic else 0)
    return window, address - window
