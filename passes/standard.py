"""`warploom`: the standard pipeline as one name, `-p warploom{target=sm_90a}`, and each third of it."""

from __future__ import annotations

from dataclasses import dataclass

from .pipeline import PARTS, TILING, Pipeline, standard_pipeline
from .schedule.warp_schedule import SchedulePass


@dataclass(frozen=True)
class ChoosingPipeline(Pipeline, SchedulePass):
    """Runs the passes from `linalg` to products with a schedule: `warp-set-target` to `warp-schedule`.

    It takes a target (by default the module's own), `tf32` as `warp-raise-matmul` does, and the options of
    `warp-schedule`.
    """

    name = "warploom-schedule"

    target: str | None = None
    tf32: bool = False

    def text(self) -> str:
        return PARTS["schedule"].of(self._all())

    def _all(self) -> str:
        return standard_pipeline(self.target, self.options(), tf32=self.tf32, tuned=self.tuned)


@dataclass(frozen=True)
class StandardPipeline(ChoosingPipeline):
    """Runs every pass of the standard pipeline, from `linalg` to the dialect `ptx`.

    It takes a target (by default the module's own), `tf32` as `warp-raise-matmul` does, and the options of
    `warp-schedule`. `warploom-opt` prints, times and verifies the passes one by one, as if they had been named.
    """

    name = "warploom"

    def text(self) -> str:
        return self._all()


@dataclass(frozen=True)
class TilingPipeline(Pipeline):
    """Runs the passes from scheduled products to kernels over fragments: `warp-lay-out` to `warp-specialise`."""

    name = "warploom-tile"

    def text(self) -> str:
        return PARTS["tile"].of(standard_pipeline())


@dataclass(frozen=True)
class KernelPipeline(Pipeline):
    """Runs the passes that make a kernel over fragments from the tile of a CTA: `warp-stage` to `warp-raise-gelu`."""

    name = "warp-tile"

    def text(self) -> str:
        return TILING.of(standard_pipeline())


@dataclass(frozen=True)
class FinishingPipeline(Pipeline):
    """Runs the passes from kernels over fragments to the dialect `ptx`: `warp-pipeline` to `convert-warp-to-ptx`."""

    name = "warploom-finish"

    def text(self) -> str:
        return PARTS["finish"].of(standard_pipeline())
