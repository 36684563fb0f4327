"""Elementwise operations on tensors, computed where the one elementwise operation that reads them is."""

from __future__ import annotations

from typing import cast

from xdsl.dialects import tensor
from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import FillOp, GenericOp, YieldOp
from xdsl.ir import Block, Operation, Region
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter


class ComputeWhereRead(RewritePattern):
    """`generic(generic(x))` of one shape as one operation on x; the element between the two keeps its type. A tensor
    that is filled with one number becomes that number."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GenericOp, rewriter: PatternRewriter) -> None:
        for number, value in enumerate(op.inputs if _is_elementwise(op) else ()):
            producer, map_ = value.owner, op.indexing_maps.data[number]
            if isinstance(producer, FillOp) and isinstance(producer.inputs[0].owner, ConstantOp) and len(op.inputs) > 1:
                _replace(rewriter, op, _with_constant(op, number, producer.inputs[0].owner), producer)
                return
            if not isinstance(producer, GenericOp) or not value.has_one_use() or not _is_elementwise(producer):
                continue
            if map_ == producer.indexing_maps.data[-1]:
                _replace(rewriter, op, _fused(op, number, producer), producer)
                return


def _replace(rewriter: PatternRewriter, op: GenericOp, fused: GenericOp, producer: GenericOp | FillOp) -> None:
    """Puts what is fused in the place of an operation, and removes what nobody reads any more."""
    rewriter.replace(op, fused)
    for unread in (producer, producer.outputs[0].owner):
        if isinstance(unread, Operation) and not any(result.uses for result in unread.results):
            rewriter.erase(unread)


def _is_elementwise(op: GenericOp) -> bool:
    """Whether an operation makes a new tensor, element by element in the order of its loops."""
    own = op.indexing_maps.data[-1].data
    parallel = all(kind == IteratorTypeAttr.parallel() for kind in op.iterator_types)
    return parallel and own == own.identity(own.num_dims) and isinstance(op.outputs[0].owner, tensor.EmptyOp)


def _fused(op: GenericOp, number: int, producer: GenericOp) -> GenericOp:
    """An operation on what a producer makes input `number` of; the bodies of both move into its own."""
    count, inner = len(producer.inputs), producer.body.block
    inputs, maps, kinds = list(op.inputs), list(op.indexing_maps.data), list(op.body.block.arg_types)
    inputs[number : number + 1] = producer.inputs
    maps[number : number + 1] = producer.indexing_maps.data[:count]
    kinds[number : number + 1] = [argument.type for argument in inner.args[:count]]
    block = Block(arg_types=kinds)
    first, second = block.args[:number], block.args[number + count :]
    Rewriter.inline_block(inner, InsertPoint.at_end(block), (*block.args[number : number + count], second[-1]))
    end = cast("YieldOp", block.last_op)
    element = end.operands[0]
    Rewriter.erase_op(end)
    Rewriter.inline_block(op.body.block, InsertPoint.at_end(block), (*first, element, *second))
    return type(op)(inputs, op.outputs, Region(block), maps, op.iterator_types, op.result_types)


def _with_constant(op: GenericOp, number: int, constant: ConstantOp) -> GenericOp:
    """An operation whose input `number` is a constant in its body."""
    inputs, maps, kinds = list(op.inputs), list(op.indexing_maps.data), list(op.body.block.arg_types)
    for each in (inputs, maps, kinds):
        del each[number]
    block = Block(arg_types=kinds)
    inside = constant.clone()
    block.add_op(inside)
    arguments = (*block.args[:number], inside.result, *block.args[number:])
    Rewriter.inline_block(op.body.block, InsertPoint.at_end(block), arguments)
    return type(op)(inputs, op.outputs, Region(block), maps, op.iterator_types, op.result_types)


def fuse_elementwise(module: ModuleOp) -> None:
    """Applies the pattern to a module, in place."""
    PatternRewriteWalker(ComputeWhereRead()).rewrite_module(module)
