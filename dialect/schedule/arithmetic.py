"""What is computed in."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleRecord, always, rare


@dataclass(frozen=True, slots=True)
class ArithmeticSchedule(ScheduleRecord):
    """The arithmetic of the product."""

    accumulate: str = always(6, "the element type of the accumulators", "f32")
    promote: str = rare(
        21,
        "where the sums of 8-bit floats by warpgroups are added up: `none`, by the tensor cores, which keep 13 bits of "
        "fraction beside the largest term; `f32`, those of each K tile by them, and these in f32 registers",
        "none",
        ("none", "f32"),
    )
