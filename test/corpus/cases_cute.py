"""Judges of cute_ptx.py."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from corpus.case import Array, Judge, Random, bounded, equal, kernels_of, output
from corpus.cute_ptx import PROGRAMS, SIZES

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


# In tensor memory. The first parameter is what a tiled product holds, of which kernels set what they use.


def _divisor(d: int) -> bytes:
    """What divides by a number by a multiplication and shifts."""
    bits = (d - 1).bit_length()
    words = np.array([d, (((1 << bits) - d) << 32) // d + 1], np.uint32)
    return words.tobytes() + bytes([min(bits, 1), max(bits - 1, 0), 0, 0])


def _tensor(name: str, grid: Any, threads: int, rows: tuple[int, int] = (128, 64), *, tiles: tuple[int, ...] = (),
            stores: bool = True, cluster: Any = None, refused: str = "", sample: bool = False) -> None:  # fmt: skip
    """A case: `rows` of the boxes of A and B; `tiles` that a persistent kernel divides by."""
    m, n, k = PROGRAMS[name].sizes
    narrow = PROGRAMS[name].types[0] != "Float16"

    def setup(random: Random) -> tuple[list[Any], Judge]:
        of = ml_dtypes.float8_e4m3fn if narrow else F16
        a, b = (random.standard_normal(shape).astype(of) for shape in ((m, k), (n, k)))
        c: Array = output((m, n), F16)
        maps = [TensorMap(x, (box, 128 // x.itemsize), swizzle=128) for x, box in zip((a, b), rows, strict=True)]
        where = TensorMap(c, (128, 32), swizzle=64) if stores else c
        map_bytes = bytes(64 if cluster == (2, 1, 1) else 32)
        return [map_bytes, *maps, where, *map(_divisor, tiles)], bounded(c, a, b, 2.0**-10)

    setup.__name__ = name
    _case(grid, threads, sm=100, shared=SHARED, cluster=cluster, refused=refused, sample=sample)(setup)


REUSED = "overwrites what the cp.async.bulk.tensor"
"""The epilogue of the dynamic example counts no tiles, so that each begins with the first of four stages of C, which up
to three stores may still be reading."""

_tensor("c_tensor", (2, 3), 128)
_tensor("c_tensor_pair", (2, 2), 128, (128, 64), cluster=(2, 1, 1))
_tensor("c_tensor_staged", (2, 3), 128)
_tensor("c_tensor_persistent", (1, 1, 2), 192, tiles=(2, 3, 1, 1), sample=True)
_tensor("c_tensor_persistent_pair", (2, 1), 192, tiles=(1, 2, 1, 1), cluster=(2, 1, 1))
_tensor("c_tensor_multicast", (2, 2), 192, (64, 32), tiles=(1, 2, 1, 1), cluster=(2, 2, 1))
_tensor("c_tensor_fp8", (1, 1, 2), 192, tiles=(2, 3, 1, 1))
_tensor("c_tensor_dynamic", (2, 3), 224, refused=REUSED)
_tensor("c_tutorial_0", (2, 1), 128, (128, 256), stores=False)
_tensor("c_tutorial_1", (2, 1), 128, (128, 128), stores=False, cluster=(2, 1, 1))
_tensor("c_tutorial_2", (2, 1), 192, (128, 128), cluster=(2, 1, 1))
_tensor("c_tutorial_3", (2, 1), 192, (128, 128), tiles=(1, 1, 1, 1), cluster=(2, 1, 1))
