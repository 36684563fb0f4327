"""`warp-expand`: macro-operations as loads, stores, barriers and arithmetic that the printed IR shows."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import GreedyRewritePatternApplier, PatternRewriteWalker

from .sliced_k import ExpandSumSlicedK


@dataclass(frozen=True)
class ExpandPass(ModulePass):
    """Writes out what a macro-operation does.

    `warp.sum_sliced_k` becomes stores to and loads from shared memory, a barrier and additions.
    """

    name = "warp-expand"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        patterns = GreedyRewritePatternApplier([ExpandSumSlicedK()], dce_enabled=False)
        PatternRewriteWalker(patterns, apply_recursively=False).rewrite_module(op)
