"""`warp-specialise`: one warpgroup copies, the others multiply.

The loop over K of a kernel of `warp.wgmma` becomes two. The producer waits until a stage of a ring has been read, and
starts tensor copies to it. The consumers wait until a stage is full, and start its products; when those of the stage
before have finished, they say that it has been read. Where CTAs go from tile to tile, the producer copies stages of the
next tile under the epilogue of this one::

    producer                                consumers
      for each tile of this CTA:              for each tile of this CTA:
        for each K tile:                        for each K tile:
          wait: stage is empty                    wait: stage is full
          start copies, which arrive there        start products; wait for those of the stage before
                                                  that stage is empty
                                                wait for products; that stage is empty; store accumulators
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects import scf

from ..diagnostics import remark
from ..patterns import PatternPass
from ..tile.tiling import LaunchedKernel, LaunchPattern
from .copy_loop import DeclinedError, copies_of


class SpecialiseWarps(LaunchPattern):
    """A kernel of warpgroups, with a warpgroup more that copies for the others."""

    def rewrite(self, launch: LaunchedKernel) -> None:
        if launch.schedule.together == 1:
            return
        from .specialiser import Specialiser  # 7 ms, for kernels of warpgroups

        for loop in [o for o in launch.kernel.walk() if isinstance(o, scf.ForOp) and copies_of(o)]:
            try:
                Specialiser(launch, loop, SpecialisePass.name).rewrite()
            except DeclinedError as declined:
                remark(declined.op, SpecialisePass.name, f"nobody copies ahead: {declined.reason}")


class SpecialisePass(PatternPass):
    """Adds a producer warpgroup to kernels of warpgroups. The producer copies tiles by tensor maps to a ring of stages,
    while the other warpgroups multiply.

    It runs after `warp-persist`. It does not change a kernel that it cannot specialise, and `warploom-opt --remarks`
    says why. The kernel is also correct without it.
    """

    name = "warp-specialise"
    needs: ClassVar = ("warp.wgmma",)
    patterns = (SpecialiseWarps,)
