"""Matrix products: those of warps, which a warp issues one after the other, and those of warpgroups."""

from __future__ import annotations

from collections import defaultdict

from ....dialect.isa import families
from ....dialect.isa.mma import Mma
from ....dialect.isa.mma_sp import MmaSparse
from ....dialect.isa.wgmma import WARPS, Wgmma
from ....dialect.isa.wmma import WmmaMma
from ....dialect.ptx.traits import PRODUCTS, Traits
from ..machine.threads import Selection
from ..observers.events import Look
from .cycles import SCHEDULERS, Pipe, WarpRow, product_cycles
from .grouped import TracedGroup, TracedGroups


class TracedProducts(TracedGroups):
    """A warp waits until its tensor core takes the next product, not for the result."""

    kind, together = PRODUCTS, WARPS

    def begun(self) -> None:
        super().begun()
        self.cores: defaultdict[tuple[int, int], Pipe] = defaultdict(Pipe)

    def look(self, pc: int, traits: Traits) -> Look | None:
        row = traits.form
        if isinstance(row, Wgmma):
            return self._issue(pc, row)
        if isinstance(row, Mma | MmaSparse | WmmaMma):
            return self._execute(pc, row)
        return super().look(pc, traits)

    def _execute(self, pc: int, row: WarpRow) -> Look:
        cycles, name = product_cycles(row), f"{families.family(row.spelling)} {row.shape}"

        def look(sel: Selection) -> None:
            line = self.timeline
            for warp in line.of(sel).tolist():
                core = self.cores[line.cta(warp), warp % line.per_cta % SCHEDULERS]
                start = core.take(line.now(warp) - 1, cycles)
                line.clock[warp] = start + 1
                line.run(warp, "product", name, pc, start, {"products": 1, "busy": cycles})

        return look

    # Warpgroups

    def _issue(self, pc: int, row: Wgmma) -> Look:
        cycles = product_cycles(row)

        def look(sel: Selection) -> None:
            for group in self.agents(sel):
                now, cta = self.timeline.now(WARPS * group), self.timeline.cta(WARPS * group)
                end = self.cores[cta, -1].take(now, cycles) + cycles
                self.groups.issue(group, TracedGroup(pc, now - 1, end, 1, cycles))

        return look

    def record(self, agent: int, done: list[TracedGroup]) -> None:
        warp = WARPS * agent
        for one in done:
            name, end = self._name(one.pc), max(one.end, self.timeline.now(warp))
            details = {"products": one.amount, "busy": one.busy, "done": one.end}
            self.timeline.record(warp, "product", name, one.pc, one.start, end, details, True)

    def _name(self, pc: int) -> str:
        row = self.timeline.traits(pc).form
        return f"wgmma {row.shape}" if isinstance(row, Wgmma) else "wgmma"
