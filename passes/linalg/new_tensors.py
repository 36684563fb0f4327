"""Tensors that begin otherwise than as `tensor.empty`: allocated with contents, or padded."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects import arith, tensor
from xdsl.dialects.bufferization import AllocTensorOp
from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IndexType, IntegerAttr, IntegerType, TensorType, i64
from xdsl.dialects.linalg.ops import CopyOp, FillOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ..diagnostics import fail


def replace(op: Operation) -> None:
    """Replaces an operation that makes a tensor by ones that later passes know."""
    if isinstance(op, AllocTensorOp):
        _allocate(op)
    elif isinstance(op, tensor.PadOp):
        _pad(op)


def _allocate(op: AllocTensorOp) -> None:
    """A tensor whose elements are not known yet, or those of another one."""
    kind = op.tensor.type
    if not isa(kind, TensorType[Attribute]):
        fail(op, f"expected a tensor of known rank, got {kind}")
    builder, sizes = Builder(InsertPoint.before(op)), list(op.dynamic_sizes)
    if op.copy is not None:
        unknown = [d for d, size in enumerate(kind.get_shape()) if size < 0]
        sizes = [_dim(builder, op.copy, d) for d in unknown]
    made: Operation = builder.insert(tensor.EmptyOp(sizes, kind))
    if op.copy is not None:
        made = builder.insert(CopyOp([op.copy], [made.results[0]], [kind]))
        made.location = op.location
    Rewriter.replace_op(op, [], [made.results[0]])


def _pad(op: tensor.PadOp) -> None:
    """A larger tensor filled with a value, and the source put into it.

    Raises a located diagnostic for a value that depends on where it is.
    """
    value, kind, source = _padding(op), op.result.type, op.source.type
    if not isa(source, TensorType[Attribute]):
        fail(op, f"expected a tensor of known rank, got {source}")
    builder, shape = Builder(InsertPoint.before(op)), source.get_shape()
    low, high = (_amounts(static, given) for static, given in ((op.static_low, op.low), (op.static_high, op.high)))
    sizes: list[SSAValue] = []
    for dimension, size in enumerate(kind.get_shape()):
        if size < 0:
            known = _index(builder, shape[dimension]) if shape[dimension] >= 0 else _dim(builder, op.source, dimension)
            for amount in (low[dimension], high[dimension]):
                more = _index(builder, amount) if isinstance(amount, int) else amount
                known = builder.insert(arith.AddiOp(known, more)).result
            sizes.append(known)
    empty = builder.insert(tensor.EmptyOp(sizes, kind)).tensor
    filled = builder.insert(FillOp([value], [empty], [kind]))
    filled.location = op.location
    unknown = [_dim(builder, op.source, d) for d, size in enumerate(shape) if size < 0]
    put = tensor.InsertSliceOp.build(
        operands=[op.source, filled.results[0], [a for a in low if not isinstance(a, int)], unknown, []],
        properties={
            "static_offsets": _static([a if isinstance(a, int) else DYNAMIC_INDEX for a in low]),
            "static_sizes": _static([size if size >= 0 else DYNAMIC_INDEX for size in shape]),
            "static_strides": _static([1] * len(shape)),
        },
        result_types=[kind],
    )
    put.location = op.location
    Rewriter.replace_op(op, put)


def _static(numbers: list[int]) -> DenseArrayBase[IntegerType]:
    return DenseArrayBase.from_list(i64, numbers)


def _padding(op: tensor.PadOp) -> SSAValue:
    """The value around the source: one from outside of the region, or a constant of it."""
    last = op.region.block.last_op
    if isinstance(last, tensor.YieldOp) and len(last.operands) == 1:
        value = last.operands[0]
        inside = value.owner
        if inside is op.region.block or (isinstance(inside, Operation) and inside.parent is op.region.block):
            if isinstance(inside, arith.ConstantOp):
                return Builder(InsertPoint.before(op)).insert(inside.clone()).result
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
