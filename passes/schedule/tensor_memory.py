"""Tiles of products in tensor memory: what a warpgroup has of them, and where CTAs multiply in pairs (sm_100a)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.isa.wgmma import Wgmma
from ...dialect.layouts.layout import LANES
from ...dialect.layouts.tensor_memory import COLUMNS, METADATA_BLOCK, SCALES_BLOCK
from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.warp.operands import metadata_span
from ..linalg.product import Product, block
from .warpgroup_model import GroupTile, held_columns, panel_of_b

MOST_ADDED = 128
"""Columns of the sums of a warpgroup, of 128 rows: with both of a tile of 128x256 ptxas 13.5 spills nothing."""

COLUMNS_OF_PAIR = {True: 64, False: 128}
"""Columns of a tile of a pair come in steps of so many, of floats or of integers: N of a warpgroup's half in steps of
the instruction's of two CTAs. PTX ISA 9.7.16.2.1."""


LEAST_STAGES = 4
"""Stages for whose scales there are columns beside two sums; with fewer the sums of one tile are all."""

MOST_GROUPS = 2
"""Warpgroups whose rows of Q are one box of a tensor copy, of up to 256 rows."""

LEAST_AHEAD = 2
"""Stages of K and V: scores of the next keys are multiplied before the values of the last."""

BUFFERS = 2
"""Sums of tiles in tensor memory at a time: one is loaded while the products of the next tile are added up."""


def beside_columns(product: Product, schedule: Schedule) -> list[int]:
    """Columns of tensor memory of a stage: those of the scales of A and B; of the metadata of a sparse A."""
    if schedule.mma.m <= ROWS or not (product.scales or product.metadata is not None):
        return []
    if not product.scales:
        return [schedule.cta[2] // metadata_span(product.a.element) * LANES // (METADATA_BLOCK.columns >> 2)]
    words = schedule.cta[2] // (block(product) * SCALES_OF_WORD)
    return [SCALES_OF_WORD * words * -(-side // SCALES_BLOCK.rows) for side in schedule.cta[:2]]


def stages_beside(product: Product, schedule: Schedule) -> int:
    """For how many stages tensor memory has columns beside the sums."""
    each = sum(beside_columns(product, schedule))
    if not each:
        return COLUMNS
    left = [(COLUMNS - sums * schedule.cta[1]) // each for sums in (BUFFERS, 1)]
    return next((stages for stages in left if stages >= LEAST_STAGES), left[-1])


def why_no_attention(schedule: Schedule, columns: int) -> str:
    """Why the warpgroups of a schedule cannot multiply an attention whose heads have `columns` in V; empty if they can.

    Of each, S has a column for each key, P one for two keys, and O one for each column of V."""
    keys = schedule.cta[1]
    if schedule.mma.m != 2 * ROWS or schedule.cta[0] > MOST_GROUPS * schedule.mma.m or schedule.stages < LEAST_AHEAD:
        return (
            f"in tensor memory up to {MOST_GROUPS} warpgroups have {2 * ROWS} rows each, and {LEAST_AHEAD} stages or "
            f"more, got cta = {schedule.cta}, mma = {schedule.mma}, stages = {schedule.stages}"
        )
    taken = schedule.warps // schedule.together * (keys + keys // 2 + columns)
    return "" if taken <= COLUMNS else f"scores, P and O take {taken} columns of tensor memory, which has {COLUMNS}"


def check_beside(schedule: Schedule, product: Product) -> None:
    """Checks the tile of a product with scales.

    Raises:
        ScheduleError: for other tiles, or more scales than tensor memory has columns for.
    """
    if not product.scales and (product.metadata is None or schedule.mma.m <= ROWS):
        return
    if product.metadata is not None and schedule.cta[2] % (both := 2 * metadata_span(product.a.element)):
        raise ScheduleError(f"metadata comes to tensor memory for {both} columns of A, got cta = {schedule.cta}")
    if schedule.cta[0] != 2 * ROWS:
        raise ScheduleError(
            f"scales and metadata in tensor memory are of tiles of {2 * ROWS} rows, got cta = {schedule.cta}"
        )
    if (limit := stages_beside(product, schedule)) < schedule.stages:
        raise ScheduleError(
            f"stages = {schedule.stages}: beside the sums, tensor memory has columns for what {limit} stages bring"
        )


def part_of(product: Product, tile: GroupTile, rows: Mapping[tuple[int, int], Wgmma]) -> tuple[int, int]:
    """The rows and columns of the instruction of a warpgroup: 64, or 128 and half of the columns where there is such a
    row. Two matrices that are multiplied side by side stay with the same warpgroup."""
    doubled = 2 * ROWS, tile.n // 2
    if tile.m == 2 * ROWS and tile.in_registers == "none" and product.second is None and doubled in rows:
        return doubled
    return ROWS, tile.width


def tiles_of_lanes(
    product: Product, tiles: Iterable[GroupTile], rows: Mapping[tuple[int, int], Wgmma], target: Target
) -> Iterator[GroupTile]:
    """Those tiles that are worth a thought in tensor memory, in pairs of CTAs where these multiply together: each then
    copies half of B."""
    for tile in tiles:
        high, wide = part_of(product, tile, rows)
        if (product.scales or product.metadata is not None) and high != tile.m:
            continue
        if product.metadata is not None:
            tile = tile._replace(depth=2)
        if tile.cluster != (1, 1) or tile.m > 2 * ROWS or wide > MOST_ADDED:
            continue  # of 192 rows there is no instruction
        pairs = high == tile.m and tile.parts == 1 and product.m > tile.m and not product.dynamic
        pairs = pairs and target.sms % 2 == 0 and product.op.grouped is None
        yield tile._replace(cluster=(2, 1)) if pairs and not why_no_pairs(product, tile.m, tile.n) else tile


def why_no_pairs(product: Product, rows: int, columns: int) -> str:
    """Why CTAs with tiles of a size cannot multiply in pairs; empty if they can."""
    if rows != 2 * ROWS:
        return f"in tensor memory CTAs multiply in pairs, 2x1, of {2 * ROWS} rows each, got {rows}"
    step = COLUMNS_OF_PAIR[product.a.element.is_float]
    halves = product.b.transposed or (
        held_columns(product, columns) == columns and columns // 2 % panel_of_b(product, columns) == 0
    )
    if columns % step or not halves or product.second is not None:
        return f"each CTA of a pair has half of the columns of one B, a multiple of {step} and panels, got {columns}"
    return ""


def check_pairs(schedule: Schedule, product: Product) -> str:
    """Why a schedule of clusters is none of pairs; empty if it is."""
    if not schedule.pairs:
        return f"in tensor memory CTAs multiply in pairs, 2x1, with M = {2 * ROWS}, got mma = {schedule.mma}"
    if reason := why_no_pairs(product, *schedule.cta[:2]):
        return reason
    columns, n = schedule.cta[1] // 2, schedule.mma.n
    return (
        f"each CTA of a pair has {columns} columns of B, no multiple of N in mma = {schedule.mma}"
        if columns % n
        else ""
    )
