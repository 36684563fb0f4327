"""Atomic operations on memory: PTX ISA 9.7.13.6 and 9.7.13.7.

Threads that meet at one address take turns: those of lane 0 first, warp after warp, then those of lane 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np

from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.types import bits_of
from ...numerics import floats
from ...numerics.array import Array
from ..decode import Context, meaning
from ..machine.memory import Part, check_writable
from ..machine.state import Action, State
from ..machine.threads import BoundStep, Selection
from .access import locate, space_of, vector_of
from .register_dtypes import DTYPES

Update: TypeAlias = Callable[[Array, Array, Array], Array]
"""The new words, of the old words and the one or two operands."""

_INTEGER: dict[str, Update] = {
    "and": lambda old, b, _: old & b,
    "or": lambda old, b, _: old | b,
    "xor": lambda old, b, _: old ^ b,
    "cas": lambda old, b, c: np.where(old == b, c, old),
    "exch": lambda old, b, _: b,
    "inc": lambda old, b, _: np.where(old >= b, np.uint32(0), old + np.uint32(1)),
    "dec": lambda old, b, _: np.where((old == 0) | (old > b), b, old - np.uint32(1)),
    "min": lambda old, b, _: np.minimum(old, b),
    "max": lambda old, b, _: np.maximum(old, b),
    "add": lambda old, b, _: old + b,
}


def _same(old: Array, b: Array) -> Array:
    """Whether words of 128 bits are equal."""
    words = (np.ascontiguousarray(value).view(np.uint64).reshape(-1, 2) for value in (old, b))
    return (next(words) == next(words)).all(axis=1)


_WIDE: dict[str, Update] = {
    "cas": lambda old, b, c: np.where(_same(old, b), c, old),
    "exch": lambda old, b, _: b,
}


def _float_extreme(operation: str, type: str) -> Update:
    """The lesser or the greater; of a number and a NaN the number, and -0 is less than +0."""
    scalar = type.removesuffix("x2")
    pick = {"min": floats.smaller, "max": floats.larger}[operation]

    def extreme(old: Array, b: Array) -> Array:
        return floats.rounded(pick(floats.value(old, scalar), floats.value(b, scalar)), scalar)

    whole = cast(Callable[[Array, Array], Array], floats.halves(extreme)) if type.endswith("x2") else extreme
    return lambda old, b, _: whole(old, b)


def _float_add(type: str, flush: bool) -> Update:
    """A sum rounded once; in global memory, f32 flushes subnormals."""
    scalar = type.removesuffix("x2")

    def add(old: Array, b: Array) -> Array:
        x, y = floats.value(old, scalar), floats.value(b, scalar)
        if not flush:
            return floats.rounded(floats.sum_odd(x, y) if scalar != "f64" else x + y, scalar)
        total = floats.rounded(floats.sum_odd(floats.flush(x, scalar), floats.flush(y, scalar)), scalar)
        return floats.flush(total.view(np.float32), scalar).view(np.uint32)

    whole = cast(Callable[[Array, Array], Array], floats.halves(add)) if type.endswith("x2") else add
    return lambda old, b, _: whole(old, b)


@meaning("atomic")
def atomic(ctx: Context, bound: Bindings) -> Action:
    """Reads, combines and writes back; `atom` returns what was there. Of a vector, each part by itself."""
    type, count, returns = bound["T"], vector_of(bound), ctx.row.root == "atom"
    operands = list(ctx.operands)
    dests = [ctx.dest(item, type) for item in ctx.items(operands.pop(0))] if returns else []
    place = locate(ctx, operands.pop(0), space_of(bound), "atomic")
    given = operands[: 1 + (bound["O"] == "cas")]
    sources = [[ctx.source(item, type) for item in ctx.items(o)] for o in given]
    seen, width, combine = seen_as(type), bits_of(type) // 8, updates(bound["O"], type)

    def bind(state: State) -> BoundStep:
        find = place(state)
        values = [[source(state).view(seen) for source in items] for items in sources]
        outs = [dest(state).view(seen) for dest in dests]

        def step(sel: Selection) -> None:
            parts = find(sel, width * count)
            check_writable(parts)
            for i in range(count):
                picked = [sel.pick(items[i]) for items in values]
                old = np.empty(sel.count, seen)
                for part in parts:
                    update = combine(part.buffer is state.memory.shared.buffer)
                    index = part.index if count == 1 else part.index * count + i
                    _update(Part(part.buffer, index, part.chosen), old, picked, update)
                if outs:
                    sel.put(outs[i], old)

        return step

    return bind


def seen_as(type: str) -> np.dtype[Any]:
    """How an update takes words of a type: integers as such, all others as bits."""
    return np.dtype(DTYPES[type] if type[0] in "us" or type == "b128" else f"u{bits_of(type) // 8}")


def updates(operation: str, type: str) -> Callable[[bool], Update]:
    """What an operation does in shared memory (True) and in global memory (False)."""
    if type == "b128":
        return lambda shared: _WIDE[operation]
    if not type.startswith(("f", "bf")):
        return lambda shared: _INTEGER[operation]
    if operation != "add":
        return lambda shared: _float_extreme(operation, type)
    return lambda shared: _float_add(type, type == "f32" and not shared)


def _update(part: Part, old: Array, operands: list[Array], update: Update) -> None:
    """Applies the update to one buffer, and keeps the old words."""
    view = part.buffer.view(old.itemsize).view(old.dtype)
    places = np.arange(old.size) if part.chosen is None else part.chosen
    for turn in _turns(part.index):
        where, who = part.index[turn], places[turn]
        before = view[where]
        view[where] = update(before, operands[0][who], operands[-1][who])
        old[who] = before


def _turns(index: Array) -> Iterator[Array]:
    """The accesses in rounds, so that within a round no two are to the same place."""
    ranked = np.argsort(index, kind="stable")
    sorted_index = index[ranked]
    starts = np.concatenate([[True], sorted_index[1:] != sorted_index[:-1]])
    first = np.maximum.accumulate(np.where(starts, np.arange(index.size), 0))
    rank = np.arange(index.size) - first
    by_rank = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[by_rank], np.arange(int(rank.max(initial=0)) + 2))
    for low, top in pairwise(bounds):
        yield ranked[by_rank[low:top]]
