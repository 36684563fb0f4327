"""Element types of the matrix instructions.

Source: PTX ISA 5.2 (Types) and 9.7.14.2 (Matrix Data-types).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NOT_IN_MLIR = "-"
"""What `mlir` says of a type that MLIR has no name for."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """One matrix element type, by its PTX name, and what MLIR calls it (the same unless `mlir` says so).

    `bits` is the width in a packed register, and in memory unless `memory_bits` says otherwise; `exponent` and
    `mantissa` are field widths of a binary floating-point format (0 for integers). A format that is not `signed` has no
    sign bit.
    """

    name: str
    bits: int
    exponent: int = 0
    mantissa: int = 0
    signed: bool = True
    mlir: str = ""

    def __post_init__(self) -> None:
        if self.exponent and self.signed + self.exponent + self.mantissa > self.bits:
            raise ValueError(f"{self.name}: the fields of a float must fit its {self.bits} bits")

    @property
    def is_float(self) -> bool:
        return self.exponent > 0

    @property
    def memory_bits(self) -> int:
        """Bits that an element takes in memory: a byte, of which the low bits, for those of 6."""
        return 8 if self.bits == 6 else self.bits

    @property
    def largest(self) -> float:
        """The largest value of an integer type; the largest finite one of an IEEE binary format."""
        if not self.is_float:
            return float((1 << self.bits - self.signed) - 1)
        bias = (1 << (self.exponent - 1)) - 1
        return (2.0 - 2.0**-self.mantissa) * 2.0**bias

    def nearest(self, value: float) -> float:
        """A number rounded to an IEEE binary format, to nearest even; an infinity beyond its largest."""
        if value == 0 or not math.isfinite(value):
            return value
        least = 2 - (1 << (self.exponent - 1))
        unit = 2.0 ** (max(math.frexp(value)[1] - 1, least) - self.mantissa)
        found = round(value / unit) * unit
        return found if abs(found) <= self.largest else math.copysign(math.inf, value)

    @property
    def per_register(self) -> int:
        """How many elements one 32-bit register packs (1 for 32 bits and wider)."""
        return max(1, 32 // self.bits)


_ROWS = (
    # 9.7.14.2  floating point
    ElementType("f16", 16, exponent=5, mantissa=10),
    ElementType("bf16", 16, exponent=8, mantissa=7),
    ElementType("f32", 32, exponent=8, mantissa=23),
    ElementType("tf32", 32, exponent=8, mantissa=10),
    ElementType("f64", 64, exponent=11, mantissa=52),
    # 5.2.3  alternate floating point
    ElementType("e4m3", 8, exponent=4, mantissa=3, mlir="f8E4M3FN"),
    ElementType("e5m2", 8, exponent=5, mantissa=2, mlir="f8E5M2"),
    ElementType("e3m2", 6, exponent=3, mantissa=2, mlir="f6E3M2FN"),
    ElementType("e2m3", 6, exponent=2, mantissa=3, mlir="f6E2M3FN"),
    ElementType("e2m1", 4, exponent=2, mantissa=1, mlir="f4E2M1FN"),
    # 9.7.14.3  scales; unsigned, so that all bits are exponent and mantissa
    ElementType("ue8m0", 8, exponent=8, signed=False, mlir="f8E8M0FNU"),
    ElementType("ue4m3", 8, exponent=4, mantissa=3, signed=False, mlir=NOT_IN_MLIR),
    # 9.7.14.2  integers; a signless MLIR integer is read as the signed type
    ElementType("s32", 32, mlir="i32"),
    ElementType("s8", 8, mlir="i8"),
    ElementType("u8", 8, signed=False, mlir="ui8"),
    ElementType("s4", 4, mlir="i4"),
    ElementType("u4", 4, signed=False, mlir="ui4"),
    ElementType("b1", 1, signed=False, mlir="i1"),
)

ELEMENT_TYPES = {row.name: row for row in _ROWS}
BY_MLIR_NAME = {row.mlir or row.name: row for row in _ROWS if row.mlir != NOT_IN_MLIR}


def element_type(name: str) -> ElementType:
    """The row of the element type called `name`.

    Raises:
        KeyError: with the known names, if there is none.
    """
    try:
        return ELEMENT_TYPES[name]
    except KeyError:
        raise KeyError(f"unknown element type '{name}'; known: {', '.join(ELEMENT_TYPES)}") from None


def element_types(names: str) -> tuple[ElementType, ...]:
    """The rows of several element types, with spaces between their names."""
    return tuple(map(element_type, names.split()))


FP8 = ("e4m3", "e5m2")
"""The 8-bit floats that products take."""
