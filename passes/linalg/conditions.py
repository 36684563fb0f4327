"""Tensors of i1 in memory: a byte for each element, as PyTorch and JAX have them, but for operands of products of bits,
of which eight lie in a byte."""

from __future__ import annotations

from xdsl.builder import Builder
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, MemRefType, i1, i8
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.generic import weighted
from ...dialect.warp.attributes import is_memory


def as_bytes(kind: MemRefType[Attribute]) -> MemRefType[Attribute]:
    """The memory that stands for memory of a type: bytes for conditions."""
    if kind.element_type != i1:
        return kind
    return MemRefType(i8, kind.get_shape(), kind.layout, kind.memory_space)


def is_multiplied(value: SSAValue) -> bool:
    """Whether a tensor is an operand of a product, or moved for one."""
    users = [use.operation for use in value.uses]
    return any(
        (isinstance(user, LinalgStructuredOperation) and weighted(user.body.block) is not None)
        or any(is_multiplied(result) for result in user.results if user.name.startswith("tensor.") or _moves(user))
        for user in users
    )


def _moves(op: Operation) -> bool:
    """Whether an operation of `linalg` does nothing but copy elements."""
    return isinstance(op, LinalgStructuredOperation) and len(list(op.body.block.ops)) == 1


def hold_conditions(op: LinalgStructuredOperation) -> None:
    """Makes an operation whose body has conditions read and write them as bytes, where its memory has bytes."""
    body, end = op.body.block, op.body.block.last_op
    moves = len(list(body.ops)) == 1
    for number, value in enumerate(op.operands):
        argument = body.args[number]
        if not is_memory(value.type):
            if value.type == i1 and isinstance(constant := value.owner, arith.ConstantOp) and moves:
                constant_ = constant.value.value.data if isinstance(constant.value, IntegerAttr) else 0
                byte = Builder(InsertPoint.before(op)).insert(arith.ConstantOp(IntegerAttr(constant_ & 1, i8)))
                op.operands[number] = byte.result
                Rewriter.replace_value_with_new_type(argument, i8)
            continue
        if argument.type != i1 or value.type.element_type != i8:
            continue
        argument = Rewriter.replace_value_with_new_type(argument, i8)
        if argument.uses and not moves:
            condition = arith.TruncIOp(argument, i1)
            argument.replace_all_uses_with(condition.result)
            condition.operands[0] = argument
            Builder(InsertPoint.at_start(body)).insert(condition)
        if number >= len(op.inputs) and isinstance(end, YieldOp) and end.operands[number - len(op.inputs)].type == i1:
            place = Builder(InsertPoint.before(end))
            end.operands[number - len(op.inputs)] = place.insert(
                arith.ExtUIOp(end.operands[number - len(op.inputs)], i8)
            ).result
