"""Fragment layouts as linear maps over F2, what follows from them, and products with permuted indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Linear maps over F2: what layouts, swizzles and their compositions are.
#
# A map takes a number apart into bits, and sends the number to the xor of what its bits are sent to. It is given by
# the images of the single bits, so composing, inverting and asking whether two lanes can meet are linear algebra over
# a handful of bits, however large the matrix.


class BitMapError(ValueError):
    """Maps that cannot be combined, or that have no inverse; the message names them."""


@dataclass(frozen=True, slots=True)
class BitMap:
    """A linear map from numbers of `len(images)` bits to numbers of `width` bits: bit i is sent to `images[i]`. Raises
    BitMapError if an image does not fit `width` bits."""

    images: tuple[int, ...]
    width: int

    def __post_init__(self) -> None:
        for bit, image in enumerate(self.images):
            if not 0 <= image < 1 << self.width:
                raise BitMapError(f"bit {bit}: expected an image of {self.width} bits, got {image:#b}")

    @staticmethod
    def identity(width: int) -> BitMap:
        """The identity map."""
        return BitMap.permutation(range(width))

    @staticmethod
    def permutation(places: Iterable[int]) -> BitMap:
        """The map that sends bit i to bit `places[i]`. Raises BitMapError if a place is not there, or there twice."""
        places = tuple(places)
        if sorted(places) != list(range(len(places))):
            raise BitMapError(f"expected each of the bits 0 to {len(places) - 1} once, got {places}")
        return BitMap(tuple(1 << place for place in places), len(places))

    def __call__(self, argument: int) -> int:
        value = 0
        for i, image in enumerate(self.images):
            if argument >> i & 1:
                value ^= image
        return value

    @property
    def rank(self) -> int:
        """How many bits the images span: the map has 2^rank values."""
        return span(self.images)

    def values(self) -> NDArray[np.intp]:
        """All values, by argument: an array of 2^len(images) numbers."""
        import numpy as np

        values = np.zeros(1, np.intp)
        for image in self.images:
            values = np.concatenate([values, values ^ image])
        return values

    def places(self) -> tuple[int, ...] | None:
        """The output bit of each input bit; None if the map is no permutation of bits."""
        if len(self.images) != self.width or {*self.images} != {1 << i for i in range(self.width)}:
            return None
        return tuple(image.bit_length() - 1 for image in self.images)


def span(numbers: Iterable[int]) -> int:
    """How many of the numbers are independent: the dimension of what they span by xor."""
    basis: list[int] = []
    for number in numbers:
        rest = number
        for vector in basis:
            rest = min(rest, rest ^ vector)
        if rest:
            basis.append(rest)
    return len(basis)


def compose(outer: BitMap, inner: BitMap) -> BitMap:
    """The map that applies `inner`, then `outer`. Raises BitMapError if what `inner` gives is not as wide as what
    `outer` takes."""
    if inner.width != len(outer.images):
        raise BitMapError(f"expected a map of {inner.width} bits to apply to {inner.width} bits, "
                          f"got one of {len(outer.images)}")  # fmt: skip
    return BitMap(tuple(map(outer, inner.images)), outer.width)


def is_bijection(bits: BitMap) -> bool:
    """Whether every value is that of exactly one argument."""
    return len(bits.images) == bits.width == bits.rank


def inverse(bits: BitMap) -> BitMap:
    """The inverse of a map, by elimination. Raises BitMapError if the map is no bijection."""
    if not is_bijection(bits):
        raise BitMapError(f"a map from {len(bits.images)} bits to {bits.width} bits of rank {bits.rank} has no inverse")
    # each row is (image, argument); elimination turns the images into the single bits
    rows = [(image, 1 << i) for i, image in enumerate(bits.images)]
    for bit in range(bits.width):
        at = next(i for i in range(bit, bits.width) if rows[i][0] >> bit & 1)
        rows[bit], rows[at] = rows[at], rows[bit]
        image, argument = rows[bit]
        rows = [
            (other ^ image, source ^ argument) if i != bit and other >> bit & 1 else (other, source)
            for i, (other, source) in enumerate(rows)
        ]
    return BitMap(tuple(argument for _, argument in rows), bits.width)


# Fragment layouts as bit maps, and what follows from them.
#
# Which lane of a warp holds which element of a matrix, and in which place of its registers, is linear over bits in
# every instruction of the ISA: each bit of the lane number and each bit of the element number carries exactly one bit
# of the row or of the column. So a layout is one line::
#
#     c1 c2 r0 r1 r2 | c0 r3 c3        A of m16n8k16, f16
#
# Left of the bar are the 5 bits of the lane, least significant first; right of it the bits of the element number
# within a lane. `r3` says that this bit is bit 3 of the row. Everything else (element positions, register counts and
# packing, the `ldmatrix` that loads the fragment) is derived.
#
# A few operands need one more axis besides rows and columns, written with another letter: `q` is the number of the
# product where a warp computes several side by side, `f` the sparsity selector, `t` the thread-id and `b` the byte-id
# of block scales, `x` the number of the copy where several lanes hold the same, `h` and `p` what tensor memory is
# divided into (`tensor_memory`)::
#
#     r0 r1 q0 q1 r2 | c0 c1           A of m8n8k4, f16: four products per warp
#     c2 f0 r0 r1 r2 | c0 c1 r3        sparsity metadata: chunk c of row r when the selector is f
#     x0 x1 r0 r1 r2 | r3              a column, such as the largest of each row: four lanes hold each element
#
# What a warpgroup holds together has a third part, the bits of the warp's number in the group::
#
#     c1 c2 r0 r1 r2 | c0 r3 | r4 r5    D of wgmma, eight columns of it: each warp has 16 of 64 rows
#
# A fragment larger than its layout's base tile repeats it: tile after tile, row by row of tiles, each taking the next
# elements of a lane.
#
# Sources: PTX ISA 9.7.14.5 (Matrix Fragments), where the same maps are figures and formulas; "Linear Layouts: Robust
# Code Generation of Efficient Tensor Computation Using F2" (Zhou et al., 2025).

LANES = 32


AXES = {
    "r": "row",
    "c": "column",
    "q": "product",
    "f": "sparsity selector",
    "t": "thread-id",
    "b": "byte-id",
    "x": "copy",
    "h": "half of the lanes",
    "p": "part of the columns",
}


class Bit(NamedTuple):
    """Bit `number` of the row (axis "r"), of the column (axis "c"), or of another of `AXES`."""

    axis: str
    number: int

    def __str__(self) -> str:
        return f"{self.axis}{self.number}"


def row(number: int) -> Bit:
    """Bit `number` of the row."""
    return Bit("r", number)


def column(number: int) -> Bit:
    """Bit `number` of the column."""
    return Bit("c", number)


@dataclass(frozen=True)
class Layout:
    """A bijection from (lane, element) to (row, column) of a 2^r x 2^c matrix.

    Where several warps hold the matrix together, `warp` has the bits of the warp's number among them; threads are then
    numbered on, lane + 32 * warp. Raises ValueError if the lane does not have 5 bits, or a bit of the row or column is
    carried twice or not at all.
    """

    lane: tuple[Bit, ...]
    element: tuple[Bit, ...]
    warp: tuple[Bit, ...] = ()

    def __post_init__(self) -> None:
        if len(self.lane) != 5:
            raise ValueError(f"a warp has 5 lane bits, the layout '{self}' gives {len(self.lane)}")
        numbers: dict[str, list[int]] = {}
        for axis, number in self.bits:
            numbers.setdefault(axis, []).append(number)
        for axis, indices in numbers.items():
            if sorted(indices) != list(range(len(indices))):
                name = AXES[axis]
                raise ValueError(f"the layout '{self}' must carry each {name} bit once, got bits {sorted(indices)}")

    @staticmethod
    def parse(text: str, axes: str = "rc") -> Layout:
        """Reads the notation `c1 c2 r0 r1 r2 | c0 r3 c3`, with no other axes than `axes`."""
        parts = text.split("|")
        if len(parts) not in (2, 3):
            raise ValueError(f"expected a layout 'lane bits | element bits', got '{text}'")
        return Layout(*(tuple(_bit(word, axes) for word in part.split()) for part in parts))

    def __str__(self) -> str:
        parts = (self.lane, self.element, self.warp) if self.warp else (self.lane, self.element)
        return " | ".join(" ".join(map(str, part)) for part in parts).rstrip()

    def _repr_svg_(self) -> str:
        """A picture of lanes and elements for notebooks. There is a panel for each value of axes other than row and
        column."""
        from .pictures import Picture, elements, panels, svg

        others = {axis: name for axis, name in AXES.items() if axis not in "rc"}
        title = f"{self.rows} x {self.columns}, {self.threads} threads"
        return svg(Picture(title, panels(self, elements("e"), others), (f"Lane bits | element bits: {self}.",)))

    def _repr_html_(self) -> str:
        """The picture, with the bits as text, for notebooks."""
        return f"{self._repr_svg_()}<code>{self}</code>"

    @property
    def bits(self) -> tuple[Bit, ...]:
        """Every bit: those of the lane, of the element, of the warp."""
        return self.lane + self.element + self.warp

    @property
    def threads(self) -> int:
        """How many threads hold the matrix: 32 for each warp."""
        return LANES << len(self.warp)

    @cached_property
    def rows(self) -> int:
        """Rows of the base tile."""
        return self.extent("r")

    @cached_property
    def columns(self) -> int:
        """Columns of the base tile."""
        return self.extent("c")

    @property
    def elements(self) -> int:
        """Elements of the base tile per lane."""
        return 1 << len(self.element)

    def extent(self, axis: str) -> int:
        """How many values the coordinate on an axis has: 1 for an axis that the layout does not use."""
        return 1 << sum(b.axis == axis for b in self.bits)

    def coordinates(self, lane: int, element: int) -> dict[str, int]:
        """Where element number `element` of lane (or thread) `lane` lies, on each axis of `AXES`."""
        place = dict.fromkeys(AXES, 0)
        for bits, value in ((self.lane + self.warp, lane), (self.element, element)):
            for i, bit in enumerate(bits):
                place[bit.axis] |= (value >> i & 1) << bit.number
        return place

    def position(self, lane: int, element: int) -> tuple[int, int]:
        """(row, column) of element number `element` of lane `lane` in the base tile."""
        place = self.coordinates(lane, element)
        return place["r"], place["c"]

    def find(self, **coordinates: int) -> tuple[int, int]:
        """The (lane or thread, element) at `coordinates`, by axis; axes that are left out are 0. Raises ValueError for
        an unknown axis, or a coordinate outside of its extent."""
        for axis, value in coordinates.items():
            if axis not in AXES or not 0 <= value < self.extent(axis):
                name, extent = AXES.get(axis, f"axis '{axis}'"), self.extent(axis)
                raise ValueError(f"expected the {name} to be from 0 to {extent - 1} in layout '{self}', got {value}")
        lane, element = (
            sum((coordinates.get(bit.axis, 0) >> bit.number & 1) << i for i, bit in enumerate(bits))
            for bits in (self.lane + self.warp, self.element)
        )
        return lane, element

    def element_offset(self, element: int) -> tuple[int, int]:
        """The (row, column) of an element relative to its lane's first position."""
        return self.position(0, element)

    def positions(self, rows: int | None = None, columns: int | None = None) -> NDArray[np.intp]:
        """Where each element of a fragment lies: an array (threads, elements per thread, 2) of (row, column). `rows`
        and `columns` default to the base tile; multiples of it repeat the tile, row by row. Raises ValueError if they
        are not multiples of the base tile."""
        import numpy as np

        down, across = self.tiles(rows or self.rows, columns or self.columns)
        base = np.array([[self.position(t, e) for e in range(self.elements)] for t in range(self.threads)], np.intp)
        origins = np.array([(i * self.rows, j * self.columns) for i in range(down) for j in range(across)], np.intp)
        tiles = base[:, None] + origins[:, None]
        return tiles.reshape(self.threads, -1, 2)

    def tiles(self, rows: int, columns: int) -> tuple[int, int]:
        """How many base tiles a rows x columns fragment has, down and across. Raises ValueError if rows or columns is
        not a positive multiple of the base tile's."""
        if rows <= 0 or columns <= 0 or rows % self.rows or columns % self.columns:
            raise ValueError(f"expected a fragment of whole {self.rows}x{self.columns} tiles, got {rows}x{columns}")
        return rows // self.rows, columns // self.columns

    def inverse(self, **fixed: int) -> dict[tuple[int, int], tuple[int, int]]:
        """From (row, column) of the base tile to (lane, element); `fixed` says where on the other axes (0 if not)."""
        places = ((r, c) for r in range(self.rows) for c in range(self.columns))
        return {(r, c): self.find(r=r, c=c, **fixed) for r, c in places}

    def transposed(self) -> Layout:
        """The layout of the transposed matrix: rows and columns change places."""
        other = {"r": "c", "c": "r"}
        parts = (self.lane, self.element, self.warp)
        return Layout(*(tuple(Bit(other.get(b.axis, b.axis), b.number) for b in part) for part in parts))


def _bit(word: str, axes: str) -> Bit:
    if word[0] not in axes or not word[1:].isdecimal():
        raise ValueError(f"expected a layout bit such as r0 or c3, got '{word}'")
    return Bit(word[0], int(word[1:]))


@cache
def multiplicand(rows: int, columns: int, bits: int) -> Layout:
    """The fragment of a `.row` A operand of rows x columns elements of `bits` bits. One rule covers every m8n8k* and
    m16n8k* shape: a lane's 32-bit registers run along the columns (the k dimension), four lanes side by side; lanes
    then go down eight rows; what is left of rows, then of columns, goes to further registers. Elements wider than a
    register count as one register. Source: PTX ISA 9.7.14.5.1 to 9.7.14.5.13. For B (k x n) take the transposed layout
    of (n, k)."""
    packed = max(1, 32 // bits).bit_length() - 1
    row_bits, column_bits = rows.bit_length() - 1, columns.bit_length() - 1
    lane = (column(packed), column(packed + 1), row(0), row(1), row(2))
    element = (
        *(column(i) for i in range(packed)),
        *(row(i) for i in range(3, row_bits)),
        *(column(i) for i in range(packed + 2, column_bits)),
    )
    return Layout(lane, element)


@cache
def accumulator(rows: int, columns: int) -> Layout:
    """The fragment of C and D of m8n8k* and m16n8k*: pairs of columns, whatever the element type. Source: PTX ISA
    9.7.14.5.2 to 9.7.14.5.13."""
    row_bits, column_bits = rows.bit_length() - 1, columns.bit_length() - 1
    element = (column(0), *(row(i) for i in range(3, row_bits)), *(column(i) for i in range(3, column_bits)))
    return Layout((column(1), column(2), row(0), row(1), row(2)), element)


# Products on fragments with permuted indices: the instruction's rows and columns under other numbers.
#
# A product is the same whatever its rows, its columns and the terms of its sums are called, as long as A, B and C
# agree. So a fragment may hold, where the instruction has bit i of m, n or k, any other bit of it; and its base tile
# may be several of the instruction's tiles, chosen by further bits, with numbers that interleave. For B of m16n8k32, 8
# bits::
#
#     r2 r3 c0 c1 c2 | r0 r1 r4           the instruction's tile, 32x8
#     r2 r3 c1 c2 c3 | r0 r1 r4 c0        two of them, one of the even and one of the odd columns: 32x16
#
# This lets memory be read in the pieces that it is good at: there a lane gets neighbours along n from one load, which
# go to two tiles. An accumulator of the same columns, `c2 c3 r0 r1 r2 | c1 r3 c0`, then holds four neighbours per
# lane.


class Labels(NamedTuple):
    """Bit i of the instruction's row is bit `rows[i]` of the matrix's row; the same for columns."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]


def labels(layout: Layout, instruction: Layout) -> Labels | None:
    """The bits of a fragment that number the rows and the columns of the instruction; None if the fragment does not
    consist of the instruction's tiles. Registers of a tile are consecutive. The element bits after those of a tile
    number the tiles."""
    elements = len(instruction.element)
    bits: dict[str, dict[int, int]] = {"r": {}, "c": {}}
    if len(layout.element) < elements or any(bit.axis not in bits for bit in layout.element[elements:]):
        return None
    theirs = (*instruction.lane, *instruction.element)
    for ours, bit in zip((*layout.lane, *layout.element[:elements]), theirs, strict=True):
        if ours.axis != bit.axis or (bit.axis not in bits and ours != bit):
            return None
        bits.get(bit.axis, {})[bit.number] = ours.number
    rows, columns = (tuple(names[i] for i in range(len(names))) for names in bits.values())
    return Labels(rows, columns)


def permuted(instruction: Layout, rows: Sequence[int], columns: Sequence[int], further: Sequence[Bit] = ()) -> Layout:
    """A base tile whose row bit i is bit `rows[i]` of the instruction's row, and likewise for columns. `further` are
    the bits of the instruction's tiles in it. Raises ValueError if a bit of the row or column then occurs twice or not
    at all."""
    names = {"r": rows, "c": columns}
    lane, element, warp = (
        tuple(Bit(bit.axis, names[bit.axis][bit.number]) if bit.axis in names else bit for bit in part)
        for part in (instruction.lane, instruction.element, instruction.warp)
    )
    return Layout(lane, (*element, *further), warp)


def origins(layout: Layout, instruction: Layout, tiles: tuple[int, int]) -> list[tuple[int, int]]:
    """(row, column) of the first element of each of the instruction's tiles, in the order of their registers. `tiles`
    is the fragment's size in base tiles, down and across."""
    return places_of(layout, tiles, 1 << len(instruction.element))


def places_of(layout: Layout, tiles: tuple[int, int], step: int) -> list[tuple[int, int]]:
    """(row, column) of each element of lane 0 that is number `step`, or a multiple, in its base tile, tile by tile."""
    inner = [layout.element_offset(element) for element in range(0, layout.elements, step)]
    corners = [(i * layout.rows, j * layout.columns) for i in range(tiles[0]) for j in range(tiles[1])]
    return [(top + row, left + column) for top, left in corners for row, column in inner]


def disagreement(name: str, axis: str, ours: Sequence[int], other: str, theirs: Sequence[int]) -> str | None:
    """What is wrong, in words, where two operands call the bits of a common axis differently."""
    if tuple(ours) == tuple(theirs):
        return None
    shown, expected = (" ".join(map(str, bits)) for bits in (ours, theirs))
    return (
        f"expected {name} and {other} to number {axis} alike: the instruction's bits of {axis} are bits {shown} in "
        f"{name} and {expected} in {other}"
    )
