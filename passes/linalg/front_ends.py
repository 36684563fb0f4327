"""What front ends write for want of a simpler form: powers of whole numbers, conditions that a row is reduced to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from math import prod

from xdsl.builder import Builder
from xdsl.dialects import affine, arith, func, math, memref, scf, tensor
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IndexType, MemRefType, TensorType, f32, i8, i32, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import CopyOp, FillOp, GenericOp, IndexOp, YieldOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import Nest, generic, loops_of, map_along, without_symbols
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
from ...dialect.mlir.generic import arithmetic, converted, weighted
from ...dialect.mlir.upstream import TransposeOp
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import element_type, shape_of
from ...dialect.warp.views import WindowOp
from ..diagnostics import fail
from ..patterns import IndexBuilder, LocatedRewriter, apply_patterns, constant_value, rewrite_pattern
from .operand import root
from .reshapes import LinalgBuilder


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
    update_signature(function)


def update_signature(function: func.FuncOp) -> None:
    """Updates the type of a function whose results became its last arguments. Attributes of arguments stay with them;
    those of results go to the arguments, as in MLIR's `buffer-results-to-out-params`, if each result became one."""
    before, results = len(function.function_type.inputs), function.properties.pop("res_attrs", None)
    function.update_function_type()
    none = [DictionaryAttr({})] * (len(function.args) - before)
    if function.arg_attrs is not None or results is not None:
        added = results if isa(results, ArrayAttr[DictionaryAttr]) and len(results) == len(none) else none
        function.arg_attrs = ArrayAttr([*(function.arg_attrs or [DictionaryAttr({})] * before), *added])


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


def _starts(op: Operation, number: int) -> bool:
    """Whether an operand is what an operation starts from."""
    return isinstance(op, LinalgStructuredOperation) and number >= len(op.inputs)


@rewrite_pattern
def fill_for_each(op: FillOp, rewriter: PatternRewriter) -> None:
    """Gives each operation that starts from a filled tensor a fill of its own, so that its sums can start from the
    constant, and one that does not read it the tensor before it is filled."""
    uses, empty = list(op.results[0].uses) if op.results else [], op.outputs[0].owner
    for use in uses:
        if _starts(user := use.operation, use.index) and not user.regions[0].block.args[use.index].uses:
            user.operands[use.index] = op.outputs[0]
    starts = [use for use in op.results[0].uses if _starts(use.operation, use.index)] if uses else []
    if not isinstance(empty, tensor.EmptyOp) or len(uses) < 2:
        return
    for use in starts:
        make, sizes = LinalgBuilder(op, before=use.operation), empty.dynamic_sizes
        use.operation.operands[use.index] = make.filled(empty.tensor.type, op.inputs[0], sizes)
    rewriter.has_done_action = True


@rewrite_pattern
def add_start(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Makes a product that accumulates into a bias start from zero, and adds the bias behind it. The epilogue of the
    product then does that, and writes the result once."""
    if len(op.results) != 1 or len(op.outputs) != 1:
        return
    start, kind = op.outputs[0], op.results[0].type
    bias, body, exact = start.owner, weighted(op.body.block), element_type(start) in (f32, i32)
    if body is None or not body.is_plain or not isinstance(bias, GenericOp) or not exact:
        return
    empty = bias.outputs[0].owner
    if not Nest.of(bias).is_elementwise or not isa(kind, TensorType[Attribute]):
        return
    if not isinstance(empty, tensor.EmptyOp) or empty.tensor.type != kind:
        return
    make, product = LinalgBuilder(op), op.clone()
    product.operands[len(op.inputs)] = make.filled(kind, 0, empty.dynamic_sizes)
    inputs, last = [make.insert(product).results[0], start], make.empty(kind, empty.dynamic_sizes)
    maps = [AffineMap.identity(len(kind.get_shape()))] * 3
    rewriter.replace(op, [], [make.computed(inputs, last, maps, lambda a, b, _: arithmetic("add", a, b))])


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


def simplify(function: func.FuncOp, *, tf32: bool = False) -> None:
    """Gives each operation a single result, and lets products read operands without the operations that moved them.
    With `tf32`, f32 factors may be rounded."""
    from . import moved_operands, reshapes, sizes, tensors

    wide = tensors.fuse_wide
    kinds = {type(op) for op in function.walk()}
    in_order = [sizes.read_in_order] if tensor.ExtractOp in kinds else []
    apply_patterns((*sizes.PATTERNS, *in_order), function)
    tensors.drop_unused(function.body.block, function)
    first = tensors.one_result_each, pass_sizes, read_number, narrow_sums, add_start, fill_for_each
    apply_patterns((*first, tensors.compute_slice), function)
    tensors.drop_unused(function.body.block)
    chained, decomposed = tuple[RewritePattern, ...](), tuple[RewritePattern, ...]()
    if any(isinstance(op, math.ExpOp | tensor.ExpandShapeOp) for op in function.walk()):
        apply_patterns((moved_operands.expand_batch,), function)
        largest = [moved_operands.largest_of_all] if arith.AndIOp in kinds else []
        scaled = [moved_operands.scale_behind] if tf32 else []
        chained, decomposed = moved_operands.DECOMPOSED, (*scaled, wide, wide, *largest)
    units = reshapes.drop_unit_loops, moved_operands.reshape_units
    last = tensors.fuse_diamond, wide, reshapes.drop_unit_loops
    of_moves = (chained, moved_operands.PATTERNS)
    for patterns in (units, chained, decomposed, moved_operands.PATTERNS, last):
        for pattern in patterns if patterns not in of_moves or any(map(reshapes.moves, function.walk())) else ():
            apply_patterns((pattern,), function)
    if apply_patterns((count_in_floats,), function):
        apply_patterns((wide,), function)
    apply_patterns((reshapes.sum_in_two,), function)
    if apply_patterns((reshapes.collapse_summed, reshapes.collapse_pixels), function):
        apply_patterns((reshapes.collapse_row,), function)
        apply_patterns((reshapes.collapse_row,), function, reverse=True)
        apply_patterns((reshapes.fold_reshapes,), function)
    tensors.drop_unused(function.body.block)
