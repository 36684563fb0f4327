"""Products on fragments with permuted indices: the instruction's rows and columns under other numbers.

A product is the same whatever its rows, its columns and the terms of its sums are called, as long as A, B and C agree.
So a fragment may hold, where the instruction has bit i of m, n or k, any other bit of it; and its base tile may be
several of the instruction's tiles, chosen by further bits, with numbers that interleave. For B of m16n8k32, 8 bits::

    r2 r3 c0 c1 c2 | r0 r1 r4           the instruction's tile, 32x8
    r2 r3 c1 c2 c3 | r0 r1 r4 c0        two of them, one of the even and one of the odd columns: 32x16

This lets memory be read in the pieces that it is good at: there a lane gets neighbours along n from one load, which go
to two tiles. An accumulator of the same columns, `c2 c3 r0 r1 r2 | c1 r3 c0`, then holds four neighbours per lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .layout import Bit, Layout


class Labels(NamedTuple):
    """Bit i of the instruction's row is bit `rows[i]` of the matrix's row; the same for columns."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]


def labels(layout: Layout, instruction: Layout) -> Labels | None:
    """How a fragment calls the instruction's rows and columns; None if it is not made of the instruction's tiles.

    Registers of a tile follow each other; the bits of the element that come after a tile's say which tile.
    """
    held = len(instruction.element)
    found: dict[str, dict[int, int]] = {"r": {}, "c": {}}
    if len(layout.element) < held or any(bit.axis not in found for bit in layout.element[held:]):
        return None
    theirs = (*instruction.lane, *instruction.element)
    for ours, bit in zip((*layout.lane, *layout.element[:held]), theirs, strict=True):
        if ours.axis != bit.axis or (bit.axis not in found and ours != bit):
            return None
        found.get(bit.axis, {})[bit.number] = ours.number
    rows, columns = (tuple(names[i] for i in range(len(names))) for names in found.values())
    return Labels(rows, columns)


def permuted(instruction: Layout, rows: Sequence[int], columns: Sequence[int], further: Sequence[Bit] = ()) -> Layout:
    """The base tile that calls bit i of the instruction's row `rows[i]`, and is made of the tiles that `further` names.

    Raises:
        ValueError: if a bit of the row or column is then carried twice or not at all.
    """
    names = {"r": rows, "c": columns}
    lane, element, warp = (
        tuple(Bit(bit.axis, names[bit.axis][bit.number]) if bit.axis in names else bit for bit in part)
        for part in (instruction.lane, instruction.element, instruction.warp)
    )
    return Layout(lane, (*element, *further), warp)


def origins(layout: Layout, instruction: Layout, tiles: tuple[int, int]) -> list[tuple[int, int]]:
    """(row, column) of the first element of each of the instruction's tiles, in the order of their registers.

    `tiles` is the fragment's size in base tiles, down and across.
    """
    first = 1 << len(instruction.element)
    inner = [layout.element_offset(element) for element in range(0, layout.elements, first)]
    down, across = tiles
    return [
        (i * layout.rows + row, j * layout.columns + column)
        for i in range(down)
        for j in range(across)
        for row, column in inner
    ]


def disagreement(name: str, axis: str, ours: Sequence[int], other: str, theirs: Sequence[int]) -> str | None:
    """What is wrong, in words, where two operands call the bits of a common axis differently."""
    if tuple(ours) == tuple(theirs):
        return None
    shown, expected = (" ".join(map(str, bits)) for bits in (ours, theirs))
    return (
        f"expected {name} and {other} to number {axis} alike: the instruction's bits of {axis} are bits {shown} in "
        f"{name} and {expected} in {other}"
    )
