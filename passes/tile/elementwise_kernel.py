"""Elementwise operations that belong to no product: `linalg.fill`, `copy`, `transpose`, `generic` over parallel loops.

Each becomes a kernel that goes once through memory (`traversal.py`). Where an input lies transposed, lanes go down as
many rows as fill a sector of 32 bytes of it, too, so that neither side reads or writes parts of sectors. What
`docs/epilogues.md` says of the arithmetic holds here as well: the body becomes the same `warp.map`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, IntegerAttr, MemRefType, ModuleOp, i32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from ...dialect.layouts.layout import Layout
from ...dialect.mlir.affine import loops_of
from ...dialect.warp.attention import StepOp
from ...dialect.warp.attributes import FragmentType, element_row, fragment_of
from ...dialect.warp.elements import YieldOp
from ...dialect.warp.epilogue import AXES, MapOp
from ...dialect.warp.fragments import ConstantOp
from ...dialect.warp.memory import bounds_attribute
from ..diagnostics import fail
from ..linalg.elementwise import Elementwise, read_elementwise, why_not_elementwise
from ..linalg.operand import VectorOperand
from ..linalg.overlap import check_elementwise
from .tiling import Outliner
from .traversal import (
    LANE_BITS,
    WARPS,
    Traversal,
    TraversalKernel,
    TraversedMemory,
    lane_layout,
    lanes_along,
    operand_of,
    outline,
)

SECTOR_BITS = 256

ELEMENTS = 16
"""Elements of the output that a lane computes: loads enough in flight, and few CTAs that have little to do."""

PACKED_BITS = 4
"""Bits of elements of which a kernel reads two in a byte."""

LARGEST_ROW = 1 << 31
"""Bytes: indices and rows stay below."""


HAVE_KERNELS = "floats of 8, 16, 32 and 64 bits, and integers of 8 and 32 bits"


@dataclass(frozen=True)
class Stream(Traversal):
    """An elementwise operation with the memory of each of its inputs, and of its output."""

    found: Elementwise

    @staticmethod
    def of(found: Elementwise) -> Stream:
        """Raises a located diagnostic for elements and memory that no kernel goes through."""
        used = [i for i in range(len(found.inputs)) if found.reads(i) and isinstance(found.inputs[i].type, MemRefType)]
        places = {i: TraversedMemory.of(found.inputs[i], loops_of(found.maps[i])) for i in used}
        output = TraversedMemory.of(found.output, range(found.loops))
        for place in (*places.values(), output):
            if place.bits < 8 and (place is output or place.bits != PACKED_BITS):
                kind = place.kind.element_type
                fail(found.op, f"{found.op.name} on elements of {kind} has no kernel of its own; {HAVE_KERNELS} have")
        if any(p.value == output.value and p.loops != output.loops for p in places.values()):
            fail(found.op, f"{found.op.name} reads its own output in another order than it writes it")
        if not found.loops or 0 in output.kind.get_shape():
            fail(found.op, f"the output of {found.op.name} has no elements to go through: {output.kind}")
        stream = Stream(found.op, places, output, found)
        for place in places.values():
            if place.bits < 8 and (place.neighbours != stream.columns or place.together() % 2):
                which = f"{found.op.name} on elements of {place.kind.element_type}"
                fail(
                    found.op,
                    f"{which} needs whole bytes of elements that are neighbours in its output too, got {place.kind}",
                )
        return stream.joined()

    def may_join(self, loop: int) -> bool:
        sizes = self.output.kind.get_shape()[loop : loop + 2]
        return not self.found.indexed and math.prod(sizes) * max(p.bits for p in self.places) // 8 < LARGEST_ROW

    @cached_property
    def columns(self) -> int:
        """The loop along a row of the output: one along which its elements are neighbours."""
        along = self.output.neighbours
        return len(self.output.loops) - 1 if along is None else along

    @cached_property
    def turned(self) -> tuple[TraversedMemory, ...]:
        """Inputs whose elements are neighbours along another loop than the output's."""
        return tuple(p for p in self.inputs.values() if p.neighbours not in (None, self.columns))

    @cached_property
    def rows(self) -> int | None:
        """The loop down the columns: one along which an input has neighbours, or the last one."""
        if self.turned:
            return self.turned[0].neighbours
        return next((loop for loop in reversed(self.output.loops) if loop != self.columns), None)

    @cached_property
    def layout(self) -> Layout:
        """How a warp's base tile of every operand lies in its lanes."""
        least, rows = min(p.bits for p in self.places), self.output.size(self.rows)
        along = [p.together() for p in self.places if p.neighbours == self.columns]
        held, across = lanes_along(least, along, self.output.size(self.columns))
        if self.turned:
            sector = SECTOR_BITS // max(p.bits for p in self.turned)
            across = LANE_BITS - min(LANE_BITS, sector.bit_length() - 1)
        across = LANE_BITS if self.rows is None or rows == 1 else across
        # Elements that fill no register are of other rows, where there are any.
        return lane_layout(least, held, across, more_rows=across < LANE_BITS)

    @cached_property
    def warp(self) -> tuple[int, int]:
        """Rows and columns of a warp's tile."""
        layout, times = self.layout, max(1, ELEMENTS // self.layout.elements)
        down = min(times, 1 << (-(-self.output.size(self.rows) // layout.rows) - 1).bit_length())
        return layout.rows * down, layout.columns * (times // down)

    @cached_property
    def warps(self) -> tuple[int, int]:
        """Warps of a CTA down and across."""
        down = min(WARPS, 1 << (-(-self.output.size(self.rows) // self.warp[0]) - 1).bit_length())
        return down, WARPS // down

    @cached_property
    def cta(self) -> tuple[int, int]:
        (rows, columns), (down, across) = self.warp, self.warps
        return rows * down, columns * across

    def inside(self, loop: int | None, step: int) -> bool:
        """Whether no tile passes the end of a loop."""
        return loop is None or (self.output.kind.get_shape()[loop] >= 0 and self.output.size(loop) % step == 0)


class StreamKernel(TraversalKernel):
    """Builds the body of the kernel of a stream."""

    def __init__(self, stream: Stream, body: Block, arguments: Mapping[SSAValue, SSAValue]) -> None:
        super().__init__(stream, body, arguments)
        self.stream = stream

    def build(self) -> None:
        stream, column = self.stream, self.at[self.stream.columns]
        loaded = {i: self.load(self.index, i, self.view(i), column) for i in stream.inputs}
        kind = stream.fragment(stream.element_type(stream.output))
        indices = {loop: self._index(loop, kind) for loop in stream.found.indexed}
        self.store(self.index, self._computed(loaded, indices, kind), column)

    def bounds(self, place: TraversedMemory) -> ArrayAttr[BoolAttr] | None:
        stream = self.stream
        loops = zip((stream.rows, stream.columns), stream.cta, strict=True)
        return bounds_attribute(*(stream.inside(loop, step) for loop, step in loops))

    def _index(self, loop: int, kind: FragmentType) -> SSAValue:
        """The index along a loop of each element of the tile: a fragment, or a number that is the same for all."""
        start = self.index.value(self.at[loop])
        if loop in (self.stream.rows, self.stream.columns):
            return self.index.insert(StepOp(AXES[loop == self.stream.columns], start, kind)).fragment
        return self.index.insert(arith.IndexCastOp(start, i32)).result

    def _computed(self, loaded: dict[int, SSAValue], indices: dict[int, SSAValue], kind: FragmentType) -> SSAValue:
        """The elements of the output."""
        found = self.stream.found
        block, inputs, elements = Block(), list[SSAValue](), dict[int, SSAValue]()
        for i, value in enumerate(found.inputs):
            if not found.reads(i):
                continue
            if i not in loaded and isinstance(value.owner, arith.ConstantOp):
                constant = value.owner.clone()
                block.add_op(constant)
                elements[i] = constant.result
                continue
            inputs.append(loaded[i] if i in loaded else self.arguments[value])
            held = fragment_of(loaded[i]).element_type if i in loaded else value.type
            elements[i] = block.insert_arg(held, len(block.args))
        inputs += indices.values()
        numbers = {loop: block.insert_arg(i32, len(block.args)) for loop in indices}
        result = _cast(found.op, block, found.append(block, elements, numbers), kind.element_type)
        passed = next((value for i, value in enumerate(inputs) if block.args[i] == result), None)
        if passed is not None and passed.type == kind:
            return passed
        if isinstance(owner := result.owner, arith.ConstantOp) and isinstance(owner.value, FloatAttr | IntegerAttr):
            return self.index.insert(ConstantOp(owner.value, kind)).fragment
        block.add_op(YieldOp(result))
        return self.index.insert(MapOp(inputs, kind, Region(block))).fragment


def _cast(op: Operation, block: Block, value: SSAValue, wanted: Attribute) -> SSAValue:
    """A value as the output's elements are: `linalg.fill` and `linalg.copy` convert what they are given."""
    source = value.type
    if source == wanted:
        return value
    rows = element_row(source), element_row(wanted)
    if rows[0] is None or rows[1] is None or rows[0].is_float != rows[1].is_float or rows[0].bits == rows[1].bits:
        fail(op, f"{op.name} from {source} to {wanted} is not lowered")
    wider, narrower = (arith.ExtFOp, arith.TruncFOp) if rows[0].is_float else (arith.ExtSIOp, arith.TruncIOp)
    cast = (wider if rows[1].bits > rows[0].bits else narrower).build(operands=[value], result_types=[wanted])
    block.add_op(cast)
    return cast.results[0]


def tile(op: LinalgStructuredOperation, module: ModuleOp) -> None:
    """Makes an elementwise operation on memory a kernel, and its launch.

    Raises a located diagnostic for any other operation.
    """
    found = read_elementwise(op)
    if found is None:
        fail(op, f"{op.name} has no kernel: {why_not_elementwise(op)}")
    stream = Stream.of(found)
    check_elementwise(found)
    outliner = Outliner(op, module)
    operands = _operands(stream, outliner)
    shape = "x".join(map(str, stream.warp))
    outline(stream, outliner, operands, partial(StreamKernel, stream), f"{op.name}, tiles of {shape} for each warp")


def _operands(stream: Stream, outliner: Outliner) -> dict[SSAValue, VectorOperand]:
    """What the kernel is given, by the value that it stands for."""
    found, operands = stream.found, dict[SSAValue, VectorOperand]()
    for i, value in enumerate(found.inputs):
        number = found.reads(i) and i not in stream.inputs and not isinstance(value.owner, arith.ConstantOp)
        place = stream.inputs.get(i)
        if (place is not None or number) and value not in operands:
            operands[value] = operand_of(f"X{i}", value, place, outliner)
    if stream.output.value not in operands:
        operands[stream.output.value] = operand_of("Y", stream.output.value, stream.output, outliner)
    return operands
