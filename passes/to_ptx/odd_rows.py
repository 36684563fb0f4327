"""Stores of accumulators to rows of an odd number of elements.

A lane holds pairs of neighbours. In a matrix whose rows have an odd number of elements the pairs of every second row
start in the middle of an aligned pair, and would have to be stored one by one. There each lane takes the first element
of its right neighbour, which with its own second one is an aligned pair: one exchange between lanes saves half of the
stores. The first and the last element of such a row of the fragment go alone. What a lane stores another one may have
read, such as a C that is added: they meet before.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...dialect.layouts.layout import LANES, Layout, column, row
from ...dialect.warp.attributes import FragmentType
from .addressing import Addressing, GlobalMatrix, Position
from .fragments import Fragment
from .operands import IndexValue, VirtualRegister, word

QUADS = Layout((column(1), column(2), row(0), row(1), row(2)), (column(0), row(3)))
"""The accumulators this is about: four lanes to eight columns, rows 8 apart in a lane."""

COLUMNS, HALVES = 8, 2
"""Columns of a base tile, and rows of it that a lane holds."""


def fits(type: FragmentType, matrix: GlobalMatrix) -> bool:
    """Whether a fragment is stored this way."""
    size, pitch = matrix.element_bytes, matrix.row_bytes
    return (
        type.layout.data == QUADS
        and type.bits in (16, 32)
        and type.bits == 8 * size
        and matrix.step is None
        and isinstance(pitch, int)
        and pitch // size % 2 == 1
        and isinstance(matrix.columns, int)
        and matrix.alignment >= 2 * size
    )


@dataclass
class OddRows:
    """Emits the stores of one fragment, all of whose columns are inside the matrix."""

    addressing: Addressing
    lane: VirtualRegister
    type: FragmentType
    matrix: GlobalMatrix
    at_: tuple[IndexValue, IndexValue]
    rows_inside: bool

    def __post_init__(self) -> None:
        s, lane = self.addressing.scalars, self.lane
        self.row, self.along = self.addressing.lane_position(self.type.layout.data, lane)
        self.shift = s.mask(s.sum(self.row, *self.at_), 1)
        """1 for lanes whose pairs are misaligned."""
        self.odd = s.compare("eq", self.shift, 1)
        place = s.add(self.along, self.shift)
        self.first, self.kept, self.last = (s.compare(how, place, n) for how, n in (("eq", 1), ("lt", 7), ("eq", 7)))
        self.leftmost = s.compare("eq", self.along, 0)
        self.neighbour = s.add(s.multiply(s.shift_right(lane, 2), 4), s.mask(s.add(lane, 1), 3))

    def store(self, source: Fragment) -> None:
        """Stores every row of the fragment."""
        self.addressing.emitter.emit("bar.warp.sync", -1)
        down, across = self.type.tiles
        per_row = len(source) // (down * across * HALVES)
        for i in range(down):
            for half in range(HALVES):
                tiles = [source[((i * across + j) * HALVES + half) * per_row :][:per_row] for j in range(across)]
                self._row(16 * i + 8 * half, tiles)

    def _row(self, down: int, tiles: list[Fragment]) -> None:
        s, a = self.addressing.scalars, self.addressing
        inside = True
        if not self.rows_inside:
            inside = a.inside(Position.of(self.row, self.at_[0], down), self.type.layout.data.rows, self.matrix.rows)
        for j, held in enumerate(tiles):
            is_last = j == len(tiles) - 1
            moved = self._aligned(held, held if is_last else tiles[j + 1])
            guard = s.both(inside, self.kept) if is_last else inside
            self._store(moved, down, s.add(self.along, self.shift), j * COLUMNS, guard)
        self._store(self._one(tiles[0], 0), down, 0, 0, s.both(inside, self.first))
        end = COLUMNS * len(tiles) - 1
        self._store(self._one(tiles[-1], 1), down, 0, end, s.both(inside, self.last))

    def _aligned(self, held: Fragment, following: Fragment) -> Fragment:
        """The pair that starts at an even place: the lane's own, or its second element and the next lane's first."""
        compute, type = self.addressing.emitter.compute, held[0].type
        given = self._select(following[0], held[0], self.leftmost)
        taken = compute("shfl.sync.idx.b32", given, self.neighbour, LANES - 1, -1, type=type)
        if len(held) == 2:
            return [self._select(held[1], held[0], self.odd), self._select(taken, held[1], self.odd)]
        return [self._select(compute("prmt.b32", held[0], taken, word(0x5432, 4)), held[0], self.odd)]

    def _select(self, yes: VirtualRegister, no: VirtualRegister, condition: VirtualRegister | bool) -> VirtualRegister:
        compute = self.addressing.emitter.compute
        if isinstance(condition, VirtualRegister):
            return compute(f"selp.{yes.type}", yes, no, condition)
        return compute(f"mov.{yes.type}", yes if condition else no)

    def _one(self, held: Fragment, which: int) -> Fragment:
        """One element of a pair."""
        if len(held) == 2:
            return [held[which]]
        return [self.addressing.emitter.halves(held[0])[which]]

    def _store(self, held: Fragment, down: int, lane: IndexValue, along: int, inside: VirtualRegister | bool) -> None:
        size, pitch = self.matrix.element_bytes, self.matrix.row_bytes
        place = self.addressing.scalars.address(
            self.matrix.base,
            [(self.row, pitch), (self.at_[0], pitch), (down, pitch), (lane, size), (self.at_[1], size), (along, size)],
        )
        self.addressing.emitter.store("global", held, place, guard=inside)
