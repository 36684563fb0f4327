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
