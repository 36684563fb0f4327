"""The loops of a product, m, n and k by number, and which of them the dimensions of operands run along."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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


def map_along(loops: int, along: Iterable[int]) -> AffineMap:
    """A map of so many loops, each of whose results is one of them."""
    return AffineMap(loops, 0, tuple(map(AffineDimExpr, along)))


class LoopSizes:
    """The sizes of loops, as the operands tell them that run along these; -1 for those that no operand knows.

    `names` are those of loops in errors, where they are not d0, d1 and so on.
    """

    def __init__(self, names: Mapping[int, str] | None = None) -> None:
        self._names, self._known = names or {}, dict[int, tuple[str, int]]()

    def add(self, name: str, operand: SSAValue, along: Sequence[int], shape: Sequence[int] | None = None) -> None:
        """An operand whose dimensions, or those of the `shape` that it stands for, run along loops.

        Raises:
            VerifyException: if there are more or fewer dimensions, or another operand knows another size of a loop.
        """
        sizes = shape_of(operand) if shape is None else shape
        if len(sizes) != len(along):
            raise VerifyException(f"expected {name} of rank {len(along)}, got {operand.type}")
        for loop, size in zip(along, sizes, strict=True):
            other, known = self._known.get(loop, (name, -1))
            if known != size and min(known, size) >= 0:
                axis = self._names.get(loop, f"d{loop}")
                raise VerifyException(f"expected {other} and {name} to agree on {axis}, got {known} and {size}")
            if known < 0:
                self._known[loop] = name, size

    def __getitem__(self, loop: int) -> int:
        return self._known[loop][1]


def verify_along(name: str, map_: AffineMap, loops: int, along: Sequence[int]) -> None:
    """Checks the map of an operand that runs along some of these loops, of so many.

    Raises:
        VerifyException: if it runs along others, or twice along one.
    """
    found = loops_of(map_)
    if map_.num_dims != loops or len(set(found)) != len(found) or not set(found) <= set(along):
        listed = ", ".join(f"d{loop}" for loop in sorted(along))
        listed += ", each once" * (len(set(found)) != len(found))
        raise VerifyException(f"expected {name} to be indexed by some of {listed}, got {map_}")


def loops_beside(map_: AffineMap, own: int, outer: int) -> tuple[int, ...]:
    """The loops that run along what is read beside A or B, of this map: those before m or n, their own one, and k."""
    return (*(loop for loop in loops_of(map_) if loop < outer), outer + own, outer + K)


def loops_around(
    name: str, loops: tuple[int, int], map_: AffineMap, outer: int, inner: int = len(OPERAND_LOOPS)
) -> list[int]:
    """The `outer` loops that an operand runs along, which runs along two of so many inner ones.

    Raises:
        VerifyException: if its map says otherwise, or it runs twice along a loop.
    """
    found, own = loops_of(map_), [outer + loop for loop in loops]
    around = [loop for loop in found if 0 <= loop < outer]
    wrong = map_.num_dims != outer + inner or map_.num_symbols or outer < 0
    if wrong or sorted(set(found)) != sorted([*around, *own]) or len(set(found)) != len(found):
        raise VerifyException(f"expected {name} to be indexed by d{own[0]} and d{own[1]}, got {map_}")
    return around


def verify_map(name: str, loops: tuple[int, int], map_: AffineMap, outer: int, batch: int) -> None:
    """Checks the map of an operand that runs along two loops of the product, behind `outer` others, of which the first
    are those of a `batch`, and D runs along no other.

    Raises:
        VerifyException: if it runs along others, or twice along one; or if A or B does not along one that is summed.
    """
    before = loops_around(name, loops, map_, outer)
    if name == "D" and sorted(before) != list(range(batch)):
        raise VerifyException(f"expected D to be indexed by the first loops, those of the batch, got {map_}")
    if name != "D" and (missing := set(range(batch, outer)).difference(before)):
        raise VerifyException(f"expected {name} to be indexed by d{min(missing)}, which D is not, got {map_}")
