"""Barriers, exchanges of values between lanes, mbarriers, fences, control flow. PTX ISA 9.7.9.8, 9.7.12, 9.7.13."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.ptx.text.syntax import Address, Immediate, Operand, Symbol
from ...numerics import floats
from ...numerics.floats import Array, ArrayFunction
from ..machine import mbarriers
from ..machine.calls import return_
from ..machine.decode import Context, integer_range, meaning
from ..machine.events import LANES, LEFT, AccessKind, BoundStep, Selection
from ..machine.flow import Complete, lane_bits, rounds
from ..machine.kernel import Decoded
from ..machine.memory import Buffer, FaultError, Part, thread_of
from ..machine.state import Action, Source, State, absent, acting
from .access import computes, locate, space_of

# The lanes of a warp: PTX ISA 9.7.9.8, 9.7.13.2 and .5 and on.
#
# Lanes meet those that name the same members; lanes that have exited are not waited for. A lane outside of its own
# members takes part all the same, as on an H200, where such masks give a result of all lanes that came together.


def _collective(
    ctx: Context, mask: Operand | None, work: Callable[..., None], *bound: Callable[[State], Any]
) -> Action:
    """An instruction for which the member lanes of a warp wait for each other; without a mask, none waits for others.
    `work` takes the operands, the threads that have met, and for each thread in flight the lanes that it has met, as 32
    bits."""
    if mask is None:

        def together(state: State, *operands: Any) -> None:
            work(*operands, lane_bits(state.flow.mask(operands[-1])))

        return acting(together, *bound)
    members, alike, pc = ctx.source(mask, "u32"), isinstance(mask, Immediate), ctx.pc

    def step(state: State, named: Array, *operands: Any) -> int | None:
        *values, sel = operands
        met = state.flow.meet(sel, named, pc, alike)
        if met is None:
            return LEFT
        threads, lanes = met
        work(*values, threads, lanes)
        if threads is sel:
            return None
        state.flow.go(pc + 1, state.flow.mask(threads))
        return LEFT

    return acting(step, members, *bound)


@meaning("bar.warp.sync")
def warp_barrier(ctx: Context, bound: Bindings) -> Action:
    """Nothing but the waiting."""
    (members,) = ctx.operands

    def anywhere(state: State) -> None:
        state.flow.anywhere.add(ctx.pc)

    def work(_: None, sel: Selection, lanes: Array) -> None:
        pass

    return _collective(ctx, members, work, anywhere)


@meaning("activemask")
def activemask(ctx: Context, bound: Bindings) -> Action:
    """`activemask`: the lanes of the warp that execute the instruction together."""

    def work(out: Array, sel: Selection, here: Array) -> None:
        sel.put(out, sel.pick(here))

    return _collective(ctx, None, work, ctx.dest(ctx.operands[0], "u32"))


@meaning("vote")
def vote(ctx: Context, bound: Bindings) -> Action:
    """A question to all member lanes or, without `.sync`, to those that execute it."""
    mode = bound["MODE"]
    d, a, *mask = ctx.operands
    source, negated = ctx.predicate(a)
    dest = ctx.dest(d, "u32" if mode == "ballot" else "pred")

    def work(out: Array, values: Array, sel: Selection, here: Array) -> None:
        yes = lane_bits(values ^ negated) & here
        answer = {"ballot": yes, "any": yes != 0, "all": yes == here, "uni": (yes == here) | (yes == 0)}[mode]
        sel.put(out, sel.pick(answer))

    return _collective(ctx, mask[0] if mask else None, work, dest, source)


@meaning("shfl")
def shfl(ctx: Context, bound: Bindings) -> Action:
    """A value of another lane, within segments of the warp."""
    first, a, b, c, *mask = ctx.operands
    targets = ctx.pair(first)
    dest = ctx.dest(targets[0], "b32")
    valid = ctx.dest(targets[1], "pred") if len(targets) == 2 else absent
    operands = (ctx.source(o, t) for o, t in ((a, "b32"), (b, "u32"), (c, "u32")))

    def work(
        out: Array, flag: Array | None, values: Array, lanes: Array, bounds: Array, own: Array, warp: Array,
        sel: Selection, _: Array,
    ) -> None:  # fmt: skip
        source, inside = shuffle_source(bound["MODE"], own, lanes, bounds)
        sel.put(out, sel.pick(values[source * (sel.total // LANES) + warp]))
        if flag is not None:
            sel.put(flag, sel.pick(inside))

    return _collective(ctx, mask[0] if mask else None, work, dest, valid, *operands, _lane, _warp)


def shuffle_source(mode: str, own: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """The lane each lane reads, and whether it lies in bounds; out of bounds, a lane reads itself."""
    offset, segment, bound = (b & 31).astype(np.int64), (c >> np.uint32(8) & 31).astype(np.int64), (c & 31)
    top = (own & segment) | (bound.astype(np.int64) & ~segment)
    low = own & segment
    source = {"up": own - offset, "down": own + offset, "bfly": own ^ offset, "idx": low | (offset & ~segment)}[mode]
    inside = source >= top if mode == "up" else source <= top
    return np.where(inside, source, own), inside


def words_of(state: State, decoded: Decoded, operand: Operand) -> Array:
    """An operand of 32 bits or a predicate in each thread: what a register holds, or a literal."""
    if isinstance(operand, Immediate):
        return np.full(state.threads, int(operand.value) & 0xFFFFFFFF, np.uint32)
    slot = decoded.slot(operand)
    return np.zeros(state.threads, np.uint32) if slot is None else state.banks[slot.bits][slot.index]


def shuffle_origin(state: State, decoded: Decoded) -> tuple[Array, Array]:
    """Of each thread that executes a `shfl`, the lane that it reads, and the thread that is this lane."""
    _, _, *operands = decoded.source.operands
    lanes, bounds = (words_of(state, decoded, operand) for operand in operands[:2])
    source, _ = shuffle_source(decoded.traits.bindings["MODE"], state.geometry.lane(), lanes, bounds)
    return source, source * state.warps + np.tile(np.arange(state.warps), LANES)


_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@meaning("redux")
def redux(ctx: Context, bound: Bindings) -> Action:
    """One value from all member lanes."""
    name, type = bound["OP"], bound["T"]
    d, a, mask = ctx.operands
    source, dest = ctx.source(a, type), ctx.dest(d, type)
    reduce = _floats(name, bound) if type == "f32" else _integers(name, type)

    def work(out: Array, values: Array, sel: Selection, here: Array) -> None:
        rows, total = values.reshape(LANES, -1), np.empty_like(values)
        for group in rounds(np.ones(sel.total, np.bool_) if sel.mask is None else sel.mask, here):
            reduced = reduce(rows, group.reshape(LANES, -1))
            np.copyto(total, np.tile(reduced, LANES), where=group)
        sel.put(out, sel.pick(total))

    return _collective(ctx, mask, work, dest, source)


Reduction: TypeAlias = Callable[[Array, Array], Array]
"""Of values (32 lanes, warps) those chosen, to one for each warp."""


def _integers(name: str, type: str) -> Reduction:
    low, top = integer_range("u32" if type == "b32" else type)
    neutral = {"min": top, "max": low, "and": top}.get(name, 0)
    ufunc = _REDUCTIONS[name]
    return lambda rows, inside: ufunc.reduce(np.where(inside, rows, neutral), axis=0, dtype=rows.dtype)


def _floats(name: str, bound: Bindings) -> Reduction:
    """The least or greatest number, -0 below +0, among the numbers or, with `.NaN`, a NaN where there is one."""
    nan = np.uint32(floats.NAN["f32"])
    sign, neutral = np.uint32(1 << 31), np.uint32(0xFFFFFFFF if name == "min" else 0)

    def reduce(rows: Array, inside: Array) -> Array:
        words = np.abs(rows).view(np.uint32) if bound["ABS"] else rows.view(np.uint32)
        keys = np.where(words & sign, ~words, words | sign)
        number = inside & (rows == rows)
        key: Array = _REDUCTIONS[name].reduce(np.where(number, keys, neutral), axis=0)
        chosen = np.where(key & sign, key ^ sign, ~key)
        bad = (inside & ~number).any(axis=0) if bound["NAN"] else ~number.any(axis=0)
        return np.where(bad, nan, chosen).view(np.float32)

    return reduce


@meaning("match")
def match(ctx: Context, bound: Bindings) -> Action:
    """Which lanes hold the value of each lane, or whether all hold one."""
    mode = bound["MODE"]
    first, a, mask = ctx.operands
    targets = ctx.pair(first)
    dest = ctx.dest(targets[0], "b32")
    flag = ctx.dest(targets[1], "pred") if len(targets) == 2 else absent

    def work(out: Array, every: Array | None, values: Array, sel: Selection, here: Array) -> None:
        rows = values.reshape(LANES, -1)
        alike = np.concatenate([lane_bits(rows == row)[: row.size] for row in rows]) & here
        sel.put(out, sel.pick(alike if mode == "any" else np.where(alike == here, here, np.uint32(0))))
        if every is not None:
            sel.put(every, sel.pick(alike == here))

    return _collective(ctx, mask, work, dest, flag, ctx.source(a, bound["T"]))


@meaning("elect")
def elect(ctx: Context, bound: Bindings) -> Action:
    """One lane of the members, the lowest, and who it is."""
    both, mask = ctx.operands
    lane_of, elected = ctx.pair(both)

    def work(out: Array, chosen: Array, lane: Array, sel: Selection, here: Array) -> None:
        leader = np.bitwise_count((here & (~here + np.uint32(1))) - np.uint32(1))
        sel.put(out, sel.pick(leader))
        sel.put(chosen, sel.pick(lane == leader))

    return _collective(ctx, mask, work, ctx.dest(lane_of, "b32"), ctx.dest(elected, "pred"), _lane)


def _lane(state: State) -> Array:
    return state.geometry.lane()


def _warp(state: State) -> Array:
    return np.tile(np.arange(state.warps), LANES)


# Barriers of a CTA and a cluster: PTX ISA 9.7.13.1 and .3.

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
        act = state.flow.arrive_in_cluster if arrives else state.flow.wait_for_cluster
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
    elsewhere = f"{what} in shared memory; the address leads elsewhere"
    sel.refuse_parts(parts, lambda buffer: buffer is not shared, elsewhere)
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
