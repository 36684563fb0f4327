"""Shared memory that is written through the generic proxy and read through the asynchronous one.

What `st`, `stmatrix`, `cp.async` and atomics write, `wgmma` and the stores of bulk and tensor copies see only behind a
`fence.proxy.async`: of the thread that wrote, or of one that is ordered behind it. What bulk and tensor copies wrote
needs none. PTX ISA 8.6 and 9.7.15.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .shared import WRITING, SharedCheck

if TYPE_CHECKING:
    from ...numerics.array import Array
    from ..machine.kernel import DecodedKernel
    from ..machine.state import State
    from ..machine.threads import Selection
    from ..observers.events import Look, MemoryAccess

UNIT = 16
"""Bytes of which one writer is kept: as many as asynchronous operations move at once."""


def units_of(access: MemoryAccess) -> tuple[Array, Array]:
    """The units that accesses touch, and the threads that do."""
    first, last = access.start // UNIT, (access.start + access.width - 1) // UNIT
    each = int((last - first).max()) + 1
    units = np.minimum(first[:, None] + np.arange(each), last[:, None])
    return units.reshape(-1), np.repeat(access.threads, each)


class AsynchronousCheck(SharedCheck):
    """A check of what instructions do through the asynchronous proxy: which these are, and how many units there are to
    follow; none in a kernel without such instructions."""

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        self.buffer = state.memory.shared.buffer
        self.asynchronous = [d.traits.asynchronous for d in kernel.code]
        self.units = self.buffer.size // UNIT if any(self.asynchronous) else 0
        self.pc = np.zeros(self.units, np.int32)


class Proxies(AsynchronousCheck):
    """Follows who wrote each unit of shared memory, and fences."""

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        self.unfenced = np.zeros(self.units, np.bool_)
        self.writer = np.zeros(self.units, np.int32)
        self.time = np.zeros(self.units, np.int32)

    def watch(self, pc: int) -> Look | None:
        return self._fence if self.kernel.code[pc].traits.fences_asynchronous("shared") else None

    def _fence(self, sel: Selection) -> None:
        """What the threads wrote, and what is ordered before them, the asynchronous proxy sees."""
        units = np.flatnonzero(self.unfenced)
        if not units.size:
            return
        clocks, threads = self.shared.clocks, sel.threads
        writer = self.writer[units]
        fenced = np.zeros(self.state.threads, np.bool_)
        fenced[threads] = True
        known = np.zeros((self.state.warps // clocks.each, clocks.each), np.int32)
        warps = np.unique(threads % clocks.warps)
        np.maximum.at(known, warps // clocks.each, clocks.seen[warps])
        other = writer % clocks.warps
        ordered = self.time[units] <= known[other // clocks.each, other % clocks.each]
        self.unfenced[units[fenced[writer] | ordered]] = False

    def access(self, access: MemoryAccess) -> None:
        if access.buffer is not self.buffer or not self.unfenced.size or not access.start.size:
            return
        units, threads = units_of(access)
        if access.kind in WRITING:
            generic = not self.asynchronous[access.pc]
            self.unfenced[units] = generic
            self.writer[units], self.time[units], self.pc[units] = threads, self.shared.clocks.now, access.pc
        elif self.asynchronous[access.pc]:
            self._look(access.pc, units, threads)

    def _look(self, pc: int, units: Array, threads: Array) -> None:
        bad = np.flatnonzero(self.unfenced[units])
        if not bad.size:
            return
        unit, thread = int(units[bad[0]]), int(threads[bad[0]])
        source = self.kernel.code[int(self.pc[unit])].source
        _, warp, lane = self.state.geometry.place(int(self.writer[unit]))
        text = (
            f"reads through the asynchronous proxy what warp {warp}, lane {lane} writes at line {source.line} "
            f"({source.opcode}), and no fence.proxy.async is between them"
        )
        address = unit * UNIT % self.shared.stride
        self.report(pc, text, thread, address, about=("proxy", source.line), count=int(bad.size))
