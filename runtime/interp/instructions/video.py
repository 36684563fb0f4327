"""Video instructions: PTX ISA 9.7.18. Numbers are taken from parts of registers and computed without overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ....dialect.ptx.rows.comparison import COMPARISONS
from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.text.syntax import Operand, Register
from ...numerics.array import Array
from ..decode import Context, meaning
from ..machine.state import Action
from .actions import elementwise
from .register_dtypes import integer_range

_WORD = (1 << 32) - 1

BitField: TypeAlias = tuple[int, int]
"""The lowest bit and the number of bits."""
Compute: TypeAlias = Callable[[Array, Array, Bindings], Array]


def _average(a: Array, b: Array, bound: Bindings) -> Array:
    """A half is rounded up, of negative sums away from zero."""
    return (a + b + (a + b >= 0)) >> 1


def _shift(left: bool) -> Compute:
    def shift(a: Array, b: Array, bound: Bindings) -> Array:
        amount = b & 31 if bound["MODE"] == "wrap" else np.minimum(b, 32)
        if not left:
            return a >> amount
        # By 32, no bit is left and only the sign still counts: 64 bits would not hold more.
        return np.where(amount == 32, np.sign(a) << 32, a << np.minimum(amount, 31))

    return shift


_OPERATIONS: dict[str, Compute] = {
    "vadd": lambda a, b, bound: a + b,
    "vsub": lambda a, b, bound: a - b,
    "vabsdiff": lambda a, b, bound: np.abs(a - b),
    "vmin": lambda a, b, bound: np.minimum(a, b),
    "vmax": lambda a, b, bound: np.maximum(a, b),
    "vavrg": _average,
    "vshl": _shift(left=True),
    "vshr": _shift(left=False),
    "vset": lambda a, b, bound: COMPARISONS[bound["CMP"]](a, b).astype(np.int64),
}


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


def _clamped(value: Array, type: str, bits: int) -> Array:
    return np.clip(value, *integer_range(f"{type[0]}{bits}"))


def _second(op: str, value: Array, c: Array) -> Array:
    return {"add": np.add, "min": np.minimum, "max": np.maximum}[op](value, c)


def _scalar(name: str) -> Callable[[Context, Bindings], Action]:
    operation = _OPERATIONS[name]

    def action(ctx: Context, bound: Bindings) -> Action:
        """One number; then clamped to the part it goes to, combined with c, or put beside the rest of c."""
        type, sat, op = bound.get("D", "u32"), bound.get("SAT"), bound.get("OP")
        (d, target), (a, first), (b, second) = map(_selector, ctx.operands[:3])
        low, bits = _place(target)
        hole = ~np.int64(((1 << bits) - 1) << low)

        def compute(x: Array, y: Array, *rest: Array) -> Array:
            left, right = (
                _extended(v, _place(s), t == "s32") for v, s, t in ((x, first, bound["A"]), (y, second, bound["B"]))
            )
            value = operation(left, right, bound)
            value = _clamped(value, type, bits) if sat else value
            if op:
                value = _second(
                    op, _extended(value, (0, 32), type == "s32"), _extended(rest[0], (0, 32), type == "s32")
                )
            elif target:
                value = (value & ~hole >> low) << low | rest[0].astype(np.int64) & hole
            return (value & _WORD).astype(np.uint32)

        return elementwise(compute, ctx.dest(d, "b32"), *(ctx.source(o, "b32") for o in (a, b, *ctx.operands[3:])))

    return action


@meaning("video.vmad")
def multiply_add(ctx: Context, bound: Bindings) -> Action:
    """A product of parts and a sum, shifted right; `.po` adds one."""
    signed = "s32" in (bound["A"], bound["B"])
    shift = int(bound["SCALE"][3:] or 0)
    d, (a, first), (b, second), c = ctx.operands[0], *map(_selector, ctx.operands[1:3]), ctx.operands[3]

    def compute(x: Array, y: Array, z: Array) -> Array:
        left, right = (
            _extended(x, _place(first), bound["A"] == "s32"),
            _extended(y, _place(second), bound["B"] == "s32"),
        )
        # Exact: products of 32 bits and a sum need 65 bits.
        addend = _extended(z, (0, 32), signed).astype(object) + bool(bound["PO"])
        value = left.astype(object) * right.astype(object) + addend >> shift
        if bound["SAT"]:
            value = np.clip(value, *integer_range("s32" if signed else "u32"))
        return (value & _WORD).astype(np.uint32)

    return elementwise(compute, ctx.dest(d, "b32"), *(ctx.source(o, "b32") for o in (a, b, c)))


def _parts(selector: str, count: int, first: int) -> Sequence[int]:
    """Which parts of the registers {b, a} the numbers are, the lowest first; by default one register's own."""
    chosen = selector[1:] or "".join(str(first + i) for i in reversed(range(count)))
    return [int(digit) for digit in reversed(chosen)]


def _packed(name: str, count: int) -> Callable[[Context, Bindings], Action]:
    operation, bits = _OPERATIONS[name], 32 // count

    def action(ctx: Context, bound: Bindings) -> Action:
        """2 or 4 numbers, for which parts of both registers are chosen; those that d does not name stay as in c."""
        type, add = bound.get("D", "u32"), bound.get("OP")
        (d, mask), (a, first), (b, second) = map(_selector, ctx.operands[:3])
        named = {int(digit) for digit in mask[1:]} or set(range(count))

        def compute(x: Array, y: Array, z: Array) -> Array:
            both = x.astype(np.int64) | y.astype(np.int64) << 32
            result = z.astype(np.int64)
            for i, left, right in zip(range(count), _parts(first, count, 0), _parts(second, count, count), strict=True):
                if i in named:
                    p = _extended(both, (left * bits, bits), bound["A"] == "s32")
                    q = _extended(both, (right * bits, bits), bound["B"] == "s32")
                    value = operation(p, q, bound)
                    value = _clamped(value, type, bits) if bound.get("SAT") else value
                    hole = ((1 << bits) - 1) << bits * i
                    result = result + value if add else result & ~hole | value << bits * i & hole
            return (result & _WORD).astype(np.uint32)

        return elementwise(compute, ctx.dest(d, "b32"), *(ctx.source(o, "b32") for o in (a, b, ctx.operands[3])))

    return action


for _name in _OPERATIONS:
    if _name != "vavrg":
        meaning(f"video.{_name}")(_scalar(_name))
    if _name not in ("vshl", "vshr"):
        for _count in (2, 4):
            meaning(f"video.{_name}{_count}")(_packed(_name, _count))
