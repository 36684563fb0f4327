"""Shared memory: races between threads, data of copies that nobody has waited for, bytes that nobody has written.

Two accesses to a byte by different threads, of which one writes, are a race unless something orders them: a barrier
of the CTA, an mbarrier, `bar.warp.sync` between lanes of one warp, or a strong write (atomic, volatile, release, ...)
that the other thread reads, with fences or release and acquire on both sides. Strong accesses do not race with each
other where their scopes have both threads. Lanes that write one byte in the same instruction are not reported: one of
them wins, as the ISA says. A store of the value that is there already, or that others store with it, over theirs is a
note.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from ....dialect.isa.mma import LoadMatrix
from ....dialect.isa.row import Row
from ....dialect.ptx.instructions import Traits
from ...numerics.floats import Array
from ..machine.events import MemoryAccess
from ..machine.memory import Buffer
from .clocks import Clocks
from .findings import Check, Findings
from .registers import Exchanges, UninitialisedRegisters

WRITING = ("store", "atomic", "copy")
"""The kinds of accesses that write."""

_INVALIDATES = "mbarrier.inval"
_ROW_ELEMENTS = 16
"""Elements of a row of `ldmatrix` that are less than a byte; what follows them is padding (PTX ISA 9.7.14.5.15)."""

_BYTES_PER_PIECE = 16
_BYTES_PER_READER = 10


UNWAITED = np.iinfo(np.int32).max
"""The time of a write by an asynchronous copy that nobody has waited for."""

BEFORE = -1
"""That of a write before all others."""

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
    """Arrays with an entry for each piece of memory. Arrays of reads have one for each warp of the CTA too. Of the last
    write: its time, 0 where there was none, its thread and instruction, and how `strong` it was (0: weak, 1: for its
    CTA alone, 2: for all). Of the last read of each warp: time, lane, instruction, and strength."""

    def __init__(self, size: int, warps: int) -> None:
        pieces = -(-size // self.width)
        self.write_strong = np.zeros(pieces, np.int8)
        self.write_time, self.writer, self.write_pc = (np.zeros(pieces, np.int32) for _ in range(3))
        self.read_time, self.read_pc = (np.zeros((pieces, warps), np.int32) for _ in range(2))
        self.reader, self.read_strong = (np.zeros((pieces, warps), np.int8) for _ in range(2))

    def split(self, times: int) -> None:
        arrays: dict[str, Array] = {name: old for name, old in vars(self).items() if isinstance(old, np.ndarray)}
        for name, old in arrays.items():
            setattr(self, name, np.repeat(old, times, axis=0))


@dataclass
class _Touch:
    """The pieces that one instruction accesses: who, how strongly (see `Shadow`), by which traits, and stored bytes, if
    known."""

    pc: int
    piece: Array
    thread: Array
    warp: Array
    lane: Array
    strong: Array
    traits: Traits
    values: Array | None


class SharedMemory(Check):
    """Follows accesses to shared memory; `races` are told of if asked for, `registers` of loads of unwritten bytes."""

    def __init__(
        self, findings: Findings, clocks: Clocks, races: bool, registers: UninitialisedRegisters | None
    ) -> None:
        super().__init__(findings)
        self.clocks = clocks
        self.races = races
        self.registers = registers

    def weight(self, shared: int, warps: int) -> int:
        """For pieces of 4 bytes, the smallest that are common."""
        return shared // 4 * (_BYTES_PER_PIECE + _BYTES_PER_READER * warps)

    def begun(self) -> None:
        self.buffer = self.state.memory.shared.buffer
        self.exchanges = Exchanges(self.kernel.code)
        self.shadow = Shadow(self.buffer.size, self.clocks.each)
        self.stride = self.buffer.size // self.state.geometry.ctas
        if self.kernel.layout.reserves:  # The system fills its part with zeros.
            ctas = self.shadow.write_time.reshape(self.state.geometry.ctas, -1)
            ctas[:, self.state.reserved // self.shadow.width :] = BEFORE
        self.widths = [_data_bytes(d.row) for d in self.kernel.code]

    def end(self) -> None:
        shadow, flying = self.shadow, np.flatnonzero(self.shadow.write_time == UNWAITED)
        late: list[int] = np.unique(shadow.write_pc[flying]).tolist()
        for pc in late if self.races else ():
            if self.kernel.code[pc].traits.asynchronous:
                mine = flying[shadow.write_pc[flying] == pc]
                text = "nobody waits for it before its CTA ends; its shared memory may be another CTA's by then"
                address, thread = int(mine[0]) * shadow.width % self.stride, int(shadow.writer[mine[0]])
                self.report(pc, text, thread, address, about="end", check="races")

    # What is ordered

    def land(self, buffer: Buffer, start: Array, width: int, threads: Array) -> None:
        if buffer is not self.buffer or not start.size:
            return
        shadow, now = self.shadow, self.clocks.tick()
        piece, thread = shadow.pieces(start, width, threads)
        mine = piece[(shadow.write_time[piece] == UNWAITED) & (shadow.writer[piece] == thread)]
        shadow.write_time[mine] = now

    def access(self, access: MemoryAccess) -> None:
        if access.buffer is not self.buffer or not access.start.size:
            return
        warps, traits = self.clocks.warps, self.kernel.code[access.pc].traits
        width, level = self.widths[access.pc] or access.width, traits.strength or 2 * (access.kind == "atomic")
        each = np.full(access.start.size, level, np.int8)
        if traits.splits_away or traits.adds_pairs:
            away = np.flatnonzero(access.start // self.stride != access.threads % warps // self.clocks.per_cta)
            if traits.splits_away:
                each[away] = 0
            elif self.races and away.size:
                text = (
                    "PTX adds to both halves of a word of another CTA; a GPU leaves -0 and an infinity there (an H200)"
                )
                place = int(access.threads[away[0]]), int(access.start[away[0]]) % self.stride
                self.report(access.pc, text, *place, about="pairs", count=away.size, check="races")
        piece, thread, strong = self.shadow.pieces(access.start, width, access.threads, each)
        values = None if access.values is None else access.values.reshape(-1, self.shadow.width)
        touch = _Touch(access.pc, piece, thread, thread % warps, thread // warps, strong, traits, values)
        uses_object = access.kind == "atomic" and not traits.updates
        self._after_write(touch, access.kind)
        if access.kind not in WRITING or access.kind == "atomic":
            self._initialised(touch, access)
        if access.kind in WRITING:
            self._after_reads(touch, access.kind)
        if level and not traits.on_mbarrier:
            self.clocks.exchange(
                id(self.buffer), touch.piece * self.shadow.width, touch.warp, access.kind, acquire=traits.acquires,
                release=traits.releases,
            )  # fmt: skip
        if access.kind in ("load", "atomic"):
            self._mark_read(touch)
        if access.kind in WRITING and not uses_object:  # Of an object, its initialisation stays the last write.
            self._mark_write(touch, access.kind)

    def _initialised(self, touch: _Touch, access: MemoryAccess) -> None:
        """Reads of bytes that nobody wrote: loads make their registers unwritten, other reads are reported at once."""
        if self.registers is None:
            return
        bad = self.shadow.write_time[touch.piece] == 0
        if not bad.any():
            return
        unwritten = np.repeat(bad.reshape(access.start.size, -1), self.shadow.width, axis=1)
        where = f"shared memory at {int(touch.piece[bad][0]) * self.shadow.width % self.stride:#x}"
        if access.kind != "load" or not self.registers.load(touch.pc, access.threads, unwritten, where):
            self._tell(touch, bad, "uninitialised", "shared memory is read before anything is written there")
            self.shadow.write_time[touch.piece[bad]] = BEFORE

    def _after_write(self, touch: _Touch, kind: str) -> None:
        """This access against the last write of its pieces."""
        shadow, clocks = self.shadow, self.clocks
        time = shadow.write_time[touch.piece]
        if int(time.max()) <= clocks.floor:
            return
        writer, unwaited = shadow.writer[touch.piece], time == UNWAITED
        race = (writer != touch.thread) & ~clocks.ordered(touch.thread, writer, time) & ~unwaited
        if touch.traits.name == _INVALIDATES:  # libcu++ elects the lane that ends an object's life by match.sync alone.
            gathered = clocks.before_gathered(touch.lane, touch.warp, writer // clocks.warps)
            race &= (writer % clocks.warps != touch.warp) | (time > gathered)
        if touch.strong.any():
            race &= ~self._morally_strong(touch, writer % clocks.warps, shadow.write_strong[touch.piece])
        self._tell_unwaited(touch, unwaited, kind)
        pcs = shadow.write_pc[touch.piece]
        self._tell_race(
            touch, race, writer, pcs, f"{_DEED[kind]} what", "writes",
            lambda: unchanged(self.buffer, touch.piece, touch.values),
        )  # fmt: skip

    def _tell_unwaited(self, touch: _Touch, bad: Array, kind: str) -> None:
        """Reports accesses to data of a pending copy. Both checks report reads; writes are races."""
        if not bad.any() or not (self.races or (self.registers and kind not in ("store", "copy"))):
            return
        decoded = self.kernel.code[int(self.shadow.write_pc[touch.piece[bad][0]])]
        line, copy = decoded.source.line, decoded.traits.name if decoded.traits.asynchronous else "cp.async"
        name = "races" if self.races else "uninitialised"
        copy = copy.replace("cp.reduce.async", "cp.async")  # a reduction as the copy that it is like
        text = f"{_DEED[kind]} where the {copy} at line {line} writes, which has not been waited for"
        self._tell(touch, bad, name, text, line)

    def _after_reads(self, touch: _Touch, kind: str) -> None:
        """A write against the last reads of its pieces."""
        shadow, clocks = self.shadow, self.clocks
        times = shadow.read_time[touch.piece]
        if int(times.max()) <= clocks.floor:
            return
        late = times > clocks.seen[touch.warp]
        own = touch.warp % clocks.each
        rows = np.arange(own.size)
        reader = shadow.reader[touch.piece, own].astype(np.int64)
        ordered = self._before(touch, reader)
        if touch.traits.name == _INVALIDATES:
            ordered = np.maximum(ordered, clocks.before_gathered(touch.lane, touch.warp, reader))
        late[rows, own] = (reader != touch.lane) & (times[rows, own] > ordered)
        if touch.strong.any():
            columns = (touch.warp - own) + np.arange(clocks.each)[:, None]
            late &= ~self._morally_strong(touch, columns, shadow.read_strong[touch.piece].T).T
        race: Array = np.logical_or.reduce(late, axis=1)
        if not race.any():
            return
        self._exchanged(touch, late, reader)
        race = np.logical_or.reduce(late, axis=1)
        if not race.any():
            return
        first = late.argmax(axis=1)
        lanes = shadow.reader[touch.piece, first].astype(np.int64)  # `MANY` makes the number negative.
        readers = lanes * clocks.warps + touch.warp - own + first
        pcs = shadow.read_pc[touch.piece, first]
        self._tell_race(touch, race, readers, pcs, f"{_DEED[kind]} what", "reads")

    def _morally_strong(self, touch: _Touch, warp: Array, strong: Array) -> Array:
        """Whether these accesses, and the others by these warps, are strong with scopes that have both threads."""
        each = self.clocks.per_cta
        return np.minimum(strong, touch.strong) > (warp // each != touch.warp // each)

    def _before(self, touch: _Touch, reader: Array) -> Array:
        """The times up to which what readers of the same warp did is ordered before what threads do now."""
        one = self.clocks.before_lanes(touch.lane, touch.warp, np.maximum(reader, 0))
        return np.where(reader == MANY, self.clocks.before_some(touch.lane, touch.warp), one)

    def _exchanged(self, touch: _Touch, late: Array, reader: Array) -> None:
        """Removes from the `late` reads those by lanes of the same warp whose values the written value depends on."""
        shadow, clocks, own = self.shadow, self.clocks, touch.warp % self.clocks.each
        at = np.flatnonzero(late[np.arange(own.size), own])
        pcs = shadow.read_pc[touch.piece[at], own[at]]
        for pc in np.unique(pcs).tolist():
            if between := self.exchanges.between(pc, touch.pc):
                some = at[pcs == pc]
                ordered = clocks.before_gathered(touch.lane[some], touch.warp[some], reader[some], between)
                late[some, own[some]] = shadow.read_time[touch.piece[some], own[some]] > ordered

    # Keeping

    def _mark_read(self, touch: _Touch) -> None:
        shadow, clocks = self.shadow, self.clocks
        at = (touch.piece, touch.warp % clocks.each)
        earlier, lane = shadow.read_time[at], shadow.reader[at]
        weak = (earlier > clocks.floor) & (shadow.read_strong[at] == 0)
        one = np.where((earlier > self._before(touch, lane)) & (lane != touch.lane), MANY, touch.lane)
        shadow.reader[at] = one
        lost = shadow.reader[at] != one
        shadow.reader[at[0][lost], at[1][lost]] = MANY
        shadow.read_time[at] = clocks.now
        shadow.read_pc[at] = touch.pc
        shadow.read_strong[at] = np.where(weak, 0, touch.strong)

    def _mark_write(self, touch: _Touch, kind: str) -> None:
        """Records writes. Of warps that write a piece in one step, one is recorded, and the others race with it."""
        shadow, clocks = self.shadow, self.clocks
        shadow.writer[touch.piece] = touch.thread
        shadow.write_pc[touch.piece] = touch.pc
        writer = shadow.writer[touch.piece]
        race = np.not_equal(writer, touch.thread) if kind == "atomic" else writer % clocks.warps != touch.warp
        if race.any():
            race &= ~self._morally_strong(touch, writer % clocks.warps, touch.strong)
            self._tell_race(
                touch, race, writer, shadow.write_pc[touch.piece], f"{_DEED[kind]} what", "writes",
                lambda: agreeing(touch.piece, touch.values),
            )  # fmt: skip
        shadow.write_time[touch.piece] = UNWAITED if kind == "copy" else clocks.now
        shadow.write_strong[touch.piece] = touch.strong

    # Telling

    def _tell_race(
        self, touch: _Touch, bad: Array, others: Array, pcs: Array, deed: str, other_deed: str,
        harmless: Callable[[], Array] | None = None,
    ) -> None:  # fmt: skip
        """Reports races on the pieces of a mask. `others` are the threads of the other accesses, `pcs` their
        instructions. Races of pieces for which `harmless` holds are notes."""
        if not self.races or not bad.any():
            return
        same = np.zeros_like(bad) if harmless is None else bad & harmless()
        for some, note in ((bad & ~same, False), (same, True)):
            if some.any():
                line = self.kernel.code[int(pcs[some][0])].source.line
                theirs = self._other(int(others[some][0]), int(touch.thread[some][0]), other_deed) + f" at line {line}"
                text = f"race in shared memory: {deed} {theirs}, and nothing orders them"
                text += "; the value is the same" if note else ""
                if touch.traits.splits_away and not touch.strong[some].all():
                    text += "; GPUs do this in shared memory of another CTA by a load and a store"
                about = "same value in shared memory" if note else (line, deed, other_deed)
                self._tell(touch, some, "races", text, about, note=note)

    def _other(self, other: int, thread: int, deed: str) -> str:
        """A thread and its deed, as another thread's message names it: with its CTA where that is not the same. Where
        `other` is negative, several lanes of the warp are meant."""
        who = self.name_of(other % self.state.threads, thread)
        return f"several lanes of {who.rpartition(', ')[0]} {deed[:-1]}" if other < 0 else f"{who} {deed}"

    def _tell(
        self, touch: _Touch, bad: Array, name: str, text: str, about: Hashable = (), *, note: bool = False
    ) -> None:
        threads = touch.thread[bad]
        address = int(touch.piece[bad][0]) * self.shadow.width % self.stride
        self.report(
            touch.pc, text, int(threads[0]), address, about=about, count=threads.size, check=name, note=note,
            together=note,
        )  # fmt: skip


class SharedCheck(Check):
    """Another check of shared memory: `shared` is told of every event before it."""

    name = "races"

    def __init__(self, findings: Findings, shared: SharedMemory) -> None:
        super().__init__(findings)
        self.shared = shared


def unchanged(buffer: Buffer, piece: Array, values: Array | None) -> Array:
    """A mask of the pieces of a buffer that hold these bytes already; all False if the bytes are unknown."""
    if values is None:
        return np.zeros(piece.size, np.bool_)
    width = values.shape[1]
    return (buffer.data[: buffer.size // width * width].reshape(-1, width)[piece] == values).all(axis=1)


def agreeing(piece: Array, values: Array | None) -> Array:
    """Which pieces get the bytes that the last access to them stores there; none where the bytes are unknown."""
    if values is None:
        return np.zeros(piece.size, np.bool_)
    pieces, number = np.unique(piece, return_inverse=True)
    last = np.zeros(pieces.size, np.intp)
    last[number] = np.arange(piece.size)
    return (values == values[last[number]]).all(axis=1)


def _data_bytes(form: Row) -> int:
    """The bytes of a row of `ldmatrix` without its padding; 0 for instructions whose rows have none."""
    return _ROW_ELEMENTS * form.memory_bits // 8 if isinstance(form, LoadMatrix) and form.source else 0


_DEED = {"load": "reads", "fetch": "reads", "store": "writes", "atomic": "updates", "copy": "copies over"}
