"""Which operation that sums is a product of matrices, and which of its loops are which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.ir.affine import AffineDimExpr, AffineMap

from ...dialect.linalg.body import Factor, factors
from ...dialect.warp.loops import loops_of
from ..diagnostics import fail


@dataclass(frozen=True)
class Contraction:
    """C += A * B over loops in the order batch, m, n, k. `inputs` are the numbers of A and B among the inputs, `maps`
    those of A, B and C, and `unsigned` says whose integers are extended with zeros.

    Of a vector, maps have more results than it has dimensions: a loop of one turn that it lacks, m or n, comes first.
    """

    inputs: tuple[int, int]
    maps: tuple[AffineMap, AffineMap, AffineMap]
    unsigned: tuple[bool, bool]


def sums(op: LinalgStructuredOperation) -> bool:
    """Whether an operation adds anything up: whether it has a loop that is no loop of its result."""
    return any(kind.data == IteratorType.REDUCTION for kind in op.get_iterator_types())


def read(op: LinalgStructuredOperation) -> Contraction:
    """The product that an operation with a sum is.

    A is the factor whose own loop comes first in C. Of several loops of A and C alone the last one in C is m, and the
    others belong to a batch over which B is the same; so for n. A factor without a loop of its own is a vector, and A:
    a matrix of one row.

    Raises a located diagnostic saying why it is none.
    """
    found, maps = factors(op.body.block), [attribute.data for attribute in op.get_indexing_maps()]
    if found is None or {f.argument for f in found} != {0, 1} or len(op.inputs) != 2 or len(op.outputs) != 1:
        _refuse(op, "its body does not add the product of its two inputs to its output")
    loops = [_loops(op, map_) for map_ in maps]
    sides = [_Side(factor, loops[factor.argument]) for factor in found]
    (a, b), c, batch, own, k = _order(op, sides, loops[-1])
    # A loop that a vector lacks gets a number that no other loop has.
    m, n = (maps[-1].num_dims + place if loop is None else loop for place, loop in enumerate(own))
    order, added = [*batch, m, n, k], [loop for loop, known in zip((m, n), own, strict=True) if known is None]
    map_a, map_b, map_c = (
        _renamed([*(loop for loop in added if loop != other), *names], order)
        for names, other in ((a.loops, n), (b.loops, m), (c, None))
    )
    signs = a.factor.unsigned, b.factor.unsigned
    return Contraction((a.factor.argument, b.factor.argument), (map_a, map_b, map_c), signs)


@dataclass(frozen=True)
class _Side:
    factor: Factor
    loops: tuple[int, ...]


class _Order(NamedTuple):
    """The sides as A and B; the loops of C, of the batch, and m and n, None for a vector's; k."""

    sides: tuple[_Side, _Side]
    c: tuple[int, ...]
    batch: list[int]
    own: tuple[int | None, int | None]
    k: int


def _order(op: LinalgStructuredOperation, sides: Sequence[_Side], c: tuple[int, ...]) -> _Order:
    first, second = sides
    summed = [loop for loop in first.loops if loop not in c]
    if len(summed) != 1 or any(loop not in (*c, *summed) for loop in second.loops) or summed[0] not in second.loops:
        _refuse(op, "expected both inputs to share one loop, besides those of the output, that is summed over")
    if any(loop not in (*first.loops, *second.loops) for loop in c):
        _refuse(op, "expected every loop of the output along an input")
    own = {
        side.factor.argument: [loop for loop in c if loop in side.loops and loop not in other.loops]
        for side, other in ((first, second), (second, first))
    }

    def place(side: _Side) -> int:
        found = own[side.factor.argument]
        return c.index(found[-1]) if found else -1

    a, b = sorted((first, second), key=place)
    m, n = (own[side.factor.argument][-1] if own[side.factor.argument] else None for side in (a, b))
    return _Order((a, b), c, [loop for loop in c if loop not in (m, n)], (m, n), summed[0])


def _loops(op: LinalgStructuredOperation, map_: AffineMap) -> tuple[int, ...]:
    found = loops_of(map_)
    if -1 in found or len(set(found)) != len(found):
        _refuse(op, f"expected every dimension to run along a loop of its own, got {map_}")
    return found


def _renamed(loops: Sequence[int], order: Sequence[int]) -> AffineMap:
    return AffineMap(len(order), 0, tuple(AffineDimExpr(order.index(loop)) for loop in loops))


def _refuse(op: LinalgStructuredOperation, why: str) -> NoReturn:
    fail(op, f"{op.name} sums, but is no product of matrices: {why}")
