"""How tiles lie in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleError, ScheduleRecord, always

SWIZZLES = (16, 32, 64, 128)

SHARED_ALIGNMENT = 1024
"""Bytes after which every swizzle repeats; tiles in shared memory start at multiples of it."""


@dataclass(frozen=True, slots=True)
class SharedSchedule(ScheduleRecord):
    """The layout of tiles in shared memory."""

    swizzle: int = always(
        4, "the span in bytes within which the swizzle permutes chunks of 16 bytes of a row (16: no swizzle)", 128
    )

    def check(self) -> None:
        if self.swizzle not in SWIZZLES:
            raise ScheduleError(f"swizzle must be one of {SWIZZLES} bytes, got {self.swizzle}")
