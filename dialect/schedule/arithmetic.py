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
        "where warpgroups add up products of 8-bit floats. `none`: in the tensor cores, with 13 bits of fraction "
        "beside the largest term. `f32`: in the tensor cores for each K tile, and the sums of K tiles in f32 registers",
        "none",
        ("none", "f32"),
    )
