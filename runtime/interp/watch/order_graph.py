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
from itertools import combinations, permutations, product
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


@dataclass
class Meeting:
    """An mbarrier object, or a barrier. `phase` counts the completed phases, `first` is the first one since the
    initialisation. `slot` is the entry of rows that counts the phases whose end a warp knows. `waits` passed."""

    slot: int
    phase: int = 0
    first: int = 0
    contributions: list[Contribution] = field(default_factory=list[Contribution])
    waits: list[WarpStep] = field(default_factory=list[WarpStep])
    ends: dict[int, PhaseEnd] = field(default_factory=dict[int, PhaseEnd])


class Deviation(NamedTuple):
    """Two events that another order executes the other way round, and the first steps of that order. `early`: a
    contribution counts in the phase before its own. `stale`: a wait passes two phases before its own. `missed`: a
    phase ends while a wait still waits for the one before. `unexpected`: a phase ends before a step adds to what it
    expects."""

    kind: Literal["early", "stale", "missed", "unexpected"]
    step: WarpStep
    phase: int
    other: WarpStep
    before: Array


class OrderGraph:
    """The events of all warps in flight, in clusters of `each`. `rows[w]` is the clock of warp w: for each warp of the
    cluster the number of its events that happen before w's next event, then for each meeting the number of phases that
    have ended before it."""

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
        self, meeting: Meeting, step: WarpStep, past: Array, kind: ContributionKind = "arrival", *,
        deferred: bool = False,
    ) -> Deviation | None:  # fmt: skip
        """Adds a contribution to the current phase. `past` is what happens before it."""
        meeting.contributions.append(Contribution(step, past, kind, deferred))
        return self._behind("early", meeting, meeting.phase - 1, step, past)

    def wait(self, meeting: Meeting, step: WarpStep, *, parity: bool) -> Deviation | None:
        """A step finds that the phase before the present one has ended."""
        past = self.past(step.warp)
        self.learn_end(meeting, step.warp)
        meeting.waits.append(step)
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
            if not self.before(wait, past):
                yield Deviation("missed", wait, meeting.phase, last, past)
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
# to the same bytes. A relation is a square matrix of bools: element (i, j) says whether (i, j) is in it.


class ThreadPlace(NamedTuple):
    """Where a thread runs."""

    thread: int
    cta: int
    cluster: int


@dataclass(frozen=True)
class MemoryEvent:
    """A read, a write, both of one atomic operation, or a fence. `scope` is "" for a weak access, otherwise "cta",
    "cluster", "gpu" or "sys". `chosen` are the only events that a read may read, None for any. `depends` are the reads
    of its thread on whose values it depends."""

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
        barriers: Iterable[tuple[int, int]] = (),
        settled: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.events = events
        self.settled = settled or {}
        self._causes: dict[tuple[bytes, bytes], Array] = {}
        self.writers: dict[int, list[int]] = {}
        for i, event in enumerate(events):
            if event.writes and event.location is not None:
                self.writers.setdefault(event.location, []).append(i)
        self.readers = [i for i, event in enumerate(events) if event.reads]
        self.itself = np.eye(len(events), dtype=np.bool_)
        thread = np.array([event.place.thread for event in events])
        one_thread = (thread[:, None] == thread) & (thread >= 0)
        self.order: Array = np.triu(one_thread, 1)
        location = np.array([-1 if event.location is None else event.location for event in events])
        same = (location[:, None] == location) & (location >= 0)
        self.local = self.order & same
        includes = np.array([[one.includes(other.place) for other in events] for one in events])
        self.strong = includes & includes.T | one_thread | self.itself
        """The morally strong pairs: both are strong, and the scope of each includes the other's thread. PTX ISA 8.6."""
        self.barriers = self._relation(barriers)
        self.depends = self._relation((j, i) for i, event in enumerate(events) for j in event.depends)
        reads, writes, scoped, acquires, releases = (
            np.array([bool(getattr(event, name)) for event in events])
            for name in ("reads", "writes", "scope", "acquires", "releases")
        )
        self.updates = reads & writes
        alone, among = self.itself & (location >= 0), scoped & (same | (location < 0)[:, None])
        self.releases = releases[:, None] & writes & (alone | self.order & among)
        self.acquires = acquires[:, None] & reads & (alone | self.order.T & among)
        """What a release (acquire) pattern begins (ends) with, and its strong write (read). PTX ISA 8.7."""

    def _relation(self, pairs: Iterable[tuple[int, int]]) -> Array:
        relation = np.zeros_like(self.itself)
        for pair in pairs:
            relation[pair] = True
        return relation

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
        if _cyclic(rf | self.depends):
            return False
        sc = self._relation(combinations(fences, 2)) & self.strong
        cause = self._causality(rf & self.strong, sc)
        co = self._coherence(orders, cause)
        fr = _composed(rf.T, co) & ~self.itself
        if (fr.T & co & self.strong)[:, self.updates].any():  # A write comes between those of an atomic operation.
            return False
        if _cyclic((rf | co | fr) & self.strong | self.local):
            return False
        return not np.diagonal(_composed(rf | fr | co | sc, cause)).any()

    def _causality(self, rf: Array, sc: Array) -> Array:
        """Causality order by the strong reads and the order of fences. PTX ISA 8.9.4 and .5. A read observes a write
        directly, or through atomic operations on its value."""
        key = rf.tobytes(), sc.tobytes()
        if key not in self._causes:
            observed = rf | _composed(rf, _closure(rf & self.updates[:, None]))
            synchronises = _composed(_composed(self.releases, observed), self.acquires.T) & self.strong
            around = self.order | self.itself
            met = _composed(_composed(around, synchronises | sc | self.barriers), around)
            base = _closure(met | self.order)
            self._causes[key] = base | _composed(observed, base)
        return self._causes[key]

    def _coherence(self, orders: Sequence[Sequence[int]], cause: Array) -> Array:
        kept = self.strong | cause | cause.T
        kept[[order[0] for order in orders]] = True
        return _closure(self._relation(pair for order in orders for pair in combinations(order, 2)) & kept)


def _composed(one: Array, other: Array) -> Array:
    return one.astype(np.float32) @ other.astype(np.float32) > 0


def _closure(relation: Array) -> Array:
    """The pairs that one step or more lead to."""
    further = relation | _composed(relation, relation)
    return relation if np.array_equal(further, relation) else _closure(further)


def _cyclic(relation: Array) -> bool:
    return bool(np.diagonal(_closure(relation)).any())
