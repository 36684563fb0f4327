"""Consumers that take turns at the tensor cores: while one multiplies, another does what lies between its products.

A loop with two groups of products, such as those of attention, leaves tensor cores idle while a warpgroup works on the
first one's sums. Warpgroups do not get out of step by themselves: all wait for the same copies. So they pass a turn on,
from each to the next, by barriers of their own, and multiply only when it is theirs: the last group of products of one
turn of the loop and the first of the next one, without what lies between::

    first products
    loop: work; wait for the turn; last products; first products of the next tile; pass the turn on
    pass the turn on
"""

from __future__ import annotations

from typing import NamedTuple

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Region, SSAValue

from ...dialect.gpu import SubgroupIdOp
from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.layout import LANES
from ...dialect.warp.clusters import NamedBarrierOp
from ..tile.index_builder import IndexBuilder

FIRST_BARRIER = 8
"""The barrier of the first warpgroup; those below are for staging results."""

THREADS = 2 * WARPS * LANES
"""Threads that come to a barrier: those whose turn ends, and those whose turn begins."""


class PingPong(NamedTuple):
    """The turns of one warpgroup: its barrier, that of the next one, and whether another one follows."""

    own: SSAValue
    next: SSAValue
    is_not_last: SSAValue

    @staticmethod
    def of(index: IndexBuilder, groups: int) -> PingPong:
        """Of `groups` warpgroups; the first has the first turn, which the last one leaves to it."""
        group = index.div(index.insert(SubgroupIdOp()).result, WARPS)
        following = index.wrap(index.add(group, 1), groups)
        own, behind = (index.value(index.add(number, FIRST_BARRIER)) for number in (group, following))
        last, others = (
            index.insert(arith.CmpiOp(index.value(group), index.value(groups - 1), how)).result for how in ("eq", "ne")
        )
        turns = PingPong(own, behind, others)
        turns._pass_if(index, last)
        return turns

    def begin(self, index: IndexBuilder) -> None:
        """Waits for the turn."""
        index.insert(NamedBarrierOp(self.own, THREADS))

    def end(self, index: IndexBuilder, counter: SSAValue, first: SSAValue) -> None:
        """Passes the turn on, in each turn of a loop but the one where its counter is `first`."""
        self._pass_if(index, index.insert(arith.CmpiOp(counter, first, "ne")).result)

    def end_all(self, index: IndexBuilder) -> None:
        """Passes the last turn on; the last warpgroup has nobody to."""
        self._pass_if(index, self.is_not_last)

    def _pass_if(self, index: IndexBuilder, condition: SSAValue) -> None:
        body = Block([NamedBarrierOp(self.next, THREADS, arrive=True), scf.YieldOp()])
        index.insert(scf.IfOp(condition, [], Region(body)))
