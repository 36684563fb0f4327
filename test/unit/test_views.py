"""Views of memory in a host function: parts, other shapes, fewer dimensions; read and written by kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import HostError, Kernel, compile
from warploom.runtime.plan import host
from warploom.runtime.reference import functions as reference

Array = NDArray[Any]


def draw(*shape: int, dtype: Any = np.float16) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


def check(text: str, *arrays: Array) -> Kernel:
    kernel = compile(text)
    exact = reference.evaluate(host.choose(parse_mlir(make_context(), text), None), arrays)
    kernel(*arrays, device="interp", checks="all")
    for position in kernel.function.written:
        comparison = reference.compare(exact[position], arrays[position])
        assert comparison.ok, (position, comparison)
    return kernel


PARTS = """func.func @f(%A: memref<100x128xf16>, %B: memref<3x128x96xf16>, %C: memref<70x96xf32>) {
  %a = memref.subview %A[8, 16] [37, 64] [1, 1] : memref<100x128xf16>
    to memref<37x64xf16, strided<[128, 1], offset: 1040>>
  %b = memref.subview %B[1, 32, 0] [1, 64, 96] [1, 1, 1] : memref<3x128x96xf16>
    to memref<64x96xf16, strided<[96, 1], offset: 15360>>
  %c = memref.subview %C[20, 0] [37, 96] [1, 1] : memref<70x96xf32> to memref<37x96xf32, strided<[96, 1], offset: 1920>>
  linalg.matmul ins(%a, %b : memref<37x64xf16, strided<[128, 1], offset: 1040>>,
                             memref<64x96xf16, strided<[96, 1], offset: 15360>>)
    outs(%c : memref<37x96xf32, strided<[96, 1], offset: 1920>>)
  return
}"""


def test_parts_of_matrices() -> None:
    a, b, c = draw(100, 128), draw(3, 128, 96), draw(70, 96, dtype=np.float32)
    before = c.copy()
    kernel = check(PARTS, a, b, c)
    assert kernel.function.written == {2}
    assert not kernel.function.filled
    np.testing.assert_array_equal(c[:20], before[:20])
    np.testing.assert_array_equal(c[57:], before[57:])


HEADS = """func.func @f(%X: memref<24x96xf16>, %W: memref<96x32xf16>, %Y: memref<2x12x32xf32>,
             %T: memref<12x2x96xf16>) {
  %y = memref.collapse_shape %Y [[0, 1], [2]] : memref<2x12x32xf32> into memref<24x32xf32>
  %x = memref.expand_shape %X [[0, 1], [2]] output_shape [12, 2, 96] : memref<24x96xf16> into memref<12x2x96xf16>
  linalg.copy ins(%x : memref<12x2x96xf16>) outs(%T : memref<12x2x96xf16>)
  linalg.matmul ins(%X, %W : memref<24x96xf16>, memref<96x32xf16>) outs(%y : memref<24x32xf32>)
  return
}"""


def test_other_shapes() -> None:
    x, w, y, t = draw(24, 96), draw(96, 32), draw(2, 12, 32, dtype=np.float32), np.full((12, 2, 96), np.nan, np.float16)
    expected = y + (x.astype(np.float64) @ w.astype(np.float64)).reshape(2, 12, 32)
    assert check(HEADS, x, w, y, t).function.written == {2, 3}
    np.testing.assert_array_equal(t, x.reshape(12, 2, 96))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)


ANY = """func.func @f(%X: memref<?x?xf32>, %Y: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %m = memref.dim %X, %c0 : memref<?x?xf32>
  %n = memref.dim %X, %c1 : memref<?x?xf32>
  %half = arith.divui %m, %c2 : index
  %top = memref.subview %X[0, 0] [%half, %n] [1, 1] : memref<?x?xf32> to memref<?x?xf32, strided<[?, 1]>>
  %low = memref.subview %X[%half, 0] [%half, %n] [1, 1] : memref<?x?xf32> to memref<?x?xf32, strided<[?, 1], offset: ?>>
  %T = memref.alloc(%half, %n) : memref<?x?xf32>
  linalg.add ins(%top, %low : memref<?x?xf32, strided<[?, 1]>>, memref<?x?xf32, strided<[?, 1], offset: ?>>)
    outs(%T : memref<?x?xf32>)
  linalg.exp ins(%T : memref<?x?xf32>) outs(%Y : memref<?x?xf32>)
  return
}"""


def test_parts_and_memory_of_sizes_that_only_the_caller_knows() -> None:
    kernel = compile(ANY)
    for m, n in ((8, 40), (6, 33), (2, 1)):
        x, y = draw(m, n, dtype=np.float32), np.full((m // 2, n), np.nan, np.float32)
        kernel(x, y, device="interp", checks="all")
        np.testing.assert_allclose(y, np.exp(x[: m // 2] + x[m // 2 :]), rtol=1e-6)


OTHER = """func.func @f(%X: memref<4x4xf32>, %Y: memref<4x4xf32>) {
  %t = memref.reinterpret_cast %X to offset: [0], sizes: [4, 4], strides: [1, 4]
      : memref<4x4xf32> to memref<4x4xf32, strided<[1, 4]>>
  linalg.copy ins(%t : memref<4x4xf32, strided<[1, 4]>>) outs(%Y : memref<4x4xf32>)
  return }"""


def test_a_view_that_is_none_of_these() -> None:
    x, y = draw(4, 4, dtype=np.float32), np.full((4, 4), np.nan, np.float32)
    compile(OTHER)(x, y, device="interp")
    np.testing.assert_array_equal(y, x.T)
    loaded = OTHER.replace(
        "%t =", "%c0 = arith.constant 0 : index\n  %x = memref.load %X[%c0, %c0] : memref<4x4xf32>\n  %t ="
    )
    with pytest.raises(HostError, match=r":3:\d+: host function @f: expected .* got memref.load"):
        compile(loaded)
