"""What registers hold of an element of a matrix, by its type: see `elements.py`."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute

from ...dialect.isa.types import ELEMENT_TYPES
from ...dialect.warp.attributes import element_row, type_name
from .f32_functions import Operand
from .fragments import element_bits
from .operands import floating

NARROW = ("f16", "bf16")
"""Types whose elements are held as f32."""
LAST = ("f8E4M3FN", "f8E5M2")
"""Types that an element can only be converted to last."""
FLOATS = ("f32", "f64", *NARROW)
SINGLE = ("f32", *NARROW)
"""Types whose elements are held as f32 and computed with."""
INTEGERS = ("i1", "i4", "i8", "i16", "i32")
WIDTH = 32


@dataclass(frozen=True)
class HeldElement:
    """One element: a register, or a literal. `pending` is the 16-bit type that it has yet to be rounded to."""

    held: Operand
    pending: str = ""


@lru_cache
def held_as(kind: Attribute) -> str:
    """The PTX type of the register that holds an element; nothing for a type that is not lowered."""
    name = type_name(kind)
    if name in INTEGERS:
        return "pred" if name == "i1" else "b32"
    return "f64" if name == "f64" else "f32" if name in (*FLOATS, *LAST) else ""


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
