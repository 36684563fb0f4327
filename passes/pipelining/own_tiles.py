"""Consumers with tiles of their own: each multiplies every second tile of a CTA, while the other stores its last one.

The producer copies the K tiles of one tile after the other, as ever. A consumer waits for those of its tiles, and
passes over the stages of the others'. So the tensor cores have work during the epilogue of each tile but the last::

    first consumer     multiply tile 0   store tile 0      multiply tile 2   ...
    second consumer                      multiply tile 1   store tile 1      ...

A mbarrier tells one phase from the next alone. So a consumer begins a tile when the other has waited for all K tiles of
the tile before: they pass a turn on, by barriers of their own.
"""

from __future__ import annotations

from typing import NamedTuple

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Region, SSAValue

from ...dialect.gpu import SubgroupIdOp
from ...dialect.isa.wgmma import WARPS
from ...dialect.warp.clusters import NamedBarrierOp
from ..tile.index_builder import Index, IndexBuilder, constant_value
from .copy_loop import decline
from .turns import FIRST_BARRIER, THREADS


class OwnTiles(NamedTuple):
    """The tiles of one of `groups` consumers, of so many K tiles each, in a ring of stages.

    `tiles` is the loop over all tiles of the CTA, `group` the number of the consumer.
    """

    groups: int
    stages: int
    k_tiles: int
    group: Index
    tiles: scf.ForOp

    @staticmethod
    def of(index: IndexBuilder, loop: scf.ForOp, tiles: scf.ForOp, groups: int, stages: int) -> OwnTiles:
        """Of the consumer that executes this, for a loop over K within the one over tiles.

        Raises:
            DeclinedError: for a K that is not known.
        """
        ends = [constant_value(value) for value in (loop.lb, loop.ub, loop.step)]
        if None in ends:
            decline(loop, "consumers have tiles of their own where K is known")
        first, end, step = (end or 0 for end in ends)
        group = index.div(index.insert(SubgroupIdOp()).result, WARPS)
        return OwnTiles(groups, stages, -(-(end - first) // step), group, tiles)

    def bounds(self, index: IndexBuilder) -> tuple[SSAValue, SSAValue]:
        """The first tile, and how far it is to the next."""
        step = index.known(self.tiles.step)
        first = index.add(self.tiles.lb, index.mul(step, self.group))
        return index.value(first), index.value(index.mul(step, self.groups))

    def start(self, index: IndexBuilder) -> list[Index]:
        """The stage and parity of the first K tile."""
        return self._passed(index, 0, 0, index.mul(self.group, self.k_tiles))

    def following(self, index: IndexBuilder, stage: Index, parity: Index) -> list[Index]:
        """The stage and parity of the next tile's first K tile, behind those of the others' tiles."""
        return self._passed(index, stage, parity, (self.groups - 1) * self.k_tiles)

    def _passed(self, index: IndexBuilder, stage: Index, parity: Index, count: Index) -> list[Index]:
        """The stage and parity so many K tiles later."""
        there = index.add(stage, count)
        turned = index.add(parity, index.div(there, self.stages))
        return [index.rem(there, self.stages), index.rem(turned, 2)]

    def begin(self, index: IndexBuilder, tile: SSAValue) -> None:
        """Waits until the other has all of the tile before, unless this is the first of the CTA."""
        own = index.value(index.add(self.group, FIRST_BARRIER))
        _if(index, "ne", tile, self.tiles.lb, NamedBarrierOp(own, THREADS))

    def end(self, index: IndexBuilder, tile: SSAValue) -> None:
        """Lets the other begin the next tile, if there is one."""
        other = index.value(index.add(index.wrap(index.add(self.group, 1), self.groups), FIRST_BARRIER))
        behind = index.value(index.add(tile, self.tiles.step))
        _if(index, "slt", behind, self.tiles.ub, NamedBarrierOp(other, THREADS, arrive=True))


def _if(index: IndexBuilder, predicate: str, a: SSAValue, b: SSAValue, op: NamedBarrierOp) -> None:
    """Does something where a comparison holds."""
    holds = index.insert(arith.CmpiOp(a, b, predicate)).result
    index.insert(scf.IfOp(holds, [], Region(Block([op, scf.YieldOp()]))))
