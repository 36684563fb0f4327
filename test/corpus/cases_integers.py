"""Judges of cuda/integers.cu."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from corpus.case import Array, Judge, Random, equal, kernels_of, output

case = kernels_of("integers")
I32, U32, U64 = np.int32, np.uint32, np.uint64
M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def signed(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (x >> bits - 1 << bits)


def _words(random: Random, n: int) -> Array:
    """Random words, with the corners of every byte and half among them."""
    x = random.integers(0, 1 << 32, n).astype(U32)
    corners = np.array([0, 0x7F, 0x80, 0xFF, 1, 0x81], np.uint8)
    x[::3] = random.choice(corners, (len(x[::3]), 4)).view(U32).reshape(-1)
    x[1:8] = [0, M32, 0x80000000, 0x7FFFFFFF, 1, 0x80008000, 0x7FFF8000]
    return x


def _lanes(x: int, bits: int, negative: bool) -> list[int]:
    parts = [x >> i & (1 << bits) - 1 for i in range(0, 32, bits)]
    return [signed(p, bits) for p in parts] if negative else parts


def _packed(f: Callable[..., int], bits: int, negative: bool, *x: int) -> int:
    parts = (f(*values) for values in zip(*(_lanes(v, bits, negative) for v in x), strict=True))
    return sum((p & (1 << bits) - 1) << bits * i for i, p in enumerate(parts))


def _packing(a: int, b: int, bits: int) -> tuple[Callable[..., int], list[int]]:
    """What packs a function of parts of two words; and their sums and differences, wrapped and clamped."""

    def p(f: Callable[..., int], negative: bool = False) -> int:
        return _packed(f, bits, negative, a, b)

    s, u = _cut(bits, True), _cut(bits, False)
    return p, [
        p(lambda x, y: x + y),
        p(lambda x, y: x - y),
        p(lambda x, y: s(x + y), True),
        p(lambda x, y: u(x + y)),
        p(lambda x, y: s(x - y), True),
    ]


def _cut(bits: int, negative: bool) -> Callable[[int], int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if negative else (0, (1 << bits) - 1)
    return lambda v: min(max(v, low), high)


def _distances(a: int, b: int, bits: int, negative: bool) -> int:
    pairs = zip(_lanes(a, bits, negative), _lanes(b, bits, negative), strict=True)
    return sum(abs(p - q) for p, q in pairs)


def _table(random: Random, n: int, row: Callable[..., list[int]], count: int) -> tuple[Array, list[Array], Array]:
    """An output, `count` inputs, and the rows that a scalar model gives."""
    inputs = [random.permutation(_words(random, n)) for _ in range(count)]
    rows = [[v & M32 for v in row(*map(int, values))] for values in zip(*inputs, strict=True)]
    wanted = np.array(rows, np.uint64).astype(U32)
    return output(wanted.shape, U32), inputs, wanted


@case(2, 64)
def packed_bytes(random: Random) -> tuple[list[Any], Judge]:
    def row(a: int, b: int) -> list[int]:
        p, sums = _packing(a, b, 8)
        u = _cut(8, False)
        return [
            *sums,
            p(lambda x, y: u(x - y)),
            p(lambda x, y: abs(x - y)),
            p(lambda x, y: abs(x - y), True),
            p(max),
            p(max, True),
            p(min),
            p(min, True),
            p(lambda x, y: -(x > y)),
            p(lambda x, y: -(x >= y), True),
            p(lambda x, y: x < y),
            p(lambda x, y: -(x == y)),
            p(lambda x, y: (x + y + 1) >> 1),
            p(lambda x, y: (x + y) >> 1),
            _distances(a, b, 8, False),
            _distances(a, b, 8, True),
        ]

    out, inputs, wanted = _table(random, 128, row, 2)
    return [out, *inputs], equal((out, wanted))


def _average(x: int, y: int) -> int:
    """Rounded away from zero where it lies between two."""
    total = x + y
    return (total + 1) >> 1 if total >= 0 else -((-total + 1) >> 1)


@case(2, 64)
def packed_halves(random: Random) -> tuple[list[Any], Judge]:
    def row(a: int, b: int) -> list[int]:
        p, sums = _packing(a, b, 16)
        s = _cut(16, True)
        return [
            *sums,
            p(lambda x, y: abs(x - y)),
            p(lambda x, y: abs(x - y), True),
            p(max, True),
            p(min),
            p(lambda x, y: -(x > y), True),
            p(lambda x, y: x >= y),
            p(_average, True),
            p(lambda x, y: -x),
            p(lambda x, y: abs(x), True),
            p(lambda x, y: s(abs(x)), True),
            _distances(a, b, 16, False),
        ]

    out, inputs, wanted = _table(random, 128, row, 2)
    return [out, *inputs], equal((out, wanted))


@case(2, 64)
def dot_products(random: Random) -> tuple[list[Any], Judge]:
    def row(a: int, b: int, c: int) -> list[int]:
        def dot(bits: int, negative: bool, first: int, count: int) -> int:
            y = _lanes(b, 8, negative)[first:]
            return c + sum(p * q for p, q in zip(_lanes(a, bits, negative)[:count], y, strict=False))

        return [dot(8, True, 0, 4), dot(8, False, 0, 4), *(dot(16, s, f, 2) for s in (True, False) for f in (0, 2))]

    out, inputs, wanted = _table(random, 128, row, 3)
    return [out, *inputs], equal((out, wanted))


def _byte_perm(a: int, b: int, selector: int) -> int:
    data = (a | b << 32).to_bytes(8, "little")
    return int.from_bytes(bytes(data[selector >> 4 * i & 7] for i in range(4)), "little")


def _reverse(x: int, bits: int) -> int:
    return int(f"{x:0{bits}b}"[::-1], 2)


def _extract(a: int, at: int, count: int, bits: int, negative: bool) -> int:
    """bfe: bits beyond the top are copies of the sign, the field's or the word's."""
    if count == 0:
        return 0
    top = min(at + count - 1, bits - 1)
    sign = a >> top & 1 if negative else 0
    field = [a >> at + i & 1 if i < count and at + i < bits else sign for i in range(bits)]
    return sum(bit << i for i, bit in enumerate(field))


@case(2, 64, sample=True)
def shifts_and_bits(random: Random) -> tuple[list[Any], Judge]:
    n = 128
    x, y, s = _words(random, n), random.permutation(_words(random, n)), random.integers(0, 1 << 16, n).astype(U32)
    s[::5] &= 0x7777
    out, wide, rows, wides = output((n, 18), U32), output((n, 6), U64), [], []
    for a, b, k in zip(x.tolist(), y.tolist(), s.tolist(), strict=True):
        w, pair, c = a << 32 | b, b << 32 | a, min(k, 32)
        at, count = k & 63, k >> 6 & 63
        field = ((1 << count) - 1) << at & M32
        mask = 0 if at >= 32 else ((1 << min(count, 32)) - 1) << at & M32
        rows.append(
            [
                pair << (k & 31) >> 32 & M32,
                pair >> (k & 31) & M32,
                pair << c >> 32 & M32,
                pair >> c & M32,
                _byte_perm(a, b, k),
                _reverse(a, 32),
                32 - a.bit_length(),
                (b & -b).bit_length(),
                a.bit_count(),
                64 - w.bit_length(),
                (w & -w).bit_length(),
                w.bit_count(),
                _extract(a, at, count, 32, False),
                _extract(a, at, count, 32, True),
                b & ~field | a << at & field,
                mask,
                signed(a, k & 31) & M32 if k & 31 else 0,
                32 - a.bit_length() if a else M32,
            ]
        )
        v = signed(w, 64)
        wides.append(
            [
                _reverse(w, 64),
                _extract(w, k & 127, k >> 7 & 63, 64, True),
                w << (k & 63) & M64,
                v >> (k & 63) & M64,
                w * (w ^ M64) >> 64,
                v * signed(w ^ 0x123456789, 64) >> 64 & M64,
            ]
        )
    return [out, wide, x, y, s], equal((out, np.array(rows, U32)), (wide, np.array(wides, U64)))


@case(2, 64)
def products(random: Random) -> tuple[list[Any], Judge]:
    def row(a: int, b: int) -> list[int]:
        s, t = signed(a), signed(b)
        s24, t24, u24, v24 = signed(a, 24), signed(b, 24), a & 0xFFFFFF, b & 0xFFFFFF
        high = (s * t >> 32) + 0x70000000
        return [
            s * t >> 32,
            a * b >> 32,
            s24 * t24,
            u24 * v24,
            s + t >> 1,
            s + t + 1 >> 1,
            a + b >> 1,
            a + b + 1 >> 1,
            abs(s - t) + 7,
            abs(a - b) + 9,
            (u24 * v24 >> 16) + 5,
            min(max(high, -(1 << 31)), (1 << 31) - 1),
            s24 * t24 >> 16,
            s * t + (a ^ b),
        ]

    out, inputs, wanted = _table(random, 128, row, 2)
    return [out, *inputs], equal((out, wanted))


def _divide(a: int, b: int) -> tuple[int, int]:
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - quotient * b


def _divisors(random: Random, n: int, bits: int) -> Array:
    x = random.integers(1, 1 << bits, n, dtype=U64) >> random.integers(0, bits, n).astype(U64)
    return np.maximum(x, 1)


@case(2, 64)
def divisions(random: Random) -> tuple[list[Any], Judge]:
    n = 128
    x, y = random.integers(0, 1 << 32, n).astype(U32), _divisors(random, n, 32).astype(U32)
    p, q = random.integers(0, 1 << 64, n, dtype=U64), _divisors(random, n, 64)
    y[::7] = -y[::7]
    q[::5] = -q[::5]
    out, wide, rows, wides = output((n, 8), U32), output((n, 6), U64), [], []
    for a, b, c, d in zip(x.tolist(), y.tolist(), p.tolist(), q.tolist(), strict=True):
        half = _divide(signed(a, 16), signed(b | 1, 16))[1]
        low = (a & 0xFFFF) // (b & 0xFFFF | 1)
        signs = _divide(signed(a), signed(b))
        rows.append([v & M32 for v in (a // b, a % b, *signs, a // 7, _divide(signed(a), 1000)[1], low, half)])
        c64, d64 = signed(c, 64), signed(d, 64)
        wides.append([v & M64 for v in (c // d, c % d, *_divide(c64, d64), c // 10, _divide(c64, -3)[0])])
    return [out, wide, x, y, p, q], equal((out, np.array(rows, U32)), (wide, np.array(wides, U64)))


@case(1, 64)
def wide_products(random: Random) -> tuple[list[Any], Judge]:
    p, q = (random.integers(0, 1 << 64, 64, dtype=U64) >> U64(k) for k in (3, 9))
    p[:4], q[4:8] = [0, 1, 5, M64], [0, 1, M64, 7]
    out, rows, full = output((64, 10), U64), [], (1 << 128) - 1
    for x, y in zip(p.tolist(), q.tolist(), strict=True):
        a, b = x << 64 | y, (y << 17 | x >> 5) & full
        m, s, h, n = a * b & full, a - b & full, a >> (x & 127), a // (b | 1)
        less = signed(a, 128) < signed(b, 128)
        rows.append([v & M64 for v in (m, m >> 64, s, s >> 64, h, h >> 64, n, n >> 64, a % (x | 1), less)])
    return [out, p, q], equal((out, np.array(rows, U64)))


@case(2, 64)
def dpx(random: Random) -> tuple[list[Any], Judge]:
    def row(a: int, b: int, c: int) -> list[int]:
        s, t, r = signed(a), signed(b), signed(c)
        halves = [(signed(x, 16), signed(y, 16)) for x, y in ((a, b), (a >> 16, b >> 16))]
        low = _packed(min, 16, False, a, b)
        takes = [(x & 0xFFFF) <= (y & 0xFFFF) for x, y in halves]
        return [
            max(s, t, r),
            min(s, t, r),
            max(a, b, c),
            max(s, t, 0),
            _packed(max, 16, True, a, b, c),
            _packed(min, 16, False, a, b, c),
            max(signed(a + b), r),
            _packed(lambda x, y, z: min(signed(x + y, 16), z), 16, True, a, b, c),
            _packed(lambda x, y, z: max(signed(x + y, 16), z, 0), 16, True, a, b, c),
            max(s, t) * 2 + (s >= t),
            low ^ takes[1] ^ takes[0] << 16,
            max(a + b & M32, c),
            _packed(lambda x, y: max(min(x, y), 0), 16, True, a, b),
            _packed(lambda x, y, z: max(x, y, z, 0), 16, True, a, b, c),
        ]

    out, inputs, wanted = _table(random, 128, row, 3)
    return [out, *inputs], equal((out, wanted))


def _minimum_into_byte(a: int, b: int, c: int) -> int:
    """vmin with a byte of the result named: that byte is merged into c, cut to its range."""
    value = min(max(min(signed(a), signed(b)), -(1 << 31)), (1 << 31) - 1) & 0xFF
    return c & ~0xFF0000 | value << 16


@case(2, 64)
def video(random: Random) -> tuple[list[Any], Judge]:
    def row(a: int, b: int, c: int) -> list[int]:
        first = (a >> 8 & 0xFF) + signed(b >> 16, 16)
        second = signed(a, 16) - signed(b >> 24, 8) + signed(c)
        fourth = (signed(a >> 16, 16) * signed(b, 16) + signed(c)) >> 7
        average = [signed(x, 16) + signed(y, 16) for x, y in ((a, b), (a >> 16, b >> 16))]
        return [
            first,
            second,
            max(abs(a - b), c),
            _minimum_into_byte(a, b, c),
            fourth,
            signed(a) < b,
            a << (b & 31),
            _distances(a, b, 8, False) + c,
            sum((_halved(v) & 0xFFFF) << 16 * i for i, v in enumerate(average)),
        ]

    out, inputs, wanted = _table(random, 128, row, 3)
    return [out, *inputs], equal((out, wanted))


def _halved(total: int) -> int:
    """The average of two, as vavrg2 rounds it."""
    return total + (1 if total >= 0 else 0) >> 1


@case(2, 32, sample=True)
def sha256(random: Random) -> tuple[list[Any], Judge]:
    text = random.integers(0, 256, (64, 55)).astype(np.uint8)
    length = random.integers(0, 56, 64).astype(I32)
    length[:2] = [0, 55]
    out = output((64, 32), np.uint8)
    digests = [hashlib.sha256(t[:n].tobytes()).digest() for t, n in zip(text, length.tolist(), strict=True)]
    return [out, text, length], equal((out, np.frombuffer(b"".join(digests), np.uint8)))


@case(1, 64)
def crc32(random: Random) -> tuple[list[Any], Judge]:
    text, out = random.integers(0, 256, (64, 23)).astype(np.uint8), output(64, U32)
    return [out, text, 23], equal((out, np.array([zlib.crc32(t.tobytes()) for t in text], U32)))


@case(2, 64)
def philox(random: Random) -> tuple[list[Any], Judge]:
    seed, out, rows = int(random.integers(0, 1 << 32)), output((128, 4), U32), []
    for i in range(128):
        c, k0, k1 = [i, i * 3, 7, 0], seed, seed ^ 0xDEADBEEF
        for _ in range(10):
            m, n = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [n >> 32 ^ c[1] ^ k0, n & M32, m >> 32 ^ c[3] ^ k1, m & M32]
            k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
        rows.append(c)
    return [out, np.uint32(seed)], equal((out, np.array(rows, U32)))


@case(1, 16)
def modular_power(random: Random) -> tuple[list[Any], Judge]:
    base, exponent = (random.integers(0, 1 << 64, 16, dtype=U64) for _ in range(2))
    exponent >>= U64(44)
    modulus, out = (1 << 61) - 1, output(16, U64)
    powers = [pow(b, e, modulus) for b, e in zip(base.tolist(), exponent.tolist(), strict=True)]
    return [out, base, exponent, modulus], equal((out, np.array(powers, U64)))
