"""Products that no matrix instruction multiplies, and functions on the host as tiling and bufferisation leave them."""

from __future__ import annotations

import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.passes.diagnostics import remarks
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, compile

Array = NDArray[Any]
RNG = np.random.default_rng()


def draw(element: str, *shape: int) -> Array:
    if element[0] == "i":
        return RNG.integers(-100, 100, shape).astype(f"int{element[1:]}")
    return RNG.standard_normal(shape).astype(f"float{element[1:]}")


def converted(values: Array, to: Array) -> Array:
    """Elements as they are multiplied, exact."""
    return values.astype(to.dtype).astype(np.float64)


@pytest.mark.parametrize(
    ("a", "b", "c", "why"),
    [
        ("i32", "i32", "i32", "no mma multiplies s32 x s32"),
        ("i16", "i16", "f32", "expected A of a type that matrix instructions know, got i16"),
        ("i8", "i8", "i8", "expected C of s32 for a product of s8 x s8, got s8"),
        ("f16", "f64", "f32", "its body does more than to extend, multiply and add"),
        ("f16", "f16", "i32", "its body does more than to extend, multiply and add"),
        ("f32", "f32", "f64", "expected C of f16 or bf16 or f32 for a product of tf32 x tf32, got f64"),
    ],
)
def test_types_that_no_instruction_multiplies(a: str, b: str, c: str, why: str) -> None:
    kinds = f"memref<5x17x{a}>", f"memref<17x3x{b}>", f"memref<5x3x{c}>"
    text = f"""func.func @f(%A: {kinds[0]}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      linalg.matmul ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%C : {kinds[2]})
      return }}"""
    x, y, z = draw(a, 5, 17), draw(b, 17, 3), draw(c, 5, 3)
    wanted = z.astype(np.float64) + converted(x, z) @ converted(y, z)
    with remarks() as said:
        kernel = compile(text, cache=False)
    assert why in said[0]
    kernel(x, y, z, device="interp")
    if c[0] == "i":
        np.testing.assert_array_equal(z, wanted.astype(np.int64).astype(z.dtype))
    else:
        np.testing.assert_allclose(z, wanted, rtol=0, atol=17 * np.finfo(z.dtype).eps * np.abs(wanted).max())


QUANTIZED = """func.func @f(%I: memref<2x6x5x3xi8>, %K: memref<2x3x3x4xi8>, %p: i32, %O: memref<2x5x3x4xi32>) {
  %q = arith.constant -3 : i32
  linalg.conv_2d_nhwc_hwcf_q ins(%I, %K, %p, %q : memref<2x6x5x3xi8>, memref<2x3x3x4xi8>, i32, i32)
      outs(%O : memref<2x5x3x4xi32>)
  return }"""


def test_zero_points() -> None:
    image, kernel, result = draw("i8", 2, 6, 5, 3), draw("i8", 2, 3, 3, 4), draw("i32", 2, 5, 3, 4)
    wanted = result.copy()
    for i, j in np.ndindex(2, 3):
        wanted += (image[:, i : i + 5, j : j + 3].astype(np.int32) - 7) @ (kernel[i, j].astype(np.int32) + 3)
    compile(QUANTIZED, cache=False)(image, kernel, 7, result, device="interp")
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("zeros", [(0, 0), (5, -6)])
def test_zero_points_of_batches(zeros: tuple[int, int]) -> None:
    """A product of tensor cores without zero points."""
    text = f"""func.func @f(%A: memref<2x9x35xi8>, %B: memref<2x35x11xi8>, %C: memref<2x9x11xi32>) {{
      %p = arith.constant {zeros[0]} : i32
      %q = arith.constant {zeros[1]} : i32
      linalg.quantized_batch_matmul ins(%A, %B, %p, %q : memref<2x9x35xi8>, memref<2x35x11xi8>, i32, i32)
          outs(%C : memref<2x9x11xi32>)
      return }}"""
    a, b, c = draw("i8", 2, 9, 35), draw("i8", 2, 35, 11), draw("i32", 2, 9, 11)
    wanted = c + (a.astype(np.int32) - zeros[0]) @ (b.astype(np.int32) - zeros[1])
    kernel = compile(text, cache=False)
    kernel(a, b, c, device="interp")
    np.testing.assert_array_equal(c, wanted)
    assert ("mma" in kernel.ptx) == (zeros == (0, 0))


def test_a_large_window_of_channels_of_their_own_and_rows_that_are_apart() -> None:
    text = """func.func @f(%I: memref<1x12x12x5xf16>, %K: memref<9x9x5xf16>, %O: memref<1x4x4x5xf32>,
                           %A: memref<3x8xf16, strided<[32, 2]>>, %B: memref<8x2xf16>, %C: memref<3x2xf32>) {
      linalg.depthwise_conv_2d_nhwc_hwc ins(%I, %K : memref<1x12x12x5xf16>, memref<9x9x5xf16>)
          outs(%O : memref<1x4x4x5xf32>)
      linalg.matmul ins(%A, %B : memref<3x8xf16, strided<[32, 2]>>, memref<8x2xf16>) outs(%C : memref<3x2xf32>)
      return }"""
    image, window, apart, b = draw("f16", 1, 12, 12, 5), draw("f16", 9, 9, 5), draw("f16", 3, 32), draw("f16", 8, 2)
    o, c = np.zeros((1, 4, 4, 5), np.float32), np.zeros((3, 2), np.float32)
    compile(text, cache=False)(image, window, o, apart[:, :16:2], b, c, device="interp")
    patches = np.lib.stride_tricks.sliding_window_view(image.astype(np.float64), (9, 9), axis=(1, 2))
    np.testing.assert_allclose(o, np.einsum("nhwcij,ijc->nhwc", patches, window.astype(np.float64)), atol=1e-4)
    np.testing.assert_allclose(c, apart[:, :16:2].astype(np.float64) @ b.astype(np.float64), atol=1e-5)


REINTERPRETED = """func.func @f(%A: memref<?xf16>, %B: memref<16x24xf16>, %C: memref<?x24xf32>, %n: index, %o: index) {
  %c16 = arith.constant 16 : index
  %m = arith.divui %n, %c16 : index
  %s = memref.subview %A[%o] [%n] [1] : memref<?xf16> to memref<?xf16, strided<[1], offset: ?>>
  %t = memref.reinterpret_cast %s to offset: [%o], sizes: [%m, 16], strides: [16, 1]
      : memref<?xf16, strided<[1], offset: ?>> to memref<?x16xf16, strided<[16, 1], offset: ?>>
  linalg.matmul ins(%t, %B : memref<?x16xf16, strided<[16, 1], offset: ?>>, memref<16x24xf16>)
      outs(%C : memref<?x24xf32>)
  return }"""


def test_memory_that_is_seen_from_its_beginning_in_another_shape() -> None:
    rows, first = int(RNG.integers(9, 30)), int(RNG.integers(1, 40))
    line, b, c = draw("f16", 16 * rows + first + 5), draw("f16", 16, 24), np.zeros((rows, 24), np.float32)
    compile(REINTERPRETED, cache=False)(line, b, c, 16 * rows, first, device="interp")
    wanted = line[first : first + 16 * rows].reshape(rows, 16).astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, wanted, atol=1e-4)


SUMS = """#out = affine_map<(c, s) -> (c)>
func.func @f(%X: memref<67x3x1xbf16>, %W: memref<67x3xbf16>, %s: bf16, %Y: memref<3xbf16>,
             %I: memref<1x2x90x53xf16>, %P: memref<1x2x1x1xf16>) {
  %zero = arith.constant 0.0 : f16
  %window = memref.alloc() : memref<90x53xf16>
  linalg.fill ins(%zero : f16) outs(%P : memref<1x2x1x1xf16>)
  linalg.pooling_nchw_sum ins(%I, %window : memref<1x2x90x53xf16>, memref<90x53xf16>) outs(%P : memref<1x2x1x1xf16>)
  linalg.generic {indexing_maps = [affine_map<(c, s) -> (s, c, 0)>, affine_map<(c, s) -> (s, c)>, #out],
                  iterator_types = ["parallel", "reduction"]}
      ins(%X, %W : memref<67x3x1xbf16>, memref<67x3xbf16>) outs(%Y : memref<3xbf16>) {
  ^bb0(%x: bf16, %w: bf16, %y: bf16):
    %0 = arith.mulf %x, %s : bf16
    %1 = arith.mulf %0, %w : bf16
    %2 = arith.subf %y, %1 : bf16
    linalg.yield %2 : bf16
  }
  return }"""


def test_sums_of_16_bits_are_rounded_once() -> None:
    """Those of f16 would stay at 2048, to which 1 is added."""
    x, w, y = (RNG.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((67, 3, 1), (67, 3), 3))
    image, pooled, scale = np.ones((1, 2, 90, 53), np.float16), np.zeros((1, 2, 1, 1), np.float16), x.dtype.type(0.7)
    wanted = y.astype(np.float64) - float(scale) * (x[..., 0].astype(np.float64) * w.astype(np.float64)).sum(axis=0)
    compile(SUMS, cache=False)(x, w, scale, y, image, pooled, device="interp")
    assert (pooled == 90 * 53).all()
    np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=2.0**-8, atol=1e-4)


TILED = """#left = affine_map<(d0)[s0] -> (-d0 + 37, s0)>
func.func @f(%bytes: memref<?xi8>, %k: index, %b: memref<21x19xf16>, %tile: index)
    -> memref<37x19xf32, strided<[?, ?], offset: ?>> {
  %c0 = arith.constant 0 : index
  %c37 = arith.constant 37 : index
  %zero = arith.constant 0.0 : f32
  %a = memref.view %bytes[%c0][%c37, %k] : memref<?xi8> to memref<?x?xf16>
  %c = memref.alloc() {alignment = 64 : i64} : memref<37x19xf32>
  linalg.fill ins(%zero : f32) outs(%c : memref<37x19xf32>)
  scf.for %i = %c0 to %c37 step %tile {
    %n = affine.min #left(%i)[%tile]
    %sa = memref.subview %a[%i, 0] [%n, 21] [1, 1] : memref<?x?xf16> to memref<?x21xf16, strided<[?, 1], offset: ?>>
    %sc = memref.subview %c[%i, 0] [%n, 19] [1, 1] : memref<37x19xf32> to memref<?x19xf32, strided<[19, 1], offset: ?>>
    linalg.matmul ins(%sa, %b : memref<?x21xf16, strided<[?, 1], offset: ?>>, memref<21x19xf16>)
        outs(%sc : memref<?x19xf32, strided<[19, 1], offset: ?>>)
  }
  %d = memref.cast %c : memref<37x19xf32> to memref<37x19xf32, strided<[?, ?], offset: ?>>
  return %d : memref<37x19xf32, strided<[?, ?], offset: ?>>
}"""


def test_tiles_of_a_size_that_the_call_gives_and_memory_that_is_returned() -> None:
    a, b = draw("f16", 37, 21), draw("f16", 21, 19)
    kernel = compile(TILED, target="sm_80", cache=False)
    for tile in (16, 10, 50):
        got = kernel(a.view(np.int8).ravel(), 21, b, tile, device="interp")
        np.testing.assert_allclose(got, a.astype(np.float64) @ b.astype(np.float64), atol=1e-5)


def test_what_is_not_used_is_left_out_and_what_nobody_wrote_is_zero() -> None:
    head = "func.func @f(%A: tensor<5x8xf16>, %B: tensor<8x3xf16>)"
    product = """%e = tensor.empty() : tensor<5x3xf32>
      %r = linalg.matmul ins(%A, %B : tensor<5x8xf16>, tensor<8x3xf16>) outs(%e : tensor<5x3xf32>) -> tensor<5x3xf32>"""
    a, b = draw("f16", 5, 8), draw("f16", 8, 3)
    with remarks() as said:
        unused = compile(f"{head} {{ {product} return }}", cache=False)
        used = compile(f"{head} -> tensor<5x3xf32> {{ {product} return %r : tensor<5x3xf32> }}", cache=False)
    assert unused.plan.launches == ()
    unused(a, b, device="interp")
    np.testing.assert_allclose(used(a, b, device="interp"), a.astype(np.float64) @ b.astype(np.float64), atol=1e-5)
    assert ["nobody uses" in said[0], "that nothing has been written to" in said[1]] == [True, True]


FORALL = """#left = affine_map<(d0) -> (d0 * -10 + 37, 10)>
func.func @f(%A: tensor<37x21xf16>, %B: tensor<21x30xf16>, %C: tensor<37x30xf32>) -> tensor<37x30xf32> {
  %0 = scf.forall (%i, %j) in (4, 2) shared_outs(%o = %C) -> (tensor<37x30xf32>) {
    %n = affine.min #left(%i)
    %x = affine.apply affine_map<(d0) -> (d0 * 10)>(%i)
    %number = affine.linearize_index disjoint [%i, %j] by (4, 2) : index
    %place:2 = affine.delinearize_index %number into (2) : index, index
    %y = affine.max affine_map<(d0) -> (d0 * 15, d0 - 1)>(%place#1)
    %a = tensor.extract_slice %A[%x, 0] [%n, 21] [1, 1] : tensor<37x21xf16> to tensor<?x21xf16>
    %b = tensor.extract_slice %B[0, %y] [21, 15] [1, 1] : tensor<21x30xf16> to tensor<21x15xf16>
    %c = tensor.extract_slice %o[%x, %y] [%n, 15] [1, 1] : tensor<37x30xf32> to tensor<?x15xf32>
    %p = linalg.matmul ins(%a, %b : tensor<?x21xf16>, tensor<21x15xf16>) outs(%c : tensor<?x15xf32>) -> tensor<?x15xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %o[%x, %y] [%n, 15] [1, 1] : tensor<?x15xf32> into tensor<37x30xf32>
    }
  } {mapping = [#gpu.block<y>, #gpu.block<x>]}
  %r = arith.addf %0, %C : tensor<37x30xf32>
  return %r : tensor<37x30xf32>
}"""


def test_tiles_in_any_order() -> None:
    printed = str(parse_mlir(make_context(), FORALL))
    assert str(parse_mlir(make_context(), printed)) == printed
    a, b, c = draw("f16", 37, 21), draw("f16", 21, 30), draw("f32", 37, 30)
    got = compile(printed, target="sm_80", cache=False)(a, b, c, device="interp")
    np.testing.assert_allclose(got, 2.0 * c + a.astype(np.float64) @ b.astype(np.float64), atol=1e-5)
    with pytest.raises(
        CompileError, match=r"reads what turns of scf\.forall share elsewhere than where its turn writes"
    ):
        compile(
            FORALL.replace(
                "%o[%x, %y] [%n, 15] [1, 1] : tensor<37x30xf32> to", "%o[0, %y] [%n, 15] [1, 1] : tensor<37x30xf32> to"
            )
        )


def test_a_large_constant_of_one_value_is_read_at_once() -> None:
    start = time.process_time()
    parse_mlir(make_context(), "func.func @f() { %c = arith.constant dense<0.5> : tensor<2048x2048xf32> return }")
    assert time.process_time() - start < 5


ONE_TURN = """func.func @f(%A: tensor<13xf32>) -> tensor<13xf32> {
  %e = tensor.empty() : tensor<13xf32>
  %r = scf.forall () in () shared_outs(%o = %e) -> (tensor<13xf32>) {
    %y = arith.mulf %A, %A : tensor<13xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %y into %o[0] [13] [1] : tensor<13xf32> into tensor<13xf32>
    }
  }
  return %r : tensor<13xf32>
}"""


def test_one_turn_without_an_index() -> None:
    x = draw("f32", 13)
    np.testing.assert_array_equal(compile(ONE_TURN, cache=False)(x, device="interp"), x * x)


PADDED = """func.func @f(%A: tensor<3x7xT>, %s: T) -> tensor<9x14xT> {
  %0 = tensor.pad %A low[2, 7] high[4, 0] { ^bb0(%i: index, %j: index): tensor.yield %s : T
  } : tensor<3x7xT> to tensor<9x14xT>
  return %0 : tensor<9x14xT>
}"""


@pytest.mark.parametrize("element", ["f16", "f32", "f64", "i8", "i16", "i32", "i64"])
def test_a_number_from_the_call_around_a_tensor(element: str) -> None:
    x, number = draw(element, 3, 7), draw(element, 1)[0]
    padded = compile(PADDED.replace("T", element), cache=False)(x, number, device="interp")
    np.testing.assert_array_equal(padded, np.pad(x, ((2, 4), (7, 0)), constant_values=number))


REPEATED = """func.func @f(%A: memref<32xT>, %s: T) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c32 = arith.constant 32 : index
  gpu.launch blocks(%x, %y, %z) in (%a = %c1, %b = %c1, %c = %c1)
             threads(%t, %u, %v) in (%d = %c32, %e = %c1, %f = %c1) {
    %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%sum = %s) -> (T) {
      %n = arith.addT %sum, %s : T
      scf.yield %n : T
    }
    memref.store %r, %A[%t] : memref<32xT>
    gpu.terminator
  }
  return
}"""


@pytest.mark.parametrize("element", ["f16", "f32", "f64", "i32", "i64"])
def test_a_number_from_the_call_that_a_loop_begins_with(element: str) -> None:
    x, number = draw(element, 32), draw(element, 1)[0]
    kernel = compile(REPEATED.replace("addT", f"add{element[0]}").replace("T", element), cache=False)
    kernel(x, number, device="interp")
    wanted = number
    for _ in range(3):
        wanted = wanted + number
    np.testing.assert_array_equal(x, wanted)
