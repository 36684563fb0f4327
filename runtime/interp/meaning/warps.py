"""Instructions by which the lanes of a warp exchange values: PTX ISA 9.7.9.8 and 9.7.13.5 and on.

Lanes meet those that name the same members; lanes that have exited are not waited for. A lane outside of its own
members takes part all the same, as on an H200, where such masks give a result of all lanes that came together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.ptx.text.syntax import Immediate, Operand
from ...numerics import floats
from ...numerics.floats import Array
from ..machine.decode import Context, meaning
from ..machine.events import LANES, LEFT, Selection
from ..machine.flow import lane_bits, rounds
from ..machine.kernel import Decoded
from ..machine.names import integer_range
from ..machine.state import Action, State, absent, acting


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
