"""Sums and products with a carry: PTX ISA 9.7.2. One flag in each thread, CC.CF, is the carry out of an adder.

A difference is the sum of a, the complement of b, and 1, so that a borrow is a flag of 0. Where only differences follow
differences nobody can tell; nvcc's division of 128 bits reads the flag of `subc.cc` with `addc`, and relies on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....dialect.ptx.rows.grammar import Bindings
from ...numerics.array import Array
from ..decode import Context, meaning
from ..machine.state import Action, Source, State
from ..machine.storage import RegisterSlot
from .actions import several
from .integer import high, unsigned
from .register_dtypes import DTYPES


@meaning("add.cc", "addc", "sub.cc", "subc")
def add_sub(ctx: Context, bound: Bindings) -> Action:
    """Sum and difference: what is written goes by the bits alone."""
    type = unsigned(bound["T"])
    d, a, b = ctx.operands
    combine = _sum if ctx.row.root in ("add", "addc") else _difference
    return _action(ctx, combine, bound, [ctx.dest(d, type)], [ctx.source(a, type), ctx.source(b, type)])


@meaning("mad.cc", "madc")
def multiply_add(ctx: Context, bound: Bindings) -> Action:
    """Half of a product, and a sum."""
    part, type = bound["PART"], bound["T"]
    d, a, b, c = ctx.operands
    word = DTYPES[unsigned(type)]

    def combine(x: Array, y: Array, z: Array, carry: Array) -> tuple[Array, Array]:
        product = np.multiply(x, y) if part == "lo" else high(x, y)
        return _sum(product.view(word), z.view(word), carry)

    sources = [ctx.source(o, type) for o in (a, b, c)]
    return _action(ctx, combine, bound, [ctx.dest(d, unsigned(type))], sources)


@meaning("carry.untold")
def untold(ctx: Context, bound: Bindings) -> Action:
    """Raises:
    DecodeError: always.
    """
    ctx.fail("ptxas takes this with a carry, and the text does not say what it computes")


def _action(
    ctx: Context,
    combine: Callable[..., tuple[Array, Array]],
    bound: Bindings,
    dests: Sequence[Source],
    sources: Sequence[Source],
) -> Action:
    """`combine` takes the operands and a carry, and gives a word and a carry."""
    takes, gives = ctx.row.root in ("addc", "subc", "madc"), bool(bound["CC"])
    flag = _flag(ctx.carry())
    word = DTYPES[unsigned(bound["T"])]
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


def _flag(slot: RegisterSlot) -> Source:
    return lambda state: _row(state, slot)


def _row(state: State, slot: RegisterSlot) -> Array:
    return state.banks[1][slot.index]


def _sum(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    part = a + b
    total = part + carry
    return total, (part < a) | (total < part)


def _difference(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    return _sum(a, ~b, carry)
