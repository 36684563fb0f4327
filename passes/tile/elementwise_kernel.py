"""Elementwise operations that belong to no product: `linalg.fill`, `copy`, `transpose`, `generic` over parallel loops.

Each becomes a kernel that goes once through memory. A warp takes a tile of the output in a fragment whose layout is
made for memory, not for an instruction: a lane holds as many neighbours in a row as one access of 16 bytes takes, and
lanes follow each other along the row. Where an input lies transposed, lanes go down as many rows as fill a sector of 32
bytes of it, too, so that neither side reads or writes parts of sectors. What `docs/epilogues.md` says of the arithmetic
holds here as well: the body becomes the same `warp.map`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from xdsl.builder import Builder
from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    FloatAttr,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    i32,
)
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, TypeAttribute
from xdsl.rewriter import InsertPoint

from ...dialect.gpu import BlockIdOp, ReturnOp, SubgroupIdOp
from ...dialect.layouts.layout import LANES, Layout, column, row
from ...dialect.warp.attributes import COMPUTES, FragmentType, element_row, fragment_of
from ...dialect.warp.elements import YieldOp
from ...dialect.warp.elementwise import ConstantOp
from ...dialect.warp.epilogue import AXES, MapOp
from ...dialect.warp.loops import loops_of
from ...dialect.warp.memory import LoadOp, StoreOp, bounds_attribute
from ...dialect.warp.rows import StepOp
from ...dialect.warp.view import MatrixOp, strides_of
from ..diagnostics import fail
from ..linalg.elementwise import Elementwise, read_elementwise, why_not_elementwise
from ..linalg.operand import VectorOperand
from ..linalg.overlap import check_elementwise
from .index_builder import Index, IndexBuilder
from .outliner import Outliner
from .place import ACCESS_BITS, Place, operand_of

WARPS = 4
LANE_BITS = LANES.bit_length() - 1

SECTOR_BITS = 256

ELEMENTS = 16
"""Elements of the output that a lane computes: loads enough in flight, and few CTAs that have little to do."""

LARGEST_GRID = (1 << 31) - 1
LARGEST_ROW = 1 << 31
"""Bytes: indices and rows stay below."""


@dataclass(frozen=True)
class Stream:
    """An elementwise operation with the memory of each of its inputs, by number, and of its output."""

    found: Elementwise
    inputs: dict[int, Place]
    output: Place

    @staticmethod
    def of(found: Elementwise) -> Stream:
        """Raises a located diagnostic for elements and memory that no kernel goes through."""
        used = [i for i in range(len(found.inputs)) if found.reads(i) and isinstance(found.inputs[i].type, MemRefType)]
        places = {i: Place.of(found.inputs[i], loops_of(found.maps[i])) for i in used}
        output = Place.of(found.output, range(found.loops))
        for place in (*places.values(), output):
            if strides_of(place.kind) is None:
                fail(found.op, f"expected strided memory, got {place.kind}")
            if place.bits < 8:
                fail(found.op, f"{found.op.name} on elements of {place.kind.element_type} has no kernel of its own")
        if any(p.value == output.value and p.loops != output.loops for p in places.values()):
            fail(found.op, f"{found.op.name} reads its own output in another order than it writes it")
        if not found.loops or 0 in output.kind.get_shape():
            fail(found.op, f"the output of {found.op.name} has no elements to go through: {output.kind}")
        return Stream(found, places, output)._joined()

    def _joined(self) -> Stream:
        """The same with as few loops as possible."""
        stream, loop = self, self.found.loops - 2
        while loop >= 0 and not self.found.indexed:
            both = (*stream.inputs.values(), stream.output)
            sizes = stream.output.kind.get_shape()[loop : loop + 2]
            if all(p.joins(loop) for p in both) and math.prod(sizes) * max(p.bits for p in both) // 8 < LARGEST_ROW:
                inputs = {i: place.joined(loop) for i, place in stream.inputs.items()}
                stream = Stream(self.found, inputs, stream.output.joined(loop))
            loop -= 1
        return stream

    @cached_property
    def columns(self) -> int:
        """The loop along a row of the output: one along which its elements are neighbours."""
        along = self.output.neighbours
        return len(self.output.loops) - 1 if along is None else along

    @cached_property
    def turned(self) -> tuple[Place, ...]:
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
        places = [*self.inputs.values(), self.output]
        least, rows = min(p.bits for p in places), self.output.size(self.rows)
        along = [p.together() for p in places if p.neighbours == self.columns]
        length = self.output.size(self.columns)
        together = min(ACCESS_BITS // least, *along, 1 << (length - 1).bit_length()) if along else 1
        held = together.bit_length() - 1
        across = min(LANE_BITS, max(0, (-(-length // together) - 1).bit_length()))
        if self.turned:
            sector = SECTOR_BITS // max(p.bits for p in self.turned)
            across = LANE_BITS - min(LANE_BITS, sector.bit_length() - 1)
        across = LANE_BITS if self.rows is None or rows == 1 else across
        down = LANE_BITS - across
        # Elements that fill no register go beside others: from other rows, where there are any.
        missing = max(0, (32 // least).bit_length() - 1 - held)
        more = [row(down + i) if down else column(held + across + i) for i in range(missing)]
        lane = (*(column(held + i) for i in range(across)), *(row(i) for i in range(down)))
        return Layout(lane, (*map(column, range(held)), *more))

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

    def tiles(self, index: IndexBuilder, output: SSAValue) -> list[Index]:
        """How many CTAs there are along each loop."""
        cta = {self.rows: self.warp[0] * self.warps[0], self.columns: self.warp[1] * self.warps[1]}
        return [index.ceildiv(index.dim(output, loop), cta.get(loop, 1)) for loop in range(len(self.output.loops))]

    def inside(self, loop: int | None, step: int) -> bool:
        """Whether no tile passes the end of a loop."""
        return loop is None or (self.output.kind.get_shape()[loop] >= 0 and self.output.size(loop) % step == 0)


class StreamBuilder:
    """Builds the body of the kernel of a stream; `arguments` are those of the kernel, by what they stand for."""

    def __init__(self, stream: Stream, body: Block, arguments: Mapping[SSAValue, SSAValue]) -> None:
        self.stream, self.arguments = stream, arguments
        self.index = IndexBuilder(Builder(InsertPoint.at_end(body)))

    def build(self) -> None:
        index, stream = self.index, self.stream
        at = self._origin()
        output = self._view(stream.output, at)
        loaded = {i: self._load(place, at) for i, place in stream.inputs.items()}
        kind = self._fragment(stream.output)
        where = self._where(at)
        indices = {loop: self._index(loop, at, kind) for loop in stream.found.indexed}
        index.insert(StoreOp(self._computed(loaded, indices, kind), output, where, self._bounds()))
        index.insert(ReturnOp([]))

    def _origin(self) -> dict[int, Index]:
        """Where this warp's tile starts, by loop."""
        index, stream = self.index, self.stream
        rest: Index = index.insert(BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X))).result
        warp: Index = index.insert(SubgroupIdOp()).result
        (rows, columns), (down, across) = stream.warp, stream.warps
        inside = {
            stream.rows: (rows * down, index.mul(index.div(warp, across) if down > 1 else 0, rows)),
            stream.columns: (columns * across, index.mul(index.rem(warp, across), columns)),
        }
        at: dict[int, Index] = {}
        tiles = list(enumerate(stream.tiles(index, self.arguments[stream.output.value])))
        # Neighbouring CTAs go along a row.
        order = [tiles[stream.columns], *(tile for tile in reversed(tiles) if tile[0] != stream.columns)]
        for number, (loop, count) in enumerate(order):
            last = number == len(order) - 1
            tile = rest if last else index.rem(rest, count)
            rest = rest if last else index.div(rest, count)
            step, start = inside.get(loop, (1, 0))
            at[loop] = index.add(index.mul(0 if count == 1 else tile, step), start)
        return at

    def _where(self, at: dict[int, Index]) -> list[SSAValue]:
        stream = self.stream
        return self.index.values([0 if stream.rows is None else at[stream.rows], at[stream.columns]])

    def _bounds(self) -> ArrayAttr[BoolAttr] | None:
        stream, (rows, columns), (down, across) = self.stream, self.stream.warp, self.stream.warps
        return bounds_attribute(
            stream.inside(stream.rows, rows * down), stream.inside(stream.columns, columns * across)
        )

    def _view(self, place: Place, at: dict[int, Index]) -> SSAValue:
        """The matrix of memory that the tile is of."""
        rows, columns = (
            None if loop is None or loop not in place.loops else place.loops.index(loop)
            for loop in (self.stream.rows, self.stream.columns)
        )
        others = [0 if loop < 0 else at[loop] for i, loop in enumerate(place.loops) if i not in (rows, columns)]
        memory = self.arguments[place.value]
        matrix = self.index.insert(MatrixOp(memory, self.index.values(others), rows, columns)).matrix
        matrix.name_hint = memory.name_hint
        return matrix

    def _fragment(self, place: Place) -> FragmentType:
        kind = place.kind.element_type
        if not isinstance(kind, TypeAttribute):
            fail(self.stream.found.op, f"expected elements of a type, got {kind}")
        return FragmentType.of("acc", *self.stream.warp, kind, self.stream.layout)

    def _load(self, place: Place, at: dict[int, Index]) -> SSAValue:
        view = self._view(place, at)
        return self.index.insert(LoadOp(view, self._where(at), self._fragment(place), self._bounds())).fragment

    def _index(self, loop: int, at: dict[int, Index], kind: FragmentType) -> SSAValue:
        """The index along a loop of each element of the tile: a fragment, or a number that is the same for all."""
        start = self.index.value(at[loop])
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
    body = Block(arg_types=[operand.value.type for operand in operands.values()])
    arguments = dict(zip(operands, body.args, strict=True))
    for argument, operand in zip(body.args, operands.values(), strict=True):
        argument.name_hint = operand.name
    StreamBuilder(stream, body, arguments).build()
    tiles = stream.tiles(outliner.index, operands[stream.output.value].value)
    ctas: Index = math.prod(count for count in tiles if isinstance(count, int))
    for count in (count for count in tiles if not isinstance(count, int)):
        ctas = outliner.index.mul(count, ctas)
    if isinstance(ctas, int) and ctas > LARGEST_GRID:
        fail(op, f"{op.name} takes {ctas} CTAs, a grid has at most {LARGEST_GRID}")
    kernel = outliner.launch("", list(operands.values()), body, ctas, WARPS * LANES)
    kernel.attributes[COMPUTES] = StringAttr(f"{op.name}, tiles of {'x'.join(map(str, stream.warp))} for each warp")
    outliner.finish()


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
