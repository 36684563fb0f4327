"""The stages between who copies tiles and who multiplies them."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Region, SSAValue

from ...dialect.gpu import BarrierOp
from ...dialect.warp.barriers import ArriveOp, MakeBarriersOp
from ...dialect.warp.tensor_copies import ProxyFenceOp
from ..tile.index_builder import Index, IndexBuilder
from .barriers import next_phase


@dataclass(frozen=True)
class Ring:
    """The stages: which are full, and which have been read."""

    stages: int
    full: SSAValue
    empty: SSAValue

    @staticmethod
    def of(index: IndexBuilder, stages: int, consumers: int) -> Ring:
        """A ring for `consumers` warps that read; all must be `known` before it is used."""
        full = index.insert(MakeBarriersOp(stages, 1)).barriers
        empty = index.insert(MakeBarriersOp(stages, consumers)).barriers
        full.name_hint, empty.name_hint = "full", "empty"
        return Ring(stages, full, empty)

    @staticmethod
    def known(index: IndexBuilder) -> None:
        """Lets all threads, and tensor copies, know the barriers made so far."""
        index.insert(ProxyFenceOp())
        index.insert(BarrierOp())

    def next(self, index: IndexBuilder, stage: Index, parity: Index) -> tuple[Index, Index]:
        """The next stage, and the parity of the phase that it is in."""
        return next_phase(index, self.stages, stage, parity)

    def release(self, index: IndexBuilder, stage: SSAValue) -> None:
        """Says that a stage has been read, unless it is number `stages`: there is none before the first."""
        read = Block([ArriveOp(self.empty, stage), scf.YieldOp()])
        exists = index.insert(arith.CmpiOp(stage, index.value(self.stages), "ne")).result
        index.insert(scf.IfOp(exists, [], Region(read)))
