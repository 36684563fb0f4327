"""Judges of triton_hopper.py. A tensor descriptor is a tensor map, and then the sizes and strides in elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from corpus.case import Array, Judge, Random, equal, kernels_of, output

from warploom.runtime import TensorMap

_case = kernels_of("triton")
F16 = np.float16


def case(grid: Any, threads: int, **options: Any) -> Any:
    return _case(grid, threads, sm=90, **options)


def described(array: Array, *box: int, swizzle: int = 128) -> list[Any]:
    return [TensorMap(array, box, swizzle=swizzle), *array.shape, *(step // array.itemsize for step in array.strides)]


def _matmul(random: Random, columns: int) -> tuple[list[Any], Judge]:
    """Whole numbers whose sums are exact, in a matrix that is no multiple of a tile."""
    a, b = (random.integers(-3, 4, shape).astype(F16) for shape in ((100, 200), (168, 200)))
    c = output((100, 168), F16)
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    return [*described(a, 64, 64), *described(b, columns, 64), *described(c, 64, 64), 200], equal((c, wanted))


@case((2, 3), 128)
def t_descriptor_matmul(random: Random) -> tuple[list[Any], Judge]:
    return _matmul(random, 64)


@case((2, 2), 384, sample=True)
def t_specialised_matmul(random: Random) -> tuple[list[Any], Judge]:
    return _matmul(random, 128)


@case((2, 3), 128)
def g_matmul(random: Random) -> tuple[list[Any], Judge]:
    return _matmul(random, 64)


@case((2, 3), 256, sample=True)
def g_specialised(random: Random) -> tuple[list[Any], Judge]:
    return _matmul(random, 64)
