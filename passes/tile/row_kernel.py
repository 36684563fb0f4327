"""`warp.rows`: a kernel in which each warp makes some rows, in registers, from one pass over memory.

Lanes hold as many neighbours of a row as one access of 16 bytes takes, and follow each other along it; of short rows a
warp takes several at a time. Where a row is longer than a warp holds, or its length is not known, each reduction is a
loop along the row, and so is what is stored in the end: memory is read once for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, MemRefType, ModuleOp, NoneAttr, StridedLayoutAttr
from xdsl.ir import Block, SSAValue

from ...dialect.layouts.layout import Layout
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.loops import loops_of, shape_of
from ...dialect.warp.memory import bounds_attribute
from ...dialect.warp.row_wise import RowsOp
from ...dialect.warp.view import strides_of
from ..diagnostics import fail
from ..linalg import extents
from ..linalg.operand import VectorOperand
from ..linalg.views import expanded
from .index_builder import Index, IndexBuilder
from .outliner import Outliner
from .row_region import RowRegion
from .traversal import LANE_BITS, WARPS, Traversal, TraversalKernel, lane_layout, lanes_along, outline
from .traversed_memory import TraversedMemory, operand_of

MOST = 128
"""Elements of rows that a lane holds: f32, beside those of 16 bits that they are loaded as."""


@dataclass(frozen=True)
class RowTraversal(Traversal):
    """How warps go over rows, each of which belongs to one warp."""

    op: RowsOp

    @staticmethod
    def of(op: RowsOp, output: SSAValue) -> RowTraversal:
        """`output` is the output with a dimension for each loop. Raises a located diagnostic for memory that no kernel
        goes through."""
        read = enumerate(zip(op.inputs, op.maps, strict=False))
        memories = {i: loops_of(along) for i, (value, along) in read if isinstance(value.type, MemRefType)}
        written = TraversedMemory.of(output, range(op.loops))
        # What an element is added to, its own lane reads.
        inputs = {
            i: written if op.reduces and op.inputs[i] is op.output else TraversedMemory.of(op.inputs[i], loops)
            for i, loops in memories.items()
        }
        for place in (*inputs.values(), written):
            if 0 in place.kind.get_shape():
                fail(op, f"warp.rows has no elements to go through: {place.kind}")
        return RowTraversal(op, inputs, written).joined()

    def may_join(self, loop: int) -> bool:
        return loop + 1 < self.columns

    @cached_property
    def columns(self) -> int:
        return len(self.output.loops) - 1

    @cached_property
    def rows(self) -> int | None:
        return self.columns - 1 if self.columns else None

    @cached_property
    def length(self) -> int | None:
        """Elements of a row; None if they are not known."""
        sizes = (place.kind.get_shape()[place.loops.index(self.columns)] for place in self.long)
        return next((size for size in sizes if size >= 0), None)

    @property
    def long(self) -> list[TraversedMemory]:
        """Inputs that have an element for each of a row."""
        own = self.output.value if self.op.reduces else None
        return [place for place in self.inputs.values() if self.columns in place.loops and place.value is not own]

    @cached_property
    def layout(self) -> Layout:
        """How a warp's base tile of every operand lies in its lanes."""
        least, length = min(place.bits for place in self.places), self.length or extents.USUAL
        wide = [place.together() for place in self.long if place.neighbours == self.columns]
        if not self.op.reduces and self.output.neighbours == self.columns:
            wide.append(self.output.together())
        held, across = lanes_along(least, wide, length)
        across = LANE_BITS if self.rows is None or self.output.size(self.rows) == 1 else across
        return lane_layout(least, held, across, more_rows=False)

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

    @cached_property
    def warps(self) -> tuple[int, int]:
        return (1 if self.rows is None else WARPS), 1

    @cached_property
    def cta(self) -> tuple[int, None]:
        return self.warp[0] * WARPS, None


class RowKernel(TraversalKernel):
    """Builds the body of a kernel of rows."""

    def __init__(self, tiling: RowTraversal, body: Block, arguments: Mapping[SSAValue, SSAValue]) -> None:
        super().__init__(tiling, body, arguments)
        self.tiling = tiling
        self.views = {i: self.view(i) for i in tiling.inputs}

    def build(self) -> None:
        index, tiling = self.index, self.tiling
        longest = tiling.long[0]
        length = tiling.length or index.dim(self.arguments[longest.value], longest.loops.index(tiling.columns))
        numbers: dict[SSAValue, SSAValue] = {
            argument: self.arguments[value]
            for argument, value in zip(tiling.op.body.block.args, tiling.op.inputs, strict=True)
            if not isinstance(value.type, MemRefType)
        }
        end = None if tiling.fits else length
        region = RowRegion(tiling.op.body, tiling.fragment, self._load, numbers, end)
        step = None if tiling.is_whole else tiling.warp[1]
        region.build(index, length, step, self.store, reduces=tiling.op.reduces)

    def _load(self, index: IndexBuilder, number: int, at: Index) -> SSAValue:
        return self.load(index, number, self.views[number], at)

    def bounds(self, place: TraversedMemory) -> ArrayAttr[BoolAttr] | None:
        tiling, rows = self.tiling, self.tiling.rows
        known = rows is None or tiling.output.kind.get_shape()[rows] >= 0
        columns = tiling.fits and not (tiling.op.reduces and place.value is tiling.output.value)
        return bounds_attribute(known and tiling.output.size(rows) % tiling.cta[0] == 0, columns)


def tile(op: RowsOp, module: ModuleOp) -> None:
    """Makes rows a kernel, and its launch."""
    outliner = Outliner(op, module)
    tiling = RowTraversal.of(op, _with_columns(op, outliner) if op.reduces else op.output)
    operands: dict[SSAValue, VectorOperand] = {}
    output = tiling.output.value
    for i, value in enumerate(op.inputs):
        place = tiling.inputs.get(i)
        own = value if place is None else place.value
        if own is not output:
            operands.setdefault(own, operand_of(f"X{i}", own, place, outliner))
    operands[output] = operand_of("Y", output, tiling.output, outliner)
    shape = "x".join(map(str, tiling.warp))
    build = partial(RowKernel, tiling)
    outline(tiling, outliner, operands, build, f"warp.rows, {shape} at a time for each warp")


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
