"""`warp.pack`: whole matrices to aligned rows, or to blocks, in global memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple

from xdsl.ir import SSAValue

from ...dialect.layouts.layout import column as layout_column
from ...dialect.mlir.affine import strides_of
from ...dialect.warp.attributes import element_row, memory_of
from ...dialect.warp.memory import PackOp
from ...dialect.warp.views import BlocksAttr
from ..diagnostics import fail
from .addressing import CHUNK, MemoryArgument
from .emitter import Condition, IndexValue, VirtualRegister, word
from .fragments import Fragment, gather
from .kernel import KernelLowering, lowers

# A thread makes 16 bytes of the destination at a time. Where the source's rows are whole words apart, they are four
# words of the source. Elsewhere they start in the middle of a word: the thread reads the five words that cover them,
# each aligned, and shifts neighbouring words together. So every access but the last one of the matrix takes a word or
# more, however odd the rows are.

BYTE, WORD_BYTES = 8, 4

DENSE_BITS = 6
"""Bits of elements that share bytes of the destination, of each of which the source has a byte."""

FIRST_TWO = word(0x44444444)
"""Metadata of the first elements of each chunk."""


@dataclass(frozen=True)
class PackedRows:
    """A matrix whose rows are contiguous, or `matrices` of them in sequence. Packed elements are counted in bytes. A
    number of `rows` that is not known is negative."""

    base: VirtualRegister
    matrices: int
    rows: int
    row_bytes: int
    element_bytes: int

    @staticmethod
    def of(lowering: KernelLowering, op: PackOp, value: SSAValue) -> PackedRows:
        """Raises a located diagnostic for another matrix."""
        kind = memory_of(value)
        (*others, rows, columns), offset, element = kind.get_shape(), kind.get_offset(), element_row(kind.element_type)
        packed = tuple(prod(kind.get_shape()[at:]) for at in range(1, kind.get_num_dims() + 1))
        least = rows if op.blocks is None else 1
        if element is not None and min(least, columns) > 0 and strides_of(kind) == packed:
            bits, size = element.memory_bits, max(1, element.memory_bits // BYTE)
            if columns * bits % BYTE == 0 and (size if offset is None else offset * bits // BYTE) % WORD_BYTES == 0:
                memory = lowering.values[value]
                base = memory.base if isinstance(memory, MemoryArgument) else lowering.matrix(op, value, bits=True).base
                return PackedRows(base, prod(others), rows, columns * bits // BYTE, size)
        fail(op, f"{op.name} takes matrices of static size, without gaps, at multiples of {WORD_BYTES} bytes, got "
             f"{kind}")  # fmt: skip


class PackedChunk(NamedTuple):
    """Sixteen bytes of the destination: their number, the row and the chunk of the row they are, and where they are
    made at all. `excess` are the bytes, 0 to 3, from the start of a word of the source to the first of them."""

    number: IndexValue
    row: IndexValue
    column: IndexValue
    taken: Condition
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
        self._store(chunk, self._cut(chunk, self._shifted(chunk, self._words(chunk))))
        self._copy_last_elements(chunk)

    def _store(self, chunk: PackedChunk, words: Fragment) -> None:
        place = self.scalars.address(self.destination.base, [(chunk.number, CHUNK)])
        self.emitter.store("global", words, place, guard=chunk.taken)

    def _words(self, chunk: PackedChunk) -> Fragment:
        """The words of the source that a chunk covers. They are zero outside of the chunk's row and of the matrix."""
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
        """The four words of the chunk, shifted into place."""
        if len(words) == CHUNK // WORD_BYTES:
            return words
        bits = self.scalars.multiply(chunk.excess, BYTE)
        return [self.emitter.compute("shf.r.wrap.b32", low, high, bits) for low, high in pairwise(words)]

    def _cut(self, chunk: PackedChunk, words: Fragment) -> Fragment:
        """The words with zeros in place of what belongs to the source's next row."""
        s, (complete, part) = self.scalars, divmod(self.source.row_bytes % CHUNK, WORD_BYTES)
        if not (complete or part):
            return words
        last = s.compare("eq", chunk.column, self.filled - 1)
        kept = words[:complete]
        for i, moved in enumerate(words[complete:]):
            mask = s.select(last, (1 << BYTE * part) - 1 if i == 0 else 0, -1)
            kept.append(self.emitter.pure("and.b32", moved, mask))
        return kept

    def _copy_last_elements(self, chunk: PackedChunk) -> None:
        """Copies the elements after the last whole word of the source one by one."""
        s, size, bytes_ = self.scalars, self.source.element_bytes, self.source.rows * self.source.row_bytes
        for start in range(bytes_ - self.rest, bytes_, size):
            row, column = divmod(start, self.source.row_bytes)
            mine = s.compare("eq", chunk.number, row * self.per_row + column // CHUNK)
            element = self.emitter.register("b16")
            place = s.address(self.source.base, [(start, 1)])
            self.emitter.load("global", [element], place, f"b{BYTE * size}", guard=mine)
            place = s.address(self.destination.base, [(row * self.destination.row_bytes + column, 1)])
            self.emitter.store("global", [element], place, f"b{BYTE * size}", guard=mine)


class DensePacking(Packing):
    """Emits the same where 16 elements of 6 bits, of each of which the source has a byte, begin each 16 bytes."""

    def _copy(self, chunk: PackedChunk) -> None:
        words = self._with_last_bytes(chunk, self._words(chunk))
        self._store(chunk, self._joined(self._cut(chunk, self._shifted(chunk, words))))

    def _with_last_bytes(self, chunk: PackedChunk, words: Fragment) -> Fragment:
        """The words with the bytes behind the last whole word of the source, which are read one by one."""
        last, rest = (self.source.rows - 1) * self.source.row_bytes, self.rest
        first = last + self.source.row_bytes - rest
        for column in range(self.filled if rest else 0):
            number = (first - (last - last % WORD_BYTES + column * CHUNK)) // WORD_BYTES
            if not 0 <= number < len(words):
                continue
            mine = self.scalars.compare("eq", chunk.number, (self.source.rows - 1) * self.per_row + column)
            for at in range(rest):
                byte = self.emitter.register("b32")
                self.emitter.clear([byte])
                place = self.scalars.address(self.source.base, [(first + at, 1)])
                self.emitter.load("global", [byte], place, f"b{BYTE}", guard=mine)
                moved = self.emitter.pure("shl.b32", byte, BYTE * at) if at else byte
                words[number] = self.emitter.pure("or.b32", words[number], moved)
        return words

    def _joined(self, words: Fragment) -> Fragment:
        """The 6 low bits of each of 16 bytes, side by side in three words, and one of zeros."""
        emitter, parts = self.emitter, list[VirtualRegister]()
        for four in words:
            part, *others = (emitter.pure("bfe.u32", four, BYTE * at, DENSE_BITS) for at in range(WORD_BYTES))
            for number, moved in enumerate(others, 1):
                part = emitter.pure("bfi.b32", moved, part, DENSE_BITS * number, DENSE_BITS)
            parts.append(part)
        each, made = DENSE_BITS * WORD_BYTES, list[VirtualRegister]()
        for number, (low, high) in enumerate(pairwise(parts)):
            low = emitter.pure("shr.b32", low, BYTE * number) if number else low
            made.append(emitter.pure("bfi.b32", high, low, each - BYTE * number, BYTE * (number + 1)))
        return [*made, emitter.pure("mov.b32", 0)]


class BlockPacking:
    """Emits the copy of one CTA's share to blocks, line by line of the destination: each element of a line is of the
    row and column of the source that `order` says, zero where the source has none."""

    def __init__(
        self, lowering: KernelLowering, op: PackOp, source: PackedRows, destination: PackedRows, blocks: BlocksAttr
    ) -> None:
        self.emitter, self.scalars, self.addressing = lowering.emitter, lowering.scalars, lowering.addressing
        self.source, self.destination, self.blocks, self.order = source, destination, blocks, blocks.layout
        self.rows, self.lines = (
            of.rows if of.rows > 0 else lowering.matrix(op, value).rows
            for of, value in ((source, op.source), (destination, op.destination))
        )
        order, self.columns = blocks.layout, source.row_bytes // source.element_bytes
        side_by_side = order.element[:2] == (layout_column(0), layout_column(1)) and source.element_bytes == 1
        self.read = WORD_BYTES if side_by_side and source.row_bytes % WORD_BYTES == 0 else source.element_bytes
        """Bytes that are read at once."""

    def copy(self, share: IndexValue, shares: int | None, thread: VirtualRegister, threads: int) -> None:
        """Copies one share; threads take neighbouring lines. Without `shares` that is a line for each thread."""
        s, total = self.scalars, self.destination.rows
        if shares is None:
            number = s.add(s.multiply(share, threads), thread)
            self._copy(number, s.compare("lt", number, self.lines))
            return
        turns = -(-total // (shares * threads))
        first = s.add(s.multiply(share, turns * threads), thread)
        for turn in range(turns):
            number = s.add(first, turn * threads)
            taken = total == turns * shares * threads or s.compare("lt", number, total)
            self._copy(number, taken)

    def _copy(self, number: IndexValue, made: Condition) -> None:
        s, order, taken = self.scalars, self.order, made
        block, line = s.quotient(number, order.threads), s.remainder(number, order.threads)
        down, along = s.quotient(block, self.blocks.along), s.remainder(block, self.blocks.along)
        bits = order.lane + order.warp
        row, column = (self.addressing.from_bits(line, bits, axis) for axis in "rc")
        tile, of_tile = s.quotient(down, self.blocks.of_tile), s.remainder(down, self.blocks.of_tile)
        matrix: IndexValue = 0
        if self.source.matrices > 1:
            tiles = -(-self.source.rows // self.blocks.rows)
            matrix, tile = s.quotient(tile, tiles), s.remainder(tile, tiles)
            taken = s.both(taken, s.compare("lt", matrix, self.source.matrices))
        row = s.sum(s.multiply(tile, self.blocks.rows), s.multiply(of_tile, order.rows), row)
        column = s.add(s.multiply(along, order.columns), column)
        parts: Fragment = []
        for element in range(0, order.elements, self.read // self.source.element_bytes):
            more_rows, more_columns = order.element_offset(element)
            inside = s.both(
                s.both(taken, s.compare("lt", row, s.subtract(self.rows, more_rows))),
                s.compare("lt", column, self.columns - more_columns),
            )
            place = s.address(self.source.base, [
                (matrix, self.source.rows * self.source.row_bytes),
                (row, self.source.row_bytes), (more_rows, self.source.row_bytes),
                (column, self.source.element_bytes), (more_columns, self.source.element_bytes),
            ])  # fmt: skip
            part = self.emitter.register("b32")
            self.emitter.emit("mov.b32", part, FIRST_TWO if self.read > 1 and self.source.element_bytes > 1 else 0)
            self.emitter.load("global", [part], place, f"b{BYTE * self.read}", guard=inside)
            parts.append(part)
        each = WORD_BYTES // self.read
        words = [
            parts[at] if each == 1 else gather(self.emitter, parts[at : at + each], [(i, 0) for i in range(each)], BYTE)
            for at in range(0, len(parts), each)
        ]
        self.emitter.store("global", words, s.address(self.destination.base, [(number, CHUNK)]), guard=made)


@lowers(PackOp)
def _pack(lowering: KernelLowering, op: PackOp) -> None:
    source, destination = (PackedRows.of(lowering, op, value) for value in (op.source, op.destination))
    share, shares = lowering.scalar(op.share), None if op.shares is None else op.shares.value.data
    if op.blocks is not None:
        packing = BlockPacking(lowering, op, source, destination, op.blocks)
        return packing.copy(share, shares, lowering.thread, lowering.threads)
    if shares is None:
        fail(op, f"expected shares of {op.source.type}, which is not in blocks")
    if source.row_bytes < WORD_BYTES:
        fail(op, f"{op.name} takes rows of at least {WORD_BYTES} bytes, got {op.source.type}")
    if destination.row_bytes % CHUNK:
        fail(op, f"{op.name} makes rows of whole {CHUNK}-byte chunks, got {op.destination.type}")
    kind = Packing if op.packed is None else DensePacking
    kind(lowering, source, destination).copy(share, shares, lowering.thread, lowering.threads)
