"""The instruction of `warp.wgmma`: found by the types of its operands and N, and how its rows may be numbered.

Source: PTX ISA 9.7.15.5 and 9.7.15.6.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.utils.exceptions import VerifyException

from ..isa.form import having
from ..isa.types import ElementType
from ..isa.wgmma import Wgmma, rows
from ..layouts.layout import Layout
from ..layouts.permutation import permuted


def find_row(
    a: ElementType, b: ElementType, d: ElementType, n: int, *, satfinite: bool = False, sparse: bool = False
) -> Wgmma:
    """The row that multiplies such elements to `n` columns.

    Raises:
        VerifyException: if there is none, with the types or the N that come nearest.
    """
    some = having(rows, a=a, b=b, d=d, satfinite=satfinite, sparse=sparse, bit_op="")
    if not some:
        every = ((row, {row.a, row.b}) for row in having(rows, sparse=sparse, bit_op=""))
        known = dict.fromkeys(f"{r.a.name} x {r.b.name} -> {r.d.name}" for r, types in every if types & {a, b})
        asked = f"{a.name} x {b.name} -> {d.name}{' with satfinite' if satfinite else ''}"
        raise VerifyException(f"no wgmma multiplies {asked}; there are {', '.join(known) or 'none of these'}")
    nearest, *others = sorted(some, key=lambda row: abs(row.shape.n - n))
    if nearest.shape.n != n:
        near = sorted(row.shape.n for row in (nearest, *others[:1]))
        raise VerifyException(
            f"wgmma of {a.name} x {b.name} -> {d.name} has no N of {n}; the nearest are {' and '.join(map(str, near))}"
        )
    return nearest


def numbered(layout: Layout, numbers: Sequence[int]) -> Layout:
    """A layout of the instruction whose row bit i is bit `numbers[i]` of the matrix's row.

    A product is the same whatever its rows are called, as long as A and D agree.
    """
    return permuted(layout, numbers, range(layout.columns.bit_length() - 1))


def row_numbers(layout: Layout, instruction: Layout) -> tuple[int, ...] | None:
    """The numbers with which the instruction's layout is this one; None if it is with none."""
    found: dict[int, int] = {}
    for ours, theirs in zip(layout.bits, instruction.bits, strict=False):
        if theirs.axis == "r":
            found[theirs.number] = ours.number
    numbers = tuple(found[i] for i in sorted(found))
    whole = len(layout.bits) == len(instruction.bits) and sorted(numbers) == list(range(len(numbers)))
    return numbers if whole and numbered(instruction, numbers) == layout else None
