"""`warp.rows`: a kernel in which each warp makes some rows, in registers, from one pass over memory.

Lanes hold as many neighbours of a row as one access of 16 bytes takes, and follow each other along it; of short rows a
warp takes several at a time. Where a row is longer than a warp holds, or its length is not known, each reduction is a
loop along the row, and so is what is stored in the end: memory is read once for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from xdsl.builder import Builder
from xdsl.dialects import gpu
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StridedLayoutAttr,
    StringAttr,
)
from xdsl.ir import Block, SSAValue, TypeAttribute
from xdsl.rewriter import InsertPoint

from ...dialect.gpu import BlockIdOp, ReturnOp, SubgroupIdOp
from ...dialect.layouts.layout import LANES, Layout, column, row
from ...dialect.warp.attributes import COMPUTES, FragmentType, memory_of
from ...dialect.warp.loops import loops_of, shape_of
from ...dialect.warp.memory import LoadOp, StoreOp, bounds_attribute
from ...dialect.warp.row_wise import RowsOp
from ...dialect.warp.view import MatrixOp, strides_of
from ..diagnostics import fail
from ..linalg import extents
from ..linalg.operand import VectorOperand
from ..linalg.views import expanded
from .index_builder import Index, IndexBuilder
from .outliner import Outliner
from .place import ACCESS_BITS, Place, operand_of
from .row_region import RowRegion

WARPS = 4
LANE_BITS = LANES.bit_length() - 1

MOST = 128
"""Elements of rows that a lane holds: f32, beside those of 16 bits that they are loaded as."""

LARGEST_GRID = (1 << 31) - 1


@dataclass(frozen=True)
class RowTiling:
    """How warps go over rows: the memory of each input in memory, by number, and that of the output."""

    op: RowsOp
    inputs: Mapping[int, Place]
    output: Place
    loops: int

    @staticmethod
    def of(op: RowsOp, output: SSAValue) -> RowTiling:
        """`output` is the output with a dimension for each loop. Raises a located diagnostic for memory that no kernel
        goes through."""
        maps = op.maps
        memories = [i for i, value in enumerate(op.inputs) if isinstance(value.type, MemRefType)]
        written = Place.of(output, range(op.loops))
        # What an element is added to, its own lane reads.
        inputs = {
            i: written if op.reduces and op.inputs[i] is op.output else Place.of(op.inputs[i], loops_of(maps[i]))
            for i in memories
        }
        found = RowTiling(op, inputs, written, op.loops)
        for place in (*inputs.values(), found.output):
            if strides_of(place.kind) is None:
                fail(op, f"expected strided memory, got {place.kind}")
            if 0 in place.kind.get_shape():
                fail(op, f"warp.rows has no elements to go through: {place.kind}")
        return found._joined()

    def _joined(self) -> RowTiling:
        """The same with as few loops over rows as possible."""
        found = self
        for loop in range(self.loops - 3, -1, -1):
            both = (*found.inputs.values(), found.output)
            if all(place.joins(loop) for place in both):
                inputs = {i: place.joined(loop) for i, place in found.inputs.items()}
                found = RowTiling(self.op, inputs, found.output.joined(loop), found.loops - 1)
        return found

    @property
    def along(self) -> int:
        """The loop along a row."""
        return self.loops - 1

    @property
    def rows(self) -> int | None:
        """The loop from row to row."""
        return self.loops - 2 if self.loops > 1 else None

    @cached_property
    def length(self) -> int | None:
        """Elements of a row; None if they are not known."""
        sizes = (place.kind.get_shape()[place.loops.index(self.along)] for place in self.long)
        return next((size for size in sizes if size >= 0), None)

    @property
    def long(self) -> list[Place]:
        """Inputs that have an element for each of a row."""
        own = self.output.value if self.op.reduces else None
        return [place for place in self.inputs.values() if self.along in place.loops and place.value is not own]

    @cached_property
    def layout(self) -> Layout:
        """How a warp's base tile of every operand lies in its lanes."""
        places = [*self.inputs.values(), self.output]
        least, length = min(place.bits for place in places), self.length or extents.USUAL
        wide = [place.together() for place in self.long if place.neighbours == self.along]
        if not self.op.reduces and self.output.neighbours == self.along:
            wide.append(self.output.together())
        together = min(ACCESS_BITS // least, *wide, 1 << (length - 1).bit_length()) if wide else 1
        held = together.bit_length() - 1
        across = min(LANE_BITS, max(0, (-(-length // together) - 1).bit_length()))
        across = LANE_BITS if self.rows is None or self.output.size(self.rows) == 1 else across
        down = LANE_BITS - across
        # Elements that fill no register go beside others.
        missing = max(0, (32 // least).bit_length() - 1 - held)
        more = [column(held + across + i) for i in range(missing)]
        lane = (*(column(held + i) for i in range(across)), *(row(i) for i in range(down)))
        return Layout(lane, (*map(column, range(held)), *more))

    @cached_property
    def warp(self) -> tuple[int, int]:
        """Rows of a warp, and columns that it holds at a time."""
        layout = self.layout
        most = layout.columns * max(1, MOST // layout.elements)
        whole = most if self.length is None else -(-self.length // layout.columns) * layout.columns
        return layout.rows, min(most, whole)

    @property
    def is_whole(self) -> bool:
        """Whether a warp holds whole rows."""
        return self.length is not None and self.warp[1] >= self.length

    @property
    def fits(self) -> bool:
        """Whether no tile passes the end of a row."""
        return self.length is not None and self.length % self.warp[1] == 0

    def ctas(self, index: IndexBuilder, output: SSAValue) -> list[Index]:
        """How many CTAs there are along each loop over rows."""
        sizes = [index.dim(output, loop) for loop in range(self.loops - 1)]
        return [
            index.ceildiv(size, self.warp[0] * WARPS) if loop == self.rows else size for loop, size in enumerate(sizes)
        ]


class RowKernel:
    """Builds the body of a kernel; `arguments` are its own, by what they stand for."""

    def __init__(self, tiling: RowTiling, body: Block, arguments: Mapping[SSAValue, SSAValue]) -> None:
        self.tiling, self.arguments = tiling, arguments
        self.index = IndexBuilder(Builder(InsertPoint.at_end(body)))
        self.at = self._origin()
        self.views = {i: self._view(place) for i, place in tiling.inputs.items()}
        self.output = self._view(tiling.output)

    def build(self) -> None:
        index, tiling = self.index, self.tiling
        longest = tiling.long[0]
        length = tiling.length or index.dim(self.arguments[longest.value], longest.loops.index(tiling.along))
        numbers: dict[SSAValue, SSAValue] = {
            argument: self.arguments[value]
            for argument, value in zip(tiling.op.body.block.args, tiling.op.inputs, strict=True)
            if not isinstance(value.type, MemRefType)
        }
        region = RowRegion(tiling.op.body, self.fragment, self._load, numbers, None if tiling.fits else length)
        step = None if tiling.is_whole else tiling.warp[1]
        region.build(index, length, step, self._store, reduces=tiling.op.reduces)
        index.insert(ReturnOp([]))

    def _origin(self) -> dict[int, Index]:
        """The first row of this warp, by loop."""
        index, tiling = self.index, self.tiling
        rest: Index = index.insert(BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X))).result
        counts, at = tiling.ctas(index, self.arguments[tiling.output.value]), dict[int, Index]()
        for loop in range(tiling.loops - 2, -1, -1):
            at[loop] = rest if loop == 0 else index.rem(rest, counts[loop])
            rest = index.div(rest, counts[loop]) if loop else rest
        if tiling.rows is not None:
            rows = tiling.warp[0]
            warp = index.mul(index.insert(SubgroupIdOp()).result, rows)
            at[tiling.rows] = index.add(index.mul(at[tiling.rows], rows * WARPS), warp)
        return at

    def _view(self, place: Place) -> SSAValue:
        """The matrix of memory that the rows of this CTA are of."""
        rows, columns = (
            None if loop is None or loop not in place.loops else place.loops.index(loop)
            for loop in (self.tiling.rows, self.tiling.along)
        )
        others = [self.at[loop] for i, loop in enumerate(place.loops) if i not in (rows, columns)]
        memory = self.arguments[place.value]
        matrix = self.index.insert(MatrixOp(memory, self.index.values(others), rows, columns)).matrix
        matrix.name_hint = memory.name_hint
        return matrix

    @property
    def row(self) -> Index:
        return 0 if self.tiling.rows is None else self.at[self.tiling.rows]

    def fragment(self, kind: TypeAttribute) -> FragmentType:
        """A fragment of what a warp holds at a time."""
        return FragmentType.of("acc", *self.tiling.warp, kind, self.tiling.layout)

    def _bounds(self, place: Place) -> ArrayAttr[BoolAttr] | None:
        tiling = self.tiling
        rows = tiling.rows
        known = rows is None or tiling.output.kind.get_shape()[rows] >= 0
        columns = tiling.fits and not (tiling.op.reduces and place.value is tiling.output.value)
        return bounds_attribute(known and tiling.output.size(rows) % (tiling.warp[0] * WARPS) == 0, columns)

    def _load(self, index: IndexBuilder, argument: int, at: Index) -> SSAValue:
        """A fragment of an input, from a column on."""
        kind = self.tiling.inputs[argument].kind.element_type
        if not isinstance(kind, TypeAttribute):
            fail(self.tiling.op, f"expected elements of a type, got {kind}")
        where = index.values([self.row, at])
        bounds = self._bounds(self.tiling.inputs[argument])
        return index.insert(LoadOp(self.views[argument], where, self.fragment(kind), bounds)).fragment

    def _store(self, index: IndexBuilder, value: SSAValue, at: Index) -> None:
        where = index.values([self.row, at])
        index.insert(StoreOp(value, self.output, where, self._bounds(self.tiling.output)))


def tile(op: RowsOp, module: ModuleOp) -> None:
    """Makes rows a kernel, and its launch."""
    outliner = Outliner(op, module)
    tiling = RowTiling.of(op, _with_columns(op, outliner) if op.reduces else op.output)
    operands: dict[SSAValue, VectorOperand] = {}
    output = tiling.output.value
    for i, value in enumerate(op.inputs):
        place = tiling.inputs.get(i)
        own = value if place is None else place.value
        if own is not output:
            operands.setdefault(own, operand_of(f"X{i}", own, place, outliner))
    operands[output] = operand_of("Y", output, tiling.output, outliner)
    body = Block(arg_types=[operand.value.type for operand in operands.values()])
    for argument, operand in zip(body.args, operands.values(), strict=True):
        argument.name_hint = operand.name
    RowKernel(tiling, body, dict(zip(operands, body.args, strict=True))).build()
    ctas: Index = 1
    for count in tiling.ctas(outliner.index, operands[output].value):
        ctas = outliner.index.mul(count, ctas)
    if isinstance(ctas, int) and ctas > LARGEST_GRID:
        fail(op, f"warp.rows takes {ctas} CTAs, a grid has at most {LARGEST_GRID}")
    warps = 1 if tiling.rows is None else WARPS
    kernel = outliner.launch("", list(operands.values()), body, ctas, warps * LANES)
    shape = "x".join(map(str, tiling.warp))
    kernel.attributes[COMPUTES] = StringAttr(f"warp.rows, {shape} at a time for each warp")
    outliner.finish()


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
