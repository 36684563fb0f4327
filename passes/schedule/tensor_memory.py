"""What tensor memory holds of a product, and where CTAs multiply in pairs (sm_100a)."""

from __future__ import annotations

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.layouts.layout import LANES
from ...dialect.layouts.tensor_memory import COLUMNS, METADATA_BLOCK, SCALES_BLOCK
from ...dialect.schedule import Schedule
from ...dialect.warp.operands import metadata_span
from ..linalg.product import Product, block
from .warpgroup_model import held_columns, panel_of_b

COLUMNS_OF_PAIR = {True: 64, False: 128}
"""Columns of a tile of a pair come in steps of so many, of floats or of integers: N of a warpgroup's half in steps of
the instruction's of two CTAs. PTX ISA 9.7.16.2.1."""

MIN_STAGES = 4
"""Stages for whose scales there are columns beside two sums; with fewer the sums of one tile are all."""

BUFFERS = 2
"""Sums of tiles in tensor memory at a time: one is loaded while the products of the next tile are added up."""


def beside_columns(product: Product, schedule: Schedule) -> list[int]:
    """Columns of tensor memory of a stage: those of the scales of A and B; of the metadata of a sparse A."""
    if not (product.scales or product.metadata is not None):
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


MAX_GROUPS, MIN_AHEAD = 2, 2
"""Warpgroups whose rows of Q are one box of a tensor copy, of up to 256 rows; stages of K and V, as scores of the next
keys are multiplied before the values of the last."""


def why_no_attention(schedule: Schedule, columns: int) -> str:
    """Why the warpgroups of a schedule cannot multiply an attention whose heads have `columns` in V; empty if they can.

    Of each, S has a column for each key, P one for two keys, and O one for each column of V."""
    keys = schedule.cta[1]
    if schedule.mma.m != 2 * ROWS or schedule.cta[0] > MAX_GROUPS * schedule.mma.m or schedule.stages < MIN_AHEAD:
        return (
            f"in tensor memory up to {MAX_GROUPS} warpgroups have {2 * ROWS} rows each, and {MIN_AHEAD} stages or "
            f"more, got cta = {schedule.cta}, mma = {schedule.mma}, stages = {schedule.stages}"
        )
    taken = schedule.warps // schedule.together * (keys + keys // 2 + columns)
    return "" if taken <= COLUMNS else f"scores, P and O take {taken} columns of tensor memory, which has {COLUMNS}"
