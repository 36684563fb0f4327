"""`warp.rows` that become two, as their rows lie across memory, and two that become one, which read the same elements.

Of rows across memory, such as the columns of a matrix whose sums are the gradient of a bias, neighbours in memory are
of other rows, and lanes take those; so few rows keep few warps busy, however long they are. They are reduced in parts,
whose results a second operation reduces."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, cast

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import FloatAttr, MemRefType, f32
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter

from ...dialect.isa.row import TARGETS
from ...dialect.mlir.affine import FIXED, is_projection, loops_of, map_along, strides_of
from ...dialect.warp.attributes import is_memory, memory_of, target_of
from ...dialect.warp.convert import ReduceOp
from ...dialect.warp.elements import IndexOp, LoopSizes, YieldOp, all_yielded
from ...dialect.warp.fragments import Kind
from ...dialect.warp.rows import ACROSS, RowsOp, apart
from ...dialect.warp.synchronisation import has_clusters
from ..diagnostics import chose
from ..patterns import LocatedRewriter, computed_from, operations_between, rewrite_pattern
from .memory_uses import may_share, static_view, touched
from .operand import expand, root
from .row_reductions import PASS, PER_LANE, least_warps, needed, reads_once

LANES, SM_WARPS = 32, 62
"""Rows of a warp, and warps that keep an SM busy."""

FEW_ROWS = 16
FEW_LONG = (FEW_ROWS, 1 << 17), (33, 163841), (129, 245760)
"""Fewer rows, of so many elements or more, keep few SMs busy; the last where they are read for squares too (H200, group
norm and SiLU: 32 rows of 2^20 88.1 and 61.8 us, in parts, of 245760 25.9 and 22.2, of 163840 16.5 and 18.0; 64 rows of
245760 37.7 and 36.1, of 491520 71.1 and 62.2; 128 of these 127 and 110; sums of 64 rows of 2^18 11.3 and 12.7)."""

SUMMED, SUMMING_WARPS, CTA_WARPS, MIN_ROWS = 16, 16, 4, 64
"""For sums of columns by the kernel of their rows: elements of a row that a lane holds beside sums of each, warps of an
SM, and of a CTA, and rows for each of `FEW_ROWS` CTAs."""

MIN_PART, MAX_PARTS = 32, 256
"""Elements of a row in a part, and parts, which few warps reduce in the end."""

SAMPLE = MIN_PART
"""Elements of a part whose mean its squares are taken about."""


@rewrite_pattern
def split_rows(op: RowsOp, rewriter: PatternRewriter) -> None:
    """Splits reductions of rows that are strided in memory into partial reductions."""
    block, (*rows, length) = op.body.block, _sizes(op)
    across = [each for each in block.ops if isinstance(each, ReduceOp)]
    if not across or op.numbers or not all(map(op.is_of_rows, range(len(op.outputs)))):
        return
    squares = {each: made for each in across if (made := Squares.of(op, each)) is not None}
    results = needed(all_yielded(op.body))
    elements = needed(squares[each].element if each in squares else each.input for each in across)
    along_rows = [value for value in elements if isinstance(value, BlockArgument) and _is_along(op, value)]
    few = any(prod(rows) < most and length >= least for most, least in FEW_LONG[: 2 + bool(squares)])
    long = [value for value in along_rows if few or len(loops_of(op.maps[value.index])) > 1]
    plain = all(map(is_projection, op.maps)) and not any(isinstance(each, IndexOp) for each in block.ops)
    once = not any(isinstance(value.owner, ReduceOp) for value in elements)
    of_rows = not any(isinstance(value, BlockArgument) and _is_along(op, value) for value in results)
    parts = _parts(prod(rows), length, _sms(op)) if min([*rows, length]) > 0 else 1
    fits = _is_static if few else lies_across
    if not (plain and once and of_rows and long and all(fits(op, each) for each in long)):
        return
    if (pair := None if few or squares else _with_rows(op, across)) is not None:
        _sum_on_the_way(op, *pair, across)
        for each in (op, pair[0]):
            rewriter.erase(each)
    if parts == 1 or pair is not None:
        return
    what = "few long rows" if few else "rows that lie across memory"
    chose(op, "warp-outline", f"{what} are reduced in {parts} parts")
    Parts(op, across, squares, parts).replace(rewriter)


def _is_along(op: RowsOp, argument: BlockArgument) -> bool:
    """Whether an argument of the region differs along a row."""
    return op.loops - 1 in loops_of(op.maps[argument.index])


def _is_static(op: RowsOp, argument: BlockArgument) -> bool:
    kind = op.inputs[argument.index].type
    strides = strides_of(kind) if is_memory(kind) and kind.has_static_shape() else None
    return strides is not None and None not in strides


def lies_across(op: RowsOp, argument: BlockArgument) -> bool:
    """Whether the contiguous dimension of memory with static sizes and strides is not the dimension of a row."""
    strides = strides_of(memory_of(op.inputs[argument.index])) if _is_static(op, argument) else None
    along = loops_of(op.maps[argument.index]).index(op.loops - 1)
    return strides is not None and strides[along] != 1 and 1 in strides


def _parts(rows: int, length: int, sms: int) -> int:
    """The number of equal parts into which rows are cut: the smallest that keeps all SMs busy, otherwise the largest
    possible."""
    every = [n for n in range(1, min(MAX_PARTS, length // MIN_PART) + 1) if length % n == 0]
    return next((n for n in every if n * rows >= sms * SM_WARPS * LANES), every[-1] if every else 1)


def _computed(op: RowsOp, values: Collection[SSAValue], copies: dict[SSAValue, SSAValue], block: Block) -> list[int]:
    """Adds to `block` what computes the values of a region that are not `known`, and to `known` what they become.
    Returns the indices of the further inputs that it needs, whose arguments become the first ones of the block."""
    inputs = [value.index for value in values if isinstance(value, BlockArgument) and value not in copies]
    copies |= {op.body.block.args[i]: block.insert_arg(op.body.block.args[i].type, at) for at, i in enumerate(inputs)}
    for each in op.body.block.ops:
        if any(value in values and value not in copies for value in each.results):
            block.add_op(copy := each.clone(copies))
            copies |= dict(zip(each.results, copy.results, strict=True))
    return inputs


class Squares(NamedTuple):
    """A sum of squares of the differences between `element` and `centre`, which is the same for a row."""

    element: SSAValue
    centre: SSAValue

    @staticmethod
    def of(op: RowsOp, total: ReduceOp) -> Squares | None:
        """Those that a reduction adds up, if other reductions make the centre, and elements along the row alone the
        element."""
        square = total.input.owner
        less = square.lhs.owner if isinstance(square, arith.MulfOp) and square.lhs is square.rhs else None
        if not isinstance(less, arith.SubfOp) or total.kind.data != Kind.Add or total.input.type != f32:
            return None
        for element, centre in ((less.lhs, less.rhs), (less.rhs, less.lhs)):
            of_element, of_centre = needed([element]), needed([centre])
            read = [value for value in of_element if isinstance(value, BlockArgument)]
            along = [value for value in of_centre if isinstance(value, BlockArgument) and _is_along(op, value)]
            made = [any(isinstance(value.owner, ReduceOp) for value in values) for values in (of_element, of_centre)]
            if made == [False, True] and not along and all(_is_along(op, value) for value in read):
                return Squares(element, centre)
        return None


@dataclass
class Parts:
    """The reductions of an operation in so many `parts` of each row. Of squares of differences from a centre c, of
    which parts have no result yet, a part has the sum s1 of the differences from the mean p of its first `SAMPLE`
    elements, and the sum s2 of their squares: with e = p - c, its n elements have s2 + e (2 s1 + n e). As e^2 is at
    most the result of the part over `SAMPLE`, that is off by at most 8 n / SAMPLE k 2^-24 of itself, where k additions
    follow each other in a part."""

    op: RowsOp
    across: Sequence[ReduceOp]
    squares: Mapping[ReduceOp, Squares]
    parts: int

    def replace(self, rewriter: PatternRewriter) -> None:
        """Replaces the operation by that of parts, and that of their results."""
        self.builder = LocatedRewriter(self.op)
        elements = dict.fromkeys(each.element for each in self.squares.values())
        means = {element: self._allocated() for element in elements}
        for element, mean in means.items():
            block, copies = Block(), dict[SSAValue, SSAValue]()
            inputs = _computed(self.op, needed([element]), copies, block)
            with ImplicitBuilder(block):
                total = ReduceOp(Kind.Add, copies[element]).result
                share = arith.ConstantOp(FloatAttr(1 / SAMPLE, f32)).result
                YieldOp(arith.MulfOp(total, share).result)
            self._insert_of_parts(inputs, {}, [mean], block, sample=True)
        sums = [self._allocated() for _ in range(len(self.across) + len(self.squares))]
        self._insert_parts(means, sums)
        rewriter.replace(self.op, self.of_sums(means, sums))

    def _allocated(self) -> SSAValue:
        """Memory with an element for each part of each row."""
        kind = MemRefType(f32, [self.parts, *_sizes(self.op)[:-1]])
        return self.builder.insert(memref.AllocOp([], [], kind)).memref

    def _insert_parts(self, means: Mapping[SSAValue, SSAValue], sums: Sequence[SSAValue]) -> None:
        block, copies, yielded = Block(), dict[SSAValue, SSAValue](), list[SSAValue]()
        wanted = needed(self.squares[each].element if each in self.squares else each.input for each in self.across)
        wanted |= {each.result: None for each in self.across if each not in self.squares}
        inputs = _computed(self.op, wanted, copies, block)
        about = {element: block.insert_arg(f32, len(block.args)) for element in means}
        for each in self.across:
            if each not in self.squares:
                yielded.append(copies[each.result])
                continue
            element = self.squares[each].element
            less = arith.SubfOp(copies[element], about[element])
            square = arith.MulfOp(less, less)
            totals = [ReduceOp(Kind.Add, value.result) for value in (less, square)]
            block.add_ops([less, square, *totals])
            yielded += (total.result for total in totals)
        block.add_op(YieldOp(*yielded))
        self._insert_of_parts(inputs, means, sums, block)

    def _insert_of_parts(
        self, inputs: Sequence[int], means: Mapping[SSAValue, SSAValue], outputs: Sequence[SSAValue], block: Block,
        *, sample: bool = False,
    ) -> None:  # fmt: skip
        """Inserts an operation on parts of rows, or on a sample of each. The first loop is that of the parts."""
        op, parts, loops = self.op, self.parts, self.op.loops + 1
        values, maps = list[SSAValue](), list[AffineMap]()
        for value, map_ in ((op.inputs[i], op.maps[i]) for i in inputs):
            dims = list[int]()
            for loop in loops_of(map_):
                dims += (0, loops - 1) if loop == op.loops - 1 else [loop + (loop != FIXED)]
            if op.loops - 1 in loops_of(map_):
                shape, at = memory_of(value).get_shape(), loops_of(map_).index(op.loops - 1)
                cut = [[parts, size // parts] if d == at else [size] for d, size in enumerate(shape)]
                value = self.builder.insert(expand(value, cut)).result
                if sample:
                    shape = [*shape[:at], parts, SAMPLE, *shape[at + 1 :]]
                    whole = memory_of(value), [0] * len(shape), shape, [1] * len(shape)
                    value = self.builder.insert(memref.SubviewOp.from_static_parameters(value, *whole)).result
            values.append(value)
            maps.append(map_along(loops, dims))
        maps += [map_along(loops, range(loops - 1))] * (len(means) + len(outputs))
        self.builder.insert(RowsOp([*values, *means.values()], outputs, maps, Region(block)))

    def of_sums(self, means: Mapping[SSAValue, SSAValue], sums: Sequence[SSAValue]) -> RowsOp:
        """Combines the results of parts."""
        op, block, copies = self.op, Block(arg_types=[f32] * (len(sums) + len(means))), dict[SSAValue, SSAValue]()
        parts, inputs = iter(block.args), list[int]()
        about = dict(zip(means, block.args[len(sums) :], strict=True))
        for each in self.across:
            term: SSAValue = next(parts)
            if each in self.squares:
                element, centre = self.squares[each]
                inputs = [*_computed(op, needed([centre]), copies, block), *inputs]
                with ImplicitBuilder(block):
                    less = arith.SubfOp(about[element], copies[centre]).result
                    count = arith.ConstantOp(FloatAttr(_sizes(op)[-1] // self.parts, f32)).result
                    both = arith.AddfOp(arith.AddfOp(term, term).result, arith.MulfOp(count, less).result)
                    term = arith.AddfOp(next(parts), arith.MulfOp(less, both.result).result).result
            block.add_op(total := ReduceOp(each.kind.data, term))
            copies[each.result] = total.result
        yielded = all_yielded(op.body)
        inputs = [*_computed(op, needed(yielded), copies, block), *inputs]
        block.add_op(YieldOp(*(copies[value] for value in yielded)))
        own = map_along(op.loops, (op.loops - 1, *range(op.loops - 1)))
        maps = [*(op.maps[i] for i in inputs), *[own] * (len(sums) + len(means)), *op.written]
        return RowsOp([*(op.inputs[i] for i in inputs), *sums, *means.values()], op.outputs, maps, Region(block))


RESIDENT_WARPS, SUMMED_PARTS, SUMMED_LENGTHS = 32, 4096, range(512, 65537)
"""For sums of values of rows: warps of an SM, sums that a CTA adds up, and lengths of rows."""

MAX_TERMS = 1 << 15
"""Rows of which one value each is stored, rather than sums of those that a CTA takes in turns."""

OF_ROW = map_along(2, (0,))
"""The map of memory with an element for each row."""

SUMMED_ROWS = {False: range(256, 8193), True: range(256, 65537)}
"""Lengths of rows whose elements a CTA sums beside what it makes of each row, or a cluster."""

IN_CLUSTERS = 10, 11
"""The part of SMs that clusters of four CTAs and more run on at once (H100, rows of 16384 by clusters of 4 CTAs, two an
SM: 60 at once 149 microseconds, 64 have a second wave and 197)."""


def clusters_at_once(warps: int, op: RowsOp, resident: int = SUMMING_WARPS) -> int:
    """How many CTAs or clusters of so many warps run at once, where an SM has registers for those `resident`."""
    part, of = IN_CLUSTERS if warps > resident else (1, 1)
    return _sms(op) * resident * part // (of * warps)


def _sms(op: RowsOp) -> int:
    """The multiprocessors of the target."""
    return (target_of(op) or TARGETS["sm_90a"]).sms


def _turned(op: RowsOp) -> list[AffineMap]:
    """The maps of the inputs of an operation on columns, for one on rows."""
    turned = ([loop if loop == FIXED else 1 - loop for loop in loops_of(map_)] for map_ in op.maps[: len(op.inputs)])
    return [map_along(2, loops) for loops in turned]


def _with_rows(op: RowsOp, across: Sequence[ReduceOp]) -> tuple[RowsOp, RowsOp] | None:
    """An operation on the rows whose columns `op` sums, which reads the same memory, and the later one of both."""
    block, sizes = op.parent, _sizes(op)
    lengths = SUMMED_ROWS[has_clusters(op)]
    if block is None or op.loops != 2 or sizes[0] not in lengths or sizes[1] < MIN_ROWS * FEW_ROWS:
        return None
    if any(each.kind.data != Kind.Add or each.input.type != f32 for each in across):
        return None
    own = {(key, map_) for (key, _), map_ in zip(_inputs(op), _turned(op), strict=True) if len(map_.results) == 2}
    for other in block.ops:
        if not isinstance(other, RowsOp) or own.isdisjoint(_inputs(other)) or _sizes(other) != sizes[::-1]:
            continue
        first, second = (other, op) if other.is_before_in_block(op) else (op, other)
        reduces = any(isinstance(each, ReduceOp) for each in other.body.block.ops)
        plain = not other.is_of_rows(0) and not other.is_summed(-1) and not other.is_numbered
        if reduces and plain and _may_move(first, operations_between(first, second) or (), second):
            return other, second
    return None


def _sum_on_the_way(op: RowsOp, rows: RowsOp, last: RowsOp, across: Sequence[ReduceOp]) -> None:
    """Sums columns in the kernel that goes through their rows, each CTA those of its rows, before the last of both."""
    chose(op, "warp-outline", "columns are summed by the kernel of their rows")
    columns, length = _sizes(op)
    warps, few = 1 << (-(-columns // (LANES * SUMMED)) - 1).bit_length(), length // FEW_ROWS
    parts = min(clusters_at_once(warps, op), few)
    parts = parts // CTA_WARPS * CTA_WARPS if warps <= SUMMING_WARPS else parts
    builder, elements = LocatedRewriter(op, last), [each.input for each in across]
    kind = MemRefType(f32, [parts, columns])
    sums: list[SSAValue] = [builder.insert(memref.AllocOp([], [], kind)).memref for _ in across]
    block, copies = Block(), dict[SSAValue, SSAValue]()
    inputs = _computed(op, needed(elements), copies, block)
    block.add_op(YieldOp(*(copies[value] for value in elements)))
    maps = [*(_turned(op)[i] for i in inputs), *[apart(parts)] * len(sums)]
    made = RowsOp([op.inputs[i] for i in inputs], sums, maps, Region(block))
    builder.insert(_merged(rows, made))
    builder.insert(Parts(op, across, {}, parts).of_sums({}, sums))
    made.erase()


@rewrite_pattern
def sum_rows(op: RowsOp, rewriter: PatternRewriter) -> None:
    """Sums what is made of each row in the kernel that makes it, whose CTAs take rows in turns, and then their sums."""
    across = [each for each in op.body.block.ops if isinstance(each, ReduceOp)]
    users = (use.operation for value in op.inputs for use in value.uses)
    rows = next((x for x in users if isinstance(x, RowsOp) and not set(x.outputs).isdisjoint(op.inputs)), None)
    added = all(each.kind.data == Kind.Add and each.input.type == f32 for each in across)
    once = not any(isinstance(value.owner, ReduceOp | IndexOp) for value in needed(each.input for each in across))
    each_row = op.loops == 1 and all(loops_of(map_) == (0,) for map_ in op.maps[: len(op.inputs)])
    totals = all(map(op.is_of_rows, range(len(op.outputs))))
    if rows is None or not (across and added and once and each_row and totals and _may_be_summed(rows)):
        return
    made, parts = _with_sums(rows, op, across)
    between, sums = operations_between(rows, op), made.outputs[-len(across) :]
    if between is None or not _may_follow(rows, between):
        return
    chose(op, "warp-outline", "what is made of rows is summed by their kernel")
    builder = LocatedRewriter(op)
    for each in (*(cast("Operation", value.owner) for value in sums), made):
        builder.insert(each)
    rewriter.replace(op, Parts(op, across, {}, parts).of_sums({}, sums))
    rewriter.erase(rows)


def _may_be_summed(rows: RowsOp) -> bool:
    """Whether CTAs may take rows in turns, of which one value each is made."""
    of_rows = all(rows.is_of_rows(i) and not rows.is_summed(i) for i in range(len(rows.outputs)))
    if rows.loops != 2 or rows.is_numbered or not of_rows:
        return False
    (count, length), reduces = _sizes(rows), any(isinstance(each, ReduceOp) for each in rows.body.block.ops)
    along = [each for each in rows.body.block.args if _is_along(rows, each)]
    plain = all(_is_static(rows, each) and not lies_across(rows, each) for each in along)
    return reduces and plain and count >= MIN_ROWS * FEW_ROWS and length in SUMMED_LENGTHS


def _with_sums(rows: RowsOp, op: RowsOp, across: Sequence[ReduceOp]) -> tuple[RowsOp, int]:
    """An operation on rows with the sums of what another reduces, in as many parts as are returned. What nothing else
    reads of its results goes."""
    (count, length), block = _sizes(rows), Block()
    holding = 1 << (-(-length // (LANES * PER_LANE)) - 1).bit_length()
    warps = least_warps(count, length) if reads_once(rows) else min(holding, CTA_WARPS)
    parts = min(count, min(SUMMED_PARTS, _sms(op) * RESIDENT_WARPS // warps) // CTA_WARPS * CTA_WARPS)
    if reads_once(rows) and warps < holding and count <= MAX_TERMS:  # a loop, whose rows are not loaded ahead
        parts = count
    inner, own, yielded = dict[SSAValue, SSAValue](), dict[SSAValue, SSAValue](), all_yielded(rows.body)
    first = _computed(rows, computed_from(yielded), inner, block)
    same = {(v, map_): each for v, map_, each in zip(rows.inputs, rows.maps, rows.body.block.args, strict=False)}
    for argument, value in zip(op.body.block.args, op.inputs, strict=True):
        if value in rows.outputs:
            own[argument] = inner[yielded[rows.outputs.index(value)]]
        elif same.get((value, OF_ROW)) in inner:
            own[argument] = inner[same[value, OF_ROW]]
    elements = [each.input for each in across]
    second = _computed(op, needed(elements), own, block)
    users = [{use.operation for use in value.uses} - {rows, op} for value in rows.outputs]
    kept = [
        number
        for number, (value, others) in enumerate(zip(rows.outputs, users, strict=True))
        if not (isinstance(value.owner, memref.AllocOp) and all(isinstance(x, memref.DeallocOp) for x in others))
    ]
    block.add_op(YieldOp(*(inner[yielded[i]] for i in kept), *(own[value] for value in elements)))
    sums = [memref.AllocOp([], [], MemRefType(f32, [parts])).memref for _ in across]
    values = [*(op.inputs[i] for i in second), *(rows.inputs[i] for i in first)]
    maps = [*[OF_ROW] * len(second), *(rows.maps[i] for i in first), *(rows.written[i] for i in kept)]
    maps += [OF_ROW if parts == count else apart(parts, along=False)] * len(sums)
    return RowsOp(values, [*(rows.outputs[i] for i in kept), *sums], maps, Region(block)), parts


@rewrite_pattern
def merge_rows(op: RowsOp, rewriter: PatternRewriter) -> None:
    """Merges two row operations of the same shape into one, in the place of the second, or else of the first."""
    other, between = op.prev_op, list[Operation]()
    while other is not None and (touched(other) is not None):
        if isinstance(other, RowsOp) and _are_alike(other, op):
            operations = [x.owner for x in op.operands if isinstance(x.owner, Operation)]
            before = all(x.is_before_in_block(other) for x in operations)
            last = op if _may_move(other, between, op) else None
            place = other if last is None and before and _may_move(op, between, other) else last
            if place is not None:
                chose(op, PASS, "rows that read the same elements are one kernel")
                rewriter.replace(place, _merged(other, op))
                rewriter.erase(op if place is other else other)
                return
        between.append(other)
        other = other.prev_op


def _sizes(op: RowsOp) -> tuple[int, ...]:
    sizes = LoopSizes()
    for value, map_ in zip(op.operands, op.maps, strict=True):
        sizes.add("", value, loops_of(map_)) if map_.results else None
    return tuple(sizes[loop] for loop in range(op.loops))


def _inputs(op: RowsOp) -> list[tuple[Hashable, AffineMap]]:
    """The memory of the inputs with their maps."""
    return [(_identity(value), map_) for value, map_ in zip(op.inputs, op.maps, strict=False)]


def _identity(value: SSAValue) -> Hashable:
    """Views of the same elements are one thing."""
    view = None if root(value) is value else static_view(value)
    return value if view is None else (root(value), view, value.type)


def _are_alike(first: RowsOp, second: RowsOp) -> bool:
    """Whether two operations have the same rows, and share an input along them."""
    if first.numbers or second.numbers or first.loops != second.loops:
        return False
    if _sizes(first) != _sizes(second) or min(_sizes(first)) < 0:
        return False
    along, reduce = first.loops - 1, [any(isinstance(o, ACROSS) for o in r.body.block.ops) for r in (first, second)]
    shared = set(_inputs(first)) & set(_inputs(second))
    return reduce[0] == reduce[1] and any(along in loops_of(map_) or not reduce[0] for _, map_ in shared)


def _may_follow(op: RowsOp, between: Sequence[Operation]) -> bool:
    """Whether an operation may be done behind others, which come after it."""
    reads, writes = set(map(root, op.inputs)), set(map(root, op.outputs))
    accesses = list(map(touched, between))
    return not any(each is None or each[1] & (reads | writes) or each[0] & writes for each in accesses)


def _may_move(first: RowsOp, between: Sequence[Operation], second: RowsOp) -> bool:
    """Whether the first operation may be done at the place of the second, and with it."""
    if not _may_follow(first, between):
        return False
    pairs = [(out, value) for out in first.outputs for value in second.operands]
    pairs += [(out, value) for out in second.outputs for value in first.inputs]
    return not any(root(a) is root(b) and may_share(a, b) for a, b in pairs)


def _merged(first: RowsOp, second: RowsOp) -> RowsOp:
    block, inputs = Block(), dict[Hashable, SSAValue]()
    values, maps = list[SSAValue](), list[AffineMap]()
    made = dict[Hashable, Sequence[SSAValue]]()
    results = list[SSAValue]()
    for op in (first, second):
        own = dict[SSAValue, SSAValue]()
        for key, argument, value in zip(_inputs(op), op.body.block.args, op.inputs, strict=True):
            if key not in inputs:
                inputs[key] = block.insert_arg(argument.type, len(block.args))
                values.append(value)
                maps.append(key[1])
            own[argument] = inputs[key]
        for inner in op.body.block.ops:
            if isinstance(inner, YieldOp):
                continue
            operands = tuple(own[operand] for operand in inner.operands)
            properties = tuple(sorted((name, str(value)) for name, value in inner.properties.items()))
            key = inner.name, operands, properties, tuple(inner.result_types)
            if key not in made:
                copy = inner.clone(own)
                block.add_op(copy)
                made[key] = copy.results
            own.update(zip(inner.results, made[key], strict=True))
        results += [own[value] for value in all_yielded(op.body)]
    block.add_op(YieldOp(*results))
    return RowsOp(values, [*first.outputs, *second.outputs], [*maps, *first.written, *second.written], Region(block))
