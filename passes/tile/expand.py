"""`warp-expand`: where the groups of rows are found that tiles are of."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import Rewriter

from ...dialect.mlir.forall import WhileOp
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.operands import FindGroupOp
from ..patterns import Index, IndexBuilder, PatternPass, rewrite_pattern
from .operands import group_end

MANY_GROUPS = 32
"""Groups from which on a search goes on. H200, of the time by all ends: 128 groups 0.86 and 0.95, 64 0.98, 16 1.01, 8
1.00 to 1.015."""


@rewrite_pattern
def expand_find_group(op: FindGroupOp, rewriter: PatternRewriter) -> None:
    """`warp.find_group`: a loop over the ends of groups that counts their tiles. Of many groups, in a loop over tiles,
    it goes on from where it ended for the tile before, up to the tile's group."""
    index, around = IndexBuilder(rewriter), op.parent_op()
    down = index.value(index.div(op.tile, index.folded(op.across)))
    if isinstance(around, scf.ForOp) and memory_of(op.ends).get_shape()[0] > MANY_GROUPS:
        group, first = _group_from_last(op, around, index, down)
    else:
        group, first = _group_by_all(op, index, down)
    rewriter.replace(op, [], [group, index.value(index.mul(first, index.folded(op.across)))])


def _group_by_all(op: FindGroupOp, index: IndexBuilder, down: SSAValue) -> tuple[SSAValue, SSAValue]:
    count = memory_of(op.ends).get_shape()[0]
    with index.loop(0, count, 1, index.values([0] * 4)) as turn:
        inside, number, (begin, tiles, group, first) = turn.index, turn.counter, turn.carried
        end = group_end(inside, op.ends, number)
        here = inside.compare("ule", tiles, down)
        pairs = (number, group), (tiles, first)
        group, first = (inside.insert(arith.SelectOp(here, *pair)).result for pair in pairs)
        turn.handed = inside.values([end, _tiles_behind(op, inside, begin, end, tiles), group, first])
    _, tiles, group, first = turn.results
    beyond, pairs = index.compare("ule", tiles, down), ((index.value(count), group), (tiles, first))
    group, first = (index.insert(arith.SelectOp(beyond, *pair)).result for pair in pairs)
    return group, first


def _group_from_last(
    op: FindGroupOp, loop: scf.ForOp, index: IndexBuilder, down: SSAValue
) -> tuple[SSAValue, SSAValue]:
    """The loop over tiles carries the group, its first row, and the tiles before it. A tile before those is looked for
    from the first group on."""
    count, body, outside = memory_of(op.ends).get_shape()[0], loop.body.block, IndexBuilder(loop)
    carried = [body.insert_arg(IndexType(), len(body.args)) for _ in range(3)]
    before, zero = index.compare("ult", down, carried[2]), index.value(0)
    start = [index.insert(arith.SelectOp(before, zero, value)).result for value in carried]
    test, turn = (Block(arg_types=[IndexType()] * args) for args in (3, 5))
    inside, (group, begin, tiles) = index.within(test), test.args
    end = group_end(inside, op.ends, inside.value(inside.minimum(group, count - 1)))
    following = inside.value(_tiles_behind(op, inside, begin, end, tiles))
    goes_on = arith.AndIOp(inside.compare("ult", group, count), inside.compare("ule", following, down))
    inside.insert(scf.ConditionOp(inside.insert(goes_on).result, *test.args, end, following))
    inside = index.within(turn)
    inside.insert(scf.YieldOp(inside.value(inside.add(turn.args[0], 1)), *turn.args[3:]))
    place = index.insert(WhileOp(start, [arg.type for arg in turn.args], Region(test), Region(turn))).results[:3]
    if (last := body.last_op) is not None:
        Rewriter.replace_op(last, scf.YieldOp(*last.operands, *place))
    initial = [*loop.iter_args, *outside.values([0] * 3)]
    made = outside.insert(scf.ForOp(loop.lb, loop.ub, loop.step, initial, loop.detach_region(0)))
    Rewriter.replace_op(loop, [], made.results[:-3])
    return place[0], place[2]


def _tiles_behind(op: FindGroupOp, index: IndexBuilder, begin: Index, end: Index, tiles: Index) -> Index:
    """How many tiles there are up to the end of a group, of those before it."""
    return index.add(tiles, index.ceildiv(index.sub(end, begin), op.rows.value.data))


class ExpandPass(PatternPass):
    """Expands `warp.find_group`, which finds the group of the rows of a tile, to a loop over the ends of groups."""

    name = "warp-expand"
    needs: ClassVar = (FindGroupOp.name,)
    patterns = (expand_find_group,)
