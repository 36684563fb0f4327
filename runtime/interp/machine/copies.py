"""The asynchronous copies in flight: PTX ISA 9.7.9.25.3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...numerics.array import Array
from ..observers.events import Events
from .memory import Buffer
from .threads import Selection


@dataclass
class Pending:
    """Copies not yet seen: rows of bytes, where they go, and the threads and groups they belong to.

    `serial` numbers them in the order in which they were issued.
    """

    buffer: Buffer
    view: Array
    index: Array
    rows: Array
    threads: Array | None
    group: int | Array
    serial: int


class CopyQueue:
    """The copies in flight of all threads. Groups count from 0 in each thread.

    While all threads commit together, one number says which group is open; afterwards each has its own.
    """

    def __init__(self, threads: int, observer: Events | None = None) -> None:
        self.threads = threads
        self.observer = observer
        self.open: int | Array = 0
        self.pending: list[Pending] = []
        self.serial = 0

    def add(self, buffer: Buffer, index: Array, rows: Array, sel: Selection) -> None:
        """Copies issued by the selected threads."""
        group = self.open if isinstance(self.open, int) else sel.pick(self.open).copy()
        view = buffer.view(rows.itemsize, rows.shape[1]).reshape(-1, rows.shape[1])
        self.pending.append(Pending(buffer, view, index, rows, sel.lanes, group, self.serial))
        self.serial += 1

    def commit(self, sel: Selection) -> None:
        """Closes the open groups of the selected threads."""
        if sel.mask is None and isinstance(self.open, int):
            self.open += 1
            return
        counts = self._separate()
        sel.put(counts, sel.pick(counts) + 1)

    def wait(self, sel: Selection, keep: int | None) -> None:
        """Completes the copies of the selected threads but for their `keep` latest groups; with None, even of the
        open group."""
        if not self.pending:
            return
        if sel.mask is None and isinstance(self.open, int):
            limit = self.open + 1 if keep is None else self.open - keep
            self.pending = [p for p in self.pending if not self._complete_before(p, limit)]
            return
        counts = self._separate()
        limits = counts + 1 if keep is None else counts - keep
        selected = np.ones(self.threads, np.bool_) if sel.mask is None else sel.mask
        self.pending = [p for p in self.pending if not self._complete_some(p, limits, selected)]

    def complete(self, before: int, sel: Selection) -> None:
        """Completes the copies of the selected threads whose serial number is less than `before`."""
        selected = np.ones(self.threads, np.bool_) if sel.mask is None else sel.mask
        self.pending = [p for p in self.pending if p.serial >= before or not self._complete_of(p, selected)]

    def _separate(self) -> Array:
        if isinstance(self.open, int):
            self.open = np.full(self.threads, self.open, np.int64)
        return self.open

    def _complete_before(self, copy: Pending, limit: int) -> bool:
        if not isinstance(copy.group, int) or copy.group >= limit:
            return False
        self._land(copy, copy.index, copy.rows, copy.threads)
        return True

    def _complete_some(self, copy: Pending, limits: Array, selected: Array) -> bool:
        threads = np.arange(self.threads) if copy.threads is None else copy.threads
        return self._land_some(copy, threads, selected[threads] & (copy.group < limits[threads]))

    def _complete_of(self, copy: Pending, selected: Array) -> bool:
        threads = np.arange(self.threads) if copy.threads is None else copy.threads
        return self._land_some(copy, threads, selected[threads])

    def _land_some(self, copy: Pending, threads: Array, done: Array) -> bool:
        """Writes the rows that are done, and keeps the others. Returns whether none is left."""
        if not done.any():
            return False
        self._land(copy, copy.index[done], copy.rows[done], threads[done])
        left = ~done
        copy.index, copy.rows, copy.threads = copy.index[left], copy.rows[left], threads[left]
        copy.group = copy.group if isinstance(copy.group, int) else copy.group[left]
        return not copy.index.size

    def _land(self, copy: Pending, index: Array, rows: Array, threads: Array | None) -> None:
        if self.observer is not None:
            width = rows.itemsize * rows.shape[1]
            self.observer.land(copy.buffer, index * width, width, threads)
        copy.view[index] = rows
