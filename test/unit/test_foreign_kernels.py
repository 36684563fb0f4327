"""Kernels that other compilers made, run by the interpreter: nvcc's of the .cu files and Triton's, beside the .ptx."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import gcd
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from binary_formats import F64
from numpy.typing import NDArray

from warploom.dialect.isa.sparse_mma import TWO_LANES_BY_CHUNK, TWO_OF_FOUR
from warploom.runtime import WarploomError, load_ptx
from warploom.runtime.kernel.module import PtxModule
from warploom.runtime.numerics.sparse import dense_of, pruned, stored_of

Array = NDArray[Any]
KERNELS = Path(__file__).parent.parent / "data" / "kernels"


CHECKS: tuple[str, ...] = ()
"""The checks that kernels run with."""


@pytest.fixture(autouse=True, params=[(), ("all",)], ids=["", "checked"])
def checks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels do the same without checks and with all, which find nothing."""
    monkeypatch.setitem(globals(), "CHECKS", request.param)


@cache
def kernel(name: str) -> PtxModule:
    return load_ptx((KERNELS / f"{name}.ptx").read_text(), f"{name}.ptx")


def launch(name: str, grid: tuple[int, ...], block: tuple[int, ...], args: list[object], shared: int = 0) -> None:
    entry = next(iter(kernel(name).kernels))
    three = ((*shape, 1, 1)[:3] for shape in (grid, block))
    kernel(name).launch(entry, *three, args=args, shared=shared, device="interp", checks=CHECKS)


def halves(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def check_product(c: Array, a: Array, b: Array, unit: float = 2.0**-20) -> None:
    """Against the exact product, within what cutting each sum of f32 can lose."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert np.all(np.abs(c - x @ y) <= unit * (np.abs(x) @ np.abs(y)) + 2.0**-20)


# nvcc


def test_wmma_gemm() -> None:
    m, n, k = 64, 48, 80
    a, b, c = halves((m, k), 0), halves((k, n), 1), np.full((m, n), np.nan, np.float32)
    launch("wmma_gemm", (n // 16, 2), (64,), [a, b, c, m, n, k])
    check_product(c, a, b)


def test_mma_pipeline() -> None:
    m, n, k = 128, 64, 96
    a, b, c = halves((m, k), 2), halves((k, n), 3), np.full((m, n), np.nan, np.float32)
    launch("mma_pipeline", (n // 64, m // 64), (128,), [a, b, c, m, n, k])
    check_product(c, a, b)


def test_mma_int8() -> None:
    m, n, k = 32, 24, 64
    random = np.random.default_rng(4)
    a, b = (random.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (n, k)))
    c = np.full((m, n), 77, np.int32)
    launch("mma_int8", (n // 8, m // 16), (32,), [a, b, c, n, k])
    assert np.array_equal(c, a.astype(np.int64) @ b.astype(np.int64).T)


def test_mma_sparse() -> None:
    dense = pruned(halves((16, 32), 5), TWO_OF_FOUR)
    stored, codes = stored_of(dense, TWO_OF_FOUR)
    words = np.zeros(32, np.uint32)
    for row, chunk in np.ndindex(16, 8):
        lane, nibble = TWO_LANES_BY_CHUNK.find(r=row, c=chunk)
        words[lane] |= np.uint32(int(codes[row, chunk]) << 4 * nibble)
    b, d = halves((32, 8), 6), np.full((16, 8), np.nan, np.float32)
    launch("mma_sparse", (1,), (32,), [stored, b, words, d])
    check_product(d, dense, b)
    assert np.array_equal(dense_of(stored, codes, TWO_OF_FOUR), dense)


def test_metadata_that_means_nothing_is_reported() -> None:
    stored, b, d = halves((16, 16), 5), halves((32, 8), 6), np.zeros((16, 8), np.float32)
    with pytest.raises(WarploomError, match=r"metadata 0b0000 for chunk 0 of row 0 of A means nothing; .*lane 0\)"):
        launch("mma_sparse", (1,), (32,), [stored, b, np.zeros(32, np.uint32), d])


def test_collatz() -> None:
    n = 300
    numbers = np.random.default_rng(7).integers(1, 5000, n).astype(np.uint32)
    steps, divisors = np.zeros(n, np.uint32), np.zeros(n, np.uint32)
    launch("collatz", (3,), (128,), [numbers, steps, divisors, n])

    def count(x: int) -> int:
        steps = 0
        while x > 1 and steps < 1000:
            x = 3 * x + 1 if x & 1 else x >> 1
            steps += 1
        return steps

    values = numbers.tolist()
    assert steps.tolist() == [count(x) for x in values]
    assert divisors.tolist() == [gcd(x, values[(i + 1) % n]) for i, x in enumerate(values)]


def test_histogram() -> None:
    n = 5000
    data = np.random.default_rng(8).integers(0, 200, n).astype(np.uint8)
    counts, last = np.zeros(256, np.uint32), np.full(256, -1, np.int32)
    launch("histogram", (3,), (128,), [data, counts, last, n])
    assert np.array_equal(counts, np.bincount(data, minlength=256))
    assert last.tolist() == [int(np.flatnonzero(data == b).max(initial=-1)) for b in range(256)]


def test_reduce() -> None:
    n, blocks, threads = 5000, 4, 192
    data = np.random.default_rng(9).integers(-1000, 1000, n).astype(np.float32)
    sums, tops = np.zeros(blocks, np.float32), np.zeros(blocks, np.float32)
    launch("reduce", (blocks,), (threads,), [data, sums, tops, n])
    owner = np.arange(n) // threads % blocks
    assert sums.tolist() == [float(data[owner == b].sum()) for b in range(blocks)]
    assert tops.tolist() == [float(data[owner == b].max()) for b in range(blocks)]


def test_transpose() -> None:
    data = np.random.default_rng(10).standard_normal((70, 45)).astype(np.float32)
    out = np.full((45, 70), np.nan, np.float32)
    launch("transpose", (2, 3), (32, 8), [data, out, 70, 45])
    assert np.array_equal(out, data.T)


def softmax(data: Array) -> Array:
    powers = np.exp(data.astype(np.float64) - data.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_softmax() -> None:
    data = np.random.default_rng(11).standard_normal((10, 100)).astype(np.float32)
    out = np.full_like(data, np.nan)
    launch("softmax", (3,), (128,), [data, out, *data.shape])
    np.testing.assert_allclose(out, softmax(data), rtol=3e-6)


def test_gelu_half() -> None:
    n = 500
    x, bias = halves((2 * n,), 12), halves((2 * n,), 13)
    y, z = np.zeros(2 * n, np.float16), np.zeros(2 * n, ml_dtypes.bfloat16)
    launch("gelu_half", (4,), (128,), [x, bias, y, z, n])
    wide = x.astype(np.float64)
    gelu = 0.5 * wide * (1 + np.tanh(0.7978846 * (wide + 0.044715 * wide**3)))
    np.testing.assert_allclose(z.astype(np.float64), gelu, rtol=2.0**-8, atol=1e-6)
    np.testing.assert_allclose(y.astype(np.float64), gelu + bias, rtol=2.0**-10, atol=2.0**-10)


def test_mbarrier_ring() -> None:
    n = 23
    rows = np.random.default_rng(20).integers(-1000, 1000, (n, 128)).astype(np.float32)
    sums = np.full(128, np.nan, np.float32)
    launch("mbarrier_ring", (1,), (256,), [rows, sums, n])
    assert sums.tolist() == [float(sum(rows[i, (t + i) % 128] for i in range(n))) for t in range(128)]


def test_cluster_histogram() -> None:
    data = np.random.default_rng(21).integers(0, 256, 3000).astype(np.uint8)
    counts = np.zeros(256, np.int32)
    launch("cluster_histogram", (8,), (96,), [data, counts, data.size])
    assert np.array_equal(counts, np.bincount(data, minlength=256))


def test_noinline_calls() -> None:
    values = np.random.default_rng(22).integers(1, 1000, 200).astype(np.int32)
    out = np.full((200, 2), np.nan)
    launch("noinline_calls", (4,), (64,), [values, out, 200])
    for i, (value, count) in enumerate(zip(values.tolist(), out, strict=True)):
        a, b, c = 0.5, i, 7
        for k in range(value % 5):
            n = value + k
            a, b, c = float(Fraction(a) * n + b), b + gcd(n, 36), c ^ n
        x = Fraction(a)
        exact: list[tuple[Fraction, str]] = [
            (Fraction(b), "rn"),
            (x / 3, "rz"),
            (Fraction(0), "rp"),
            (x * Fraction(1.1) + b, "rm"),
            (x + Fraction(1e-20), "rz"),
            (Fraction((3, 1, 4, 1)[value & 3]), "rn"),
            (x * x, "rp"),
            (1 / Fraction(F64.value(F64.word(x + 1))), "rm"),
        ]
        case = value >> 4 & 7
        assert count[1] == c
        if case == 2:
            below = np.nextafter(count[0], 0.0)
            assert Fraction(below) ** 2 < x <= Fraction(count[0]) ** 2
        else:
            assert int(count[:1].view(np.uint64)[0]) == F64.word(*exact[case])


def test_narrow_floats() -> None:
    n = 150
    pairs = np.random.default_rng(23).standard_normal((n, 2)).astype(np.float32)
    pairs[::3] = np.round(pairs[::3])
    outs = [np.full(n, 0xA5A5, np.uint16) for _ in range(2)]
    same, equal, high = np.full((n, 2), np.nan, np.float16), np.zeros(n, np.uint32), np.zeros(n, np.uint64)
    launch("narrow_floats", (3,), (64,), [pairs, *outs, same, equal, high, n])
    narrow = [pairs.astype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)]
    codes = [v.view(np.uint16).reshape(-1) for v in narrow]
    assert all(np.array_equal(out, code) for out, code in zip(outs, codes, strict=True))
    assert np.array_equal(same, narrow[0].astype(np.float32) == narrow[1].astype(np.float32))
    for i in range(n):
        lanes = range(i - i % 32, min(n, i - i % 32 + 32))
        mask = sum(1 << j % 32 for j in lanes if codes[0][j] == codes[0][i])
        factor = 0x123456789ABCDEF * int(codes[0][i]) & (1 << 64) - 1
        wide = (int(codes[1][i]) << 64 | mask) * factor + mask
        assert (int(equal[i]), int(high[i])) == (mask, wide >> 64 & (1 << 64) - 1)


# Triton: two pointers to scratch memory follow the arguments; neither is used


@pytest.mark.parametrize("sm", [80, 90])
def test_triton_softmax(sm: int) -> None:
    data = np.random.default_rng(14).standard_normal((5, 200)).astype(np.float32)
    out = np.full_like(data, np.nan)
    launch(f"triton_softmax_sm{sm}", (5,), (128,), [data, out, 200, 0, 0], shared=1024)
    np.testing.assert_allclose(out, softmax(data), rtol=3e-6)


def test_triton_matmul() -> None:
    m, n, k = 70, 100, 96
    a, b, c = halves((m, k), 15), halves((k, n), 16), np.full((m, n), np.nan, np.float16)
    launch("triton_matmul_sm80", (2, 2), (128,), [a, b, c, m, n, k, 0, 0], shared=48 << 10)
    check_product(c.astype(np.float64), a, b, 2.0**-10)


def test_triton_matmul_of_hopper() -> None:
    """wgmma on tiles that cp.async brings."""
    m, n, k = 70, 100, 96
    a, b, c = halves((m, k), 15), halves((k, n), 16), np.full((m, n), np.nan, np.float16)
    launch("triton_matmul_sm90", (2, 2), (128,), [a, b, c, m, n, k, 0, 0], shared=48 << 10)
    check_product(c.astype(np.float64), a, b, 2.0**-10)
