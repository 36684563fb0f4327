"""What front ends write for want of a simpler form: loops over tiles, slices and concatenations, counted conditions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, takewhile
from math import prod

from xdsl.builder import Builder
from xdsl.dialects import affine, arith, func, memref, scf, tensor
from xdsl.dialects.builtin import IndexType, MemRefType, ModuleOp, TensorType, f32, i8, i32, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import CopyOp, FillOp, GenericOp, IndexOp, YieldOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import Nest, converted, generic, loops_of, map_along, weighted, without_symbols
from ...dialect.mlir.forall import (
    BOUNDS,
    DelinearizeIndexOp,
    ForallOp,
    GenerateOp,
    InParallelOp,
    LinearizeIndexOp,
    MaxOp,
    ParallelInsertSliceOp,
)
from ...dialect.mlir.upstream import TransposeOp
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import element_type, shape_of
from ...dialect.warp.views import WindowOp
from ..diagnostics import fail
from ..patterns import IndexBuilder, LocatedRewriter, apply_patterns, constant_value, rewrite_pattern
from .constants import COVERED
from .moved_operands import Movement, collapse_behind
from .operand import root
from .tensors import LinalgBuilder, convert_behind_reshape


def return_in_arguments(function: func.FuncOp) -> None:
    """Makes a function write its returned memory to additional arguments, as MLIR's `buffer-results-to-out-params`
    does. A returned argument is written in place. Raises a located diagnostic for a result that is not memory."""
    last = function.body.block.last_op
    if not isinstance(last, func.ReturnOp) or not last.operands:
        return
    for value in last.operands:
        memory, kind = root(value), value.type
        if not isa(kind, MemRefType[Attribute]):
            fail(last, f"expected the function to return tensors or memory alone, got {kind}")
        if isinstance(memory, BlockArgument):
            continue
        made = memory.owner if isinstance(memory.owner, memref.AllocOp) else None
        own = made is not None and memory_of(memory).get_shape() == kind.get_shape()
        type_ = memory.type if own else MemRefType(kind.element_type, kind.get_shape())
        argument = function.body.block.insert_arg(type_, len(function.body.block.args))
        argument.name_hint = value.name_hint or "result"
        if own and made is not None:
            memory.replace_all_uses_with(argument)
            Rewriter.erase_op(made)
        else:
            LocatedRewriter(last).insert(CopyOp([value], [argument], []))
    Rewriter.replace_op(last, func.ReturnOp(), [])


@rewrite_pattern
def expand_affine(op: Operation, rewriter: PatternRewriter) -> None:
    """Replaces `affine.apply`, `affine.min` and the like on the host, which tiling uses for starts and sizes of tiles,
    by arithmetic. Quotients and remainders assume indices that are not negative."""
    if not isinstance(op, affine.ApplyOp | affine.MinOp | DelinearizeIndexOp | LinearizeIndexOp):
        return
    map_, index = op.map.data, IndexBuilder(op)
    if not map_.results:
        fail(op, f"{op.name}: expected a map with results, got {map_}")
    values = [index.folded(value) for value in op.operands]
    applied = [index.evaluated(expr, values.__getitem__) for expr in without_symbols(map_)]
    if isinstance(op, affine.MinOp):
        extreme = arith.MaxSIOp if isinstance(op, MaxOp) else arith.MinSIOp
        result, *others = index.values(applied)
        for other in others:
            result = index.insert(extreme(result, other)).result
        applied = [result]
    rewriter.replace(op, [], index.values(applied))


@rewrite_pattern
def see_transposed(op: TransposeOp, rewriter: PatternRewriter) -> None:
    """Replaces memory whose dimensions are in another order by a window of it."""
    order, shape, index = loops_of(op.permutation.data), shape_of(op.result), IndexBuilder(op)
    sizes = [index.value(index.dim(op.source, order[d])) for d, size in enumerate(shape) if size < 0]
    along = map_along(len(order), (order.index(d) for d in range(len(order))))
    rewriter.replace(op, WindowOp(op.source, along, shape, sizes))


@rewrite_pattern
def apply_to_elements(op: Operation, rewriter: PatternRewriter) -> None:
    """Replaces an operation of `arith` or `math` on tensors by one on their elements."""
    kind = op.results[0].type if len(op.results) == 1 and op.operands else None
    if not op.name.startswith(("arith.", "math.")) or not isa(kind, TensorType[Attribute]):
        return
    tensors = [value for value in op.operands if isinstance(value.type, TensorType)]

    def applied(*arguments: SSAValue) -> SSAValue:
        elements = dict(zip(tensors, arguments, strict=False))
        operands = [elements.get(value, value) for value in op.operands]
        made = type(op).create(operands=operands, properties=op.properties, result_types=[kind.element_type])
        made.location = op.location
        return made.results[0]

    rewriter.replace(op, [], [LinalgBuilder(op).elementwise(tensors, kind, applied)])


@rewrite_pattern
def run_in_turn(op: ForallOp, rewriter: PatternRewriter) -> None:
    """Replaces an `scf.forall` by sequential loops that carry its shared tensors. Raises a located diagnostic if an
    iteration reads a shared tensor outside the part that it writes: it would see the results of earlier iterations."""
    block, last = op.region.block, op.region.block.last_op
    if not isinstance(last, InParallelOp):
        fail(op, f"expected {op.name} to end with {InParallelOp.name}")
    puts = [put for put in last.region.block.ops if isinstance(put, ParallelInsertSliceOp)]
    shared = block.args[len(op.static_upper) :]
    if not op.static_upper:  # one turn, without an index
        block.insert_arg(IndexType(), 0)
    if (put := next((put for put in puts if put.dest not in shared), None)) is not None:
        fail(put, f"expected {put.name} into a tensor of shared_outs of its {op.name}")
    for argument in shared:
        places = [_place(put) for put in puts if put.dest is argument]
        for use in argument.uses:
            part = use.operation
            if part not in puts and not (isinstance(part, tensor.ExtractSliceOp) and _place(part) in places):
                fail(part, f"{part.name} reads what turns of {op.name} share elsewhere than where its turn writes")
    index = IndexBuilder(op)
    bounds = [[index.value(each) for each in op.bound(name)] for name in BOUNDS]
    loops = list(zip(*bounds, strict=True)) or [index.values((0, 1, 1))]

    def turns(level: int, carried: Sequence[SSAValue], at: Builder) -> Sequence[SSAValue]:
        inside = Block(arg_types=[IndexType(), *(value.type for value in carried)])
        block.args[level].replace_all_uses_with(inside.args[0])
        tensors: Sequence[SSAValue] = inside.args[1:]
        if level + 1 < len(loops):
            tensors = turns(level + 1, tensors, Builder(InsertPoint.at_end(inside)))
        else:
            tensors = _turn(op, puts, dict(zip(shared, tensors, strict=True)), inside)
        inside.add_op(scf.YieldOp(*tensors))
        begin, end, step = loops[level]
        loop = at.insert(scf.ForOp(begin, end, step, carried, inside))
        loop.location = op.location
        return loop.results

    rewriter.replace(op, [], turns(0, op.outputs, Builder(InsertPoint.before(op))))


def _turn(
    op: ForallOp, puts: Sequence[ParallelInsertSliceOp], tensors: dict[SSAValue, SSAValue], inside: Block
) -> Sequence[SSAValue]:
    """Moves the operations of an iteration into the loop, and inserts its slices into the shared tensors."""
    for each in list(op.region.block.ops)[:-1]:
        each.detach()
        inside.add_op(each)
    for put in puts:
        made = tensor.InsertSliceOp.create(
            operands=[put.source, tensors[put.dest], *put.operands[2:]],
            properties=put.properties,
            result_types=[put.dest.type],
        )
        made.location = put.location
        inside.add_op(made)
        tensors[put.dest] = made.result
    for argument, first in zip(tensors, inside.args[1:], strict=True):
        argument.replace_all_uses_with(first)
    return list(tensors.values())


def _place(op: tensor.ExtractSliceOp | ParallelInsertSliceOp) -> tuple[object, ...]:
    """The part of a tensor that a slice reads or writes."""
    first = 1 if isinstance(op, tensor.ExtractSliceOp) else 2
    return *op.operands[first:], op.static_offsets, op.static_sizes, op.static_strides


@rewrite_pattern
def read_number(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Makes an operation read a one-element tensor as an input, if its body uses the extracted element."""
    nest = Nest.of(op)
    captured = [(value, value.owner) for value in nest.captured]
    numbers = {v: at.tensor for v, at in captured if isinstance(at, tensor.ExtractOp) and not at.indices}
    if not numbers or not op.results:
        return
    body, first = op.body.clone(), len(op.inputs)
    read = {value: body.block.insert_arg(value.type, first + n) for n, value in enumerate(numbers)}
    for inner in body.block.ops:
        inner.operands = [read.get(value, value) for value in inner.operands]
    scalar = AffineMap(nest.loops, 0, ())
    maps = [access.map for access in nest.accesses]
    maps[first:first] = [scalar] * len(numbers)
    inputs = [*op.inputs, *numbers.values()]
    made = generic(op, inputs, list(op.outputs), body, maps, nest.summed, op.result_types)
    rewriter.replace(op, made)


@rewrite_pattern
def generate(op: GenerateOp, rewriter: PatternRewriter) -> None:
    """Replaces a tensor that a region computes of indices by an elementwise operation that asks for them."""
    empty, body = LinalgBuilder(op).empty(op.result.type, op.sizes), op.body.clone()
    block = body.block
    for dimension, index in enumerate(block.args):
        index.replace_all_uses_with(Builder(InsertPoint.at_start(block)).insert(IndexOp(dimension)).result)
    for index in block.args:
        block.erase_arg(index)
    block.insert_arg(element_type(empty), 0)
    if isinstance(last := block.last_op, tensor.YieldOp):
        Rewriter.replace_op(last, YieldOp(*last.operands))
    every = AffineMap.identity(len(shape_of(empty)))
    rewriter.replace(op, generic(op, [], [empty], body, [every], results=[op.result.type]))


@rewrite_pattern
def pass_sizes(op: arith.IndexCastOp, rewriter: PatternRewriter) -> None:
    """Passes sizes of i64 that bodies read as i32, which kernels take, and which all sizes fit."""
    if op.result.type != i64 or not isinstance(op.parent_op(), func.FuncOp):
        return
    uses = [use for use in op.result.uses if isinstance(use.operation.parent_op(), LinalgStructuredOperation)]
    if not uses:
        return
    narrow = rewriter.insert(arith.IndexCastOp(op.input, i32)).result
    for use in uses:
        if isinstance(use.operation, arith.SIToFPOp):
            use.operation.operands[0] = narrow
        else:
            wide = Builder(InsertPoint.before(use.operation)).insert(arith.ExtSIOp(narrow, i64))
            use.operation.operands[use.index] = wide.result


@rewrite_pattern
def narrow_sums(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Adds products in i32 whose sums in i64 are only read modulo 2^32."""
    kind, product = op.results[0].type if len(op.results) == 1 else None, op.inputs[0].owner if op.inputs else None
    first = op.body.block.first_op
    if not isinstance(first, arith.TruncIOp) or not isa(kind, TensorType[Attribute]) or kind.element_type != i32:
        return
    if not isinstance(product, LinalgStructuredOperation) or not product.results[0].has_one_use():
        return
    nest, outer, body = Nest.of(product), Nest.of(op), weighted(product.body.block)
    fill = product.outputs[0].owner
    if not nest.summed or body is None or not body.is_plain or not isinstance(fill, FillOp):
        return
    narrow = all(element_type(value) in (i8, i32) for value in product.inputs)
    in_order = outer.is_elementwise and outer.maps[0] == outer.maps[1] and constant_value(fill.inputs[0]) == 0
    if not in_order or outer.yielded[0] is not first.result or not narrow:
        return

    def added(a: SSAValue, b: SSAValue, total: SSAValue) -> SSAValue:
        return arith.AddiOp(total, arith.MuliOp(converted(a, i32), converted(b, i32))).result

    make = LinalgBuilder(op)
    sums = make.computed(product.inputs, make.filled(kind, 0), nest.maps, added, nest.summed)
    rewriter.replace(op, [], [sums])


MAX_COUNTED = 1 << 24
"""Whole numbers up to which f32 has every one."""


@rewrite_pattern
def count_in_floats(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Counts all conditions in f32, exactly, and converts the number: many threads reduce rows, integers one thread.
    Counts for each element stay: they may say which sequence a query is of."""
    nest, fill = Nest.of(op), op.outputs[0].owner if len(op.outputs) == 1 else None
    how = nest.combination
    one = how.value.owner if how is not None and isinstance(how.by, arith.AddiOp) else None
    if not isinstance(one, arith.ExtUIOp) or not isinstance(one.input.owner, arith.CmpiOp | arith.CmpfOp):
        return
    along, kind = [nest.along(loop) for loop in nest.summed], op.results[0].type if op.results else None
    count = prod(-1 if each is None else each[2] for each in along)
    if not isinstance(fill, FillOp) or constant_value(fill.inputs[0]) != 0 or not isa(kind, TensorType[Attribute]):
        return
    if not 0 < count <= MAX_COUNTED or prod(kind.get_shape()) != 1:
        return

    def counted(*arguments: SSAValue) -> SSAValue:
        *elements, total = arguments
        mapped: dict[SSAValue, SSAValue] = dict(zip((read.element for read in nest.reads), elements, strict=True))
        for inner in takewhile(lambda inner: inner is not one, nest.body.ops):
            mapped |= zip(inner.results, inner.clone(mapped).results, strict=True)
        return arith.AddfOp(total, converted(mapped[one.input], f32, unsigned=True)).result

    make = LinalgBuilder(op)
    start = make.filled(TensorType(f32, kind.get_shape()), 0)
    counts = make.computed(op.inputs, start, nest.maps, counted, nest.summed)
    rewriter.replace(op, [], [make.elementwise([counts], kind, lambda x, _: converted(x, one.result.type))])


def covers(op: tensor.InsertSliceOp) -> bool:
    """Whether an insertion is the first of some that fill all of a tensor without contents: parts of a concatenation,
    or those of every so many elements along each dimension."""
    if COVERED in op.attributes:
        return True
    puts, last = list[tensor.InsertSliceOp](), op
    while isinstance(last, tensor.InsertSliceOp) and (not puts or last.dest is puts[-1].result):
        puts.append(last)
        last = next((use.operation for use in last.result.uses), None)
    numbers = [[[*each.iter_values()] for each in (put.static_offsets, put.static_sizes, put.static_strides)]
               for put in puts]  # fmt: skip
    offsets, sizes, strides = zip(*numbers, strict=True)
    steps = strides[0]
    apart = all(each == steps for each in strides) and len({*map(tuple, offsets)}) == len(puts)
    first = all(0 <= at < step for each in offsets for at, step in zip(each, steps, strict=True))
    shape = shape_of(op.result)
    return apart and first and min(*shape, *chain(*sizes)) >= 0 and sum(map(prod, sizes)) == prod(shape)


MAX = 4
"""Tensors behind one another that an operation is computed for one by one."""


def _elementwise(op: object) -> Nest | None:
    """The nest of an operation that computes each element of one new tensor once, in order; None for other
    operations."""
    if not isinstance(op, GenericOp) or len(op.results) != 1 or not isinstance(op.outputs[0].owner, tensor.EmptyOp):
        return None
    nest = Nest.of(op)
    in_order = nest.writes[0].loops == tuple(range(nest.loops)) and not nest.summed and not nest.indices
    reads = all(len(set(read.loops)) == len(read.loops) and min(read.loops, default=0) >= 0 for read in nest.reads)
    static = min(shape_of(op.results[0]), default=0) > 0
    return nest if in_order and reads and static and not nest.writes[0].element.uses else None


def _on_part(
    op: GenericOp, inputs: Sequence[SSAValue], shape: Sequence[int], before: Operation | None = None
) -> SSAValue:
    """The operation on parts of its inputs, with a result of the given shape."""
    make = LinalgBuilder(op, before)
    empty = make.empty(TensorType(element_type(op.results[0]), shape))
    return make.computed(inputs, empty, Nest.of(op).maps, op.body.clone())


@rewrite_pattern
def compute_on_parts(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Replaces an elementwise operation on tensors behind one another by one on each."""
    nest = _elementwise(op)
    if Movement.of(op.results[0]) is not None:  # what reads it can read it before, where it is narrower
        return
    for read in nest.reads if nest is not None else ():
        joined = read.value.owner
        if nest is None or not isinstance(joined, tensor.ConcatOp) or len(joined.inputs) > MAX:
            continue
        loop, start, parts = read.loops[joined.dim.value.data], 0, list[SSAValue]()
        for source in joined.inputs:
            size = shape_of(source)[joined.dim.value.data]
            inputs = list[SSAValue]()
            for other in nest.reads:
                if other.value is joined.result and other.loops == read.loops:
                    inputs.append(source)
                elif loop in other.loops:
                    inputs.append(_slice(other.value, other.loops.index(loop), start, size, rewriter))
                else:
                    inputs.append(other.value)
            shape = list(shape_of(op.results[0]))
            shape[loop] = size
            parts.append(_on_part(op, inputs, shape))
            start += size
        kind = TensorType(element_type(op.results[0]), shape_of(op.results[0]))
        rewriter.replace(op, tensor.ConcatOp(parts, loop, kind))
        if not joined.result.uses:
            rewriter.erase(joined)
        return


def _slice(value: SSAValue, dimension: int, start: int, size: int, rewriter: PatternRewriter) -> SSAValue:
    shape = shape_of(value)
    offsets = [start if d == dimension else 0 for d in range(len(shape))]
    sizes = [size if d == dimension else each for d, each in enumerate(shape)]
    return rewriter.insert(tensor.ExtractSliceOp.from_static_parameters(value, offsets, sizes)).result


@rewrite_pattern
def compute_slice(op: tensor.ExtractSliceOp, rewriter: PatternRewriter) -> None:
    """Replaces a slice of an elementwise result by the operation on slices, if the rest is unused, or is converted."""
    source, offsets = op.source.owner, list(op.static_offsets.iter_values())
    sizes, steps = list(op.static_sizes.iter_values()), list(op.static_strides.iter_values())
    nest, users = _elementwise(source), [use.operation for use in op.source.uses]
    plain = not any((op.offsets, op.sizes, op.strides)) and len(op.result.type.get_shape()) == len(sizes)
    if nest is None or not isinstance(source, GenericOp) or not plain:
        return
    converts = (moved := Movement.of(op.source)) is not None and moved.extension is not None
    if not converts and not all(isinstance(user, tensor.ExtractSliceOp) for user in users):
        return
    inputs = list[SSAValue]()
    for read in nest.reads:
        first, count, step = ([numbers[loop] for loop in read.loops] for numbers in (offsets, sizes, steps))
        if count == list(shape_of(read.value)):
            inputs.append(read.value)
            continue
        part = tensor.ExtractSliceOp.from_static_parameters(read.value, first, count, step)
        inputs.append(rewriter.insert(part).result)
    rewriter.replace(op, [], [_on_part(source, inputs, sizes, op)])
    if not source.results[0].uses:
        rewriter.erase(source)


@rewrite_pattern
def reduce_parts(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Reduces rows part after part where slices are equal parts of them, as halves of a head are that is normed and
    turned: parts that lie side by side are then one row of a kernel."""
    along = (nest := Nest.of(op)).loops - 1
    in_order = len(op.results) == 1 and [read.loops for read in nest.reads] == [tuple(range(nest.loops))]
    if not in_order or list(nest.summed) != [along] or nest.combination is None or nest.indices:
        return
    value, result = op.inputs[0], op.outputs[0]
    if size := _size_of_parts(value, along):
        for start in range(0, shape_of(value)[along], size):
            part = _slice(value, along, start, size, rewriter)
            result = LinalgBuilder(op).computed([part], result, nest.maps, op.body.clone(), [along])
        rewriter.replace(op, [], [result])


def _size_of_parts(value: SSAValue, dimension: int) -> int:
    """The size of the few equal parts along a dimension that slices take of what elementwise operations make a value
    of, in its shape; 0 if there are none."""
    shape, sizes, values = shape_of(value), set[int](), [value]
    for source in values:
        slices = (use.operation for use in source.uses if isinstance(use.operation, tensor.ExtractSliceOp))
        taken = ((x.static_sizes.get_values(), x.static_strides.get_values()) for x in slices)
        sizes |= {cut[dimension] for cut, steps in taken if steps[dimension] == 1} - {shape[dimension]}
        nest = _elementwise(source.owner)
        alike = (read.value for read in (nest.reads if nest is not None else ()) if shape_of(read.value) == shape)
        values += dict.fromkeys(each for each in alike if each not in values)
    size = sizes.pop() if len(sizes) == 1 else 0
    return size if size > 0 and shape[dimension] in range(2 * size, MAX * size + 1, size) else 0


@rewrite_pattern
def read_known_sizes(op: tensor.ConcatOp, rewriter: PatternRewriter) -> None:
    """Makes a concatenation read a tensor of known sizes, not what only forgets them."""
    for number, value in enumerate(op.operands):
        cast = value.owner
        if isinstance(cast, tensor.CastOp) and min(shape_of(cast.source), default=0) >= 0:
            op.operands[number] = cast.source
            rewriter.has_done_action = True


@rewrite_pattern
def join_concatenations(op: tensor.ConcatOp, rewriter: PatternRewriter) -> None:
    """Makes the parts of a concatenation parts of another one along the same dimension, which alone reads it."""
    for number, value in enumerate(op.inputs):
        inner = value.owner
        if isinstance(inner, tensor.ConcatOp) and inner.dim == op.dim and value.has_one_use():
            parts = [*op.inputs[:number], *inner.inputs, *op.inputs[number + 1 :]]
            rewriter.replace(op, tensor.ConcatOp(parts, op.dim.value.data, op.result.type))
            rewriter.erase(inner)
            return


PARTS = convert_behind_reshape, collapse_behind, compute_on_parts, compute_slice, reduce_parts, join_concatenations


def compute_parts(module: ModuleOp) -> None:
    """Applies the patterns to a module, in place, as often as they apply."""
    apply_patterns((read_known_sizes,), module)
    while apply_patterns(PARTS, module):
        pass
