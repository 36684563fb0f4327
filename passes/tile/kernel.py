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
from .epilogue import Epilogue
from .index_builder import Index, IndexBuilder
from .metadata import SparseProduct
from .multiplication import DenseProduct, Multiplication
from .scales import ScaledProduct
from .summed import KTurns, drop_unused
from .tile_attention import TileOfAttention
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
        index, schedule = self.index, self.tiling.schedule
        cta, (warp, place) = self._origin(), self._warp()
        shared = [index.insert(memref.AllocOp([], [], o.shared_type())).memref for o in self.multiplication.copied]
        m, n = (index.add(cta[axis], warp[axis]) for axis in "mn")
        accumulator = self.epilogue.initial(index, m, n)
        loop_body = Block(arg_types=[IndexType(), accumulator.type])
        turns = KTurns.of(index, self.tiling)
        start, end, step = index.values([0, turns.end(index), schedule.tile.cta[2]])
        loop = scf.ForOp(start, end, step, [accumulator], loop_body)
        inside = index.at(Builder(InsertPoint.at_end(loop_body)))
        here = cta | turns.place(inside, loop_body.args[0])
        self.step(index, inside, loop_body, shared, here, warp)
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
        here: dict[str, Index],
        warp: dict[str, Index],
    ) -> None:
        """One K tile, which starts `here`: copy, barrier, multiply, barrier; what does not change from one to the next
        is said `outside`."""
        accumulator = body.args[1]
        for operand, tile in zip(self.multiplication.copied, tiles, strict=True):
            operand.copy(index, here, tile)
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
            operands = (op.a, op.b)
            rewriter.erase(op)
            drop_unused(operands)


@dataclass(frozen=True)
class TilePass(ModulePass):
    """Distributes the tile of a CTA to its warps: operands go to shared memory a K tile at a time, and from there to
    fragments in registers, whose products are added up and stored."""

    name = "warp-tile"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        patterns = GreedyRewritePatternApplier([TileOfProduct(), TileOfAttention()], dce_enabled=False)
        PatternRewriteWalker(patterns, apply_recursively=False).rewrite_module(op)
