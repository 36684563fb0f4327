"""Attention of one query for each head: heads that share K and V become the rows of one tile."""

from __future__ import annotations

from collections.abc import Sequence

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

    A diagonal would be of queries, as numbers of documents are: they stay as they are, and so does their attention.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AttentionOp, rewriter: PatternRewriter) -> None:
        sizes, query = op.sizes, op.batch + M
        of_keys = {loop for map_ in op.maps[1:3] for loop in loops_of(map_)}
        heads = [loop for loop in range(op.batch) if loop not in of_keys and sizes[loop] > 1]
        if op.tile or sizes[query] != 1 or op.diagonal is not None or op.window is not None or not heads:
            return
        if op.lse is not None or op.documents:
            return
        head = max(heads, key=sizes.__getitem__)
        order = list(range(op.maps[0].num_dims))
        order[head], order[query] = query, head
        maps = [map_along(len(order), (order[loop] for loop in loops_of(map_))) for map_ in op.maps]
        score, through = (
            None if function is None else rewriter.insert(_exchanged(function, order)).function
            for function in (op.score, op.function)
        )

        def exchanged(along: AffineMap) -> AffineMap:
            return map_along(len(order), (order[loop] for loop in loops_of(along)))

        keys = (
            op.keys
            if op.keys.lengths is None
            else op.keys._replace(lengths=(op.keys.lengths[0], exchanged(op.keys.lengths[1])))
        )
        sinks = None
        if op.sinks is not None and op.sinks_map is not None:
            sinks = op.sinks, exchanged(op.sinks_map.data)
        new = AttentionOp(
            *(op.matrices, maps),
            scale=op.scale.value.data,
            keys=keys,
            scores=score,
            through=through,
            sinks=sinks,
        )
        rewriter.replace(op, in_place_of(op, new))
        drop_forms([value for value in (op.scores, op.through) if value is not None])


def _exchanged(score: PointwiseOp, order: Sequence[int]) -> PointwiseOp:
    """A function of elements whose loops have other numbers."""
    body = score.body.clone()
    for index in [op for op in body.block.ops if isinstance(op, IndexOp)]:
        Rewriter.replace_op(index, IndexOp(order[index.number]))
    placed = [(value, map_along(len(order), (order[loop] for loop in loops_of(map_)))) for value, map_ in score.placed]
    return PointwiseOp(placed, body)
