"""The loop over K tiles: how copies to shared memory run ahead of what reads them."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleError, ScheduleRecord, always, rare

LEAST_RING = 3
"""Stages that a loop takes whose warps wait at mbarriers."""


@dataclass(frozen=True, slots=True)
class LoopSchedule(ScheduleRecord):
    """The pipeline of the K loop."""

    stages: int = always(3, "how many buffers the ring in shared memory has (1: copies do not overlap products)")
    sync: str = rare(
        10,
        "how warps wait for copies, and for other warps that still read a stage. `barrier`: all warps wait at a "
        "barrier of the CTA in each K tile. `mbarrier`: each stage has an mbarrier, at which a warp waits when "
        "it needs the stage",
        "barrier",
        ("barrier", "mbarrier"),
    )
    prefetch: int = rare(
        11, "the prefetch distance: how many K tiles ahead of the products copies run (0: one less than `stages`)", 0
    )
    unroll: int = rare(
        12,
        "how many K tiles one iteration of the loop multiplies, a multiple of `stages`, so that addresses of "
        "stages are constants (0: one K tile, whose stage is computed)",
        0,
    )

    consumers: str = rare(
        20,
        "how the consumer warpgroups share the tensor cores. `cooperative`: all of them multiply each K tile. "
        "`pingpong`: they take turns, so that one multiplies while another runs its epilogue",
        "cooperative",
        ("cooperative", "pingpong"),
    )

    def check(self) -> None:
        if self.stages < 1:
            raise ScheduleError(f"stages must be at least 1, got {self.stages}")
        if self.sync == "mbarrier" and self.stages < LEAST_RING:
            raise ScheduleError(f"sync = mbarrier takes at least {LEAST_RING} stages, got {self.stages}")
        if not 0 <= self.prefetch < max(self.stages, 2):
            most = max(self.stages, 2) - 1
            raise ScheduleError(f"prefetch must be 0 to {most} with {self.stages} stages, got {self.prefetch}")
        if self.unroll < 0 or self.unroll % self.stages:
            raise ScheduleError(f"unroll must be a multiple of the {self.stages} stages, got {self.unroll}")

    @property
    def tiles_ahead(self) -> int:
        """How many K tiles copies run ahead."""
        return self.prefetch or self.stages - 1
