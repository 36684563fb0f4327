"""The loop over K tiles: how copies to shared memory run ahead of what reads them."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleError, ScheduleRecord, always, rare


@dataclass(frozen=True, slots=True)
class LoopSchedule(ScheduleRecord):
    """The pipeline of the K loop."""

    stages: int = always(3, "how many buffers in shared memory copies fill in turn (1: copies do not overlap products)")
    sync: str = rare(
        10,
        "how warps wait for copies, and for other warps to have read a stage. `barrier`: all warps at a barrier of the "
        "CTA in each K tile. `mbarrier`: each warp for what it needs, at an mbarrier for each stage",
        "barrier",
        ("barrier", "mbarrier"),
    )
    prefetch: int = rare(11, "how many K tiles copies run ahead of products (0: one less than there are stages)", 0)
    unroll: int = rare(
        12,
        "how many K tiles one turn of the loop has, a multiple of the stages. Their addresses are then known while "
        "compiling (0: one K tile, of any stage)",
        0,
    )

    consumers: str = rare(
        20,
        "how warpgroups that multiply share the tensor cores. `cooperative`: all of them multiply each K tile. "
        "`pingpong`: in turns, so that one multiplies while another works on its sums",
        "cooperative",
        ("cooperative", "pingpong"),
    )

    def check(self) -> None:
        if self.stages < 1:
            raise ScheduleError(f"at least one stage is needed, got {self.stages}")
        if self.sync == "mbarrier" and self.stages < 3:
            raise ScheduleError(f"sync = mbarrier takes at least 3 stages, got {self.stages}")
        if not 0 <= self.prefetch < max(self.stages, 2):
            most = self.stages - 1
            raise ScheduleError(f"copies run at most {most} of {self.stages} stages ahead, got {self.prefetch}")
        if self.unroll < 0 or self.unroll % self.stages:
            raise ScheduleError(f"unroll must be a multiple of the {self.stages} stages, got {self.unroll}")

    @property
    def tiles_ahead(self) -> int:
        """How many K tiles copies run ahead."""
        return self.prefetch or self.stages - 1
