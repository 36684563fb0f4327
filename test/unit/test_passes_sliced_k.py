"""Slices of a K tile, and tiles moved back inside: the same products as without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from warploom.runtime import Kernel, compile

DTYPES: dict[str, Any] = {"f16": np.float16, "f32": np.float32}


def product(m: int, n: int, k: int, out: str, start: float | None, **schedule: Any) -> Kernel:
    """A product that starts from a constant, or from what C holds."""
    a, b, c = f"memref<{m}x{k}xf16>", f"memref<{k}x{n}xf16>", f"memref<{m}x{n}x{out}>"
    fill = "" if start is None else f"%z = arith.constant {start} : {out} linalg.fill ins(%z : {out}) outs(%C : {c})"
    return compile(
        f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{ {fill} "
        f"linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}",
        **schedule,
    )


def check(m: int, n: int, k: int, start: float | None, out: str = "f32", **schedule: Any) -> Kernel:
    """Runs a product on the interpreter and compares it with float64."""
    kernel = product(m, n, k, out, start, **schedule)
    rng = np.random.default_rng((m, n, k))
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan) if start is not None else rng.standard_normal((m, n))
    c = c.astype(DTYPES[out])
    expected = a.astype(np.float64) @ b.astype(np.float64) + (c.astype(np.float64) if start is None else start)
    kernel(a, b, c, device="interp")
    assert np.abs(c - expected).max() < {"f32": 1e-4, "f16": 0.25}[out]
    return kernel


@pytest.mark.sampled(12)
@pytest.mark.parametrize("start", [0.0, 1.5, None])
@pytest.mark.parametrize(
    ("cta", "warp", "slices"),
    [
        ((64, 64, 64), (32, 32), 2),
        ((64, 32, 64), (64, 32), 4),
        ((16, 64, 64), (16, 32), 2),
        ((16, 64, 64), (16, 64), 4),
    ],
)
def test_slices(cta: tuple[int, ...], warp: tuple[int, ...], slices: int, start: float | None) -> None:
    kernel = check(100, 72, 200, start, cta=cta, warp=warp, sliced_k=slices, stages=3)
    (launch,) = kernel.launches
    assert launch.threads == 32 * slices * (cta[0] // warp[0]) * (cta[1] // warp[1])


def test_slices_whose_warps_meet_at_mbarriers() -> None:
    check(64, 72, 200, 0.0, cta=(64, 64, 64), warp=(32, 32), sliced_k=2, stages=3, sync="mbarrier")


def test_slices_of_accumulators_in_pairs() -> None:
    check(33, 72, 70, 0.0, "f16", cta=(32, 64, 64), warp=(32, 32), sliced_k=2, stages=2, accumulate="f16")


def test_slices_give_the_same_bits_every_time() -> None:
    kernel = product(64, 64, 128, "f32", 0.0, cta=(32, 32, 64), warp=(32, 32), sliced_k=2, stages=2)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((64, 128), (128, 64)))
    results = [np.full((64, 64), np.nan, np.float32) for _ in range(2)]
    for c in results:
        kernel(a, b, c, device="interp")
    np.testing.assert_array_equal(results[0], results[1])


TILE = {"cta": (32, 32, 32), "warp": (16, 16), "stages": 2}


def test_tiles_moved_inside_need_no_bounds() -> None:
    """Only the end of K is left to be checked."""
    kernel = check(100, 72, 64, 0.0, **TILE)
    compared = [line for line in kernel.ptx.splitlines() if "setp" in line]
    assert len(compared) <= 3, compared


@pytest.mark.sampled(12)
@pytest.mark.parametrize("size", [(33, 40, 40), (31, 40, 32), (100, 33, 40), (33, 33, 33), (64, 100, 7)])
@pytest.mark.parametrize("start", [0.0, None])
@pytest.mark.parametrize("pack", ["none", "ab"])
def test_any_edge(size: tuple[int, int, int], start: float | None, pack: str) -> None:
    check(*size, start, pack=pack, **TILE)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("transposed", ["a", "b"])
def test_edges_of_transposed_operands(transposed: str) -> None:
    m, n, k = 72, 80, 40
    shapes = {"a": (k, m) if transposed == "a" else (m, k), "b": (n, k) if transposed == "b" else (k, n)}
    a, b, c = (f"memref<{r}x{s}x{t}>" for (r, s), t in ((shapes["a"], "f16"), (shapes["b"], "f16"), ((m, n), "f32")))
    maps = {"a": "(k, m)" if transposed == "a" else "(m, k)", "b": "(n, k)" if transposed == "b" else "(k, n)"}
    affine = ", ".join(f"affine_map<(m, n, k) -> {dims}>" for dims in (maps["a"], maps["b"], "(m, n)"))
    kernel = compile(
        f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{ %z = arith.constant 0.0 : f32 "
        f"linalg.fill ins(%z : f32) outs(%C : {c}) "
        f"linalg.matmul indexing_maps = [{affine}] ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}",
        **TILE,
    )
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(shapes[role]).astype(np.float16) for role in "ab")
    out = np.full((m, n), np.nan, np.float32)
    kernel(x, y, out, device="interp")
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    expected = (wide_x.T if transposed == "a" else wide_x) @ (wide_y.T if transposed == "b" else wide_y)
    assert np.abs(out - expected).max() < 1e-4
