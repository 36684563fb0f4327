"""Judges of tilelang_ptx.py."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from corpus.case import Judge, Random, bounded, kernels_of, output

from warploom.runtime import TensorMap

_case = kernels_of("tilelang")
SHARED = 230400


def _product(name: str, size: tuple[int, int, int], tile: tuple[int, int], types: tuple[Any, Any], unit: float,
             box: tuple[int, int, int] | None, threads: int = 256, *, copies: bool = True, refused: str = "",
             sample: bool = False) -> None:  # fmt: skip
    """A case; `box` is that of C and its swizzle, None where threads store."""
    m, n, k = size

    def setup(random: Random) -> tuple[list[Any], Judge]:
        a, b = (random.standard_normal(shape).astype(types[0]) for shape in ((m, k), (n, k)))
        c = output((m, n), types[1])
        maps = [TensorMap(x, (rows, 128 // x.itemsize), swizzle=128) for x, rows in zip((a, b), tile, strict=True)]
        where = c if box is None else TensorMap(c, box[:2], swizzle=box[2])
        return [*(maps if copies else (a, b)), where], bounded(c, a, b, unit)

    setup.__name__ = name
    _case((-(-n // tile[1]), -(-m // tile[0])), threads, sm=100, shared=SHARED, refused=refused, sample=sample)(setup)


F16, F32, BF16, E4M3 = np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
EARLY = "overwrites what the tcgen05.mma"
"""TileLang 0.1.15 fills a stage again before it waits for the product that reads it: with roles the consumer gives it
back first, without them the copies of the next stage come first."""

_product("l_tensor", (200, 136, 152), (128, 128), (F16, F16), 2.0**-10, (128, 64, 128), refused=EARLY, sample=True)
_product("l_tensor_plain", (256, 128, 256), (128, 64), (F16, F16), 2.0**-10, (128, 64, 128), 128, copies=False)
_product("l_tensor_example", (256, 128, 256), (128, 64), (F16, F16), 2.0**-10, None, 128, copies=False, refused=EARLY)
_product("l_tensor_bf16", (200, 136, 152), (128, 64), (BF16, F32), 2.0**-20, (128, 32, 128), refused=EARLY)
_product("l_tensor_fp8", (256, 128, 384), (128, 128), (E4M3, F16), 2.0**-10, None, refused=EARLY)
