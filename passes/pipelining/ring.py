"""`warp-synchronise`: rings of stages become barriers; and what passes that make rings have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from xdsl.builder import Builder
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.gpu import BarrierOp
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.ring import ACQUIRE, COMMIT, RELEASE, WAIT, MakeRingOp, PipelineOp
from ...dialect.warp.synchronisation import (
    BARRIER_BYTES,
    CP_ASYNC,
    ArriveOp,
    AwaitOp,
    ClusterRankOp,
    CommitOp,
    MakeBarriersOp,
    WaitOp,
)
from ..allocate import OFFSET, offset_of
from ..builder import Index, IndexBuilder
from ..diagnostics import fail
from ..patterns import PatternPass


class Ring(NamedTuple):
    """A ring of so many stages, in the IR as `value`."""

    value: SSAValue
    stages: int

    @staticmethod
    def of(index: IndexBuilder, made: MakeRingOp) -> Ring:
        """The ring that an operation makes at the insertion point."""
        return Ring(index.insert(made).ring, made.ring.type.stages.data)

    def step(
        self, index: IndexBuilder, step: str, stage: Index | None = None, parity: Index | None = None, bytes: int = 0
    ) -> None:
        """One step of who fills or reads a stage."""
        at, phase = (None if number is None else index.value(number) for number in (stage, parity))
        index.insert(PipelineOp(step, self.value, at, phase, bytes=bytes or None))

    def next(self, index: IndexBuilder, stage: Index, parity: Index) -> tuple[Index, Index]:
        """The next stage, and the parity of the phase that it is in: the other one each time around."""
        following = index.wrap(index.add(stage, 1), self.stages)
        if isinstance(following, int):
            return following, parity if following else index.sub(1, parity)
        return following, index.where_equal(following, 0, index.sub(1, parity), parity)

    def release(self, index: IndexBuilder, stage: SSAValue) -> None:
        """Says that a stage has been read, unless it is number `stages`: there is none before the first."""
        read = Block([PipelineOp(RELEASE, self.value, stage), scf.YieldOp()])
        exists = index.insert(arith.CmpiOp(stage, index.value(self.stages), "ne")).result
        index.insert(scf.IfOp(exists, [], Region(read)))

    def drain(self, index: IndexBuilder, stage: Index, parity: Index) -> None:
        """Waits until all stages from this one on have been read, also by other CTAs, which say so to this one."""
        body = Block(arg_types=[IndexType()] * 3)
        _, here, phase = body.args
        inside = index.at(Builder(InsertPoint.at_end(body)))
        self.step(inside, ACQUIRE, here, phase)
        inside.insert(scf.YieldOp(*inside.values(self.next(inside, here, phase))))
        lower, upper, step = index.values([0, self.stages, 1])
        index.insert(scf.ForOp(lower, upper, step, index.values([stage, parity]), body))


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


# `warp-synchronise`: the steps of rings as barriers.


class CtaBarrierRing(RewritePattern):
    """All warps meet once for each stage, behind their last read of it, and each waits for its copies before.

    The barrier is enough for both directions: before it every warp has loaded all it needs of the stage that the copies
    after it will overwrite, and behind it everyone's copies are there.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MakeRingOp, rewriter: PatternRewriter) -> None:
        if op.ahead is None:
            return
        for use in list(op.ring.uses):
            step = use.operation
            made: dict[str, list[Operation]] = {
                COMMIT: [CommitOp(CP_ASYNC)],
                WAIT: [WaitOp(CP_ASYNC, op.ahead.value.data), BarrierOp()],
            }
            rewriter.replace(step, made.get(_step(step).step.data, []), [])
        rewriter.erase(op)


class MbarrierRing(RewritePattern):
    """Each stage has two mbarriers: at `full` who fills it arrives as the copies do, at `empty` warps that have read.

    A warp waits only for what it needs: for data that is not there, and before it overwrites a stage for the slowest
    reader. Warps may drift apart by the stages that are not on their way, so that one stores its results, or waits,
    while another multiplies.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MakeRingOp, rewriter: PatternRewriter) -> None:
        if op.writers is None or op.readers is None:
            return
        stages, uses, peers = op.ring.type.stages.data, list(op.ring.uses), op.peers
        full, empty = (MakeBarriersOp(stages, arrivals.value.data) for arrivals in (op.writers, op.readers))
        full.barriers.name_hint, empty.barriers.name_hint = "full", "empty"
        if OFFSET in op.attributes:
            for made, first in ((full, 0), (empty, stages * BARRIER_BYTES)):
                made.attributes[OFFSET] = IntegerAttr(offset_of(op) + first, i64)
        rewriter.insert([full, empty])
        for use in uses:
            if use.operation.name == "warp.tensor_load":
                use.operation.operands[use.index] = full.barriers
                continue
            made = self._of(_step(use.operation), full.barriers, empty.barriers, peers)
            rewriter.replace(use.operation, made, [])
        rewriter.erase(op)

    @staticmethod
    def _of(step: PipelineOp, full: SSAValue, empty: SSAValue, peers: Sequence[SSAValue]) -> list[Operation]:
        """What a step is at the mbarriers of its stage."""
        name, stage, parity = step.step.data, step.stage, step.parity
        if stage is None:
            fail(step, "expected a stage of a ring that is not waited for at a barrier of the CTA")
        if name == COMMIT:
            return [ArriveOp(full, stage, copies=True)]
        if parity is None:
            return [ArriveOp(empty, stage, cta) for cta in (None, *peers)]
        if name == WAIT or step.bytes is None:
            return [AwaitOp(full if name == WAIT else empty, stage, parity)]
        return [AwaitOp(empty, stage, parity), ArriveOp(full, stage, bytes=step.bytes.value.data)]


def _step(op: Operation) -> PipelineOp:
    if not isinstance(op, PipelineOp):
        fail(op, f"{op.name} is no step of a ring")
    return op


class SynchronisePass(PatternPass):
    """Replaces rings and their steps by mbarriers or barriers of the CTA."""

    name = "warp-synchronise"
    needs: ClassVar = ("warp.make_ring",)
    patterns = CtaBarrierRing, MbarrierRing
