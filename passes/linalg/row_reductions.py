"""What reductions along rows need of the elements: once, in which order, or one element alone."""

from __future__ import annotations

from functools import partial

from xdsl.dialects import arith
from xdsl.dialects import math as math_dialect
from xdsl.ir import Operation, SSAValue

from ...dialect.warp.elements import IndexOp
from ...dialect.warp.fragments import Kind, ReduceOp
from ...dialect.warp.rows import RowsOp
from ..patterns import computed_from, constant_value, float_value

HELD = 32
"""Elements of a row that a lane holds, where a row is longer than a warp holds of them: f32, beside those of 16 bits
that they are loaded as."""

ONCE_WARPS, MAX_WARPS = 4096, 32
"""Warps that rows are spread over at least which are read once, by a loop, as no element of them is stored, if a CTA
has so many for a row (H200, cross entropy by hand, copy 33.6 us: rows of 4096 by 1, 2 and 4 warps 33.8, 34.3 and 36.1,
of 65536 by 4, 8 and 32 34.8, 34.2 and 45.8)."""

needed = partial(computed_from, until=(ReduceOp,))
"""All values from which values are computed, up to results of reductions along rows."""


def least_warps(rows: int) -> int:
    """The warps that share a row that is read once."""
    return min(MAX_WARPS, 1 << (-(-ONCE_WARPS // rows) - 1).bit_length())


def is_sum_below(op: Operation | None, largest: ReduceOp) -> bool:
    """Whether a reduction is the sum of exponentials of differences from the largest element, whose logarithm is used:
    warps add up their own, below their own largest element, and scale it when they know that of the row."""
    exp = op.input.owner if isinstance(op, ReduceOp) and op.kind.data == Kind.Add else None
    less = exp.operands[0].owner if isinstance(exp, math_dialect.ExpOp) and is_in_logarithm(exp) else None
    largest_of = isinstance(less, arith.SubfOp) and (less.lhs, less.rhs) == (largest.input, largest.result)
    return largest_of and largest.kind.data in (Kind.Max, Kind.Maximum) and not shows_its_start(largest)


def shows_its_start(op: ReduceOp) -> bool:
    """Whether the result of a reduction that ignores NaN can show its start value, which it has if all elements are
    NaN. It cannot if it is only subtracted from these elements: the differences are NaN in any case."""
    users = [use.operation for use in op.result.uses]
    less = all(isinstance(o, arith.SubfOp) and (o.lhs, o.rhs) == (op.input, op.result) for o in users)
    return op.kind.data in (Kind.Max, Kind.Min) and not less


def place_of_sum(op: ReduceOp, along: int) -> SSAValue | None:
    """The place of the only element that is not zero in a sum, where the index along a row is compared for it."""
    chosen = op.input.owner if op.kind.data == Kind.Add else None
    if not isinstance(chosen, arith.SelectOp) or float_value(chosen.rhs) != 0:
        return None
    same = _plain(chosen.cond).owner
    at = _plain(same.lhs).owner if isinstance(same, arith.CmpiOp) and same.predicate.value.data == EQUAL else None
    return same.rhs if isinstance(same, arith.CmpiOp) and isinstance(at, IndexOp) and at.number == along else None


EQUAL, DIFFERENT = 0, 1
"""Predicates of `arith.cmpi`."""


def _plain(value: SSAValue) -> SSAValue:
    """What a product with one, a sum with zero, or the condition that an extended condition is not zero, is."""
    op = value.owner
    if isinstance(op, arith.MuliOp | arith.AddiOp) and constant_value(op.rhs) == isinstance(op, arith.MuliOp):
        return _plain(op.lhs)
    if isinstance(op, arith.ExtSIOp):
        return _plain(op.input)
    if isinstance(op, arith.CmpiOp) and isinstance(op.lhs.owner, arith.ExtUIOp) and constant_value(op.rhs) == 0:
        return _plain(op.lhs.owner.input) if op.predicate.value.data == DIFFERENT else value
    return value


def is_in_logarithm(op: math_dialect.ExpOp) -> bool:
    """Whether only the logarithm of its sum along the row is used."""
    sums = [use.operation for use in op.result.uses]
    return all(
        isinstance(total, ReduceOp)
        and total.kind.data == Kind.Add
        and all(isinstance(use.operation, math_dialect.LogOp) for use in total.result.uses)
        for total in sums
    )


def reads_once(op: RowsOp) -> bool:
    """Whether one loop along rows makes all reductions, beside sums of one element, and nothing else needs elements."""
    every = [inner for inner in op.body.block.ops if isinstance(inner, ReduceOp)]
    own = [each for each in every if place_of_sum(each, op.loops - 1) is None]
    below = len(own) > 1 and is_sum_below(own[1], own[0]) and own == own[:2]
    apart = not any(isinstance(value.owner, ReduceOp) for value in needed(each.input for each in own))
    return bool(own) and (below or apart) and all(map(op.is_of_rows, range(len(op.outputs))))
