"""Packed weights, and 8-bit floats in blocks, by warpgroups: the interpreter and the GPU give the same words."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import bitwise
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import compile, pack_weights
from warploom.runtime.cuda.driver import GpuDevice

pytestmark = pytest.mark.gpu
sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
Packed: Any = import_module("packed").Packed
scaled: Any = import_module("scaled").text

Array = NDArray[Any]


def compared(text: str, given: list[Array], device: GpuDevice) -> None:
    """Runs a product on both, whose last argument is its result."""
    if device.sm != bitwise.SM_90:
        pytest.skip(f"the interpreter is held against sm_90 only, this is {device}")
    kernel, results = compile(text, target="sm_90a"), [np.full_like(given[-1], np.nan) for _ in range(2)]
    for where, result in zip(("interp", "cuda"), results, strict=True):
        kernel(*given[:-1], result, device=where)
    assert not np.isnan(results[0].astype(np.float32)).any()
    here, there = map(bitwise.words, results)
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize(
    "product",
    [
        Packed(16, 128, 512, 4, 128),
        Packed(70, 128, 320, 4, 32, kind="f16", out="f16"),
        Packed(9, 192, 512, 8, 128, points=False),
        Packed(33, 64, 320, 4, 32, points=False, floats=True),
    ],
    ids=str,
)
def test_packed_weights(product: Any, device: GpuDevice) -> None:
    (m, n, k, bits, group, points, kind, *_), random = product, np.random.default_rng()
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    a = (random.standard_normal((m, k)) * 2.0 ** random.integers(-6, 6, (m, k))).astype(dtype)
    q = random.integers(0, 1 << bits, (n, k)).astype(np.uint8)
    s = (random.random((k // group, n)) / 16 + 0.01).astype(dtype)
    z = (random.random((k // group, n)) * (1 << bits)).astype(dtype)
    if product.floats:
        s = random.integers(118, 131, s.shape).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)
    given = [a, pack_weights(q, bits), s, *([z] if points else []), np.zeros((m, n), dtype)]
    compared(product.text(), [x.reshape(shape) for x, shape in zip(given, product.shapes, strict=True)], device)


def test_blocks_of_floats(device: GpuDevice) -> None:
    m, n, k, random = 200, 256, 1024, np.random.default_rng()
    a, b = (random.standard_normal((rows, k)).astype(ml_dtypes.float8_e4m3fn) for rows in (m, n))
    sa, sb = (np.exp2(random.uniform(-3, 3, s)).astype(np.float32) for s in ((k // 128, m), (n // 128, k // 128)))
    compared(scaled(m, n, k), [a, sa, b, sb, np.zeros((m, n), ml_dtypes.bfloat16)], device)
