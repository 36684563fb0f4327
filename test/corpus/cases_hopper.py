"""Judges of cuda/hopper.cu."""

from __future__ import annotations

from typing import Any

import numpy as np
from corpus.case import Array, Judge, Random, equal, kernels_of, output

_case = kernels_of("hopper")
I32, U32, U64, F32 = np.int32, np.uint32, np.uint64, np.float32


def case(*shape: Any, **options: Any) -> Any:
    return _case(*shape, sm=90, **options)


def _ints(random: Random, shape: Any, low: int = -1000, high: int = 1000) -> Array:
    return random.integers(low, high, shape).astype(I32)


@case(8, 32, sample=True)
def cluster_ring(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, (2, 4, 32)), output((2, 4, 32), I32)
    following = np.roll(x, -1, axis=1)[:, :, ::-1]
    added = np.array([4, 1, 2, 3])[None, :, None]
    return [out, x], equal((out, (x * 2 + following) * 100 + added))


@case(6, 32)
def cluster_queries(random: Random) -> tuple[list[Any], Judge]:
    out = output((6, 32, 8), U32)
    rows = [[[b % 2 * 32 + t, b % 2, 64, 2, 2, b % 2, b // 2, 3] for t in range(32)] for b in range(6)]
    return [out], equal((out, rows))


@case(8, 32)
def cluster_scan(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, (2, 128)), output((2, 128), I32)
    return [out, x], equal((out, np.cumsum(x, axis=1)))


@case(1, 64, sample=True)
def bulk_copies(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, (5, 256)), output((5, 256), I32)
    return [out, x, 5], equal((out, x[:, ::-1] * np.arange(1, 6)[:, None]))


@case(3, 64)
def bulk_reduction(random: Random) -> tuple[list[Any], Judge]:
    x, total, top = _ints(random, (3, 64)), np.zeros(64, I32), np.full(64, -5000, I32)
    return [total, top, x], equal((total, x.sum(0)), (top, x.max(0)))


@case(4, 64)
def bulk_to_neighbour(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, (2, 2, 64)), output((2, 2, 64), I32)
    return [out, x], equal((out, x[:, ::-1, ::-1] * 3))


@case(2, 64)
def elected(random: Random) -> tuple[list[Any], Judge]:
    out = output(128, I32)
    return [out], equal((out, np.full(128, 11)))


@case(1, 256)
def producer_consumer(random: Random) -> tuple[list[Any], Judge]:
    x, out, t = _ints(random, (6, 128)), output(128, I32), np.arange(128, 256)
    total = np.zeros(128, np.int64)
    for i in range(6):
        total = total * 7 + x[i, (t * 5 + i) & 127]
    return [out, x, 6], equal((out, total))


@case(1, 64)
def wide_swap(random: Random) -> tuple[list[Any], Judge]:
    x = random.integers(0, 1 << 64, 50, dtype=U64)
    at = np.zeros(2, U64)
    return [at, x, 50], equal((at, [x.sum(dtype=U64), np.bitwise_xor.reduce(x)]))


@case(1, 64)
def vector_atomics(random: Random) -> tuple[list[Any], Judge]:
    x, f, g = _ints(random, 64).astype(F32), np.zeros(4, F32), np.zeros(2, F32)
    s = float(x.sum())
    return [f, g, x], equal((f, [s, 64, 2 * s, -s]), (g, [s, 192]))


@case(1, 32)
def stored_matrices(random: Random) -> tuple[list[Any], Judge]:
    x, out = random.integers(0, 1 << 16, (32, 4, 2)).astype(np.uint16), output((16, 16), np.uint16)
    wanted = np.zeros((16, 16), np.uint16)
    for lane in range(32):
        for m in range(4):
            row, column = lane // 4 + m % 2 * 8, lane % 4 * 2 + m // 2 * 8
            wanted[row, column : column + 2] = x[lane, m]
    return [out, x.view(U32)], equal((out, wanted))


@case(2, 32)
def dependent(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 64), output(64, I32)
    return [out, x], equal((out, x + 1))
