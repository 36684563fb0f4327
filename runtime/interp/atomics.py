"""Atomic operations on memory: PTX ISA 9.7.13.6 and 9.7.13.7.

Threads that meet at one address take turns: those of lane 0 first, warp after warp, then those of lane 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeAlias, cast

import numpy as np

from . import floats
from .access import locate, order, space_of
from .decode import Context, opcode
from .memory import Part, check_writable
from .state import Action, Array, Selection, State, Step
from .words import DTYPES, Modifiers, width_of

Update: TypeAlias = Callable[[Array, Array, Array], Array]
"""The new words, of the old words and the one or two operands."""

_TYPES = {
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "cas": ("b16", "b32", "b64"),
    "exch": ("b32", "b64"),
    "inc": ("u32",),
    "dec": ("u32",),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "add": ("u32", "s32", "u64", "s64", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2"),
}
_VECTORS = ("f32", "f16", "bf16", "f16x2", "bf16x2")
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


def combining(operation: str, type: str, flush: bool) -> tuple[np.dtype[np.generic], Update]:
    """How the words of a type are seen, and what an operation makes of an old and a new one."""
    if type.startswith(("f", "bf")):
        return np.dtype(f"u{width_of(type) // 8}"), _float_add(type, flush)
    return np.dtype(DTYPES[type]), _INTEGER[operation]


@opcode("atom", "red")
def atomic(ctx: Context, m: Modifiers) -> Action:
    """Reads, combines and writes back; `atom` returns what was there. Of a vector, each part by itself."""
    policy = order(m)
    m.drop("noftz", "sync", "aligned", "acq_rel")
    count = int((next((w for w in ("v2", "v4", "v8") if m.flag(w)), "v1"))[1:])
    space, operation = space_of(m), m.expect(*_TYPES)
    type = m.type(*_TYPES[operation])
    if count > 1 and (space != "global" or type not in _VECTORS):
        ctx.fail(f"vectors are for .global and .{', .'.join(_VECTORS)}")
    operands = list(ctx.take((m.root == "atom") + 2 + (operation == "cas") + policy))
    dests = [ctx.dest(o, type) for o in ctx.vector(operands.pop(0), count)] if m.root == "atom" else []
    place = locate(ctx, operands.pop(0), space, "atomic")
    given = operands[: 1 + (operation == "cas")]
    sources = [[ctx.source(item, type) for item in ctx.vector(o, count)] for o in given]
    is_float = type.startswith(("f", "bf"))
    width = width_of(type) // 8
    seen = np.dtype(f"u{width}") if is_float else np.dtype(DTYPES[type])

    def bind(state: State) -> Step:
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
                    flush = type == "f32" and part.buffer is not state.memory.shared.buffer
                    update = _float_add(type, flush) if is_float else _INTEGER[operation]
                    index = part.index if count == 1 else part.index * count + i
                    _update(Part(part.buffer, index, part.chosen), old, picked, update)
                if outs:
                    sel.put(outs[i], old)

        return step

    return bind


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
