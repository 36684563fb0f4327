"""Barriers, transactions, clusters and `setmaxnreg`: threads that do not agree. PTX ISA 9.7.13."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ....dialect.isa.wgmma import WARPS
from ....dialect.ptx.text.syntax import Immediate
from ...numerics.floats import Array
from ..machine.events import LANES, Look, MemoryAccess, Selection
from ..machine.flow import CLUSTER_BARRIER, Barrier
from ..machine.kernel import DecodedKernel
from ..machine.mbarriers import Phases, live, phase
from .findings import Check
from .shared import SharedCheck


class Transactions(Check):
    """Looks, when CTAs are done or objects end, at the objects at which copies arrived: where nobody expects bytes, a
    phase completes before its data is there. And at arrivals of a warp by one instruction: where they are of two
    phases, one completes before all lanes have arrived."""

    name = "barriers"

    def begun(self) -> None:
        self.arrived: dict[int, tuple[int, int]] = {}
        self.pc, self.phases = -1, dict[tuple[int, int], int]()
        """The last instruction on objects, and in which phase each warp arrives by it, at each object."""
        self.ends = {pc for pc, one in enumerate(self.kernel.code) if one.traits.means == "mbarrier.inval"}

    def access(self, access: MemoryAccess) -> None:
        if self.kernel.code[access.pc].traits.on_mbarrier:
            self.pc = access.pc
            self.phases.clear()
        if access.pc in self.ends:
            for start in access.start.tolist():
                self._look(start)

    def arrive(self, start: Array, threads: Array, copy: int | None = None) -> None:
        """Records the last copy that arrived at an object: its instruction and thread."""
        if copy is not None:
            self.arrived[int(start[0])] = (copy, int(threads[0]))

    def count(self, start: Array, threads: Array, arrivals: Array, transactions: Array, *, deferred: bool) -> None:
        if deferred or start.size > 1 or int(arrivals[0]) < 1:  # Those that complete no phase come together.
            return
        at, thread = int(start[0]), int(threads[0])
        word = self.state.mbarriers.words[at // 8 : at // 8 + 1]
        now = int(phase(word)[0])
        if self.phases.setdefault((at, thread % self.state.warps), now) != now:
            address = at % (self.state.memory.shared.buffer.size // self.state.geometry.ctas)
            text = f"lanes of one warp arrive in two phases, each of {int(Phases.of(word).expected[0])} arrivals"
            self.report(self.pc, text, thread, address, about="phases")

    def end(self) -> None:
        flying: Counter[int] = Counter()
        for copy in self.state.mbarriers.bulk:
            start = int(copy.index[0]) * 8
            flying[start] += copy.transferred
            self.arrived[start] = (copy.pc, copy.thread)
        for start in tuple(self.arrived):
            self._look(start, flying[start])

    def _look(self, start: int, flying: int = 0) -> None:
        """Reports bytes that nobody expected at an object which ends here. `flying` are bytes of pending copies."""
        word = self.state.mbarriers.words[start // 8 : start // 8 + 1]
        more = flying - int(Phases.of(word).transactions[0])
        if (last := self.arrived.pop(start, None)) and live(word)[0] and more > 0:
            address = start % (self.state.memory.shared.buffer.size // self.state.geometry.ctas)
            text = f"{more} bytes more than were expected have arrived at the mbarrier object at {address:#x}"
            self.report(last[0], text, last[1], address, about="bytes")


# CTAs that leave their cluster while others still access their shared memory. PTX ISA 9.7.13.3, 5.1.5.
#
# An access to the shared memory of another CTA must be ordered before one of that CTA's threads ends, which is what a
# last `barrier.cluster` is for.


class Departures(SharedCheck):
    """Follows the last access of each CTA to the memory of each other one; reports accesses to exited CTAs."""

    def begun(self) -> None:
        geometry = self.state.geometry
        self.size = geometry.cluster_size
        self.per_cta = geometry.warps_per_cta
        self.gone = np.zeros(geometry.ctas, np.bool_)
        self.time = np.zeros((geometry.ctas, self.size * self.per_cta), np.int32)
        self.by = np.zeros((*self.time.shape, 2), np.int64)
        if self.size > 1:
            self.state.flow.on_exit.append(self._exits)

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
            seen: Array = np.maximum.reduce(clocks.seen[warps])
            for column in np.flatnonzero(self.time[cta] > seen).tolist():
                self._tell(int(self.by[cta, column, 0]), int(self.by[cta, column, 1]), cta)

    def _tell(self, pc: int, thread: int, cta: int) -> None:
        where = self.state.geometry.cta_index(self.state.geometry.first + cta)
        text = f"accesses the shared memory of CTA {where}, which may be gone: nothing orders its end behind this"
        self.report(pc, text, thread, about="left")


# `setmaxnreg`: a warpgroup that asks for more registers than its CTA will ever have waits for ever; and its warps have
# alike many. PTX ISA 9.7.19.5.
#
# How many a thread has at entry is known where `.maxnreg` says so, or the number of threads together with
# `.minnctapersm`; elsewhere the assembler drops the instruction, and nothing is told.

REGISTERS = 65536
"""Registers of 32 bits that a multiprocessor has."""

_MORE = "setmaxnreg.inc"


def at_entry(kernel: DecodedKernel, threads: int) -> int | None:
    """Registers of a thread at entry, by the directives of the kernel: as many as fit, in eights, and not more than it
    asks for later. None where the directives do not say."""
    limit, ctas, *sizes = map(kernel.function.numbers, (".maxnreg", ".minnctapersm", ".reqntid", ".maxntid"))
    if limit:
        return limit[0]
    if not ctas or not any(sizes):
        return None
    asked = [_immediate_count(d.source.operands[0]) for d in kernel.code if d.traits.name == _MORE]
    return min(REGISTERS // (threads * max(ctas[0], 1)) // 8 * 8, max(asked, default=REGISTERS))


class RegisterPool(Check):
    """Follows how many registers each warp has; whether all fit is looked at when the CTAs are done."""

    name = "barriers"

    def begun(self) -> None:
        self.entry = at_entry(self.kernel, self.state.geometry.threads_per_cta)
        self.has = np.full(self.state.warps, self.entry or 0)
        self.asked: dict[int, tuple[int, int]] = {}
        self.last = np.full(self.state.warps, -1)

    def watch(self, pc: int) -> Look | None:
        decoded = self.kernel.code[pc]
        if self.entry is None or decoded.row.means != "setmaxnreg":
            return None
        grows, count = decoded.traits.name == _MORE, _immediate_count(decoded.source.operands[0])

        def look(sel: Selection) -> None:
            warps = sel.warps
            wrong = warps[self.has[warps] > count if grows else self.has[warps] < count]
            if wrong.size:
                has = int(self.has[wrong[0]])
                text = f"the warp has {has} registers a thread, {'more' if grows else 'fewer'} than {count}"
                self.report(pc, text, int(wrong[0]), about="count", count=int(wrong.size))
            self.has[warps], self.last[warps] = count, pc
            if grows:
                self.asked.update({w // self.state.geometry.warps_per_cta: (pc, w) for w in warps.tolist()})

        return look

    def end(self) -> None:
        """Once all have let go what they do, the CTA must not have more than it began with."""
        each = self.state.geometry.warps_per_cta
        for cta, (pc, warp) in self.asked.items():
            total, pool = int(self.has[cta * each : (cta + 1) * each].sum()), (self.entry or 0) * each
            if total > pool:
                text = f"waits for ever: the warps ask for {total * LANES} registers, the CTA has {pool * LANES}"
                self.report(pc, text, warp, about="pool")
        self._alike(each)

    def _alike(self, each: int) -> None:
        """The warps of a warpgroup must have executed the same instructions."""
        for first in range(0, self.last.size, WARPS):
            has = self.has[first : first + WARPS]
            apart = np.flatnonzero(has != has[0])
            if apart.size and first % each + WARPS <= self.state.geometry.warps_with_threads:
                at = first + int(np.argmax(self.last[first : first + WARPS]))
                warp = (first + int(apart[0])) % each
                text = f"the warps of a warpgroup have {has[0]} and, from warp {warp} on, {has[apart[0]]} registers"
                self.report(int(self.last[at]), text, at, about="alike")


def _immediate_count(operand: object) -> int:
    return int(operand.value) if isinstance(operand, Immediate) else 0


# Barriers of a CTA whose threads do not agree on them. PTX ISA 9.7.13.1: a barrier takes the number of threads that is
# given, or all threads of the CTA, and each of them once.
#
# What leaves threads waiting for ever, or divides a warp at an `.aligned` barrier, is a fault without this check.


class Barriers(Check):
    """Checks which threads arrive at which barrier of a CTA."""

    name = "barriers"

    def begun(self) -> None:
        self.cta = self.state.geometry.cta()
        self.there = self.state.live.copy()
        self.last = (0, 0)
        """The instruction at which threads came to a barrier last, and how many it expects."""

    def meet(self, pc: int, threads: Selection, members: Array, lanes: Array) -> None:
        """Checks that each lane is in its own member mask, and that members have not exited."""
        geometry = self.state.geometry
        outside = threads.pick((members >> geometry.lane().astype(np.uint32) & 1) == 0)
        if outside.any():
            thread = int(threads.threads[outside][0])
            text = (
                f"executed by lane {thread // self.state.warps}, which its member mask {int(members[thread]):#x} lacks"
            )
            self.report(pc, text, thread, about="outside", count=int(outside.sum()))
        gone = threads.pick(members & ~lanes)
        if gone.any():
            thread = int(threads.threads[gone != 0][0])
            lane = int(members[thread] & ~lanes[thread])
            text = (
                f"the member mask {int(members[thread]):#x} names lane {(lane & -lane).bit_length() - 1}, which has "
                "exited or never was, and is not waited for"
            )
            self.report(pc, text, thread, about="gone", count=int(np.count_nonzero(gone)), note=True)

    def come(self, pc: int, number: int, expected: int, threads: Array) -> None:
        if number == CLUSTER_BARRIER:
            return
        self.last = pc, expected
        here = np.logical_or.reduce([b.mask for b in self._waiting(number)] or [np.zeros_like(threads)])
        self._again(pc, number, here & threads)
        self._expectations(pc, number, expected, threads)
        count = self._per_cta(here | threads)
        over = threads & (count > expected)[self.cta]
        if expected and over.any():
            thread = int(np.flatnonzero(over)[0])
            text = f"{int(count[self.cta[thread]])} threads come to barrier {number}, which expects {expected}"
            self.report(pc, text, thread, about=("many", number))

    def _waiting(self, number: int) -> list[Barrier]:
        """The incomplete barriers of a number that have arrivals, latest arrival first."""
        return [barrier for barrier in reversed(self.state.flow.barriers) if barrier.number == number]

    def _came(self, number: int, thread: int) -> tuple[int, int]:
        """At which instruction a thread came to a barrier, and how many threads are expected there."""
        return next(((b.pc, b.expected) for b in self._waiting(number) if b.mask[thread]), self.last)

    def _again(self, pc: int, number: int, again: Array) -> None:
        if again.any():
            thread = int(np.flatnonzero(again)[0])
            line = self.line(self._came(number, thread)[0])
            text = f"comes to barrier {number} again before it is complete; it came there at line {line}"
            self.report(pc, text, thread, about=("again", number), count=int(again.sum()))

    def _expectations(self, pc: int, number: int, expected: int, threads: Array) -> None:
        """Checks that all waiting threads expect the same number of threads, and that so many exist."""
        every = self.state.geometry.warps_with_threads * LANES
        if expected > every:
            text = f"barrier {number} expects {expected} threads, the CTA has {int(self._per_cta(self.there)[0])}"
            self.report(pc, text, int(np.flatnonzero(threads)[0]), about=("more", number))
        others = [b.mask for b in self._waiting(number) if (b.expected or every) != (expected or every)]
        different = np.logical_or.reduce(others or [np.zeros_like(threads)])
        clash = threads & (self._per_cta(different) > 0)[self.cta]
        if clash.any():
            thread = int(np.flatnonzero(clash)[0])
            at, wanted = self._came(number, int(np.flatnonzero(different & (self.cta == self.cta[thread]))[0]))
            theirs = f"{_count(wanted)} at line {self.line(at)}"
            text = f"barrier {number} expects {_count(expected)} here and {theirs}"
            self.report(pc, text, thread, about=("different", number))

    def join(self, number: int, arrived: Array, waiting: Array) -> None:
        """Reports a barrier for all threads of the CTA that some threads can no longer reach."""
        if number == CLUSTER_BARRIER:
            return
        missing = self._per_cta(self.there) - self._per_cta(arrived)
        short = arrived & (missing > 0)[self.cta]
        _, expected = self._came(number, int(np.flatnonzero(arrived)[0]))
        if expected == 0 and short.any():
            thread = int(np.flatnonzero(short)[0])
            gone = self.there & ~arrived & (self.cta == self.cta[thread])
            text = (
                f"barrier {number} is for all threads of the CTA, of which {int(gone.sum())} have exited, "
                f"the first of them {self.name_of(int(np.flatnonzero(gone)[0]), thread)}; they are not waited for"
            )
            self.report(self._came(number, thread)[0], text, thread, about=("exited", number), note=True)

    def _per_cta(self, mask: Array) -> Array:
        return np.bincount(self.cta[mask], minlength=self.state.geometry.ctas)


def _count(expected: int) -> str:
    return f"{expected} threads" if expected else "all threads"
