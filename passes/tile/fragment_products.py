"""`warp-fragments`: products of tiles in shared memory become products by instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
    op_type_rewrite_pattern,
)
from xdsl.rewriter import InsertPoint

from ...dialect.warp.operand_forms import drop_forms
from ...dialect.warp.tile_mma import TileMmaOp
from .groups import GroupedProduct
from .in_registers import RegisterProduct
from .index_builder import Index, IndexBuilder
from .metadata import SparseProduct, SparseWarpgroupProduct
from .multiplication import DenseProduct, Multiplication, Place
from .scales import ScaledProduct
from .warpgroup import WarpgroupProduct

MULTIPLICATIONS: Sequence[type[Multiplication]] = (
    WarpgroupProduct,
    RegisterProduct,
    SparseWarpgroupProduct,
    ScaledProduct,
    SparseProduct,
    GroupedProduct,
    DenseProduct,
)


@dataclass
class ProductOfTiles(RewritePattern):
    """A warp's part of `warp.tile_mma`, multiplied in one way if that is for it."""

    way: type[Multiplication]

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TileMmaOp, rewriter: PatternRewriter) -> None:
        if not op.part or not self.way.multiplies(op):
            return
        multiplication = self.way(op)
        outside = IndexBuilder(Builder(InsertPoint.before(_loop_of(op))))
        warp: Place = {axis: outside.known(at) for axis, at in zip("mnk", op.part, strict=True)}
        warp = multiplication.counted(_behind(list(warp.values())) or outside, warp)
        index = outside.at(Builder(InsertPoint.before(op)))
        factors = (op.a, op.b)
        rewriter.replace(op, (), [multiplication.multiply(outside, index, warp, op.c)])
        drop_forms(factors)


def _loop_of(op: TileMmaOp) -> Operation:
    """The loop over K that a product is in, before which its part is known; or the product itself."""
    parent = op.parent_op()
    inside = isinstance(parent, scf.ForOp) and not any(at.owner.parent is op.parent for at in op.part)
    return parent if inside and parent is not None else op


def _behind(place: Sequence[Index]) -> IndexBuilder | None:
    """Where all of a place is known: behind what computes it; None where nothing does."""
    makers = {at.owner for at in place if not isinstance(at, int) and isinstance(at.owner, Operation)}
    blocks = {maker.parent for maker in makers}
    if len(blocks) != 1 or (block := blocks.pop()) is None:
        return None
    return IndexBuilder(Builder(InsertPoint.after([op for op in block.ops if op in makers][-1])))


class FragmentsPass(ModulePass):
    """Multiplies a warp's part of the tiles in shared memory by the instruction that the schedule names. A warp loads
    fragments and multiplies them step by step. A warpgroup multiplies tiles directly in shared memory."""

    name = "warp-fragments"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ways: list[RewritePattern] = [ProductOfTiles(way) for way in MULTIPLICATIONS]
        patterns = GreedyRewritePatternApplier(ways, dce_enabled=False)
        PatternRewriteWalker(patterns, apply_recursively=False).rewrite_module(op)
