"""What is ordered before what: vector clocks of warps and of the lanes of a warp.

Time counts the events a check is told of. Between warps, `seen[w, j]` is the last time up to which all that warp j of
the same cluster did is ordered before what warp w does now. Between lanes of a warp, `of_warps[w]` is the last time at
which all its lanes were ordered, `lanes[l, w, m]` that up to which lane m's deeds are ordered before lane l's.

Barriers order by the warp: that one lane arrives counts for its warp, as where one lane is elected to arrive for all.
Between CTAs, words in global memory order what a fence or a release covers: see `GridClocks`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np

from ...numerics.floats import Array
from ..machine.events import LANES, Look, MemoryAccess, Selection, warps_with
from ..machine.flow import CLUSTER_BARRIER
from ..machine.kernel import Decoded, Observer
from ..machine.mbarriers import phase

MULTIPLYING = ("mma", "wmma.mma")
"""Products take values of all lanes as `shfl` does, but lanes that are late for them are not told of."""


class Clocks(Observer):
    """The clocks of all warps in flight. `now` is the time, which goes on from those in flight before; `floor` is one
    up to which everything is ordered. It listens before those that ask it."""

    now = 1

    def begun(self) -> None:
        state, code = self.state, self.kernel.code
        self.floor = 0
        self.warps = state.warps
        self.per_cta = state.geometry.warps_per_cta
        self.each = self.per_cta * state.geometry.cluster_size
        self.seen = np.zeros((state.warps, self.each), np.int32)
        self.of_warps = np.zeros(state.warps, np.int32)
        self.lanes: Array | None = None
        self._fenced = np.zeros_like(self.seen)
        self._due = np.zeros_like(self.seen)
        self._words: dict[tuple[int, int, int], Array] = {}
        self._tells = False
        self._gathered: dict[int, Array] = {}
        self._at_barrier: dict[int, Array] = {}
        self._complete: dict[int, Array] = {}
        self._at_object: dict[int, _Object] = {}
        self._begun: dict[tuple[int, int], deque[tuple[int, Array]]] = {}
        tests = (pc for pc, one in enumerate(code) if one.traits.means == "mbarrier.test_wait")
        self._unread = {pc for pc in tests if pc >= self.kernel.entry and not _is_read(code, pc)}
        self._arrives_relaxed = False
        self._waits_relaxed = np.zeros(state.threads, np.bool_)

    def tick(self) -> int:
        """The time of a new event."""
        self.now += 1
        return self.now

    # Barriers of a CTA

    def come(self, pc: int, number: int, expected: int, threads: Array) -> None:
        """Threads bring what their warps know to a barrier: if it is relaxed, what their last fence covers."""
        self.tick()
        here, relaxed = warps_with(threads), "relaxed" in self.kernel.code[pc].traits.qualifiers
        brought = self._at_barrier.get(number)
        if brought is None:
            brought = self._at_barrier[number] = np.zeros_like(self.seen)
        np.maximum(brought, self._fenced if relaxed else self._published(), out=brought, where=here[:, None])

    def _published(self) -> Array:
        """What each warp could publish now: all that it has seen, and all of its own past."""
        told = self.seen.copy()
        told[np.arange(self.warps), np.arange(self.warps) % self.each] = self.now
        return told

    def join(self, number: int, arrived: Array, waiting: Array) -> None:
        """A barrier completes. The clocks of the waiting threads take in those of all arrivals."""
        brought = self._at_barrier[number]
        here, wait = warps_with(arrived), warps_with(waiting)
        who = self.each if number == CLUSTER_BARRIER else self.per_cta
        together = np.where(here[:, None], brought, 0).reshape(-1, who, self.each).max(axis=1)
        gained = np.repeat(together, who, axis=0)
        some = np.logical_or.reduce(gained, axis=1)[:, None]
        gained = self._complete[number] = np.where(some, gained, self._complete.get(number, 0))
        np.maximum(self.seen, gained, out=self.seen, where=wait[:, None])
        brought[here] = 0
        self._join_lanes(waiting)
        # At the cluster's barrier, threads go on between their arrival and their wait: that is not ordered.
        if number != CLUSTER_BARRIER and who == self.each and np.array_equal(waiting, self.state.live):
            self._level()

    def _level(self) -> None:
        """All threads there are have met in their clusters."""
        self.floor = self.now
        self.seen[:] = self.of_warps[:] = self.now

    # Lanes of a warp

    def meet(self, pc: int, threads: Selection, members: Array, lanes: Array) -> None:
        if self.kernel.code[pc].traits.is_barrier:
            self.tick()
            self._join_lanes(self.state.flow.mask(threads))
        else:
            self._gather(pc, threads.mask)

    def watch(self, pc: int) -> Look | None:
        traits = self.kernel.code[pc].traits
        if traits.name in MULTIPLYING:
            return lambda sel: self._gather(pc, sel.mask)
        fences = traits.is_fence and traits.name != "fence.proxy"
        return (lambda sel: self._fence(sel.warps)) if fences else None

    def _gather(self, pc: int, threads: Array | None) -> None:
        """Lanes (a mask, a group of each warp; None: all) exchange values: that orders what those depend on alone."""
        times = self._gathered.get(pc)
        if times is None:
            times = self._gathered[pc] = np.zeros((LANES, self.warps), np.int32)
        times[... if threads is None else threads.reshape(LANES, -1)] = self.tick()

    def _join_lanes(self, threads: Array) -> None:
        rows, live = threads.reshape(LANES, -1), self.state.live.reshape(LANES, -1)
        some = rows.any(axis=0)
        every = some & ~(live & ~rows).any(axis=0)
        self.of_warps[every] = self.now
        part = np.flatnonzero(some & ~every)
        if not part.size:
            return
        if self.lanes is None:
            self.lanes = np.zeros((LANES, self.warps, LANES), np.int32)
        mine, before = rows[:, part, None], self.lanes[:, part]
        newest = np.where(rows[:, part].T, self.now, np.where(mine, before, 0).max(axis=0))
        self.lanes[:, part] = np.where(mine, np.maximum(before, newest), before)

    # Fences, and words through which threads tell each other

    def _fence(self, warps: Array) -> None:
        """What these warps did, and know, is told by what they write next; what they read before becomes known."""
        self.tick()
        self._tells = True
        self.seen[warps] = np.maximum(self.seen[warps], self._due[warps])
        self._fenced[warps] = self._published()[warps]

    def exchange(self, buffer: int, start: Array, warps: Array, kind: str, *, acquire: bool, release: bool) -> None:
        """Warps access words of a buffer strongly, one after the other. Who writes a word tells by it what a fence
        before covers, or everything with `release`; an update goes on with what the word told, as in observation order.
        Who reads it knows that behind a fence, or at once with `acquire`. Each cluster has a word of its own."""
        if not (self._tells or release):
            return
        self._tells, told = True, self._published() if release else self._fenced
        for place, warp in dict.fromkeys(zip(start.tolist(), warps.tolist(), strict=True)):
            word = self._words.get(key := (buffer, place, warp // self.each))
            if kind != "store" and word is not None:
                np.maximum(self._due[warp], word, out=self._due[warp])
                if acquire:
                    np.maximum(self.seen[warp], self._due[warp], out=self.seen[warp])
            if kind != "load":
                kept = told[warp] if word is None or kind != "atomic" else word
                self._words[key] = np.maximum(kept, told[warp])

    # mbarrier objects

    def access(self, access: MemoryAccess) -> None:
        if access.buffer is not self.state.memory.shared.buffer or not access.start.size:
            return
        self.tick()
        traits = self.kernel.code[access.pc].traits
        if access.kind == "atomic" and not traits.updates:
            relaxed = "relaxed" in traits.qualifiers
            self._arrives_relaxed = relaxed and traits.means == "mbarrier.arrive"
            self._waits_relaxed[access.threads] = relaxed or access.pc in self._unread

    def defer(self, start: Array, threads: Array) -> None:
        """Threads begin operations that arrive at objects later, with the threads' present clocks."""
        for place, thread in zip(start.tolist(), threads.tolist(), strict=True):
            warp = thread % self.warps
            self._begun.setdefault((place, thread), deque()).append((warp % self.each, self.seen[warp].copy()))

    def count(self, start: Array, threads: Array, arrivals: Array, transactions: Array, *, deferred: bool) -> None:
        """The first of what each thread has begun is over."""
        for place, thread in zip(start.tolist(), threads.tolist(), strict=True) if deferred else ():
            self._begun[place, thread].popleft()

    def arrive(self, start: Array, threads: Array, copy: int | None = None) -> None:
        """Warps arrive at objects, or the oldest pending copy of a thread. What they tell is as in `come`."""
        now = self.tick()
        if copy is not None:
            column, clock = self._begun[int(start[0]), int(threads[0])][0]
            clock[column] = now
            self._tell(start, clock[None])
        else:
            told = self._fenced if self._arrives_relaxed else self._published()
            self._tell(start, told[threads % self.warps])

    def _tell(self, start: Array, clocks: Array) -> None:
        """Tells objects, in their present phases, of clocks, one for each."""
        for place in np.unique(start):
            thing = self._at_object.setdefault(int(place), _Object(self.each))
            thing.move_to(self._phase(place))
            np.maximum(thing.coming, clocks[start == place].max(axis=0), out=thing.coming)

    def _phase(self, place: int) -> int:
        return int(phase(self.state.mbarriers.words[place // 8]))

    def passed(self, start: Array, threads: Array) -> None:
        """Threads see that objects end the phase before. Relaxed ones know what arrivals told behind a fence."""
        relaxed = self._waits_relaxed[threads]
        for place in np.unique(start):
            mine = start == place
            thing = self._at_object.get(int(place))
            if thing is not None:
                thing.move_to(self._phase(place))
                late = threads[mine & relaxed] % self.warps
                self._due[late] = np.maximum(self._due[late], thing.complete)
                warps = threads[mine & ~relaxed] % self.warps
                self.seen[warps] = np.maximum(self.seen[warps], thing.complete)
                if thing.complete[warps % self.each].any():
                    self._learn_lanes(threads[mine & ~relaxed] // self.warps, warps, thing.complete[warps % self.each])

    def _learn_lanes(self, lanes: Array, warps: Array, times: Array) -> None:
        """These lanes acquire what all lanes of their warp did up to `times`."""
        if self.lanes is None:
            self.lanes = np.zeros((LANES, self.warps, LANES), np.int32)
        self.lanes[lanes, warps] = np.maximum(self.lanes[lanes, warps], times[:, None])

    # Questions

    def ordered(self, threads: Array, others: Array, times: Array) -> Array:
        """Whether what other threads did at some times is ordered before what these do now."""
        warps, theirs = threads % self.warps, others % self.warps
        within = self.before_lanes(threads // self.warps, warps, others // self.warps)
        return times <= np.where(warps == theirs, within, self.seen[warps, theirs % self.each])

    def before_lanes(self, lanes: Array, warps: Array, others: Array) -> Array:
        """The times up to which what other lanes of their warp did is ordered before what these lanes do."""
        if self.lanes is None:
            return self.of_warps[warps]
        return np.maximum(self.of_warps[warps], self.lanes[lanes, warps, others])

    def before_gathered(self, lanes: Array, warps: Array, others: Array, at: Collection[int] | None = None) -> Array:
        """The times of the last exchange of values by these lanes in which `others` took part in the same group, 0
        where there was none. A negative lane stands for all lanes that have not exited; `at` restricts the
        instructions."""
        exchanged = np.zeros(warps.size, np.int32)
        for pc, times in self._gathered.items():
            if at is not None and pc not in at:
                continue
            mine: Array = times[lanes, warps]
            alike: Array = np.equal(times[:, warps], mine)
            every: Array = np.logical_and.reduce(alike | ~self.state.live.reshape(LANES, -1)[:, warps], axis=0)
            one: Array = alike[others, np.arange(warps.size)]
            np.maximum(exchanged, np.where(np.where(others < 0, every, one), mine, 0), out=exchanged)
        return exchanged

    def before_some(self, lanes: Array, warps: Array) -> Array:
        """The last times at which these lanes were ordered with any other lane."""
        if self.lanes is None:
            return self.of_warps[warps]
        times = self.lanes[lanes, warps].copy()
        times[np.arange(lanes.size), lanes] = 0
        return np.maximum(self.of_warps[warps], times.max(axis=1))


def _is_read(code: Sequence[Decoded], pc: int) -> bool:
    """Whether what an instruction writes may be read before it is overwritten; what a called function does may."""
    slots, left, seen = set(code[pc].writes), [pc + 1], set[int]()
    while left:
        at = left.pop()
        if at in seen or at >= len(code):
            continue
        seen.add(at)
        one, root = code[at], code[at].traits.root
        if root in ("brx", "call") or not slots.isdisjoint((one.guard, *one.reads)):
            return True
        if one.guard is not None or not (root in ("bra", "ret", "exit") or slots.issubset(one.writes)):
            left.append(at + 1)
        if root == "bra":
            left.append(one.context.label(one.context.operands[0]))
    return False


class Fences:
    """The time up to which fences of a kind cover what each thread did: its own, and those of warps that saw it."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._own = np.zeros(clocks.warps * LANES, np.int32)
        self._known = np.zeros((clocks.warps // clocks.each, clocks.each), np.int32)

    def execute(self, threads: Array) -> None:
        """Threads execute such a fence."""
        warps = np.unique(threads % self._clocks.warps)
        self._own[threads] = self._clocks.now
        np.maximum.at(self._known, warps // self._clocks.each, self._clocks.seen[warps])

    def cover(self, threads: Array, times: Array) -> Array:
        """Whether fences cover what threads did at some times."""
        cluster, column = np.divmod(threads % self._clocks.warps, self._clocks.each)
        return times <= np.maximum(self._own[threads], self._known[cluster, column])


class _Object:
    """What arrivals brought to an mbarrier object: to phases that are complete, and to the one that is not."""

    def __init__(self, each: int) -> None:
        self.phase = -1
        self.coming = np.zeros(each, np.int32)
        self.complete = np.zeros(each, np.int32)

    def move_to(self, phase: int) -> None:
        if phase != self.phase:
            np.maximum(self.complete, self.coming, out=self.complete)
            self.coming[:] = 0
            self.phase = phase


ClusterTimes: TypeAlias = "dict[int, Array]"
"""Of clusters of the grid, the times up to which the deeds of each of their warps are known. Never changed."""


class GridClocks:
    """What CTAs know of each other through strong writes to words of global memory. PTX ISA 8.10.

    A strong write tells of what its warp did, or knew of by barriers, before some warp that knew it too executed a
    fence for more than the CTA; with such a `.release` of all of it. Who reads the word knows, and so does its CTA:
    fences behind reads are not asked for. An atomic operation goes on with what the word told before.
    """

    def __init__(self) -> None:
        self._words: dict[tuple[int, int], ClusterTimes] = {}
        self._times: dict[int, ClusterTimes] = {}
        self._learned: dict[int, ClusterTimes] = {}
        self._tells = False

    def begin(self, clocks: Clocks, first: int) -> None:
        """Other CTAs are in flight: their clocks, and the number of their first cluster."""
        self._clocks, self._first = clocks, first
        self._fenced = np.zeros((clocks.warps // clocks.each, clocks.each), np.int32)

    def fence(self, warps: Array) -> None:
        """These warps of those in flight execute a fence."""
        clocks, self._tells = self._clocks, True
        np.maximum.at(self._fenced, warps // clocks.each, clocks.seen[warps])
        self._fenced[warps // clocks.each, warps % clocks.each] = clocks.now

    def exchange(self, buffer: int, start: Array, warps: Array, ctas: Array, kind: str, *, release: bool) -> None:
        """Warps, of these CTAs, access words of a buffer strongly, one after the other."""
        if not (self._tells or release):
            return
        self._tells, told = True, dict[int, ClusterTimes]()
        for place, warp, cta in dict.fromkeys(zip(start.tolist(), warps.tolist(), ctas.tolist(), strict=True)):
            word = self._words.get((buffer, place), {})
            if kind != "store" and word and self._learned.get(cta) is not word:
                self._learned[cta] = word
                self._times[cta] = _merged(self._times.get(cta, {}), word)
            if kind != "load":
                if warp not in told:
                    told[warp] = self._told(warp, cta, release)
                self._words[buffer, place] = _merged(word, told[warp]) if kind == "atomic" else told[warp]

    def _told(self, warp: int, cta: int, release: bool) -> ClusterTimes:
        """What a strong write of a warp tells."""
        cluster, column = divmod(warp, self._clocks.each)
        row = self._clocks.seen[warp].copy()
        row[column] = self._clocks.now
        if not release:
            np.minimum(row, self._fenced[cluster], out=row)
        return _merged(self._times.get(cta, {}), {self._first + cluster: row}) if row.any() else {}

    def before(self, ctas: Array, warps: Array) -> Array:
        """The time up to which each CTA knows what a warp did; warps are numbered in the grid."""
        each = self._clocks.each
        if not (self._times and ctas.size):
            return np.zeros(ctas.size, np.int32)
        clusters, columns = np.divmod(warps, each)
        pairs, which = np.unique(np.stack([ctas, clusters]), axis=1, return_inverse=True)
        nothing: ClusterTimes = {}
        rows = [self._times.get(cta, nothing).get(cluster) for cta, cluster in pairs.T.tolist()]
        table = np.stack([np.zeros(each, np.int32) if row is None else row for row in rows])
        return table[which.reshape(-1), columns]


def _merged(one: ClusterTimes, other: ClusterTimes) -> ClusterTimes:
    """The union of two CTAs' knowledge."""
    if not one or not other:
        return one or other
    result = dict(one)
    for cluster, row in other.items():
        mine = result.get(cluster)
        result[cluster] = row if mine is None or mine is row else np.maximum(mine, row)
    return result
