"""Products of warpgroups: four warps multiply tiles where they lie in shared memory, `warp.wgmma`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import FloatAttr, f32
from xdsl.ir import SSAValue

from ...dialect.warp.attributes import fragment_of
from ...dialect.warp.elementwise import ConstantOp, ElementwiseOp, Kind
from ...dialect.warp.tile_mma import TileMmaOp
from ...dialect.warp.warpgroup import WgmmaCommitOp, WgmmaFenceOp, WgmmaOp, WgmmaWaitOp
from .index_builder import IndexBuilder
from .metadata import MetadataWords
from .multiplication import Multiplication, Place
from .tiling import schedule_of


class WarpgroupProduct(Multiplication):
    """`warp.wgmma`: A and B are read from shared memory, and only accumulators are in registers."""

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return schedule_of(op).tile.together > 1 and op.e is None

    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        schedule, (a, b) = self.tiling.schedule, self.operands
        along_m, along_n = a.operand.transposed, not b.operand.transposed
        promoted, total = schedule.arithmetic.promote != "none", accumulator
        if promoted:
            accumulator = index.insert(ConstantOp(FloatAttr(0.0, f32), fragment_of(total))).fragment
        steps = [warp | {"k": k} for k in range(0, schedule.tile.cta[2], schedule.tile.mma.k)]
        sparse = self.sparse(index, steps)
        index.insert(WgmmaFenceOp())
        for at, chosen in zip(steps, sparse, strict=True):
            where_a, where_b = (o.place(outside, at) for o in self.operands)
            flags = {"mn_major_a": along_m, "mn_major_b": along_n}
            op = WgmmaOp(self.op.a, where_a, self.op.b, where_b, accumulator, **flags, sparse=chosen)
            accumulator = index.insert(op).d
        index.insert(WgmmaCommitOp())
        index.insert(WgmmaWaitOp(0))
        return index.insert(ElementwiseOp(Kind.Add, total, accumulator)).fragment if promoted else accumulator

    def sparse(self, index: IndexBuilder, steps: Sequence[Place]) -> Sequence[tuple[SSAValue, int] | None]:
        """The metadata and the selector of each step; none of a dense A."""
        del index
        return [None] * len(steps)


class SparseWarpgroupProduct(WarpgroupProduct):
    """`warp.wgmma` of a sparse A, whose metadata is copied beside it; each lane loads its word of some steps at once,
    before their products begin."""

    def __init__(self, op: TileMmaOp) -> None:
        super().__init__(op)
        self.metadata = MetadataWords(self.tiling)

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return schedule_of(op).tile.together > 1 and op.e is not None

    def counted(self, index: IndexBuilder, at: Place) -> Place:
        return self.metadata.counted(index, at)

    def sparse(self, index: IndexBuilder, steps: Sequence[Place]) -> Sequence[tuple[SSAValue, int] | None]:
        if self.op.e is None:
            raise ValueError("expected a product with a sparse A")
        return self.metadata.load_all(index, self.op.e, steps, padded=self.op.padded is not None)
