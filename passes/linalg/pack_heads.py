"""Attention of one query for each head: heads that share K and V become the rows of one tile."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import AffineMapAttr
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import Rewriter

from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.warp.attention import AttentionOp, M
from ...dialect.warp.attributes import in_place_of
from ...dialect.warp.elements import IndexOp, PointwiseOp
from ...dialect.warp.operands import drop_forms


class PackHeads(RewritePattern):
    """Exchanges the loop over the only query of an attention with the longest one over heads that share K and V.

    A diagonal would be of queries: it stays as it is, and so does its attention.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AttentionOp, rewriter: PatternRewriter) -> None:
        sizes, query = op.sizes, op.batch + M
        of_keys = {loop for map_ in op.maps[1:3] for loop in loops_of(map_)}
        heads = [loop for loop in range(op.batch) if loop not in of_keys and sizes[loop] > 1]
        if op.tile or sizes[query] != 1 or op.diagonal is not None or op.window is not None or not heads:
            return
        if op.lse is not None:
            return
        head = max(heads, key=sizes.__getitem__)
        order = list(range(op.maps[0].num_dims))
        order[head], order[query] = query, head
        maps = [map_along(len(order), (order[loop] for loop in loops_of(map_))) for map_ in op.maps]
        score = None if op.score is None else rewriter.insert(_exchanged(op.score, order)).function

        def exchanged(memory: SSAValue | None, along: AffineMapAttr | None) -> tuple[SSAValue, AffineMap] | None:
            if memory is None or along is None:
                return None
            return memory, map_along(len(order), (order[loop] for loop in loops_of(along.data)))

        keys = op.keys._replace(lengths=exchanged(op.lengths, op.lengths_map))
        sinks = exchanged(op.sinks, op.sinks_map)
        new = AttentionOp(op.matrices, maps, scale=op.scale.value.data, keys=keys, scores=score, sinks=sinks)
        rewriter.replace(op, in_place_of(op, new))
        drop_forms([value for value in (op.scores,) if value is not None])


def _exchanged(score: PointwiseOp, order: Sequence[int]) -> PointwiseOp:
    """A function on scores whose loops have other numbers."""
    body = score.body.clone()
    for index in [op for op in body.block.ops if isinstance(op, IndexOp)]:
        Rewriter.replace_op(index, IndexOp(order[index.number]))
    placed = [(value, map_along(len(order), (order[loop] for loop in loops_of(map_)))) for value, map_ in score.placed]
    return PointwiseOp(placed, body)
