"""Tensors that begin otherwise than as `tensor.empty`: allocated with contents, padded, and in tiles."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects import arith, tensor
from xdsl.dialects.bufferization import AllocTensorOp
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    IntegerType,
    TensorType,
    UnitAttr,
    i64,
)
from xdsl.dialects.linalg.ops import CopyOp, FillOp, TransposeOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.utils.hints import isa

from ...dialect.mlir.packs import PackOp, UnPackOp
from ...dialect.warp.elements import shape_of
from ..diagnostics import fail


class FillAllocated(RewritePattern):
    """Replaces an allocated tensor by one whose elements are not known yet, or a copy of another one."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AllocTensorOp, rewriter: PatternRewriter) -> None:
        kind = op.tensor.type
        if not isa(kind, TensorType[Attribute]):
            fail(op, f"expected a tensor of known rank, got {kind}")
        sizes = list(op.dynamic_sizes)
        if op.copy is not None:
            sizes = [_dim(rewriter, op.copy, d) for d, size in enumerate(kind.get_shape()) if size < 0]
        made: Operation = rewriter.insert(tensor.EmptyOp(sizes, kind))
        if op.copy is not None:
            made = rewriter.insert(CopyOp([op.copy], [made.results[0]], [kind]))
            made.location = op.location
        rewriter.replace(op, [], [made.results[0]])


class FillPadded(RewritePattern):
    """Replaces a padded tensor by a larger one, filled with a value, into which the source is put.

    Raises a located diagnostic for a value that depends on where it is.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: tensor.PadOp, rewriter: PatternRewriter) -> None:
        value, source = _padding(op, rewriter), op.source.type
        if not isa(source, TensorType[Attribute]):
            fail(op, f"expected a tensor of known rank, got {source}")
        shape = source.get_shape()
        low, high = (_amounts(static, given) for static, given in ((op.static_low, op.low), (op.static_high, op.high)))
        sizes: list[SSAValue] = []
        for dimension, size in enumerate(op.result.type.get_shape()):
            if size < 0:
                inner = shape[dimension]
                total = _index(rewriter, inner) if inner >= 0 else _dim(rewriter, op.source, dimension)
                for amount in (low[dimension], high[dimension]):
                    more = _index(rewriter, amount) if isinstance(amount, int) else amount
                    total = rewriter.insert(arith.AddiOp(total, more)).result
                sizes.append(total)
        padded = _padded(op, value, op.source, sizes, low, rewriter)
        rewriter.replace(op, [], [padded])


def _padded(
    op: tensor.PadOp | PackOp,
    value: SSAValue,
    source: SSAValue,
    sizes: Sequence[SSAValue],
    low: Sequence[int | SSAValue],
    rewriter: PatternRewriter,
    shape: Sequence[int] | None = None,
) -> SSAValue:
    """A tensor filled with a value, and a source put into it behind so many elements along each dimension. It has the
    type of the result, or else a shape."""
    kind = op.result.type if shape is None else TensorType(op.result.type.element_type, shape)
    empty = rewriter.insert(tensor.EmptyOp(sizes, kind)).tensor
    filled = rewriter.insert(FillOp([value], [empty], [kind]))
    inner = source.type.get_shape() if isa(source.type, TensorType[Attribute]) else ()
    unknown = [_dim(rewriter, source, d) for d, size in enumerate(inner) if size < 0]
    put = tensor.InsertSliceOp.build(
        operands=[source, filled.results[0], [a for a in low if not isinstance(a, int)], unknown, []],
        properties={
            "static_offsets": _static([a if isinstance(a, int) else DYNAMIC_INDEX for a in low]),
            "static_sizes": _static([size if size >= 0 else DYNAMIC_INDEX for size in inner]),
            "static_strides": _static([1] * len(inner)),
        },
        result_types=[kind],
    )
    filled.location = put.location = op.location
    return rewriter.insert(put).result


def _static(numbers: Sequence[int]) -> DenseArrayBase[IntegerType]:
    return DenseArrayBase.from_list(i64, numbers)


def _padding(op: tensor.PadOp, rewriter: PatternRewriter) -> SSAValue:
    """The value around the source: one from outside of the region, or a constant of it."""
    last = op.region.block.last_op
    if isinstance(last, tensor.YieldOp) and len(last.operands) == 1:
        value = last.operands[0]
        inside = value.owner
        if inside is op.region.block or (isinstance(inside, Operation) and inside.parent is op.region.block):
            if isinstance(inside, arith.ConstantOp):
                return rewriter.insert(inside.clone()).result
        else:
            return value
    fail(op, "expected tensor.pad with one value, the same everywhere; another is not lowered")


def _amounts(static: DenseArrayBase[IntegerType], given: Sequence[SSAValue]) -> list[int | SSAValue]:
    values = iter(given)
    return [next(values) if amount == DYNAMIC_INDEX else amount for amount in static.get_values()]


def _index(builder: Builder, number: int) -> SSAValue:
    return builder.insert(arith.ConstantOp(IntegerAttr(number, IndexType()))).result


def _dim(builder: Builder, value: SSAValue, dimension: int) -> SSAValue:
    return builder.insert(tensor.DimOp(value, _index(builder, dimension))).result


# Tiles that lie one after another: padding, another shape, and a transposition.


class TiledShape:
    """The shape in which the tiles and what they have of a dimension stand side by side.

    `groups` says which of its dimensions are one of the tensor's, `whole` is the shape of the tensor with whole tiles,
    `order` which dimension of that shape each dimension of the tiles is. Raises a located diagnostic for sizes that are
    not known.
    """

    def __init__(self, op: PackOp | UnPackOp) -> None:
        if min(*op.plain.get_shape(), *op.tiled.get_shape(), *op.tiles.values()) < 0:
            fail(op, f"{op.name} of dynamic sizes is not lowered; known sizes are")
        self.whole = [
            -(-size // op.tiles.get(d, 1)) * op.tiles.get(d, 1) for d, size in enumerate(op.plain.get_shape())
        ]
        parts = [[size // op.tiles[d], op.tiles[d]] if d in op.tiles else [size] for d, size in enumerate(self.whole)]
        self.shape = [size for part in parts for size in part]
        first = [sum(map(len, parts[:d])) for d in range(len(parts))]
        self.order = [*(first[d] for d in op.order), *(first[d] + 1 for d in op.tiles)]
        self.groups = ArrayAttr(
            ArrayAttr(IntegerAttr(at + n, i64) for n in range(len(part))) for at, part in zip(first, parts, strict=True)
        )


class Pack(RewritePattern):
    """Replaces a tensor in tiles by padding, another shape, and a transposition."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: PackOp, rewriter: PatternRewriter) -> None:
        tiling, value = TiledShape(op), op.source
        if tiling.whole != list(op.plain.get_shape()) and op.padding_value is not None:
            value = _padded(op, op.padding_value, value, [], [0] * len(tiling.whole), rewriter, tiling.whole)
        kind = TensorType(op.plain.element_type, tiling.shape)
        cut = rewriter.insert(tensor.ExpandShapeOp(value, [], tiling.groups, tiling.shape, kind))
        made = TransposeOp(cut.result, op.dest, _static(tiling.order))
        made.location = op.location
        rewriter.replace(op, made)


class Unpack(RewritePattern):
    """Replaces the tensor that lies in tiles by a transposition, another shape, and a part of it."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: UnPackOp, rewriter: PatternRewriter) -> None:
        tiling, element, shape = TiledShape(op), op.plain.element_type, op.plain.get_shape()
        empty = rewriter.insert(tensor.EmptyOp([], TensorType(element, tiling.shape))).tensor
        back = _static([tiling.order.index(d) for d in range(len(tiling.shape))])
        turned = rewriter.insert(TransposeOp(op.source, empty, back))
        turned.location = op.location
        whole: SSAValue = rewriter.insert(
            tensor.CollapseShapeOp.build(
                operands=[turned.results[0]],
                properties={"reassociation": tiling.groups},
                result_types=[TensorType(element, tiling.whole)],
            )
        ).result
        if tiling.whole != list(shape):
            part = tensor.ExtractSliceOp.from_static_parameters(whole, [0] * len(shape), list(shape))
            whole = rewriter.insert(part).result
        rewriter.replace(op, [], [whole])


COVERED = "warp.covered"
"""On a part that is put into a tensor: others are put into the rest of it."""


class Concatenate(RewritePattern):
    """Replaces tensors behind one another by a tensor that each is put into.

    Raises a located diagnostic for sizes along their dimension that are not known.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: tensor.ConcatOp, rewriter: PatternRewriter) -> None:
        kind, along, start = op.result.type, op.dim.value.data, 0
        shapes = [shape_of(value) for value in op.inputs]
        if min(kind.get_shape(), default=0) < 0 or any(min(shape, default=0) < 0 for shape in shapes):
            fail(op, f"{op.name} of dynamic sizes is not lowered; known sizes are")
        value = rewriter.insert(tensor.EmptyOp([], kind)).tensor
        for source, shape in zip(op.inputs, shapes, strict=True):
            offsets = [start if d == along else 0 for d in range(len(shape))]
            put = tensor.InsertSliceOp.from_static_parameters(source, value, offsets, shape)
            put.location = op.location
            put.attributes[COVERED] = UnitAttr()
            value, start = rewriter.insert(put).result, start + shape[along]
        rewriter.replace(op, [], [value])


PATTERNS: tuple[RewritePattern, ...] = (FillAllocated(), FillPadded(), Pack(), Unpack(), Concatenate())
