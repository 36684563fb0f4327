"""Elements that change lanes: what `warp.exchange` does, by way of the warp's own row of scratch memory."""

from __future__ import annotations

from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from ...dialect.warp.attributes import fragment_of
from ...dialect.warp.exchange import ExchangeOp, LoadBankedOp, OwnRowOp, StoreBankedOp
from ...dialect.warp.synchronisation import SyncLanesOp


class ExpandExchange(RewritePattern):
    """`warp.exchange`: a store and a load in the warp's row; lanes wait for each other before each of the two."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ExchangeOp, rewriter: PatternRewriter) -> None:
        before, after = fragment_of(op.input), fragment_of(op.fragment)
        mine = OwnRowOp(op.scratch)
        store = StoreBankedOp(op.input, mine.row, after.layout.data)
        load = LoadBankedOp(mine.row, after, before.layout.data)
        rewriter.replace(op, [mine, SyncLanesOp(), store, SyncLanesOp(), load], [load.fragment])
