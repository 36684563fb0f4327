"""Convolutions: forward, transposed, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch._prims_common import suggest_memory_format
from xdsl.dialects import tensor as tensors
from xdsl.dialects.builtin import AffineMapAttr
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir.affine import AffineDimExpr, AffineMap

from ...dialect.mlir.generic import GenericOp, product_body
from .builder import FunctionBuilder, accumulator, plain, plus
from .options import aten
from .scalars import UnsupportedError, Value, shape_of
from .views import FIRST, LAST, has_channels_last, reordered, reshape

IMAGES, FILTER, RESULT = range(3)

LOOPS = {
    (True, False): ("nyxgc", "gfhwc", "nijgf"),
    (True, True): ("nyxg", "hwg", "nijg"),
    (False, False): ("ngcyx", "gfchw", "ngfij"),
    (False, True): ("ngyx", "ghw", "ngij"),
}
"""The loops that the dimensions of images, a filter and the result run along, by whether channels are the last
dimension in memory, and whether each has a filter of its own: images n, groups g, channels c and features f of a group,
pixels i and j of the result, y and x of the images, taps h and w."""

Moves: TypeAlias = Sequence[tuple[int, int, int]]
"""Along both dimensions, how many pixels of the images one of the result is, how many a tap, and the first one's."""


@dataclass(frozen=True)
class WindowSums:
    """Products of two of images, a filter and a result, summed over the loops that the third lacks."""

    builder: FunctionBuilder
    dtype: torch.dtype
    groups: int
    alone: bool
    last: bool = True
    back: bool = False
    """Whether the filter's features are the channels of the images, as in a transposed convolution."""

    def summed(
        self, a: tuple[int, Value], b: tuple[int, Value], moves: Moves, of: int, shape: tuple[int, ...]
    ) -> Value:
        """The sums of a shape, of two tensors in which groups and channels are one dimension."""
        along = [self._loops(x) for x in (a[0], b[0], of)]
        operands = [
            reshape(self.builder, value, self._split(value.shape, loops))
            for (_, value), loops in zip((a, b), along, strict=False)
        ]
        out = self.builder.filled(self._split(shape, along[2]), self.dtype, 0)
        order = [*along[2], *(loop for loop in "hwcnij" if loop in along[1] and loop not in along[2])]
        dims = {loop: AffineDimExpr(number) for number, loop in enumerate(order)}
        pixels = zip("yx", "ij", "hw", moves, strict=True)
        places = {y: dims[i] * step + dims[h] * tap + first for y, i, h, (step, tap, first) in pixels}
        maps = [AffineMap(len(dims), 0, tuple({**dims, **places}[loop] for loop in loops)) for loops in along]
        kinds = [IteratorTypeAttr.parallel() if x in along[2] else IteratorTypeAttr.reduction() for x in order]
        inputs, result = [operand.tensor for operand in operands], out.tensor
        body = product_body([tensor.type.element_type for tensor in (*inputs, result)])
        made = GenericOp(inputs, [result], body, list(map(AffineMapAttr, maps)), kinds, [result.type])
        total = replace(out, tensor=self.builder.insert(made).results[0])
        return reshape(self.builder, total, shape)

    def _loops(self, tensor: int) -> str:
        loops = LOOPS[self.last, self.alone][tensor]
        if self.back and tensor == FILTER:
            loops = loops.translate(str.maketrans("cf", "fc"))
        return loops if self.groups > 1 else loops.replace("g", "")

    def _split(self, shape: tuple[int, ...], loops: str) -> tuple[int, ...]:
        """A shape with groups and channels as dimensions of their own, where there are both."""
        if len(loops) == len(shape):
            return shape
        at = loops.index("g")
        return (*shape[:at], self.groups, shape[at] // self.groups, *shape[at + 1 :])


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
    for at, (pixels, count, dilation) in enumerate(zip(like.shape[2:], weight.shape[2:], dilations, strict=True)):
        if pixels == 1 and images.shape[at + (1 if last else 2)] > (reach := (count - 1) * dilation + 1):
            images = builder.sliced(images, at + (1 if last else 2), 0, reach, 1)
    of_taps = ([2, 3, 0] if last else [0, 2, 3]) if alone else order
    taps = builder.dense(reordered(weight, of_taps))
    shape = tuple(like.shape[d] for d in order)
    moves = [(step, dilation, 0) for step, dilation in zip(steps, dilations, strict=True)]
    window = WindowSums(builder, accumulator(x, weight), groups, alone, last)
    total = window.summed((IMAGES, images), (FILTER, taps), moves, RESULT, shape)
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
    window, shape = WindowSums(builder, accumulator(x, weight), groups, alone, back=True), (n, *size, channels)
    result = plain(builder.empty(shape, like.dtype), shape, like.dtype)
    dimensions = [
        [Phase.of(first, count, tap, step, by, dilation) for first in range(step) if first < count]
        for count, tap, step, by, dilation in zip(size, weight.shape[2:], steps, padding, dilations, strict=True)
    ]
    for phases in product(*dimensions):
        sums = _phase(window, images, taps, phases, channels)
        part = plus(builder, like.dtype, sums, bias)
        if max(steps) == 1:
            return reordered(part, FIRST)
        offsets, sizes = [0, *(phase.first for phase in phases), 0], cast("tuple[int, ...]", part.shape)
        put = tensors.InsertSliceOp.from_static_parameters(part.tensor, result.tensor, offsets, sizes, [1, *steps, 1])
        result = replace(result, tensor=builder.insert(put).result)
    return reordered(result, FIRST)


def _phase(window: WindowSums, images: Value, taps: Value, phases: Sequence[Phase], channels: int) -> Value:
    """The sums of the pixels of a phase, of images and a filter with the channels last."""
    n, h, w, _ = cast("tuple[int, ...]", images.shape)
    shape, builder = (n, *(phase.pixels for phase in phases), channels), window.builder
    if not all(phase.taps[1] for phase in phases):
        return builder.filled(shape, window.dtype, 0)
    for at, phase in enumerate(phases, 0 if window.alone else 1):  # a filter for each channel has no features
        first, many, by = phase.taps
        taps = builder.sliced(taps, at, first, many, by)
    low = [max(0, -phase.reach[0]) for phase in phases]
    high = [max(0, phase.reach[1] - size) for phase, size in zip(phases, (h, w), strict=True)]
    if any((*low, *high)):
        images = builder.padded(images, [0, *low, 0], [0, *high, 0])
    moves = [(1, -phase.back, phase.place + by) for phase, by in zip(phases, low, strict=True)]
    return window.summed((IMAGES, images), (FILTER, taps), moves, RESULT, shape)


def filter_gradient(
    builder: FunctionBuilder, like: torch.Tensor, slope: Value, x: Value, shape: Sequence[int], steps: Sequence[int],
    padding: Sequence[int], dilations: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    """The gradient of the filter of a convolution of images, of a shape, for that of its result."""
    if len(steps) != 2 or not all(isinstance(n, int) for n in x.shape):
        raise UnsupportedError("expected images of static sizes with two dimensions of pixels")
    images, slopes = (builder.dense(reordered(value, LAST)) for value in (x, slope))
    features, channels, *taps = shape
    if any(padding):
        images = builder.padded(images, [0, *padding, 0], [0, *padding, 0])
    alone = 1 < groups == x.shape[1] == features
    moves = [(step, dilation, 0) for step, dilation in zip(steps, dilations, strict=True)]
    window = WindowSums(builder, accumulator(x, slope), groups, alone)
    own = (*taps, features) if alone else (features, *taps, channels)
    total = window.summed((IMAGES, images), (RESULT, slopes), moves, FILTER, own)
    total = builder.converted(total, like.dtype)
    return replace(total, dims=(2, None, 0, 1), shape=(features, 1, *taps)) if alone else reordered(total, FIRST)


def eager_filter_gradient(slope: torch.Tensor, x: torch.Tensor, shape: Sequence[int], *options: Any) -> torch.Tensor:
    """What torch computes where a gradient of a filter is not compiled, and of tensors without elements."""
    *moves, groups = options
    weight, mask = x.new_empty(shape), [False, True, False]
    made = aten.convolution_backward(slope, x, weight, None, *moves, False, [0, 0], groups, mask)[1]
    return made.contiguous(memory_format=suggest_memory_format(x))
