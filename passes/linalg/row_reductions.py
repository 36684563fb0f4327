"""What reductions along rows need of the elements: once, in which order, or one element alone; inputs that repeat, and
what rows combine to so far."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from xdsl.dialects import arith, memref
from xdsl.dialects import math as math_dialect
from xdsl.dialects.builtin import AnyFloat, FloatAttr, bf16, f16, f32
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.layouts.layout import LANES
from ...dialect.mlir.affine import Nest, is_constant, is_projection, loops_of, map_along
from ...dialect.warp.attributes import in_place_of, is_memory
from ...dialect.warp.convert import IDENTITIES, ReduceOp, ScanOp
from ...dialect.warp.elements import IndexOp, YieldOp, element_type, only_computes, shape_of
from ...dialect.warp.fragments import Kind
from ...dialect.warp.rows import RowsOp
from ..diagnostics import chose, remark
from ..patterns import computed_from, constant_value, float_value, rewrite_pattern
from .element_expressions import REDUCTIONS, writer_before
from .element_regions import ElementBuilder
from .operand import collapse, drop_unused, expand, root, users_of

PASS = "warp-fuse-rows"
"""The pass in remarks."""

PER_LANE = 32
"""Elements of a row that a lane holds, where a row is longer than a warp holds of them: f32, beside those of 16 bits
that they are loaded as."""

HOLDING_WARPS, ONCE_WARPS, MAX_WARPS = 4, 4096, 32
"""Warps of a CTA that hold a row; warps over which longer rows are spread that a loop reads once, as no element of them
is stored (H200, cross entropy, copy 33.6 us: rows of 65536 by clusters 45.8, by a loop of 4 warps 37.7 and of 8 38.8,
of 16384 by 16 warps 41.9, by a loop of one 35.7 and of two 37.4); and of a CTA at most."""

needed = partial(computed_from, until=(ReduceOp,))
"""All values from which values are computed, up to results of reductions along rows."""


def least_warps(rows: int, length: int) -> int:
    """The warps that share a row that is read once, fewer than would hold it."""
    warps = 1 << (-(-length // (LANES * PER_LANE)) - 1).bit_length()
    return warps if warps <= HOLDING_WARPS else min(warps, MAX_WARPS, 1 << (-(-ONCE_WARPS // rows) - 1).bit_length())


def is_sum_below(op: Operation | None, largest: ReduceOp) -> bool:
    """Whether a reduction is the sum of exponentials of differences from the largest element, whose logarithm is used:
    warps add up their own, below their own largest element, and scale it when they know that of the row."""
    exp = op.input.owner if isinstance(op, ReduceOp) and op.kind.data == Kind.Add else None
    less = exp.operands[0].owner if isinstance(exp, math_dialect.ExpOp) and is_in_logarithm(exp) else None
    largest_of = isinstance(less, arith.SubfOp) and (less.lhs, less.rhs) == (largest.input, largest.result)
    return largest_of and largest.kind.data in (Kind.Max, Kind.Maximum) and not shows_its_start(largest)


def shows_its_start(op: ReduceOp) -> bool:
    """Whether the result of a reduction that ignores NaN can show its start value, which it has if all elements are
    NaN. It cannot if it is only subtracted from these elements: the differences are NaN in any case."""
    users = [use.operation for use in op.result.uses]
    less = all(isinstance(o, arith.SubfOp) and (o.lhs, o.rhs) == (op.input, op.result) for o in users)
    return op.kind.data in (Kind.Max, Kind.Min) and not less


def place_of_sum(op: ReduceOp, along: int) -> SSAValue | None:
    """The place of the only element that is not zero in a sum, where the index along a row is compared for it."""
    chosen = op.input.owner if op.kind.data == Kind.Add else None
    if not isinstance(chosen, arith.SelectOp) or float_value(chosen.rhs) != 0:
        return None
    same = _plain(chosen.cond).owner
    at = _plain(same.lhs).owner if isinstance(same, arith.CmpiOp) and same.predicate.value.data == EQUAL else None
    return same.rhs if isinstance(same, arith.CmpiOp) and isinstance(at, IndexOp) and at.number == along else None


EQUAL, DIFFERENT = 0, 1
"""Predicates of `arith.cmpi`."""


def _plain(value: SSAValue) -> SSAValue:
    """What a product with one, a sum with zero, or the condition that an extended condition is not zero, is."""
    op = value.owner
    if isinstance(op, arith.MuliOp | arith.AddiOp) and constant_value(op.rhs) == isinstance(op, arith.MuliOp):
        return _plain(op.lhs)
    if isinstance(op, arith.ExtSIOp):
        return _plain(op.input)
    if isinstance(op, arith.CmpiOp) and isinstance(op.lhs.owner, arith.ExtUIOp) and constant_value(op.rhs) == 0:
        return _plain(op.lhs.owner.input) if op.predicate.value.data == DIFFERENT else value
    return value


def is_in_logarithm(op: math_dialect.ExpOp) -> bool:
    """Whether only the logarithm of its sum along the row is used."""
    sums = [use.operation for use in op.result.uses]
    return all(
        isinstance(total, ReduceOp)
        and total.kind.data == Kind.Add
        and all(isinstance(use.operation, math_dialect.LogOp) for use in total.result.uses)
        for total in sums
    )


def reads_once(op: RowsOp) -> bool:
    """Whether one loop along rows makes all reductions, beside sums of one element, and nothing else needs elements."""
    every = [inner for inner in op.body.block.ops if isinstance(inner, ReduceOp)]
    own = [each for each in every if place_of_sum(each, op.loops - 1) is None]
    below = len(own) > 1 and is_sum_below(own[-1], own[0])
    others = own[:-1] if below else own
    apart = not any(isinstance(value.owner, ReduceOp) for value in needed(each.input for each in others))
    return bool(own) and apart and all(map(op.is_of_rows, range(len(op.outputs))))


@rewrite_pattern
def sum_logarithms(op: RowsOp, rewriter: PatternRewriter) -> None:
    """Computes the sum of logarithms of a softmax of n elements, of 16 bits in memory, from that of the elements: less
    n times the largest and the logarithm. Then one loop makes all sums. It is off by less than one rounding to 16 bits
    of each element."""
    for total in [inner for inner in op.body.block.ops if isinstance(inner, ReduceOp)]:
        below = total.input.owner if total.kind.data == Kind.Add else None
        largest = _largest_below(below) if isinstance(below, arith.SubfOp) else None
        extended = None if largest is None else largest.input.owner
        read = extended.operands[0] if isinstance(extended, arith.ExtFOp) else None
        if largest is None or not isinstance(below, arith.SubfOp) or not isinstance(read, BlockArgument):
            continue
        along = loops_of(op.maps[read.index])
        length = shape_of(op.inputs[read.index])[along.index(op.loops - 1)] if op.loops - 1 in along else -1
        if length < 0:
            continue
        Rewriter.insert_op(own := ReduceOp(Kind.Add, largest.input), InsertPoint.after(largest))
        less = arith.AddfOp(largest.result, below.rhs)
        count = arith.ConstantOp(FloatAttr(float(length), f32))
        every = arith.MulfOp(count.result, less.result)
        rewriter.replace(total, [less, count, every, arith.SubfOp(own.result, every.result)])


def _largest_below(op: arith.SubfOp) -> ReduceOp | None:
    """The largest element of 16 bits, if `op` is the logarithm of a softmax; None for anything else."""
    less, log = op.lhs.owner, op.rhs.owner
    total = log.operand.owner if isinstance(log, math_dialect.LogOp) else None
    largest = less.rhs.owner if isinstance(less, arith.SubfOp) else None
    if not isinstance(largest, ReduceOp) or not isinstance(total, ReduceOp) or not is_sum_below(total, largest):
        return None
    same = isinstance(exp := total.input.owner, math_dialect.ExpOp) and exp.operand is op.lhs
    return largest if same and isinstance(largest.input.owner, arith.ExtFOp) and op.result.type == f32 else None


@rewrite_pattern
def read_repeated(op: RowsOp, rewriter: PatternRewriter) -> None:
    """Reads inputs that repeat along rows so many times that no warp holds elements of two, such as the weights of a
    group norm, where they are: at the quotient of the place in a row. What writes them out for each element goes."""
    reduces = any(isinstance(inner, ReduceOp) for inner in op.body.block.ops)
    for number, value in enumerate(op.inputs if reduces else ()):
        writer = writer_before(value, op) if is_memory(value.type) else None
        if not isinstance(writer, GenericOp) or not _repeats(writer) or users_of(root(value)) != {writer, op}:
            continue
        (source,), map_, shape, times = writer.inputs, op.maps[number], shape_of(value), shape_of(root(value))[-1]
        along = op.loops - 1
        if times % (LANES * PER_LANE) or loops_of(map_)[-1] != along or min(shape) < 0 or shape[-1] % times:
            continue
        flat = collapse(source, [[*range(len(shape_of(source)))]])
        split = expand(flat.results[0], [[*shape[:-1], shape[-1] // times]])
        for view in (flat, split):
            Rewriter.insert_op(view, InsertPoint.before(op))
        quotient = AffineDimExpr(along) // times
        maps = [*op.maps]
        maps[number] = AffineMap(map_.num_dims, map_.num_symbols, (*map_.results[:-1], quotient))
        inputs = [*op.inputs[:number], split.results[0], *op.inputs[number + 1 :]]
        made = in_place_of(op, RowsOp(inputs, op.outputs, maps, op.detach_region(op.body)))
        Rewriter.replace_op(op, made)
        Rewriter.erase_op(writer)
        drop_unused(value)
        chose(made, PASS, f"an input is read once for {times} elements of a row")
        op = made
        rewriter.has_done_action = True


def _repeats(op: GenericOp) -> bool:
    """Whether an operation writes each element of contiguous memory several times side by side."""
    maps, block = [attribute.data for attribute in op.indexing_maps], op.body.block
    loops = range(maps[-1].num_dims)
    plain = maps == [map_along(len(loops), along) for along in (loops[:-1], loops)] and len(block.ops) == 1
    copied = block.last_op is not None and block.last_op.operands[0] == block.args[0]
    return plain and copied and isinstance(op.outputs[0].owner, memref.AllocOp) and min(shape_of(op.outputs[0])) > 0


# What rows combine to so far, such as `cumsum`: a loop nest that writes an element in each turn.


class Scan(NamedTuple):
    """What a body combines, along the last loop, of a value of each element and of what is before it."""

    kind: Kind
    value: SSAValue
    result: SSAValue

    @staticmethod
    def of(op: GenericOp) -> Scan | None:
        """The scan that an operation is, of which the first output has each element, and the second the last."""
        nest = Nest.of(op)
        if len(op.outputs) != 2 or op.results or nest.summed != (nest.loops - 1,):
            return None
        (each, last), (element, total) = nest.writes, nest.yielded
        every, by = tuple(range(nest.loops)), total.owner
        if (each.loops, last.loops) != (every, every[:-1]) or not isinstance(by, Operation) or each.element.uses:
            return None
        others = [value for value in by.operands if value is not last.element]
        rounded = element.owner.input if isinstance(element.owner, arith.TruncFOp) else element
        once = len(others) == 1 and last.element.uses.get_length() == 1 and rounded is total
        if by.name not in REDUCTIONS or not once or not isinstance(total.type, AnyFloat):
            return None
        return Scan(REDUCTIONS[by.name], others[0], total)


@rewrite_pattern
def raise_scans(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Makes rows of a loop nest that goes along them and writes an element in each turn. Floats of 16 bits are combined
    in f32, and rounded once."""
    if (scan := Scan.of(op)) is None:
        return
    fills = [writer for value in op.outputs if isinstance(writer := writer_before(value, op), FillOp)]
    if reason := _obstacle(op, scan, fills):
        remark(op, PASS, f"what rows combine to so far is made by a thread for each: {reason}")
        return
    each, last = op.outputs
    is_seen = not isinstance(root(last).owner, memref.AllocOp) or users_of(root(last)) - {op, *fills}
    outputs = [each, last] if is_seen else [each]
    region = _region(op, scan, outputs)
    maps = [attribute.data for attribute in op.get_indexing_maps()][: len(op.inputs) + len(outputs)]
    rows = RowsOp(op.inputs, outputs, maps, region)
    rows.location = op.location
    chose(op, PASS, "what rows combine to so far is one kernel")
    rewriter.replace(op, rows)
    for fill in fills:
        rewriter.erase(fill)


def _obstacle(op: GenericOp, scan: Scan, fills: Sequence[FillOp]) -> str:
    """Why an operation is not made by warps that hold rows; "" if nothing is in the way."""
    nest, identity = Nest.of(op), IDENTITIES[scan.kind]
    starts = [float_value(fill.inputs[0]) for fill in fills if fill.outputs[0] == op.outputs[1]]
    if starts != [identity]:
        return f"it does not start from {identity}"
    if nest.captured or not all(is_memory(value.type) and is_projection(map_) for value, map_, _ in nest.accesses):
        return "it takes other than elements of memory"
    if any(element_type(value) not in (f16, bf16, f32) for value in op.operands):
        return "its elements are not f32, f16 or bf16"
    own = root(op.outputs[0])
    if any(root(read.value) is own and read.map != nest.writes[0].map for read in nest.reads):
        return "it reads other elements of the memory that it writes"
    others = [each for each in nest.body.ops if each not in (scan.result.owner, nest.body.last_op)]
    floats = all(each.results[0].type == f32 or isinstance(each, arith.TruncFOp) for each in others)
    return "" if floats and all(map(only_computes, others)) else "it computes with other than f32"


def _region(op: GenericOp, scan: Scan, outputs: Sequence[SSAValue]) -> Region:
    """The region of `warp.rows`: the body with a scan, and if there are two outputs a reduction, in f32."""
    block, body = Block(arg_types=[element_type(value) for value in op.inputs]), op.body.block
    builder = ElementBuilder(block, {})
    made: dict[SSAValue, SSAValue] = dict(zip(body.args, map(builder.widened, block.args), strict=False))
    for each in body.ops:
        for constant in filter(is_constant, each.operands):
            if constant not in made and isinstance(constant.owner, Operation):
                made[constant] = builder.added(constant.owner.clone())
        if each is scan.result.owner:
            break
        if isinstance(each, arith.ExtFOp) and made[each.input].type == f32:
            made[each.result] = made[each.input]
        else:
            made[each.results[0]] = builder.added(each.clone(made))
    value = made[scan.value]
    results = [
        builder.added(ScanOp(scan.kind, value)),
        *(builder.added(ReduceOp(scan.kind, value)) for _ in outputs[1:]),
    ]
    pairs = zip(results, map(element_type, outputs), strict=True)
    block.add_op(YieldOp(*(builder.narrowed(result, kind) for result, kind in pairs)))
    return Region(block)
