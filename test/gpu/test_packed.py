"""Packed weights, 8-bit floats with scales, and rows of experts: the interpreter and the GPU give the same words."""

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
sys.path += [str(Path(__file__).resolve().parents[at] / name) for at, name in ((2, "bench"), (1, "unit"))]
Packed: Any = import_module("packed").Packed
scaled: Any = import_module("scaled").text
blocks, experts, converted = map(import_module, ("test_block_scales", "test_experts", "test_converted_weights"))

Array = NDArray[Any]


def compared(
    text: str,
    arguments: list[Array],
    device: GpuDevice,
    written: int | None = None,
    target: str = "sm_90a",
    **schedule: Any,
) -> None:
    """Runs a product on both, whose last argument is its result, of which so many rows are `written`."""
    if device.sm != bitwise.SM_90:
        pytest.skip(f"the interpreter is held against sm_90 only, this is {device}")
    kernel, results = compile(text, target=target, **schedule), [np.full_like(arguments[-1], np.nan) for _ in range(2)]
    for (where, arch), result in zip((("interp", "sm_90a"), ("cuda", None)), results, strict=True):
        kernel(*arguments[:-1], result, device=where, arch=arch)
    assert not np.isnan(results[0][:written].astype(np.float32)).any()
    here, there = map(bitwise.words, results)
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize(
    "product",
    [
        Packed(16, 128, 512, 4, 128),
        Packed(16, 128, 512, 4, 64, unrounded=True),
        Packed(70, 128, 320, 4, 32, kind="f16", out="f16"),
        Packed(9, 192, 512, 8, 128, points=False),
        Packed(33, 64, 320, 4, 32, points=False, floats=True),
        Packed(300, 192, 2880, 4, 32, points=False, floats=True),
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
        above = random.integers(0, 2, (k // group, 1)) * 3
        s = random.integers(118, 128 + above, s.shape).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)
    arguments = [a, pack_weights(q, bits), s, *([z] if points else []), np.zeros((m, n), dtype)]
    compared(product.text(), [x.reshape(shape) for x, shape in zip(arguments, product.shapes, strict=True)], device)


@pytest.mark.parametrize("schedule", [{}, blocks.HIGH, {**blocks.HIGH, "cluster": "1x2", "ctas": 2}], ids=str)
def test_blocks_of_floats(schedule: dict[str, Any], device: GpuDevice) -> None:
    m, n, k, random = 200, 256, 1024, np.random.default_rng()
    a, b = (random.standard_normal((rows, k)).astype(ml_dtypes.float8_e4m3fn) for rows in (m, n))
    sa, sb = (np.exp2(random.uniform(-3, 3, s)).astype(np.float32) for s in ((k // 128, m), (n // 128, k // 128)))
    compared(scaled(m, n, k), [a, sa, b, sb, np.zeros((m, n), ml_dtypes.bfloat16)], device, **schedule)


def test_rows_of_floats(device: GpuDevice) -> None:
    m, n, k, random = 70, 144, 160, np.random.default_rng()
    of = {"m": m, "n": n, "k": k, "of_a": f"{m}x{k}", "along_a": "m, k"}
    text = blocks.SCALED.format(**of, sa="(i)", sb="(i)", shape_a=m, shape_b=n)
    a = random.standard_normal((m, k)).astype(ml_dtypes.float8_e4m3fn)
    b = random.standard_normal((n, k)).astype(ml_dtypes.float8_e5m2)
    sa, sb = (np.exp2(random.uniform(-3, 3, size)).astype(np.float32) for size in (m, n))
    compared(text, [a, sa, b, sb, np.zeros((m, n), np.float32)], device)


@pytest.mark.parametrize("floats", [False, True])
def test_weights_of_4_bits_by_activations_of_8(floats: bool, device: GpuDevice) -> None:
    types, body = (converted.OF_FLOATS, converted.CONVERTED) if floats else (converted.OF_INTEGERS, converted.EXTENDED)
    random = np.random.default_rng()
    a = random.integers(-128, 128, (20, 160)).astype(np.int8)
    a = (a / 32).astype(ml_dtypes.float8_e4m3fn) if floats else a
    q, s = random.integers(-8, 8, (72, 160)).astype(ml_dtypes.int4), random.random(72).astype(np.float32)
    compared(converted.BYTES.format(body=body, **types), [a, q, s, np.zeros((20, 72), np.float32)], device)


@pytest.mark.parametrize("kind", ["rows", "columns", "gate", "gradient", "tail"])
def test_rows_of_experts(kind: str, device: GpuDevice) -> None:
    random = np.random.default_rng()
    text = {
        "rows": experts.forward("bf16", transposed=False, epilogue=experts.SCALED),
        "columns": experts.forward("bf16", transposed=True),
        "gate": experts.gated(),
        "gradient": experts.gradient("bf16"),
    }.get(kind, experts.forward("bf16", transposed=False))
    schedule = experts.SHARED_TAIL if kind == "tail" else {}
    t, count, k, n = experts.T, experts.E, experts.K, 144 if kind == "gate" else experts.N
    ends = experts.drawn(random)
    shapes = (t, n) if kind == "gradient" else (count, n, k) if kind == "columns" else (count, k, n)
    a, b = experts.operands(random, ml_dtypes.bfloat16, ends, (t, k), shapes)
    s, r = (random.standard_normal(shape).astype(np.float32) for shape in ((count, n), (t,)))
    d = np.zeros({"gradient": (count, k, n), "gate": (t, n // 2)}.get(kind, (t, n)), np.float32)
    written = None if kind == "gradient" else ends[-1]
    compared(text, [a, b, np.array(ends, np.int32), s, r, d], device, written, **schedule)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_rows_of_experts_that_a_table_names(index: Any, device: GpuDevice) -> None:
    random, ends = np.random.default_rng(), experts.drawn(np.random.default_rng())
    t, count, k, n = experts.T, experts.E, experts.K, experts.N
    x, b = (random.standard_normal(shape).astype(np.float16) for shape in ((50, k), (count, k, n)))
    places = random.integers(0, 50, t).astype(index)
    s, r = (random.standard_normal(shape).astype(np.float32) for shape in ((count, n), (t,)))
    arguments = [x, places, b, np.array(ends, np.int32), s, r, np.zeros((t, n), np.float32)]
    compared(experts.named("f16", f"i{8 * places.itemsize}"), arguments, device, ends[-1], "sm_80")
