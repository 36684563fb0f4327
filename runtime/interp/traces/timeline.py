"""The clocks of warps, and the events that are written down.

The interpreter runs warps in an order of its own. Each warp has a clock here, which its instructions advance; where it
waits, its clock goes to when that happened which it waits for. So times hardly depend on the interpreter's order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....dialect.ptx.text.syntax import Immediate
from ....dialect.ptx.traits import Traits
from ...launch_trace import TraceEvent, TraceKind
from ...numerics.array import Array
from ..machine.kernel import DecodedKernel
from ..machine.state import State
from ..machine.threads import LANES, Selection
from ..observers.events import Look
from ..observers.observer import Observer

TRACED = 16
"""CTAs that are followed, from the first on; of clusters, whole ones, and one at least."""


@dataclass
class _Run:
    """Instructions of one kind that a warp issues one after the other."""

    kind: TraceKind
    name: str
    pc: int
    start: int
    end: int
    details: dict[str, int]


class Timeline(Observer):
    """The clocks of the warps that are followed, numbered as in the state; `warps` is how many they are."""

    def __init__(self) -> None:
        self.kernel: DecodedKernel | None = None
        self.events: list[TraceEvent] = []
        self.places: list[tuple[int, int, int]] = []
        self.warps = 0
        self._runs: dict[int, _Run] = {}

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        """The CTAs of every batch begin at cycle 0."""
        self.state, self.kernel = state, kernel
        geometry = state.geometry
        limit = max(geometry.cluster_size, TRACED // geometry.cluster_size * geometry.cluster_size)
        ctas = max(0, min(geometry.ctas, limit - geometry.first))
        self.first, self.per_cta = geometry.first, geometry.warps_per_cta
        self.places += [geometry.cta_index(geometry.first + i) for i in range(ctas)]
        self.warps = ctas * self.per_cta
        self.clock: Array = np.zeros(self.warps, np.int64)
        self.pc = 0

    def issue(self, pc: int) -> Look | None:
        """An instruction takes a cycle, whatever its guard."""
        if not self.warps:
            return None

        def look(sel: Selection) -> None:
            self.pc = pc
            self.clock[self.of(sel)] += 1

        return look

    def end(self) -> None:
        """What goes on is over."""
        for warp in list(self._runs):
            self._settle(warp)

    # Warps

    def of(self, sel: Selection) -> Array:
        """The numbers of the selected threads' warps."""
        if sel.mask is None:
            return np.arange(self.warps)
        return np.flatnonzero(sel.mask.reshape(LANES, -1)[:, : self.warps].any(axis=0))

    def of_threads(self, threads: Array) -> Array:
        """The numbers of the warps of threads, each once."""
        warps = np.unique(threads % self.state.warps)
        return warps[warps < self.warps]

    def cta(self, warp: int) -> int:
        """The number of a warp's CTA among those in flight."""
        return warp // self.per_cta

    def now(self, warp: int) -> int:
        """What the clock of a warp shows."""
        return int(self.clock[warp])

    def traits(self, pc: int) -> Traits:
        """What the instruction does.

        Raises:
            ValueError: if no launch is followed.
        """
        if self.kernel is None:
            raise ValueError("no launch is followed")
        return self.kernel.code[pc].traits

    def constant(self, pc: int) -> int:
        """The constant that an instruction has for an operand."""
        operands = () if self.kernel is None else self.kernel.code[pc].source.operands
        return next(int(operand.value) for operand in operands if isinstance(operand, Immediate))

    # Events

    def wait(self, warp: int, pc: int, name: str, until: int) -> None:
        """A warp waits until a time, if that is not yet."""
        now = self.now(warp)
        if until > now:
            self._settle(warp)
            self.record(warp, "wait", name, pc, now, until)
            self.clock[warp] = until

    def run(self, warp: int, kind: TraceKind, name: str, pc: int, start: int, details: dict[str, int]) -> None:
        """A warp issues an instruction that joins those of its kind before it; `details` are added up."""
        run = self._runs.get(warp)
        if run is not None and (run.kind, run.name) == (kind, name):
            run.end = start + 1
            for key, value in details.items():
                run.details[key] += value
            return
        self._settle(warp)
        self._runs[warp] = _Run(kind, name, pc, start, start + 1, dict(details))

    def _settle(self, warp: int) -> None:
        """The run of a warp is over."""
        run = self._runs.pop(warp, None)
        if run is not None:
            self.record(warp, run.kind, run.name, run.pc, run.start, run.end, run.details)

    def record(
        self,
        warp: int,
        kind: TraceKind,
        name: str,
        pc: int,
        start: int,
        end: int,
        details: dict[str, int] | None = None,
        asynchronous: bool = False,
    ) -> None:
        """Writes an event down."""
        cta, within = divmod(warp, self.per_cta)
        line = 0 if self.kernel is None else self.kernel.code[pc].source.line
        self.events.append(
            TraceEvent(self.first + cta, within, kind, name, line, start, end, asynchronous, details or {})
        )


class Traced(Observer):
    """An observer that puts something on a timeline; `begun` and `look` are what it is told of the CTAs followed."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        self.begun()

    def begun(self) -> None:
        """A batch of CTAs starts."""

    def watch(self, pc: int) -> Look | None:
        """Nothing is looked at where no CTA is followed."""
        return self.look(pc, self.timeline.traits(pc)) if self.timeline.warps else None

    def look(self, pc: int, traits: Traits) -> Look | None:
        """As `watch`."""
        return None
