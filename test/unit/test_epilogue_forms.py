"""Epilogues of other products than plain ones of f16 and bf16: batches, columns first, doubles, 8-bit results."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import compile
from warploom.runtime.arguments.arrays import DTYPES
from warploom.runtime.base.errors import CompileError

Array = NDArray[Any]

B, M, N, K = 3, 20, 24, 32
MAPS = """#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
#bmn = affine_map<(b, m, n) -> (b, m, n)>
#b_n = affine_map<(b, m, n) -> (n)>
#b_m = affine_map<(b, m, n) -> (m)>
"""


def draw(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(dtype)


def run(text: str, *arrays: object) -> None:
    kernel = compile(MAPS + text)
    assert len(kernel.launches) == 1
    kernel(*arrays, device="interp")


def test_a_batch_with_vectors_and_a_residual() -> None:
    mn = f"{B}x{M}x{N}"
    text = f"""func.func @f(%A: memref<{B}x{M}x{K}xf16>, %B: memref<{B}x{K}x{N}xf16>, %row: memref<{N}xf32>,
                          %column: memref<{M}xf32>, %R: memref<{mn}xf16>, %D: memref<{mn}xf32>) {{
  %z = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<{mn}xf32>
  linalg.fill ins(%z : f32) outs(%T : memref<{mn}xf32>)
  linalg.batch_matmul ins(%A, %B : memref<{B}x{M}x{K}xf16>, memref<{B}x{K}x{N}xf16>) outs(%T : memref<{mn}xf32>)
  linalg.generic {{indexing_maps = [#bmn, #b_n, #b_m, #bmn, #bmn],
                   iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%T, %row, %column, %R : memref<{mn}xf32>, memref<{N}xf32>, memref<{M}xf32>, memref<{mn}xf16>)
      outs(%D : memref<{mn}xf32>) {{
  ^bb0(%x: f32, %r: f32, %c: f32, %q: f16, %old: f32):
    %0 = arith.addf %x, %r : f32
    %1 = arith.mulf %0, %c : f32
    %2 = arith.extf %q : f16 to f32
    %3 = arith.addf %1, %2 : f32
    linalg.yield %3 : f32
  }}
  return
}}"""
    a, b, residual = (draw(*s, dtype=np.float16) for s in ((B, M, K), (B, K, N), (B, M, N)))
    row, column, d = draw(N), draw(M), np.full((B, M, N), np.nan, np.float32)
    run(text, a, b, row, column, residual, d)
    product = np.einsum("bmk,bkn->bmn", a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(d, (product + row) * column[:, None] + residual, rtol=1e-5, atol=1e-4)


def in_place(t: str, out: str, layout: str, body: str) -> str:
    kind = f"memref<{M}x{N}x{out}{layout}>"
    return f"""func.func @f(%A: memref<{M}x{K}x{t}>, %B: memref<{K}x{N}x{t}>, %bias: memref<{N}x{out}>, %D: {kind}) {{
  linalg.matmul ins(%A, %B : memref<{M}x{K}x{t}>, memref<{K}x{N}x{t}>) outs(%D : {kind})
  linalg.generic {{indexing_maps = [#n, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%bias : memref<{N}x{out}>) outs(%D : {kind}) {{
  ^bb0(%b: {out}, %x: {out}):
    %0 = arith.addf %x, %b : {out}
    {body}
    linalg.yield %1 : {out}
  }}
  return
}}"""


def test_a_result_that_lies_column_by_column() -> None:
    """It is computed as its transpose, so that the bias runs along rows."""
    a, b, bias = draw(M, K, dtype=np.float16), draw(K, N, dtype=np.float16), draw(N)
    d = np.asfortranarray(draw(M, N))
    expected = -(d + a.astype(np.float64) @ b.astype(np.float64) + bias)
    run(in_place("f16", "f32", f", strided<[1, {M}]>", "%1 = arith.negf %0 : f32"), a, b, bias, d)
    np.testing.assert_allclose(d, expected, rtol=1e-5, atol=1e-4)


def test_doubles() -> None:
    a, b, bias, d = (draw(*shape, dtype=np.float64) for shape in ((M, K), (K, N), (N,), (M, N)))
    expected = (d + a @ b + bias) / 3
    body = "%c = arith.constant 3.0 : f64\n    %1 = arith.divf %0, %c : f64"
    run(in_place("f64", "f64", "", body), a, b, bias, d)
    np.testing.assert_allclose(d, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["f8E4M3FN", "i8"])
def test_doubles_with_a_result_of_eight_bits(kind: str) -> None:
    """Two neighbouring sums of a lane fill no register, so the epilogue is a kernel of its own."""
    last = f"arith.truncf %0 : f32 to {kind}" if kind != "i8" else "arith.fptosi %0 : f32 to i8"
    text = f"""func.func @f(%A: memref<{M}x{K}xf64>, %B: memref<{K}x{N}xf64>, %D: memref<{M}x{N}x{kind}>) {{
  %z = arith.constant 0.0 : f64
  %T = memref.alloc() : memref<{M}x{N}xf64>
  linalg.fill ins(%z : f64) outs(%T : memref<{M}x{N}xf64>)
  linalg.matmul ins(%A, %B : memref<{M}x{K}xf64>, memref<{K}x{N}xf64>) outs(%T : memref<{M}x{N}xf64>)
  linalg.generic {{indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%T : memref<{M}x{N}xf64>) outs(%D : memref<{M}x{N}x{kind}>) {{
  ^bb0(%x: f64, %old: {kind}):
    %0 = arith.truncf %x : f64 to f32
    %1 = {last}
    linalg.yield %1 : {kind}
  }}
  return
}}"""
    a, b = (np.rint(draw(*shape, dtype=np.float64)) for shape in ((M, K), (K, N)))
    d = np.full((M, N), 99).astype(DTYPES[kind])
    compile(MAPS + text)(a, b, d, device="interp")
    np.testing.assert_array_equal(d, (a @ b).astype(DTYPES[kind]))


def test_results_of_eight_bits() -> None:
    """Scaled and rounded once, to e4m3."""
    text = f"""func.func @f(%A: memref<{M}x{K}xf16>, %B: memref<{K}x{N}xf16>, %s: f32, %D: memref<{M}x{N}xf8E4M3FN>) {{
  %z = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<{M}x{N}xf32>
  linalg.fill ins(%z : f32) outs(%T : memref<{M}x{N}xf32>)
  linalg.matmul ins(%A, %B : memref<{M}x{K}xf16>, memref<{K}x{N}xf16>) outs(%T : memref<{M}x{N}xf32>)
  linalg.generic {{indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%T : memref<{M}x{N}xf32>) outs(%D : memref<{M}x{N}xf8E4M3FN>) {{
  ^bb0(%x: f32, %old: f8E4M3FN):
    %0 = arith.mulf %x, %s : f32
    %1 = arith.truncf %0 : f32 to f8E4M3FN
    linalg.yield %1 : f8E4M3FN
  }}
  return
}}"""
    a, b = draw(M, K, dtype=np.float16), draw(K, N, dtype=np.float16)
    d = np.full((M, N), np.nan, ml_dtypes.float8_e4m3fn)
    run(text, a, b, 0.5, d)
    exact = a.astype(np.float64) @ b.astype(np.float64) * 0.5
    np.testing.assert_allclose(d.astype(np.float64), exact, rtol=2.0**-4 + 1e-5, atol=2.0**-10)


EXTRAS = (
    ("mn", "nm", "f32"),
    ("mn", "nm", "f16"),
    ("mn", "", "f32"),
    ("bmn", "bn", "f32"),
    ("bmn", "bm", "f16"),
    ("bmn", "b", "f32"),
    ("bmn", "nbm", "f32"),
    ("bmn", "nm", "bf16"),
    ("bmn", "mn", "f32"),
    ("mn", "n", "i8"),
)
"""The loops of D, and those that an epilogue operand's dimensions run along, with its type."""


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("loops", "along", "kind"), EXTRAS, ids=str)
@pytest.mark.parametrize("n", [24, 21])
def test_operands_that_lie_otherwise_than_the_result(loops: str, along: str, kind: str, n: int) -> None:
    """Transposed, one for each of a batch, a number in memory: all in the product's kernel."""
    sizes = {"b": 3, "m": 20, "n": n, "k": K}

    def memory(names: str, element: str) -> str:
        return f"memref<{''.join(f'{sizes[loop]}x' for loop in names)}{element}>"

    batch = loops[:-2]
    a_type, b_type, d_type = memory(batch + "mk", "f16"), memory(batch + "kn", "f16"), memory(loops, "f32")
    extra, letters = memory(along, kind), ", ".join(loops)
    widened = {"f32": "%1 = arith.addf %p, %x : f32", "i8": "%0 = arith.sitofp %x : i8 to f32"}.get(
        kind, f"%0 = arith.extf %x : {kind} to f32"
    )
    widened += "" if kind == "f32" else " %1 = arith.addf %p, %0 : f32"
    text = f"""func.func @f(%A: {a_type}, %B: {b_type}, %X: {extra}, %D: {d_type}) {{
      linalg.{"batch_" if batch else ""}matmul ins(%A, %B : {a_type}, {b_type}) outs(%D : {d_type})
      linalg.generic {{indexing_maps = [affine_map<({letters}) -> ({", ".join(along)})>,
                                        affine_map<({letters}) -> ({letters})>],
                       iterator_types = [{", ".join('"parallel"' for _ in loops)}]}}
        ins(%X : {extra}) outs(%D : {d_type}) {{
      ^bb0(%x: {kind}, %p: f32): {widened} linalg.yield %1 : f32
      }} return }}"""
    shapes = [tuple(sizes[loop] for loop in names) for names in (batch + "mk", batch + "kn", along, loops)]
    a, b = draw(*shapes[0], dtype=np.float16), draw(*shapes[1], dtype=np.float16)
    x = np.asarray(draw(*shapes[2]) * 4).astype(DTYPES[kind])
    d = draw(*shapes[3])
    product = np.einsum(f"{batch}mk,{batch}kn->{loops}", a.astype(np.float64), b.astype(np.float64))
    where = [slice(None) if loop in along else None for loop in loops]
    spread = x.astype(np.float64).transpose([along.index(loop) for loop in loops if loop in along])[tuple(where)]
    expected = d + product + spread
    run(text, a, b, x, d)
    np.testing.assert_allclose(d, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ("i4", "expected elements of a byte or more of epilogue operand 0, got memref<16xi4>"),
        ("i1", r"epilogue operand 0, got memref<16xi1>; truth values have a byte each \(i8\)"),
    ],
)
def test_operands_of_other_integers_are_refused(element: str, message: str) -> None:
    text = f"""func.func @f(%A: memref<16x16xf16>, %B: memref<16x16xf16>, %X: memref<16x{element}>,
                            %D: memref<16x16xf32>) {{
      linalg.matmul ins(%A, %B : memref<16x16xf16>, memref<16x16xf16>) outs(%D : memref<16x16xf32>)
      linalg.generic {{indexing_maps = [affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
        iterator_types = ["parallel", "parallel"]}} ins(%X : memref<16x{element}>) outs(%D : memref<16x16xf32>) {{
      ^bb0(%x: {element}, %d: f32):
        %y = arith.sitofp %x : {element} to f32
        %s = arith.addf %y, %d : f32
        linalg.yield %s : f32
      }}
      return
    }}"""
    with pytest.raises(CompileError, match=message):
        compile(text, target="sm_80")
