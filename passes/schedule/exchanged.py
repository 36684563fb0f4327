"""Schedules of products of warpgroups with B in registers, changed on its way there: `in_registers = b`.

The transposes are multiplied, D^T = B^T A^T: each warpgroup computes 64 columns of D, and as many rows as its
instruction has columns, so that what is done to an element of B is done once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as product_of
from math import prod
from typing import NamedTuple

from ...dialect.isa.targets import Target
from ...dialect.isa.wgmma import M as COLUMNS
from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.schedule.tile import TileSchedule
from ...dialect.warp.attributes import BYTE
from ..linalg.operand import VectorOperand
from ..linalg.product import Product
from .register_overhead import functions
from .resources import multiplied, warpgroup_rows
from .warpgroup import GROUP, is_large
from .warpgroup_model import (
    LINE,
    PARTS,
    READ_PER_CYCLE,
    STORED_PER_CYCLE,
    TILE_LATENCY,
    GroupTile,
    fits,
    k_of,
    partial_sums,
    read_bytes,
    tile_count,
)
from .warpgroup_resources import fitting_stages, not_copied, schedule_of_tile

LEAST_ROWS, LEAST_ALONG_K, LEAST_ALONG_N = 64, 1 << 32, 1 << 29
"""Rows of D, and multiply-adds, from which on integers of B that lie along K or along N are converted faster so (H200,
microseconds by fragments and so: 64x8192x8192, 4 bits along K 35.4 and 32.3, 8 bits along N 30.2 and 27.4;
256x4096x4096 30.1 and 21.2, 28.7 and 19.3; 128x4096x4096 18.3 and 19.8, 18.0 and 16.4; 512x1024x1024 8.3 and 8.7, 8.3
and 7.7). Of 8 bits along K 64 rows are too few: 31.2 and 34.0."""

MOST_BESIDE_FUNCTIONS = 224
"""Rows of a warpgroup beside the functions of an epilogue that take the most registers (`ptxas`, 256 rows: 8 to 32
bytes of spills beside gelu and a logarithm)."""

GROUP_ROWS = 128
"""Rows of tiles of which as many are walked together as of those of other warpgroups, of higher ones fewer (H200, tiles
of 256 rows: tf32 4096 354 microseconds with 16, 350 with 8; e4m3 8192 748 and 733)."""

LEAST_STAGES = 4
"""Stages without which copies are not far enough ahead."""

STEP_BYTES = 32
"""Bytes along K of A that an instruction multiplies."""

CHANGED, TURN = {True: 24, False: 8}, 40
"""Cycles that the tensor cores of an SM lose to the loads and changes of an instruction's B, which lies along K or
along N (H200, 256x8192x8192: 54.8 and 46.0 microseconds in tiles of 256x64, 60.1 and 51.3 of 128x128); and to a K
tile."""

LEAST_TURN = {True: (0, 425), False: (160, 190)}
"""Cycles that a K tile takes at least, and for each line of A in it: from loads to the end of products (H200, 128x64:
36.9 and 38.8 microseconds with one line and with two, along N 33.3 and 31.6; 64x64 along N 32.8 and 27.4)."""


class ExchangedTile(NamedTuple):
    """A tile of a CTA: rows of D, warpgroups of 64 columns side by side, lines of A along K; in how many parts of K."""

    m: int
    groups: int
    depth: int
    parts: int = 1

    @property
    def of_cta(self) -> GroupTile:
        """The part of D."""
        return GroupTile(self.m, self.groups * COLUMNS, self.parts)


ROWS = (256, 128, 192, 64, 96, 160, 224, 32)

TILES = tuple(ExchangedTile(*sizes) for sizes in product_of(ROWS, (1, 2), (1, 2), PARTS))
"""Tiles that are tried, in order: of two that cost the same the first is taken."""


def why_not(product: Product, target: Target) -> str:
    """Why warpgroups cannot have B in registers; empty if they can."""
    rows = warpgroup_rows(product, exchanged=True)
    stored = product.b.stored
    if not any(row.runs_on(target) for row in rows):
        return f"{target} has no wgmma for {multiplied(product)}"
    if stored is None and (product.b.transposed or product.b.element.bits == 16):
        return f"B of {product.b.element.name} {'along k ' * product.b.transposed}is multiplied where it lies"
    if stored is not None and stored.element.bits < BYTE and not product.b.transposed:
        return f"integers of {stored.element.bits} bits in rows along n are not converted for warpgroups"
    if product.a.transposed and product.a.element.bits != 16:
        return f"{product.a.name} of {product.a.element.name} must lie along k"
    if product.group:
        return "the sums of groups that have scales are not those of warpgroups"
    if product.summed:
        return "it is summed over several loops"
    if product.metadata is not None:
        return "A is sparse"
    for operand in (product.a, product.b):
        if reason := not_copied(operand):
            return f"{operand.name} {reason}"
    return ""


def pays(product: Product, target: Target) -> bool:
    """Whether B in registers is faster: than fragments of both, each of whose rows of tiles converts all of B again, or
    than a launch of its own that transposes B."""
    if why_not(product, target):
        return False
    if product.b.stored is None:
        return is_large(product, laid_out=False) and not _unknown_pitches(product)
    least = LEAST_ALONG_K if product.b.transposed else LEAST_ALONG_N
    rows = LEAST_ROWS + (product.b.transposed and product.b.memory_bits == BYTE)
    return product.m >= rows and product.m * product.n * product.depth * prod(product.batch) >= least


def declined(product: Product, target: Target) -> str:
    """Why B of a product that is large enough is not changed in registers of warpgroups, which the target has; empty if
    it is, or need not be."""
    stored = product.b.stored
    changes = stored is not None or (not product.b.transposed and product.b.element.bits != 16)
    known = any(row.runs_on(target) for row in warpgroup_rows(product, exchanged=True))
    products = product.m * product.n * product.depth * prod(product.batch)
    if not changes or not known or product.metadata is not None or product.m < LEAST_ROWS or products < LEAST_ALONG_N:
        return ""
    beside = (
        "rows beside the sums are an unknown distance apart" if stored is None and _unknown_pitches(product) else ""
    )
    return why_not(product, target) or beside


def _unknown_pitches(product: Product) -> bool:
    """Whether rows of a matrix that sums start from, or that lies beside them, are an unknown distance apart.

    A lane has elements of so many rows that their addresses spill (`ptxas`, 256 rows of f32: 960 bytes).
    """
    beside = [o for o in product.epilogue_operands if not isinstance(o, VectorOperand)]
    return bool(product.dynamic) and (product.c is not None or bool(beside))


def exchanged_candidates(product: Product, target: Target, accumulate: str) -> Iterator[Schedule]:
    """Schedules with B in registers that are worth trying, those that the model likes best first."""
    if why_not(product, target):
        return
    rows = {r.shape.n: r for r in warpgroup_rows(product, exchanged=True) if r.d.name == accumulate}
    most = MOST_BESIDE_FUNCTIONS if functions(product) else max(ROWS)
    tiles = [t for t in TILES if t.m <= most and (t.parts == 1 or fits(product, t.of_cta, target))]
    for tile in sorted(tiles, key=lambda tile: cost(product, tile, target)):
        cta = (tile.m, tile.groups * COLUMNS, tile.depth * k_of(product))
        cut = TileSchedule(cta, (tile.m, COLUMNS), rows[tile.m].shape, in_registers="b")
        group = max(1, GROUP * GROUP_ROWS // max(GROUP_ROWS, tile.m))
        schedule = schedule_of_tile(product, cut, tile.of_cta, accumulate, target, group=group)
        if fitting_stages(product, schedule, target) >= LEAST_STAGES:
            yield schedule


def cost(product: Product, tile: ExchangedTile, target: Target) -> float:
    """The model's time in cycles for a product in tiles of a size."""
    changed, (first, each) = CHANGED[product.b.transposed], LEAST_TURN[product.b.transposed]
    steps = tile.depth * LINE // STEP_BYTES
    turn = max(tile.groups * steps * (tile.m / 2 + changed) + TURN, first + tile.depth * each)
    waves = -(-tile_count(product, tile.of_cta) * prod(product.batch) * tile.parts // target.sms)
    turns = -(-product.k_tiles(tile.depth * k_of(product)) // tile.parts)
    stored = tile.m * tile.groups * COLUMNS / STORED_PER_CYCLE
    loops = max(waves * turns * turn, read_bytes(product) / READ_PER_CYCLE)
    return loops + waves * (TILE_LATENCY + stored) + partial_sums(tile.of_cta)


def check_operands(schedule: Schedule, product: Product) -> None:
    """Checks what is done to the operands of a schedule with B in registers, and to its sums.

    Raises:
        ScheduleError: naming the field that does not fit.
    """
    del product
    if schedule.loop.consumers != "cooperative":
        raise ScheduleError(f"consumers = {schedule.loop.consumers}: with B in registers none take turns")
    for name in ("pack", "transpose", "padded"):
        if (given := schedule[name]) != "none":
            raise ScheduleError(f"{name} = {given}: B in registers takes operands as they lie")
    if (promoted := schedule.arithmetic.promote) != "none":
        raise ScheduleError(f"promote = {promoted}: with B in registers each step's products are added to one sum")
