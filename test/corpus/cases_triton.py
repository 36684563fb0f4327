"""Judges of triton_programs.py. A block has the threads that the PTX asks for; its first line has the shared memory."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from corpus.case import Array, Judge, Random, both, close, equal, kernels_of, output

_case = kernels_of("triton")
I32, U32, I64, F16, F32, F64, BF16 = (
    np.int32,
    np.uint32,
    np.int64,
    np.float16,
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
)
FUSED = "mul.f32 and add.f32, which ptxas may fuse"
APPROXIMATE = "approximate instructions"


def case(grid: Any = 1, threads: int = 128, **options: Any) -> Any:
    return _case(grid, threads, **options)


def _normal(random: Random, shape: Any, dtype: Any = F32) -> Array:
    return random.standard_normal(shape).astype(dtype)


def _ints(random: Random, shape: Any, low: int = -1000, high: int = 1000, dtype: Any = I32) -> Array:
    return random.integers(low, high, shape).astype(dtype)


@case(3, sample=True)
def t_add(random: Random) -> tuple[list[Any], Judge]:
    x, y, out = _normal(random, 700), _normal(random, 700), output(700, F32)
    return [x, y, out, 700], equal((out, x + y))


@case(3, differs=FUSED)
def t_mul_add(random: Random) -> tuple[list[Any], Judge]:
    x, y, out = _normal(random, 700), _normal(random, 700), output(700, F32)
    return [x, y, out, 700], close((out, x.astype(F64) * y + x), rtol=1e-6, atol=1e-6)


@case(2)
def t_mixed(random: Random) -> tuple[list[Any], Judge]:
    x, y, out = _normal(random, 900, F16), _normal(random, 900, BF16), output(900, F32)
    return [x, y, out, 900], equal((out, np.where(x > 0, x.astype(F32), y.astype(F32) * 2)))


@case(5)
def t_row_sum(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, (5, 200)).astype(F32), output(5, F32)
    return [x, out, 200], equal((out, x.sum(1)))


@case(5, sample=True)
def t_row_max(random: Random) -> tuple[list[Any], Judge]:
    x, out, index = _ints(random, (5, 200), 0, 90).astype(F32), output(5, F32), output(5, I32)
    return [x, out, index, 200], equal((out, x.max(1)), (index, x.argmax(1)))


def _softmax(x: Array) -> Array:
    e = np.exp(x.astype(F64) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@case(5, differs=APPROXIMATE)
def t_softmax(random: Random) -> tuple[list[Any], Judge]:
    x, out = _normal(random, (5, 200)), output((5, 200), F32)
    return [x, out, 200], close((out, _softmax(x)), rtol=3e-6)


@case(4, differs=FUSED, sample=True)
def t_layer_norm(random: Random) -> tuple[list[Any], Judge]:
    x, w, b, out = _normal(random, (4, 150), F16), _normal(random, 150), _normal(random, 150), output((4, 150), F16)
    wide = x.astype(F64)
    y = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * w + b
    return [x, w, b, out, 150, 1e-5], close((out, y), rtol=2e-3, atol=2e-3)


@case(3, differs=FUSED)
def t_rms_norm(random: Random) -> tuple[list[Any], Judge]:
    x, w, out = _normal(random, (3, 300)), _normal(random, 300), output((3, 300), F32)
    wide = x.astype(F64)
    return [x, w, out, 300], close(
        (out, wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * w), rtol=1e-5, atol=1e-6
    )


@case(2, differs=FUSED)
def t_gelu(random: Random) -> tuple[list[Any], Judge]:
    x, out = _normal(random, 400), output(400, F32)
    y = [0.5 * v * (1 + math.erf(v * math.sqrt(0.5))) for v in x.tolist()]
    return [x, out, 400], close((out, y), rtol=1e-5, atol=1e-6)


@case(2, differs=APPROXIMATE)
def t_swiglu(random: Random) -> tuple[list[Any], Judge]:
    gate, up, out = _normal(random, 400, BF16), _normal(random, 400, BF16), output(400, BF16)
    g = gate.astype(F64)
    return [gate, up, out, 400], close((out, g / (1 + np.exp(-g)) * up.astype(F64)), rtol=1.2e-2, atol=1e-6)


@case(4, differs=APPROXIMATE)
def t_cross_entropy(random: Random) -> tuple[list[Any], Judge]:
    x, target, loss = _normal(random, (4, 180)), _ints(random, 4, 0, 180), output(4, F32)
    return [x, target, loss, 180], close((loss, -np.log(_softmax(x)[np.arange(4), target])), rtol=1e-5)


def _philox(seed: int, n: int) -> Array:
    """Philox of 4 x 32 bits, ten rounds: the first word for each counter."""
    m32, words = 0xFFFFFFFF, []
    for i in range(n):
        c, k0, k1 = [i, 0, 0, 0], seed & m32, 0
        for _ in range(10):
            p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [q >> 32 ^ c[1] ^ k0, q & m32, p >> 32 ^ c[3] ^ k1, p & m32]
            k0, k1 = (k0 + 0x9E3779B9) & m32, (k1 + 0xBB67AE85) & m32
        words.append(c[0])
    return np.array(words, U32)


@case(2)
def t_dropout(random: Random) -> tuple[list[Any], Judge]:
    x, out, seed = _normal(random, 400), output(400, F32), 1234
    word = _philox(seed, 400).view(I32).astype(I64)
    chance = np.where(word < 0, -word - 1, word).astype(F32) * F32(4.6566127342e-10)
    return [x, out, seed, 400], equal((out, np.where(chance > F32(0.25), x, 0)))


@case(1)
def t_philox(random: Random) -> tuple[list[Any], Judge]:
    out = output(256, U32)
    return [out, 77], equal((out, _philox(77, 256)))


@case(1, sample=True)
def t_cumsum(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 200), output(200, I32)
    return [x, out, 200], equal((out, np.cumsum(x)))


@case(1)
def t_segmented_scan(random: Random) -> tuple[list[Any], Judge]:
    x, flag, out = _ints(random, 256).astype(F32), (random.random(256) < 0.1).astype(np.uint8), output(256, F32)
    sums, s = [], 0.0
    for v, f in zip(x.tolist(), flag.tolist(), strict=True):
        s = v if f else s + v
        sums.append(s)
    return [x, flag, out], equal((out, sums))


@case(2, sample=True)
def t_sort(random: Random) -> tuple[list[Any], Judge]:
    x, out = _normal(random, (2, 128)), output((2, 128), F32)
    return [x, out], equal((out, np.sort(x, axis=1)))


@case(1, sample=True)
def t_histogram(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 200, 0, 32), output(32, I32)
    return [x, out, 200], equal((out, np.bincount(x, minlength=32)))


@case(3)
def t_atomic_histogram(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 300, 0, 20), np.zeros(20, I32)
    return [x, out, 300], equal((out, np.bincount(x, minlength=20)))


@case(2)
def t_atomics(random: Random) -> tuple[list[Any], Judge]:
    x = _ints(random, 400).astype(F32)
    total, top, bits = np.zeros(2, F32), np.full(4, -9999, I32), np.zeros(3, I32)
    place, i = np.arange(400), x.astype(I32)
    tops = [i[place % 4 == j].max() for j in range(4)]
    xors = [np.bitwise_xor.reduce(i[place % 3 == j]) for j in range(3)]
    return [x, total, top, bits, 400], both(equal((total, [x.sum(), 2])), equal((top, tops), (bits, xors)))


@case(5)
def t_lock(random: Random) -> tuple[list[Any], Judge]:
    lock, out = np.zeros(1, I32), np.zeros(1, I32)
    return [lock, out], equal((lock, [0]), (out, [121]))


@case((2, 2))
def t_transpose(random: Random) -> tuple[list[Any], Judge]:
    x, out = _normal(random, (50, 37)), output((37, 50), F32)
    return [x, out, 50, 37], equal((out, x.T))


def _product(a: Array, b: Array) -> Array:
    return a.astype(F64) @ b.astype(F64)


@case((2, 2), differs="tensor cores of another target add otherwise", sample=True)
def t_matmul(random: Random) -> tuple[list[Any], Judge]:
    m, n, k = 50, 41, 70
    a, b, c = _normal(random, (m, k), F16), _normal(random, (k, n), F16), output((m, n), F32)
    return [a, b, c, m, n, k], close((c, _product(a, b)), rtol=1e-4, atol=1e-4)


@case(1)
def t_matmul_int8(random: Random) -> tuple[list[Any], Judge]:
    a, b, c = (
        _ints(random, (32, 96), -128, 128, np.int8),
        _ints(random, (32, 96), -128, 128, np.int8),
        output((32, 32), I32),
    )
    return [a, b, c, 96], equal((c, a.astype(int) @ b.astype(int).T))


@case(1)
def t_matmul_ieee(random: Random) -> tuple[list[Any], Judge]:
    a, b, c = _normal(random, (16, 16)), _normal(random, (16, 16)), output((16, 16), F32)
    return [a, b, c], close((c, _product(a, b)), rtol=1e-5, atol=1e-5)


@case(1, differs="tensor cores of another target add otherwise")
def t_matmul_tf32(random: Random) -> tuple[list[Any], Judge]:
    a, b, c = _normal(random, (32, 32)), _normal(random, (32, 32)), output((32, 32), F32)
    return [a, b, c], close((c, _product(a, b)), rtol=1e-2, atol=1e-2)


@case(6, differs="tensor cores of another target add otherwise")
def t_matmul_grouped(random: Random) -> tuple[list[Any], Judge]:
    m, n, k = 100, 70, 64
    a, b, c = _normal(random, (m, k), BF16), _normal(random, (k, n), BF16), output((m, n), BF16)
    return [a, b, c, m, n, k], close((c, np.maximum(_product(a, b), 0)), rtol=1e-2, atol=1e-3)


@case(2, differs=APPROXIMATE)
def t_attention(random: Random) -> tuple[list[Any], Judge]:
    q, k, v = (_normal(random, (64, 32), F16) for _ in range(3))
    out, scale = output((64, 32), F16), 0.25
    s = np.where(np.tri(64, dtype=bool), _product(q, k.T) * scale * math.log(2), -np.inf)
    return [q, k, v, out, 64, scale], close((out, _softmax(s) @ v.astype(F64)), rtol=1e-2, atol=5e-3)


@case(6)
def t_embedding(random: Random) -> tuple[list[Any], Judge]:
    table, index, out = _normal(random, (20, 50)), _ints(random, 6, 0, 20, I64), output((6, 50), F32)
    return [table, index, out, 50], equal((out, table[index]))


@case(5, differs=FUSED)
def t_rotary(random: Random) -> tuple[list[Any], Judge]:
    x, angle, out = _normal(random, (5, 64)), _normal(random, (5, 32)), output((5, 64), F32)
    c, s = np.cos(angle), np.sin(angle)
    a, b = x[:, :32].astype(F64), x[:, 32:].astype(F64)
    return [x, c, s, out], close((out, np.concatenate([a * c - b * s, b * c + a * s], 1)), rtol=1e-5, atol=1e-6)


@case(2, differs=FUSED)
def t_conv1d(random: Random) -> tuple[list[Any], Judge]:
    x, w, out = _normal(random, 200), _normal(random, 5), output(200, F32)
    return [x, w, out, 200], close((out, np.convolve(x.astype(F64), w[::-1], "same")), rtol=1e-5, atol=1e-6)


@case(4, differs=APPROXIMATE)
def t_quantize(random: Random) -> tuple[list[Any], Judge]:
    x, out, scale = _normal(random, (4, 150)), output((4, 150), np.int8), output(4, F32)
    s = np.abs(x).max(1, keepdims=True).astype(F64) / 127
    return [x, out, scale, 150], both(close((out, x / s), rtol=0, atol=0.5001), close((scale, s), rtol=1e-6))


@case(1, sample=True)
def t_fp8(random: Random) -> tuple[list[Any], Judge]:
    x, out, back = _normal(random, 100), output(100, np.uint8), output(100, F32)
    narrow = x.astype(ml_dtypes.float8_e5m2)
    return [x, out, back, 100], equal((out, narrow.view(np.uint8)), (back, narrow.astype(F32)))


@case(1, sample=True)
def t_integers(random: Random) -> tuple[list[Any], Judge]:
    x, y, out = _ints(random, 100, -(1 << 31), 1 << 31), _ints(random, 100, 1, 1 << 20), output(100, I32)
    a, b = x.astype(I64), y.astype(I64)
    quotient = np.trunc(a / b).astype(I64)
    high = (x.view(U32).astype(np.uint64) * y.view(U32) >> 32).astype(I64)
    total = quotient * 3 + a - quotient * b + (a >> 3) + (a ^ b) + high + np.minimum(a, b)
    return [x, y, out, 100], equal((out, (total & 0xFFFFFFFF).astype(U32).view(I32)))


@case(1)
def t_integers64(random: Random) -> tuple[list[Any], Judge]:
    x, out = random.integers(-(1 << 62), 1 << 62, 100), output(100, I64)
    rows = []
    for v in x.tolist():
        total = v * 6364136223846793005 + (v >> 17) - abs(v) // 1000 * (1 if v >= 0 else -1)
        rows.append(total & (1 << 64) - 1)
    return [x, out, 100], equal((out, np.array(rows, np.uint64).view(I64)))


@case(1, differs=APPROXIMATE)
def t_functions(random: Random) -> tuple[list[Any], Judge]:
    x, out = (random.random(100) * 4 + 0.1).astype(F32), output(100, F32)
    v = x.astype(F64)
    y = np.sin(v) + 2 * np.cos(v) + np.exp(v) + np.log(v) + np.sqrt(v) + np.floor(v) + np.log2(v)
    return [x, out, 100], close((out, y), rtol=1e-5, atol=1e-5)


@case(1)
def t_division(random: Random) -> tuple[list[Any], Judge]:
    x, y, out = _normal(random, 100), _normal(random, 100), output(100, F32)
    fused = (x.astype(F64) * y + x).astype(F32)
    return [x, y, out, 100], close((out, (x / y + np.sqrt(np.abs(x))) + fused), rtol=1e-6, atol=1e-6)


@case(1)
def t_shapes(random: Random) -> tuple[list[Any], Judge]:
    x, out = _normal(random, 64), output(192, F32)
    a, b = x.reshape(8, 8).T.reshape(-1), x[::-1]
    return [x, out], equal((out, np.concatenate([a * 2 + b, np.stack([a, b], 1).reshape(-1)])))


@case(1)
def t_gather(random: Random) -> tuple[list[Any], Judge]:
    x, index, out = _normal(random, (16, 32)), _ints(random, (16, 32), 0, 32), output((16, 32), F32)
    return [x, index, out], equal((out, np.take_along_axis(x, index, 1)))


@case(3, 256, differs=FUSED)
def t_welford(random: Random) -> tuple[list[Any], Judge]:
    x, out = _normal(random, (3, 512)), output((3, 2), F32)
    wide = x.astype(F64)
    return [x, out], close((out, np.stack([wide.mean(1), wide.var(1)], 1)), rtol=1e-5, atol=1e-6)


@case(1, differs="tensor cores of another target add otherwise")
def t_descriptor(random: Random) -> tuple[list[Any], Judge]:
    a, c = _normal(random, (32, 80), F16), output((32, 32), F32)
    maps = np.zeros(1024, np.uint8)  # where the kernel for sm_90 makes its tensor maps
    return [a, c, 80, maps], close((c, _product(a, a.T)), rtol=1e-4, atol=1e-4)


@case(3, differs="what the blocks do first is up to the machine")
def t_compact(random: Random) -> tuple[list[Any], Judge]:
    x, count, out = _normal(random, 300), np.zeros(1, I32), output(300, F32)
    kept = np.sort(x[x > 0])

    def judge() -> None:
        equal((count, [kept.size]))()
        equal((np.sort(out[: kept.size]), kept))()

    return [x, count, out, 300], judge


@case(1)
def t_collatz_like(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 100, 1, 9).astype(F32), output(100, F32)
    v = np.concatenate([x, np.ones(28, F32)]).astype(F64)
    for i in range(4):
        v = v + v.max() * 0.25 if i % 2 else np.where(v > 4, v * 0.5, v * 3 + 1)
    return [x, out, 100, 4], equal((out, v[:100]))


@case(3, 32, differs=APPROXIMATE)
def t_one_warp_softmax(random: Random) -> tuple[list[Any], Judge]:
    x, out = _normal(random, (3, 200)), output((3, 200), F32)
    return [x, out, 200], close((out, np.log(_softmax(x))), rtol=1e-5, atol=1e-5)
