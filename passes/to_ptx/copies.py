"""Tiles from global to shared memory by all threads of a CTA: `warp.copy`.

The tile is cut into pieces of the widest access that every row's alignment allows. Threads take pieces in order,
line by line of a panel, so that neighbours read neighbouring bytes and the swizzle spreads them over all banks.
"""

from __future__ import annotations

from typing import NamedTuple

from .addressing import CHUNK, Addressing, GlobalMatrix, Position, SharedTile
from .emitter import Emitter
from .operands import At, IndexValue, VirtualRegister
from .scalars import Scalars

COMMIT = "cp.async.commit_group"
"""What targets with asynchronous copies of threads have."""


class CopyPiece(NamedTuple):
    """What one thread copies at once: where in the tile, and for which threads.

    In shared memory panels stand below one another, and elements may be spread: there it is the piece at `line` and
    `along`.
    """

    row: Position
    column: Position
    taken: VirtualRegister | bool
    line: Position
    along: Position


class TileCopies:
    """Emits one CTA-wide copy."""

    def __init__(self, emitter: Emitter, scalars: Scalars, addressing: Addressing, thread: VirtualRegister,
                 threads: int, widest: int = CHUNK) -> None:  # fmt: skip
        """A thread copies at most `widest` bytes at once."""
        self.widest = widest
        self.emitter, self.scalars, self.addressing = emitter, scalars, addressing
        self.thread, self.threads = thread, threads

    def copy(self, source: GlobalMatrix, at_: tuple[IndexValue, IndexValue], tile: SharedTile, stage: IndexValue,
             in_bounds: tuple[bool, bool], *, asynchronous: bool, spread: bool = False) -> None:  # fmt: skip
        """Copies the tile at (row, column) of the source to a stage; what lies outside is zero.

        With `spread` each 8 bytes of the source are the first half of a chunk of the tile.
        """
        size = source.widest_access(min(self.widest, CHUNK // 2 if spread else tile.swizzle))
        while self._misaligned(at_[1], size // source.element_bytes):
            size //= 2
        use_async = asynchronous and size >= 4 and self.emitter.has(COMMIT)
        for piece in self._pieces(tile, size, spread=spread):
            inside = self._inside(source, at_, tile, piece, in_bounds, spread=spread)
            origin = self.scalars.address(source.base, [
                (piece.row.lane, source.row_bytes), (at_[0], source.row_bytes), (piece.row.constant, source.row_bytes),
                (piece.column.lane, source.element_bytes), (at_[1], source.element_bytes),
                (piece.column.constant, source.element_bytes),
            ])  # fmt: skip
            target = self.addressing.shared(tile, stage, piece.line, piece.along)
            (self._async if use_async else self._through_registers)(size, origin, target, inside, piece.taken)

    @staticmethod
    def _misaligned(column: IndexValue, elements: int) -> bool:
        return bool((column if isinstance(column, int) else column.divisor) % elements)

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
        """The byte of a line of the tile that a piece of `size` bytes goes to, that number of them into its source."""
        s, each = self.scalars, CHUNK // 2 // size
        return s.add(s.multiply(s.quotient(number, each), CHUNK), s.multiply(s.remainder(number, each), size))

    def _inside(self, source: GlobalMatrix, at_: tuple[IndexValue, IndexValue], tile: SharedTile, piece: CopyPiece,
                in_bounds: tuple[bool, bool], *, spread: bool) -> VirtualRegister | bool:  # fmt: skip
        """Whether a piece lies in the source; pieces never straddle its edge, for their size divides a row."""
        columns = tile.columns // (1 + spread)
        extents = ((piece.row, at_[0], tile.rows, source.rows), (piece.column, at_[1], columns, source.columns))
        result: VirtualRegister | bool = True
        for (position, start, extent, size), known in zip(extents, in_bounds, strict=True):
            if not known:
                whole = Position.of(position.lane, start, position.constant)
                result = self.scalars.both(result, self.addressing.inside(whole, extent, size))
        return result

    def _async(self, size: int, origin: At, target: At, inside: VirtualRegister | bool,
               taken: VirtualRegister | bool) -> None:  # fmt: skip
        # .cg keeps the data out of L1, which it would only pass through; it exists for 16 bytes only.
        opcode = f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global"
        read = () if inside is True else (self.scalars.select(inside, size, 0),)
        self.emitter.emit(opcode, target, origin, size, *read, guard=taken)

    def _through_registers(self, size: int, origin: At, target: At, inside: VirtualRegister | bool,
                           taken: VirtualRegister | bool) -> None:  # fmt: skip
        type, count = (f"b{size * 8}", 1) if size < 4 else ("b32", size // 4)
        registers = self.emitter.registers("b16" if size < 4 else "b32", count)
        if inside is not True:
            self.emitter.clear(registers)
        self.emitter.load("global", registers, origin, type, guard=self.scalars.both(taken, inside))
        self.emitter.store("shared", registers, target, type, guard=taken)
