"""Asynchronous copies to shared memory: `cp.async` of threads, and bulk and tensor copies, which arrive at mbarriers.

Both come one after the other through one way to the SM, in the order of issue.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

import numpy as np

from ....dialect.ptx.traits import COPIES
from ...numerics.array import Array
from ..machine.memory import Buffer
from ..observers.events import MemoryAccess
from .cycles import LATENCY, copy_cycles
from .grouped import TracedGroup, TracedGroups


class TracedCopies(TracedGroups):
    """`landed` is when the copy arrives that the machine is about to let land, `copied` when the last `cp.async` of
    each warp does."""

    kind = COPIES

    def begun(self) -> None:
        super().begun()
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
        for warp, size in self.bytes_of_warps(access):
            copy = self._fly(warp, self.timeline.cta(warp), access.pc, size)
            self.groups.issue(warp, copy)
            self.copied[warp] = max(self.copied.get(warp, 0), copy.end)

    def arriving(self, warp: int) -> int:
        """When the copies that a warp has begun have arrived, of which an mbarrier is told; they are a group."""
        self.record(warp, self.groups.rest(warp))
        return max(self.timeline.now(warp), self.copied.get(warp, 0))

    def record(self, agent: int, done: list[TracedGroup]) -> None:
        for one in done:
            self.timeline.record(agent, "cp.async", "cp.async", one.pc, one.start, one.end, {"bytes": one.amount}, True)

    def end(self) -> None:
        """Copies that nobody waits for arrive as well."""
        super().end()
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
