"""`warp-expand`: where the groups of rows are found that tiles are of."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects import arith
from xdsl.pattern_rewriter import PatternRewriter

from ...dialect.warp.attributes import memory_of
from ...dialect.warp.operands import FindGroupOp
from ..patterns import IndexBuilder, PatternPass, rewrite_pattern
from .operands import group_end


@rewrite_pattern
def expand_find_group(op: FindGroupOp, rewriter: PatternRewriter) -> None:
    """`warp.find_group`: a loop over the ends of groups that counts their tiles."""
    index, count, rows = IndexBuilder(rewriter), memory_of(op.ends).get_shape()[0], op.rows.value.data
    down = index.value(index.div(op.tile, index.folded(op.across)))
    with index.loop(0, count, 1, index.values([0] * 4)) as turn:
        inside, number, (begin, tiles, group, first) = turn.index, turn.counter, turn.carried
        end = group_end(inside, op.ends, number)
        here = inside.compare("ule", tiles, down)
        pairs = (number, group), (tiles, first)
        group, first = (inside.insert(arith.SelectOp(here, *pair)).result for pair in pairs)
        following = inside.add(tiles, inside.ceildiv(inside.sub(end, begin), rows))
        turn.handed = inside.values([end, following, group, first])
    _, tiles, group, first = turn.results
    beyond, pairs = index.compare("ule", tiles, down), ((index.value(count), group), (tiles, first))
    group, first = (index.insert(arith.SelectOp(beyond, *pair)).result for pair in pairs)
    rewriter.replace(op, [], [group, index.value(index.mul(first, index.folded(op.across)))])


class ExpandPass(PatternPass):
    """Expands `warp.find_group`, which finds the group of the rows of a tile, to a loop over the ends of groups."""

    name = "warp-expand"
    needs: ClassVar = (FindGroupOp.name,)
    patterns = (expand_find_group,)
