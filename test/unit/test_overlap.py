"""Operations that write memory which they also read: refused where that is certain, decided by the call where it is
not, and right where they share nothing. The errors of the passes are in test/filecheck/passes/overlap_errors.mlir."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.passes.linalg.memory_uses import overlap
from warploom.passes.linalg.operand import View
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import ArgumentError, CompileError, compile
from warploom.runtime.kernel.lowering import signature_of
from warploom.runtime.plan import host
from warploom.runtime.reference import functions as reference

Array = NDArray[Any]
random = np.random.default_rng(5)


def draw(*shape: int, dtype: Any = np.float16) -> Array:
    return (random.integers(-8, 9, shape) / 8).astype(dtype)


def places(view: View) -> set[int]:
    indices = itertools.product(*map(range, view.shape))
    return {view.offset + sum(i * s for i, s in zip(index, view.strides, strict=True)) for index in indices}


def test_overlap_is_exact() -> None:
    """Against the elements, one by one: rows, columns, diagonals, every other one, backwards, none."""
    met: set[bool] = set()
    for _ in range(3000):
        first, second = (
            View(int(random.integers(0, 60)), tuple(random.integers(0, 5, rank)), tuple(random.integers(-3, 14, rank)))
            for rank in random.integers(0, 4, 2)
        )
        expected = bool(places(first) & places(second))
        assert overlap(first, second) == expected, (first, second)
        met.add(expected)
    assert met == {True, False}


def test_overlap_of_large_views_takes_no_time() -> None:
    rows, columns = View(0, (1 << 16, 1 << 15), (1 << 16, 1)), View(1 << 15, (1 << 16, 1 << 15), (1 << 16, 1))
    assert not overlap(rows, columns)
    assert overlap(rows, View(columns.offset - 1, columns.shape, columns.strides))


def parts(what: str, shape: str, output: str) -> str:
    """A function that reads a part of %m from the start, and writes one of the same shape from row `output` on. The
    rows of %o say where, if `output` is "%o"."""
    read = f"memref<{shape}xf16, strided<[128, 1]>>"
    written = f"memref<{shape}xf16, strided<[128, 1], offset: ?>>"
    size = shape.replace("x", ", ")
    at, column = output.split(",") if "," in output else (output, "0")
    operation = what.replace("$R", read).replace("$W", written)
    return f"""func.func @f(%m: memref<300x128xf16>, %b: memref<64x64xf16>, %o: memref<?xf16>) {{
  %c0 = arith.constant 0 : index
  %row = memref.dim %o, %c0 : memref<?xf16>
  %x = memref.subview %m[0, 0] [{size}] [1, 1] : memref<300x128xf16> to {read}
  %y = memref.subview %m[{at}, {column}] [{size}] [1, 1] : memref<300x128xf16> to {written}
  {operation}
  return
}}"""


PRODUCT = "linalg.matmul ins(%x, %b : $R, memref<64x64xf16>) outs(%y : $W)"
EXP = "linalg.exp ins(%x : $R) outs(%y : $W)"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("where", "row", "column"), [("150, 0", 150, 0), ("0, 64", 0, 64), ("150, 64", 150, 64)])
def test_a_product_beside_what_it_reads(where: str, row: int, column: int) -> None:
    """On several CTAs, which run in any order on a GPU and one after the other here."""
    kernel = compile(parts(PRODUCT, "150x64", where), cta=(32, 32, 32), warp=(16, 16), stages=2)
    m, b, o = draw(300, 128), draw(64, 64), draw(1)
    expected = m.astype(np.float64)
    expected[row : row + 150, column : column + 64] += expected[:150, :64] @ b.astype(np.float64)
    assert kernel.plan.launches[0].blocks >= 10
    kernel(m, b, o, device="interp", checks="all")
    np.testing.assert_allclose(m, expected, rtol=2e-3, atol=2e-2)


def test_the_call_decides_where_a_product_goes() -> None:
    kernel = compile(parts(PRODUCT, "150x64", "%row"), cta=(32, 32, 32), warp=(16, 16), stages=2)
    m, b = draw(300, 128), draw(64, 64)
    before, expected = m.copy(), m.astype(np.float64)
    for rows in (0, 1, 149):
        with pytest.raises(
            ArgumentError,
            match=rf":6:3: with these sizes the part of argument 0 \(%m\) that is written, 150x64 from element "
            rf"{rows * 128} with strides \[128, 1\], and the part that is read, 150x64 from element 0 .* share elemen",
        ):
            kernel(m, b, draw(rows), device="interp")
    np.testing.assert_array_equal(m, before)
    kernel(m, b, draw(150), device="interp")
    expected[150:, :64] += expected[:150, :64] @ b.astype(np.float64)
    np.testing.assert_allclose(m, expected, rtol=2e-3, atol=2e-2)


def test_the_call_decides_where_elements_go() -> None:
    """In place is right; one row on is not; beside it is again."""
    kernel = compile(parts(EXP, "150x64", "%row"))
    for rows in (0, 150):
        m = draw(300, 128)
        expected = m.copy()
        expected[rows : rows + 150, :64] = np.exp(m[:150, :64].astype(np.float32))
        kernel(m, draw(64, 64), draw(rows), device="interp", checks="all")
        np.testing.assert_allclose(m.astype(np.float32), expected, rtol=2e-3)
    for rows in (1, 149):
        with pytest.raises(ArgumentError, match=r"argument 0 \(%m\) that is written, .* share elements"):
            kernel(draw(300, 128), draw(64, 64), draw(rows), device="interp")


def test_scratch_memory_is_memory_too() -> None:
    """A part of an allocation that is read while another is written."""
    text = """func.func @f(%m: memref<?x64xf16>, %b: memref<64x64xf16>, %d: memref<64x64xf16>) {
  %c0 = arith.constant 0 : index
  %rows = memref.dim %m, %c0 : memref<?x64xf16>
  %t = memref.alloc() : memref<256x64xf16>
  %x = memref.subview %t[0, 0] [64, 64] [1, 1] : memref<256x64xf16> to memref<64x64xf16, strided<[64, 1]>>
  %y = memref.subview %t[%rows, 0] [64, 64] [1, 1] : memref<256x64xf16>
    to memref<64x64xf16, strided<[64, 1], offset: ?>>
  linalg.copy ins(%b : memref<64x64xf16>) outs(%x : memref<64x64xf16, strided<[64, 1]>>)
  %zero = arith.constant 0.0 : f16
  linalg.fill ins(%zero : f16) outs(%y : memref<64x64xf16, strided<[64, 1], offset: ?>>)
  linalg.matmul ins(%x, %b : memref<64x64xf16, strided<[64, 1]>>, memref<64x64xf16>)
    outs(%y : memref<64x64xf16, strided<[64, 1], offset: ?>>)
  linalg.copy ins(%y : memref<64x64xf16, strided<[64, 1], offset: ?>>) outs(%d : memref<64x64xf16>)
  return
}"""
    kernel = compile(text)
    b, d = draw(64, 64), draw(64, 64)
    kernel(draw(64, 64), b, d, device="interp")
    np.testing.assert_allclose(d.astype(np.float32), b.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=2e-2)
    with pytest.raises(ArgumentError, match=r":11:3: with these sizes the part of memory of the function that is wri"):
        kernel(draw(7, 64), b, d, device="interp")


def test_elements_in_place_on_several_ctas() -> None:
    text = """func.func @f(%m: memref<257x130xf32>, %r: memref<130xf32>) {
  linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%m, %r : memref<257x130xf32>, memref<130xf32>) outs(%m : memref<257x130xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %0, %z : f32
    linalg.yield %1 : f32
  }
  return
}"""
    kernel, m, r = compile(text), draw(257, 130, dtype=np.float32), draw(130, dtype=np.float32)
    expected = m * r + m
    kernel(m, r, device="interp", checks="all")
    np.testing.assert_array_equal(m, expected)
    assert kernel.plan.launches[0].blocks > 1


def test_a_chain_may_write_what_an_earlier_operation_read() -> None:
    text = """func.func @f(%a: memref<96x96xf16>, %b: memref<96x96xf16>) {
  %z = arith.constant 0.0 : f16
  %t = memref.alloc() : memref<96x96xf16>
  linalg.fill ins(%z : f16) outs(%t : memref<96x96xf16>)
  linalg.matmul ins(%a, %b : memref<96x96xf16>, memref<96x96xf16>) outs(%t : memref<96x96xf16>)
  linalg.copy ins(%t : memref<96x96xf16>) outs(%a : memref<96x96xf16>)
  linalg.add ins(%a, %b : memref<96x96xf16>, memref<96x96xf16>) outs(%a : memref<96x96xf16>)
  return
}"""
    kernel, a, b = compile(text, cta=(32, 32, 32), warp=(16, 16), stages=2), draw(96, 96), draw(96, 96)
    expected = a.astype(np.float64) @ b.astype(np.float64) + b
    kernel(a, b, device="interp", checks="all")
    np.testing.assert_allclose(a, expected, rtol=2e-3, atol=2e-2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", [0, 2])
def test_batches_of_one_memory(first: int) -> None:
    """The product of matrices 0 and 1 into matrices 2 and 3; into those that are read, it is refused."""
    kind = "memref<2x70x70xf16, strided<[4900, 70, 1], offset: {}>>"
    read, written = kind.format(0), kind.format(4900 * first)
    text = f"""func.func @f(%m: memref<4x70x70xf16>, %b: memref<2x70x70xf16>) {{
  %x = memref.subview %m[0, 0, 0] [2, 70, 70] [1, 1, 1] : memref<4x70x70xf16> to {read}
  %y = memref.subview %m[{first}, 0, 0] [2, 70, 70] [1, 1, 1] : memref<4x70x70xf16> to {written}
  linalg.batch_matmul ins(%x, %b : {read}, memref<2x70x70xf16>) outs(%y : {written})
  return
}}"""
    if not first:
        with pytest.raises(
            CompileError, match=r":4:3: error: linalg.batch_matmul: an input \(%x\) and the result \(%y\)"
        ):
            compile(text)
        return
    kernel, m, b = compile(text, cta=(32, 32, 32), warp=(16, 16), stages=2), draw(4, 70, 70), draw(2, 70, 70)
    expected = m.astype(np.float64)
    expected[2:] += expected[:2] @ b.astype(np.float64)
    kernel(m, b, device="interp", checks="all")
    np.testing.assert_allclose(m, expected, rtol=2e-3, atol=2e-2)


def test_on_tensors_a_product_may_add_to_what_it_reads() -> None:
    kind = "tensor<70x70xf16>"
    text = f"""func.func @f(%a: {kind}, %b: {kind}) -> {kind} {{
  %0 = linalg.matmul ins(%a, %b : {kind}, {kind}) outs(%a : {kind}) -> {kind}
  return %0 : {kind}
}}"""
    kernel, a, b, d = compile(text, cta=(32, 32, 32), warp=(16, 16), stages=2), draw(70, 70), draw(70, 70), draw(70, 70)
    before = a.copy()
    kernel(a, b, d, device="interp", checks="all")
    np.testing.assert_array_equal(a, before)
    np.testing.assert_allclose(d, before + before.astype(np.float64) @ b.astype(np.float64), rtol=2e-3, atol=2e-2)


def test_what_is_read_through_a_view_first_is_not_filled() -> None:
    """So that the command line does not poison it."""
    text = """func.func @f(%m: memref<4x8xf32>) {
  %x = memref.subview %m[0, 0] [4, 8] [1, 1] : memref<4x8xf32> to memref<4x8xf32, strided<[8, 1]>>
  linalg.exp ins(%x : memref<4x8xf32, strided<[8, 1]>>) outs(%m : memref<4x8xf32>)
  return
}"""
    signature = signature_of(host.choose(parse_mlir(make_context(), text), None))
    assert (signature.written, signature.filled) == ({0}, frozenset())


@pytest.mark.parametrize("into", ["%a", "%b"])
def test_the_reference_is_of_the_inputs_as_they_were(into: str) -> None:
    kind = "memref<40x40xf16>"
    text = f"""func.func @f(%a: {kind}, %b: {kind}) {{
  linalg.matmul ins(%a, %b : {kind}, {kind}) outs({into} : {kind})
  return
}}"""
    arrays = [draw(40, 40), draw(40, 40)]
    position = ("%a", "%b").index(into)
    a, b = (array.astype(np.float64) for array in arrays)
    results = reference.evaluate(host.choose(parse_mlir(make_context(), text), None), arrays)
    np.testing.assert_array_equal(results[position].value, arrays[position] + a @ b)
    np.testing.assert_array_equal(results[1 - position].value, arrays[1 - position])


def test_the_reference_of_elements_that_are_shifted() -> None:
    text = parts(EXP, "150x64", "%row")
    m = draw(300, 128)
    expected = m.astype(np.float64)
    expected[1:151, :64] = np.exp(m[:150, :64].astype(np.float64)).astype(np.float16)
    results = reference.evaluate(host.choose(parse_mlir(make_context(), text), None), [m, draw(64, 64), draw(1)])
    np.testing.assert_array_equal(results[0].value, expected)
