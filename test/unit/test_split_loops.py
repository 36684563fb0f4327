"""Matrices of patches as upstream's `mlir-opt --transform-interpreter` (`convert_conv2d_to_img2col`, LLVM 22) writes
them, with and without `--canonicalize`, against a convolution in float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.passes.linalg.contraction import split_loops
from warploom.passes.patterns import apply_patterns
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import compile

CHANNELS_FIRST = """\
#map = affine_map<(d0, d1, d2) -> (d0, d1 floordiv 6, (d2 floordiv 3) * 2 + (d1 mod 6) floordiv 2,
                                   (d2 mod 3) * 3 + d1 mod 2)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d1, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
func.func @f(%arg0: tensor<2x4x9x10xf16>, %arg1: tensor<6x4x3x2xf16>) -> tensor<2x6x4x3xf32> {
  %cst = arith.constant 0.000000e+00 : f32
  %0 = tensor.empty() : tensor<2x6x4x3xf32>
  %collapsed = tensor.collapse_shape %arg1 [[0], [1, 2, 3]] : tensor<6x4x3x2xf16> into tensor<6x24xf16>
  %collapsed_0 = tensor.collapse_shape %0 [[0], [1], [2, 3]] : tensor<2x6x4x3xf32> into tensor<2x6x12xf32>
  %1 = linalg.fill ins(%cst : f32) outs(%collapsed_0 : tensor<2x6x12xf32>) -> tensor<2x6x12xf32>
  %2 = tensor.empty() : tensor<2x24x12xf16>
  %3 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%arg0 : tensor<2x4x9x10xf16>) outs(%2 : tensor<2x24x12xf16>) {
  ^bb0(%in: f16, %out: f16):
    linalg.yield %in : f16
  } -> tensor<2x24x12xf16>
  %4 = linalg.generic {indexing_maps = [#map2, #map3, #map4],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%collapsed, %3 : tensor<6x24xf16>, tensor<2x24x12xf16>) outs(%1 : tensor<2x6x12xf32>) {
  ^bb0(%in: f16, %in_1: f16, %out: f32):
    %5 = arith.extf %in : f16 to f32
    %6 = arith.extf %in_1 : f16 to f32
    %7 = arith.mulf %5, %6 : f32
    %8 = arith.addf %7, %out : f32
    linalg.yield %8 : f32
  } -> tensor<2x6x12xf32>
  %expanded = tensor.expand_shape %4 [[0], [1], [2, 3]] output_shape [2, 6, 4, 3]
      : tensor<2x6x12xf32> into tensor<2x6x4x3xf32>
  return %expanded : tensor<2x6x4x3xf32>
}
"""
CHANNELS_LAST = """\
#map = affine_map<(d0, d1, d2) -> (d0, d1 floordiv 8 + d2 floordiv 12, d1 mod 8 + (d2 mod 12) floordiv 4, d2 mod 4)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
func.func @f(%arg0: tensor<2x9x10x4xf16>, %arg1: tensor<3x3x4x6xf16>) -> tensor<2x7x8x6xf16> {
  %cst = arith.constant 0.000000e+00 : f16
  %0 = tensor.empty() : tensor<2x7x8x6xf16>
  %collapsed = tensor.collapse_shape %arg1 [[0, 1, 2], [3]] : tensor<3x3x4x6xf16> into tensor<36x6xf16>
  %collapsed_0 = tensor.collapse_shape %0 [[0], [1, 2], [3]] : tensor<2x7x8x6xf16> into tensor<2x56x6xf16>
  %1 = linalg.fill ins(%cst : f16) outs(%collapsed_0 : tensor<2x56x6xf16>) -> tensor<2x56x6xf16>
  %2 = tensor.empty() : tensor<2x56x36xf16>
  %3 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%arg0 : tensor<2x9x10x4xf16>) outs(%2 : tensor<2x56x36xf16>) {
  ^bb0(%in: f16, %out: f16):
    linalg.yield %in : f16
  } -> tensor<2x56x36xf16>
  %4 = linalg.generic {indexing_maps = [#map2, #map3, #map4],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%3, %collapsed : tensor<2x56x36xf16>, tensor<36x6xf16>) outs(%1 : tensor<2x56x6xf16>) {
  ^bb0(%in: f16, %in_1: f16, %out: f16):
    %5 = arith.mulf %in, %in_1 : f16
    %6 = arith.addf %5, %out : f16
    linalg.yield %6 : f16
  } -> tensor<2x56x6xf16>
  %expanded = tensor.expand_shape %4 [[0], [1, 2], [3]] output_shape [2, 7, 8, 6]
      : tensor<2x56x6xf16> into tensor<2x7x8x6xf16>
  return %expanded : tensor<2x7x8x6xf16>
}
"""
COPY = """\
func.func @f(%A: memref<{source}>, %B: memref<{target}>) {{
  linalg.generic {{indexing_maps = [affine_map<(i, j) -> ({reads})>, affine_map<(i, j) -> ({writes})>],
                   iterator_types = ["parallel", "parallel"]}} ins(%A : memref<{source}>) outs(%B : memref<{target}>) {{
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  }}
  return
}}
"""
TWO_WINDOWS = """\
func.func @f(%A: memref<3x5xf32>, %B: memref<6x3xf32>, %C: memref<6x5xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (1, j)>, affine_map<(i, j) -> (i mod 2 + j, i floordiv 2)>,
                                   affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%A, %B : memref<3x5xf32>, memref<6x3xf32>) outs(%C : memref<6x5xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %z = arith.subf %x, %y : f32
    linalg.yield %z : f32
  }
  return
}
"""


def quarters(*shape: int) -> NDArray[np.float16]:
    """Numbers of which all products, and sums of dozens of these, are exact in f16."""
    return (np.random.default_rng().integers(-4, 5, shape) / 4).astype(np.float16)


def patches(image: NDArray[np.float64], window: tuple[int, int], steps: tuple[int, int]) -> NDArray[np.float64]:
    """What each place of a window sees of the last two dimensions: ..., y, x, place along y, place along x."""
    seen = np.lib.stride_tricks.sliding_window_view(image, window, axis=(-2, -1))  # pyright: ignore[reportCallIssue, reportArgumentType]
    return seen[..., :: steps[0], :: steps[1], :, :]


def test_channels_first_with_strides() -> None:
    image, weights = quarters(2, 4, 9, 10), quarters(6, 4, 3, 2)
    result = compile(CHANNELS_FIRST, cache=False)(image, weights, device="interp")
    seen = patches(image.astype(np.float64), (3, 2), (2, 3))
    assert np.array_equal(result, np.einsum("ncyxrs,fcrs->nfyx", seen, weights.astype(np.float64)))


def test_two_operands_that_are_seen_along_loops() -> None:
    a, b = np.random.default_rng().random((3, 5), np.float32), np.random.default_rng().random((6, 3), np.float32)
    result = np.full((6, 5), np.nan, np.float32)
    compile(TWO_WINDOWS, cache=False)(a, b, result, device="interp")
    i, j = np.indices((6, 5))
    assert np.array_equal(result, a[1, j] - b[i % 2 + j, i // 2])


def test_channels_last_canonicalised() -> None:
    image, weights = quarters(2, 9, 10, 4), quarters(3, 3, 4, 6)
    result = compile(CHANNELS_LAST, cache=False)(image, weights, device="interp")
    seen = patches(image.astype(np.float64).transpose(0, 3, 1, 2), (3, 3), (1, 1))
    assert np.array_equal(result, np.einsum("ncyxrs,rscf->nyxf", seen, weights.astype(np.float64)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("reads", "source", "writes"),
    [
        ("i floordiv 4, i mod 4, j", (3, 4, 5), "i, j"),
        ("(i floordiv 2) mod 3, j", (3, 5), "i, j"),
        ("i floordiv 6, (i mod 6) floordiv 2, j * 2 + i mod 2", (2, 3, 10), "j, i"),
        ("i floordiv 12, j", (1, 5), "i, j"),
        ("(i floordiv 4) * 4 + j, i mod 4", (13, 4), "j, i"),
    ],
)
@pytest.mark.parametrize("gap", [0, 3])
def test_maps(reads: str, source: tuple[int, ...], writes: str, gap: int) -> None:
    """Against the map, evaluated for each pair of indices; also where rows of the result do not follow each other."""
    shape = {"i": 12, "j": 5}
    target = [shape[loop] for loop in writes.split(", ")]
    layout = f", strided<[{target[1] + gap}, 1]>" if gap else ""
    text = COPY.format(
        source="x".join([*map(str, source), "f32"]),
        target="x".join([*map(str, target), "f32"]) + layout,
        reads=reads,
        writes=writes,
    )
    a = np.random.default_rng().standard_normal(source).astype(np.float32)
    base = np.zeros((target[0], target[1] + gap), np.float32)
    b = base[:, : target[1]]
    compile(text, cache=False)(a, b, device="interp")
    index = compile_index(reads)
    for i in range(12):
        for j in range(5):
            place = {"i": i, "j": j}
            assert b[tuple(place[loop] for loop in writes.split(", "))] == a[eval(index, {"i": i, "j": j})]
    assert not base[:, target[1] :].any()


def compile_index(reads: str) -> str:
    """A map's results as Python reads them."""
    return f"({reads.replace('floordiv', '//').replace('mod', '%')},)"


@pytest.mark.parametrize(
    ("reads", "source", "target"),
    [
        ("i floordiv 5, j", "3x5xf32", "12x5xf32"),
        ("(i + j) floordiv 4, j", "4x5xf32", "12x5xf32"),
        ("i floordiv 4 + j mod 2, j", "4x5xf32", "12x5xf32"),
        ("i floordiv 4, j", "?x5xf32", "?x5xf32"),
    ],
)
def test_what_is_not_split_stays(reads: str, source: str, target: str) -> None:
    """Each thread then reads its element where the map says."""
    text = COPY.format(source=source, target=target, reads=reads, writes="i, j")
    module = parse_mlir(make_context(), text)
    before = str(module)
    apply_patterns([split_loops], module)
    assert str(module) == before
    x, y = np.random.default_rng().standard_normal((4, 5)).astype(np.float32), np.full((12, 5), np.nan, np.float32)
    x = x[:3] if source.startswith("3") else x
    compile(text, cache=False)(x, y, device="interp")
    i, j = np.indices(y.shape)
    np.testing.assert_array_equal(y, x[eval(compile_index(reads), {"i": i, "j": j})])
