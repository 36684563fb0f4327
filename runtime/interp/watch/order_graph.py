"""The order graph of one run: which events happen before which, whatever the order in which warps run.

Agents are the warps of a cluster, and the asynchronous operations that they begin. Agents meet at mbarrier objects,
barriers of a CTA and of a cluster. Each meeting has phases: agents contribute arrivals and bytes to a phase, its end
follows from all of them, and who waits for it happens after that.

One run stands for all orders if its events decide in every order what they decided in this one. By induction over the
events of another order, that holds if

1. a contribution to a phase happens after the end of the phase before, so that no other phase counts it;
2. a wait that tests a parity happens after the end of the phase that would let it pass two phases earlier;
3. a wait happens before some contribution to the phase behind the one that it waits for, so that it cannot be missed;
4. bytes, or further arrivals, are expected before some arrival in their phase that was expected anyway.

Then no event disables another one, and every order ends as this run did (persistence: Karp and Miller, Parallel program
schemata, 1969). Where a rule is broken, there is an order that begins with all that happens before the two events and
takes them the other way round: a `Deviation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from math import factorial, prod
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ...numerics.floats import Array

_SLOTS = 16


class WarpStep(NamedTuple):
    """Event number `at` of a warp, counted from 1, at an instruction."""

    warp: int
    at: int
    pc: int


ContributionKind: TypeAlias = Literal["arrival", "expected", "expects"]


class Contribution(NamedTuple):
    """A contribution of an agent to a phase: the step that made it, or that began it if it is `deferred`, and the
    events that happen before it. It is an arrival, an initial expected count, or an addition to the expected count."""

    step: WarpStep
    past: Array
    kind: ContributionKind
    deferred: bool


class PhaseEnd(NamedTuple):
    """The end of a phase: what happens before it, and what was contributed."""

    past: Array
    contributions: tuple[Contribution, ...]


class Wait(NamedTuple):
    """A wait that passed."""

    step: WarpStep
    past: Array


@dataclass
class Meeting:
    """An mbarrier object, or a barrier. `phase` counts the completed phases, `first` is the first one since the
    initialisation. `slot` is the entry of rows that counts the phases whose end a warp knows."""

    slot: int
    phase: int = 0
    first: int = 0
    contributions: list[Contribution] = field(default_factory=list[Contribution])
    waits: list[Wait] = field(default_factory=list[Wait])
    ends: dict[int, PhaseEnd] = field(default_factory=dict[int, PhaseEnd])


class Deviation(NamedTuple):
    """Two events that another order executes the other way round, and the first steps of that order.

    `early`: a contribution counts in the phase before its own. `stale`: a wait passes two phases before its own.
    `missed`: a phase ends while a wait still waits for the one before. `unexpected`: a phase ends before a step adds to
    what it expects.
    """

    kind: Literal["early", "stale", "missed", "unexpected"]
    step: WarpStep
    phase: int
    other: WarpStep
    before: Array


class OrderGraph:
    """The events of all warps in flight, in clusters of `each`.

    `rows[w]` is the clock of warp w: for each warp of the cluster the number of its events that happen before w's next
    event, then for each meeting the number of phases that have ended before it.
    """

    def __init__(self, warps: int, each: int) -> None:
        self.each = each
        self.rows = np.zeros((warps, each + _SLOTS), np.int32)
        self.steps: list[WarpStep] = []
        self._slots: dict[int, int] = {}

    def meeting(self, warp: int) -> Meeting:
        """A new meeting of a warp's cluster."""
        cluster = warp // self.each
        slot = self._slots[cluster] = self._slots.get(cluster, self.each - 1) + 1
        if slot >= self.rows.shape[1]:
            self.rows = np.pad(self.rows, ((0, 0), (0, self.rows.shape[1])))
        return Meeting(slot)

    # Events

    def step(self, warp: int, pc: int) -> WarpStep:
        """Records an event of a warp that another order may execute at another time."""
        column = warp % self.each
        self.rows[warp, column] += 1
        step = WarpStep(warp, int(self.rows[warp, column]), pc)
        self.steps.append(step)
        return step

    def past(self, warp: int) -> Array:
        """What happens before the next event of a warp."""
        return self.rows[warp].copy()

    def learn(self, warp: int, past: Array) -> None:
        """A warp acquires all that `past` has."""
        row = self.rows[warp, : past.size]
        np.maximum(row, past, out=row)

    def initialise(self, meeting: Meeting, step: WarpStep) -> None:
        """An object begins, as if a phase ended with it."""
        past = self.past(step.warp)
        meeting.contributions.clear()
        meeting.waits.clear()
        meeting.phase = meeting.first = meeting.phase + 2
        past[meeting.slot] = self.rows[step.warp, meeting.slot] = meeting.phase
        meeting.ends = {meeting.phase - 1: PhaseEnd(past, (Contribution(step, past, "arrival", False),))}

    def contribute(
        self,
        meeting: Meeting,
        step: WarpStep,
        past: Array,
        kind: ContributionKind = "arrival",
        *,
        deferred: bool = False,
    ) -> Deviation | None:
        """Adds a contribution to the current phase. `past` is what happens before it."""
        meeting.contributions.append(Contribution(step, past, kind, deferred))
        return self._behind("early", meeting, meeting.phase - 1, step, past)

    def wait(self, meeting: Meeting, step: WarpStep, *, parity: bool) -> Deviation | None:
        """A step finds that the phase before the present one has ended."""
        past = self.past(step.warp)
        self.learn_end(meeting, step.warp)
        meeting.waits.append(Wait(step, past))
        at = meeting.phase - meeting.first
        return self._behind("stale", meeting, meeting.phase - (2 if parity and at > 1 else at + 1), step, past)

    def learn_end(self, meeting: Meeting, warp: int) -> None:
        """A warp acquires what happens before the end of the last phase."""
        if (end := meeting.ends.get(meeting.phase - 1)) is not None and meeting.phase > meeting.first:
            self.learn(warp, end.past)

    def _behind(
        self, kind: Literal["early", "stale"], meeting: Meeting, phase: int, step: WarpStep, past: Array
    ) -> Deviation | None:
        """Whether a step happens behind the end of a phase: its warp knows of it, or all that ended it came before."""
        end = meeting.ends.get(phase)
        if end is None or (meeting.slot < past.size and past[meeting.slot] > phase):
            return None
        other = next((c for c in end.contributions if c.deferred or not self.before(c.step, past)), None)
        return None if other is None else Deviation(kind, step, phase + 1, other.step, past)

    def end(self, meeting: Meeting) -> Iterator[Deviation]:
        """The present phase ends with what was contributed last."""
        past = merged(c.past for c in meeting.contributions)
        arrivals = merged(c.past for c in meeting.contributions if c.kind == "arrival")
        last = meeting.contributions[-1].step
        for one in meeting.contributions:
            if one.kind == "expects" and not self.before(one.step, arrivals):
                yield Deviation("unexpected", one.step, meeting.phase, last, arrivals)
        for wait in meeting.waits:
            if not self.before(wait.step, past):
                yield Deviation("missed", wait.step, meeting.phase, last, past)
        past = self._marked(past, meeting.slot, meeting.phase + 1)
        meeting.ends[meeting.phase] = PhaseEnd(past, tuple(meeting.contributions))
        meeting.ends.pop(meeting.phase - 3, None)
        meeting.phase += 1
        meeting.contributions, meeting.waits = [], []

    def _marked(self, past: Array, slot: int, phase: int) -> Array:
        """A row in which the phases of a meeting before `phase` have ended."""
        marked = np.zeros(max(past.size, slot + 1), np.int32)
        marked[: past.size] = past
        marked[slot] = phase
        return marked

    # Questions

    def before(self, step: WarpStep, past: Array) -> bool:
        """Whether a step happens before the position of `past`."""
        column = step.warp % self.each
        return column < past.size and int(past[column]) >= step.at

    def schedule(self, deviation: Deviation) -> list[WarpStep]:
        """The steps, in an order, after which what deviates can come next."""
        cluster = deviation.step.warp // self.each
        mine = (s for s in self.steps if s.warp // self.each == cluster and s != deviation.step)
        return [step for step in mine if self.before(step, deviation.before)]


def merged(pasts: Iterable[Array]) -> Array:
    """The union of several rows: for each entry, the largest clock of any of them. Rows may differ in length."""
    result = np.zeros(0, np.int32)
    for past in pasts:
        if past.size > result.size:
            result = np.concatenate([result, np.zeros(past.size - result.size, np.int32)])
        np.maximum(result[: past.size], past, out=result[: past.size])
    return result


# The memory model of PTX on executions of a few events: what loads may read. PTX ISA 8.
#
# The axioms and names are those of chapter 8 and of Lustig, Sahasrabuddhe and Giroux, A formal analysis of the NVIDIA
# PTX memory consistency model (ASPLOS 2019). Every event is of one location, or of none; accesses of one location are
# to the same bytes. A relation is a list of bit masks: bit j of row i stands for (i, j).


Relation: TypeAlias = list[int]


class ThreadPlace(NamedTuple):
    """Where a thread runs."""

    thread: int
    cta: int
    cluster: int


@dataclass(frozen=True)
class MemoryEvent:
    """A read, a write, both of one atomic operation, or a fence.

    `scope` is "" for a weak access, otherwise "cta", "cluster", "gpu" or "sys". `chosen` are the only events that a
    read may read, None for any. `depends` are the reads of its thread on whose values it depends.
    """

    place: ThreadPlace
    location: int | None = None
    reads: bool = False
    writes: bool = False
    scope: str = ""
    acquires: bool = False
    releases: bool = False
    sequential: bool = False
    chosen: tuple[int, ...] | None = None
    depends: frozenset[int] = frozenset()

    @property
    def is_fence(self) -> bool:
        return self.location is None

    def includes(self, other: ThreadPlace) -> bool:
        """Whether the scope has a thread in it."""
        if self.scope == "cta":
            return self.place.cta == other.cta
        return self.place.cluster == other.cluster if self.scope == "cluster" else bool(self.scope)


class MemoryModel:
    """The executions of some events, in program order for each thread. The first write to each location belongs to no
    thread and is its initial value. `barriers` are pairs of events that barriers order; `settled` has the order of the
    writes to locations of which only one order is tried."""

    def __init__(
        self,
        events: Sequence[MemoryEvent],
        barriers: Sequence[tuple[int, int]] = (),
        settled: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.events = events
        self.settled = settled or {}
        self._causes: dict[tuple[tuple[int, ...], tuple[int, ...]], Relation] = {}
        numbers = range(len(events))
        self.writers: dict[int, list[int]] = {}
        for i, event in enumerate(events):
            if event.writes and event.location is not None:
                self.writers.setdefault(event.location, []).append(i)
        self.readers = [i for i in numbers if events[i].reads]
        self.order = self._relation((i, j) for i in numbers for j in range(i + 1, len(events)) if self._threaded(i, j))
        self.local = self._relation(
            (i, j)
            for i in numbers
            for j in members(self.order[i])
            if events[i].location == events[j].location is not None
        )
        self.strong = self._relation((i, j) for i in numbers for j in numbers if self._morally_strong(i, j))
        self.barriers = self._relation(iter(barriers))
        self.depends = self._relation((j, i) for i in numbers for j in events[i].depends)

    def _relation(self, pairs: Iterator[tuple[int, int]]) -> Relation:
        rows = [0] * len(self.events)
        for i, j in pairs:
            rows[i] |= 1 << j
        return rows

    def _threaded(self, i: int, j: int) -> bool:
        return self.events[i].place.thread == self.events[j].place.thread >= 0

    def _morally_strong(self, i: int, j: int) -> bool:
        """Whether two operations are morally strong: both are strong, and the scope of each includes the other's
        thread. PTX ISA 8.6."""
        one, other = self.events[i], self.events[j]
        if i == j or self._threaded(i, j) or self._threaded(j, i):
            return True
        return one.includes(other.place) and other.includes(one.place)

    # Executions

    @property
    def candidates(self) -> int:
        """The number of executions to try, including forbidden ones."""
        reads = prod(len(self._sources(r)) for r in self.readers)
        orders = prod(factorial(len(w) - 1) for place, w in self.writers.items() if place not in self.settled)
        return reads * orders * factorial(sum(e.sequential for e in self.events))

    def _sources(self, read: int) -> list[int]:
        event = self.events[read]
        every = self.writers.get(-1 if event.location is None else event.location, [])
        return [w for w in every if w != read and (event.chosen is None or w in event.chosen)]

    def outcomes(self) -> Iterator[dict[int, int]]:
        """For each allowed execution, the write that each read reads. An outcome can occur several times."""
        sequential = [i for i, e in enumerate(self.events) if e.sequential]
        orders = [list(self._orders(location)) for location in self.writers]
        for sources in product(*(self._sources(r) for r in self.readers)):
            reads = dict(zip(self.readers, sources, strict=True))
            if any(
                self._allowed(reads, coherence, fences)
                for coherence in product(*orders)
                for fences in permutations(sequential)
            ):
                yield reads

    def _orders(self, location: int) -> Iterator[Sequence[int]]:
        if location in self.settled:
            yield self.settled[location]
            return
        first, *rest = self.writers[location]
        yield from ((first, *later) for later in permutations(rest))

    def _allowed(self, reads: dict[int, int], orders: Sequence[Sequence[int]], fences: Sequence[int]) -> bool:
        """Whether an execution satisfies the axioms of PTX ISA 8.10. `orders` are those of the writes of each location,
        of which the coherence order keeps what is morally strong or follows from causality."""
        rf = self._relation((w, r) for r, w in reads.items())
        if cyclic(union(rf, self.depends)):
            return False
        sc = intersection(self._relation((a, b) for n, a in enumerate(fences) for b in fences[n + 1 :]), self.strong)
        cause = self._causality(tuple(intersection(rf, self.strong)), tuple(sc))
        co = self._coherence(orders, cause)
        fr = self._relation((r, x) for r, w in reads.items() for x in members(co[w]) if x != r)
        if self._breaks_atomicity(reads, co):
            return False
        if cyclic(union(intersection(union(union(rf, co), fr), self.strong), self.local)):
            return False
        contradictions = compose(union(union(union(rf, fr), co), sc), cause)
        return not any(row >> i & 1 for i, row in enumerate(contradictions))

    def _causality(self, rf: tuple[int, ...], sc: tuple[int, ...]) -> Relation:
        """Causality order by the strong reads and the order of fences. PTX ISA 8.9.5."""
        if (rf, sc) not in self._causes:
            observed = self._observation(list(rf))
            met = union(union(self._synchronises(observed), list(sc)), self.barriers)
            base = closure(union(compose(compose(reflexive(self.order), met), reflexive(self.order)), self.order))
            self._causes[rf, sc] = union(base, compose(observed, base))
        return self._causes[rf, sc]

    def _coherence(self, orders: Sequence[Sequence[int]], cause: Relation) -> Relation:
        pairs = ((order[n], b) for order in orders for n in range(len(order)) for b in order[n + 1 :])
        first = {order[0] for order in orders}
        kept = ((a, b) for a, b in pairs if a in first or (self.strong[a] | cause[a]) >> b & 1 or cause[b] >> a & 1)
        return closure(self._relation(kept))

    def _breaks_atomicity(self, reads: dict[int, int], co: Relation) -> bool:
        """Whether a write comes between what an atomic operation reads and what it writes."""
        return any(
            self.events[r].writes and any(co[x] >> r & self.strong[x] >> r & 1 for x in members(co[w]) if x != r)
            for r, w in reads.items()
        )

    def _observation(self, rf: Relation) -> Relation:
        """Pairs of a write and a read that observes it, directly or through atomic operations on its value."""
        passing = [row if event.writes and event.reads else 0 for row, event in zip(rf, self.events, strict=True)]
        return union(rf, compose(rf, closure(passing)))

    def _synchronises(self, observed: Relation) -> Relation:
        """Release patterns, and the acquire patterns that observe them. PTX ISA 8.7 and 8.9.4."""
        releases, acquires = list(self._patterns(release=True)), list(self._patterns(release=False))
        return self._relation(
            (first, last)
            for first, write in releases
            for last, read in acquires
            if observed[write] >> read & 1 and self.strong[first] >> last & 1
        )

    def _patterns(self, *, release: bool) -> Iterator[tuple[int, int]]:
        """The operation that a pattern begins, or ends, with, and its strong write, or read."""
        for i, one in enumerate(self.events):
            if not (one.releases if release else one.acquires):
                continue
            if not one.is_fence and (one.writes if release else one.reads):
                yield i, i
            for j, other in enumerate(self.events):
                ordered = self.order[i] >> j & 1 if release else self.order[j] >> i & 1
                acts = other.writes if release else other.reads
                if ordered and acts and other.scope and one.location in (None, other.location):
                    yield i, j


# Relations


def members(row: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while row:
        low = row & -row
        yield low.bit_length() - 1
        row ^= low


def union(one: Relation, other: Relation) -> Relation:
    return [a | b for a, b in zip(one, other, strict=True)]


def intersection(one: Relation, other: Relation) -> Relation:
    return [a & b for a, b in zip(one, other, strict=True)]


def reflexive(relation: Relation) -> Relation:
    return [row | 1 << i for i, row in enumerate(relation)]


def compose(one: Relation, other: Relation) -> Relation:
    """The composition of two relations."""
    result: Relation = []
    for row in one:
        reached = 0
        for j in members(row):
            reached |= other[j]
        result.append(reached)
    return result


def closure(relation: Relation) -> Relation:
    """The pairs that one step or more lead to."""
    rows = list(relation)
    for k in range(len(rows)):
        if further := rows[k]:
            bit = 1 << k
            rows = [row | further if row & bit else row for row in rows]
    return rows


def cyclic(relation: Relation) -> bool:
    return any(row >> i & 1 for i, row in enumerate(closure(relation)))
