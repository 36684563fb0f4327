"""Which tile of the product a CTA and a warp compute."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu
from xdsl.ir import SSAValue

from ...dialect.schedule import Schedule
from ..index_builder import Index, IndexBuilder
from ..product import Product
from .tiling import Tiling


def grid(product: Product, schedule: Schedule) -> tuple[int, int]:
    """CTA tiles along M and N."""
    rows, columns, _ = schedule.cta
    return -(-product.m // rows), -(-product.n // columns)


def ctas(product: Product, schedule: Schedule) -> int:
    """CTAs to launch for one matrix."""
    down, across = grid(product, schedule)
    return min(schedule.ctas or down * across, down * across)


def cta_number(index: IndexBuilder) -> SSAValue:
    """The number of this CTA."""
    return index.insert(gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X))).result


def cta_origin(index: IndexBuilder, product: Product, schedule: Schedule, tile: Index) -> tuple[Index, Index]:
    """The first row and column of a CTA tile.

    CTAs that run at the same time should share rows of A and columns of B in L2, so they walk `group`
    rows of tiles together, column by column.
    """
    down, across = grid(product, schedule)
    group = min(schedule.group, down)
    within = index.rem(tile, group * across)
    first = index.mul(index.div(tile, group * across), group)
    height: Index = group
    if down % group:
        height = index.minimum(index.sub(index.value(down), first), group)
    row, column = index.add(first, index.rem(within, height)), index.div(within, height)
    return index.mul(row, schedule.cta[0]), index.mul(column, schedule.cta[1])


def moved_inside(index: IndexBuilder, tiling: Tiling, axis: str, start: Index) -> Index:
    """The start of a CTA's tile along an axis, moved back where the tile would pass the end."""
    last = tiling.last_start(axis)
    return start if last is None else index.minimum(start, last)


def batch_index(index: IndexBuilder, sizes: Sequence[Index]) -> list[Index]:
    """Which matrices of a batch this CTA multiplies: an index for each loop around the product."""
    if not sizes:
        return []
    rest: Index = index.insert(gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.Z))).result
    found: list[Index] = []
    for size in reversed(sizes[1:]):
        found.insert(0, index.rem(rest, size))
        rest = index.div(rest, size)
    return [rest, *found]


def warp_origin(index: IndexBuilder, schedule: Schedule) -> tuple[Index, Index]:
    """The first row and column of this warp's tile within the CTA's."""
    rows, columns = schedule.warp
    across = schedule.cta[1] // columns
    if schedule.warps == schedule.slices:
        return 0, 0
    warp: Index = index.insert(gpu.SubgroupIdOp()).result
    if schedule.slices > 1:
        warp = index.rem(warp, schedule.warps // schedule.slices)
    down: Index = index.div(warp, across) if schedule.cta[0] > rows else 0
    return index.mul(down, rows), index.mul(index.rem(warp, across) if across > 1 else 0, columns)


def slice_number(index: IndexBuilder, schedule: Schedule) -> Index:
    """Which slice this warp belongs to."""
    if schedule.slices == 1:
        return 0
    return index.div(index.insert(gpu.SubgroupIdOp()).result, schedule.warps // schedule.slices)
