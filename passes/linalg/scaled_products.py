"""Attention as front ends decompose it: factors that are scaled, batches that are one dimension, rows that are masked.

PyTorch's `scaled_dot_product_attention` becomes two products of matrices in one batch, reshaped from several; Q and K
times the root of a scale each; and a softmax that is 0 where all scores of a row are minus infinity. Here a scale is
behind its product, a product goes along the loops that its result is expanded to, and a row is asked for its largest
score: what `warp-fuse-attention` and epilogues read.
"""

from __future__ import annotations

import math

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import AnyFloat, FloatAttr, TensorType, bf16, f16, f32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import Nest, NestAccess, generic, is_constant, is_plain, is_projection, loops_of, map_along
from ...dialect.mlir.generic import EXTENSIONS, weighted
from ...dialect.warp.elements import element_type, shape_of
from ..patterns import float_value, op_type_rewrite_pattern
from .moved_operands import ExtendBehind, ReadMoved
from .operand import groups_of, numbered
from .reshapes import FoldReshapes, LinalgBuilder, expand


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


class ScaleBehind(RewritePattern):
    """Moves the scales of factors behind the product. It is limited to products whose factors may be rounded to tf32,
    which loses more than the roundings that are left out. Sums of bf16 or f32 may then overflow before they are scaled,
    as in PyTorch's own kernels of attention: scales are at least `MIN_SCALE`, so that only elements beyond 2^120 do. No
    sum of products of f16 leaves the range of f32."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, LinalgStructuredOperation) or _product(op) is None:
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


class ExpandBatch(RewritePattern):
    """Splits the batch loop of a product whose result is expanded to several batch dimensions."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: tensor.ExpandShapeOp, rewriter: PatternRewriter) -> None:
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
        inputs = [_split(make, access, sizes) for access in nest.reads]
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


class LargestOfAll(RewritePattern):
    """Replaces the question whether all elements of a row are minus infinity by whether the largest is."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GenericOp, rewriter: PatternRewriter) -> None:
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


PATTERNS: tuple[RewritePattern, ...] = (FoldReshapes(), ReadMoved(), ExtendBehind(), *[ReadMoved()] * 3)
"""In this order, and before `ScaleBehind`: a chain of conversions, transpositions and scales is read at once."""


def _split(make: LinalgBuilder, access: NestAccess, sizes: dict[int, list[int]]) -> SSAValue:
    """A tensor with several dimensions where a loop becomes several."""
    value, unknown = access.value, make.unknown_sizes(access.value)
    parts = [sizes.get(loop, [size]) for loop, size in zip(access.loops, shape_of(value), strict=True)]
    return make.insert(expand(value, numbered(parts), [size for part in parts for size in part], unknown)).result
