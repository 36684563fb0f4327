"""Every way to write a product, from MLIR to what the interpreter leaves in memory, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.passes.context import make_context, parse_mlir
from warploom.passes.pipeline import lower, standard_pipeline
from warploom.passes.ptx_printer import print_ptx, ptx_module
from warploom.runtime import HostError, Kernel, compile, host, reference
from warploom.runtime.arrays import Array

SIZES = ((33, 17, 45), (16, 8, 16), (1, 1, 1), (70, 40, 0), (5, 130, 7))
"""(m, n, k), odd ones and an empty sum."""


def fresh(*shape: int, seed: int = 0, dtype: object = np.float16) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)  # pyright: ignore[reportCallIssue, reportArgumentType]


def check(kernel: Kernel, text: str, *arrays: Array, expected: Array, output: int = -1) -> None:
    """Runs the kernel: the output must be `expected` within the bound of f32 accumulation, and within that of the
    float64 reference."""
    exact = reference.evaluate(host.choose(parse_mlir(make_context(), text), kernel.function.name), arrays)
    kernel(*arrays, device="interp")
    result = arrays[output]
    np.testing.assert_allclose(result, expected, rtol=1e-3 if result.dtype == np.float16 else 1e-4, atol=1e-3)
    comparison = reference.compare(exact[range(len(arrays))[output]], result)
    assert comparison.ok, comparison


def double(array: Array) -> Array:
    return array.astype(np.float64)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ["matmul_transpose_a", "matmul_transpose_b"])
def test_transposed_names(name: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    turned_a = name.endswith("a")
    a, b = fresh(*((k, m) if turned_a else (m, k)), seed=1), fresh(*((k, n) if turned_a else (n, k)), seed=2)
    c = fresh(m, n, seed=3, dtype=np.float32)
    types = [f"memref<{x.shape[0]}x{x.shape[1]}xf16>" for x in (a, b)]
    text = f"""func.func @f(%A: {types[0]}, %B: {types[1]}, %C: memref<{m}x{n}xf32>) {{
      linalg.{name} ins(%A, %B : {", ".join(types)}) outs(%C : memref<{m}x{n}xf32>) return }}"""
    expected = double(c) + (double(a).T @ double(b) if turned_a else double(a) @ double(b).T)
    check(compile(text), text, a, b, c, expected=expected)


TWO = """
func.func @first(%A: memref<20x24xf16>, %B: memref<24x12xf16>, %C: memref<20x12xf32>) {
  linalg.matmul ins(%A, %B : memref<20x24xf16>, memref<24x12xf16>) outs(%C : memref<20x12xf32>)
  return
}
func.func @second(%A: memref<20x24xf16>, %B: memref<24x24xf16>, %T: memref<20x24xf16>, %C: memref<20x24xf16>) {
  %z = arith.constant 0.0 : f16
  linalg.fill ins(%z : f16) outs(%T : memref<20x24xf16>)
  linalg.matmul ins(%A, %B : memref<20x24xf16>, memref<24x24xf16>) outs(%T : memref<20x24xf16>)
  linalg.matmul_transpose_b ins(%T, %B : memref<20x24xf16>, memref<24x24xf16>) outs(%C : memref<20x24xf16>)
  return
}
"""


def test_one_function_of_several() -> None:
    kernel = compile(TWO, name="first")
    a, b, c = fresh(20, 24), fresh(24, 12), fresh(20, 12, dtype=np.float32)
    check(kernel, TWO, a, b, c, expected=double(c) + double(a) @ double(b))
    with pytest.raises(HostError, match=r"got 2 \(@first, @second\); name one"):
        compile(TWO)


def test_several_products_in_one_function() -> None:
    kernel = compile(TWO, name="second")
    assert [launch.kernel for launch in kernel.launches] == ["second", "second_1"]
    a, b, t, c = fresh(20, 24), fresh(24, 24), np.full((20, 24), np.nan, np.float16), fresh(20, 24, seed=4)
    first = (double(a) @ double(b)).astype(np.float16)
    before = c.copy()
    kernel(a, b, t, c, device="interp")
    np.testing.assert_allclose(t, first, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(c, double(before) + double(t) @ double(b).T, rtol=1e-3, atol=5e-2)


def test_the_kernels_of_all_functions_are_in_one_module() -> None:
    ctx = make_context()
    module = parse_mlir(ctx, TWO)
    lower(module, ctx, standard_pipeline("sm_90a"))
    text = print_ptx(ptx_module(module))
    assert [text.count(f".entry {name}(") for name in ("first", "second", "second_1")] == [1, 1, 1]
