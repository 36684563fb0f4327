"""Whole matrices to aligned rows: what `warp.pack` does.

A thread makes 16 bytes of the destination at a time. Where the source's rows are whole words apart, they are four
words of the source. Elsewhere they start in the middle of a word: the thread reads the five words that cover them,
each aligned, and shifts neighbouring words together. So every access but the last one of the matrix takes a word or
more, however odd the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import IntegerAttr, IntegerType, i32
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from ...dialect.gpu import ThreadIdOp
from ...dialect.layouts.layout import LANES
from ...dialect.warp.attributes import element_row, memory_of
from ...dialect.warp.bits import FunnelShiftOp, LoadBitsOp, StoreBitsOp
from ...dialect.warp.copy import PackOp
from ...dialect.warp.view import strides_of
from ..diagnostics import fail
from ..tile.index_builder import Index, IndexBuilder
from .sums import warps_around

WORD, CHUNK, BYTE = 4, 16, 8
"""Bytes of a register and of what a thread stores at once; bits of a byte."""


class ExpandPack(RewritePattern):
    """`warp.pack`: loads of words, shifts and stores of 16 bytes; the last elements of the matrix one by one."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: PackOp, rewriter: PatternRewriter) -> None:
        source, destination = (_Rows.of(op, value) for value in (op.source, op.destination))
        if source.row_bytes < WORD:
            fail(op, f"warp.pack takes rows of at least {WORD} bytes, got {op.source.type}")
        if destination.row_bytes % CHUNK:
            fail(op, f"warp.pack makes rows of whole {CHUNK}-byte chunks, got {op.destination.type}")
        _Packing(IndexBuilder(rewriter), source, destination).share(op, warps_around(op) * LANES)
        rewriter.erase(op)


class _Rows(NamedTuple):
    """A matrix of known size without gaps between its rows; of packed elements each byte counts as one."""

    memory: SSAValue
    rows: int
    row_bytes: int
    element_bytes: int

    @staticmethod
    def of(op: PackOp, value: SSAValue) -> _Rows:
        """Raises a located diagnostic for another matrix."""
        kind = memory_of(value)
        (rows, columns), offset, element = kind.get_shape(), kind.get_offset(), element_row(kind.element_type)
        if element is not None and min(rows, columns) > 0 and strides_of(kind) == (columns, 1):
            bits, size = element.memory_bits, max(1, element.memory_bits // BYTE)
            if columns * bits % BYTE == 0 and (size if offset is None else offset * bits // BYTE) % WORD == 0:
                return _Rows(value, rows, columns * bits // BYTE, size)
        fail(op, f"warp.pack takes matrices of static size, without gaps, at multiples of {WORD} bytes, got {kind}")


@dataclass(frozen=True)
class _Chunk:
    """Sixteen bytes of the destination: their number, the row and the chunk of the row they are, and where they are
    made at all. `excess` are the bytes, 0 to 3, from the start of a word of the source to the first of them."""

    number: Index
    row: Index
    column: Index
    taken: SSAValue | None
    excess: Index


class _Packing:
    """One share of a copy to aligned rows."""

    def __init__(self, index: IndexBuilder, source: _Rows, destination: _Rows) -> None:
        self.index, self.source, self.destination = index, source, destination
        self.per_row = destination.row_bytes // CHUNK
        self.total = destination.rows * self.per_row
        self.filled = -(-source.row_bytes // CHUNK)
        """Chunks of a row that hold something of the source."""
        self.rest = source.rows * source.row_bytes % WORD
        """Bytes of the source behind its last whole word."""

    def share(self, op: PackOp, threads: int) -> None:
        """Copies the part of the CTA; threads take neighbouring chunks."""
        index, shares = self.index, op.shares.value.data
        turns = -(-self.total // (shares * threads))
        thread = index.insert(ThreadIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X))).result
        first = index.add(index.mul(op.share, turns * threads), thread)
        for turn in range(turns):
            number = index.add(first, turn * threads)
            row, column = index.div(number, self.per_row), index.rem(number, self.per_row)
            taken = None if self.total == turns * shares * threads else self._compare("slt", number, self.total)
            excess = index.rem(index.mul(row, self.source.row_bytes % WORD), WORD)
            self._copy(_Chunk(number, row, column, taken, excess))

    def _copy(self, chunk: _Chunk) -> None:
        words = self._cut(chunk, self._shifted(chunk, self._words(chunk)))
        place = [(self.index.value(chunk.number), CHUNK)]
        self.index.insert(StoreBitsOp(words, self.destination.memory, place, taken=chunk.taken))
        self._copy_last_elements(chunk)

    def _words(self, chunk: _Chunk) -> list[SSAValue]:
        """The words of the source that cover the chunk; zeros for those outside its row, or of which a part is
        outside the matrix."""
        index, pitch, taken = self.index, self.source.row_bytes, chunk.taken
        if self.source.rows < self.destination.rows:
            taken = self._both(taken, self._compare("slt", chunk.row, self.source.rows))
        if self.filled < self.per_row:
            taken = self._both(taken, self._compare("slt", chunk.column, self.filled))
        start = index.sub(index.mul(chunk.column, CHUNK), chunk.excess)
        if self.rest:
            # A word of the last row that ends behind the matrix must not be read: move its start behind the row.
            start = index.add(start, index.where_equal(chunk.row, self.source.rows - 1, WORD - 1, 0))
        parts = ((chunk.row, pitch), (chunk.column, CHUNK), (chunk.excess, -1))
        terms = [(index.value(part), stride) for part, stride in parts if part != 0]
        words: list[SSAValue] = []
        for offset in range(0, CHUNK + (WORD if pitch % WORD else 0), WORD):
            inside = self._both(taken, self._compare("slt", start, pitch - offset))
            load = LoadBitsOp(self.source.memory, terms, i32, offset=offset, taken=inside)
            words.append(index.insert(load).result)
        return words

    def _shifted(self, chunk: _Chunk, words: list[SSAValue]) -> list[SSAValue]:
        """The chunk's own four words."""
        if len(words) == CHUNK // WORD:
            return words
        bits = self.index.value(self.index.mul(chunk.excess, BYTE))
        return [self.index.insert(FunnelShiftOp(low, high, bits)).result for low, high in pairwise(words)]

    def _cut(self, chunk: _Chunk, words: list[SSAValue]) -> list[SSAValue]:
        """The words with zeros in place of what belongs to the source's next row."""
        insert, (whole, part) = self.index.insert, divmod(self.source.row_bytes % CHUNK, WORD)
        if not (whole or part):
            return words
        last, every = self._compare("eq", chunk.column, self.filled - 1), self._mask(-1)
        kept = words[:whole]
        for i, word in enumerate(words[whole:]):
            mask = insert(arith.SelectOp(last, self._mask((1 << BYTE * part) - 1 if i == 0 else 0), every)).result
            kept.append(insert(arith.AndIOp(word, mask)).result)
        return kept

    def _copy_last_elements(self, chunk: _Chunk) -> None:
        """Copies the elements behind the last whole word of the source, one by one, after their chunk."""
        size, bytes_ = self.source.element_bytes, self.source.rows * self.source.row_bytes
        for start in range(bytes_ - self.rest, bytes_, size):
            row, column = divmod(start, self.source.row_bytes)
            mine = self._compare("eq", chunk.number, row * self.per_row + column // CHUNK)
            load = LoadBitsOp(self.source.memory, [], IntegerType(BYTE * size), offset=start, taken=mine)
            into = row * self.destination.row_bytes + column
            element = self.index.insert(load).result
            self.index.insert(StoreBitsOp([element], self.destination.memory, [], offset=into, taken=mine))

    def _compare(self, how: str, a: Index, b: int) -> SSAValue:
        return self.index.insert(arith.CmpiOp(self.index.value(a), self.index.value(b), how)).result

    def _both(self, a: SSAValue | None, b: SSAValue) -> SSAValue:
        return b if a is None else self.index.insert(arith.AndIOp(a, b)).result

    def _mask(self, bits: int) -> SSAValue:
        return self.index.insert(arith.ConstantOp(IntegerAttr(bits, i32))).result
