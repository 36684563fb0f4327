"""Asynchronous copies to shared memory: `cp.async` of threads, and bulk and tensor copies, which arrive at mbarriers.

Both come one after the other through one way to the SM, in the order of issue.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

import numpy as np

from ....dialect.ptx.traits import COPIES, Traits
from ...numerics.array import Array
from ..machine.memory import Buffer
from ..machine.threads import Selection
from ..observers.events import Look, MemoryAccess
from .cycles import LATENCY, Pipe, copy_cycles
from .grouped import GroupQueue, TracedGroup
from .timeline import Timeline, Traced


class TracedCopies(Traced):
    """`landed` is when the copy arrives that the machine is about to let land, `copied` when the last `cp.async` of
    each warp does."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline)
        self.begun()

    def begun(self) -> None:
        self.ways: defaultdict[int, Pipe] = defaultdict(Pipe)
        self.groups = GroupQueue()
        self.flying: defaultdict[tuple[int, int], deque[TracedGroup]] = defaultdict(deque)
        self.landed: int | None = None
        self.copied: dict[int, int] = {}

    def access(self, access: MemoryAccess) -> None:
        """What is about to be copied: of `cp.async` the bytes that are read, as what is zeros needs no way."""
        if not self.timeline.warps:
            return
        of_threads = self.timeline.traits(access.pc).name == COPIES
        if of_threads and access.kind == "load":
            self._copy(access)
        elif not of_threads and access.kind == "copy":
            self._bulk_copy(access)

    def _fly(self, warp: int, cta: int, pc: int, size: int) -> TracedGroup:
        """A copy to a CTA is issued."""
        now, cycles = self.timeline.now(warp), copy_cycles(size)
        start = self.ways[cta].take(now, cycles)
        return TracedGroup(pc, now - 1, start + cycles + LATENCY, size)

    # Copies of threads

    def _copy(self, access: MemoryAccess) -> None:
        warps, counts = np.unique(access.threads % self.timeline.state.warps, return_counts=True)
        for warp, count in zip(warps.tolist(), counts.tolist(), strict=True):
            if warp < self.timeline.warps:
                copy = self._fly(warp, self.timeline.cta(warp), access.pc, count * access.width)
                self.groups.issue(warp, copy)
                self.copied[warp] = max(self.copied.get(warp, 0), copy.end)

    def look(self, pc: int, traits: Traits) -> Look | None:
        if traits.commits == COPIES:
            return lambda sel: self._commit(sel)
        if traits.awaits == COPIES:
            return self._wait(pc, traits)
        return None

    def _commit(self, sel: Selection) -> None:
        for warp in self.timeline.of(sel).tolist():
            self.groups.commit(warp)

    def _wait(self, pc: int, traits: Traits) -> Look:
        name, keep = traits.name, None if traits.awaits_all else self.timeline.constant(pc)

        def look(sel: Selection) -> None:
            for warp in self.timeline.of(sel).tolist():
                done = self.groups.rest(warp) if keep is None else self.groups.wait(warp, keep)
                self.timeline.wait(warp, pc, name, max((one.end for one in done), default=0))
                self._record(warp, done)

        return look

    def arriving(self, warp: int) -> int:
        """When the copies that a warp has begun have arrived, of which an mbarrier is told; they are a group."""
        self._record(warp, self.groups.rest(warp))
        return max(self.timeline.now(warp), self.copied.get(warp, 0))

    def _record(self, warp: int, done: list[TracedGroup]) -> None:
        for one in done:
            self.timeline.record(warp, "cp.async", "cp.async", one.pc, one.start, one.end, {"bytes": one.amount}, True)

    def end(self) -> None:
        """Copies that nobody waits for arrive as well."""
        for warp in self.groups.agents():
            self._record(warp, self.groups.rest(warp))
        for (_, warp), copies in self.flying.items():
            for copy in copies:
                self._record_bulk(warp, copy)
        self.flying.clear()

    # Bulk copies

    def _bulk_copy(self, access: MemoryAccess) -> None:
        for start, thread, size in _of_threads(access):
            warp = thread % self.timeline.state.warps
            if warp < self.timeline.warps:
                to = start // (access.buffer.size // self.timeline.state.geometry.ctas)
                self.flying[start, warp].append(self._fly(warp, to, access.pc, size))

    def land(self, buffer: Buffer, start: Array, width: int, threads: Array | None) -> None:
        """The oldest copy of that thread to that place."""
        self.landed = None
        if threads is None or not threads.size:
            return
        warp = int(threads[0]) % self.timeline.state.warps
        copies = self.flying.get((int(start[0]), warp))
        if copies:
            copy = copies.popleft()
            self._record_bulk(warp, copy)
            self.landed = copy.end

    def _record_bulk(self, warp: int, copy: TracedGroup) -> None:
        traits = self.timeline.traits(copy.pc)
        name = traits.first(5 if traits.name == "cp.async.bulk.tensor" else 3)
        self.timeline.record(warp, "tensor copy", name, copy.pc, copy.start, copy.end, {"bytes": copy.amount}, True)


def _of_threads(access: MemoryAccess) -> Iterator[tuple[int, int, int]]:
    """First byte, thread and size of what each thread copies."""
    for thread in np.unique(access.threads).tolist():
        starts = access.start[access.threads == thread]
        yield int(starts[0]), thread, starts.size * access.width
