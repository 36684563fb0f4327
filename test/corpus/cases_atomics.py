"""Judges of cuda/atomics.cu."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from corpus.case import Array, Judge, Random, equal, kernels_of, output

case = kernels_of("atomics")
I32, U32, U64, F32 = np.int32, np.uint32, np.uint64, np.float32
NONE = 0xFFFFFFFF
ORDER = "what the threads do first is up to the machine"


def _ints(random: Random, shape: Any, low: int = -1000, high: int = 1000) -> Array:
    return random.integers(low, high, shape).astype(I32)


def _sums(key: Array, value: Array) -> dict[int, int]:
    sums: dict[int, int] = {}
    for k, v in zip(key.tolist(), value.tolist(), strict=True):
        sums[k] = (sums.get(k, 0) + v) % (1 << 32)
    return sums


@case(3, 64, sample=True, differs=ORDER)
def hash_insert(random: Random) -> tuple[list[Any], Judge]:
    size, n = 97, 180
    key, value = random.integers(0, 80, n).astype(U32), random.integers(0, 1 << 32, n).astype(U32)
    keys, sums = np.full(size, NONE, U32), np.zeros(size, U32)

    def judge() -> None:
        used = keys != NONE
        assert dict(zip(keys[used].tolist(), sums[used].tolist(), strict=True)) == _sums(key, value)
        assert used.sum() == len(set(key.tolist()))

    return [keys, sums, key, value, n, size], judge


@case(2, 64)
def hash_lookup(random: Random) -> tuple[list[Any], Judge]:
    size, n = 61, 100
    keys, sums, there = np.full(size, NONE, U32), np.zeros(size, U32), {}
    for k in random.permutation(90)[:40].tolist():
        slot = k * 2654435761 % (1 << 32) % size
        while keys[slot] != NONE:
            slot = (slot + 1) % size
        keys[slot], sums[slot] = k, k * k + 1
        there[k] = k * k + 1
    key, places = random.integers(0, 90, n).astype(U32), output(n, U32)
    wanted = [there.get(k, NONE) for k in key.tolist()]
    return [places, keys, sums, key, n, size], equal((places, np.array(wanted, U32)))


@case(2, 96, differs=ORDER)
def hash_pairs(random: Random) -> tuple[list[Any], Judge]:
    n = 400
    key, value = random.integers(1, 100, n).astype(U32), random.integers(0, 1 << 32, n).astype(U32)
    table = np.zeros(128, U64)
    top: dict[int, int] = {}
    for k, v in zip(key.tolist(), value.tolist(), strict=True):
        top[k] = max(v, top.get(k, 0))

    def judge() -> None:
        assert sorted(table[table != 0].tolist()) == sorted(k << 32 | v for k, v in top.items())

    return [table, key, value, n, 127], judge


@case(1, 96)
def atomics64(random: Random) -> tuple[list[Any], Judge]:
    x = random.integers(0, 1 << 64, 300, dtype=U64)
    r = np.array([5, (1 << 64) - 1, 0, 0, 0, (1 << 64) - 1, 0, 3], U64)
    s = x.view(np.int64)
    wanted = [
        U64(5) + x.sum(dtype=U64),
        x.min(),
        x.max(),
        np.minimum(s.min(), 0).view(U64),
        np.maximum(s.max(), 0).view(U64),
        np.bitwise_and.reduce(x | U64(0xFF00FF)),
        np.bitwise_or.reduce(x & U64(0xF0F0F0F0F0F0F0)),
        np.bitwise_xor.reduce(x) ^ U64(3),
    ]
    return [r, x, 300], equal((r, np.array(wanted, U64)))


@case(2, 64, differs=ORDER)
def wrapping_counters(random: Random) -> tuple[list[Any], Judge]:
    r = np.array([3, 4, 100, 5], U32)
    up, down = output(128, U32), output(128, U32)
    ups, downs = [(3 + i) % 10 for i in range(128)], [(4 - i) % 13 for i in range(128)]

    def judge() -> None:
        assert sorted(up.tolist()) == sorted(ups)
        assert sorted(down.tolist()) == sorted(downs)
        equal((r, np.array([131 % 10, (4 - 128) % 13, (100 - 127 * 64) % (1 << 32), 77], U32)))()

    return [r, up, down], judge


@case(1, 64, sample=True)
def float_sums(random: Random) -> tuple[list[Any], Judge]:
    x = _ints(random, 200, -5, 6).astype(F32)
    f, d, h = np.zeros(1, F32), np.zeros(1), np.zeros(2, np.float16)
    b, one = np.zeros(2, ml_dtypes.bfloat16), np.zeros(1, np.float16)
    total = x.sum()
    halves = [np.where(x < 0, 1, 0.5).sum()]
    counts = equal((h, [total, 200]), (b, [200, (x > 0).sum()]), (one, halves))
    sums = equal((f, [total]), (d, [total / 2]))
    return [f, d, h, b, one, x, 200], lambda: (counts(), sums(), None)[2]


@case(2, 64)
def float_maximum(random: Random) -> tuple[list[Any], Judge]:
    x, top = random.standard_normal(100).astype(F32), np.full(3, -np.inf, F32)
    return [top, x, 100], equal((top, [x[i::3].max() for i in range(3)]))


@case(2, 48)
def spin_lock(random: Random) -> tuple[list[Any], Judge]:
    lock, total, longest = (np.zeros(1, I32) for _ in range(3))
    return [lock, total, longest], equal((lock, [0]), (total, [48 * 49]), (longest, [48]))


@case(2, 40)
def spin_lock_held(random: Random) -> tuple[list[Any], Judge]:
    lock, total, value = np.zeros(1, I32), np.zeros(1, I32), 0
    for _ in range(80):
        value = (value * 2) % 1000003 + 1
    return [lock, total], equal((lock, [0]), (total, [value]))


@case(3, 96)
def ticket_lock(random: Random) -> tuple[list[Any], Judge]:
    ticket, serving, order = np.zeros(1, U32), np.zeros(1, U32), np.zeros(10, U32)
    return [ticket, serving, order], equal((order, [9, *range(9)]), (ticket, [9]), (serving, [9]))


@case(2, 64, differs=ORDER)
def push_list(random: Random) -> tuple[list[Any], Judge]:
    head, following = np.full(1, -1, I32), output(100, I32)

    def judge() -> None:
        seen, at = [], int(head[0])
        while at >= 0 and len(seen) < 200:
            seen.append(at)
            at = int(following[at])
        assert sorted(seen) == list(range(100))

    return [head, following, 100], judge


@case(3, 64, differs=ORDER)
def components(random: Random) -> tuple[list[Any], Judge]:
    n, edges = 120, 90
    a, b = _ints(random, edges, 0, n), _ints(random, edges, 0, n)
    parent, label = np.arange(n, dtype=I32), np.arange(n)
    for _ in range(n):
        for x, y in zip(a, b, strict=True):
            label[x] = label[y] = min(label[x], label[y])

    def judge() -> None:
        def root(v: int) -> int:
            return v if parent[v] == v else root(int(parent[v]))

        equal((np.array([root(v) for v in range(n)]), label))()

    return [parent, a, b, edges], judge


@case(1, 64, differs=ORDER)
def bfs_step(random: Random) -> tuple[list[Any], Judge]:
    start = np.cumsum([0, *random.integers(0, 6, 50)]).astype(I32)
    edge = _ints(random, int(start[-1]), 0, 50)
    level = np.full(50, -1, I32)
    frontier = np.array([3, 8, 17, 30], I32)
    level[frontier] = 0
    reached = {int(e) for v in frontier for e in edge[start[v] : start[v + 1]]} - set(frontier.tolist())
    wanted = level.copy()
    wanted[sorted(reached)] = 1
    following, size = output(50, I32), np.zeros(1, I32)

    def judge() -> None:
        equal((level, wanted), (size, [len(reached)]))()
        assert sorted(following[: len(reached)].tolist()) == sorted(reached)

    return [level, following, size, frontier, 4, start, edge, 1], judge


@case(2, 64)
def atomics16(random: Random) -> tuple[list[Any], Judge]:
    x, words = random.integers(0, 1 << 16, 100).astype(np.uint16), np.arange(6).astype(np.uint16)
    wanted = words.astype(int)
    np.add.at(wanted, x % 5, x)
    return [words, x, 100], equal((words, wanted % (1 << 16)))


@case(1, 64)
def scopes(random: Random) -> tuple[list[Any], Judge]:
    x, r = random.integers(0, 1 << 32, 150).astype(U32), np.zeros(4, U32)
    total = x.sum(dtype=np.uint64).astype(U32)
    return [r, x, 150], equal((r, [total, x.max(), total, np.bitwise_xor.reduce(x)]))


@case(2, 64, refused="their scopes are not for both: .cta leaves the other CTA out")  # thread_scope_block in two blocks
def cuda_atomic_ref(random: Random) -> tuple[list[Any], Judge]:
    x = _ints(random, 300)
    r, big, f = np.zeros(4, I32), np.zeros(1, U64), np.zeros(1, F32)
    sums = (x.sum(), min(0, x.min()), np.bitwise_xor.reduce(x), x.max())
    wide = int((x.astype(np.int64) + 5000).sum()) << 20
    return [r, big, f, x, 300], lambda: (equal((r, sums), (big, [wide]))(), equal((f, [x.sum()]))(), None)[2]


@case(3, 64)
def message(random: Random) -> tuple[list[Any], Judge]:
    out, data, flag = output(64, I32), output(64, I32), np.zeros(1, I32)
    return [out, data, flag], equal((out, (np.arange(64) * 11 + 3)[::-1]))


@case(1, 64)
def cuda_barrier(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 64), output(64, I32)
    t = np.arange(64)
    return [out, x], equal((out, sum(i + x[(t * 7 + i) % 64] + i for i in range(4))))


@case(1, 64, differs=ORDER)
def semaphore_and_latch(random: Random) -> tuple[list[Any], Judge]:
    out, inside, largest = output(64, I32), np.zeros(1, I32), np.zeros(1, I32)

    def judge() -> None:
        assert inside[0] == 0
        assert 1 <= largest[0] <= 3
        equal((out, np.full(64, largest[0])))()

    return [out, inside, largest], judge
