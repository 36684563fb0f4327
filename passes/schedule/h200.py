"""What was measured on one NVIDIA H200, by which schedules are chosen for every target.

Cycles are those of the model in `model.py`, of which the chip does 3.7 in a nanosecond; only ratios matter. Where no
other place is named, `bench/NOTES.md` has the measurement.
"""

from __future__ import annotations

from ...dialect.isa.targets import KIB

RATES = {"tf32": 0.5, "f64": 0.1, "s8": 2.0, "u8": 2.0, "e4m3": 2.0, "e5m2": 2.0, "b1": 16.0}
"""How many times as fast as f16 a type is multiplied, for those that differ."""

SPARSE_RATE = 1.5
"""How many times as fast as a dense product, zeros counted, one with a sparse A is: 941 and 625 TFLOP/s."""

WIDENING = 0.09
"""What an instruction that widens operands costs, of what a product of f16 does (`fp8_as`)."""

NOT_OVERLAPPED = 0.1
"""The part of the shorter of two things that go on at once, products and reads of memory, that the longer one does not
cover. Not measured by itself."""

COST_STEP = 40
"""Cycles by which tiles must differ for one of them to be better."""

WEIGHT_MARGINS = (0.8, 0.85, 0.85, 0.85, 0.85, 0.7)
"""What tiles for weights that are converted in registers cost, of what the model says, which knows nothing of that."""

BETWEEN_MARGIN = 1.03
"""By how much tiles of `BETWEEN_TILES` must be better, for their edges rarely come out even."""

MULTIPLY_ADDS_PER_CYCLE = 640
"""Multiply-adds of the tensor cores of an SM."""

BYTES_PER_CYCLE, SHARED_BYTES_PER_CYCLE = 32, 60
"""Bytes that reach an SM from L2; that copies write to shared memory and warps read from it."""

CTA_LATENCY = 2000
"""What a CTA takes to fill its pipeline and to write its tile."""

SLICES_BYTES_PER_CYCLE = 16
"""Bytes of their sums that slices write to shared memory and read."""

DRIFTING = 0.93
"""How much less time a CTA takes in whose K loop warps wait only for what they need (`loop_choice.py`)."""

LEAST_PER_TILE, LEAST_PER_STEP = 250, 40
"""A K tile takes as much however small it is, with as much for each step of a warp, one after the other: barrier, wait
and the way from shared memory to the product."""

MEMORY_BYTES_PER_CYCLE = 850
"""Bytes that all SMs together read from memory, where each is read once."""

MEMORY_LATENCY = 10_500
"""How long what an SM has asked for is on its way, when all SMs read."""

MEMORY_PIECE = 64
"""Bytes that memory gives at least."""

PARTIAL_SUMS_LATENCY = 5_500
"""What it takes, however few they are, to write the sums of a part, to be counted, and to read those of others."""

WRITTEN_BYTES_PER_CYCLE, READ_BYTES_PER_CYCLE = 5, 40
"""Bytes of its sums that a CTA writes, and of all sums that the last one of a tile reads, in a cycle."""

REGISTER_COPY = 0.47
"""Cycles of an SM for one element that passes through registers."""

NARROW_COPY = 0.19
"""Cycles of an SM for one asynchronous copy of less than 16 bytes."""

PACK_LATENCY = 10_500
"""Another launch, and the way through memory and back."""

PACK_BYTES_PER_CYCLE = 9
"""Bytes read and written by an SM."""

COPIED_DEPTH = 192
"""Products for each element of D from which it is faster to copy A and B to aligned rows than to load them element by
element: M = N = K = 127 16.4 and 16.5 microseconds, 191 18.3 and 26.6, 4095 262 and 1229; 16x4095x4095 80 and 246."""

MOST_STAGES = 8
"""Stages beyond which more were no faster."""

FEW_ROWS = 64
"""Rows of A up to which reading B takes the time (N = K = 4096: 16 rows 15.5 microseconds, 64 rows 16.6)."""

LARGEST_TILE, FULL_WAVE = (128, 256), 0.75
"""The tiles that are the fastest if they keep SMs busy, and the part of SMs that they must keep busy (N = K = 4096: 256
rows by tiles of 64x128 20.5 microseconds, by these 43.6; 1024 rows 47.4)."""

SLACK = 3
"""By how many stages the slowest warp may fall behind the fastest: H200, bf16 4096, 3 is as good as 2 and 4."""

LOOP_WARPS = 8
"""Warps of a CTA, two for each scheduler, for which waits at mbarriers pay (H200, bf16 1280, four of them: 19.7
microseconds instead of 17.8)."""

LEAST_AHEAD = 96 * KIB
"""Bytes that should be on their way: of stages of 24 KiB, 3 are too few and 4 as good as more (H200, bf16 4096)."""

LONG_STEP = 64 * 48
"""Elements of a warp tile whose products take longer than a wait at a mbarrier (H200, bf16 and s8)."""

IN_FLIGHT, IN_FLIGHT_FROM_L2 = 128 * KIB, 96 * KIB
"""Bytes on the way to an SM beyond which more do not help, where memory binds (H200: 64x4096x4096, 128x16384x4096), and
where it does not (1000, 1280, 300x1000x700, 256x256x2048)."""

IN_FLIGHT_CONVERTED = 60 * KIB
"""The same of a product that converts weights: what more stages ask for delays the first tile (H200, 16x8192x8192, 4
bits: 4 stages of 32 KiB 14.9 microseconds, 5 15.1; of 20 KiB, in rows along n, 4 15.7 and 8 16.4)."""

WIDE_K = 32
"""The least K of tiles of wide elements that pays (H200, 4096: tf32 249 TFLOP/s, 241 with 16; f64 58, 50 with 16)."""
