"""Convolutions: forward, transposed, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple, cast

import torch
from xdsl.dialects import tensor as tensors
from xdsl.dialects.builtin import AffineMapAttr
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from ...dialect.mlir.convolution import BY_NAME
from ...dialect.mlir.generic import GenericOp, product_body
from .builder import FunctionBuilder, accumulator, plain, plus
from .scalars import Size, UnsupportedError, Value, shape_of
from .views import FIRST, LAST, has_channels_last, reordered


def convolution(
    builder: FunctionBuilder, like: torch.Tensor, x: Value, weight: Value, bias: Value | None, steps: Sequence[int],
    padding: Sequence[int], dilations: Sequence[int], transposed: bool, added: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    """A convolution of images with the channels last in memory, or first, with its bias, rounded once."""
    if not all(isinstance(n, int) for n in x.shape) or len(steps) != 2:
        raise UnsupportedError("expected images of static sizes with two dimensions of pixels")
    if transposed:
        return _transposed(builder, like, x, weight, bias, steps, padding, dilations, groups)
    last, alone = has_channels_last(like), 1 < groups == x.shape[1] == weight.shape[0]
    order = LAST if last else [*range(len(LAST))]
    images = builder.dense(reordered(x, order))
    if any(padding):
        around = [0, *padding, 0] if last else [0, 0, *padding]
        images = builder.padded(images, around, around)
    name = "conv_2d_nhwc_fhwc" if last else "conv_2d_nchw_fchw"
    channels = order.index(1)
    sizes = shape = tuple(shape_of(like)[d] for d in order)
    if alone:
        name = "depthwise_conv_2d_nhwc_hwc" if last else "depthwise_conv_2d_nchw_chw"
        taps = builder.dense(reordered(weight, [2, 3, 0] if last else [0, 2, 3]))
    else:
        taps = builder.dense(reordered(weight, order))
    if groups > 1 and not alone:
        name = "conv_2d_nhwgc_gfhwc" if last else "conv_2d_ngchw_gfchw"
        images, taps = _in_groups(builder, images, channels, groups), _in_groups(builder, taps, 0, groups)
        sizes = _split(shape, channels, groups)
    sums = builder.filled(sizes, accumulator(x, weight), 0)
    product = builder.insert(BY_NAME[name].on_tensors(images.tensor, taps.tensor, sums.tensor, steps, dilations))
    total = replace(sums, tensor=product.results[0])
    total = total if sizes == shape else _joined(builder, total, channels, groups)
    if bias is not None and not last:
        bias = replace(bias, dims=(*bias.dims, None, None), shape=(*bias.shape, 1, 1))
    made = plus(builder, like.dtype, total, bias)
    return reordered(made, FIRST) if last else made


class Phase(NamedTuple):
    """Every so many pixels along a dimension of a transposed convolution, from one on, and what they read: the taps
    (the first, how many, how far apart), and for each pixel the place of the first tap, and how far the next is back.
    """

    first: int
    pixels: int
    taps: tuple[int, int, int]
    place: int
    back: int

    @staticmethod
    def of(first: int, size: int, taps: int, step: int, padding: int, dilation: int) -> Phase:
        """Pixels `first + i * step` sum over the taps t of which the step divides `first + padding - t * dilation`."""
        own = [t for t in range(taps) if (first + padding - t * dilation) % step == 0]
        by = own[1] - own[0] if len(own) > 1 else 1
        place = (first + padding - own[0] * dilation) // step if own else 0
        return Phase(
            first, len(range(first, size, step)), (own[0] if own else 0, len(own), by), place, by * dilation // step
        )

    @property
    def reach(self) -> tuple[int, int]:
        """The first place that is read, and the one behind the last."""
        return self.place - self.back * (self.taps[1] - 1), self.place + self.pixels


def _transposed(
    builder: FunctionBuilder, like: torch.Tensor, x: Value, weight: Value, bias: Value | None, steps: Sequence[int],
    padding: Sequence[int], dilations: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    """A transposed convolution, the gradient of the images of another one: a convolution for each phase of its pixels,
    of the taps that meet in these."""
    n, channels, *size = cast("tuple[int, ...]", shape_of(like))
    alone = 1 < groups == x.shape[1] == channels
    images, taps = builder.dense(reordered(x, LAST)), builder.dense(reordered(weight, [2, 3, 0] if alone else LAST))
    dtype, shape = accumulator(x, weight), (n, *size, channels)
    result = plain(builder.empty(shape, like.dtype), shape, like.dtype)
    dimensions = [
        [Phase.of(first, count, tap, step, by, dilation) for first in range(step) if first < count]
        for count, tap, step, by, dilation in zip(size, weight.shape[2:], steps, padding, dilations, strict=True)
    ]
    for phases in product(*dimensions):
        sums = _phase(builder, images, taps, phases, (channels, groups), dtype)
        part = plus(builder, like.dtype, sums, bias)
        if max(steps) == 1:
            return reordered(part, FIRST)
        offsets, sizes = [0, *(phase.first for phase in phases), 0], cast("tuple[int, ...]", part.shape)
        put = tensors.InsertSliceOp.from_static_parameters(part.tensor, result.tensor, offsets, sizes, [1, *steps, 1])
        result = replace(result, tensor=builder.insert(put).result)
    return reordered(result, FIRST)


def _phase(
    builder: FunctionBuilder, images: Value, taps: Value, phases: Sequence[Phase], channels: tuple[int, int],
    dtype: torch.dtype,
) -> Value:  # fmt: skip
    """The sums of the pixels of a phase, of images and a filter with the channels last."""
    (count, groups), (n, h, w) = channels, cast("tuple[int, ...]", images.shape[:3])
    shape = (n, *(phase.pixels for phase in phases), count)
    if not all(phase.taps[1] for phase in phases):
        return builder.filled(shape, dtype, 0)
    alone = len(taps.shape) < len(images.shape)  # each channel has a filter, which has no features
    for at, phase in enumerate(phases, 0 if alone else 1):
        first, many, by = phase.taps
        taps = builder.sliced(taps, at, first, many, by)
    low = [max(0, -phase.reach[0]) for phase in phases]
    high = [max(0, phase.reach[1] - size) for phase, size in zip(phases, (h, w), strict=True)]
    if any((*low, *high)):
        images = builder.padded(images, [0, *low, 0], [0, *high, 0])
    groups = 1 if alone else groups
    images, taps = _in_groups(builder, images, 3, groups), _in_groups(builder, taps, 0, groups)
    sums = builder.filled(_split(shape, 3, groups), dtype, 0)
    image, *pixels, channel, first, second, feature = map(AffineDimExpr, range(7))
    places = [pixel + (phase.place + by) - tap * phase.back
              for pixel, tap, phase, by in zip(pixels, (first, second), phases, low, strict=True)]  # fmt: skip
    if alone:
        maps = (image, *places, channel), (first, second, channel), (image, *pixels, channel)
        return _summed(builder, (images, taps, sums), maps, (), 1, reduced=2)
    maps = (image, *places, feature), (feature, first, second, channel), (image, *pixels, channel)
    return _joined(builder, _summed(builder, (images, taps, sums), maps, (3, 0, 3), groups), 3, groups)


def gradients(builder: FunctionBuilder, like: torch.Tensor | None, *args: Any) -> Sequence[Callable[[], Value]]:
    """What writes the gradients of the images, which are like a tensor, and of the filter of a convolution."""
    slope, x, weight, _, steps, padding, dilations, transposed, _, groups, *_ = args
    if transposed or len(steps) != 2:
        raise UnsupportedError("expected images with two dimensions of pixels, and no transposition")

    def of_filter() -> Value:
        images, slopes = (builder.dense(reordered(value, LAST)) for value in (x, slope))
        features, channels, *taps = weight.shape
        shape = (features, *taps, channels)
        if any(padding):
            images = builder.padded(images, [0, *padding, 0], [0, *padding, 0])
        alone = 1 < groups == x.shape[1] == features
        *feature, first, second, channel, image, down, right = map(AffineDimExpr, range(6 if alone else 7))
        moves = zip((down, right), (first, second), steps, dilations, strict=True)
        places = [pixel * step + tap * by for pixel, tap, step, by in moves]
        if alone:
            maps = (image, *places, channel), (image, down, right, channel), (first, second, channel)
            sums = builder.filled((*taps, features), accumulator(x, slope), 0)
            total = builder.converted(_summed(builder, (images, slopes, sums), maps, (), 1), weight.dtype)
            return replace(total, dims=(2, None, 0, 1), shape=(features, 1, *taps))
        images, slopes = (_in_groups(builder, value, 3, groups) for value in (images, slopes))
        sums = builder.filled(_split(shape, 0, groups), accumulator(x, slope), 0)
        maps = (image, *places, channel), (image, down, right, *feature), (*feature, first, second, channel)
        total = _joined(builder, _summed(builder, (images, slopes, sums), maps, (3, 3, 0), groups), 0, groups)
        return reordered(builder.converted(total, weight.dtype), FIRST)

    def of_images() -> Value:
        return _transposed(builder, cast("Any", like), slope, weight, None, steps, padding, dilations, groups)

    return [of_images, of_filter]


def _summed(
    builder: FunctionBuilder, values: tuple[Value, Value, Value], maps: Sequence[Sequence[AffineExpr]],
    places: Sequence[int], groups: int, reduced: int = 3,
) -> Value:  # fmt: skip
    """Products of two tensors, added to a third along maps of loops, of which the last ones are summed over. If there
    are groups, their loop is one more, the first, of dimensions at these places."""
    inner = reduced + len(maps[2])
    loops, sums = inner + (groups > 1), values[2]
    along = [AffineMap(inner, 0, tuple(each)) for each in maps]
    if groups > 1:
        shifted = [AffineDimExpr(d + 1) for d in range(inner)]
        moved = [[*map_.replace_dims_and_symbols(shifted, [], loops, 0).results] for map_ in along]
        for results, at in zip(moved, places, strict=True):
            results.insert(at, AffineDimExpr(0))
        along = [AffineMap(loops, 0, tuple(results)) for results in moved]
    kinds = [IteratorTypeAttr.parallel()] * (loops - reduced) + [IteratorTypeAttr.reduction()] * reduced
    tensors_ = [value.tensor for value in values]
    body = product_body([tensor.type.element_type for tensor in tensors_])
    made = GenericOp(tensors_[:2], [sums.tensor], body, list(map(AffineMapAttr, along)), kinds, [sums.tensor.type])
    return replace(sums, tensor=builder.insert(made).results[0])


def _joined(builder: FunctionBuilder, value: Value, at: int, groups: int) -> Value:
    """A tensor with groups and channels as one dimension."""
    if groups == 1:
        return value
    (*before, _, size), behind = cast("tuple[int, ...]", value.shape[: at + 2]), value.shape[at + 2 :]
    shape = (*before, groups * size, *behind)
    return builder.reshaped(value, shape, _halves(at, len(shape)))


def _split(shape: Sequence[Size], at: int, groups: int) -> tuple[int, ...]:
    """A shape with a dimension of channels as one of groups and one of channels, if there are groups."""
    sizes = cast("tuple[int, ...]", tuple(shape))
    return sizes if groups == 1 else (*sizes[:at], groups, sizes[at] // groups, *sizes[at + 1 :])


def _in_groups(builder: FunctionBuilder, value: Value, at: int, groups: int) -> Value:
    """A tensor of such a shape."""
    if groups == 1:
        return value
    return builder.reshaped(value, _split(value.shape, at, groups), _halves(at, len(value.shape)))


def _halves(at: int, rank: int) -> list[list[int]]:
    """The dimensions that each of so many stands for, if one of them is two."""
    return [[d, d + 1] if d == at else [d + (d > at)] for d in range(rank)]
