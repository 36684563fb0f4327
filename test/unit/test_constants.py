"""Constants of many elements as operands: tensors and memory of the module, from linalg to the interpreter."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import CompileError, compile
from warploom.runtime.kernel.kernel import Kernel

Array = NDArray[Any]

MAPS = """#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
"""
ADD = """  ^bb0(%x: f32, %b: f32, %old: f32):
    %y = arith.addf %x, %b : f32
    linalg.yield %y : f32
  }"""


def literal(array: Array) -> str:
    return "[" + ", ".join(literal(row) if row.ndim else f"{float(row):.6e}" for row in array) + "]"


def draw(*shape: int, dtype: Any = np.float16) -> Array:
    return (np.random.default_rng().integers(-64, 64, shape) / 8).astype(dtype)


def as_kept(kernel: Kernel) -> Kernel:
    """The kernel as the cache on disk gives it back."""
    return pickle.loads(pickle.dumps(kernel))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rows", ["11", "?"])
def test_weights_and_a_bias_of_a_module_on_tensors(rows: str) -> None:
    weights, bias = draw(13, 7), draw(7, dtype=np.float32)
    text = f"""{MAPS}
func.func @f(%A: tensor<{rows}x13xf16>, %C: tensor<{rows}x7xf32>) -> tensor<{rows}x7xf32> {{
  %w = arith.constant dense<{literal(weights)}> : tensor<13x7xf16>
  %bias = arith.constant dense<{literal(bias)}> : tensor<7xf32>
  %p = linalg.matmul ins(%A, %w : tensor<{rows}x13xf16>, tensor<13x7xf16>) outs(%C : tensor<{rows}x7xf32>)
      -> tensor<{rows}x7xf32>
  %r = linalg.generic {{indexing_maps = [#mn, #n, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%p, %bias : tensor<{rows}x7xf32>, tensor<7xf32>) outs(%C : tensor<{rows}x7xf32>) {{
{ADD} -> tensor<{rows}x7xf32>
  return %r : tensor<{rows}x7xf32>
}}"""
    a, c = draw(11, 13), draw(11, 7, dtype=np.float32)
    kernel = compile(text, cache=False)
    expected = c + a.astype(np.float64) @ weights.astype(np.float64) + bias
    for version in (kernel, as_kept(kernel)):
        np.testing.assert_allclose(version(a, c, device="interp"), expected, rtol=1e-6, atol=1e-5)


def test_memory_of_the_module_beside_its_splats() -> None:
    """A global of bytes, another of 4 bits with one value, and a constant for the result to start from."""
    bytes_ = np.random.default_rng().integers(-128, 128, (16, 12)).astype(np.int8)
    rows = "[" + ", ".join(str(row.tolist()) for row in bytes_) + "]"
    text = f"""memref.global "private" constant @bytes : memref<16x12xi8> = dense<{rows}>
func.func @f(%A: memref<9x16xi8>, %D: memref<9x12xi32>) {{
  %B = memref.get_global @bytes : memref<16x12xi8>
  linalg.matmul ins(%A, %B : memref<9x16xi8>, memref<16x12xi8>) outs(%D : memref<9x12xi32>)
  return
}}"""
    a = np.random.default_rng().integers(-128, 128, (9, 16)).astype(np.int8)
    d = np.full((9, 12), 5, np.int32)
    compile(text, cache=False)(a, d, device="interp")
    np.testing.assert_array_equal(d, 5 + a.astype(np.int32) @ bytes_.astype(np.int32))


def test_elements_of_four_bits() -> None:
    nibbles = np.random.default_rng().integers(-8, 8, (8, 32))
    rows = "[" + ", ".join(str(row.tolist()) for row in nibbles) + "]"
    text = f"""memref.global constant @w : memref<8x32xi4> = dense<{rows}>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @f(%A: memref<16x32xi4>, %D: memref<16x8xi32>) {{
  %B = memref.get_global @w : memref<8x32xi4>
  linalg.contract indexing_maps = [#a, #b, #c]
      ins(%A, %B : memref<16x32xi4>, memref<8x32xi4>) outs(%D : memref<16x8xi32>)
  return
}}"""
    a = np.random.default_rng().integers(-8, 8, (16, 32))
    d = np.zeros((16, 8), np.int32)
    packed = ((a[:, ::2] & 15) | ((a[:, 1::2] & 15) << 4)).astype(np.uint8)
    compile(text, cache=False)(packed, d, device="interp")
    np.testing.assert_array_equal(d, a @ nibbles.T)


def test_a_splat_is_a_number_to_what_is_elementwise_and_memory_to_a_product() -> None:
    text = f"""{MAPS}
func.func @f(%A: tensor<5x6xf16>) -> (tensor<5x4xf32>, tensor<3xf32>) {{
  %ones = arith.constant dense<1.5> : tensor<6x4xf16>
  %zero = arith.constant dense<0.0> : tensor<5x4xf32>
  %bias = arith.constant dense<2.0> : tensor<4xf32>
  %returned = arith.constant dense<[1.0, 2.0, 4.0]> : tensor<3xf32>
  %p = linalg.matmul ins(%A, %ones : tensor<5x6xf16>, tensor<6x4xf16>) outs(%zero : tensor<5x4xf32>) -> tensor<5x4xf32>
  %e = tensor.empty() : tensor<5x4xf32>
  %r = linalg.generic {{indexing_maps = [#mn, #n, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%p, %bias : tensor<5x4xf32>, tensor<4xf32>) outs(%e : tensor<5x4xf32>) {{
{ADD} -> tensor<5x4xf32>
  return %r, %returned : tensor<5x4xf32>, tensor<3xf32>
}}"""
    a = draw(5, 6)
    kernel = compile(text, cache=False)
    got, returned = kernel(a, device="interp")
    np.testing.assert_allclose(got, 1.5 * a.astype(np.float64).sum(1, keepdims=True) + np.full(4, 2.0), atol=1e-5)
    np.testing.assert_array_equal(returned, [1, 2, 4])
    assert len(kernel.launches) == 3, "the ones are written, the third tensor copied, the bias is a number"


@pytest.mark.parametrize(
    ("declared", "type", "message"),
    [
        ('"private" @c : memref<4x4xf32> = dense<1.0>', "memref<4x4xf32>", "memref.global @c is no constant; pass"),
        ("constant @d : memref<4x4xf32> = dense<1.0>", "memref<4x4xf32>", "the module has no memref.global @c"),
        ("constant @c : memref<4x4xf32> = dense<1.0>", "memref<8x2xf32>", "expected memory row by row, of the type of"),
        ("constant @c : memref<4x4xf32> = dense<1.0>", "written", "linalg.fill: the result is a constant, memref.glo"),
    ],
)
def test_what_is_no_constant_is_refused(declared: str, type: str, message: str) -> None:
    written = type == "written"
    kind = "memref<4x4xf32>" if written else type
    operation = (
        f"linalg.fill ins(%z : f32) outs(%c : {kind})" if written else f"linalg.copy ins(%c : {kind}) outs(%D : {kind})"
    )
    text = f"""memref.global {declared}
func.func @f(%D: {kind}) {{
  %z = arith.constant 0.0 : f32
  %c = memref.get_global @c : {kind}
  {operation}
  return
}}"""
    with pytest.raises(CompileError, match=rf"f.mlir:[45]:\d+: (error: )?.*{message}"):
        compile(text, file="f.mlir", cache=False)
