"""What a field of a schedule is: how its values are read, checked and printed, and which products have it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any, get_args

from ..isa.form import Shape


class ScheduleError(ValueError):
    """A schedule that contradicts itself or does not fit the target."""


FRAGMENTS, WARPGROUPS, ATTENTION = "products of fragments", "products of warpgroups", "attention"
"""What has a schedule: products by `mma.sync`, products by `wgmma`, and attention by either."""

PRODUCTS = (FRAGMENTS, WARPGROUPS)

PARTS = {
    "tile": "The tiles of a product. Each tile size is a multiple of the next smaller one.",
    "loop": "The pipeline of the K loop.",
    "shared": "The layout of tiles in shared memory.",
    "grid": "The CTAs of a launch.",
    "operands": "The operands A and B.",
    "epilogue": "The epilogue.",
    "arithmetic": "The arithmetic of the product.",
}
"""The parts of a schedule, and what their fields are about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleField:
    """The declaration of a field of a schedule. `part` is the group that it belongs to, `meaning` its description.
    The text of a schedule contains the field if `always`, or if its value differs from `default`. The value is
    `one_of` several, or consists of numbers from `minimum` to `maximum`. `of` lists the kinds of kernels that have
    this choice."""

    name: str = ""
    kind: Any = None
    part: str
    meaning: str
    always: bool = False
    default: object = None
    one_of: tuple[object, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    of: tuple[str, ...] = (*PRODUCTS, ATTENTION)

    @property
    def count(self) -> int:
        """How many numbers, or words, it consists of."""
        return len(get_args(self.kind)) or 1

    def check(self, value: Any) -> None:
        """Refuses a value that is none of the field's. Raises ScheduleError saying which are."""
        if self.one_of and value not in self.one_of:
            values = ", ".join(map(str, self.one_of))
            raise ScheduleError(f"{self.name} must be one of {values}, got {text_of(value) or 'nothing'}")
        if self.minimum is None:
            return
        low, high = (value, value) if self.kind is int else (min(value), max(value))
        if low < self.minimum or (self.maximum is not None and high > self.maximum):
            several = "" if self.kind is int else "numbers of "
            limits = f"at least {self.minimum}" if self.maximum is None else f"{self.minimum} to {self.maximum}"
            raise ScheduleError(f"{self.name} must be {several}{limits}, got {text_of(value)}")

    def read(self, value: object) -> object:
        """The value that text, numbers or a sequence stand for. Raises ScheduleError naming the field, if they stand
        for none."""
        if self.kind is str:
            self.check(word := str(value))
            if not word.isidentifier():
                raise ScheduleError(f"schedule option {self.name}: expected a word, got '{word}'")
            return word
        if self.kind is Shape:
            try:
                return value if isinstance(value, Shape) else Shape.parse(str(value))
            except ValueError as error:
                raise ScheduleError(f"schedule option {self.name}: {error}") from None
        numbers = self._numbers(value)
        return numbers[0] if self.kind is int else numbers

    def _numbers(self, value: object) -> tuple[int, ...]:
        parts: Sequence[object]
        if isinstance(value, str):
            parts = value.replace("x", ",").split(",")
        else:
            parts = list(value) if isinstance(value, (tuple, list)) else [value]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        try:
            numbers = tuple(int(str(part)) for part in parts)
        except ValueError:
            numbers = ()
        if len(numbers) != self.count:
            expected = "one number" if self.count == 1 else f"{self.count} numbers"
            raise ScheduleError(f"schedule option {self.name}: expected {expected}, got '{value}'")
        return numbers


def text_of(value: object) -> str:
    """A field's value as text: `128x256x64`."""
    return "x".join(map(str, value)) if type(value) is tuple else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def refusal(error: ScheduleError, fields: Mapping[str, object]) -> str:
    """What an error says of a schedule, with the fields that were asked for if it names none of them."""
    named = any(re.search(rf"\b{name}\b", str(error)) for name in fields)
    asked = "" if named else ", ".join(f"{name} = {text_of(value)}" for name, value in fields.items())
    return f"schedule: {error}{f'; asked for {asked}' if asked else ''}"


def always(part: str, meaning: str, default: Any = MISSING, **more: Any) -> Any:
    """A field that the text of a schedule always has."""
    return field(default=default, metadata={"part": part, "meaning": meaning, "always": True, **more})


def rare(part: str, meaning: str, default: Any, **more: Any) -> Any:
    """A field that is printed only where it differs from its default."""
    return field(default=default, metadata={"part": part, "meaning": meaning, "default": default, **more})


def roles(named: str) -> str:
    """The operands that a field names, such as those that are packed: "", "a", "b" or "ab"."""
    return "" if named == "none" else named
