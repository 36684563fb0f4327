"""Element types of the matrix instructions.

Source: PTX ISA 5.2 (Types) and 9.7.14.2 (Matrix Data-types).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElementType:
    """One matrix element type, by its PTX name, and what MLIR calls it (the same unless `mlir` says so).

    `bits` is the width in memory and in a packed register; `exponent` and `mantissa` are field
    widths of a binary floating-point format (0 for integers); `signed` matters for integers only.
    """

    name: str
    bits: int
    exponent: int = 0
    mantissa: int = 0
    signed: bool = True
    mlir: str = ""

    def __post_init__(self) -> None:
        if self.exponent and 1 + self.exponent + self.mantissa > self.bits:
            raise ValueError(f"{self.name}: the fields of a float must fit its {self.bits} bits")

    @property
    def is_float(self) -> bool:
        return self.exponent > 0

    @property
    def per_register(self) -> int:
        """How many elements one 32-bit register packs (1 for 32 bits and wider)."""
        return max(1, 32 // self.bits)

    @property
    def per_memory_access(self) -> int:
        """How many elements 16 bytes, the widest access of one thread, hold."""
        return 128 // self.bits


_ROWS = (
    ElementType("f16", 16, exponent=5, mantissa=10),
    ElementType("bf16", 16, exponent=8, mantissa=7),
    ElementType("f32", 32, exponent=8, mantissa=23),
)

ELEMENT_TYPES = {row.name: row for row in _ROWS}
BY_MLIR_NAME = {row.mlir or row.name: row for row in _ROWS}


def element_type(name: str) -> ElementType:
    """The row of the element type called `name`.

    Raises:
        KeyError: with the known names, if there is none.
    """
    try:
        return ELEMENT_TYPES[name]
    except KeyError:
        raise KeyError(f"unknown element type '{name}'; known: {', '.join(ELEMENT_TYPES)}") from None
