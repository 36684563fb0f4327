"""`warp-expand`: macro-operations as loads, stores, barriers and arithmetic that the printed IR shows."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import GreedyRewritePatternApplier, PatternRewriteWalker

MACROS = frozenset(f"warp.{name}" for name in ("sum_sliced_k", "store_part", "arrive_last", "add_parts"))
"""The operations that are expanded. Their patterns are imported where there is one: a plain product has none."""


class ExpandPass(ModulePass):
    """Expands macro-operations to loads, stores, barriers and arithmetic: `warp.sum_sliced_k` (sums over slices of K),
    and `warp.store_part`, `warp.arrive_last` and `warp.add_parts` (sums over CTAs)."""

    name = "warp-expand"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if MACROS.isdisjoint(each.name for each in op.walk()):
            return
        from .expansions import PATTERNS

        patterns = GreedyRewritePatternApplier([*PATTERNS], dce_enabled=False)
        PatternRewriteWalker(patterns, apply_recursively=False).rewrite_module(op)
