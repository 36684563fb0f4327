"""Global memory: conflicting stores of one launch, and the generic and asynchronous proxies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import cast

import numpy as np

from ....dialect.isa.tensor_map import SIZE
from ....dialect.ptx.instructions import BULK
from ....dialect.ptx.text.syntax import Address, Immediate, Indexed, Operand, Symbol
from ...numerics.floats import Array
from ..machine.events import LANES, Look, MemoryAccess, Selection
from ..machine.kernel import Decoded
from ..machine.mbarriers import OperationGroups
from ..machine.memory import PARAM_WINDOW, Buffer, FaultError
from .clocks import Clocks, GridClocks
from .findings import Check, Findings
from .shared import UNWAITED, Pieces, agreeing, unchanged

# Global memory: threads of one launch that store different values to one address, read what another stores, or store
# over what another reads, when nothing orders them.
#
# Threads of a cluster are ordered as they are for shared memory, by words of global memory too. Where a thread reads a
# word that one of another cluster wrote with a strong write (atomic, volatile, relaxed, release), its CTA knows what a
# fence or a release covered: see `GridClocks`. Of the threads that read a piece since it was stored the last two are
# known. Atomic operations race with weak accesses, and with strong ones if a scope leaves one of the threads out. What
# is read for a compare-and-swap is compared there: weak reads do not race with one. What bulk and tensor copies read,
# the thread does that issues them, then; what they store is in flight until that thread has waited for its group, for
# more than the `.read` of its source.


_NOBODY = -1
"""The thread where there was no access."""


class LastAccesses:
    """Of each piece of a buffer: who accessed it last, by the thread's number in the grid (`_NOBODY` if it was not
    accessed), when, by which instruction, and how strongly (see `Shadow`). Takes memory from the first access on."""

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces
        self._rows: Array | None = None

    def split(self, parts: int) -> None:
        """Splits each piece into `parts` pieces."""
        self._pieces *= parts
        if self._rows is not None:
            self._rows = np.repeat(self._rows, parts, axis=0)

    def who(self, piece: Array) -> Array:
        return self._column(piece, 0)

    def time(self, piece: Array) -> Array:
        return self._column(piece, 1)

    def pc(self, piece: Array) -> Array:
        return self._column(piece, 2) >> 2

    def strong(self, piece: Array) -> Array:
        return self._column(piece, 2) & 3

    def _column(self, piece: Array, number: int) -> Array:
        return np.full(piece.shape, _NOBODY, np.int32) if self._rows is None else self._rows[piece, number]

    def put(self, piece: Array, who: Array, time: int, pc: int, strong: int) -> None:
        """Accesses of one instruction; of several to one piece, the last is remembered."""
        rows = np.empty((piece.size, 3), np.int32)
        rows[:, 0], rows[:, 1], rows[:, 2] = who, time, 4 * pc + strong
        self._written()[piece] = rows

    def take(self, piece: Array, other: LastAccesses) -> None:
        """Copies the entries of pieces from another record."""
        if piece.size and other._rows is not None:
            self._written()[piece] = other._rows[piece]

    def forget(self, piece: Array) -> None:
        """Nobody accessed these pieces."""
        if self._rows is not None:
            self._rows[piece, 0] = _NOBODY

    def _written(self) -> Array:
        if self._rows is None:
            self._rows = np.full((self._pieces, 3), _NOBODY, np.int32)
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

    def put_read(self, piece: Array, who: Array, time: int, pc: int, strong: int) -> None:
        """Reads of one instruction."""
        before = self.read.who(piece)
        self.other.take(piece[(before != who) & (before != _NOBODY)], self.read)
        self.read.put(piece, who, time, pc, strong)
        others = self.read.who(piece) != who
        if others.any():
            self.other.put(piece[others], who[others], time, pc, strong)

    def put_store(self, piece: Array, who: Array, time: int, pc: int, strong: int) -> None:
        """Stores of one instruction. Reads before them are forgotten: later accesses do not race with them."""
        self.stored.put(piece, who, time, pc, strong)
        self.read.forget(piece)
        self.other.forget(piece)


@dataclass
class _Store:
    """Pieces that one instruction stores: by which thread in flight and of the grid, the bytes, how many in each."""

    piece: Array
    thread: Array
    who: Array
    values: Array | None
    width: int


class GlobalWriters(Check):
    """Follows stores to global memory."""

    name = "races"

    def __init__(self, findings: Findings, clocks: Clocks) -> None:
        super().__init__(findings)
        self.clocks = clocks
        self.grid = GridClocks()
        self._told: set[int] = set()
        """The CTAs that have read a word strongly."""
        self._histories: dict[int, BufferHistory] = {}

    def begun(self) -> None:
        geometry = self.state.geometry
        self.each = geometry.warps_per_cta * LANES
        warp = np.arange(self.state.threads) % self.state.warps
        number = geometry.first + warp // geometry.warps_per_cta
        inside = warp % geometry.warps_per_cta * LANES + np.arange(self.state.threads) // self.state.warps
        self.who = number * self.each + inside
        self.cluster = self.each * geometry.cluster_size
        self.swaps = np.array(["cas" in d.traits.qualifiers for d in self.kernel.code])
        x, y, z = geometry.grid
        self.ctas = x * y * z
        self.grid.begin(self.clocks, geometry.first // geometry.cluster_size)
        self.in_flight = OperationGroups(self.state.threads)

    def watch(self, pc: int) -> Look | None:
        decoded = self.kernel.code[pc]
        if decoded.traits.fences_grid:
            return lambda sel: self.grid.fence(sel.warps)
        if decoded.traits.commits == BULK:
            return lambda sel: self.in_flight.commit(sel.threads)
        if decoded.traits.awaits == BULK and "read" not in decoded.traits.qualifiers:
            keep = int(cast("Immediate", decoded.source.operands[0]).value)
            return lambda sel: self.in_flight.wait(sel.threads, keep)
        return None

    def access(self, access: MemoryAccess) -> None:
        if not access.start.size or not self.state.memory.is_global(access.buffer):
            return
        strong = self.kernel.code[access.pc].traits.strength
        if access.kind == "load":
            self._load(access, strong)
        if strong:
            self._flag(access)
        if access.kind in ("store", "copy", "atomic"):
            self._store(access, strong)

    def history(self, buffer: Buffer) -> BufferHistory | None:
        """The history of a buffer; None without accesses."""
        return self._histories.get(id(buffer)) if self.state.memory.is_global(buffer) else None

    # Words through which CTAs tell each other

    def _flag(self, access: MemoryAccess) -> None:
        """Handles a strong access: a read acquires what the last write published, and a write publishes."""
        traits, warps = self.kernel.code[access.pc].traits, access.threads % self.state.warps
        word, ctas = (id(access.buffer), access.start, warps), self.who[access.threads] // self.each
        self.clocks.exchange(*word, access.kind, acquire=traits.acquires, release=traits.releases)
        self.grid.exchange(*word, ctas, access.kind, release=traits.releases_to_cluster)
        if access.kind != "store":
            self._told.update(ctas.tolist())

    # Reads

    def _load(self, access: MemoryAccess, strong: int) -> None:
        """A read; where it is weak, of what another thread stored in this launch."""
        if not access.buffer.writable:
            return
        history = self._history(access)
        piece, thread = history.pieces(access.start, access.width, access.threads)
        if strong < 2:
            self._after_store(access, history, piece, thread)
        history.put_read(piece, self.who[thread], self.clocks.tick(), access.pc, strong)

    def _history(self, access: MemoryAccess) -> BufferHistory:
        key = id(access.buffer)
        if key not in self._histories:
            self._histories[key] = BufferHistory(access.buffer.size)
        return self._histories[key]

    def _after_store(self, access: MemoryAccess, history: BufferHistory, piece: Array, thread: Array) -> None:
        """These reads against the last stores of their pieces."""
        last, traits = history.stored, self.kernel.code[access.pc].traits
        before, mine = last.who(piece), self.who[thread]
        cached = "nc" in traits.qualifiers
        others = self._others(before, mine, traits.strength) & ~self.swaps[last.pc(piece)]
        at = np.flatnonzero((before >= 0) & (others | (last.time(piece) == UNWAITED) | cached))
        if not at.size:
            return
        bad = at if cached else at[~self._ordered(last, piece[at], thread[at], before[at])]
        if bad.size:
            first = int(piece[bad[0]])
            line, where = self.who_accessed(last, first)
            how = self._how(last, first, int(thread[bad[0]]))
            if cached:
                how = "a load with .nc, whose cache no store of the launch reaches, may read what was there before"
            text = f"race in global memory: reads what {where} writes at line {line}, and {how}"
            text += f"; byte {first * history.width} of {access.buffer.name}"
            self.report(access.pc, text, int(thread[bad[0]]), about=("global read", line), count=int(bad.size))

    def who_accessed(self, last: LastAccesses, piece: int) -> tuple[int, str]:
        """The line and the thread of the last access to a piece."""
        number, inside = divmod(int(last.who(np.array(piece))), self.each)
        where = f"CTA {self.state.geometry.cta_index(number)}, warp {inside // LANES}, lane {inside % LANES}"
        return self.kernel.code[int(last.pc(np.array(piece)))].source.line, where

    def _others(self, one: Array, other: Array, strong: int) -> Array:
        """Whether threads are different, or with a scope of one CTA in different CTAs."""
        return one // self.each != other // self.each if strong else one != other

    # Stores

    def _store(self, access: MemoryAccess, strong: int) -> None:
        history = self._history(access)
        piece, thread = history.pieces(access.start, access.width, access.threads)
        values = None if access.values is None else access.values.reshape(-1, history.width)
        store = _Store(piece, thread, self.who[thread], values, history.width)
        now = self.clocks.tick()
        for last in (history.stored,) if self.swaps[access.pc] else (history.stored, history.read, history.other):
            race = self._races(last, store, strong)
            if race.any():
                same = unchanged(access.buffer, store.piece, store.values)
                self._tell(access, last, store, race, same, over=last is not history.stored)
        history.put_store(store.piece, store.who, now, access.pc, strong)
        if self.kernel.code[access.pc].traits.is_grouped:
            self._fly(access, history, strong)
        twice = self._others(history.stored.who(store.piece), store.who, strong)
        if strong < 2 and twice.any():
            self._tell(access, history.stored, store, twice, agreeing(store.piece, store.values))

    def _fly(self, access: MemoryAccess, history: BufferHistory, strong: int) -> None:
        """A thread's copy stores until the thread has waited for it."""
        last, who = history.stored, self.who[access.threads[:1]]

        def put(piece: Array, time: int) -> None:
            last.put(piece, np.repeat(who, piece.size), time, access.pc, strong)

        def finish(_: Array) -> None:
            (piece,) = history.pieces(access.start, access.width)
            put(piece[(last.time(piece) == UNWAITED) & (last.who(piece) == who)], self.clocks.tick())

        put(history.pieces(access.start, access.width)[0], UNWAITED)
        self.in_flight.issue(access.threads[:1], finish)

    def _races(self, last: LastAccesses, store: _Store, strong: int) -> Array:
        """A mask of the stores that are not ordered after the last accesses to their pieces."""
        before = last.who(store.piece)
        race: Array = (before >= 0) & (before != store.who)
        if strong:
            race &= np.minimum(last.strong(store.piece), strong) <= self._others(before, store.who, 1)
        at = np.flatnonzero(race)
        if at.size:
            race[at] = ~self._ordered(last, store.piece[at], store.thread[at], before[at])
        return race

    def _ordered(self, last: LastAccesses, piece: Array, thread: Array, before: Array) -> Array:
        """Whether stores by `before` happen before what `thread` does."""
        mine, times = self.who[thread], last.time(piece)
        ordered = np.zeros(piece.size, np.bool_)
        near = np.flatnonzero(mine // self.cluster == before // self.cluster)
        if near.size:
            inside = before[near] - self.state.geometry.first * self.each
            other = inside % LANES * self.state.warps + inside // LANES
            ordered[near] = self.clocks.ordered(thread[near], other, times[near])
        far = np.flatnonzero(~ordered)
        ordered[far] = times[far] <= self.grid.before(mine[far] // self.each, before[far] // LANES)
        return ordered

    # Telling

    def _how(self, last: LastAccesses, piece: int, thread: int, strong: int = 0) -> str:
        """Why an access to a piece is not ordered before what a thread does, as strongly as that is."""
        cta = int(self.who[thread]) // self.each
        if min(strong, int(last.strong(np.array(piece)))) == 1:
            return "their scopes are not for both: .cta leaves the other CTA out"
        if int(last.time(np.array(piece))) == UNWAITED:
            return "no cp.async.bulk.wait_group has waited for it; .read waits for its source alone"
        if int(last.who(np.array(piece))) // self.each == cta or cta not in self._told:
            return "nothing orders them"
        return "no membar.gl, fence or .release covers it before the word is written that tells of it"

    def _tell(
        self, access: MemoryAccess, last: LastAccesses, store: _Store, race: Array, same: Array, *, over: bool = False
    ) -> None:
        """Reports stores that race with other stores, or with reads, which they go `over`."""
        for bad, note in ((race & ~same, False), (race & same, True)):
            if not bad.any():
                continue
            first = int(np.flatnonzero(bad)[0])
            piece = int(store.piece[first])
            line, where = self.who_accessed(last, piece)
            end = "; the value is the same" if note else ""
            writes = "writes what" if store.values is None or note else "writes another value than"
            writes = "updates what" if access.kind == "atomic" else writes
            deed = f"writes over what {where} reads" if over else f"{writes} {where} writes"
            how = self._how(last, piece, int(store.thread[first]), self.kernel.code[access.pc].traits.strength)
            text = f"race in global memory: {deed} at line {line}, and {how}{end}"
            text += f"; byte {piece * store.width} of {access.buffer.name}"
            about = "same value in global memory" if note else ("global", line, over)
            count = int(np.count_nonzero(bad))
            self.report(access.pc, text, int(store.thread[first]), about=about, count=count, note=note, together=note)


# Global memory that is stored through the generic proxy and read through another one, by a bulk or tensor copy.
#
# The copy sees such a store only behind a `fence.proxy.async`, or one of `.global`, that is executed after it: here by
# any thread of the CTA that stored, or of the one that copies. PTX ISA 8.6 and 9.7.9.25.
#
# It reads its tensor map through a third proxy. A kernel that makes a map needs a release behind what it stores, which
# `tensormap.cp_fenceproxy` has, and an acquire of the place before the copy. PTX ISA 9.7.13.4.


class GlobalProxies(Check):
    """Follows proxy fences of global memory: when each CTA last executed those of a kind, or of a place. `writers` has
    the stores and receives each event before this check does."""

    name = "races"

    def __init__(self, findings: Findings, writers: GlobalWriters) -> None:
        super().__init__(findings)
        self.writers = writers
        self.fenced: defaultdict[Hashable, Array] = defaultdict(lambda: np.zeros(writers.ctas, np.int64))

    def begun(self) -> None:
        self.asynchronous = np.array([d.traits.asynchronous for d in self.kernel.code])
        self.copying = np.array([d.traits.copies_maps for d in self.kernel.code])

    def watch(self, pc: int) -> Look | None:
        decoded = self.kernel.code[pc]
        side = "async" if decoded.traits.fences_asynchronous("global") else decoded.traits.fences_maps
        if side in ("async", "release"):
            return lambda sel: self._fence(side, sel.threads)
        place = next((o for o in decoded.source.operands if isinstance(o, Address if side else Indexed)), None)
        base = place.items[0] if isinstance(place, Indexed) else place
        if base is None:
            return None
        if side:
            return lambda sel: self._acquire(decoded, base, sel)
        return (lambda sel: self._use(pc, base, sel)) if decoded.traits.name.endswith(".tensor") else None

    def _fence(self, what: Hashable, threads: Array) -> None:
        self.fenced[what][self.writers.who[threads] // self.writers.each] = self.writers.clocks.now

    def _acquire(self, decoded: Decoded, base: Operand, sel: Selection) -> None:
        for buffer, start, threads in self._places(decoded, base, sel):
            self._fence((id(buffer), start), threads)

    # What copies read

    def access(self, access: MemoryAccess) -> None:
        if access.kind != "load" or not self.asynchronous[access.pc] or not access.start.size:
            return
        if (history := self.writers.history(access.buffer)) is None:
            return
        piece, thread = history.pieces(access.start, access.width, access.threads)
        last, each = history.stored, self.writers.each
        before = last.who(piece)
        by_cta = self.fenced["async"]
        fenced = np.maximum(by_cta[np.maximum(before, 0) // each], by_cta[self.writers.who[thread] // each])
        stored = np.flatnonzero((before >= 0) & (last.time(piece) > fenced))
        bad = stored[~self.asynchronous[last.pc(piece[stored])]]
        if bad.size:
            first = int(piece[bad[0]])
            line, where = self.writers.who_accessed(last, first)
            text = (
                f"reads through the asynchronous proxy what {where} writes at line {line}, and no fence.proxy.async is "
                f"between them; byte {first * history.width} of {access.buffer.name}"
            )
            self.report(access.pc, text, int(thread[bad[0]]), about=("proxy", line), count=int(bad.size))

    # The maps by which they read it

    def _places(self, decoded: Decoded, operand: Operand, sel: Selection) -> list[tuple[Buffer, int, Array]]:
        """The maps in global memory that threads name, each with these threads: the buffer and the first byte."""
        threads, state = sel.threads, self.state
        base, offset = (operand.base, operand.offset) if isinstance(operand, Address) else (operand, 0)
        if (slot := decoded.slot(base)) is not None:
            addresses: Array = state.banks[slot.bits][slot.index][threads].astype(np.int64) + offset
        elif isinstance(base, Symbol) and (place := next((p for p in decoded.places if p.space == "global"), None)):
            addresses = np.full(threads.size, place.address(state) + offset, np.int64)
        else:
            return []
        maps: list[tuple[Buffer, int, Array]] = []
        for address in np.unique(addresses[addresses < PARAM_WINDOW]).tolist():
            mine: Array = threads[addresses == address]
            try:
                (part,) = state.memory.memory.parts(np.array([address], np.uint64), 1, mine[:1])
            except FaultError:  # The instruction says so.
                continue
            maps.append((part.buffer, int(part.index[0]), mine))
        return maps

    def _use(self, pc: int, base: Operand, sel: Selection) -> None:
        for buffer, start, threads in self._places(self.kernel.code[pc], base, sel):
            if (history := self.writers.history(buffer)) is None or start + SIZE > buffer.size:
                continue
            piece = np.unique((start + np.arange(SIZE)) // history.width)
            last = history.stored
            piece = piece[last.who(piece) >= 0]
            if not piece.size:
                continue
            copied: Array = self.copying[last.pc(piece)]
            acquired = self.fenced[id(buffer), start][self.writers.who[threads] // self.writers.each].min()
            released = self.fenced["release"][last.who(piece) // self.writers.each]
            for bad, side in (
                (~copied & (last.time(piece) > released), "release"),
                (last.time(piece) > acquired, "acquire"),
            ):
                if bad.any():
                    line, where = self.writers.who_accessed(last, int(piece[bad][0]))
                    text = (
                        f"uses the tensor map that {where} writes at line {line}, and no "
                        f"fence.proxy.tensormap::generic.{side} is between them; byte {start} of {buffer.name}"
                    )
                    self.report(pc, text, int(threads[0]), about=("map", line, side), count=int(threads.size))
                    break
