"""`warp-stage`, `warp-distribute` and `warp-fragments`: the tile of a product that a CTA computes becomes a loop over
K, then fragments, then instructions. Per K tile the loop copies A and B to shared memory, waits, multiplies the tiles
there, waits. It is the plain form: `warp-pipeline` overlaps copies and products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from xdsl.builder import Builder
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr, UnitAttr, f32, f64, i64
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.layouts.layout import LANES
from ...dialect.mlir.gpu import BarrierOp, ClusterBlockIdOp, Z
from ...dialect.warp.attention import AttentionGradientOp, AttentionOp
from ...dialect.warp.attributes import FragmentType, SwizzleAttr, fragment_of, in_place_of
from ...dialect.warp.cta import SOME_WARPS, CopyOp
from ...dialect.warp.epilogue import EpilogueOp
from ...dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.memory import CtaTileType, LoadOp
from ...dialect.warp.op_shapes import bounds_attribute, tile_type
from ...dialect.warp.operands import PairedOp, ScaledOp, SparseOp, drop_forms, form_of, memories_behind, of_form
from ...dialect.warp.tile_mma import GroupScales, SumSlicedKOp, TileMmaOp, part_of
from ...dialect.warp.views import MatrixOp
from ..diagnostics import fail
from ..linalg.pages import erase_pages
from ..linalg.product import Product, TileProduct, read
from ..patterns import Index, IndexBuilder, PatternPass, constant_value, erase_unused, op_type_rewrite_pattern
from ..schedule.defaults import adds_last, stored
from ..schedule.needs import group_scale_tile, scale_lines
from .operands import FragmentProduct, KTurns, Multiplication, OperandTiles, copies_done, slice_number, warp_origin
from .register_products import BlockScaledProduct, GroupedProduct, RegisterProduct, WarpgroupProduct
from .side_operands import CHUNK, LineTiles, MetadataTiles, Place, ScaleTiles
from .store_epilogue import converted, in_layout, load, placed
from .tiling import Tiling, outermost, schedule_of

CopiedTiles: TypeAlias = OperandTiles[Product] | MetadataTiles[Product] | ScaleTiles[Product] | LineTiles
"""What has a tile in shared memory for each K tile."""


def copied(tiling: Tiling[Product]) -> Sequence[CopiedTiles]:
    """What is copied to shared memory: A and B, then the metadata of a sparse A, or the scales of both."""
    product = tiling.product
    tiles: list[CopiedTiles] = [OperandTiles(tiling, "a"), OperandTiles(tiling, "b")]
    if product.metadata is not None:
        tiles.append(MetadataTiles(tiling))
    if product.scales:
        tiles += [ScaleTiles(tiling, "a"), ScaleTiles(tiling, "b")]
    tiles += map(LineTiles, scale_lines(product, tiling.schedule))
    return tiles


class StageBuilder:
    """Builds what a CTA does for its tile of a product."""

    def __init__(self, tiling: Tiling[Product], index: IndexBuilder) -> None:
        self.tiling, self.index, self.product = tiling, index, tiling.product
        self.last = adds_last(self.product, tiling.schedule)
        at = self.product.op.tile
        self.m, self.n = map(index.folded, at)

    def build(self) -> None:
        """The start of the sums, all of K, the way to memory."""
        index, (rows, columns, depth) = self.index, self.tiling.schedule.cta
        cta: Place = {"m": self.m, "n": self.n}
        cta = cta if self.product.metadata is None else MetadataTiles.counted(index, cta)
        ways = copied(self.tiling)
        above = index.before(outermost(self.product.op))
        shared = [above.alloc(tiles.shared_type()) for tiles in ways]
        start = self._start(CtaTileType.of(rows, columns, self.tiling.element_type("acc")))
        turns = KTurns.of(index, self.tiling)
        with index.loop(0, turns.end(index), depth, [start]) as turn:
            inside, here = turn.index, cta | turns.place(turn.index, turn.counter)
            for tiles, tile in zip(ways, shared, strict=True):
                tiles.copy(inside, here, tile)
            copies_done(inside, self.tiling.schedule)
            groups = self._groups(index, inside, here)
            lines = [tile for tiles, tile in zip(ways, shared, strict=True) if isinstance(tiles, LineTiles)]
            product = inside.insert(self._multiplied(inside, shared, turn.carried[0], groups, lines))
            inside.insert(BarrierOp())
            turn.handed = [product.d]
        self._store(turn.results[0])

    def _start(self, kind: CtaTileType) -> SSAValue:
        """The initial accumulator: a constant, or the elements of C, or zero if C is added at the end."""
        index, product = self.index, self.product
        if product.c is not None and not self.last:
            where = index.values([self.m, self.n])
            return index.insert(LoadOp(product.c.value, where, kind, in_bounds=self.tiling.in_bounds)).fragment
        start = product.initial or 0.0
        element = self.tiling.row.element("c")
        least = -element.largest - (not element.is_float)  # of the two's complement
        if math.isfinite(start) and not least <= start <= element.largest:
            # The accumulators' type does not have it, or only an infinity could stand for it.
            what = f"accumulators in {element.name} hold up to {element.largest:g}"
            fail(product.op, f"C starts from {start:g}, {what}")
        return index.insert(ConstantOp.of(start, kind)).fragment

    def _groups(self, outside: IndexBuilder, index: IndexBuilder, here: dict[str, Index]) -> GroupScales | None:
        """The scales of groups, where the K tile is that begins `here`."""
        product, scales = self.product, self.product.group_scales
        if product.block_scales:
            views = [form.scales.owner for form in product.op.block_scales if isinstance(form.scales.owner, MatrixOp)]
            of_rows, of_columns = (outside.insert(view.at((), 1, 0)).matrix for view in views)
            (rows, columns, size), (k, n, m) = product.blocks, index.values([here["k"], here["n"], here["m"]])
            return GroupScales(of_columns, size, k, n, m, of_rows, (rows, columns))
        if scales is None or product.b.packed:
            return None
        memory, along = scales.value, product.group_axis
        if (shape := group_scale_tile(product, self.tiling.schedule)) is not None:
            # Once for all of K: nothing hides how long memory takes in each turn.
            kind = tile_type(scales.element_type, shape, SwizzleAttr(CHUNK))
            tile, start, inside = outside.alloc(kind), list[Index]((0, 0)), [True, True]
            start[1 - along], inside[1 - along] = here["n"], self.tiling.inside("n")
            outside.insert(CopyOp(memory, outside.values(start), tile, in_bounds=bounds_attribute(*inside)))
            outside.insert(BarrierOp())
            return GroupScales(tile, product.group, index.value(here["k"]), index.value(0))
        if along:
            memory = outside.insert(MatrixOp(memory, (), along, 1 - along)).matrix
        where = (index if product.group else outside).value(here["n"])
        return GroupScales(memory, product.group or product.k, index.value(here["k"]), where)

    def _multiplied(
        self,
        inside: IndexBuilder,
        shared: Sequence[SSAValue],
        sums: SSAValue,
        groups: GroupScales | None,
        lines: Sequence[SSAValue],
    ) -> TileMmaOp:
        """The product of the tiles of one K tile."""
        op, product, (m, _, k) = self.product.op, self.product, self.tiling.schedule.cta
        tiles, side_operands = shared[:2], list(shared[2 : len(shared) - len(lines)])
        factors: list[SSAValue] = []
        for form, tile in zip(op.forms, tiles, strict=True):
            # Scales of groups are no tiles: they are read where they lie.
            if isinstance(form, ScaledOp) and form.of_any_blocks:
                factors.append(tile)
                continue
            own = [side_operands.pop(0) for _ in form.side_operands] if form is not None and side_operands else []
            form = None if isinstance(form, PairedOp) else form  # whose matrices are in one tile
            factors.append(of_form(form, tile, own, inside.insert))
        a, b = factors
        if isinstance(sparse := form_of(a), SparseOp) and (product.m % m or product.k % k):
            sparse.padded = UnitAttr()
        tile_mma = TileMmaOp(
            *(a, b, sums),
            types=op.types,
            bit_op=op.bit_op,
            kind=op.kind,
            transposed_a=product.a.transposed,
            transposed_b=product.b.transposed,
            lines=lines,
            **({} if groups is None else groups.fields()),
        )
        return in_place_of(op, tile_mma)

    def _epilogue(self) -> SSAValue | None:
        """The epilogue, with elements placed by row and column of D."""
        op, operands = self.product.op, self.product.epilogue_operands
        if op.epilogue is None:
            return None
        return self.index.insert(op.epilogue.moved([placed(o) for o in operands], 2, op.outer)).function

    def _store(self, sums: SSAValue) -> None:
        product, op = self.product, self.product.op
        epilogue = EpilogueOp(
            *(sums, self.index.values([self.m, self.n])),
            d=product.d.value,
            c=product.c.value if product.c is not None and self.last else None,
            in_bounds=self.tiling.in_bounds,
            through=self._epilogue(),
        )
        self.index.insert(in_place_of(op, epilogue))


def drop_unused(values: Sequence[SSAValue]) -> None:
    """Erases unused matrices, and forms of operands without uses."""
    memories = [memory for value in values for memory in memories_behind(value)]
    drop_forms(values)
    erase_unused(value.owner for value in dict.fromkeys(memories) if isinstance(value.owner, MatrixOp))


class StageProduct(RewritePattern):
    """`warp.matmul` of one tile: a loop over K of copies to shared memory and of products of the tiles there."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MatmulOp, rewriter: PatternRewriter) -> None:
        if op.tile:
            StageBuilder(Tiling(read(op), schedule_of(op)), IndexBuilder(op)).build()
            operands = (op.a, op.b, *([] if op.through is None else [op.through]))
            rewriter.erase(op)
            drop_unused(operands)


class StageAttention(RewritePattern):
    """`warp.attention` of the rows of one CTA, or its gradient: a loop over tiles of K and V, or of what is along the
    columns of scores."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AttentionOp | AttentionGradientOp, rewriter: PatternRewriter) -> None:
        if op.tile:
            functions, read = [function.function for function in op.functions.values()], [op.k, op.v]
            if isinstance(op, AttentionOp):
                from .attention import AttentionBuilder  # with operations that a product does not need

                AttentionBuilder(op, IndexBuilder(op), schedule_of(op)).build()
            else:
                from .attention_gradient import GradientBuilder

                GradientBuilder(op, IndexBuilder(op), schedule_of(op)).build()
            rewriter.erase(op)
            drop_forms(functions)
            erase_pages(read)


class StagePass(PatternPass):
    """Makes a loop over K for the tile of a CTA. In each step, the CTA copies a K tile of each operand to shared memory
    and multiplies them. After the loop it stores the sums to D. For attention it makes a loop over K and V."""

    name = "warp-stage"
    patterns = StageProduct, StageAttention


# `warp-distribute`: which warp of a CTA has what of the tiles that the CTA holds.
#
# The warps cut D into warp tiles, and with `sliced_k` each K tile into slices too. A warp, or the four of a warpgroup,
# has its warp tile of the sums as a fragment, which lies as the accumulators of the instruction do.

Start = ConstantOp | LoadOp


class Distribution:
    """Distributes the sums of a product among warps. It follows the tile of sums through all values that stand for it,
    from the start value to D, and replaces the operations on it. Raises a located diagnostic if other operations use or
    make the tile."""

    def __init__(self, product: TileMmaOp) -> None:
        self.product, self.schedule, self.kind = product, schedule_of(product), _warp_sums(product)
        self.values: list[SSAValue] = []
        self.starts: list[Start] = []
        self.products: list[TileMmaOp] = []
        self.ends: list[EpilogueOp] = []
        self._follow(product.d)
        for other in self.products:
            if _warp_sums(other) != self.kind:
                fail(other, f"expected sums that warps hold as another product of them does, as {self.kind}")
        if len(self.starts) != 1:
            fail(product, f"expected sums that start in one place, got {len(self.starts)}")
        (self.start,) = self.starts
        self.index = IndexBuilder(self.start)
        self.moved = dict[tuple[SSAValue, str], Index]()
        top = outermost(self.start)
        above = self.index if top is self.start else IndexBuilder(top)
        m, n = warp_origin(above, self.schedule)
        self.slice = slice_number(above, self.schedule)
        k = above.mul(self.slice, self.schedule.cta[2] // self.schedule.sliced_k)
        self.slices = self.schedule.sliced_k * self.schedule.cluster_parts
        if self.schedule.cluster_parts > 1:
            self.slice = above.insert(ClusterBlockIdOp(Z)).result
        self.warp: dict[str, Index] = {"m": m, "n": n, "k": k}

    def _follow(self, value: SSAValue) -> None:
        """Adds a value, and the values that are the same tile before and after it."""
        if value in self.values:
            return
        self.values.append(value)
        if isinstance(value, BlockArgument):
            self._handed_on(value.block, value.index - 1)
        else:
            self._made(value, value.owner)
        for use in list(value.uses):
            self._used(use.operation, use.index)

    def _made(self, value: SSAValue, op: Operation | Block) -> None:
        if isinstance(op, scf.ForOp):
            self._handed_on(op.body.block, next(i for i, result in enumerate(op.results) if result is value))
        elif isinstance(op, ConstantOp | LoadOp):
            self.starts.append(op)
        elif isinstance(op, TileMmaOp):
            self.products.append(op)
            self._follow(op.c)
        elif isinstance(op, Operation):
            fail(op, f"{op.name} cannot make a tile of sums that warps are to have parts of")

    def _used(self, op: Operation, index: int) -> None:
        if isinstance(op, TileMmaOp):
            self._follow(op.d)
        elif isinstance(op, EpilogueOp):
            self.ends.append(op)
        elif isinstance(op, scf.ForOp):
            self._handed_on(op.body.block, index - 3)
        elif isinstance(op, scf.YieldOp) and (block := op.parent) is not None:
            self._handed_on(block, index)
        else:
            fail(op, f"{op.name} cannot take a tile of sums that warps are to have parts of")

    def _handed_on(self, body: Block, number: int) -> None:
        """Converts a loop that carries accumulators: initial value, argument, yielded value and result."""
        loop, last = body.parent_op(), body.last_op
        if not isinstance(loop, scf.ForOp) or last is None:
            fail(self.product, "expected sums of a loop, or of none, to give warps their parts of")
        for value in (loop.iter_args[number], body.args[1 + number], last.operands[number], loop.results[number]):
            self._follow(value)

    def rewrite(self) -> None:
        """Puts fragments in the place of tiles."""
        ends = [(end, *self._place(end.at)) for end in self.ends]
        # Slices start from zero each: what the product starts from is added to the sum of them all.
        unsliced = self.slices == 1
        zero = ConstantOp.of(0.0, self.kind)
        start = self._started(self.index, self.kind) if unsliced else self.index.insert(zero).fragment
        self.start.fragment.replace_all_uses_with(start)
        for value in self.values:
            if isinstance(value, BlockArgument) or isinstance(value.owner, scf.ForOp):
                Rewriter.replace_value_with_new_type(value, self.kind)
        part = self.index.values([self.warp[axis] for axis in "mnk"])
        for product in self.products:
            Rewriter.replace_op(product, product.like(part=part, d=self.kind))
        for end, m, n in ends:
            self._end(end, m, n)
        Rewriter.erase_op(self.start)

    def _place(self, at: Sequence[SSAValue]) -> list[Index]:
        """Where in memory the warp's part begins, of a tile that begins at a row and a column."""
        for place in zip(at, "mn", strict=True):
            if place not in self.moved:
                self._check_available(place[0])
                self.moved[place] = self.index.add(self.index.folded(place[0]), self.warp[place[1]])
        return [self.moved[place] for place in zip(at, "mn", strict=True)]

    def _check_available(self, value: SSAValue) -> None:
        """Refuses a place that is computed after the start of the sums, where warps compute theirs."""
        made = value.owner
        if isinstance(made, Operation) and made.parent is self.start.parent and not made.is_before_in_block(self.start):
            fail(made, "expected the place of a tile in memory to be computed before its sums start")

    def _started(self, index: IndexBuilder, kind: FragmentType, down: Index = 0, across: Index = 0) -> SSAValue:
        """The initial accumulators of the fragment at (`down`, `across`) in the warp's part."""
        if isinstance(self.start, ConstantOp):
            return index.insert(ConstantOp(self.start.value, kind)).fragment
        m, n = self._place(self.start.indices)
        place = index.add(m, down), index.add(n, across)
        loaded = load(
            index, self.start.memory, kind.with_layout(stored(kind.layout.data)), *place, self.start.in_bounds
        )
        return in_layout(index, converted(index, loaded, kind.element_type), kind.layout.data)

    def _end(self, end: EpilogueOp, m: Index, n: Index) -> None:
        """Stores the warp's part, or its slice's part of that."""
        index, sums = self.index.before(end), end.sums
        if self.slices > 1:
            sums, down, across, parts = self._sum(index, sums)
            if parts < self.slices:
                index = self._some(index, end, parts)
            m, n = index.add(m, down), index.add(n, across)
            if isinstance(self.start, LoadOp) or self.start.value.value.data:
                start = self._started(index, fragment_of(sums), down, across)
                sums = index.insert(ElementwiseOp(Kind.Add, start, sums)).fragment
        Rewriter.replace_op(end, end.like(sums=sums, at=index.values([m, n])))

    def _some(self, index: IndexBuilder, end: EpilogueOp, parts: int) -> IndexBuilder:
        """Runs the end of a product only in the first `parts` slices, those that have a part. Returns the builder of
        that branch."""
        gets = index.compare("ult", self.slice, parts)
        some = scf.IfOp(gets, [], Region(body := Block([last := scf.YieldOp()])))
        some.attributes[SOME_WARPS] = IntegerAttr(self.schedule.warps // self.schedule.sliced_k * parts, i64)
        index.insert(some)
        end.detach()
        body.insert_op_before(end, last)
        return index.before(end)

    def _sum(self, index: IndexBuilder, sums: SSAValue) -> tuple[SSAValue, Index, Index, int]:
        """This slice's part of the sum over all slices, how many rows down and columns across it begins, and how many
        slices get one."""
        schedule, fragment = self.schedule, fragment_of(sums)
        try:
            part = part_of(fragment, self.slices)
        except VerifyException as error:
            fail(self.product, f"schedule: {error}")
        if fragment.registers // part.registers < self.slices and schedule.split_k > 1:
            fail(self.product, f"schedule: split_k takes no more slices than {fragment} has base tiles")
        words, parts = part.registers * LANES * (self.slices - 1), fragment.registers // part.registers
        word = f64 if fragment.bits == 64 else f32
        cluster = math.prod(schedule.cluster) if schedule.cluster_parts > 1 else 0
        rows = schedule.warps if cluster else schedule.warps // schedule.sliced_k * parts
        scratch = index.alloc(tile_type(word, [rows, words]))
        total = index.insert(SumSlicedKOp(sums, scratch, self.slices, cluster=cluster)).part
        steps = (size if size < all_ else 0 for size, all_ in zip(part.shape, fragment.shape, strict=True))
        # A slice that gets nothing is at the place of another one, so that what is loaded there early is in bounds.
        place = self.slice if parts == self.slices else index.rem(self.slice, parts)
        down, across = (index.mul(place, step) for step in steps)
        return total, down, across, parts


def _warp_sums(product: TileMmaOp) -> FragmentType:
    """The part of a product's sums that a warp has."""
    return Tiling(TileProduct.of(product), schedule_of(product)).fragment("acc")


class DistributeSums(RewritePattern):
    """Replaces a CTA's `warp.tile_mma`, with all operations on its accumulators, by fragments of each warp."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TileMmaOp, rewriter: PatternRewriter) -> None:
        if not op.part:
            Distribution(op).rewrite()


class DistributePass(PatternPass):
    """Distributes the tiles of a CTA among its warps or warpgroups, as fragments. If `sliced_k` makes groups of warps
    share a K tile, it also adds their sums."""

    name = "warp-distribute"
    patterns = (DistributeSums,)


def _multiplication(op: TileMmaOp) -> type[Multiplication]:
    """The way to multiply tiles, by the instruction that the schedule names and the scales that there are."""
    schedule = schedule_of(op)
    if schedule.together == 1:
        return FragmentProduct if op.groups is None else GroupedProduct
    if op.row_scales is not None:
        return BlockScaledProduct
    return WarpgroupProduct if schedule.in_registers == "none" else RegisterProduct


class MultiplyTiles(RewritePattern):
    """`warp.tile_mma` of a warp's part: products by an instruction, of operands that it loads or reads where they
    lie."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TileMmaOp, rewriter: PatternRewriter) -> None:
        if op.part:
            outside = IndexBuilder(_loop_of(op))
            product = _multiplication(op)(op, outside, outside.before(op))
            warp: Place = {axis: outside.folded(at) for axis, at in zip("mnk", op.part, strict=True)}
            if op.metadata is not None:
                warp = MetadataTiles.counted(_behind(op.part) or outside, warp)
            factors = (op.a, op.b)
            rewriter.replace(op, (), [product.multiply(warp, op.c)])
            drop_forms(factors)


def _loop_of(op: TileMmaOp) -> Operation:
    """The loop over K around a product, before which its part is computed; or the product itself."""
    parent = op.parent_op()
    inside = isinstance(parent, scf.ForOp) and not any(at.owner.parent is op.parent for at in op.part)
    return parent if inside and parent is not None else op


def _behind(place: Sequence[SSAValue]) -> IndexBuilder | None:
    """A builder behind the operation that computes the last of these indices; None if all are constants or
    arguments."""
    makers = {at.owner for at in place if constant_value(at) is None and isinstance(at.owner, Operation)}
    blocks = {maker.parent for maker in makers}
    if len(blocks) != 1 or (block := blocks.pop()) is None:
        return None
    return IndexBuilder(Builder(InsertPoint.after([op for op in block.ops if op in makers][-1])))


class FragmentsPass(PatternPass):
    """Multiplies a warp's part of the tiles in shared memory by the instruction that the schedule names. A warp loads
    fragments and multiplies them step by step. A warpgroup multiplies tiles directly in shared memory."""

    name = "warp-fragments"
    patterns = (MultiplyTiles,)
