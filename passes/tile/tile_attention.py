"""`warp.attention` of one CTA, tiled by fragments or by warpgroups."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from ...dialect.gpu import BarrierOp
from ...dialect.warp.attention import AttentionOp
from ...dialect.warp.attributes import fragment_of
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.tensor_copies import ProxyFenceOp
from ...dialect.warp.warpgroup import WgmmaCommitOp, WgmmaFenceOp, WgmmaOp, WgmmaWaitOp
from .attention import AttentionBuilder, Running
from .fragment_math import constant
from .index_builder import IndexBuilder
from .tiling import schedule_of


class WarpgroupAttention(AttentionBuilder):
    """Four warps multiply tiles where they lie in shared memory; P stays in registers."""

    def copies_done(self, index: IndexBuilder) -> None:
        index.insert(ProxyFenceOp())
        index.insert(BarrierOp())

    def kept(self, q: SSAValue) -> list[SSAValue]:
        return []

    def products(self, index: IndexBuilder, kept: Sequence[SSAValue], q: SSAValue, k: SSAValue) -> SSAValue:
        scores = constant(index, self.scores.fragment("acc"), 0.0)
        along_m, along_n = self.q.operand.transposed, not self.k.operand.transposed
        index.insert(WgmmaFenceOp())
        for at in self.steps():
            place = {"m": self.warp_row, "n": 0, "k": at}
            of_q, of_k = (index.values([place[axis] for axis in o.in_memory]) for o in (self.q, self.k))
            product = WgmmaOp(*(q, of_q, k, of_k, scores), overwrite=at == 0, mn_major_a=along_m, mn_major_b=along_n)
            scores = index.insert(product).d
        _wait(index)
        return scores

    def add(self, index: IndexBuilder, state: Running, a: SSAValue, v: SSAValue) -> Running:
        (rows, keys), step, (total,) = fragment_of(a).shape, self.schedule.tile.mma.k, state.parts
        parts = [index.insert(SubfragmentOp(a, (0, at), (rows, step))).fragment for at in range(0, keys, step)]
        index.insert(WgmmaFenceOp())
        for number, part in enumerate(parts):
            place = {"k": number * step, "n": 0}
            where = index.values([place[axis] for axis in self.v.in_memory])
            product = WgmmaOp(part, [], v, where, total, mn_major_b=not self.v.operand.transposed)
            total = index.insert(product).d
        _wait(index)
        return Running(state.largest, state.sums, (total,))


def _wait(index: IndexBuilder) -> None:
    index.insert(WgmmaCommitOp())
    index.insert(WgmmaWaitOp(0))


class TileOfAttention(RewritePattern):
    """`warp.attention` of the rows of one CTA: a loop over tiles of K and V."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AttentionOp, rewriter: PatternRewriter) -> None:
        if op.tile:
            schedule = schedule_of(op)
            builder = WarpgroupAttention if schedule.tile.together > 1 else AttentionBuilder
            builder(op, IndexBuilder(Builder(InsertPoint.before(op))), schedule).build()
            rewriter.erase(op)
