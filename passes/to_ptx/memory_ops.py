"""Operations on memory: allocations, views, copies, registers, packing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd
from typing import NamedTuple

from xdsl.dialects import memref
from xdsl.dialects.builtin import i8
from xdsl.ir import SSAValue

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.layouts.layout import LANES, Bit, Layout
from ...dialect.layouts.layout import column as column_bit
from ...dialect.warp.attributes import (
    SHARED_SPACE,
    TENSOR_SPACE,
    FragmentType,
    SwizzleAttr,
    element_row,
    fragment_of,
    memory_of,
    memory_space,
)
from ...dialect.warp.cta import CopyOp, PackOp
from ...dialect.warp.matrices import register_bytes, together, words_of
from ...dialect.warp.memory import LoadOp, PrefetchOp, StoreOp
from ...dialect.warp.op_shapes import bounds
from ...dialect.warp.views import MatrixOp, strides_of
from ...dialect.warp.wmma import OpaqueType
from ..allocate import offset_of
from ..diagnostics import fail
from .addressing import CHUNK, Position, SharedTile, matrix
from .copies import SharedFragments
from .emitter import At, IndexValue, VirtualRegister, common_divisor, divisor_of, word
from .fragments import Fragment
from .kernel import KernelLowering, lowers
from .memory import memory_name

# Memory and what moves between memories: allocations, views, fragments of matrices, copies of tiles.

PACKED_BITS = 4
"""Bits of elements of which two share a byte, that fragments are loaded of."""


@lowers(memref.AllocOp)
def _alloc(lowering: KernelLowering, op: memref.AllocOp) -> None:
    kind = op.memref.type
    if memory_space(kind) == TENSOR_SPACE:
        from .tensor_memory import allocate

        return allocate(lowering, op)
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
    if isinstance(op.fragment.type, OpaqueType):
        from .products import load_opaque

        return load_opaque(lowering, op, op.fragment.type)
    kind = fragment_of(op.fragment)
    if op.order:
        return _load_registers(lowering, op)
    if op.along is not None:
        from .epilogue import load_vector

        return load_vector(lowering, op, op.along.data[0])
    if memory_space(memory_of(op.memory)) == TENSOR_SPACE:
        from .tensor_memory import load

        return load(lowering, op, kind)
    if memory_space(memory_of(op.memory)) == SHARED_SPACE:
        return _load_shared(lowering, op, kind)
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
    if isinstance(op.fragment.type, OpaqueType):
        from .products import store_opaque

        store_opaque(lowering, op, op.fragment.type)
        return
    if op.order:
        _store_registers(lowering, op)
        return
    if memory_space(memory_of(op.memory)) == TENSOR_SPACE:
        from .tensor_memory import store

        store(lowering, op, fragment_of(op.fragment))
        return
    if isinstance(lowering.values.get(op.memory), SharedTile):
        _store_shared(lowering, op)
        return
    kind, matrix = fragment_of(op.fragment), lowering.matrix(op, op.memory, steps=True)
    row, column = lowering.indices(op.indices)
    shown = f"{kind.role.data} {kind.shape[0]}x{kind.shape[1]}"
    lowering.emitter.comment(f"{op.name}: fragment {shown} to {memory_name(op.memory)}")
    lowering.globals.store(kind, matrix, (row, column), bounds(op.in_bounds), lowering.fragment(op.fragment))


STAGED = 3
"""Indices of a tile that has stages: the stage, the row, the column."""


def _load_shared(lowering: KernelLowering, op: LoadOp, kind: FragmentType) -> None:
    """Reads a fragment from a tile: matrices by `ldmatrix`, or each lane its own elements."""
    tile, place = lowering.shared_place(op, op.memory, op.indices)
    into, swapped = lowering.result(op.fragment), op.swapped is not None
    if op.move is not None:
        _check_chunks(op, "ldmatrix reads", tile, place[2])
    if kind.role.data == "scale" and divisor_of(place[2]) % SCALES_OF_WORD:
        fail(op, f"expected a column that is a multiple of {SCALES_OF_WORD}, the scales of a word, got {place[2]}")
    lowering.emitter.comment(f"{op.name}: {_moved(kind, op.indices, place[0], 'from')}")
    if op.move is None:
        _by_lane(lowering).load(kind, swapped, tile, place, into)
    else:
        lowering.matrices.move(op.move.loads(kind.bits), kind, swapped, tile, place, into)
        if op.move.packed and kind.element.name == "e2m1":
            # The elements arrive in the low bits of their bytes; products want them in the middle.
            for register in into:
                lowering.emitter.emit("shl.b32", register, register, 2)
    lowering.values[op.fragment] = into


def _store_shared(lowering: KernelLowering, op: StoreOp) -> None:
    """Writes a fragment to a tile: matrices by `stmatrix`, or each lane its own elements."""
    tile, place = lowering.shared_place(op, op.memory, op.indices)
    kind = fragment_of(op.fragment)
    if op.move is not None:
        _check_chunks(op, "stmatrix writes", tile, place[2])
    elif tile.packed > 1:
        fail(op, f"warp.store writes whole bytes, got elements of {kind.element.name}")
    lowering.emitter.comment(f"{op.name}: {_moved(kind, op.indices, place[0], 'to')}")
    registers = lowering.fragment(op.fragment)
    if op.move is None:
        rank = None if op.cta is None else lowering.scalar(op.cta)
        _by_lane(lowering).store(kind, tile, place, registers, rank)
    else:
        lowering.matrices.move(op.move.stores(kind.bits), kind, op.swapped is not None, tile, place, registers)


def _by_lane(lowering: KernelLowering) -> SharedFragments:
    return SharedFragments(lowering.emitter, lowering.addressing, lowering.lane)


def _check_chunks(op: LoadOp | StoreOp, moves: str, tile: SharedTile, column: IndexValue) -> None:
    """Refuses matrices that do not begin where a row of one may."""
    if isinstance(column, int) and column * tile.element_bytes % CHUNK:
        fail(op, f"{moves} rows of {CHUNK} bytes from multiples of {CHUNK} bytes, got column {column}")


def stage_text(stage: IndexValue | None, moving: str) -> str:
    """A stage in a comment, None for memory without stages; `moving` is what one is called that the loop counts."""
    if stage is None:
        return "shared memory"
    return f"stage {stage}" if isinstance(stage, int) else moving


def _moved(kind: FragmentType, indices: Sequence[SSAValue], stage: IndexValue, way: str) -> str:
    """What a comment says of a fragment that moves."""
    place = stage_text(stage if len(indices) == STAGED else None, "the stage to multiply")
    return f"fragment {kind.role.data} {kind.shape[0]}x{kind.shape[1]} {way} {place}"


@lowers(CopyOp)
def _copy(lowering: KernelLowering, op: CopyOp) -> None:
    source = lowering.matrix(op, op.source, bits=True)
    row, column = lowering.indices(op.indices)
    if op.until is not None:
        source = replace(source, rows=lowering.scalar(op.until))
    tile, stages = lowering.tile(op, op.destination), lowering.indices(op.stage)
    place = stage_text(stages[0] if stages else None, "the stage to fill")
    lowering.emitter.comment(
        f"{op.name}: a {tile.rows}x{tile.columns * tile.packed} tile of {memory_name(op.source)} to {place}"
    )
    at, inside = (row, lowering.whole_bytes(op, column, source.packed)), bounds(op.in_bounds)
    spread, stage = op.packed is not None, stages[0] if stages else 0
    lowering.copies.copy(
        source, at, tile, stage, inside, asynchronous=op.is_async is not None, spread=spread, part=op.place
    )


@lowers(MatrixOp)
def _view(lowering: KernelLowering, op: MatrixOp) -> None:
    if op.memory not in lowering.memories:
        fail(op, f"expected memory that is an argument of the kernel, got {op.memory.type}")
    if op.dimensions_kept:
        if op.matrix.uses:
            fail(op, "several matrices have no registers; take one of them with indices for all dimensions kept")
        return
    at, part, memory = lowering.indices(op.indices), lowering.indices(op.part), lowering.memories[op.memory]
    lowering.values[op.matrix] = matrix(lowering.kernel, lowering.scalars, memory, op.dimensions, at, part)


@lowers(memref.DimOp)
def _dim(lowering: KernelLowering, op: memref.DimOp) -> None:
    number = lowering.scalar(op.index)
    if op.source not in lowering.memories or not isinstance(number, int):
        fail(op, f"expected a known dimension of an argument of the kernel, got {op.source.type}")
    lowering.values[op.result] = lowering.memories[op.source].shape[number]


# Fragments in memory as registers hold them: `registers` of `warp.load` and `warp.store`.

WORD_BYTES = 4

FIRST_TWO = word(0x44444444)
"""A word of metadata that names elements 0 and 1 of each chunk (PTX ISA 9.7.14.6.1)."""


class RegisterAccesses(NamedTuple):
    """The accesses of one lane: how many registers each moves, in an instruction of which space and type, and where."""

    space: str
    type: str
    each: int
    places: Iterable[At]

    def of(self, registers: Fragment) -> Iterator[tuple[Fragment, At]]:
        """The registers of each access, with its address."""
        for i, place in enumerate(self.places):
            yield registers[i * self.each :][: self.each], place


def _by_lanes(lowering: KernelLowering, op: LoadOp | StoreOp, kind: FragmentType) -> RegisterAccesses:
    matrix, (row, column) = lowering.matrix(op, op.memory), lowering.indices(op.indices)
    size = WORD_BYTES * words_of(kind) // kind.registers
    holder = lowering.addressing.holder(kind.layout.data, lowering.lane)
    first = lowering.scalars.address(
        matrix.base,
        [(holder, WORD_BYTES * words_of(kind)), (row, matrix.row_bytes), (column, WORD_BYTES)],
    )
    words = gcd(divisor_of(matrix.row_bytes), matrix.alignment) // WORD_BYTES
    aligned = common_divisor((column, words, words_of(kind))) * WORD_BYTES
    each = CHUNK // size
    while aligned % (each * size) or kind.registers % each:
        each //= 2
    each = max(1, each)
    places = [first.behind(start * size) for start in range(0, kind.registers, each)]
    return RegisterAccesses("global", f"b{8 * size}", each, places)


def _by_lines(lowering: KernelLowering, op: LoadOp | StoreOp, kind: FragmentType) -> RegisterAccesses:
    """Vectors in the lines of a tile with a swizzle."""
    s, addressing, layout, each = lowering.scalars, lowering.addressing, kind.layout.data, together(kind)
    (tile, (stage, row, _)), lane = lowering.shared_place(op, op.memory, op.indices), lowering.lane
    holder, of_line = addressing.holder(layout, lane), tile.swizzle // CHUNK
    line, column = s.quotient(holder, of_line), Position.of(s.multiply(s.mask(holder, of_line - 1), CHUNK), 0, 0)
    at = (Position.of(line, row, i * layout.threads // of_line) for i in range(kind.registers // each))
    return RegisterAccesses("shared", "", each, (addressing.shared(tile, stage, down, column) for down in at))


def _by_vectors(lowering: KernelLowering, op: LoadOp | StoreOp, kind: FragmentType) -> RegisterAccesses:
    if isinstance(memory_of(op.memory).layout, SwizzleAttr):
        return _by_lines(lowering, op, kind)
    s, (row, column), each = lowering.scalars, lowering.indices(op.indices), together(kind)
    lane_bytes, space = each * register_bytes(kind), "global"
    if memory_space(memory_of(op.memory)) == SHARED_SPACE:
        tile, space = lowering.tile(op, op.memory), "shared"
        start = s.multiply(row, tile.stage_bytes // tile.rows), s.multiply(column, tile.element_bytes)
        first = lowering.addressing.plain(tile, s.sum(*start, s.multiply(lowering.lane, lane_bytes)))
    else:
        matrix = lowering.matrix(op, op.memory)
        terms = [(row, matrix.row_bytes), (column, matrix.element_bytes), (lowering.lane, lane_bytes)]
        first = s.address(matrix.base, terms)
    places = [first.behind(i * LANES * lane_bytes) for i in range(kind.registers // each)]
    return RegisterAccesses(space, "", each, places)


def _by_tiles(lowering: KernelLowering, op: LoadOp | StoreOp, kind: FragmentType) -> RegisterAccesses:
    tile, (stage, row, column) = lowering.shared_place(op, op.memory, op.indices)
    layout = kind.layout.data
    warps, holder = layout.threads // LANES, lowering.addressing.holder(layout, lowering.lane)
    warp = lowering.scalars.quotient(holder, LANES) if warps > 1 else 0
    along = Position.of(lowering.lane, column, 0)
    # Addresses are computed one by one, where they are used.
    downs = (Position.of(warp, row, i * warps) for i in range(kind.registers))
    return RegisterAccesses("shared", "", 1, (lowering.addressing.shared(tile, stage, down, along) for down in downs))


BY_ORDER = {"lanes": _by_lanes, "vectors": _by_vectors, "tiles": _by_tiles}
"""The accesses of registers, by the order in which they lie in memory."""


def _register_accesses(lowering: KernelLowering, op: LoadOp | StoreOp, kind: FragmentType) -> RegisterAccesses:
    place = "shared memory" if memory_space(memory_of(op.memory)) == SHARED_SPACE else memory_name(op.memory)
    shown = f"{kind.role.data} {kind.shape[0]}x{kind.shape[1]}"
    moved = "to" if isinstance(op, StoreOp) else "from"
    lowering.emitter.comment(f"{op.name}: registers of {shown} {moved} {place}")
    return BY_ORDER[op.order](lowering, op, kind)


def _load_registers(lowering: KernelLowering, op: LoadOp) -> None:
    emitter, into = lowering.emitter, lowering.result(op.fragment)
    accesses = _register_accesses(lowering, op, fragment_of(op.fragment))
    for registers, place in accesses.of(into):
        emitter.load(accesses.space, registers, place, accesses.type)
        for register in registers if op.padded is not None else ():
            absent = emitter.compute("setp.eq.b32", register, 0)
            emitter.emit("selp.b32", register, FIRST_TWO, register, absent)
    lowering.values[op.fragment] = into


def _store_registers(lowering: KernelLowering, op: StoreOp) -> None:
    taken = True if op.taken is None else lowering.predicate(op.taken)
    accesses = _register_accesses(lowering, op, fragment_of(op.fragment))
    for registers, place in accesses.of(lowering.fragment(op.fragment)):
        lowering.emitter.store(accesses.space, registers, place, accesses.type, guard=taken)


# Whole matrices to aligned rows: `warp.pack`.
#
# A thread makes 16 bytes of the destination at a time. Where the source's rows are whole words apart, they are four
# words of the source. Elsewhere they start in the middle of a word: the thread reads the five words that cover them,
# each aligned, and shifts neighbouring words together. So every access but the last one of the matrix takes a word or
# more, however odd the rows are.

BYTE = 8


@dataclass(frozen=True)
class PackedRows:
    """A matrix of known size without gaps between its rows; of packed elements each byte counts as one."""

    base: VirtualRegister
    rows: int
    row_bytes: int
    element_bytes: int

    @staticmethod
    def of(lowering: KernelLowering, op: PackOp, value: SSAValue) -> PackedRows:
        """Raises a located diagnostic for another matrix."""
        kind = memory_of(value)
        (rows, columns), offset, element = kind.get_shape(), kind.get_offset(), element_row(kind.element_type)
        if element is not None and min(rows, columns) > 0 and strides_of(kind) == (columns, 1):
            bits, size = element.memory_bits, max(1, element.memory_bits // BYTE)
            if columns * bits % BYTE == 0 and (size if offset is None else offset * bits // BYTE) % WORD_BYTES == 0:
                base = lowering.matrix(op, value, bits=True).base
                return PackedRows(base, rows, columns * bits // BYTE, size)
        fail(op, f"{op.name} takes matrices of static size, without gaps, at multiples of {WORD_BYTES} bytes, got "
             f"{kind}")  # fmt: skip


class PackedChunk(NamedTuple):
    """Sixteen bytes of the destination: their number, the row and the chunk of the row they are, and where they are
    made at all. `excess` are the bytes, 0 to 3, from the start of a word of the source to the first of them."""

    number: IndexValue
    row: IndexValue
    column: IndexValue
    taken: VirtualRegister | bool
    excess: IndexValue


class Packing:
    """Emits the copy of one CTA's share to aligned rows."""

    def __init__(self, lowering: KernelLowering, source: PackedRows, destination: PackedRows) -> None:
        self.emitter, self.scalars = lowering.emitter, lowering.scalars
        self.source, self.destination = source, destination
        self.per_row = destination.row_bytes // CHUNK
        self.total = destination.rows * self.per_row
        self.filled = -(-source.row_bytes // CHUNK)
        """Chunks of a row that hold something of the source."""
        self.rest = source.rows * source.row_bytes % WORD_BYTES
        """Bytes of the source behind its last whole word."""

    def copy(self, share: IndexValue, shares: int, thread: VirtualRegister, threads: int) -> None:
        """Copies one share; threads take neighbouring chunks."""
        s, turns = self.scalars, -(-self.total // (shares * threads))
        first = s.add(s.multiply(share, turns * threads), thread)
        for turn in range(turns):
            number = s.add(first, turn * threads)
            row, column = s.quotient(number, self.per_row), s.remainder(number, self.per_row)
            taken = self.total == turns * shares * threads or s.compare("lt", number, self.total)
            excess = s.remainder(s.multiply(row, self.source.row_bytes % WORD_BYTES), WORD_BYTES)
            self._copy(PackedChunk(number, row, column, taken, excess))

    def _copy(self, chunk: PackedChunk) -> None:
        words = self._cut(chunk, self._shifted(chunk, self._words(chunk)))
        place = self.scalars.address(self.destination.base, [(chunk.number, CHUNK)])
        self.emitter.store("global", words, place, guard=chunk.taken)
        self._copy_last_elements(chunk)

    def _words(self, chunk: PackedChunk) -> Fragment:
        """The words of the source that cover the chunk; zeros for those outside its row, or of which a part is
        outside the matrix."""
        s, pitch, taken = self.scalars, self.source.row_bytes, chunk.taken
        if self.source.rows < self.destination.rows:
            taken = s.both(taken, s.compare("lt", chunk.row, self.source.rows))
        if self.filled < self.per_row:
            taken = s.both(taken, s.compare("lt", chunk.column, self.filled))
        start = s.subtract(s.multiply(chunk.column, CHUNK), chunk.excess)
        if self.rest:
            # A word of the last row that ends behind the matrix must not be read: move its start behind the row.
            last = s.compare("eq", chunk.row, self.source.rows - 1)
            start = s.add(start, s.select(last, WORD_BYTES - 1, 0))
        terms = [(chunk.row, pitch), (chunk.column, CHUNK), (chunk.excess, -1)]
        words: Fragment = []
        for offset in range(0, CHUNK + (WORD_BYTES if pitch % WORD_BYTES else 0), WORD_BYTES):
            inside = s.both(taken, s.compare("lt", start, pitch - offset))
            place, word = s.address(self.source.base, [*terms, (offset, 1)]), self.emitter.register("b32")
            if inside is not True:
                self.emitter.clear([word])
            self.emitter.load("global", [word], place, guard=inside)
            words.append(word)
        return words

    def _shifted(self, chunk: PackedChunk, words: Fragment) -> Fragment:
        """The chunk's own four words."""
        if len(words) == CHUNK // WORD_BYTES:
            return words
        bits = self.scalars.multiply(chunk.excess, BYTE)
        return [self.emitter.compute("shf.r.wrap.b32", low, high, bits) for low, high in pairwise(words)]

    def _cut(self, chunk: PackedChunk, words: Fragment) -> Fragment:
        """The words with zeros in place of what belongs to the source's next row."""
        s, (whole, part) = self.scalars, divmod(self.source.row_bytes % CHUNK, WORD_BYTES)
        if not (whole or part):
            return words
        last = s.compare("eq", chunk.column, self.filled - 1)
        kept = words[:whole]
        for i, held in enumerate(words[whole:]):
            mask = s.select(last, (1 << BYTE * part) - 1 if i == 0 else 0, -1)
            kept.append(self.emitter.pure("and.b32", held, mask))
        return kept

    def _copy_last_elements(self, chunk: PackedChunk) -> None:
        """Copies the elements behind the last whole word of the source, one by one, after their chunk."""
        s, size, bytes_ = self.scalars, self.source.element_bytes, self.source.rows * self.source.row_bytes
        for start in range(bytes_ - self.rest, bytes_, size):
            row, column = divmod(start, self.source.row_bytes)
            mine = s.compare("eq", chunk.number, row * self.per_row + column // CHUNK)
            element = self.emitter.register("b16")
            place = s.address(self.source.base, [(start, 1)])
            self.emitter.load("global", [element], place, f"b{BYTE * size}", guard=mine)
            place = s.address(self.destination.base, [(row * self.destination.row_bytes + column, 1)])
            self.emitter.store("global", [element], place, f"b{BYTE * size}", guard=mine)


@lowers(PackOp)
def _pack(lowering: KernelLowering, op: PackOp) -> None:
    source, destination = (PackedRows.of(lowering, op, value) for value in (op.source, op.destination))
    if source.row_bytes < WORD_BYTES:
        fail(op, f"{op.name} takes rows of at least {WORD_BYTES} bytes, got {op.source.type}")
    if destination.row_bytes % CHUNK:
        fail(op, f"{op.name} makes rows of whole {CHUNK}-byte chunks, got {op.destination.type}")
    share, shares = lowering.scalar(op.share), op.shares.value.data
    Packing(lowering, source, destination).copy(share, shares, lowering.thread, lowering.threads)
