"""What is known of each piece of shared memory: who wrote and who read it last, and when.

Pieces are as small as the smallest access so far, and split when a smaller one comes.
"""

from __future__ import annotations

import numpy as np

from ...numerics.array import Array

UNWAITED = np.iinfo(np.int32).max
"""The time of a write by an asynchronous copy that nobody has waited for."""

MANY = -1
"""The lane of several lanes."""

_PIECES = (
    *("written", "write_time", "writer", "write_pc", "write_strong", "tells"),
    *("read_time", "reader", "read_pc", "read_strong"),
)


class Shadow:
    """Arrays of one entry for each piece; those of reads also one for each warp of the CTA.

    The last write: `written` (whether there was one), its time, thread, instruction, whether it was `strong` (atomic
    or ordered), and up to when it `tells` of its warp. The last read of each warp: time, lane, instruction, strong.
    """

    def __init__(self, size: int, warps: int) -> None:
        self.size = size
        self.width = 16
        n = -(-size // self.width)
        self.written = np.zeros(n, np.bool_)
        self.write_time = np.zeros(n, np.int32)
        self.writer = np.zeros(n, np.int32)
        self.write_pc = np.zeros(n, np.int32)
        self.write_strong = np.zeros(n, np.bool_)
        self.tells = np.zeros(n, np.int32)
        self.read_time = np.zeros((n, warps), np.int32)
        self.reader = np.zeros((n, warps), np.int8)
        self.read_pc = np.zeros((n, warps), np.int32)
        self.read_strong = np.zeros((n, warps), np.bool_)

    def pieces(self, start: Array, width: int, *given: Array) -> tuple[Array, ...]:
        """The pieces that accesses touch, and what is given of each access, once for each piece."""
        if (smallest := width & -width) < self.width:
            self._split(smallest)
        each = width // self.width
        first = start // self.width
        if each == 1:
            return first, *given
        return (first[:, None] + np.arange(each)).reshape(-1), *(np.repeat(g, each) for g in given)

    def _split(self, width: int) -> None:
        times = self.width // width
        for name in _PIECES:
            old: Array = getattr(self, name)
            setattr(self, name, np.repeat(old, times, axis=0))
        self.width = width
