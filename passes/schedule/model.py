"""The time of a product in tiles, with the constants measured on an H200, and what packing an operand costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...dialect.isa.form import FP8
from ...dialect.isa.form import ProductForm as Row
from ...dialect.isa.mma import Mma
from ...dialect.isa.row import KIB, Target
from ...dialect.schedule import Schedule, roles
from ...dialect.warp.attributes import BYTE
from ...dialect.warp.views import PagedOp
from ..linalg.operand import WIDEST, MatrixOperand
from ..linalg.product import Product

# What was measured on one NVIDIA H200, by which schedules are chosen for every target.
#
# Cycles are those of the model, of which the chip does 3.7 in a nanosecond; only ratios matter. Where no other place is
# named, `bench/notes/` has the measurement.

RATES = {"tf32": 0.5, "f64": 0.1, "s8": 2.0, "u8": 2.0, "e4m3": 2.0, "e5m2": 2.0, "b1": 16.0}
"""How many times as fast as f16 a type is multiplied, for those that differ."""

SPARSE_RATE = 1.5
"""How many times as fast as a dense product, zeros counted, one with a sparse A is: 941 and 625 TFLOP/s."""

WIDENING = 0.09
"""What an instruction that widens operands costs, of what a product of f16 does (`fp8_as`)."""

NOT_OVERLAPPED = 0.1
"""The part of the shorter of two things that go on at once, products and reads of memory, that the longer one does not
cover. Not measured by itself."""

START_NS, COMPARED_PER_NS, STORED_PER_NS = 860, {True: 2.4, False: 1.9}, {True: 2900, False: 700}
"""What a launch takes beside, cycles of the model in a nanosecond where rows of A and B are whole lines, or less than
one, and otherwise, and bytes of D that memory takes in it, by whole lines and otherwise."""

TALL, TALL_STORES = (256, 128), 1.1
"""A tile, and by how much it must be better where D has more elements than A and B, which its mirror image stores in
longer rows."""

SHORT_ROWS, STORING_K = {48: 1.3, 56: 1.3}, 128
"""The same of tiles whose warps have so many columns, no whole lines of D, and the K up to which it was measured."""

COST_STEP = 40
"""Cycles by which tiles must differ for one of them to be better."""

BETWEEN_MARGIN = 1.03
"""By how much tiles of `BETWEEN_TILES` must be better, for their edges rarely come out even."""

MULTIPLY_ADDS_PER_CYCLE = 640
"""Multiply-adds of the tensor cores of an SM."""

BYTES_PER_CYCLE, BLOCKING_BYTES_PER_CYCLE = 32, 60
"""Bytes that reach an SM from L2; that copies write to shared memory and warps read from it."""

CTA_LATENCY = 2000
"""What a CTA takes to fill its pipeline and to write its tile."""

SLICES_BYTES_PER_CYCLE = 16
"""Bytes of their sums that slices write to shared memory and read."""

DRIFTING = 0.93
"""How much less time a CTA takes in whose K loop warps wait only for what they need (`decoupled`)."""

MIN_PER_TILE, MIN_PER_STEP = 250, 40
"""A K tile takes as much however small it is, with as much for each step of a warp, one after the other: barrier, wait
and the way from shared memory to the product."""

MEMORY_BYTES_PER_CYCLE = 850
"""Bytes that all SMs together read from memory, where each is read once."""

MEMORY_LATENCY = 10_500
"""How long what an SM has asked for is on its way, when all SMs read."""

LINE_BITS = 1024
"""Bits of a line of memory, 32 bytes of which are a sector."""

MEMORY_PIECE = 64
"""Bytes that memory gives at least."""

PARTIAL_SUMS_LATENCY = 5_500
"""What it takes, however few they are, to write the sums of a part, to be counted, and to read those of others."""

WRITTEN_BYTES_PER_CYCLE, READ_BYTES_PER_CYCLE = 5, 40
"""Bytes of its sums that a CTA writes, and of all sums that the last one of a tile reads, in a cycle."""

REGISTER_COPY = 0.47
"""Cycles of an SM for one element that passes through registers."""

REGISTER_TURN, TURN_BYTES = 5000, 256
"""What loads wait for memory that are copied through registers, for each so many bytes of K."""

NARROW_COPY, NARROW_OF_LARGE = 0.19, 2
"""Cycles of an SM for one asynchronous copy of less than 16 bytes, and how many times as many it takes where slices of
64x64 leave its address no registers."""

PACK_LATENCY = 8500
"""Another launch, which overlaps, and the way through memory and back."""

PACK_BYTES_PER_CYCLE = 9
"""Bytes read and written by an SM."""

COPIED_DEPTH = 192
"""Products for each element of D from which it is faster to copy A and B to aligned rows than to load each element."""

MAX_STAGES = 8
"""Stages beyond which more were no faster."""

FEW_ROWS = 64
"""Rows of A up to which reading B takes the time."""

LARGEST_TILE, FULL_WAVE = (128, 256), 0.75
"""The tiles that are the fastest if they keep SMs busy, and the part of SMs that they must keep busy."""

SLACK = 3
"""By how many stages the slowest warp may fall behind the fastest: H200, bf16 4096, 3 is as good as 2 and 4."""

LOOP_WARPS = 8
"""Warps of a CTA, two for each scheduler, for which waits at mbarriers pay."""

MIN_AHEAD = 96 * KIB
"""Bytes that should be on their way: of stages of 24 KiB, 3 are too few and 4 as good as more (H200, bf16 4096)."""

LONG_STEP = 64 * 48
"""Elements of a warp tile whose products take longer than a wait at a mbarrier (H200, bf16 and s8)."""

IN_FLIGHT, IN_FLIGHT_FROM_L2 = 128 * KIB, 96 * KIB
"""Bytes on the way to an SM beyond which more do not help, where memory binds, and where it does not."""

IN_FLIGHT_CONVERTED = 60 * KIB
"""The same of a product that converts weights: what more stages ask for delays the first tile."""

WIDE_K = 32
"""The least K of tiles of wide elements that pays (H200, 4096: tf32 249 TFLOP/s, 241 with 16; f64 58, 50 with 16)."""


# What tiles of warpgroups take (`warpgroup_model.py`), of which the cycles are others.


class Fit(NamedTuple):
    """Fitted constants. In cycles: the least time of a K tile, its time besides products, a tile's start and end, and
    the meeting of parts of K. Per cycle: elements of D that an SM stores, bytes of sums that a CTA writes, bytes that
    the last one reads, and bytes that all SMs read from and write to memory. Last, cycles in a nanosecond.

    `warploom tune --device` fits them to another device (`Target.timing`)."""

    least_step: float
    overhead: float
    latency: float
    summed: float
    stored: float
    written: float
    read: float
    memory: float
    per_ns: float = 1.945


DRAWN = Fit(206, 84, 1300, 2120, 6.35, 780, 63, 1650)
"""Fitted to 439 schedules of 133 sizes, most of them drawn; reading counts 1.2 times as fast as by that fit."""

LISTED = Fit(350, 60, 1000, 3000, 16, 16, 40, 2300)
"""Of convolutions, and of operands in registers, which were measured before and beside these."""


# Whether to copy an operand to aligned rows first: what its rows cost the product, and what packing costs, in cycles.

WORD = 4
"""Bytes of the narrowest access that needs no registers on its way to shared memory."""

SHORTEST_PACKED_ROW = 4
"""Bytes: `warp.pack` reads words, and only the last row of a matrix may have one that ends behind it."""


def row_bytes(operand: MatrixOperand) -> int:
    return -(-operand.shape[1] * operand.memory_bits // 8)


def not_packed(operand: MatrixOperand) -> str:
    """Why an operand cannot be packed; empty if it can."""
    if not operand.is_compact or isinstance(operand.value.owner, PagedOp):
        return f"packing takes a single matrix of static size without gaps, got {operand.type}"
    if (length := row_bytes(operand)) < SHORTEST_PACKED_ROW:
        return f"rows of {operand.name} have {length} bytes, packing takes rows of at least {SHORTEST_PACKED_ROW}"
    return ""


def unpaired(product: Product, schedule: Schedule | Tile, columns: int) -> str:
    """Why the warps of a tile cannot multiply A by two matrices, by instructions of so many columns; "" if they can."""
    if product.second is None or (
        schedule.sliced_k == 1 and schedule.warp[1] == schedule.cta[1] and not schedule.warp[1] % (2 * columns)
    ):
        return ""
    return f"two products of one A take warp tiles of all columns of a CTA tile, multiples of {2 * columns}, no slices"


def copies_below(size: int, product: Product, pack: str) -> bool:
    """Whether some copies of A or B as they are have fewer bytes: below `WORD` they pass through registers, below
    `WIDEST` each needs an address of its own."""
    return any(o.access_bytes < size for role, o in (("a", product.a), ("b", product.b)) if role not in roles(pack))


def choices(product: Product, tile: Tile, target: Target) -> Iterator[tuple[str, float]]:
    """Every value of `pack` that may pay for tiles of this size, with the cycles that it costs."""
    down, across = -(-product.m // tile.cta[0]), -(-product.n // tile.cta[1])
    sms = min(product.tiles(*tile.cta), target.sms)
    each = product.matrices * (NARROW_OF_LARGE if tile.warp == (64, 64) and tile.sliced_k > 1 else 1)
    rows_cost = {"a": _copy_cycles(product.a, across * each) / sms, "b": _copy_cycles(product.b, down * each) / sms}
    useful = [
        role for role, operand in (("a", product.a), ("b", product.b))
        if rows_cost[role] and not not_packed(operand) and not (role == "b" and product.second is not None)
    ]  # fmt: skip
    for pack in ("none", *useful, *(["ab"] if len(useful) == 2 else [])):
        packed = roles(pack)
        kept = sum(cost for role, cost in rows_cost.items() if role not in packed)
        if product.b.stored is None and copies_below(WORD, product, pack):
            kept += REGISTER_TURN * (product.k * product.a.element.memory_bits // (8 * TURN_BYTES))
        yield pack, kept + pack_cycles(product, pack, target)


def _copy_cycles(operand: MatrixOperand, times: int) -> float:
    """Cycles that narrow accesses cost all SMs when an operand is copied `times` times."""
    width, rows = operand.access_bytes, operand.shape[0]
    if width == WIDEST:
        return 0.0
    each = REGISTER_COPY if width < WORD else NARROW_COPY
    return each * times * rows * row_bytes(operand) / max(width, operand.memory_bits // 8)


def laying_out(product: Product, pack: str, padded: str, target: Target) -> float:
    """Nanoseconds of the launches that pack operands and copy D from padded rows."""
    stored = 2 * product.m * product.n * product.d.element.bits / 8
    copied = PACK_LATENCY + stored / (PACK_BYTES_PER_CYCLE * target.sms) if roles(padded) else 0.0
    return (pack_cycles(product, pack, target) + copied) / COMPARED_PER_NS[True]


def pack_cycles(product: Product, pack: str, target: Target) -> float:
    """Cycles of the launch that packs operands; 0 if none is packed."""
    packed = roles(pack)
    moved = sum(
        2 * operand.shape[0] * row_bytes(operand) * product.matrices_of(operand)
        for role, operand in (("a", product.a), ("b", product.b))
        if role in packed
    )
    return PACK_LATENCY + moved / (PACK_BYTES_PER_CYCLE * target.sms) if packed else 0.0


# What a product takes in tiles of some size, as a model has it: the default of a schedule is what this likes best.


class Tile(NamedTuple):
    """A CTA tile and its warp tile, (M, N) each, the largest useful K in 16-bit elements, and the number of slices of
    K."""

    cta: tuple[int, int]
    warp: tuple[int, int]
    k: int = 64
    sliced_k: int = 1

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.sliced_k * (self.cta[0] // self.warp[0]) * (self.cta[1] // self.warp[1])


# With warp tiles of 64x64 a step of K has so much to multiply that K tiles of 32 suffice; deeper ones only lengthen
# the loop and its first wait. Where one CTA of less is alone on its SM, they keep more bytes in flight for a barrier.
# Slices let few warps be large: 64x64 takes two thirds of the shared-memory reads of 32x64.
TILES = (
    Tile((128, 256), (64, 64), 32),
    Tile((256, 128), (64, 64), 32),
    Tile((128, 128), (64, 64)),
    Tile((128, 128), (64, 32)),
    Tile((64, 128), (64, 64), 64, sliced_k=2),
    Tile((128, 64), (64, 64), 64, sliced_k=2),
    Tile((128, 64), (64, 32)),
    Tile((64, 128), (32, 64)),
    Tile((128, 64), (32, 32)),
    Tile((64, 128), (32, 32)),
    Tile((64, 64), (64, 64), 128, sliced_k=4),
    Tile((64, 64), (32, 32)),
    Tile((32, 64), (32, 32), 128, sliced_k=2),
    Tile((32, 64), (16, 32)),
    Tile((64, 32), (32, 16)),
    Tile((32, 32), (16, 16)),
    Tile((16, 64), (16, 16), 128),
    Tile((16, 32), (16, 32), 128, sliced_k=4),
    Tile((16, 32), (16, 32), 128, sliced_k=2),
    Tile((16, 32), (16, 16), 128),
    Tile((16, 16), (16, 16), 128, sliced_k=2),
    Tile((16, 16), (16, 8), 128),
    Tile((16, 8), (16, 8), 128),
)

# Of several waves the last one is emptier or fuller for other sizes. These fill it where the ones above do not.
# 192x192, 64x80 and 80x64 are faster still where they fit, but spill.
BETWEEN_TILES = (
    Tile((160, 192), (80, 48), 32),
    Tile((128, 224), (64, 56), 32),
    Tile((128, 192), (64, 48), 32),
    Tile((192, 128), (48, 64), 32),
    Tile((96, 128), (48, 64)),
    Tile((128, 96), (64, 48)),
)

# Of two products of one A, a warp has all columns of its rows: those of the one matrix, then those of the other.
PAIRED_TILES = (
    Tile((128, 128), (32, 128), 32),
    Tile((256, 64), (64, 64), 32),
    Tile((128, 64), (32, 64)),
    Tile((64, 64), (16, 64)),
    Tile((32, 64), (16, 64), 128),
    Tile((32, 32), (16, 32), 128),
    Tile((16, 32), (16, 32), 128),
    Tile((16, 16), (16, 16)),
)

# Of a sparse product each step holds twice as much of B: 64x64 only just fits, and only without edges.
SPARSE_TILES = (Tile((128, 192), (64, 48)), Tile((192, 128), (48, 64)), *TILES)

SLICES_BEYOND = {
    "columns": tuple(Tile((16, n), (16, n), 512, sliced_k=8) for n in (16, 32, 48)),
    "groups": (Tile((16, 64), (16, 32), 256, sliced_k=8),),
}
"""Tiles with more slices than a warp tile has base tiles, by the weights that they are for: with a scale for each
column, and bytes with scales of groups, in rows along n."""

# Weights that are converted in registers, for a few rows of A: warps that cut K among them read A from shared memory
# less often than warps side by side, and are enough to hide what converting takes. 128 columns are one wave of 14336,
# 96 and 80 of 11008 and 10240, 48 of 6144 and of 5120.
WEIGHT_TILES = {
    Tile((16, 64), (16, 64), 512, sliced_k=8): 0.8,
    Tile((16, 64), (16, 32), 256, sliced_k=4): 0.85,
    Tile((16, 64), (16, 64), 256, sliced_k=4): 0.85,
    Tile((16, 64), (16, 32), 128, sliced_k=2): 0.85,
    Tile((16, 256), (16, 32), 128): 0.85,
    Tile((16, 128), (16, 64), 256, sliced_k=4): 0.75,
    **{Tile((16, 2 * n), (16, n), 512, sliced_k=4): 0.8 for n in (40, 48)},
    **dict.fromkeys(SLICES_BEYOND["columns"], 0.65),
    **dict.fromkeys(SLICES_BEYOND["groups"], 0.7),
}
"""Tiles for such weights, and what they cost of what the model says, which knows nothing of conversion."""

STEP = 16
"""Elements of 16 bits that a step multiplies."""

PARTS = (2, 4, 8, 16, 32)
"""Into how many parts K may be cut."""


def unsplit(product: Product, parts: int) -> str:
    """Why K cannot be cut into parts; empty if it can."""
    if product.dynamic:
        return "it needs static sizes; M, N or K is dynamic"
    if product.k % parts or not product.k:
        return f"it must divide K = {product.k}"
    kinds = {
        "product that is batch_invariant": product.batch_invariant,
        "batch": product.batch,
        "product summed over several loops": product.summed,
        "scaled product": product.scales,
        "sparse product": product.metadata,
        "product by two matrices": product.second,
    }
    if kind := next((kind for kind, is_present in kinds.items() if is_present), ""):
        return f"a {kind} is not split"
    if product.group and product.k // parts % product.group:
        return f"parts of K = {product.k} would end within groups of {product.group}"
    if product.k // parts * min(product.a.memory_bits, product.b.memory_bits) % BYTE:
        return f"parts of K = {product.k} would end within a byte"
    odd = next((o for o in (product.a, product.b) if not o.is_compact), None)
    return f"{odd.name} must lie row by row without gaps, got {odd.type}" if odd is not None else ""


FP8_AS_HALVES = range(90, 104)
"""Targets on which ptxas makes two f16 products of one of 8-bit floats, on operands widened in registers, and adds the
sums to the accumulators (machine code for sm_90a and sm_100a). If we widen them, sums stay in the accumulators."""

FP8_CUT = (89,)
"""Targets whose `mma` of 8-bit floats cuts every term 13 bits below the largest (docs/arithmetic.md)."""


BITS_TWICE_SM = {"xor": 90, "and": 100}
"""The first target on which ptxas takes about twice the registers for operands of single bits: of an xor it makes two
products, of either operand inverted (as assembled for all of them)."""


def bits_twice(row: Row, target: Target) -> bool:
    """Whether operands of single bits need twice the registers of their fragments."""
    return isinstance(row, Mma) and bool(row.bit_op) and target.sm >= BITS_TWICE_SM[row.bit_op]


def as_halves(row: Row, target: Target) -> bool:
    """Whether products of 8-bit floats are products of f16 there."""
    return row.a.name in FP8 and target.sm in FP8_AS_HALVES


def widened(product: Product, row: Row, target: Target) -> bool:
    """Whether 8-bit floats should be converted to f16 in registers: where ptxas does so anyway, and where the
    instruction truncates sums that must be those of f32."""
    cut = row.a.name in FP8 and target.sm in FP8_CUT and not product.short_sums
    return product.sparsity == 1 and (as_halves(row, target) or cut)


def _rate(product: Product, row: Row, target: Target, warp: tuple[int, int]) -> float:
    """The rate of an instruction relative to f16. Instructions of narrow floats process as many bytes at a time.

    For widened operands, a warp tile of M x N adds 32 / M + 32 / N converting instructions for each.
    """
    if as_halves(row, target) or widened(product, row, target):
        return 1.0 / (1.0 + WIDENING * sum(32 / size for size in warp))
    return 16 / row.operand_bits if row.kind else RATES.get(row.a.name, 1.0)


def cycles(product: Product, k: int, tile: Tile, target: Target, row: Row) -> float:
    """The model's time for a product, or a part of its depth `k`, in tiles of this size; lower is better."""
    rows, columns = tile.cta
    tiles = product.tiles(rows, columns)
    stored = row.layout("a").columns / row.shape.k
    rate = MULTIPLY_ADDS_PER_CYCLE * _rate(product, row, target, tile.warp) * (1.0 if stored == 1.0 else SPARSE_RATE)
    arriving, bytes_ = rows * stored + columns, row.operand_bits / 8
    loaded = tile.warps // tile.sliced_k * (tile.warp[0] * stored + tile.warp[1])
    per_k = max(
        rows * columns / rate,
        arriving * bytes_ / BYTES_PER_CYCLE,
        (arriving + loaded) * bytes_ / BLOCKING_BYTES_PER_CYCLE,
        MIN_PER_TILE / max(1, min(tile.k, k)) + MIN_PER_STEP / (STEP * tile.sliced_k),
    )
    if tile.warps == LOOP_WARPS and tile.warp[0] * tile.warp[1] >= LONG_STEP and tile.sliced_k == 1:
        per_k *= DRIFTING
    adding = (tile.sliced_k - 1) * rows * columns * row.d.bits / (8 * SLICES_BYTES_PER_CYCLE)
    return -(-tiles // target.sms) * (per_k * k + CTA_LATENCY + adding)


def memory_cycles(product: Product, tile: Tile, target: Target, parts: int = 1) -> float:
    """The model's time to read A and B from memory, which gives `MEMORY_PIECE` bytes side by side at least, and no
    faster than the stages of all CTAs have room for."""
    read = 0.0
    for operand, line in ((product.a, tile.cta[0]), (product.b, tile.cta[1])):
        along_k = operand.transposed == (operand is product.b)
        wasted = 1 if along_k else max(1.0, MEMORY_PIECE * 8 / (line * operand.memory_bits))
        size = operand.shape[0] * operand.shape[1] * product.matrices_of(operand)
        read += wasted * size * operand.memory_bits / 8
    ctas = min(target.sms, parts * product.tiles(*tile.cta))
    in_flight = ctas * min(target.shared, MAX_STAGES * sum(tile.cta) * tile.k * 2)
    return read / (
        MEMORY_BYTES_PER_CYCLE if read <= in_flight else min(MEMORY_BYTES_PER_CYCLE, in_flight / MEMORY_LATENCY)
    )


def cost_of(product: Product, tile: Tile, target: Target, row: Row, parts: int = 1) -> float:
    """The model's time of a product in tiles of this size, with K cut into `parts` for separate CTAs."""
    multiplying = cycles(product, product.depth // parts, tile, target, row)
    reading = memory_cycles(product, tile, target, parts)
    together = max(multiplying, reading) + NOT_OVERLAPPED * min(multiplying, reading)
    sums = tile.cta[0] * tile.cta[1] * row.d.bits // 8  # of a part, which are written, and added to those of others
    adding = PARTIAL_SUMS_LATENCY + sums / WRITTEN_BYTES_PER_CYCLE + parts * sums / READ_BYTES_PER_CYCLE
    return together if parts == 1 else together + adding


def nanoseconds(product: Product, cost: float, *, staged: bool) -> float:
    """Nanoseconds of a launch to which the model gives `cost` cycles. The time to store D, which `cost` lacks, depends
    on whether it is `staged` in whole lines."""
    stored = product.m * product.n * product.d.element.bits / 8
    in_lines = all(o.pitch_bits <= LINE_BITS or o.pitch_bits % LINE_BITS == 0 for o in (product.a, product.b))
    return START_NS + cost / COMPARED_PER_NS[in_lines] + stored / STORED_PER_NS[staged]


def by_lanes(product: Product) -> float:
    """Cycles that D of a short K takes more where lanes store it, or no other CTA of the SM multiplies meanwhile; 0
    where A and B do not pass through registers, which was not measured."""
    if product.k > STORING_K or product.d.element.bits != 16 or not copies_below(WORD, product, "none"):
        return 0.0
    late, early = (nanoseconds(product, 0, staged=staged) for staged in (False, True))
    return (late - early) * COMPARED_PER_NS[False]
