"""Judges of cuda/warpgroups.cu."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from corpus.case import Array, Judge, Random, equal, kernels_of, output

from warploom.runtime import TensorMap, compress, prune

_case = kernels_of("warpgroups")
F16, F32, BF16, E4M3 = np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


def case(*shape: Any, **options: Any) -> Any:
    return _case(*shape, sm=90, **options)


def _small(random: Random, shape: Any, dtype: Any) -> Array:
    """Whole numbers whose products and sums are exact."""
    return random.integers(-4, 5, shape).astype(dtype)


def _product(a: Array, b: Array) -> Array:
    return (a.astype(np.float64) @ b.astype(np.float64).T).astype(F32)


@case((2, 2), 160, shared=33792, sample=True)
def wgmma_matmul(random: Random) -> tuple[list[Any], Judge]:
    a, b, d = _small(random, (100, 200), BF16), _small(random, (90, 200), BF16), output((100, 90), F32)
    maps = [TensorMap(x, (64, 64), swizzle=128) for x in (a, b)]
    return [*maps, d, 100, 90, 200], equal((d, _product(a, b)))


@case(4, 160, shared=50176, sample=True)
def wgmma_cluster(random: Random) -> tuple[list[Any], Judge]:
    a, b, d = _small(random, (256, 320), BF16), _small(random, (64, 320), BF16), output((256, 64), F32)
    maps = [TensorMap(a, (64, 64), swizzle=128), TensorMap(b, (32, 64), swizzle=128), TensorMap(d, (64, 64))]
    return [*maps, 5], equal((d, _product(a, b)))


@case(1, 128)
def wgmma_registers(random: Random) -> tuple[list[Any], Judge]:
    a, b, d = _small(random, (64, 128), E4M3), _small(random, (64, 128), E4M3), output((64, 64), F32)
    return [a, TensorMap(b, (64, 128), swizzle=128), d], equal((d, _product(a, b)))


@case(1, 128)
def wgmma_sparse(random: Random) -> tuple[list[Any], Judge]:
    a, b, d = prune(_small(random, (64, 128), F16)), _small(random, (64, 128), F16), output((64, 64), F32)
    stored, metadata = compress(a, "wgmma.mma_async.sp")
    maps = [TensorMap(x, (64, 64), swizzle=128) for x in (stored, b)]
    return [maps[0], metadata, maps[1], d], equal((d, _product(a, b)))


@case((3, 4), 32)
def tensor_shift(random: Random) -> tuple[list[Any], Judge]:
    x, out = _small(random, (50, 72), F32), output((60, 88), F32)
    wanted = np.zeros((60, 88), F32)
    wanted[7:57, 4:76] = x
    return [TensorMap(x, (16, 32)), TensorMap(out, (16, 32)), -4, -7], equal((out, wanted))
