"""Clusters of CTAs that share tiles: each copies a part of a tile to all that multiply it.

CTAs of a cluster compute neighbouring tiles of D, `cluster` of a schedule says how many along M and N. Those in a
column of them multiply the same tiles of B, those in a row the same tiles of A. So each copies its share of a tile, and
the copy goes to all of them (`multicast`). A stage is full in a CTA when the shares of all have come, and may be
filled again when the consumers of all CTAs that it is copied to have read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from xdsl.ir import SSAValue

from ...dialect.warp.clusters import ClusterRankOp
from ..tile.index_builder import Index, IndexBuilder


@dataclass(frozen=True)
class Share:
    """The part of a tile that this CTA copies: number `part` of `count`, to the CTAs that `mask` has a bit for."""

    count: int
    part: Index
    mask: SSAValue


class CtaCluster(NamedTuple):
    """CTAs along M and N, `down` and `across`; the place of this one among them."""

    down: int
    across: int
    row: Index
    column: Index

    @staticmethod
    def of(index: IndexBuilder, shape: tuple[int, int]) -> CtaCluster | None:
        """The cluster of a shape; None for CTAs that are alone."""
        down, across = shape
        if down * across == 1:
            return None
        rank = index.insert(ClusterRankOp()).rank
        row = rank if across == 1 else index.rem(rank, down)
        return CtaCluster(down, across, row if down > 1 else 0, index.div(rank, down) if across > 1 else 0)

    @property
    def ctas(self) -> int:
        return self.down * self.across

    def share(self, index: IndexBuilder, *, of_b: bool) -> Share | None:
        """What a CTA copies of a tile of B, or of one of A; None for all of it, for itself alone."""
        count, part = (self.down, self.row) if of_b else (self.across, self.column)
        if count == 1:
            return None
        if of_b:
            together, step, place, places = (1 << self.down) - 1, self.down, self.column, self.across
        else:
            together = sum(1 << self.down * i for i in range(self.across))
            step, place, places = 1, self.row, self.down
        mask: Index = together << step * (places - 1)
        for at in range(places - 2, -1, -1):
            mask = index.where_equal(place, at, together << step * at, mask)
        return Share(count, part, index.value(mask))

    def peers(self, index: IndexBuilder) -> tuple[SSAValue, ...]:
        """The ranks of the other CTAs that tiles come from, and go to."""
        rows = (index.rem(index.add(self.row, i), self.down) for i in range(1, self.down))
        columns = (index.rem(index.add(self.column, i), self.across) for i in range(1, self.across))
        found = [index.add(row, index.mul(self.column, self.down)) for row in rows]
        found += [index.add(self.row, index.mul(column, self.down)) for column in columns]
        return tuple(index.values(found))
