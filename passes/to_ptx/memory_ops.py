"""Operations on memory: allocations, views, copies, scratch rows, words, scales, bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import NamedTuple

from xdsl.dialects import memref
from xdsl.dialects.builtin import IntegerType, i8
from xdsl.ir import SSAValue

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.layouts.layout import LANES, Bit, Layout
from ...dialect.layouts.layout import column as column_bit
from ...dialect.warp.attributes import (
    SHARED_SPACE,
    FragmentType,
    SwizzleAttr,
    element_row,
    fragment_of,
    memory_of,
    memory_space,
)
from ...dialect.warp.cta import CopyOp
from ...dialect.warp.exchange import BANKS, WIDEST, BankedOp, LoadBankedOp, OwnRowOp, StoreBankedOp
from ...dialect.warp.memory import LoadOp, PrefetchOp, StoreOp, bounds
from ...dialect.warp.operands import LoadScalesOp
from ...dialect.warp.views import MatrixOp
from ...dialect.warp.words import (
    BitsAccess,
    FunnelShiftOp,
    LoadBitsOp,
    LoadRegistersOp,
    LoadWordsOp,
    StoreBitsOp,
    StoreRegistersOp,
    StoreWordsOp,
    register_bytes,
    together,
    words_of,
)
from ..allocate import offset_of
from ..diagnostics import fail
from .addressing import CHUNK, OwnRow, Position, SharedTile, matrix
from .emitter import At, IndexValue, VirtualRegister, common_divisor, divisor_of
from .fragments import Fragment
from .kernel import KernelLowering, lowers
from .memory import memory_name, offsets, side_by_side
from .products import STAGED, load_shared, stage_text, store_shared

# Memory and what moves between memories: allocations, views, fragments of matrices, copies of tiles.

PACKED_BITS = 4
"""Bits of elements of which two share a byte, that fragments are loaded of."""


@lowers(memref.AllocOp)
def _alloc(lowering: KernelLowering, op: memref.AllocOp) -> None:
    kind = op.memref.type
    element = element_row(kind.element_type)
    shape = kind.get_shape()
    if memory_space(kind) != SHARED_SPACE or element is None or len(shape) not in (2, 3) or min(shape) <= 0:
        fail(op, f"expected a shared-memory tile of 2 dimensions, or 3 with stages, got {kind}")
    *stages, rows, columns = shape
    size, packed = max(1, element.memory_bits // 8), max(1, 8 // element.memory_bits)
    layout = kind.layout if isinstance(kind.layout, SwizzleAttr) else SwizzleAttr(CHUNK)
    line = columns * element.memory_bits
    if line % (8 * layout.bytes):
        fail(op, f"expected lines of whole {layout.bytes}-byte panels, got {line // 8} bytes in {kind}")
    lowering.values[op.memref] = SharedTile(
        offset_of(op), stages[0] if stages else 1, rows, columns // packed, size, layout.bytes, layout.skip, packed
    )


@lowers(LoadOp)
def _load(lowering: KernelLowering, op: LoadOp) -> None:
    kind = op.fragment.type
    if memory_space(memory_of(op.memory)) == SHARED_SPACE:
        load_shared(lowering, op, lowering.result(op.fragment))
        return
    matrix = lowering.matrix(op, op.memory, bits=kind.bits == PACKED_BITS, steps=True)
    row, column = lowering.indices(op.indices)
    if matrix.packed > 1:
        kind, column = _as_bytes(op, kind), lowering.whole_bytes(op, column, matrix.packed)
    if matrix.repeats:
        from .epilogue import own

        found = lowering.globals.load_repeated(kind, matrix, (row, column), bounds(op.in_bounds))
        lowering.values[op.fragment] = own(lowering, op.fragment, found)
        return
    into = lowering.result(op.fragment)
    lowering.globals.load(kind, matrix, (row, column), bounds(op.in_bounds), into)
    lowering.values[op.fragment] = into


def _as_bytes(op: LoadOp, kind: FragmentType) -> FragmentType:
    """A fragment of bytes in the same registers as one of elements of 4 bits, two neighbours of a row in each."""
    layout = kind.layout.data
    if layout.element[:1] != (column_bit(0),):
        fail(op, f"{op.name} of {kind.element.name} takes two neighbours of a row side by side, got [{layout}]")

    def halved(bits: tuple[Bit, ...]) -> tuple[Bit, ...]:
        return tuple(bit if bit.axis == "r" else column_bit(bit.number - 1) for bit in bits)

    rows, columns = kind.shape
    bytes_ = Layout(halved(layout.lane), halved(layout.element[1:]), halved(layout.warp))
    return FragmentType.of(kind.role.data, rows, columns // 2, i8, bytes_)


@lowers(PrefetchOp)
def _prefetch(lowering: KernelLowering, op: PrefetchOp) -> None:
    matrix = lowering.matrix(op, op.memory, steps=True)
    row, column = lowering.indices(op.indices)
    lowering.globals.prefetch(op.fragment, matrix, (row, column), bounds(op.in_bounds))


@lowers(StoreOp)
def _store(lowering: KernelLowering, op: StoreOp) -> None:
    if isinstance(lowering.values.get(op.memory), SharedTile):
        store_shared(lowering, op)
        return
    kind, matrix = fragment_of(op.fragment), lowering.matrix(op, op.memory, steps=True)
    row, column = lowering.indices(op.indices)
    shown = f"{kind.role.data} {kind.shape[0]}x{kind.shape[1]}"
    lowering.emitter.comment(f"{op.name}: fragment {shown} to {memory_name(op.memory)}")
    lowering.globals.store(kind, matrix, (row, column), bounds(op.in_bounds), lowering.fragment(op.fragment))


@lowers(CopyOp)
def _copy(lowering: KernelLowering, op: CopyOp) -> None:
    source = lowering.matrix(op, op.source, bits=True)
    row, column = lowering.indices(op.indices)
    tile, stages = lowering.tile(op, op.destination), lowering.indices(op.stage)
    place = stage_text(stages[0] if stages else None, "the stage to fill")
    lowering.emitter.comment(
        f"{op.name}: a {tile.rows}x{tile.columns * tile.packed} tile of {memory_name(op.source)} to {place}"
    )
    lowering.copies.copy(
        source,
        (row, lowering.whole_bytes(op, column, source.packed)),
        tile,
        stages[0] if stages else 0,
        bounds(op.in_bounds),
        asynchronous=op.is_async is not None,
        spread=op.packed is not None,
    )


@lowers(MatrixOp)
def _view(lowering: KernelLowering, op: MatrixOp) -> None:
    if op.memory not in lowering.memories:
        fail(op, f"expected memory that is an argument of the kernel, got {op.memory.type}")
    if op.dimensions_kept:
        if op.matrix.uses:
            fail(op, "several matrices have no registers; take one of them with indices for all dimensions kept")
        return
    at = list(lowering.indices(op.indices))
    lowering.values[op.matrix] = matrix(
        lowering.kernel, lowering.scalars, lowering.memories[op.memory], op.dimensions, at
    )


@lowers(memref.DimOp)
def _dim(lowering: KernelLowering, op: memref.DimOp) -> None:
    number = lowering.scalar(op.index)
    if op.source not in lowering.memories or not isinstance(number, int):
        fail(op, f"expected a known dimension of an argument of the kernel, got {op.source.type}")
    lowering.values[op.result] = lowering.memories[op.source].shape[number]


# Fragments in a warp's scratch memory: `warp.own_row`, `warp.store_banked`, `warp.load_banked`.
#
# What is written row by row would meet at banks: lanes that differ in a bit of the row that stands above the lowest
# 128 bytes. Each such bit is XORed into a bit of the address that no other lane's bit uses, of those that neither a
# lane's write nor its read of neighbours covers. Reads then have the same 128 bytes in another order.

WARP_BITS = 5
BANK_BITS = BANKS.bit_length() - 1
WORD_ADDRESS_BITS = 2


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
        lanes = self.source.layout.data.lane[: BANK_BITS - max(WORD_ADDRESS_BITS, wide[0])]
        taken = {self.natural(bit) for bit in lanes}
        free = (bit for bit in range(max(*wide, WORD_ADDRESS_BITS), BANK_BITS) if bit not in taken)
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
def _store_banked(lowering: KernelLowering, op: StoreBankedOp) -> None:
    kind = fragment_of(op.fragment)
    shown = f"{kind.shape[0]}x{kind.shape[1]} {kind.element.name}"
    lowering.emitter.comment(f"{op.name}: {shown} to be read by other lanes")
    for registers, place in _banked(lowering, op).places_of(kind, lowering.fragment(op.fragment)):
        lowering.emitter.store("shared", registers, place)


@lowers(LoadBankedOp)
def _load_banked(lowering: KernelLowering, op: LoadBankedOp) -> None:
    kind = op.fragment.type
    got = lowering.fresh(kind)
    for registers, place in _banked(lowering, op).places_of(kind, got):
        lowering.emitter.load("shared", registers, place)
    lowering.values[op.fragment] = got


# Fragments in memory as registers hold them: `warp.store_registers`, `warp.load_registers`.


class _Vectors(NamedTuple):
    """The vectors of one lane: how many registers each has, and where the first and the next ones lie."""

    space: str
    each: int
    first: At
    step: int

    @staticmethod
    def of(lowering: KernelLowering, op: StoreRegistersOp | LoadRegistersOp, kind: FragmentType) -> _Vectors:
        s, (row, column), count = lowering.scalars, lowering.indices((op.row, op.column)), together(kind)
        lane_bytes = count * register_bytes(kind)
        if memory_space(memory_of(op.memory)) == SHARED_SPACE:
            tile = lowering.tile(op, op.memory)
            start = s.multiply(row, tile.stage_bytes // tile.rows), s.multiply(column, tile.element_bytes)
            place = lowering.addressing.plain(tile, s.sum(*start, s.multiply(lowering.lane, lane_bytes)))
            return _Vectors("shared", count, place, LANES * lane_bytes)
        matrix = lowering.matrix(op, op.memory)
        terms = [(row, matrix.row_bytes), (column, matrix.element_bytes), (lowering.lane, lane_bytes)]
        return _Vectors("global", count, s.address(matrix.base, terms), LANES * lane_bytes)

    def each_of(self, registers: Fragment) -> Iterator[tuple[Fragment, At]]:
        """The registers of each vector, and where it lies."""
        for i, start in enumerate(range(0, len(registers), self.each)):
            yield registers[start : start + self.each], self.first.behind(i * self.step)


def _comment(lowering: KernelLowering, op: StoreRegistersOp | LoadRegistersOp, kind: FragmentType, way: str) -> None:
    place = "shared memory" if memory_space(memory_of(op.memory)) == SHARED_SPACE else memory_name(op.memory)
    lowering.emitter.comment(f"{op.name}: registers of {kind.role.data} {kind.shape[0]}x{kind.shape[1]} {way} {place}")


@lowers(StoreRegistersOp)
def _store_registers(lowering: KernelLowering, op: StoreRegistersOp) -> None:
    _comment(lowering, op, fragment_of(op.fragment), "to")
    taken = True if op.taken is None else lowering.predicate(op.taken)
    vectors = _Vectors.of(lowering, op, fragment_of(op.fragment))
    for registers, place in vectors.each_of(lowering.fragment(op.fragment)):
        lowering.emitter.store(vectors.space, registers, place, guard=taken)


@lowers(LoadRegistersOp)
def _load_registers(lowering: KernelLowering, op: LoadRegistersOp) -> None:
    _comment(lowering, op, op.fragment.type, "from")
    into = lowering.result(op.fragment)
    vectors = _Vectors.of(lowering, op, op.fragment.type)
    for registers, place in vectors.each_of(into):
        lowering.emitter.load(vectors.space, registers, place)
    lowering.values[op.fragment] = into


# Words of packed elements and of scales: `warp.load_words`, `warp.store_words`, `warp.load_scales`.

WORD_BYTES = 4


def _words(lowering: KernelLowering, op: LoadWordsOp | StoreWordsOp, kind: FragmentType) -> tuple[int, int, At]:
    """Registers that one access moves, the bytes of one, and the address of a lane's first."""
    matrix, (row, column) = lowering.matrix(op, op.memory), lowering.indices(op.indices)
    size = WORD_BYTES * words_of(kind) // kind.registers
    holder = lowering.addressing.holder(kind.layout.data, lowering.lane)
    address = lowering.scalars.address(
        matrix.base,
        [(holder, WORD_BYTES * words_of(kind)), (row, matrix.row_bytes), (column, WORD_BYTES)],
    )
    words = gcd(divisor_of(matrix.row_bytes), matrix.alignment) // WORD_BYTES
    aligned = common_divisor((column, words, words_of(kind))) * WORD_BYTES
    together = CHUNK // size
    while aligned % (together * size) or kind.registers % together:
        together //= 2
    return max(1, together), size, address


@lowers(LoadWordsOp)
def _load_words(lowering: KernelLowering, op: LoadWordsOp) -> None:
    kind, into = op.fragment.type, lowering.result(op.fragment)
    together, size, first = _words(lowering, op, kind)
    for start in range(0, len(into), together):
        registers = into[start : start + together]
        lowering.emitter.load("global", registers, first.behind(start * size), f"b{8 * size}")
    lowering.values[op.fragment] = into


@lowers(StoreWordsOp)
def _store_words(lowering: KernelLowering, op: StoreWordsOp) -> None:
    kind, held = fragment_of(op.fragment), lowering.fragment(op.fragment)
    together, size, first = _words(lowering, op, kind)
    for start in range(0, len(held), together):
        registers = held[start : start + together]
        lowering.emitter.store("global", registers, first.behind(start * size), f"b{8 * size}")


@lowers(LoadScalesOp)
def _load_scales(lowering: KernelLowering, op: LoadScalesOp) -> None:
    into, tile, layout = lowering.result(op.fragment), lowering.tile(op, op.memory), op.fragment.type.layout.data
    found = lowering.indices(op.indices)
    stage, row, column = found if len(found) == STAGED else (0, *found)
    if divisor_of(column) % SCALES_OF_WORD:
        fail(op, f"expected a column that is a multiple of {SCALES_OF_WORD}, the scales of a word, got {column}")
    place = stage_text(stage if len(found) == STAGED else None, "the stage to multiply")
    size = layout.extent(op.axis)
    lowering.emitter.comment(f"{op.name}: scales of {size * len(into)} {op.what} from {place}")
    lane_row = lowering.addressing.from_bits(lowering.lane, layout.lane, op.axis)
    for i, register in enumerate(into):
        where = Position.of(lane_row, row, i * size), Position.of(0, column, 0)
        lowering.emitter.load("shared", [register], lowering.addressing.shared(tile, stage, *where))
    lowering.values[op.fragment] = into


# Bits of memory: `warp.load_bits`, `warp.store_bits`, `warp.funnel_shift`.

WORD_BITS = 32


def _place(lowering: KernelLowering, op: BitsAccess) -> tuple[At, VirtualRegister | bool]:
    """The address, and whether it is accessed."""
    base = lowering.matrix(op, op.memory, bits=True).base
    terms = [(lowering.scalar(index), stride) for index, stride in op.terms]
    guard = True if op.taken is None else lowering.predicate(op.taken)
    return lowering.scalars.address(base, [*terms, (op.start, 1)]), guard


def _width(kind: object) -> int:
    return kind.bitwidth if isinstance(kind, IntegerType) else 0


def _held(lowering: KernelLowering, value: SSAValue, bits: int) -> VirtualRegister:
    """The register of a value, or one that is set to a constant."""
    found = lowering.scalar(value)
    kind = _register_of(bits)
    return lowering.emitter.compute(f"mov.{kind}", found) if isinstance(found, int) else found


def _register_of(bits: int) -> str:
    return "b32" if bits == WORD_BITS else "b16"


@lowers(LoadBitsOp)
def _load_bits(lowering: KernelLowering, op: LoadBitsOp) -> None:
    (place, guard), bits = _place(lowering, op), _width(op.result.type)
    into = lowering.emitter.register(_register_of(bits))
    if guard is not True and not _is_stored_alike(op):
        lowering.emitter.clear([into])
    lowering.emitter.load("global", [into], place, f"b{bits}", guard=guard)
    lowering.values[op.result] = into


def _is_stored_alike(op: LoadBitsOp) -> bool:
    """Whether what is read is only stored, and only where it is read."""
    users = [use.operation for use in op.result.uses]
    return all(isinstance(user, StoreBitsOp) and user.taken == op.taken for user in users)


@lowers(StoreBitsOp)
def _store_bits(lowering: KernelLowering, op: StoreBitsOp) -> None:
    (place, guard), bits = _place(lowering, op), _width(op.values[0].type)
    held = [_held(lowering, value, bits) for value in op.values]
    lowering.emitter.store("global", held, place, f"b{bits}", guard=guard)


@lowers(FunnelShiftOp)
def _shift(lowering: KernelLowering, op: FunnelShiftOp) -> None:
    low, high = (_held(lowering, value, WORD_BITS) for value in (op.low, op.high))
    lowering.values[op.result] = lowering.emitter.compute("shf.r.wrap.b32", low, high, lowering.scalar(op.bits))
