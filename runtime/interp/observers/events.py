"""What a launch tells of while it runs: instructions, memory accesses, meetings of threads, each before its effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ...numerics.array import Array
from ..machine.memory import Buffer, Part
from ..machine.threads import Selection

AccessKind: TypeAlias = Literal["load", "store", "atomic", "copy", "fetch"]
"""`copy` is the destination of an asynchronous copy, whose source is a `load`; `fetch` is what an asynchronous product
will read, until it is waited for."""

Look: TypeAlias = Callable[[Selection], None]
"""Called with the threads that are about to execute an instruction."""


class MemoryAccess(NamedTuple):
    """Accesses of one instruction to one buffer.

    `start` is the first byte of each access in `buffer`, `threads` who makes it; each is `width` bytes long. Which
    buffer is shared memory, and where each thread's part of it begins, the state's memory says. `values` are the bytes
    that a store writes, a row for each access, where they are known.
    """

    pc: int
    kind: AccessKind
    buffer: Buffer
    start: Array
    width: int
    threads: Array
    values: Array | None = None


class Events:
    """Is told of what happens; here, without doing anything."""

    def watch(self, pc: int) -> Look | None:
        """What to call before the instruction at `pc` with the threads whose guard holds (never none of them).

        Lanes that wait for others of their warp come to it again when those have arrived.
        """
        return None

    def issue(self, pc: int) -> Look | None:
        """What to call before the instruction at `pc` with all threads that come to it, whatever their guard."""
        return None

    def access(self, access: MemoryAccess) -> None:
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


def tell(
    observer: Events | None,
    pc: int,
    kind: AccessKind,
    parts: tuple[Part, ...],
    width: int,
    sel: Selection,
    words: Array | None = None,
) -> None:
    """Reports the accesses of the selected threads, where somebody looks on; `words` are what each of them stores."""
    if observer is None:
        return
    threads = sel.threads
    values = None if words is None else np.ascontiguousarray(words).view(np.uint8).reshape(-1, width)
    for part in parts:
        which = slice(None) if part.chosen is None else part.chosen
        stored = None if values is None else values[which]
        observer.access(MemoryAccess(pc, kind, part.buffer, part.index * width, width, threads[which], stored))
