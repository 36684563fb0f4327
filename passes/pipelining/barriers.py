"""How the warps of a CTA agree on the stages of a ring: which are full, and which may be overwritten.

Both ways carry what they know through the K loop as indices, `state`: first the stage that is read, then more.
"""

from __future__ import annotations

from typing import Protocol

from xdsl.ir import SSAValue

from ...dialect.gpu import BarrierOp
from ...dialect.schedule import Schedule
from ...dialect.warp.barriers import ArriveCopiesOp, ArriveOp, AwaitOp, MakeBarriersOp
from ...dialect.warp.copy import CommitOp, WaitOp
from ..tile.index_builder import Index, IndexBuilder

State = list[Index]


def next_phase(index: IndexBuilder, stages: int, stage: Index, parity: Index) -> tuple[Index, Index]:
    """The stage behind one of a ring, and the parity of the phase that it is in: the other one each time around."""
    following = index.wrap(index.add(stage, 1), stages)
    if isinstance(following, int):
        return following, parity if following else index.sub(1, parity)
    return following, index.where_equal(following, 0, index.sub(1, parity), parity)


class PipelineBarriers(Protocol):
    """What is said at each point of the K loop."""

    @property
    def copies_before(self) -> int:
        """The number of the product of a K tile before which copies are started."""
        ...

    @property
    def parities(self) -> tuple[int, ...]:
        """Where the state has parities, which alone differ after as many K tiles as there are stages."""
        ...

    def begin(self, index: IndexBuilder) -> State:
        """Before the first copies; what is known when tiles 0 .. prefetch-1 have been sent."""
        ...

    def sent(self, index: IndexBuilder, stage: Index) -> None:
        """After all copies to a stage were started."""
        ...

    def first(self, index: IndexBuilder) -> None:
        """Waits for tile 0."""
        ...

    def writable(self, index: IndexBuilder, state: State) -> Index:
        """The stage that the next tile is copied to, once nobody reads it any more."""
        ...

    def following(self, index: IndexBuilder, state: State) -> State:
        """After the last read of a stage: waits for the next tile."""
        ...


class CtaBarrier:
    """All warps meet once for each K tile, behind their last read of it, and each waits for its copies before.

    The barrier is enough for both directions: before it every warp has loaded all it needs of the buffer that
    the copies after it will overwrite, and behind it everyone's copies are there.
    """

    copies_before = 0
    parities = ()

    def __init__(self, stages: int, prefetch: int) -> None:
        self.stages, self.prefetch = stages, prefetch

    def begin(self, index: IndexBuilder) -> State:
        return [0, self.prefetch]

    def sent(self, index: IndexBuilder, stage: Index) -> None:
        index.insert(CommitOp())

    def first(self, index: IndexBuilder) -> None:
        index.insert(WaitOp(self.prefetch - 1))
        index.insert(BarrierOp())

    def writable(self, index: IndexBuilder, state: State) -> Index:
        return state[1]

    def following(self, index: IndexBuilder, state: State) -> State:
        reading, writing = state
        self.first(index)
        following = index.wrap(index.add(reading, 1), self.stages)
        if self.prefetch == self.stages - 1:
            return [following, reading]
        return [following, index.wrap(index.add(writing, 1), self.stages)]


class Mbarriers:
    """Each stage has two mbarriers: at `full` threads arrive as their copies do, at `empty` warps that have read.

    A warp waits only for what it needs: for data that is not there, and before it overwrites a stage for the slowest
    reader. Warps may drift apart by the stages that are not on their way, so that one stores its results, or waits,
    while another multiplies. Copies start behind the first product, whose operands were waited for just before.
    """

    copies_before = 1
    parities = (1, 3)

    def __init__(self, schedule: Schedule, stages: int, prefetch: int) -> None:
        self.schedule, self.stages, self.prefetch = schedule, stages, prefetch
        self._full: SSAValue | None = None
        self._empty: SSAValue | None = None

    def begin(self, index: IndexBuilder) -> State:
        self._full = index.insert(MakeBarriersOp(self.stages, self.schedule.tile.threads)).barriers
        self._empty = index.insert(MakeBarriersOp(self.stages, self.schedule.tile.warps)).barriers
        self._full.name_hint, self._empty.name_hint = "full", "empty"
        index.insert(BarrierOp())
        return [0, 0, self.prefetch, 1]

    @property
    def full(self) -> SSAValue:
        return _made(self._full)

    @property
    def empty(self) -> SSAValue:
        return _made(self._empty)

    def sent(self, index: IndexBuilder, stage: Index) -> None:
        index.insert(ArriveCopiesOp(self.full, index.value(stage)))

    def first(self, index: IndexBuilder) -> None:
        index.insert(AwaitOp(self.full, *index.values([0, 0])))

    def writable(self, index: IndexBuilder, state: State) -> Index:
        _, _, writing, parity = state
        index.insert(AwaitOp(self.empty, *index.values([writing, parity])))
        return writing

    def following(self, index: IndexBuilder, state: State) -> State:
        reading, read_parity, writing, write_parity = state
        index.insert(ArriveOp(self.empty, index.value(reading)))
        reading, read_parity = next_phase(index, self.stages, reading, read_parity)
        index.insert(AwaitOp(self.full, *index.values([reading, read_parity])))
        return [reading, read_parity, *next_phase(index, self.stages, writing, write_parity)]


def _made(barriers: SSAValue | None) -> SSAValue:
    if barriers is None:
        raise ValueError("barriers are made when the loop begins")
    return barriers


def barriers_of(schedule: Schedule, prefetch: int) -> PipelineBarriers:
    """The way that a schedule asks for, with copies `prefetch` K tiles ahead."""
    if schedule.loop.sync == "mbarrier":
        return Mbarriers(schedule, schedule.loop.stages, prefetch)
    return CtaBarrier(schedule.loop.stages, prefetch)
