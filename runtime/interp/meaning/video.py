"""Byte permutation and video instructions: numbers taken from parts of registers. PTX ISA 9.7.9.7, 9.7.18."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.ptx.rows.arithmetic import COMPARISONS
from ....dialect.ptx.text.syntax import Operand, Register
from ...numerics.floats import Array, ArrayFunction
from ..machine.decode import Context, integer_range, meaning
from ..machine.state import Action
from .access import computes, elementwise

_PERMUTATIONS: dict[str, Callable[[int, int], int]] = {
    "f4e": lambda n, i: n + i,
    "b4e": lambda n, i: (n - i) & 7,
    "rc8": lambda n, i: n,
    "ecl": lambda n, i: max(n, i),
    "ecr": lambda n, i: min(n, i),
    "rc16": lambda n, i: 2 * (n & 1) + (i & 1),
}
"""The byte that each mode puts at place i, for each value n of the low two bits of the selector."""


@computes("prmt")
def permute(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Picks bytes from two registers; bit 3 of a selector spreads the byte's sign."""
    mode = bound["MODE"]
    table = [sum(_PERMUTATIONS[mode](n, i) << 4 * i for i in range(4)) for n in range(4)] if mode else None

    def picked(low: Array, upper: Array, selectors: Array) -> Array:
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

    return picked


# Video instructions: numbers are taken from parts of registers and computed without overflow.

_WORD = (1 << 32) - 1

BitField: TypeAlias = tuple[int, int]
"""The lowest bit and the number of bits."""
Compute: TypeAlias = Callable[[Array, Array, Bindings], Array]


def _average(a: Array, b: Array, bound: Bindings) -> Array:
    """A half is rounded up, of negative sums away from zero."""
    return (a + b + (a + b >= 0)) >> 1


def _amount(b: Array, bound: Bindings) -> Array:
    return b & 31 if bound["MODE"] == "wrap" else np.minimum(b, 32)


def _shifted_left(a: Array, b: Array, bound: Bindings) -> Array:
    """By 32, no bit is left and only the sign still counts: 64 bits would not hold more."""
    amount = _amount(b, bound)
    return np.where(amount == 32, np.sign(a) << 32, a << np.minimum(amount, 31))


_OPERATIONS: dict[str, Compute] = {
    "vadd": lambda a, b, bound: a + b,
    "vsub": lambda a, b, bound: a - b,
    "vabsdiff": lambda a, b, bound: np.abs(a - b),
    "vmin": lambda a, b, bound: np.minimum(a, b),
    "vmax": lambda a, b, bound: np.maximum(a, b),
    "vavrg": _average,
    "vshl": _shifted_left,
    "vshr": lambda a, b, bound: a >> _amount(b, bound),
    "vset": lambda a, b, bound: COMPARISONS[bound["CMP"]](a, b).astype(np.int64),
}
_SECOND: dict[str, np.ufunc] = {"add": np.add, "min": np.minimum, "max": np.maximum}


def _extended(word: Array, part: BitField, signed: bool) -> Array:
    """A part of words as numbers."""
    low, bits = part
    value = word.astype(np.int64) >> low & (1 << bits) - 1
    return value - ((value >> bits - 1) << bits) if signed else value


def _selector(operand: Operand) -> tuple[Operand, str]:
    """An operand, and which of its parts are meant."""
    if isinstance(operand, Register) and "." in operand.name:
        name, _, selector = operand.name.rpartition(".")
        return Register(name), selector
    return operand, ""


def _place(selector: str) -> BitField:
    """The part that `b2` or `h1` names."""
    bits = {"": 32, "b": 8, "h": 16}[selector[:1]]
    return int(selector[1:] or 0) * bits, bits


def _on_words(ctx: Context, compute: Callable[..., Any]) -> Action:
    """d = compute(a, b, c), of whole registers; the low 32 bits of the result count. Of c no part can be chosen."""
    dest, a, b = (_selector(o)[0] for o in ctx.operands[:3])

    def words(*values: Array) -> Array:
        return (compute(*values) & _WORD).astype(np.uint32)

    return elementwise(words, ctx.dest(dest, "b32"), *(ctx.source(o, "b32") for o in (a, b, *ctx.operands[3:])))


@meaning("video.vmad")
def multiply_add_video(ctx: Context, bound: Bindings) -> Action:
    """A product of parts and a sum, shifted right; `.po` adds one."""
    signed = "s32" in (bound["A"], bound["B"])
    shift = int(bound["SCALE"][3:] or 0)
    first, second = (_selector(o)[1] for o in ctx.operands[1:3])

    def compute(a: Array, b: Array, c: Array) -> Array:
        left = _extended(a, _place(first), bound["A"] == "s32")
        right = _extended(b, _place(second), bound["B"] == "s32")
        # Exact: products of 32 bits and a sum need 65 bits.
        addend = _extended(c, (0, 32), signed).astype(object) + bool(bound["PO"])
        value = left.astype(object) * right.astype(object) + addend >> shift
        return np.clip(value, *integer_range("s32" if signed else "u32")) if bound["SAT"] else value

    return _on_words(ctx, compute)


def _selected_parts(selector: str, count: int, first: int) -> Sequence[int]:
    """The parts of the registers {b, a} that a selector names, lowest first; by default those of one register."""
    chosen = selector[1:] or "".join(str(first + i) for i in reversed(range(count)))
    return [int(digit) for digit in reversed(chosen)]


def _parts(target: str, first: str, second: str, count: int) -> list[tuple[BitField, BitField, BitField]]:
    """The parts of d that are computed, each with those of {b, a} that it is computed of. Of one number, a register's
    part or all of it; of 2 or 4, those that d's mask names."""
    if count == 1:
        low, bits = _place(second)
        return [(_place(target), _place(first), (32 + low, bits))]
    named, bits = {int(digit) for digit in target[1:]} or set(range(count)), 32 // count
    places = zip(range(count), _selected_parts(first, count, 0), _selected_parts(second, count, count), strict=True)
    return [((i * bits, bits), (p * bits, bits), (q * bits, bits)) for i, p, q in places if i in named]


def _operation(name: str, count: int) -> Callable[[Context, Bindings], Action]:
    operation = _OPERATIONS[name]

    def action(ctx: Context, bound: Bindings) -> Action:
        """Numbers, clamped to their parts, combined with c or inserted into c, which keeps its other parts."""
        type, op = bound.get("D", "u32"), bound.get("OP")
        target, first, second = (_selector(o)[1] for o in ctx.operands[:3])
        parts = _parts(target, first, second, count)

        def compute(a: Array, b: Array, *rest: Array) -> Array:
            both = a.astype(np.int64) | b.astype(np.int64) << 32
            result = rest[0].astype(np.int64) if rest else np.zeros_like(both)
            for (low, bits), left, right in parts:
                p, q = _extended(both, left, bound["A"] == "s32"), _extended(both, right, bound["B"] == "s32")
                value = operation(p, q, bound)
                value = np.clip(value, *integer_range(f"{type[0]}{bits}")) if bound.get("SAT") else value
                if op:
                    result = _SECOND[op](*(_extended(v, (0, 32), type == "s32") for v in (value, result)))
                else:
                    hole = ((1 << bits) - 1) << low
                    result = result & ~hole | value << low & hole
            return result

        return _on_words(ctx, compute)

    return action


for _name in _OPERATIONS:
    for _count, _without in ((1, ("vavrg",)), (2, ("vshl", "vshr")), (4, ("vshl", "vshr"))):
        if _name not in _without:
            meaning(f"video.{_name}{_count if _count > 1 else ''}")(_operation(_name, _count))
