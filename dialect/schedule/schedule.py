"""The schedule of one matrix product: every choice the lowering makes, made once.

A schedule is chosen by the pass `warp-schedule`, stays visible in the IR as `#warp.schedule<...>`, and is written the
same way on the command line: `cta=128,256,64 warp=64,64 stages=3`. It consists of records, one in each module of this
package. Text and options name fields alone, whichever record holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast, get_type_hints

from ..isa.types import ELEMENT_TYPES
from .records import (
    ArithmeticSchedule,
    EpilogueSchedule,
    GridSchedule,
    LoopSchedule,
    OperandSchedule,
    ScheduleError,
    ScheduleField,
    ScheduleRecord,
    SharedSchedule,
    TileSchedule,
    fields_of,
    text_of,
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How one product is computed. Each record checks itself; what spans several is checked here.

    `schedule.loop.stages` and `schedule["stages"]` are the same field.

    Raises:
        ScheduleError: if tiles do not divide one another, a number is out of range, or records contradict each other.
    """

    tile: TileSchedule
    loop: LoopSchedule
    shared: SharedSchedule = SharedSchedule()
    grid: GridSchedule = GridSchedule()
    operands: OperandSchedule = OperandSchedule()
    epilogue: EpilogueSchedule = EpilogueSchedule()
    arithmetic: ArithmeticSchedule = ArithmeticSchedule()

    def __post_init__(self) -> None:
        rows, staging = self.tile.warp[0], self.epilogue.staging
        if staging < 0 or staging & staging - 1 or (staging and rows % staging):
            raise ScheduleError(
                f"staging must be 0 or a power of two that divides a warp tile's {rows} rows, got {staging}"
            )
        ctas, slices = self.grid.ctas, self.tile.sliced_k
        if ctas < 0 or (ctas and slices > 1):
            raise ScheduleError(f"ctas must be 0, or more with a single slice, got {ctas} and {slices} slices")

    @property
    def own_tiles(self) -> bool:
        """Whether each warpgroup that multiplies has tiles of its own."""
        return self.loop.consumers == "pingpong" and self.tile.warps == self.tile.together

    @property
    def consumers(self) -> int:
        """Warps that multiply: those of a tile, of two where each warpgroup has its own."""
        return self.tile.warps * (2 if self.own_tiles else 1)

    @property
    def slice_bytes(self) -> int:
        """Shared memory in which slices meet to add up their sums."""
        (m, n, _), accumulator = self.tile.cta, ELEMENT_TYPES[self.arithmetic.accumulate]
        return (self.tile.sliced_k - 1) * m * n * accumulator.bits // 8

    def __getitem__(self, name: str) -> object:
        """The value of a field, whichever record holds it.

        Raises:
            ScheduleError: for a name that no record has.
        """
        return getattr(getattr(self, field_named(name).record), name)

    def __str__(self) -> str:
        shown = (f for f in FIELDS.values() if not f.rare or self[f.name] != f.default)
        return ", ".join(f"{f.name} = {text_of(self[f.name])}" for f in shown)

    def _repr_svg_(self) -> str:
        """The tile of a CTA, for notebooks."""
        from .picture import picture

        return picture(self.tile, self.loop)

    def _repr_html_(self) -> str:
        """The picture, and what each field says, for notebooks."""
        from html import escape

        rows = "".join(
            f"<tr><th>{f.name}</th><td>{escape(text_of(self[f.name]))}</td><td>{escape(f.meaning)}</td></tr>"
            for f in FIELDS.values()
        )
        return f"{self._repr_svg_()}<table>{rows}</table>"

    def options(self) -> dict[str, str]:
        """Every field as the option that asks for it."""
        return {name: text_of(self[name]) for name in NAMES}

    @staticmethod
    def of(options: Mapping[str, object]) -> Schedule:
        """The schedule with these fields, given as text, numbers or sequences; rare ones may be left out.

        Raises:
            ScheduleError: naming the option that is missing, unknown, or cannot be read.
        """
        if missing := [name for name in ALWAYS if name not in options]:
            raise ScheduleError(f"the schedule lacks {', '.join(missing)}")
        values = _by_record(parse_options(options))
        return Schedule(**{name: _make(RECORDS[name], **own) for name, own in values.items()})  # pyright: ignore[reportArgumentType]

    @staticmethod
    def parse(text: str) -> Schedule:
        """Reads what `str` prints.

        Raises:
            ScheduleError: as `of`, for text that is no schedule.
        """
        parts = (part.partition(" = ") for part in text.split(", "))
        try:
            return Schedule.of({name: value for name, _, value in parts})
        except ScheduleError as error:
            raise ScheduleError(f"'{text}' is no schedule: {error}") from None

    def with_fields(self, **values: object) -> Schedule:
        """This schedule with some fields replaced, whichever records hold them: `with_fields(stages=3, group=4)`.

        Raises:
            ScheduleError: for a name that no record has, or values that contradict what stays.
        """
        changed = {name: replace(getattr(self, name), **own) for name, own in _by_record(values).items()}
        return replace(self, **changed)


RECORDS = cast("dict[str, type[ScheduleRecord]]", get_type_hints(Schedule))
"""The records of a schedule by name."""


def _fields() -> dict[str, ScheduleField]:
    found = sorted((f for name, record in RECORDS.items() for f in fields_of(name, record)), key=lambda f: f.at)
    named = {f.name: f for f in found}
    if len(named) != len(found) or len({f.at for f in found}) != len(found):
        raise TypeError("fields of a schedule have a name and a place in its text of their own")
    return named


FIELDS = _fields()
"""The fields of all records by name, as they stand in the text."""

NAMES = tuple(FIELDS)

ALWAYS = tuple(f.name for f in FIELDS.values() if not f.rare)
"""The fields that the text of a schedule always has."""


def field_named(name: str) -> ScheduleField:
    """The field of a name.

    Raises:
        ScheduleError: if there is none.
    """
    if name not in FIELDS:
        import difflib  # for messages alone

        near = difflib.get_close_matches(name, NAMES, 1, 0.7)
        hint = f", did you mean '{near[0]}'?" if near else ";"
        raise ScheduleError(f"unknown schedule option '{name}'{hint} known: {', '.join(NAMES)}")
    return FIELDS[name]


def parse_options(options: Mapping[str, object]) -> dict[str, object]:
    """Reads schedule fields from text, numbers or sequences.

    Raises:
        ScheduleError: naming the option that is unknown or cannot be read.
    """
    return {name: field_named(name).read(value) for name, value in options.items()}


def _by_record(values: Mapping[str, object]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        found.setdefault(field_named(name).record, {})[name] = value
    return found


def _make(record: type[ScheduleRecord], **values: object) -> ScheduleRecord:
    return cast("Callable[..., ScheduleRecord]", record)(**values)
