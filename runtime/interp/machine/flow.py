"""Threads in flight: which run next, which wait and for what; clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from ....dialect.isa.row import Row
from ....dialect.isa.wgmma import WARPS
from ...numerics.floats import Array
from .events import LANES, LEFT, Events, Geometry, Selection
from .memory import FaultError, WarpOrder

# Clocks: they advance with the steps of the launch, so that what waits for them ends, and measure nothing real.
#
# Source: PTX ISA 10.21 to 10.27 (%clock, %clock64, %globaltimer).

EPOCH = 1_700_000_000_000_000_000
"""What %globaltimer shows at first, in nanoseconds."""

READ = 16
"""Ticks that pass between two readings at least."""

CLOCKS: dict[str, Callable[[int], int]] = {
    "%clock": lambda ticks: ticks & 0xFFFFFFFF,
    "%clock64": lambda ticks: ticks,
    "%clock_hi": lambda ticks: ticks >> 32,
    "%globaltimer": lambda ticks: EPOCH + ticks,
    "%globaltimer_lo": lambda ticks: (EPOCH + ticks) & 0xFFFFFFFF,
    "%globaltimer_hi": lambda ticks: (EPOCH + ticks) >> 32,
}


class Clock:
    """The ticks of the CTAs in flight, and what instructions read of them."""

    def __init__(self, threads: int) -> None:
        self.ticks = 0
        self._threads = threads
        self._shown: dict[tuple[str, type[np.generic]], Array] = {}

    def values(self, name: str, dtype: type[np.generic]) -> Array:
        """The values of a clock, one for each thread. `tick` updates the array."""
        key = name, dtype
        if key not in self._shown:
            self._shown[key] = np.zeros(self._threads, dtype)
        return self._shown[key]

    def tick(self) -> None:
        """A clock is about to be read."""
        self.ticks += READ
        for (name, dtype), shown in self._shown.items():
            bits = 8 * np.dtype(dtype).itemsize
            shown[...] = np.uint64(CLOCKS[name](self.ticks) & (1 << bits) - 1).astype(dtype)


# Where the threads in flight are: which run next, which wait and for what.
#
# Threads at one program counter run together. The group at the lowest program counter goes first, so that threads
# which went different ways meet again where their ways join; a group that keeps others waiting long gives way.

Complete: TypeAlias = Callable[[Array], None]

OF_WARPGROUPS = "wgmma"
"""The first word of the opcodes that the warps of a warpgroup execute together."""

_BIT = np.left_shift(np.uint32(1), np.arange(LANES, dtype=np.uint32))[:, None]


def apart(what: str, lane: int) -> str:
    """What is wrong with an `.aligned` instruction to which a lane does not come."""
    return f"{what} must be executed by all lanes of a warp together; lane {lane} takes no part"


def together(row: Row) -> int:
    """How many warps execute an `.aligned` instruction together."""
    return WARPS if row.root == OF_WARPGROUPS else 1


def parted(what: str, warp: int) -> str:
    """What is wrong with an instruction of a warpgroup to which a warp does not come."""
    return f"{what} must be executed by all {WARPS} warps of a warpgroup; warp {warp} takes no part"


def lane_bits(mask: Array) -> Array:
    """For each thread the lanes of its warp that a mask has, as 32 bits."""
    return np.tile((mask.reshape(LANES, -1) * _BIT).sum(axis=0, dtype=np.uint32), LANES)


def rounds(mask: Array, values: Array) -> Iterator[Array]:
    """The threads of a mask in rounds: in each, those threads of every warp that have one value in common."""
    rows, left = values.reshape(LANES, -1), mask.reshape(LANES, -1).copy()
    warps = np.arange(rows.shape[1])
    while left.any():
        group = left & (rows == rows[left.argmax(axis=0), warps])
        yield group.reshape(-1)
        left &= ~group


CLUSTER_BARRIER = 16
"""The number of the cluster's barrier; those of a CTA are 0 to 15."""


@dataclass
class Barrier:
    """Threads that arrived at a barrier of their CTA or cluster. `expected` is the number of threads asked for, 0 for
    all that have not exited. `resume` is where they go on. `complete` is told who had arrived, when they all have."""

    number: int
    pc: int
    resume: int
    mask: Array
    expected: int
    complete: Complete | None = None


class Flow:
    """The groups of threads that can run, by program counter, and those that wait."""

    def __init__(self, geometry: Geometry, live: Array, entry: int) -> None:
        self.geometry = geometry
        self.live = live
        self.ready: dict[int, Array] = {entry: live.copy()}
        self.barriers: list[Barrier] = []
        self.parked: dict[int, Array] = {}
        self.awaited: dict[int, Array | None] = {}
        self.anywhere: set[int] = set()
        """The instructions `bar.warp.sync`, at which lanes meet wherever they come to one."""
        self.observer: Events | None = None
        self.on_exit: list[Callable[[], None]] = []
        self.loops: dict[int, int] = {}
        """Where loops that poll memory begin, and their jumps back."""
        self._gave_way = False
        self.passed = np.zeros(live.size, np.bool_)
        """Threads that arrived at a cluster's barrier, which is complete, and have not waited since."""
        self._cta = geometry.cta()
        self._cluster = self._cta // geometry.cluster_size

    def go(self, pc: int, mask: Array) -> None:
        """Adds threads to those that can run at `pc`."""
        other = self.ready.get(pc)
        if other is None:
            self.ready[pc] = mask
        else:
            other |= mask

    def part(self, ways: Sequence[tuple[Selection, int]]) -> int:
        """Threads that go on at different places. Returns where all do, or `LEFT`."""
        if len(ways) == 1:
            return ways[0][1]
        for sel, pc in ways:
            self.go(pc, self.mask(sel))
        return LEFT

    def give_way(self, pc: int, mask: Array) -> None:
        """Suspends threads at `pc` until the other threads have run."""
        self._gave_way = True
        self.go(pc, mask)

    def gave_way(self) -> bool:
        """Whether threads gave way since the last call."""
        result, self._gave_way = self._gave_way, False
        return result

    def mask(self, sel: Selection) -> Array:
        """A copy of the mask of the selected threads."""
        return np.ones(sel.total, np.bool_) if sel.mask is None else sel.mask.copy()

    def exit(self, sel: Selection) -> int:
        """These threads are done; barriers no longer wait for them."""
        self.live &= ~self.mask(sel)
        self._release()
        for pc, mask in self.parked.items():
            self.go(pc, mask & self.live)
        self.parked.clear()
        for release in self.on_exit:
            release()
        return LEFT

    # Barriers

    def arrive(
        self, sel: Selection, number: int, pc: int, expected: int, wait: bool = True, complete: Complete | None = None
    ) -> int | None:
        """Threads at a barrier. They go on at once if that completes it for every CTA in flight."""
        if expected == 0 and not self.barriers and sel.count == int(np.count_nonzero(self.live)):
            if self.observer is not None:
                everyone = self.mask(sel)
                self.observer.come(pc, number, expected, everyone)
                self.observer.join(number, everyone, everyone)
            if complete is not None:
                complete(self.mask(sel))
            return None
        mask = self.mask(sel)
        if self.observer is not None:
            self.observer.come(pc, number, expected, mask)
        self.barriers.append(Barrier(number, pc, pc + 1 if wait else LEFT, mask, expected, complete))
        if not wait:
            self.go(pc + 1, mask.copy())
        self._release()
        return LEFT

    def arrive_in_cluster(self, sel: Selection, pc: int) -> None:
        """Raises FaultError if a thread has arrived already and not waited since."""
        mask = self.mask(sel)
        sel.refuse(sel.pick(self._in_cluster()), "a thread arrives again at the cluster's barrier before it waits")
        if self.observer is not None:
            self.observer.come(pc, CLUSTER_BARRIER, 0, mask)
        self.barriers.append(Barrier(CLUSTER_BARRIER, pc, LEFT, mask, 0))
        self._release()

    def wait_for_cluster(self, sel: Selection, pc: int) -> int | None:
        """Raises FaultError if a thread has not arrived."""
        mask = self.mask(sel)
        sel.refuse(sel.pick(~self._in_cluster()), "a thread waits at the cluster's barrier and has not arrived")
        done = mask & self.passed
        if self.observer is not None and done.any():
            self.observer.join(CLUSTER_BARRIER, np.zeros_like(done), done)
        self.passed &= ~mask
        if np.array_equal(done, mask):
            return None
        self.barriers.append(Barrier(CLUSTER_BARRIER, pc, pc + 1, mask & ~done, 0))
        if done.any():
            self.go(pc + 1, done)
        return LEFT

    def _in_cluster(self) -> Array:
        """The threads that have arrived at their cluster's barrier and not waited since."""
        return np.logical_or.reduce([self.passed, *(b.mask for b in self.barriers if b.number == CLUSTER_BARRIER)])

    def _release(self) -> None:
        for number in {b.number for b in self.barriers}:
            self._release_one(number)
        self.barriers = [b for b in self.barriers if b.mask.any()]

    def _release_one(self, number: int) -> None:
        here = [b for b in self.barriers if b.number == number]
        everyone = np.logical_or.reduce([b.mask for b in here])
        of = self._cluster if number == CLUSTER_BARRIER else self._cta
        number_in = partial(np.bincount, minlength=self.geometry.ctas)
        there = [number_in(of[b.mask]) > 0 for b in here]
        expected: Array = np.max([b.expected * own for b, own in zip(here, there, strict=True)], axis=0)
        enough = np.where(expected, self._counted(everyone) >= expected, number_in(of[self.live & ~everyone]) == 0)
        open_: Array = (enough & np.logical_or.reduce(there))[of]
        if not open_.any():
            return
        waiting = np.logical_or.reduce([b.mask & open_ for b in here if b.resume != LEFT] or [~open_ & False])
        if self.observer is not None:
            self.observer.join(number, everyone & open_, waiting)
        if number == CLUSTER_BARRIER:
            self.passed |= everyone & open_ & ~waiting
        for complete in {b.complete for b in here if b.complete is not None}:  # CTAs may be at different ones.
            ctas = np.logical_or.reduce([own for b, own in zip(here, there, strict=True) if b.complete is complete])
            complete(everyone & open_ & ctas[of])
        for barrier in here:
            released = barrier.mask & open_
            barrier.mask &= ~open_
            if barrier.resume != LEFT and released.any():
                self.go(barrier.resume, released)

    def _counted(self, arrived: Array) -> Array:
        """Threads at a barrier, by CTA. A warp counts as a whole once all of its live lanes have arrived (9.7.13.1)."""
        rows, live = arrived.reshape(LANES, -1), self.live.reshape(LANES, -1)
        count = np.where((live & ~rows).any(axis=0), rows.sum(axis=0), LANES * rows.any(axis=0))
        return count.reshape(self.geometry.ctas, -1).sum(axis=1)

    # Lanes that wait for others of their warp

    def meet(self, sel: Selection, members: Array, pc: int, alike: bool = False) -> tuple[Selection, Array] | None:
        """The threads whose member lanes have all reached `pc`, with the mask of lanes that each has met there. The
        others wait. None if all wait. A member mask has 32 bits for each thread. Only lanes with equal member masks
        meet. Exited lanes are not waited for (PTX ISA 9.7.13.2). Threads that waited here before can be among those
        that meet. `alike` says that all masks are equal."""
        elsewhere = [q for q in self.parked if q != pc and q in self.anywhere] if pc in self.anywhere else []
        before = self.parked.pop(pc, None)
        here = sel if before is None or sel.mask is None else Selection(sel.mask | before, sel.total)
        everyone = self.mask(here)
        for other in elsewhere:
            theirs: Array = np.asarray(self.awaited[other])  # the lanes that `bar.warp.sync` names
            members = np.where(self.parked[other], theirs, members)
            everyone |= self.parked[other]
        rows = members.reshape(LANES, -1)
        uniform = not elsewhere and (alike or bool((rows == rows[0]).all()))
        lanes = lane_bits(everyone) if uniform else self._groups(everyone, members)
        late = everyone & ((members & lane_bits(self.live) & ~lanes) != 0)
        met = Selection(everyone & ~late, sel.total) if elsewhere or late.any() else here
        if self.observer is not None and met.count:
            for group in [met.mask] if uniform else rounds(self.mask(met), lanes):  # one of each warp
                self.observer.meet(pc, Selection(group, sel.total), members, lanes)
        for other in elsewhere:
            waiting = self.parked.pop(other)
            if not late[waiting].all():
                self.go(other + 1, waiting & ~late)
            self.park(other, waiting & late, members)
        if met is here:
            return here, lanes
        came = self.mask(here)
        self.park(pc, came & late, members)
        own = Selection(came & ~late, sel.total)
        return (own, lanes) if own.count else None

    def _groups(self, mask: Array, members: Array) -> Array:
        """For each thread the lanes of its warp that are here and name the same members, as 32 bits."""
        lanes = np.zeros(mask.size, np.uint32)
        for group in rounds(mask, members):
            lanes = np.where(group, lane_bits(group), lanes)
        return lanes

    def assemble(self, sel: Selection, pc: int, warps: int = 1) -> Selection | None:
        """The threads of warps, or groups of so many, whose lanes have all come to `pc` or exited; None if all wait."""
        if sel.mask is None:
            return sel
        before = self.parked.pop(pc, None)
        here = sel.mask if before is None else sel.mask | before
        rows, live = here.reshape(LANES, -1, warps), self.live.reshape(LANES, -1, warps)
        apart = rows.any(axis=(0, 2)) & (live & ~rows).any(axis=(0, 2))
        if before is None and not apart.any():
            return sel
        late = here & np.tile(np.repeat(apart, warps), LANES)
        self.park(pc, late, None)
        together = here & ~late
        return Selection(together, sel.total) if together.any() else None

    def park(self, pc: int, mask: Array, members: Array | None) -> None:
        """Threads wait at `pc`, if there are any, for their member lanes; None stands for all lanes of their warp."""
        if mask.any():
            self.parked[pc], self.awaited[pc] = mask, members

    def missing(self, pc: int) -> tuple[int, Array]:
        """A thread that waits at `pc` for lanes of its warp, and a mask of those it waits for."""
        waiting, members = self.parked[pc], self.awaited[pc]
        thread = int(np.flatnonzero(waiting)[0])
        mine = np.arange(waiting.size) % self.geometry.warps == thread % self.geometry.warps
        if members is None:
            return thread, mine & self.live & ~waiting
        named = (members[thread] >> (np.arange(waiting.size) // self.geometry.warps).astype(np.uint32) & 1) == 1
        return thread, mine & self.live & named & ~(waiting & (members == members[thread]))

    # Scheduling

    def next(self, oldest: bool) -> tuple[int, Array] | None:
        """The group to run: that at the lowest program counter or, to be fair, the one that waits longest."""
        if not self.ready:
            return None
        pc = next(iter(self.ready)) if oldest else min(self.ready)
        return pc, self.ready.pop(pc)

    def limit(self, pc: int) -> int:
        """The lowest program counter beyond `pc` at which others stand ready."""
        return min((other for other in self.ready if other > pc), default=1 << 60)

    def check_whole_warps(self, sel: Selection, what: str) -> Array | None:
        """The warps that execute an `.aligned` instruction; None means all. Raises FaultError if some lanes of a warp
        do and others do not."""
        if sel.mask is None:
            return None
        rows = sel.mask.reshape(LANES, -1)
        some, every = rows.any(axis=0), rows.all(axis=0)
        if not np.array_equal(some, every):
            warp = int(np.flatnonzero(some & ~every)[0])
            lane = int(np.flatnonzero(~rows[:, warp])[0])
            raise FaultError(apart(what, lane), lane * self.geometry.warps + warp)
        return np.flatnonzero(some)


# Orders of warps that are asked for: a counterexample, run as it says.


class Replay:
    """Chooses the next warps by an order of steps. A step whose warp cannot run is skipped."""

    def __init__(self, order: WarpOrder) -> None:
        self.left, self.delayed = list(order.steps), order.delayed

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
        return self._of(flow, [w for w in range(warps) if w != self.delayed]) if self.delayed >= 0 else None

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
