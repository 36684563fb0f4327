"""Functions as front ends print them: constants in resources, several results, results returned twice, shapes moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import CompileError, compile

Array = NDArray[Any]


def draw(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng().standard_normal(shape).astype(dtype)


def blob(array: Array) -> str:
    """A resource as MLIR prints it: its alignment, a word of 32 bits, and its bytes."""
    return f'"0x{np.uint32(array.itemsize).tobytes().hex()}{array.tobytes().hex()}"'


def resource(array: Array) -> str:
    return f"{{-# dialect_resources: {{ builtin: {{ torch_tensor.weights: {blob(array)} }} }} #-}}"


ADD_RESOURCE = """func.func @f(%x: tensor<3x7xf32>) -> tensor<3x7xf32> {
  %w = arith.constant dense_resource<torch_tensor.weights> : tensor<3x7xf32>
  %e = tensor.empty() : tensor<3x7xf32>
  %r = linalg.add ins(%x, %w : tensor<3x7xf32>, tensor<3x7xf32>) outs(%e : tensor<3x7xf32>) -> tensor<3x7xf32>
  return %r : tensor<3x7xf32>
}
"""


def test_constants_of_resources_are_those_of_their_own_text() -> None:
    x = draw(3, 7)
    for weights in (draw(3, 7), draw(3, 7)):
        kernel = compile(ADD_RESOURCE + resource(weights), target="sm_80", cache=False)
        np.testing.assert_array_equal(kernel(x, device="interp"), x + weights)


def test_a_resource_without_contents_or_of_another_size_is_refused() -> None:
    with pytest.raises(CompileError, match=r"<mlir>:2:3.*dense_resource<torch_tensor\.weights>.*no contents"):
        compile(ADD_RESOURCE, target="sm_80", cache=False)
    with pytest.raises(CompileError, match=r"resource torch_tensor\.weights: expected 84 bytes .* got 80"):
        compile(ADD_RESOURCE + resource(draw(4, 5)), target="sm_80", cache=False)


DATA = Path(__file__).parents[1] / "data" / "front_ends"


def read(name: str) -> str:
    """A function as front ends print it."""
    return (DATA / f"{name}.mlir").read_text()


def test_a_transposed_and_extended_operand_is_read_by_the_product() -> None:
    kernel = compile(read("linear"), target="sm_80", cache=False)
    assert len(kernel.plan.launches) == 1
    x, w, bias = draw(19, 24, dtype=np.float16), draw(13, 24, dtype=np.float16), draw(13, dtype=np.float16)
    a, b, c = (array.astype(np.float64) for array in (x, w, bias))
    bound = 2.0**-11 * np.abs(a @ b.T + c) + 26 * 2.0**-23 * (np.abs(a) @ np.abs(b.T) + np.abs(c)) + 2.0**-25
    assert (np.abs(kernel(x, w, bias, device="interp") - (a @ b.T + c)) <= bound).all()


def test_reshapes_around_a_transposition_leave_one_product() -> None:
    kernel = compile(read("batched"), target="sm_80", cache=False)
    assert len(kernel.plan.launches) == 1
    q, k = draw(2, 3, 19, 16, dtype=np.float16), draw(2, 3, 21, 16, dtype=np.float16)
    a, b = q.astype(np.float64), k.astype(np.float64).swapaxes(-1, -2)
    assert (np.abs(kernel(q, k, device="interp") - a @ b) <= 18 * 2.0**-23 * (np.abs(a) @ np.abs(b))).all()


def test_weights_repeated_for_each_batch_are_read_where_they_are() -> None:
    kernel = compile(read("repeated"), target="sm_80", cache=False)
    assert len(kernel.plan.launches) == 1
    assert not kernel.plan.scratch
    x, w = draw(2, 19, 24, dtype=np.float16), draw(24, 13, dtype=np.float16)
    a, b = x.astype(np.float64), w.astype(np.float64)
    assert (np.abs(kernel(x, w, device="interp") - a @ b) <= 26 * 2.0**-23 * (np.abs(a) @ np.abs(b))).all()


def test_a_softmax_with_the_indices_of_maxima_that_nobody_uses_is_one_kernel() -> None:
    kernel = compile(read("softmax"), target="sm_80", cache=False)
    assert len(kernel.plan.launches) == 1
    x = draw(9, 37)
    exp = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(kernel(x, device="interp"), exp / exp.sum(1, keepdims=True), rtol=40 * 2.0**-23)


def test_a_result_that_depends_on_another_one_is_refused_where_it_stands() -> None:
    text = (
        read("softmax")
        .replace("-> tensor<9x37xf32> {", "-> tensor<9xi64> {", 1)
        .replace("return %r : tensor<9x37xf32>", "return %max#1 : tensor<9xi64>")
    )
    with pytest.raises(CompileError, match=r"<mlir>:\d+:\d+: error: linalg\.generic: result 1 depends on .* result 0"):
        compile(text, target="sm_80", cache=False)


SUMMED = """func.func @f(%x: tensor<3x5x7xf32>) -> tensor<3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<3xf32>) -> tensor<3xf32>
  %r = linalg.reduce ins(%x : tensor<3x5x7xf32>) outs(%z : tensor<3xf32>) dimensions = [1, 2]
    (%i: f32, %o: f32) {
      %s = arith.addf %i, %o : f32
      linalg.yield %s : f32
    }
  return %r : tensor<3xf32>
}"""


def test_a_sum_along_several_loops() -> None:
    kernel = compile(SUMMED, target="sm_80", cache=False)
    assert len(kernel.plan.launches) == 1
    x = draw(3, 5, 7)
    expected = x.astype(np.float64).sum((1, 2))
    assert (np.abs(kernel(x, device="interp") - expected) <= 36 * 2.0**-24 * np.abs(x).sum((1, 2))).all()


RETURNED = """func.func @f(%x: tensor<3x5xf32>) -> (tensor<3x5xf32>, tensor<3x5xf32>, tensor<3x5xf32>) {
  %e = tensor.empty() : tensor<3x5xf32>
  %r = linalg.exp ins(%x : tensor<3x5xf32>) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>
  return %r, %x, %r : tensor<3x5xf32>, tensor<3x5xf32>, tensor<3x5xf32>
}"""


def test_an_argument_and_the_same_value_twice_are_returned() -> None:
    x = draw(3, 5)
    first, same, second = compile(RETURNED, target="sm_80", cache=False)(x, device="interp")
    np.testing.assert_allclose(first, np.exp(x.astype(np.float64)), rtol=2.0**-21)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(second, first)


GATHERED = """#n = affine_map<(d0) -> (d0)>
func.func @f(%x: tensor<7xf32>, %at: tensor<5xi32>) -> tensor<5xf32> {
  %e = tensor.empty() : tensor<5xf32>
  %r = linalg.generic {indexing_maps = [#n, #n], iterator_types = ["parallel"]}
      ins(%at : tensor<5xi32>) outs(%e : tensor<5xf32>) {
  ^bb0(%i: i32, %o: f32):
    %n = arith.index_cast %i : i32 to index
    %y = tensor.extract %x[%n] : tensor<7xf32>
    linalg.yield %y : f32
  } -> tensor<5xf32>
  return %r : tensor<5xf32>
}"""


def test_reading_a_tensor_at_a_computed_place_is_refused_where_it_is_read() -> None:
    with pytest.raises(CompileError, match=r"<mlir>:8:5: error: tensor\.extract in linalg\.generic .* computed"):
        compile(GATHERED, target="sm_80", cache=False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("abs", np.abs),
        ("ceil", np.ceil),
        ("floor", np.floor),
        ("negf", np.negative),
        ("reciprocal", lambda x: 1 / x),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("square", np.square),
        ("tanh", np.tanh),
    ],
)
def test_named_elementwise_operations(name: str, expected: Callable[[Array], Array]) -> None:
    text = f"""func.func @f(%x: memref<3x7xf32>, %y: memref<3x7xf32>) {{
      linalg.{name} ins(%x : memref<3x7xf32>) outs(%y : memref<3x7xf32>)
      return
    }}"""
    x, y = np.abs(draw(3, 7)) + np.float32(0.25), np.full((3, 7), np.nan, np.float32)
    compile(text, target="sm_80", cache=False)(x, y, device="interp")
    np.testing.assert_allclose(y, expected(x.astype(np.float64)), rtol=2.0**-21)


def test_named_operations_on_two_inputs() -> None:
    text = """func.func @f(%x: memref<5xf32>, %y: memref<5xf32>, %z: memref<5xf32>,
                             %i: memref<5xi32>, %o: memref<5xi32>) {
      linalg.div ins(%x, %y : memref<5xf32>, memref<5xf32>) outs(%z : memref<5xf32>)
      linalg.div_unsigned ins(%i, %o : memref<5xi32>, memref<5xi32>) outs(%o : memref<5xi32>)
      return
    }"""
    x, y, z = draw(5), draw(5), np.full(5, np.nan, np.float32)
    i, o = np.array([-1, 7, -9, 0, 65537], np.int32), np.array([3, 2, 5, 9, 16], np.int32)
    quotients = i.astype(np.uint32) // o.astype(np.uint32)
    compile(text, target="sm_80", cache=False)(x, y, z, i, o, device="interp")
    np.testing.assert_allclose(z, x.astype(np.float64) / y, rtol=2.0**-21)
    np.testing.assert_array_equal(o.astype(np.uint32), quotients)


CONCATENATED = """func.func @f(%x: tensor<3x5xf32>, %y: tensor<3x2xf32>) -> tensor<3x7xf32> {
  %r = tensor.concat dim(1) %x, %y : (tensor<3x5xf32>, tensor<3x2xf32>) -> tensor<3x7xf32>
  return %r : tensor<3x7xf32>
}"""


def test_tensors_behind_one_another() -> None:
    x, y = draw(3, 5), draw(3, 2)
    kernel = compile(CONCATENATED, target="sm_80", cache=False)
    np.testing.assert_array_equal(kernel(x, y, device="interp"), np.concatenate([x, y], 1))


def test_tensors_of_unknown_sizes_behind_one_another_are_refused() -> None:
    text = CONCATENATED.replace("3x", "?x")
    with pytest.raises(CompileError, match=r"<mlir>:2:3: error: tensor\.concat of dynamic sizes is not lowered"):
        compile(text, target="sm_80", cache=False)


SHORT = """func.func @f(%x: memref<3x5xf32>, %y: memref<3xf32>) {
  linalg.reduce { arith.subf } ins(%x : memref<3x5xf32>) outs(%y : memref<3xf32>) dimensions = [1]
  return
}"""


def test_the_short_form_of_a_reduction_has_what_is_there_first() -> None:
    x, y = draw(3, 5), draw(3)
    expected = y - x.astype(np.float64).sum(1)
    bound = 6 * 2.0**-24 * (np.abs(y) + np.abs(x).sum(1))
    compile(SHORT, target="sm_80", cache=False)(x, y, device="interp")
    assert (np.abs(y - expected) <= bound).all()


def test_a_short_form_of_no_operation_is_refused() -> None:
    with pytest.raises(CompileError, match=r"expected an operation on elements, got 'arith\.nothing'"):
        compile(SHORT.replace("arith.subf", "arith.nothing"), target="sm_80", cache=False)
