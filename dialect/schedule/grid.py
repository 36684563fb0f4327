"""Which CTA computes which tiles, and when."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleError, ScheduleRecord, always, rare

MOST_PARTS = 64
"""Parts of K: the last CTA of a tile reads what all have, alone."""

MOST_CTAS = 8
"""CTAs of a cluster that every GPU with clusters can hold. Source: CUDA programming guide, Thread Block Clusters."""


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
    cluster: tuple[int, int] = rare(
        22,
        "how many CTAs along M x N share what they copy: those along M a tile of B, those along N a tile of A. Each "
        "copies a part of it to all of them (`wgmma` alone)",
        (1, 1),
    )

    def check(self) -> None:
        if self.group < 1:
            raise ScheduleError(f"group must be at least 1, got {self.group}")
        if not 1 <= self.split_k <= MOST_PARTS:
            raise ScheduleError(f"split_k must be 1 to {MOST_PARTS}, got {self.split_k}")
        down, across = self.cluster
        if min(down, across) < 1 or down * across > MOST_CTAS or down & down - 1 or across & across - 1:
            raise ScheduleError(f"a cluster has 1, 2, 4 or {MOST_CTAS} CTAs, got {down}x{across}")
        if self.ctas % (down * across):
            raise ScheduleError(f"ctas must be whole clusters of {down}x{across}, got {self.ctas}")
