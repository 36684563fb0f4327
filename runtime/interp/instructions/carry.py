"""Sums and products with a carry: PTX ISA 9.7.2. One flag in each thread, CC.CF, is the carry out of an adder.

A difference is the sum of a, the complement of b, and 1, so that a borrow is a flag of 0. Where only differences follow
differences nobody can tell; nvcc's division of 128 bits reads the flag of `subc.cc` with `addc`, and relies on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..decode import Context, Slot, opcode
from ..machine.state import Action, Array, Source, State
from .actions import several
from .integer import high, unsigned
from .words import DTYPES, Modifiers

_TYPES = ("u32", "s32", "u64", "s64")


@opcode("addc", "subc")
def add_sub(ctx: Context, m: Modifiers) -> Action:
    """`add.cc`, `addc`, `sub.cc`, `subc`: what is written goes by the bits alone."""
    takes, gives = m.root[-1] == "c", m.flag("cc")
    type = unsigned(m.type(*_TYPES))
    d, a, b = ctx.take(3)
    combine = _sum if m.root.startswith("add") else _difference
    return _action(ctx, combine, type, takes, gives, [ctx.dest(d, type)], [ctx.source(a, type), ctx.source(b, type)])


@opcode("madc")
def multiply_add(ctx: Context, m: Modifiers) -> Action:
    """`mad.cc`, `madc`: half of a product, and a sum."""
    takes, gives = m.root[-1] == "c", m.flag("cc")
    part = m.expect("lo", "hi")
    type = m.type(*_TYPES)
    d, a, b, c = ctx.take(4)
    word = DTYPES[unsigned(type)]

    def combine(x: Array, y: Array, z: Array, carry: Array) -> tuple[Array, Array]:
        product = np.multiply(x, y) if part == "lo" else high(x, y)
        return _sum(product.view(word), z.view(word), carry)

    sources = [ctx.source(o, type) for o in (a, b, c)]
    return _action(ctx, combine, type, takes, gives, [ctx.dest(d, unsigned(type))], sources)


def _action(
    ctx: Context,
    combine: Callable[..., tuple[Array, Array]],
    type: str,
    takes: bool,
    gives: bool,
    dests: Sequence[Source],
    sources: Sequence[Source],
) -> Action:
    """`combine` takes the operands and a carry, and gives a word and a carry."""
    flag = _flag(ctx.carry())
    word = DTYPES[unsigned(type)]
    if takes:
        ctx.reads.append(ctx.carry())
    if gives:
        ctx.writes.append(ctx.carry())

    unread = np.full(1, combine is _difference)

    def compute(*values: Array) -> tuple[Array, ...]:
        *operands, carry = values if takes else (*values, unread)
        result, over = combine(*operands, carry.astype(word))
        return (result, over) if gives else (result,)

    return several(compute, [*dests, flag] if gives else dests, *sources, *([flag] if takes else []))


def _flag(slot: Slot) -> Source:
    return lambda state: _row(state, slot)


def _row(state: State, slot: Slot) -> Array:
    return state.banks[1][slot.index]


def _sum(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    part = a + b
    total = part + carry
    return total, (part < a) | (total < part)


def _difference(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    return _sum(a, ~b, carry)
