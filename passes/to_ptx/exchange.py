"""Elements that change lanes by way of shared memory: what `warp.exchange` becomes.

A base tile of the result lies in a warp's scratch memory row by row, tile after tile, so that lanes read 16 bytes each
and 128 together. What is written would meet at banks: lanes that differ in a bit of the row that stands above the
lowest 128 bytes. Each such bit is XORed into a bit of the address that no other lane's bit uses, of those that neither
a lane's write nor its read of neighbours covers. Reads then have the same 128 bytes in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...dialect.layouts.layout import Bit, Layout
from ...dialect.warp.attributes import FragmentType, fragment_of
from ...dialect.warp.exchange import BANKS, WIDEST, ExchangeOp
from .addressing import SharedTile
from .emitter import IndexValue, VirtualRegister
from .fragments import Fragment, vector
from .kernel import KernelLowering
from .memory import offsets, side_by_side
from .registry import lowers
from .scalars import at

WARP_BITS = 5
BANK_BITS = BANKS.bit_length() - 1
WORD_BITS = 2


@dataclass(frozen=True)
class Places:
    """Where elements lie in a warp's scratch memory: which bit of the address each bit of row and column is, in a base
    tile of the result, and which further one it changes."""

    source: FragmentType
    result: FragmentType

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.source.bits // 8

    def natural(self, bit: Bit) -> int:
        """The bit of the address, row by row."""
        before = self.result.layout.data.columns if bit.axis == "r" else 1
        return (self.size * before).bit_length() - 1 + bit.number

    @staticmethod
    def together(kind: FragmentType) -> int:
        """Elements that one access of a lane takes."""
        return min(side_by_side(kind.layout.data), WIDEST * 8 // kind.bits)

    @cached_property
    def moved(self) -> Mapping[Bit, int]:
        """Bits of the row that change another bit of the address, and which."""
        wide = [(self.together(kind) * self.size).bit_length() - 1 for kind in (self.source, self.result)]
        # So many lanes are served at once that they fill the banks.
        lanes = self.source.layout.data.lane[: BANK_BITS - max(WORD_BITS, wide[0])]
        taken = {self.natural(bit) for bit in lanes}
        free = (bit for bit in range(max(*wide, WORD_BITS), BANK_BITS) if bit not in taken)
        return dict(zip((bit for bit in lanes if self.natural(bit) >= BANK_BITS), free, strict=False))

    def of_lanes(self, kind: FragmentType) -> int:
        """The bits of the address that depend on the lane."""
        lanes = kind.layout.data.lane
        return sum(1 << bit for bit in {*map(self.natural, lanes), *(self.moved[b] for b in lanes if b in self.moved)})

    def offset(self, row: int, along: int) -> tuple[int, int]:
        """The place of an element, in bytes: what is XORed into that of a lane, and what is added."""
        layout, size = self.result.layout.data, self.size
        (i, row), (j, along) = divmod(row, layout.rows), divmod(along, layout.columns)
        tile = (i * self.result.tiles[1] + j) * layout.rows * layout.columns * size
        inside = (row * layout.columns + along) * size
        changed = inside
        for bit, place in self.moved.items():
            changed ^= ((row if bit.axis == "r" else along) >> bit.number & 1) << place
        low = changed % BANKS
        return low, tile + changed - low


@dataclass(frozen=True)
class Exchange:
    """Emits the accesses of one `warp.exchange`."""

    lowering: KernelLowering
    places: Places
    base: IndexValue
    """The offset of this warp's part of the scratch memory."""
    tile: SharedTile
    lane: VirtualRegister

    def move(self, opcode: str, kind: FragmentType, registers: Fragment) -> None:
        """Stores or loads all registers of a fragment."""
        s, lane_bits = self.lowering.scalars, self.places.of_lanes(kind)
        mine, start = self.lowering.addressing.plain(self.tile, s.sum(self.base, self._lane(kind.layout.data)))
        for moved, (row, along) in self._groups(kind, registers):
            low, high = self.places.offset(row, along)
            # Each warp's part starts at a multiple of the banks, so that bits can be turned in the address itself.
            turned = low & lane_bits
            address = self.lowering.emitter.pure("b32", "xor.b32", f"?, {turned}", mine) if turned else mine
            wide, data = (f".v{len(moved)}", vector(len(moved))) if len(moved) > 1 else ("", "?")
            place = at("?", start + high + (low & ~lane_bits))
            form = f"{place}, {data}" if opcode == "st" else f"{data}, {place}"
            operands = (address, *moved) if opcode == "st" else (*moved, address)
            self.lowering.emitter.emit(f"{opcode}.shared{wide}.{moved[0].type}", form, *operands)

    def _groups(self, kind: FragmentType, registers: Fragment) -> Iterator[tuple[Fragment, tuple[int, int]]]:
        """The registers that one access moves, and what its first element adds to the lane's row and column."""
        found = list(offsets(kind, self.places.together(kind)))
        each = len(registers) // len(found)
        for number, place in enumerate(found):
            yield registers[number * each :][:each], place

    def _lane(self, layout: Layout) -> IndexValue:
        """The offset of a lane's first element."""
        s, places = self.lowering.scalars, self.places
        plain = s.sum(*(s.bits(self.lane, *run) for run in _runs([places.natural(bit) for bit in layout.lane])))
        changed = [places.moved.get(bit, -1) for bit in layout.lane]
        return s.xor(plain, s.sum(0, *(s.bits(self.lane, *run) for run in _runs(changed))))


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(first bit, count, place of the first) of each run of a number's bits that move together; -1 moves nowhere."""
    start = 0
    while start < len(places):
        count = 1
        while start + count < len(places) and places[start + count] == places[start] + count:
            count += 1
        if places[start] >= 0:
            yield start, count, places[start]
        start += count


@lowers(ExchangeOp)
def lower(lowering: KernelLowering, op: ExchangeOp) -> None:
    """Emits a `warp.exchange`."""
    source, result, tile = fragment_of(op.input), op.fragment.type, lowering.tile(op, op.scratch)
    emitter, s = lowering.emitter, lowering.scalars
    emitter.comment(f"{op.name}: {source.shape[0]}x{source.shape[1]} {source.element.name} to lanes along rows")
    # Copies of what is known from the start keep the addresses here; outside they would hold registers in the K loop.
    lane, thread = (emitter.register("b32", bound=known.bound) for known in (lowering.lane, lowering.thread))
    emitter.emit("mov.b32", "?, ?", lane, lowering.lane)
    emitter.emit("mov.b32", "?, ?", thread, lowering.thread)
    base = s.multiply(s.shift_right(thread, WARP_BITS), tile.columns * tile.element_bytes)
    exchange = Exchange(lowering, Places(source, result), base, tile, lane)
    held = lowering.fragment(op.input)
    got = emitter.registers(held[0].type, result.registers)
    emitter.emit("bar.warp.sync", "-1")
    exchange.move("st", source, held)
    emitter.emit("bar.warp.sync", "-1")
    exchange.move("ld", result, got)
    lowering.values[op.fragment] = got
