"""A schedule given in part: some fields, whose values are checked one by one; `warp-schedule` chooses the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from .fields import ScheduleError, text_of
from .schedule import ALWAYS, FIELDS, LIMITED, Schedule, parse_options


@dataclass(frozen=True)
class PartialSchedule:
    """Some fields of a schedule, in the order of the schedule's fields."""

    values: tuple[tuple[str, object], ...]

    @staticmethod
    def of(options: Mapping[str, object]) -> PartialSchedule:
        """The fields with these values, given as text, numbers or sequences.

        Raises:
            ScheduleError: naming the option that is unknown, cannot be read, or has a value that no schedule has.
        """
        values = parse_options(options)
        for one in LIMITED:
            if one.name in values:
                one.check(values[one.name])
        return PartialSchedule(tuple((name, values[name]) for name in FIELDS if name in values))

    def options(self) -> dict[str, object]:
        """The values by field."""
        return dict(self.values)

    def __str__(self) -> str:
        return ", ".join(f"{name} = {text_of(value)}" for name, value in self.values)


def parse_fields(parser: AttrParser) -> Schedule | PartialSchedule:
    """Reads `<cta = 128x128x32, ...>`: a schedule if all fields are there that its text always has."""
    options: dict[str, object] = {}

    def parse_field() -> None:
        name = parser.parse_identifier(" as a schedule field")
        parser.parse_punctuation("=")
        word = parser.parse_optional_identifier()
        options[name] = parser.parse_dimension_list() if word is None else word

    position = parser.pos
    parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parse_field)
    try:
        return Schedule.of(options) if options.keys() >= {*ALWAYS} else PartialSchedule.of(options)
    except ScheduleError as e:
        parser.raise_error(str(e), position)


@irdl_attr_definition
class PartialScheduleAttr(Data[PartialSchedule]):
    """A schedule with some of its fields, `#warp.schedule<cta = 128x256x64>`. `warp-schedule` replaces it by a complete
    one."""

    name = "warp.schedule"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> PartialSchedule:
        """Reads the fields, whether or not all are there."""
        return PartialSchedule.of(parse_fields(parser).options())

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.data))
