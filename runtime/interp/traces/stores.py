"""Stores to global memory: those of threads, and bulk and tensor stores from shared memory."""

from __future__ import annotations

import numpy as np

from ....dialect.ptx.traits import BULK, Traits
from ..observers.events import MemoryAccess
from .cycles import LATENCY, copy_cycles
from .grouped import TracedGroup, TracedGroups


class TracedStores(TracedGroups):
    """A warp does not wait for its stores, but for groups of bulk stores where it says so."""

    kind = BULK

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
        for warp, size in self.bytes_of_warps(access):
            start = self.timeline.now(warp) - 1
            self.timeline.run(warp, "store", name, access.pc, start, {"bytes": size})

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

    def until(self, done: TracedGroup, traits: Traits) -> int:
        return done.released if traits.bindings["READ"] else done.end

    def waiting(self, traits: Traits) -> str:
        return traits.opcode

    def record(self, agent: int, done: list[TracedGroup]) -> None:
        for one in done:
            name = self.timeline.traits(one.pc).first(5)
            self.timeline.record(agent, "store", name, one.pc, one.start, one.end, {"bytes": one.amount}, True)
