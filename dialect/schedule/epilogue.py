"""The way from accumulators to D."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleRecord, rare


@dataclass(frozen=True, slots=True)
class EpilogueSchedule(ScheduleRecord):
    """The epilogue."""

    staging: int = rare(
        14,
        "how many rows of a warp tile at a time change lanes in shared memory on their way to D, so that a warp stores "
        "whole lines of it (0: each lane stores what it holds)",
        0,
    )
    add_c: str = rare(
        18,
        "when C is added: `first`, as accumulators that the loop starts from, or `last`, to what a warp is about to "
        "store (`auto`: last where elements change lanes anyway and registers suffice)",
        "auto",
        ("auto", "first", "last"),
    )
