"""Algebra of fragment layouts: positions, inverses, composition, and what turns one fragment into another.

A layout is a linear map over F2 from a place in a warp, lane + 32 * element, to a place in the matrix,
row * columns + column (further axes above that), so its inverse takes the matrix back to the warp::

    compose(inverse(target), source)        where each element of a fragment must go to be the other fragment

`convert` answers with the ways to do that, cheapest first. An example: the accumulator of m16n8k16, two of them
side by side, is operand A of the next m16n8k16, element by element::

    >>> two = tiled(accumulator(16, 8), across=2)
    >>> print(convert(two, multiplicand(16, 16, 16), 16).best)
    the fragments are the same: no instruction

Source: "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2" (Zhou et al., 2025).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ..layouts import layout as bit_map
from ..layouts.layout import AXES, BitMap, Layout, column, row
from .search import ways
from .steps import LANE_BITS, Way

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ORDER = ("c", "r", *(axis for axis in AXES if axis not in "rc"))
"""The axes of a matrix place, lowest bits first."""

MAX_BITS = 64
"""The widest element."""


class LayoutMismatchError(ValueError):
    """Layouts of different matrices, or elements of a width that no register holds."""


class Conversion(NamedTuple):
    """What turns the fragment `source` into the fragment `target` of the same matrix: `ways`, cheapest first."""

    source: Layout
    target: Layout
    element_bits: int
    ways: tuple[Way, ...]

    @property
    def best(self) -> Way:
        """The cheapest way."""
        return self.ways[0]

    def __str__(self) -> str:
        lines = (f"{i}. {conversion}" for i, conversion in enumerate(self.ways, 1))
        return "\n".join((f"{self.source}  ->  {self.target}, {self.element_bits}-bit elements", *lines))


def matrix_map(layout: Layout | BitMap) -> BitMap:
    """The layout as a linear map from lane + 32 * element to row * columns + column."""
    if isinstance(layout, BitMap):
        return layout
    base: dict[str, int] = {}
    width = 0
    for axis in ORDER:
        base[axis] = width
        width += layout.extent(axis).bit_length() - 1
    bits = (*layout.lane, *layout.element)
    return BitMap(tuple(1 << base[bit.axis] + bit.number for bit in bits), width)


def positions(layout: Layout | BitMap) -> NDArray[np.intp]:
    """The place in the matrix, row * columns + column, of each element of each lane: an array (32, elements)."""
    return matrix_map(layout).values().reshape(-1, 1 << LANE_BITS).T


def inverse(layout: Layout | BitMap) -> BitMap:
    """The map from places of the matrix, row * columns + column, to lane + 32 * element.

    Raises:
        BitMapError: if the map is no bijection. Every `Layout` is one.
    """
    return bit_map.inverse(matrix_map(layout))


def compose(outer: Layout | BitMap, inner: Layout | BitMap) -> BitMap:
    """The map that applies `inner`, then `outer`.

    Raises:
        BitMapError: if what `inner` gives is not as wide as what `outer` takes.
    """
    return bit_map.compose(matrix_map(outer), matrix_map(inner))


def is_bijection(layout: Layout | BitMap) -> bool:
    """Whether each place of the matrix is held exactly once."""
    return bit_map.is_bijection(matrix_map(layout))


def tiled(layout: Layout, down: int = 1, across: int = 1) -> Layout:
    """The layout of a fragment of down x across tiles, each holding the next elements of a lane, row by row of tiles.

    Raises:
        LayoutMismatchError: if the numbers of tiles are not powers of two.
    """
    for count in (down, across):
        if count < 1 or count & count - 1:
            raise LayoutMismatchError(f"expected tiles by powers of two, got {down} down and {across} across")
    rows, columns = (extent.bit_length() - 1 for extent in (layout.rows, layout.columns))
    further = (
        *(column(columns + i) for i in range(across.bit_length() - 1)),
        *(row(rows + i) for i in range(down.bit_length() - 1)),
    )
    return Layout(layout.lane, (*layout.element, *further), layout.warp)


@cache
def convert(source: Layout, target: Layout, element_bits: int) -> Conversion:
    """The conversion of a fragment in the layout `source` to the layout `target` of the same matrix.

    `element_bits` is the width of an element in a register: 8 for 6-bit types that lie in bytes.

    Raises:
        LayoutMismatchError: for layouts of different matrices, or a width that is no power of two up to 64.
    """
    if element_bits not in (1 << i for i in range(MAX_BITS.bit_length())):
        raise LayoutMismatchError(f"expected elements of 1, 2, 4, 8, 16, 32 or 64 bits, got {element_bits}")
    if any(source.extent(axis) != target.extent(axis) for axis in AXES):
        raise LayoutMismatchError(f"expected two layouts of one matrix, got {_size(source)} and {_size(target)}")
    places = compose(inverse(target), source).places()
    if places is None:
        raise LayoutMismatchError(f"the layouts '{source}' and '{target}' do not carry the same bits")
    return Conversion(source, target, element_bits, ways(places, element_bits))


def _size(layout: Layout) -> str:
    further = (f", {layout.extent(axis)} by {name}" for axis, name in AXES.items()
               if axis not in "rc" and layout.extent(axis) > 1)  # fmt: skip
    return f"{layout.rows}x{layout.columns}" + "".join(further)
