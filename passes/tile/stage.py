"""`warp-stage`: the tile of a product that a CTA computes becomes a loop over K, in its plain form.

Per K tile it copies A and B to shared memory, waits, multiplies the tiles there, waits.

`warp-pipeline` overlaps the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from xdsl.builder import Builder
from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, UnitAttr, i64
from xdsl.ir import Block, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.gpu import BarrierOp
from ...dialect.warp.attention import AttentionOp
from ...dialect.warp.attributes import SHARED_SPACE, SwizzleAttr, in_place_of
from ...dialect.warp.cta import CopyOp
from ...dialect.warp.epilogue import EpilogueOp
from ...dialect.warp.fragments import ConstantOp
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.memory import CtaTileType, LoadOp
from ...dialect.warp.op_shapes import bounds_attribute
from ...dialect.warp.operands import SparseOp, drop_forms, form_of, of_form
from ...dialect.warp.tile_mma import GroupScales, TileMmaOp
from ...dialect.warp.views import MatrixOp
from ..builder import Index, IndexBuilder
from ..diagnostics import fail
from ..linalg.product import Product, read
from ..patterns import PatternPass
from ..schedule.defaults import adds_last
from ..schedule.needs import group_scale_tile
from .fragment_math import number_of
from .metadata import MetadataTiles, ScaleTiles
from .operands import CHUNK, OperandTiles, copies_done
from .raster import KTurns, drop_unused
from .store_epilogue import placed
from .tiling import Tiling, schedule_of


class CopiedTiles(Protocol):
    """Something that has a tile in shared memory for each K tile."""

    def shared_type(self) -> MemRefType:
        """The tile."""
        ...

    def copy(self, index: IndexBuilder, at: dict[str, Index], tile: SSAValue) -> None:
        """Copies the tile whose first element lies at `at` to shared memory."""
        ...


def copied(tiling: Tiling[Product]) -> Sequence[CopiedTiles]:
    """What is copied to shared memory: A and B, then the metadata of a sparse A, or the scales of both."""
    product = tiling.product
    tiles: list[CopiedTiles] = [OperandTiles(tiling, "a"), OperandTiles(tiling, "b")]
    if product.metadata is not None:
        tiles.append(MetadataTiles(tiling))
    if product.scales:
        tiles += [ScaleTiles(tiling, "a"), ScaleTiles(tiling, "b")]
    return tiles


class StageBuilder:
    """Builds what a CTA does for its tile of a product."""

    def __init__(self, tiling: Tiling[Product], index: IndexBuilder) -> None:
        self.tiling, self.index, self.product = tiling, index, tiling.product
        self.last = adds_last(self.product, tiling.schedule)
        at = self.product.op.tile
        self.m, self.n = map(index.known, at)

    def build(self) -> None:
        """The start of the sums, all of K, the way to memory."""
        index, (rows, columns, depth) = self.index, self.tiling.schedule.cta
        cta: dict[str, Index] = {"m": self.m, "n": self.n}
        ways = copied(self.tiling)
        for way in ways:
            cta = way.counted(index, cta) if isinstance(way, MetadataTiles) else cta
        shared = [index.insert(memref.AllocOp([], [], way.shared_type())).memref for way in ways]
        start = self._start(CtaTileType.of(rows, columns, self.tiling.element_type("acc")))
        body = Block(arg_types=[IndexType(), start.type])
        turns = KTurns.of(index, self.tiling)
        begin, end, step = index.values([0, turns.end(index), depth])
        loop = scf.ForOp(begin, end, step, [start], body)
        inside = index.at(Builder(InsertPoint.at_end(body)))
        here = cta | turns.place(inside, body.args[0])
        for way, tile in zip(ways, shared, strict=True):
            way.copy(inside, here, tile)
        copies_done(inside, self.tiling.schedule)
        product = inside.insert(self._multiplied(inside, shared, body.args[1], self._groups(index, inside, here)))
        inside.insert(BarrierOp())
        inside.insert(scf.YieldOp(product.d))
        index.insert(loop)
        self._store(loop.results[0])

    def _start(self, kind: CtaTileType) -> SSAValue:
        """The sums at the start: a constant, or what C holds; zero where C comes last."""
        index, product = self.index, self.product
        if product.c is not None and not self.last:
            where = index.values([self.m, self.n])
            return index.insert(LoadOp(product.c.value, where, kind, self.tiling.in_bounds)).fragment
        start = product.initial or 0.0
        element = self.tiling.row.element("c")
        if abs(start) > element.largest and math.isfinite(start):
            # The accumulators' type does not have it, or only an infinity could stand for it.
            what = f"accumulators in {element.name} hold up to {element.largest:g}"
            fail(product.op, f"C starts from {start:g}, {what}")
        return index.insert(ConstantOp(number_of(element, start), kind)).fragment

    def _groups(self, outside: IndexBuilder, index: IndexBuilder, here: dict[str, Index]) -> GroupScales | None:
        """The scales of groups, where the K tile is that begins `here`."""
        product, scales = self.product, self.product.group_scales
        if scales is None:
            return None
        memory, along = scales.value, product.group_axis
        if (shape := group_scale_tile(product, self.tiling.schedule)) is not None:
            # Once for all of K: nothing hides how long memory takes in each turn.
            kind = MemRefType(scales.element_type, shape, SwizzleAttr(CHUNK), IntegerAttr(SHARED_SPACE, i64))
            tile, start, inside = outside.insert(memref.AllocOp([], [], kind)).memref, list[Index]((0, 0)), [True, True]
            start[1 - along], inside[1 - along] = here["n"], self.tiling.inside("n")
            outside.insert(CopyOp(memory, outside.values(start), tile, in_bounds=bounds_attribute(*inside)))
            outside.insert(BarrierOp())
            return GroupScales(tile, product.group, *index.values([here["k"], 0]))
        if along:
            memory = outside.insert(MatrixOp(memory, (), along, 1 - along)).matrix
        return GroupScales(memory, product.group, *index.values([here["k"], here["n"]]))

    def _multiplied(
        self, inside: IndexBuilder, shared: Sequence[SSAValue], sums: SSAValue, groups: GroupScales | None
    ) -> TileMmaOp:
        """The product of the tiles of one K tile."""
        op, product, (m, _, k) = self.product.op, self.product, self.tiling.schedule.cta
        tiles, beside = shared[:2], list(shared[2:])
        factors: list[SSAValue] = []
        for form, tile in zip(op.forms, tiles, strict=True):
            # Scales of groups are no tiles: they are read where they lie.
            own = [beside.pop(0) for _ in form.beside] if form is not None and beside else []
            factors.append(of_form(form, tile, own, inside.insert))
        a, b = factors
        if isinstance(sparse := form_of(a), SparseOp) and (product.m % m or product.k % k):
            sparse.padded = UnitAttr()
        found = TileMmaOp(
            *(a, b, sums, op.multiplied),
            words=op.words,
            transposed=(product.a.transposed, product.b.transposed),
            groups=groups,
        )
        return in_place_of(op, found)

    def _epilogue(self) -> SSAValue | None:
        """The epilogue, which says by row and column of D where an element lies, not by the loops of the product."""
        op, operands = self.product.op, self.product.epilogue_operands
        if op.epilogue is None:
            return None
        return self.index.insert(op.epilogue.moved([placed(o) for o in operands], 2, op.outer)).function

    def _store(self, sums: SSAValue) -> None:
        product, op = self.product, self.product.op
        found = EpilogueOp(
            *(sums, product.d.value, self.index.values([self.m, self.n])),
            c=product.c.value if product.c is not None and self.last else None,
            in_bounds=self.tiling.in_bounds,
            through=self._epilogue(),
        )
        self.index.insert(in_place_of(op, found))


class StageProduct(RewritePattern):
    """`warp.matmul` of one tile: a loop over K of copies to shared memory and of products of the tiles there."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MatmulOp, rewriter: PatternRewriter) -> None:
        if op.tile:
            StageBuilder(Tiling(read(op), schedule_of(op)), IndexBuilder(Builder(InsertPoint.before(op)))).build()
            operands = (op.a, op.b, *([] if op.through is None else [op.through]))
            rewriter.erase(op)
            drop_unused(operands)


class StageAttention(RewritePattern):
    """`warp.attention` of the rows of one CTA: a loop over tiles of K and V."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AttentionOp, rewriter: PatternRewriter) -> None:
        if op.tile:
            from .attention import AttentionBuilder  # with operations that a product does not need

            AttentionBuilder(op, IndexBuilder(Builder(InsertPoint.before(op))), schedule_of(op)).build()
            scores = op.scores
            rewriter.erase(op)
            drop_forms([scores])


class StagePass(PatternPass):
    """Makes a loop over K for the tile of a CTA. In each step, the CTA copies a K tile of each operand to shared memory
    and multiplies them. After the loop it stores the sums to D. For attention it makes a loop over K and V."""

    name = "warp-stage"
    patterns = StageProduct, StageAttention
