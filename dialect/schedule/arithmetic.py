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
        "where warpgroups add products of 8-bit floats. `f32`, which is chosen unless sums may be approximate: the "
        "tensor cores add those of one K tile, and f32 registers add K tiles. `none`: the tensor cores add all, "
        "keeping 13 bits of fraction relative to the largest term",
        "none",
        ("none", "f32"),
    )
