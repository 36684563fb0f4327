"""Waits for other warps: at barriers of a CTA and of a cluster, and at mbarrier objects."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ....dialect.ptx.traits import Traits
from ...numerics.array import Array
from ..machine.clusters import BARRIER
from ..machine.threads import LANES, Selection
from ..observers.events import Look, MemoryAccess
from .arrivals import PhaseTimes
from .copies import TracedCopies
from .timeline import Timeline, Traced

POLLING = 64
"""Cycles between two tests of one object within which they are one wait."""


class TracedBarriers(Traced):
    """Threads that come to a barrier go on when the last of them has come."""

    def begun(self) -> None:
        self.came: dict[tuple[int, int], tuple[int, int]] = {}
        self.complete: defaultdict[tuple[int, int], int] = defaultdict(int)

    def come(self, number: int, expected: int, threads: Array) -> None:
        for warp in self._warps(threads):
            self.came[number, warp] = self.timeline.pc, self.timeline.now(warp)

    def join(self, number: int, arrived: Array, waiting: Array) -> None:
        line = self.timeline
        for warp in self._warps(arrived):
            scope = number, self._scope(number, warp)
            self.complete[scope] = max(self.complete[scope], self.came[number, warp][1])
        for warp in self._warps(waiting):
            pc, _ = self.came[number, warp]
            name = line.traits(pc).first(2)
            line.wait(warp, pc, name, self.complete[number, self._scope(number, warp)])

    def _scope(self, number: int, warp: int) -> int:
        """The CTA, or cluster, of a warp."""
        cta = self.timeline.cta(warp)
        return cta // self.timeline.state.geometry.cluster_size if number == BARRIER else cta

    def _warps(self, mask: Array) -> list[int]:
        return np.flatnonzero(mask.reshape(LANES, -1)[:, : self.timeline.warps].any(axis=0)).tolist()


class TracedMbarriers(Traced):
    """Who tests a phase goes on when the last arrival has completed it: of a thread, or of copies."""

    def __init__(self, timeline: Timeline, copies: TracedCopies) -> None:
        super().__init__(timeline)
        self.copies = copies

    def begun(self) -> None:
        self.phases = PhaseTimes(self.timeline.state.memory.shared.buffer.view(8))
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
        """Objects that are made, and arrivals that copies make later."""
        means = self.timeline.traits(access.pc).means
        if means == "mbarrier.init":
            for start in access.start.tolist():
                self.phases.begin(start)
        elif means == "cp.async.mbarrier.arrive":
            for start, thread in zip(access.start.tolist(), access.threads.tolist(), strict=True):
                warp = thread % self.timeline.state.warps
                if warp < self.timeline.warps:
                    self.deferred[start, warp] = self.copies.arriving(warp)

    def arrive(self, start: Array, threads: Array) -> None:
        landed, self.copies.landed = self.copies.landed, None
        immediate = self.timeline.traits(self.timeline.pc).means == "mbarrier.arrive"
        warps = threads % self.timeline.state.warps
        for object_, warp in {*zip(start.tolist(), warps.tolist(), strict=True)}:
            if warp < self.timeline.warps:
                later = self.timeline.now(warp) if immediate else self.deferred.get((object_, warp), 0)
                self.phases.arrive(object_, later if landed is None else landed)

    def passed(self, start: Array, threads: Array) -> None:
        warps = threads % self.timeline.state.warps
        for object_, warp in sorted({*zip(start.tolist(), warps.tolist(), strict=True)}):
            if warp < self.timeline.warps and warp in self.polls:
                pc, since, _ = self.polls.pop(warp)
                self.timeline.clock[warp] = since  # how often a test fails is the interpreter's own matter
                name = self.timeline.traits(pc).first(2)
                self.timeline.wait(warp, pc, name, self.phases.completed(object_))
