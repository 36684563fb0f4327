"""Shared memory that is written through the generic proxy and read through the asynchronous one.

What `st`, `stmatrix`, `cp.async` and atomics write, `wgmma` and the stores of bulk and tensor copies see only behind a
`fence.proxy.async`: of the thread that wrote, or of one that is ordered behind it. What bulk and tensor copies wrote
needs none. PTX ISA 8.6 and 9.7.15.6.

The same holds for the mbarrier objects at which copies complete: `mbarrier.init` writes them. And another CTA of the
cluster sees an object only if a fence or a release followed the initialisation. `fence.mbarrier_init` does both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .shared import WRITING, SharedCheck

if TYPE_CHECKING:
    from ...numerics.array import Array
    from ..machine.kernel import DecodedKernel
    from ..machine.memory import Buffer
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


@dataclass
class _Object:
    """An mbarrier object: by which instruction, thread and when it was initialised; whether the asynchronous proxy sees
    that; and behind which instruction other CTAs do, -1 where none do."""

    pc: int
    thread: int
    time: int
    fenced: bool = False
    released: int = -1


class InitialisedObjects(SharedCheck):
    """Follows who initialised each mbarrier object, by its first byte, and fences behind that."""

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        self.buffer = state.memory.shared.buffer
        self.objects: dict[int, _Object] = {}
        traits = [d.traits for d in kernel.code]
        self.creates = [t.name == "mbarrier.init" for t in traits]
        self.asynchronous = [t.asynchronous for t in traits]
        self.any = any(self.creates)
        self.issued: dict[int, int] = {}
        self.landing = False

    def watch(self, pc: int) -> Look | None:
        traits = self.kernel.code[pc].traits
        if not self.any:
            return None
        if traits.completes_transactions and traits.asynchronous:
            return lambda sel: self.issued.update(dict.fromkeys(sel.threads.tolist(), pc))
        fences = traits.fences_objects or traits.fences_asynchronous("shared")
        releases = traits.fences_objects or traits.releases_to_cluster
        return (lambda sel: self._fence(pc, sel, fences, releases)) if fences or releases else None

    def _fence(self, pc: int, sel: Selection, fences: bool, releases: bool) -> None:
        """Behind what the threads initialised, and what is ordered before them."""
        waiting = [o for o in self.objects.values() if (fences and not o.fenced) or (o.released < 0 and releases)]
        if not waiting:
            return
        clocks, threads = self.shared.clocks, sel.threads
        own = set(threads.tolist())
        warps = np.unique(threads % clocks.warps)
        for one in waiting:
            other = one.thread % clocks.warps
            near = warps[warps // clocks.each == other // clocks.each]
            if one.thread in own or bool((clocks.seen[near, other % clocks.each] >= one.time).any()):
                one.fenced |= fences
                one.released = pc if releases and one.released < 0 else one.released

    def access(self, access: MemoryAccess) -> None:
        if not self.any or access.buffer is not self.buffer or access.kind not in ("store", "atomic"):
            return
        if self.creates[access.pc]:
            now = self.shared.clocks.now
            for start, thread in zip(access.start.tolist(), access.threads.tolist(), strict=True):
                self.objects[start] = _Object(access.pc, thread, now)
        elif access.kind == "atomic":
            self._uses(access)

    def _uses(self, access: MemoryAccess) -> None:
        """Copies, and other CTAs, that name objects."""
        start, threads = access.start, access.threads
        if not self.asynchronous[access.pc]:
            if self.state.geometry.cluster_size == 1:
                return
            away = np.flatnonzero(start // self.shared.stride != self._cta(threads))
            start, threads = start[away], threads[away]
        for place, thread in zip(start.tolist(), threads.tolist(), strict=True):
            if (one := self.objects.get(place)) is not None:
                self._use(access.pc, place, thread, one)

    def _cta(self, threads: Array) -> Array:
        return threads % self.state.warps // self.state.geometry.warps_per_cta

    def land(self, buffer: Buffer, start: Array, width: int, threads: Array | None) -> None:
        self.landing = self.any

    def arrive(self, start: Array, threads: Array) -> None:
        """A copy to several CTAs arrives at objects that its instruction does not name."""
        landing, self.landing = self.landing, False
        thread, place = int(threads[0]), int(start[0])
        if landing and thread in self.issued and (one := self.objects.get(place)) is not None:
            self._use(self.issued[thread], place, thread, one)

    def _use(self, pc: int, start: int, thread: int, one: _Object) -> None:
        """A thread uses an object."""
        geometry = self.state.geometry
        away = start // self.shared.stride != int(self._cta(np.array(thread)))
        for lacks, what, fence in (
            (
                self.asynchronous[pc] and not one.fenced,
                "through the asynchronous proxy",
                "fence.proxy.async or fence.mbarrier_init",
            ),
            (away and one.released in (-1, pc), "from another CTA", "fence.mbarrier_init or release for the cluster"),
        ):
            if lacks:
                cta, warp, lane = geometry.place(one.thread)
                line = self.kernel.code[one.pc].source.line
                text = (
                    f"uses {what} the mbarrier object that CTA {cta}, warp {warp}, lane {lane} initialises at line "
                    f"{line}, and no {fence} is between them"
                )
                note = not away  # Compilers leave this fence out, and GPUs do not mind.
                self.report(pc, text, thread, start % self.shared.stride, about=("object", line, what), note=note)
