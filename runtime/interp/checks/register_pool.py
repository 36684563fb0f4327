"""`setmaxnreg`: a warpgroup that asks for more registers than its CTA will ever have waits for ever; and its warps have
alike many. PTX ISA 9.7.19.5.

How many a thread has at entry is known where `.maxnreg` says so, or the number of threads together with
`.minnctapersm`; elsewhere the assembler drops the instruction, and nothing is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....dialect.isa.wgmma import WARPS
from ....dialect.ptx.text.syntax import Immediate
from ..machine.threads import LANES
from .findings import Check

if TYPE_CHECKING:
    from ...numerics.array import Array
    from ..machine.kernel import DecodedKernel
    from ..machine.state import State
    from ..machine.threads import Selection
    from ..observers.events import Look

REGISTERS = 65536
"""Registers of 32 bits that a multiprocessor has."""

_MORE = "setmaxnreg.inc"


def at_entry(kernel: DecodedKernel, threads: int) -> int | None:
    """Registers of a thread at entry, by the directives of the kernel: as many as fit, in eights, and not more than it
    asks for later. None where the directives do not say."""
    if kernel.register_limit is not None:
        return kernel.register_limit
    if kernel.ctas_required is None or (kernel.block_required is None and kernel.block_limit is None):
        return None
    asked = [_count(d.source.operands[0]) for d in kernel.code if d.traits.name == _MORE]
    return min(REGISTERS // (threads * max(kernel.ctas_required, 1)) // 8 * 8, max(asked, default=REGISTERS))


class RegisterPool(Check):
    """Follows how many registers each warp has; whether all fit is looked at when the CTAs are done."""

    name = "barriers"

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        self._too_many()
        super().begin(state, kernel)
        self.entry = at_entry(kernel, state.geometry.threads_per_cta)
        self.has = np.full(state.warps, self.entry or 0)
        self.asked: dict[int, tuple[int, int]] = {}
        self.last = np.full(state.warps, -1)

    def end(self) -> None:
        self._too_many()

    def watch(self, pc: int) -> Look | None:
        decoded = self.kernel.code[pc]
        if self.entry is None or decoded.row.means != "setmaxnreg":
            return None
        grows, count = decoded.traits.name == _MORE, _count(decoded.source.operands[0])

        def look(sel: Selection) -> None:
            threads = sel.threads
            warps = np.unique(threads % self.state.warps)
            wrong = warps[self.has[warps] > count if grows else self.has[warps] < count]
            if wrong.size:
                has = int(self.has[wrong[0]])
                text = f"the warp has {has} registers a thread, {'more' if grows else 'fewer'} than {count}"
                self.report(pc, text, int(wrong[0]), about="count", count=int(wrong.size))
            self.has[warps], self.last[warps] = count, pc
            if grows:
                self.asked.update({w // self.state.geometry.warps_per_cta: (pc, w) for w in warps.tolist()})

        return look

    def _too_many(self) -> None:
        """Once all have let go what they do, the CTA must not have more than it began with."""
        for cta, (pc, warp) in getattr(self, "asked", {}).items():
            each = self.state.geometry.warps_per_cta
            total, pool = int(self.has[cta * each : (cta + 1) * each].sum()), (self.entry or 0) * each
            if total > pool:
                text = f"waits for ever: the warps ask for {total * LANES} registers, the CTA has {pool * LANES}"
                self.report(pc, text, warp, about="pool")
        self.asked = {}
        self._alike()

    def _alike(self) -> None:
        """The warps of a warpgroup must have executed the same instructions."""
        last: Array = getattr(self, "last", np.zeros(0, np.int64))
        per_cta = self.state.geometry.warps_with_threads if last.size else 1
        for first in range(0, last.size, WARPS):
            has = self.has[first : first + WARPS]
            apart = np.flatnonzero(has != has[0])
            if apart.size and first % self.state.geometry.warps_per_cta + WARPS <= per_cta:
                at = first + int(np.argmax(last[first : first + WARPS]))
                warp = (first + int(apart[0])) % self.state.geometry.warps_per_cta
                text = f"the warps of a warpgroup have {has[0]} and, from warp {warp} on, {has[apart[0]]} registers"
                self.report(int(last[at]), text, at, about="alike")
        self.last = last[:0]


def _count(operand: object) -> int:
    return int(operand.value) if isinstance(operand, Immediate) else 0
