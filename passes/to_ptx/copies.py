"""`warp.copy`, and fragments from and to shared memory by each lane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from math import gcd
from typing import NamedTuple

from ...dialect.layouts.layout import Layout, column
from ...dialect.warp.attributes import FragmentType
from ...dialect.warp.op_shapes import WHOLE_TILE, TilePart, in_memory
from .addressing import CHUNK, Addressing, GlobalMatrix, GlobalPlace, Position, SharedPlace, SharedTile
from .emitter import At, Condition, Emitter, IndexValue, VirtualRegister
from .fragments import HALF, REGISTER_BITS, Fragment, per_register, put_together
from .memory import side_by_side
from .scalars import divisor_of

# The tile is cut into pieces of the widest access that every row's alignment allows. Threads take pieces in order,
# line by line of a panel, so that neighbours read neighbouring bytes and the swizzle spreads them over all banks.

COMMIT = "cp.async.commit_group"
"""What targets with asynchronous copies of threads have."""


class ZerosAround(NamedTuple):
    """The first element of a window of images, and how dimensions are padded: `at`, r, c, d and n of `warp.copy`."""

    first: int = 0
    ends: Sequence[tuple[IndexValue, int, int, int, int]] = ()


UNPADDED = ZerosAround()


def in_cta(emitter: Emitter, at: At, rank: IndexValue | None) -> At:
    """The same place in the shared memory of another CTA of the cluster."""
    return at if rank is None else At(emitter.pure("mapa.shared::cluster.u32", at.base, rank), at.offset)


class CopyPiece(NamedTuple):
    """What a thread copies in one access: the place in the tile, and a predicate. In shared memory panels are stacked,
    and elements may be spread. There the piece is at `line` and `along`."""

    row: Position
    column: Position
    taken: Condition
    line: Position
    along: Position


class TileCopies:
    """Emits one CTA-wide copy."""

    def __init__(self, addressing: Addressing, thread: VirtualRegister, threads: int, widest: int = CHUNK) -> None:
        """A thread copies at most `widest` bytes at once."""
        self.emitter, self.scalars, self.addressing = addressing.emitter, addressing.scalars, addressing
        self.thread, self.threads, self.widest = thread, threads, widest

    def copy(self, start: GlobalPlace, tile: SharedTile, stage: IndexValue, *, asynchronous: bool, spread: bool = False,
             part: TilePart = WHOLE_TILE, padded: ZerosAround = UNPADDED) -> None:  # fmt: skip
        """Copies the tile at a place of the source to a stage, or to a part of it. Elements outside of the source are
        zero. With `spread` each 8 bytes of the source become the first half of a chunk of the tile."""
        source, first_row, first_column, *_ = start
        size = source.widest_access(min(self.widest, CHUNK // 2 if spread else tile.swizzle))
        while any(across and together % (size // source.element_bytes) for _, _, across, together, _ in padded.ends):
            size //= 2
        alignment = first_column if isinstance(first_column, int) else first_column.divisor
        while alignment % (size // source.element_bytes):
            size //= 2
        use_async = asynchronous and size >= 4 and self.emitter.has(COMMIT)
        extents = [tile.rows, tile.columns]
        before = part.first(extents[part.axis])
        extents[part.axis] = part.extent(extents[part.axis])
        copied = replace(tile, rows=extents[0], columns=extents[1])
        down, along = (0, before) if part.axis else (before, 0)
        for piece in self._pieces(copied, size, spread=spread):
            inside = self._inside(start, copied, piece, spread=spread)
            if padded.ends:
                inside = reduce(self.scalars.both, self._among(padded, start, piece), inside)
            rows = (piece.row.lane, first_row, piece.row.constant)
            if source.table is not None:
                rows = (self._row_named(source, self.scalars.sum(*rows)),)
            origin = self.scalars.address(source.base, [
                *((row, source.row_bytes) for row in rows), (piece.column.lane, source.element_bytes),
                (first_column, source.element_bytes), (piece.column.constant, source.element_bytes),
                (padded.first, source.element_bytes),
            ])  # fmt: skip
            line, place = (
                position._replace(constant=position.constant + more)
                for position, more in ((piece.line, down), (piece.along, along))
            )
            target = self.addressing.shared(tile, stage, line, place)
            (self._async if use_async else self._through_registers)(size, origin, target, inside, piece.taken)

    def _row_named(self, source: GlobalMatrix, row: IndexValue) -> VirtualRegister:
        """The row of memory that the table of a matrix names for one of its rows; for one behind all that it names, any
        row. Nothing writes the table while the kernel runs."""
        s, (table, first, count, step) = self.scalars, source.table or (source.base, 0, 0, 0)
        number = s.minimum(s.add(first, row), s.subtract(count, 1))
        return self.emitter.read(At(s.offset64(table, number, step)))

    def _pieces(self, tile: SharedTile, size: int, *, spread: bool) -> list[CopyPiece]:
        """The pieces of each thread: panel by panel, `threads` pieces further down each time."""
        s, width = self.scalars, tile.swizzle // (1 + spread)
        per_line = width // size
        in_panel, elements = tile.rows * per_line, size // tile.element_bytes
        if tile.panels > 1 and self.threads % (2 * in_panel) == 0 and tile.rows % tile.period == 0:
            return self._of_several_panels(tile, per_line, size, spread=spread)
        pieces: list[CopyPiece] = []
        for start in range(0, in_panel, self.threads):
            taken = start + self.threads <= in_panel or s.compare("lt", self.thread, in_panel - start)
            if self.threads % per_line == 0:
                row = Position(s.quotient(self.thread, per_line), 0, start // per_line)
                lane_column = s.remainder(self.thread, per_line)
            else:
                number = s.add(self.thread, start)
                row, lane_column = Position(s.quotient(number, per_line)), s.remainder(number, per_line)
            column = s.multiply(lane_column, elements)
            along = self._spread(lane_column, size) if spread else column
            pieces += [
                CopyPiece(row, Position(column, 0, panel * width // tile.element_bytes), taken,
                          row, Position(along, 0, panel * tile.swizzle // tile.element_bytes))
                for panel in range(tile.panels)
            ]  # fmt: skip
        return pieces

    def _of_several_panels(self, tile: SharedTile, per_line: int, size: int, *, spread: bool) -> list[CopyPiece]:
        """The pieces where a panel has so few that threads fill several at once."""
        s, in_panel, width = self.scalars, tile.rows * per_line, tile.swizzle // tile.element_bytes
        line, group, read = Position(s.quotient(self.thread, per_line)), self.threads // in_panel, width // (1 + spread)
        row = Position(s.quotient(s.remainder(self.thread, in_panel), per_line))
        number = s.remainder(self.thread, per_line)
        within = s.multiply(number, size // tile.element_bytes)
        along = self._spread(number, size) if spread else within
        column = s.add(s.multiply(s.quotient(self.thread, in_panel), read), within)
        pieces: list[CopyPiece] = []
        for panel in range(0, tile.panels, group):
            left = (tile.panels - panel) * in_panel
            taken = left >= self.threads or s.compare("lt", self.thread, left)
            pieces.append(
                CopyPiece(row, Position(column, 0, panel * read), taken, line, Position(along, 0, panel * width))
            )
        return pieces

    def _spread(self, number: IndexValue, size: int) -> IndexValue:
        """The byte of a line of the tile for a piece of `size` bytes that begins at byte `number` of the source."""
        s, each = self.scalars, CHUNK // 2 // size
        return s.add(s.multiply(s.quotient(number, each), CHUNK), s.multiply(s.remainder(number, each), size))

    def _inside(self, begin: GlobalPlace, tile: SharedTile, piece: CopyPiece, *, spread: bool) -> Condition:
        """Whether a piece lies in the source; pieces never straddle its edge, for their size divides a row."""
        source, first_row, first_column, in_bounds, _ = begin
        columns = tile.columns // (1 + spread)
        extents = (
            (piece.row, first_row, tile.rows, source.rows),
            (piece.column, first_column, columns, source.columns),
        )
        result: Condition = True
        for (position, start, extent, size), in_bounds_ in zip(extents, in_bounds, strict=True):
            if not in_bounds_:
                position_ = Position.of(position.lane, start, position.constant)
                result = self.scalars.both(result, self.addressing.inside(position_, extent, size))
        return result

    def _among(self, padded: ZerosAround, start: GlobalPlace, piece: CopyPiece) -> Iterator[Condition]:
        """Whether a piece lies in the images that have zeros around them, by dimension."""
        s = self.scalars
        row, column = (s.sum(at, *place) for at, place in ((start.row, piece.row), (start.column, piece.column)))
        for at, down, across, together, size in padded.ends:
            along = s.multiply(s.quotient(column, together), across) if across else 0
            yield s.compare("lt", s.sum(at, s.multiply(row, down), along), size, signed=False)

    def _async(self, size: int, origin: At, target: At, inside: Condition, taken: Condition) -> None:
        # .cg keeps the data out of L1, which it would only pass through; it exists for 16 bytes only.
        opcode = f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global"
        read = () if inside is True else (self.scalars.select(inside, size, 0),)
        self.emitter.emit(opcode, target, origin, size, *read, guard=taken)

    def _through_registers(self, size: int, origin: At, target: At, inside: Condition, taken: Condition) -> None:
        type, count = (f"b{size * 8}", 1) if size < 4 else ("b32", size // 4)
        registers = self.emitter.registers("b16" if size < 4 else "b32", count)
        if inside is not True:
            self.emitter.clear(registers)
        self.emitter.load("global", registers, origin, type, guard=self.scalars.both(taken, inside))
        self.emitter.store("shared", registers, target, type, guard=taken)


# Fragments from and to shared memory, each lane its own elements: `warp.load` and `warp.store` of a tile.
#
# `ldmatrix` moves rows of 16 bytes among lanes in pieces of 16 bits, and so cannot transpose wider elements. For those
# each lane reads neighbours of a row of memory at once, and the fragment's layout sends them to different registers.


class SharedFragments:
    """Emits loads and stores of the widest vectors that a fragment's layout has."""

    def __init__(self, addressing: Addressing) -> None:
        self.emitter, self.addressing = addressing.emitter, addressing

    def load(self, type: FragmentType, swapped: bool, place: SharedPlace, into: Fragment) -> None:
        """Loads the fragment that begins at a place of a tile."""
        together = side_by_side(in_memory(type, swapped))
        if together >= per_register(type):
            for registers, at in self._accesses(type, swapped, place, into):
                self.emitter.load("shared", registers, at)
            return
        bits = min(HALF, together * type.bits)
        pieces = self.emitter.registers("b16" if bits == HALF else "b32", REGISTER_BITS // bits * len(into))
        for registers, at in self._accesses(type, swapped, place, pieces, bits // type.bits):
            self.emitter.load("shared", registers, at, f"b{bits}")
        put_together(self.emitter, pieces, into)

    def store(
        self, type: FragmentType, place: SharedPlace, source: Fragment, rank: IndexValue | None = None,
    ) -> None:  # fmt: skip
        """Stores a fragment from a place of a tile on; with `rank`, the tile is that of this CTA of the cluster."""
        space, kind, wide = "shared" if rank is None else "shared::cluster", "", 0
        if type.bits == HALF and place.tile.swizzle % (REGISTER_BITS // 8):  # rows that begin within words
            source, kind, wide = [half for pair in source for half in self.emitter.halves(pair)], "b16", 1
        for registers, at in self._accesses(type, False, place, source, wide):
            self.emitter.store(space, registers, in_cta(self.emitter, at, rank), kind)

    def send(self, type: FragmentType, place: SharedPlace, source: Fragment, counted: At, ctas: int) -> None:
        """Sends an element to its place in so many CTAs of the cluster, a lane to each, where a barrier counts it."""
        s, send = self.addressing.scalars, f"st.async.shared::cluster.mbarrier::complete_tx::bytes.b{type.bits}"
        rank, is_sent = s.remainder(self.addressing.lane, ctas), s.compare("lt", self.addressing.lane, ctas)
        for registers, at in self._accesses(type, False, place, source):
            there, full = (in_cta(self.emitter, each, rank) for each in (at, counted))
            self.emitter.emit(send, there, *registers, full, guard=is_sent)

    def _accesses(
        self, type: FragmentType, swapped: bool, place: SharedPlace, registers_: Fragment, wide: int = 0
    ) -> Iterator[tuple[Fragment, At]]:
        """Registers contiguous in memory, and the address of the first; `wide` elements in each if not full."""
        tile, stage, row_start, column_start = place
        layout, per = in_memory(type, swapped), wide or per_register(type)
        down, across = type.tiles[::-1] if swapped else type.tiles
        lane_row, lane_column = self.addressing.lane_position(layout)
        lane_column = self.addressing.scalars.quotient(lane_column, tile.packed)
        aligned = gcd(divisor_of(column_start), tile.swizzle // tile.element_bytes) * tile.packed
        groups = _groups(type, layout, per, aligned)
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
                registers = [registers_[number * count + register] for register in group]
                yield registers, self.addressing.shared(tile, stage, *where)


def _groups(type: FragmentType, layout: Layout, per: int, aligned: int) -> list[list[int]]:
    """The registers of a base tile that one access fills, in the order of memory, for each access. A register has `per`
    elements. Registers whose numbers differ in the bits of the lowest column bits are adjacent in memory."""
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
