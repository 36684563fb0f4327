"""Named convolutions: windows of the input times a kernel, compiled and run on the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from warploom.dialect.mlir.convolution import CONVOLUTIONS, NAMES, SPACE, ConvolutionDimensions, ConvolutionOp
from warploom.runtime import WarploomError, compile

LAYOUTS = {op.name.removeprefix("linalg."): op.LAYOUT for op in CONVOLUTIONS if issubclass(op, ConvolutionOp)}
SIZES = {"n": 2, "g": 2, "c": 5, "f": 6, "m": 3, "d": 3, "h": 4, "w": 7, "D": 2, "H": 3, "W": 2}
UNIT = 2.0**-23
Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float64]


class Case:
    """A convolution with its strides and dilations, and the shapes of its operands."""

    def __init__(self, name: str, strides: Sequence[int], dilations: Sequence[int]) -> None:
        self.name, self.layout = name, LAYOUTS[name]
        self.space = [d for d in self.layout.image if d in SPACE]
        self.strides = dict(zip(self.space, strides, strict=False))
        self.dilations = dict(zip(self.space, dilations, strict=False))

    @property
    def shapes(self) -> list[list[int]]:
        image, kernel, result = self.layout
        reach = [
            (SIZES[d] - 1) * self.strides[d] + (SIZES[d.upper()] - 1) * self.dilations[d] + 1
            if d in SPACE
            else SIZES[d]
            for d in image
        ]
        return [reach, [SIZES[d.upper() if d in SPACE else d] for d in kernel], [SIZES[d] for d in result]]

    def text(self, elements: Sequence[str]) -> str:
        a, b, c = (
            f"memref<{'x'.join([*map(str, shape), kind])}>" for shape, kind in zip(self.shapes, elements, strict=True)
        )
        zeros, types = (", %z, %z", ", i32, i32") if self.name.endswith("_q") else ("", "")
        steps = ", ".join(
            f"{name} = dense<{list(by.values())}> : tensor<{len(by)}xi64>"
            for name, by in (("strides", self.strides), ("dilations", self.dilations))
        )
        return (
            f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{\n"
            f"  %z = arith.constant 0 : i32\n"
            f"  linalg.{self.name} {{{steps}}} ins(%A, %B{zeros} : {a}, {b}{types}) outs(%C : {c})\n"
            f"  return\n}}\n"
        )

    def exact(self, a: Floats, b: Floats) -> Floats:
        """The sum over the places of the kernel, each a product of matrices in float64."""
        image, kernel, result = self.layout
        total = np.zeros(self.shapes[2])
        for place in product(*(range(SIZES[d.upper()]) for d in self.space)):
            at = dict(zip(self.space, place, strict=True))
            first = {d: at[d] * self.dilations[d] for d in self.space}
            seen = a[
                tuple(
                    slice(first[d], first[d] + (SIZES[d] - 1) * self.strides[d] + 1, self.strides[d])
                    if d in SPACE
                    else slice(None)
                    for d in image
                )
            ]
            weights = b[tuple(at[d] if d in SPACE else slice(None) for d in kernel)]
            total += np.einsum(f"{image},{''.join(d for d in kernel if d not in SPACE)}->{result}", seen, weights)
        return total


def run(case: Case, target: str = "sm_80") -> None:
    """Runs a convolution on random arrays and holds it against float64."""
    rng, quantized = np.random.default_rng(), case.name.endswith("_q")
    if quantized:
        a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in case.shapes[:2])
        c: Array = rng.integers(-99, 99, case.shapes[2]).astype(np.int32)
    else:
        a, b = (rng.standard_normal(shape).astype(np.float16) for shape in case.shapes[:2])
        c = rng.standard_normal(case.shapes[2]).astype(np.float32)
    start = c.astype(np.float64)
    wanted = start + case.exact(a.astype(np.float64), b.astype(np.float64))
    size = np.abs(start) + case.exact(np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64)))
    text = case.text(("i8", "i8", "i32") if quantized else ("f16", "f16", "f32"))
    compile(text, target=target, cache=False)(a, b, c, device="interp")
    error = 0 if quantized else 100 * UNIT * size
    assert (np.abs(c - wanted) <= error).all()


@pytest.mark.sampled(16)
@pytest.mark.parametrize(
    "name",
    [
        "conv_1d",
        "conv_2d",
        "conv_1d_ncw_fcw",
        "conv_2d_nhwc_hwcf",
        "conv_2d_nhwc_fhwc_q",
        "conv_2d_nchw_fchw",
        "conv_2d_ngchw_gfchw",
        "conv_2d_nhwgc_gfhwc",
        "depthwise_conv_2d_nchw_chw",
        "depthwise_conv_1d_nwc_wc",
        "depthwise_conv_2d_nhwc_hwc",
        "depthwise_conv_2d_nhwc_hwcm_q",
    ],
)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_layouts(name: str, target: str) -> None:
    run(Case(name, (2, 1), (1, 2)), target)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("channels", "filters"), [(5, 9), (16, 9), (64, 1), (64, 9)])
def test_filters_whose_rows_no_tensor_copy_takes(monkeypatch: pytest.MonkeyPatch, channels: int, filters: int) -> None:
    monkeypatch.setitem(SIZES, "c", channels)
    monkeypatch.setitem(SIZES, "f", filters)
    run(Case("conv_2d_nhwc_hwcf", (1, 1), (1, 1)), "sm_90a")


def test_two_stages_that_take_the_room_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 16x16 by `mma` with a K of 8, which begin where a swizzle does."""
    for name, size in {"n": 1, "c": 8, "f": 16, "h": 8, "w": 8, "H": 3, "W": 3}.items():
        monkeypatch.setitem(SIZES, name, size)
    run(Case("conv_2d_nchw_fchw", (1, 1), (1, 1)), "sm_75")


def test_three_dimensions() -> None:
    run(Case("conv_3d_ndhwc_dhwcf", (1, 2, 1), (1, 1, 3)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "strides", "dilations", "low", "high"),
    [
        ("conv_1d_ncw_fcw", (1,), (1,), (2,), (1,)),
        ("conv_2d_nchw_fchw", (2, 1), (1, 2), (1, 2), (0, 1)),
        ("conv_2d_nhwc_hwcf", (1, 2), (2, 1), (1, 0), (2, 1)),
        ("conv_2d_nhwc_fhwc", (1, 1), (1, 1), (0, 1), (0, 1)),
        ("conv_3d_ndhwc_dhwcf", (1, 1, 1), (1, 1, 1), (0, 1, 0), (1, 1, 1)),
    ],
)
def test_images_among_zeros_are_read_where_they_are(
    name: str, strides: Sequence[int], dilations: Sequence[int], low: Sequence[int], high: Sequence[int]
) -> None:
    case, rng = Case(name, strides, dilations), np.random.default_rng()
    first, last = ([dict(zip(case.space, by, strict=True)).get(d, 0) for d in case.layout.image] for by in (low, high))
    shape, *others = case.shapes
    inner = [size - before - after for size, before, after in zip(shape, first, last, strict=True)]
    large, small = (f"memref<{'x'.join(map(str, sizes))}xf16>" for sizes in (shape, inner))
    steps = [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
    part = f"{small[:-1]}, strided<{steps}, offset: {sum(map(int.__mul__, first, steps))}>>"
    text = case.text(("f16", "f16", "f32")).replace(f"%A: {large}", f"%X: {small}")
    text = text.replace(
        "  %z = arith.constant 0 : i32\n",
        f"""  %z = arith.constant 0.0 : f16
  %A = memref.alloc() : {large}
  linalg.fill ins(%z : f16) outs(%A : {large})
  %part = memref.subview %A{first} {inner} {[1] * len(first)} : {large} to {part}
  linalg.copy ins(%X : {small}) outs(%part : {part})
""",
    )
    kernel = compile(text, target="sm_80", cache=False)
    assert len(kernel.plan.launches) == 1
    a, b = (rng.standard_normal(sizes).astype(np.float16) for sizes in (inner, others[0]))
    c = rng.standard_normal(others[1]).astype(np.float32)
    around, start = np.pad(a, list(zip(first, last, strict=True))).astype(np.float64), c.astype(np.float64)
    wanted = start + case.exact(around, b.astype(np.float64))
    size = np.abs(start) + case.exact(np.abs(around), np.abs(b.astype(np.float64)))
    kernel(a, b, c, device="interp", checks="all")
    assert (np.abs(c - wanted) <= 100 * UNIT * size).all()


def test_every_name_has_a_layout_of_as_many_dimensions_as_it_says() -> None:
    for name in NAMES:
        image, kernel, result = LAYOUTS[name]
        rank = int(name.split("conv_")[1][0])
        assert [sum(d in SPACE for d in dims) for dims in (image, kernel, result)] == [rank] * 3, name
    assert LAYOUTS["conv_2d_ngchw_fgchw"] == ConvolutionDimensions("ngchw", "fgchw", "ngfhw")
    assert LAYOUTS["depthwise_conv_2d_nhwc_hwcm_q"] == ConvolutionDimensions("nhwc", "hwcm", "nhwcm")


def test_a_batch_of_unknown_size_with_channels_last() -> None:
    """bf16 is summed in f32, and rounded once."""
    text = """func.func @f(%A: memref<?x6x5x8xbf16>, %B: memref<3x2x8xbf16>, %C: memref<?x4x4x8xbf16>) {
  linalg.depthwise_conv_2d_nhwc_hwc ins(%A, %B : memref<?x6x5x8xbf16>, memref<3x2x8xbf16>)
      outs(%C : memref<?x4x4x8xbf16>)
  return
}"""
    rng = np.random.default_rng()
    a, b, c = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((3, 6, 5, 8), (3, 2, 8), (3, 4, 4, 8)))
    wanted = c.astype(np.float64)
    for i, j in product(range(3), range(2)):
        wanted += a[:, i : i + 4, j : j + 4].astype(np.float64) * b[i, j].astype(np.float64)
    compile(text, cache=False)(a, b, c, device="interp")
    np.testing.assert_allclose(c.astype(np.float64), wanted, rtol=2.0**-8, atol=1e-5)


def test_channels_before_pixels_of_unknown_sizes() -> None:
    """A call says all sizes; 9 products of f32 are added to what there is."""
    text = """func.func @f(%A: memref<?x?x?x?xf32>, %B: memref<?x?x?xf32>, %C: memref<?x?x?x?xf32>) {
  linalg.depthwise_conv_2d_nchw_chw <{dilations = dense<2> : tensor<2xi64>}>
      ins(%A, %B : memref<?x?x?x?xf32>, memref<?x?x?xf32>) outs(%C : memref<?x?x?x?xf32>)
  return
}"""
    kernel, rng = compile(text, cache=False), np.random.default_rng()
    for images, channels in ((2, 5), (1, 8)):
        shapes = (images, channels, 11, 9), (channels, 3, 3), (images, channels, 7, 5)
        a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
        wanted = c.astype(np.float64)
        for i, j in product(range(3), range(3)):
            part = a[:, :, 2 * i : 2 * i + 7, 2 * j : 2 * j + 5].astype(np.float64)
            wanted += part * b[:, i, j, None, None].astype(np.float64)
        kernel(a, b, c, device="interp", checks="all")
        np.testing.assert_allclose(c, wanted, rtol=0, atol=10 * UNIT * 50)


FIRST = """
#each = affine_map<(n, f, h, w) -> (n, f, h, w)>
#feature = affine_map<(n, f, h, w) -> (f)>
func.func @f(%X: tensor<2x16x6x5xf16>, %W: tensor<24x16x3x3xf16>, %bias: tensor<24xf32>) -> tensor<2x24x6x5xf16> {
  %low = arith.constant 0.0 : f16
  %padded = tensor.pad %X low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %low : f16
  } : tensor<2x16x6x5xf16> to tensor<2x16x8x7xf16>
  %empty = tensor.empty() : tensor<2x24x6x5xf32>
  %start = linalg.broadcast ins(%bias : tensor<24xf32>) outs(%empty : tensor<2x24x6x5xf32>) dimensions = [0, 2, 3]
  %sums = linalg.conv_2d_nchw_fchw ins(%padded, %W : tensor<2x16x8x7xf16>, tensor<24x16x3x3xf16>)
      outs(%start : tensor<2x24x6x5xf32>) -> tensor<2x24x6x5xf32>
  %out = tensor.empty() : tensor<2x24x6x5xf16>
  %y = linalg.generic {indexing_maps = [#each, #each],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%sums : tensor<2x24x6x5xf32>) outs(%out : tensor<2x24x6x5xf16>) {
  ^bb0(%s: f32, %old: f16):
    %h = arith.truncf %s : f32 to f16
    %r = arith.maximumf %h, %low : f16
    linalg.yield %r : f16
  } -> tensor<2x24x6x5xf16>
  return %y : tensor<2x24x6x5xf16>
}"""


def test_a_bias_and_a_function_follow_a_convolution_before_its_channels_come_first_again() -> None:
    """Images, filter and result change their layout in a kernel each; the fourth has all that is computed."""
    rng = np.random.default_rng()
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 16, 6, 5), (24, 16, 3, 3)))
    bias = rng.standard_normal(24).astype(np.float32)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = np.zeros((2, 24, 6, 5)) + bias[:, None, None].astype(np.float64)
    for i, j in product(range(3), range(3)):
        part = padded[:, :, i : i + 6, j : j + 5]
        wanted += np.einsum("nchw,fc->nfhw", part, w[:, :, i, j].astype(np.float64))
    kernel = compile(FIRST, "sm_90a", cache=False)
    got = kernel(x, w, bias, device="interp", checks="all")
    assert len(kernel.plan.launches) == 4
    np.testing.assert_allclose(got, np.maximum(wanted, 0), rtol=2.0**-10, atol=1e-3)


def test_strides_that_are_no_integers_are_refused() -> None:
    text = """func.func @f(%A: memref<1x9x9x8xf32>, %B: memref<3x3x8xf32>, %C: memref<1x4x4x8xf32>) {
  linalg.depthwise_conv_2d_nhwc_hwc <{strides = dense<2.0> : vector<2xf32>}>
      ins(%A, %B : memref<1x9x9x8xf32>, memref<3x3x8xf32>) outs(%C : memref<1x4x4x8xf32>)
  return
}"""
    with pytest.raises(WarploomError, match="expected strides to be dense integers, got dense<2"):
        compile(text, cache=False)


BY_CHANNELS = """
#each = affine_map<(a, b, c, d) -> (a, b, c, d)>
#channel = affine_map<(a, b, c, d) -> (d)>
func.func @f(%X: {x}, %K: tensor<{r}x{s}x{c}xbf16>, %bias: tensor<{c}xf32>, %scale: f32) -> {y} {{
  %low = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %padded = tensor.pad %X low[0, {before}, {before}, 0] high[0, {behind}, {behind}, 0] {{
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %low : bf16
  }} : {x} to {padded}
  %empty = tensor.empty() : {sums}
  %filled = linalg.fill ins(%zero : f32) outs(%empty : {sums}) -> {sums}
  %sums = linalg.depthwise_conv_2d_nhwc_hwc {{strides = dense<{stride}> : tensor<2xi64>,
      dilations = dense<{dilation}> : tensor<2xi64>}} ins(%padded, %K : {padded}, tensor<{r}x{s}x{c}xbf16>)
      outs(%filled : {sums}) -> {sums}
  %out = tensor.empty() : {y}
  %result = linalg.generic {{indexing_maps = [#each, #channel, #each],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins(%sums, %bias : {sums}, tensor<{c}xf32>) outs(%out : {y}) {{
  ^bb0(%sum: f32, %b: f32, %old: bf16):
    %0 = arith.mulf %sum, %scale : f32
    %1 = arith.addf %0, %b : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  }} -> {y}
  return %result : {y}
}}
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("image", "taps", "stride", "dilation", "around"),
    [
        ((2, 5, 9, 12), (7, 7), 1, 1, (3, 3)),
        ((1, 9, 11, 6), (3, 2), 2, 1, (1, 0)),
        ((1, 4, 5, 5), (3, 3), 1, 1, (1, 1)),
        ((2, 4, 7, 136), (3, 3), 1, 2, (2, 2)),
    ],
    ids=["7x7", "strides and two channels", "an odd number of channels", "dilations and two groups of lanes"],
)
def test_channels_with_kernels_of_their_own_in_one_launch(
    image: tuple[int, int, int, int], taps: tuple[int, int], stride: int, dilation: int, around: tuple[int, int]
) -> None:
    """Images are read where they are, with zeros around them; bias, scale and relu come before sums are stored."""
    n, h, w, c = image
    padded = [size + sum(around) for size in (h, w)]
    result = [(size - (tap - 1) * dilation - 1) // stride + 1 for size, tap in zip(padded, taps, strict=True)]
    out = (n, *result, c)
    shapes = {"x": image, "padded": (n, *padded, c), "sums": out, "y": out}
    types = {name: f"tensor<{'x'.join(map(str, sizes))}x{'f32' if name == 'sums' else 'bf16'}>"
             for name, sizes in shapes.items()}  # fmt: skip
    text = BY_CHANNELS.format(r=taps[0], s=taps[1], c=c, before=around[0], behind=around[1], stride=stride,
                              dilation=dilation, **types)  # fmt: skip
    rng = np.random.default_rng()
    x, k = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in (image, (*taps, c)))
    bias, y = rng.standard_normal(c).astype(np.float32), np.full(out, np.nan, ml_dtypes.bfloat16)
    kernel = compile(text, target="sm_90a", cache=False)
    kernel(x, k, bias, 1.5, y, device="interp", checks="all")
    wide = np.pad(x.astype(np.float64), ((0, 0), around, around, (0, 0)))
    exact, size = np.zeros((2, *out))
    for r, s in product(*map(range, taps)):
        down, along = (slice(at * dilation, at * dilation + (pixels - 1) * stride + 1, stride)
                       for at, pixels in zip((r, s), result, strict=True))  # fmt: skip
        term = wide[:, down, along] * k[r, s].astype(np.float64)
        exact, size = exact + term, size + np.abs(term)
    wanted = np.maximum(1.5 * exact + bias, 0)
    assert kernel.ptx.count(".entry") == 1
    assert (np.abs(y.astype(np.float64) - wanted) <= 2.0**-8 * np.abs(wanted) + 100 * UNIT * (size + 4)).all()


BACKWARDS = """
func.func @f(%A: memref<2x7x9x8xbf16>, %B: memref<3x3x8xbf16>, %D: memref<2x5x5x8xf32>) {
  linalg.generic {
      indexing_maps = [affine_map<(n, h, w, c, r, s) -> (n, h - r + 2, w - s * 2 + 4, c)>,
                       affine_map<(n, h, w, c, r, s) -> (r, s, c)>, affine_map<(n, h, w, c, r, s) -> (n, h, w, c)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%A, %B : memref<2x7x9x8xbf16>, memref<3x3x8xbf16>) outs(%D : memref<2x5x5x8xf32>) {
  ^bb0(%x: bf16, %g: bf16, %old: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %g : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %old, %2 : f32
    linalg.yield %3 : f32
  }
  return
}
"""


def test_windows_that_run_backwards_are_added_to_what_there_is() -> None:
    """The gradient of images, as a generic operation."""
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((2, 7, 9, 8), (3, 3, 8)))
    d = rng.standard_normal((2, 5, 5, 8)).astype(np.float32)
    wide, wanted, size = a.astype(np.float64), d.astype(np.float64), np.abs(d)
    for r, s in product(range(3), range(3)):
        term = wide[:, 2 - r : 7 - r, 4 - 2 * s : 9 - 2 * s] * b[r, s].astype(np.float64)
        wanted, size = wanted + term, size + np.abs(term)
    kernel = compile(BACKWARDS, target="sm_80", cache=False)
    kernel(a, b, d, device="interp")
    assert "ld.global.v2.b32" in kernel.ptx
    assert (np.abs(d - wanted) <= 10 * UNIT * size).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("start", ["1.5", "-2.0"])
def test_channels_with_kernels_of_their_own_start_from_a_number(start: str) -> None:
    image, weights, result = "memref<1x9x17x8xbf16>", "memref<3x1x8xbf16>", "memref<1x7x17x8xbf16>"
    kernel = compile(
        f"""func.func @f(%x: {image}, %w: {weights}, %y: {result}) {{
          %c = arith.constant {start} : bf16
          linalg.fill ins(%c : bf16) outs(%y : {result})
          linalg.depthwise_conv_2d_nhwc_hwc ins(%x, %w : {image}, {weights}) outs(%y : {result})
          return
        }}""",
        cache=False,
    )
    rng = np.random.default_rng()
    x, w = (rng.integers(-3, 4, size).astype(ml_dtypes.bfloat16) for size in ((1, 9, 17, 8), (3, 1, 8)))
    y = np.full((1, 7, 17, 8), np.nan, ml_dtypes.bfloat16)
    kernel(x, w, y, device="interp", checks="all")
    exact = sum(x[:, i : i + 7].astype(np.float64) * w[i].astype(np.float64) for i in range(3)) + float(start)
    np.testing.assert_array_equal(y.astype(np.float64), exact)
