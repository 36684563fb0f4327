"""Operands that memory holds as integers of 8 or 4 bits, and that are multiplied as f16 or bf16."""

from __future__ import annotations

from typing import NamedTuple

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from ..isa.types import ELEMENT_TYPES, ElementType

INTEGERS = ("s8", "u8", "s4", "u4")
FLOATS = ("f16", "bf16")


class StoredIntegers(NamedTuple):
    """What memory holds of an operand: integers of a type of the ISA, from each of which a zero point is subtracted.

    Their differences, of 9 bits at most, are f16 and bf16 exactly.
    """

    name: str
    zero: int = 0

    @property
    def element(self) -> ElementType:
        """The type of the integers."""
        return ELEMENT_TYPES[self.name]

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest integer."""
        half = 1 << self.element.bits - 1
        return (-half, half - 1) if self.element.signed else (0, 2 * half - 1)

    def __str__(self) -> str:
        return f"as {self.name} minus {self.zero}" if self.zero else f"as {self.name}"

    def properties(self) -> dict[str, Attribute]:
        """How an operation holds it."""
        zero = {"zero": IntegerAttr(self.zero, i64)} if self.zero else {}
        return {"stored": StringAttr(self.name), **zero}

    @staticmethod
    def of(stored: StringAttr | None, zero: IntegerAttr | None) -> StoredIntegers | None:
        """What the properties of an operation say; None where they say nothing."""
        return None if stored is None else StoredIntegers(stored.data, 0 if zero is None else zero.value.data)

    @staticmethod
    def parse(parser: Parser) -> StoredIntegers | None:
        """Reads `as s8 minus 3`, if it is there."""
        if parser.parse_optional_keyword("as") is None:
            return None
        name = parser.parse_identifier(" as the type in memory")
        return StoredIntegers(name, parser.parse_integer() if parser.parse_optional_keyword("minus") else 0)

    def verify(self, multiplied: str, held: ElementType | None) -> None:
        """Checks the type that it is multiplied as, and that of the elements of memory.

        Raises:
            VerifyException: if there is no such conversion.
        """
        if self.name not in INTEGERS or multiplied not in FLOATS:
            raise VerifyException(
                f"expected {', '.join(INTEGERS)} multiplied as {' or '.join(FLOATS)}, got {self.name} as {multiplied}"
            )
        if held is None or held.is_float or held.bits != self.element.bits:
            raise VerifyException(f"expected memory of {self.element.bits}-bit integers for {self.name}")
        low, high = self.limits
        if not low <= self.zero <= high:
            raise VerifyException(f"expected a zero point from {low} to {high}, got {self.zero}")
