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

from xdsl.context import Context
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ..diagnostics import remark
from ..tile.tiling import launches
from .copy_loop import DeclinedError, copies_of


class SpecialisePass(ModulePass):
    """Adds a producer warpgroup to kernels of warpgroups. The producer copies tiles by tensor maps to a ring of stages,
    while the other warpgroups multiply.

    It runs after `warp-persist`. It does not change a kernel that it cannot specialise, and `warploom-opt --remarks`
    says why. The kernel is also correct without it.
    """

    name = "warp-specialise"
    needs: ClassVar = ("warp.wgmma",)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for launch in list(launches(op)):
            if launch.schedule.together == 1:
                continue
            from .specialiser import Specialiser  # 7 ms, for kernels of warpgroups

            for loop in [o for o in launch.kernel.walk() if isinstance(o, scf.ForOp) and copies_of(o)]:
                try:
                    Specialiser(launch, loop, self.name).rewrite()
                except DeclinedError as declined:
                    remark(declined.op, self.name, f"nobody copies ahead: {declined.reason}")
