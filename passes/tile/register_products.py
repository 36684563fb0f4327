"""Products of warpgroups: of tiles in shared memory; with an operand in registers, which is changed on its way there
(`in_registers`); with scales of blocks. And products of fragments with scales of groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from xdsl.builder import Builder
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import AnyFloat, Float32Type, IntegerAttr, StringAttr, i64
from xdsl.dialects.math import FmaOp
from xdsl.ir import Block, Operation, OpResult, SSAValue, SSAValues
from xdsl.rewriter import InsertPoint

from ...dialect.isa.wgmma import M as ROWS
from ...dialect.warp.attributes import FragmentType, fragment_of, memory_of
from ...dialect.warp.convert import ConvertLayoutOp, ConvertOp
from ...dialect.warp.elements import element_type
from ...dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind, SubfragmentOp, is_zero
from ...dialect.warp.memory import POINT, LoadOp
from ...dialect.warp.mma import GroupScales, TileMmaOp
from ...dialect.warp.op_shapes import bounds_attribute, form_of
from ...dialect.warp.operands import SparseOp
from ...dialect.warp.stored import BLOCK_LINES, INTEGERS, PACKED, SMALLER, StoredIntegers, StoredOp
from ...dialect.warp.synchronisation import WGMMA, CommitOp, FenceOp, WaitOp
from ...dialect.warp.views import MatrixOp
from ...dialect.warp.warpgroup import WgmmaOp
from ..diagnostics import fail
from ..linalg.product import along_k
from ..patterns import Index, IndexBuilder
from ..schedule.defaults import LANES as BY_LANES
from ..schedule.defaults import VECTORS
from .fragments import mapped
from .operands import FragmentProduct, Multiplication
from .side_operands import SCALES_OF_UNIT, MetadataTiles, Place, group_scales, shape_of_scales


def joined(index: IndexBuilder, parts: Sequence[SSAValue], columns: int) -> SSAValue:
    """Parts of the rows of a fragment, or of its columns, as a fragment of so many columns."""
    return parts[0] if len(parts) == 1 else index.insert(SubfragmentOp.join(parts, columns)).fragment


class WarpgroupProduct(Multiplication):
    """`warp.wgmma`: A and B are read from shared memory, and only accumulators are in registers; of a sparse A words of
    metadata too, which each lane loads before the products begin."""

    def multiply(self, warp: Place, accumulator: SSAValue) -> SSAValue:
        schedule, index, outside = self.tiling.schedule, self.index, self.outside
        promoted, total = schedule.promote != "none", accumulator
        if promoted:
            accumulator = index.insert(ConstantOp.of(0.0, fragment_of(total))).fragment
        (rows, columns), each, places, parts = schedule.warp, schedule.covered, [warp], [accumulator]
        if (rows, columns) != each:
            corners = [*product(range(0, rows, each[0]), range(0, columns, each[1]))]
            places = [warp | {"m": outside.add(warp["m"], m), "n": outside.add(warp["n"], n)} for m, n in corners]
            parts = [index.insert(SubfragmentOp([accumulator], corner, each)).fragment for corner in corners]
        every = range(0, schedule.cta[2], schedule.mma.k)
        sparse = self._metadata(warp, every)
        of_a = [[self.a_of(at | {"k": k}) for k in every] for at in places]
        zero = is_zero(accumulator)
        index.insert(FenceOp(WGMMA))
        of_parts = zip(parts, places, of_a, strict=True)
        done = [self._steps(*each, sparse, first=zero and not promoted) for each in of_parts]
        accumulator = joined(index, done, columns)
        index.insert(CommitOp(WGMMA))
        index.insert(WaitOp(WGMMA, 0))
        return index.insert(ElementwiseOp(Kind.Add, total, accumulator)).fragment if promoted else accumulator

    def _steps(
        self,
        accumulator: SSAValue,
        place: Place,
        of_a: Sequence[tuple[SSAValue, list[SSAValue]]],
        sparse: Sequence[Mapping[str, SSAValue | int]],
        *,
        first: bool,
    ) -> SSAValue:
        """The products of a K tile, of as many rows as the instruction has; the `first` one from zero."""
        (a, b), exchanged, depth = self.operands, self.tiling.schedule.exchanged, self.tiling.schedule.mma.k
        side = self.op.factors[2:] if self.tiling.schedule.mma.m > ROWS else ()
        for number, ((tile, where), metadata) in enumerate(zip(of_a, sparse, strict=True)):
            factors = [(tile, where), (self.tiles[1], b.place(self.outside, place | {"k": number * depth}))]
            along = [a.operand.transposed, not b.operand.transposed]
            if exchanged:
                factors, along = factors[::-1], along[::-1]
            flags = {"mn_major_a": along[0], "mn_major_b": along[1], "transposed": exchanged}
            flags["overwrite"] = first and not number
            op = WgmmaOp(*factors[0], *factors[1], accumulator, **flags, **metadata, side_operands=side)
            if side:
                op.step = IntegerAttr(number, i64)
            if kind := self.op.variant.kind:
                op.kind = StringAttr(kind)
            accumulator = self.index.insert(op).d
        return accumulator

    def a_of(self, at: Place) -> tuple[SSAValue, list[SSAValue]]:
        """A of a step: its tile and the place in it, or its registers."""
        tile, _ = self.tiles
        if isinstance(tile.type, FragmentType):
            return self.operands[0].of_step(self.index, tile, at), []
        return tile, self.operands[0].place(self.outside, at)

    def _metadata(self, warp: Place, every: range) -> Sequence[Mapping[str, SSAValue | int]]:
        """The metadata and the selector of each step, where lanes have them; a word for several steps is loaded
        once."""
        form, _ = self.op.forms
        if not isinstance(form, SparseOp) or self.tiling.schedule.mma.m > ROWS:
            return [{} for _ in every]
        tiles = MetadataTiles(self.tiling)
        words = [tiles.load(self.index, form, warp | {"k": k}) for k in every if k % tiles.span < every.step]
        return [{"e": words[k // tiles.span], "selector": tiles.selector(k)} for k in every]


MAX_GROUPS = 8
"""Groups of products that a wait tells apart (PTX ISA 9.7.15.7)."""

# Products of warpgroups with an operand in registers, changed on its way there: `in_registers` of a schedule.
#
# An instruction has its first operand in registers, or in shared memory. With A in registers B is read from shared
# memory. With B there the transposes are multiplied, D^T = B^T A^T: a warpgroup has the accumulators of 64 columns of
# D, as many rows as the instruction has columns, and A, as the second operand, is read from shared memory. Each step
# of the instruction is a group of its own. Before the registers of a step are written, a wait makes sure that the
# products of that step a turn ago have read them; those of the steps between go on meanwhile.


class RegisterProduct(Multiplication):
    """`warp.wgmma` of A in registers and B in shared memory, or of B^T and A^T."""

    def __init__(self, op: TileMmaOp, outside: IndexBuilder, index: IndexBuilder) -> None:
        super().__init__(op, outside, index)
        self.exchanged = self.tiling.schedule.exchanged
        both = list(zip(self.operands, self.tiles, strict=True))
        (self.first, self.in_registers), (self.second, self.read) = both[::-1] if self.exchanged else both

    def multiply(self, warp: Place, accumulator: SSAValue) -> SSAValue:
        depth, k = self.tiling.schedule.cta[2] // self.tiling.schedule.sliced_k, self.tiling.row.shape.k
        step = self._step_of_weights().shape[1]
        steps, index, outside = range(0, depth, step), self.index, self.outside
        changes = self.first.operand.stored is not None or self.first.delivery.how != BY_LANES
        # What is changed goes to other registers than it comes to: it is loaded at once, before all waits.
        loaded = self._loaded(warp, depth) if changes else None
        promoted, total = self.tiling.schedule.promote != "none", accumulator
        if promoted:
            accumulator = index.insert(ConstantOp.of(0.0, fragment_of(total))).fragment
        zero = is_zero(accumulator)
        # Where slices share a tile, other warpgroups multiply while one converts all that it multiplies in a turn.
        together = len(steps) if changes and self.tiling.schedule.sliced_k > 1 else 1
        of_groups = together > 1 and self._scales_sums()
        points, scales, run = self._parameters(warp, depth, fragment_of(accumulator) if of_groups else None)
        stored = self.first.operand.stored
        whole = of_groups or not points[0] or (stored is not None and not (stored.zero or stored.element.signed))
        smaller = made_smaller(self.op, stored, self._step_of_weights()) if whole else None
        before = self._sums_of_groups([scale for (scale,) in scales]) if of_groups else []
        sums = [sum_ for sum_, _ in before]
        for group in (steps[number : number + together] for number in range(0, len(steps), together)):
            index.insert(WaitOp(WGMMA, min(MAX_GROUPS, len(steps) // together) - 1))
            for pair in before:
                accumulator = mapped(index, _scaled_at_once, accumulator, *pair)
            firsts = list[SSAValue]()
            for at in group:
                if loaded is None:
                    first = self._loaded(warp | {"k": outside.add(warp["k"], at)}, step)
                else:
                    first = self._changed(index.insert(SubfragmentOp([loaded], (0, at), (ROWS, step))).fragment)
                    first = self._scaled(first, points[at // run], [] if of_groups else scales[at // run], smaller)
                firsts.append(first)
            index.insert(FenceOp(WGMMA))
            for at, first in self._in_steps(zip(group, firsts, strict=True), k):
                place = self.second.place(outside, warp | {"k": outside.add(warp["k"], at)})
                product = WgmmaOp(
                    *(first, (), self.read, place, sums[at // run] if of_groups else accumulator),
                    overwrite=at % run == 0 if of_groups else zero and not at,
                    mn_major_b=not along_k(self.tiling.product, self.second.role),
                    transposed=self.exchanged,
                )
                if of_groups:
                    sums[at // run] = index.insert(product).d
                else:
                    accumulator = index.insert(product).d
            index.insert(CommitOp(WGMMA))
        index.insert(WaitOp(WGMMA, 0))
        if of_groups and (end := index.builder.insertion_point.block.last_op) is not None:
            for sum_, (scale,) in zip(sums, scales, strict=True):
                end.operands = [*end.operands, sum_, scale]
        return index.insert(ElementwiseOp(Kind.Add, total, accumulator)).fragment if promoted else accumulator

    def _in_steps(self, loaded: Iterable[tuple[int, SSAValue]], k: int) -> Iterator[tuple[int, SSAValue]]:
        """The first operand of each step of the instruction, and where along k it is."""
        for at, first in loaded:
            for start in range(0, columns := fragment_of(first).shape[1], k):
                part = SubfragmentOp([first], (0, start), (ROWS, k)) if columns > k else None
                yield at + start, first if part is None else self.index.insert(part).fragment

    def _loaded(self, at: Place, depth: int) -> SSAValue:
        """The first operand as memory holds it, 64 rows of A or columns of B."""
        loading, swapped = self.first.delivery, not along_k(self.tiling.product, self.first.role)
        index, outside = self.index, self.outside
        kind = FragmentType.of("a", ROWS, depth, element_type(self.in_registers), loading.delivered)
        if loading.how == VECTORS:
            blocks, columns = self.tiling.schedule.cta[2] // PACKED[kind.bits].columns, PACKED[kind.bits].columns
            block = outside.add(outside.mul(outside.div(at["n"], ROWS), blocks), outside.div(at["k"], columns))
            place = outside.values([outside.mul(block, BLOCK_LINES), 0])
            return index.insert(LoadOp(self.in_registers, place, kind, registers=VECTORS)).fragment
        where = self.first.place(outside, at)
        if loading.how == BY_LANES:
            return index.insert(LoadOp(self.in_registers, where, kind, swapped=swapped)).fragment
        return index.insert(LoadOp(self.in_registers, where, kind, matrices="x4.trans.b16", swapped=swapped)).fragment

    def _changed(self, loaded: SSAValue) -> SSAValue:
        """Converts a loaded fragment to the element type and layout that the instruction multiplies."""
        stored, layout = self.first.operand.stored, self.first.delivery.layout
        if stored is None:
            return self.index.insert(ConvertLayoutOp.to(loaded, layout)).fragment
        return self.index.insert(ConvertOp(loaded, self.tiling.element_type(self.first.role), stored, layout)).fragment

    def _scales_sums(self) -> bool:
        """Whether sums of groups are scaled in place of weights, of which few rows have more, where flags allow it."""
        form = form_of(self.op.b)
        if not isinstance(form, StoredOp) or form.rounded is not None or form.integers.name not in INTEGERS:
            return False
        return form.group is not None and bool(self.op.lines) and isinstance(self.op.parent_op(), scf.ForOp)

    def _parameters(
        self, at: Place, depth: int, sums: FragmentType | None
    ) -> tuple[Sequence[Sequence[SSAValue]], Sequence[Sequence[SSAValue]], int]:
        """The zero points and the scales of each group along K, as fragments of a step, or of `sums`; and how many
        elements along K share them."""
        form, lines, index = form_of(self.op.b), self.op.lines, self.index
        if (groups := self.op.groups) is not None:
            kind, run = self._step_of_weights(), min(depth, groups.size)
            before = self.outside if shape_of_scales(self.op, groups)[0] == 1 else index
            scales = [group_scales(self.op, before, groups, at, k, kind, "rows") for k in range(0, depth, run)]
            return [()] * len(scales), [[scale] for scale in scales], run
        if not lines or not isinstance(form, StoredOp) or form.group is None:
            return [[]], [[]], depth
        group, of_step = form.group.value.data, self._step_of_weights()
        of_sums = None if sums is None else sums.with_element(of_step.element_type)
        first, run = index.div(at["k"], group) if group < self.tiling.schedule.cta[2] else 0, min(depth, group)
        points, scales = list[list[SSAValue]](), list[list[SSAValue]]()
        for number in range(depth // run):
            loads = list[SSAValue]()
            for line in lines[::-1]:
                place = index.values([index.add(first, number), at["n"]])
                kind, along = (of_sums, "columns") if line is lines[0] and of_sums is not None else (of_step, "rows")
                loads.append(index.insert(LoadOp(line, place, kind, along=along)).fragment)
            points.append(loads[:-1])
            scales.append(loads[-1:])
        return points, scales, run

    def _step_of_weights(self) -> FragmentType:
        """What is converted at a time, of one step of the instruction, or of two: 64 columns of B, as floats."""
        kind, loading = self.tiling.element_type(self.first.role), self.first.delivery
        return FragmentType.of("a", ROWS, max(self.tiling.row.shape.k, loading.delivered.columns), kind, loading.layout)

    def _scaled(
        self, weights: SSAValue, points: Sequence[SSAValue], scales: Sequence[SSAValue], smaller: SSAValue | None
    ) -> SSAValue:
        """Weights less zero points, times scales, both rounded to the type that is multiplied; `smaller` by a factor
        that is exact."""
        factors = [x for x in (smaller, *scales) if x is not None]
        for kind, other in (*((Kind.Sub, x) for x in points), *((Kind.Mul, x) for x in factors)):
            weights = self.index.insert(ElementwiseOp(kind, weights, other)).fragment
        return weights

    def _sums_of_groups(self, scales: Sequence[SSAValue]) -> list[tuple[SSAValue, SSAValue]]:
        """The sums of each group of the turn before and their scales, as the loop over K carries them from now on: a
        turn scales them behind its wait for products, which run while it waits for its weights."""
        loop, total = self.op.parent_op(), self.op.c
        if not isinstance(loop, scf.ForOp):
            raise ValueError("expected a product in a loop")
        number, carried = loop.body.block.args.index(total) - 1, list[tuple[SSAValue, SSAValue]]()
        behind, whole = IndexBuilder(Builder(InsertPoint.after(loop))), loop.results[number]
        made = set[Operation | Block]()
        for scale in scales:
            pair = [_carried(loop, self.outside, fragment_of(value)) for value in (total, scale)]
            carried.append((pair[0][0], pair[1][0]))
            whole = mapped(behind, _scaled_at_once, whole, *(result for _, result in pair))
            made.add(whole.owner)
        loop.results[number].replace_uses_with_if(whole, lambda use: use.operation not in made)
        return carried


def made_smaller(op: TileMmaOp, stored: StoredIntegers | None, kind: FragmentType) -> SSAValue | None:
    """The factor of weights of a `kind` that are made smaller, and whose sums the loop over K leaves to be made larger
    again. As integers at the end of bf16 count 2^-133, and no factor is above 2^127, one instruction makes a part of an
    integer less its zero point. What is scaled to less than 2^-120 loses bits below 2^-133 of the part."""
    loop, sums = op.parent_op(), op.c
    bf16 = stored is not None and stored.name in INTEGERS and kind.element.name == "bf16"
    if not bf16 or not isinstance(loop, scf.ForOp):
        return None
    number = loop.body.block.args.index(sums) - 1
    outside, behind = IndexBuilder(loop), IndexBuilder(Builder(InsertPoint.after(loop)))
    down, up = (ConstantOp.of(factor, fragment_of(sums)) for factor in (SMALLER, 1 / SMALLER))
    if not is_zero(start := loop.iter_args[number]):
        start = outside.insert(ElementwiseOp(Kind.Mul, start, outside.insert(down).fragment)).fragment
        loop.operands = [*loop.operands[: 3 + number], start, *loop.operands[4 + number :]]
    whole = behind.insert(ElementwiseOp(Kind.Mul, loop.results[number], behind.insert(up).fragment))
    loop.results[number].replace_uses_with_if(whole.fragment, lambda use: use.operation is not whole)
    return outside.insert(ConstantOp.of(SMALLER, kind)).fragment


# Products of warpgroups whose blocks have scales of f32, `times` and `and` of `warp.tile_mma`.
#
# The products of a block along k are sums of their own, which the tensor cores add from zero. Those of all blocks of a
# K tile are under way at a time: while the next ones are added, the last are multiplied with their scales.


class BlockScaledProduct(WarpgroupProduct):
    """`warp.wgmma` for each block along k, from zero."""

    def multiply(self, warp: Place, accumulator: SSAValue) -> SSAValue:
        (rows, columns), (_, _, depth), groups = self.tiling.schedule.warp, self.tiling.schedule.cta, self.op.groups
        if groups is None:
            raise ValueError("expected a product with scales of blocks")
        index, outside = self.index, self.outside
        high, kind, done = self.tiling.schedule.mma.m, fragment_of(accumulator), list[SSAValue]()
        part = FragmentType.of("acc", high, columns, kind.element_type, kind.layout.data)
        sums = [index.insert(ConstantOp.of(0.0, part)).fragment for _ in range(0, depth, groups.size)]
        for top in range(0, rows, high):
            total, at = accumulator, warp
            if rows > high:
                total = index.insert(SubfragmentOp([accumulator], (top, 0), (high, columns))).fragment
                at = warp | {"m": outside.add(warp["m"], top)}
            # In the registers of the sums above: with others ptxas 13.0 spills.
            sums = self._sums(groups, at, sums)
            # Behind the products: what waits for the scales would keep these from beginning.
            scales = [self._scales(groups, at, part, number) for number in range(len(sums))]
            for number, (sum_, pair) in enumerate(zip(sums, scales, strict=True)):
                index.insert(WaitOp(WGMMA, len(sums) - 1 - number))
                total = mapped(index, _rescaled, total, sum_, *pair)
            done.append(total)
        return joined(index, done, columns)

    def _sums(self, groups: GroupScales, at: Place, starts: Sequence[SSAValue]) -> list[SSAValue]:
        """The sums of each block along k, in the registers of `starts`, of as many rows as the instruction has."""
        b, sums, index = self.operands[1], list[SSAValue](), self.index
        index.insert(FenceOp(WGMMA))
        for first, sum_ in zip(range(0, self.tiling.schedule.cta[2], groups.size), starts, strict=True):
            for k in range(first, first + groups.size, self.tiling.schedule.mma.k):
                of_step = at | {"k": k}
                a, where = self.a_of(of_step)
                op = WgmmaOp(a, where, self.tiles[1], b.place(self.outside, of_step), sum_, overwrite=k == first)
                sum_ = index.insert(op).d
            index.insert(CommitOp(WGMMA))
            sums.append(sum_)
        return sums

    def _scales(self, groups: GroupScales, warp: Place, kind: FragmentType, number: int) -> list[SSAValue]:
        """The scales of the rows and of the columns of a warpgroup, in the block of a number along k of this K tile."""
        if self.op.lines:
            return self._of_lines(groups, warp, kind, number)
        index, fragments = self.index, list[SSAValue]()
        group = index.add(index.div(groups.k, groups.size), number)
        for side, axis in enumerate("mn"):
            scales, start = ((groups.of_rows, groups.m), (groups.scales, groups.n))[side]
            if scales is None or start is None or not isinstance(view := scales.owner, MatrixOp):
                fail(self.op, f"expected scales of blocks as matrices of memory, got {groups.scales.type}")
            count, size = memory_of(scales).get_shape()
            if number and count * groups.size % self.tiling.schedule.cta[2]:
                group = index.minimum(group, count - 1)  # behind the end of k, where all products are zero
            first, where, inside = index.add(index.folded(start), warp[axis]), list[Index]([0, 0]), [True, True]
            at, along = [index.value(group)], list[int | None]([None, None])
            if (block := groups.blocks[side]) == 1:
                along[side], where[side], inside[side] = 1, first, size % self.tiling.schedule.cta[side] == 0
            else:
                of_block, schedule = index.div(first, block), self.tiling.schedule
                if size * block % (schedule.cta[side] * schedule.cluster[side]):
                    of_block = index.minimum(of_block, size - 1)  # of a tile that makes a cluster whole
                at.append(index.value(of_block))
            matrix = index.insert(view.at(at, *along)).matrix
            load = LoadOp(matrix, index.values(where), kind, in_bounds=bounds_attribute(*inside))
            fragments.append(index.insert(load).fragment)
        return fragments

    def _of_lines(self, groups: GroupScales, warp: Place, kind: FragmentType, number: int) -> list[SSAValue]:
        """The same, read from lines of scales of A and of B in shared memory."""
        index, fragments = self.index, list[SSAValue]()
        first = index.rem(index.div(groups.k, groups.size), SCALES_OF_UNIT)
        for side, (line, axis, along) in enumerate(zip(self.op.lines, "mn", ("rows", "columns"), strict=True)):
            place = [number, warp[axis]]
            if groups.blocks[side] > 1:
                place, along = [index.div(warp[axis], groups.blocks[side]), index.add(first, number)], POINT
            fragments.append(index.insert(LoadOp(line, index.values(place), kind, along=along)).fragment)
        return fragments


def _carried(loop: scf.ForOp, outside: IndexBuilder, kind: FragmentType) -> tuple[SSAValue, SSAValue]:
    """One more fragment that a loop carries, zero at first: its argument and its result."""
    block, number = loop.body.block, len(loop.results)
    loop.operands = [*loop.operands, outside.insert(ConstantOp.of(0.0, kind)).fragment]
    loop.results = SSAValues((*loop.results, result := OpResult(kind, loop, number)))
    return block.insert_arg(kind, number + 1), result


def _scaled_at_once(elements: Sequence[SSAValue]) -> SSAValue:
    """A total with the sum of a group times its scale."""
    total, part, scale = elements
    return FmaOp(part, arith.ExtFOp(scale, total.type).result, total).result


def _rescaled(elements: Sequence[SSAValue]) -> SSAValue:
    """A total with a sum of products times two scales."""
    total, part, of_row, of_column = elements
    return FmaOp(part, arith.MulfOp(of_row, of_column).result, total).result


# Products of integers of few bits, which may have scales of floats in groups along k, `times` of `warp.tile_mma`.
#
# The sum of a group's products, times the scales of the columns, is added to the rest in f32. Weights that are
# `rounded` are multiplied by their scales in registers, before the product.


class StoredProduct(FragmentProduct):
    """`warp.mma` of integers that are converted in registers, and for each group of them, from zero."""

    def multiply(self, warp: Place, accumulator: SSAValue) -> SSAValue:
        groups, schedule, stored = self.op.groups, self.tiling.schedule, self.op.b_stored
        depth = schedule.cta[2] // schedule.sliced_k
        of_b = self.tiling.fragment("b").with_layout(self.operands[1].delivery.layout)
        smaller = made_smaller(self.op, stored, of_b)
        factors = [] if smaller is None else [smaller]
        if groups is None:
            return self.steps(warp, accumulator, range(0, depth, self.tiling.step), factors)
        runs, rounded = range(0, depth, run := min(depth, groups.size)), stored is not None and stored.rounded
        kind = of_b if rounded else fragment_of(accumulator)
        # Before the products, which hide how long memory takes to answer.
        before = self.outside if shape_of_scales(self.op, groups)[0] == 1 else self.index
        scales = [group_scales(self.op, before, groups, warp, first, kind) for first in runs]
        for first, scale in zip(runs, scales, strict=True):
            every = range(first, first + run, self.tiling.step)
            if rounded:
                accumulator = self.steps(warp, accumulator, every, [*factors, scale])
            else:
                sums = self.outside.insert(ConstantOp.of(0.0, fragment_of(accumulator))).fragment
                sums = self.steps(warp, sums, every, factors)
                accumulator = mapped(self.index, _added, accumulator, sums, scale)
        return accumulator


def _added(elements: Sequence[SSAValue]) -> SSAValue:
    total, part, scale = elements
    if isinstance(scale.type, AnyFloat) and not isinstance(scale.type, Float32Type):
        scale = arith.ExtFOp(scale, part.type).result
    return arith.AddfOp(total, arith.MulfOp(part, scale).result).result
