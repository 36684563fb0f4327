"""What is computed in."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleRecord, always


@dataclass(frozen=True, slots=True)
class ArithmeticSchedule(ScheduleRecord):
    """The arithmetic of the product."""

    accumulate: str = always(6, "the element type of the accumulators", "f32")
