"""Barriers of a CTA whose threads do not agree on them. PTX ISA 9.7.13.1: a barrier takes the number of threads that
is given, or all threads of the CTA, and each of them once.

What leaves threads waiting for ever, or divides a warp at an `.aligned` barrier, is a fault without this check.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..machine.clusters import BARRIER as CLUSTER_BARRIER
from ..machine.threads import LANES
from .findings import Check

if TYPE_CHECKING:
    from ...numerics.array import Array
    from ..machine.kernel import DecodedKernel
    from ..machine.state import State
    from ..machine.threads import Selection
    from ..observers.events import Look


@dataclass
class _Pending:
    """Of one barrier: who came, where they came to it, and how many threads they expect (0: all)."""

    here: Array
    pc: Array
    expected: Array


class Barriers(Check):
    """Follows who comes to which barrier."""

    name = "barriers"

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        self.pc = 0
        self.cta = state.geometry.cta()
        self.there = state.live.copy()
        self.pending: dict[int, _Pending] = {}

    def watch(self, pc: int) -> Look | None:
        if not self.kernel.code[pc].traits.is_barrier:
            return None

        def look(sel: Selection) -> None:
            self.pc = pc

        return look

    def meet(self, pc: int, threads: Selection, members: Array, lanes: Array) -> None:
        """Lanes that are not their own members, and members that have exited."""
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

    def come(self, number: int, expected: int, threads: Array) -> None:
        if number == CLUSTER_BARRIER:
            return
        known = self.pending.get(number)
        if known is None:
            empty = np.zeros(threads.size, np.int32)
            known = self.pending[number] = _Pending(np.zeros_like(threads), empty, empty.copy())
        self._again(number, known, threads)
        self._expectations(number, expected, known, threads)
        known.here |= threads
        known.pc[threads] = self.pc
        known.expected[threads] = expected
        if expected:
            self._too_many(number, expected, known, threads)

    def _again(self, number: int, known: _Pending, threads: Array) -> None:
        again = threads & known.here
        if again.any():
            thread = int(np.flatnonzero(again)[0])
            line = self._line(int(known.pc[thread]))
            text = f"comes to barrier {number} again before it is complete; it came there at line {line}"
            self.report(self.pc, text, thread, about=("again", number), count=int(again.sum()))

    def _expectations(self, number: int, expected: int, known: _Pending, threads: Array) -> None:
        """Whether those that wait there want as many, and whether there can be so many."""
        most = self.state.geometry.warps_with_threads * LANES
        first = int(np.flatnonzero(threads)[0])
        if expected > most:
            text = f"barrier {number} expects {expected} threads, the CTA has {int(self._per_cta(self.there)[0])}"
            self.report(self.pc, text, first, about=("more", number))
        different = known.here & (known.expected != expected)
        clash = threads & (self._per_cta(different) > 0)[self.cta]
        if clash.any():
            thread = int(np.flatnonzero(clash)[0])
            other = int(np.flatnonzero(different & (self.cta == self.cta[thread]))[0])
            theirs = f"{_count(int(known.expected[other]))} at line {self._line(int(known.pc[other]))}"
            text = f"barrier {number} expects {_count(expected)} here and {theirs}"
            self.report(self.pc, text, thread, about=("different", number))

    def _too_many(self, number: int, expected: int, known: _Pending, threads: Array) -> None:
        count = self._per_cta(known.here)
        over = threads & (count > expected)[self.cta]
        if over.any():
            thread = int(np.flatnonzero(over)[0])
            came = int(count[self.cta[thread]])
            text = f"{came} threads come to barrier {number}, which expects {expected}"
            self.report(self.pc, text, thread, about=("many", number))

    def join(self, number: int, arrived: Array, waiting: Array) -> None:
        known = self.pending.get(number)
        if known is None:
            return
        known.here &= ~arrived
        thread = int(np.flatnonzero(arrived)[0])
        if known.expected[thread] == 0:
            self._exited(number, arrived, known)

    def _exited(self, number: int, arrived: Array, known: _Pending) -> None:
        """A barrier for all threads of the CTA that some can never come to."""
        missing = self._per_cta(self.there) - self._per_cta(arrived)
        short = arrived & (missing > 0)[self.cta]
        if short.any():
            thread = int(np.flatnonzero(short)[0])
            gone = self.there & ~arrived & (self.cta == self.cta[thread])
            _, warp, lane = self.state.geometry.place(int(np.flatnonzero(gone)[0]))
            text = (
                f"barrier {number} is for all threads of the CTA, of which {int(gone.sum())} have exited, "
                f"the first of them warp {warp}, lane {lane}; they are not waited for"
            )
            self.report(int(known.pc[thread]), text, thread, about=("exited", number), note=True)

    def _line(self, pc: int) -> int:
        return self.kernel.code[pc].source.line

    def _per_cta(self, mask: Array) -> Array:
        return np.bincount(self.cta[mask], minlength=self.state.geometry.ctas)


def _count(expected: int) -> str:
    return f"{expected} threads" if expected else "all threads"
