"""Logic and shifts (PTX ISA 9.7.8), byte permutation, moves (9.7.9.3 and on)."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from ....dialect.ptx.text.syntax import Immediate, Not, Operand, Pair, Vector
from ..decode import Context, constant, opcode
from ..machine.state import Action, Array, Source
from .actions import elementwise, identity, several
from .integer import binary, unary
from .words import BITS, DTYPES, INTEGERS, Modifiers, width_of

_LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@opcode("and", "or", "xor")
def logic(ctx: Context, m: Modifiers) -> Action:
    """Bitwise, and of predicates."""
    return binary(ctx, m.type("pred", "b16", "b32", "b64"), _LOGIC[m.root])


@opcode("not")
def invert(ctx: Context, m: Modifiers) -> Action:
    """Complement."""
    return unary(ctx, m.type("pred", "b16", "b32", "b64"), np.invert)


@opcode("cnot")
def cnot(ctx: Context, m: Modifiers) -> Action:
    """1 for zero, 0 for anything else."""
    return unary(ctx, m.type("b16", "b32", "b64"), lambda a: a == 0)


@opcode("lop3")
def lop3(ctx: Context, m: Modifiers) -> Action:
    """Any function of three bits, by its truth table; whether the result is not 0 may go to a predicate."""
    merge = _LOGIC.get(m.one("and", "or"))
    m.type("b32")
    first, a, b, c, table, *rest = ctx.take(6 if merge else 5)
    lut = ctx.integer(table)
    if not 0 <= lut <= 255:
        ctx.fail(f"expected a truth table from 0 to 255, got {lut}")

    def combine(x: Array, y: Array, z: Array) -> Array:
        result = np.zeros_like(x)
        for row in range(8):
            if lut >> row & 1:
                result |= (x if row & 4 else ~x) & (y if row & 2 else ~y) & (z if row & 1 else ~z)
        return result

    sources = [ctx.source(s, "b32") for s in (a, b, c)]
    if merge is None:
        return elementwise(combine, ctx.dest(first, "b32"), *sources)
    if not isinstance(first, Pair):
        ctx.fail("expected a destination and a predicate, written d|p")
    other, negated = ctx.predicate(rest[0])

    def both(x: Array, y: Array, z: Array, q: Array) -> tuple[Array, Array]:
        result = combine(x, y, z)
        return result, merge(result != 0, ~q if negated else q)

    return several(both, [ctx.dest(first.first, "b32"), ctx.dest(first.second, "pred")], *sources, other)


@opcode("shl", "shr")
def shift(ctx: Context, m: Modifiers) -> Action:
    """Amounts from the width on give zeros or, for signed types, signs: as numpy's own shifts do."""
    left = m.root == "shl"
    type = m.type("b16", "b32", "b64") if left else m.type(*sorted(INTEGERS), "b16", "b32", "b64")
    dtype, ufunc = DTYPES[type], np.left_shift if left else np.right_shift
    d, a, b = ctx.take(3)
    if width_of(type) == 32 and type[0] != "s":
        return elementwise(ufunc, ctx.dest(d, type), ctx.source(a, type), ctx.source(b, "u32"))

    def moved(value: Array, amount: Array) -> Array:
        return ufunc(value, np.minimum(amount, np.uint32(64)).astype(dtype))

    return elementwise(moved, ctx.dest(d, type), ctx.source(a, type), ctx.source(b, "u32"))


@opcode("shf")
def funnel(ctx: Context, m: Modifiers) -> Action:
    """Funnel shift of the 64 bits {b, a}."""
    left = m.expect("l", "r") == "l"
    wrap = m.expect("wrap", "clamp") == "wrap"
    m.type("b32")
    d, a, b, c = ctx.take(4)

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


@opcode("prmt")
def prmt(ctx: Context, m: Modifiers) -> Action:
    """Picks bytes from two registers; bit 3 of a selector spreads the byte's sign."""
    m.type("b32")
    mode = m.one(*_PERMUTATIONS)
    d, a, b, c = ctx.take(4)
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


@opcode("mov")
def mov(ctx: Context, m: Modifiers) -> Action:
    """A register, a constant, an address, or the parts of a wider register together."""
    type = m.type(*sorted(INTEGERS | BITS), "b128", "f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "pred")
    d, a = ctx.take(2)
    if type == "b128":
        return _halves(ctx, d, a)
    if isinstance(d, Vector):
        return _unpack(ctx, type, d, a)
    if isinstance(a, Vector):
        return _pack(ctx, type, d, a)
    if isinstance(a, Not):
        return elementwise(np.invert, ctx.dest(d, type), ctx.source(a.register, type))
    return elementwise(identity, ctx.dest(d, type), ctx.source(a, type))


def _halves(ctx: Context, d: Operand, a: Operand) -> Action:
    """128 bits: a register or a literal, or two registers of 64, into the same."""

    def parts(operand: Operand, *, written: bool) -> list[Source]:
        if isinstance(operand, Vector):
            take = ctx.dest if written else ctx.source
            return [take(item, "b64") for item in ctx.vector(operand, 2)]
        if isinstance(operand, Immediate) and not written:
            return [ctx.source(operand, "b64"), constant(np.uint64(ctx.integer(operand) >> 64 & (1 << 64) - 1))]
        slot = ctx.slot(operand)
        if slot.bits != 128:
            ctx.fail(f"expected a register of 128 bits for .b128, got one of {slot.bits}")
        (ctx.writes if written else ctx.reads).append(slot)
        return [lambda state, i=i: state.banks[128][slot.index].view(np.uint64)[i::2] for i in range(2)]

    return several(lambda low, upper: (low, upper), parts(d, written=True), *parts(a, written=False))


def _part(ctx: Context, type: str, items: int) -> str:
    bits = width_of(type) // items
    if f"b{bits}" not in BITS:
        ctx.fail(f"cannot split .{type} into {items} parts")
    return f"b{bits}"


def _unpack(ctx: Context, type: str, d: Vector, a: Operand) -> Action:
    part = _part(ctx, type, len(d.items))
    count, dtype = len(d.items), DTYPES[part]
    word = f"b{width_of(type)}"

    def split(value: Array) -> tuple[Array, ...]:
        parts = np.ascontiguousarray(value).view(dtype).reshape(-1, count)
        return tuple(parts[:, i].copy() for i in range(count))

    return several(split, [ctx.dest(item, part) for item in d.items], ctx.source(a, word))


def _pack(ctx: Context, type: str, d: Operand, a: Vector) -> Action:
    part = _part(ctx, type, len(a.items))
    bits, word = width_of(part), np.dtype(DTYPES[f"b{width_of(type)}"])

    def join(*parts: Array) -> Array:
        result = cast(Array, parts[0].astype(word))
        for i, value in enumerate(parts[1:], 1):
            result |= np.left_shift(value.astype(word), np.array(bits * i, word))
        return result

    return elementwise(join, ctx.dest(d, f"b{width_of(type)}"), *(ctx.source(item, part) for item in a.items))
