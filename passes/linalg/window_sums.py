"""Sums over windows whose channels each have a kernel of their own, such as depthwise convolutions with channels last.

Neighbours in memory are of different channels, so there is nothing for a matrix instruction. A thread computes some
neighbouring channels of several neighbouring pixels, and reads each pixel of a row of its window once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.dialects.builtin import BFloat16Type, DenseArrayBase, f16, f32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import SSAValue

from ...dialect.mlir.affine import FIXED, LinearForm, linear
from ...dialect.mlir.generic import weighted
from ...dialect.nest import Nest, NestAccess
from ...dialect.warp.attributes import is_memory
from ...dialect.warp.elements import element_type, shape_of
from ...dialect.warp.views import strides_of

PADDING = "warp.padding"
"""On a sum over windows: how many zeros stand before each dimension of its images, and as many as are read behind."""

FLOATS = (f16, BFloat16Type(), f32)
WIDTHS = (4, 2, 1)
"""Channels that a thread computes, the most first: of 16 bits, the lanes of a warp read two lines together."""

REGISTERS = 104
"""Floats that a thread holds: sums, a row of its kernel, and a pixel."""

MOST_PIXELS = 16
"""Pixels of a thread, by the square of the step (H100, 3x3 of 112x112 by steps of 2: 16 pixels 99 us, 8 73, 4 67)."""


class WindowDimension(NamedTuple):
    """A dimension of the images: the loop of pixels, that of the window and how far each steps; the first index, below
    zero in zeros around the images; the sizes of the dimension and of the window. Loops are -1 where there is none."""

    pixel: int
    step: int
    tap: int
    dilation: int
    first: int
    size: int
    taps: int


@dataclass(frozen=True)
class WindowSum:
    """A sum of products of an image and a kernel over a window, for each channel on its own.

    `dimensions` are those of the image but for the channels, along the loop `channel`; a thread computes `width`
    channels of so many `pixels` along the dimension `along`. `sizes` are those of the loops, -1 if dynamic.
    """

    nest: Nest
    image: NestAccess
    kernel: NestAccess
    channel: int
    dimensions: tuple[WindowDimension, ...]
    along: int
    sizes: dict[int, int]
    width: int
    pixels: int

    @property
    def row(self) -> WindowDimension:
        """The dimension along which a thread computes several pixels."""
        return self.dimensions[self.along]

    @staticmethod
    def of(op: LinalgStructuredOperation) -> WindowSum | None:
        """The sum over windows of an operation. None for other operations, and for memory that threads cannot read by
        several contiguous elements."""
        nest = Nest.of(op)
        product = weighted(nest.body) if len(nest.reads) == 2 and len(nest.writes) == 1 and nest.summed else None
        if product is None or not product.is_plain or any(factor.unsigned for factor in product.factors):
            return None
        if any(element_type(access.value) not in FLOATS for access in nest.accesses):
            return None
        written, kept = nest.writes[0], [loop for loop in range(nest.loops) if loop not in nest.summed]
        image, kernel = sorted(nest.reads, key=lambda access: FIXED not in access.loops)
        if sorted(written.loops) != kept or len(kept) < 2 or FIXED in kernel.loops:
            return None
        sizes = {loop: size for access in (kernel, written)
                 for loop, size in zip(access.loops, shape_of(access.value), strict=True)}  # fmt: skip
        channel, pixel = written.loops[-1], written.loops[-2]
        dimensions = _dimensions(op, nest, image, channel, sizes)
        if dimensions is None or set(kernel.loops) != {*nest.summed, channel} or kernel.loops[-1] != channel:
            return None
        along = next((i for i, dimension in enumerate(dimensions) if dimension.pixel == pixel), -1)
        fixed = (*nest.summed, channel, pixel)
        memories = [access.value for access in nest.accesses]
        width = next((width for width in WIDTHS if all(is_by_channels(memory, width) for memory in memories)), 0)
        if along < 0 or not width or min(sizes[loop] for loop in fixed) < 1:
            return None
        pixels = _pixels(dimensions[along], sizes[pixel], width)
        made = WindowSum(nest, image, kernel, channel, dimensions, along, sizes, width, pixels)
        return made if pixels else None


def _dimensions(
    op: LinalgStructuredOperation, nest: Nest, image: NestAccess, channel: int, sizes: dict[int, int]
) -> tuple[WindowDimension, ...] | None:
    """How a window goes through the dimensions of images before their channels."""
    padding = op.attributes.get(PADDING)
    low: Sequence[int] = padding.get_values() if isinstance(padding, DenseArrayBase) else (0,) * len(image.loops)
    forms = [linear(expr) for expr in image.map.results]
    *inner, last = forms
    if last != ({channel: 1}, 0) or any(form is None for form in forms):
        return None
    result = list[WindowDimension]()
    for form, before, size in zip(inner, low, shape_of(image.value), strict=False):
        one = _dimension(form or ({}, 0), nest, sizes)
        if one is None:
            return None
        one = one._replace(first=one.first - before, size=size)
        last_pixel = (sizes.get(one.pixel, 1) - 1) * one.step + one.first
        if one.tap < 0 and (one.first < 0 or last_pixel >= size >= 0):
            return None
        result.append(one)
    taps = [one.tap for one in result if one.tap >= 0]
    return tuple(result) if sorted(taps) == sorted(nest.summed) else None


def _dimension(form: LinearForm, nest: Nest, sizes: dict[int, int]) -> WindowDimension | None:
    by, first = form
    pixels, taps = ([loop for loop in by if (loop in nest.summed) == summed] for summed in (False, True))
    if len(pixels) > 1 or len(taps) > 1 or any(by[loop] < 1 for loop in pixels):
        return None
    (pixel, step), (tap, dilation) = ((loops[0], by[loops[0]]) if loops else (-1, 0) for loops in (pixels, taps))
    return WindowDimension(pixel, step, tap, dilation, first, -1, sizes.get(tap, 1))


def is_by_channels(value: SSAValue, width: int) -> bool:
    """Whether memory has floats of which each `width` contiguous ones can be one access of whole registers."""
    kind = value.type
    strides = strides_of(kind) if is_memory(kind) else None
    if not is_memory(kind) or not strides or None in strides or strides[-1] != 1:
        return False
    offset = kind.get_offset()
    numbers = (*(stride or 0 for stride in strides[:-1]), kind.get_shape()[-1], offset or 0)
    return kind.element_type in FLOATS and offset is not None and not any(number % width for number in numbers)


def _pixels(row: WindowDimension, size: int, width: int) -> int:
    """The number of pixels that a thread computes: the one with the least work, for products and for their reads."""
    most = min(max(1, MOST_PIXELS // row.step**2), REGISTERS // width - row.taps, size)

    def work(pixels: int) -> float:
        read = (pixels - 1) * row.step + (row.taps - 1) * abs(row.dilation) + 1 + row.taps
        return -(-size // pixels) * (pixels * row.taps + 2 * read)

    return min(range(1, most + 1), key=work, default=0)
