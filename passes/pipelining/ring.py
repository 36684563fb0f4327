"""The ring of stages between the warps that copy tiles and those that multiply them: barriers, phases, clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from xdsl.builder import Builder
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.gpu import BarrierOp
from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.synchronisation import (
    ASYNC_PROXY,
    CLUSTER,
    CP_ASYNC,
    ArriveOp,
    AwaitOp,
    ClusterRankOp,
    CommitOp,
    FenceOp,
    MakeBarriersOp,
    ScopedBarrierOp,
    WaitOp,
)
from ..builder import Index, IndexBuilder

# How the warps of a CTA agree on the stages of a ring: which are full, and which may be overwritten.
#
# Both ways carry what they know through the K loop as indices, `state`: first the stage that is read, then more.

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
        index.insert(CommitOp(CP_ASYNC))

    def first(self, index: IndexBuilder) -> None:
        index.insert(WaitOp(CP_ASYNC, self.prefetch - 1))
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
        self._full = index.insert(MakeBarriersOp(self.stages, self.schedule.threads)).barriers
        self._empty = index.insert(MakeBarriersOp(self.stages, self.schedule.warps)).barriers
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
        index.insert(ArriveOp(self.full, index.value(stage), copies=True))

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
    if schedule.sync == "mbarrier":
        return Mbarriers(schedule, schedule.stages, prefetch)
    return CtaBarrier(schedule.stages, prefetch)


# The stages between who copies tiles and who multiplies them.


class Ring(NamedTuple):
    """The stages: which are full, and which have been read, here and in `peers`, other CTAs of the cluster."""

    stages: int
    full: SSAValue
    empty: SSAValue
    peers: Sequence[SSAValue]

    @staticmethod
    def of(index: IndexBuilder, stages: int, consumers: int, peers: Sequence[SSAValue] = ()) -> Ring:
        """A ring for `consumers` warps that read, in each CTA; all must be `known` before it is used."""
        full = index.insert(MakeBarriersOp(stages, 1)).barriers
        empty = index.insert(MakeBarriersOp(stages, consumers * (1 + len(peers)))).barriers
        full.name_hint, empty.name_hint = "full", "empty"
        return Ring(stages, full, empty, peers)

    def known(self, index: IndexBuilder) -> None:
        """Lets all threads, and tensor copies, know the barriers made so far."""
        index.insert(FenceOp(ASYNC_PROXY))
        index.insert(ScopedBarrierOp(CLUSTER, mbarriers=True) if self.peers else BarrierOp())

    def drain(self, index: IndexBuilder, stage: Index, parity: Index) -> None:
        """Waits until all stages from this one on have been read, here and in other CTAs, which say so to barriers of
        this one."""
        if not self.peers:
            return
        body = Block(arg_types=[IndexType()] * 3)
        _, here, phase = body.args
        inside = index.at(Builder(InsertPoint.at_end(body)))
        inside.insert(AwaitOp(self.empty, here, phase))
        inside.insert(scf.YieldOp(*inside.values(self.next(inside, here, phase))))
        index.insert(
            scf.ForOp(index.value(0), index.value(self.stages), index.value(1), index.values([stage, parity]), body)
        )

    def next(self, index: IndexBuilder, stage: Index, parity: Index) -> tuple[Index, Index]:
        """The next stage, and the parity of the phase that it is in."""
        return next_phase(index, self.stages, stage, parity)

    def arrive(self, index: IndexBuilder, stage: SSAValue) -> None:
        """Says that a stage has been read, to all who fill it."""
        for cta in (None, *self.peers):
            index.insert(ArriveOp(self.empty, stage, cta))

    def release(self, index: IndexBuilder, stage: SSAValue) -> None:
        """Says that a stage has been read, unless it is number `stages`: there is none before the first."""
        read = Block()
        inside = index.at(Builder(InsertPoint.at_end(read)))
        self.arrive(inside, stage)
        inside.insert(scf.YieldOp())
        exists = index.insert(arith.CmpiOp(stage, index.value(self.stages), "ne")).result
        index.insert(scf.IfOp(exists, [], Region(read)))


def with_stages(alloc: SSAValue, stages: int) -> None:
    """Gives a shared-memory tile a leading dimension of stages, in place."""
    op, kind = alloc.owner, memory_of(alloc)
    if isinstance(op, memref.AllocOp):
        staged = MemRefType(kind.element_type, [stages, *kind.get_shape()], kind.layout, kind.memory_space)
        new = memref.AllocOp([], [], staged)
        block = op.parent_block()
        if block is not None:
            block.insert_op_before(new, op)
            alloc.replace_all_uses_with(new.memref)
            op.detach()
            op.erase()


# Clusters of CTAs that share tiles: each copies a part of a tile to all that multiply it.
#
# CTAs of a cluster compute neighbouring tiles of D, `cluster` of a schedule says how many along M and N. Those in a
# column of them multiply the same tiles of B, those in a row the same tiles of A. So each copies its share of a tile,
# and the copy goes to all of them (`multicast`). A stage is full in a CTA when the shares of all have come, and may be
# filled again when the consumers of all CTAs that it is copied to have read it.


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
