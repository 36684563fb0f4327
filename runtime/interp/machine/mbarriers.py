"""What threads wait for: groups of asynchronous operations, and the mbarrier objects of the CTAs in flight, with their
arrivals and phases. PTX ISA 9.7.9.25, 9.7.13.3, 9.7.13.15."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ...numerics.floats import Array
from .events import LEFT, Selection, mask_of
from .flow import Flow
from .memory import Buffer, FaultError


@dataclass
class _Operation:
    """An operation: its agents (None: all), the number of its group in each, its action, how many came before."""

    agents: Array | None
    group: Array
    execute: Callable[[Array], None]
    serial: int


class OperationGroups:
    """The operations in flight of `count` agents: threads, warps or warpgroups. Groups count from 0 in each."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pending: list[_Operation] = []
        self.issued = 0
        self._open = np.zeros(count, np.int64)
        """The number of the open group of each agent. Operations have this array, or part of it: it is not changed."""
        self._every = np.arange(count)

    def issue(self, agents: Array | None, execute: Callable[[Array], None]) -> None:
        """Issues an operation. `execute` is called with the agents for which it completes."""
        group = self._open if agents is None else self._open[agents]
        self.pending.append(_Operation(agents, group, execute, self.issued))
        self.issued += 1

    def commit(self, agents: Array | None) -> None:
        """The operations that are in no group yet become one group, of each agent."""
        self._open = self._open.copy()
        self._open[... if agents is None else agents] += 1

    def committed(self, agent: int) -> int:
        """How many groups an agent has committed."""
        return int(self._open[agent])

    def wait(self, agents: Array | None, keep: int | None) -> None:
        """Completes all but the `keep` latest groups, in the order of issue; with None, even the open group."""
        if not self.pending:
            return
        chosen = ... if agents is None else agents
        limits = np.full(self.count, -1, np.int64)
        limits[chosen] = self._open[chosen] + (1 if keep is None else -keep)
        self._complete(lambda one: one.group < (limits if one.agents is None else limits[one.agents]))

    def complete(self, agents: Array | None, before: int) -> None:
        """Completes the operations of some agents that were issued before the one of a number."""
        chosen = mask_of(self._every if agents is None else agents, self.count)
        self._complete(lambda one: (chosen if one.agents is None else chosen[one.agents]) & (one.serial < before))

    def _complete(self, done: Callable[[_Operation], Array]) -> None:
        """Lets operations happen: of each, which of its agents are `done`."""
        left: list[_Operation] = []
        for one in self.pending:
            now, agents = done(one), self._every if one.agents is None else one.agents
            if now.all():
                one.execute(agents)
            elif not now.any():
                left.append(one)
            else:
                one.execute(agents[now])
                left.append(_Operation(agents[~now], one.group[~now], one.execute, one.serial))
        self.pending = left


# The 64 bits of an mbarrier object, whose layout PTX leaves open (ISA 9.7.13.15.1 to .5).
#
# From the low end: 20 bits of arrivals still missing in the current phase, 20 bits of arrivals a phase takes, 21 bits
# (two's complement) of transactions still missing, 2 bits that count phases, 1 bit that is set while the object lives.
# The last tells an object from memory that was never initialised, the second of the phase bits a stale state from one
# that may still be waited for.

MAX = (1 << 20) - 1
"""The greatest number of arrivals, and the greatest distance of the transaction count from 0."""

_COUNT, _TX, _PHASE, _LIVE = 20, 40, 61, 63
_TX_SIGN = 1 << 20


@dataclass(slots=True)
class Phases:
    """Decoded mbarrier objects: an int64 array for each field. `phase` counts modulo 4."""

    pending: Array
    expected: Array
    transactions: Array
    phase: Array

    @staticmethod
    def of(words: Array) -> Phases:
        """Decodes mbarrier objects from uint64 words."""
        bits = words.view(np.int64)
        transactions = ((bits >> _TX & (2 * _TX_SIGN - 1)) ^ _TX_SIGN) - _TX_SIGN
        return Phases(bits & MAX, bits >> _COUNT & MAX, transactions, bits >> _PHASE & 3)

    def words(self) -> Array:
        """Encodes objects as uint64 words."""
        transactions = self.transactions & (2 * _TX_SIGN - 1)
        bits = self.pending | self.expected << _COUNT | transactions << _TX | self.phase << _PHASE
        return bits.view(np.uint64) | np.uint64(1 << _LIVE)

    def complete(self) -> Array:
        """Begins the next phase of the objects that expect no more arrivals and bytes. Returns the mask of these."""
        done = (self.pending == 0) & (self.transactions == 0)
        self.pending = np.where(done, self.expected, self.pending)
        self.phase = (self.phase + done) & 3
        return done


def fresh(counts: Array) -> Array:
    """Words of new objects with int64 `counts` of arrivals."""
    zero = np.zeros_like(counts)
    return Phases(counts, counts, zero, zero).words()


def live(words: Array) -> Array:
    """A mask of the words that are live objects."""
    return words.view(np.int64) < 0


def pending(words: Array) -> Array:
    """The arrivals missing."""
    return words & np.uint64(MAX)


def phase(words: Array) -> Array:
    """The number of the current phase, modulo 4."""
    return words >> np.uint64(_PHASE) & np.uint64(3)


# The mbarrier objects of the CTAs in flight: arrivals, and the threads that wait for a phase to complete.
#
# A thread whose test fails sleeps until the phase completes, even if the instruction need not wait: that it takes its
# time is one of the ways in which threads may be scheduled, and it keeps polling loops from running in vain. When no
# thread can go on otherwise, or one has used up its turn, all sleepers are told that their phase is not complete.

PATIENCE = 256
"""How often sleepers are woken for nothing before the launch counts as stuck."""


@dataclass
class Sleepers:
    """Threads that wait at `pc` for the objects at `index` to leave phases; `out` is where they learn how it went."""

    pc: int
    out: Array
    threads: Array
    index: Array
    phases: Array
    parity: bool

    def split(self, chosen: Array) -> Sleepers:
        """Removes the chosen sleepers and returns them."""
        part = Sleepers(self.pc, self.out, self.threads[chosen], self.index[chosen], self.phases[chosen], self.parity)
        rest = ~chosen
        self.threads, self.index, self.phases = self.threads[rest], self.index[rest], self.phases[rest]
        return part


@dataclass
class Deferred:
    """Arrivals of threads that happen when `before`, told which, has completed what these threads began."""

    before: Callable[[Selection], None]
    threads: Array
    index: Array


Combine: TypeAlias = Callable[[Array, Array], Array]
"""Bytes that are there and bytes that come, to the bytes that are there then."""


@dataclass
class BulkCopy:
    """A bulk copy in flight. The thread sent it at the instruction `pc`. Its bytes go to `start` of a buffer, or each
    16 bytes to a place of their own, and complete transactions of an mbarrier: `transferred` bytes, all unless some are
    padding. With `combine`, the bytes are combined with those in memory. `landed` is called when the copy has
    completed."""

    pc: int
    thread: int
    index: Array
    buffer: Buffer
    start: int | Array
    data: Array
    combine: Combine | None = None
    landed: Callable[[], None] | None = None
    transferred: int = 0

    def __post_init__(self) -> None:
        self.transferred = self.transferred or self.data.size

    def land(self) -> tuple[Array, int]:
        """Writes the bytes. Returns the first of each access, and the bytes of one."""
        width = min(16, self.data.size)
        if isinstance(self.start, int):
            place = self.buffer.data[self.start : self.start + self.data.size]
            place[...] = self.data if self.combine is None else self.combine(place, self.data)
            starts = np.arange(self.start, self.start + self.data.size, width)
        else:
            starts = self.start
            self.buffer.view(8, 2)[starts // width] = self.data.view(np.uint64).reshape(-1, 2)
        if self.landed is not None:
            self.landed()
        return starts, width


@dataclass(frozen=True)
class Arrivals:
    """Arrivals of the threads of a selection, each at an object.

    - `index`: the object of each thread.
    - `counts`: arrivals that each takes off what is missing (int64).
    - `transactions`: bytes that each expects before (int64); None for none.
    - `drop`: whether later phases take as many arrivals fewer.
    - `complete`: whether the phase may end with them.
    - `deferred`: whether they are those of operations that have ended.
    """

    index: Array
    sel: Selection
    counts: Array
    transactions: Array | None = None
    drop: bool = False
    complete: bool = True
    deferred: bool = False


class MbarrierObjects:
    """Objects are named by their number among the 64-bit words of shared memory."""

    def __init__(self, words: Array, flow: Flow, copies: OperationGroups) -> None:
        self.words = words
        self.flow = flow
        self.copies = copies
        self.sleepers: list[Sleepers] = []
        self.deferred: list[Deferred] = []
        self.bulk: list[BulkCopy] = []
        self._vain = 0

    # Objects

    def init(self, index: Array, counts: Array, sel: Selection) -> None:
        """Initialises objects. `counts` are the arrivals of a phase, from 1 to 1048575."""
        sel.refuse(counts < 1, "expected a count from 1 to 1048575, got {}", counts)
        sel.refuse(counts > MAX, "expected a count from 1 to 1048575, got {}", counts)
        self._vain = 0
        self.words[index] = fresh(counts)

    def inval(self, index: Array, sel: Selection) -> None:
        """Ends objects: their words are any memory again."""
        self._objects(index, sel)
        self.words[index] = 0

    def arrive(self, of: Arrivals) -> Array:
        """Expects transactions, then takes arrivals off what is missing. Returns the words that each thread found."""
        before = self._objects(of.index, of.sel)
        objects, which = np.unique(of.index, return_inverse=True)
        if np.any(_sums(which, of.counts, objects.size) > Phases.of(self.words[objects]).pending):
            return self._arrive_in_turns(of)
        if self.flow.observer is not None:
            self.flow.observer.arrive(of.index * 8, of.sel.threads)
        self._count(of)
        return before - _sums_before(which, of.counts).view(np.uint64)

    def _count(self, of: Arrivals) -> None:
        """Objects count transactions as missing, and arrivals as no longer so."""
        self._vain = 0
        counts, sel = of.counts, of.sel
        transactions = np.zeros_like(counts) if of.transactions is None else of.transactions
        if self.flow.observer is not None:
            self.flow.observer.count(of.index * 8, sel.threads, counts, transactions, deferred=of.deferred)
        objects, which = np.unique(of.index, return_inverse=True)
        state, totals = Phases.of(self.words[objects]), _sums(which, counts, objects.size)
        state.pending = state.pending - totals
        state.transactions = state.transactions + _sums(which, transactions, objects.size)
        if of.drop:
            state.expected = state.expected - totals
        sel.refuse((state.pending > MAX)[which], f"more than {MAX} arrivals are missing")
        beyond = np.abs(state.transactions) > MAX
        sel.refuse(beyond[which], "takes the transaction count to {}", state.transactions[which])
        done = state.complete()
        if not of.complete:
            sel.refuse(done[which], "with .noComplete completes the phase")
        self.words[objects] = state.words()
        if self.sleepers and done.any():
            self._wake(objects[done])

    def _arrive_in_turns(self, of: Arrivals) -> Array:
        """Threads of which some may complete a phase that others arrive after."""
        states = np.empty(of.index.size, np.uint64)
        threads = of.sel.threads
        for one in range(of.index.size):
            part = slice(one, one + 1)
            missing = int(Phases.of(self.words[of.index[part]]).pending[0])
            if of.counts[one] > missing:
                message = f"takes {int(of.counts[one])} off the arrivals, of which the phase lacks only {missing}"
                raise FaultError(message, int(threads[one]))
            expected = None if of.transactions is None else of.transactions[part]
            single = Selection.of(threads[one], of.sel.total)
            alone = replace(of, index=of.index[part], sel=single, counts=of.counts[part], transactions=expected)
            states[part] = self.arrive(alone)
        return states

    def transact(self, index: Array, sel: Selection, change: Array, deferred: bool = False) -> None:
        """Adds to the number of pending bytes; a negative change completes some. `deferred` is that of `Arrivals`."""
        self._objects(index, sel)
        self._count(Arrivals(index, sel, np.zeros_like(change), change, deferred=deferred))

    def expect_more(self, index: Array, sel: Selection) -> None:
        """One more arrival in the current phase for each thread."""
        self._objects(index, sel)
        self._count(Arrivals(index, sel, np.full(sel.count, -1, np.int64)))

    def arrive_later(self, index: Array, sel: Selection) -> None:
        """Arrivals when the copies that these threads have begun are complete. They happen when the object is next
        looked at, which is as late as they may."""
        issued = self.copies.issued
        self.arrive_after(lambda some: self.copies.complete(some.lanes, issued), index, sel)

    def arrive_after(self, before: Callable[[Selection], None], index: Array, sel: Selection) -> None:
        """Arrivals when `before` has completed what these threads have begun."""
        self._objects(index, sel)
        self._vain = 0
        if self.flow.observer is not None:
            self.flow.observer.defer(index * 8, sel.threads)
        self.deferred.append(Deferred(before, sel.threads, index))

    def complete_later(self, copy: BulkCopy, one: Selection) -> None:
        """Bytes of one thread that land, and complete as many transactions, when the object is next looked at."""
        self._objects(copy.index, one)
        self._vain = 0
        if self.flow.observer is not None:
            self.flow.observer.defer(copy.index * 8, one.threads)
        self.bulk.append(copy)

    # Waiting

    def wait(self, index: Array, sel: Selection, phases: Array, parity: bool, out: Array, pc: int) -> int | None:
        """Threads that test whether phases are complete. `phases` are parities, or states of the object."""
        if self.deferred or self.bulk:
            self._settle(index)
        states = self._objects(index, sel)
        if parity:
            phases = phases & np.uint64(1)  # as the assembler does, though PTX ISA 9.7.13.15.16 has 0 and 1 alone
        else:
            age = (phase(states) - phase(phases)) & np.uint64(3)
            sel.refuse(age > 1, "waits for a state that is neither of this phase nor of the one before")
        done = self._done(states, phases, parity)
        threads = sel.threads
        if self.flow.observer is not None:
            self.flow.observer.passed(index[done] * 8, threads[done])
        if done.all():
            sel.put(out, done)
            return None
        waits = ~done
        self.sleepers.append(Sleepers(pc, out, threads[waits], index[waits], phases[waits], parity))
        self._go_on(threads[done], out, True, pc)
        return LEFT

    def _done(self, words: Array, phases: Array, parity: bool) -> Array:
        return (phase(words) & np.uint64(1)) != (phases & np.uint64(1)) if parity else phase(words) != phase(phases)

    def _go_on(self, threads: Array, out: Array, result: bool, pc: int) -> None:
        if not threads.size:
            return
        out[threads] = result
        self.flow.go(pc + 1, mask_of(threads, self.flow.live.size))

    def _wake(self, objects: Array) -> None:
        """Wakes the threads that wait for a phase of these objects which is complete."""
        for sleepers in self.sleepers:
            done = np.isin(sleepers.index, objects)
            done &= self._done(self.words[sleepers.index], sleepers.phases, sleepers.parity)
            if done.any():
                woken = sleepers.split(done)
                if self.flow.observer is not None:
                    self.flow.observer.passed(woken.index * 8, woken.threads)
                self._go_on(woken.threads, woken.out, True, woken.pc)
        self.sleepers = [s for s in self.sleepers if s.threads.size]

    def _settle(self, index: Array) -> None:
        """Lets the deferred arrivals at these objects happen, and copies land."""
        self._land(index)
        waiting, self.deferred = self.deferred, []
        for one in waiting:
            now = np.isin(one.index, index)
            if not now.all():
                rest = ~now
                self.deferred.append(Deferred(one.before, one.threads[rest], one.index[rest]))
            if now.any():
                sel = Selection.of(one.threads[now], self.flow.live.size)
                one.before(sel)
                self.arrive(Arrivals(one.index[now], sel, np.ones(sel.count, np.int64), deferred=True))

    def _land(self, index: Array) -> None:
        asked = set(index.tolist())
        now = [copy for copy in self.bulk if asked.issuperset(copy.index.tolist())]
        self.bulk = [copy for copy in self.bulk if not asked.issuperset(copy.index.tolist())]
        for copy in now:
            starts, width = copy.land()
            if self.flow.observer is not None:
                self.flow.observer.land(copy.buffer, starts, width, np.full(starts.size, copy.thread))
                self.flow.observer.arrive(copy.index * 8, np.array([copy.thread]), copy.pc)
            one = Selection.of(np.array([copy.thread]), self.flow.live.size)
            self.transact(copy.index, one, np.array([-copy.transferred]), deferred=True)

    def stir(self) -> bool:
        """When no thread can run: what was deferred happens, or sleepers go on without what they wait for. Returns
        whether a thread can run now; if it was for nothing too often, none is woken."""
        if not self.sleepers:
            return False
        if self.deferred or self.bulk:
            self._settle(np.concatenate([s.index for s in self.sleepers]))
            if self.flow.ready:
                return True
        self._vain += 1
        if self._vain > PATIENCE:
            return False
        self.give_up()
        return True

    def settle(self) -> None:
        """All that was deferred happens, where its objects are."""
        indices = [one.index for one in (*self.deferred, *self.bulk)]
        if indices:
            index = np.unique(np.concatenate(indices))
            self._settle(index[live(self.words[index])])

    def give_up(self) -> None:
        """All sleepers go on: their phase is not complete."""
        sleepers, self.sleepers = self.sleepers, []
        for one in sleepers:
            self._go_on(one.threads, one.out, False, one.pc)

    def waiting(self) -> list[tuple[int, Array]]:
        """Where threads sleep, as masks."""
        return [(one.pc, mask_of(one.threads, self.flow.live.size)) for one in self.sleepers]

    def lacking(self, pc: int, mask: Array) -> str:
        """What the first object lacks that masked threads wait for at `pc`, in words; "" without such threads."""
        for sleepers in self.sleepers:
            mine = np.flatnonzero(mask[sleepers.threads])
            if sleepers.pc == pc and mine.size:
                state = Phases.of(self.words[sleepers.index[mine[:1]]])
                arrivals, missing = int(state.pending[0]), int(state.transactions[0])
                size = f"{abs(missing)} bytes {'are missing' if missing > 0 else 'too many have arrived'}"
                return f" for {arrivals} more arrivals" + (f", and {size}" if missing else "")
        return ""

    def _objects(self, index: Array, sel: Selection) -> Array:
        """The words, if they are objects."""
        words = self.words[index]
        sel.refuse(~live(words), "finds no mbarrier object there; it was not initialised, or written over")
        return words


def _sums(which: Array, values: Array, count: int) -> Array:
    """The sum of the values of each group. They are far below 2**53."""
    return np.bincount(which, values, count).astype(np.int64)


def _sums_before(which: Array, values: Array) -> Array:
    """For each item the sum of the values of earlier items of its group."""
    order = np.argsort(which, kind="stable")
    sorted_values, groups = values[order], which[order]
    running = np.cumsum(sorted_values) - sorted_values
    starts = np.searchsorted(groups, groups)
    result = np.empty_like(values)
    result[order] = running - running[starts]
    return result
