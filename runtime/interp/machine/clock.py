"""Clocks: they advance with the steps of the launch, so that what waits for them ends, and measure nothing real.

Source: PTX ISA 10.21 to 10.27 (%clock, %clock64, %globaltimer).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...numerics.array import Array

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
        """What a clock shows, one value for each thread; the array keeps up with `tick`."""
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
