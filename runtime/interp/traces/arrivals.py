"""When the phases of mbarrier objects complete, in the time of a trace."""

from __future__ import annotations

from ...numerics.array import Array
from ..machine import phases

_PHASES = 4
"""Phases are counted modulo 4."""


class PhaseTimes:
    """For each object, by its first byte in shared memory, the last arrival at each of its latest phases."""

    def __init__(self, words: Array) -> None:
        self._words = words
        self._times: dict[int, list[int]] = {}
        self._current: dict[int, int] = {}

    def begin(self, start: int) -> None:
        """An object is made."""
        self._times[start], self._current[start] = [0] * _PHASES, 0

    def arrive(self, start: int, time: int) -> None:
        """An arrival at the phase that an object is in, before it takes effect."""
        if start not in self._times:
            self.begin(start)
        now, times = self._phase(start), self._times[start]
        if now != self._current[start]:
            self._current[start], times[now] = now, 0
        times[now] = max(times[now], time)

    def completed(self, start: int) -> int:
        """When the phase before the current one was complete; 0 for one that none has arrived at."""
        return self._times.get(start, [0] * _PHASES)[(self._phase(start) - 1) % _PHASES]

    def _phase(self, start: int) -> int:
        return int(phases.phase(self._words[start // 8 : start // 8 + 1])[0])
