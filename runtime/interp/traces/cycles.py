"""The model of time of a trace: how many cycles what takes, on an SM like one of an H200.

A CTA has an SM for itself. A warp issues one instruction in a cycle, and has its result at once; a copy takes the time
that it is on its way; a product takes a tensor core as long as the hardware does. There are no caches, no bank
conflicts, and no warps that compete for an issue slot.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias

from ....dialect.isa.mma import Mma
from ....dialect.isa.mma_sp import MmaSparse
from ....dialect.isa.wgmma import Wgmma
from ....dialect.isa.wmma import WmmaMma
from ....passes.schedule.h200 import RATES, SPARSE_RATE

LATENCY = 600
"""From the issue of a copy until its first bytes arrive. An assumption."""

BYTES_PER_CYCLE = 64
"""Bytes that reach an SM, or leave it: those of L2 (`passes/schedule/h200.py`, at 1.75 GHz)."""

WARP_PRODUCT = 2048 / 6
"""Multiply-adds of 16 bits that the tensor core of a warp scheduler does: m16n8k16 in 6 cycles, on an H200."""

WARPGROUP_PRODUCT = 2048.0
"""Those of the four tensor cores together, for `wgmma`: m64n256k16 in 128 cycles."""

SCHEDULERS = 4
"""Warp schedulers of an SM, each with a tensor core; warp w of a CTA belongs to scheduler w modulo 4."""

DESCRIPTION = (
    "modelled cycles of an SM like an H200's, nothing measured: an instruction of a warp takes 1; a copy from or to "
    f"global memory {LATENCY}, and 1 more for each {BYTES_PER_CYCLE} bytes in the order of issue; m16n8k16 of 16 bits "
    "takes the tensor core of a scheduler for 6, m64n256k16 of wgmma all four for 128; every CTA has an SM for itself"
)
"""What a time is, in words."""

WarpRow: TypeAlias = Mma | MmaSparse | WmmaMma
"""A product of one warp."""


def product_cycles(row: WarpRow | Wgmma) -> int:
    """Cycles that a product takes its tensor cores, at least 1."""
    side_by_side = row.products if isinstance(row, Mma) else 1
    work = row.shape.m * row.shape.n * row.shape.k * side_by_side / RATES.get(row.a.name, 1.0)
    sparse = isinstance(row, MmaSparse) or (isinstance(row, Wgmma) and row.granularity is not None)
    rate = WARPGROUP_PRODUCT if isinstance(row, Wgmma) else WARP_PRODUCT
    return max(1, round(work / (rate * (SPARSE_RATE if sparse else 1.0))))


def copy_cycles(size: int) -> int:
    """Cycles for which a copy of so many bytes takes the way between an SM and L2."""
    return max(1, -(-size // BYTES_PER_CYCLE))


class Pipe:
    """A unit that does one thing at a time: when it is busy, as times in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def take(self, earliest: int, cycles: int) -> int:
        """Occupies the first time from `earliest` on that is long enough; when it begins.

        Warps run ahead of each other in the interpreter, so times are not asked for in their order.
        """
        at = max(0, bisect_right(self._starts, earliest) - 1)
        start = earliest
        while at < len(self._starts):
            if self._starts[at] >= start + cycles:
                break
            start = max(start, self._ends[at])
            at += 1
        self._insert(at, start, start + cycles)
        return start

    def _insert(self, at: int, start: int, end: int) -> None:
        """Puts a time before that of number `at`; times that touch become one."""
        if at < len(self._starts) and self._starts[at] == end:
            end = self._ends[at]
            del self._starts[at], self._ends[at]
        if at and self._ends[at - 1] == start:
            self._ends[at - 1] = end
            return
        self._starts.insert(at, start)
        self._ends.insert(at, end)
