"""The shadow of memory: who wrote and read each piece last, and when."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ...numerics.floats import Array
from ..machine.memory import Buffer

UNWAITED = np.iinfo(np.int32).max
"""The time of a write by an asynchronous copy that nobody has waited for."""

MANY = -1
"""The lane of several lanes."""


class Pieces(ABC):
    """Memory in pieces of `width` bytes, which are as small as the smallest access so far."""

    width = 16

    def pieces(self, start: Array, width: int, *of_accesses: Array) -> tuple[Array, ...]:
        """The pieces that accesses touch, and what is given of each access, once for each piece."""
        if (smallest := width & -width) < self.width:
            self.split(self.width // smallest)
            self.width = smallest
        each, first = width // self.width, start // self.width
        if each == 1:
            return first, *of_accesses
        return (first[:, None] + np.arange(each)).reshape(-1), *(np.repeat(g, each) for g in of_accesses)

    @abstractmethod
    def split(self, times: int) -> None:
        """Makes so many pieces of each."""


class Shadow(Pieces):
    """Arrays with an entry for each piece of memory. Arrays of reads have one for each warp of the CTA too.

    Of the last write: whether there was one (`written`), its time, thread and instruction, and whether it was `strong`
    (atomic or ordered). Of the last read of each warp: time, lane, instruction, and strength.
    """

    def __init__(self, size: int, warps: int) -> None:
        n = -(-size // self.width)
        self.written = np.zeros(n, np.bool_)
        self.write_time = np.zeros(n, np.int32)
        self.writer = np.zeros(n, np.int32)
        self.write_pc = np.zeros(n, np.int32)
        self.write_strong = np.zeros(n, np.bool_)
        self.read_time = np.zeros((n, warps), np.int32)
        self.reader = np.zeros((n, warps), np.int8)
        self.read_pc = np.zeros((n, warps), np.int32)
        self.read_strong = np.zeros((n, warps), np.bool_)

    def split(self, times: int) -> None:
        arrays: dict[str, Array] = {name: old for name, old in vars(self).items() if isinstance(old, np.ndarray)}
        for name, old in arrays.items():
            setattr(self, name, np.repeat(old, times, axis=0))


NOBODY = -1


class LastAccesses:
    """Of each piece of a buffer: who accessed it last, when, by the launch's time and by the clocks of the CTAs in
    flight, by which instruction, and whether strongly. Takes memory from the first access on."""

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces
        self._rows: Array | None = None

    def split(self, parts: int) -> None:
        """Splits each piece into `parts` pieces."""
        self._pieces *= parts
        if self._rows is not None:
            self._rows = np.repeat(self._rows, parts, axis=0)

    def who(self, piece: Array) -> Array:
        """The threads by their numbers in the grid, `NOBODY` where there was no access."""
        return self._column(piece, 0)

    def time(self, piece: Array) -> Array:
        """When, by the launch's time."""
        return self._column(piece, 1)

    def clock(self, piece: Array) -> Array:
        """When, by the clocks of the CTAs in flight."""
        return self._column(piece, 2)

    def pc(self, piece: Array) -> Array:
        """The instructions."""
        return self._column(piece, 3) >> 1

    def strong(self, piece: Array) -> Array:
        """Whether the accesses were strong."""
        return (self._column(piece, 3) & 1).astype(np.bool_)

    def _column(self, piece: Array, number: int) -> Array:
        return np.full(piece.shape, NOBODY, np.int32) if self._rows is None else self._rows[piece, number]

    def put(self, piece: Array, who: Array, time: int, clock: int | Array, pc: int, strong: bool) -> None:
        """Accesses of one instruction; of several to one piece, the last is remembered."""
        rows = np.empty((piece.size, 4), np.int32)
        rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = who, time, clock, 2 * pc + strong
        self._written()[piece] = rows

    def take(self, piece: Array, other: LastAccesses) -> None:
        """Copies the entries of pieces from another record."""
        if piece.size and other._rows is not None:
            self._written()[piece] = other._rows[piece]

    def forget(self, piece: Array) -> None:
        """Nobody accessed these pieces."""
        if self._rows is not None:
            self._rows[piece, 0] = NOBODY

    def _written(self) -> Array:
        if self._rows is None:
            self._rows = np.full((self._pieces, 4), NOBODY, np.int32)
        return self._rows


class BufferHistory(Pieces):
    """The last store to each piece of a buffer, and the last two threads that read it since then. Two are kept so that
    a thread that reads and then stores does not hide another reader; earlier readers are forgotten. Pieces are split
    when a smaller access comes."""

    def __init__(self, size: int) -> None:
        pieces = -(-size // self.width)
        self.stored, self.read, self.other = (LastAccesses(pieces) for _ in range(3))

    def split(self, times: int) -> None:
        for last in (self.stored, self.read, self.other):
            last.split(times)

    def put_read(self, piece: Array, who: Array, time: int, clock: int, pc: int, strong: bool) -> None:
        """Reads of one instruction."""
        before = self.read.who(piece)
        self.other.take(piece[(before != who) & (before != NOBODY)], self.read)
        self.read.put(piece, who, time, clock, pc, strong)
        others = self.read.who(piece) != who
        if others.any():
            self.other.put(piece[others], who[others], time, clock, pc, strong)

    def put_store(self, piece: Array, who: Array, time: int, clock: int, pc: int, strong: bool) -> None:
        """Stores of one instruction. Later accesses do not race with reads before these stores, so the reads are
        forgotten."""
        self.stored.put(piece, who, time, clock, pc, strong)
        self.read.forget(piece)
        self.other.forget(piece)


def unchanged(buffer: Buffer, piece: Array, values: Array | None) -> Array:
    """A mask of the pieces of a buffer that hold these bytes already; all False if the bytes are unknown."""
    if values is None:
        return np.zeros(piece.size, np.bool_)
    width = values.shape[1]
    if buffer.size % width:
        return (buffer.data[(piece * width)[:, None] + np.arange(width)] == values).all(axis=1)
    return (buffer.data.reshape(-1, width)[piece] == values).all(axis=1)


def agreeing(piece: Array, values: Array | None) -> Array:
    """Which pieces get the bytes that the last access to them stores there; none where the bytes are unknown."""
    if values is None:
        return np.zeros(piece.size, np.bool_)
    pieces, number = np.unique(piece, return_inverse=True)
    last = np.zeros(pieces.size, np.intp)
    last[number] = np.arange(piece.size)
    return (values == values[last[number]]).all(axis=1)
