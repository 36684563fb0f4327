"""The observer that makes a trace: waits, copies, products, stores."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from ....dialect.isa.mma import Mma
from ....dialect.isa.wgmma import WARPS, Wgmma
from ....dialect.isa.wmma import WmmaMma
from ....dialect.ptx.instructions import BULK, COPIES, PRODUCTS, Traits, family
from ...numerics.floats import Array
from ..machine.events import Look, MemoryAccess, Selection
from ..machine.flow import CLUSTER_BARRIER
from ..machine.kernel import Observer
from ..machine.mbarriers import OperationGroups, phase
from ..machine.memory import Buffer
from . import timeline as model
from .findings import Observers
from .timeline import (
    LaunchTrace,
    Pipe,
    Timeline,
    TraceEvent,
)

TENSOR_MEMORY = "tcgen05."
"""The prefix of instructions that access tensor memory; they do not use the path of copies and stores."""


class Traced(Observer):
    """An observer that adds events to a timeline. `begun` and `look` receive the CTAs that are followed."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline

    def watch(self, pc: int) -> Look | None:
        """Nothing is looked at where no CTA is followed."""
        return self.look(pc, self.timeline.traits(pc)) if self.timeline.warps else None

    def look(self, pc: int, traits: Traits) -> Look | None:
        """As `watch`."""
        return None


class TracedGroups(Traced):
    """Groups of operations of a `kind` of `Traits.commits`, each an event, of agents of `together` warps."""

    kind: ClassVar[str]
    together: ClassVar[int] = 1

    def begun(self) -> None:
        self.ways: defaultdict[int, Pipe] = defaultdict(Pipe)
        self.queue = OperationGroups(self.timeline.warps // self.together)
        self.open: dict[tuple[int, int], TraceEvent] = {}
        """Groups that have operations, by their agent and number."""
        self.done: list[TraceEvent] = []

    def put_in_group(self, agent: int, operation: TraceEvent) -> None:
        """An operation that joins the open group of an agent."""
        key = agent, self.queue.committed(agent)
        if key in self.open:
            self.open[key] = model.joined(self.open[key], operation)
        else:
            self.open[key] = operation
            self.queue.issue(np.array([agent]), lambda _: self.done.append(self.open.pop(key)))

    def finished(self, agent: int, keep: int | None) -> list[TraceEvent]:
        """All groups but the latest `keep`; with None, the open one too."""
        self.done = []
        self.queue.wait(np.array([agent]), keep)
        return self.done

    def record(self, agent: int, done: list[TraceEvent]) -> None:
        """Records groups when they are waited for, or at the end."""
        self.timeline.events += done

    def until(self, done: TraceEvent, traits: Traits) -> int:
        """When an instruction with these traits no longer waits for a group."""
        return done.end

    def waiting(self, traits: Traits) -> str:
        """The name of a wait."""
        return traits.name

    def look(self, pc: int, traits: Traits) -> Look | None:
        if traits.commits == self.kind:
            return self._commit
        return self._wait(pc, traits) if traits.awaits == self.kind else None

    def agents(self, sel: Selection) -> list[int]:
        """The agents that execute an instruction."""
        return np.unique(self.timeline.of(sel) // self.together).tolist()

    def bytes_of_warps(self, access: MemoryAccess) -> Iterator[tuple[int, int]]:
        """The warps of an access that are followed, and how much each accesses."""
        threads, counts = np.unique(access.threads % self.timeline.state.warps, return_counts=True)
        for i, warp in self.timeline.of_threads(threads):
            yield warp, int(counts[i]) * access.width

    def bytes_of_threads(self, access: MemoryAccess) -> Iterator[tuple[int, int, int]]:
        """For the followed threads of an access: the warp, the first byte and the size."""
        threads, first, counts = np.unique(access.threads, return_index=True, return_counts=True)
        for i, warp in self.timeline.of_threads(threads):
            yield warp, int(access.start[first[i]]), int(counts[i]) * access.width

    def end(self) -> None:
        """What nobody waits for is over as well."""
        for agent in range(self.queue.count):
            self.record(agent, self.finished(agent, None))

    def _commit(self, sel: Selection) -> None:
        self.queue.commit(np.array(self.agents(sel), np.intp))

    def _wait(self, pc: int, traits: Traits) -> Look:
        keep = None if traits.awaits_all else self.timeline.constant(pc)

        def look(sel: Selection) -> None:
            for agent in self.agents(sel):
                done = self.finished(agent, keep)
                until = max((self.until(one, traits) for one in done), default=0)
                for warp in range(self.together * agent, self.together * (agent + 1)):
                    self.timeline.wait(warp, pc, self.waiting(traits), until)
                self.record(agent, done)

        return look


# Asynchronous copies to shared memory: `cp.async` of threads, and bulk and tensor copies, which arrive at mbarriers.
#
# Both come one after the other through one way to the SM, in the order of issue.


class TracedCopies(TracedGroups):
    """`landed` is when the copy arrives that lands next, `copied` when the last `cp.async` of each warp does."""

    kind = COPIES

    def begun(self) -> None:
        super().begun()
        self.flying: defaultdict[tuple[int, int], deque[TraceEvent]] = defaultdict(deque)
        self.landed: int | None = None
        self.copied: dict[int, int] = {}

    def access(self, access: MemoryAccess) -> None:
        """Follows what copies are about to transfer. `cp.async` counts what it reads: zeros are not transferred."""
        name = self.timeline.traits(access.pc).name if self.timeline.warps else TENSOR_MEMORY
        if name.startswith(TENSOR_MEMORY):
            return
        of_threads = name == COPIES
        if of_threads and access.kind == "load":
            self._copy(access)
        elif not of_threads and access.kind == "copy":
            self._bulk_copy(access)

    def _fly(self, warp: int, cta: int, kind: model.TraceKind, name: str, pc: int, size: int) -> TraceEvent:
        now, cycles = self.timeline.now(warp), model.copy_cycles(size)
        end = self.ways[cta].take(now, cycles) + cycles + model.LATENCY
        return self.timeline.event(warp, kind, name, pc, now - 1, end, {"bytes": size}, asynchronous=True)

    # Copies of threads

    def _copy(self, access: MemoryAccess) -> None:
        for warp, size in self.bytes_of_warps(access):
            copy = self._fly(warp, self.timeline.cta(warp), "cp.async", "cp.async", access.pc, size)
            self.put_in_group(warp, copy)
            self.copied[warp] = max(self.copied.get(warp, 0), copy.end)

    def arriving(self, warp: int) -> int:
        """The time at which the copies of a warp arrive. They become a group, and an mbarrier is told."""
        self.record(warp, self.finished(warp, None))
        return max(self.timeline.now(warp), self.copied.get(warp, 0))

    def end(self) -> None:
        """Copies that nobody waits for arrive as well."""
        super().end()
        for copies in self.flying.values():
            self.timeline.events += copies
        self.flying.clear()

    # Bulk copies

    def _bulk_copy(self, access: MemoryAccess) -> None:
        traits = self.timeline.traits(access.pc)
        name = traits.first(5 if traits.name == "cp.async.bulk.tensor" else 3)
        for warp, start, size in self.bytes_of_threads(access):
            to = start // (access.buffer.size // self.timeline.state.geometry.ctas)
            self.flying[start, warp].append(self._fly(warp, to, "tensor copy", name, access.pc, size))

    def land(self, buffer: Buffer, start: Array, width: int, threads: Array) -> None:
        """Completes the thread's oldest copy to this address."""
        self.landed = None
        if not threads.size:
            return
        warp = int(threads[0]) % self.timeline.state.warps
        copies = self.flying.get((int(start[0]), warp))
        if copies:
            self.timeline.events.append(copies.popleft())
            self.landed = self.timeline.events[-1].end


# Waits for other warps: at barriers of a CTA and of a cluster, and at mbarrier objects.

_PHASES = 4
"""Phases are counted modulo 4."""

POLLING = 64
"""Cycles between two tests of one object within which they are one wait."""


class TracedBarriers(Traced):
    """Barriers. The threads of a barrier continue when the last of them arrives."""

    def begun(self) -> None:
        self.came: dict[tuple[int, int], tuple[int, int]] = {}
        self.complete: defaultdict[tuple[int, int], int] = defaultdict(int)

    def come(self, pc: int, number: int, expected: int, threads: Array) -> None:
        for warp in self.timeline.of_mask(threads).tolist():
            self.came[number, warp] = pc, self.timeline.now(warp)

    def join(self, number: int, arrived: Array, waiting: Array) -> None:
        line = self.timeline
        for warp in line.of_mask(arrived).tolist():
            scope = number, self._scope(number, warp)
            self.complete[scope] = max(self.complete[scope], self.came[number, warp][1])
        for warp in line.of_mask(waiting).tolist():
            pc, _ = self.came[number, warp]
            name = line.traits(pc).first(2)
            line.wait(warp, pc, name, self.complete[number, self._scope(number, warp)])

    def _scope(self, number: int, warp: int) -> int:
        """The CTA, or cluster, of a warp."""
        cta = self.timeline.cta(warp)
        return cta // self.timeline.state.geometry.cluster_size if number == CLUSTER_BARRIER else cta


class TracedMbarriers(Traced):
    """Who tests a phase goes on when the last arrival has completed it: of a thread, of copies, or of products. For
    each object, by its first byte, `times` has the last arrival at its latest phases, `phases` the present one."""

    def __init__(self, timeline: Timeline, copies: TracedCopies, products: TracedTensorProducts) -> None:
        super().__init__(timeline)
        self.copies, self.products = copies, products

    def begun(self) -> None:
        self.times: defaultdict[int, list[int]] = defaultdict(lambda: [0] * _PHASES)
        self.phases: dict[int, int] = {}
        self.deferred: dict[tuple[int, int], int] = {}
        self.polls: dict[int, tuple[int, int, int]] = {}

    def look(self, pc: int, traits: Traits) -> Look | None:
        """When a warp begins to test a phase."""
        if traits.means != "mbarrier.test_wait":
            return None

        def look(sel: Selection) -> None:
            for warp in self.timeline.of(sel).tolist():
                now = self.timeline.now(warp)
                before, since, last = self.polls.get(warp, (-1, 0, 0))
                again = before == pc and now - last <= POLLING
                self.polls[warp] = pc, since if again else now, now

        return look

    def access(self, access: MemoryAccess) -> None:
        """Follows `mbarrier.init`, and arrivals that `cp.async` triggers later."""
        means = self.timeline.traits(access.pc).means
        if means == "mbarrier.init":
            for start in access.start.tolist():
                self.times[start], self.phases[start] = [0] * _PHASES, 0
        elif means == "cp.async.mbarrier.arrive":
            for i, warp in self.timeline.of_threads(access.threads):
                self.deferred[int(access.start[i]), warp] = self.copies.arriving(warp)

    def defer(self, start: Array, threads: Array) -> None:
        """Records the arrivals of a `tcgen05.commit`, which happen when its products complete."""
        if self.timeline.traits(self.timeline.pc).means == "tcgen05.commit":
            for object_, warp in self._objects(start, threads):
                self.deferred[object_, warp] = self.products.committed(warp)

    def arrive(self, start: Array, threads: Array, copy: int | None = None) -> None:
        landed = None if copy is None else self.copies.landed
        immediate = self.timeline.traits(self.timeline.pc).means == "mbarrier.arrive"
        for object_, warp in self._objects(start, threads):
            later = self.timeline.now(warp) if immediate else self.deferred.get((object_, warp), 0)
            now, times = self._phase(object_), self.times[object_]
            if now != self.phases.get(object_, 0):
                times[now] = 0
            self.phases[object_], times[now] = now, max(times[now], later if landed is None else landed)

    def _phase(self, start: int) -> int:
        words = self.timeline.state.memory.shared.buffer.view(8)
        return int(phase(words[start // 8 : start // 8 + 1])[0])

    def _objects(self, start: Array, threads: Array) -> set[tuple[int, int]]:
        """Each object, by its first byte, with each warp that is followed."""
        return {(int(start[i]), warp) for i, warp in self.timeline.of_threads(threads)}

    def passed(self, start: Array, threads: Array) -> None:
        for object_, warp in sorted(self._objects(start, threads)):
            if warp in self.polls:
                pc, since, _ = self.polls.pop(warp)
                self.timeline.clock[warp] = since  # how often a test fails is the interpreter's own matter
                name = self.timeline.traits(pc).first(2)
                self.timeline.wait(warp, pc, name, self.times[object_][(self._phase(object_) - 1) % _PHASES])


# Matrix products: those of warps, which a warp issues one after the other, and those of warpgroups.


class TracedProducts(TracedGroups):
    """A warp waits until its tensor core takes the next product, not for the result."""

    kind, together = PRODUCTS, WARPS

    def begun(self) -> None:
        super().begun()
        self.cores: defaultdict[tuple[int, int], Pipe] = defaultdict(Pipe)

    def look(self, pc: int, traits: Traits) -> Look | None:
        row = traits.row
        if isinstance(row, Wgmma):
            return self._issue(pc, row)
        return self._execute(pc, row) if isinstance(row, Mma | WmmaMma) else super().look(pc, traits)

    def _execute(self, pc: int, row: model.WarpRow) -> Look:
        cycles, name = model.product_cycles(row), f"{family(row.spelling)} {row.shape}"

        def look(sel: Selection) -> None:
            line = self.timeline
            for warp in line.of(sel).tolist():
                core = self.cores[line.cta(warp), warp % line.per_cta % model.SCHEDULERS]
                start = core.take(line.now(warp) - 1, cycles)
                line.clock[warp] = start + 1
                line.run(warp, "product", name, pc, start, {"products": 1, "busy": cycles})

        return look

    # Warpgroups

    def _issue(self, pc: int, row: Wgmma) -> Look:
        cycles = model.product_cycles(row)

        def look(sel: Selection) -> None:
            for group in self.agents(sel):
                now, cta = self.timeline.now(WARPS * group), self.timeline.cta(WARPS * group)
                end, details = self.cores[cta, -1].take(now, cycles) + cycles, {"products": 1, "busy": cycles}
                name = f"wgmma {row.shape}"
                event = self.timeline.event(WARPS * group, "product", name, pc, now - 1, end, details, True)
                self.put_in_group(group, event)

        return look

    def record(self, agent: int, done: list[TraceEvent]) -> None:
        now = self.timeline.now(WARPS * agent)
        self.timeline.events += [_multiplied(one, now) for one in done]


class TracedTensorProducts(TracedGroups):
    """Follows products in tensor memory, which one thread issues. The products before a commit are one event."""

    kind = TENSOR_MEMORY

    def begun(self) -> None:
        super().begun()
        self.over: dict[int, int] = {}

    def access(self, access: MemoryAccess) -> None:
        """What a product is about to write, in the tensor memory of one CTA."""
        line = self.timeline
        if not line.warps or access.kind != "copy" or line.traits(access.pc).means != "tcgen05.mma":
            return
        cta = int(access.start[0]) // (access.buffer.size // line.state.geometry.ctas)
        for _, warp in line.of_threads(access.threads[:1]):
            now, cycles = line.now(warp), max(1, access.start.size // model.TENSOR_PRODUCT)
            end, details = self.ways[cta].take(now, cycles) + cycles, {"products": 1, "busy": cycles}
            event = line.event(warp, "product", "tcgen05.mma", access.pc, now - 1, end, details, asynchronous=True)
            self.put_in_group(warp, event)

    def committed(self, warp: int) -> int:
        """When all products that a warp has started are done."""
        for one in self.finished(warp, None):
            self.over[warp] = one.end
            self.timeline.events.append(_multiplied(one, one.end))
        return max(self.timeline.now(warp), self.over.get(warp, 0))


def _multiplied(products: TraceEvent, now: int) -> TraceEvent:
    """Products that are waited for at a time, with when they were done."""
    return replace(products, end=max(products.end, now), details={**products.details, "done": products.end})


# Stores to global memory: those of threads, and bulk and tensor stores from shared memory.


class TracedStores(TracedGroups):
    """A warp does not wait for its stores, but for groups of bulk stores where it says so."""

    kind = BULK

    def access(self, access: MemoryAccess) -> None:
        """Follows the bytes that an access is about to store."""
        if not self.timeline.warps:
            return
        traits = self.timeline.traits(access.pc)
        if traits.name.startswith(TENSOR_MEMORY):
            return
        if traits.is_grouped:
            if access.kind == "load":
                self._store_bulk(access)
        elif access.kind == "store" and self.timeline.state.memory.is_global(access.buffer):
            self._store(access, traits.first(2))

    def _store(self, access: MemoryAccess, name: str) -> None:
        for warp, size in self.bytes_of_warps(access):
            start = self.timeline.now(warp) - 1
            self.timeline.run(warp, "store", name, access.pc, start, {"bytes": size})

    # Bulk stores

    def _store_bulk(self, access: MemoryAccess) -> None:
        line, name = self.timeline, self.timeline.traits(access.pc).first(5)
        for warp, _, size in self.bytes_of_threads(access):
            now, cycles = line.now(warp), model.copy_cycles(size)
            end = self.ways[line.cta(warp)].take(now, cycles) + cycles + model.LATENCY
            event = line.event(warp, "store", name, access.pc, now - 1, end, {"bytes": size}, asynchronous=True)
            self.put_in_group(warp, event)

    def until(self, done: TraceEvent, traits: Traits) -> int:
        return done.end - (model.LATENCY if traits.bindings["READ"] else 0)

    def waiting(self, traits: Traits) -> str:
        return traits.opcode


class Tracer(Observers):
    """Follows the first CTAs of a launch; `trace` says what was found once it is over."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        copies = TracedCopies(self.timeline)
        followers = (TracedProducts(self.timeline), copies, TracedStores(self.timeline), TracedBarriers(self.timeline))
        # the timeline first, whose clocks the others read
        products = TracedTensorProducts(self.timeline)
        super().__init__((self.timeline, *followers, products, TracedMbarriers(self.timeline, copies, products)))

    def trace(self) -> LaunchTrace:
        """The trace of the launch. Raises ValueError if no launch was observed."""
        line = self.timeline
        if not line.places:
            raise ValueError("no launch was observed")
        geometry = line.state.geometry
        x, y, z = geometry.grid
        events = sorted(line.events, key=lambda e: (e.cta, e.start, e.warp))
        return LaunchTrace(
            line.kernel.name, geometry.grid, geometry.block, tuple(line.places), x * y * z, tuple(events)
        )
