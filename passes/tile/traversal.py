"""Kernels that go once through memory: which elements of an output each CTA, warp and lane computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    StridedLayoutAttr,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue, TypeAttribute

from ...dialect.layouts.layout import LANES, Layout, column, row
from ...dialect.mlir.affine import number_of, strides_of
from ...dialect.mlir.gpu import BarrierOp, BlockIdOp, SubgroupIdOp
from ...dialect.warp.attributes import FragmentType, Memory, SwizzleAttr, element_row, memory_of
from ...dialect.warp.convert import ConvertLayoutOp, column_of
from ...dialect.warp.elements import element_type
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.op_shapes import bounds_attribute, tile_type
from ...dialect.warp.synchronisation import CLUSTER_SIZE, MIN_CTAS
from ...dialect.warp.views import HALF_WORD, MatrixOp
from ..diagnostics import fail
from ..linalg import operand as extents
from ..linalg.operand import VectorOperand, collapsed, expanded
from ..patterns import Index, IndexBuilder
from ..schedule.defaults import SECTOR
from .fragments import mapped
from .tiling import Outliner

ACCESS_BITS = 128
"""The widest access of a thread."""

SWIZZLE_BYTES = 128
"""Of panels of shared memory that elements which lie transposed go through."""

OF_SECTOR = 8 * SECTOR // HALF_WORD
"""Elements of 16 bits of a sector."""

SIGN_BIT = 31
"""Of a word."""


class TraversedMemory(NamedTuple):
    """Memory as the loops of an operation traverse it. `loops` has the loop of each dimension, -1 if its index is
    always 0, and less for a number of each row. `kind` is its type with the dimensions of each of the `groups` merged.
    Of integers of 64 bits the low words are read, or the `high` ones. Memory of `pairs` has every second element of 16
    bits, which words are read and written of, with the next one. Its elements stand for as many of a row, side by side,
    as `times` says, 0 for one."""

    value: SSAValue
    kind: Memory
    loops: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    divisor: int
    high: bool = False
    pairs: bool = False
    times: int = 0

    @staticmethod
    def of(value: SSAValue, loops: Sequence[int]) -> TraversedMemory:
        kind = memory_of(value)
        groups = tuple((d,) for d in range(kind.get_num_dims()))
        return TraversedMemory(value, kind, tuple(loops), groups, extents.divisor_of(value))

    @property
    def bits(self) -> int:
        row_ = element_row(i32 if self.pairs else self.kind.element_type)
        return i32.bitwidth if self.kind.element_type == i64 else 0 if row_ is None else row_.bits

    @property
    def neighbours(self) -> int | None:
        """The loop along which elements are contiguous, the last one of several; None without one."""
        strides = strides_of(self.kind) or ()
        if self.kind.element_type == i64:
            return None  # of which the low words are read
        along = [loop for loop, step in zip(self.loops, strides, strict=True) if step == 1 + self.pairs and loop >= 0]
        return along[-1] if along else None

    def size(self, loop: int | None) -> int:
        """The size of a dimension, or a sample; 1 of none."""
        size = 1 if loop is None else self.kind.get_shape()[loop]
        return size if size >= 0 else extents.USUAL

    def together(self) -> int:
        """Elements that divide every row of neighbours and the place of each in memory, a power of two."""
        strides = strides_of(self.kind) or ()
        sizes = tuple(
            size if size >= 0 else extents.sample(self.divisor if stride == 1 else 1)
            for size, stride in zip(self.kind.get_shape(), strides, strict=True)
        )
        dimension, offset = self.loops.index(self.neighbours or 0), self.kind.get_offset()
        steps = [s for i, s in enumerate(extents.strides(self.kind, sizes, self.divisor)) if i != dimension]
        if self.pairs:
            offset, steps = (offset or 0) // 2, [step // 2 for step in steps]
        common = math.gcd(sizes[dimension], self.divisor if offset is None else offset, *steps)
        return common & -common if common else ACCESS_BITS

    def joins(self, loop: int) -> bool:
        """Whether two loops, this and the next, are one to this memory: it knows neither, or steps from the last index
        of the second to the next of the first as between any two."""
        if loop not in self.loops and loop + 1 not in self.loops:
            return True
        strides, shape = strides_of(self.kind), self.kind.get_shape()
        if strides is None or loop not in self.loops or loop + 1 not in self.loops or min(shape) < 0:
            return False
        first, second = self.loops.index(loop), self.loops.index(loop + 1)
        inner = strides[second]
        return second == first + 1 and inner is not None and strides[first] == inner * shape[second]

    def joined(self, loop: int) -> TraversedMemory:
        """This memory with two loops, this and the next, as one."""
        renamed = tuple(other - (other > loop) for other in self.loops)
        if loop not in self.loops:
            return self._replace(loops=renamed)
        at, shape, strides = self.loops.index(loop), list(self.kind.get_shape()), list(strides_of(self.kind) or ())
        shape[at : at + 2], strides[at : at + 2] = [shape[at] * shape[at + 1]], [strides[at + 1]]
        plain = isinstance(self.kind.layout, NoneAttr)
        layout = NoneAttr() if plain else StridedLayoutAttr(strides, self.kind.get_offset())
        kind = MemRefType(self.kind.element_type, shape, layout, self.kind.memory_space)
        groups = (*self.groups[:at], self.groups[at] + self.groups[at + 1], *self.groups[at + 2 :])
        return self._replace(kind=kind, loops=renamed[:at] + renamed[at + 1 :], groups=groups)


def operand_of(name: str, value: SSAValue, place: TraversedMemory | None, outliner: Outliner) -> VectorOperand:
    """The operand of a kernel for memory, or for a number. Neighbouring dimensions that the traversal joins are
    collapsed before the launch."""
    name = value.name_hint or name
    if place is None:
        return VectorOperand(name, value)
    if any(len(group) > 1 for group in place.groups):
        value = outliner.insert(collapsed(value, place.kind, place.groups))
    return VectorOperand(name, value, divisor=place.divisor)


def with_column(value: SSAValue, op: Operation, outliner: Outliner) -> SSAValue:
    """Memory of one element for each row as a matrix of one column. Raises a located diagnostic without strides."""
    kind, shape, index = memory_of(value), memory_of(value).get_shape(), outliner.index
    if (strides := strides_of(kind)) is None:
        fail(op, f"expected strided memory, got {kind}")
    layout = NoneAttr() if isinstance(kind.layout, NoneAttr) else StridedLayoutAttr([*strides, 1], kind.get_offset())
    last = len(shape) - 1
    groups = [*((d,) for d in range(last)), (last, last + 1)] if shape else []
    sizes = [index.value(index.dim(value, d)) for d, size in enumerate(shape) if size < 0]
    wider = MemRefType(kind.element_type, [*shape, 1], layout, kind.memory_space)
    return outliner.insert(expanded(value, wider, groups, sizes))


# A warp takes a tile of the output in fragments whose layout is made for memory, not for an instruction: a lane holds
# as many neighbours in a row as one access of 16 bytes takes, and lanes follow each other along the row; of short rows
# a warp takes several at a time.

COLUMNS = "warp.columns"
"""On a transpose: what becomes of the bits of a column's number (`warp.convert_layout`)."""

WARPS = 4
LANE_BITS = LANES.bit_length() - 1


@dataclass(frozen=True)
class Traversal:
    """How warps cover the loops of an output. Two loops, rows and columns, are tiled; the others are taken one by one.

    `inputs` are the inputs in memory, by number. `outputs` are all outputs, with `output` among them. `rows` is None if
    there is a single row. A warp holds a tile of `warp` rows and columns, in base tiles of `layout`. A CTA has `warps`
    warps down and across, and covers `cta` rows and columns, None for all columns. `cluster` CTAs share a row. `fits`
    says that no tile crosses the end of a row. Memory in `of_rows` has one element for each row. `turned` memory, which
    lies transposed, is read in layouts of its own; `staged`, each warp reads 32 columns of all rows of a CTA, and takes
    its own rows from shared memory. If these are `pitch` elements apart there, a CTA stores whole sectors, of a sector
    less than it reads of each row. With `parts`, a warp takes all rows that are so many apart. An SM
    has registers for as many warps as are `resident`, if that is said. Rows of several results that are `sharing` an
    input are loaded before the first is stored. Rows that begin anywhere are read and stored by groups of so many
    elements, a `group` each, from the one on in which a row begins.
    """

    op: Operation
    inputs: Mapping[int, TraversedMemory]
    outputs: Sequence[TraversedMemory]
    output: TraversedMemory
    rows: int | None
    columns: int
    layout: Layout
    warp: tuple[int, int]
    warps: tuple[int, int]
    cta: tuple[int, int | None]
    fits: bool
    of_rows: Collection[SSAValue] = ()
    cluster: int = 1
    turned: Mapping[SSAValue, Layout] = field(default_factory=dict[SSAValue, Layout])
    parts: int = 0
    resident: int = 0
    staged: bool = False
    pitch: int = 0
    sharing: bool = False
    group: int = 0

    def bounds(self, place: TraversedMemory) -> ArrayAttr[BoolAttr] | None:
        """Whether no tile passes the last row of memory, and the end of a row."""
        static = self.rows is None or self.output.kind.get_shape()[self.rows] >= 0
        fits = self.fits and place.value not in self.of_rows
        return bounds_attribute(bool(self.parts) or (static and self.output.size(self.rows) % self.cta[0] == 0), fits)

    @property
    def limits(self) -> Mapping[str, Attribute]:
        """What a kernel says of its CTAs: how many share an SM at least, and a cluster."""
        ctas = {MIN_CTAS: IntegerAttr(self.resident // math.prod(self.warps), i32)} if self.resident else {}
        clusters = {CLUSTER_SIZE: DenseArrayBase.from_list(i32, [self.cluster, 1, 1])} if self.cluster > 1 else {}
        return {**ctas, **clusters}

    def ctas(self, index: IndexBuilder, output: SSAValue) -> dict[int, Index]:
        """How many CTAs there are along each loop."""
        counts: dict[int, Index] = {}
        for loop in range(len(self.output.loops)):
            step = {self.rows: self.cta[0], self.columns: self.cta[1]}.get(loop, 1)
            parts = self.cluster if loop == self.columns and self.cluster > 1 else None
            parts = self.parts // self.cta[0] if self.parts and loop == self.rows else parts
            counts[loop] = parts or (1 if step is None else index.ceildiv(index.dim(output, loop), step))
        return counts

    def fragment(self, kind: TypeAttribute) -> FragmentType:
        """The fragment that a warp processes at a time."""
        return FragmentType.of("acc", *self.warp, kind, self.layout)

    def sectors(self, kind: TypeAttribute) -> FragmentType:
        """The fragment of a row that a warp has sector by sector."""
        count = self.warp[1] // OF_SECTOR
        bits = [axis(i) for axis, size in ((column, OF_SECTOR), (row, count)) for i in range(size.bit_length() - 1)]
        layout = Layout(tuple(bits[-LANE_BITS:]), tuple(bits[:-LANE_BITS]))
        return FragmentType.of("acc", count, OF_SECTOR, kind, layout)

    def element_type(self, place: TraversedMemory) -> TypeAttribute:
        """The type of elements in memory, of the low words of those of 64 bits."""
        kind = element_type(place.value)
        return i32 if kind == i64 or place.pairs else kind


def lanes_along(bits: int, together: Sequence[int], length: int) -> tuple[int, int]:
    """How the lanes of a warp divide a row of `length` elements of `bits` bits. The result is the bits of the column
    within a lane, which one access takes, and the bits of lanes along the row. `together` has the contiguous elements
    of each memory."""
    neighbours = min(ACCESS_BITS // bits, *together, 1 << (length - 1).bit_length()).bit_length() - 1 if together else 0
    return neighbours, min(LANE_BITS, max(0, (-(-length >> neighbours) - 1).bit_length()))


def lane_layout(bits: int, neighbours: int, across: int, *, more_rows: bool, side: int = 0) -> Layout:
    """A layout with 2^neighbours elements of a row side by side in a lane, or of 2^side rows, and 2^across lanes along
    a row. If they do not fill a register, it has further elements of the same row, or of other rows with
    `more_rows`."""
    down = LANE_BITS - across
    missing = max(0, (32 // bits).bit_length() - 1 - neighbours - side)
    more = [row(down + i) if more_rows else column(neighbours + across + i) for i in range(missing)]
    if side:  # whose lanes are rows first: neighbours in memory
        lane = (*(row(side + i) for i in range(down)), *(column(i) for i in range(across)))
        return Layout(lane, (*map(row, range(side)), *more))
    lane = (*(column(neighbours + i) for i in range(across)), *(row(i) for i in range(down)))
    return Layout(lane, (*map(column, range(neighbours)), *more))


class TraversalKernel:
    """The body of a kernel under construction. `arguments` maps values of the host to its arguments."""

    def __init__(self, traversal: Traversal, index: IndexBuilder, arguments: Mapping[SSAValue, SSAValue]) -> None:
        self.traversal, self.arguments, self.index = traversal, arguments, index
        self.at = self._origin()
        self.row = self.index.value(0 if traversal.rows is None else self.at[traversal.rows])
        self.outputs = [self.view(place) for place in traversal.outputs]
        longs = [i for i, place in enumerate(traversal.outputs) if place.kind.element_type == i64]
        self.high_words = {i: self.view(traversal.outputs[i]._replace(high=True)) for i in longs}

    def load(
        self, index: IndexBuilder, number: int, view: SSAValue, at: Index, *, column: bool = False,
        fragment: Callable[[TypeAttribute], FragmentType] | None = None,
    ) -> SSAValue:  # fmt: skip
        """A fragment of an input, from a column on; a `column` of one that has an element for each row."""
        place = self.traversal.inputs[number]
        view = self.view(place, index, at) if place.times else view
        kind = (fragment or self.traversal.fragment)(self.traversal.element_type(place))
        if self.traversal.staged and place.value in self.traversal.turned:
            return self.own_rows(index, self.staged(index, number, view, at), kind)
        kind, layout = column_of(kind) if column else kind, kind.layout.data
        turned = self.traversal.turned.get(place.value)
        kind = kind.with_layout(turned) if turned else kind
        where, bounds = [self.row, index.value(at)], self.traversal.bounds(place)
        loaded = index.insert(LoadOp(view, where, kind, in_bounds=bounds)).fragment
        if not turned:
            return loaded
        order = self.traversal.op.attributes.get(COLUMNS)
        columns = order.get_values() if isinstance(order, DenseArrayBase) else ()
        return index.insert(ConvertLayoutOp.to(loaded, layout, columns=columns)).fragment

    def staged(self, index: IndexBuilder, number: int, view: SSAValue, at: Index) -> SSAValue:
        """The rows of the CTA of an input that lies transposed, in shared memory."""
        place, rows, columns = self.traversal.inputs[number], self.traversal.cta[0], self.traversal.warp[1]
        layout, width = self.traversal.turned[place.value], columns // self.traversal.warps[0]
        first = index.value(index.mul(index.div(self.row, rows), rows))
        own = index.mul(index.insert(SubgroupIdOp()).result, width)
        element, pitch = self.traversal.element_type(place), self.traversal.pitch
        part = FragmentType.of("acc", rows, width, element, layout)
        where = [first, index.value(index.add(at, own))]
        loaded = index.insert(LoadOp(view, where, part, in_bounds=self.traversal.bounds(place))).fragment
        # Neighbours of a row, which fill a register.
        pairs = (column(0), *(bit for bit in layout.element if bit != column(0)))
        turned = index.insert(ConvertLayoutOp.to(loaded, Layout(layout.lane, pairs))).fragment
        tile = tile_type(element, [rows, columns], SwizzleAttr(SWIZZLE_BYTES))
        if pitch:  # and one sector, for what the last row is read beyond
            tile = tile_type(element, [rows * pitch // OF_SECTOR + 1, OF_SECTOR], StridedLayoutAttr([OF_SECTOR, 1]))
        memory = index.constants.insert(memref.AllocOp([], [], tile)).memref
        memory = in_rows(index, memory, pitch) if pitch else memory
        index.insert(StoreOp(turned, memory, index.values([0, own])))
        index.insert(BarrierOp())
        return memory

    def own_rows(self, index: IndexBuilder, memory: SSAValue, kind: FragmentType) -> SSAValue:
        """The fragment of this warp's rows, of those of the CTA in shared memory."""
        first = index.mul(index.insert(SubgroupIdOp()).result, self.traversal.warp[0])
        return index.insert(LoadOp(memory, index.values([first, 0]), kind)).fragment

    def whole_sectors(self, index: IndexBuilder, memory: SSAValue, row: int) -> SSAValue:
        """The whole sectors of one of this warp's rows, from the first one on, of those of the CTA in shared memory,
        where rows lie to sectors as they do in the output."""
        kind = self.traversal.sectors(element_type(memory))
        first = index.add(index.mul(index.insert(SubgroupIdOp()).result, self.traversal.warp[0]), row)
        at = index.add(index.div(index.mul(first, self.traversal.pitch), OF_SECTOR), 1)
        sectors = in_rows(index, memory, OF_SECTOR)
        return index.insert(LoadOp(sectors, index.values([at, 0]), kind)).fragment

    def store_sectors(self, index: IndexBuilder, value: SSAValue, row: int) -> None:
        """Stores the whole sectors of one of this warp's rows in the output, of one sector less than it has."""
        output, traversal = self.traversal.output, self.traversal
        at = {**self.at, traversal.rows: index.add(self.row, row), traversal.columns: 0}
        strides = strides_of(output.kind) or ()
        place: Index = index.add(index.div(self.at[traversal.columns], OF_SECTOR), 1)
        for loop, stride in zip(output.loops, strides, strict=True):
            place = index.add(place, index.div(index.mul(at[loop], stride or 0), OF_SECTOR))
        sectors = in_rows(index, self.arguments[output.value], OF_SECTOR)
        count = traversal.warp[1] // OF_SECTOR - 1
        part = index.insert(MatrixOp(sectors, [], 0, 1, part=index.values([place, count]))).matrix
        index.insert(StoreOp(value, part, index.values([0, 0]), in_bounds=bounds_attribute(False, True)))

    def store(self, index: IndexBuilder, number: int, value: SSAValue, at: Index) -> None:
        """Stores a fragment of an output, from a column on."""
        where, bounds = [self.row, index.value(at)], self.traversal.bounds(self.traversal.outputs[number])
        index.insert(StoreOp(value, self.outputs[number], where, in_bounds=bounds))
        if number in self.high_words:
            signs = mapped(index, lambda x: arith.ShRSIOp(x[0], number_of(i32, SIGN_BIT).result).result, value)
            index.insert(StoreOp(signs, self.high_words[number], where, in_bounds=bounds))

    def _origin(self) -> dict[int, Index]:
        """Where this warp's tile starts, by loop."""
        index, traversal = self.index, self.traversal
        rest: Index = index.number(BlockIdOp)
        starts, counts = self._starts(), traversal.ctas(index, self.arguments[traversal.output.value])
        # Neighbouring CTAs go along a row, and then along rows that share an input.
        order = [traversal.columns, *(loop for loop in reversed(counts) if loop != traversal.columns)]
        if traversal.sharing and traversal.rows is not None:
            order.insert(1, order.pop(order.index(traversal.rows)))
        at: dict[int, Index] = {}
        for loop in order:
            last = loop == order[-1]
            tile = rest if last else index.rem(rest, counts[loop])
            rest = rest if last else index.div(rest, counts[loop])
            step, start = starts.get(loop, (1, 0))
            if traversal.pitch and loop == traversal.columns:  # a sector earlier, but for the first
                sectors = index.mul(tile, step // OF_SECTOR - 1)
                tile, step = index.sub(sectors, index.minimum(sectors, 1)), OF_SECTOR
            at[loop] = index.add(index.mul(0 if counts[loop] == 1 else tile, step), start)
        return at

    def _starts(self) -> dict[int | None, tuple[int, Index]]:
        """Elements from CTA to CTA, and where in its CTA's tile this warp starts, along rows and columns."""
        index, (rows, columns), (down, across) = self.index, self.traversal.warp, self.traversal.warps
        warp: Index = index.insert(SubgroupIdOp()).result if down * across > 1 else 0
        return {
            self.traversal.rows: (rows * down, index.mul(index.div(warp, across) if down > 1 else 0, rows)),
            self.traversal.columns: (columns * across, index.mul(index.rem(warp, across), columns)),
        }

    def view(self, place: TraversedMemory, index: IndexBuilder | None = None, at: Index = 0) -> SSAValue:
        """The matrix in memory that this CTA's part is of; of memory whose elements repeat along rows, the part for
        columns from `at` on."""
        index = index or self.index
        rows, columns = (
            None if loop is None or loop not in place.loops else place.loops.index(loop)
            for loop in (self.traversal.rows, self.traversal.columns)
        )
        others = [self.at.get(loop, 0) for i, loop in enumerate(place.loops) if i not in (rows, columns)]
        if place.times:
            number = index.div(at, place.times)
            last = place.kind.get_shape()[-1] - 1
            others[-1] = number if self.traversal.fits else index.minimum(number, last)
        memory = self.arguments[place.value]
        matrix = index.insert(
            MatrixOp(memory, index.values(others), rows, columns, high=place.high, pairs=place.pairs)
        ).matrix
        matrix.name_hint = memory.name_hint
        return matrix


def in_rows(index: IndexBuilder, memory: SSAValue, columns: int) -> SSAValue:
    """The same memory as whole rows of so many columns, one after another."""
    kind, strides = memory_of(memory), [columns, 1]
    shape = [math.prod(kind.get_shape()) // columns, columns]
    lies = MemRefType(kind.element_type, shape, StridedLayoutAttr(strides), kind.memory_space)
    return index.insert(memref.ReinterpretCastOp.from_dynamic(memory, [0], shape, strides, lies)).result
