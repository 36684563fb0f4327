"""Global memory that is stored through the generic proxy and read by a bulk or tensor copy.

The copy sees such a store only behind a `fence.proxy.async`, or one of `.global`, that is executed after it: here by
any thread of the CTA that stored, or of the one that copies. PTX ISA 8.6 and 9.7.9.25.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .findings import Check, Findings
from .writers import GlobalWriters

if TYPE_CHECKING:
    from ...numerics.array import Array
    from ..machine.kernel import DecodedKernel
    from ..machine.state import State
    from ..machine.threads import Selection
    from ..observers.events import Look, MemoryAccess


class GlobalProxies(Check):
    """Follows fences; `writers` knows who stored what, and is told of every event before this."""

    name = "races"

    def __init__(self, findings: Findings, writers: GlobalWriters) -> None:
        super().__init__(findings)
        self.writers = writers
        self.fenced: Array = np.zeros(0, np.int64)

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        self.asynchronous = np.array([d.traits.asynchronous for d in kernel.code])
        if not self.fenced.size:
            self.fenced = np.zeros(self.writers.known.size, np.int64)

    def watch(self, pc: int) -> Look | None:
        return self._fence if self.kernel.code[pc].traits.fences_asynchronous("global") else None

    def _fence(self, sel: Selection) -> None:
        threads = sel.threads
        self.fenced[self.writers.who[threads] // self.writers.each] = self.writers.now

    def access(self, access: MemoryAccess) -> None:
        if access.kind != "load" or not self.asynchronous[access.pc] or not access.start.size:
            return
        if (history := self.writers.history(access)) is None:
            return
        pieces = history.pieces(access.start, access.width)
        piece, thread = pieces.reshape(-1), np.repeat(access.threads, pieces.shape[1])
        known, each = history.stored, self.writers.each
        before = known.who(piece)
        ctas = np.maximum(before, 0) // each, self.writers.who[thread] // each
        fenced = np.maximum(self.fenced[ctas[0]], self.fenced[ctas[1]])
        stored = np.flatnonzero((before >= 0) & (known.time(piece) > fenced))
        bad = stored[~self.asynchronous[known.pc(piece[stored])]]
        if bad.size:
            first = int(piece[bad[0]])
            line, where = self.writers.who_accessed(known, first)
            text = (
                f"reads through the asynchronous proxy what {where} writes at line {line}, and no fence.proxy.async is "
                f"between them; byte {first * history.width} of {access.buffer.name}"
            )
            self.report(access.pc, text, int(thread[bad[0]]), about=("proxy", line), count=int(bad.size))
