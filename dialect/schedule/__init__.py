"""The schedule of a product: a field for each choice, and the text of them all."""

from .fields import ScheduleError, roles
from .schedule import ALWAYS, FIELDS, NAMES, SHARED_ALIGNMENT, SWIZZLES, PartialSchedule, Schedule, parse_options

__all__ = (
    "ALWAYS", "FIELDS", "NAMES", "SHARED_ALIGNMENT", "SWIZZLES", "PartialSchedule", "Schedule", "ScheduleError",
    "parse_options", "roles",
)  # fmt: skip
