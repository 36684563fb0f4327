"""What there is to draw of a layout: its cells, and what they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, Protocol

from .cells import Cell, Panel


class LayoutBit(Protocol):
    """A bit of a layout: bit `number` of the place along an axis."""

    @property
    def axis(self) -> str: ...

    @property
    def number(self) -> int: ...


class LaneLayout(Protocol):
    """A layout, as far as a picture asks."""

    @property
    def rows(self) -> Any: ...  # an int, which may be a cached property

    @property
    def columns(self) -> Any: ...

    @property
    def element(self) -> Sequence[LayoutBit]: ...

    def extent(self, axis: str) -> int: ...

    def find(self, **coordinates: int) -> tuple[int, int]: ...


Label = Callable[[int, int], str]
"""From the number of the first element and how many there are to the part of a label after the lane."""


def elements(letter: str) -> Label:
    def label(first: int, count: int) -> str:
        if count == 1:
            return f"{letter}{first}"
        between = "," if count == 2 else ".."
        return f"{{{letter}{first}{between}{letter}{first + count - 1}}}"

    return label


def panels(layout: LaneLayout, label: Label, axes: dict[str, str], fixed: Sequence[str] = ()) -> tuple[Panel, ...]:
    """A panel for each value on the axes named; others but row and column stay at 0."""
    used = [axis for axis in axes if layout.extent(axis) > 1 and axis not in fixed]
    return tuple(
        Panel(
            ", ".join(f"{axes[axis]} {value}" for axis, value in zip(used, values, strict=True)),
            layout.rows,
            layout.columns,
            tuple(cells(layout, label, dict(zip(used, values, strict=True)))),
        )
        for values in product(*(range(layout.extent(axis)) for axis in used))
    )


def cells(layout: LaneLayout, label: Label, at: dict[str, int]) -> Iterator[Cell]:
    """Elements that follow each other in a lane and in the matrix are one cell."""
    axis = layout.element[0].axis if layout.element else "r"
    together = 1
    while axis in "rc" and layout.element[together.bit_length() - 1 :][:1] == (_bit(layout, axis, together),):
        together *= 2
    height, width = (together, 1) if axis == "r" else (1, together)
    for r, c in product(range(0, layout.rows, height), range(0, layout.columns, width)):
        lane, first = layout.find(r=r, c=c, **at)
        yield Cell(r, c, height, width, lane, f"T{lane}:{label(first, together)}")


def _bit(layout: LaneLayout, axis: str, together: int) -> object:
    """The bit that makes twice as many elements follow each other."""
    number = together.bit_length() - 1
    return next((bit for bit in layout.element if (bit.axis, bit.number) == (axis, number)), None)
