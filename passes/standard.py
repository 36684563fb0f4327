"""`warploom`: the standard pipeline as one name, `-p warploom{target=sm_90a}`."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline

from .pipeline import run, standard_pipeline
from .schedule.warp_schedule import SchedulePass
from .universe import WARPLOOM_UNIVERSE


@dataclass(frozen=True)
class StandardPipeline(SchedulePass):
    """Runs every stage of the standard pipeline, from `linalg` to the dialect `ptx`.

    It takes a target (by default the module's own), `tf32` as `warp-raise-matmul` does, and the options of
    `warp-schedule`. Each stage is a pass of its own; `warploom-opt` prints, times and verifies them as if they were
    named.
    """

    name = "warploom"

    target: str | None = None
    tf32: bool = False

    def passes(self) -> tuple[ModulePass, ...]:
        """The passes, in order."""
        text = standard_pipeline(self.target, self.options(), tf32=self.tf32, tuned=self.tuned)
        return PassPipeline.parse_spec(WARPLOOM_UNIVERSE.all_passes, text).passes

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for stage in self.passes():
            run(stage, ctx, op)
