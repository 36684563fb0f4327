"""Fragments loaded, converted and computed element by element; `warp-epilogue`, the way of a warp's sums to D: C is
added, the epilogue applied, D stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

from xdsl.builder import ImplicitBuilder
from xdsl.context import Context
from xdsl.dialects import arith, scf
from xdsl.dialects import math as math_dialect
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, MemRefType, ModuleOp, f32, i32
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.wgmma import UNIT, panel_columns
from ...dialect.isa.wgmma import M as GROUP_ROWS
from ...dialect.layouts.layout import Layout, column
from ...dialect.mlir.affine import loops_of, map_along, number_of, strides_of
from ...dialect.warp.attributes import BYTE, FragmentType, element_row, fragment_of, memory_of
from ...dialect.warp.convert import BANKS, ConvertLayoutOp, ConvertOp, in_lines
from ...dialect.warp.cta import OF_SLICES, SOME_WARPS
from ...dialect.warp.elements import IndexOp, M, N, PointwiseOp, YieldOp, element_type
from ...dialect.warp.fragments import AXES, ElementwiseOp, Kind, SubfragmentOp
from ...dialect.warp.matmul import drop_forms
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.op_shapes import element_of, tile_type
from ...dialect.warp.rows import EpilogueOp, MapOp
from ..linalg.operand import KernelArgument, VectorOperand
from ..patterns import Index, IndexBuilder, apply_patterns, dependences, op_type_rewrite_pattern, rewrite_pattern
from ..schedule.defaults import changes_lanes_first, exchanged_rows, stored
from ..schedule.needs import FUNCTIONS
from .tiling import schedule_of

InBounds = ArrayAttr[BoolAttr] | None
"""The property `in_bounds` of operations on memory."""


def load(
    index: IndexBuilder, memory: SSAValue, kind: FragmentType, m: Index, n: Index, in_bounds: InBounds
) -> SSAValue:
    """The fragment of a matrix of D's shape at (m, n)."""
    stored = kind.with_element(element_type(memory))
    return index.insert(LoadOp(memory, index.values([m, n]), stored, in_bounds=in_bounds)).fragment


def converted(index: IndexBuilder, fragment: SSAValue, wanted: TypeAttribute) -> SSAValue:
    """The fragment's elements in a type."""
    if fragment_of(fragment).element == element_row(wanted):
        return fragment
    return index.insert(ConvertOp(fragment, wanted)).fragment


def in_layout(index: IndexBuilder, fragment: SSAValue, layout: Layout) -> SSAValue:
    """The fragment in another layout of the same lanes."""
    own = fragment_of(fragment).layout.data
    return fragment if own == layout else index.insert(ConvertLayoutOp.to(fragment, layout)).fragment


def placed(operand: KernelArgument) -> tuple[SSAValue, AffineMap]:
    """An operand of a product, with the rows and the columns of D that it runs along."""
    loops = tuple("mn".index(axis) for axis in operand.axis) if isinstance(operand, VectorOperand) else (M, N)
    return operand.value, map_along(2, loops)


ElementFunction: TypeAlias = Callable[[Sequence[SSAValue]], SSAValue]
"""Takes an element of each input and makes one of the result."""

APPROXIMATE = FastMathFlagsAttr([FastMathFlag.APPROX_FUNC])


def mapped(index: IndexBuilder, compute: ElementFunction, *inputs: SSAValue) -> SSAValue:
    """A fragment like the first input, made element by element; other inputs may be columns."""
    return mapped_to(index, fragment_of(inputs[0]), compute, *inputs)


def mapped_to(index: IndexBuilder, kind: FragmentType, compute: ElementFunction, *inputs: SSAValue) -> SSAValue:
    """A fragment of a type, made element by element."""
    block = Block(arg_types=[fragment_of(value).element_type for value in inputs])
    with ImplicitBuilder(block):
        YieldOp(compute(block.args))
    return index.insert(MapOp(inputs, kind, Region(block))).fragment


def times(index: IndexBuilder, fragment: SSAValue, column: SSAValue) -> SSAValue:
    """Each row of a fragment times the element of a column."""
    return mapped(index, lambda x: arith.MulfOp(x[0], x[1]).result, fragment, column)


def multiply_add(index: IndexBuilder, fragment: SSAValue, column: SSAValue, added: SSAValue) -> SSAValue:
    """Each row of a fragment times the element of a column, plus another fragment, rounded once."""
    return mapped(index, lambda x: fma(x[0], x[1], x[2]), fragment, column, added)


def number(value: float, kind: Attribute = f32) -> SSAValue:
    """A constant of f32 or f64, in a region on elements."""
    return number_of(kind, value).result


def fma(a: SSAValue, b: SSAValue, c: SSAValue) -> SSAValue:
    """a * b + c of elements, rounded once."""
    return math_dialect.FmaOp(a, b, c).result


def power(exponent: SSAValue) -> SSAValue:
    """2 to the power of an element, by `ex2.approx.ftz` (relative error 2^-22, PTX ISA 9.7.3.21)."""
    return math_dialect.Exp2Op(exponent, APPROXIMATE).result


def below(column: SSAValue, end: SSAValue, element: SSAValue, otherwise: float, how: str = "slt") -> SSAValue:
    """The element if its column is before `end`, `otherwise` if not."""
    return arith.SelectOp(arith.CmpiOp(column, end, how), element, number(otherwise, element.type)).result


def one_below(bound: int, kind: TypeAttribute, x: Sequence[SSAValue]) -> SSAValue:
    """1 as a float of at most 16 bits for integers from 0 to below a bound, 0 for others."""
    inside = arith.CmpiOp(x[0], number_of(i32, bound).result, "ult")
    return arith.TruncFOp(arith.SelectOp(inside, number(1.0), number(0.0)).result, kind).result


def of_same_document(x: Sequence[SSAValue]) -> SSAValue:
    """A score, or minus infinity where the numbers of the query and of the key differ."""
    return arith.SelectOp(arith.CmpiOp(x[1], x[2], "eq"), x[0], number(-math.inf)).result


def until(
    index: IndexBuilder, fragment: SSAValue, start: Index, otherwise: float, together: int = 1, inside: int = 0,
    *, length: int = 0,
) -> SSAValue:  # fmt: skip
    """A fragment with `otherwise` beyond the end of rows. Columns count from `start`; negative ones are before the
    end. Those that are neighbours in a lane are so together, if `together` divides their number, and the first
    `inside` in any case. With a `length`, they count from the row, and those before it are beyond it too."""
    kind, element_bits = fragment_of(fragment), fragment_of(fragment).layout.data.element
    bits = next((i for i, bit in enumerate(element_bits) if bit != column(i)), len(element_bits))
    own = IndexOp(1, index.value(start), kind, step=math.gcd(1 << bits, together), below=inside)
    columns, how = index.insert(own).result, "ult" if length else "slt"
    return mapped(index, lambda x: below(x[1], number_of(i32, length).result, x[0], otherwise, how), fragment, columns)


class EpilogueOperands:
    """Loads the epilogue operands for parts of a warp's accumulators, whose first element is that of row m and column
    n. Parts have the type `part`: a matrix for all accumulators would take as many registers as they do. Operands along
    the columns are the same for all parts, and are loaded once."""

    def __init__(
        self,
        index: IndexBuilder,
        operands: Sequence[tuple[SSAValue, AffineMap]],
        part: FragmentType,
        m: Index,
        n: Index,
        in_bounds: InBounds,
    ) -> None:
        self.index, self.part, self.m, self.n, self.in_bounds = index, part, m, n, in_bounds
        self.operands = [(value, loops_of(map_)) for value, map_ in operands]
        vectors = [each for each in self.operands if each[1] == (N,)]
        repeated = [each for each in self.operands if each[1] == (M, N) and _pitch(each[0]) == 0]
        self._same = {each: self._placed(*each, n) for each in vectors}
        self._same |= {each: self._placed(*each, m) for each in repeated}

    def load(self, row: int) -> list[SSAValue]:
        """The epilogue operands for the part that starts at a row."""
        return [self._load(*operand, self.index.add(self.m, row)) for operand in self.operands]

    def map(
        self,
        parts: Sequence[SSAValue],
        loaded: Sequence[SSAValue],
        epilogue: PointwiseOp,
        wanted: TypeAttribute,
        row: int,
    ) -> SSAValue:
        """Applies the epilogue to the parts, one of each product, that start at a row, and to the operands loaded for
        them."""
        result, region = fragment_of(parts[0]).with_element(wanted), epilogue.body.clone()
        indices = self._indices(region, result, self.index.add(self.m, row))
        return self.index.insert(MapOp([*parts, *loaded, *indices], result, region)).fragment

    def _indices(self, region: Region, kind: FragmentType, m: Index) -> list[SSAValue]:
        """The indices that a region uses, which become arguments of it."""
        steps: dict[int, tuple[SSAValue, SSAValue]] = {}
        for op in [op for op in region.block.ops if isinstance(op, IndexOp)]:
            loop = op.number
            if loop not in steps:
                step = self.index.insert(IndexOp(loop, self.index.value((m, self.n)[loop]), kind)).result
                steps[loop] = step, region.block.insert_arg(i32, len(region.block.args))
            Rewriter.replace_op(op, [], [steps[loop][1]])
        return [step for step, _ in steps.values()]

    def _load(self, operand: SSAValue, loops: tuple[int, ...], m: Index) -> SSAValue:
        """An operand that is a scalar, a vector along rows or columns of D, or a matrix of D's shape."""
        if not loops:
            return operand
        loaded = self._same.get((operand, loops))
        return self._placed(operand, loops, m) if loaded is None else loaded

    def _placed(self, operand: SSAValue, loops: tuple[int, ...], start: Index) -> SSAValue:
        if loops == (M, N):
            return load(self.index, operand, self.part, start, self.n, self.in_bounds)
        kind, where = self.part.with_element(element_type(operand)), [self.index.value(start)]
        return self.index.insert(LoadOp(operand, where, kind, in_bounds=self.in_bounds, along=AXES[loops[0]])).fragment


# `warp-epilogue`: the way of a warp's sums to D. C is added, they are rounded, go through the epilogue and to other
# lanes, part by part.

MAX_BITS = 32
"""Bits of elements that lie beside each sum of a row of base tiles, 64 columns wide, without spills."""

GROUP_COLUMNS = 32
"""Columns of a warpgroup's sums that an epilogue is computed for at a time: all 256 of them would spill."""

EARLY_BITS = 16
"""Bits of elements for which there are registers before the strip before is stored."""


Scratch: TypeAlias = dict[tuple[Block | None, MemRefType], SSAValue]
"""Shared memory in which elements change lanes, by block and type; what is stored later in a block uses it again."""


def store(op: EpilogueOp, index: IndexBuilder, scratch: Scratch) -> None:
    """Applies an epilogue to accumulators and stores the result to D. If the epilogue reads several matrices, this is
    done in parts of the columns, so that their elements and addresses take no more registers than one matrix of
    `MAX_BITS` would. A warpgroup loads the operands of the next part before it computes this one."""
    schedule, accumulator = schedule_of(op), op.sums
    if not schedule.exchanged or column(0) in fragment_of(accumulator).layout.data.element:
        accumulator = in_layout(index, accumulator, stored(fragment_of(accumulator).layout.data))
    fragment, products = fragment_of(accumulator), 1 if op.epilogue is None else op.epilogue.products
    rows, columns = fragment.shape[0], fragment.shape[1] // products
    bits, width = _bits(op), columns
    widest = MAX_BITS if len(_matrices(op)) == 1 else MAX_BITS // 2
    while bits > widest and width % (2 * fragment.layout.data.columns) == 0:
        bits, width = bits // 2, width // 2
    # Of tensor memory, which is loaded in parts, and of warpgroups whose warps stage a part at a time.
    in_parts = op.epilogue is not None or schedule.mma.m > GROUP_ROWS or _in_strips(op)
    if schedule.together > 1 and not schedule.exchanged and in_parts:
        element_bits = fragment.with_element(element_type(op.d)).bits
        staged = panel_columns(width, element_bits) if schedule.staging else 0
        # A lane has twice the sums of as many columns of 128 rows, and loads them from tensor memory.
        least = staged if staged and schedule.mma.m == GROUP_ROWS else GROUP_COLUMNS
        width = next((n for n in range(least, width, 8) if width % n == 0), width)
    m, n = map(index.folded, op.at)

    def begun(left: int) -> tuple[Ending, Sequence[SSAValue]]:
        parts: Sequence[SSAValue] = [accumulator]
        if width < fragment.shape[1]:
            parts = [
                index.insert(SubfragmentOp([accumulator], (0, first + left), (rows, width))).fragment
                for first in range(0, fragment.shape[1], columns)
            ]
        return Ending(op, index, fragment_of(parts[0]), (m, index.add(n, left)), scratch), parts

    ahead = schedule.together > 1 and _has_registers_ahead(op)
    ending, results = begun(0)
    for left in range(width, columns, width):
        upcoming = begun(left) if ahead else None
        ending.store(results)
        ending, results = upcoming or begun(left)
    ending.store(results)


def _pitch(memory: SSAValue) -> int | None:
    """Elements from a row of a matrix to the next, 0 if all rows are the same; None if they are unknown."""
    return (strides_of(memory_of(memory)) or (None,))[M]


def _in_strips(op: EpilogueOp) -> bool:
    """Whether the warps of a warpgroup stage rows of D that no tensor copy stores."""
    schedule, bits = schedule_of(op), (_pitch(op.d) or 0) * element_of(op.d).bits
    return schedule.together > 1 and bool(schedule.staging) and bits % (UNIT * BYTE) > 0


def _has_registers_ahead(op: EpilogueOp) -> bool:
    """Whether a warpgroup has registers for the operands of the next part. A logarithm with a matrix leaves none
    (`ptxas`, 256 columns: 20 bytes of spills)."""
    logarithm = op.epilogue is not None and any(one.name == "math.log" for one in op.epilogue.walk())
    return _bits(op) <= (0 if logarithm else EARLY_BITS)


def _matrices(op: EpilogueOp) -> list[SSAValue]:
    """The epilogue's operands that are matrices."""
    return [value for value, map_ in op.placed_operands if loops_of(map_) == (M, N)]


def _bits(op: EpilogueOp) -> int:
    """Bits of what the epilogue's matrices hold for each element of D."""
    return sum(element_of(value).bits for value in _matrices(op))


class Ending:
    """The way of accumulators, a fragment whose first element is that of row m and column n, to D. All accumulators go
    at once if nothing else is loaded. If elements change lanes or other operands are in registers, they go in strips of
    one or more rows of base tiles. The operands of the first strip are loaded when this is made."""

    def __init__(
        self, op: EpilogueOp, index: IndexBuilder, fragment: FragmentType, at: tuple[Index, Index], scratch: Scratch
    ) -> None:
        self.op, self.index, (self.m, self.n), self.schedule = op, index, at, schedule_of(op)
        rows = exchanged_rows(self.schedule) or (
            fragment.shape[0] if op.epilogue is None else fragment.layout.data.rows
        )
        if self.schedule.together > 1:
            rows = self.schedule.staging or rows
        self.rows = min(rows, fragment.shape[0])
        self.wanted = element_type(op.d)
        part = FragmentType.of("acc", self.rows, fragment.shape[1], fragment.element_type, fragment.layout.data)
        stored_part, loads = part.with_element(self.wanted), op.c is not None or bool(_matrices(op))
        self.first = changes_lanes_first(self.schedule, loads=loads, bits=stored_part.bits)
        self.aligned = math.gcd(BANKS, _pitch(op.d) or 0, max(0, memory_of(op.d).get_shape()[N]))
        self.part = part.with_layout(in_lines(part, self.aligned)) if self.first else part
        self.early = _bits(op) <= EARLY_BITS
        self.operands = EpilogueOperands(index, op.placed_operands, self.part, self.m, self.n, op.in_bounds)
        self.scratch = self._scratch(part if self.first else stored_part, scratch)
        self.loaded = self._load(0)

    def _scratch(self, part: FragmentType, allocated: Scratch) -> SSAValue | None:
        """Shared memory in which each warp has room for its rows of a part, if elements change lanes."""
        if not (exchanged_rows(self.schedule) or _in_strips(self.op)):
            return None
        of_warp = math.prod(part.shape) * part.bits // 8 >> len(part.layout.data.warp)
        words = max(BANKS, of_warp) // (f32.bitwidth // 8)
        kind = tile_type(f32, [self.schedule.consumer_warps, words])
        place = self.op.parent, kind
        if place not in allocated:
            allocated[place] = self.index.alloc(kind)
        return allocated[place]

    def store(self, accumulators: Sequence[SSAValue]) -> None:
        """Stores what becomes of the accumulators of each product."""
        last = fragment_of(accumulators[0]).shape[0] - self.rows
        upcoming = self.loaded
        for parts in zip(*map(self._parts, accumulators), strict=True):
            (c, loaded), row = upcoming, parts[0][1]
            early, apart, outside = self.early and row < last, self._is_apart(row), self.index
            if early and apart:
                upcoming = self._load(row + self.rows)
            with outside.where(self._has_row(row)) if apart else nullcontext(outside) as index:
                self.index = self.operands.index = index
                results = self._results([part for part, _ in parts], c, loaded, row)
                if early and not apart:
                    # Before the store, for nothing is moved across one that may be to the same memory.
                    upcoming = self._load(row + self.rows)
                results = results if self.first else self._exchanged(results)
                at = index.values([index.add(self.m, row), self.n])
                index.insert(StoreOp(results, self.op.d, at, in_bounds=self.op.in_bounds))
            self.index = self.operands.index = outside
            if row < last and not early:
                upcoming = self._load(row + self.rows)

    def _is_apart(self, row: int) -> bool:
        """Whether a warp computes the strip from a row on in a branch, taken where D has the row. In one block `ptxas`
        computes what follows a store before it, and the functions of all strips at once spill."""
        epilogue, is_static = self.op.epilogue, memory_of(self.op.d).get_shape()[M] >= 0
        if epilogue is None or row == 0 or self.schedule.together > 1:
            return False
        return is_static and any(one.name in FUNCTIONS for one in epilogue.walk())

    def _has_row(self, row: int) -> SSAValue:
        """Whether D has a row of the accumulators."""
        return self.index.compare("slt", self.index.add(self.m, row), memory_of(self.op.d).get_shape()[M])

    def _results(self, parts: list[SSAValue], c: SSAValue | None, loaded: list[SSAValue], row: int) -> SSAValue:
        """What becomes of the accumulators of a strip."""
        index, op = self.index, self.op
        sums = [self._exchanged(part) if self.first else part for part in parts]
        if c is not None:
            start = converted(index, c, fragment_of(sums[0]).element_type)
            sums = [index.insert(ElementwiseOp(Kind.Add, start, results)).fragment for results in sums]
        results, *others = [converted(index, each, op.product_type) for each in sums]
        if op.epilogue is None:
            return results
        return self.operands.map([results, *others], loaded, op.epilogue, self.wanted, row)

    def _exchanged(self, fragment: SSAValue) -> SSAValue:
        """The fragment with its elements along lines, where they change lanes."""
        if self.scratch is None:
            return fragment
        wanted = in_lines(fragment_of(fragment), self.aligned)
        return self.index.insert(ConvertLayoutOp.to(fragment, wanted, self.scratch)).fragment

    def _parts(self, accumulator: SSAValue) -> Iterator[tuple[SSAValue, int]]:
        """Each part, with the row it starts at."""
        rows, across = fragment_of(accumulator).shape
        if rows == self.rows:
            yield accumulator, 0
            return
        for row in range(0, rows, self.rows):
            yield self.index.insert(SubfragmentOp([accumulator], (row, 0), (self.rows, across))).fragment, row

    def _load(self, row: int) -> tuple[SSAValue | None, list[SSAValue]]:
        """The operands of the part that starts at a row: C, if it is added here, and those of the epilogue."""
        at = self.index.add(self.m, row)
        c = None if self.op.c is None else load(self.index, self.op.c, self.part, at, self.n, self.op.in_bounds)
        return c, self.operands.load(row)


@dataclass
class StoreEpilogue(RewritePattern):
    """`warp.epilogue` of a warp's sums, as loads, arithmetic and stores."""

    scratch: Scratch = field(default_factory=dict[tuple[Block | None, MemRefType], SSAValue])

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: EpilogueOp, rewriter: PatternRewriter) -> None:
        store(op, IndexBuilder(op), self.scratch)
        through = op.through
        rewriter.erase(op)
        drop_forms([through])


@rewrite_pattern
def load_early(op: LoadOp, rewriter: PatternRewriter) -> None:
    """`warp.load` of the few columns that are left to a warp of slices, before the loop over K. Behind it nothing hides
    how long memory takes to answer: half a microsecond of 15 where weights are converted (H200, 16x8192x8192). For
    other products it has not been measured."""
    before = list(_before(op))
    loop = next((one for one in before if isinstance(one, scf.ForOp)), None)
    sliced = any(OF_SLICES in one.attributes for one in before)
    if loop is None or not sliced or op.along is None or op.along.data != "columns":
        return
    if not any(isinstance(each, ConvertOp) and each.integers is not None for each in loop.walk()):
        return  # which converts no weights
    behind = [*takewhile(lambda one: one is not loop, before)]
    for moved in dependences(op, [*reversed(behind), op]):
        moved.detach()
        rewriter.insert(moved, InsertPoint.before(loop))


def _before(op: Operation) -> Iterator[Operation]:
    """The operations before an operation in its block, last first, then those before a branch of some warps
    around it."""
    while (previous := op.prev_op) is not None:
        yield (op := previous)
    if (around := op.parent_op()) is not None and SOME_WARPS in around.attributes:
        yield from _before(around)


class EpiloguePass(ModulePass):
    """Expands `warp.epilogue`: for each part of its sums, a warp adds C, rounds, computes the epilogue, moves elements
    to other lanes if the schedule says so, and stores them."""

    name = "warp-epilogue"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns([StoreEpilogue()], op)
        apply_patterns([load_early], op)
