"""CTAs that leave their cluster while others still access their shared memory. PTX ISA 9.7.13.3, 5.1.5.

An access to the shared memory of another CTA must be ordered before one of that CTA's threads ends, which is what a
last `barrier.cluster` is for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .shared import SharedCheck

if TYPE_CHECKING:
    from ...numerics.array import Array
    from ..machine.kernel import DecodedKernel
    from ..machine.state import State
    from ..observers.events import MemoryAccess


class Departures(SharedCheck):
    """Keeps the last access of each CTA of a cluster to the memory of each other one."""

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        geometry = state.geometry
        self.size = geometry.cluster_size
        self.per_cta = geometry.warps_per_cta
        self.gone = np.zeros(geometry.ctas, np.bool_)
        self.time = np.zeros((geometry.ctas, self.size * self.per_cta), np.int32)
        self.by = np.zeros((*self.time.shape, 2), np.int64)
        if self.size > 1:
            state.flow.on_exit.append(self._exits)

    def access(self, access: MemoryAccess) -> None:
        if self.size == 1 or access.buffer is not self.state.memory.shared.buffer or not access.start.size:
            return
        warp = access.threads % self.state.warps
        home = access.start // self.shared.stride
        away = np.flatnonzero(home != warp // self.per_cta)
        if not away.size:
            return
        home, warp, threads = home[away], warp[away], access.threads[away]
        column = warp % self.time.shape[1]
        self.time[home, column] = self.shared.clocks.now
        self.by[home, column] = np.stack([np.full_like(threads, access.pc), threads], axis=1)
        for cta in np.unique(home[self.gone[home]]).tolist():
            self._tell(access.pc, int(threads[home == cta][0]), cta)

    def _exits(self) -> None:
        """Looks at the CTAs whose last threads have just ended."""
        live = np.logical_or.reduce(self.state.live.reshape(-1, self.state.geometry.ctas, self.per_cta), axis=(0, 2))
        left = np.flatnonzero(~live & ~self.gone)
        self.gone |= ~live
        clocks = self.shared.clocks
        for cta in left.tolist():
            warps = np.arange(cta * self.per_cta, (cta + 1) * self.per_cta)
            known: Array = np.maximum.reduce(clocks.seen[warps])
            for column in np.flatnonzero(self.time[cta] > known).tolist():
                self._tell(int(self.by[cta, column, 0]), int(self.by[cta, column, 1]), cta)

    def _tell(self, pc: int, thread: int, cta: int) -> None:
        where = self.state.geometry.cta_index(self.state.geometry.first + cta)
        text = f"accesses the shared memory of CTA {where}, which may be gone: nothing orders its end behind this"
        self.report(pc, text, thread, about="left")
