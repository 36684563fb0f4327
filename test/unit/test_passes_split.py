"""K in parts: the same products, the same bits every time, and what cannot be cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from warploom.runtime import CompileError, Kernel, compile

TILE: dict[str, Any] = {"cta": (32, 32, 32), "warp": (16, 16), "stages": 3}


def product(m: int, n: int, k: int, start: float | None, **schedule: Any) -> Kernel:
    """A product that starts from a constant, or from what C holds."""
    a, b, c = f"memref<{m}x{k}xf16>", f"memref<{k}x{n}xf16>", f"memref<{m}x{n}xf32>"
    fill = "" if start is None else f"%z = arith.constant {start} : f32 linalg.fill ins(%z : f32) outs(%C : {c})"
    return compile(
        f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{ {fill} "
        f"linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}",
        **schedule,
    )


def run(kernel: Kernel, m: int, n: int, k: int, start: float | None) -> tuple[Any, Any]:
    """What the kernel makes of random matrices, and what float64 does."""
    rng = np.random.default_rng((m, n, k))
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = (np.full((m, n), np.nan) if start is not None else rng.standard_normal((m, n))).astype(np.float32)
    expected = a.astype(np.float64) @ b.astype(np.float64) + (c.astype(np.float64) if start is None else start)
    kernel(a, b, c, device="interp")
    return c, expected


@pytest.mark.sampled(16)
@pytest.mark.parametrize("start", [0.0, 1.5, None])
@pytest.mark.parametrize(
    ("size", "options"),
    [
        ((100, 72, 256), {"split_k": 4, "cta": (64, 64, 64), "warp": (32, 32), "stages": 3}),
        ((33, 40, 96), {"split_k": 3, **TILE}),
        ((31, 33, 70), {"split_k": 2, **TILE}),
        ((100, 72, 128), {"split_k": 2, "ctas": 3, **TILE}),
        ((70, 72, 256), {"split_k": 2, "ctas": 2, **TILE, "sync": "mbarrier", "prefetch": 2, "stages": 4, "unroll": 4}),
        ((33, 40, 64), {"split_k": 8, "cta": (32, 32, 32), "warp": (16, 32), "stages": 2}),  # less than a K tile each
        ((40, 24, 256), {"split_k": 64, "cta": (64, 64, 16), "warp": (64, 64), "stages": 1, "mma": "m16n8k8"}),
        ((70, 136, 256), {"split_k": 2, "sliced_k": 2, "cta": (64, 128, 64), "warp": (64, 64), "stages": 2}),
    ],
)
def test_parts_add_up(size: tuple[int, int, int], options: dict[str, Any], start: float | None) -> None:
    m, n, k = size
    kernel = product(m, n, k, start, **options)
    (launch,) = kernel.launches
    assert launch.grid[2] == options["split_k"]
    rows, columns = options["cta"][:2]
    tiles = -(-m // rows) * -(-n // columns)
    assert kernel.scratch == (tiles * options["split_k"] * rows * columns * 4, tiles * 4)
    c, expected = run(kernel, m, n, k, start)
    assert np.abs(c - expected).max() < 1e-4


def test_the_same_bits_every_time() -> None:
    kernel = product(40, 48, 256, 0.0, split_k=8, **TILE)
    first, second = (run(kernel, 40, 48, 256, 0.0)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_counters_are_zero_again() -> None:
    """Another call on the same scratch memory gives the same."""
    m, n, k = 40, 48, 128
    kernel = product(m, n, k, 0.0, split_k=4, **TILE)
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c, parts, counters = np.empty((m, n), np.float32), np.empty(kernel.scratch[0], np.uint8), np.zeros(4, np.int32)
    (launch,) = kernel.launches
    for _ in range(2):
        c[:] = np.nan
        kernel.binary.launch(
            launch.kernel, launch.grid, launch.block, [a, b, c, parts, counters], launch.shared, device="interp"
        )
        assert np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max() < 1e-4
        assert not counters.any()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [TILE, {"sliced_k": 2, "cta": (32, 32, 64), "warp": (32, 32), "stages": 2}])
def test_checks_find_nothing(options: dict[str, Any]) -> None:
    kernel = product(40, 48, 128, 0.0, split_k=2, **options)
    a, b = np.ones((40, 128), np.float16), np.ones((128, 48), np.float16)
    c = np.full((40, 48), np.nan, np.float32)
    kernel(a, b, c, device="interp", checks="all")
    assert (c == 128).all()


def test_transposed_operands() -> None:
    m, n, k = 40, 48, 96
    text = f"""func.func @f(%A: memref<{k}x{m}xf16>, %B: memref<{n}x{k}xf16>, %C: memref<{m}x{n}xf32>) {{
      %z = arith.constant 0.0 : f32
      linalg.fill ins(%z : f32) outs(%C : memref<{m}x{n}xf32>)
      linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (n, k)>,
                                     affine_map<(m, n, k) -> (m, n)>]
        ins(%A, %B : memref<{k}x{m}xf16>, memref<{n}x{k}xf16>) outs(%C : memref<{m}x{n}xf32>)
      return }}"""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((k, m)).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float32)
    compile(text, split_k=3, **TILE)(a, b, c, device="interp")
    assert np.abs(c - a.T.astype(np.float64) @ b.T.astype(np.float64)).max() < 1e-4


@pytest.mark.parametrize(
    ("k", "options", "message"),
    [
        (100, {"split_k": 3}, "split_k = 3: it must divide K = 100"),
        (0, {"split_k": 2}, "split_k = 2: it must divide K = 0"),
        (96, {"split_k": 65}, "split_k must be 1 to 64, got 65"),
        (97 * 2, {"split_k": 2, "pack": "a"}, "split_k takes operands as they lie, not with pack = a"),
    ],
)
def test_what_is_not_split(k: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        product(32, 32, k, 0.0, **TILE, **options)


def test_a_depth_that_one_operand_knows() -> None:
    """A flattened tensor may be of unknown length where the weights that multiply it have a known one."""
    a, b, c = "tensor<1x?xf16>", "tensor<2560x128xf16>", "tensor<1x128xf32>"
    kernel = compile(
        f"func.func @f(%A: {a}, %B: {b}) -> {c} {{ %z = arith.constant 0.0 : f32 %e = tensor.empty() : {c} "
        f"%zeros = linalg.fill ins(%z : f32) outs(%e : {c}) -> {c} "
        f"%d = linalg.matmul ins(%A, %B : {a}, {b}) outs(%zeros : {c}) -> {c} return %d : {c} }}",
        target="sm_90a",
    )
    (launch,), (schedule, *_) = kernel.launches, kernel.schedules.values()
    assert schedule is not None
    assert launch.grid[2] == schedule.split_k > 1
    c, expected = run(kernel, 1, 128, 2560, 0.0)
    assert np.abs(c - expected).max() < 1e-3


def test_a_batch_is_not_split() -> None:
    kinds = "memref<2x32x64xf16>", "memref<2x64x32xf16>", "memref<2x32x32xf32>"
    text = f"""func.func @f(%A: {kinds[0]}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      linalg.batch_matmul ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%C : {kinds[2]}) return }}"""
    with pytest.raises(CompileError, match="split_k = 2: a batch is not split"):
        compile(text, split_k=2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("element", "result", "dtype"), [("i8", "i32", np.int32), ("f64", "f64", np.float64)])
def test_integers_and_doubles_add_up(element: str, result: str, dtype: Any) -> None:
    kinds = f"memref<50x96x{element}>", f"memref<96x40x{element}>", f"memref<50x40x{result}>"
    text = f"""func.func @f(%A: {kinds[0]}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      linalg.matmul ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%C : {kinds[2]}) return }}"""
    rng = np.random.default_rng(5)
    a, b, c = (rng.integers(-100, 100, shape).astype(dtype) for shape in ((50, 96), (96, 40), (50, 40)))
    expected = c + a @ b
    narrow = np.int8 if element == "i8" else np.float64
    compile(text, split_k=3, cta=(32, 32, 32), warp=(32, 32))(a.astype(narrow), b.astype(narrow), c, device="interp")
    np.testing.assert_array_equal(c, expected)


def test_halves_are_accumulated_as_such() -> None:
    kinds = "memref<32x64xf16>", "memref<64x40xf16>", "memref<32x40xf16>"
    text = f"""func.func @f(%A: {kinds[0]}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      linalg.matmul ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%C : {kinds[2]}) return }}"""
    rng = np.random.default_rng(6)
    a, b, c = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((32, 64), (64, 40), (32, 40)))
    expected = c + a @ b  # integers below 2048 are exact
    kernel = compile(text, split_k=4, accumulate="f16", **TILE)
    assert "add.rn.f16x2" in kernel.ptx
    kernel(a, b, c, device="interp")
    np.testing.assert_array_equal(c, expected)


def test_the_last_cta_applies_the_epilogue() -> None:
    m, n, k = 40, 48, 128
    text = f"""func.func @f(%A: memref<{m}x{k}xf16>, %B: memref<{k}x{n}xf16>, %x: memref<{n}xf32>,
                            %D: memref<{m}x{n}xf32>) {{
      %z = arith.constant 0.0 : f32
      %P = memref.alloc() : memref<{m}x{n}xf32>
      linalg.fill ins(%z : f32) outs(%P : memref<{m}x{n}xf32>)
      linalg.matmul ins(%A, %B : memref<{m}x{k}xf16>, memref<{k}x{n}xf16>) outs(%P : memref<{m}x{n}xf32>)
      linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
                                        affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
          ins(%P, %x : memref<{m}x{n}xf32>, memref<{n}xf32>) outs(%D : memref<{m}x{n}xf32>) {{
      ^bb0(%p: f32, %b: f32, %o: f32):
        %s = arith.addf %p, %b : f32
        %r = arith.maximumf %s, %z : f32
        linalg.yield %r : f32
      }}
      return
    }}"""
    kernel = compile(text, split_k=4, **TILE)
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    x = rng.standard_normal(n).astype(np.float32)
    d = np.full((m, n), np.nan, np.float32)
    kernel(a, b, x, d, device="interp")
    assert [launch.kernel for launch in kernel.launches] == ["f"]
    assert np.abs(d - np.maximum(a.astype(np.float64) @ b.astype(np.float64) + x, 0)).max() < 1e-4
