"""Elementwise operations of which one reads what another makes, and what that one reads too: one operation.

A front end writes `silu(x)` as `s = sigmoid(x)` and `x * s`. As one operation it reads `x` once, and where `x` is a
product's result it can be part of the product.
"""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from ...dialect.mlir.affine import is_plain
from ...dialect.nest import Nest, generic


class FuseDiamond(RewritePattern):
    """Puts the body of an elementwise operation into the only one that reads its result, if both read a tensor."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GenericOp, rewriter: PatternRewriter) -> None:
        while (number := next((n for n, value in enumerate(op.inputs) if _closes(op, value)), None)) is not None:
            made = _fused(op, number)
            rewriter.replace(op, made)
            op = made


def _closes(op: GenericOp, value: SSAValue) -> bool:
    """Whether a value is made by an elementwise operation for this one alone, of something that this one reads."""
    maker = value.owner
    if not isinstance(maker, GenericOp) or value.uses.get_length() != 1 or not isinstance(value.type, TensorType):
        return False
    nests = Nest.of(maker), Nest.of(op)
    plain = len(maker.results) == len(op.results) == 1 and all(n.is_elementwise and not n.indices for n in nests)
    reads_old = nests[0].writes[0].element.uses.get_length() > 0
    return plain and not reads_old and is_plain(nests[0].writes[0].map) and bool({*maker.inputs} & {*op.inputs})


def _fused(op: GenericOp, number: int) -> GenericOp:
    """The operation with what makes one of its inputs in its body; an input is read once."""
    maker = op.inputs[number].owner
    if not isinstance(maker, GenericOp):
        raise TypeError(f"expected a linalg.generic, got {op.inputs[number]}")
    inner, outer = Nest.of(maker), Nest.of(op)
    place = {loop: position for position, loop in enumerate(inner.writes[0].loops)}
    at = [outer.reads[number].map.results[place[loop]] for loop in range(inner.loops)]
    block = Block()
    read: dict[tuple[SSAValue, AffineMap], SSAValue] = {}

    def element(value: SSAValue, map_: AffineMap, kind: SSAValue) -> SSAValue:
        if (value, map_) not in read:
            read[value, map_] = block.insert_arg(kind.type, len(block.args))
        return read[value, map_]

    known: dict[SSAValue, SSAValue] = {}
    for access in inner.reads:
        map_ = access.map.replace_dims_and_symbols(at, [], outer.loops, 0)
        known[access.element] = element(access.value, map_, access.element)
    for n, access in enumerate(outer.reads):
        if n != number:
            known[access.element] = element(access.value, access.map, access.element)
    known[outer.writes[0].element] = block.insert_arg(outer.writes[0].element.type, len(block.args))
    for body in (inner.body, outer.body):
        for each in body.ops:
            if body is inner.body and each is body.last_op:
                known[outer.reads[number].element] = known.get(each.operands[0], each.operands[0])
            else:
                copy = each.clone(known)
                copy.location = each.location
                block.add_op(copy)
    maps = [map_ for _, map_ in read] + [outer.writes[0].map]
    return generic(op, [v for v, _ in read], list(op.outputs), Region(block), maps, results=list(op.result_types))
