"""Judges of cuda/async.cu."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from corpus.case import Array, Judge, Random, close, equal, kernels_of, output

case = kernels_of("async")
I32, F32, BF16 = np.int32, np.float32, ml_dtypes.bfloat16


def _ints(random: Random, shape: Any, low: int = -1000, high: int = 1000) -> Array:
    return random.integers(low, high, shape).astype(I32)


@case(1, 64, sample=True)
def pipelined_sums(random: Random) -> tuple[list[Any], Judge]:
    turns = 7
    x, out = _ints(random, (turns, 64, 4)).astype(F32), output(64, F32)
    wanted = np.sum([v[:, 0] + 2 * v[:, 1] - v[:, 2] + v[:, 3] * i for i, v in enumerate(x)], axis=0)
    return [out, x, turns], equal((out, wanted[::-1]))


@case(1, 64)
def zero_filled(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 50), output(64, I32)
    return [out, x, 50], equal((out, np.concatenate([x, np.zeros(14, I32)])[::-1]))


@case(1, 64)
def cuda_pipeline(random: Random) -> tuple[list[Any], Judge]:
    x, out, t = _ints(random, (5, 64)), output(64, I32), np.arange(64)
    total = np.zeros(64, np.int64)
    for i in range(5):
        total = total * 5 + x[i, (t * 3 + i) % 64]
    return [out, x, 5], equal((out, total))


@case(1, 32)
def barrier_copy(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 128), output(128, I32)
    return [out, x], equal((out, x[::-1]))


@case(1, 32)
def wmma_double(random: Random) -> tuple[list[Any], Judge]:
    a, b, d = random.standard_normal((8, 20)), random.standard_normal((8, 20)), output((8, 8), np.float64)
    return [d, a, b, 20], close((d, 1 + a @ b.T), rtol=1e-13, atol=1e-13)


@case(1, 32)
def wmma_tf32(random: Random) -> tuple[list[Any], Judge]:
    a, b = (_ints(random, s, -99, 99).astype(F32) for s in ((16, 8), (8, 16)))
    d = output((16, 16), F32)
    return [d, a, b], equal((d, 2 * (a @ b).T))


@case(1, 32)
def wmma_integers(random: Random) -> tuple[list[Any], Judge]:
    a, b = (_ints(random, s, -128, 128).astype(np.int8) for s in ((16, 32), (8, 16)))
    p = random.integers(0, 256, (2, 8, 16)).astype(np.uint8)
    d, e = output((32, 8), I32), output((8, 8), I32)
    bits = np.unpackbits(p, axis=2).astype(int)
    ones = (bits[0][:, None] ^ bits[1][None]).sum(2) + 3
    return [d, a, b.view(np.uint8), e, p], equal((d, a.T.astype(int) @ b.T - 7), (e, ones))


@case((2, 3), 32)
def wmma_bf16(random: Random) -> tuple[list[Any], Judge]:
    a, b = random.standard_normal((48, 64)).astype(BF16), random.standard_normal((64, 32)).astype(BF16)
    d = output((48, 32), F32)
    wanted = np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0)
    return [d, a, b, 32, 64], close((d, wanted), rtol=1e-4, atol=1e-4)


@case(2, 32, differs="approximate powers of two", sample=True)
def flash_attention(random: Random) -> tuple[list[Any], Judge]:
    q, k, v = (random.standard_normal((n, 16)).astype(BF16) for n in (32, 48, 48))
    out, scale = output((32, 16), F32), 0.25
    s = q.astype(np.float64) @ k.astype(np.float64).T * scale * np.log(2)
    e = np.exp(s - s.max(1, keepdims=True))
    return [out, q, k, v, 48, scale], close(
        (out, e / e.sum(1, keepdims=True) @ v.astype(np.float64)), rtol=2e-2, atol=1e-2
    )
