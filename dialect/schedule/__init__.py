"""The schedule of a product: records of choices, each with its own check, and the text of them all."""

from .fields import ScheduleError
from .schedule import ALWAYS, FIELDS, NAMES, Schedule, parse_options
from .shared import SHARED_ALIGNMENT, SWIZZLES

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
