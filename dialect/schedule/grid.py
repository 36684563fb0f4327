"""Which CTA computes which tiles, and when."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleError, ScheduleRecord, always, rare

MOST_PARTS = 64
"""Parts of K: the last CTA of a tile reads what all have, alone."""

MOST_GRID = 2**31 - 1
"""CTAs of a launch along x, at most. Source: CUDA programming guide, technical specifications."""

MOST_CTAS = 8
"""CTAs of a cluster that every GPU with clusters can hold. Source: CUDA programming guide, Thread Block Clusters."""


@dataclass(frozen=True, slots=True)
class GridSchedule(ScheduleRecord):
    """The CTAs of a launch."""

    group: int = always(
        5,
        "how many rows of CTA tiles form a group. CTAs run through a group column by column, which reuses "
        "operands in L2; a number above the rows that there are makes all of them one group",
        8,
    )
    split_k: int = rare(
        9, "split-K: how many CTAs share K of each tile; the last one to finish adds their partial sums", 1
    )
    ctas: int = rare(
        13,
        "how many persistent CTAs there are, at most one for each tile. Each computes one tile after another, and "
        "starts to copy the next tile during the last steps of the current one (0: one CTA for each tile)",
        0,
    )
    edges: str = rare(
        17,
        "what happens to CTA tiles that cross the edge of D. `inside`: they are moved back inside D where possible, so "
        "that accesses need no bounds. `predicated`: they stay where they are, and accesses are predicated",
        "inside",
        ("inside", "predicated"),
    )
    cluster: tuple[int, int] = rare(
        22,
        "the shape of a cluster, M x N CTAs, which share operand tiles by multicast: CTAs along M share a tile "
        "of B, and CTAs along N a tile of A (only with `wgmma`)",
        (1, 1),
    )

    def check(self) -> None:
        if self.group < 1:
            raise ScheduleError(f"group must be at least 1, got {self.group}")
        for name, value in (("group", self.group), ("ctas", self.ctas)):
            if value > MOST_GRID:
                raise ScheduleError(f"{name} must be at most {MOST_GRID}, the CTAs that a launch can have, got {value}")
        if not 1 <= self.split_k <= MOST_PARTS:
            raise ScheduleError(f"split_k must be 1 to {MOST_PARTS}, got {self.split_k}")
        down, across = self.cluster
        if min(down, across) < 1 or down * across > MOST_CTAS or down & down - 1 or across & across - 1:
            raise ScheduleError(f"cluster must be powers of two, at most {MOST_CTAS} CTAs, got {down}x{across}")
        if self.ctas % (down * across):
            raise ScheduleError(f"ctas must be whole clusters of {down}x{across}, got {self.ctas}")
