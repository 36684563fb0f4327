"""Global memory: fragments from and to it, `warp.load` and `warp.store`, and copies of tiles to shared memory,
`warp.copy`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

from xdsl.ir import BlockArgument, SSAValue

from ...dialect.layouts.layout import LANES, Bit, Layout, column, row
from ...dialect.warp.attributes import FragmentType
from ...dialect.warp.op_shapes import WHOLE_TILE, TilePart
from .addressing import ALIGNMENT, CHUNK, Addressing, GlobalMatrix, GlobalPlace, Position, SharedTile
from .emitter import At, Condition, IndexValue, VirtualRegister, word
from .fragments import HALF, REGISTER_BITS, Fragment, put_together, register_type
from .scalars import common_divisor

# Stores of accumulators to rows of an odd number of elements.
#
# A lane holds pairs of neighbours. In a matrix whose rows have an odd number of elements the pairs of every second row
# start in the middle of an aligned pair, and would have to be stored one by one. There each lane takes the first
# element of its right neighbour, which with its own second one is an aligned pair: one exchange between lanes saves
# half of the stores. The first and the last element of such a row of the fragment go alone. What a lane stores another
# one may have read, such as a C that is added: they meet before.

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
    type: FragmentType
    place: GlobalPlace

    def __post_init__(self) -> None:
        s, lane = self.addressing.scalars, self.addressing.lane
        self.row, self.along = self.addressing.lane_position(self.type.layout.data)
        self.shift = s.mask(s.sum(self.row, self.place.row, self.place.column), 1)
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
        if not self.place.in_bounds[0]:
            position, rows = Position.of(self.row, self.place.row, down), self.place.matrix.rows
            inside = a.inside(position, self.type.layout.data.rows, rows)
        for j, tile in enumerate(tiles):
            is_last = j == len(tiles) - 1
            moved = self._aligned(tile, tile if is_last else tiles[j + 1])
            guard = s.both(inside, self.kept) if is_last else inside
            self._store(moved, down, s.add(self.along, self.shift), j * COLUMNS, guard)
        self._store(self._one(tiles[0], 0), down, 0, 0, s.both(inside, self.first))
        end = COLUMNS * len(tiles) - 1
        self._store(self._one(tiles[-1], 1), down, 0, end, s.both(inside, self.last))

    def _aligned(self, own: Fragment, following: Fragment) -> Fragment:
        """The pair at an even place: the lane's own, or its second element with the next lane's first."""
        compute, type = self.addressing.emitter.compute, own[0].type
        sent = self._select(following[0], own[0], self.leftmost)
        taken = compute("shfl.sync.idx.b32", sent, self.neighbour, LANES - 1, -1, type=type)
        if len(own) == 2:
            return [self._select(own[1], own[0], self.odd), self._select(taken, own[1], self.odd)]
        return [self._select(compute("prmt.b32", own[0], taken, word(0x5432, 4)), own[0], self.odd)]

    def _select(self, yes: VirtualRegister, no: VirtualRegister, condition: Condition) -> VirtualRegister:
        compute = self.addressing.emitter.compute
        if isinstance(condition, VirtualRegister):
            return compute(f"selp.{yes.type}", yes, no, condition)
        return compute(f"mov.{yes.type}", yes if condition else no)

    def _one(self, pair: Fragment, which: int) -> Fragment:
        return [pair[which]] if len(pair) == 2 else [self.addressing.emitter.halves(pair[0])[which]]

    def _store(self, elements: Fragment, down: int, lane: IndexValue, along: int, inside: Condition) -> None:
        matrix, row, column, *_ = self.place
        size, pitch = matrix.element_bytes, matrix.row_bytes
        terms = [(self.row, pitch), (row, pitch), (down, pitch), (lane, size), (column, size), (along, size)]
        place = self.addressing.scalars.address(matrix.base, terms)
        self.addressing.emitter.store("global", elements, place, guard=inside)


# Fragments from and to memory: `warp.load`, `warp.store`.

LINE = 128
"""Bytes of a line of memory."""


class ElementAccess(NamedTuple):
    """One register's worth of elements in global memory: the address, and when it may be touched."""

    register: int
    address: At
    inside: Condition


class GlobalFragments:
    """Loads and stores fragments of matrices in global memory, each lane its own elements."""

    def __init__(self, addressing: Addressing) -> None:
        self.emitter, self.scalars, self.addressing = addressing.emitter, addressing.scalars, addressing

    def accesses(self, type: FragmentType, place: GlobalPlace) -> Iterator[ElementAccess]:
        """The contiguous elements of each lane, with their addresses."""
        matrix, first_row, first_column, in_bounds, _ = place
        layout, size = type.layout.data, matrix.column_bytes
        row, along = self.addressing.lane_position(layout)
        lies, axis, starts = matrix, "c", (along, first_column)
        if matrix.step is not None and matrix.row_bytes == matrix.element_bytes:  # columns are contiguous
            lies = replace(matrix, rows=matrix.columns, columns=matrix.rows, pitch=matrix.column_bytes, step=None)
            axis, starts = "r", (row, first_row)
        for number, (i, j) in enumerate(offsets(type, self._together(type, lies, axis, starts))):
            address = self.scalars.address(
                matrix.base, [(row, matrix.row_bytes), (first_row, matrix.row_bytes), (i, matrix.row_bytes),
                              (along, size), (first_column, size), (j, size)]
            )  # fmt: skip
            rows_inside = (in_bounds[0] or matrix.row_bytes == 0) or self.addressing.inside(
                Position.of(row, first_row, i), layout.rows, matrix.rows
            )
            # Elements move together only where rows hold whole groups, so one predicate serves the group.
            columns_inside = (in_bounds[1] or matrix.column_bytes == 0) or self.addressing.inside(
                Position.of(along, first_column, j), layout.columns, matrix.columns
            )
            yield ElementAccess(number, address, self.scalars.both(rows_inside, columns_inside))

    def _together(self, type: FragmentType, matrix: GlobalMatrix, axis: str, starts: Sequence[IndexValue]) -> int:
        """Elements of one access: as many as are contiguous and aligned, up to 16 bytes. `matrix` is contiguous along
        `axis`; `starts` are where the lane and the fragment start along it."""
        aligned = common_divisor(starts)
        wanted = min(side_by_side(type.layout.data, axis), matrix.widest_access() // matrix.element_bytes)
        while aligned % wanted:
            wanted //= 2
        return wanted

    def load(self, type: FragmentType, place: GlobalPlace, into: Fragment) -> Fragment:
        """Reads a fragment, zeros outside the matrix; of a matrix that repeats, registers share what is loaded once."""
        accesses, kind = list(self.accesses(type, place)), register_type(type.element)
        each, together = max(1, len(accesses) // len(into)), max(1, len(into) // len(accesses))
        loaded: dict[tuple[At, ...] | int, Fragment] = {}
        result: Fragment = []
        for start in range(0, len(accesses), each):
            group = accesses[start : start + each]
            key = tuple(access.address for access in group) if place.matrix.repeats else start
            if key not in loaded:
                loaded[key] = into[len(result) :][:together]
                if each == 1:
                    self.load_one(loaded[key], group[0].address, group[0].inside, kind)
                else:
                    self._load_parts(loaded[key][0], group)
            result += loaded[key]
        return result

    def prefetch(self, type: FragmentType, place: GlobalPlace) -> None:
        """Prefetches the cache lines of a fragment if its rows are contiguous."""
        size = place.matrix.column_bytes
        if not isinstance(size, int) or size != place.matrix.element_bytes:
            return
        accesses, lines = list(self.accesses(type, place)), set[tuple[int, int]]()
        together = math.prod(type.tiles) * type.layout.data.elements // len(accesses)
        for access, (i, j) in zip(accesses, offsets(type, together), strict=True):
            line = i, j * size // LINE
            if line not in lines:
                lines.add(line)
                self.emitter.emit("prefetch.global.L2", access.address, guard=access.inside)

    def _load_parts(self, into: VirtualRegister, accesses: Sequence[ElementAccess]) -> None:
        """Puts a register together from halves, or from bytes, of which each address is loaded once."""
        parts, bits = dict[At, VirtualRegister](), REGISTER_BITS // len(accesses)
        for access in accesses:
            if access.address not in parts:
                parts[access.address] = part = self.emitter.register("b16" if bits == HALF else "b32")
                self.load_one([part], access.address, access.inside, f"b{bits}")
        put_together(self.emitter, [parts[access.address] for access in accesses], [into])

    def load_one(self, registers: Fragment, address: At, inside: Condition, type: str) -> None:
        """Reads registers side by side in memory, or zero where that is not inside."""
        if inside is not True:
            self.emitter.clear(registers)
        self.emitter.load("global", registers, address, type, guard=inside)

    def store(self, type: FragmentType, place: GlobalPlace, source: Fragment) -> None:
        """Writes a fragment; elements outside the matrix are dropped."""
        if place.within:
            self._store_within(type, place, source)
            return
        if not fits(type, place.matrix):
            self._store(type, place, source)
            return
        beyond = False if place.in_bounds[1] else self._beyond(type, place)
        if isinstance(beyond, VirtualRegister):
            self._store_either(type, place, source)
        elif beyond:
            self._store(type, place, source)
        else:
            OddRows(self.addressing, type, place).store(source)

    def _beyond(self, type: FragmentType, place: GlobalPlace) -> Condition:
        """Whether some columns of a fragment lie outside the matrix."""
        return self.scalars.compare("gt", place.column, self.scalars.subtract(place.matrix.columns, type.shape[1]))

    def _store_either(self, type: FragmentType, place: GlobalPlace, source: Fragment) -> None:
        """Stores a fragment, without checks of bounds if all its columns are inside of the matrix."""
        emitter, stem = self.emitter, self.emitter.fresh_label("store")
        # What each way computes stays in its part, but for addresses, which go out: those of the second way must not
        # come to stand behind the first one's branch.
        list(self.accesses(type, place))
        with emitter.loop():
            emitter.branch(f"{stem}_edge", guard=self._beyond(type, place))
            OddRows(self.addressing, type, place).store(source)
            emitter.branch(f"{stem}_end")
        with emitter.loop():
            emitter.label(f"{stem}_edge")
            self._store(type, place, source)
            emitter.label(f"{stem}_end")

    def _store_within(self, type: FragmentType, place: GlobalPlace, source: Fragment) -> None:
        """Stores neighbours, which lie where an access may, together if all are inside, else those that are."""
        s, matrix, size, layout = self.scalars, place.matrix, place.matrix.element_bytes, type.layout.data
        together, (row, along) = min(side_by_side(layout), ALIGNMENT // size), self.addressing.lane_position(layout)
        each, ends = len(source) * together // (math.prod(type.tiles) * layout.elements), s.subtract(matrix.columns, 1)
        for number, (i, j) in enumerate(offsets(type, together)):
            part, at, line = source[number * each :][:each], s.sum(along, place.column, j), s.sum(row, place.row, i)
            down = place.in_bounds[0] or s.compare("lt", line, matrix.rows)
            whole = s.both(down, s.compare("lt", at, s.subtract(ends, together - 2), signed=False))
            some = s.compare("lt", s.add(at, together - 1), s.add(ends, together), signed=False)
            addresses = [
                s.address(matrix.base, [(line, matrix.row_bytes), (at, size), (e, size)]) for e in range(together)
            ]
            self.emitter.store("global", part, addresses[0], register_type(type.element), guard=whole)
            with self.emitter.skipping("together", guard=s.differ(s.differ(whole, s.both(down, some)), True)):
                elements, kind = self._pieces(type, part, together)
                for e, element in enumerate(elements):
                    inside = s.compare("lt", s.add(at, e), matrix.columns, signed=False)
                    self.emitter.store("global", [element], addresses[e], kind, guard=inside)

    def _store(self, type: FragmentType, place: GlobalPlace, source: Fragment) -> None:
        """Stores a fragment; each lane stores its own elements."""
        accesses = list(self.accesses(type, place))
        source, kind = self._pieces(type, source, len(accesses))
        together = len(source) // len(accesses)
        for access in accesses:
            registers = source[access.register * together :][:together]
            self.emitter.store("global", registers, access.address, kind, guard=access.inside)

    def _pieces(self, type: FragmentType, source: Fragment, count: int) -> tuple[Fragment, str]:
        """Registers of which each of so many accesses stores one or more, and their type."""
        kind = register_type(type.element)
        if count > len(source):
            source, kind = [half for pair in source for half in self.emitter.halves(pair)], "b16"
        if count == 2 * len(source) and type.bits == 8:
            source, kind = [part for half in source for part in (half, self.emitter.compute("shr.u16", half, 8))], "b8"
        return source, kind


def offsets(type: FragmentType, together: int) -> Iterator[tuple[int, int]]:
    """(row, column) of each group of `together` elements relative to the lane's position, in the order of registers."""
    layout = type.layout.data
    down, across = type.tiles
    for i in range(down):
        for j in range(across):
            for element in range(0, layout.elements, together):
                row, column = layout.element_offset(element)
                yield row + i * layout.rows, column + j * layout.columns


def memory_name(memory: SSAValue) -> str:
    """What a memref is called in comments."""
    number = f"argument {memory.index}" if isinstance(memory, BlockArgument) else "memory"
    return memory.name_hint or number


def side_by_side(layout: Layout, axis: str = "c") -> int:
    """The number of consecutive elements of a lane that are consecutive in a row; in a column with `axis` "r"."""
    count = 0
    while count < len(layout.element) and layout.element[count] == Bit(axis, count):
        count += 1
    return 1 << count


# Copies of tiles from global to shared memory: `warp.copy`.
#
# The tile is cut into pieces of the widest access that every row's alignment allows. Threads take pieces in order,
# line by line of a panel, so that neighbours read neighbouring bytes and the swizzle spreads them over all banks.

COMMIT = "cp.async.commit_group"
"""What targets with asynchronous copies of threads have."""


class ZerosAround(NamedTuple):
    """The first element of a window of images, and how dimensions are padded: `at`, r, c, d and n of `warp.copy`."""

    first: int = 0
    ends: Sequence[tuple[IndexValue, int, int, int, int]] = ()


UNPADDED = ZerosAround()


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
