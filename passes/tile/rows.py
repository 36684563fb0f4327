"""`warp.rows`: a kernel in which each warp makes some rows, in registers, from one pass over memory. Integers of 64
bits, and neighbours of 16, are read as words; rows that begin anywhere by whole groups of elements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, StridedLayoutAttr, bf16, f32, i16, i32, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.layouts.layout import LANES, Bit, Layout
from ...dialect.layouts.layout import column as column_bit
from ...dialect.mlir.affine import FIXED, loops_of, strides_of
from ...dialect.warp.attributes import FragmentType, in_place_of, is_memory, memory_of
from ...dialect.warp.convert import ReduceOp
from ...dialect.warp.elements import IndexOp, YieldOp, all_yielded, element_type
from ...dialect.warp.fragments import ConstantOp
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.op_shapes import bounds_attribute
from ...dialect.warp.rows import ACROSS, RowsOp
from ...dialect.warp.views import HALF_WORD, MatrixOp, are_pairs
from ..diagnostics import fail
from ..linalg.memory_uses import check_unshared
from ..linalg.operand import VectorOperand
from ..linalg.row_reductions import needed, place_of_sum
from ..linalg.split_rows import SUMMED
from ..patterns import Index, IndexBuilder
from .elementwise_kernel import as_rows
from .fragments import mapped
from .row_region import Load, RowRegion, Store
from .row_shares import MAX_CTAS, SEVERAL, RowJoin, RowSizes, reduces_rows, traversal_of
from .tiling import Outliner, kernel_body
from .traversal import LANE_BITS, TraversalKernel, TraversedMemory, in_rows, operand_of, with_column

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
    made = in_place_of(op, RowsOp(inputs, outputs, maps, op.detach_region(op.body)))
    Rewriter.replace_op(op, made)
    return made


# Rows that begin anywhere, as those of 50257 elements do, are whole accesses all the same, from that on in which a row
# begins: what lanes hold of other rows is not reduced, and not stored. Accesses that an end cuts are by elements.


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


REGISTER_BITS = 32
"""Of a register that has one element of a row."""


def _build(op: RowsOp, kernel: TraversalKernel) -> None:
    """Computes and stores a warp's rows."""
    index, traversal = kernel.index, kernel.traversal
    pairs = zip(op.body.block.args, op.inputs, strict=True)
    numbers: dict[SSAValue, SSAValue] = {a: kernel.arguments[x] for a, x in pairs if not isinstance(x.type, MemRefType)}
    reduces, first, of_loop = reduces_rows(op), dict[SSAValue, Index](), [*range(op.loops)]
    of_loop[-1] = len(traversal.output.loops) - 1  # the loops before the last may be fewer
    for each in (inner for inner in op.body.block.ops if isinstance(inner, IndexOp)):
        if (loop := of_loop[each.number]) == traversal.rows and not reduces:
            first[each.result] = kernel.row
        elif loop != traversal.columns:
            numbers[each.result] = index.insert(arith.IndexCastOp(index.value(kernel.at[loop]), i32)).result
    for loop, value in enumerate(op.numbers, 1 - FIXED):
        if (number := _of_row(op, kernel, index, value, numbers)) is None:
            fail(op, "the number of a row depends on elements of the row")
        kernel.at[-loop] = index.insert(arith.IndexCastOp(number, IndexType())).result
    varying = (*op.body.block.args, *(each.result for each in op.row_indices))
    numbers = {value: number for value, number in numbers.items() if not needed([value]).keys().isdisjoint(varying)}
    views = {i: kernel.view(place) for i, place in traversal.inputs.items()}
    start = kernel.at[traversal.columns]
    # One element of fewer bits fills no register.
    columns = [
        op.body.block.args[i]
        for i, place in traversal.inputs.items()
        if traversal.columns not in place.loops and place.bits == REGISTER_BITS and not place.times
    ]

    def load(index: IndexBuilder, number: int, at: Index) -> SSAValue:
        place = traversal.inputs[number]
        if groups is not None and traversal.columns in place.loops and place.value not in traversal.of_rows:
            return groups.load(index, number, views[number], at)
        return kernel.load(index, number, views[number], at, column=reduces and op.body.block.args[number] in columns)

    places = (*traversal.inputs.values(), *traversal.outputs)
    sizes = RowSizes.of(traversal.columns, [place for place in places if place.value not in traversal.of_rows])
    longest, width = sizes.long[0], traversal.warp[1] * traversal.warps[1] * traversal.cluster
    length = sizes.length or index.dim(kernel.arguments[longest.value], longest.loops.index(traversal.columns))
    join = RowJoin.of(index, traversal.warps[1], traversal.cluster, op, turns=traversal.parts > 0)
    groups = RowGroups(kernel, traversal.group, sizes.length) if traversal.group and sizes.length is not None else None
    end = length if groups is None else index.add(length, traversal.group - 1)
    # Warps that hold whole rows need no loop along them.
    holds = not reduces or (isinstance(end, int) and width >= end)
    # Of three inputs along rows that are stored, comparing fewer was slower (gradient of RMS norm, 5000: 135 us, 160).
    several = sum(traversal.columns in place.loops for place in traversal.inputs.values()) >= SEVERAL
    inside = -1 if several and not traversal.parts else holds * max(0, (sizes.length or 0) - width + traversal.warp[1])
    # Reductions that do not depend on each other meet at once, in clusters where these take rows in turns (H200,
    # gradient of layer norm, 16384, 20480: 121.4, 146.4 us apart, 114.7, 134.3 together), but beside sums of as many
    # elements as a lane holds by eight CTAs (32768: 123.6 and 129.2).
    full = op.is_summed(-1) and traversal.warp[1] == LANES * SUMMED and traversal.cluster == MAX_CTAS
    together = traversal.cluster == 1 or (traversal.parts > 0 and not full)
    region = RowRegion(
        op.body,
        traversal.fragment,
        load,
        numbers,
        columns if reduces else (),
        start,
        join,
        together,
        traversal.warps[1] * traversal.cluster > 1,
        None if traversal.fits else length,
        inside,
        len(op.outputs),
        [op.body.block.args[number] for number in traversal.inputs] if traversal.sharing else (),
        early=None if groups is None else groups.early,
        rows=first,
    )
    if traversal.pitch:
        return _build_sectors(kernel, region, views)
    store = kernel.store if groups is None else groups.store
    if traversal.parts:
        _take_turns(op, kernel, region, join, views, None if holds else (length, width))
    else:
        _choosing(op, kernel, region, views, index).build(index, end, None if holds else width, store)


def _build_sectors(kernel: TraversalKernel, region: RowRegion, views: Mapping[int, SSAValue]) -> None:
    """Stores rows by whole sectors, but at their ends, and those of the last CTAs that have not all of theirs."""
    traversal, index, column = kernel.traversal, kernel.index, kernel.at[kernel.traversal.columns]
    staged = {i: kernel.staged(index, i, view, column) for i, view in views.items()}
    kinds = {i: traversal.fragment(traversal.element_type(place)) for i, place in traversal.inputs.items()}

    def within(inner: IndexBuilder) -> list[SSAValue]:
        rows = range(traversal.warp[0])
        loaded = [{i: kernel.whole_sectors(inner, memory, at) for i, memory in staged.items()} for at in rows]
        for row, inputs in enumerate(loaded):
            load: Load = lambda _, number, __, inputs=inputs: inputs[number]  # noqa: E731
            store: Store = lambda at, _, value, __, row=row: kernel.store_sectors(at, value, row)  # noqa: E731
            region._replace(fragment=traversal.sectors, load=load).build(inner, 0, None, store)
        return []

    def at_ends(inner: IndexBuilder) -> list[SSAValue]:
        load: Load = lambda at, number, _: kernel.own_rows(at, staged[number], kinds[number])  # noqa: E731
        region._replace(load=load).build(inner, 0, None, kernel.store)
        return []

    is_within = index.compare("ult", index.sub(column, 1), traversal.output.size(traversal.columns) - traversal.warp[1])
    if rest := (size := traversal.output.size(traversal.rows)) % traversal.cta[0]:
        is_within = index.insert(arith.AndIOp(is_within, index.compare("ult", kernel.row, size - rest))).result
    index.either(is_within, within, at_ends)


def _choosing(
    op: RowsOp, kernel: TraversalKernel, region: RowRegion, views: Mapping[int, SSAValue], index: IndexBuilder
) -> RowRegion:
    """The region, which makes sums of one element of the columns of a register, in rows that are only read, one a warp.
    The places are loaded here."""
    traversal, chosen = kernel.traversal, dict[ReduceOp, tuple[RowRegion, Index]]()
    read = [place for place in traversal.inputs.values() if place.value not in traversal.of_rows]
    columns, length = traversal.columns, RowSizes.of(traversal.columns, read).length
    if not all(map(op.is_of_rows, range(len(op.outputs)))) or traversal.warp[0] > 1 or length is None:
        return region
    width = REGISTER_BITS // min(place.bits for place in read if columns in place.loops)
    layout = Layout(tuple(Bit("x", i) for i in range(LANE_BITS)), tuple(map(column_bit, range(width.bit_length() - 1))))

    def fragment(kind: TypeAttribute) -> FragmentType:
        return FragmentType.of("acc", 1, width, kind, layout)

    def load(index: IndexBuilder, number: int, at: Index) -> SSAValue:
        column = op.body.block.args[number] in region.of_rows
        return kernel.load(index, number, views[number], at, column=column, fragment=fragment)

    for each in [inner for inner in op.body.block.ops if isinstance(inner, ReduceOp)]:
        place, numbers = place_of_sum(each, op.loops - 1), dict(region.numbers)
        at = None if place is None else _of_row(op, kernel, index, place, numbers)
        if at is None:
            continue
        last = index.insert(arith.ConstantOp(IntegerAttr(length - 1, i64 if at.type == i64 else i32))).result
        at = index.insert(arith.IndexCastOp(index.insert(arith.MinUIOp(at, last)).result, IndexType())).result
        own = region._replace(fragment=fragment, load=load, inside=0, early=None)
        chosen[each] = own, index.mul(index.div(at, width), width)
    return region._replace(chosen=chosen)


def _of_row(
    op: RowsOp, kernel: TraversalKernel, index: IndexBuilder, value: SSAValue, numbers: dict[SSAValue, SSAValue]
) -> SSAValue | None:
    """A value of the region that is the same along this warp's row, as a number; None for any other. `numbers` has what
    stands for values, to which those that it is computed from are added."""
    traversal, row, made = kernel.traversal, kernel.row, needed([value])
    inputs = {a: traversal.inputs[a.index] for a in op.body.block.args if a in made and a not in numbers}
    along = any(traversal.columns in memory.loops or memory.times for memory in inputs.values())
    if along or any(isinstance(each.owner, ReduceOp | IndexOp) and each not in numbers for each in made):
        return None
    if traversal.rows is not None and not traversal.parts:
        row = index.minimum(row, index.sub(index.dim(kernel.arguments[traversal.output.value], traversal.rows), 1))
    own = kernel.at | {traversal.rows: row, FIXED: 0}
    for argument, memory in inputs.items():
        where = index.values([own[loop] for loop in memory.loops])
        one = index.insert(memref.LoadOp.get(kernel.arguments[memory.value], where)).res
        if memory.high:
            one = index.insert(arith.ShRUIOp(one, index.insert(arith.ConstantOp(IntegerAttr(32, i64))))).result
        numbers[argument] = index.insert(arith.TruncIOp(one, i32)).result if one.type == i64 else one
    return index.again(value, numbers, lambda inner: inner.parent is op.body.block)


def _take_turns(
    op: RowsOp,
    kernel: TraversalKernel,
    region: RowRegion,
    join: RowJoin,
    views: Mapping[int, SSAValue],
    along: tuple[Index, int] | None,
) -> None:
    """Makes the rows of a warp one by one, by a loop `along` them that ends and steps if it does not hold them, and the
    sums of their elements. The next row is loaded before if it is held."""
    traversal, first, made = kernel.traversal, kernel.row, dict[int, SSAValue]()
    end, parts = traversal.output.size(traversal.rows), traversal.parts
    loops = [traversal.rows, *([] if along is None else [traversal.columns])]
    once = {n: [x for x in loops if x in place.loops] for n, place in traversal.inputs.items() if not place.times}
    ahead = [n for n, along_ in once.items() if along_ == loops[:1]]
    summed = [number for number in range(len(op.outputs)) if op.is_summed(number)]

    def row(index: IndexBuilder, at: Index) -> list[SSAValue]:
        kernel.row = index.value(at)
        return [region.load(index, number, region.start) for number in ahead]

    def store(index: IndexBuilder, number: int, value: SSAValue, at: Index) -> None:
        if number in summed:
            made[number] = value
        else:
            kernel.store(index, number, value, at)

    whole = traversal.fragment(f32)
    of_row = FragmentType.of("acc", whole.shape[0], traversal.layout.columns, f32, traversal.layout)
    kinds = [of_row if op.is_of_rows(number) else whole for number in summed]
    carried = [kernel.index.insert(ConstantOp.of(0.0, kind)).fragment for kind in kinds] + row(kernel.index, first)
    # Vectors are loaded once, but one alone beside the rows of RMS norm's gradient (H200, 65536: 98.8 us and 100.5).
    vectors = [n for n, along_ in once.items() if not along_ and traversal.columns in traversal.inputs[n].loops]
    vectors = vectors if along is None and (summed or len(vectors) > 1) else []
    loaded = {number: region.load(kernel.index, number, region.start) for number in vectors}
    join.enter(kernel.index)
    with kernel.index.loop(first, end, parts, carried) as turn:
        join.turn = turn.index.div(turn.counter, parts)
        own = loaded | dict(zip(ahead, turn.carried[len(summed) :], strict=True))
        after = turn.index.add(turn.counter, parts)
        # Of a last row its own again: another CTA may be writing its row in place.
        following = row(turn.index, turn.index.select("slt", after, end, after, turn.counter))
        kernel.row = turn.counter
        load: Load = lambda at, number, column: own.get(number) or region.load(at, number, column)  # noqa: E731
        own_region = _choosing(op, kernel, region, views, turn.index)._replace(load=load)
        own_region.build(turn.index, *(along or (0, None)), store)
        pairs = zip(turn.carried, map(made.__getitem__, summed), strict=False)
        sums = [mapped(turn.index, lambda x: arith.AddfOp(x[0], x[1]).result, *pair) for pair in pairs]
        turn.handed = sums + following
    kernel.row = first
    for number, total in zip(summed, turn.results, strict=False):
        kernel.store(kernel.index, number, total, region.start)


def tile(op: RowsOp, name: str = RowsOp.name) -> None:
    """Makes rows a kernel, and its launch. `name` is that of the operation which computes them."""
    op = by_pairs(op)
    count, op = len(op.inputs), by_words(op)
    outliner = Outliner(op)
    outputs = [with_column(value, op, outliner) if op.is_of_rows(i) else value for i, value in enumerate(op.outputs)]
    traversal = traversal_of(op, outputs, count)
    operands: dict[SSAValue, VectorOperand] = {}
    written = [place.value for place in traversal.outputs]
    for i, value in enumerate(op.inputs):
        place = traversal.inputs.get(i)
        own = value if place is None else place.value
        if own not in written:
            operands.setdefault(own, operand_of(f"X{i}", own, place, outliner))
    for i, place in enumerate(traversal.outputs):
        operands[place.value] = operand_of(f"Y{i or ''}", place.value, place, outliner)
    index, body, _ = kernel_body(every := list(operands.values()))
    _build(op, TraversalKernel(traversal, index, dict(zip(operands, body.args, strict=True))))
    ctas = reduce(outliner.index.mul, traversal.ctas(outliner.index, operands[traversal.output.value].value).values())
    computes = f"{name}, tiles of {'x'.join(map(str, traversal.warp))} for each warp"
    kernel = outliner.launch("", every, body, ctas, math.prod(traversal.warps) * LANES, computes)
    kernel.attributes |= traversal.limits
    outliner.finish()


def tile_elements(op: LinalgStructuredOperation) -> None:
    """Makes an elementwise operation a kernel, and its launch."""
    made = as_rows(op)
    check_unshared(op)
    Rewriter.replace_op(op, made)
    tile(made, op.name)
