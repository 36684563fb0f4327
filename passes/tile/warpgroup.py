"""Products of warpgroups: four warps multiply tiles where they lie in shared memory, `warp.wgmma`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import FloatAttr, f32
from xdsl.ir import SSAValue

from ...dialect.warp.attributes import FragmentType, fragment_of
from ...dialect.warp.elementwise import ConstantOp, ElementwiseOp, Kind
from ...dialect.warp.tile_mma import TileMmaOp
from ...dialect.warp.warpgroup import WgmmaCommitOp, WgmmaFenceOp, WgmmaOp, WgmmaWaitOp
from .index_builder import IndexBuilder
from .multiplication import Multiplication, Place
from .tiling import schedule_of


class WarpgroupProduct(Multiplication):
    """`warp.wgmma`: A and B are read from shared memory, and only accumulators are in registers."""

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        tile = schedule_of(op).tile
        return tile.together > 1 and tile.in_registers == "none" and op.metadata is None

    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        schedule, (a, b) = self.tiling.schedule, self.operands
        along_m, along_n = a.operand.transposed, not b.operand.transposed
        promoted, total = schedule.arithmetic.promote != "none", accumulator
        if promoted:
            accumulator = index.insert(ConstantOp(FloatAttr(0.0, f32), fragment_of(total))).fragment
        steps = [warp | {"k": k} for k in range(0, schedule.tile.cta[2], schedule.tile.mma.k)]
        sparse, held = self.sparse(index, steps), [self._a(outside, index, at) for at in steps]
        zero = isinstance(start := accumulator.owner, ConstantOp) and not start.value.value.data
        index.insert(WgmmaFenceOp())
        for number, (at, (of_a, where_a), chosen) in enumerate(zip(steps, held, sparse, strict=True)):
            flags = {"mn_major_a": along_m, "mn_major_b": along_n, "overwrite": zero and not promoted and not number}
            op = WgmmaOp(of_a, where_a, self.tiles[1], b.place(outside, at), accumulator, **flags, sparse=chosen)
            accumulator = index.insert(op).d
        index.insert(WgmmaCommitOp())
        index.insert(WgmmaWaitOp(0))
        return index.insert(ElementwiseOp(Kind.Add, total, accumulator)).fragment if promoted else accumulator

    def _a(self, outside: IndexBuilder, index: IndexBuilder, at: Place) -> tuple[SSAValue, list[SSAValue]]:
        """A of a step: its tile and where in it, or the registers that hold it."""
        tile, _ = self.tiles
        if isinstance(tile.type, FragmentType):
            return self.operands[0].held(index, tile, at), []
        return tile, self.operands[0].place(outside, at)

    def sparse(self, index: IndexBuilder, steps: Sequence[Place]) -> Sequence[tuple[SSAValue, int] | None]:
        """The metadata and the selector of each step; none of a dense A."""
        del index
        return [None] * len(steps)
