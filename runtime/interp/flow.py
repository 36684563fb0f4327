"""Where the threads in flight are: which run next, which wait and for what.

Threads at one program counter run together. The group at the lowest program counter goes first, so that threads
which went different ways meet again where their ways join; a group that keeps others waiting long gives way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import FaultError
from .observer import Observer
from .state import LANES, LEFT, Geometry, Selection

Array: TypeAlias = NDArray[Any]


Complete: TypeAlias = Callable[[Array], None]


@dataclass
class Barrier:
    """Threads that arrived at a barrier of their CTA.

    `expected` is the number of threads asked for, 0 for all that have not exited. `resume` is where they go on.
    `complete` is told who had arrived, when they all have.
    """

    number: int
    pc: int
    resume: int
    mask: Array
    expected: int
    complete: Complete | None = None


class Flow:
    """The groups of threads that can run, by program counter, and the groups that wait."""

    def __init__(self, geometry: Geometry, live: Array, entry: int) -> None:
        self.geometry = geometry
        self.live = live
        self.ready: dict[int, Array] = {entry: live.copy()}
        self.barriers: list[Barrier] = []
        self.parked: dict[int, Array] = {}
        self.observer: Observer | None = None
        self.on_exit: list[Callable[[], None]] = []
        self._gave_way = False
        self._cta = geometry.cta()

    def go(self, pc: int, mask: Array) -> None:
        """Threads that can run from `pc`."""
        other = self.ready.get(pc)
        if other is None:
            self.ready[pc] = mask
        else:
            other |= mask

    def give_way(self, pc: int, mask: Array) -> None:
        """Threads that go on from `pc` when others have run."""
        self._gave_way = True
        self.go(pc, mask)

    def gave_way(self) -> bool:
        """Whether threads gave way since this was last asked."""
        result, self._gave_way = self._gave_way, False
        return result

    def mask(self, sel: Selection) -> Array:
        """A mask of one's own."""
        return np.ones(sel.total, np.bool_) if sel.mask is None else sel.mask.copy()

    def exit(self, sel: Selection) -> int:
        """These threads are done; barriers no longer wait for them."""
        self.live &= ~self.mask(sel)
        self._release()
        self._unpark()
        for release in self.on_exit:
            release()
        return LEFT

    # Barriers

    def arrive(
        self,
        sel: Selection,
        number: int,
        pc: int,
        expected: int,
        wait: bool = True,
        complete: Complete | None = None,
    ) -> int | None:
        """Threads at a barrier. They go on at once if that completes it for every CTA in flight."""
        if expected == 0 and not self.barriers and sel.count == int(np.count_nonzero(self.live)):
            if self.observer is not None:
                everyone = self.mask(sel)
                self.observer.come(number, expected, everyone)
                self.observer.join(number, everyone, everyone)
            if complete is not None:
                complete(self.mask(sel))
            return None
        mask = self.mask(sel)
        if self.observer is not None:
            self.observer.come(number, expected, mask)
        self.barriers.append(Barrier(number, pc, pc + 1 if wait else LEFT, mask, expected, complete))
        if not wait:
            self.go(pc + 1, mask.copy())
        self._release()
        return LEFT

    def _release(self) -> None:
        for number in {b.number for b in self.barriers}:
            self._release_one(number)
        self.barriers = [b for b in self.barriers if b.mask.any()]

    def _release_one(self, number: int) -> None:
        here = [b for b in self.barriers if b.number == number]
        everyone = np.logical_or.reduce([b.mask for b in here])
        arrived = self._per_cta(everyone)
        alive = self._per_cta(self.live)
        expected = max(b.expected for b in here)
        enough = (arrived >= expected) if expected else (arrived == alive)
        open_ = (enough & (arrived > 0))[self._cta]
        if not open_.any():
            return
        if self.observer is not None:
            waiting = np.logical_or.reduce([b.mask & open_ for b in here if b.resume != LEFT] or [~open_ & False])
            self.observer.join(number, everyone & open_, waiting)
        for complete in {b.complete for b in here if b.complete is not None}:
            complete(everyone & open_)
        for barrier in here:
            released = barrier.mask & open_
            barrier.mask &= ~open_
            if barrier.resume != LEFT and released.any():
                self.go(barrier.resume, released)

    def _per_cta(self, mask: Array) -> Array:
        return np.bincount(self._cta[mask], minlength=self.geometry.ctas)

    # Warps that wait for their lanes

    def meet(self, sel: Selection, members: Array, pc: int) -> Selection | None:
        """The threads whose member lanes (a mask of 32 bits per thread) have all come to `pc`; the others wait there.

        None if all wait, or if some do: those that need not are sent to `pc` again, alone.
        """
        if sel.mask is None:
            return self._met(sel, pc)
        here = self._lane_bits(sel.mask)
        missing = (members & self._lane_bits(self.live) & ~here) != 0
        late = sel.mask & missing
        if not late.any():
            return self._met(sel, pc)
        warps = np.tile(late.reshape(LANES, -1).any(axis=0), LANES)
        waiting = sel.mask & warps
        if pc in self.parked:
            self.parked[pc] |= waiting
        else:
            self.parked[pc] = waiting
        rest = sel.mask & ~warps
        if rest.any():
            self.go(pc, rest)
        return None

    def _met(self, sel: Selection, pc: int) -> Selection:
        if self.observer is not None:
            self.observer.meet(pc, sel)
        return sel

    def _lane_bits(self, mask: Array) -> Array:
        bits = np.left_shift(np.uint32(1), np.arange(LANES, dtype=np.uint32))
        rows = mask.reshape(LANES, -1)
        return np.tile((rows * bits[:, None]).sum(axis=0, dtype=np.uint32), LANES)

    def _unpark(self) -> None:
        for pc, mask in self.parked.items():
            self.go(pc, mask & self.live)
        self.parked.clear()

    # Scheduling

    def next(self, oldest: bool) -> tuple[int, Array] | None:
        """The group to run: that at the lowest program counter or, to be fair, the one that waits longest."""
        if not self.ready:
            return None
        pc = next(iter(self.ready)) if oldest else min(self.ready)
        mask = self.ready.pop(pc)
        parked = self.parked.pop(pc, None)
        return pc, mask if parked is None else mask | parked

    def limit(self, pc: int) -> int:
        """The lowest program counter beyond `pc` at which others stand ready."""
        return min((other for other in self.ready if other > pc), default=1 << 60)

    def check_aligned(self, sel: Selection, what: str) -> None:
        """Like `check_whole_warps`; lanes that have exited need not come."""
        if sel.mask is not None:
            rows = sel.mask.reshape(LANES, -1)
            warps = np.broadcast_to(rows.any(axis=0), rows.shape).reshape(-1)
            self.check_whole_warps(Selection(sel.mask | ~self.live & warps, sel.total), what)

    def check_whole_warps(self, sel: Selection, what: str) -> Array | None:
        """The warps that execute an `.aligned` instruction; None means all.

        Raises:
            FaultError: if some lanes of a warp do and others do not.
        """
        if sel.mask is None:
            return None
        rows = sel.mask.reshape(LANES, -1)
        some, every = rows.any(axis=0), rows.all(axis=0)
        if not np.array_equal(some, every):
            warp = int(np.flatnonzero(some & ~every)[0])
            lane = int(np.flatnonzero(~rows[:, warp])[0])
            raise FaultError(
                f"{what} must be executed by all lanes of a warp together; lane {lane} takes no part",
                lane * self.geometry.warps + warp,
            )
        return np.flatnonzero(some)
