"""Graphs of operations of many types: their results are numpy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from graph_programs import outcome

from warploom.runtime import compile

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.mark.parametrize("first", range(0, 24, 12))
def test_drawn_graphs_are_right(first: int) -> None:
    outcomes = [outcome(number) for number in range(first, first + 12)]
    assert [f"{each.reason}\n{each.text}" for each in outcomes if each.kind != "right"] == []


def softmax(x: Array) -> Array:
    return np.exp(x) / np.exp(x).sum(1, keepdims=True)


def product_of(a: str, b: str, converted: str, of_a: str = "%l") -> str:
    return f"""func.func @f(%x: memref<5x7x{a}>, %y: memref<7x9x{b}>, %o: memref<5x9xf32>) {{
  linalg.generic {{
      indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>,
        affine_map<(i, j, k) -> (i, j)>],
      iterator_types = ["parallel", "parallel", "reduction"]}}
    ins(%x, %y : memref<5x7x{a}>, memref<7x9x{b}>) outs(%o : memref<5x9xf32>) {{
  ^bb0(%a: {a}, %b: {b}, %c: f32):
    {converted}
    %p = arith.mulf {of_a}, %r : f32
    %s = arith.addf %c, %p : f32
    linalg.yield %s : f32
  }}
  return
}}"""


PROGRAMS: dict[str, tuple[str, Sequence[tuple[tuple[int, ...], Any]], Callable[..., Array]]] = {
    "a convolution of one channel along rows": (
        """func.func @f(%x: memref<2x1x5x19xf16>, %w: memref<4x1x1x3xf16>, %o: memref<2x4x5x17xf32>) {
  linalg.conv_2d_nchw_fchw ins(%x, %w : memref<2x1x5x19xf16>, memref<4x1x1x3xf16>) outs(%o : memref<2x4x5x17xf32>)
  return
}""",
        [((2, 1, 5, 19), np.float16), ((4, 1, 1, 3), np.float16), ((2, 4, 5, 17), np.float32)],
        lambda x, w, o: (
            o + np.einsum("nhwx,fx->nfhw", np.lib.stride_tricks.sliding_window_view(x[:, 0], 3, 2), w[:, 0, 0])
        ),
    ),
    "a convolution of one group of three channels": (
        """func.func @f(%x: memref<2x1x3x5x19xf16>, %w: memref<4x1x3x1x3xf16>, %o: memref<2x1x4x5x17xf32>) {
  linalg.conv_2d_ngchw_fgchw ins(%x, %w : memref<2x1x3x5x19xf16>, memref<4x1x3x1x3xf16>)
    outs(%o : memref<2x1x4x5x17xf32>)
  return
}""",
        [((2, 1, 3, 5, 19), np.float16), ((4, 1, 3, 1, 3), np.float16), ((2, 1, 4, 5, 17), np.float32)],
        lambda x, w, o: (
            o + np.einsum("ngchwx,fgcx->ngfhw", np.lib.stride_tricks.sliding_window_view(x, 3, 4), w[:, :, :, 0])
        ),
    ),
    "a padded convolution as wide as its images": (
        """func.func @f(%x: tensor<2x1x8x4x2xf16>, %w: tensor<8x1x8x3x2xf16>) -> tensor<2x1x8x3x1xf32> {
  %z = arith.constant 0.0 : f16
  %p = tensor.pad %x low[0, 0, 0, 0, 0] high[0, 0, 0, 1, 0] {
  ^bb0(%n: index, %g: index, %c: index, %h: index, %v: index):
    tensor.yield %z : f16
  } : tensor<2x1x8x4x2xf16> to tensor<2x1x8x5x2xf16>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x1x8x3x1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x1x8x3x1xf32>) -> tensor<2x1x8x3x1xf32>
  %r = linalg.conv_2d_ngchw_fgchw ins(%p, %w : tensor<2x1x8x5x2xf16>, tensor<8x1x8x3x2xf16>)
    outs(%f : tensor<2x1x8x3x1xf32>) -> tensor<2x1x8x3x1xf32>
  return %r : tensor<2x1x8x3x1xf32>
}""",
        [((2, 1, 8, 4, 2), np.float16), ((8, 1, 8, 3, 2), np.float16), ((2, 1, 8, 3, 1), np.float32)],
        lambda x, w, _: np.einsum(
            "nchyvx,fcyx->nfhv",
            np.lib.stride_tricks.sliding_window_view(
                np.pad(x[:, 0], [(0, 0), (0, 0), (0, 1), (0, 0)]), (3, 2), (2, 3)
            ).transpose(0, 1, 2, 4, 3, 5),
            w[:, 0],
        )[:, None],
    ),
    "a transpose to rows of 32 elements of 16 bits": (
        """func.func @f(%x: memref<32x71xf16>, %o: memref<71x32xf16>) {
  linalg.transpose ins(%x : memref<32x71xf16>) outs(%o : memref<71x32xf16>) permutation = [1, 0]
  return
}""",
        [((32, 71), np.float16), ((71, 32), np.float16)],
        lambda x, _: x.T,
    ),
    "a product whose function is written in columns": (
        """func.func @f(%x: memref<12x16xf16>, %y: memref<16x24xf16>, %o: memref<24x12xf32>) {
  %z = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<12x24xf32>
  linalg.fill ins(%z : f32) outs(%t : memref<12x24xf32>)
  linalg.matmul ins(%x, %y : memref<12x16xf16>, memref<16x24xf16>) outs(%t : memref<12x24xf32>)
  %v = memref.transpose %o (i, j) -> (j, i) : memref<24x12xf32> to memref<12x24xf32, strided<[1, 12]>>
  linalg.abs ins(%t : memref<12x24xf32>) outs(%v : memref<12x24xf32, strided<[1, 12]>>)
  return
}""",
        [((12, 16), np.float16), ((16, 24), np.float16), ((24, 12), np.float32)],
        lambda x, y, _: np.abs(x @ y).T,
    ),
    "a product and its function, of whose types one says less": (
        """func.func @f(%x: memref<?x16xf16>, %y: memref<16x24xf16>, %c: memref<?x24xf32>, %o: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %m = memref.dim %c, %c0 : memref<?x24xf32>
  %t = memref.alloc(%m) : memref<?x24xf32>
  linalg.copy ins(%c : memref<?x24xf32>) outs(%t : memref<?x24xf32>)
  linalg.matmul ins(%x, %y : memref<?x16xf16>, memref<16x24xf16>) outs(%t : memref<?x24xf32>)
  linalg.abs ins(%t : memref<?x24xf32>) outs(%o : memref<?x?xf32>)
  return
}""",
        [((5, 16), np.float16), ((16, 24), np.float16), ((5, 24), np.float32), ((5, 24), np.float32)],
        lambda x, y, c, _: np.abs(x @ y + c),
    ),
    "bf16 times i32": (
        product_of("bf16", "i32", "%l = arith.extf %a : bf16 to f32\n    %r = arith.sitofp %b : i32 to f32"),
        [((5, 7), ml_dtypes.bfloat16), ((7, 9), np.int32), ((5, 9), np.float32)],
        lambda x, y, o: o + x @ y,
    ),
    "f32 times i8": (
        product_of("f32", "i8", "%r = arith.sitofp %b : i8 to f32", "%a"),
        [((5, 7), np.float32), ((7, 9), np.int8), ((5, 9), np.float32)],
        lambda x, y, o: o + x @ y,
    ),
    "a product that becomes i64": (
        """func.func @f(%x: memref<12x16xf16>, %y: memref<16x24xf16>, %v: memref<24xi64>, %o: memref<12x24xi64>) {
  %z = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<12x24xf32>
  linalg.fill ins(%z : f32) outs(%t : memref<12x24xf32>)
  linalg.matmul ins(%x, %y : memref<12x16xf16>, memref<16x24xf16>) outs(%t : memref<12x24xf32>)
  linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
    ins(%t, %v : memref<12x24xf32>, memref<24xi64>) outs(%o : memref<12x24xi64>) {
  ^bb0(%a: f32, %b: i64, %c: i64):
    %n = arith.fptosi %a : f32 to i64
    %s = arith.addi %n, %b : i64
    linalg.yield %s : i64
  }
  return
}""",
        [((12, 16), np.float16), ((16, 24), np.float16), ((24,), np.int64), ((12, 24), np.int64)],
        lambda x, y, v, _: x @ y + v,
    ),
    "threads that are given a size": (
        """func.func @f(%x: memref<?x?xf32>, %o: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %m = memref.dim %x, %c0 : memref<?x?xf32>
  %n = memref.dim %x, %c1 : memref<?x?xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
      threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) {
    %inside = arith.cmpi slt, %tx, %m : index
    scf.if %inside {
      %old = memref.load %o[%tx] : memref<?xf32>
      %sum = scf.for %j = %c0 to %n step %c1 iter_args(%s = %old) -> (f32) {
        %a = memref.load %x[%tx, %j] : memref<?x?xf32>
        %t = arith.addf %s, %a : f32
        scf.yield %t : f32
      }
      memref.store %sum, %o[%tx] : memref<?xf32>
    }
    gpu.terminator
  }
  return
}""",
        [((11, 5), np.float32), ((11,), np.float32)],
        lambda x, o: o + x.sum(1),
    ),
    "a tensor that a region computes of indices": (
        """func.func @f(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x8xf32>
  %n = arith.subi %m, %c1 : index
  %r = tensor.generate %n {
  ^bb0(%i: index, %j: index):
    %k = arith.addi %i, %c1 : index
    %a = tensor.extract %x[%k, %j] : tensor<?x8xf32>
    %s = arith.addf %a, %a : f32
    tensor.yield %s : f32
  } : tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}""",
        [((5, 8), np.float32), ((4, 8), np.float32)],
        lambda x, _: 2 * x[1:],
    ),
    "a tensor of one number": (
        """func.func @f(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %two = arith.constant 2.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %t = tensor.splat %two[%n] : tensor<?x4xf32>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %r = linalg.add ins(%x, %t : tensor<?x4xf32>, tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %r : tensor<?x4xf32>
}""",
        [((5, 4), np.float32), ((5, 4), np.float32)],
        lambda x, _: x + 2,
    ),
    "places without a sign": (
        """func.func @f(%x: memref<256x4xf32>, %y: memref<16xi8>, %o: memref<16x4xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
    ins(%y : memref<16xi8>) outs(%o : memref<16x4xf32>) {
  ^bb0(%b: i8, %c: f32):
    %i = arith.index_castui %b : i8 to index
    %j = linalg.index 1 : index
    %a = memref.load %x[%i, %j] : memref<256x4xf32>
    linalg.yield %a : f32
  }
  return
}""",
        [((256, 4), np.float32), ((16,), np.int8), ((16, 4), np.float32)],
        lambda x, y, _: x[y.astype(np.int8).astype(np.uint8)],
    ),
    "attention of heads of an unknown number of columns": (
        """func.func @f(%q: memref<9x?xf16>, %k: memref<20x?xf16>, %v: memref<20x16xf16>, %o: memref<9x16xf32>) {
  %zero = arith.constant 0.0 : f32
  %s = memref.alloc() : memref<9x20xf32>
  linalg.fill ins(%zero : f32) outs(%s : memref<9x20xf32>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                 affine_map<(m, n, k) -> (m, n)>]
    ins(%q, %k : memref<9x?xf16>, memref<20x?xf16>) outs(%s : memref<9x20xf32>)
  %p = memref.alloc() : memref<9x20xf32>
  linalg.softmax dimension(1) ins(%s : memref<9x20xf32>) outs(%p : memref<9x20xf32>)
  %h = memref.alloc() : memref<9x20xf16>
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]} ins(%p : memref<9x20xf32>) outs(%h : memref<9x20xf16>) {
  ^bb0(%a: f32, %b: f16):
    %n = arith.truncf %a : f32 to f16
    linalg.yield %n : f16
  }
  linalg.fill ins(%zero : f32) outs(%o : memref<9x16xf32>)
  linalg.matmul ins(%h, %v : memref<9x20xf16>, memref<20x16xf16>) outs(%o : memref<9x16xf32>)
  return
}""",
        [((9, 8), np.float16), ((20, 8), np.float16), ((20, 16), np.float16), ((9, 16), np.float32)],
        lambda q, k, v, _: softmax(q @ k.T) @ v,
    ),
    "i32 to i64 of unknown sizes": (
        """func.func @f(%x: memref<?x?x3xi32, strided<[15, ?, 1]>>, %o: memref<?x?x3xi64>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = memref.dim %x, %c0 : memref<?x?x3xi32, strided<[15, ?, 1]>>
  %n = memref.dim %x, %c1 : memref<?x?x3xi32, strided<[15, ?, 1]>>
  %t = memref.alloc(%m, %n) : memref<?x?x3xi64>
  linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, j, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%x : memref<?x?x3xi32, strided<[15, ?, 1]>>) outs(%t : memref<?x?x3xi64>) {
  ^bb0(%a: i32, %b: i64):
    %p = arith.muli %a, %a : i32
    %s = arith.extsi %p : i32 to i64
    linalg.yield %s : i64
  }
  linalg.copy ins(%t : memref<?x?x3xi64>) outs(%o : memref<?x?x3xi64>)
  return
}""",
        [((4, 5, 3), np.int32), ((4, 5, 3), np.int64)],
        lambda x, _: x * x,
    ),
    "a softmax of whose types one says less": (
        """func.func @f(%x: memref<?x9xf32>, %o: memref<5x?xf32>) {
  linalg.softmax dimension(1) ins(%x : memref<?x9xf32>) outs(%o : memref<5x?xf32>)
  return
}""",
        [((5, 9), np.float32), ((5, 9), np.float32)],
        lambda x, _: softmax(x),
    ),
}
"""Programs that were refused, and two that were wrong, with the shapes and types of their arguments, of which the last
is written."""


@pytest.mark.parametrize("name", ["a tensor that a region computes of indices", "i32 to i64 of unknown sizes"])
def test_volta_has_all_but_products(name: str) -> None:
    test_what_was_refused(name, "sm_70")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_what_was_refused(name: str, target: str) -> None:
    text, kinds, reference = PROGRAMS[name]
    random, kernel = np.random.default_rng(), compile(text, target, tf32=True, cache=False)
    arrays = [random.integers(-3, 4, shape).astype(dtype) for shape, dtype in kinds]
    expected = reference(*(array.astype(np.float64) for array in arrays))
    kernel(*arrays, device="interp")
    bound = 0.0 if "softmax" not in text else 2.0**-10 if "truncf" in text else 1e-6  # P of attention is f16
    np.testing.assert_allclose(arrays[-1].astype(np.float64), expected, rtol=bound, atol=3 * bound)


def to_bf16(number: int) -> float:
    """An integer rounded to 8 bits, halves to even."""
    drop = max(0, abs(number).bit_length() - 8)
    quotient, rest = divmod(abs(number), 1 << drop)
    quotient += 2 * rest + (quotient & 1) > 1 << drop
    return float(quotient << drop) * (1 if number >= 0 else -1)


@pytest.mark.parametrize("kind", ["i32", "i64", "f64"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_numbers_are_rounded_to_bf16_once(kind: str, target: str) -> None:
    operation = "truncf" if kind == "f64" else "sitofp"
    kernel = compile(
        f"""func.func @f(%x: memref<?x{kind}>, %o: memref<?xbf16>) {{
  linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}}
    ins(%x : memref<?x{kind}>) outs(%o : memref<?xbf16>) {{
  ^bb0(%a: {kind}, %b: bf16):
    %r = arith.{operation} %a : {kind} to bf16
    linalg.yield %r : bf16
  }}
  return
}}""",
        target,
        cache=False,
    )
    random, bits = np.random.default_rng(), 31 if kind == "i32" else 52 if kind == "f64" else 63
    # Halves between two numbers of bf16, and what is off by one: f32 has these halves, too.
    halves = [
        (2 * int(n) + 257) << int(s)
        for n, s in zip(
            random.integers(0, 128, 200),
            random.integers(17, bits - 9, 200) if bits > 31 else random.integers(9, 22, 200),
            strict=True,
        )
    ]
    numbers = [sign * (half + by) for half in halves for by in (-1, 0, 1) for sign in (1, -1)] + [
        0,
        1,
        -1,
        (1 << bits) - 1,
    ]
    result = np.zeros(len(numbers), ml_dtypes.bfloat16)
    kernel(np.array(numbers, {"i32": np.int32, "i64": np.int64, "f64": np.float64}[kind]), result, device="interp")
    np.testing.assert_array_equal(result.astype(np.float64), [*map(to_bf16, numbers)])


def test_f64_is_rounded_to_8_bits_once() -> None:
    kernel = compile(
        """func.func @f(%x: memref<?xf64>, %o: memref<?xf8E4M3FN>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%x : memref<?xf64>) outs(%o : memref<?xf8E4M3FN>) {
  ^bb0(%a: f64, %b: f8E4M3FN):
    %r = arith.truncf %a : f64 to f8E4M3FN
    linalg.yield %r : f8E4M3FN
  }
  return
}""",
        "sm_90a",
        cache=False,
    )
    halves = np.arange(17.0, 32, 2)  # between numbers of 4 bits: f32 has them, and what is off by 2^-40 it has not
    above, below = halves + 1, halves - 1
    even = np.where(above % 4 == 0, above, below)
    result = np.zeros(2 * 3 * len(halves), ml_dtypes.float8_e4m3fn)
    numbers = np.concatenate([halves - 2.0**-40, halves, halves + 2.0**-40])
    kernel(np.concatenate([numbers, -numbers]), result, device="interp")
    expected = np.concatenate([below, even, above])
    np.testing.assert_array_equal(result.astype(np.float64), np.concatenate([expected, -expected]))
