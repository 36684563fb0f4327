"""Whole matrices to aligned rows: `warp.pack`.

A thread makes 16 bytes of the destination at a time. Where the source's rows are whole words apart, they are four
words of the source. Elsewhere they start in the middle of a word: the thread reads the five words that cover them,
each aligned, and shifts neighbouring words together. So every access but the last one of the matrix takes a word or
more, however odd the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from xdsl.ir import SSAValue

from ...dialect.warp.copy import PackOp
from ..diagnostics import fail
from .addressing import CHUNK
from .kernel import KernelLowering
from .operands import IndexValue, VirtualRegister
from .registry import lowers

WORD = 4
"""Bytes of a register."""


class Rows(NamedTuple):
    """A matrix of known size without gaps between its rows; of packed elements each byte counts as one."""

    base: VirtualRegister
    rows: int
    row_bytes: int
    element_bytes: int

    @staticmethod
    def of(lowering: KernelLowering, op: PackOp, value: SSAValue) -> Rows:
        """Raises a located diagnostic for another matrix."""
        found = lowering.matrix(op, value, bits=True)
        pitch, rows, columns, size = found.row_bytes, found.rows, found.columns, found.element_bytes
        if isinstance(pitch, int) and isinstance(rows, int) and isinstance(columns, int):
            without_gaps = columns * size == pitch and found.alignment >= WORD
            if without_gaps:
                return Rows(found.base, rows, pitch, size)
        fail(
            op, f"warp.pack takes matrices of static size, without gaps, at multiples of {WORD} bytes, got {value.type}"
        )


@dataclass(frozen=True)
class Chunk:
    """Sixteen bytes of the destination: their number, and the row and the chunk of the row they are."""

    number: IndexValue
    row: IndexValue
    column: IndexValue


class Packing:
    """Emits one share of a copy to aligned rows."""

    def __init__(self, lowering: KernelLowering, source: Rows, destination: Rows) -> None:
        self.emitter, self.scalars = lowering.emitter, lowering.scalars
        self.thread, self.threads = lowering.thread, lowering.threads
        self.source, self.destination = source, destination
        self.per_row = destination.row_bytes // CHUNK
        self.total = destination.rows * self.per_row
        self.filled = -(-source.row_bytes // CHUNK)
        """Chunks of a row that hold something of the source."""
        self.rest = source.rows * source.row_bytes % WORD
        """Bytes of the source behind its last whole word."""

    def share(self, share: IndexValue, shares: int) -> None:
        """Copies the part of the CTA whose number is `share`; threads take neighbouring chunks."""
        s = self.scalars
        turns = -(-self.total // (shares * self.threads))
        first = s.add(s.multiply(share, turns * self.threads), self.thread)
        for turn in range(turns):
            number = s.add(first, turn * self.threads)
            row, column = s.quotient(number, self.per_row), s.remainder(number, self.per_row)
            exact = self.total == turns * shares * self.threads
            self._chunk(Chunk(number, row, column), True if exact else s.compare("lt", number, self.total))

    def _chunk(self, chunk: Chunk, taken: VirtualRegister | bool) -> None:
        words = self._cut(chunk, self._shifted(chunk, self._words(chunk, taken)))
        place = self.scalars.address(self.destination.base, [(chunk.number, CHUNK)])
        self.emitter.store("global", words, place, guard=taken)
        self._last_elements(chunk)

    def _excess(self, chunk: Chunk) -> IndexValue:
        """Bytes from the start of a word to the chunk's first byte: 0 to 3."""
        return self.scalars.mask(self.scalars.multiply(chunk.row, self.source.row_bytes % WORD), WORD - 1)

    def _words(self, chunk: Chunk, taken: VirtualRegister | bool) -> list[VirtualRegister]:
        """The words of the source that cover the chunk; zeros for those outside its row, or of which a part is
        outside the matrix."""
        s, pitch, excess = self.scalars, self.source.row_bytes, self._excess(chunk)
        if self.source.rows < self.destination.rows:
            taken = s.both(taken, s.compare("lt", chunk.row, self.source.rows))
        if self.filled < self.per_row:
            taken = s.both(taken, s.compare("lt", chunk.column, self.filled))
        start = s.subtract(s.multiply(chunk.column, CHUNK), excess)
        if self.rest:
            # A word of the last row that ends behind the matrix must not be read: move its start behind the row.
            last = s.compare("eq", chunk.row, self.source.rows - 1)
            start = s.add(start, s.select(last, WORD - 1, 0))
        first = s.address(self.source.base, [(chunk.row, pitch), (chunk.column, CHUNK), (excess, -1)])
        words = self.emitter.registers("b32", CHUNK // WORD + (1 if pitch % WORD else 0))
        for i, word in enumerate(words):
            inside = s.both(taken, s.compare("lt", start, pitch - i * WORD))
            self.emitter.clear([word])
            self.emitter.load("global", [word], first.behind(i * WORD), guard=inside)
        return words

    def _shifted(self, chunk: Chunk, words: list[VirtualRegister]) -> list[VirtualRegister]:
        """The chunk's own four words."""
        if len(words) == CHUNK // WORD:
            return words
        bits = self.scalars.multiply(self._excess(chunk), 8)
        return [self.emitter.compute("shf.r.wrap.b32", low, high, bits) for low, high in pairwise(words)]

    def _cut(self, chunk: Chunk, words: list[VirtualRegister]) -> list[VirtualRegister]:
        """The words with zeros in place of what belongs to the source's next row."""
        whole, part = divmod(self.source.row_bytes % CHUNK, WORD)
        if not (whole or part):
            return words
        last = self.scalars.compare("eq", chunk.column, self.filled - 1)
        kept = words[:whole]
        for i, word in enumerate(words[whole:]):
            mask = self.scalars.select(last, (1 << 8 * part) - 1 if i == 0 else 0, -1)
            kept.append(self.emitter.compute("and.b32", word, mask))
        return kept

    def _last_elements(self, chunk: Chunk) -> None:
        """Copies the elements behind the last whole word of the source, one by one, after their chunk."""
        size, bytes_ = self.source.element_bytes, self.source.rows * self.source.row_bytes
        for start in range(bytes_ - self.rest, bytes_, size):
            row, column = divmod(start, self.source.row_bytes)
            mine = self.scalars.compare("eq", chunk.number, row * self.per_row + column // CHUNK)
            element = self.emitter.register("b16" if size < WORD else "b32")
            source = self.scalars.address(self.source.base, [(start, 1)])
            self.emitter.load("global", [element], source, f"b{8 * size}", guard=mine)
            into = [(row * self.destination.row_bytes + column, 1)]
            destination = self.scalars.address(self.destination.base, into)
            self.emitter.store("global", [element], destination, f"b{8 * size}", guard=mine)


@lowers(PackOp)
def lower(lowering: KernelLowering, op: PackOp) -> None:
    """Emits a `warp.pack`.

    Raises a located diagnostic for rows that are shorter than a word, or a destination without whole chunks.
    """
    source, destination = (Rows.of(lowering, op, value) for value in (op.source, op.destination))
    if source.row_bytes < WORD:
        fail(op, f"warp.pack takes rows of at least {WORD} bytes, got {op.source.type}")
    if destination.row_bytes % CHUNK:
        fail(op, f"warp.pack makes rows of whole {CHUNK}-byte chunks, got {op.destination.type}")
    lowering.emitter.comment(
        f"pack {source.rows} rows of {source.row_bytes} bytes into rows of {destination.row_bytes}"
    )
    (share,) = lowering.indices((op.share,))
    Packing(lowering, source, destination).share(share, op.shares.value.data)
