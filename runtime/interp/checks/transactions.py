"""Bytes that arrive at mbarrier objects, and that nobody expects: a phase then completes before its data is there."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..machine.phases import Phases, live
from .findings import Check

if TYPE_CHECKING:
    from ...numerics.array import Array
    from ..machine.kernel import DecodedKernel
    from ..machine.memory import Buffer
    from ..machine.state import State
    from ..machine.threads import Selection
    from ..observers.events import Look


class Transactions(Check):
    """Looks, when CTAs are done, at the objects at which copies arrived."""

    name = "barriers"

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        self._too_many()
        super().begin(state, kernel)
        self.issued: dict[int, int] = {}
        self.landing = False
        self.arrived: dict[int, tuple[int, int]] = {}

    def end(self) -> None:
        self._too_many()

    def watch(self, pc: int) -> Look | None:
        if not self.kernel.code[pc].traits.completes_transactions:
            return None

        def look(sel: Selection) -> None:
            threads = sel.threads
            self.issued.update(dict.fromkeys(threads.tolist(), pc))

        return look

    def land(self, buffer: Buffer, start: Array, width: int, threads: Array | None) -> None:
        self.landing = True

    def arrive(self, start: Array, threads: Array) -> None:
        """Keeps the last copy that arrived at an object: its instruction and thread."""
        landing, self.landing = self.landing, False
        thread = int(threads[0])
        if landing and thread in self.issued:
            self.arrived[int(start[0])] = (self.issued[thread], thread)

    def _too_many(self) -> None:
        if not hasattr(self, "state"):
            return
        flying: Counter[int] = Counter()
        for copy in self.state.mbarriers.bulk:
            start = int(copy.index[0]) * 8
            flying[start] += copy.data.size
            self.arrived[start] = (self.issued.get(copy.thread, 0), copy.thread)
        for start, (pc, thread) in self.arrived.items():
            word = self.state.mbarriers.words[start // 8 : start // 8 + 1]
            more = flying[start] - int(Phases.of(word).transactions[0])
            if live(word)[0] and more > 0:
                address = start % (self.state.memory.shared.buffer.size // self.state.geometry.ctas)
                text = f"{more} bytes more than were expected have arrived at the mbarrier object at {address:#x}"
                self.report(pc, text, thread, address, about="bytes")
        self.arrived = {}
