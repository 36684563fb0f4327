"""Products of integers whose groups along k have scales of floats, `times` of `warp.tile_mma`.

The products of a group are added up by themselves, and their sums, times the scales of the columns, are added to the
rest in f32: the weights themselves are not rounded after they are scaled.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, Float32Type
from xdsl.ir import SSAValue

from ...dialect.warp.attributes import SHARED_SPACE, fragment_of, memory_of, memory_space
from ...dialect.warp.epilogue import LoadVectorOp
from ...dialect.warp.tile_mma import GroupScales, TileMmaOp
from ...dialect.warp.view import MatrixOp
from .fragment_math import constant, mapped
from .index_builder import Index, IndexBuilder
from .matrix_load import held_type
from .multiplication import DenseProduct, Place
from .tiling import schedule_of


class GroupedProduct(DenseProduct):
    """`warp.mma` for each group, from zero."""

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return op.groups is not None and schedule_of(op).tile.together == 1

    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        groups = self.op.groups
        if groups is None:
            raise ValueError("expected a product with scales of groups")
        tile = self.tiling.schedule.tile
        depth = tile.cta[2] // tile.sliced_k
        run = min(depth, groups.size)
        # Before the products, which hide how long memory takes to answer.
        scales = [self._load(index, groups, warp, first) for first in range(0, depth, run)]
        for number, scale in enumerate(scales):
            sums = constant(outside, fragment_of(accumulator), 0.0)
            sums = self.steps(outside, index, warp, sums, range(number * run, (number + 1) * run, self.tiling.step))
            accumulator = mapped(index, _added, accumulator, sums, scale)
        return accumulator

    def _load(self, index: IndexBuilder, groups: GroupScales, warp: Place, first: int) -> SSAValue:
        """The scales of the columns of a warp, of the group that `first` of the warp's part of k is in."""
        held, swapped = memory_of(groups.scales), self.op.transposed_b is not None
        shared = memory_space(held) == SHARED_SPACE
        count, columns = held.get_shape()[:: -1 if shared and swapped else 1]
        k = index.add(index.add(index.known(groups.k), warp["k"]), first)
        group: Index = index.div(k, groups.size)
        if count * groups.size % self.tiling.schedule.tile.cta[2]:
            group = index.minimum(group, count - 1)  # behind the end of k, where all products are zero
        kind = self.tiling.fragment("acc").with_element(held_type(groups.scales))
        line, start = index.value(group), index.value(index.add(index.known(groups.n), warp["n"]))
        if shared:
            vector = LoadVectorOp(groups.scales, start, "columns", kind, line=line, swapped=swapped)
            return index.insert(vector).fragment
        row = MatrixOp(groups.scales, [line], None, 1)
        if isinstance(view := groups.scales.owner, MatrixOp):
            row = view.at([line], None, 1)
        inside = columns % self.tiling.schedule.tile.cta[1] == 0
        return index.insert(LoadVectorOp(index.insert(row).matrix, start, "columns", kind, in_bounds=inside)).fragment


def _added(elements: Sequence[SSAValue]) -> SSAValue:
    total, part, scale = elements
    if isinstance(scale.type, AnyFloat) and not isinstance(scale.type, Float32Type):
        scale = arith.ExtFOp(scale, part.type).result
    return arith.AddfOp(total, arith.MulfOp(part, scale).result).result
