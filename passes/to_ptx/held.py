"""What registers hold of an element of a matrix, by its type: see `elements.py`."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerType
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialect.isa.types import ELEMENT_TYPES
from ...dialect.warp.attributes import element_row, type_name
from .f32_functions import Operand
from .fragments import element_bits
from .operands import floating

NARROW = ("f16", "bf16")
"""Types whose elements are held as f32."""


class EightBits(NamedTuple):
    """What PTX calls a type of 8 bits, and the absolute value beyond which MLIR rounds to no number of it, where PTX
    takes the largest: to an infinity, that value included, or NaN where it has none."""

    name: str
    bound: float
    has_infinity: bool


EIGHT = {"f8E4M3FN": EightBits("e4m3", 464.0, False), "f8E5M2": EightBits("e5m2", 61440.0, True)}
"""Types of 8 bits that an element can be converted to, and from them to others. The bound is midway between the largest
number and the next that more exponents would allow, and goes to the even one."""
FLOATS = ("f32", "f64", *NARROW)
SINGLE = ("f32", *NARROW)
"""Types whose elements are held as f32 and computed with."""
INTEGERS = ("i1", "i4", "i8", "i16", "i32")
WIDTH = 32


@dataclass(frozen=True)
class HeldElement:
    """One element: a register, or a literal. `pending` is the type, of 16 bits or 8, that it has yet to be rounded
    to; of one of 8 bits, `clamped` says that no finite value is beyond its largest."""

    held: Operand
    pending: str = ""
    clamped: bool = False


@lru_cache
def held_as(kind: Attribute) -> str:
    """The PTX type of the register that holds an element; nothing for a type that is not lowered."""
    name = type_name(kind)
    if name in INTEGERS:
        return "pred" if name == "i1" else "b32"
    return "f64" if name == "f64" else "f32" if name in (*FLOATS, *EIGHT) else ""


def width_of(kind: Attribute) -> int:
    """The bits of an integer type; of another, the widest that is lowered."""
    return kind.bitwidth if isinstance(kind, IntegerType) else WIDTH


def literal(kind: Attribute, value: float) -> Operand:
    """A constant of an element type as a literal of what holds it."""
    element = element_row(kind)
    if element is None or not element.is_float:
        return int(value)
    bits = element_bits(element, value)
    if element.name == "f64":
        return floating(bits, 64)
    if element.name == "f16":
        bits = element_bits(ELEMENT_TYPES["f32"], struct.unpack("<e", struct.pack("<H", bits))[0])
    return floating(bits << 16 if element.name == "bf16" else bits)


LESSER, GREATER = (arith.MinimumfOp, arith.MinnumfOp), (arith.MaximumfOp, arith.MaxnumfOp)
"""What an element is clamped by."""


def is_clamped(value: SSAValue, bound: float) -> bool:
    """Whether a value is the greater, then the lesser, or the other way round, of another and a constant whose absolute
    value is below a bound."""
    for lower, upper in ((LESSER, GREATER), (GREATER, LESSER)):
        inner = _other_than_constant(value, lower, bound)
        if inner is not None and _other_than_constant(inner, upper, bound) is not None:
            return True
    return False


def _other_than_constant(value: SSAValue, kinds: tuple[type[Operation], ...], bound: float) -> SSAValue | None:
    """The other operand of an operation of these kinds that has a constant below a bound; None for anything else."""
    owner = value.owner
    if not isinstance(owner, kinds):
        return None
    for other, constant in (owner.operands, owner.operands[::-1]):
        number = constant.owner.value if isinstance(constant.owner, arith.ConstantOp) else None
        if isinstance(number, FloatAttr) and abs(number.value.data) < bound:
            return other
    return None
