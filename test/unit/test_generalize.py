"""What frontends write around products: calls, broadcasts, constants, reshapes, parts, sizes that nobody knows yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import CompileError, HostError, compile
from warploom.runtime.kernel.lowering import parse, without_tensors
from warploom.runtime.plan import host
from warploom.runtime.reference import functions as reference

Array = NDArray[Any]


def draw(*shape: int, dtype: Any = np.float16) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


def check(text: str, *arrays: Array, launches: int, name: str | None = None) -> None:
    """Runs a function and holds what it writes against float64."""
    kernel = compile(text, name=name)
    assert len(kernel.launches) == launches
    module = parse(text)
    without_tensors(module)
    exact = reference.evaluate(host.choose(module, name), arrays)
    kernel(*arrays, device="interp")
    for position in kernel.function.written:
        comparison = reference.compare(exact[position], arrays[position])
        assert comparison.ok, (position, comparison)


CALLS = """
func.func private @layer(%x: tensor<8x32xf16>, %w: tensor<32x16xf16>) -> tensor<8x16xf32> {
  %z = arith.constant dense<0.0> : tensor<8x16xf32>
  %r = linalg.matmul ins(%x, %w : tensor<8x32xf16>, tensor<32x16xf16>) outs(%z : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %r : tensor<8x16xf32>
}
func.func @one(%x: tensor<8x32xf16>, %w: tensor<32x16xf16>) -> tensor<8x16xf32> {
  %r = call @layer(%x, %w) : (tensor<8x32xf16>, tensor<32x16xf16>) -> tensor<8x16xf32>
  return %r : tensor<8x16xf32>
}
func.func @two(%x: tensor<8x32xf16>, %v: tensor<32x16xf16>, %w: tensor<32x16xf16>) -> tensor<8x16xf32> {
  %r = call @layer(%x, %v) : (tensor<8x32xf16>, tensor<32x16xf16>) -> tensor<8x16xf32>
  %s = call @layer(%x, %w) : (tensor<8x32xf16>, tensor<32x16xf16>) -> tensor<8x16xf32>
  %e = tensor.empty() : tensor<8x16xf32>
  %t = linalg.sub ins(%r, %s : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %t : tensor<8x16xf32>
}
"""


def test_functions_that_share_another() -> None:
    """The two products of @two have one A, so they are one kernel with what is made of both."""
    x, v, w = draw(8, 32), draw(32, 16), draw(32, 16)[::-1].copy()
    check(CALLS, x, v, np.full((8, 16), np.nan, np.float32), launches=1, name="one")
    check(CALLS, x, v, w, np.full((8, 16), np.nan, np.float32), launches=1, name="two")
    with pytest.raises(HostError, match=r"got 2 \(@one, @two\); name one"):
        compile(CALLS)


HEADS = """func.func @f(%x: tensor<2x16x64xf16>, %w: tensor<80x48xf16>, %b: tensor<48xf32>) -> tensor<2x16x48xf32> {
  %a = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x16x64xf16> into tensor<32x64xf16>
  %part = tensor.extract_slice %w[8, 0] [64, 48] [1, 1] : tensor<80x48xf16> to tensor<64x48xf16>
  %e = tensor.empty() : tensor<32x48xf32>
  %start = linalg.broadcast ins(%b : tensor<48xf32>) outs(%e : tensor<32x48xf32>) dimensions = [0]
  %r = linalg.matmul ins(%a, %part : tensor<32x64xf16>, tensor<64x48xf16>) outs(%start : tensor<32x48xf32>)
    -> tensor<32x48xf32>
  %y = tensor.expand_shape %r [[0, 1], [2]] output_shape [2, 16, 48] : tensor<32x48xf32> into tensor<2x16x48xf32>
  return %y : tensor<2x16x48xf32>
}"""


def test_reshapes_parts_and_broadcasts() -> None:
    """Shapes and parts are views; the broadcast writes where the result is returned, and the product adds to it."""
    check(HEADS, draw(2, 16, 64), draw(80, 48), draw(48, dtype=np.float32), np.full((2, 16, 48), np.nan, np.float32),
          launches=1)  # fmt: skip


ANY = """func.func @f(%A: tensor<?x64xf16>, %B: tensor<64x?xf16>) -> tensor<?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %A, %c0 : tensor<?x64xf16>
  %n = tensor.dim %B, %c1 : tensor<64x?xf16>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul ins(%A, %B : tensor<?x64xf16>, tensor<64x?xf16>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  %again = tensor.dim %e, %c0 : tensor<?x?xf32>
  %g = tensor.empty(%again, %n) : tensor<?x?xf32>
  %r = linalg.exp ins(%p : tensor<?x?xf32>) outs(%g : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}"""


def test_tensors_of_unknown_size_between_operations() -> None:
    kernel = compile(ANY, cta=(32, 32, 32), stages=2)
    assert len(kernel.launches) == 1
    tied = {frozenset({(0, 0), (2, 0)}), frozenset({(1, 1), (2, 1)})}
    assert set(kernel.function.ties) == tied
    for m, n in ((33, 17), (5, 40)):
        a, b, r = draw(m, 64), (draw(64, n) * 0.25).astype(np.float16), np.full((m, n), np.nan, np.float32)
        kernel(a, b, r, device="interp")
        np.testing.assert_allclose(r, np.exp(a.astype(np.float64) @ b.astype(np.float64)), rtol=1e-4)


COPIED = """func.func @f(%A: memref<20x16xf16>, %B: memref<16x24xf16>, %C: memref<20x24xf32>, %D: memref<20x24xf32>) {
  %any = memref.cast %C : memref<20x24xf32> to memref<?x24xf32>
  %back = memref.cast %any : memref<?x24xf32> to memref<20x24xf32>
  memref.copy %back, %D : memref<20x24xf32> to memref<20x24xf32>
  linalg.matmul ins(%A, %B : memref<20x16xf16>, memref<16x24xf16>) outs(%D : memref<20x24xf32>)
  return
}"""


def test_memref_copy_and_cast() -> None:
    check(COPIED, draw(20, 16), draw(16, 24), draw(20, 24, dtype=np.float32), np.full((20, 24), np.nan, np.float32),
          launches=1)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "func.func @f(%A: memref<4x4xf32>) {\n  call @f(%A) : (memref<4x4xf32>) -> ()\n  return\n}",
            r":2:3: error: @f calls itself, by way of @f",
        ),
        (
            "func.func private @g(memref<4x4xf32>)\nfunc.func @f(%A: memref<4x4xf32>) {\n"
            "  call @g(%A) : (memref<4x4xf32>) -> ()\n  return\n}",
            r":3:3: error: expected @g to be a function of the module with one block",
        ),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile(text)


PADDED = """func.func @f(%A: tensor<{m}x20xf16>, %B: tensor<24x12xf16>) -> tensor<16x12xf32> {{
  %c1 = arith.constant 1 : index
  %z = arith.constant 0.0 : f16
  %a = tensor.pad %A low[{low}, 0] high[{high}, 4] {{
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f16
  }} : tensor<{m}x20xf16> to tensor<{n}x24xf16>
  %zero = arith.constant dense<0.0> : tensor<16x12xf32>
  %s = tensor.extract_slice %a[%c1, 0] [16, 24] [1, 1] : tensor<{n}x24xf16> to tensor<16x24xf16>
  %r = linalg.matmul ins(%s, %B : tensor<16x24xf16>, tensor<24x12xf16>) outs(%zero : tensor<16x12xf32>)
    -> tensor<16x12xf32>
  return %r : tensor<16x12xf32>
}}
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("m", "low", "high", "n"), [("13", "1", "5", "19"), ("?", "1", "5", "?"), ("13", "%c1", "%c1", "?")]
)
def test_padding_before_a_product(m: str, low: str, high: str, n: str) -> None:
    """What is behind the source's end is the value given, in place of what memory held."""
    text = PADDED.format(m=m, low=low, high=high, n=n)
    if n == "?" and high == "%c1":
        text = text.replace("[16, 24]", "[14, 24]").replace("16x24", "14x24").replace("16x12", "14x12")
    a, b = draw(13, 20), draw(24, 12)
    c = np.full((14 if "14x12" in text else 16, 12), np.nan, np.float32)
    compile(text, cache=False)(a, b, c, device="interp")
    padded = np.zeros((c.shape[0], 24))
    padded[:13, :20] = a
    np.testing.assert_allclose(c, padded @ b.astype(np.float64), rtol=1e-5, atol=1e-5)


def test_a_part_put_into_a_result() -> None:
    text = """func.func @f(%A: tensor<5x8xf16>, %B: tensor<8x6xf16>, %D: tensor<9x7xf32>) -> tensor<9x7xf32> {
      %zero = arith.constant dense<0.0> : tensor<5x6xf32>
      %c = linalg.matmul ins(%A, %B : tensor<5x8xf16>, tensor<8x6xf16>) outs(%zero : tensor<5x6xf32>) -> tensor<5x6xf32>
      %r = tensor.insert_slice %c into %D[3, 1] [5, 6] [1, 1] : tensor<5x6xf32> into tensor<9x7xf32>
      return %r : tensor<9x7xf32> }"""
    a, b, d, r = draw(5, 8), draw(8, 6), draw(9, 7, dtype=np.float32), np.full((9, 7), np.nan, np.float32)
    compile(text, cache=False)(a, b, d, r, device="interp")
    expected = d.astype(np.float64)
    expected[3:8, 1:7] = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(r, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("contents", ["() : tensor<6x5xf32>", "() copy(%C) : tensor<6x5xf32>"])
def test_tensors_allocated(contents: str) -> None:
    fill = "" if "copy" in contents else "linalg.fill ins(%z : f32) outs(%e : tensor<6x5xf32>) -> tensor<6x5xf32>"
    start = f"%f = {fill}" if fill else ""
    text = f"""func.func @f(%A: tensor<6x8xf16>, %B: tensor<8x5xf16>, %C: tensor<6x5xf32>) -> tensor<6x5xf32> {{
      %z = arith.constant 0.0 : f32
      %e = bufferization.alloc_tensor{contents}
      {start}
      %r = linalg.matmul ins(%A, %B : tensor<6x8xf16>, tensor<8x5xf16>) outs({"%f" if fill else "%e"} : tensor<6x5xf32>)
        -> tensor<6x5xf32>
      return %r : tensor<6x5xf32> }}"""
    a, b, c, r = draw(6, 8), draw(8, 5), draw(6, 5, dtype=np.float32), np.full((6, 5), np.nan, np.float32)
    compile(text, cache=False)(a, b, c, r, device="interp")
    expected = a.astype(np.float64) @ b.astype(np.float64) + (0 if fill else c.astype(np.float64))
    np.testing.assert_allclose(r, expected, rtol=1e-5, atol=1e-5)


def test_padding_that_depends_on_its_place_is_refused() -> None:
    text = PADDED.format(m="13", low="1", high="5", n="19").replace(
        "tensor.yield %z : f16",
        "%y = arith.index_cast %i : index to i16 %w = arith.bitcast %y : i16 to f16 tensor.yield %w : f16",
    )
    with pytest.raises(CompileError, match=r"expected tensor.pad with one value, the same everywhere"):
        compile(text, cache=False)


def test_a_part_of_nothing_is_refused() -> None:
    text = """func.func @f(%A: tensor<5x6xf32>) -> tensor<9x7xf32> {
      %e = tensor.empty() : tensor<9x7xf32>
      %r = tensor.insert_slice %A into %e[3, 1] [5, 6] [1, 1] : tensor<5x6xf32> into tensor<9x7xf32>
      return %r : tensor<9x7xf32> }"""
    with pytest.raises(CompileError, match="into a tensor that nothing has been written to"):
        compile(text, cache=False)


def test_maps_and_elementwise_operations_behind_a_product() -> None:
    text = """func.func @f(%A: tensor<9x8xf16>, %B: tensor<8x7xf16>, %bias: tensor<7xf32>) -> tensor<9x7xf32> {
      %zero = arith.constant dense<0.0> : tensor<9x7xf32>
      %e = tensor.empty() : tensor<9x7xf32>
      %p = linalg.matmul ins(%A, %B : tensor<9x8xf16>, tensor<8x7xf16>) outs(%zero : tensor<9x7xf32>) -> tensor<9x7xf32>
      %s = linalg.elementwise kind=#linalg.elementwise_kind<sub> indexing_maps = [affine_map<(m, n) -> (m, n)>,
        affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>]
        ins(%p, %bias : tensor<9x7xf32>, tensor<7xf32>) outs(%e : tensor<9x7xf32>) -> tensor<9x7xf32>
      %a = linalg.map {math.absf} ins(%s : tensor<9x7xf32>) outs(%e : tensor<9x7xf32>)
      return %a : tensor<9x7xf32> }"""
    a, b, bias, r = draw(9, 8), draw(8, 7), draw(7, dtype=np.float32), np.full((9, 7), np.nan, np.float32)
    kernel = compile(text, cache=False)
    assert len(kernel.launches) == 1
    kernel(a, b, bias, r, device="interp")
    expected = np.abs(a.astype(np.float64) @ b.astype(np.float64) - bias.astype(np.float64))
    np.testing.assert_allclose(r, expected, rtol=1e-5, atol=1e-5)


def test_a_product_whose_sizes_are_asserted() -> None:
    """As torch-mlir prints `mm` of sizes that are not known."""
    text = """func.func @f(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>) -> tensor<?x?xf32> {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %zero = arith.constant 0.0 : f32
      %m = tensor.dim %a, %c0 : tensor<?x?xf16>
      %n = tensor.dim %b, %c1 : tensor<?x?xf16>
      %k = tensor.dim %a, %c1 : tensor<?x?xf16>
      %rows = tensor.dim %b, %c0 : tensor<?x?xf16>
      %same = arith.cmpi eq, %k, %rows : index
      cf.assert %same, "mismatching contracting dimension"
      %e = tensor.empty(%m, %n) : tensor<?x?xf32>
      %s = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
      %r = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%s : tensor<?x?xf32>) -> tensor<?x?xf32>
      return %r : tensor<?x?xf32>
    }"""
    check(text, draw(33, 40), draw(40, 24), np.full((33, 24), np.nan, np.float32), launches=1)


@pytest.mark.parametrize("name", ["log1p", "expm1"])
def test_bounds_are_finite_where_sums_are_rounded_to_one_or_not(name: str) -> None:
    """Those of functions of what has an error itself."""
    text = f"""func.func @f(%x: tensor<37xf32>) -> tensor<37xf32> {{
      %e = tensor.empty() : tensor<37xf32>
      %r = linalg.generic {{
        indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}}
        ins(%x : tensor<37xf32>) outs(%e : tensor<37xf32>) {{
      ^bb0(%a: f32, %o: f32):
        %0 = math.tanh %a : f32
        %1 = math.{name} %0 : f32
        linalg.yield %1 : f32
      }} -> tensor<37xf32>
      return %r : tensor<37xf32>
    }}"""
    check(text, 2.0**-24 * np.linspace(0.5, 1.5, 37, dtype=np.float32), np.full(37, np.nan, np.float32), launches=1)
