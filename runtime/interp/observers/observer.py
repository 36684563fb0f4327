"""What looks on while a kernel runs: checks and reports.

A launch has an observer or none. Without one nothing here is called: steps are bound without it. With one, the machine
tells it of every CTA batch, instruction, memory access and meeting of threads, before their effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from ...numerics.array import Array

if TYPE_CHECKING:
    from ..machine.kernel import Kernel
    from ..machine.memory import Buffer, Part
    from ..machine.state import Selection, State


Kind: TypeAlias = Literal["load", "store", "atomic", "copy"]
"""`copy` is the destination of an asynchronous copy; its source is a `load`."""

Look: TypeAlias = Callable[["Selection"], None]
"""Called with the threads that are about to execute an instruction."""


class Access(NamedTuple):
    """Accesses of one instruction to one buffer.

    `start` is the first byte of each access in `buffer`, `threads` who makes it; each is `width` bytes long. Which
    buffer is shared memory, and where each thread's part of it begins, says `state.memory.shared`. `values` are the
    bytes that a store writes, a row for each access, where they are known.
    """

    pc: int
    kind: Kind
    buffer: Buffer
    start: Array
    width: int
    threads: Array
    values: Array | None = None


class Observer:
    """Looks on; here, without doing anything. Thread numbers and masks are those of the state begun last."""

    def begin(self, state: State, kernel: Kernel) -> None:
        """A batch of CTAs starts, and the one before is done."""

    def watch(self, pc: int) -> Look | None:
        """What to call before the instruction at `pc` with the threads whose guard holds (never none of them).

        Lanes that wait for others of their warp come to it again when those have arrived.
        """
        return None

    def issue(self, pc: int) -> Look | None:
        """What to call before the instruction at `pc` with all threads that come to it, whatever their guard."""
        return None

    def access(self, access: Access) -> None:
        """Memory is about to be read or written."""

    def come(self, number: int, expected: int, threads: Array) -> None:
        """Threads (a mask) come to barrier `number` of their CTA, which is to have `expected` of them (0: all)."""

    def join(self, number: int, arrived: Array, waiting: Array) -> None:
        """Barrier `number` completes in some CTAs: masks of all threads that came there, and of those that waited.

        At the cluster's barrier a thread can come to wait when it is complete already: then nobody arrives.
        """

    def meet(self, pc: int, threads: Selection, members: Array, lanes: Array) -> None:
        """Lanes that were to wait for each other, as in `bar.warp.sync` and `shfl.sync`, have come together: of each
        warp one group at most. Of each thread, `members` are the lanes that it names, `lanes` those that it has met."""

    def arrive(self, start: Array, threads: Array) -> None:
        """Threads arrive at mbarrier objects, each at one whose first byte in shared memory is `start`: now, or because
        copies they had begun have landed."""

    def passed(self, start: Array, threads: Array) -> None:
        """Threads have seen that a phase of mbarrier objects is complete; `start` as in `arrive`."""

    def land(self, buffer: Buffer, start: Array, width: int, threads: Array | None) -> None:
        """Asynchronous copies of the threads (None: all) have been waited for: their bytes are written now."""

    def end(self) -> None:
        """The launch is over."""

    def weight(self, shared: int, warps: int) -> int:
        """Bytes that are kept for each CTA of so many bytes of shared memory; its cluster has so many warps."""
        return 0


class Observers(Observer):
    """Several of them."""

    def __init__(self, members: Sequence[Observer]) -> None:
        self.members = tuple(members)

    def begin(self, state: State, kernel: Kernel) -> None:
        for member in self.members:
            member.begin(state, kernel)

    def watch(self, pc: int) -> Look | None:
        return _all([member.watch(pc) for member in self.members])

    def issue(self, pc: int) -> Look | None:
        return _all([member.issue(pc) for member in self.members])

    def access(self, access: Access) -> None:
        for member in self.members:
            member.access(access)

    def come(self, number: int, expected: int, threads: Array) -> None:
        for member in self.members:
            member.come(number, expected, threads)

    def join(self, number: int, arrived: Array, waiting: Array) -> None:
        for member in self.members:
            member.join(number, arrived, waiting)

    def meet(self, pc: int, threads: Selection, members: Array, lanes: Array) -> None:
        for member in self.members:
            member.meet(pc, threads, members, lanes)

    def arrive(self, start: Array, threads: Array) -> None:
        for member in self.members:
            member.arrive(start, threads)

    def passed(self, start: Array, threads: Array) -> None:
        for member in self.members:
            member.passed(start, threads)

    def land(self, buffer: Buffer, start: Array, width: int, threads: Array | None) -> None:
        for member in self.members:
            member.land(buffer, start, width, threads)

    def end(self) -> None:
        for member in self.members:
            member.end()

    def weight(self, shared: int, warps: int) -> int:
        return sum(member.weight(shared, warps) for member in self.members)


def _all(looks: Sequence[Look | None]) -> Look | None:
    some = [look for look in looks if look is not None]
    if len(some) < 2:
        return some[0] if some else None

    def look(sel: Selection) -> None:
        for one in some:
            one(sel)

    return look


def tell(
    state: State, pc: int, kind: Kind, parts: tuple[Part, ...], width: int, sel: Selection, words: Array | None = None
) -> None:
    """Reports the accesses of the selected threads, where somebody looks on; `words` are what each of them stores."""
    if state.observer is None:
        return
    threads = np.arange(sel.total) if sel.lanes is None else sel.lanes
    values = None if words is None else np.ascontiguousarray(words).view(np.uint8).reshape(-1, width)
    for part in parts:
        which = slice(None) if part.chosen is None else part.chosen
        stored = None if values is None else values[which]
        state.observer.access(Access(pc, kind, part.buffer, part.index * width, width, threads[which], stored))
