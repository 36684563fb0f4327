"""The instruction of `warp.wgmma`: found by the types of its operands and N, and how its rows may be numbered.

Source: PTX ISA 9.7.15.5 and 9.7.15.6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from xdsl.utils.exceptions import VerifyException

from ..isa.descriptor import UNIT
from ..isa.types import ElementType
from ..isa.wgmma import Wgmma, rows
from ..layouts.layout import Layout


@cache
def _by_types(sparse: bool) -> Mapping[tuple[str, str, str, bool], dict[int, Wgmma]]:
    """The rows of a dense or a sparse A by the types of A, B and D and by `.satfinite`, then by N."""
    found: dict[tuple[str, str, str, bool], dict[int, Wgmma]] = {}
    for row in rows():
        if (row.granularity is not None) == sparse and row.a.bits >= UNIT // 2:
            found.setdefault((row.a.name, row.b.name, row.d.name, row.satfinite), {})[row.shape.n] = row
    return found


def find_row(
    a: ElementType, b: ElementType, d: ElementType, n: int, *, satfinite: bool = False, sparse: bool = False
) -> Wgmma:
    """The row that multiplies such elements to `n` columns.

    Raises:
        VerifyException: if there is none, with the types or the N that come nearest.
    """
    by_types = _by_types(sparse)
    by_n = by_types.get((a.name, b.name, d.name, satfinite))
    if by_n is None:
        known = dict.fromkeys(f"{x} x {y} -> {z}" for x, y, z, _ in by_types if a.name in (x, y) or b.name in (x, y))
        asked = f"{a.name} x {b.name} -> {d.name}{' with satfinite' if satfinite else ''}"
        raise VerifyException(f"no wgmma multiplies {asked}; there are {', '.join(known) or 'none of these'}")
    if n not in by_n:
        near = sorted(sorted(by_n, key=lambda known: abs(known - n))[:2])
        raise VerifyException(
            f"wgmma of {a.name} x {b.name} -> {d.name} has no N of {n}; the nearest are {' and '.join(map(str, near))}"
        )
    return by_n[n]


def numbered(layout: Layout, numbers: Sequence[int]) -> Layout:
    """A layout of the instruction whose row bit i is bit `numbers[i]` of the matrix's row.

    A product is the same whatever its rows are called, as long as A and D agree.
    """
    parts = (layout.lane, layout.element, layout.warp)
    return Layout(*(tuple(b._replace(number=numbers[b.number]) if b.axis == "r" else b for b in p) for p in parts))


def row_numbers(layout: Layout, instruction: Layout) -> tuple[int, ...] | None:
    """The numbers with which the instruction's layout is this one; None if it is with none."""
    found: dict[int, int] = {}
    for ours, theirs in zip(layout.bits, instruction.bits, strict=False):
        if theirs.axis == "r":
            found[theirs.number] = ours.number
    numbers = tuple(found[i] for i in sorted(found))
    whole = len(layout.bits) == len(instruction.bits) and sorted(numbers) == list(range(len(numbers)))
    return numbers if whole and numbered(instruction, numbers) == layout else None
