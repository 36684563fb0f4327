"""The way from accumulators to D."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleRecord, rare


@dataclass(frozen=True, slots=True)
class EpilogueSchedule(ScheduleRecord):
    """The epilogue."""

    staging: int = rare(
        14,
        "how many rows of a warp tile go through shared memory at a time on their way to D, so that a warp stores "
        "whole lines (0: each lane stores what it holds)",
        0,
    )
    add_c: str = rare(
        18,
        "when C is added. `first`: the accumulators start with C. `last`: it is added to what a warp is about to "
        "store. `auto`: last where rows are staged and there are enough registers, or else first",
        "auto",
        ("auto", "first", "last"),
    )
