"""Tiles of warpgroups that are tried for a product, in parts of K and in clusters; those in tensor memory, and where
CTAs multiply in pairs (sm_100a)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product as combinations

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.isa.wgmma import Wgmma
from ...dialect.layouts.layout import LANES
from ...dialect.layouts.tensor_memory import COLUMNS, METADATA_BLOCK, SCALES_BLOCK
from ...dialect.schedule import Schedule
from ...dialect.schedule.schedule import CLUSTER_PARTS, MOST_CTAS
from ...dialect.warp.operands import metadata_span
from ..linalg.product import Product, along_k, block
from .defaults import can_exchange, is_plain, unknown_pitches
from .warpgroup_model import (
    NARROW_RESULT,
    PAIR,
    SHORT_K,
    GroupTile,
    across_lines,
    at_once,
    held_columns,
    k_of,
    panel_of_b,
    staged_columns,
    tile_count,
)

EXCHANGED, EXCHANGED_STEP, MOST_EXCHANGED, MOST_EXCHANGED_TILE = (128, 64, 192), 16, 256, 1 << 15
"""Columns of tiles of the transposes; what their rows are multiples of, and their most rows and elements."""

PARTS, CLUSTERS = (1, 2, 3, 4, 6, 8, 12, 16), ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4))
"""Into how many parts K may be cut; clusters that may share what they copy."""

PAIRS, MOST_REPEATED = 3, 4
"""How many of `CLUSTERS` have no more CTAs than pairs; CTAs of clusters that may take several tiles (H100,
912x6080x15496 in 192x128 of the transposes: 257 microseconds by 30 clusters of 4, 299 by 66 of 2)."""

PARTS_OF_PIXELS, LONG_K = range(1, 17), 1 << 16
"""The parts of a convolution, whose tiles are few beside its K: of small images or, by weights, of a small filter. And
a K that may be cut into more parts of any product: the pixels of many images."""

WIDTHS = {128: (256, 192, 128, 224, 160, 96), 64: (256, 128, 192, 96, 64), 192: (128, 160, 176)}

TILES = (*((m, n) for m, widths in WIDTHS.items() for n in widths), (128, 64))
"""Tiles that are tried, in order: of two that cost the same the first is taken. 192x192 leaves room for three stages
only, which is slower by a fifth where rows begin within lines."""

HIGH_TILES = ((256, 160), (256, 144))
"""Tiles by two warpgroups of 128 rows, for rows that begin within lines (H100: 3328x7944x6040 419 microseconds, 499 by
160x192; of 176 columns none was faster)."""

SIDES, STEPS, LEAST_WIDTH, MOST_WIDTH = {False: (64, 128), True: (64, 128, 192, 256)}, (8, 16, 32), 16, 256
"""Of tiles that divide D evenly, and whether the transposes are multiplied: the other side; what widths are multiples
of, those of 16 and 32 for parts that meet in a cluster; the least and the most. Where there are tiles of 64x64 for more
than a wave none is narrower. Clusters of 8 of smaller tiles are slower than 2x2, all of 38 pairs, by 9 % on average."""

FEW_TILES, MOST_WAVES, MOST_BALANCED = 4, 6, 136 * 256
"""Into how many tiles at most D is divided whatever the waves; the most waves that are filled; elements of a tile
(H100, 1544x2712x1584: 23.3 microseconds by four warpgroups, 136x256, in one wave, 25.5 by 160x128)."""

NARROW_TILES = tuple(combinations((64, 128), (80, 48, 32, 16)))
"""Tiles for results of few columns."""

IN_REGISTERS = tuple(combinations((256, 128, 192, 64, 96, 160, 224, 32), (1, 2), (1, 2), (1, 2, 4, 8)))
"""Tiles with an operand in registers that are tried, in order: columns of the instruction, warpgroups side by side,
lines of K, parts of K."""

OF_THREE = (192, 3, 1, 1)
"""The same of packed weights by three warpgroups, none of which leaves a last set of few tiles (H100, mxfp4,
4096x5760x2880: 175.7 microseconds in 660 tiles, 200.0 in 1170 of 160x128x128, 185.8 in 720 of 256x128)."""

FEW_ROWS, SLICES, DEEP = 32, {False: 2, True: 4}, {4: 4, 8: 2}
"""Rows of D up to which warpgroups share the K tiles of packed weights, two of integers and four of floats, of so many
lines by their bits (H100, 16x8192x8192, microseconds with two and without: 4 bits 19.7 and 21.2, 8 bits 28.6 and 29.1;
floats with two and four: 22.9 and 21.9)."""


def tiles_of(
    product: Product, packed: str, target: Target, role: str, *, measured: bool = False
) -> Iterator[GroupTile]:
    """The tiles to consider for a product, some of whose operands are packed, or one of which is in registers. Of other
    than two operands of 16 bits along K, `HIGH_TILES` and clusters of 4 and 8 only where they are `measured`."""
    if role != "none":
        if product.b.packed and product.m <= FEW_ROWS:
            width, depth = 16 if product.m <= 16 else FEW_ROWS, DEEP[product.b.memory_bits]
            floats = product.b.stored is not None and product.b.stored.element.is_float
            for parts in (1, 2, 4, 8):
                slices = SLICES[floats and parts == 1]  # parts of K take no more than base tiles of D
                tile = GroupTile(width, ROWS, parts, (1, 1), depth, role, slices)
                if parts == 1 or fits(product, tile, target):
                    yield tile
            return
        for width, groups, depth, parts in (*IN_REGISTERS, *[OF_THREE][: product.b.packed]):
            m, n = (groups * ROWS, width) if role == "a" else (width, groups * ROWS)
            tile = GroupTile(m, n, parts, depth=depth, in_registers=role)
            if parts == 1 or fits(product, tile, target):
                yield tile
        return
    within = across_lines(product, packed)
    # Of a sparse A, no higher tiles have been measured.
    every = TILES if product.sparsity == 1 else tuple(tile for tile in TILES if tile[0] <= 2 * ROWS)
    every = (*every, *NARROW_TILES) if product.sparsity == 1 and product.n <= NARROW_RESULT else every
    tiles = [GroupTile(m, n) for m, n in every]
    plain = is_plain(product, packed)
    deep = plain and along_k(product, "a") and along_k(product, "b")
    if deep and product.k > SHORT_K and not product.batch_invariant:
        tiles = [*dict.fromkeys((*tiles, *balanced_tiles(product, target)))]
    elif packed == "none":  # no others of packed operands were measured
        tiles += [GroupTile(m, n, exchanged=True) for m, n in exchanged_tiles(product)]
    if (measured or deep) and plain and within and not product.batch_invariant:
        tiles += [GroupTile(m, n, rows=2 * ROWS) for m, n in HIGH_TILES]
    largest = None if measured or deep else PAIRS
    clusters = CLUSTERS[:largest] if within and product.second is None else CLUSTERS[:1]
    for parts, cluster, tile, joined in combinations(parts_of(product), clusters, tiles, (False, True)[: 1 + deep]):
        tile = tile._replace(parts=parts, cluster=cluster, joined=joined)
        if (parts, cluster, joined) == (1, (1, 1), False) or fits(product, tile, target):
            yield tile


def balanced_tiles(product: Product, target: Target) -> Iterator[GroupTile]:
    """Tiles whose widths divide D evenly: into few, or into as many as run in so many waves, of clusters of four too,
    or in a wave with so many parts of K."""
    fours = at_once(GroupTile(ROWS, ROWS, cluster=(PAIR, PAIR)), target)
    limits = [ctas * waves for ctas in (target.sms, fours) for waves in range(1, MOST_WAVES + 1)]
    limits += [target.sms // parts for parts in PARTS]
    least = ROWS if product.tiles(ROWS, ROWS) > target.sms else LEAST_WIDTH
    for exchanged, (along, across) in enumerate(((product.n, product.m), (product.m, product.n))):
        for side in SIDES[bool(exchanged)]:
            counts = {limit // -(-across // side) for limit in limits} | {*range(1, FEW_TILES + 1)}
            even = {-(-along // (count * step)) * step for count in counts if count for step in STEPS}
            for width in sorted({max(LEAST_WIDTH, width) for width in even}, reverse=True):
                staged = exchanged or staged_columns(width, product.d.element.bits)
                if staged and least <= width <= min(MOST_WIDTH, MOST_BALANCED // side):
                    yield GroupTile(*((width, side) if exchanged else (side, width)), exchanged=bool(exchanged))


def exchanged_tiles(product: Product) -> Iterator[tuple[int, int]]:
    """Tiles of the transposes: those that divide the rows of D with little beyond."""
    is_static = product.is_known("m") and product.k > SHORT_K and not unknown_pitches(product)
    if not (can_exchange(product) and is_static) or product.ends is not None or product.batch_invariant:
        return
    few = -(-product.m // EXCHANGED_STEP) * EXCHANGED_STEP
    rows = (m for m in range(min(few, MOST_EXCHANGED), 0, -EXCHANGED_STEP) if m % ROWS and (m > ROWS or few <= ROWS))
    yield from ((m, n) for m, n in combinations(rows, EXCHANGED) if m * n <= MOST_EXCHANGED_TILE)


def tiles_of_blocks(product: Product, tiles: Sequence[GroupTile], target: Target) -> Sequence[GroupTile]:
    """The tiles of a product with scaled blocks: within a block along N, of 128 rows for each warpgroup where there are
    many (H100, 8192: 256x128 1313 TFLOP/s, in pairs 1283, 128x128 in pairs 1218, 192x128 1179). Pairs along N read A
    once (the same in turns: 4096x7168x4096 186.0 microseconds for 187.1, 4096x4096x7168 183.4 for 183.7)."""
    columns = product.blocks[1]
    tiles = [t for t in tiles if t.m <= 2 * ROWS and (columns == 1 or columns % t.n == 0)]
    many = [t for t in tiles if t.m == 2 * ROWS and tile_count(product, t) > target.sms]
    pairs = [t._replace(cluster=(2, 1)) for t in many]
    wide = [t._replace(m=2 * t.m, rows=2 * t.rows) for t in many if t.n == 2 * ROWS]
    high = [t._replace(cluster=cluster) for t in wide for cluster in ((1, 2), (1, 1))]
    return [t for t in (*pairs, *high) if fits(product, t, target)] or [t._replace(depth=2) for t in tiles]


def parts_of(product: Product) -> Iterable[int]:
    """Into how many parts K is tried to be cut."""
    return PARTS_OF_PIXELS if product.convolves else (*PARTS, 32) if product.depth >= LONG_K else PARTS


def fits(product: Product, tile: GroupTile, target: Target) -> bool:
    """Whether there are enough tiles for a cluster; with several parts of K, whether all CTAs run at once and none is
    empty."""
    indivisible = (product.batch and not product.convolves) or product.batch_invariant
    (high, wide), together = tile.cluster, tile.together
    full = product.m > tile.m * (high - 1) and product.n > tile.n * (wide - 1)
    if product.dynamic or not full or (tile.parts > 1 and indivisible) or together > MOST_CTAS:
        return False
    if tile.joined and (tile.parts not in CLUSTER_PARTS or tile.width % (8 * tile.parts) or tile.rows > ROWS):
        return False
    few = tile.m * tile.n <= ROWS * ROWS and high * wide == MOST_CTAS
    shared = not few if together > PAIR else target.sms % together == 0
    if tile.parts == 1 and together <= MOST_REPEATED:
        return shared
    deep = tile.parts == 1 or product.k_tiles(k_of(product)) >= 2 * tile.parts
    return shared and deep and 0 < tile_count(product, tile) * tile.parts <= at_once(tile, target)


# Tiles in tensor memory.

MOST_ADDED = 128
"""Columns of the sums of a warpgroup, of 128 rows: with both of a tile of 128x256 ptxas 13.5 spills nothing."""

COLUMNS_OF_PAIR = {True: 64, False: 128}
"""Columns of a tile of a pair come in steps of so many, of floats or of integers: N of a warpgroup's half in steps of
the instruction's of two CTAs. PTX ISA 9.7.16.2.1."""

LEAST_STAGES = 4
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
    return next((stages for stages in left if stages >= LEAST_STAGES), left[-1])


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
        if tile.exchanged or tile.cluster != (1, 1) or tile.m > 2 * ROWS or wide > MOST_ADDED:
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
