"""Functions as front ends print them: constants in resources, several results, results returned twice, shapes moved."""

from __future__ import annotations

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
    with pytest.raises(CompileError, match="resource torch_tensor.weights: expected 84 bytes .* got 80"):
        compile(ADD_RESOURCE + resource(draw(4, 5)), target="sm_80", cache=False)
