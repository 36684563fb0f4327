"""`warp.rows`: a kernel in which each warp makes some rows, in registers, from one pass over memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith, memref, scf
from xdsl.dialects import math as math_dialect
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, NoneAttr, StridedLayoutAttr, f32, i32, i64
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue, TypeAttribute
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from ...dialect.layouts.layout import Bit, Layout
from ...dialect.layouts.layout import column as column_bit
from ...dialect.mlir.affine import loops_of
from ...dialect.mlir.gpu import BarrierOp, SubgroupIdOp
from ...dialect.warp.attention import AcrossOp, BroadcastOp, ReduceOp, RowsOp, StepOp, column_of
from ...dialect.warp.attributes import SHARED_SPACE, FragmentType, memory_of, target_of
from ...dialect.warp.elements import IndexOp, YieldOp, all_yielded, shape_of
from ...dialect.warp.epilogue import MapOp
from ...dialect.warp.fragments import IDENTITIES, Kind
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.synchronisation import CLUSTER, CLUSTER_SM, ClusterRankOp, ScopedBarrierOp
from ...dialect.warp.views import strides_of
from ..builder import Index, IndexBuilder
from ..diagnostics import fail
from ..linalg import operand as extents
from ..linalg.operand import VectorOperand, expanded
from .elementwise_kernel import may_flatten, over_elements, power_of_two
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
Store: TypeAlias = Callable[[IndexBuilder, int, SSAValue, Index], None]
Join: TypeAlias = Callable[[IndexBuilder, Kind, SSAValue], SSAValue]


class RowRegion(NamedTuple):
    """The `region`, whose arguments are numbers, or fragments that `load` gives from a column on, columns for those
    `of_rows`. A warp has the columns from `start` on; `join` reduces its columns with those of the other warps that
    have a part of the row. `length` is that of rows, where tiles pass their end."""

    region: Region
    fragment: FragmentOf
    load: Load
    numbers: Mapping[SSAValue, SSAValue]
    of_rows: Collection[SSAValue]
    start: Index
    join: Join
    length: Index | None

    @property
    def is_narrow(self) -> bool:
        """Whether at most 16 bits of each element are stored, and nothing is rounded before, so that approximate
        instructions are close enough."""
        results = all_yielded(self.region)
        columns = [value for value in results if self.is_column(value)]
        wide = any(value.type == f32 and value not in columns for value in results)
        return not (
            wide
            or any(isinstance(op, math_dialect.ExpOp) for value in columns for op in _computing(value))
            or any(isinstance(op, arith.TruncFOp) and op.result not in results for op in self.region.block.ops)
        )

    def build(self, index: IndexBuilder, end: Index, step: int | None, store: Store) -> None:
        """Whole rows at once, or `step` columns at a time up to `end`."""
        columns: dict[SSAValue, SSAValue] = {}
        chunk = RowChunk(self, index, self.start, columns)
        for op in self.region.block.ops:
            if isinstance(op, AcrossOp):
                own = chunk.reduced(op, parts=False) if step is None else self._along(index, op, end, step, columns)
                columns[op.result] = self.join(index, op.kind.data, own)
        results = dict(enumerate(all_yielded(self.region)))
        if step is not None:
            for number in [n for n, value in results.items() if self.is_column(value)]:
                store(index, number, chunk.whole(results.pop(number)), self.start)
            if not results:
                return
            inside, body, _ = self._loop(index, end, step, [])
            chunk = RowChunk(self, inside, self._at(inside, body), columns)
        for number, value in results.items():
            store(chunk.index, number, chunk.whole(value), chunk.at)
        if step is not None:
            chunk.index.insert(scf.YieldOp())

    def _at(self, index: IndexBuilder, body: Block) -> Index:
        """The first column of this warp in a turn of a loop along rows."""
        return index.add(body.args[0], self.start)

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
        part = RowChunk(self, inside, self._at(inside, body), dict(columns)).reduced(op, parts=True)
        both = mapped(inside, lambda x: COMBINED[kind](x[0], x[1]), body.args[1], part)
        inside.insert(scf.YieldOp(both))
        return index.insert(ReduceOp(kind, loop.results[0])).fragment

    def is_column(self, value: SSAValue) -> bool:
        """Whether a value is the same for all elements of a row, and no number alone."""
        owner = value.owner
        if isinstance(owner, AcrossOp):
            return True
        if not isinstance(owner, Operation):
            return value in self.of_rows
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
        kind = self.region.fragment(_type(value))
        if isinstance(value.owner, IndexOp):
            start = self.index.value(self.at)
            return self.index.insert(StepOp("columns", start, self.region.fragment(i32))).fragment
        if isinstance(value, BlockArgument) and not self.region.is_number(value) and value not in self.region.of_rows:
            return self.region.load(self.index, value.index, self.at)
        if self.region.is_column(value) and value.type in (f32, i32):
            return self.index.insert(BroadcastOp(self.column(value), kind)).fragment
        return self._mapped(value, kind, self._is_element, self.whole)

    def column(self, value: SSAValue) -> SSAValue:
        """A value for each row."""
        if value not in self.columns and isinstance(value, BlockArgument):
            self.columns[value] = self.region.load(self.index, value.index, self.at)
        elif value not in self.columns:
            kind = column_of(self.region.fragment(f32)).with_element(_type(value))
            self.columns[value] = self._mapped(value, kind, self._is_of_row, self.column)
        return self.columns[value]

    def _is_of_row(self, value: SSAValue) -> bool:
        """Whether a value is a column for those that are computed from it."""
        return isinstance(value.owner, AcrossOp) or value in self.region.of_rows

    def _is_element(self, value: SSAValue) -> bool:
        """Whether a value is a fragment for those that are computed from it."""
        if isinstance(value, BlockArgument):
            return not self.region.is_number(value)
        is_column = self.region.is_column(value) and value.type in (f32, i32)
        return value in self.elements or is_column or isinstance(value.owner, IndexOp)

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


def _computing(value: SSAValue) -> Iterator[Operation]:
    """The operations of the region that make a value."""
    if isinstance(owner := value.owner, Operation):
        yield owner
        for operand in owner.operands:
            yield from _computing(operand)


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

HELD = 32
"""Elements of a row that a lane holds, where a row is longer than a warp holds of them: f32, beside those of 16 bits
that they are loaded as."""

MOST_WARPS, CLUSTER_WARPS, MOST_CTAS = 32, 16, 8
"""Warps of a CTA that share a row; where CTAs of a cluster share it, warps of each, and CTAs."""

LEAST_WARPS = 2048
"""Warps that short rows are not spread over fewer than: a few for each SM."""


def traversal_of(op: RowsOp, outputs: Sequence[SSAValue]) -> Traversal:
    """How warps go over rows. Each of `outputs` has a dimension for each loop.

    Raises a located diagnostic for memory that no kernel goes through.
    """
    of_rows = [output for number, output in enumerate(outputs) if op.is_of_rows(number)]
    own = {op.outputs[number]: output for number, output in enumerate(outputs) if op.is_of_rows(number)}
    places: dict[int, TraversedMemory] = {}
    for i, (value, along) in enumerate(zip(op.inputs, op.maps, strict=False)):
        if isinstance(value.type, MemRefType):
            # What an element is added to, its own lane reads.
            place = TraversedMemory.of(value, loops_of(along))
            places[i] = TraversedMemory.of(own[value], range(op.loops)) if value in own else place
    count = len(op.inputs)
    places |= {count + i: TraversedMemory.of(output, range(op.loops)) for i, output in enumerate(outputs)}
    for place in places.values():
        if 0 in place.kind.get_shape():
            fail(op, f"warp.rows has no elements to go through: {place.kind}")
    reduces, indexed = _reduces(op), any(isinstance(inner, IndexOp) for inner in op.body.block.ops)
    main = next((i for i in range(count, count + len(outputs)) if places[i].value not in of_rows), count)

    def may_join(output: TraversedMemory, loop: int) -> bool:
        if reduces or indexed:
            return loop + 2 < len(output.loops)
        return may_flatten(output, loop, max(place.bits for place in places.values()))

    inputs, _ = joined(op, places, places[main], may_join)
    output, written = inputs[main], [inputs[count + i] for i in range(len(outputs))]
    inputs = {i: place for i, place in inputs.items() if i < count}
    if not reduces:
        return over_elements(op, inputs, written, output)
    columns = len(output.loops) - 1
    rows = columns - 1 if columns else None
    sizes = Sizes.of(columns, [place for place in (*inputs.values(), *written) if place.value not in of_rows])
    layout = _layout(sizes, (*inputs.values(), *written), output, rows, outputs)
    length, each = sizes.length, layout.columns * max(1, HELD // layout.elements)
    whole = output.value not in of_rows and length is not None and has_clusters(op)
    share = RowShare.of(length or extents.USUAL, each, clusters=whole) if layout.rows == 1 else RowShare(1, 1)
    across, parts = share.warps, share.warps * share.ctas
    width = each if length is None else min(each, -(-length // (layout.columns * parts)) * layout.columns)
    warp = layout.rows, width
    if across == 1 and length is not None and width >= length:
        most = min(each // width, output.size(rows) // (warp[0] * LEAST_WARPS))
        warp = layout.rows << max(0, most.bit_length() - 1), width
    warps = (1, across) if across > 1 else (1 if rows is None else WARPS, 1)
    fits = length is not None and length % (width * parts) == 0
    cta = warp[0] * warps[0], None if share.ctas == 1 else width * across
    return Traversal(op, inputs, written, output, rows, columns, layout, warp, warps, cta, fits, of_rows, share.ctas)


class RowShare(NamedTuple):
    """Warps of a CTA that share a row, and CTAs of a cluster that do."""

    warps: int
    ctas: int

    @staticmethod
    def of(length: int, each: int, *, clusters: bool) -> RowShare:
        """For rows of which each warp holds so many elements."""
        ctas = power_of_two(length, CLUSTER_WARPS * each)
        if clusters and 1 < ctas <= MOST_CTAS:
            return RowShare(CLUSTER_WARPS, ctas)
        return RowShare(min(MOST_WARPS, power_of_two(length, each)), 1)


def has_clusters(op: RowsOp) -> bool:
    """Whether the target has clusters."""
    target = target_of(op)
    return target is not None and target.sm >= CLUSTER_SM


def _reduces(op: RowsOp) -> bool:
    """Whether rows are taken together."""
    return any(isinstance(inner, AcrossOp) for inner in op.body.block.ops)


class Sizes(NamedTuple):
    """Memory with an element for each of a row, along a loop, and the length of rows; None if it is not known."""

    long: Sequence[TraversedMemory]
    length: int | None

    @staticmethod
    def of(columns: int, places: Sequence[TraversedMemory]) -> Sizes:
        long = [place for place in places if columns in place.loops]
        sizes = (place.kind.get_shape()[place.loops.index(columns)] for place in long)
        return Sizes(long, next((size for size in sizes if size >= 0), None))


def _layout(
    sizes: Sizes,
    places: Sequence[TraversedMemory],
    output: TraversedMemory,
    rows: int | None,
    outputs: Sequence[SSAValue],
) -> Layout:
    """How a warp's base tile of every operand lies in its lanes."""
    columns = len(output.loops) - 1
    least = min(place.bits for place in places)
    wide = [place.together() for place in sizes.long if place.neighbours == columns]
    written = [place.bits for place in sizes.long if place.value in outputs]
    within, across = lanes_along(max(written, default=least), wide, sizes.length or extents.USUAL)
    across = LANE_BITS if rows is None or output.size(rows) == 1 else across
    return lane_layout(least, within, across, more_rows=False)


def _build(op: RowsOp, kernel: TraversalKernel) -> None:
    """Computes and stores a warp's rows."""
    index, traversal = kernel.index, kernel.traversal
    views = {i: kernel.view(place) for i, place in traversal.inputs.items()}
    arguments = dict(zip(op.body.block.args, op.inputs, strict=True))
    numbers: dict[SSAValue, SSAValue] = {
        argument: kernel.arguments[value]
        for argument, value in arguments.items()
        if not isinstance(value.type, MemRefType)
    }
    start = kernel.at[traversal.columns]
    columns = [op.body.block.args[i] for i, place in traversal.inputs.items() if traversal.columns not in place.loops]
    reduces = _reduces(op)

    def load(index: IndexBuilder, number: int, at: Index) -> SSAValue:
        return kernel.load(index, number, views[number], at, column=reduces and op.body.block.args[number] in columns)

    places = (*traversal.inputs.values(), *traversal.outputs)
    sizes = Sizes.of(traversal.columns, [place for place in places if place.value not in traversal.of_rows])
    longest, width = sizes.long[0], traversal.warp[1] * traversal.warps[1] * traversal.cluster
    length = sizes.length or index.dim(kernel.arguments[longest.value], longest.loops.index(traversal.columns))
    region = RowRegion(
        op.body,
        traversal.fragment,
        load,
        numbers,
        columns if reduces else (),
        start,
        RowJoin(RowShare(traversal.warps[1], traversal.cluster)),
        None if traversal.fits else length,
    )
    # Warps that hold whole rows need no loop along them.
    holds = not reduces or (sizes.length is not None and width >= sizes.length)
    region.build(index, length, None if holds else width, kernel.store)


CHUNK_ELEMENTS = 4
"""Elements of f32 in the shortest line of shared memory."""


@dataclass
class RowJoin:
    """Reduces a column of a row with those of the other warps that share the row, through shared memory."""

    share: RowShare
    started: bool = False

    def __call__(self, index: IndexBuilder, by: Kind, column: SSAValue) -> SSAValue:
        (warps, ctas), count = self.share, self.share.warps * self.share.ctas
        if count == 1:
            return column
        kind = MemRefType(f32, [1, max(count, CHUNK_ELEMENTS)], NoneAttr(), IntegerAttr(SHARED_SPACE, i64))
        memory = index.insert(memref.AllocOp([], [], kind)).memref
        warp: Index = index.insert(SubgroupIdOp()).result
        if ctas == 1:
            index.insert(StoreOp(column, memory, index.values([0, warp])))
            index.insert(BarrierOp())
        else:
            if not self.started:
                index.insert(ScopedBarrierOp(CLUSTER))  # All CTAs run before others write their shared memory.
                self.started = True
            own = index.values([0, index.add(index.mul(index.insert(ClusterRankOp()).rank, warps), warp)])
            for cta in range(ctas):
                index.insert(StoreOp(column, memory, own, cta=index.value(cta)))
            index.insert(ScopedBarrierOp(CLUSTER))
        bits = count.bit_length() - 1
        lane = [column_bit(i) if i < bits else Bit("x", i - bits) for i in range(LANE_BITS)]
        layout = Layout(tuple(lane), tuple(column_bit(i) for i in range(LANE_BITS, bits)))
        every = index.insert(LoadOp(memory, index.values([0, 0]), FragmentType.of("acc", 1, count, f32, layout)))
        return index.insert(ReduceOp(by, every.fragment)).fragment


def tile(op: RowsOp) -> None:
    """Makes rows a kernel, and its launch."""
    outliner = Outliner(op)
    outputs = [_with_columns(op, i, outliner) if op.is_of_rows(i) else value for i, value in enumerate(op.outputs)]
    traversal = traversal_of(op, outputs)
    operands: dict[SSAValue, VectorOperand] = {}
    written = [place.value for place in traversal.outputs]
    for i, value in enumerate(op.inputs):
        place = traversal.inputs.get(i)
        own = value if place is None else place.value
        if own not in written:
            operands.setdefault(own, operand_of(f"X{i}", own, place, outliner))
    for i, place in enumerate(traversal.outputs):
        operands[place.value] = operand_of(f"Y{i or ''}", place.value, place, outliner)
    shape = "x".join(map(str, traversal.warp))
    outline(traversal, outliner, operands, partial(_build, op), f"warp.rows, {shape} at a time for each warp")


def _with_columns(op: RowsOp, number: int, outliner: Outliner) -> SSAValue:
    """An output of one element for each row as a matrix of one column."""
    output, index = op.outputs[number], outliner.index
    kind = memory_of(output)
    shape, strides = shape_of(output), strides_of(kind)
    if not shape:
        fail(op, "a single row as one number is not lowered; give it a dimension of rows")
    if strides is None:
        fail(op, f"expected strided memory, got {kind}")
    layout = NoneAttr() if isinstance(kind.layout, NoneAttr) else StridedLayoutAttr([*strides, 1], kind.get_offset())
    wider = MemRefType(kind.element_type, [*shape, 1], layout, kind.memory_space)
    last = len(shape) - 1
    groups = [*((d,) for d in range(last)), (last, last + 1)]
    sizes = [index.value(index.dim(output, d)) for d, size in enumerate(shape) if size < 0]
    return outliner.insert(expanded(output, wider, groups, sizes))
