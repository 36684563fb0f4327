"""Orders of warps that are asked for: a counterexample, run as it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...numerics.floats import Array
from .events import LANES
from .flow import Flow
from .memory import WarpOrder


class Replay:
    """Chooses who runs by an order; who cannot run as it says is not waited for."""

    def __init__(self, order: WarpOrder) -> None:
        self.left, self.held = list(order.steps), order.held

    def run(self, flow: Flow, advance: Callable[[int, Array], None]) -> None:
        """Lets warps run as the order says; `advance` executes one instruction."""
        while (group := self.next(flow)) is not None:
            advance(*group)
            self.executed(*group)

    def next(self, flow: Flow) -> tuple[int, Array] | None:
        """Threads to run one instruction of, and where; None if the order says nothing."""
        if self.left:
            return self._of(flow, [self.left[0][0]])
        warps = next((mask.size // LANES for mask in flow.ready.values()), 0)
        return self._of(flow, [w for w in range(warps) if w != self.held]) if self.held >= 0 else None

    def _of(self, flow: Flow, warps: Sequence[int]) -> tuple[int, Array] | None:
        for pc in sorted(flow.ready):
            mine = np.zeros_like(flow.ready[pc]).reshape(LANES, -1)
            mine[:, warps] = flow.ready[pc].reshape(LANES, -1)[:, warps]
            if mine.any():
                rest = flow.ready.pop(pc) & ~mine.reshape(-1)
                if rest.any():
                    flow.ready[pc] = rest
                return pc, mine.reshape(-1)
        return None

    def executed(self, pc: int, mask: Array) -> None:
        """Threads have executed an instruction: a step for each lane that did."""
        lanes = mask.reshape(LANES, -1).sum(axis=0)
        first = self.left[0] if self.left else None
        times = int(lanes[first[0]]) if first is not None and first[1] == pc else 0
        while times and self.left and self.left[0] == first:
            del self.left[0]
            times -= 1
