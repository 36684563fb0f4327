"""Reductions, indices and softmax in the float64 reference, and attention held against it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from attentions import Attention
from xdsl.dialects.func import FuncOp

from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import compile
from warploom.runtime.arguments.arrays import DTYPES
from warploom.runtime.cli.command import main
from warploom.runtime.kernel.lowering import chosen
from warploom.runtime.plan import host
from warploom.runtime.reference.functions import compare, evaluate

EXAMPLE = Path(__file__).parents[2] / "examples" / "attention.mlir"

ROWS = """
func.func @f(%x: memref<5x7x{kind}>, %y: memref<5x{kind}>) {{
  linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>],
      iterator_types = ["parallel", "reduction"]}} ins(%x : memref<5x7x{kind}>) outs(%y : memref<5x{kind}>) {{
  ^bb0(%a: {kind}, %b: {kind}):
    {body}
    linalg.yield %r : {kind}
  }}
  return
}}
"""


def function(text: str) -> FuncOp:
    return host.choose(parse_mlir(make_context(), text, "r.mlir"), None)


@pytest.mark.parametrize(
    ("kind", "body", "by"),
    [
        ("f32", "%r = arith.addf %a, %b : f32", np.add),
        ("f32", "%r = arith.mulf %b, %a : f32", np.multiply),
        ("f16", "%r = arith.maximumf %a, %b : f16", np.maximum),
        ("bf16", "%r = arith.minnumf %b, %a : bf16", np.fmin),
        ("i32", "%r = arith.addi %a, %b : i32", np.add),
        ("i32", "%r = arith.maxsi %a, %b : i32", np.maximum),
    ],
)
def test_rows_are_reduced_onto_what_is_there(kind: str, body: str, by: np.ufunc) -> None:
    random, dtype = np.random.default_rng(), DTYPES[kind]
    x, y = ((8 * random.standard_normal(shape)).astype(dtype) for shape in ((5, 7), (5,)))
    expected = evaluate(function(ROWS.format(kind=kind, body=body)), [x, y])[1]
    wide = [array.astype(np.float64) for array in (x, y)]
    wanted = by(by.reduce(wide[0], axis=1), wide[1])
    np.testing.assert_allclose(expected.value, wanted, rtol=1e-12)
    assert compare(expected, wanted.astype(dtype)).ok
    assert not compare(expected, (wanted * 1.5 + 1).astype(dtype)).ok


def test_elements_of_rows_may_be_computed_first() -> None:
    body = "%i = linalg.index 1 : index %j = arith.index_cast %i : index to i32 %k = arith.sitofp %j : i32 to f32 " \
           "%v = arith.mulf %a, %k : f32 %r = arith.addf %b, %v : f32"  # fmt: skip
    x, y = np.ones((5, 7), np.float32), np.zeros(5, np.float32)
    expected = evaluate(function(ROWS.format(kind="f32", body=body)), [x, y])[1]
    assert (expected.value == 21).all()
    assert (expected.error > 0).all()


def test_other_bodies_are_evaluated_turn_by_turn() -> None:
    body = "%v = arith.addf %a, %b : f32 %r = arith.addf %v, %b : f32"
    x, y = np.random.default_rng().integers(-4, 5, (5, 7)).astype(np.float32), np.arange(5, dtype=np.float32)
    expected = evaluate(function(ROWS.format(kind="f32", body=body)), [x, y])[1]
    np.testing.assert_array_equal(expected.value, x @ 2.0 ** np.arange(6, -1, -1) + y * 2**7)
    assert compare(expected, expected.value.astype(np.float32)).ok
    assert not compare(expected, expected.value.astype(np.float32) + 1).ok


LARGEST = """
#rows = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @largest(%X: tensor<9x43xf32>, %Y: tensor<43xf32>) -> (tensor<9xf32>, tensor<9xi32>, tensor<9xi32>) {
  %low = arith.constant 0xFF800000 : f32
  %none = arith.constant -1 : i32
  %f = tensor.empty() : tensor<9xf32>
  %i = tensor.empty() : tensor<9xi32>
  %m = linalg.fill ins(%low : f32) outs(%f : tensor<9xf32>) -> tensor<9xf32>
  %n = linalg.fill ins(%none : i32) outs(%i : tensor<9xi32>) -> tensor<9xi32>
  %r:3 = linalg.generic {indexing_maps = [#rows, affine_map<(i, j) -> (j)>, #row, #row, #row],
                         iterator_types = ["parallel", "reduction"]}
      ins(%X, %Y : tensor<9x43xf32>, tensor<43xf32>)
      outs(%m, %n, %n : tensor<9xf32>, tensor<9xi32>, tensor<9xi32>) {
  ^bb0(%x: f32, %y: f32, %most: f32, %place: i32, %bits: i32):
    %j = linalg.index 1 : index
    %here = arith.index_cast %j : index to i32
    %s = arith.addf %x, %y : f32
    %c = arith.cmpf ogt, %s, %most : f32
    %v:2 = scf.if %c -> (f32, i32) {
      scf.yield %s, %here : f32, i32
    } else {
      scf.yield %most, %place : f32, i32
    }
    %three = arith.constant 3 : i32
    %up = arith.shli %here, %three : i32
    %b = arith.xori %bits, %up : i32
    linalg.yield %v#0, %v#1, %b : f32, i32, i32
  } -> (tensor<9xf32>, tensor<9xi32>, tensor<9xi32>)
  return %r#0, %r#1, %r#2 : tensor<9xf32>, tensor<9xi32>, tensor<9xi32>
}
"""


def test_places_of_largest_elements_and_branches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "largest.mlir").write_text(LARGEST)
    assert main(["run", str(path), "--device", "interp", "--check", "--no-cache"]) == 0
    assert capsys.readouterr().out.count("against float64") == 3
    x, y = (np.random.default_rng().standard_normal(shape).astype(np.float32) for shape in ((9, 43), 43))
    outputs = [np.zeros(9, kind) for kind in (np.float32, np.int32, np.int32)]
    module = parse_mlir(make_context(), LARGEST, "largest.mlir")
    _, _, largest, place, bits = evaluate(chosen(module, None), [x, y, *outputs])
    np.testing.assert_array_equal(largest.value, (x + y).max(axis=1))
    np.testing.assert_array_equal(place.value, (x + y).argmax(axis=1))
    np.testing.assert_array_equal(bits.value, ~np.bitwise_xor.reduce(8 * np.arange(43)) * np.ones(9))
    assert compare(place, place.value.astype(np.int32)).ok
    assert not compare(place, place.value.astype(np.int32) + 1).ok


SCAN = """
func.func @scan(%X: tensor<7x301xf32>) -> tensor<7x301xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<7x301xf32>
  %l = tensor.empty() : tensor<7xf32>
  %l0 = linalg.fill ins(%z : f32) outs(%l : tensor<7xf32>) -> tensor<7xf32>
  %y, %s = tm_tensor.scan dimension(1) inclusive(true) ins(%X : tensor<7x301xf32>)
      outs(%e, %l0 : tensor<7x301xf32>, tensor<7xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %b : f32
    tm_tensor.yield %0 : f32
  } -> tensor<7x301xf32>, tensor<7xf32>
  return %y : tensor<7x301xf32>
}
"""


def test_sums_so_far_in_any_order() -> None:
    x = np.random.default_rng().standard_normal((7, 301)).astype(np.float32)
    x[3, 40] = np.inf
    module = parse_mlir(make_context(), SCAN, "scan.mlir")
    _, sums = evaluate(chosen(module, None), [x, np.zeros_like(x)])
    np.testing.assert_allclose(sums.value, x.astype(np.float64).cumsum(axis=1), rtol=1e-4, atol=1e-4)
    got = compile(SCAN, cache=False)(x, device="interp")
    assert compare(sums, got).ok
    got[5, 200:] += 0.03
    assert compare(sums, got).outside == 101


def test_attention_is_checked_as_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On memory too, with a softcap and numbers of loops."""
    asked = Attention((20, 33, 32, 16), softmax="behind", function="alibi", causal=3, on_memory=True)
    (path := tmp_path / "attention.mlir").write_text(asked.mlir)
    for file in (str(EXAMPLE), str(path)):
        assert main(["run", file, "--device", "interp", "--check", "--target", "sm_80", "--no-cache"]) == 0
        assert "within the bound (K + 2) 2^-23" in capsys.readouterr().out
