"""Loops of attentions: heads that share K and V become the rows of one tile, parts of columns a loop of the batch."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import Rewriter

from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.warp.attention import AttentionOp, E, M
from ...dialect.warp.attributes import in_place_of, memory_of
from ...dialect.warp.elements import IndexOp, PointwiseOp
from ...dialect.warp.operands import drop_forms
from ...dialect.warp.views import PagedOp, strides_of
from .operand import expand


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
        _renumber(op, op.matrices, maps, order, rewriter)


class SplitValues(RewritePattern):
    """Makes a loop of the batch over parts of V's columns, and of O's, where a lane has no registers for all of them.

    K and V of one latent matrix are 576 and 512 columns: the CTAs of both parts multiply Q and K.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AttentionOp, rewriter: PatternRewriter) -> None:
        columns, last = op.sizes[op.batch + E], op.batch + E
        parts = -(-columns // MOST_TOGETHER)
        along = () if op.function is None else (loop for _, map_ in op.function.placed for loop in loops_of(map_))
        if op.tile or parts < 2 or columns % parts or op.lse is not None or isinstance(op.v.owner, PagedOp):
            return
        if last in along or not all(strides_of(memory_of(value)) for value in (op.v, op.o)):
            return
        order = [*range(op.batch), *range(op.batch + 1, last + 2)]

        def moved(map_: AffineMap) -> AffineMap:
            return map_along(len(order) + 1, (order[loop] for loop in loops_of(map_)))

        matrices, maps = list(op.matrices), list(map(moved, op.maps))
        for number in (2, 3):
            loops, shape = loops_of(op.maps[number]), memory_of(matrices[number]).get_shape()
            sizes = [
                [parts, size // parts] if loop == last else [size] for loop, size in zip(loops, shape, strict=True)
            ]
            matrices[number] = rewriter.insert(expand(matrices[number], sizes)).result
            at, places = loops.index(last), list(loops_of(maps[number]))
            maps[number] = map_along(len(order) + 1, (*places[:at], op.batch, *places[at:]))
        _renumber(op, matrices, maps, order, rewriter)


MOST_TOGETHER = 256
"""Columns of V that a kernel multiplies together."""


def _renumber(
    op: AttentionOp, matrices: Sequence[SSAValue], maps: Sequence[AffineMap], order: Sequence[int],
    rewriter: PatternRewriter,
) -> None:  # fmt: skip
    """Replaces an attention by one of these matrices, whose loops have other numbers: `order` has that of each."""

    def moved(value: SSAValue, map_: AffineMap) -> tuple[SSAValue, AffineMap]:
        return value, map_along(maps[0].num_dims, (order[loop] for loop in loops_of(map_)))

    score, through = (
        None if function is None else rewriter.insert(_exchanged(function, order)).function
        for function in (op.score, op.function)
    )
    keys, sinks_map = op.keys, op.sinks_map
    new = AttentionOp(
        *(matrices, maps),
        scale=op.scale.value.data,
        keys=keys._replace(
            lengths=None if keys.lengths is None else moved(*keys.lengths),
            documents=tuple(moved(*each) for each in keys.documents),
        ),
        scores=score,
        through=through,
        sinks=None if op.sinks is None or sinks_map is None else moved(op.sinks, sinks_map.data),
    )
    rewriter.replace(op, in_place_of(op, new))
    drop_forms([value for value in (op.scores, op.through) if value is not None])


def _exchanged(score: PointwiseOp, order: Sequence[int]) -> PointwiseOp:
    """A function of elements whose loops have other numbers."""
    body = score.body.clone()
    for index in [op for op in body.block.ops if isinstance(op, IndexOp)]:
        Rewriter.replace_op(index, IndexOp(order[index.number]))
    loops = max(order) + 1
    placed = [(value, map_along(loops, (order[loop] for loop in loops_of(map_)))) for value, map_ in score.placed]
    return PointwiseOp(placed, body)
