"""Products of warpgroups: of tiles in shared memory; with an operand in registers, which is changed on its way there
(`in_registers`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, MemRefType, StringAttr, i64
from xdsl.ir import SSAValue

from ...dialect.isa.wgmma import M as ROWS
from ...dialect.warp.attributes import SHARED_SPACE, FragmentType, SwizzleAttr, fragment_of, memory_of, memory_space
from ...dialect.warp.cta import CopyOp
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.fragments import ConstantOp, ConvertLayoutOp, ConvertOp, ElementwiseOp, Kind, is_zero
from ...dialect.warp.memory import LoadOp
from ...dialect.warp.op_shapes import TilePart, bounds_attribute, tile_type
from ...dialect.warp.operands import form_of
from ...dialect.warp.stored import BLOCK_LINES, PACKED, StoredOp
from ...dialect.warp.synchronisation import WGMMA, CommitOp, FenceOp, WaitOp
from ...dialect.warp.tile_mma import GroupScales, TileMmaOp
from ...dialect.warp.views import MatrixOp
from ...dialect.warp.warpgroup import WgmmaOp
from ..linalg.product import along_k
from ..patterns import Index, IndexBuilder
from ..schedule.defaults import LANES as BY_LANES
from ..schedule.defaults import VECTORS
from ..schedule.needs import ScaleLine
from .operands import CHUNK, Multiplication, Place
from .store_epilogue import element_type_of
from .tiling import schedule_of


def stacked(index: IndexBuilder, parts: Sequence[SSAValue]) -> SSAValue:
    """Parts of the rows of a fragment, below each other."""
    return parts[0] if len(parts) == 1 else index.insert(SubfragmentOp.stack(parts)).fragment


class WarpgroupProduct(Multiplication):
    """`warp.wgmma`: A and B are read from shared memory, and only accumulators are in registers."""

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        schedule = schedule_of(op)
        in_registers = schedule.in_registers != "none" or (op.metadata is not None and schedule.mma.m <= ROWS)
        return schedule.together > 1 and not in_registers and op.row_scales is None

    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        schedule = self.tiling.schedule
        promoted, total = schedule.promote != "none", accumulator
        if promoted:
            accumulator = index.insert(ConstantOp.of(0.0, fragment_of(total))).fragment
        (rows, columns), (high, _), places, parts = schedule.warp, schedule.covered, [warp], [accumulator]
        if rows > high:
            tops = range(0, rows, high)
            places = [warp | {"m": outside.add(warp["m"], top)} for top in tops]
            parts = [index.insert(SubfragmentOp([accumulator], (top, 0), (high, columns))).fragment for top in tops]
        steps = [[at | {"k": k} for k in range(0, schedule.cta[2], schedule.mma.k)] for at in places]
        sparse = self.sparse(index, steps[0])
        of_a = [[self.a_of(outside, index, at) for at in of_part] for of_part in steps]
        zero = is_zero(accumulator)
        index.insert(FenceOp(WGMMA))
        of_parts = zip(parts, steps, of_a, strict=True)
        done = [self._steps(outside, index, *each, sparse, first=zero and not promoted) for each in of_parts]
        accumulator = stacked(index, done)
        index.insert(CommitOp(WGMMA))
        index.insert(WaitOp(WGMMA, 0))
        return index.insert(ElementwiseOp(Kind.Add, total, accumulator)).fragment if promoted else accumulator

    def _steps(
        self,
        outside: IndexBuilder,
        index: IndexBuilder,
        accumulator: SSAValue,
        steps: Sequence[Place],
        of_a: Sequence[tuple[SSAValue, list[SSAValue]]],
        sparse: Sequence[tuple[SSAValue, int] | None],
        *,
        first: bool,
    ) -> SSAValue:
        """The products of a K tile, of as many rows as the instruction has; the `first` one from zero."""
        (a, b), exchanged = self.operands, self.tiling.schedule.exchanged
        side = self.op.factors[2:] if self.tiling.schedule.mma.m > ROWS else ()
        for number, (at, (tile, where), chosen) in enumerate(zip(steps, of_a, sparse, strict=True)):
            factors = [(tile, where), (self.tiles[1], b.place(outside, at))]
            along = [a.operand.transposed, not b.operand.transposed]
            if exchanged:
                factors, along = factors[::-1], along[::-1]
            flags = {"mn_major_a": along[0], "mn_major_b": along[1], "transposed": exchanged}
            flags["overwrite"] = first and not number
            metadata = {} if chosen is None else {"e": chosen[0], "selector": chosen[1]}
            op = WgmmaOp(*factors[0], *factors[1], accumulator, **flags, **metadata, side_operands=side)
            if side:
                op.step = IntegerAttr(number, i64)
            if kind := self.op.variant.kind:
                op.kind = StringAttr(kind)
            accumulator = index.insert(op).d
        return accumulator

    def a_of(self, outside: IndexBuilder, index: IndexBuilder, at: Place) -> tuple[SSAValue, list[SSAValue]]:
        """A of a step: its tile and the place in it, or its registers."""
        tile, _ = self.tiles
        if isinstance(tile.type, FragmentType):
            return self.operands[0].of_step(index, tile, at), []
        return tile, self.operands[0].place(outside, at)

    def sparse(self, index: IndexBuilder, steps: Sequence[Place]) -> Sequence[tuple[SSAValue, int] | None]:
        """The metadata and the selector of each step; none of a dense A."""
        del index
        return [None] * len(steps)


MAX_GROUPS = 8
"""Groups of products that a wait tells apart (PTX ISA 9.7.15.7)."""

# Scales of groups and of blocks, and zero points, on their way to shared memory with each K tile.

SCALES_OF_UNIT = 4
"""Scales of f32 in the 16 bytes at a multiple of which a box begins."""


@dataclass(frozen=True)
class LineTiles:
    """A line of scales in shared memory."""

    line: ScaleLine

    def shared_type(self) -> MemRefType:
        """The line."""
        shape, kind = [1, self.line.parts * self.line.columns], memory_of(self.line.scales).element_type
        return tile_type(kind, shape, SwizzleAttr(CHUNK))

    def copy(self, index: IndexBuilder, at: dict[str, Index], tile: SSAValue) -> None:
        """Copies the scales of the K tile whose first element is at `at`."""
        line, view, place = self.line, self.line.scales.owner, at[self.line.axis]
        shared, first = line.block > 1, index.div(at["k"], line.size)
        of_blocks = isinstance(view, MatrixOp)  # with k as its columns
        source = index.insert(view.at((), *((0, 1) if shared else (1, 0)))).matrix if of_blocks else line.scales
        for part in range(line.parts):
            where = [index.add(first, part), place]
            if shared:
                begin = index.mul(index.div(first, SCALES_OF_UNIT), SCALES_OF_UNIT)
                where = [index.add(index.div(place, line.block), part), begin]
            into = TilePart(part, line.parts)
            index.insert(
                CopyOp(source, index.values(where), tile, in_bounds=bounds_attribute(False, False), part=into.property)
            )


# Products of warpgroups with an operand in registers, changed on its way there: `in_registers` of a schedule.
#
# An instruction has its first operand in registers, or in shared memory. With A in registers B is read from shared
# memory. With B there the transposes are multiplied, D^T = B^T A^T: a warpgroup has the accumulators of 64 columns of
# D, as many rows as the instruction has columns, and A, as the second operand, is read from shared memory. Each step
# of the instruction is a group of its own. Before the registers of a step are written, a wait makes sure that the
# products of that step a turn ago have read them; those of the steps between go on meanwhile.


class RegisterProduct(Multiplication):
    """`warp.wgmma` of A in registers and B in shared memory, or of B^T and A^T."""

    def begin(self, op: TileMmaOp) -> None:
        super().begin(op)
        self.exchanged = self.tiling.schedule.exchanged
        both = list(zip(self.operands, self.tiles, strict=True))
        (self.first, self.in_registers), (self.second, self.read) = both[::-1] if self.exchanged else both

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return schedule_of(op).in_registers != "none"

    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        depth, k = self.tiling.schedule.cta[2] // self.tiling.schedule.sliced_k, self.tiling.row.shape.k
        steps = range(0, depth, k)
        changes = self.first.operand.stored is not None or self.first.delivery.how != BY_LANES
        # What is changed goes to other registers than it comes to: it is loaded at once, before all waits.
        loaded = self._loaded(outside, index, warp, depth) if changes else None
        parameters, run = self._parameters(outside, index, warp, depth)
        promoted, total = self.tiling.schedule.promote != "none", accumulator
        if promoted:
            accumulator = index.insert(ConstantOp.of(0.0, fragment_of(total))).fragment
        zero = is_zero(accumulator)
        # Where slices share a tile, other warpgroups multiply while one converts all that it multiplies in a turn.
        together = len(steps) if changes and self.tiling.schedule.sliced_k > 1 else 1
        for group in (steps[number : number + together] for number in range(0, len(steps), together)):
            index.insert(WaitOp(WGMMA, min(MAX_GROUPS, len(steps) // together) - 1))
            firsts = list[SSAValue]()
            for at in group:
                if loaded is None:
                    first = self._loaded(outside, index, warp | {"k": outside.add(warp["k"], at)}, k)
                else:
                    first = self._changed(index, index.insert(SubfragmentOp([loaded], (0, at), (ROWS, k))).fragment)
                    first = self._scaled(index, first, parameters[at // run])
                firsts.append(first)
            index.insert(FenceOp(WGMMA))
            for at, first in zip(group, firsts, strict=True):
                place = self.second.place(outside, warp | {"k": outside.add(warp["k"], at)})
                product = WgmmaOp(
                    *(first, (), self.read, place, accumulator),
                    overwrite=zero and not at,
                    mn_major_b=not along_k(self.tiling.product, self.second.role),
                    transposed=self.exchanged,
                )
                accumulator = index.insert(product).d
            index.insert(CommitOp(WGMMA))
        index.insert(WaitOp(WGMMA, 0))
        return index.insert(ElementwiseOp(Kind.Add, total, accumulator)).fragment if promoted else accumulator

    def _loaded(self, outside: IndexBuilder, index: IndexBuilder, at: Place, depth: int) -> SSAValue:
        """The first operand as memory holds it, 64 rows of A or columns of B."""
        loading, swapped = self.first.delivery, not along_k(self.tiling.product, self.first.role)
        kind = FragmentType.of("a", ROWS, depth, element_type_of(self.in_registers), loading.delivered)
        if loading.how == VECTORS:
            blocks, columns = self.tiling.schedule.cta[2] // PACKED[kind.bits].columns, PACKED[kind.bits].columns
            block = outside.add(outside.mul(outside.div(at["n"], ROWS), blocks), outside.div(at["k"], columns))
            place = outside.values([outside.mul(block, BLOCK_LINES), 0])
            return index.insert(LoadOp(self.in_registers, place, kind, registers=VECTORS)).fragment
        where = self.first.place(outside, at)
        if loading.how == BY_LANES:
            return index.insert(LoadOp(self.in_registers, where, kind, swapped=swapped)).fragment
        return index.insert(LoadOp(self.in_registers, where, kind, matrices="x4.trans.b16", swapped=swapped)).fragment

    def _changed(self, index: IndexBuilder, loaded: SSAValue) -> SSAValue:
        """Converts a loaded fragment to the element type and layout that the instruction multiplies."""
        stored, layout = self.first.operand.stored, self.first.delivery.layout
        if stored is None:
            return index.insert(ConvertLayoutOp.to(loaded, layout)).fragment
        return index.insert(ConvertOp(loaded, self.tiling.element_type(self.first.role), stored, layout)).fragment

    def _parameters(
        self, outside: IndexBuilder, index: IndexBuilder, at: Place, depth: int
    ) -> tuple[Sequence[Sequence[SSAValue]], int]:
        """The zero points and the scales that are applied before the product, as fragments of a step, and the number of
        elements along K that share them."""
        form, lines = form_of(self.op.b), self.op.lines
        if (groups := self.op.groups) is not None:
            kind = self._step_of_weights()
            return [[group_scales(self, outside, groups, at, 0, kind, "rows")]], depth
        if not lines or not isinstance(form, StoredOp) or form.group is None:
            return [[]], depth
        group, kind = form.group.value.data, self._step_of_weights()
        parts = max(1, self.tiling.schedule.cta[2] // group)
        first, run = index.div(at["k"], group) if group < self.tiling.schedule.cta[2] else 0, min(depth, group)
        parameters: list[list[SSAValue]] = []
        for number in range(depth // run):
            parameters.append([])
            for line in lines[::-1]:
                columns = memory_of(line).get_shape()[1] // parts
                place = index.values([0, index.add(at["n"], index.mul(index.add(first, number), columns))])
                parameters[-1].append(index.insert(LoadOp(line, place, kind, along="rows")).fragment)
        return parameters, run

    def _step_of_weights(self) -> FragmentType:
        """What the instruction multiplies in a step: 64 columns of B, as floats."""
        kind = self.tiling.element_type(self.first.role)
        return FragmentType.of("a", ROWS, self.tiling.row.shape.k, kind, self.first.delivery.layout)

    def _scaled(self, index: IndexBuilder, weights: SSAValue, parameters: Sequence[SSAValue]) -> SSAValue:
        """Weights less zero points, times scales, both rounded to the type that is multiplied."""
        kinds = (Kind.Sub, Kind.Mul)[-len(parameters) :] if parameters else ()
        for kind, other in zip(kinds, parameters, strict=True):
            weights = index.insert(ElementwiseOp(kind, weights, other)).fragment
        return weights


def group_scales(
    product: Multiplication,
    index: IndexBuilder,
    groups: GroupScales,
    warp: Place,
    first: int,
    kind: FragmentType,
    along: str = "columns",
) -> SSAValue:
    """The scales of the columns of a warp, of the group that `first` of the warp's part of k is in; they run `along`
    the columns of a fragment of this kind, or the rows of one of B^T."""
    swapped, schedule, (count, columns) = (
        product.op.transposed_b is not None,
        product.tiling.schedule,
        shape_of_scales(product, groups),
    )
    group: Index = 0
    if count > 1:
        k = index.add(index.add(index.folded(groups.k), warp["k"]), first)
        group = index.div(k, groups.size)
        if count * groups.size % schedule.cta[2]:
            group = index.minimum(group, count - 1)  # behind the end of k, where all products are zero
    kind = kind.with_element(element_type_of(groups.scales))
    line, start = index.value(group), index.value(index.add(index.folded(groups.n), warp["n"]))
    if memory_space(memory_of(groups.scales)) == SHARED_SPACE:
        where = [start, line] if swapped else [line, start]
        return index.insert(LoadOp(groups.scales, where, kind, swapped=swapped, along=along)).fragment
    view = groups.scales.owner
    row = view.at([line], None, 1) if isinstance(view, MatrixOp) else MatrixOp(groups.scales, [line], None, 1)
    inside = columns % schedule.cta[1] == 0
    bounds = bounds_attribute(inside and along == "rows", inside and along == "columns")
    matrix, where = index.insert(row).matrix, [index.value(0), start]
    return index.insert(LoadOp(matrix, where, kind, in_bounds=bounds, along=along)).fragment


def shape_of_scales(product: Multiplication, groups: GroupScales) -> tuple[int, int]:
    """Groups and columns of scales; in shared memory they lie as B does."""
    scales, as_b = memory_of(groups.scales), product.op.transposed_b is not None
    first, last = scales.get_shape()
    return (last, first) if as_b and memory_space(scales) == SHARED_SPACE else (first, last)
