"""The stages between who copies tiles and who multiplies them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.builder import Builder
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from ...dialect.gpu import BarrierOp
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.barriers import ArriveOp, AwaitOp, MakeBarriersOp
from ...dialect.warp.clusters import ClusterBarrierOp
from ..tile.index_builder import Index, IndexBuilder
from .barriers import next_phase


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
        from ...dialect.warp.tensor_copies import ProxyFenceOp  # 2 ms, for Hopper alone

        index.insert(ProxyFenceOp())
        index.insert(ClusterBarrierOp(mbarriers=True) if self.peers else BarrierOp())

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
