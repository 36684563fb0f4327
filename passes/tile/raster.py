"""Which tile of the product a CTA and a warp compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xdsl.dialects import gpu
from xdsl.ir import SSAValue

from ...dialect.gpu import BlockIdOp, SubgroupIdOp
from ...dialect.schedule import Schedule
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product
from .index_builder import Index, IndexBuilder
from .tiling import Tiling


class Extents(NamedTuple):
    """The sizes of a product where it is multiplied: numbers, or values for those that are not known; `batch` those of
    the loops around it."""

    m: Index
    n: Index
    batch: tuple[Index, ...]

    @staticmethod
    def of(index: IndexBuilder, product: Product, memory: Mapping[SSAValue, SSAValue]) -> Extents:
        """The sizes of the product, of which `memory` tells those that are not known."""

        def size(axis: str, known: int, operand: MatrixOperand, dimension: int) -> Index:
            return known if product.is_known(axis) else index.dim(memory[operand.value], dimension)

        a, b = product.a, product.b
        m = size("m", product.m, a, a.loops[0])
        n = size("n", product.n, b, b.loops[1])
        return Extents(m, n, batch_sizes(index, product, memory))


def batch_sizes(index: IndexBuilder, product: Product, memory: Mapping[SSAValue, SSAValue]) -> tuple[Index, ...]:
    """The sizes of the loops around a product; `memory` tells those that are not known, by what stands for D."""
    d = product.d
    others = [i for i in range(len(d.sizes)) if i not in d.dimensions]
    where = dict(zip(d.batch, others, strict=True))
    return tuple(
        index.dim(memory[d.value], where[loop]) if loop in product.dynamic else known
        for loop, known in enumerate(product.batch)
    )


def grid(index: IndexBuilder, extents: Extents, schedule: Schedule) -> tuple[Index, Index]:
    """CTA tiles along M and N. Clusters are whole: tiles may lie beyond the end, where they are moved back or store
    nothing."""
    (rows, columns, _), (high, wide) = schedule.tile.cta, schedule.grid.cluster
    down, across = index.ceildiv(extents.m, rows * high), index.ceildiv(extents.n, columns * wide)
    return index.mul(down, high), index.mul(across, wide)


def cta_number(index: IndexBuilder) -> SSAValue:
    """The number of this CTA."""
    return index.insert(BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X))).result


def cta_origin(index: IndexBuilder, extents: Extents, schedule: Schedule, tile: Index) -> tuple[Index, Index]:
    """The first row and column of a CTA tile.

    CTAs that run at the same time should share rows of A and columns of B in L2, so they walk `group`
    rows of tiles together, column by column. Those of a cluster have its tiles, which lie side by side.
    """
    (down, across), (high, wide) = grid(index, extents, schedule), schedule.grid.cluster
    rank = index.rem(tile, high * wide)
    tile, down, across = index.div(tile, high * wide), index.div(down, high), index.div(across, wide)
    group = index.minimum(down, max(1, schedule.grid.group // high))
    together = index.mul(group, across)
    within = index.rem(tile, together)
    first = index.mul(index.div(tile, together), group)
    height = group
    if not isinstance(down, int) or not isinstance(group, int) or down % group:
        height = index.minimum(index.sub(index.value(down), first), group)
    row, column = index.add(first, index.rem(within, height)), index.div(within, height)
    row = index.add(index.mul(row, high), index.rem(rank, high))
    column = index.add(index.mul(column, wide), index.div(rank, high) if wide > 1 else 0)
    return index.mul(row, schedule.tile.cta[0]), index.mul(column, schedule.tile.cta[1])


def moved_inside(index: IndexBuilder, tiling: Tiling, axis: str, start: Index) -> Index:
    """The start of a CTA's tile along an axis, moved back where the tile would pass the end."""
    last = tiling.last_start(axis)
    return start if last is None else index.minimum(start, last)


def batch_index(index: IndexBuilder, sizes: Sequence[Index], number: Index) -> list[Index]:
    """The matrices with a number in a batch: an index for each loop around the product."""
    if not sizes:
        return []
    rest, found = number, list[Index]()
    for size in reversed(sizes[1:]):
        found.insert(0, index.rem(rest, size))
        rest = index.div(rest, size)
    return [rest, *found]


def warp_origin(index: IndexBuilder, schedule: Schedule) -> tuple[Index, Index]:
    """The first row and column of this warp's tile within the CTA's."""
    rows, columns = schedule.tile.warp
    across = schedule.tile.cta[1] // columns
    if schedule.tile.warps == schedule.tile.sliced_k * schedule.tile.together:
        return 0, 0
    warp: Index = index.div(index.insert(SubgroupIdOp()).result, schedule.tile.together)
    if schedule.tile.sliced_k > 1:
        warp = index.rem(warp, schedule.tile.warps // schedule.tile.sliced_k)
    down: Index = index.div(warp, across) if schedule.tile.cta[0] > rows else 0
    return index.mul(down, rows), index.mul(index.rem(warp, across) if across > 1 else 0, columns)


def slice_number(index: IndexBuilder, schedule: Schedule) -> Index:
    """Which slice this warp belongs to."""
    if schedule.tile.sliced_k == 1:
        return 0
    return index.div(index.insert(SubgroupIdOp()).result, schedule.tile.warps // schedule.tile.sliced_k)
