"""Products of warpgroups: four warps multiply tiles where they lie in shared memory, `warp.wgmma`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from ...dialect.warp.tensor_copies import ProxyFenceOp
from ...dialect.warp.warpgroup import WgmmaCommitOp, WgmmaFenceOp, WgmmaOp, WgmmaWaitOp
from .index_builder import IndexBuilder
from .multiplication import Multiplication, Place
from .tiling import Tiling


class WarpgroupProduct(Multiplication):
    """`warp.wgmma`: A and B are read from shared memory, and only accumulators are in registers."""

    @staticmethod
    def multiplies(tiling: Tiling) -> bool:
        return tiling.schedule.tile.together > 1

    def copies_done(self, index: IndexBuilder) -> None:
        index.insert(ProxyFenceOp())

    def multiply(
        self, outside: IndexBuilder, index: IndexBuilder, tiles: Sequence[SSAValue], warp: Place, accumulator: SSAValue
    ) -> SSAValue:
        schedule, (a, b) = self.tiling.schedule, self.operands
        along_m, along_n = a.operand.transposed, not b.operand.transposed
        index.insert(WgmmaFenceOp())
        for k in range(0, schedule.tile.cta[2], schedule.tile.mma.k):
            at = warp | {"k": k}
            places = [outside.values([at[axis] for axis in o.in_memory]) for o in self.operands]
            op = WgmmaOp(tiles[0], places[0], tiles[1], places[1], accumulator, mn_major_a=along_m, mn_major_b=along_n)
            accumulator = index.insert(op).d
        index.insert(WgmmaCommitOp())
        index.insert(WgmmaWaitOp(0))
        return accumulator
