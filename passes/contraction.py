"""Which `linalg.generic` is a product of matrices, and which of its loops are which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir.affine import AffineDimExpr, AffineMap

from ..dialect.linalg.body import Factor, factors
from ..dialect.warp.matmul import loops_of
from .diagnostics import fail


@dataclass(frozen=True)
class Contraction:
    """C += A * B over loops in the order batch, m, n, k. `inputs` are the numbers of A and B among the inputs, `maps`
    those of A, B and C, and `unsigned` says whose integers are extended with zeros."""

    inputs: tuple[int, int]
    maps: tuple[AffineMap, AffineMap, AffineMap]
    unsigned: tuple[bool, bool]


def sums(op: GenericOp) -> bool:
    """Whether an operation adds anything up: whether it has a loop that is no loop of its result."""
    return any(kind.data == IteratorType.REDUCTION for kind in op.iterator_types)


def read(op: GenericOp) -> Contraction:
    """The product that an operation with a sum is.

    A is the factor whose own loop comes first in C. Of several loops of A and C alone the last one in C is m, and the
    others belong to a batch over which B is the same; so for n.

    Raises a located diagnostic saying why it is none.
    """
    found, maps = factors(op.body.block), [attribute.data for attribute in op.indexing_maps]
    if found is None or {f.argument for f in found} != {0, 1} or len(op.inputs) != 2 or len(op.outputs) != 1:
        _refuse(op, "its body does not add the product of its two inputs to its output")
    loops = [_loops(op, map_) for map_ in maps]
    sides = [_Side(factor, loops[factor.argument]) for factor in found]
    order, (a, b) = _order(op, sides, loops[-1])
    map_a, map_b, map_c = (_renamed(names, order) for names in (a.loops, b.loops, loops[-1]))
    return Contraction(
        (a.factor.argument, b.factor.argument), (map_a, map_b, map_c), (a.factor.unsigned, b.factor.unsigned)
    )


@dataclass(frozen=True)
class _Side:
    factor: Factor
    loops: tuple[int, ...]


def _order(op: GenericOp, sides: Sequence[_Side], c: tuple[int, ...]) -> tuple[list[int], tuple[_Side, _Side]]:
    """The loops in the order batch, m, n, k; and the sides as A and B."""
    first, second = sides
    summed = [loop for loop in first.loops if loop not in c]
    if len(summed) != 1 or any(loop not in (*c, *summed) for loop in second.loops) or summed[0] not in second.loops:
        _refuse(op, "expected both inputs to share one loop, besides those of the output, that is summed over")
    own = {
        side: [loop for loop in c if loop in side.loops and loop not in other.loops]
        for side, other in ((first, second), (second, first))
    }
    for side in sides:
        if not own[side]:
            number = side.factor.argument
            _refuse(op, f"expected a loop of the output along input {number} and not along input {1 - number}")
    if any(loop not in (*first.loops, *second.loops) for loop in c):
        _refuse(op, "expected every loop of the output along an input")
    a, b = sorted((first, second), key=lambda side: c.index(own[side][-1]))
    m, n = own[a][-1], own[b][-1]
    return [*(loop for loop in c if loop not in (m, n)), m, n, summed[0]], (a, b)


def _loops(op: GenericOp, map_: AffineMap) -> tuple[int, ...]:
    found = loops_of(map_)
    if -1 in found or len(set(found)) != len(found):
        _refuse(op, f"expected every dimension to run along a loop of its own, got {map_}")
    return found


def _renamed(loops: Sequence[int], order: Sequence[int]) -> AffineMap:
    return AffineMap(len(order), 0, tuple(AffineDimExpr(order.index(loop)) for loop in loops))


def _refuse(op: GenericOp, why: str) -> NoReturn:
    fail(op, f"linalg.generic sums, but is no product of matrices: {why}")
