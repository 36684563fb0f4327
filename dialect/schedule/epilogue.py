"""The way from accumulators to D."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleRecord, rare


@dataclass(frozen=True, slots=True)
class EpilogueSchedule(ScheduleRecord):
    """The epilogue."""

    staging: int = rare(
        14,
        "how many rows of a warp tile pass through shared memory at a time before they are stored, so that a "
        "warp stores whole cache lines (0: each lane stores the elements that it holds)",
        0,
    )
    add_c: str = rare(
        18,
        "when C is added. `first`: the accumulators start with C. `last`: C is added just before the store. `auto`: "
        "`last` if rows are staged and there are enough registers, otherwise `first`",
        "auto",
        ("auto", "first", "last"),
    )
