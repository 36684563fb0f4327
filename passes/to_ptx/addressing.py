"""Where elements lie: matrices in global memory, swizzled tiles in shared memory, bounds."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from ...dialect.layouts.layout import Bit, Layout
from ...dialect.ptx.text.syntax import Symbol
from .emitter import Emitter, divisor_of, split
from .operands import At, IndexValue, VirtualRegister
from .scalars import Scalars

ALIGNMENT = 16
"""Bytes to which kernel arguments are aligned; the launch checks it."""

CHUNK = 16
"""Bytes that a swizzle moves together."""


@dataclass(frozen=True, eq=False)
class GlobalMatrix:
    """A matrix. `base` is its 64-bit global address, a multiple of `alignment`, `pitch` the bytes from one row to the
    next, without gaps if None, and `step` those from one column to the next, neighbours if None. Rows 0 bytes apart, or
    columns, are as many as are asked for.

    Of elements of less than a byte, columns and sizes count bytes, each of `packed` elements.
    """

    base: VirtualRegister
    rows: IndexValue
    columns: IndexValue
    element_bytes: int
    packed: int = 1
    pitch: IndexValue | None = None
    alignment: int = ALIGNMENT
    step: IndexValue | None = None

    @property
    def column_bytes(self) -> IndexValue:
        """Bytes from one column to the next."""
        return self.element_bytes if self.step is None else self.step

    @property
    def repeats(self) -> bool:
        """Whether elements of the matrix are the same memory."""
        return 0 in (self.row_bytes, self.column_bytes)

    @property
    def row_bytes(self) -> IndexValue:
        """Bytes from one row to the next."""
        if self.pitch is None and isinstance(self.columns, int):
            return self.columns * self.element_bytes
        return 0 if self.pitch is None else self.pitch

    def widest_access(self, limit: int = ALIGNMENT) -> int:
        """The most bytes one aligned access may take that starts at a multiple of itself in any row, and never ends
        behind the row it starts in."""
        if self.step is not None:
            return self.element_bytes
        size = limit
        row = gcd(divisor_of(self.row_bytes), divisor_of(self.columns) * self.element_bytes)
        while row % size or self.alignment % size:
            size //= 2
        return max(size, self.element_bytes)


@dataclass(frozen=True, eq=False)
class MemoryArgument:
    """An argument of any rank. `strides` count elements: numbers, or 64-bit registers."""

    base: VirtualRegister
    shape: tuple[IndexValue, ...]
    strides: tuple[IndexValue, ...]
    element_bits: int
    alignment: int = ALIGNMENT


@dataclass(frozen=True, eq=False)
class SharedTile:
    """Buffers of rows x columns in shared memory, `swizzle` bytes wide panels stored one after another.

    `offset` is in bytes from the start of the CTA's dynamic shared memory. `skip` bits of the row do not count for the
    permutation. Of elements of less than a byte, columns and sizes count bytes, each of `packed` elements.
    """

    offset: int
    stages: int
    rows: int
    columns: int
    element_bytes: int
    swizzle: int
    skip: int = 0
    packed: int = 1

    @property
    def stage_bytes(self) -> int:
        return self.rows * self.columns * self.element_bytes

    @property
    def panel_bytes(self) -> int:
        return self.rows * self.swizzle

    @property
    def panels(self) -> int:
        return self.columns * self.element_bytes // self.swizzle

    @property
    def chunks(self) -> int:
        """Chunks of a line that change places; 1 when nothing does."""
        return max(1, self.swizzle // CHUNK)

    @property
    def period(self) -> int:
        """After how many rows the permutation repeats."""
        return 8 << self.skip if self.chunks > 1 else 1


class OwnRow(NamedTuple):
    """A warp's row of scratch memory: its offset in the tile, and the number of this lane."""

    tile: SharedTile
    base: IndexValue
    lane: VirtualRegister


@dataclass(frozen=True, eq=False)
class SharedBarriers:
    """Mbarriers one after another, `offset` bytes from the start of the CTA's dynamic shared memory."""

    offset: int


class Position(NamedTuple):
    """A coordinate in three parts: of the lane or thread, of the program, and known while compiling."""

    lane: IndexValue = 0
    program: IndexValue = 0
    constant: int = 0

    @staticmethod
    def of(lane: IndexValue, program: IndexValue, constant: int) -> Position:
        """The position with the constant part of `program` moved where it belongs."""
        register, offset = split(program)
        return Position(lane, register if register is not None else 0, constant + offset)


class Addressing:
    """Computes addresses and bounds over an emitter."""

    def __init__(self, emitter: Emitter, scalars: Scalars, shared: str, thread: IndexValue) -> None:
        self.emitter, self.scalars, self.shared_symbol, self.thread = emitter, scalars, shared, thread

    def from_bits(self, source: IndexValue, bits: tuple[Bit, ...], axis: str) -> IndexValue:
        """The coordinate along an axis that the bits of `source` carry; runs of bits move together."""
        parts: list[IndexValue] = []
        start = 0
        while start < len(bits):
            count = 1
            while start + count < len(bits) and bits[start + count] == Bit(
                bits[start].axis, bits[start].number + count
            ):
                count += 1
            if bits[start].axis == axis:
                parts.append(self.scalars.bits(source, start, count, bits[start].number))
            start += count
        return self.scalars.sum(*parts) if parts else 0

    def holder(self, layout: Layout, lane: IndexValue) -> IndexValue:
        """The number of a lane among the threads that hold a fragment, several warps perhaps."""
        return self.scalars.mask(self.thread, layout.threads - 1) if layout.warp else lane

    def lane_position(self, layout: Layout, lane: IndexValue) -> tuple[IndexValue, IndexValue]:
        """(row, column) of a lane's first element; of a thread's, where several warps hold the matrix."""
        holder, bits = self.holder(layout, lane), layout.lane + layout.warp
        return self.from_bits(holder, bits, "r"), self.from_bits(holder, bits, "c")

    def shared(self, tile: SharedTile, stage: IndexValue, row: Position, column: Position) -> At:
        """The shared address of an element whose column is a whole number of accesses."""
        s, width = self.scalars, tile.swizzle
        start = s.add(self._shared_base(), tile.offset)
        stage_offset, size = s.multiply(stage, tile.stage_bytes), tile.element_bytes
        lane, program = s.multiply(column.lane, size), s.multiply(column.program, size)
        panel, within = divmod(column.constant * size, width)
        periods, rest = divmod(row.constant, tile.period)
        fixed = panel * tile.panel_bytes + periods * tile.period * width
        # Rows whose bits the lane's have not, are permuted by the same as the lane's, and by what these bits say.
        apart = divisor_of(row.lane) % (1 << rest.bit_length()) == 0
        rows_repeat = divisor_of(row.program) % tile.period == 0 and apart
        if not (rows_repeat and self._disjoint(lane, program, within, width)):
            line = s.sum(row.lane, row.program, rest)
            return self._general(tile, s.add(start, stage_offset), line, s.sum(lane, program, within), fixed)
        within, fixed = s.xor(within, self._permutation(tile, rest)), fixed + rest * width
        line = s.multiply(row.lane, width)
        inside = s.xor(s.add(line, lane), self._permutation(tile, row.lane))
        whole_panels, rest_of_line = self._panels(tile, program)
        base = s.sum(start, s.xor(inside, rest_of_line), whole_panels, s.multiply(row.program, width))
        if isinstance(stage_offset, int):
            # Stages are whole lines, so what is XORed into a line may be before a known one is added.
            return self._settle(s.xor(base, within), fixed + stage_offset)
        return self._settle(s.xor(s.sum(base, stage_offset), within), fixed)

    def origin(self, tile: SharedTile, stage: IndexValue, row: IndexValue, column: IndexValue) -> At:
        """The shared address of an element whose line nothing permutes: the first of eight, as
        of what a matrix descriptor or a tensor copy begins with."""
        s = self.scalars
        panels, rest = self._panels(tile, s.multiply(column, tile.element_bytes))
        along = s.sum(s.multiply(stage, tile.stage_bytes), panels, s.multiply(row, tile.swizzle), rest)
        return self.shared_bytes_at(tile.offset, along)

    def plain(self, tile: SharedTile, offset: IndexValue) -> At:
        """The shared address of a byte of a tile that nothing permutes."""
        return self.shared_bytes_at(tile.offset, offset)

    def shared_bytes_at(self, offset: int, along: IndexValue) -> At:
        """The address `offset` + `along` bytes into the CTA's shared memory."""
        return self._settle(self.scalars.sum(self._shared_base(), along), offset)

    def _general(self, tile: SharedTile, start: IndexValue, line: IndexValue, column: IndexValue, offset: int) -> At:
        """The address with nothing known of the alignment of its parts; `column` is in bytes."""
        s = self.scalars
        whole_panels, rest = self._panels(tile, column)
        inside = s.xor(s.add(s.multiply(line, tile.swizzle), rest), self._permutation(tile, line))
        return self._settle(s.sum(start, whole_panels, inside), offset)

    def _panels(self, tile: SharedTile, column_bytes: IndexValue) -> tuple[IndexValue, IndexValue]:
        """The offset of a column's panel, and the bytes into its line."""
        s, width = self.scalars, tile.swizzle
        if divisor_of(column_bytes) % width == 0:
            return self._scaled(column_bytes, tile.panel_bytes, width), 0
        if tile.panels == 1:
            return 0, column_bytes
        panel = s.quotient(column_bytes, width)
        return s.multiply(panel, tile.panel_bytes), s.mask(column_bytes, width - 1)

    def _scaled(self, column_bytes: IndexValue, panel_bytes: int, width: int) -> IndexValue:
        """column_bytes / width * panel_bytes, for a multiple of the width."""
        return self.scalars.multiply(column_bytes, panel_bytes // width)

    def _permutation(self, tile: SharedTile, row: IndexValue) -> IndexValue:
        """What is XORed into the byte offset of a line: the line's number in units of 128 bytes (after a skip, of
        twice or four times that), times 16."""
        s = self.scalars
        if tile.chunks == 1:
            return 0
        lines_per_unit = (128 << tile.skip) // tile.swizzle
        return s.multiply(s.mask(s.quotient(row, lines_per_unit), tile.chunks - 1), CHUNK)

    @staticmethod
    def _disjoint(lane: IndexValue, program: IndexValue, within: int, width: int) -> bool:
        """Whether the parts of a column never share a bit below `width`, so that adding them is XORing them."""
        if isinstance(lane, VirtualRegister) and (lane.bound is None or lane.bound > width):
            return False
        spans: list[tuple[int, int]] = []
        for part in (lane, program, within):
            if isinstance(part, VirtualRegister):
                spans.append((part.divisor & -part.divisor, part.bound or width))
            elif part:
                spans.append((part & -part, 1 << part.bit_length()))
        top = 1
        for low, high in sorted(spans):
            if low < min(top, width):
                return False
            top = max(top, high)
        return True

    def _shared_base(self) -> VirtualRegister:
        return self.emitter.pure("mov.u32", Symbol(self.shared_symbol))

    def _settle(self, address: IndexValue, offset: int) -> At:
        base, constant = split(address)
        if base is None:
            return At(self.emitter.pure("mov.u32", address), offset)
        return At(base, constant + offset)

    def inside(self, position: Position, extent: int, size: IndexValue) -> VirtualRegister | bool:
        """Whether a coordinate lies below `size`. The lane's part and the constant's remainder stay below `extent`.

        When size and program are multiples of the extent, such a block is inside as a whole or not at all.
        """
        s = self.scalars
        program, start = position.program, position.constant
        if divisor_of(size) % extent == 0 and divisor_of(program) % extent == 0:
            return s.compare("lt", program, s.subtract(size, start - start % extent))
        return s.compare("lt", s.sum(position.lane, program), s.subtract(size, start))
