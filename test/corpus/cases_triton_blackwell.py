"""Judges of triton_blackwell.py: random operands against float64, within what truncated sums may lose."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from corpus.case import Array, Judge, Random, bounded, equal, kernels_of, output
from corpus.cases_triton_hopper import described
from tensor_cores import halved, value

_case = kernels_of("triton")
F16, F32 = np.float16, np.float32


def case(grid: Any = 1, threads: int = 128, **options: Any) -> Any:
    return _case(grid, threads, sm=100, **options)


def normal(random: Random, *shape: int, dtype: Any = F16) -> Array:
    return random.standard_normal(shape).astype(dtype)


def tiles(size: int, tile: int) -> int:
    return -(-size // tile)


def _product(
    random: Random, size: tuple[int, int, int], types: tuple[Any, Any], unit: float
) -> tuple[list[Any], Judge]:
    m, n, k = size
    a, b = normal(random, m, k, dtype=types[0]), normal(random, k, n, dtype=types[1])
    c = output((m, n), F32)
    return [a, b, c, m, n, k], bounded(c, a, b.T, unit)


def _products(name: str, tile: tuple[int, int], size: tuple[int, int, int], types: tuple[Any, Any] = (F16, F16),
              unit: float = 2.0**-21, **options: Any) -> None:  # fmt: skip
    def setup(random: Random) -> tuple[list[Any], Judge]:
        return _product(random, size, types, unit)

    setup.__name__ = name
    case((tiles(size[0], tile[0]), tiles(size[1], tile[1])), **options)(setup)


_E4M3, _E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
_products("b_matmul", (128, 64), (144, 80, 208), sample=True)
_products("b_matmul_64", (64, 64), (80, 48, 112))
_products("b_matmul_wide", (128, 256), (112, 272, 80), threads=256)
_products("b_matmul_bf16", (128, 128), (144, 80, 208), (ml_dtypes.bfloat16, ml_dtypes.bfloat16))
_products("b_matmul_tf32", (128, 64), (144, 80, 112), (F32, F32), 2.0**-9)
_products("b_matmul_fp8", (128, 64), (144, 80, 272), (_E4M3, _E5M2))


@case(4)
def b_grouped(random: Random) -> tuple[list[Any], Judge]:
    m, n, k = 160, 112, 200
    a, b, c = normal(random, m, k), normal(random, k, n), output((m, n), F16)
    return [a, b, c, m, n, k], bounded(c, a, b.T, 2.0**-10, lambda x: np.where(x >= 0, x, 0.01 * x))


@case((2, 2, 2))
def b_split(random: Random) -> tuple[list[Any], Judge]:
    args, _ = _product(random, (144, 80, 208), (F16, F16), 0)
    args[2][...] = 0
    return args, bounded(args[2], args[0], args[1].T, 2.0**-21)


@case()
def b_chain(random: Random) -> tuple[list[Any], Judge]:
    a, b, c, d = normal(random, 128, 64), normal(random, 64, 64), normal(random, 64, 64), output((128, 64), F32)
    first = (a.astype(F32) @ b.astype(F32)).astype(F16)
    return [a, b, c, d], bounded(d, first, c.T, 2.0**-10)


SIZE = 200, 136, 152


def _described(random: Random, size: tuple[int, int, int] = SIZE, columns: int = 64, sizes: bool = False
               ) -> tuple[list[Any], Judge]:  # fmt: skip
    m, n, k = size
    a, b, c = normal(random, m, k), normal(random, n, k), output((m, n), F16)
    maps = [*described(a, 128, 64), *described(b, columns, 64), *described(c, 128, 64)]
    return [*maps, *((m, n, k) if sizes else (k,))], bounded(c, a, b, 2.0**-10)


@case((2, 3), sample=True)
def b_descriptor(random: Random) -> tuple[list[Any], Judge]:
    return _described(random)


@case(3)
def b_persistent_tma(random: Random) -> tuple[list[Any], Judge]:
    return _described(random, sizes=True)


@case(3, 256, sample=True)
def b_specialised(random: Random) -> tuple[list[Any], Judge]:
    return _described(random, sizes=True)


@case(2, 256)
def b_subtiled(random: Random) -> tuple[list[Any], Judge]:
    return _described(random, columns=128, sizes=True)


@case(2, 256)
def b_made_descriptors(random: Random) -> tuple[list[Any], Judge]:
    """The maps lie in memory that the launcher of Triton brings."""
    m, n, k = 256, 192, 128
    a, b, c = normal(random, m, k), normal(random, n, k), output((m, n), F16)
    return [a, b, c, m, n, k, np.zeros(4096, np.uint8)], bounded(c, a, b, 2.0**-10)


@case((1, 2))
def b_gathered(random: Random) -> tuple[list[Any], Judge]:
    a, b, c = normal(random, 200, 128), normal(random, 128, 128), output((128, 128), F32)
    rows = random.integers(0, 200, 128).astype(np.int32)
    return [rows, *described(a, 1, 64), *described(b, 64, 64), c, 128, 128], bounded(c, a[rows], b, 2.0**-20)


def _numbers(kind: str, codes: Array) -> Array:
    return np.array([value(kind, code) for code in range(256 if kind != "e2m1" else 16)])[codes]


def _scaled_operand(
    random: Random, kind: str, scale: str, rows: int, k: int, vector: int
) -> tuple[Array, Array, Array]:
    """Words, scales, and the numbers that they are."""
    of = _numbers(kind, np.arange(16 if kind == "e2m1" else 256))
    codes = random.choice(np.flatnonzero(np.isfinite(of)), (rows, k)).astype(np.uint8)
    low, top = (118, 133) if scale == "ue8m0" else (1, 0x7F)
    scales = random.integers(low, top, (rows, k // vector)).astype(np.uint8)
    return codes, scales, of[codes] * np.repeat(_numbers(scale, scales), vector, axis=1)


def _scaled(name: str, kinds: tuple[str, str], vector: int, scale: str, **options: Any) -> None:
    def setup(random: Random) -> tuple[list[Any], Judge]:
        args: list[Any] = []
        exact: list[Array] = []
        for kind, rows in zip(kinds, (128, 64), strict=True):
            codes, scales, numbers = _scaled_operand(random, kind, scale, rows, 256, vector)
            args += [halved(codes) if kind == "e2m1" else codes, scales]
            exact.append(numbers)
        c = output((128, 64), F32)
        return [*args, c, 64, 256], bounded(c, exact[0], exact[1], 2.0**-19)

    setup.__name__ = name
    case((1, 1), **options)(setup)


_scaled("b_mxfp8", ("e4m3", "e5m2"), 32, "ue8m0")
_scaled("b_mxfp4", ("e2m1", "e2m1"), 32, "ue8m0")
_scaled("b_nvfp4", ("e2m1", "e2m1"), 16, "ue4m3", sample=True)
_scaled("b_mixed", ("e4m3", "e2m1"), 32, "ue8m0")


def packed_scales(scales: Array) -> Array:
    """Scales of 128 rows and 4 blocks of K in the order of tensor memory, each such tile 512 bytes that follow."""
    rows, blocks = scales.shape
    return np.ascontiguousarray(scales.reshape(rows // 128, 4, 32, blocks // 4, 4).transpose(0, 3, 2, 1, 4))


@case((1, 2))
def b_packed_scales(random: Random) -> tuple[list[Any], Judge]:
    args, exact = [], []
    for rows in (128, 256):
        codes, scales, numbers = _scaled_operand(random, "e2m1", "ue8m0", rows, 512, 32)
        scales -= 4
        packed = packed_scales(scales).reshape(1, rows // 128, 4, 2, 256)
        args += [*described(halved(codes), 128, 128), *described(packed, 1, 1, 2, 2, 256, swizzle=0)]
        exact.append(numbers * 2.0**-4)
    c = output((128, 256), F16)
    return [*args, *described(c, 128, 64), 512], bounded(c, exact[0], exact[1], 2.0**-9)


@case((2, 1))
def b_blockwise(random: Random) -> tuple[list[Any], Judge]:
    m, n, k = 144, 80, 256
    a, b, c = normal(random, m, k, dtype=_E4M3), normal(random, n, k, dtype=_E4M3), output((m, n), F32)
    sa, sb = random.random((m, k // 128)).astype(F32), random.random((1, k // 128)).astype(F32)
    exact = a.astype(np.float64) * np.repeat(sa, 128, axis=1), b.astype(np.float64) * np.repeat(sb, 128, axis=1)
    return [a, b, c, sa, sb, m, n, k], bounded(c, *exact, 2.0**-20)


SCALE = F32(0.18)


def softmax(scores: Array) -> Array:
    p = 2.0 ** (scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def attention(random: Random, n: int, causal: bool, dtype: Any) -> tuple[list[Array], Judge]:
    """Queries, keys, values and outputs, and their judge."""
    q, k, v = (normal(random, n, 64) for _ in range(3))
    o = output((n, 64), dtype)
    scores = q.astype(np.float64) @ k.T.astype(np.float64) * float(SCALE)
    p = softmax(np.where(np.tri(n, dtype=bool), scores, -np.inf) if causal else scores)
    return [q, k, v, o], bounded(o, p, v.T, 2.0**-9)


@case(2)
def b_attention(random: Random) -> tuple[list[Any], Judge]:
    args, judge = attention(random, 256, False, F32)
    return [*args, 256, SCALE], judge


def _flash(name: str, causal: bool, threads: int, **options: Any) -> None:
    def setup(random: Random) -> tuple[list[Any], Judge]:
        (q, k, v, o), judge = attention(random, 256, causal, F16)
        maps = [*described(q, 128, 64), *described(k, 64, 64), *described(v, 64, 64), *described(o, 128, 64)]
        return [*maps, 256, SCALE], judge

    setup.__name__ = name
    case(2, threads, **options)(setup)


_flash("b_flash", False, 128)
_flash("b_flash_causal", True, 128)
_flash("b_flash_roles", False, 384)
_flash("b_flash_causal_roles", True, 384)


@case(2)
def b_attention_keys(random: Random) -> tuple[list[Any], Judge]:
    n = 256
    q, k, v, do = (normal(random, n, 64) for _ in range(4))
    wide = [x.astype(np.float64) for x in (q, k, v, do)]
    scores = wide[0] @ wide[1].T * float(SCALE)
    high = scores.max(axis=1) + np.log2((2.0 ** (scores - scores.max(axis=1, keepdims=True))).sum(axis=1))
    p = 2.0 ** (scores - high[:, None])
    delta = (wide[3] * (p @ wide[2])).sum(axis=1)
    ds = p * (wide[3] @ wide[2].T - delta[:, None])
    dk, dv = output((n, 64), F32), output((n, 64), F32)
    judges = bounded(dk, ds.T, wide[0].T, 2.0**-8), bounded(dv, p.T, wide[3].T, 2.0**-8)

    def judge() -> None:
        for one in judges:
            one()

    return [q, k, v, do, high.astype(F32), delta.astype(F32), dk, dv, n, SCALE], judge


# Gluon


def _gluon(name: str, grid: Any, threads: int = 128, sizes: bool = False, **options: Any) -> None:
    def setup(random: Random) -> tuple[list[Any], Judge]:
        args, judge = _described(random)
        return [*args[:-1], *(SIZE if sizes else SIZE[2:])], judge

    setup.__name__ = name
    case(grid, threads, **options)(setup)


_gluon("g_tensor_matmul", (2, 3))
_gluon("g_tensor_ring", (2, 3))
_gluon("g_tensor_cancels", (2, 3))
_gluon("g_tensor_roles", 2, 256, sizes=True, sample=True)


@case()
def g_tensor_left(random: Random) -> tuple[list[Any], Judge]:
    a, b, c = normal(random, 128, 64), normal(random, 64, 64), output((128, 64), F32)
    return [a, b, c], bounded(c, a, b.T, 2.0**-21)


@case((2, 2), cluster=2, sample=True)
def g_tensor_pair(random: Random) -> tuple[list[Any], Judge]:
    a, b, c = normal(random, 200, 152), normal(random, 136, 152), output((200, 136), F16)
    maps = [*described(a, 128, 64), *described(b, 64, 64), *described(c, 128, 64)]
    return [*maps, 152], bounded(c, a, b, 2.0**-10)


@case()
def g_tensor_scaled(random: Random) -> tuple[list[Any], Judge]:
    sides = [_scaled_operand(random, "e4m3", "ue8m0", rows, 256, 32) for rows in (128, 64)]
    (a, sa, x), (b, sb, y) = sides
    c = output((128, 64), F32)
    return [*described(a, 128, 128), *described(b, 64, 128), sa, sb, c, 256], bounded(c, x, y, 2.0**-19)


@case()
def g_tensor_copy(random: Random) -> tuple[list[Any], Judge]:
    a, c = normal(random, 128, 64, dtype=F32), output((128, 64), F32)
    return [a, c], equal((c, a))
