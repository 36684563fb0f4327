"""What a product takes in tiles of some size, as a model has it: the default of a schedule is what this likes best.

It counts cycles; only ratios matter. What was measured on a GPU is in `h200.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from ...dialect.isa.mma import Mma
from ...dialect.isa.product import ProductForm as Row
from ...dialect.isa.targets import Target
from ...dialect.isa.types import FP8
from ..linalg.product import Product
from .h200 import (
    BYTES_PER_CYCLE,
    COST_STEP,
    CTA_LATENCY,
    DRIFTING,
    LEAST_PER_STEP,
    LEAST_PER_TILE,
    LONG_STEP,
    LOOP_WARPS,
    MEMORY_BYTES_PER_CYCLE,
    MEMORY_LATENCY,
    MEMORY_PIECE,
    MOST_STAGES,
    MULTIPLY_ADDS_PER_CYCLE,
    NOT_OVERLAPPED,
    PARTIAL_SUMS_LATENCY,
    RATES,
    READ_BYTES_PER_CYCLE,
    SHARED_BYTES_PER_CYCLE,
    SLICES_BYTES_PER_CYCLE,
    SPARSE_RATE,
    WIDENING,
    WRITTEN_BYTES_PER_CYCLE,
)


class Tile(NamedTuple):
    """A CTA tile and the warp tile that divides it, (M, N) each; the deepest K that pays, in 16-bit elements; and into
    how many slices that is cut."""

    cta: tuple[int, int]
    warp: tuple[int, int]
    k: int = 64
    sliced_k: int = 1

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.sliced_k * (self.cta[0] // self.warp[0]) * (self.cta[1] // self.warp[1])


# With warp tiles of 64x64 a step of K has so much to multiply that K tiles of 32 suffice; deeper ones only lengthen
# the loop and its first wait (H200, bf16 8192: 513 TFLOP/s against 485 for K = 64). Where one CTA of less is alone on
# its SM, deeper tiles keep more bytes in flight for each barrier.
# Slices let few warps be large: 64x64 takes two thirds of the shared-memory reads of 32x64 (1024: 195 against 188).
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

# Of several waves the last one is emptier or fuller for other sizes. These fill it where the ones above do not (H200,
# bf16 3072: 128x192 in 3 waves 130 microseconds, 128x128 in 5 halves 145; 1536: 128x192 27, 128x256 31). 192x192, 64x80
# and 80x64 are faster still where they fit, but spill.
BETWEEN_TILES = (
    Tile((160, 192), (80, 48), 32),
    Tile((128, 224), (64, 56), 32),
    Tile((128, 192), (64, 48), 32),
    Tile((192, 128), (48, 64), 32),
    Tile((96, 128), (48, 64)),
    Tile((128, 96), (64, 48)),
)

# Of a sparse product each step holds twice as much of B: 64x64 only just fits, and only without edges.
SPARSE_TILES = (Tile((128, 192), (64, 48)), Tile((192, 128), (48, 64)), *TILES)

# Weights that are converted in registers, for a few rows of A: warps that cut K among them read A from shared memory
# less often than warps side by side, and are enough to hide what converting takes (H200, 16x8192x8192, 8 bits: 21.9
# microseconds with 8 slices, 22.6 with 4; 4 bits: 17.2 and 18.0). The last is for bytes with scales of groups, in rows
# along n: 23.8 microseconds, 26.7 with 4 slices of 16x64. Others are slower so.
WEIGHT_TILES = (
    Tile((16, 64), (16, 64), 512, sliced_k=8),
    Tile((16, 64), (16, 32), 256, sliced_k=4),
    Tile((16, 64), (16, 64), 256, sliced_k=4),
    Tile((16, 64), (16, 32), 128, sliced_k=2),
    Tile((16, 256), (16, 32), 128),
    Tile((16, 64), (16, 32), 256, sliced_k=8),
)

STEP = 16
"""Elements of 16 bits that a step multiplies."""

PARTS = (2, 4, 8, 16, 32)
"""Into how many parts K may be cut."""

FP8_AS_HALVES = range(90, 104)
"""Targets on which ptxas makes two f16 products of one of 8-bit floats, on operands widened in registers, and adds the
sums to the accumulators (machine code for sm_90a and sm_100a): no faster than f16, and slower for the additions. If we
widen them, sums stay in the accumulators (H200, 8192: 528 TFLOP/s instead of 376)."""

FP8_CUT = (89,)
"""Targets whose `mma` of 8-bit floats cuts every term 13 bits below the largest (docs/arithmetic.md)."""


BITS_TWICE_SM = {"xor": 90, "and": 100}
"""The first target on which ptxas takes about twice the registers for operands of single bits: of an xor it makes two
products, of either operand inverted (as assembled for all of them)."""


def bits_twice(row: Row, target: Target) -> bool:
    """Whether operands of single bits take twice the registers that their fragments have."""
    return isinstance(row, Mma) and bool(row.bit_op) and target.sm >= BITS_TWICE_SM[row.bit_op]


def as_halves(row: Row, target: Target) -> bool:
    """Whether products of 8-bit floats are products of f16 there."""
    return row.a.name in FP8 and target.sm in FP8_AS_HALVES


def widened(product: Product, row: Row, target: Target) -> bool:
    """Whether 8-bit floats are best converted to f16 in registers: where the machine code does that, too, and where the
    instruction cuts their sums short, which are to be those of f32."""
    cut = row.a.name in FP8 and target.sm in FP8_CUT and not product.short_sums
    return product.sparsity == 1 and (as_halves(row, target) or cut)


def _rate(product: Product, row: Row, target: Target, warp: tuple[int, int]) -> float:
    """How many times as fast as f16 an instruction is; one for the narrow floats takes as many bytes at once.

    Of products on widened operands, a warp tile of M x N takes 32 / M + 32 / N instructions that widen for each.
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
        (arriving + loaded) * bytes_ / SHARED_BYTES_PER_CYCLE,
        LEAST_PER_TILE / max(1, min(tile.k, k)) + LEAST_PER_STEP / (STEP * tile.sliced_k),
    )
    if tile.warps == LOOP_WARPS and tile.warp[0] * tile.warp[1] >= LONG_STEP and tile.sliced_k == 1:
        per_k *= DRIFTING
    adding = (tile.sliced_k - 1) * rows * columns * row.d.bits / (8 * SLICES_BYTES_PER_CYCLE)
    return -(-tiles // target.sms) * (per_k * k + CTA_LATENCY + adding)


def memory_cycles(product: Product, tile: Tile, row: Row, target: Target, parts: int = 1) -> float:
    """The model's time to read A and B from memory, which gives `MEMORY_PIECE` bytes side by side at least, and no
    faster than the stages of all CTAs have room for."""
    read = 0.0
    for operand, line in ((product.a, tile.cta[0]), (product.b, tile.cta[1])):
        along_k = operand.transposed == (operand is product.b)
        wasted = 1 if along_k else max(1.0, MEMORY_PIECE * 8 / (line * operand.memory_bits))
        size = operand.shape[0] * operand.shape[1] * product.matrices_of(operand)
        read += wasted * size * operand.memory_bits / 8
    ctas = min(target.sms, parts * product.tiles(*tile.cta))
    room = ctas * min(target.shared, MOST_STAGES * sum(tile.cta) * tile.k * 2)
    return read / (MEMORY_BYTES_PER_CYCLE if read <= room else min(MEMORY_BYTES_PER_CYCLE, room / MEMORY_LATENCY))


def cost_of(product: Product, tile: Tile, target: Target, row: Row, parts: int = 1) -> float:
    """The model's time for a product in tiles of this size, whose K is cut into `parts` for CTAs of their own."""
    multiplying = cycles(product, product.depth // parts, tile, target, row)
    together = _together(multiplying, memory_cycles(product, tile, row, target, parts))
    return together if parts == 1 else together + _partial_sums(tile, parts, row)


def rounded(cost: float) -> float:
    """The cost no more exactly than the model knows it."""
    return cost // COST_STEP * COST_STEP


def _together(multiplying: float, reading: float) -> float:
    """Cycles of two things that go on at once, most of the time."""
    return max(multiplying, reading) + NOT_OVERLAPPED * min(multiplying, reading)


def _partial_sums(tile: Tile, parts: int, row: Row) -> float:
    """Cycles to add up the parts of a tile."""
    sums = tile.cta[0] * tile.cta[1] * row.d.bits // 8
    return PARTIAL_SUMS_LATENCY + sums / WRITTEN_BYTES_PER_CYCLE + parts * sums / READ_BYTES_PER_CYCLE
