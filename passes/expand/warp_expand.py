"""`warp-expand`: macro-operations as loads, stores, barriers and arithmetic that the printed IR shows."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern

PATTERNS: Mapping[str, tuple[str, str]] = {
    "warp.sum_sliced_k": ("sliced_k", "ExpandSumSlicedK"),
    "warp.store_part": ("partial_sums", "ExpandStorePart"),
    "warp.arrive_last": ("partial_sums", "ExpandArriveLast"),
    "warp.add_parts": ("partial_sums", "ExpandAddParts"),
    "warp.exchange": ("exchange", "ExpandExchange"),
    "warp.pack": ("pack", "ExpandPack"),
}
"""The module and the name of the pattern of each macro-operation."""


class Expand(RewritePattern):
    """Expands any macro-operation. A module of patterns is imported when its operation comes up: of all six, a plain
    product has none."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.name in PATTERNS:
            module, name = PATTERNS[op.name]
            pattern = cast("type[RewritePattern]", getattr(import_module(f".{module}", __package__), name))
            pattern().match_and_rewrite(op, rewriter)


class ExpandPass(ModulePass):
    """Expands macro-operations to loads, stores, barriers and arithmetic.

    - `warp.sum_sliced_k` (sums over slices of K), and `warp.store_part`, `warp.arrive_last` and `warp.add_parts` (sums
      over CTAs), become stores, loads, barriers, counters and additions.
    - `warp.exchange` (elements that change lanes) becomes stores and loads.
    - `warp.pack` (a copy to aligned rows) becomes loads, shifts and stores.
    """

    name = "warp-expand"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        PatternRewriteWalker(Expand(), apply_recursively=False).rewrite_module(op)
