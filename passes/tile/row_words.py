"""Elements of `warp.rows` that lie in memory as words: integers of 64 bits, neighbours of 16 bits; rows that begin
anywhere, by whole groups of elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import IntegerAttr, MemRefType, NoneAttr, StridedLayoutAttr, bf16, f32, i16, i32, i64
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.layouts.layout import LANES
from ...dialect.mlir.affine import loops_of, strides_of
from ...dialect.warp.attributes import BYTE, is_memory, memory_of
from ...dialect.warp.elements import YieldOp, all_yielded, element_type
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.op_shapes import bounds_attribute
from ...dialect.warp.rows import ACROSS, RowsOp
from ...dialect.warp.views import HALF_WORD, MatrixOp, are_pairs
from ..linalg.row_reductions import HELD
from ..patterns import Index, IndexBuilder
from .elementwise_kernel import LARGEST_ROW
from .traversal import ACCESS_BITS, TraversalKernel, TraversedMemory, in_rows

PARTS = (memref.SubviewOp, memref.CollapseShapeOp, memref.ExpandShapeOp)
"""Views whose type has their distance from the first element of memory."""


def by_words(op: RowsOp) -> RowsOp:
    """The operation, of which inputs behind the others are the high words of integers of 64 bits in memory."""
    values, maps, block = list(op.inputs), list(op.maps[: len(op.inputs)]), op.body.block
    for place, (value, argument) in enumerate(zip(op.inputs, block.args, strict=True)):
        if element_type(value) != i64 or not is_memory(value.type):
            continue
        low = block.insert_arg(i32, place)
        for cut in [use.operation for use in argument.uses]:
            if isinstance(cut, arith.TruncIOp) and cut.result.type == i32:
                Rewriter.replace_op(cut, [], [low])
        if argument.uses:
            values.append(value)
            maps.append(maps[place])
            with ImplicitBuilder(Builder(InsertPoint.at_start(block))):
                high = arith.ExtUIOp(block.insert_arg(i32, len(block.args)), i64)
                shifted = arith.ShLIOp(high, arith.ConstantOp(IntegerAttr(i32.bitwidth, i64)))
                argument.replace_all_uses_with(arith.OrIOp(shifted, arith.ExtUIOp(low, i64)).result)
        block.erase_arg(argument)
    return _replaced(op, values, op.outputs, [*maps, *op.written])


def by_pairs(op: RowsOp) -> RowsOp:
    """The operation, which reduces nothing, with words in place of two inputs, or two outputs, of 16 bits that are
    neighbours along rows. The memory that is left has the first element of each word."""
    block, count, values = op.body.block, len(op.inputs), (*op.inputs, *op.outputs)
    sides = range(count), range(count, len(values))
    firsts = {j: i for side in sides for i in side for j in side if _are_neighbours(op, values[i], values[j], i, j)}
    pairs = {i: j for j, i in firsts.items()}
    if not pairs or any(isinstance(inner, ACROSS) for inner in block.ops):
        return op
    arguments, results, end = list(block.args), list(all_yielded(op.body)), block.last_op or YieldOp()
    with ImplicitBuilder(Builder(InsertPoint.at_start(block))):
        bits = arith.ConstantOp(IntegerAttr(HALF_WORD, i32))
        upper = arith.ConstantOp(IntegerAttr(-1 << HALF_WORD, i32))
        elements = list[tuple[BlockArgument, SSAValue]]()
        for i, j in pairs.items():
            if i < count:
                word = block.insert_arg(i32, arguments[i].index)
                words = arith.ShLIOp(word, bits), arith.AndIOp(word, upper)
                elements += [
                    (arguments[n], _of_upper_half(w, arguments[n].type, bits))
                    for n, w in zip((i, j), words, strict=True)
                ]
    for argument, element in elements:
        _replace(argument, element)
    with ImplicitBuilder(Builder(InsertPoint.before(end))):
        for i, j in pairs.items():
            if i >= count:
                low, high = (_upper_half(results[n - count], bits) for n in (i, j))
                results[i - count] = arith.OrIOp(arith.ShRUIOp(low, bits), high).result
    inputs, outputs = ([n for n in side if n not in pairs.values()] for side in sides)
    Rewriter.replace_op(end, YieldOp(*(results[n - count] for n in outputs)))
    maps = [op.maps[n] for n in (*inputs, *outputs)]
    return _replaced(op, [values[n] for n in inputs], [values[n] for n in outputs], maps)


def _of_upper_half(word: Operation, kind: Attribute, bits: Operation) -> SSAValue:
    """The element of 16 bits, as f32, in the upper half of a word, whose lower half is zero."""
    if kind == bf16:
        return arith.BitcastOp(word.results[0], f32).result
    return arith.ExtFOp(arith.BitcastOp(arith.TruncIOp(arith.ShRUIOp(word, bits), i16), kind), f32).result


def _replace(argument: BlockArgument, element: SSAValue) -> None:
    """Erases an argument of 16 bits, which is an element as f32."""
    for user in [use.operation for use in argument.uses]:
        if isinstance(user, arith.ExtFOp) and user.result.type == f32:
            Rewriter.replace_op(user, [], [element])
    if argument.uses and isinstance(element.owner, Operation):
        with ImplicitBuilder(Builder(InsertPoint.after(element.owner))):
            argument.replace_all_uses_with(arith.TruncFOp(element, argument.type).result)
    argument.block.erase_arg(argument)


def _upper_half(value: SSAValue, bits: Operation) -> SSAValue:
    """A word whose upper half has the bits of an element, and whose lower half is zero."""
    if value.type == bf16:
        return arith.BitcastOp(arith.ExtFOp(value, f32), i32).result
    return arith.ShLIOp(arith.ExtUIOp(arith.BitcastOp(value, i16), i32), bits).result


def _are_neighbours(op: RowsOp, first: SSAValue, second: SSAValue, i: int, j: int) -> bool:
    """Whether memory has the elements behind those of other memory, which is the first of each two along rows."""
    if not (isinstance(first.type, MemRefType) and are_pairs(kind := memory_of(first)) and op.maps[i] == op.maps[j]):
        return False
    strides, along = list(strides_of(kind) or ()), loops_of(op.maps[i])
    layout = StridedLayoutAttr(strides, (kind.get_offset() or 0) + 1)
    behind = MemRefType(kind.element_type, kind.get_shape(), layout, kind.memory_space)
    return along[-1] == op.loops - 1 and strides[-1] == 2 and second.type == behind and _base(first) == _base(second)


def _base(value: SSAValue) -> SSAValue:
    """The memory that a view is part of."""
    return _base(value.owner.operands[0]) if isinstance(value.owner, PARTS) else value


def _replaced(op: RowsOp, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue], maps: Sequence[AffineMap]) -> RowsOp:
    """The operation on other memory."""
    made = RowsOp(inputs, outputs, maps, op.detach_region(op.body))
    made.attributes, made.location = op.attributes, op.location
    Rewriter.replace_op(op, made)
    return made


# Rows that begin anywhere, as those of 50257 elements do, are whole accesses all the same, from that on in which a row
# begins: what lanes hold of other rows is not reduced, and not stored. Accesses that an end cuts are by elements.


def group_of(op: RowsOp, places: Sequence[TraversedMemory]) -> int:
    """Elements of a group by which rows are read and stored, where memory with an element for each of a row has rows
    alone, of one odd length, one after another, and none is in place; 0 for others (H200, us, of pairs of elements: a
    softmax of 30522 takes 77.3 so and 71.5 otherwise, cross entropy 43.7 and 46.1)."""
    shapes = {(place.loops, place.kind.get_shape()) for place in places}
    (loops, shape), bits = min(shapes), [place.bits for place in places]
    group, summed = ACCESS_BITS // min(bits), any(map(op.is_summed, range(len(op.outputs))))
    plain = len(shapes) == 1 and loops == (0, 1) and len({place.value for place in places}) == len(places)
    if not plain or op.is_numbered or summed or shape[0] < 2 or shape[1] < LANES * HELD:
        return 0
    if any(p.kind.layout != NoneAttr() or p.kind.element_type == i64 or p.pairs or p.times for p in places):
        return 0
    return group if shape[1] % 2 and math.prod(shape) * max(bits) < BYTE * LARGEST_ROW else 0


@dataclass
class RowGroups:
    """Rows of `length` elements by groups of `size`. The first group of this warp's row begins at `first` in memory, by
    `early` elements before the row."""

    kernel: TraversalKernel
    size: int
    length: int

    def __post_init__(self) -> None:
        index = self.kernel.index
        begin = index.mul(self.kernel.row, self.length)
        self.first = index.mul(index.div(begin, self.size), self.size)
        self.early = index.sub(begin, self.first)

    def load(self, index: IndexBuilder, number: int, view: SSAValue, at: Index) -> SSAValue:
        """A fragment of an input, with what other rows have there; of the last elements of memory by elements."""
        traversal, row = self.kernel.traversal, self.kernel.row
        place, first = traversal.inputs[number], index.add(self.first, at)
        kind, (groups, end) = traversal.fragment(traversal.element_type(place)), self._groups(place)
        every, own = bounds_attribute(True, True), traversal.bounds(place)

        def by_elements(inner: IndexBuilder) -> list[SSAValue]:
            where = inner.values([row, inner.sub(at, self.early)])
            return [inner.insert(LoadOp(view, where, kind, in_bounds=own)).fragment]

        return index.either(
            index.compare("ult", first, end - kind.shape[1] + 1),
            lambda inner: [inner.insert(LoadOp(groups, inner.values([0, first]), kind, in_bounds=every)).fragment],
            by_elements,
        )[0]

    def store(self, index: IndexBuilder, number: int, value: SSAValue, at: Index) -> None:
        """Stores a fragment of an output, where it has an end of a row what is within."""
        kernel, traversal = self.kernel, self.kernel.traversal
        place, column = traversal.outputs[number], index.sub(at, self.early)
        if place.value in traversal.of_rows:
            return kernel.store(index, number, value, at)
        inside = index.compare("ult", column, self.length - traversal.warp[1] + 1)
        if (rows := place.size(0)) % traversal.cta[0]:
            inside = index.insert(arith.AndIOp(inside, index.compare("ult", kernel.row, rows))).result

        def whole(inner: IndexBuilder) -> list[SSAValue]:
            where, every = inner.values([0, inner.add(self.first, at)]), bounds_attribute(True, True)
            inner.insert(StoreOp(value, self._groups(place)[0], where, in_bounds=every))
            return []

        def ends(inner: IndexBuilder) -> list[SSAValue]:
            where, own = inner.values([kernel.row, column]), traversal.bounds(place)
            inner.insert(StoreOp(value, kernel.outputs[number], where, in_bounds=own, within=True))
            return []

        index.either(inside, whole, ends)

    def _groups(self, place: TraversedMemory) -> tuple[SSAValue, int]:
        """The whole groups of memory as one row, and how many elements they have."""
        index, count = self.kernel.index, math.prod(place.kind.get_shape()) // self.size * self.size
        memory = in_rows(index, self.kernel.arguments[place.value], count)
        return index.insert(MatrixOp(memory, [], 0, 1)).matrix, count
