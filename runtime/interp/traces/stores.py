"""Stores to global memory: those of threads, and bulk and tensor stores from shared memory."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ....dialect.ptx.traits import BULK, Traits
from ..machine.threads import Selection
from ..observers.events import Look, MemoryAccess
from .cycles import LATENCY, Pipe, copy_cycles
from .grouped import GroupQueue, TracedGroup
from .timeline import Timeline, Traced


class TracedStores(Traced):
    """A warp does not wait for its stores, but for groups of bulk stores where it says so."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline)
        self.begun()

    def begun(self) -> None:
        self.ways: defaultdict[int, Pipe] = defaultdict(Pipe)
        self.groups = GroupQueue()

    def access(self, access: MemoryAccess) -> None:
        """What is about to be stored."""
        if not self.timeline.warps:
            return
        traits = self.timeline.traits(access.pc)
        if traits.is_grouped:
            if access.kind == "load":
                self._store_bulk(access)
        elif access.kind == "store" and self._is_global(access):
            self._store(access, traits.first(2))

    def _is_global(self, access: MemoryAccess) -> bool:
        memory = self.timeline.state.memory
        return all(access.buffer is not own.buffer for own in (memory.shared, memory.local, memory.param))

    def _store(self, access: MemoryAccess, name: str) -> None:
        warps, counts = np.unique(access.threads % self.timeline.state.warps, return_counts=True)
        for warp, count in zip(warps.tolist(), counts.tolist(), strict=True):
            if warp < self.timeline.warps:
                start = self.timeline.now(warp) - 1
                self.timeline.run(warp, "store", name, access.pc, start, {"bytes": count * access.width})

    # Bulk stores

    def _store_bulk(self, access: MemoryAccess) -> None:
        for thread in np.unique(access.threads).tolist():
            warp = thread % self.timeline.state.warps
            if warp >= self.timeline.warps:
                continue
            size = int(np.count_nonzero(access.threads == thread)) * access.width
            now, cycles = self.timeline.now(warp), copy_cycles(size)
            read = self.ways[self.timeline.cta(warp)].take(now, cycles) + cycles
            self.groups.issue(warp, TracedGroup(access.pc, now - 1, read + LATENCY, size, released=read))

    def look(self, pc: int, traits: Traits) -> Look | None:
        if traits.commits == BULK:
            return lambda sel: self._commit(sel)
        if traits.awaits == BULK:
            return self._wait(pc, traits)
        return None

    def _commit(self, sel: Selection) -> None:
        for warp in self.timeline.of(sel).tolist():
            self.groups.commit(warp)

    def _wait(self, pc: int, traits: Traits) -> Look:
        keep, reading = self.timeline.constant(pc), bool(traits.bindings["READ"])

        def look(sel: Selection) -> None:
            for warp in self.timeline.of(sel).tolist():
                done = self.groups.wait(warp, keep)
                until = max((one.released if reading else one.end for one in done), default=0)
                self.timeline.wait(warp, pc, traits.opcode, until)
                self._record(warp, done)

        return look

    def _record(self, warp: int, done: list[TracedGroup]) -> None:
        for one in done:
            name = self.timeline.traits(one.pc).first(5)
            self.timeline.record(warp, "store", name, one.pc, one.start, one.end, {"bytes": one.amount}, True)

    def end(self) -> None:
        """Stores that nobody waits for are over as well."""
        for warp in self.groups.agents():
            self._record(warp, self.groups.rest(warp))
        self.groups = GroupQueue()
