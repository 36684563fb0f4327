"""Judges of cuda/blocks.cu."""

from __future__ import annotations

from typing import Any

import numpy as np
from corpus.case import Array, Judge, Random, close, equal, kernels_of, output

case = kernels_of("blocks")
I32, U32, F32, F64 = np.int32, np.uint32, np.float32, np.float64


def _ints(random: Random, shape: Any, low: int = -1000, high: int = 1000) -> Array:
    return random.integers(low, high, shape).astype(I32)


@case(2, 64, shared=512)
def blelloch_scan(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, (2, 128)), output((2, 128), I32)
    return [out, x], equal((out, np.cumsum(x, axis=1) - x))


@case(5, 128, sample=True)
def chained_scan(random: Random) -> tuple[list[Any], Judge]:
    x, out = random.integers(0, 1 << 32, 640).astype(U32), output(640, U32)
    sums, ready, ticket = np.zeros(5, U32), np.zeros(5, U32), np.zeros(1, U32)
    return [out, sums, ready, ticket, x], equal((out, np.cumsum(x.astype(np.uint64)).astype(U32)))


@case(2, 256)
def radix_sort(random: Random) -> tuple[list[Any], Judge]:
    keys = random.integers(0, 1 << 32, (2, 256)).astype(U32)
    keys[1] %= 20
    values = np.arange(512, dtype=U32).reshape(2, 256)
    order = np.argsort(keys, axis=1, kind="stable")
    wanted = [np.take_along_axis(a, order, axis=1) for a in (keys, values)]
    return [keys, values], equal((keys, wanted[0]), (values, wanted[1]))


@case(1, 64, shared=1024)
def bitonic_block(random: Random) -> tuple[list[Any], Judge]:
    x = random.standard_normal(256).astype(F32)
    return [x, 256], equal((x, np.sort(x.copy())))


@case(2, 32)
def merge_path(random: Random) -> tuple[list[Any], Judge]:
    a, b = np.sort(_ints(random, 300, 0, 90)), np.sort(_ints(random, 251, 0, 90))
    out = output(551, I32)
    return [out, a, 300, b, 251, 9], equal((out, np.sort(np.concatenate([a, b]))))


@case((3, 2), (16, 16))
def tiled_matmul(random: Random) -> tuple[list[Any], Judge]:
    m, n, k = 29, 41, 37
    a, b = random.standard_normal((m, k)).astype(F32), random.standard_normal((k, n)).astype(F32)
    c = output((m, n), F32)
    return [c, a, b, m, n, k], close((c, a.astype(F64) @ b.astype(F64)), rtol=1e-5, atol=1e-5)


@case((2, 3), (32, 8))
def stencil_heat(random: Random) -> tuple[list[Any], Judge]:
    w, h = 45, 19
    x, out = _ints(random, (h, w)).astype(F32), output((h, w), F32)
    p = np.pad(x, 1)
    wanted = 0.5 * x + 0.125 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])
    return [out, x, w, h], equal((out, wanted))


@case(3, 64)
def convolve(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 170).astype(F32), output(170, F32)
    return [out, x, 170], equal((out, np.convolve(x, [0.5, -1, 2, 3.25, 2, -1, 0.5], "same") + 0.0))


@case(3, 128)
def last_block_sums(random: Random) -> tuple[list[Any], Judge]:
    x = _ints(random, 1000).astype(F32)
    total, part = output(1, F64), output(3, F64)
    owner = np.arange(1000) // 128 % 3
    parts = [x[owner == b].sum(dtype=F64) for b in range(3)]
    return [total, part, x, 1000], equal((total, [sum(parts)]), (part, parts))


@case(4, 128, differs="what the threads do first is up to the machine")
def compact(random: Random) -> tuple[list[Any], Judge]:
    x, out, count = _ints(random, 450), output(450, I32), np.zeros(1, I32)
    kept = np.sort(x[np.fmod(x, 3) == 0])

    def judge() -> None:
        equal((count, [kept.size]), (np.sort(out[: kept.size]), kept))()

    return [out, count, x, 450], judge


@case((2, 3), (16, 8))
def life(random: Random) -> tuple[list[Any], Judge]:
    w, h = 29, 21
    x, out = (random.random((h, w)) < 0.4).astype(np.uint8), output((h, w), np.uint8)
    n = sum(np.roll(x.astype(int), (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1)) - x
    return [out, x, w, h], equal((out, (n == 3) | ((n == 2) & (x == 1))))


@case(5, 64)
def spmv(random: Random) -> tuple[list[Any], Judge]:
    rows, columns = 9, 120
    dense = np.where(random.random((rows, columns)) < 0.4, _ints(random, (rows, columns)), 0).astype(F64)
    dense[3] = 0
    at = [np.flatnonzero(r).astype(I32) for r in dense]
    starts = np.cumsum([0, *map(len, at)]).astype(I32)
    values = np.concatenate([r[i] for r, i in zip(dense, at, strict=True)])
    x, y = _ints(random, columns).astype(F64), output(rows, F64)
    return [y, starts, np.concatenate(at), values, x, rows], equal((y, dense @ x))


@case(1, 64, differs="a race that cannot change the result")
def floyd(random: Random) -> tuple[list[Any], Judge]:
    n = 14
    d = np.where(random.random((n, n)) < 0.3, _ints(random, (n, n), 1, 50), 9999).astype(I32)
    np.fill_diagonal(d, 0)
    wanted = d.copy()
    for k in range(n):
        wanted = np.minimum(wanted, wanted[:, k : k + 1] + wanted[k : k + 1])
    return [d, n], equal((d, wanted))


@case(1, 32, shared=6 * 60)
def levenshtein(random: Random) -> tuple[list[Any], Judge]:
    a, b = (random.integers(97, 101, n).astype(np.int8) for n in (50, 43))
    out = output(1, I32)
    row = list(range(44))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return [out, a, 50, b, 43], equal((out, [row[43]]))


@case(1, 128, sample=True)
def named_barriers(random: Random) -> tuple[list[Any], Judge]:
    turns = 6
    x, out = _ints(random, (turns, 64)), output(64, I32)
    sums = np.zeros(64, np.int64)
    for i in range(turns):
        sums = sums * 3 + np.roll(x[i], -i)
    return [out, x, turns], equal((out, sums))


@case(1, 96)
def counting_barriers(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 96, -99, 99), output(96, I32)
    value = int((x > 0).sum()) * 4 + 2 + bool((x > 95).any())
    return [out, x], equal((out, np.full(96, value)))


@case(1, 128)
def early_exit(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 128), output(128, I32)
    wanted = output(128, I32)
    wanted[:75] = x[:75][::-1]
    return [out, x, 75], equal((out, wanted))


@case((2, 2), (32, 8))
def transpose_padded(random: Random) -> tuple[list[Any], Judge]:
    x = random.standard_normal((50, 37))
    out = output((37, 50), F64)
    return [out, x, 37, 50], equal((out, x.T))


@case(2, 128)
def fft(random: Random) -> tuple[list[Any], Judge]:
    x = (random.standard_normal((2, 256)) + 1j * random.standard_normal((2, 256))).astype(np.complex64)
    root = np.exp(-2j * np.pi * np.arange(128) / 256).astype(np.complex64)
    parts, wanted = x.view(F32), np.fft.fft(x.astype(np.complex128), axis=1)
    return [parts, root.view(F32)], close((parts, wanted.view(F64)), rtol=1e-4, atol=1e-4)
