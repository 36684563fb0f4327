"""Functions as front ends print them: constants in resources, several results, results returned twice, shapes moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import CompileError, WarploomError, compile

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


HEADS = """func.func @f(%a: tensor<2x9x2x16xf16>, %b: tensor<2x11x2x16xf16>) -> tensor<2x2x9x11xf16> {
  %ea = tensor.empty() : tensor<2x2x9x16xf16>
  %ta = linalg.transpose ins(%a : tensor<2x9x2x16xf16>) outs(%ea : tensor<2x2x9x16xf16>) permutation = [0, 2, 1, 3]
  %eb = tensor.empty() : tensor<2x2x16x11xf16>
  %tb = linalg.transpose ins(%b : tensor<2x11x2x16xf16>) outs(%eb : tensor<2x2x16x11xf16>) permutation = [0, 2, 3, 1]
  %ca = tensor.collapse_shape %ta [[0, 1], [2], [3]] : tensor<2x2x9x16xf16> into tensor<4x9x16xf16>
  %cb = tensor.collapse_shape %tb [[0, 1], [2], [3]] : tensor<2x2x16x11xf16> into tensor<4x16x11xf16>
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<4x9x11xf16>
  %c = linalg.fill ins(%zero : f16) outs(%e : tensor<4x9x11xf16>) -> tensor<4x9x11xf16>
  %p = linalg.batch_matmul ins(%ca, %cb : tensor<4x9x16xf16>, tensor<4x16x11xf16>) outs(%c : tensor<4x9x11xf16>)
    -> tensor<4x9x11xf16>
  %r = tensor.expand_shape %p [[0, 1], [2], [3]] output_shape [2, 2, 9, 11]
    : tensor<4x9x11xf16> into tensor<2x2x9x11xf16>
  return %r : tensor<2x2x9x11xf16>
}"""


def test_heads_behind_their_rows_are_multiplied_where_they_are() -> None:
    kernel = compile(HEADS, target="sm_80", cache=False)
    assert len(kernel.plan.launches) == 1
    q, k = draw(2, 9, 2, 16, dtype=np.float16), draw(2, 11, 2, 16, dtype=np.float16)
    a, b = q.astype(np.float64).swapaxes(1, 2), k.astype(np.float64).transpose(0, 2, 3, 1)
    bound = 2.0**-11 * np.abs(a @ b) + 18 * 2.0**-23 * (np.abs(a) @ np.abs(b)) + 2.0**-25
    assert (np.abs(kernel(q, k, device="interp") - a @ b) <= bound).all()


def test_a_chain_that_reads_a_product_at_both_ends_is_part_of_it() -> None:
    maps, kinds = "affine_map<(i, j) -> (i, j)>", '"parallel", "parallel"'
    ends = [("x", "arith.mulf %u, %u"), ("y1", "math.tanh %u"), ("y2", "arith.negf %u"), ("y3", "arith.mulf %u, %v")]
    chain = "".join(
        f"""%y{n + 1} = linalg.generic {{
        indexing_maps = [{maps}, {maps}{f", {maps}" * two}], iterator_types = [{kinds}]}}
        ins(%{of}{", %x" * two} : tensor<17x24xf32>{", tensor<17x24xf32>" * two}) outs(%e : tensor<17x24xf32>) {{
        ^bb0(%u: f32, {"%v: f32, " * two}%old: f32): %w = {op} : f32 linalg.yield %w : f32 }} -> tensor<17x24xf32>
        """
        for n, (of, op) in enumerate(ends)
        for two in [n == len(ends) - 1]
    )
    kernel = compile(
        f"""func.func @f(%a: tensor<17x32xf16>, %b: tensor<32x24xf16>) -> tensor<17x24xf32> {{
        %zero = arith.constant 0.0 : f32
        %e = tensor.empty() : tensor<17x24xf32>
        %c = linalg.fill ins(%zero : f32) outs(%e : tensor<17x24xf32>) -> tensor<17x24xf32>
        %x = linalg.matmul ins(%a, %b : tensor<17x32xf16>, tensor<32x24xf16>) outs(%c : tensor<17x24xf32>)
          -> tensor<17x24xf32>
        {chain} return %y4 : tensor<17x24xf32> }}""",
        target="sm_80",
        cache=False,
    )
    assert len(kernel.plan.launches) == 1
    a, b = draw(17, 32, dtype=np.float16), draw(32, 24, dtype=np.float16)
    x = a.astype(np.float64) @ b.astype(np.float64)
    # The slope of x tanh(x^2) is at most 1.61, and tanh is off by 1e-6 at most.
    bound = 1.61 * 34 * 2.0**-23 * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))) + 2e-6 * np.abs(x)
    assert (np.abs(kernel(a, b, device="interp") + x * np.tanh(x * x)) <= bound).all()


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


def test_an_index_that_depends_on_the_maximum_so_far_is_computed_with_it() -> None:
    text = (
        read("softmax")
        .replace("-> tensor<9x37xf32> {", "-> tensor<9xi64> {", 1)
        .replace("return %r : tensor<9x37xf32>", "return %max#1 : tensor<9xi64>")
    )
    x = draw(9, 37)
    np.testing.assert_array_equal(compile(text, target="sm_80", cache=False)(x, device="interp"), x.argmax(1))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "batch", "kind"), [("causal", 2, "f16"), ("masked", 2, "f16"), ("causal", 1, "f16"), ("causal", 2, "bf16")]
)
def test_scaled_dot_product_attention_is_one_kernel_and_rows_that_are_masked_out_are_zero(
    name: str, batch: int, kind: str
) -> None:
    text = read(f"attention_{name}").replace("f16", kind)
    if batch == 1:
        text = text.replace("2x2x16x", "1x2x16x").replace("4x16x16", "2x16x16").replace("[2, 2, 16", "[1, 2, 16")
    kernel = compile(text, target="sm_80", tf32=True, cache=False)
    assert len(kernel.plan.launches) == 1
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    q, k, v = (draw(batch, 2, 16, 16, dtype=dtype) for _ in range(3))
    mask = np.tril(np.ones((16, 16), bool))
    if name == "masked":
        mask[3] = False
    scores = np.where(mask, q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / 4, -np.inf)
    p = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e9))
    wanted = p / np.maximum(p.sum(-1, keepdims=True), 1e-9) @ v.astype(np.float64)
    got = kernel(q, k, v, *([mask] if name == "masked" else []), device="interp")
    # P and O are rounded to the type of V.
    bound = {"f16": 2.0**-10, "bf16": 2.0**-7}[kind] * np.abs(v.astype(np.float64)).max()
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=0, atol=bound)


def test_an_attention_of_unknown_sizes_is_one_kernel() -> None:
    kernel = compile(read("attention_unknown"), target="sm_80", tf32=True, cache=False)
    assert kernel.ptx.count(".entry") == len(kernel.plan.launches) == 1
    for m, n in ((24, 40), (33, 17), (1, 70)):
        q, k, v = (draw(1, 2, *sizes, dtype=np.float16) for sizes in ((m, 16), (16, n), (n, 16)))
        scores = q.astype(np.float64) @ k.astype(np.float64) / 4
        p = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = p / p.sum(-1, keepdims=True) @ v.astype(np.float64)
        got = kernel(q, k, v, device="interp").astype(np.float64)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2.0**-10 * np.abs(v.astype(np.float64)).max())


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


SCALED_BEFORE = """#map = affine_map<(i, j) -> (i, j)>
func.func @f(%x: tensor<5x11xf32>, %y: tensor<11x7xf32>) -> (tensor<5x7xf32>, tensor<11x7xf32>) {
  %c = arith.constant 0x02081CEA : f32
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x11xf32>
  %s = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<5x11xf32>) outs(%e : tensor<5x11xf32>) {
    ^bb0(%a: f32, %o: f32):
      %m = arith.mulf %a, %c : f32
      linalg.yield %m : f32
  } -> tensor<5x11xf32>
  %p = tensor.empty() : tensor<5x7xf32>
  %f = linalg.fill ins(%z : f32) outs(%p : tensor<5x7xf32>) -> tensor<5x7xf32>
  %r = linalg.matmul ins(%s, %y : tensor<5x11xf32>, tensor<11x7xf32>) outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %q = tensor.empty() : tensor<11x7xf32>
  %t = linalg.exp ins(%y : tensor<11x7xf32>) outs(%q : tensor<11x7xf32>) -> tensor<11x7xf32>
  return %r, %t : tensor<5x7xf32>, tensor<11x7xf32>
}
"""


def test_factors_are_scaled_before_the_product_whose_sums_would_be_infinite() -> None:
    x, y = 1e37 * draw(5, 11), 1e3 * draw(11, 7)
    result, other = np.full((5, 7), np.nan, np.float32), np.full((11, 7), np.nan, np.float32)
    compile(SCALED_BEFORE, "sm_80", tf32=True)(x, y, result, other, device="interp")
    scaled = (x * np.float32(1e-37)).astype(np.float64)
    bound = 2.0**-9 * (np.abs(scaled) @ np.abs(y.astype(np.float64)))
    assert (np.abs(result - scaled @ y) <= bound).all()


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


GATHERED = """#i = affine_map<(i, j) -> (i)>
#ij = affine_map<(i, j) -> (i, j)>
func.func @embedding(%at: tensor<5xi64>, %mask: tensor<5x3xi1>) -> tensor<5x3xf32> {
  %table = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 0xFF800000]]> : tensor<2x3xf32>
  %other = arith.constant dense<0xFF800000> : tensor<f32>
  %e = tensor.empty() : tensor<5x3xf32>
  %r = linalg.generic {indexing_maps = [#i, #ij, affine_map<(i, j) -> ()>, #ij],
                       iterator_types = ["parallel", "parallel"]}
      ins(%at, %mask, %other : tensor<5xi64>, tensor<5x3xi1>, tensor<f32>) outs(%e : tensor<5x3xf32>) {
  ^bb0(%i: i64, %m: i1, %x: f32, %o: f32):
    %two = arith.constant 2 : i64
    %inside = arith.cmpi slt, %i, %two : i64
    cf.assert %inside, "index out of bounds"
    %n = arith.index_cast %i : i64 to index
    %j = linalg.index 1 : index
    %y = tensor.extract %table[%n, %j] : tensor<2x3xf32>
    %z = arith.select %m, %x, %y : f32
    linalg.yield %z : f32
  } -> tensor<5x3xf32>
  return %r : tensor<5x3xf32>
}"""


def test_elements_at_computed_places_and_masks_of_bits() -> None:
    kernel = compile(GATHERED, target="sm_80", cache=False)
    at, mask = np.array([0, 1, 1, 0, 1]), np.random.default_rng().random((5, 3)) > 0.5
    table = np.array([[1, 2, 3], [4, 5, -np.inf]], np.float32)
    np.testing.assert_array_equal(kernel(at, mask, device="interp"), np.where(mask, -np.inf, table[at]))
    with pytest.raises(WarploomError, match="trap"):
        kernel(at + 1, mask, device="interp")


VARIANCE = """#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
util.func public @variance(%x: tensor<9x37xf32>) -> tensor<9xf32> {
  %zero = arith.constant 0.0 : f64
  %n = arith.constant 37.0 : f64
  %e = tensor.empty() : tensor<9x37xf64>
  %w = linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<9x37xf32>) outs(%e : tensor<9x37xf64>) {
  ^bb0(%a: f32, %o: f64):
    %0 = arith.extf %a : f32 to f64
    linalg.yield %0 : f64
  } -> tensor<9x37xf64>
  %ez = tensor.empty() : tensor<9xf64>
  %z = linalg.fill ins(%zero : f64) outs(%ez : tensor<9xf64>) -> tensor<9xf64>
  %s = linalg.reduce { arith.addf } ins(%w : tensor<9x37xf64>) outs(%z : tensor<9xf64>) dimensions = [1]
  %q = linalg.generic {indexing_maps = [#mn, #m, #m], iterator_types = ["parallel", "reduction"]}
      ins(%w, %s : tensor<9x37xf64>, tensor<9xf64>) outs(%z : tensor<9xf64>) {
  ^bb0(%a: f64, %t: f64, %o: f64):
    %0 = arith.divf %t, %n : f64
    %1 = arith.subf %a, %0 : f64
    %p = arith.constant 2 : i32
    %2 = math.fpowi %1, %p : f64, i32
    %3 = arith.addf %o, %2 : f64
    linalg.yield %3 : f64
  } -> tensor<9xf64>
  %er = tensor.empty() : tensor<9xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(m) -> (m)>, affine_map<(m) -> (m)>], iterator_types = ["parallel"]}
      ins(%q : tensor<9xf64>) outs(%er : tensor<9xf32>) {
  ^bb0(%a: f64, %o: f32):
    %0 = arith.divf %a, %n : f64
    %1 = arith.truncf %0 : f64 to f32
    linalg.yield %1 : f32
  } -> tensor<9xf32>
  util.return %r : tensor<9xf32>
}"""


def test_sums_of_f64_in_a_function_of_iree() -> None:
    kernel = compile(VARIANCE, target="sm_80", cache=False)
    assert len(kernel.plan.launches) == 1
    x = draw(9, 37) + np.float32(100)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(kernel(x, device="interp"), wide.var(1), rtol=2.0**-23)


POOLED = """func.func @f(%x: tensor<2x9x9x3xf32>) -> tensor<2x4x4x3xf32> {
  %low = arith.constant 0xFF800000 : f32
  %w = tensor.empty() : tensor<3x3xf32>
  %e = tensor.empty() : tensor<2x4x4x3xf32>
  %z = linalg.fill ins(%low : f32) outs(%e : tensor<2x4x4x3xf32>) -> tensor<2x4x4x3xf32>
  %r = linalg.pooling_nhwc_max {strides = dense<2> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<2x9x9x3xf32>, tensor<3x3xf32>) outs(%z : tensor<2x4x4x3xf32>) -> tensor<2x4x4x3xf32>
  return %r : tensor<2x4x4x3xf32>
}"""


def test_the_largest_of_windows() -> None:
    x = draw(2, 9, 9, 3)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))[:, ::2, ::2]
    kernel = compile(POOLED, target="sm_80", cache=False)
    np.testing.assert_array_equal(kernel(x, device="interp"), windows.max((-2, -1)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "expected", "off"),
    [
        ("math.sin %a", np.sin, 2e-7),
        ("math.cos %a", np.cos, 2e-7),
        ("math.powf %a, %b", np.power, 2e-7),
        ("math.powf %a, %b fastmath<afn>", np.power, 2.0**-14),
    ],
)
def test_functions_that_need_f64(name: str, expected: Any, off: float) -> None:
    text = f"""#m = affine_map<(m) -> (m)>
    func.func @f(%x: memref<64xf32>, %y: memref<64xf32>, %z: memref<64xf32>) {{
      linalg.generic {{indexing_maps = [#m, #m, #m], iterator_types = ["parallel"]}}
          ins(%x, %y : memref<64xf32>, memref<64xf32>) outs(%z : memref<64xf32>) {{
      ^bb0(%a: f32, %b: f32, %o: f32):
        %0 = {name} : f32
        linalg.yield %0 : f32
      }}
      return
    }}"""
    random = np.random.default_rng()
    x, y, z = (random.standard_normal(64) * 2.0 ** random.integers(-30, 31, 64) for _ in range(3))
    x, y, z = x.astype(np.float32), (y % 7 - 3).astype(np.float32), z.astype(np.float32)
    # Angles next to multiples of pi / 2, where few bits are left of their rest, on both sides of `functions.NEAR`.
    x[32:48] = random.integers(1, 2**16, 16) * (np.pi / 2)
    if expected is np.power:
        x = np.abs(x)
        x[:9], y[:9] = (0, np.inf, -2, -2, -0.0, np.nan, 1, -1, 0), (-1, 2, 3, 0.5, 3, 0, np.nan, np.inf, 2)
    compile(text, target="sm_80", cache=False)(x, y, z, device="interp")
    with np.errstate(all="ignore"):
        wanted = expected(x.astype(np.float64), *([y.astype(np.float64)] if expected is np.power else []))
        np.testing.assert_allclose(
            z, wanted.astype(np.float32), rtol=off, atol=2.0 ** (-126 if "afn" in name else -149)
        )


@pytest.mark.sampled(6)
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


def test_one_of_two_by_a_condition() -> None:
    kind = "tensor<5xf32>"
    text = f"""func.func @f(%p: tensor<5xi1>, %x: {kind}, %y: {kind}) -> {kind} {{
      %r = linalg.select ins(%p, %x, %y : tensor<5xi1>, {kind}, {kind}) outs(%y : {kind}) -> {kind}
      return %r : {kind}
    }}"""
    x, y = draw(5), -draw(5)
    got = compile(text, target="sm_80", cache=False)(x < 0, x, y, device="interp")
    np.testing.assert_array_equal(got, np.where(x < 0, x, y))


def test_named_operations_on_two_inputs() -> None:
    text = """func.func @f(%x: memref<5xf32>, %y: memref<5xf32>, %z: memref<5xf32>,
                             %i: memref<5xi32>, %o: memref<5xi32>) {
      linalg.add {lowering_config = 1 : i64} ins(%x, %y : memref<5xf32>, memref<5xf32>) outs(%z : memref<5xf32>)
      linalg.div ins(%x, %z : memref<5xf32>, memref<5xf32>) outs(%z : memref<5xf32>)
      linalg.div_unsigned ins(%i, %o : memref<5xi32>, memref<5xi32>) outs(%o : memref<5xi32>)
      return
    }"""
    x, y, z = draw(5), draw(5), np.full(5, np.nan, np.float32)
    i, o = np.array([-1, 7, -9, 0, 65537], np.int32), np.array([3, 2, 5, 9, 16], np.int32)
    quotients = i.astype(np.uint32) // o.astype(np.uint32)
    compile(text, target="sm_80", cache=False)(x, y, z, i, o, device="interp")
    np.testing.assert_allclose(z, x / (x + y).astype(np.float64), rtol=2.0**-21)
    np.testing.assert_array_equal(o.astype(np.uint32), quotients)


CONCATENATED = """func.func @f(%x: tensor<3x5xf32>, %y: tensor<3x2xf32>) -> tensor<3x7xf32> {
  %r = tensor.concat dim(1) %x, %y : (tensor<3x5xf32>, tensor<3x2xf32>) -> tensor<3x7xf32>
  return %r : tensor<3x7xf32>
}"""


def test_tensors_behind_one_another() -> None:
    x, y = draw(3, 5), draw(3, 2)
    kernel = compile(CONCATENATED, target="sm_80", cache=False)
    np.testing.assert_array_equal(kernel(x, y, device="interp"), np.concatenate([x, y], 1))


def test_a_concatenation_of_concatenations_is_one_launch() -> None:
    """Parts are written where they are read, and not joined twice."""
    kernel = compile("""
func.func @f(%x: tensor<3x5xf32>, %y: tensor<3x2xf32>, %z: tensor<3x4xf32>) -> tensor<3x13xf32> {
  %a = tensor.concat dim(1) %x, %y : (tensor<3x5xf32>, tensor<3x2xf32>) -> tensor<3x7xf32>
  %b = tensor.concat dim(1) %z, %y : (tensor<3x4xf32>, tensor<3x2xf32>) -> tensor<3x6xf32>
  %r = tensor.concat dim(1) %a, %b : (tensor<3x7xf32>, tensor<3x6xf32>) -> tensor<3x13xf32>
  func.return %r : tensor<3x13xf32>
}""", target="sm_80", cache=False)  # fmt: skip
    assert len(kernel.plan.launches) == 1
    x, y, z = (np.random.default_rng(n).standard_normal((3, n)).astype(np.float32) for n in (5, 2, 4))
    np.testing.assert_array_equal(kernel(x, y, z, device="interp"), np.concatenate([x, y, z, y], 1))


def test_parts_among_numbers_are_written_at_once() -> None:
    """Padding by infinities, and parts of what lies behind one another: a launch each, of elements kept as they are."""
    text = """func.func @main(%x: tensor<2x3x5xf16>, %y: tensor<2x2x5xf16>) -> (tensor<2x6x8xf16>, tensor<2x5x5xf16>) {
      %inf = arith.constant 0xFC00 : f16
      %p = tensor.pad %x low[0, 1, 0] high[0, 2, 3] {
      ^bb0(%i: index, %j: index, %k: index):
        tensor.yield %inf : f16
      } : tensor<2x3x5xf16> to tensor<2x6x8xf16>
      %c = tensor.concat dim(1) %x, %y : (tensor<2x3x5xf16>, tensor<2x2x5xf16>) -> tensor<2x5x5xf16>
      return %p, %c : tensor<2x6x8xf16>, tensor<2x5x5xf16>
    }"""
    x, y = draw(2, 3, 5, dtype=np.float16), draw(2, 2, 5, dtype=np.float16)
    x[0, 0, :2] = -0.0, np.inf
    kernel = compile(text)
    padded, joined = kernel(x, y, device="interp", checks="all")
    assert len(kernel.plan.launches) == 2
    expected = np.pad(x, ((0, 0), (1, 2), (0, 3)), constant_values=-np.inf)
    np.testing.assert_array_equal(padded.view(np.int16), expected.view(np.int16))
    np.testing.assert_array_equal(joined.view(np.int16), np.concatenate([x, y], 1).view(np.int16))


@pytest.mark.parametrize(("known", "unknown"), [(("3x",), ("?x",)), (("3x5", "3x2", "3x7"), ("3x?",) * 3)])
def test_tensors_of_unknown_sizes_behind_one_another(known: tuple[str, ...], unknown: tuple[str, ...]) -> None:
    x, y, result, text = draw(3, 5), draw(3, 2), np.full((3, 7), np.nan, np.float32), CONCATENATED
    for old, new in zip(known, unknown, strict=True):
        text = text.replace(old, new)
    compile(text, target="sm_80", cache=False)(x, y, result, device="interp", checks="all")
    np.testing.assert_array_equal(result, np.concatenate([x, y], 1))


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


def test_products_of_memory_of_which_every_stride_is_dynamic() -> None:
    kinds = [f"memref<{shape}, strided<[?, ?], offset: ?>>" for shape in ("?x16xf16", "16x24xf16", "?x24xf32")]
    a, b, c = kinds
    text = f"""func.func @f(%a: {a}, %b: {b}, %c: {c}) {{
      linalg.matmul ins(%a, %b : {a}, {b}) outs(%c : {c})
      return
    }}"""
    x, y, z = draw(32, 19, dtype=np.float16)[::2].T, draw(16, 48, dtype=np.float16)[:, ::2], draw(24, 19).T
    wide, before = [array.astype(np.float64) for array in (x, y)], z.astype(np.float64)
    compile(text, target="sm_80", cache=False)(x, y, z, device="interp")
    bound = 18 * 2.0**-23 * (np.abs(before) + np.abs(wide[0]) @ np.abs(wide[1]))
    assert (np.abs(z - (before + wide[0] @ wide[1])) <= bound).all()


NORM = """func.func @f(%x: tensor<2x3x{h}x{w}xf32>) -> tensor<2x3x{h}x{w}xf32> {{
  %zero = arith.constant 0.0 : f64
  %count = arith.constant {count}.0 : f64
  %wide = tensor.empty() : tensor<2x3x{h}x{w}xf64>
  %xw = linalg.generic {{indexing_maps = [affine_map<(n, c, i, j) -> (n, c, i, j)>,
    affine_map<(n, c, i, j) -> (n, c, i, j)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
    ins(%x : tensor<2x3x{h}x{w}xf32>) outs(%wide : tensor<2x3x{h}x{w}xf64>) {{
  ^bb0(%in: f32, %out: f64):
    %e = arith.extf %in : f32 to f64
    linalg.yield %e : f64
  }} -> tensor<2x3x{h}x{w}xf64>
  %one = tensor.empty() : tensor<2x3x1x1xf64>
  %start = linalg.fill ins(%zero : f64) outs(%one : tensor<2x3x1x1xf64>) -> tensor<2x3x1x1xf64>
  %sum = linalg.generic {{indexing_maps = [affine_map<(n, c, i, j) -> (n, c, i, j)>,
    affine_map<(n, c, i, j) -> (n, c, 0, 0)>], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}}
    ins(%xw : tensor<2x3x{h}x{w}xf64>) outs(%start : tensor<2x3x1x1xf64>) {{
  ^bb0(%in: f64, %out: f64):
    %s = arith.addf %in, %out : f64
    linalg.yield %s : f64
  }} -> tensor<2x3x1x1xf64>
  %narrow = tensor.empty() : tensor<2x3x1x1xf32>
  %mean = linalg.generic {{indexing_maps = [affine_map<(n, c, i, j) -> (n, c, i, j)>,
    affine_map<(n, c, i, j) -> (n, c, i, j)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
    ins(%sum : tensor<2x3x1x1xf64>) outs(%narrow : tensor<2x3x1x1xf32>) {{
  ^bb0(%in: f64, %out: f32):
    %q = arith.divf %in, %count : f64
    %t = arith.truncf %q : f64 to f32
    linalg.yield %t : f32
  }} -> tensor<2x3x1x1xf32>
  %empty = tensor.empty() : tensor<2x3x{h}x{w}xf32>
  %y = linalg.generic {{indexing_maps = [affine_map<(n, c, i, j) -> (n, c, i, j)>,
    affine_map<(n, c, i, j) -> (n, c, 0, 0)>, affine_map<(n, c, i, j) -> (n, c, i, j)>],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
    ins(%x, %mean : tensor<2x3x{h}x{w}xf32>, tensor<2x3x1x1xf32>) outs(%empty : tensor<2x3x{h}x{w}xf32>) {{
  ^bb0(%in: f32, %m: f32, %out: f32):
    %d = arith.subf %in, %m : f32
    linalg.yield %d : f32
  }} -> tensor<2x3x{h}x{w}xf32>
  return %y : tensor<2x3x{h}x{w}xf32>
}}"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("h", "w"), [(5, 7), (41, 73)])
def test_a_mean_of_pixels_in_f64_and_what_reads_it_are_one_kernel(h: int, w: int) -> None:
    kernel = compile(NORM.format(h=h, w=w, count=h * w), target="sm_80", cache=False)
    assert len(kernel.plan.launches) == 1
    x = draw(2, 3, h, w)
    x[..., 0, 0], x[..., -1, -1] = 1e8, -1e8  # a sum in f32 would lose the others
    mean = x.astype(np.float64).mean((2, 3), keepdims=True).astype(np.float32)
    # A sum of n numbers in f64 is off by n 2^-53 of their absolute values at most, and may lie on the other side of a
    # rounding to f32, by the last bit of the mean.
    off = 2.0**-53 * np.abs(x.astype(np.float64)).sum((2, 3), keepdims=True)
    bound = np.spacing(np.abs(x - mean)) + np.spacing(np.abs(mean)) + off
    assert (np.abs(kernel(x, device="interp") - (x - mean)) <= bound).all()


APPLIED = """func.func @f(%x: tensor<37xf32>) -> tensor<37xf32> {{
  %e = tensor.empty() : tensor<37xf32>
  %r = linalg.generic {{
    indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}}
    ins(%x : tensor<37xf32>) outs(%e : tensor<37xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %t = math.{name} %a : f32
    linalg.yield %t : f32
  }} -> tensor<37xf32>
  return %r : tensor<37xf32>
}}"""

FUNCTIONS: dict[str, tuple[Callable[[Array], Array], float, float]] = {
    "log1p": (np.log1p, -1.5, 90),
    "expm1": (np.expm1, -90, 90),
    "sinh": (np.sinh, -89.2, 89.2),
    "cosh": (np.cosh, -89.2, 89.2),
    "tan": (np.tan, -100, 100),
    "asinh": (np.arcsinh, -3e38, 3e38),
    "acosh": (np.arccosh, 0.9, 3e38),
    "atanh": (np.arctanh, -1.1, 1.1),
    "log2": (np.log2, -1, 1e30),
    "log10": (np.log10, -1, 1e30),
    "round": (lambda x: np.trunc(x + np.copysign(0.5, x)), -9, 9),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_no_instruction_computes(name: str) -> None:
    function, low, high = FUNCTIONS[name]
    drawn = np.random.default_rng().uniform(-1, 1, 27) ** 3
    special = [0.0, -0.0, 1.0, -1.0, 1e-30, -1e-6, np.nan, 0.49999997, -2.5, high]
    x = np.concatenate([special, np.where(drawn > 0, drawn * high, -drawn * low)]).astype(np.float32)
    x = x if low < -1e3 else np.clip(x, low, high)
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))
        wanted = exact.astype(np.float32)
    got = compile(APPLIED.format(name=name), target="sm_80", cache=False)(x, device="interp")
    with np.errstate(invalid="ignore"):
        near = np.abs(got - exact) <= 4 * np.spacing(np.abs(wanted))
    assert (near | (got == wanted) | (np.isnan(got) & np.isnan(wanted))).all(), (x, got, exact)


SIZED = """#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @f(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %several = arith.cmpi ne, %n, %c1 : index
  cf.assert %several, "expected several columns"
  %e = tensor.empty(%m) : tensor<?xf32>
  %s = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x, %y : tensor<?x?xf32>, tensor<?x?xf32>) outs(%s : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %c, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?xf32>
  %w = arith.index_cast %n : index to i64
  %d = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%r : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%a: f32, %c: f32):
    %0 = arith.sitofp %w : i64 to f32
    %1 = arith.divf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?xf32>
  return %d : tensor<?xf32>
}"""


def test_sizes_of_a_call_are_asserted_and_computed_with() -> None:
    """A mean of products as torch-mlir prints it for sizes that are not known."""
    kernel = compile(SIZED, target="sm_80")
    for m, n in ((3, 5), (17, 70)):
        x, y = draw(m, n), draw(m, n)
        expected = (x.astype(np.float64) * y).mean(1)
        np.testing.assert_allclose(kernel(x, y, device="interp"), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(WarploomError, match=r"<mlir>:10:3: .*assertion does not hold: expected several columns"):
        kernel(draw(3, 1), draw(3, 1), device="interp")


RESHAPED = """#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @f(%x: tensor<2x3x?xf32>, %y: tensor<6x?xf32>) -> tensor<6x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %none = arith.constant 0 : i64
  %rows = arith.constant ROWS : i64
  %n = tensor.dim %x, %c2 : tensor<2x3x?xf32>
  %w = arith.index_cast %n : index to i64
  %below = arith.cmpi slt, %w, %none : i64
  %all = arith.muli %w, %rows : i64
  %size = arith.select %below, %all, %w : i64
  %at_least = arith.cmpi sge, %size, %none : i64
  cf.assert %at_least, "negative sizes"
  %shape = tensor.from_elements %rows, %size : tensor<2xi64>
  %r = tensor.reshape %x(%shape) : (tensor<2x3x?xf32>, tensor<2xi64>) -> tensor<ROWSx?xf32>
  %k = arith.index_cast %size : i64 to index
  %e = tensor.empty(%k) : tensor<6x?xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%r : tensor<ROWSx?xf32>) outs(%e : tensor<6x?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %m = tensor.dim %y, %c1 : tensor<6x?xf32>
    %one = arith.cmpi eq, %m, %c1 : index
    %at = arith.select %one, %c0, %j : index
    %c = tensor.extract %y[%i, %at] : tensor<6x?xf32>
    %d = arith.subf %a, %c : f32
    linalg.yield %d : f32
  } -> tensor<6x?xf32>
  return %s : tensor<6x?xf32>
}"""


def test_reshapes_to_computed_sizes_and_sizes_that_may_be_one() -> None:
    """As torch-mlir prints them of attention whose sizes are not known: one kernel, without indices or conditions."""
    kernel = compile(RESHAPED.replace("ROWS", "6"), target="sm_80")
    for n in (1, 7):
        x, y = draw(2, 3, n), draw(6, n)
        np.testing.assert_array_equal(kernel(x, y, device="interp"), x.reshape(6, n) - y)
    assert kernel.ptx.count(".entry") == 1
    assert "setp.eq" not in kernel.ptx
    with pytest.raises(WarploomError, match=r"<mlir>:19:3: .*a dimension of size 1 is not repeated"):
        kernel(draw(2, 3, 7), draw(6, 1), device="interp")
    with pytest.raises(WarploomError, match=r"<mlir>:16:3: .*expected tensor.reshape to merge or to divide"):
        compile(RESHAPED.replace("ROWS", "5").replace("6x?", "5x?"), target="sm_80")


SCAN = """func.func @f(%x: tensor<5x7xf32>) -> (tensor<5x7xf32>, tensor<SIZExf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %y = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %l = tensor.empty() : tensor<SIZExf32>
  %s = linalg.fill ins(%zero : f32) outs(%l : tensor<SIZExf32>) -> tensor<SIZExf32>
  %r:2 = tm_tensor.scan dimension(ALONG) inclusive(HOW) ins(%x : tensor<5x7xf32>)
      outs(%y, %s : tensor<5x7xf32>, tensor<SIZExf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %b : f32
    tm_tensor.yield %0 : f32
  } -> tensor<5x7xf32>, tensor<SIZExf32>
  return %r#0, %r#1 : tensor<5x7xf32>, tensor<SIZExf32>
}"""


@pytest.mark.parametrize(
    ("along", "inclusive", "shape", "target"),
    [
        (1, True, (5, 7), "sm_80"),  # several rows a warp
        (1, True, (2, 5003), "sm_80"),  # warps of a CTA
        (1, True, (1, 36000), "sm_90a"),  # CTAs of a cluster
        (1, True, (1, 36000), "sm_80"),  # a loop of one warp
        (0, False, (5, 7), "sm_80"),  # a thread for each row
    ],
)
def test_what_rows_add_up_to_so_far(along: int, inclusive: bool, shape: tuple[int, int], target: str) -> None:
    size, how = str(shape[1 - along]), str(inclusive).lower()
    text = SCAN.replace("SIZE", size).replace("ALONG", str(along)).replace("HOW", how)
    kernel, x = compile(text.replace("5x7", "x".join(map(str, shape))), target=target), draw(*shape)
    sums, last = kernel(x, device="interp")
    exact = np.cumsum(x, along, np.float64)
    expected = exact if inclusive else exact - x
    bound = x.shape[along] * 2.0**-24 * np.abs(x).sum(along).max()
    assert np.abs(sums - expected).max() < bound
    assert np.abs(last - exact.take(-1, along)).max() < bound
    assert kernel.ptx.count(".entry") == 1
    assert ("shfl.sync.up" in kernel.ptx) == inclusive


def test_rows_of_a_length_that_only_the_caller_knows_are_scanned() -> None:
    kernel = compile("""func.func @f(%x: memref<?x?xf16>, %y: memref<?x?xf32>, %last: memref<?xf32>) {
      %one = arith.constant 1.0 : f32
      linalg.fill ins(%one : f32) outs(%last : memref<?xf32>)
      linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>,
                                       affine_map<(m, n) -> (m)>], iterator_types = ["parallel", "reduction"]}
          ins(%x : memref<?x?xf16>) outs(%y, %last : memref<?x?xf32>, memref<?xf32>) {
      ^bb0(%a: f16, %old: f32, %before: f32):
        %e = arith.extf %a : f16 to f32
        %r = arith.mulf %e, %before : f32
        linalg.yield %r, %r : f32, f32
      }
      return
    }""")
    assert "shfl.sync.up" in kernel.ptx
    for shape in ((3, 7), (1, 5003)):
        x, y, last = (
            (1 + draw(*shape) / 32).astype(np.float16),
            np.zeros(shape, np.float32),
            np.zeros(shape[0], np.float32),
        )
        kernel(x, y, last, device="interp")
        exact = np.cumprod(x, 1, np.float64)
        assert np.all(np.abs(y - exact) <= shape[1] * 2.0**-24 * np.abs(exact))
        assert np.all(np.abs(last - exact[:, -1]) <= shape[1] * 2.0**-24 * np.abs(exact[:, -1]))


def test_filters_that_are_known_change_their_layout_when_compiled() -> None:
    """Images and results with channels first are a launch each around the sums; the filter is none."""
    x, k = draw(1, 4, 6, 5), draw(4, 3, 2)
    text = f"""func.func @f(%x: tensor<1x4x6x5xf32>) -> tensor<1x4x4x4xf32> {{
      %k = arith.constant dense_resource<torch_tensor.weights> : tensor<4x3x2xf32>
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<1x4x4x4xf32>
      %s = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
      %r = linalg.depthwise_conv_2d_nchw_chw
        {{dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}}
        ins(%x, %k : tensor<1x4x6x5xf32>, tensor<4x3x2xf32>) outs(%s : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
      return %r : tensor<1x4x4x4xf32>
    }}
    {resource(k)}"""
    kernel = compile(text, target="sm_80")
    got = kernel(x, device="interp")
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 2), (2, 3))
    np.testing.assert_allclose(got, np.einsum("nchwij,cij->nchw", windows, k), rtol=1e-5, atol=1e-5)
    assert len(kernel.plan.launches) == 3
