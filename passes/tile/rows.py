"""`warp.rows`: a kernel in which each warp makes some rows, in registers, from one pass over memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith, scf
from xdsl.dialects import math as math_dialect
from xdsl.dialects.builtin import IndexType, MemRefType, NoneAttr, StridedLayoutAttr, f32
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue, TypeAttribute
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from ...dialect.layouts.layout import Layout
from ...dialect.mlir.affine import loops_of
from ...dialect.warp.attention import AcrossOp, BroadcastOp, ReduceOp, RowsOp, column_of
from ...dialect.warp.attributes import FragmentType, memory_of
from ...dialect.warp.elements import YieldOp, shape_of, yielded
from ...dialect.warp.epilogue import MapOp
from ...dialect.warp.fragments import IDENTITIES, Kind
from ...dialect.warp.views import strides_of
from ..builder import Index, IndexBuilder
from ..diagnostics import fail
from ..linalg import operand as extents
from ..linalg.operand import VectorOperand, expanded
from .fragment_math import constant, mapped, number, power, until
from .tiling import Outliner
from .traversal import (
    LANE_BITS,
    WARPS,
    Traversal,
    TraversalKernel,
    TraversedMemory,
    joined,
    lane_layout,
    lanes_along,
    operand_of,
    outline,
)

# The region of `warp.rows` on fragments: `warp.across` becomes `warp.reduce`, what is between them `warp.map`.
#
# What depends on rows taken together alone is computed once a row, on columns, and spread out where elements need it.
# Where 16 bits of each element are stored, and nothing is rounded before, exp is `ex2.approx`, and a quotient by a
# value of the row a product with its inverse: what that is off by, 2^-21 and |x| 2^-23 for the exponent x, is far
# below what storing rounds.

COMBINED: Mapping[Kind, Callable[[SSAValue, SSAValue], SSAValue]] = {
    Kind.Add: lambda a, b: arith.AddfOp(a, b).result,
    Kind.Mul: lambda a, b: arith.MulfOp(a, b).result,
    Kind.Max: lambda a, b: arith.MaxnumfOp(a, b).result,
    Kind.Min: lambda a, b: arith.MinnumfOp(a, b).result,
    Kind.Maximum: lambda a, b: arith.MaximumfOp(a, b).result,
    Kind.Minimum: lambda a, b: arith.MinimumfOp(a, b).result,
}
"""Two elements of a row as one."""

FragmentOf: TypeAlias = Callable[[TypeAttribute], FragmentType]
Load: TypeAlias = Callable[[IndexBuilder, int, Index], SSAValue]
Store: TypeAlias = Callable[[IndexBuilder, SSAValue, Index], None]


class RowRegion(NamedTuple):
    """The `region`, whose arguments are numbers, or fragments that `load` gives from a column on. `length` is that
    of rows, where tiles pass their end."""

    region: Region
    fragment: FragmentOf
    load: Load
    numbers: Mapping[SSAValue, SSAValue]
    length: Index | None

    @property
    def is_narrow(self) -> bool:
        """Whether 16 bits of each element are stored, and nothing is rounded before, so that approximate instructions
        are close enough."""
        last = yielded(self.region)
        return last.type != f32 and not any(
            isinstance(op, arith.TruncFOp) and op.result is not last for op in self.region.block.ops
        )

    def build(self, index: IndexBuilder, end: Index, step: int | None, store: Store, *, reduces: bool) -> None:
        """Whole rows at once, or `step` columns at a time up to `end`; of rows that give one element that is stored."""
        columns: dict[SSAValue, SSAValue] = {}
        chunk = RowChunk(self, index, 0, columns)
        for op in self.region.block.ops:
            if isinstance(op, AcrossOp):
                found = chunk.reduced(op, parts=False) if step is None else self._along(index, op, end, step, columns)
                columns[op.result] = found
        element = yielded(self.region)
        if step is None or reduces:
            store(index, chunk.whole(element), 0)
            return
        inside = self._loop(index, end, step, [])
        here = RowChunk(self, inside[0], inside[1].args[0], columns)
        store(here.index, here.whole(element), inside[1].args[0])
        here.index.insert(scf.YieldOp())

    def _loop(
        self, index: IndexBuilder, end: Index, step: int, initial: Sequence[SSAValue]
    ) -> tuple[IndexBuilder, Block, scf.ForOp]:
        """A loop along rows, to be filled."""
        body = Block(arg_types=[IndexType(), *(value.type for value in initial)])
        first, last, width = index.values([0, end, step])
        loop = scf.ForOp(first, last, width, initial, body)
        index.insert(loop)
        return index.at(Builder(InsertPoint.at_end(body))), body, loop

    def _along(
        self, index: IndexBuilder, op: AcrossOp, end: Index, step: int, columns: Mapping[SSAValue, SSAValue]
    ) -> SSAValue:
        """One reduction as a loop along rows."""
        kind = op.kind.data
        start = constant(index, column_of(self.fragment(f32), parts=True), IDENTITIES[kind])
        inside, body, loop = self._loop(index, end, step, [start])
        part = RowChunk(self, inside, body.args[0], dict(columns)).reduced(op, parts=True)
        both = mapped(inside, lambda x: COMBINED[kind](x[0], x[1]), body.args[1], part)
        inside.insert(scf.YieldOp(both))
        return index.insert(ReduceOp(kind, loop.results[0])).fragment

    def is_column(self, value: SSAValue) -> bool:
        """Whether a value is the same for all elements of a row, and no number alone."""
        owner = value.owner
        if isinstance(owner, AcrossOp):
            return True
        if not isinstance(owner, Operation):
            return False
        given = [operand for operand in owner.operands if not self.is_number(operand)]
        return bool(given) and all(map(self.is_column, given))

    def is_number(self, value: SSAValue) -> bool:
        """Whether a value is the same for all rows."""
        owner = value.owner
        if not isinstance(owner, Operation):
            return value in self.numbers
        return not isinstance(owner, AcrossOp) and all(map(self.is_number, owner.operands))


@dataclass
class RowChunk:
    """Columns of rows from `at` on: fragments of what is known of them; `columns` has what is known of rows."""

    region: RowRegion
    index: IndexBuilder
    at: Index
    columns: dict[SSAValue, SSAValue]
    elements: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    inverses: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def reduced(self, op: AcrossOp, *, parts: bool) -> SSAValue:
        """Rows taken together, or in parts."""
        fragment, kind = self.whole(op.element), op.kind.data
        if self.region.length is not None:
            fragment = until(self.index, fragment, self.index.sub(self.at, self.region.length), IDENTITIES[kind])
        return self.index.insert(ReduceOp(kind, fragment, parts=parts)).fragment

    def whole(self, value: SSAValue) -> SSAValue:
        """A value for each element."""
        if value not in self.elements:
            self.elements[value] = self._whole(value)
        return self.elements[value]

    def _whole(self, value: SSAValue) -> SSAValue:
        if isinstance(value, BlockArgument) and value not in self.region.numbers:
            return self.region.load(self.index, value.index, self.at)
        kind = self.region.fragment(_type(value))
        if self.region.is_column(value) and value.type == f32:
            return self.index.insert(BroadcastOp(self.column(value), kind)).fragment
        return self._mapped(value, kind, self._is_element, self.whole)

    def column(self, value: SSAValue) -> SSAValue:
        """A value for each row."""
        if value not in self.columns:
            kind = column_of(self.region.fragment(f32)).with_element(_type(value))
            self.columns[value] = self._mapped(value, kind, lambda v: isinstance(v.owner, AcrossOp), self.column)
        return self.columns[value]

    def _is_element(self, value: SSAValue) -> bool:
        """Whether a value is a fragment for those that are computed from it."""
        if isinstance(value, BlockArgument):
            return value not in self.region.numbers
        return value in self.elements or (self.region.is_column(value) and value.type == f32)

    def inverse(self, value: SSAValue) -> SSAValue:
        """One over a value of each row, spread out."""
        if value not in self.inverses:
            column = mapped(self.index, lambda x: arith.DivfOp(number(1.0), x[0]).result, self.column(value))
            kind = self.region.fragment(f32)
            self.inverses[value] = self.index.insert(BroadcastOp(column, kind)).fragment
        return self.inverses[value]

    def _has_inverse(self, op: Operation, kind: FragmentType) -> bool:
        """Whether each element is divided by a value of its row."""
        elements = kind.shape == self.region.fragment(f32).shape
        return isinstance(op, arith.DivfOp) and elements and self.region.is_narrow and self.region.is_column(op.rhs)

    def _computed(self, op: Operation, operands: Sequence[SSAValue]) -> SSAValue:
        """An operation on elements, in the block that is being built."""
        if self.region.is_narrow and isinstance(op, math_dialect.ExpOp):
            return power(arith.MulfOp(operands[0], number(math.log2(math.e))).result)
        return op.clone(dict(zip(op.operands, operands, strict=True))).results[0]

    def _mapped(
        self,
        value: SSAValue,
        kind: FragmentType,
        is_known: Callable[[SSAValue], bool],
        known: Callable[[SSAValue], SSAValue],
    ) -> SSAValue:
        """A value as a map of those that are known."""
        block, inputs, inner = Block(), list[SSAValue](), dict[SSAValue, SSAValue]()

        def moved(one: SSAValue) -> SSAValue:
            if one in inner:
                return inner[one]
            owner = one.owner
            if one in self.region.numbers or isinstance(owner, Block) or (one is not value and is_known(one)):
                inputs.append(self.region.numbers[one] if one in self.region.numbers else known(one))
                inner[one] = block.insert_arg(_type(one), len(block.args))
                return inner[one]
            if self._has_inverse(owner, kind):
                inputs.append(self.inverse(owner.operands[1]))
                inverse, dividend = block.insert_arg(f32, len(block.args)), moved(owner.operands[0])
                block.add_op(product := arith.MulfOp(dividend, inverse))
                inner[one] = product.result
                return inner[one]
            operands = list(map(moved, owner.operands))
            with ImplicitBuilder(block):
                inner[one] = self._computed(owner, operands)
            return inner[one]

        result = moved(value)
        block.add_op(YieldOp(result))
        return self.index.insert(MapOp(inputs, kind, Region(block))).fragment


def _type(value: SSAValue) -> TypeAttribute:
    """The type of an element.

    Raises:
        VerifyException: if fragments have no elements of it.
    """
    if not isinstance(value.type, TypeAttribute):
        raise VerifyException(f"expected elements of a type, got {value.type}")
    return value.type


# `warp.rows`: a kernel in which each warp makes some rows, in registers, from one pass over memory.
#
# Lanes hold as many neighbours of a row as one access of 16 bytes takes, and follow each other along it; of short rows
# a warp takes several at a time. Where a row is longer than a warp holds, or its length is not known, each reduction
# is a loop along the row, and so is what is stored in the end: memory is read once for each.

MOST = 128
"""Elements of rows that a lane holds: f32, beside those of 16 bits that they are loaded as."""


def traversal_of(op: RowsOp, output: SSAValue) -> Traversal:
    """How warps go over rows, each of which belongs to one warp. `output` has a dimension for each loop.

    Raises a located diagnostic for memory that no kernel goes through.
    """
    read = enumerate(zip(op.inputs, op.maps, strict=False))
    memories = {i: loops_of(along) for i, (value, along) in read if isinstance(value.type, MemRefType)}
    written = TraversedMemory.of(output, range(op.loops))
    # What an element is added to, its own lane reads.
    inputs: Mapping[int, TraversedMemory] = {
        i: written if op.reduces and op.inputs[i] is op.output else TraversedMemory.of(op.inputs[i], loops)
        for i, loops in memories.items()
    }
    for place in (*inputs.values(), written):
        if 0 in place.kind.get_shape():
            fail(op, f"warp.rows has no elements to go through: {place.kind}")
    inputs, written = joined(op, inputs, written, lambda output, loop: loop + 2 < len(output.loops))
    columns = len(written.loops) - 1
    rows = columns - 1 if columns else None
    length, layout = _length(op, inputs, written), _layout(op, inputs, written, rows)
    most = layout.columns * max(1, MOST // layout.elements)
    whole = most if length is None else -(-length // layout.columns) * layout.columns
    warp = layout.rows, min(most, whole)
    warps, fits = (1 if rows is None else WARPS, 1), length is not None and length % warp[1] == 0
    cta = warp[0] * WARPS, None
    return Traversal(op, inputs, written, rows, columns, layout, warp, warps, cta, fits, op.reduces)


def _long(op: RowsOp, inputs: Mapping[int, TraversedMemory], output: TraversedMemory) -> list[TraversedMemory]:
    """Inputs that have an element for each of a row."""
    own = output.value if op.reduces else None
    return [place for place in inputs.values() if len(output.loops) - 1 in place.loops and place.value is not own]


def _length(op: RowsOp, inputs: Mapping[int, TraversedMemory], output: TraversedMemory) -> int | None:
    """Elements of a row; None if they are not known."""
    long, columns = _long(op, inputs, output), len(output.loops) - 1
    sizes = (place.kind.get_shape()[place.loops.index(columns)] for place in long)
    return next((size for size in sizes if size >= 0), None)


def _layout(op: RowsOp, inputs: Mapping[int, TraversedMemory], output: TraversedMemory, rows: int | None) -> Layout:
    """How a warp's base tile of every operand lies in its lanes."""
    columns = len(output.loops) - 1
    least = min(place.bits for place in (*inputs.values(), output))
    wide = [place.together() for place in _long(op, inputs, output) if place.neighbours == columns]
    if not op.reduces and output.neighbours == columns:
        wide.append(output.together())
    held, across = lanes_along(least, wide, _length(op, inputs, output) or extents.USUAL)
    across = LANE_BITS if rows is None or output.size(rows) == 1 else across
    return lane_layout(least, held, across, more_rows=False)


def _build(op: RowsOp, kernel: TraversalKernel) -> None:
    """Computes and stores a warp's rows."""
    index, traversal = kernel.index, kernel.traversal
    views = {i: kernel.view(place) for i, place in traversal.inputs.items()}
    longest, known = _long(op, traversal.inputs, traversal.output)[0], _length(op, traversal.inputs, traversal.output)
    length = known or index.dim(kernel.arguments[longest.value], longest.loops.index(traversal.columns))
    numbers: dict[SSAValue, SSAValue] = {
        argument: kernel.arguments[value]
        for argument, value in zip(op.body.block.args, op.inputs, strict=True)
        if not isinstance(value.type, MemRefType)
    }

    def load(index: IndexBuilder, number: int, at: Index) -> SSAValue:
        return kernel.load(index, number, views[number], at)

    end = None if traversal.fits else length
    region = RowRegion(op.body, traversal.fragment, load, numbers, end)
    # A warp that holds whole rows needs no loop along them.
    step = None if known is not None and traversal.warp[1] >= known else traversal.warp[1]
    region.build(index, length, step, kernel.store, reduces=op.reduces)


def tile(op: RowsOp) -> None:
    """Makes rows a kernel, and its launch."""
    outliner = Outliner(op)
    traversal = traversal_of(op, _with_columns(op, outliner) if op.reduces else op.output)
    operands: dict[SSAValue, VectorOperand] = {}
    output = traversal.output.value
    for i, value in enumerate(op.inputs):
        place = traversal.inputs.get(i)
        own = value if place is None else place.value
        if own is not output:
            operands.setdefault(own, operand_of(f"X{i}", own, place, outliner))
    operands[output] = operand_of("Y", output, traversal.output, outliner)
    shape = "x".join(map(str, traversal.warp))
    outline(traversal, outliner, operands, partial(_build, op), f"warp.rows, {shape} at a time for each warp")


def _with_columns(op: RowsOp, outliner: Outliner) -> SSAValue:
    """An output of one element for each row as a matrix of one column."""
    kind, index = memory_of(op.output), outliner.index
    shape, strides = shape_of(op.output), strides_of(kind)
    if not shape:
        fail(op, "a single row as one number is not lowered; give it a dimension of rows")
    if strides is None:
        fail(op, f"expected strided memory, got {kind}")
    layout = NoneAttr() if isinstance(kind.layout, NoneAttr) else StridedLayoutAttr([*strides, 1], kind.get_offset())
    wider = MemRefType(kind.element_type, [*shape, 1], layout, kind.memory_space)
    last = len(shape) - 1
    groups = [*((d,) for d in range(last)), (last, last + 1)]
    sizes = [index.value(index.dim(op.output, d)) for d, size in enumerate(shape) if size < 0]
    return outliner.insert(expanded(op.output, wider, groups, sizes))
