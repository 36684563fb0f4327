"""`warp-tile`: the tile of a product that a CTA computes becomes a loop over K, in its plain form: per K tile it copies
A and B to shared memory, waits, multiplies fragments, waits.

`warp-pipeline` overlaps the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import IndexType, ModuleOp
from xdsl.ir import Block, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
    op_type_rewrite_pattern,
)
from xdsl.rewriter import InsertPoint

from ...dialect.gpu import BarrierOp
from ...dialect.warp.matmul import MatmulOp
from ..linalg.product import read
from . import raster
from .attention import TileOfAttention
from .epilogue import Epilogue
from .index_builder import Index, IndexBuilder
from .metadata import SparseProduct
from .multiplication import DenseProduct, Multiplication
from .scales import ScaledProduct
from .tiling import Tiling, schedule_of
from .warpgroup import SparseWarpgroupProduct, WarpgroupProduct

MULTIPLICATIONS: Sequence[type[Multiplication]] = (
    WarpgroupProduct,
    SparseWarpgroupProduct,
    ScaledProduct,
    SparseProduct,
    DenseProduct,
)
"""Ways to multiply the tiles of a CTA; the first one that is for a product multiplies it."""


class TileBuilder:
    """Builds what the warps of a CTA do for its tile of a product."""

    def __init__(self, tiling: Tiling, index: IndexBuilder) -> None:
        self.tiling, self.index = tiling, index
        self.multiplication = next(way for way in MULTIPLICATIONS if way.multiplies(tiling))(tiling)
        self.epilogue = Epilogue(tiling)

    def build(self) -> None:
        """The accumulators' start, all of K, the way to memory."""
        index, schedule, product = self.index, self.tiling.schedule, self.tiling.product
        cta, (warp, place) = self._origin(), self._warp()
        shared = [index.insert(memref.AllocOp([], [], o.shared_type())).memref for o in self.multiplication.copied]
        m, n = (index.add(cta[axis], warp[axis]) for axis in "mn")
        accumulator = self.epilogue.initial(index, m, n)
        loop_body = Block(arg_types=[IndexType(), accumulator.type])
        k = product.k if product.is_known("k") else index.dim(product.a.value, product.a.loops[1])
        start, end, step = index.values([0, k, schedule.tile.cta[2]])
        loop = scf.ForOp(start, end, step, [accumulator], loop_body)
        inside = index.at(Builder(InsertPoint.at_end(loop_body)))
        self.step(index, inside, loop_body, shared, cta, warp)
        index.insert(loop)
        self.epilogue.finish(index, loop.results[0], m, n, place)

    def _origin(self) -> dict[str, Index]:
        """Where the CTA's tile starts."""
        at = self.tiling.product.op.tile
        starts = {axis: self.index.known(start) for axis, start in zip("mn", at, strict=True)}
        return self.multiplication.counted(self.index, starts)

    def _warp(self) -> tuple[dict[str, Index], Index]:
        """Where this warp's part of a CTA tile starts, and the number of its slice."""
        index, schedule = self.index, self.tiling.schedule
        m, n = raster.warp_origin(index, schedule)
        place = raster.slice_number(index, schedule)
        start = {"m": m, "n": n, "k": index.mul(place, schedule.tile.cta[2] // schedule.tile.sliced_k)}
        return self.multiplication.counted(index, start), place

    def step(
        self,
        outside: IndexBuilder,
        index: IndexBuilder,
        body: Block,
        tiles: Sequence[SSAValue],
        cta: dict[str, Index],
        warp: dict[str, Index],
    ) -> None:
        """One K tile: copy, barrier, multiply, barrier; what does not change from one to the next is said `outside`."""
        k, accumulator = body.args
        for operand, tile in zip(self.multiplication.copied, tiles, strict=True):
            operand.copy(index, cta | {"k": k}, tile)
        self.multiplication.copies_done(index)
        index.insert(BarrierOp())
        accumulator = self.multiplication.multiply(outside, index, tiles, warp, accumulator)
        index.insert(BarrierOp())
        index.insert(scf.YieldOp(accumulator))


class TileOfProduct(RewritePattern):
    """`warp.matmul` of one tile: a loop over K of copies and of products of fragments."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MatmulOp, rewriter: PatternRewriter) -> None:
        if op.tile:
            TileBuilder(Tiling(read(op), schedule_of(op)), IndexBuilder(Builder(InsertPoint.before(op)))).build()
            rewriter.erase(op)


@dataclass(frozen=True)
class TilePass(ModulePass):
    """Distributes the tile of a CTA to its warps: operands go to shared memory a K tile at a time, and from there to
    fragments in registers, whose products are added up and stored."""

    name = "warp-tile"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        patterns = GreedyRewritePatternApplier([TileOfProduct(), TileOfAttention()])
        PatternRewriteWalker(patterns, apply_recursively=False).rewrite_module(op)
