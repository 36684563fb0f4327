"""Operations on tensors of several results: one operation for each result that is used; and those that nobody uses."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import UnitAttr
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import Rewriter

from ...dialect.mlir.affine import loops_of
from ...dialect.nest import Nest, generic
from ...dialect.warp.attributes import UNUSED
from ..diagnostics import remark

PURE = (tensor.EmptyOp, tensor.CollapseShapeOp, tensor.ExpandShapeOp, tensor.ExtractSliceOp, tensor.InsertSliceOp,
        tensor.CastOp, tensor.DimOp, tensor.ExtractOp, arith.ConstantOp)  # fmt: skip
"""Operations that do nothing but make their results, beside those of `linalg` on tensors."""


def drop_unused(block: Block, function: Operation | None = None) -> None:
    """Erases the operations of a block whose results nobody uses, and which do nothing else; as they are written in a
    function, with a remark."""
    for op in reversed(list(block.ops)):
        made = isinstance(op, (LinalgStructuredOperation, *PURE))
        if made and op.results and not any(result.uses for result in op.results):
            if isinstance(op, LinalgStructuredOperation) and function is not None:
                remark(op, "warp-bufferize", f"nobody uses the result of {op.name}; it is not computed")
                function.attributes[UNUSED] = UnitAttr()
            Rewriter.erase_op(op)


class OneResultEach(RewritePattern):
    """Splits an operation with several results into one operation for each used result. A maximum with its index
    becomes a maximum if only that is used.

    It leaves an operation in which one of two results depends on the running value of the other.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GenericOp, rewriter: PatternRewriter) -> None:
        used = [number for number, result in enumerate(op.results) if result.uses]
        if len(op.results) < 2 or any(_depends(Nest.of(op), number) for number in used):
            return
        values: list[SSAValue | None] = []
        for number, result in enumerate(op.results):
            values.append(rewriter.insert(_alone(op, number)).results[0] if result.uses else None)
        rewriter.replace(op, [], values)


def _depends(nest: Nest, number: int) -> bool:
    """Whether a result depends on what another one has so far."""
    needed = _needed(nest.yielded[number])
    return any(access.element in needed for other, access in enumerate(nest.writes) if other != number)


def _alone(op: GenericOp, number: int) -> GenericOp:
    """What makes one result of an operation."""
    nest = Nest.of(op)
    needed = _needed(nest.yielded[number])
    kept = [n for n, access in enumerate(nest.reads) if access.element in needed]
    told = {loop for n in kept for loop in loops_of(nest.reads[n].map)} | set(nest.writes[number].loops)
    if not told >= set(range(nest.loops)):
        kept = list(range(len(nest.reads)))
    body = op.body.clone()
    block, end = body.block, body.block.last_op
    if end is not None:
        end.operands = [end.operands[number]]
    for inner in reversed(list(block.ops)):
        if inner.results and not any(result.uses for result in inner.results):
            Rewriter.erase_op(inner)
    used = {*kept, len(nest.reads) + number}
    for argument in reversed(list(block.args)):
        if argument.index not in used:
            block.erase_arg(argument)
    maps = [nest.reads[n].map for n in kept] + [nest.writes[number].map]
    inputs, kinds = [op.inputs[n] for n in kept], [op.results[number].type]
    summed = [loop for loop in nest.summed if loop not in nest.writes[number].loops]
    return generic(op, inputs, [op.outputs[number]], body, maps, summed, kinds)


def _needed(value: SSAValue) -> Collection[SSAValue]:
    """The values of a body that a value is made of, with itself."""
    needed, rest = set[SSAValue](), [value]
    while rest:
        each = rest.pop()
        if each not in needed:
            needed.add(each)
            owner = each.owner
            rest += [] if isinstance(each, BlockArgument) or not isinstance(owner, Operation) else owner.operands
    return needed
