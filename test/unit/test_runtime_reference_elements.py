"""Elementwise operations in the float64 reference, and products with epilogues held against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects.func import FuncOp

from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import compile
from warploom.runtime.arguments.arrays import DTYPES
from warploom.runtime.base.errors import HostError
from warploom.runtime.kernel.lowering import chosen
from warploom.runtime.numerics.floats import Array
from warploom.runtime.plan import host
from warploom.runtime.reference.functions import WITH_BOUNDS, compare, evaluate

M, N, K = 19, 23, 40
TEXT = """
#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
#m = affine_map<(m, n) -> (m)>
func.func @f(%A: memref<19x40xf16>, %B: memref<40x23xf16>, %row: memref<23xf32>, %col: memref<19xf32>, %s: f32,
             %D: memref<19x23x{out}>) {{
  %zero = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<19x23xf32>
  linalg.fill ins(%zero : f32) outs(%T : memref<19x23xf32>)
  linalg.matmul ins(%A, %B : memref<19x40xf16>, memref<40x23xf16>) outs(%T : memref<19x23xf32>)
  linalg.generic {{indexing_maps = [#mn, #n, #m, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%T, %row, %col : memref<19x23xf32>, memref<23xf32>, memref<19xf32>) outs(%D : memref<19x23x{out}>) {{
  ^bb0(%p: f32, %r: f32, %c: f32, %old: {out}):
    %x = math.fma %c, %s, %p : f32
    {body}
    linalg.yield %y : {out}
  }}
  memref.dealloc %T : memref<19x23xf32>
  return
}}
"""


def function(text: str) -> FuncOp:
    return host.choose(parse_mlir(make_context(), text, "r.mlir"), None)


def arrays(out: str) -> list[Any]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) * np.float16(0.3) for shape in ((M, K), (K, N)))
    row, column = (rng.standard_normal(n).astype(np.float32) for n in (N, M))
    poison = np.full((M, N), np.nan if DTYPES[out].kind != "i" else -99).astype(DTYPES[out])
    return [a, b, row, column, np.array(0.75, np.float32), poison]


BODIES = {
    "sums": ("f32", "%0 = arith.addf %x, %r : f32 %1 = arith.subf %0, %c : f32 %y = arith.negf %1 : f32"),
    "quotient": ("f16", "%0 = math.absf %r : f32 %2 = arith.constant 0.5 : f32 %1 = arith.addf %0, %2 : f32 "
                 "%3 = arith.divf %x, %1 : f32 %y = arith.truncf %3 : f32 to f16"),
    "relu by comparison": ("f32", "%0 = arith.constant 0.0 : f32 %1 = arith.cmpf ogt, %x, %0 : f32 "
                           "%y = arith.select %1, %x, %r : f32"),
    "extremes": ("f32", "%0 = arith.maximumf %x, %r : f32 %1 = arith.minnumf %0, %c : f32 %y = math.exp %1 : f32"),
    "sigmoid": ("bf16", "%0 = arith.negf %x : f32 %1 = math.exp %0 : f32 %2 = arith.constant 1.0 : f32 "
                "%3 = arith.addf %1, %2 : f32 %4 = arith.divf %2, %3 : f32 %y = arith.truncf %4 : f32 to bf16"),
    "tanh, erf": ("f32", "%0 = math.tanh %x : f32 %1 = math.erf %r : f32 %y = arith.mulf %0, %1 : f32"),
    "logarithm": ("f32", "%0 = arith.mulf %x, %x : f32 %1 = arith.constant 1.0 : f32 %2 = arith.addf %0, %1 : f32 "
                  "%3 = math.log %2 : f32 %4 = math.rsqrt %2 : f32 %y = arith.mulf %3, %4 : f32"),
    "approximate quotient": ("f32", "%0 = math.exp %x : f32 %1 = arith.addf %0, %0 : f32 "
                             "%y = arith.divf %c, %1 fastmath<afn> : f32"),
    "unsigned": ("f32", "%0 = linalg.index 0 : index %1 = linalg.index 1 : index %2 = arith.constant 9 : index "
                 "%3 = arith.subi %0, %2 : index %4 = arith.cmpi ult, %1, %3 : index "
                 "%5 = arith.cmpi uge, %0, %1 : index %6 = arith.select %4, %c, %x : f32 "
                 "%y = arith.select %5, %6, %r : f32"),
    "approximate": ("f16", "%0 = math.tanh %x fastmath<afn> : f32 %1 = math.exp2 %r fastmath<afn> : f32 "
                    "%2 = arith.mulf %0, %1 : f32 %y = arith.truncf %2 : f32 to f16"),
}  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", BODIES)
def test_kernels_are_within_the_bound_and_wrong_results_are_not(name: str) -> None:
    out, body = BODIES[name]
    text, arguments = TEXT.format(out=out, body=body.replace(" %", "\n    %")), arrays(out)
    expected = evaluate(function(TEXT.format(out=out, body=body)), [np.array(x) for x in arguments])[5]
    kernel = compile(text)
    assert len(kernel.launches) == 1
    kernel(*arguments, device="interp")
    result: Array = arguments[5]
    assert compare(expected, result).ok
    assert np.isfinite(expected.value).all()
    wrong = result.copy()
    wrong[3, 4] += DTYPES[out].type(0.05)
    assert compare(expected, wrong).outside == 1


def test_what_has_no_reference_is_named() -> None:
    text = TEXT.format(out="f32", body="%y = math.tan %x : f32")
    with pytest.raises(HostError, match=r"r.mlir:15:5: no float64 reference for math.tan in an elementwise operation"):
        evaluate(function(text), arrays("f32"))


def test_integers_are_exact_and_casts_follow() -> None:
    """Sums of integers, scaled, rounded, clamped and cast to bytes, as quantised networks do."""
    text = """
func.func @f(%A: memref<9x33xi8>, %B: memref<33x7xi8>, %bias: memref<7xi32>, %D: memref<9x7xi8>) {
  %zero = arith.constant 0 : i32
  %T = memref.alloc() : memref<9x7xi32>
  linalg.fill ins(%zero : i32) outs(%T : memref<9x7xi32>)
  linalg.matmul ins(%A, %B : memref<9x33xi8>, memref<33x7xi8>) outs(%T : memref<9x7xi32>)
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%T, %bias : memref<9x7xi32>, memref<7xi32>) outs(%D : memref<9x7xi8>) {
  ^bb0(%p: i32, %b: i32, %old: i8):
    %0 = arith.addi %p, %b : i32
    %1 = arith.sitofp %0 : i32 to f32
    %scale = arith.constant 0.0037 : f32
    %2 = arith.mulf %1, %scale : f32
    %3 = math.roundeven %2 : f32
    %low = arith.constant -128.0 : f32
    %high = arith.constant 127.0 : f32
    %4 = arith.maximumf %3, %low : f32
    %5 = arith.minimumf %4, %high : f32
    %6 = arith.fptosi %5 : f32 to i8
    linalg.yield %6 : i8
  }
  return
}
"""  # noqa: E501
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((9, 33), (33, 7)))
    bias = rng.integers(-1000, 1000, 7, dtype=np.int32)
    d = np.full((9, 7), -99, np.int8)
    expected = evaluate(function(text), [a, b, bias, d.copy()])[3]
    scaled = (a.astype(np.int64) @ b + bias).astype(np.float32) * np.float32(0.0037)
    exact = np.clip(np.rint(scaled), -128, 127)
    assert (np.abs(expected.value - exact) <= expected.error).all()
    compile(text)(a, b, bias, d, device="interp")
    np.testing.assert_array_equal(d, exact.astype(np.int8))
    assert compare(expected, d).ok


ELEMENTWISE = """
#i = affine_map<(i) -> (i)>
func.func @f(%X: memref<64x{x}>, %Y: memref<64x{x}>, %D: memref<64x{out}>) {{
  linalg.generic {{indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}}
      ins(%X, %Y : memref<64x{x}>, memref<64x{x}>) outs(%D : memref<64x{out}>) {{
  ^bb0(%x: {x}, %y: {x}, %old: {out}):
    {body}
    linalg.yield %d : {out}
  }}
  return
}}
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "predicate", ["oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno"]
)
def test_comparisons_with_nan(predicate: str) -> None:
    body = f"%c = arith.cmpf {predicate}, %x, %y : f32\n%d = arith.select %c, %x, %y : f32"
    text = ELEMENTWISE.format(x="f32", out="f32", body=body)
    values = np.array([np.nan, -np.inf, -1, -0.0, 0.0, 1, 2, np.inf], np.float32)
    x, y = (grid.ravel().copy() for grid in np.meshgrid(values, values))
    d = np.zeros_like(x)
    expected = evaluate(function(text), [x, y, d.copy()])[2]
    compile(text)(x, y, d, device="interp")
    np.testing.assert_array_equal(expected.value, d)


@pytest.mark.parametrize("kind", ["i8", "i32"])
def test_integers_without_a_sign(kind: str) -> None:
    body = f"%d = arith.uitofp %x : {kind} to f32"
    text = ELEMENTWISE.format(x=kind, out="f32", body=body)
    dtype = DTYPES[kind]
    x = np.random.default_rng(0).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 64, dtype=dtype, endpoint=True)
    x[:3] = -1, 0, np.iinfo(dtype).min
    d = np.zeros(64, np.float32)
    expected = evaluate(function(text), [x, x, d.copy()])[2]
    np.testing.assert_array_equal(expected.value, x.view(f"u{dtype.itemsize}").astype(np.float32))
    compile(text)(x, x, d, device="interp")
    assert compare(expected, d).ok


def test_several_outputs() -> None:
    """The second one is transposed, and each reads what both held before."""
    text = """
func.func @f(%X: memref<3x5xf32>, %Y: memref<3x5xf32>, %Z: memref<5x3xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%X : memref<3x5xf32>) outs(%Y, %Z : memref<3x5xf32>, memref<5x3xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %a = arith.addf %x, %z : f32
    %b = arith.mulf %x, %y : f32
    linalg.yield %a, %b : f32, f32
  }
  return
}
"""  # noqa: E501
    rng = np.random.default_rng(0)
    x, y, z = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 5), (3, 5), (5, 3)))
    _, first, second = evaluate(function(text), [x, y, z])
    assert compare(first, x + z.T).ok
    assert compare(second, (x * y).T).ok


FUNCTIONS = """
#i = affine_map<(i) -> (i)>
func.func @f(%X: tensor<97x{kind}>, %Y: tensor<97x{kind}>) -> tensor<97x{kind}> {{
  %e = tensor.empty() : tensor<97x{kind}>
  %r = linalg.generic {{indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}}
      ins(%X, %Y : tensor<97x{kind}>, tensor<97x{kind}>) outs(%e : tensor<97x{kind}>) {{
  ^bb0(%x: {kind}, %y: {kind}, %old: {kind}):
    %s = arith.mulf %x, %x : {kind}
    %a = arith.subf %s, %s : {kind}
    %b = math.exp %y : {kind}
    %one = arith.constant 1.0 : {kind}
    %near = arith.subf %b, %one : {kind}
    %z = math.{call} : {kind}
    linalg.yield %z : {kind}
  }} -> tensor<97x{kind}>
  return %r : tensor<97x{kind}>
}}
"""


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize(
    ("call", "by"),
    [
        ("asinh %near", np.arcsinh), ("cbrt %near", np.cbrt), ("atan2 %near, %x", None), ("atan2 %x, %near", None),
        ("copysign %x, %near", None), ("round %near", None), ("log1p %near", np.log1p),
    ],
)  # fmt: skip
def test_functions_near_zero_have_finite_bounds(call: str, by: np.ufunc | None, kind: str) -> None:
    """Of numbers with an error, and both signs of which are possible."""
    dtype, text = DTYPES[kind], FUNCTIONS.format(kind=kind, call=call)
    y = np.concatenate([[0, 1e-7, -1e-7], np.random.default_rng().uniform(-0.7, 0.7, 94)]).astype(dtype)
    x = np.random.default_rng().standard_normal(97).astype(dtype)
    meant = chosen(parse_mlir(make_context(), text, "f.mlir"), None, kept=WITH_BOUNDS)
    expected = evaluate(meant, [x, y, np.full_like(x, np.nan)])[2]
    assert np.isfinite(expected.error).all()
    got = compile(text, cache=False)(x, y, device="interp")
    assert compare(expected, got).ok
    if by is not None:
        far, wanted = np.abs(y) > 0.1, by(np.expm1(y.astype(np.float64)))
        np.testing.assert_allclose(expected.value[far], wanted[far], atol=4e-3 if kind == "f16" else 1e-5)
        wrong = got.copy()
        wrong[far] += dtype.type(0.03)
        assert compare(expected, wrong).outside == far.sum()
