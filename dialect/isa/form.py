"""What the rows of all instruction families have in common: where they are legal, and what operands they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar, cast

from .targets import Availability, Target, Version
from .types import ElementType

VECTOR, SCALAR, ADDRESS, CONSTANT, SELECTOR = "vector", "scalar", "address", "constant", "selector"
"""Kinds of operands: registers in braces, one register, `[p]`, an integer constant, `{byte-id, thread-id}`."""

DESCRIPTOR, PREDICATE = "descriptor", "predicate"
"""A 64-bit register that says where a matrix lies in shared memory; a predicate, negated or not, or 0 or 1."""

_HELD_AS = {"f16": "f16x2", "bf16": "bf16x2", "f32": "f32", "f64": "f64", "s32": "s32"}


@dataclass(frozen=True, slots=True)
class FormOperand:
    """One operand of an instruction, in the order of the text.

    `count` is the number of registers of a vector, `values` what a constant may be, if the operand says it itself.
    """

    name: str
    kind: str
    type: str = "b32"
    count: int = 1
    optional: bool = False
    values: tuple[int, ...] = ()


def register_type(element: ElementType) -> str:
    """The type of the registers that hold elements of this type (ISA 9.7.14.4.1, 9.7.14.5): `b32` unless it has one."""
    return _HELD_AS.get(element.name, "b32")


class Form(Availability):
    """What every row has: its spelling, where it is legal, and since when."""

    __slots__ = ()

    section: str

    @property
    def spelling(self) -> str:
        """The PTX opcode with all its qualifiers."""
        raise TypeError(f"{type(self).__name__} has no spelling of its own")

    @property
    def operands(self) -> tuple[FormOperand, ...]:
        """The operands in the order of the text."""
        raise TypeError(f"{type(self).__name__} has no operands of its own")

    @property
    def signatures(self) -> tuple[tuple[FormOperand, ...], ...]:
        """Every list of operands that the spelling takes."""
        return (self.operands,)

    def since(self, target: Target) -> Version | None:
        """The first PTX version in which the target has it; None if it never has."""
        introduced = self.introduced(target)
        return None if introduced is None else max(introduced, target.ptx)

    def available(self, target: Target, version: Version) -> str | None:
        """Why the target does not have it in this PTX version, such as "needs PTX 8.7"; None if it has."""
        since = self.since(target)
        if since is None:
            return f"needs {self.requirement()}"
        end = self.removed(target)
        if end is not None and version >= end:
            return f"needs a version before PTX {end[0]}.{end[1]}"
        return None if version >= since else f"needs PTX {since[0]}.{since[1]}"


Row = TypeVar("Row", bound=Form)


def having(rows: Callable[[], tuple[Row, ...]], **fields: object) -> tuple[Row, ...]:
    """The rows of a table whose fields, or properties, have these values, in the order of the table."""
    found = _by_fields(rows, tuple(fields)).get(tuple(fields.values()), ())
    return cast("tuple[Row, ...]", found)


@cache
def _by_fields(rows: Callable[[], tuple[Form, ...]], names: tuple[str, ...]) -> Mapping[object, tuple[Form, ...]]:
    """The rows of a table by the values of some fields."""
    found: dict[object, tuple[Form, ...]] = {}
    for row in rows():
        key = tuple(getattr(row, name) for name in names)
        found[key] = (*found.get(key, ()), row)
    return found
