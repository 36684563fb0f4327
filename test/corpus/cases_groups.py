"""Judges of cuda/groups.cu."""

from __future__ import annotations

from typing import Any

import numpy as np
from corpus.case import Array, Judge, Random, equal, kernels_of, output

case = kernels_of("groups")
I32 = np.int32


def _ints(random: Random, n: int, low: int = -1000, high: int = 1000) -> Array:
    return random.integers(low, high, n).astype(I32)


@case(2, 96, sample=True)
def tile_reduce(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 192), output((192, 6), I32)
    expected = np.zeros((192, 6), np.int64)
    for k, w in enumerate((1, 2, 4, 8, 16, 32)):
        t = x.astype(np.int64).reshape(-1, w)
        value = t.sum(1) + 1000 * t.max(1) + (np.bitwise_xor.reduce(t, axis=1) << 20)
        expected[:, k] = np.repeat(value, w)
    return [out, x], equal((out, expected.astype(np.uint64).astype(np.uint32).view(I32)))


@case(1, 64)
def tile_reduce_float(random: Random) -> tuple[list[Any], Judge]:
    x = _ints(random, 64).astype(np.float32)
    out, wide = output(64, np.float32), output(64, np.float64)
    t = x.reshape(-1, 8)
    return [out, wide, x], equal((out, np.repeat(t.sum(1) + t.min(1), 8)), (wide, np.repeat(t.max(1), 8)))


@case(2, 64, sample=True)
def labeled_sums(random: Random) -> tuple[list[Any], Judge]:
    label, x = _ints(random, 128, 0, 4), _ints(random, 128)
    out, size = output(128, I32), output(128, I32)
    sums, sizes = [], []
    for i in range(128):
        warp = range(i - i % 32, i - i % 32 + 32)
        group = [j for j in warp if label[j] == label[i]]
        side = [j for j in warp if (x[j] > 0) == (x[i] > 0)]
        sums.append(2 * sum(int(x[j]) for j in group) + (group[0] == i))
        sizes.append(len(side) * 100 + side.index(i))
    return [out, size, label, x], equal((out, sums), (size, sizes))


@case(2, 96, differs="what the threads do first is up to the machine")
def filter_positive(random: Random) -> tuple[list[Any], Judge]:
    x, counter = _ints(random, 500), np.zeros(1, I32)
    positive = np.sort(x[x > 0])
    out = output(500, I32)

    def judge() -> None:
        equal((counter, [positive.size]))()
        equal((np.sort(out[: positive.size]), positive), (out[positive.size :], output(500 - positive.size, I32)))()

    return [out, counter, x, 500], judge


@case(2, 64)
def tile_scans(random: Random) -> tuple[list[Any], Judge]:
    x = _ints(random, 128)
    outs = [output(128, I32) for _ in range(3)]
    t = x.reshape(-1, 16)
    sums = np.cumsum(t, axis=1)
    return [*outs, x], equal((outs[0], sums), (outs[1], sums - t), (outs[2], np.maximum.accumulate(t, axis=1)))


@case(2, 256)
def wide_tile(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 512), output(512, I32)
    sums = x.reshape(-1, 64).sum(1) * 4 + np.arange(8) % 4
    return [out, x], equal((out, np.repeat(sums, 64)))


@case(1, 64, shared=1024)
def staged_copy(random: Random) -> tuple[list[Any], Judge]:
    n = 777
    x, out = _ints(random, n).astype(np.float32), output(64, np.float32)
    sums = np.zeros(64)
    for at in range(0, n, 256):
        part = x[at : at + 256][::-1]
        for j, v in enumerate(part):
            sums[j % 64] += v
    return [out, x, n], equal((out, sums))


@case(2, 32)
def tile_talk(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 64, 0, 100), output((64, 8), I32)
    rows = []
    for i in range(64):
        first, r = i - i % 8, i % 8
        v = [int(y) for y in x[first : first + 8]]
        match = sum(1 << j for j in range(8) if v[j] % 3 == v[r] % 3)
        votes = any(y == 0 for y in v) * 2 + all(y < 90 for y in v)
        ballot = sum((y & 1) << j for j, y in enumerate(v))
        moved = [v[3], v[r - 2] if r >= 2 else v[r], v[r + 1] if r < 7 else v[r], v[r ^ 5]]
        rows.append([*moved, match, votes, ballot, i % 32 // 8 * 17])
    return [out, x], equal((out, rows))


@case((2, 3, 2), (4, 3, 5))
def dims_and_ranks(random: Random) -> tuple[list[Any], Judge]:
    out, rows = output((12 * 60, 6), np.uint32), []
    for b in range(12):
        for t in range(60):
            thread = t % 4 | t // 4 % 3 << 8 | t // 12 << 16
            block = b % 2 | b // 2 % 3 << 8 | b // 6 << 16
            rows.append([t, b, thread, block, 12, 60])
    return [out], equal((out, rows))


@case(3, 64, cooperative=True)
def grid_meets(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 192), output(192, I32)
    y = x.astype(np.int64) * 3
    expected = y[::-1] + np.roll(y, -1)
    return [out, x], equal((out, expected), (x, expected))


@case(1, 64)
def turns_of_tiles(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 64, 5, 80), output(64, I32)
    v, total = x.astype(np.int64), 0
    for t in range(0, 64, 4):
        if all(v[t : t + 4] > 10):
            v[t : t + 4] = v[t] + v[t + 3]
            total += v[t]
    return [out, x], equal((out, v[::-1] + total))
