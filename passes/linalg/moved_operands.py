"""Operands that are other tensors moved or scaled, and attention as front ends decompose it.

A front end writes `x @ w.T` as a transposition and a product, and a product of f16 with sums of f32 as conversions of
its operands and a product of f32. Here the product, or the elementwise operation, reads the other tensor itself, along
its own loops: nothing is moved in memory. A reshape between the two is put before the movement.
PyTorch's `scaled_dot_product_attention` becomes two products of matrices in one batch, reshaped from several; Q and K
times the root of a scale each; and a softmax that is 0 where all scores of a row are minus infinity. Here a scale is
behind its product, a product goes along the loops that its result is expanded to, and a row is asked for its largest
score: what `warp-fuse-attention` and epilogues read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from math import prod
from typing import NamedTuple

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import AnyFloat, FloatAttr, TensorType, bf16, f16, f32, i32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import FillOp, GenericOp, TransposeOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import (
    EXTENSIONS,
    FIXED,
    Nest,
    generic,
    is_constant,
    is_plain,
    is_projection,
    loops_of,
    map_along,
    weighted,
)
from ...dialect.warp.elements import element_type, shape_of
from ..patterns import float_value, rewrite_pattern
from .contraction import around
from .operand import Groups, groups_of, numbered
from .reshapes import added_units, fold_reshapes, follows, regroup_behind, with_units
from .tensors import LinalgBuilder, Reshape, collapse, expand


class Movement(NamedTuple):
    """A change of layout or type of a tensor. `source` is the tensor that is read, `along` the dimension of the result
    for each of its dimensions (`FIXED` if only index 0 is read), `extension` the conversion of an element, if any."""

    source: SSAValue
    along: tuple[int, ...]
    extension: Operation | None

    @staticmethod
    def of(value: SSAValue) -> Movement | None:
        """The movement that a value is the result of; None if it is another's."""
        op = value.owner
        if (units := added_units(value)) is not None and isinstance(op, tensor.ExpandShapeOp):
            places = sorted(units, key=units.__getitem__)
            return Movement(op.src, tuple(places), None)
        if isinstance(op, TransposeOp) and op.results:
            order = op.permutation.get_values()
            return Movement(op.inputs[0], tuple(map(order.index, range(len(order)))), None)
        if not isinstance(op, GenericOp) or len(op.results) != 1 or len(op.inputs) != 1:
            return None
        nest = Nest.of(op)
        (read,), (written,), yielded = nest.reads, nest.writes, nest.yielded[0]
        extension = yielded.owner if isinstance(yielded.owner, EXTENSIONS) else None
        moved = yielded if extension is None else extension.operands[0]
        if not nest.is_elementwise or moved is not read.element or not is_projection(read.map):
            return None
        if not isinstance(read.value.type, TensorType) or len(list(nest.body.ops)) != 1 + (extension is not None):
            return None
        places = {loop: place for place, loop in enumerate(written.loops)}
        return Movement(op.inputs[0], tuple(places.get(loop, FIXED) for loop in read.loops), extension)

    def map_from(self, indices: AffineMap) -> AffineMap:
        """How loops index the source that index the result by a map."""
        zero = AffineConstantExpr(0)
        results = tuple(zero if d == FIXED else indices.results[d] for d in self.along)
        return AffineMap(indices.num_dims, 0, results)

    def applied(self, op: Operation, source: SSAValue, along: Sequence[int], shape: Sequence[int]) -> SSAValue:
        """The same movement of another tensor to a shape, before an operation."""
        make, rank, how = LinalgBuilder(op), len(shape), self.extension

        def moved(value: SSAValue, _: SSAValue) -> SSAValue:
            return value if how is None else how.clone({how.operands[0]: value}).results[0]

        kind = TensorType(element_type(source) if how is None else how.results[0].type, shape)
        return make.computed([source], make.empty(kind), [map_along(rank, along), AffineMap.identity(rank)], moved)


@rewrite_pattern
def read_moved(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Replaces a transposed or otherwise moved operand by its source, in products and elementwise operations. Products
    with f32 sums also read an operand without its conversion, which the instruction does."""
    if len(op.results) != 1 or not op.regions:
        return
    if isinstance(op, TransposeOp | FillOp) or len(op.outputs) != 1:
        return
    nest = Nest.of(op)
    is_product = bool(nest.summed) and weighted(nest.body) is not None
    if not is_product and not (nest.is_elementwise and isinstance(op, GenericOp)):
        return
    moved = [_moved(value, is_product) for value in op.inputs]
    read = (value if m is None else m.source for value, m in zip(op.inputs, moved, strict=True))
    if is_product and len(set(map(element_type, read))) > 1:
        # Tensor cores multiply elements of one type: what is extended for one factor stays so for the other.
        moved = [None if m is not None and m.extension is not None else m for m in moved]
    if not any(moved) or not _tell_loops(nest, moved):
        return
    body, maps = op.regions[0].clone(), nest.maps
    inputs = list(op.inputs)
    for number, movement in enumerate(moved):
        if movement is not None:
            inputs[number], maps[number] = movement.source, movement.map_from(maps[number])
            _extend(body.block, number, movement)
    rewriter.replace(op, generic(op, inputs, list(op.outputs), body, maps, nest.summed, list(op.result_types)))


def _moved(value: SSAValue, is_product: bool) -> Movement | None:
    """The movement of an operand. Products of elements that it extends must be exact in the type of the sums."""
    movement = Movement.of(value)
    extends = movement is not None and movement.extension is not None
    return None if extends and is_product and element_type(value) not in (f32, i32) else movement


def _tell_loops(nest: Nest, moved: Sequence[Movement | None]) -> bool:
    """Whether operands tell the length of every loop when some are read where they were moved from."""
    maps = [m if move is None else move.map_from(m) for m, move in zip(nest.maps, (*moved, None), strict=True)]
    return {loop for map_ in maps for loop in loops_of(map_)} >= set(range(nest.loops))


def _extend(block: Block, number: int, movement: Movement) -> None:
    """Makes a body read an element as it was before its extension."""
    argument = block.args[number]
    if movement.extension is None:
        return
    new = block.insert_arg(element_type(movement.source), number)
    copy = movement.extension.clone({movement.extension.operands[0]: new})
    first = block.first_op
    if first is None:
        block.add_op(copy)
    else:
        block.insert_op_before(copy, first)
    argument.replace_all_uses_with(copy.results[0])
    block.erase_arg(argument)


@rewrite_pattern
def reshape_before_moving(op: tensor.CollapseShapeOp | tensor.ExpandShapeOp, rewriter: PatternRewriter) -> None:
    """Moves a reshape before a movement of the tensor, if the reshape merges the same dimensions there."""
    value, shape = op.operands[0], shape_of(op.results[0])
    movement = Movement.of(value)
    if movement is None or min(*shape, *shape_of(value), *shape_of(movement.source), 0) < 0:
        return
    if not all(isinstance(use.operation, LinalgStructuredOperation | Reshape) for use in op.results[0].uses):
        return
    expands = isinstance(op, tensor.ExpandShapeOp)
    split = _expanded(movement, op) if expands else _collapsed(movement, op)
    if split is None:
        return
    groups, along, sizes = split
    source = movement.source
    if any(len(group) != 1 for group in groups):
        source = rewriter.insert(_reshape(op, source, groups, sizes)).results[0]
    rewriter.replace(op, [], [movement.applied(op, source, along, shape)])


@rewrite_pattern
def extend_behind(op: tensor.CollapseShapeOp, rewriter: PatternRewriter) -> None:
    """Extends elements behind a reshape that merges dimensions which are not contiguous before the movement, as those
    of heads that share K and V: what is copied is narrow, and the product reads it so."""
    shape, movement = shape_of(op.result), Movement.of(op.src)
    if movement is None or movement.extension is None or min(*shape, *shape_of(movement.source), 0) < 0:
        return
    if _collapsed(movement, op) is not None:
        return
    copied = movement._replace(extension=None).applied(op, movement.source, movement.along, shape_of(op.src))
    narrow = rewriter.insert(collapse(copied, groups_of(op), shape)).result
    rewriter.replace(op, [], [movement.applied(op, narrow, range(len(shape)), shape)])


Split = tuple[list[list[int]], list[int], list[int]]
"""Groups of dimensions, along which dimensions of the result the new source runs, and its sizes."""


def _expanded(movement: Movement, op: Reshape) -> Split | None:
    """The movement of a reshape that expands the result of another movement."""
    before, after = groups_of(op), shape_of(op.results[0])
    groups: list[list[int]] = []
    along: list[int] = []
    sizes: list[int] = []
    for place, size in zip(movement.along, shape_of(movement.source), strict=True):
        parts = [FIXED] if place == FIXED else list(before[place])
        groups.append([len(sizes) + n for n in range(len(parts))])
        along += parts
        sizes += [size] if place == FIXED else [after[d] for d in parts]
    return groups, along, sizes


def _collapsed(movement: Movement, op: Reshape) -> Split | None:
    """The shape of the source after a collapse of the result; None if merged dimensions are not contiguous there."""
    shape, group_of = shape_of(op.operands[0]), {d: n for n, group in enumerate(groups_of(op)) for d in group}
    lying = [(at, d) for d, at in enumerate(movement.along) if at != FIXED and shape_of(movement.source)[d] != 1]
    runs = [(group, [*members]) for group, members in groupby(lying, lambda each: group_of[each[0]])]
    if len({group for group, _ in runs}) != len(runs):
        return None
    for group, members in runs:
        if [place for place, _ in members] != [d for d in groups_of(op)[group] if shape[d] != 1]:
            return None
    if not runs:
        return None
    groups = around([members[0][1] for _, members in runs], len(movement.along))
    sizes = [prod(shape_of(movement.source)[d] for d in group) for group in groups]
    return groups, [group for group, _ in runs], sizes


def _reshape(op: Reshape, source: SSAValue, groups: Groups, sizes: Sequence[int]) -> Reshape:
    """An operation like another one, on another tensor."""
    return (expand if isinstance(op, tensor.ExpandShapeOp) else collapse)(source, groups, sizes)


@rewrite_pattern
def reshape_units(op: TransposeOp, rewriter: PatternRewriter) -> None:
    """Replaces a transposition that moves only dimensions of size 1 by reshapes."""
    movement = Movement.of(op.results[0]) if op.results else None
    if movement is None:
        return
    before, after = shape_of(op.inputs[0]), shape_of(op.results[0])
    lying = [place for d, place in enumerate(movement.along) if before[d] != 1]
    if lying == sorted(lying) and lying and min(before) >= 0:
        rewriter.replace(op, [], [with_units(op.inputs[0], after, rewriter)])


@rewrite_pattern
def collapse_behind(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Moves a collapse of what follows a sum, such as of groups and channels, or a concatenation, behind the operation
    on elements that reads it, which their kernels can then compute too."""
    if not (nest := Nest.of(op)).is_elementwise or len(op.results) != 1 or nest.indices:
        return
    order, shape = nest.writes[0].loops, shape_of(op.results[0])
    merged = next((a for a in nest.reads if a.loops == order and _follows_sum_or_parts(a.value)), None)
    every = [value for value in op.operands if isinstance(value.type, TensorType)]
    if (
        merged is None
        or not order
        or min(min(shape_of(v), default=0) for v in every) < 0
        or not all(map(is_projection, nest.maps))
    ):
        return
    collapsed = merged.value.owner
    if not isinstance(collapsed, tensor.CollapseShapeOp):
        return
    groups, sizes = groups_of(collapsed), shape_of(collapsed.src)
    loops = dict(zip(order, groups, strict=True))
    inputs, maps = list[SSAValue](), list[AffineMap]()
    for access in nest.accesses:
        along = [loops.get(loop, [FIXED]) for loop in access.loops]
        maps.append(map_along(len(sizes), [d for group in along for d in group]))
        own = [d for d, group in enumerate(along) if len(group) > 1]
        if access is merged or not own:
            inputs.append(collapsed.src if access is merged else access.value)
            continue
        counts = shape_of(access.value)
        split = [size for d, group in enumerate(along)
                 for size in ([sizes[each] for each in group] if d in own else [counts[d]])]  # fmt: skip
        inputs.append(rewriter.insert(expand(access.value, numbered(along), split)).result)
    make = LinalgBuilder(op)
    empty = make.empty(TensorType(element_type(op.results[0]), sizes))
    made = make.computed(inputs[:-1], empty, maps, op.body.clone())
    rewriter.replace(op, _reshape(collapsed, made, groups, shape))


def _follows_sum_or_parts(value: SSAValue) -> bool:
    """Whether a tensor is a collapse of the result of a sum, or of a concatenation, or of what follows one."""
    made = value.owner
    return isinstance(made, tensor.CollapseShapeOp) and follows(
        made.src,
        lambda op: (
            isinstance(op, tensor.ConcatOp) or (isinstance(op, LinalgStructuredOperation) and bool(Nest.of(op).summed))
        ),
        lambda op: isinstance(op, LinalgStructuredOperation | Reshape),
    )


PATTERNS: tuple[RewritePattern, ...] = (
    fold_reshapes, reshape_before_moving, read_moved, collapse_behind, regroup_behind,
)  # fmt: skip


def _filled(value: SSAValue) -> FillOp | None:
    """What fills a tensor with a constant."""
    fill = value.owner
    return fill if isinstance(fill, FillOp) and is_constant(fill.inputs[0]) else None


def _product(op: Operation) -> FillOp | None:
    """What fills the result of a product of tensors, from zero; None of another operation."""
    if not isinstance(op, LinalgStructuredOperation) or len(op.results) != 1 or not op.regions:
        return None
    nest, body = Nest.of(op), weighted(op.regions[0].block)
    fill = _filled(op.outputs[0])
    plain = body is not None and body.is_plain and nest.summed and all(map(is_plain, nest.maps))
    return fill if plain and fill is not None and float_value(fill.inputs[0]) == 0 else None


# Factors times a constant: `C = (x A) (y B)` is `x y (A B)`, but for roundings of the factors.


def _scaling(value: SSAValue) -> tuple[GenericOp, arith.MulfOp] | None:
    """What multiplies each element of a tensor, in f32, with a constant, and may extend and transpose it."""
    op = value.owner
    if not isinstance(op, GenericOp) or len(op.inputs) != 1 or len(op.results) != 1 or element_type(value) != f32:
        return None
    nest = Nest.of(op)
    *conversions, scaled, _ = nest.body.ops
    if not isinstance(scaled, arith.MulfOp) or not is_constant(scaled.rhs) or nest.yielded[0] is not scaled.result:
        return None
    read = nest.reads[0].element
    for each in conversions:
        if not isinstance(each, EXTENSIONS) or each.operands[0] is not read:
            return None
        read = each.results[0]
    source = op.inputs[0]
    if not nest.is_elementwise or not is_projection(nest.reads[0].map) or not isinstance(source.type, TensorType):
        return None
    return (op, scaled) if element_type(source) in (f16, bf16, f32) and scaled.lhs is read else None


MIN_SCALE = 2.0**-8
"""The least scale of factors of bf16 or f32 that is moved behind their product: 1 / sqrt(65536)."""


@rewrite_pattern
def scale_behind(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Moves the scales of factors behind the product. It is limited to products whose factors may be rounded to tf32,
    which loses more than the roundings that are left out. Sums of bf16 or f32 may then overflow before they are scaled,
    as in PyTorch's own kernels of attention: scales are at least `MIN_SCALE`, so that only elements beyond 2^120 do. No
    sum of products of f16 leaves the range of f32."""
    if _product(op) is None:
        return
    scalings = [_scaling(value) for value in op.inputs]
    scale = math.prod(float_value(each[1].rhs) or 0.0 for each in scalings if each is not None)
    kind = op.results[0].type
    narrow = all(each is None or element_type(each[0].inputs[0]) == f16 for each in scalings)
    if not narrow and abs(scale) < MIN_SCALE:
        return
    if not any(scalings) or not scale or element_type(op.results[0]) != f32 or not isa(kind, TensorType[Attribute]):
        return
    product = op.clone()
    for number, each in enumerate(scalings):
        if each is not None:
            product.operands[number] = rewriter.insert(_unscaled(each[0])).results[0]
    rewriter.insert(product)
    factor, make = rewriter.insert(arith.ConstantOp(FloatAttr(scale, f32))), LinalgBuilder(op)
    scaled = make.elementwise([product.results[0]], kind, lambda x, _: arith.MulfOp(x, factor).result)
    rewriter.replace(op, [], [scaled])


def _unscaled(op: GenericOp) -> GenericOp:
    """An operation without the multiplication of its elements."""
    copy = op.clone()
    block = copy.body.block
    multiplied = next(each for each in block.ops if isinstance(each, arith.MulfOp))
    multiplied.result.replace_all_uses_with(multiplied.lhs)
    block.erase_op(multiplied)
    return copy


# Batches: a product of `[b c] m n` that is expanded to `b c m n` goes along b and c.


@rewrite_pattern
def expand_batch(op: tensor.ExpandShapeOp, rewriter: PatternRewriter) -> None:
    """Splits the batch loop of a product whose result is expanded to several batch dimensions."""
    product, shape, groups = op.src.owner, shape_of(op.result), groups_of(op)
    several = [shape[d] for group in groups if len(group) > 1 for d in group] or [-1]
    if not isinstance(product, LinalgStructuredOperation) or op.src.uses.get_length() != 1 or min(several) < 0:
        return
    if (fill := _product(product)) is None:
        return
    nest, sizes = Nest.of(product), dict[int, list[int]]()
    for loop, group in zip(nest.writes[0].loops, groups, strict=True):
        parts = [shape[d] for d in group]
        merged = all(loop in a.loops and isinstance(a.value.owner, tensor.CollapseShapeOp) for a in nest.reads)
        sizes[loop] = parts if merged or sum(part > 1 for part in parts) > 1 else [math.prod(parts)]
    split = {loop for loop, parts in sizes.items() if len(parts) > 1}
    if not split:  # a view of the result says as much
        return
    if any(loop not in access.loops for loop in split for access in nest.reads):
        return
    places: list[list[int]] = []
    for loop in range(nest.loops):
        places.append([sum(map(len, places)) + n for n in range(len(sizes.get(loop, [0])))])
    count = sum(map(len, places))
    maps = [map_along(count, [place for loop in loops_of(map_) for place in places[loop]]) for map_ in nest.maps]
    make = LinalgBuilder(op)
    inputs = [_split(make, access.value, access.loops, sizes) for access in nest.reads]
    kind = TensorType(element_type(op.result), [part for loop in nest.writes[0].loops for part in sizes[loop]])
    if kind != op.result.type and min(shape) < 0:
        return
    zeros = make.filled(kind, fill.inputs[0], op.dynamic_output_shape)
    summed = [place for loop in nest.summed for place in places[loop]]
    made = generic(product, inputs, [zeros], product.regions[0].clone(), maps, summed, [kind])
    if kind == op.result.type:
        rewriter.replace(op, made)
        return
    apart = list[list[int]]()
    for loop, group in zip(nest.writes[0].loops, groups, strict=True):
        apart += [[d] for d in group] if loop in split else [group]
    rewriter.replace(op, expand(rewriter.insert(made).results[0], apart, shape))


# Rows that are masked: whether all scores of a row are minus infinity is whether the largest is.


@rewrite_pattern
def largest_of_all(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Replaces the question whether all elements of a row are minus infinity by whether the largest is."""
    nest = Nest.of(op)
    how = nest.combination
    if how is None or not isinstance(how.by, arith.AndIOp) or len(op.inputs) != 1 or not nest.summed:
        return
    asked, kind, fill = how.value.owner, op.results[0].type if op.results else None, _filled(op.outputs[0])
    if not isinstance(asked, arith.CmpfOp) or asked.predicate.value.data != OEQ or fill is None:
        return
    start = fill.inputs[0].owner
    true = isinstance(start, arith.ConstantOp) and str(start.value) in ("true", "1 : i1", "-1 : i1")
    if not true or not isa(kind, TensorType[Attribute]) or float_value(asked.rhs) != -math.inf:
        return
    element = asked.lhs
    while isinstance(element.owner, arith.ExtFOp):
        element = element.owner.input
    if element is not nest.reads[0].element or not isinstance(wide := element.type, AnyFloat):
        return
    lowest, make = rewriter.insert(arith.ConstantOp(FloatAttr(-math.inf, wide))).result, LinalgBuilder(op)
    into = make.filled(TensorType(wide, kind.get_shape()), lowest, make.unknown_sizes(fill.outputs[0]))
    maps, summed = nest.maps, nest.summed
    largest = make.computed(op.inputs, into, maps, lambda x, m: arith.MaximumfOp(x, m).result, summed)
    equal = make.elementwise([largest], kind, lambda x, _: arith.CmpfOp(x, lowest, "oeq").result)
    rewriter.replace(op, [], [equal])


OEQ = 1
"""The predicate of `arith.cmpf` for numbers that are equal."""


DECOMPOSED: tuple[RewritePattern, ...] = (fold_reshapes, read_moved, extend_behind, *[read_moved] * 3)
"""In this order, and before `ScaleBehind`: a chain of conversions, transpositions and scales is read at once."""


def _split(make: LinalgBuilder, value: SSAValue, loops: Sequence[int], sizes: dict[int, list[int]]) -> SSAValue:
    """A tensor with several dimensions where a loop becomes several."""
    parts = [sizes.get(loop, [size]) for loop, size in zip(loops, shape_of(value), strict=True)]
    unknown = make.unknown_sizes(value)
    return make.insert(expand(value, numbered(parts), [size for part in parts for size in part], unknown)).result
