"""Convolutions by im2col tensor copies, and by threads, on a GPU: the interpreter's words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from test_pixels import BF16, Case  # pyright: ignore[reportMissingImports]

from warploom.runtime import compile


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("case", "schedule"),
    [
        (Case((2, 5, 7, 64), 72, (3, 3), low=(1, 1), high=(1, 1)), {}),
        (Case((3, 6, 5, 40), 24, (3, 2), (2, 1), (1, 2), (0, 1), (2, 0), "fhwc"), {}),
        (Case((2, 9, 7, 72), 64, (1, 1), (2, 2), order="fhwc"), {}),
        (Case((1, 9, 9, 128), 64, (3, 3), low=(1, 1), high=(1, 1)), {"split_k": 3}),
        (Case((3, 9, 9, 64), 128, (3, 3), low=(1, 1), high=(1, 1)), {"mma": "m64n64k16", "cluster": "2x1", "ctas": 2}),
        (Case((1, 9, 8, 3), 24, (3, 2), (2, 2), low=(1, 1), high=(1, 0)), {}),
    ],
)
def test_words_are_those_of_the_interpreter(case: Case, schedule: dict[str, Any]) -> None:
    rng = np.random.default_rng()
    x, residual = (rng.standard_normal(shape).astype(BF16) for shape in (case.images, case.result))
    w = rng.standard_normal((*case.taps, case.images[-1], case.features)).astype(ml_dtypes.bfloat16)
    stored = w if case.order == "hwcf" else np.ascontiguousarray(w.transpose(3, 0, 1, 2))
    bias = rng.standard_normal(case.features).astype(np.float32)
    kernel = compile(case.text(), target="sm_90a", **schedule)
    results: list[Any] = []
    for device in ("cuda", "interp"):
        y = np.full(case.result, np.nan, BF16)
        kernel(x, stored, bias, residual, y, device=device)
        results.append(y.view(np.uint16))
    np.testing.assert_array_equal(*results)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("image", "taps", "stride"), [((2, 8, 17, 12), 7, 1), ((1, 9, 11, 6), 3, 2), ((2, 4, 6, 5), 3, 1)]
)
def test_channels_with_filters_of_their_own(image: tuple[int, int, int, int], taps: int, stride: int) -> None:
    """Threads sum in the order of the IR, from what the result holds."""
    n, h, w, c = image
    pixels = [(size - taps) // stride + 1 for size in (h, w)]
    rng = np.random.default_rng()
    shapes = {"x": image, "k": (taps, taps, c), "y": (n, *pixels, c)}
    kinds = {name: f"memref<{'x'.join(map(str, shape))}x{'f32' if name == 'y' else 'bf16'}>"
             for name, shape in shapes.items()}  # fmt: skip
    text = f"""func.func @f(%X: {kinds["x"]}, %K: {kinds["k"]}, %Y: {kinds["y"]}) {{
      linalg.depthwise_conv_2d_nhwc_hwc {{strides = dense<{stride}> : tensor<2xi64>}}
          ins(%X, %K : {kinds["x"]}, {kinds["k"]}) outs(%Y : {kinds["y"]})
      return
    }}"""
    images, kernel = (rng.standard_normal(shapes[name]).astype(BF16) for name in "xk")
    start, compiled = rng.standard_normal(shapes["y"]).astype(np.float32), compile(text, target="sm_90a")
    results = [start.copy(), start.copy()]
    for device, y in zip(("cuda", "interp"), results, strict=True):
        compiled(images, kernel, y, device=device)
    np.testing.assert_array_equal(*(y.view(np.uint32) for y in results))
