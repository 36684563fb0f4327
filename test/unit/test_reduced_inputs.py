"""`linalg.reduce` of several inputs."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, compile

LARGEST = """func.func @f(%x: tensor<6x13xf32>, %n: tensor<6x13xi32>) -> (tensor<6xf32>, tensor<6xi32>) {
  %least = arith.constant 0xFF800000 : f32
  %none = arith.constant -1 : i32
  %e = tensor.empty() : tensor<6xf32>
  %ei = tensor.empty() : tensor<6xi32>
  %q = linalg.fill ins(%least : f32) outs(%e : tensor<6xf32>) -> tensor<6xf32>
  %qi = linalg.fill ins(%none : i32) outs(%ei : tensor<6xi32>) -> tensor<6xi32>
  %r:2 = linalg.reduce ins(%x, %n : tensor<6x13xf32>, tensor<6x13xi32>) outs(%q, %qi : tensor<6xf32>, tensor<6xi32>)
    dimensions = [1] (%a: f32, %b: i32, %m: f32, %k: i32) {
      %p = arith.cmpf ogt, %a, %m : f32
      %s = arith.select %p, %a, %m : f32
      %t = arith.select %p, %b, %k : i32
      linalg.yield %s, %t : f32, i32
    }
  return %r#0, %r#1 : tensor<6xf32>, tensor<6xi32>
}"""


def test_several_inputs_are_reduced_at_once() -> None:
    rng = np.random.default_rng()
    x, n = rng.standard_normal((6, 13)).astype(np.float32), rng.integers(-99, 99, (6, 13), dtype=np.int32)
    largest, number = compile(LARGEST, target="sm_90a", cache=False)(x, n, device="interp")
    np.testing.assert_array_equal(largest, x.max(1))
    np.testing.assert_array_equal(number, n[np.arange(6), x.argmax(1)])


def test_a_reduction_of_several_inputs_is_printed_as_it_is_read() -> None:
    once = str(parse_mlir(make_context(), LARGEST))
    assert "linalg.reduce ins(%x, %n : tensor<6x13xf32>, tensor<6x13xi32>) outs(" in once
    assert str(parse_mlir(make_context(), once)) == once


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("outs(%q, %qi : tensor<6xf32>, tensor<6xi32>)", "outs(%q : tensor<6xf32>)", "an operand in outs"),
        ("linalg.yield %s, %t : f32, i32", "linalg.yield %s : f32", "expected the body to yield f32, i32"),
        ("dimensions = [1]", "dimensions = [0]", "6"),
    ],
)
def test_a_wrong_reduction_is_refused_at_its_place(old: str, new: str, message: str) -> None:
    with pytest.raises(CompileError, match=rf"<mlir>:8:\d+: error: .*{message}"):
        compile(LARGEST.replace(old, new), target="sm_90a", cache=False)
