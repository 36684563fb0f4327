"""Fragments from and to shared memory, each lane its own elements: `warp.load` and `warp.store` of a tile.

`ldmatrix` moves rows of 16 bytes among lanes in pieces of 16 bits, and so cannot transpose wider elements. For those
each lane reads neighbours of a row of memory at once, and the fragment's layout sends them to different registers.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...dialect.layouts.layout import Layout, column
from ...dialect.warp.attributes import FragmentType
from ...dialect.warp.matrices import in_memory
from .addressing import CHUNK, Addressing, Position, SharedTile
from .emitter import Emitter, divisor_of
from .fragments import Fragment, per_register
from .memory import side_by_side
from .operands import At, IndexValue, VirtualRegister
from .permute import gather

REGISTER_BITS, HALF = 32, 16
"""Bits of a register, and of the pieces that two of make one."""


class SharedFragments:
    """Emits loads and stores of the widest vectors that a fragment's layout has."""

    def __init__(self, emitter: Emitter, addressing: Addressing, lane: VirtualRegister) -> None:
        self.emitter, self.addressing, self.lane = emitter, addressing, lane

    def load(
        self,
        type: FragmentType,
        swapped: bool,
        tile: SharedTile,
        at_: tuple[IndexValue, IndexValue, IndexValue],
        into: Fragment,
    ) -> None:
        """Reads a fragment whose first element lies at (stage, row, column) of a tile."""
        together = side_by_side(in_memory(type, swapped))
        if together >= per_register(type):
            for registers, place in self._accesses(type, swapped, tile, at_, into):
                self.emitter.load("shared", registers, place)
            return
        bits = min(HALF, together * type.bits)
        kind, each = "b16" if bits == HALF else "b32", REGISTER_BITS // bits
        pieces = self.emitter.registers(kind, each * len(into))
        for registers, place in self._accesses(type, swapped, tile, at_, pieces, bits // type.bits):
            self.emitter.load("shared", registers, place, f"b{bits}")
        self._put_together(pieces, bits, into)

    def _put_together(self, pieces: Fragment, bits: int, into: Fragment) -> None:
        """Makes registers of halves or bytes, each of neighbours in memory."""
        each = REGISTER_BITS // bits
        for number, register in enumerate(into):
            own = pieces[number * each :][:each]
            if each == 2:
                self.emitter.emit("mov.b32", register, own)
            else:
                self.emitter.move(register, gather(self.emitter, own, [(i, 0) for i in range(each)], bits))

    def store(
        self, type: FragmentType, tile: SharedTile, at_: tuple[IndexValue, IndexValue, IndexValue], source: Fragment
    ) -> None:
        """Writes a fragment whose first element lies at (stage, row, column) of a tile."""
        for registers, place in self._accesses(type, False, tile, at_, source):
            self.emitter.store("shared", registers, place)

    def _accesses(
        self,
        type: FragmentType,
        swapped: bool,
        tile: SharedTile,
        at_: tuple[IndexValue, IndexValue, IndexValue],
        held: Fragment,
        wide: int = 0,
    ) -> Iterator[tuple[Fragment, At]]:
        """The registers that lie side by side in memory, with the address of the first; `wide` is how many elements a
        register has, if not as many as fill it."""
        stage, row_start, column_start = at_
        layout, per = in_memory(type, swapped), wide or per_register(type)
        down, across = type.tiles[::-1] if swapped else type.tiles
        lane_row, lane_column = self.addressing.lane_position(layout, self.lane)
        lane_column = self.addressing.scalars.quotient(lane_column, tile.packed)
        groups = _groups(type, layout, per, divisor_of(column_start) * tile.packed)
        count = layout.elements // per
        for number in range(down * across):
            # Registers follow the fragment's own order of tiles, which the transpose in memory has by columns.
            i, j = divmod(number, across) if not swapped else divmod(number, down)[::-1]
            for group in groups:
                row, along = layout.element_offset(group[0] * per)
                where = (
                    Position.of(lane_row, row_start, i * layout.rows + row),
                    Position.of(lane_column, column_start, (j * layout.columns + along) // tile.packed),
                )
                registers = [held[number * count + register] for register in group]
                yield registers, self.addressing.shared(tile, stage, *where)


def _groups(type: FragmentType, layout: Layout, per: int, aligned: int) -> list[list[int]]:
    """The registers, of `per` elements, of a base tile that one access fills, in the order of memory, access by access.

    Registers whose numbers differ in the bits that carry the lowest bits of the column lie side by side in memory.
    """
    packed, register_bytes = per.bit_length() - 1, per * type.bits // 8
    places: list[int] = []
    while (bit := column(packed + len(places))) in layout.element and register_bytes << len(places) < CHUNK:
        if aligned % (per << len(places) + 1):
            break
        places.append(layout.element.index(bit) - packed)
    steps = [1 << place for place in places]
    sums = [sum(step for i, step in enumerate(steps) if n >> i & 1) for n in range(1 << len(steps))]
    first = [r for r in range(layout.elements // per) if not any(r & step for step in steps)]
    return [[r + more for more in sums] for r in first]
