"""Fragments in a warp's scratch memory: `warp.own_row`, `warp.store_banked`, `warp.load_banked`.

What is written row by row would meet at banks: lanes that differ in a bit of the row that stands above the lowest 128
bytes. Each such bit is XORed into a bit of the address that no other lane's bit uses, of those that neither a lane's
write nor its read of neighbours covers. Reads then have the same 128 bytes in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...dialect.layouts.layout import Bit, Layout
from ...dialect.warp.attributes import FragmentType, fragment_of
from ...dialect.warp.exchange import BANKS, WIDEST, BankedOp, LoadBankedOp, OwnRowOp, StoreBankedOp
from ..diagnostics import fail
from .addressing import OwnRow
from .fragments import Fragment
from .kernel import KernelLowering
from .memory import offsets, side_by_side
from .operands import At, IndexValue
from .registry import lowers

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
class Banked:
    """Emits the accesses of one operation."""

    lowering: KernelLowering
    places: Places
    row: OwnRow

    def places_of(self, kind: FragmentType, registers: Fragment) -> Iterator[tuple[Fragment, At]]:
        """The registers of a fragment that one access moves, and where."""
        s, lane_bits = self.lowering.scalars, self.places.of_lanes(kind)
        mine, start = self.lowering.addressing.plain(self.row.tile, s.sum(self.row.base, self._lane(kind.layout.data)))
        for moved, (row, along) in self._groups(kind, registers):
            low, high = self.places.offset(row, along)
            # Each warp's part starts at a multiple of the banks, so that bits can be turned in the address itself.
            turned = low & lane_bits
            address = self.lowering.emitter.pure("xor.b32", mine, turned) if turned else mine
            yield moved, At(address, start + high + (low & ~lane_bits))

    def _groups(self, kind: FragmentType, registers: Fragment) -> Iterator[tuple[Fragment, tuple[int, int]]]:
        """The registers that one access moves, and what its first element adds to the lane's row and column."""
        found = list(offsets(kind, self.places.together(kind)))
        each = len(registers) // len(found)
        for number, place in enumerate(found):
            yield registers[number * each :][:each], place

    def _lane(self, layout: Layout) -> IndexValue:
        """The offset of a lane's first element."""
        s, places = self.lowering.scalars, self.places
        plain = s.sum(*(s.bits(self.row.lane, *run) for run in _runs([places.natural(bit) for bit in layout.lane])))
        changed = [places.moved.get(bit, -1) for bit in layout.lane]
        return s.xor(plain, s.sum(0, *(s.bits(self.row.lane, *run) for run in _runs(changed))))


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


@lowers(OwnRowOp)
def _own_row(lowering: KernelLowering, op: OwnRowOp) -> None:
    emitter, s, tile = lowering.emitter, lowering.scalars, lowering.tile(op, op.scratch)
    # Copies of what is known from the start keep the addresses here; outside they would hold registers in the K loop.
    lane, thread = (emitter.compute("mov.b32", known) for known in (lowering.lane, lowering.thread))
    lane.bound, thread.bound = lowering.lane.bound, lowering.thread.bound
    base = s.multiply(s.shift_right(thread, WARP_BITS), tile.columns * tile.element_bytes)
    lowering.values[op.row] = OwnRow(tile, base, lane)


def _banked(lowering: KernelLowering, op: BankedOp) -> Banked:
    row = lowering.values.get(op.mine)
    if not isinstance(row, OwnRow):
        fail(op, f"expected the row of scratch memory of warp.own_row, got {op.mine.type}")
    return Banked(lowering, Places(*op.moved), row)


@lowers(StoreBankedOp)
def _store(lowering: KernelLowering, op: StoreBankedOp) -> None:
    kind = fragment_of(op.fragment)
    shown = f"{kind.shape[0]}x{kind.shape[1]} {kind.element.name}"
    lowering.emitter.comment(f"{op.name}: {shown} to be read by other lanes")
    for registers, place in _banked(lowering, op).places_of(kind, lowering.fragment(op.fragment)):
        lowering.emitter.store("shared", registers, place)


@lowers(LoadBankedOp)
def _load(lowering: KernelLowering, op: LoadBankedOp) -> None:
    kind = op.fragment.type
    got = lowering.fresh(kind)
    for registers, place in _banked(lowering, op).places_of(kind, got):
        lowering.emitter.load("shared", registers, place)
    lowering.values[op.fragment] = got
