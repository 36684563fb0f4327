"""What the fields of all records of a schedule share: where they stand in its text, how they are read and printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, get_args, get_type_hints

from ..isa.mma import Shape

T = TypeVar("T")


class ScheduleError(ValueError):
    """A schedule that contradicts itself or does not fit the target."""


def always(at: int, meaning: str, default: Any = MISSING) -> Any:
    """A field of a record that the text of a schedule always has, in the place `at`."""
    return field(default=default, metadata={"at": at, "meaning": meaning})


def rare(at: int, meaning: str, default: T, one_of: Sequence[T] = ()) -> T:
    """A field that is printed only where it differs from its default; with `one_of`, it has one of these values."""
    return field(default=default, metadata={"at": at, "meaning": meaning, "rare": True, "one_of": one_of})


class ScheduleRecord:
    """A part of a schedule. Subclasses are frozen dataclasses whose fields are made by `always` and `rare`.

    Raises:
        ScheduleError: when made of values that contradict each other.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for one in fields(self):  # pyright: ignore[reportArgumentType]
            known, value = one.metadata.get("one_of"), getattr(self, one.name)
            if known and value not in known:
                raise ScheduleError(f"{one.name} must be one of {', '.join(map(str, known))}, got {value}")
        self.check()

    def check(self) -> None:
        """Refuses what contradicts itself within the record."""


@dataclass(frozen=True, slots=True)
class ScheduleField:
    """One field: its name, the record that holds it, its type, its place in the text and what it means."""

    name: str
    record: str
    kind: Any
    at: int
    meaning: str
    default: object
    rare: bool
    one_of: tuple[object, ...]

    def read(self, value: object) -> object:
        """The value that text, numbers or a sequence stand for.

        Raises:
            ScheduleError: naming the field, if they stand for none.
        """
        if self.kind is str:
            return self._word(value)
        if self.kind is Shape:
            return self._shape(value)
        numbers = self._numbers(value, self.count)
        return numbers[0] if self.kind is int else numbers

    @property
    def count(self) -> int:
        """How many numbers, or words, it consists of."""
        return len(get_args(self.kind)) or 1

    def _word(self, value: object) -> str:
        word = str(value)
        if self.one_of and word not in self.one_of:
            known = ", ".join(map(str, self.one_of))
            raise ScheduleError(f"{self.name} must be one of {known}, got {word or 'nothing'}")
        if not word.isidentifier():
            raise ScheduleError(f"schedule option {self.name}: expected a word, got '{word}'")
        return word

    def _shape(self, value: object) -> Shape:
        try:
            return value if isinstance(value, Shape) else Shape.parse(str(value))
        except ValueError as error:
            raise ScheduleError(f"schedule option {self.name}: {error}") from None

    def _numbers(self, value: object, count: int) -> tuple[int, ...]:
        parts: Sequence[object]
        if isinstance(value, str):
            parts = value.replace("x", ",").split(",")
        else:
            parts = list(value) if isinstance(value, (tuple, list)) else [value]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        try:
            numbers = tuple(int(str(part)) for part in parts)
        except ValueError:
            numbers = ()
        if len(numbers) != count:
            expected = "one number" if count == 1 else f"{count} numbers"
            raise ScheduleError(f"schedule option {self.name}: expected {expected}, got '{value}'")
        return numbers


def fields_of(name: str, record: type[ScheduleRecord]) -> Iterator[ScheduleField]:
    """The fields of a record that a schedule holds under a name."""
    kinds = get_type_hints(record)
    for one in fields(record):  # pyright: ignore[reportArgumentType]
        said = one.metadata
        default = None if one.default is MISSING else one.default
        known = tuple(said.get("one_of", ()))
        yield ScheduleField(
            one.name, name, kinds[one.name], said["at"], said["meaning"], default, said.get("rare", False), known
        )


def text_of(value: object) -> str:
    """A field's value as text: `128x256x64`."""
    return "x".join(map(str, value)) if type(value) is tuple else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
