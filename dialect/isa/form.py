"""What the rows of all instruction families have in common: where they are legal, and what operands they take."""

from __future__ import annotations

from dataclasses import dataclass

from .targets import Specific, Target, Version, describe_specific, specific_version
from .types import ElementType

VECTOR, SCALAR, ADDRESS, CONSTANT, SELECTOR = "vector", "scalar", "address", "constant", "selector"
"""Kinds of operands: registers in braces, one register, `[p]`, an integer constant, `{byte-id, thread-id}`."""

_HELD_AS = {"f16": "f16x2", "bf16": "bf16x2", "f32": "f32", "f64": "f64", "s32": "s32"}


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of an instruction, in the order of the text. `count` is the number of registers of a vector."""

    name: str
    kind: str
    type: str = "b32"
    count: int = 1
    optional: bool = False


def register_type(element: ElementType) -> str:
    """The type of the registers that hold elements of this type (ISA 9.7.14.4.1, 9.7.14.5): `b32` unless it has one."""
    return _HELD_AS.get(element.name, "b32")


class Form:
    """What every row has: its spelling, where it is legal, and since when.

    `ptx` is the first PTX version, `sm` the lowest target number; with `only`, nothing but those targets has it.
    """

    __slots__ = ()

    ptx: Version
    sm: int
    only: Specific
    section: str

    @property
    def spelling(self) -> str:
        """The PTX opcode with all its qualifiers."""
        raise TypeError(f"{type(self).__name__} has no spelling of its own")

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands in the order of the text."""
        raise TypeError(f"{type(self).__name__} has no operands of its own")

    def runs_on(self, target: Target) -> bool:
        """Whether the target has it, in a recent enough PTX version."""
        return target.sm >= self.sm and (not self.only or specific_version(target, self.only) is not None)

    def since(self, target: Target) -> Version | None:
        """The first PTX version in which the target has it; None if it never has."""
        if not self.runs_on(target):
            return None
        return max(self.ptx, specific_version(target, self.only) or self.ptx, target.ptx)

    def requirement(self) -> str:
        """Where it runs, in words: "sm_80 or later"."""
        return describe_specific(self.only, self.ptx) if self.only else f"sm_{self.sm} or later"

    def available(self, target: Target, version: Version) -> str | None:
        """Why the target does not have it in this PTX version, such as "needs PTX 8.7"; None if it has."""
        since = self.since(target)
        if since is None:
            return f"needs {self.requirement()}"
        return None if version >= since else f"needs PTX {since[0]}.{since[1]}"
