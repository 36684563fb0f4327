"""What a product takes in tiles of warpgroups, as a model has it: cycles of an H200, where its numbers were measured;
and the order in which CTAs take tiles. A K tile takes as long as its products, or as what arrives for it; a row of a
box that begins within a line of memory is two requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product as combinations
from math import gcd, log2, prod, sqrt
from typing import NamedTuple

from ...dialect.isa.form import FP8
from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.isa.wgmma import panel_columns
from ...dialect.schedule import Schedule, roles
from ...dialect.schedule.schedule import CLUSTER_PARTS, MAX_CTAS
from ...dialect.warp.elements import M
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product, along_k, shared_bits
from .defaults import can_exchange, can_slice, is_plain, is_ragged, unknown_pitches
from .model import DRAWN, LISTED, Fit

LINE = 128
"""Bytes of K of a tile: the widest swizzle, a line of shared memory, and one of memory."""

BY_WARPS, THIN_ROWS, MANY_WEIGHTS, SHORT_K = 16, 32, 1 << 24, 32
"""Rows of D that fragments multiply with so many elements of B or more, rows that warpgroups do. K of fragments."""

MULTIPLIED_BYTES = 4096
"""Bytes of K, of an element of D each, that an SM multiplies in a cycle: 2048 elements of 16 bits."""

EXCHANGED, EXCHANGED_STEP, MAX_EXCHANGED, MAX_EXCHANGED_TILE = (128, 64, 192), 16, 256, 176 * 192
"""Columns of tiles of the transposes; the step of their rows, in which D is staged; their most rows and elements."""

NOT_OVERLAPPED = 0.25
"""The part of the shorter of two things that go on at once, products and memory, that the longer one does not cover."""

START_NS, WRITTEN = 1176, 1.2
"""What a launch takes beside, in nanoseconds, and how many times as long a written byte takes as one that is read."""

HALF_LINES = 1.05
"""By how much a K tile takes longer whose rows along N are no whole lines: 4 to 13 % in tiles of 128x224."""

NARROW_ROW = 2
"""Cycles in which a row of a box arrives that is less than a line, or a line beside such (H100)."""

OUTSIDE, OF_MANY = 8, 24
"""Cycles that a row of a box takes that lies beyond the matrix, where D is no higher or no wider than a tile; of one
that goes to several CTAs each has a part. And the K tiles from which on they count."""

MAX_HELD = 1.1
"""How many times the columns of a tile of B may be copied for whole lines: 192 for 176 (4104)."""

NARROW_PANELS, NARROW_LINE, NARROW_STORES, HALF_LINE, SHORT_STORES = 1.1, 32, 1.3, 64, 1.5
"""By how much a K tile, and the store of D, take longer by panels of no more bytes; and where 16 rows are staged."""

SHARED_BYTES_PER_CYCLE = 128
"""Bytes that tensor copies write to shared memory, or instructions read from it, in a cycle."""

STEP_BYTES = 32
"""Bytes along K that an instruction multiplies."""

ARRIVING, ARRIVING_AT_ONE, IN_SHARED_MEMORY = 9200, 95, 0.2
"""Bytes of lines that L2 gives all SMs in a cycle, and one of them at most; and the part of the cycles in which shared
memory is written and read that adds to those of arriving. These and `MULTICAST` are fitted to `bench/odd.txt`."""

ARRIVING_IN_LINES = 7500
"""The same of whole lines for the tiles of several waves; those of one wave ask for less, as neighbours ask at once."""

MULTICAST, SHARED_TILE = 1.2, 16384
"""What a line costs that goes to two CTAs, of what one line costs; bytes of a tile from which on that is less than two
lines (of less, neighbours ask L2 for the same at once, but for other lines beside parts of K)."""

CHANGED, TURN, PROMOTED = {True: 24, False: 8}, 40, 0.8
"""Cycles that the tensor cores of an SM lose to the loads and changes of an instruction's operand, B which lies along K
or along N; to a K tile; and to sums that are promoted, for each of their columns."""

MIN_TURN = {True: (0, 425), False: (160, 190)}
"""Cycles that a K tile takes at least, and for each line of K in it: from loads to the end of products."""

PARTS, CLUSTERS = (1, 2, 3, 4, 6, 8, 12, 16), ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4))
"""Into how many parts K may be cut; clusters that may share what they copy."""

PAIR, PAIRS, MAX_REPEATED, IN_CLUSTERS = 2, 3, 4, (10, 11)
"""CTAs of the clusters that all SMs run, and how many of `CLUSTERS` have no more; of clusters that may take several
tiles; the part of SMs that larger ones than pairs run on at once (H100: 30 clusters of 4 and 15 of 8 on 132 SMs)."""

PARTS_MARGIN, EXCHANGED_MARGIN = 1.02, 1.02
"""By how much parts of K, and tiles of the transposes, must be better."""

PARTS_OF_PIXELS, LONG_K = range(1, 17), 1 << 16
"""The parts of a convolution, which has few tiles; and a K that any product may cut into more."""

JOINED, JOINED_BYTES, ARRIVING_JOINED = 1500, 16, {True: 8000, False: 4200}
"""Cycles in which parts meet in a cluster, bytes of a tile's sums that a CTA sends and adds in a cycle, and `ARRIVING`,
where rows begin within lines and otherwise, of CTAs beside each other that ask for other parts of K."""

THREE_GROUPS, MAX_OF_THREE = 1.08, 200
"""By how much K tiles of a convolution take longer by three warpgroups than the model says (H100), and the most columns
of an instruction of three: 208 take 130 of the 128 registers of a thread (C7602)."""


class GroupTile(NamedTuple):
    """A tile of a CTA, (M, N), each 64 rows of which a warpgroup multiplies, or 64 columns with B `in_registers`, or if
    the transposes are multiplied (`exchanged`); in how many parts of K, in what clusters, how many lines of K deep, and
    in how many slices of a K tile. A warpgroup may have more `rows`; the parts may be CTAs of a cluster (`joined`)."""

    m: int
    n: int
    parts: int = 1
    cluster: tuple[int, int] = (1, 1)
    depth: int = 1
    in_registers: str = "none"
    slices: int = 1
    exchanged: bool = False
    rows: int = ROWS
    joined: bool = False

    @staticmethod
    def of(schedule: Schedule) -> GroupTile:
        """The tile of a schedule of warpgroups."""
        joined, rows = schedule.cluster_parts > 1, ROWS if schedule.exchanged else schedule.warp[0]
        tile = GroupTile(*schedule.cta[:2], schedule.split_k, schedule.cluster, exchanged=schedule.multiplied == "ba")
        role, slices = schedule.in_registers, schedule.sliced_k
        return tile._replace(in_registers=role, slices=slices, rows=rows, joined=joined)

    @property
    def together(self) -> int:
        """CTAs of a cluster."""
        return prod(self.cluster) * (self.parts if self.joined else 1)

    @property
    def transposed(self) -> bool:
        """Whether the instruction computes D^T."""
        return self.in_registers == "b" or self.exchanged

    @property
    def width(self) -> int:
        """Columns of the instruction."""
        return self.m if self.transposed else self.n

    @property
    def groups(self) -> int:
        """Warpgroups that multiply the tile."""
        return self.m * self.n // (self.width * self.rows) * self.slices

    @property
    def by_halves(self) -> bool:
        """Whether each warpgroup multiplies half of its columns after the other."""
        return self.groups > 2 and self.width > MAX_OF_THREE


WIDTHS = {128: (256, 192, 128, 224, 160, 96), 64: (256, 128, 192, 96, 64), 192: (128, 160, 176)}

TILES = (*((m, n) for m, widths in WIDTHS.items() for n in widths), (128, 64))
"""Tiles that are tried, in order: of two that cost the same the first is taken. 192x192 leaves room for three stages
only, which is slower by a fifth where rows begin within lines."""

MORE_TILES, BY_FOUR = {256: (208, 192, 160, 144, 128), 192: (208, 112), 128: (208,)}, (136, 256)
"""Tiles by two warpgroups of 128 rows, by three, and by two, for rows that begin within lines, where others leave SMs
idle; one of the transposes by four, for D of more elements than a wave of 128x128."""

FEW_WIDTHS = (48, 32, 16)
"""Widths of the instructions of tiles where those of 64x64 are one wave."""

NARROW_TILES, NARROW_RESULT = tuple(combinations((64, 128), (80, 48, 32, 16))), 128
"""Tiles for results of few columns."""

IN_REGISTERS = tuple(combinations((256, 128, 192, 64, 96, 160, 224, 32), (1, 2), (1, 2), (1, 2, 4, 8)))
"""Tiles with an operand in registers that are tried, in order: columns of the instruction, warpgroups side by side,
lines of K, parts of K."""

OF_THREE = (192, 3, 1, 1)
"""The same of packed weights by three warpgroups, none of which leaves a last set of few tiles."""

FEW_ROWS, SLICES, DEEP, DEEPER_K, OF_GROUPS, SIDE_BY_SIDE = 32, {False: 2, True: 4}, {4: 4, 8: 2}, 1 << 13, 128, 1.65
"""Rows of D up to which warpgroups share the K tiles of packed weights, two of integers and four of floats, of so many
lines by their bits. Twice as deep by 4: 16 rows, 4 bits, such K, integers with such groups. A turn of two side by side
is so much longer."""


def tiles_of(
    product: Product, packed: str, target: Target, role: str, *, measured: bool = False
) -> Iterator[GroupTile]:
    """The tiles to consider for a product, some of whose operands are packed, or one of which is in registers. Of other
    than two operands of 16 bits along K, `MORE_TILES` and (but of convolutions) clusters of 4 and 8 if `measured`."""
    if role != "none":
        if can_slice(product, role) and product.m <= FEW_ROWS:
            width, bits = 16 if product.m <= 16 else FEW_ROWS, product.b.memory_bits
            floats = product.b.stored is not None and product.b.stored.element.is_float
            along, few = along_k(product, "a"), (width, bits) == (16, 4) and product.k >= DEEPER_K
            deeper = along and few and (floats or product.group % OF_GROUPS == 0)
            for parts in (1, 2, 4, 8):
                twice = 1 + (parts == 1 and deeper)
                slices = SLICES[(floats or twice > 1) and parts == 1]  # parts of K take no more than base tiles of D
                tile = GroupTile(width, ROWS, parts, (1, 1), twice * DEEP[bits], role, slices)
                if parts == 1 or fits(product, tile, target):
                    yield tile
            if along:
                yield GroupTile(width, 2 * ROWS, depth=DEEP[bits], in_registers=role, slices=SLICES[False])
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
    plain, deep = is_plain(product, packed), is_deep(product, packed)
    if packed == "none":  # no others of packed operands were measured
        tiles += [GroupTile(m, n, exchanged=True) for m, n in exchanged_tiles(product)]
    if (measured or deep) and plain and within and not product.batch_invariant:
        tiles += [GroupTile(m, n, rows=ROWS * (1 + (m > 3 * ROWS))) for m, widths in MORE_TILES.items() for n in widths]
        large = product.m > 2 * ROWS and product.m * product.n > 4 * ROWS**2 * target.sms and product.k > SHORT_K
        tiles += [GroupTile(*BY_FOUR, exchanged=True)] * (deep and large and not is_ragged(product))
    if deep and not product.batch_invariant and product.k > SHORT_K and product.tiles(ROWS, ROWS) <= target.sms:
        tiles += [GroupTile(ROWS, n) for n in FEW_WIDTHS]
        tiles += [GroupTile(m, ROWS, exchanged=True) for m in FEW_WIDTHS]
    largest = None if measured or deep or product.convolves else PAIRS
    clusters = CLUSTERS[:largest] if within and product.second is None else CLUSTERS[:1]
    fewest = min(product.tiles(tile.m, tile.n) for tile in tiles)
    counts = [parts for parts in parts_of(product) if parts == 1 or fewest * parts <= target.sms]
    for parts, cluster, tile, joined in combinations(counts, clusters, tiles, (False, True)[: 1 + deep]):
        tile = tile._replace(parts=parts, cluster=cluster, joined=joined)
        if (parts, cluster, joined) == (1, (1, 1), False) or fits(product, tile, target):
            yield tile


def is_deep(product: Product, packed: str) -> bool:
    """Whether a plain product has two operands along K, as it lies."""
    return is_plain(product, packed) and along_k(product, "a") and along_k(product, "b")


def exchanged_tiles(product: Product) -> Iterator[tuple[int, int]]:
    """Tiles of the transposes: those that divide the rows of D with little beyond."""
    is_static = product.is_known("m") and product.k > SHORT_K and not unknown_pitches(product)
    by_lanes = product.m > ROWS and is_ragged(product)  # warps store its rows
    if not can_exchange(product) or not is_static or by_lanes or product.ends is not None or product.batch_invariant:
        return
    few = -(-product.m // EXCHANGED_STEP) * EXCHANGED_STEP
    rows = (m for m in range(min(few, MAX_EXCHANGED), 0, -EXCHANGED_STEP) if m % ROWS and (m > ROWS or few <= ROWS))
    yield from ((m, n) for m, n in combinations(rows, EXCHANGED) if m * n <= MAX_EXCHANGED_TILE)


def tiles_of_blocks(product: Product, tiles: Sequence[GroupTile], target: Target) -> Sequence[GroupTile]:
    """The tiles of a product with scaled blocks: within a block along N, of 128 rows for each warpgroup where there are
    many. Pairs along N read A once."""
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
    """Whether there are enough tiles for a cluster; of parts of K, whether all CTAs run at once, and none is empty."""
    indivisible = (product.batch and not product.convolves) or product.batch_invariant
    (high, wide), together = tile.cluster, tile.together
    full = product.m > tile.m * (high - 1) and product.n > tile.n * (wide - 1)
    if product.dynamic or not full or (tile.parts > 1 and indivisible) or together > MAX_CTAS:
        return False
    whole = tile.width % (8 * tile.parts) == 0 and tile.rows == ROWS and not tile.by_halves
    if tile.joined and (tile.parts not in CLUSTER_PARTS or not whole):
        return False
    few = tile.m * tile.n <= ROWS * ROWS and high * wide == MAX_CTAS
    shared = not (few or tile.m % (8 * wide) or tile.n % (8 * high)) if together > PAIR else target.sms % together == 0
    if tile.parts == 1 and together <= MAX_REPEATED:
        return shared
    deep = tile.parts == 1 or product.k_tiles(k_of(product)) >= 2 * tile.parts
    return shared and deep and 0 < tile_count(product, tile) * tile.parts <= at_once(tile, target)


def at_once(tile: GroupTile, target: Target) -> int:
    """CTAs that run at the same time."""
    in_clusters = target.sms * IN_CLUSTERS[0] // IN_CLUSTERS[1]
    return target.sms if tile.together <= PAIR else in_clusters // tile.together * tile.together


def k_of(product: Product) -> int:
    """K of a tile, in elements."""
    return LINE * 8 // shared_bits(product, product.a)


def tile_count(product: Product, tile: GroupTile) -> int:
    """The number of tiles of D in all matrices of a batch, rounded up to whole clusters."""
    return product.tiles(tile.m * tile.cluster[0], tile.n * tile.cluster[1]) * prod(tile.cluster)


def held_columns(product: Product, columns: int) -> int:
    """The columns of a tile of B in shared memory: if B lies by rows, rounded up to lines, where that adds few."""
    per_line = LINE * 8 // product.b.element.memory_bits
    in_lines = -(-columns // per_line) * per_line
    plain = product.b.stored is None and product.second is None and not product.b.transposed
    return in_lines if plain and in_lines <= MAX_HELD * columns else columns


def panel_of_b(product: Product, columns: int) -> int:
    """Columns of a panel of a tile of B by rows: the widest swizzle whose lines divide the tile's."""
    bits = product.b.element.memory_bits
    line = held_columns(product, columns) * bits // 8
    return min(LINE, line & -line) * 8 // bits


def narrow_rows(product: Product, tile: GroupTile) -> float:
    """Rows of the boxes of a K tile, if some are less than a line, of operands that lie across K; otherwise 0."""
    (high, wide), columns, bits = tile.cluster, held_columns(product, tile.n), product.a.element.memory_bits
    of_a = 1 if along_k(product, "a") else LINE * 8 // bits // panel_columns(tile.m, bits)
    of_b = 1 if along_k(product, "b") else LINE * 8 // bits // panel_of_b(product, tile.n)
    return tile.m * of_a / wide + columns * of_b / high if max(of_a, of_b) > 1 else 0.0


def cost(product: Product, tile: GroupTile, packed: str, target: Target) -> float:
    """The model's time in cycles for a product in tiles of a size."""
    if tile.in_registers != "none":
        return _cost_in_registers(product, tile, target)
    tiles = tile_count(product, tile)
    ctas = min(running := at_once(tile, target), tiles * tile.parts)
    fit = LISTED if product.convolves else fit_of(target)
    (high, wide), turns, storing = tile.cluster, product.k_tiles(k_of(product)), tile.m * tile.n / fit.stored
    multiplying = tile.m * tile.n * LINE / MULTIPLIED_BYTES / product.sparsity
    if product.sparsity > 1:  # for which shared memory may be slower than tensor cores
        multiplying = max(multiplying, _in_shared_memory(product, tile, tile.n))
    outside = max(0, tile.m - product.m) / sqrt(wide) + max(0, tile.n - product.n) / sqrt(high)
    step = max(multiplying, fit.least_step + OUTSIDE * outside * (turns >= OF_MANY * tile.parts)) + fit.overhead
    step = max(step, NARROW_ROW * narrow_rows(product, tile))
    b_by_rows = along_k(product, "a") and not along_k(product, "b")
    if b_by_rows and panel_of_b(product, tile.n) * product.b.element.memory_bits < 8 * LINE:
        step *= HALF_LINES
    waves = -(-tiles // running)
    if across_lines(product, packed) or tile.joined or (waves > 1 and is_plain(product, packed)):
        step = max(step, _arriving(product, tile, packed, ctas))
    if product.convolves and tile.groups > 2:
        step *= THREE_GROUPS
    panel = panel_columns(tile.n // product.products, product.d.element.bits) * product.d.element.bits // 8
    step *= NARROW_PANELS if panel <= NARROW_LINE else 1
    storing *= NARROW_STORES if panel <= HALF_LINE and not product.convolves else 1
    loops = waves * -(-turns // tile.parts) * step
    storing *= (SHORT_STORES if tile.exchanged and tile.m % 32 else 1.0) / (tile.parts if tile.joined else 1)
    ending = waves * (fit.latency + storing) + (meeting := partial_sums(tile, fit))
    if product.convolves:
        return ending + (max(loops, read_bytes(product) / fit.memory) if tile.parts > 1 else loops)
    stored = product.m * product.n // product.products * product.d.element.bits / 8
    memory = (read_bytes(product) + WRITTEN * stored) * product.matrices / fit.memory + meeting
    margin = (PARTS_MARGIN if tile.parts > 1 else 1.0) * (EXCHANGED_MARGIN if tile.exchanged else 1.0)
    return margin * (max(loops + ending, memory) + NOT_OVERLAPPED * min(loops + ending, memory))


def fit_of(target: Target) -> Fit:
    """The constants for a target: those of the device that was measured, or else of an H100."""
    return Fit(*target.timing) if target.timing else DRAWN


def nanoseconds(cycles: float, target: Target) -> float:
    """The time of a launch of so many cycles of the model."""
    return START_NS + cycles / fit_of(target).per_ns


def _cost_in_registers(product: Product, tile: GroupTile, target: Target) -> float:
    """The same with an operand in registers."""
    lies = along_k(product, tile.in_registers)
    changed, (first, each) = CHANGED[lies], MIN_TURN[lies]
    steps = tile.depth * LINE // STEP_BYTES // tile.slices
    turn = max(tile.groups * steps * (tile.width / 2 + changed) + TURN, first + tile.depth * each)
    turn *= SIDE_BY_SIDE ** (tile.groups // tile.slices - 1) if tile.slices > 1 else 1
    turn += PROMOTED * tile.groups * tile.width * (product.a.element.name in FP8 and not product.short_sums)
    waves = -(-tile_count(product, tile) * tile.parts // target.sms)
    turns = -(-product.k_tiles(tile.depth * k_of(product)) // tile.parts)
    stored = product.m * product.n * product.d.element.bits / 8
    loops = max(waves * turns * turn, (read_bytes(product) + WRITTEN * stored) / LISTED.memory)
    return loops + waves * (LISTED.latency + tile.m * tile.n / LISTED.stored) + partial_sums(tile, LISTED)


def reads_weights(product: Product, *, above: int = BY_WARPS) -> bool:
    """Whether a product of few rows, of more than `above`, is limited by reading its weights."""
    many = product.n > NARROW_RESULT and product.n * product.k >= MANY_WEIGHTS
    return above < product.m <= THIN_ROWS and many and not across_lines(product, "none")


def read_bytes(product: Product) -> float:
    """Bytes of A and B, which memory gives however K is cut."""
    rows = product.m * product.k // product.sparsity * product.a.element.memory_bits
    return (rows + product.k * product.n * product.b.memory_bits) / 8


def partial_sums(tile: GroupTile, fit: Fit) -> float:
    """Cycles to add up the sums of all parts, of 4 bytes for each element."""
    sums = 4 * tile.m * tile.n
    if tile.joined:
        return JOINED + sums / JOINED_BYTES
    return 0.0 if tile.parts == 1 else fit.summed + sums / fit.written + tile.parts * sums / fit.read


def _in_shared_memory(product: Product, tile: GroupTile, columns: int) -> float:
    """Cycles in which shared memory takes the tiles of a K step, B with `columns` columns, and delivers them to the
    instructions of each 64 rows."""
    stored = LINE // product.sparsity
    written = tile.m * stored + columns * LINE
    read = tile.m // ROWS * (ROWS * stored + tile.n * LINE)
    return (written + read) / SHARED_BYTES_PER_CYCLE


def _pitch(operand: MatrixOperand, role: str, packed: str) -> int:
    """Bytes that the place of each row is a multiple of, up to a line."""
    return LINE if role in roles(packed) else gcd(operand.pitch_bits // 8, LINE)


def across_lines(product: Product, packed: str) -> bool:
    """Whether rows of A or B begin within lines."""
    return min(_pitch(product.a, "a", packed), _pitch(product.b, "b", packed)) < LINE


def _arriving(product: Product, tile: GroupTile, packed: str, ctas: int) -> float:
    """Cycles in which the lines of a K tile arrive at `ctas` SMs."""
    down, across = tile.cluster
    panel = panel_of_b(product, tile.n) * product.b.element.memory_bits // 8
    asked, own, apart = 0.0, 0.0, tile.parts > 1 and is_deep(product, packed)
    for operand, role, size, wide, shared in (
        (product.a, "a", tile.m // product.sparsity, LINE, across),
        (product.b, "b", held_columns(product, tile.n), LINE if product.b.transposed else panel, down),
    ):
        rows = size * LINE / wide
        lines = rows * (1 + max(0, wide - _pitch(operand, role, packed)) / LINE) / shared
        own += lines + rows * wide / LINE * (shared - 1) / shared
        asked += lines * (1 if shared == 1 else MULTICAST if apart or size * LINE >= SHARED_TILE else shared)
    in_shared = IN_SHARED_MEMORY * _in_shared_memory(product, tile, held_columns(product, tile.n))
    across = across_lines(product, packed)
    arriving = ARRIVING_JOINED[across] if tile.joined else ARRIVING if across else ARRIVING_IN_LINES
    return LINE * max(asked * ctas / arriving, own / ARRIVING_AT_ONE) + in_shared


# The order of tiles, as CTAs take them.

GROUP, SCALED_GROUP = 16, 8
"""Rows of tiles walked together, and of blocks with scales."""

MANY_GROUP, MANY_ROWS = 32, 512
"""The same of experts with more rows than so many each."""

NARROW_GROUP, NARROW, STORING_GROUP, STORING_K = 4, 12, 2, 200
"""The same where there are more rows of tiles than that, and no more than so many columns; of several waves with no
larger K, which mostly store D."""

NEIGHBOURS = 8
"""Tiles of a single wave that lie beside each other in a group as nearly a square, which the SMs that are neighbours
ask L2 for once, in each part of K as well."""

GROUP_ROWS = 128
"""Rows of tiles of which as many are walked as of other warpgroups', of higher ones fewer."""


def has_small_groups(product: Product) -> bool:
    """Whether groups have two tiles of rows, or one K tile: low and wide tiles then read, or store, faster."""
    if product.op.grouped == M:
        return ROWS < product.m <= 2 * ROWS and product.is_known("k")
    return product.op.grouped is not None and product.k <= k_of(product)


def group_of(product: Product, tile: GroupTile, target: Target) -> int:
    """The number of rows of tiles that CTAs walk as one group."""
    if product.op.grouped is not None and product.op.grouped != M and has_small_groups(product):
        return 1
    if product.op.grouped == M and product.is_known("k") and product.m > MANY_ROWS:
        return MANY_GROUP
    if product.block_scales:
        return SCALED_GROUP
    plain = is_plain(product, "none")
    wave = (product.convolves or plain) and tile_count(product, tile) <= target.sms
    if tile.together == 1 and wave:
        return 1 << max(0, round(log2(NEIGHBOURS * tile.n / tile.m) / 2))
    if plain and not wave and product.is_known("k") and product.k <= STORING_K:
        return STORING_GROUP
    if tile.transposed:
        return max(1, GROUP * GROUP_ROWS // max(GROUP_ROWS, tile.width))
    narrow = product.m > tile.m * GROUP and product.n <= tile.n * NARROW
    return NARROW_GROUP if narrow else GROUP
