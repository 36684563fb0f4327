"""`warp-stage` and `warp-fragments`: the tile of a product that a CTA computes becomes a loop over K, then
instructions. Per K tile the loop copies A and B to shared memory, waits, multiplies the tiles there, waits. It is the
plain form: `warp-pipeline` overlaps copies and products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from xdsl.builder import Builder
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr, StridedLayoutAttr, UnitAttr, f32, f64, i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from ...dialect.layouts.layout import LANES
from ...dialect.mlir.gpu import BarrierOp, ClusterBlockIdOp, SubgroupIdOp, Z
from ...dialect.schedule import Schedule
from ...dialect.warp.attention import AttentionGradientOp, AttentionOp
from ...dialect.warp.attributes import BYTE, FragmentType, SwizzleAttr, fragment_of, in_place_of
from ...dialect.warp.cta import OF_SLICES, SOME_WARPS
from ...dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind, SubfragmentOp, fragment_bytes
from ...dialect.warp.matmul import MatmulOp, drop_forms
from ...dialect.warp.memory import CopyOp, LoadOp, StoreOp
from ...dialect.warp.mma import GroupScales, TileMmaOp, part_of
from ...dialect.warp.op_shapes import bounds_attribute, element_of, form_of, memories_behind, of_form, tile_type
from ...dialect.warp.operands import PairedOp, ScaledOp, SparseOp
from ...dialect.warp.rows import EpilogueOp
from ...dialect.warp.synchronisation import CLUSTER, ScopedBarrierOp
from ...dialect.warp.views import MatrixOp
from ..diagnostics import fail
from ..linalg.product import Product, read
from ..linalg.read_attention import erase_pages
from ..patterns import Index, IndexBuilder, PatternPass, constant_value, erase_unused, rewrite_pattern
from ..schedule.defaults import adds_last, stored
from ..schedule.needs import group_scale_tile, scale_lines
from .fragments import converted, in_layout, load, placed
from .operands import FragmentProduct, KTurns, Multiplication, OperandTiles, copies_done, slice_number, warp_origin
from .side_operands import CHUNK, LineTiles, MetadataTiles, Place, ScaleTiles
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
    """Builds what a CTA does for its tile of a product.

    The warps cut D into warp tiles, and with `sliced_k` each K tile into slices too. A warp, or the four of a
    warpgroup, has its warp tile of the sums as a fragment, which lies as the accumulators of the instruction do.
    """

    def __init__(self, tiling: Tiling[Product], index: IndexBuilder) -> None:
        self.tiling, self.schedule, self.index, self.product = tiling, tiling.schedule, index, tiling.product
        self.last, self.kind = adds_last(self.product, tiling.schedule), tiling.fragment("acc")
        self.slices = self.schedule.sliced_k * self.schedule.cluster_parts

    def build(self) -> None:
        """The start of the sums, all of K, the way to memory."""
        index, schedule, op = self.index, self.schedule, self.product.op
        first_row, first_column = map(index.folded, op.tile)
        cta: Place = {"m": first_row, "n": first_column}
        cta = cta if self.product.metadata is None else MetadataTiles.counted(index, cta)
        ways, top = copied(self.tiling), outermost(op)
        above = index if top is op else IndexBuilder(top)
        shared = [above.alloc(tiles.shared_type()) for tiles in ways]
        down, across = warp_origin(above, schedule)
        self.slice = slice_number(above, schedule)
        part = (down, across, above.mul(self.slice, schedule.cta[2] // schedule.sliced_k))
        if schedule.cluster_parts > 1:
            self.slice = above.number(ClusterBlockIdOp, Z)
        self.m, self.n = index.add(first_row, down), index.add(first_column, across)
        initial = self._initial()
        # Slices start from zero each: what the product starts from is added to the sum of them all.
        zero = ConstantOp.of(0.0, self.kind)
        start = index.insert(zero).fragment if self.slices > 1 else self._start(index, self.kind, initial)
        turns = KTurns.of(index, self.tiling)
        with index.loop(0, turns.end(index), schedule.cta[2], [start]) as turn:
            inside, here = turn.index, cta | turns.place(turn.index, turn.counter)
            for tiles, tile in zip(ways, shared, strict=True):
                tiles.copy(inside, here, tile)
            copies_done(inside, schedule)
            groups = self._groups(index, inside, here)
            lines = [tile for tiles, tile in zip(ways, shared, strict=True) if isinstance(tiles, LineTiles)]
            product = inside.insert(
                self._multiplied(inside, shared, turn.carried[0], index.values(part), groups, lines)
            )
            inside.insert(BarrierOp())
            turn.handed = [product.d]
        self._store(turn.results[0], initial)

    def _initial(self) -> float | None:
        """What the sums start from: a number, zero if C is added at the end; None for the elements of C."""
        product = self.product
        if product.c is not None and not self.last:
            return None
        start = product.initial or 0.0
        element = self.tiling.row.element("c")
        least = -element.largest - (not element.is_float)  # of the two's complement
        if math.isfinite(start) and not least <= start <= element.largest:
            # The accumulators' type does not have it, or only an infinity could stand for it.
            what = f"accumulators in {element.name} hold up to {element.largest:g}"
            fail(product.op, f"C starts from {start:g}, {what}")
        return start

    def _start(
        self, index: IndexBuilder, kind: FragmentType, initial: float | None, down: Index = 0, across: Index = 0
    ) -> SSAValue:
        """The initial accumulators of the fragment at (`down`, `across`) in the warp's part."""
        if initial is not None or self.product.c is None:
            return index.insert(ConstantOp.of(initial or 0.0, kind)).fragment
        place = index.add(self.m, down), index.add(self.n, across)
        lies = kind.with_layout(stored(kind.layout.data))
        loaded = load(index, self.product.c.value, lies, *place, self.tiling.in_bounds)
        return in_layout(index, converted(index, loaded, kind.element_type), kind.layout.data)

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
            # Tensor copies bring whole rows at once.
            lies = SwizzleAttr(CHUNK) if self.schedule.together == 1 else StridedLayoutAttr([shape[1], 1])
            kind = tile_type(scales.element_type, shape, lies)
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
        part: Sequence[SSAValue],
        groups: GroupScales | None,
        lines: Sequence[SSAValue],
    ) -> TileMmaOp:
        """The product of a warp's `part` of the tiles of one K tile."""
        op, product, (m, _, k) = self.product.op, self.product, self.schedule.cta
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
            *(a, b, sums, part),
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

    def _store(self, sums: SSAValue, initial: float | None) -> None:
        """Stores the warp's part, or its slice's part of the sum over all slices."""
        index, product, op, m, n = self.index, self.product, self.product.op, self.m, self.n
        through = self._epilogue()
        if self.slices > 1:
            sums, down, across, parts = self._sum(sums)
            if parts < self.slices:
                index = self._some(parts)
            m, n = index.add(m, down), index.add(n, across)
            if initial != 0:
                start = self._start(index, fragment_of(sums), initial, down, across)
                sums = index.insert(ElementwiseOp(Kind.Add, start, sums)).fragment
        epilogue = EpilogueOp(
            *(sums, index.values([m, n])),
            d=product.d.value,
            c=product.c.value if product.c is not None and self.last else None,
            in_bounds=self.tiling.in_bounds,
            through=through,
        )
        index.insert(in_place_of(op, epilogue))

    def _some(self, parts: int) -> IndexBuilder:
        """A builder of what only the first `parts` slices do, those that have a part of the sums."""
        gets = self.index.compare("ult", self.slice, parts)
        some = scf.IfOp(gets, [], Region(Block([last := scf.YieldOp()])))
        some.attributes[SOME_WARPS] = IntegerAttr(self.schedule.warps // self.schedule.sliced_k * parts, i64)
        self.index.insert(some)
        return self.index.before(last)

    def _sum(self, sums: SSAValue) -> tuple[SSAValue, Index, Index, int]:
        """This slice's part of the sum over all slices, how many rows down and columns across it begins, and how many
        slices get one."""
        index, schedule, fragment = self.index, self.schedule, self.kind
        try:
            part = part_of(fragment, self.slices, all_get=schedule.split_k > 1)
        except VerifyException as error:
            fail(self.product.op, f"schedule: {error}")
        words, parts = part.registers * LANES * (self.slices - 1), fragment.registers // part.registers
        word = f64 if fragment.bits == 64 else f32
        rows = schedule.warps if schedule.cluster_parts > 1 else schedule.warps // schedule.sliced_k * parts
        total = SlicedSum(index, sums, part, index.alloc(tile_type(word, [rows, words])), schedule).total()
        steps = (size if size < all_ else 0 for size, all_ in zip(part.shape, fragment.shape, strict=True))
        # A slice that gets nothing is at the place of another one, so that what is loaded there early is in bounds.
        place = self.slice if parts == self.slices else index.rem(self.slice, parts)
        down, across = (index.mul(place, step) for step in steps)
        return total, down, across, parts


# Sums over warps that share a tile, or over CTAs of a cluster.
#
# Every warp writes to shared memory the parts of its fragment that other slices get, each to the row of the warp that
# gets it, and after a barrier adds to its own part what they wrote. Slices that get none only write. Slices that are
# CTAs of a cluster write the memory of the CTA that gets a part, and meet at the cluster's barrier.
#
# All slices add in the same order up to swapped operands, so a sum does not depend on the slice that gets it: two CTAs
# that compute the same element at different places of their tiles store the same bits. The order is a binary tree over
# the slices. The part of slice s lies in slot (s xor r) - 1 of receiver r, whose own part comes first: neighbours in
# this order are neighbours in the tree for every r.


class SlicedSum:
    """A warp's part, of the type `kind`, of the sum of what the slices of a schedule have. Slice 0 gets the first rows,
    or columns, and so on. `scratch` has a row for each warp of the CTA that gets a part, with space for those of the
    other slices."""

    def __init__(
        self, index: IndexBuilder, sums: SSAValue, kind: FragmentType, scratch: SSAValue, schedule: Schedule
    ) -> None:
        self.index, self.kind, self.scratch, whole = index, kind, scratch, fragment_of(sums)
        self.slices, self.cluster = schedule.sliced_k * schedule.cluster_parts, schedule.cluster_parts > 1
        self.across = math.prod(schedule.cluster)
        """CTAs of a cluster for each of its slices."""
        warp, self.positions = index.insert(SubgroupIdOp()).result, schedule.warps // schedule.sliced_k
        self.slice, self.position = index.div(warp, self.positions), index.rem(warp, self.positions)
        if self.cluster:
            self.slice, self.position = index.number(ClusterBlockIdOp, Z), warp
            self.cta = index.number(ClusterBlockIdOp) if self.across > 1 else 0
        step = (kind.shape[0], 0) if kind.shape[0] < whole.shape[0] else (0, kind.shape[1])
        places = ((i * step[0], i * step[1]) for i in range(whole.registers // kind.registers))
        self.parts = [index.insert(SubfragmentOp([sums], place, kind.shape)).fragment for place in places]

    def total(self) -> SSAValue:
        """The sum of this slice's part over all slices. If only some slices get one, the others go on with a part of
        their own."""
        self._send()
        self.index.insert(ScopedBarrierOp(CLUSTER) if self.cluster else BarrierOp())
        if len(self.parts) == self.slices:
            part = self._received(self.index)
        else:
            gets = self.index.compare("ult", self.slice, len(self.parts))
            (part,) = self.index.either(gets, lambda inside: [self._received(inside)], lambda _: [self.parts[0]])
        if isinstance(part.owner, Operation):
            part.owner.attributes[OF_SLICES] = UnitAttr()
        return part

    def _send(self) -> None:
        """Writes the parts of the other slices, each to the row of the warp that adds it."""
        index, of_slice = self.index, self.index.value(self.slice)
        for receiver, part in enumerate(self.parts):
            others = index.compare("ne", of_slice, receiver)
            slot = index.sub(index.xor(self.slice, receiver), 1) if self.slices > 2 else 0
            place = self._place(index, receiver, slot)
            cta = index.value(index.add(self.cta, receiver * self.across)) if self.cluster else None
            index.insert(StoreOp(part, self.scratch, place, registers="vectors", taken=others, cta=cta))

    def _received(self, index: IndexBuilder) -> SSAValue:
        chosen = self.parts[0]
        for number, part in enumerate(self.parts[1:], 1):
            here = index.compare("eq", self.slice, number)
            chosen = index.insert(arith.SelectOp(here, part, chosen)).result
        return self._sum(index, chosen, 0, self.slices)

    def _sum(self, index: IndexBuilder, own: SSAValue, first: int, count: int) -> SSAValue:
        """The sum of `count` parts, a power of two, from part `first` on. Part 0 is this warp's own."""
        if count > 1:
            halves = (self._sum(index, own, start, count // 2) for start in (first, first + count // 2))
            return index.insert(ElementwiseOp(Kind.Add, *halves)).fragment
        if first == 0:
            return own
        place = self._place(index, self.slice, first - 1)
        return index.insert(LoadOp(self.scratch, place, self.kind, registers="vectors")).fragment

    def _place(self, index: IndexBuilder, receiver: Index, slot: Index) -> tuple[SSAValue, SSAValue]:
        """The row of the warp of slice `receiver`, and where part number `slot` lies in it."""
        size = fragment_bytes(self.kind) * BYTE // element_of(self.scratch).memory_bits
        row = index.add(0 if self.cluster else index.mul(receiver, self.positions), self.position)
        return index.value(row), index.value(index.mul(slot, size))


def drop_unused(values: Sequence[SSAValue]) -> None:
    """Erases unused matrices, and forms of operands without uses."""
    memories = [memory for value in values for memory in memories_behind(value)]
    drop_forms(values)
    erase_unused(value.owner for value in dict.fromkeys(memories) if isinstance(value.owner, MatrixOp))


@rewrite_pattern
def stage_product(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """`warp.matmul` of one tile: a loop over K of copies to shared memory and of products of the tiles there."""
    if op.tile:
        StageBuilder(Tiling(read(op), schedule_of(op)), IndexBuilder(op)).build()
        operands = (op.a, op.b, *([] if op.through is None else [op.through]))
        rewriter.erase(op)
        drop_unused(operands)


@rewrite_pattern
def stage_attention(op: AttentionOp | AttentionGradientOp, rewriter: PatternRewriter) -> None:
    """`warp.attention` of the rows of one CTA, or its gradient: a loop over tiles of K and V, or of what is along the
    columns of scores."""
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
    """Makes a loop over K for the tile of a CTA. In each step, the CTA copies a K tile of each operand to shared
    memory, and each warp or warpgroup multiplies its part of them. After the loop it stores its part of the sums to D.
    If `sliced_k` makes groups of warps share a K tile, it first adds their sums. For attention it makes a loop over K
    and V."""

    name = "warp-stage"
    patterns = stage_product, stage_attention


def _multiplication(op: TileMmaOp) -> type[Multiplication]:
    """The way to multiply tiles, by the instruction that the schedule names and the scales that there are."""
    schedule = schedule_of(op)
    if schedule.together == 1 and op.groups is None and op.b_stored is None:
        return FragmentProduct
    from . import register_products as ways  # which products by one warp's instruction do not need

    if schedule.together == 1:
        return ways.StoredProduct
    if op.row_scales is not None:
        return ways.BlockScaledProduct
    return ways.WarpgroupProduct if schedule.in_registers == "none" else ways.RegisterProduct


@rewrite_pattern
def multiply_tiles(op: TileMmaOp, rewriter: PatternRewriter) -> None:
    """`warp.tile_mma` of a warp's part: products by an instruction, of operands that it loads or reads where they
    lie."""
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
    patterns = (multiply_tiles,)
