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
batch come before these."""

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


def scale_map(map_: AffineMap, own: int, batch: int) -> AffineMap:
    """The loops that the dimensions of the scales of A or B, of this map, run along, those of the blocks as k."""
    outer = [loop for loop in loops_of(map_) if loop < batch]
    return AffineMap(map_.num_dims, 0, tuple(map(AffineDimExpr, (*outer, batch + own, batch + K))))


def verify_map(name: str, loops: tuple[int, int], map_: AffineMap, batch: int) -> None:
    """Checks the map of an operand that runs along two loops of the product, behind those of a batch.

    Raises:
        VerifyException: if it runs along others, or twice along one.
    """
    found, own = loops_of(map_), [batch + loop for loop in loops]
    before = [loop for loop in found if 0 <= loop < batch]
    wrong = map_.num_dims != batch + len(OPERAND_LOOPS) or map_.num_symbols or batch < 0
    if wrong or sorted(set(found)) != sorted([*before, *own]) or len(set(found)) != len(found):
        raise VerifyException(f"expected {name} to be indexed by d{own[0]} and d{own[1]}, got {map_}")
    if name == "D" and len(before) != batch:
        raise VerifyException(f"expected D to be indexed by every loop of the batch, got {map_}")
