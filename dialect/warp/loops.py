"""The loops of a product, m, n and k by number, and which of them the dimensions of its operands run along."""

from __future__ import annotations

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.utils.exceptions import VerifyException

from .attributes import memory_of

M, N, K = 0, 1, 2
"""The loops of a product, by number."""

OPERAND_LOOPS = ((M, K), (K, N), (M, N))
"""The loops that the rows and the columns of A, B, and C or D run along, when nothing is transposed; the loops of a
batch come before these, and behind those of a batch the ones that are summed over beside k."""

DEFAULT_MAPS = tuple(AffineMap(3, 0, tuple(map(AffineDimExpr, loops))) for loops in OPERAND_LOOPS)


def shape_of(operand: SSAValue) -> tuple[int, ...]:
    """The shape of memory; none of a number."""
    return memory_of(operand).get_shape() if isinstance(operand.type, MemRefType) else ()


def element_type(operand: SSAValue) -> Attribute:
    """The type of the elements of memory, or of a number."""
    return memory_of(operand).element_type if isinstance(operand.type, MemRefType) else operand.type


def loops_of(map_: AffineMap) -> tuple[int, ...]:
    """The loops that a map's results run along; -1 for anything but a loop alone."""
    return tuple(e.position if isinstance(e, AffineDimExpr) else -1 for e in map_.results)


def scale_map(map_: AffineMap, own: int, outer: int) -> AffineMap:
    """The loops that the dimensions of the scales of A or B, of this map, run along, those of the blocks as k."""
    before = [loop for loop in loops_of(map_) if loop < outer]
    return AffineMap(map_.num_dims, 0, tuple(map(AffineDimExpr, (*before, outer + own, outer + K))))


def verify_map(name: str, loops: tuple[int, int], map_: AffineMap, outer: int, batch: int) -> None:
    """Checks the map of an operand that runs along two loops of the product, behind `outer` others, of which the first
    are those of a `batch`, and D runs along no other.

    Raises:
        VerifyException: if it runs along others, or twice along one; or if A or B does not along one that is summed.
    """
    found, own = loops_of(map_), [outer + loop for loop in loops]
    before = [loop for loop in found if 0 <= loop < outer]
    wrong = map_.num_dims != outer + len(OPERAND_LOOPS) or map_.num_symbols or outer < 0
    if wrong or sorted(set(found)) != sorted([*before, *own]) or len(set(found)) != len(found):
        raise VerifyException(f"expected {name} to be indexed by d{own[0]} and d{own[1]}, got {map_}")
    if name == "D" and sorted(before) != list(range(batch)):
        raise VerifyException(f"expected D to be indexed by the first loops, those of the batch, got {map_}")
    if name != "D" and (missing := set(range(batch, outer)).difference(before)):
        raise VerifyException(f"expected {name} to be indexed by d{min(missing)}, which D is not, got {map_}")
