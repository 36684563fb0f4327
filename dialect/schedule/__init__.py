"""The schedule of a product: records of choices, each with its own check, and the text of them all."""

from .records import SHARED_ALIGNMENT, SWIZZLES, ScheduleError
from .schedule import ALWAYS, FIELDS, NAMES, Schedule, parse_options

__all__ = (
    "ALWAYS",
    "FIELDS",
    "NAMES",
    "SHARED_ALIGNMENT",
    "SWIZZLES",
    "Schedule",
    "ScheduleError",
    "parse_options",
)
