"""Which CTA computes which tiles, and when."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleError, ScheduleRecord, always, rare

MOST_PARTS = 64
"""Parts of K: the last CTA of a tile reads what all have, alone."""


@dataclass(frozen=True, slots=True)
class GridSchedule(ScheduleRecord):
    """The CTAs of a launch."""

    group: int = always(
        5, "how many rows of CTA tiles are computed together, column by column, so that L2 is reused", 8
    )
    split_k: int = rare(9, "how many CTAs share K of a tile; the last one that is done adds up their sums", 1)
    ctas: int = rare(
        13,
        "how many CTAs there are. Each computes one tile after the other, and starts to copy the next tile during the "
        "last steps of the one before (0: one CTA for each tile)",
        0,
    )
    edges: str = rare(
        17,
        "what becomes of CTA tiles that pass the end of D. `inside`: they are moved back inside, where that is "
        "possible, so that no access needs a bound. `predicated`: they stay, and accesses have bounds",
        "inside",
        ("inside", "predicated"),
    )

    def check(self) -> None:
        if self.group < 1:
            raise ScheduleError(f"group must be at least 1, got {self.group}")
        if not 1 <= self.split_k <= MOST_PARTS:
            raise ScheduleError(f"split_k must be 1 to {MOST_PARTS}, got {self.split_k}")
