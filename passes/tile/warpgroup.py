"""Products of warpgroups: four warps multiply tiles where they lie in shared memory, `warp.wgmma`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import FloatAttr, MemRefType, f32
from xdsl.ir import SSAValue

from ...dialect.warp.attributes import fragment_of
from ...dialect.warp.elementwise import ConstantOp, ElementwiseOp, Kind
from ...dialect.warp.tensor_copies import ProxyFenceOp
from ...dialect.warp.warpgroup import ROWS, WgmmaCommitOp, WgmmaFenceOp, WgmmaOp, WgmmaWaitOp
from .index_builder import IndexBuilder
from .metadata import MetadataTiles
from .multiplication import CopiedTiles, Multiplication, Place
from .tiling import Tiling


class WarpgroupProduct(Multiplication):
    """`warp.wgmma`: A and B are read from shared memory, and only accumulators are in registers."""

    @staticmethod
    def multiplies(tiling: Tiling) -> bool:
        return tiling.schedule.tile.together > 1 and tiling.product.metadata is None

    def copies_done(self, index: IndexBuilder) -> None:
        index.insert(ProxyFenceOp())

    def multiply(
        self, outside: IndexBuilder, index: IndexBuilder, tiles: Sequence[SSAValue], warp: Place, accumulator: SSAValue
    ) -> SSAValue:
        schedule, (a, b) = self.tiling.schedule, self.operands
        along_m, along_n = a.operand.transposed, not b.operand.transposed
        promoted, total = schedule.arithmetic.promote != "none", accumulator
        if promoted:
            accumulator = index.insert(ConstantOp(FloatAttr(0.0, f32), fragment_of(total))).fragment
        steps = [warp | {"k": k} for k in range(0, schedule.tile.cta[2], schedule.tile.mma.k)]
        sparse = self.sparse(index, tiles, steps)
        index.insert(WgmmaFenceOp())
        for at, chosen in zip(steps, sparse, strict=True):
            where_a, where_b = (o.place(outside, at) for o in self.operands)
            flags = {"mn_major_a": along_m, "mn_major_b": along_n}
            op = WgmmaOp(tiles[0], where_a, tiles[1], where_b, accumulator, **flags, sparse=chosen)
            accumulator = index.insert(op).d
        index.insert(WgmmaCommitOp())
        index.insert(WgmmaWaitOp(0))
        return index.insert(ElementwiseOp(Kind.Add, total, accumulator)).fragment if promoted else accumulator

    def sparse(
        self, index: IndexBuilder, tiles: Sequence[SSAValue], steps: Sequence[Place]
    ) -> Sequence[tuple[SSAValue, int] | None]:
        """The metadata and the selector of each step; none of a dense A."""
        del index, tiles
        return [None] * len(steps)


class GroupMetadataTiles(MetadataTiles):
    """The tiles of the metadata for warpgroups, of whole patterns of the swizzle, which begin where stages do."""

    def shared_type(self) -> MemRefType:
        kind = super().shared_type()
        rows, words = kind.get_shape()
        return MemRefType(kind.element_type, [-(-rows // ROWS) * ROWS, words], kind.layout, kind.memory_space)


class SparseWarpgroupProduct(WarpgroupProduct):
    """`warp.wgmma` of a sparse A, whose metadata is copied beside it; each lane loads its word of some steps at once,
    before their products begin."""

    def __init__(self, tiling: Tiling) -> None:
        super().__init__(tiling)
        if (metadata := tiling.product.metadata) is None:
            raise ValueError("expected a product with a sparse A")
        self.metadata = GroupMetadataTiles(tiling, metadata)

    @staticmethod
    def multiplies(tiling: Tiling) -> bool:
        return tiling.schedule.tile.together > 1 and tiling.product.metadata is not None

    @property
    def copied(self) -> Sequence[CopiedTiles]:
        return (*self.operands, self.metadata)

    def counted(self, index: IndexBuilder, at: Place) -> Place:
        return self.metadata.counted(index, at)

    def sparse(
        self, index: IndexBuilder, tiles: Sequence[SSAValue], steps: Sequence[Place]
    ) -> Sequence[tuple[SSAValue, int] | None]:
        return self.metadata.load_all(index, tiles[-1], steps)
