"""The schedule of a product: a field for each choice, and the text of them all."""

from .schedule import (
    ALWAYS,
    FIELDS,
    SHARED_ALIGNMENT,
    SWIZZLES,
    PartialSchedule,
    Schedule,
    ScheduleError,
    parse_options,
    roles,
)  # fmt: skip

__all__ = (
    "ALWAYS", "FIELDS", "SHARED_ALIGNMENT", "SWIZZLES", "PartialSchedule", "Schedule", "ScheduleError",
    "parse_options", "roles",
)  # fmt: skip
