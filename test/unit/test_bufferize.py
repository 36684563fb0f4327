"""Functions on tensors, as frontends write them: what they become, and what the kernels leave in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from warploom.passes.linalg.bufferize import bufferize
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, compile
from warploom.runtime.cli.command import main

Array = np.ndarray[Any, np.dtype[Any]]

ADDED = """func.func @f(%A: tensor<33x45xf16>, %B: tensor<45x17xf16>, %C: tensor<33x17xf32>) -> tensor<33x17xf32> {
  %r = linalg.matmul ins(%A, %B : tensor<33x45xf16>, tensor<45x17xf16>) outs(%C : tensor<33x17xf32>)
    -> tensor<33x17xf32>
  return %r : tensor<33x17xf32>
}"""

CLEARED = """func.func @f(%A: tensor<33x45xf16>, %B: tensor<45x17xf16>, %bias: tensor<17xf32>) -> tensor<33x17xf32> {
  %e = tensor.empty() : tensor<33x17xf32>
  %z = arith.constant 0.0 : f32
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<33x17xf32>) -> tensor<33x17xf32>
  %r = linalg.matmul ins(%A, %B : tensor<33x45xf16>, tensor<45x17xf16>) outs(%f : tensor<33x17xf32>)
    -> tensor<33x17xf32>
  %o = tensor.empty() : tensor<33x17xf32>
  %g = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
    ins(%r, %bias : tensor<33x17xf32>, tensor<17xf32>) outs(%o : tensor<33x17xf32>) {
  ^bb0(%x: f32, %b: f32, %y: f32):
    %s = arith.addf %x, %b : f32
    linalg.yield %s : f32
  } -> tensor<33x17xf32>
  return %g : tensor<33x17xf32>
}"""

CHAIN = """func.func @f(%A: tensor<20x24xf16>, %B: tensor<24x12xf16>, %D: tensor<12x9xf16>)
    -> (tensor<20x9xf32>, tensor<20x12xf16>) {
  %z = arith.constant 0.0 : f16
  %zz = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<20x12xf16>
  %f = linalg.fill ins(%z : f16) outs(%e : tensor<20x12xf16>) -> tensor<20x12xf16>
  %h = linalg.matmul ins(%A, %B : tensor<20x24xf16>, tensor<24x12xf16>) outs(%f : tensor<20x12xf16>)
    -> tensor<20x12xf16>
  %e2 = tensor.empty() : tensor<20x9xf32>
  %f2 = linalg.fill ins(%zz : f32) outs(%e2 : tensor<20x9xf32>) -> tensor<20x9xf32>
  %r = linalg.matmul ins(%h, %D : tensor<20x12xf16>, tensor<12x9xf16>) outs(%f2 : tensor<20x9xf32>) -> tensor<20x9xf32>
  return %r, %h : tensor<20x9xf32>, tensor<20x12xf16>
}"""


def fresh(*shape: int, dtype: object = np.float16) -> Array:
    return np.random.default_rng().standard_normal(shape).astype(dtype)  # pyright: ignore[reportCallIssue, reportArgumentType]


def double(*arrays: Array) -> list[Array]:
    return [array.astype(np.float64) for array in arrays]


def test_a_result_is_an_argument_behind_the_others_and_c_stays_as_it_was() -> None:
    kernel = compile(ADDED)
    assert [p.name for p in kernel.function.parameters] == ["A", "B", "C", "r"]
    assert kernel.function.written == {3}
    a, b, c, result = (
        fresh(33, 45),
        fresh(45, 17),
        fresh(33, 17, dtype=np.float32),
        np.full((33, 17), np.nan, np.float32),
    )
    before = c.copy()
    kernel(a, b, c, result, device="interp")
    np.testing.assert_array_equal(c, before)
    x, y, z = double(a, b, c)
    bound = 47 * 2.0**-23 * (np.abs(z) + np.abs(x) @ np.abs(y))
    assert (np.abs(result - (z + x @ y)) <= bound).all()


def test_what_is_filled_and_fused_needs_no_memory_of_its_own() -> None:
    kernel = compile(CLEARED)
    assert len(kernel.launches) == 1
    a, b, bias = fresh(33, 45), fresh(45, 17), fresh(17, dtype=np.float32)
    result = np.full((33, 17), np.nan, np.float32)
    kernel(a, b, bias, result, device="interp")
    x, y, z = double(a, b, bias)
    assert (np.abs(result - (x @ y + z)) <= 48 * 2.0**-23 * (np.abs(z) + np.abs(x) @ np.abs(y))).all()


def test_a_value_that_is_returned_and_used_and_two_results() -> None:
    kernel = compile(CHAIN)
    assert [p.name for p in kernel.function.parameters] == ["A", "B", "D", "r", "h"]
    a, b, d = fresh(20, 24), fresh(24, 12), fresh(12, 9)
    result, half = np.full((20, 9), np.nan, np.float32), np.full((20, 12), np.nan, np.float16)
    kernel(a, b, d, result, half, device="interp")
    x, y, z = double(a, b, d)
    np.testing.assert_allclose(half, x @ y, rtol=2.0**-10, atol=1e-2)
    exact = half.astype(np.float64) @ z
    assert (np.abs(result - exact) <= 14 * 2.0**-23 * (np.abs(half.astype(np.float64)) @ np.abs(z))).all()


@pytest.mark.parametrize("dead", [False, True])
def test_results_that_nothing_is_written_to_are_returned(dead: bool) -> None:
    unused = "%d = linalg.exp ins(%x : tensor<3xf32>) outs(%x : tensor<3xf32>) -> tensor<3xf32>" if dead else ""
    text = f"""func.func @f(%o: tensor<0x3xf32>, %x: tensor<3xf32>) -> (tensor<0x3xf32>, tensor<5xf32>) {{
      {unused}
      %z = arith.constant 1.0 : f32
      %0 = linalg.fill ins(%z : f32) outs(%o : tensor<0x3xf32>) -> tensor<0x3xf32>
      %e = tensor.empty() : tensor<5xf32>
      return %0, %e : tensor<0x3xf32>, tensor<5xf32>
    }}"""
    results = compile(text, cache=False)(np.zeros((0, 3), np.float32), np.ones(3, np.float32), device="interp")
    assert [result.shape for result in results] == [(0, 3), (5,)]


def test_conditions_that_are_returned_in_another_shape() -> None:
    text = """#e = affine_map<(m) -> (m)>
    func.func @f(%x: tensor<6xf32>, %y: tensor<6xf32>) -> tensor<2x3xi1> {
      %e = tensor.empty() : tensor<6xi1>
      %0 = linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel"]}
          ins(%x, %y : tensor<6xf32>, tensor<6xf32>) outs(%e : tensor<6xi1>) {
      ^bb0(%a: f32, %b: f32, %c: i1):
        %1 = arith.cmpf olt, %a, %b : f32
        linalg.yield %1 : i1
      } -> tensor<6xi1>
      %2 = tensor.expand_shape %0 [[0, 1]] output_shape [2, 3] : tensor<6xi1> into tensor<2x3xi1>
      return %2 : tensor<2x3xi1>
    }"""
    x, y = np.random.default_rng().standard_normal((2, 6)).astype(np.float32)
    less = compile(text, cache=False)(x, y, device="interp")
    np.testing.assert_array_equal(np.asarray(less).astype(bool), (x < y).reshape(2, 3))


def test_a_result_of_no_elements_whose_other_sizes_are_unknown() -> None:
    kind = "memref<0x?xf32>"
    text = f"""func.func @f(%x: {kind}, %y: {kind}) {{
      %one = arith.constant 1 : index
      %n = memref.dim %x, %one : {kind}
      %t = memref.alloc(%n) : {kind}
      linalg.exp ins(%x : {kind}) outs(%t : {kind})
      linalg.copy ins(%t : {kind}) outs(%y : {kind})
      return
    }}"""
    compile(text, cache=False)(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), device="interp")


def test_functions_on_memory_stay_as_they_are() -> None:
    text = "func.func @f(%A: memref<4x4xf16>) { return }"
    module = parse_mlir(make_context(), text)
    before = str(module)
    bufferize(module)
    assert str(module) == before


def test_the_command_checks_a_function_on_tensors(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f.mlir"
    file.write_text(CLEARED)
    assert main(["run", str(file), "--device", "interp", "--check"]) == 0
    assert "check    %g against float64" in capsys.readouterr().out


HEAD = "func.func @f(%A: tensor<4x4xf16>, %B: tensor<4x4xf16>, %C: tensor<4x4xf32>) -> tensor<4x4xf32> {\n"
OPERANDS = "ins(%A, %B : tensor<4x4xf16>, tensor<4x4xf16>)"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "%i = arith.constant 0 : index\n%s = arith.constant 0.0 : f32\n"
            "%r = tensor.insert %s into %C[%i, %i] : tensor<4x4xf32>\nreturn %r : tensor<4x4xf32>\n}",
            r":4:\d+: error: tensor.insert on tensors is not bufferised",
        ),
    ],
)
def test_what_is_refused(body: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile(HEAD + body)


@pytest.mark.parametrize(
    ("whole", "part", "sizes", "merged", "groups"),
    [("?x4x8", "?x3x5", "%b, 3, 5", "?x15", "[[0], [1, 2]]"), ("?x?x8", "?x?x5", "%b, %n, 5", "?x5", "[[0, 1], [2]]")],
)
def test_parts_of_tensors_of_unknown_sizes_as_one_dimension(
    whole: str, part: str, sizes: str, merged: str, groups: str
) -> None:
    """They have gaps, or may have some, so that they are copied."""
    text = f"""func.func @f(%x: tensor<{whole}xf32>) -> tensor<{merged}xf32> {{
      %zero = arith.constant 0 : index
      %n = arith.constant 3 : index
      %b = tensor.dim %x, %zero : tensor<{whole}xf32>
      %s = tensor.extract_slice %x[0, 1, 2] [{sizes}] [1, 1, 1] : tensor<{whole}xf32> to tensor<{part}xf32>
      %r = tensor.collapse_shape %s {groups} : tensor<{part}xf32> into tensor<{merged}xf32>
      %m = tensor.dim %r, %zero : tensor<{merged}xf32>
      %e = tensor.empty(%m) : tensor<{merged}xf32>
      %o = linalg.negf ins(%r : tensor<{merged}xf32>) outs(%e : tensor<{merged}xf32>) -> tensor<{merged}xf32>
      return %o : tensor<{merged}xf32>
    }}"""
    x = fresh(7, 4, 8, dtype=np.float32)
    expected = -x[:, 1:, 2:7].reshape((7, 15) if merged == "?x15" else (21, 5))
    d = np.full(expected.shape, np.nan, np.float32)
    compile(text, cache=False)(x, d, device="interp")
    assert np.array_equal(d, expected)
