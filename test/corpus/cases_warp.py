"""Judges of cuda/warp.cu."""

from __future__ import annotations

from typing import Any

import numpy as np
from corpus.case import Judge, Random, equal, kernels_of, output

case = kernels_of("warp")
U32 = np.uint32
M32 = 0xFFFFFFFF


def _signed(x: int) -> int:
    return (x & M32) - ((x & 0x80000000) << 1)


@case(2, 64, sample=True)
def redux_groups(random: Random) -> tuple[list[Any], Judge]:
    label = random.integers(0, 5, 128).astype(U32)
    x = random.integers(0, 1 << 32, 128).astype(U32)
    out = output((128, 7), U32)
    rows = []
    for i in range(128):
        base = i - i % 32
        lanes = [j for j in range(base, base + 32) if label[j] == label[i]]
        v = [int(x[j]) for j in lanes]
        land, lor, lxor = M32, 0, 0
        for y in v:
            land, lor, lxor = land & y, lor | y, lxor ^ y
        low = min(map(_signed, v)) & M32
        rows.append([sum(1 << j % 32 for j in lanes), sum(v) & M32, low, max(v), land, lor, lxor])
    return [out, label, x], equal((out, np.array(rows, U32)))


@case(8, 256, sample=True)
def redux_every_mask(random: Random) -> tuple[list[Any], Judge]:
    masks = random.integers(1, 1 << 32, 64).astype(U32)
    masks[:34] = [1 << i for i in range(32)] + [M32, 0x80000001]
    x = random.integers(-1000, 1000, (64, 32)).astype(np.int32)
    out = output((64, 32), np.int32)
    member = (masks[:, None] >> np.arange(32, dtype=U32)) & 1 == 1
    total = np.where(member, x, 0).sum(1) + np.where(member, x, -9999).max(1)
    return [out, masks, x], equal((out, np.where(member, total[:, None], -x)))


@case(2, 64)
def shuffle_widths(random: Random) -> tuple[list[Any], Judge]:
    x = random.integers(0, 100, 128).astype(np.int32)
    out = output((128, 6), np.int32)
    expected = np.zeros((128, 6), np.int64)
    for i in range(128):
        base, lane = i - i % 32, i % 32
        for k, w in enumerate((1, 2, 4, 8, 16, 32)):
            first = lane // w * w
            up, down = lane - 3 % w, lane + w // 2
            parts = (
                up if up >= first else lane,
                down if down < first + w else lane,
                lane ^ (w - 1),
                first + (lane * 5 + 3) % w,
            )
            a, b, c, d = (int(x[base + p]) for p in parts)
            expected[i, k] = _signed(a + b * 1000 + c * 1000000 + (d << 24))
    return [out, x], equal((out, expected))


@case(3, 64)
def votes_in_branches(random: Random) -> tuple[list[Any], Judge]:
    x = random.integers(0, 100, 192).astype(np.int32)
    x[64:96] |= 1
    out = output(192, U32)
    r = np.zeros(192, np.int64)
    for base in range(0, 192, 32):
        v = x[base : base + 32].tolist()
        even = [a for a in v if a % 2 == 0]
        for lane, a in enumerate(v):
            if a % 2:
                odd = sum(b % 2 and b > j for j, b in enumerate(v))
                r[base + lane] = odd << 24
                continue
            r[base + lane] = 1 | any(b > 90 for b in even) << 1
            if a > 50:
                r[base + lane] |= sum(b > 50 and b % 3 == 0 for b in even) << 8
            else:
                r[base + lane] |= sum(b <= 50 and b % 3 == 1 for b in even) << 16
        ballot = sum((int(r[base + j]) & 1) << j for j in range(32))
        r[base : base + 32] ^= ballot
    return [out, x], equal((out, (r & M32).astype(U32)))


@case(2, 96)
def warp_scan(random: Random) -> tuple[list[Any], Judge]:
    x = random.integers(-99, 99, 170).astype(np.int32)
    inclusive, exclusive = output(170, np.int32), output(170, np.int32)
    sums = np.concatenate([np.cumsum(x[i : i + 32]) for i in range(0, 170, 32)])
    return [inclusive, exclusive, x, 170], equal((inclusive, sums), (exclusive, sums - x))


@case(2, 64)
def segmented_scan(random: Random) -> tuple[list[Any], Judge]:
    x = random.integers(-99, 99, 128).astype(np.float32)
    flag = (random.random(128) < 0.2).astype(np.uint8)
    out, sums, s = output(128, np.float32), [], 0.0
    for i in range(128):
        s = (0.0 if flag[i] or i % 32 == 0 else s) + float(x[i])
        sums.append(s)
    return [out, x, flag], equal((out, sums))


@case(3, 64, sample=True)
def bitonic_warp(random: Random) -> tuple[list[Any], Judge]:
    keys = random.integers(0, 1 << 64, 192, dtype=np.uint64)
    keys[5:9] = keys[4]
    return [keys], equal((keys, np.sort(keys.copy().reshape(-1, 32), axis=1)))


@case(3, 96)
def match_histogram(random: Random) -> tuple[list[Any], Judge]:
    n = 250
    key = random.integers(0, 9, n).astype(np.int32)
    key[64:96] = 4
    counts, alike = np.zeros(9, U32), output(n, np.int32)
    return [counts, alike, key, n], equal((counts, np.bincount(key, minlength=9)), (alike, np.ones(n)))


@case(3, 32)
def warp_transpose(random: Random) -> tuple[list[Any], Judge]:
    x = random.integers(-(1 << 31), 1 << 31, (4, 3, 8, 8)).astype(np.int32)
    out = output(x.shape, np.int32)
    return [out, x], equal((out, x.swapaxes(2, 3)))


@case(2, 64, sample=True)
def leaving_lanes(random: Random) -> tuple[list[Any], Judge]:
    turns = random.integers(0, 12, 128).astype(np.int32)
    seen, rank = output(128, U32), output(128, U32)
    totals, ranks = np.zeros(128, np.int64), np.zeros(128, np.int64)
    for i in range(128):
        base = i - i % 32
        for t in range(turns[i]):
            here = [j for j in range(base, base + 32) if turns[j] > t]
            totals[i] += len(here)
            ranks[i] += sum(j < i for j in here)
    return [seen, rank, turns], equal((seen, totals), (rank, ranks))


@case(2, 64)
def shuffle_wide(random: Random) -> tuple[list[Any], Judge]:
    x = random.integers(-1000, 1000, 128).astype(np.float64)
    y = random.integers(0, 1 << 64, 128, dtype=np.uint64)
    d, q = output(128, np.float64), output(128, np.uint64)
    sums = np.repeat(x.reshape(-1, 32).sum(1), 32) * (np.arange(128) % 32 + 1)
    return [d, q, x, y], equal((d, sums), (q, np.repeat(y.reshape(-1, 32).max(1), 32)))


@case(2, 64)
def pair_masks(random: Random) -> tuple[list[Any], Judge]:
    x = random.integers(0, 80, 128).astype(np.int32)
    out = output(128, np.int32)
    other = x.reshape(-1, 2)[:, ::-1].reshape(-1)
    high = (x > 40).astype(int) + (other > 40)
    expected = np.where(np.arange(128) & 4, other * 2 + (high > 0), (x + other) * 3 + high)
    return [out, x], equal((out, expected))


def _nth_set(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else M32
    step, left = (1, offset) if offset > 0 else (-1, -offset)
    at = base
    while 0 <= at < 32:
        left -= mask >> at & 1
        if left == 0:
            return at
        at += step
    return M32


@case(1, 64)
def lane_masks(random: Random) -> tuple[list[Any], Judge]:
    out = output((64, 8), U32)
    third = sum(1 << j for j in range(32))
    rows = []
    for t in range(64):
        lane = t % 32
        eq, lt = 1 << lane, (1 << lane) - 1
        active = sum(1 << j for j in range(32) if (t // 32 * 32 + j) % 3) if t % 3 else 0
        nth = _nth_set(0x9A5A5F03 ^ t, lane, t % 7 - 3)
        rows.append([eq, lt, eq | lt, third ^ eq ^ lt, third ^ lt, lane, active, nth])
    return [out], equal((out, np.array(rows, U32)))


@case(2, 64)
def through_shared(random: Random) -> tuple[list[Any], Judge]:
    x = random.integers(-50, 50, 128).astype(np.int32)
    out = output(128, np.int32)
    v = x.astype(np.int64)
    for d in (16, 8, 4, 2, 1):
        o = v[np.arange(128) ^ d]
        v = np.minimum(v, o) + (v > o)
    return [out, x], equal((out, v))
