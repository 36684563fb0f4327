"""`linalg.index` after a product and alone, from linalg to the interpreter, against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import WarploomError, compile

Array = NDArray[Any]

MASK = """    %i = linalg.index {row} : index
    %j = linalg.index {column} : index
    %three = arith.constant 3 : index
    %end = arith.addi %i, %three : index
    %keep = arith.cmpi sle, %j, %end : index
    %wide = arith.index_cast %j : index to i64
    %slope = arith.sitofp %wide : i64 to f32
    %biased = arith.addf %x, %slope : f32
    %none = arith.constant -1.0 : f32
    %y = arith.select %keep, %biased, %none : f32
"""


def masked(product: Array) -> Array:
    """Each element plus its column, and -1 right of the third diagonal."""
    row, column = (np.arange(product.shape[axis]) for axis in (-2, -1))
    return np.where(column <= row[:, None] + 3, product + column, -1.0)


def function(m: int, n: int, k: int, *, d: str = "", dynamic: bool = False) -> str:
    """A product, and a mask on it; `d` is the layout of the result."""
    rows = "?" if dynamic else str(m)
    return f"""#mn = affine_map<(m, n) -> (m, n)>
func.func @f(%A: memref<{rows}x{k}xf16>, %B: memref<{k}x{n}xf16>, %D: memref<{rows}x{n}xf32{d}>) {{
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%D : memref<{rows}x{n}xf32{d}>)
  linalg.matmul ins(%A, %B : memref<{rows}x{k}xf16>, memref<{k}x{n}xf16>) outs(%D : memref<{rows}x{n}xf32{d}>)
  linalg.generic {{indexing_maps = [#mn], iterator_types = ["parallel", "parallel"]}}
      outs(%D : memref<{rows}x{n}xf32{d}>) {{
  ^bb0(%x: f32):
{MASK.format(row=0, column=1)}    linalg.yield %y : f32
  }}
  return
}}"""


def draw(*shape: int) -> Array:
    return np.random.default_rng().standard_normal(shape).astype(np.float16)


def check(text: str, m: int, n: int, k: int, target: str = "sm_90a", **schedule: Any) -> None:
    a, b, d = draw(m, k), draw(k, n), np.full((m, n), np.nan, np.float32)
    kernel = compile(text, target=target, **schedule)
    kernel(a, b, d, device="interp")
    assert sum("pack" not in launch.kernel for launch in kernel.launches) == 1, "the mask is fused"
    np.testing.assert_allclose(d, masked(a.astype(np.float64) @ b.astype(np.float64)), rtol=1e-5, atol=1e-4)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("target", "schedule"),
    [
        ("sm_90a", {}),
        ("sm_75", {"sliced_k": 2}),
        ("sm_90a", {"split_k": 3}),
        ("sm_90a", {"mma": "m64n64k16"}),
        ("sm_90a", {"cta": (64, 64, 32), "warp": (32, 32), "staging": 16}),
    ],
    ids=str,
)
def test_a_mask_is_part_of_the_product(target: str, schedule: dict[str, Any]) -> None:
    check(function(70, 90, 45), 70, 90, 45, target, **schedule)


def test_sizes_that_only_the_call_knows() -> None:
    check(function(70, 90, 45, dynamic=True), 70, 90, 45)


def test_a_result_that_lies_column_by_column() -> None:
    text = function(37, 50, 29, d=", strided<[1, 37]>")
    a, b, d = draw(37, 29), draw(29, 50), np.full((50, 37), np.nan, np.float32)
    compile(text)(a, b, d.T, device="interp")
    np.testing.assert_allclose(d.T, masked(a.astype(np.float64) @ b.astype(np.float64)), rtol=1e-5, atol=1e-4)


def test_the_matrices_of_a_batch_know_their_number() -> None:
    text = """#map = affine_map<(b, m, n) -> (b, m, n)>
func.func @f(%A: memref<3x20x16xf16>, %B: memref<3x16x24xf16>, %D: memref<3x20x24xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%D : memref<3x20x24xf32>)
  linalg.batch_matmul ins(%A, %B : memref<3x20x16xf16>, memref<3x16x24xf16>) outs(%D : memref<3x20x24xf32>)
  linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%D : memref<3x20x24xf32>) {
  ^bb0(%x: f32):
    %b = linalg.index 0 : index
    %i = linalg.index 1 : index
    %ten = arith.constant 10 : index
    %tens = arith.muli %b, %ten : index
    %sum = arith.addi %tens, %i : index
    %word = arith.index_cast %sum : index to i32
    %float = arith.sitofp %word : i32 to f32
    %y = arith.addf %x, %float : f32
    linalg.yield %y : f32
  }
  return
}"""
    a, b, d = draw(3, 20, 16), draw(3, 16, 24), np.full((3, 20, 24), np.nan, np.float32)
    kernel = compile(text)
    kernel(a, b, d, device="interp")
    assert len(kernel.launches) == 1
    added = 10 * np.arange(3)[:, None, None] + np.arange(20)[:, None]
    np.testing.assert_allclose(d, a.astype(np.float64) @ b.astype(np.float64) + added, rtol=1e-5, atol=1e-4)


def test_kernels_without_a_product() -> None:
    """Elements of a byte, indices along an outer loop, along rows and columns, and in another order than the output."""
    text = """func.func @f(%D: memref<2x7x33xi8>) {
  linalg.generic {indexing_maps = [affine_map<(n, b, m) -> (b, m, n)>],
                  iterator_types = ["parallel", "parallel", "parallel"]} outs(%D : memref<2x7x33xi8>) {
  ^bb0(%old: i8):
    %n = linalg.index 0 : index
    %b = linalg.index 1 : index
    %m = linalg.index 2 : index
    %four = arith.constant 4 : index
    %five = arith.constant 5 : index
    %quotient = arith.divui %n, %four : index
    %rest = arith.remui %n, %five : index
    %0 = arith.muli %b, %five : index
    %1 = arith.addi %0, %m : index
    %2 = arith.muli %1, %quotient : index
    %3 = arith.subi %2, %rest : index
    %4 = arith.index_cast %3 : index to i8
    linalg.yield %4 : i8
  }
  return
}"""
    d = np.full((2, 7, 33), -99, np.int8)
    compile(text)(d, device="interp")
    b, m, n = np.indices((2, 7, 33))
    np.testing.assert_array_equal(d, ((5 * b + m) * (n // 4) - n % 5).astype(np.int8))


def test_a_chain_knows_its_rows() -> None:
    """What two operations read of a third, with indices along rows of rows, is one kernel."""
    kind, each = "memref<3x21x150xf32>", "affine_map<(b, m, n) -> (b, m, n)>"
    loops = f'{{indexing_maps = [{each}, {each}], iterator_types = ["parallel", "parallel", "parallel"]}}'
    text = f"""func.func @f(%X: {kind}, %Y: {kind}, %Z: {kind}) {{
  %t = memref.alloc() : {kind}
  linalg.generic {loops} ins(%X : {kind}) outs(%t : {kind}) {{
  ^bb0(%x: f32, %old: f32):
    %b = linalg.index 0 : index
    %m = linalg.index 1 : index
    %n = linalg.index 2 : index
    %hundred = arith.constant 100 : index
    %0 = arith.muli %b, %hundred : index
    %1 = arith.addi %0, %m : index
    %2 = arith.muli %1, %n : index
    %3 = arith.index_cast %2 : index to i32
    %4 = arith.sitofp %3 : i32 to f32
    %5 = arith.mulf %x, %4 : f32
    linalg.yield %5 : f32
  }}
  linalg.generic {loops} ins(%t : {kind}) outs(%Y : {kind}) {{
  ^bb0(%x: f32, %old: f32):
    %0 = arith.addf %x, %x : f32
    linalg.yield %0 : f32
  }}
  linalg.generic {loops} ins(%t : {kind}) outs(%Z : {kind}) {{
  ^bb0(%x: f32, %old: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  }}
  memref.dealloc %t : {kind}
  return
}}"""
    x = draw(3, 21, 150).astype(np.float32)
    y, z = (np.full(x.shape, np.nan, np.float32) for _ in range(2))
    kernel = compile(text)
    kernel(x, y, z, device="interp")
    assert len(kernel.launches) == 1
    b, m, n = np.indices(x.shape)
    wanted = x * ((100 * b + m) * n).astype(np.float32)
    np.testing.assert_array_equal(y, 2 * wanted)
    np.testing.assert_array_equal(z, -wanted)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("%y = arith.muli %i, %i : index", "arith.muli of indices may pass 32 bits"),
        ("%c = arith.constant 4294967296 : index\n    %y = arith.subi %i, %c : index", "arith.constant of indices may"),
        ("%c = arith.constant 1 : index\n    %y = arith.shli %i, %c : index", "arith.shli of indices may pass 32 bits"),
    ],
)
def test_what_may_pass_32_bits_is_refused(body: str, reason: str) -> None:
    text = f"""func.func @f(%D: memref<100000x2xi32>) {{
  linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}}
      outs(%D : memref<100000x2xi32>) {{
  ^bb0(%old: i32):
    %i = linalg.index 0 : index
    {body}
    %0 = arith.index_cast %y : index to i32
    linalg.yield %0 : i32
  }}
  return
}}"""
    with pytest.raises(WarploomError, match=f"2:3: error: linalg.generic has no kernel: {reason}"):
        compile(text, file="f.mlir")
