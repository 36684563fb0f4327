"""`linalg.pack` and `linalg.unpack` as what they do: padding, other shapes, and a transposition."""

from __future__ import annotations

from xdsl.builder import Builder
from xdsl.dialects import tensor
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, TensorType, i64
from xdsl.dialects.linalg.ops import TransposeOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.packs import PackOp, UnPackOp
from ..diagnostics import fail
from . import new_tensors


def replace(op: Operation) -> None:
    """Replaces a `linalg.pack` or `linalg.unpack` by operations that later passes know.

    Raises a located diagnostic for sizes that are not known.
    """
    if not isinstance(op, PackOp | UnPackOp):
        return
    if min(*op.plain.get_shape(), *op.tiled.get_shape(), *op.tiles.values()) < 0:
        fail(op, f"{op.name} of dynamic sizes is not lowered; known sizes are")
    made = _packed(op) if isinstance(op, PackOp) else _unpacked(op)
    Rewriter.replace_op(op, [], [made])


def _whole(op: PackOp | UnPackOp) -> list[int]:
    """The shape of the tensor with whole tiles."""
    return [-(-size // (tile := op.tiles.get(d, 1))) * tile for d, size in enumerate(op.plain.get_shape())]


def _cut(op: PackOp | UnPackOp) -> tuple[list[int], ArrayAttr[ArrayAttr[IntegerAttr]]]:
    """The shape in which the tiles and what they have of a dimension stand side by side; which of its dimensions are
    one of the tensor's."""
    shape: list[int] = []
    groups: list[ArrayAttr[IntegerAttr]] = []
    for d, size in enumerate(_whole(op)):
        parts = [size // op.tiles[d], op.tiles[d]] if d in op.tiles else [size]
        groups.append(ArrayAttr(IntegerAttr(len(shape) + n, i64) for n in range(len(parts))))
        shape += parts
    return shape, ArrayAttr(groups)


def _permutation(op: PackOp | UnPackOp) -> list[int]:
    """Which dimension of that shape each dimension of the tiles is."""
    _, groups = _cut(op)
    first = [group.data[0].value.data for group in groups]
    return [*(first[d] for d in op.order), *(first[d] + 1 for d in op.tiles)]


def _packed(op: PackOp) -> SSAValue:
    builder, value, kind = Builder(InsertPoint.before(op)), op.source, op.plain
    if (whole := _whole(op)) != list(kind.get_shape()):
        value = _padded(op, builder, whole)
    shape, groups = _cut(op)
    cut = builder.insert(tensor.ExpandShapeOp(value, [], groups, shape, TensorType(kind.element_type, shape)))
    order = DenseArrayBase.from_list(i64, _permutation(op))
    return _located(builder.insert(TransposeOp(cut.result, op.dest, order)), op)


def _padded(op: PackOp, builder: Builder, whole: list[int]) -> SSAValue:
    kind = op.plain
    high = [size - had for size, had in zip(whole, kind.get_shape(), strict=True)]
    padding = [] if op.padding_value is None else [op.padding_value]
    around = Region(Block([tensor.YieldOp(*padding)], arg_types=[]))
    low = [0] * len(high)
    padded = builder.insert(tensor.PadOp(op.source, [], [], around, low, high, TensorType(kind.element_type, whole)))
    padded.location = op.location
    holder = builder.insert(tensor.CastOp(padded.result, padded.result.type))
    new_tensors.replace(padded)
    value = holder.source
    Rewriter.replace_op(holder, [], [value])
    return value


def _unpacked(op: UnPackOp) -> SSAValue:
    builder, kind, shape = Builder(InsertPoint.before(op)), op.plain, op.plain.get_shape()
    cut, groups = _cut(op)
    empty = builder.insert(tensor.EmptyOp([], TensorType(kind.element_type, cut))).tensor
    permutation = _permutation(op)
    back = DenseArrayBase.from_list(i64, [permutation.index(d) for d in range(len(cut))])
    turned = _located(builder.insert(TransposeOp(op.source, empty, back)), op)
    whole = _whole(op)
    joined = builder.insert(
        tensor.CollapseShapeOp.build(
            operands=[turned],
            properties={"reassociation": groups},
            result_types=[TensorType(kind.element_type, whole)],
        )
    )
    if whole == list(shape):
        return joined.result
    part = tensor.ExtractSliceOp.from_static_parameters(joined.result, [0] * len(shape), list(shape))
    return builder.insert(part).result


def _located(made: TransposeOp, op: Operation) -> SSAValue:
    made.location = op.location
    return made.results[0]
