"""Sizes of tensors that are not known: products of numbers and of sizes of other tensors, which front ends compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from xdsl.builder import Builder
from xdsl.dialects import arith, cf, tensor
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, IndexType, ShapedType
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import GenericOp, IndexOp
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineExpr, AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import Rewriter

from ...dialect.mlir.affine import FIXED, Nest, generic, is_inside, map_along
from ...dialect.warp.elements import shape_of
from ..diagnostics import fail, remark
from ..patterns import IndexBuilder, constant_value, erase_unused, rewrite_pattern
from .operand import groups_of, reassociation


class SizeFactor(NamedTuple):
    """A number that is not known: a dimension of a tensor, or, without one, a value of its own."""

    value: SSAValue
    dimension: int | None = None


class SizeProduct(NamedTuple):
    """A product of a number and of factors, which are sorted."""

    number: int
    factors: tuple[SizeFactor, ...] = ()

    def times(self, other: SizeProduct) -> SizeProduct:
        """The product of two sizes."""
        factors = sorted((*self.factors, *other.factors), key=lambda f: (id(f.value), f.dimension or 0))
        return SizeProduct(self.number * other.number, tuple(factors))

    @property
    def is_natural(self) -> bool:
        """Whether it is known not to be negative."""
        return self.number >= 0 and all(factor.dimension is not None for factor in self.factors)


def size_of(value: SSAValue, dimension: int) -> SizeProduct:
    """The size of a dimension of a tensor."""
    shape, op = shape_of(value), value.owner
    if shape[dimension] >= 0:
        return SizeProduct(shape[dimension])
    match op:
        case tensor.EmptyOp():
            return amount(op.dynamic_sizes[sum(size < 0 for size in shape[:dimension])])
        case LinalgStructuredOperation() if isinstance(value, OpResult):
            return size_of(op.outputs[value.index], dimension)
        case tensor.CastOp():
            return size_of(op.source, dimension)
        case tensor.ReshapeOp() if isinstance(made := op.shape.owner, tensor.FromElementsOp):
            return amount(made.elements[dimension])
        case _:
            return SizeProduct(1, (SizeFactor(value, dimension),))


def amount(value: SSAValue) -> SizeProduct:
    """A whole number as a product."""
    if (number := constant_value(value)) is not None:
        return SizeProduct(number)
    match op := value.owner:
        case arith.IndexCastOp():
            return amount(op.input)
        case tensor.DimOp() if (dimension := constant_value(op.index)) is not None:
            return size_of(op.source, dimension)
        case arith.MuliOp():
            return amount(op.lhs).times(amount(op.rhs))
        case arith.SelectOp() if (condition := holds(op.cond)) is not None:
            return amount(op.lhs if condition else op.rhs)
        case arith.ExtUIOp() if (condition := holds(op.input)) is not None:
            return SizeProduct(int(condition))
        case _:
            return SizeProduct(1, (SizeFactor(value),))


def holds(condition: SSAValue) -> bool | None:
    """Whether a comparison holds for all sizes, or for none; else None."""
    op = condition.owner
    if not isinstance(op, arith.CmpiOp):
        return None
    a, b, word = amount(op.lhs), amount(op.rhs), arith.CMPI_COMPARISON_OPERATIONS[op.predicate.value.data]
    if a == b:
        return word in ("eq", "sle", "sge", "ule", "uge")
    if not a.factors and not b.factors:
        below = a.number < b.number
        return {"eq": False, "ne": True, "slt": below, "sle": below, "sgt": not below, "sge": not below}.get(word)
    if a.is_natural and not b.factors and b.number <= 0:
        return {"slt": False, "sge": True}.get(word)
    return None


_ARITHMETIC: Mapping[type[Operation], Callable[[AffineExpr, AffineExpr], AffineExpr]] = {
    arith.AddiOp: AffineExpr.__add__, arith.SubiOp: AffineExpr.__sub__, arith.MuliOp: AffineExpr.__mul__,
    arith.DivUIOp: AffineExpr.__floordiv__, arith.DivSIOp: AffineExpr.__floordiv__, arith.RemUIOp: AffineExpr.__mod__,
    arith.FloorDivSIOp: AffineExpr.__floordiv__, arith.CeilDivUIOp: AffineExpr.ceil_div,
    arith.CeilDivSIOp: AffineExpr.ceil_div,
}  # fmt: skip


def extents_of(values: Sequence[SSAValue], arguments: Sequence[SSAValue]) -> ArrayAttr[AffineMapAttr] | None:
    """The sizes of tensors by those of arguments; None if none is computed, or no affine map computes them."""
    places = [
        (a, d) for a in arguments for d in (range(len(shape_of(a))) if isinstance(a.type, ShapedType) else [None])
    ]
    numbers = {place: AffineExpr.dimension(number) for number, place in enumerate(places)}
    try:
        rows = [tuple(_by_arguments(value, d, numbers) for d in range(len(shape_of(value)))) for value in values]
    except NotImplementedError:  # of xDSL too, for what is not affine
        return None
    told = {expr for (_, d), expr in numbers.items() if d is not None}  # along a loop, mostly
    if all(isinstance(expr, AffineConstantExpr) or expr in told for row in rows for expr in row):
        return None
    return ArrayAttr(AffineMapAttr(AffineMap(len(places), 0, row)) for row in rows)


def _by_arguments(
    value: SSAValue, at: int | None, numbers: Mapping[tuple[SSAValue, int | None], AffineExpr]
) -> AffineExpr:
    """The size of a dimension of a tensor or, at None, a whole number, by sizes of arguments. Raises
    NotImplementedError for what follows from anything else."""
    shape, op = shape_of(value)[:at], value.owner
    number = constant_value(value) if at is None else shape_of(value)[at]
    if number is not None and (at is None or number >= 0):
        return AffineExpr.constant(number)
    unknown = sum(size < 0 for size in shape)
    match op:
        case _ if (value, at) in numbers:
            return numbers[value, at]
        case tensor.EmptyOp():
            value, at = op.dynamic_sizes[unknown], None
        case tensor.ExtractSliceOp():
            value, at = op.sizes[unknown], None
        case tensor.ExpandShapeOp():
            value, at = op.dynamic_output_shape[unknown], None
        case tensor.CollapseShapeOp() if at is not None:
            return reduce(AffineExpr.__mul__, (_by_arguments(op.src, d, numbers) for d in groups_of(op)[at]))
        case LinalgStructuredOperation() if isinstance(value, OpResult):
            value = op.outputs[value.index]
        case tensor.InsertSliceOp() | tensor.CastOp():
            value = op.dest if isinstance(op, tensor.InsertSliceOp) else op.source
        case tensor.DimOp() if (dimension := constant_value(op.index)) is not None:
            value, at = op.source, dimension
        case Operation() if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](*(_by_arguments(operand, None, numbers) for operand in op.operands))
        case _:
            raise NotImplementedError
    return _by_arguments(value, at, numbers)


@rewrite_pattern
def drop_assertion(op: cf.AssertOp, rewriter: PatternRewriter) -> None:
    """Erases an assertion on sizes that always holds."""
    if holds(op.arg):
        rewriter.erase(op)


def _computed(size: SizeProduct, rewriter: PatternRewriter) -> SSAValue | None:
    """A size as an index; None if it depends on anything but the sizes of tensors."""
    index, product = IndexBuilder(Builder(rewriter.insertion_point)), size.number
    for value, dimension in size.factors:
        if dimension is None:
            return None
        product = index.mul(product, index.dim(value, dimension))
    return index.value(product)


@rewrite_pattern
def take_size(op: arith.IndexCastOp, rewriter: PatternRewriter) -> None:
    """Replaces a size that is computed by way of i64 by the sizes of tensors that it is the product of."""
    size = _computed(amount(op.input), rewriter) if op.result.type == IndexType() else None
    if size is not None:
        rewriter.replace(op, [], [size])


@rewrite_pattern
def reshape_by_groups(op: tensor.ReshapeOp, rewriter: PatternRewriter) -> None:
    """Replaces a reshape to computed sizes by one that merges or divides dimensions, or by none. Raises a located
    diagnostic for a reshape that does both, or whose sizes are not those of the source."""
    source, made = op.source.type, op.result.type
    of_source, of_result = _sizes(op.source), _sizes(op.result)
    merged, divided = _groups(of_source, of_result), _groups(of_result, of_source)
    if merged is not None and divided is not None:
        rewriter.replace(
            op, [], [op.source if source == made else rewriter.insert(tensor.CastOp(op.source, made)).dest]
        )
    elif merged is not None:
        groups = {"reassociation": reassociation(merged)}
        rewriter.replace(op, tensor.CollapseShapeOp.build(operands=[op.source], properties=groups, result_types=[made]))
    elif divided is not None:
        shape = shape_of(op.result)
        unknown = [_computed(of_result[d], rewriter) for d, size in enumerate(shape) if size < 0]
        indices = [index for index in unknown if index is not None]
        if len(indices) < len(unknown):
            fail(op, f"expected the sizes of {op.name} to follow from those of tensors")
        rewriter.replace(op, tensor.ExpandShapeOp(op.source, indices, reassociation(divided), shape, made))
    else:
        fail(op, f"expected {op.name} to merge or to divide dimensions of {source}, got {made}")


def _sizes(value: SSAValue) -> list[SizeProduct]:
    return [size_of(value, dimension) for dimension in range(len(shape_of(value)))]


def _groups(source: Sequence[SizeProduct], made: Sequence[SizeProduct]) -> list[list[int]] | None:
    """The dimensions of the source that each dimension of a reshape is a product of; None if it is not."""
    groups, rest = list[list[int]](), list(range(len(source)))
    for size in made:
        group, product = list[int](), SizeProduct(1)
        while rest and (product != size or not group):
            group.append(rest.pop(0))
            product = product.times(source[group[-1]])
        if product != size:
            return None
        groups.append(group)
    return None if rest else groups


@rewrite_pattern
def read_in_order(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Makes an elementwise operation read an element as an input that its body extracts at the indices of its loops. A
    front end selects index 0 where a size is 1. For a loop of that size this makes no difference; a call in which the
    loop is longer is refused by an assertion."""
    nest, number = Nest.of(op), len(op.inputs)
    reads = [each for each in nest.body.ops if isinstance(each, tensor.ExtractOp) and each.indices]
    if len(op.results) != 1 or not nest.is_elementwise or len(reads) != 1:
        return
    source, places = reads[0].tensor, [_place(index, nest) for index in reads[0].indices]
    along = [place[0] for place in places if place is not None]
    if len(along) < len(places) or is_inside(source, nest.body):
        return
    ones = [loop for loop, size in zip(nest.writes[0].loops, shape_of(op.outputs[0]), strict=True) if size == 1]
    for dimension, loop in enumerate(along):
        if loop == FIXED and dimension in ones and dimension not in along:
            along[dimension] = dimension  # of which index 0 is the only one
    for repeated in [place[1] for place in places if place is not None and place[1] is not None]:
        _assert_same(*repeated, op)
    body = op.body.clone()
    end = body.block.last_op
    element = body.block.insert_arg(reads[0].result.type, number)
    for each in reversed(list(body.block.ops)):
        if isinstance(each, tensor.ExtractOp) and each.indices:
            Rewriter.replace_op(each, [], [element])
        else:
            erase_unused([each])
    maps = [access.map for access in nest.accesses]
    maps.insert(number, map_along(nest.loops, along))
    same = source.type == op.results[0].type and end is not None and end.operands[0] is element
    if same and along == list(range(nest.loops)) and nest.writes[0].loops == tuple(along):
        rewriter.replace(op, [], [source])
        return
    made = generic(op, [*op.inputs, source], list(op.outputs), body, maps, results=op.result_types)
    rewriter.replace(op, made)


Repeated = tuple[SSAValue, int]
"""A size that, where it is 1, is repeated along a dimension of what an operation writes."""


def _place(index: SSAValue, nest: Nest) -> tuple[int, Repeated | None] | None:
    """The loop that an index is that of, `FIXED` for 0, and what has to be the size of the loop; None for others."""
    match op := index.owner:
        case IndexOp():
            return op.dim.value.data, None
        case arith.SelectOp() if (condition := holds(op.cond)) is not None:
            return _place(op.lhs if condition else op.rhs, nest)
        case arith.SelectOp(cond=OpResult(op=arith.CmpiOp() as compared)) if constant_value(op.lhs) == 0:
            place, (written,) = _place(op.rhs, nest), nest.writes
            is_one = compared.predicate.value.data == 0 and constant_value(compared.rhs) == 1
            if place is None or place[1] is not None or not is_one or place[0] not in written.loops:
                return None
            dimension = written.loops.index(place[0])
            same = size_of(written.value, dimension) == amount(compared.lhs)
            return place[0], None if same else (compared.lhs, dimension)
        case _:
            return (FIXED, None) if constant_value(index) == 0 else None


def _assert_same(size: SSAValue, dimension: int, op: GenericOp) -> None:
    index = IndexBuilder(op)
    outside = index.again(size, {}, op.is_ancestor)
    same = index.compare("eq", outside, index.dim(op.outputs[0], dimension))
    index.insert(cf.AssertOp(same, "a dimension of size 1 is not repeated where its size is not known"))
    remark(op, "warp-bufferize", "a call in which it repeats a dimension of size 1 is refused, as sizes are not known")


PATTERNS = (drop_assertion, take_size, reshape_by_groups)
