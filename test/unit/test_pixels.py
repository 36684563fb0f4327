"""Convolutions whose pixels are the rows of one matrix, by `wgmma` and im2col tensor copies, against float64."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import CompileError, compile

BF16 = ml_dtypes.bfloat16

TEXT = """
#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#f = affine_map<(d0, d1, d2, d3) -> (d3)>
func.func @f(%X: {x}, %W: {w}, %bias: tensor<{features}xf32>, %R: {y}) -> {y} {{
  %low = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  {pad}
  %empty = tensor.empty() : {sums}
  %filled = linalg.fill ins(%zero : f32) outs(%empty : {sums}) -> {sums}
  %sums = linalg.conv_2d_nhwc_{order} {{strides = dense<{strides}> : tensor<2xi64>,
      dilations = dense<{dilations}> : tensor<2xi64>}}
      ins(%padded, %W : {padded}, {w}) outs(%filled : {sums}) -> {sums}
  %out = tensor.empty() : {y}
  %y = linalg.generic {{indexing_maps = [#id, #f, #id, #id],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins(%sums, %bias, %R : {sums}, tensor<{features}xf32>, {y}) outs(%out : {y}) {{
  ^bb0(%s: f32, %b: f32, %residual: bf16, %old: bf16):
    %wide = arith.extf %residual : bf16 to f32
    %0 = arith.addf %s, %b : f32
    %1 = arith.addf %0, %wide : f32
    %2 = arith.maximumf %1, %zero : f32
    %t = arith.truncf %2 : f32 to bf16
    linalg.yield %t : bf16
  }} -> {y}
  return %y : {y}
}}
"""

PAD = """%padded = tensor.pad %X low[0, {low[0]}, {low[1]}, 0] high[0, {high[0]}, {high[1]}, 0] {{
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %low : bf16
  }} : {x} to {padded}"""


@dataclass(frozen=True)
class Case:
    """A convolution of images by a filter of taps, with zeros around the images."""

    images: tuple[int, int, int, int]
    features: int
    taps: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    low: tuple[int, int] = (0, 0)
    high: tuple[int, int] = (0, 0)
    order: str = "hwcf"

    @property
    def padded(self) -> tuple[int, ...]:
        n, h, w, c = self.images
        return n, h + self.low[0] + self.high[0], w + self.low[1] + self.high[1], c

    @property
    def result(self) -> tuple[int, ...]:
        pixels = (
            (size - (taps - 1) * by - 1) // step + 1
            for size, taps, by, step in zip(self.padded[1:3], self.taps, self.dilations, self.strides, strict=True)
        )
        return self.images[0], *pixels, self.features

    def text(self) -> str:
        def tensor(sizes: tuple[int, ...], kind: str = "bf16") -> str:
            return f"tensor<{'x'.join(map(str, sizes))}x{kind}>"

        x, padded, channels = tensor(self.images), tensor(self.padded), self.images[-1]
        hwcf = (*self.taps, channels, self.features)
        w = tensor(hwcf if self.order == "hwcf" else (self.features, *self.taps, channels))
        pad = PAD.format(low=self.low, high=self.high, x=x, padded=padded) if self.padded != self.images else ""
        text = TEXT.format(x=x, w=w, y=tensor(self.result), padded=padded, sums=tensor(self.result, "f32"), pad=pad,
                           features=self.features, order=self.order, strides=list(self.strides),
                           dilations=list(self.dilations))  # fmt: skip
        return text if pad else text.replace("%padded", "%X")

    def sums(self, x: NDArray[Any], w: NDArray[Any]) -> NDArray[Any]:
        """The sum over the taps, each a product in float64."""
        n, oh, ow, f = self.result
        around = ((0, 0), *zip(self.low, self.high, strict=True), (0, 0))
        padded, total = np.pad(x, around), np.zeros((n, oh, ow, f))
        for r, s in product(*map(range, self.taps)):
            (down, step), (right, along) = (
                (at * by, step) for at, by, step in zip((r, s), self.dilations, self.strides, strict=True)
            )
            seen = padded[:, down : down + (oh - 1) * step + 1 : step, right : right + (ow - 1) * along + 1 : along]
            total += seen @ w[r, s]
        return total


def run(case: Case, checks: str = "", **schedule: Any) -> str:
    """Runs a convolution with bias, residual and relu on random arrays and holds it against float64; its PTX."""
    rng = np.random.default_rng()
    x, residual = (rng.standard_normal(shape).astype(BF16) for shape in (case.images, case.result))
    w = rng.standard_normal((*case.taps, case.images[-1], case.features)).astype(BF16)
    bias, y = rng.standard_normal(case.features).astype(np.float32), np.full(case.result, np.nan, BF16)
    kernel = compile(case.text(), target="sm_90a", cache=False, **schedule)
    stored = w if case.order == "hwcf" else np.ascontiguousarray(w.transpose(3, 0, 1, 2))
    kernel(x, stored, bias, residual, y, device="interp", checks=checks or ())
    exact, wide = case.sums(x.astype(np.float64), w.astype(np.float64)), residual.astype(np.float64)
    size = case.sums(np.abs(x.astype(np.float64)), np.abs(w.astype(np.float64)))
    wanted = np.maximum(exact + bias + wide, 0)
    # The tensor core cuts sums, 2^-21 of the largest for each step; the result is rounded to 8 bits.
    assert (np.abs(y.astype(np.float64) - wanted) <= 2.0**-8 * np.abs(wanted) + 2.0**-14 * size).all()
    assert len([schedule for schedule in kernel.schedule if schedule]) == 1
    return kernel.ptx


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "case",
    [
        Case((2, 5, 7, 64), 72, (3, 3), low=(1, 1), high=(1, 1)),
        Case((3, 6, 5, 40), 24, (3, 2), (2, 1), (1, 2), (0, 1), (2, 0), "fhwc"),
        Case((2, 9, 7, 72), 64, (1, 1), (2, 2), order="fhwc"),
        Case((1, 9, 9, 8), 16, (7, 7), (2, 2), low=(3, 3), high=(3, 3)),
        Case((1, 9, 8, 3), 24, (3, 2), (2, 2), low=(1, 1), high=(1, 0)),
        Case((2, 5, 4, 4), 16, (2, 3), order="fhwc"),
    ],
    ids=["3x3", "strides and dilations", "1x1 of every second pixel", "split", "colours", "a few channels"],
)
def test_pixels_are_rows(case: Case) -> None:
    assert ".im2col." in run(case, "all" if case.order == "fhwc" else "")


def test_each_pixel_alone_is_a_row_of_a_matrix() -> None:
    assert "im2col" not in run(Case((2, 5, 7, 72), 40, (1, 1)))


def test_tiles_by_clusters_in_turn() -> None:
    """CTAs that share the pixels of a tile, or its filter, and go on to further tiles."""
    case = Case((3, 9, 9, 64), 128, (3, 3), low=(1, 1), high=(1, 1))
    run(case, mma="m64n64k16", cluster="2x1", ctas=2)
    run(case, mma="m64n64k16", cluster="1x2")


def test_fragments_read_nothing_backwards() -> None:
    maps = ("n, h - r * 200 + 400, w - s + 2, f", "f, r, s, c", "n, h, w, c")
    types = ("1x404x6x16xbf16", "16x3x3x64xbf16", "1x4x4x64xf32")
    with pytest.raises(CompileError, match="only tensor copies read pixels backwards: a copy steps over at most 8"):
        compile(gradient("n, h, w, c, r, s, f", maps, types), target="sm_90a", cache=False)


def test_fragments_read_no_images() -> None:
    with pytest.raises(CompileError, match="tensor copies read images for warpgroups; use m64nNk16"):
        compile(Case((1, 5, 5, 64), 64, (3, 3)).text(), target="sm_90a", cache=False, mma="m16n8k16")


FIRST = """
#each = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
func.func @f(%X: tensor<2x16x5x6xbf16>, %W: tensor<24x16x3x3xbf16>, %bias: tensor<24xf32>) -> tensor<2x24x5x3xbf16> {
  %low = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %padded = tensor.pad %X low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %low : bf16
  } : tensor<2x16x5x6xbf16> to tensor<2x16x7x8xbf16>
  %empty = tensor.empty() : tensor<2x24x5x3xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x24x5x3xf32>) -> tensor<2x24x5x3xf32>
  %sums = linalg.conv_2d_nchw_fchw {strides = dense<[1, 2]> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}
      ins(%padded, %W : tensor<2x16x7x8xbf16>, tensor<24x16x3x3xbf16>)
      outs(%filled : tensor<2x24x5x3xf32>) -> tensor<2x24x5x3xf32>
  %out = tensor.empty() : tensor<2x24x5x3xbf16>
  %y = linalg.generic {indexing_maps = [#each, affine_map<(d0, d1, d2, d3) -> (d1)>, #each],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%sums, %bias : tensor<2x24x5x3xf32>, tensor<24xf32>) outs(%out : tensor<2x24x5x3xbf16>) {
  ^bb0(%s: f32, %b: f32, %old: bf16):
    %0 = arith.addf %s, %b : f32
    %1 = arith.maximumf %0, %zero : f32
    %t = arith.truncf %1 : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<2x24x5x3xbf16>
  return %y : tensor<2x24x5x3xbf16>
}
"""


def test_channels_that_come_first_are_moved_last() -> None:
    """Two launches before, of images and filter; one behind, with what follows; images stay where no zeros are."""
    rng = np.random.default_rng()
    x, w = (rng.standard_normal(shape).astype(BF16) for shape in ((2, 16, 5, 6), (24, 16, 3, 3)))
    bias, y = rng.standard_normal(24).astype(np.float32), np.full((2, 24, 5, 3), np.nan, BF16)
    kernel = compile(FIRST, target="sm_90a", cache=False)
    kernel(x, w, bias, y, device="interp")
    assert len(kernel.launches) == 4
    assert ".im2col." in kernel.ptx
    case = Case((2, 5, 6, 16), 24, (3, 3), (1, 2), low=(1, 1), high=(1, 1))
    images, taps = x.astype(np.float64).transpose(0, 2, 3, 1), w.astype(np.float64).transpose(2, 3, 1, 0)
    wanted = np.maximum(case.sums(images, taps) + bias, 0).transpose(0, 3, 1, 2)
    size = case.sums(np.abs(images), np.abs(taps)).transpose(0, 3, 1, 2)
    assert (np.abs(y.astype(np.float64) - wanted) <= 2.0**-8 * wanted + 2.0**-14 * size).all()


def gradient(loops: str, maps: tuple[str, str, str], types: tuple[str, str, str]) -> str:
    """A sum of products along maps over loops, of which the last three are summed over."""
    a, b, d = (f"affine_map<({loops}) -> ({map_})>" for map_ in maps)
    kinds = ", ".join(['"parallel"'] * (loops.count(",") - 2) + ['"reduction"'] * 3)
    return f"""func.func @f(%A: memref<{types[0]}>, %B: memref<{types[1]}>, %D: memref<{types[2]}>) {{
  linalg.generic {{indexing_maps = [{a}, {b}, {d}], iterator_types = [{kinds}]}}
      ins(%A, %B : memref<{types[0]}>, memref<{types[1]}>) outs(%D : memref<{types[2]}>) {{
  ^bb0(%x: bf16, %g: bf16, %old: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %g : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %old, %2 : f32
    linalg.yield %3 : f32
  }}
  return
}}"""


FILL = """  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%D : memref<{0}>)
  linalg.generic"""


def run_gradient(
    loops: str,
    maps: tuple[str, str, str],
    sizes: str,
    types: tuple[str, str, str],
    *,
    fresh: bool = False,
    **asked: Any,
) -> Any:
    """Runs a gradient that is added to random sums, or to zeros if `fresh`, and compares it with float64; the kernel.
    `sizes` are those of the loops, `asked` is of the schedule."""
    rng, names = np.random.default_rng(), loops.split(", ")
    a, b = (rng.standard_normal([*map(int, kind.split("x")[:-1])]).astype(BF16) for kind in types[:2])
    grid = dict(zip(names, np.ogrid[tuple(slice(int(size)) for size in sizes.split())], strict=True))
    terms = np.ones(())
    for array, map_ in ((a, maps[0]), (b, maps[1])):
        terms = terms * array.astype(np.float64)[eval(map_, {}, grid)]
    exact, size = (each.sum((-3, -2, -1)) for each in (terms, np.abs(terms)))
    d = rng.standard_normal(exact.shape).astype(np.float32)
    wanted, text = exact + d, gradient(loops, maps, types)
    if fresh:
        wanted, text, d = exact, text.replace("  linalg.generic", FILL.format(types[2])), np.full_like(d, np.nan)
    kernel = compile(text, target="sm_90a", cache=False, **asked)
    kernel(a, b, d, device="interp")
    assert ".im2col." in kernel.ptx
    assert (np.abs(d - wanted) <= 2.0**-14 * (size + 4)).all()
    return kernel


def test_the_gradient_of_a_filter_sums_over_pixels() -> None:
    """Its columns are those of all taps: boxes of other taps, side by side in a tile."""
    maps = ("n, h * 2 + r, w + s, c", "n, h, w, f", "f, r, s, c")
    types = ("2x9x6x64xbf16", "2x4x5x72xbf16", "72x3x2x64xf32")
    run_gradient("f, r, s, c, n, h, w", maps, "72 3 2 64 2 4 5", types)


def test_the_gradient_of_a_filter_of_colours() -> None:
    """The taps of a row are columns that lie together in a copy of the images, and are copied to the filter."""
    maps = ("n, h * 2 + r, w * 2 + s, c", "n, h, w, f", "f, r, s, c")
    types = ("2x9x11x3xbf16", "2x4x5x24xbf16", "24x3x3x3xf32")
    kernel = run_gradient("f, r, s, c, n, h, w", maps, "24 3 3 3 2 4 5", types, fresh=True)
    assert len(kernel.launches) == 3


def test_the_gradient_of_images_reads_pixels_backwards() -> None:
    """From the filter as it is, each tap of which lies apart for its features."""
    maps = ("n, h - r + 2, w - s * 2 + 2, f", "f, r, s, c", "n, h, w, c")
    types = ("2x7x8x64xbf16", "64x3x2x40xbf16", "2x5x6x40xf32")
    run_gradient("n, h, w, c, r, s, f", maps, "2 5 6 40 3 2 64", types)


def test_every_second_pixel_is_stored_by_tensor_copies() -> None:
    """Pixels between them, and those of larger memory, stay as they are; a tile passes the last image."""
    maps, large = ("n, h + r, w + s, f", "f, r, s, c", "n, h, w, c"), "memref<3x12x16x24xf32>"
    types = ("3x6x8x64xbf16", "64x2x3x24xbf16", "3x5x6x24xf32, strided<[4608, 768, 48, 1], offset: 408>")
    part = f"memref.subview %E[0, 1, 1, 0] [3, 5, 6, 24] [1, 2, 2, 1] : {large} to memref<{types[2]}>"
    text = gradient("n, h, w, c, r, s, f", maps, types).replace(f"%D: memref<{types[2]}>", f"%E: {large}")
    text = text.replace("  linalg.generic", f"  %D = {part}\n{FILL.format(types[2])}")
    kernel = compile(text, target="sm_90a", cache=False)
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(shape).astype(BF16) for shape in ((3, 6, 8, 64), (64, 2, 3, 24)))
    every = np.full((3, 12, 16, 24), np.nan, np.float32)
    kernel(a, b, every, device="interp", checks="all")
    taps = [(a[:, r : r + 5, s : s + 6].astype(np.float64), b[:, r, s].astype(np.float64)) for r, s in np.ndindex(2, 3)]
    exact, size = (sum(x @ w for x, w in pairs) for pairs in (taps, [(abs(x), abs(w)) for x, w in taps]))
    written = every[:, 1:10:2, 1:12:2]
    assert (np.abs(written - exact) <= 2.0**-14 * size).all()
    assert (np.isnan(every).sum(), len(kernel.launches)) == (every.size - written.size, 1)
    with pytest.raises(CompileError, match="tensor copies alone store pixels with others between them; use 64"):
        compile(text, target="sm_90a", cache=False, mma="m64n24k16", staging=0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("groups", "channels", "features", "launches"), [(3, 72, 72, 1), (4, 12, 8, 2), (2, 64, 16, 1), (32, 4, 4, 2)]
)
def test_groups_of_channels(groups: int, channels: int, features: int, launches: int) -> None:
    """Large groups are a batch of matrices; of small ones a filter for several is copied before."""
    maps = ("n, h + r, w + s, g, c", "g, f, r, s, c", "n, h, w, g, f")
    x, w, y = (
        f"1x6x7x{groups}x{channels}xbf16",
        f"{groups}x{features}x3x2x{channels}xbf16",
        f"1x4x6x{groups}x{features}xf32",
    )
    sizes = f"1 4 6 {groups} {features} 3 2 {channels}"
    kernel = run_gradient("n, h, w, g, f, r, s, c", maps, sizes, (x, w, y))
    assert len(kernel.launches) == launches


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("groups", "size", "parts"), [(2, 64, 2), (6, 8, 1)])
def test_the_gradients_of_groups(groups: int, size: int, parts: int) -> None:
    """Of the filter of small groups, the products of all pairs of groups are computed, and some are copied. Parts of
    the pixels are added up, in a batch, too."""
    x, g, w = f"1x10x9x{groups}x{size}x", f"1x8x8x{groups}x{size}x", f"{groups}x{size}x3x2x{size}x"
    maps = ("n, h - r + 2, w - s + 1, g, f", "g, f, r, s, c", "n, h, w, g, c")
    sizes = f"1 8 8 {groups} {size} 3 2 {size}"
    run_gradient("n, h, w, g, c, r, s, f", maps, sizes, (f"{x}bf16", f"{w}bf16", f"{g}f32"))
    maps, sizes = ("n, h + r, w + s, g, c", "n, h, w, g, f", "g, f, r, s, c"), f"{groups} {size} 3 2 {size} 2 8 8"
    x, g = x.replace("1x10", "2x10"), g.replace("1x8", "2x8")
    asked = {"mma": "m64n64k16", "split_k": parts} if parts > 1 else {}
    run_gradient("g, f, r, s, c, n, h, w", maps, sizes, (f"{x}bf16", f"{g}bf16", f"{w}f32"), fresh=True, **asked)
