"""Tiles of products in tensor memory: what a warpgroup has of them, and where CTAs multiply in pairs (sm_100a)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.isa.wgmma import Wgmma
from ...dialect.layouts.layout import LANES
from ...dialect.layouts.tensor_memory import COLUMNS, METADATA_BLOCK, SCALES_BLOCK
from ...dialect.schedule import Schedule
from ...dialect.warp.operands import metadata_span
from ..linalg.product import Product, block
from .warpgroup_model import GroupTile, held_columns, panel_of_b

MAX_ADDED = 128
"""Columns of the sums of a warpgroup, of 128 rows: with both of a tile of 128x256 ptxas 13.5 spills nothing."""

COLUMNS_OF_PAIR = {True: 64, False: 128}
"""Columns of a tile of a pair come in steps of so many, of floats or of integers: N of a warpgroup's half in steps of
the instruction's of two CTAs. PTX ISA 9.7.16.2.1."""

MIN_STAGES = 4
"""Stages for whose scales there are columns beside two sums; with fewer the sums of one tile are all."""

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
    return next((stages for stages in left if stages >= MIN_STAGES), left[-1])


def part_of(product: Product, tile: GroupTile, rows: Mapping[tuple[int, int], Wgmma]) -> tuple[int, int]:
    """The rows and columns of a warpgroup's instruction: 128 rows and half of the columns if there is such a row,
    otherwise 64 rows. Two products that share A stay in one warpgroup."""
    doubled = 2 * ROWS, tile.n // 2
    if tile.m == 2 * ROWS and tile.in_registers == "none" and product.second is None and doubled in rows:
        return doubled
    return ROWS, tile.width


def tiles_of_lanes(
    product: Product, tiles: Iterable[GroupTile], rows: Mapping[tuple[int, int], Wgmma], target: Target
) -> Iterator[GroupTile]:
    """The tiles to consider for tensor memory, in pairs of CTAs where these multiply together; each of a pair copies
    half of B."""
    for tile in tiles:
        high, wide = part_of(product, tile, rows)
        if (product.scales or product.metadata is not None) and high != tile.m:
            continue
        if product.metadata is not None:
            tile = tile._replace(depth=2)
        if tile.exchanged or tile.cluster != (1, 1) or tile.m > 2 * ROWS or wide > MAX_ADDED:
            continue  # of 192 rows there is no instruction
        pairs = high == tile.m and tile.parts == 1 and product.m > tile.m
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
