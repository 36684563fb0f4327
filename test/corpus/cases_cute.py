"""Judges of cute_ptx.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from corpus.case import Judge, Random, equal, kernels_of, output
from corpus.cute_ptx import SIZES

from warploom.runtime import TensorMap

_case = kernels_of("cute")
F16 = np.float16
SHARED = 230400
"""Bytes that the compiler lays tiles of 64 x 64 out in: as many stages as a multiprocessor has room for."""


def case(grid: Any, threads: int, **options: Any) -> Any:
    return _case(grid, threads, sm=90, **options)


def _matmul(random: Random, columns: int) -> tuple[list[Any], Judge]:
    """Whole numbers whose sums are exact; a box of B has so many of its columns. The last parameter is empty."""
    m, n, k = SIZES
    a, b = (random.integers(-3, 4, shape).astype(F16) for shape in ((m, k), (n, k)))
    c = output((m, n), F16)
    maps = [TensorMap(a, (64, 64), swizzle=128), TensorMap(b, (columns, 64), swizzle=128)]
    return [*maps, TensorMap(c, (64, 32), swizzle=64), b"\0"], equal((c, a.astype(np.float64) @ b.astype(np.float64).T))


@case((4, 3), 128, shared=SHARED, sample=True)
def c_gemm(random: Random) -> tuple[list[Any], Judge]:
    return _matmul(random, 64)


@case((4, 3), 128, shared=SHARED, cluster=(2, 1, 1))
def c_gemm_cluster(random: Random) -> tuple[list[Any], Judge]:
    """Each of two CTAs copies half of the tile of B to both."""
    return _matmul(random, 32)
