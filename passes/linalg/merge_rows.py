"""Two `warp.rows` that read the same elements become one, which reads them once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from ...dialect.mlir.affine import loops_of
from ...dialect.warp.elements import LoopSizes, YieldOp, all_yielded
from ...dialect.warp.rows import AcrossOp, RowsOp
from ..diagnostics import chose
from .element_expressions import touched
from .elementwise import known_view, may_share
from .operand import root

PASS = "warp-fuse-rows"


class MergeRows(RewritePattern):
    """Merges two row operations of the same shape into one, in the place of the second."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: RowsOp, rewriter: PatternRewriter) -> None:
        other, between = op.prev_op, list[Operation]()
        while other is not None and (touched(other) is not None):
            if isinstance(other, RowsOp) and _are_alike(other, op) and _may_move(other, between, op):
                chose(op, PASS, "rows that read the same elements are one kernel")
                rewriter.replace(op, _merged(other, op))
                rewriter.erase(other)
                return
            between.append(other)
            other = other.prev_op


def _sizes(op: RowsOp) -> tuple[int, ...]:
    sizes = LoopSizes()
    for value, map_ in zip(op.operands, op.maps, strict=True):
        sizes.add("", value, loops_of(map_)) if map_.results else None
    return tuple(sizes[loop] for loop in range(op.loops))


def _inputs(op: RowsOp) -> list[tuple[Hashable, AffineMap]]:
    """What is read: memory, and how."""
    return [(_identity(value), map_) for value, map_ in zip(op.inputs, op.maps, strict=False)]


def _identity(value: SSAValue) -> Hashable:
    """Views of the same elements are one thing."""
    view = None if root(value) is value else known_view(value)
    return value if view is None else (root(value), view, value.type)


def _are_alike(first: RowsOp, second: RowsOp) -> bool:
    """Whether two operations have the same rows, and share an input along them."""
    if first.loops != second.loops or _sizes(first) != _sizes(second) or min(_sizes(first)) < 0:
        return False
    along, reduce = first.loops - 1, [any(isinstance(o, AcrossOp) for o in r.body.block.ops) for r in (first, second)]
    shared = set(_inputs(first)) & set(_inputs(second))
    return reduce[0] == reduce[1] and any(along in loops_of(map_) for _, map_ in shared)


def _may_move(first: RowsOp, between: Sequence[Operation], second: RowsOp) -> bool:
    """Whether the first operation may be done at the place of the second, and with it."""
    reads, writes = set(map(root, first.inputs)), set(map(root, first.outputs))
    for op in between:
        other = touched(op)
        if other is None or other[1] & (reads | writes) or other[0] & writes:
            return False
    pairs = [(out, value) for out in first.outputs for value in second.operands]
    pairs += [(out, value) for out in second.outputs for value in first.inputs]
    return not any(root(a) is root(b) and may_share(a, b) for a, b in pairs)


def _merged(first: RowsOp, second: RowsOp) -> RowsOp:
    block, inputs = Block(), dict[Hashable, SSAValue]()
    values, maps = list[SSAValue](), list[AffineMap]()
    made = dict[Hashable, Sequence[SSAValue]]()
    results = list[SSAValue]()
    for op in (first, second):
        own = dict[SSAValue, SSAValue]()
        for key, argument, value in zip(_inputs(op), op.body.block.args, op.inputs, strict=True):
            if key not in inputs:
                inputs[key] = block.insert_arg(argument.type, len(block.args))
                values.append(value)
                maps.append(key[1])
            own[argument] = inputs[key]
        for inner in op.body.block.ops:
            if isinstance(inner, YieldOp):
                continue
            operands = tuple(own[operand] for operand in inner.operands)
            properties = tuple(sorted((name, str(value)) for name, value in inner.properties.items()))
            key = inner.name, operands, properties, tuple(inner.result_types)
            if key not in made:
                copy = inner.clone(own)
                block.add_op(copy)
                made[key] = copy.results
            own.update(zip(inner.results, made[key], strict=True))
        results += [own[value] for value in all_yielded(op.body)]
    block.add_op(YieldOp(*results))
    merged = RowsOp(values, [*first.outputs, *second.outputs], [*maps, *first.written, *second.written], Region(block))
    merged.location = second.location
    return merged
