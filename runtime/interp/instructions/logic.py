"""Logic and shifts (PTX ISA 9.7.8), byte permutation, moves (9.7.9.3 and on)."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.text.syntax import Immediate, Not, Operand, Vector
from ....dialect.ptx.types import bits_of
from ...numerics.array import Array
from ..decode import Context, constant, meaning
from ..machine.state import Action, Source
from .actions import elementwise, identity, several
from .integer import binary, unary
from .register_dtypes import DTYPES

_LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@meaning(*_LOGIC)
def logic(ctx: Context, bound: Bindings) -> Action:
    """Bitwise, and of predicates."""
    return binary(ctx, bound["T"], _LOGIC[ctx.row.root])


@meaning("not")
def invert(ctx: Context, bound: Bindings) -> Action:
    """Complement."""
    return unary(ctx, bound["T"], np.invert)


@meaning("cnot")
def cnot(ctx: Context, bound: Bindings) -> Action:
    """1 for zero, 0 for anything else."""
    return unary(ctx, bound["T"], lambda a: a == 0)


@meaning("lop3")
def lop3(ctx: Context, bound: Bindings) -> Action:
    """Any function of three bits, by its truth table; whether the result is not 0 may go to a predicate."""
    first, a, b, c, table, *rest = ctx.operands
    lut = ctx.integer(table)

    def combine(x: Array, y: Array, z: Array) -> Array:
        result = np.zeros_like(x)
        for row in range(8):
            if lut >> row & 1:
                result |= (x if row & 4 else ~x) & (y if row & 2 else ~y) & (z if row & 1 else ~z)
        return result

    sources = [ctx.source(s, "b32") for s in (a, b, c)]
    if "OP" not in bound:
        return elementwise(combine, ctx.dest(first, "b32"), *sources)
    merge, (other, negated) = _LOGIC[bound["OP"]], ctx.predicate(rest[0])

    def both(x: Array, y: Array, z: Array, q: Array) -> tuple[Array, Array]:
        result = combine(x, y, z)
        return result, merge(result != 0, ~q if negated else q)

    d, p = ctx.pair(first)
    return several(both, [ctx.dest(d, "b32"), ctx.dest(p, "pred")], *sources, other)


@meaning("shl", "shr")
def shift(ctx: Context, bound: Bindings) -> Action:
    """Amounts from the width on give zeros or, for signed types, signs: as numpy's own shifts do."""
    left, type = ctx.row.root == "shl", bound["T"]
    dtype, ufunc = DTYPES[type], np.left_shift if left else np.right_shift
    d, a, b = ctx.operands
    if bits_of(type) == 32 and type[0] != "s":
        return elementwise(ufunc, ctx.dest(d, type), ctx.source(a, type), ctx.source(b, "u32"))

    def moved(value: Array, amount: Array) -> Array:
        return ufunc(value, np.minimum(amount, np.uint32(64)).astype(dtype))

    return elementwise(moved, ctx.dest(d, type), ctx.source(a, type), ctx.source(b, "u32"))


@meaning("shf")
def funnel(ctx: Context, bound: Bindings) -> Action:
    """Funnel shift of the 64 bits {b, a}."""
    left, wrap = bound["TO"] == "l", bound["RANGE"] == "wrap"
    d, a, b, c = ctx.operands

    def shifted(low: Array, upper: Array, amount: Array) -> Array:
        both = (upper.astype(np.uint64) << np.uint64(32)) | low
        n = (amount & np.uint32(31) if wrap else np.minimum(amount, np.uint32(32))).astype(np.uint64)
        return (both << n) >> np.uint64(32) if left else both >> n

    return elementwise(shifted, ctx.dest(d, "b32"), *(ctx.source(s, "u32") for s in (a, b, c)))


_PERMUTATIONS: dict[str, Callable[[int, int], int]] = {
    "f4e": lambda n, i: n + i,
    "b4e": lambda n, i: (n - i) & 7,
    "rc8": lambda n, i: n,
    "ecl": lambda n, i: max(n, i),
    "ecr": lambda n, i: min(n, i),
    "rc16": lambda n, i: 2 * (n & 1) + (i & 1),
}
"""The byte that each mode puts at place i, for each value n of the low two bits of the selector."""


@meaning("prmt")
def prmt(ctx: Context, bound: Bindings) -> Action:
    """Picks bytes from two registers; bit 3 of a selector spreads the byte's sign."""
    mode = bound["MODE"]
    d, a, b, c = ctx.operands
    table = [sum(_PERMUTATIONS[mode](n, i) << 4 * i for i in range(4)) for n in range(4)] if mode else None

    def permute(low: Array, upper: Array, selectors: Array) -> Array:
        both = (upper.astype(np.uint64) << np.uint64(32)) | low
        if table is not None:
            selectors = np.array(table, np.uint32)[selectors & np.uint32(3)]
        result = np.zeros_like(both)
        for i in range(4):
            selector = (selectors >> np.uint32(4 * i)).astype(np.uint64)
            byte = both >> ((selector & np.uint64(7)) * np.uint64(8)) & np.uint64(0xFF)
            sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
            result |= np.where(selector & np.uint64(8), sign, byte) << np.uint64(8 * i)
        return result

    return elementwise(permute, ctx.dest(d, "b32"), *(ctx.source(s, "u32") for s in (a, b, c)))


# Moves


@meaning("mov")
def mov(ctx: Context, bound: Bindings) -> Action:
    """A register, a constant, an address, or the complement of a predicate."""
    type = bound["T"]
    d, a = ctx.operands
    if isinstance(a, Not):
        return elementwise(np.invert, ctx.dest(d, type), ctx.source(a.register, type))
    return elementwise(identity, ctx.dest(d, type), ctx.source(a, type))


@meaning("mov.vector")
def mov_vector(ctx: Context, bound: Bindings) -> Action:
    """Each element of a vector."""
    type = bound["T"]
    d, a = (ctx.items(operand) for operand in ctx.operands)
    return several(_unchanged, [ctx.dest(i, type) for i in d], *(ctx.source(i, type) for i in a))


@meaning("mov.b128")
def halves(ctx: Context, bound: Bindings) -> Action:
    """128 bits: a register or a literal, or two registers of 64, into the same."""

    def parts(operand: Operand, *, written: bool) -> list[Source]:
        if isinstance(operand, Vector):
            take = ctx.dest if written else ctx.source
            return [take(item, "b64") for item in ctx.items(operand)]
        if isinstance(operand, Immediate) and not written:
            return [ctx.source(operand, "b64"), constant(np.uint64(ctx.integer(operand) >> 64 & (1 << 64) - 1))]
        slot = ctx.slot(operand)
        (ctx.writes if written else ctx.reads).append(slot)
        return [lambda state, i=i: state.banks[128][slot.index].view(np.uint64)[i::2] for i in range(2)]

    d, a = ctx.operands
    return several(lambda low, upper: (low, upper), parts(d, written=True), *parts(a, written=False))


def _parts(ctx: Context, operand: Operand, type: str) -> tuple[tuple[Operand, ...], str]:
    """The items of `{...}`, and the type of each, which together are as wide as `type`."""
    items = ctx.items(operand)
    return items, f"b{bits_of(type) // len(items)}"


@meaning("mov.unpack")
def unpack(ctx: Context, bound: Bindings) -> Action:
    """The parts of a register."""
    d, a = ctx.operands
    items, part = _parts(ctx, d, bound["T"])
    count, dtype = len(items), DTYPES[part]

    def split(value: Array) -> tuple[Array, ...]:
        parts = np.ascontiguousarray(value).view(dtype).reshape(-1, count)
        return tuple(parts[:, i].copy() for i in range(count))

    return several(split, [ctx.dest(item, part) for item in items], ctx.source(a, bound["T"]))


@meaning("mov.pack")
def pack(ctx: Context, bound: Bindings) -> Action:
    """Registers as the parts of a wider one."""
    d, a = ctx.operands
    items, part = _parts(ctx, a, bound["T"])
    bits, word = bits_of(part), np.dtype(DTYPES[bound["T"]])

    def join(*parts: Array) -> Array:
        result = cast(Array, parts[0].astype(word))
        for i, value in enumerate(parts[1:], 1):
            result |= np.left_shift(value.astype(word), np.array(bits * i, word))
        return result

    return elementwise(join, ctx.dest(d, bound["T"]), *(ctx.source(item, part) for item in items))


def _unchanged(*values: Array) -> tuple[Array, ...]:
    return values
