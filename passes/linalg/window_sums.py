"""Sums over windows whose channels each have a kernel of their own, such as depthwise convolutions with channels last.

Neighbours in memory are of different channels, so there is nothing for a matrix instruction. A thread computes some
neighbouring channels of several neighbouring pixels, and reads each pixel of a row of its window once for all of them.
What is done to each element of the sums, and no reduction, is done before they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, TypeAlias

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, BFloat16Type, DenseArrayBase, MemRefType, f16, f32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import (
    FIXED,
    LinearForm,
    Nest,
    NestAccess,
    is_projection,
    linear,
    map_along,
    strides_of,
    weighted,
)
from ...dialect.warp.attributes import is_memory
from ...dialect.warp.elements import YieldOp as ElementYieldOp
from ...dialect.warp.elements import element_type, shape_of
from ...dialect.warp.rows import RowsOp
from ..patterns import rewrite_pattern
from .elementwise import read_elementwise
from .memory_uses import Replacement, roots_of
from .operand import collapse, expand, root, users_of
from .tensors import LinalgBuilder

PADDING = "warp.padding"
"""On a sum over windows: how many zeros stand before each dimension of its images, and as many as are read behind."""

FLOATS = (f16, BFloat16Type(), f32)
WIDTHS = (4, 2, 1)
"""Channels that a thread computes, the most first: of 16 bits, the lanes of a warp read two lines together."""

REGISTERS = 104
"""Floats that a thread holds: sums, a row of its kernel, and a pixel."""

MAX_PIXELS = 16
"""Pixels of a thread, by the square of the step (H100, 3x3 of 112x112 by steps of 2: 16 pixels 99 us, 8 73, 4 67)."""


FEW_PIXELS = 4
"""Pixels of a thread with which parts of a row of taps are the outermost loop (H100, gradients of filters of 56x56: 70
us for 96 of 3x3, but 166 for 140 of 7x7; the turns of an innermost loop along parts are known)."""

Point: TypeAlias = dict[int, int]
"""Which of the elements that a thread computes along loops."""


class WindowDimension(NamedTuple):
    """A dimension of the images: the loop of pixels, that of the window and how far each steps; the first index, below
    zero in zeros around the images; the sizes of the dimension and of the window; a loop of larger steps of pixels, and
    how far it steps. Loops are -1 where there is none."""

    pixel: int
    step: int
    tap: int
    dilation: int
    first: int
    size: int
    taps: int
    outer: int = -1
    outer_step: int = 0

    def last(self, sizes: Mapping[int, int]) -> int:
        """The index of the last pixel, at the first tap."""
        steps = (self.pixel, self.step), (self.outer, self.outer_step)
        return self.first + sum((sizes.get(loop, 1) - 1) * step for loop, step in steps)

    def is_inside(self, sizes: Mapping[int, int]) -> bool:
        """Whether all taps of all pixels are known to be inside of the images."""
        ends = [place + tap * self.dilation for place in (self.first, self.last(sizes)) for tap in (0, self.taps - 1)]
        return min(sizes.get(self.pixel, 1), self.size) > 0 and min(ends) >= 0 and max(ends) < self.size


@dataclass(frozen=True)
class WindowSum:
    """A sum of products of an image and a kernel over a window, for each channel on its own. `dimensions` are those of
    the image but for the channels, along the loop `channel`; a thread computes `width` channels of so many `pixels`
    along the dimension `along`, and holds so many `taps` of a row of the kernel. `sizes` are those of the loops, -1 if
    dynamic."""

    nest: Nest
    image: NestAccess
    kernel: NestAccess
    channel: int
    dimensions: tuple[WindowDimension, ...]
    along: int
    sizes: dict[int, int]
    width: int
    pixels: int
    taps: int

    @property
    def row(self) -> WindowDimension:
        """The dimension along which a thread computes several pixels."""
        return self.dimensions[self.along]

    @property
    def tiles(self) -> int:
        """How many threads compute a row."""
        return -(-self.sizes[self.row.pixel] // self.pixels)

    @property
    def turns(self) -> list[int]:
        """The loops of a thread along a window. Parts of a row are the outermost one of few pixels: the first cache has
        them from row to row."""
        others = [one.tap for one in self.dimensions if one is not self.row and one.tap >= 0]
        return [self.row.tap, *others] if self.pixels <= FEW_PIXELS else [*others, self.row.tap]

    @property
    def points(self) -> list[Point]:
        """The products of a turn, those of one pixel of the images next to each other."""
        row = self.row
        points = [{row.pixel: pixel, row.tap: tap} for pixel in range(self.pixels) for tap in range(self.taps)]
        points.sort(key=lambda at: (at[row.pixel] * row.step + at[row.tap] * row.dilation, at[row.tap]))
        return [point for point in points if any(self._are_inside(point))]

    def _are_inside(self, point: Point) -> list[bool]:
        """Whether a product reads inside of the images, in each tile of a row for each part of the taps."""
        row, tiles = self.row, range(self.tiles)
        first = row.first + point[row.pixel] * row.step + point[row.tap] * row.dilation
        starts = [first + tap * row.dilation for tap in range(0, row.taps, self.taps)]
        return [0 <= tile * self.pixels * row.step + start < row.size for tile in tiles for start in starts]

    def outside(self, point: Point) -> set[int]:
        """The tiles of a row in which a product may read outside of the images."""
        parts = self.row.taps // self.taps
        return {i // parts for i, inside in enumerate(self._are_inside(point)) if not inside}

    def last_tile(self, point: Point) -> int | None:
        """The first pixel of the last tile if a pixel is behind the end of the row there; None for any other pixel."""
        size = self.sizes[self.row.pixel]
        return size - size % self.pixels if 0 < size % self.pixels <= point[self.row.pixel] else None

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
        if isinstance(padding := op.attributes.get(PADDING), DenseArrayBase):
            pairs = zip(image.map.results, padding.get_values(), strict=True)
            places = tuple(expr - before if before else expr for expr, before in pairs)
            image = image._replace(map=AffineMap(image.map.num_dims, 0, places))
        if sorted(written.loops) != kept or len(kept) < 2 or FIXED in kernel.loops:
            return None
        sizes = {loop: size for access in (kernel, written)
                 for loop, size in zip(access.loops, shape_of(access.value), strict=True)}  # fmt: skip
        channel, pixel = written.loops[-1], written.loops[-2]
        dimensions = _dimensions(nest, image, channel, sizes)
        own = {*nest.summed, channel}
        if dimensions is None or not own <= {*kernel.loops} or pixel in kernel.loops or kernel.loops[-1] != channel:
            return None
        along = next((i for i, dimension in enumerate(dimensions) if dimension.pixel == pixel), -1)
        fixed = (*nest.summed, channel, pixel)
        memories = [access.value for access in nest.accesses]
        width = next((width for width in WIDTHS if all(is_by_channels(memory, width) for memory in memories)), 0)
        if along < 0 or not width or min(sizes[loop] for loop in fixed) < 1 or dimensions[along].outer >= 0:
            return None
        pixels, taps = _shape(dimensions[along], sizes[pixel], width)
        return WindowSum(nest, image, kernel, channel, dimensions, along, sizes, width, pixels, taps)


def _dimensions(
    nest: Nest, image: NestAccess, channel: int, sizes: dict[int, int]
) -> tuple[WindowDimension, ...] | None:
    """How a window goes through the dimensions of images before their channels."""
    forms = [linear(expr) for expr in image.map.results]
    *inner, last = forms
    if last != ({channel: 1}, 0) or any(form is None for form in forms):
        return None
    result = list[WindowDimension]()
    for form, size in zip(inner, shape_of(image.value), strict=False):
        one = _dimension(form or ({}, 0), nest, sizes)
        if one is None:
            return None
        one = one._replace(size=size)
        if one.tap < 0 and (one.first < 0 or one.last(sizes) >= size >= 0):
            return None
        result.append(one)
    taps = [one.tap for one in result if one.tap >= 0]
    return tuple(result) if sorted(taps) == sorted(nest.summed) else None


def _dimension(form: LinearForm, nest: Nest, sizes: dict[int, int]) -> WindowDimension | None:
    by, first = form
    pixels, taps = ([loop for loop in by if (loop in nest.summed) == summed] for summed in (False, True))
    if len(pixels) > 2 or len(taps) > 1 or any(by[loop] < 1 for loop in pixels):
        return None
    *outer, pixel = sorted(pixels, key=lambda loop: by[loop], reverse=True) or [-1]
    (tap,), (large,) = taps or [-1], outer or [-1]
    step, dilation, outer_step = (by.get(loop, 0) for loop in (pixel, tap, large))
    return WindowDimension(pixel, step, tap, dilation, first, -1, sizes.get(tap, 1), large, outer_step)


def is_by_channels(value: SSAValue, width: int) -> bool:
    """Whether memory has floats of which each `width` contiguous ones can be one access of whole registers."""
    kind = value.type
    strides = strides_of(kind) if is_memory(kind) else None
    if not is_memory(kind) or not strides or None in strides or strides[-1] != 1:
        return False
    offset = kind.get_offset()
    numbers = (*(stride or 0 for stride in strides[:-1]), kind.get_shape()[-1], offset or 0)
    return kind.element_type in FLOATS and offset is not None and not any(number % width for number in numbers)


def _shape(row: WindowDimension, size: int, width: int) -> tuple[int, int]:
    """The number of pixels that a thread computes, the one with the least work, for products and for their reads; and
    that of the taps of a row that it holds at a time: all, or a divisor of theirs."""
    free, cap = REGISTERS // width, min(max(1, MAX_PIXELS // row.step**2), size)
    taps = max(n for n in range(1, max(1, free - cap) + 1) if row.taps % n == 0) if row.taps >= free else row.taps

    def work(pixels: int) -> float:
        read = (pixels - 1) * row.step + (taps - 1) * abs(row.dilation) + 1 + taps
        return -(-size // pixels) * (pixels * taps + 2 * read)

    return min(range(1, max(1, min(cap, free - taps)) + 1), key=work), taps


BY_VECTORS = (
    arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.DivfOp, arith.NegfOp, arith.MaximumfOp, arith.MinimumfOp,
    arith.MaxnumfOp, arith.MinnumfOp, arith.ExtFOp, arith.TruncFOp, math.AbsFOp, math.FmaOp, math.ExpOp, math.Exp2Op,
    math.TanhOp, math.ErfOp, math.SqrtOp, math.RsqrtOp, YieldOp, ElementYieldOp,
)  # fmt: skip
"""What threads do to vectors, element by element."""


class Finish(NamedTuple):
    """The operation that finishes the sums of a window: what it reads beside them, by the loops of the window, what it
    writes, and its body with the arguments that are sums."""

    op: Operation
    reads: Sequence[NestAccess]
    written: NestAccess
    body: Block
    sums: Sequence[SSAValue]

    @staticmethod
    def of(op: LinalgStructuredOperation, windows: WindowSum) -> Finish | None:
        """The operation that finishes the sums of a window, if it is the only one that reads them. None if it computes
        something else, or if there are other readers."""
        sums = windows.nest.writes[0].value
        readers = users_of(root(sums)) - {op}
        finish = Finish._read(readers.pop(), windows) if len(readers) == 1 else None
        if finish is None or finish.op.parent is not op.parent or not finish._fits(windows):
            return None
        read = roots_of(access.value for access in (*windows.nest.reads, *finish.reads))
        output, both = finish.written.value, frozenset((op, finish.op))
        fused = Replacement(both, finish.op, frozenset((output,)), read, frozenset())
        return (
            finish if op in fused.dead and not fused.objection() and root(output) not in {*read, root(sums)} else None
        )

    @staticmethod
    def _read(op: Operation, windows: WindowSum) -> Finish | None:
        if isinstance(op, RowsOp) and len(op.outputs) == 1 and not op.is_of_rows(0):
            inputs, maps, elements, output = op.inputs, op.maps, op.body.block.args, op.outputs[0]
        elif (made := read_elementwise(op)) is not None and not made.indexed and not made.body.args[-1].uses:
            inputs, maps, output = made.inputs, made.maps, made.output
            elements = (*made.body.args, *made.captured)
        else:
            return None
        if not all(map(is_projection, maps)):
            return None
        written, along = windows.nest.writes[0], list(map(AffineDimExpr, windows.nest.writes[0].loops))
        maps = [map_.replace_dims_and_symbols(along, [], windows.nest.loops, 0) for map_ in maps]
        used = [access for access in map(NestAccess, inputs, maps, elements) if access.element.uses]
        sums = [access.element for access in used if access[:2] == written[:2]]
        reads = [access for access in used if access.element not in sums]
        return Finish(op, reads, written._replace(value=output), op.regions[0].block, sums)

    def _fits(self, windows: WindowSum) -> bool:
        """Whether threads do it to vectors of their channels, and know the sums that it reads."""
        sums = windows.nest.writes[0].value
        for op in self.body.ops:
            kinds = [value.type for value in (*op.operands, *op.results)]
            if not isinstance(op, (*BY_VECTORS, arith.ConstantOp)) or not all(isa(kind, AnyFloat) for kind in kinds):
                return False
        vectors = [access for access in (*self.reads, self.written) if windows.channel in access.loops]
        side_by_side = all(a.loops[-1] == windows.channel and is_by_channels(a.value, windows.width) for a in vectors)
        unread = root(sums) not in (root(access.value) for access in self.reads)
        return unread and side_by_side and shape_of(self.written.value) == shape_of(sums)


PARTS = 1 << 16
"""Threads that keep a GPU busy: sums over the pixels of all images are cut into parts of images, and of their rows."""


@rewrite_pattern
def split_pixels(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Cuts sums over the pixels of images, for each tap of a filter and each channel, into parts, which a second
    operation adds up: the gradient of the filter of a depthwise convolution, of which few threads have an element."""
    windows = WindowSum.of(op)
    if windows is None or len(windows.nest.summed) < 3 or windows.dimensions[0].pixel >= 0:
        return
    nest, slopes, written = windows.nest, windows.kernel, windows.nest.writes[0]
    shape, rest = shape_of(slopes.value), prod(shape_of(written.value)) // windows.width // windows.pixels
    outer = slopes.loops[:2]
    images = _parts(shape[0], PARTS // rest)
    rows = _parts(shape[1], PARTS // (rest * images))
    if images * rows == 1 or outer[0] != windows.dimensions[0].tap:
        return
    # Two loops of parts come first; what is left of images and of rows keeps the loops of these.
    sizes = shape[0] // images, shape[1] // rows
    loops: list[AffineExpr] = [AffineDimExpr(loop + 2) for loop in range(nest.loops)]
    for part, (loop, size) in enumerate(zip(outer, sizes, strict=True)):
        loops[loop] = AffineDimExpr(part) * size + AffineDimExpr(loop + 2)
    make, total = LinalgBuilder(op), nest.loops + 2
    cut = make.insert(expand(slopes.value, [[images, sizes[0]], [rows, sizes[1]], *([n] for n in shape[2:])]))
    kept = [loop + 2 for loop in written.loops]
    sums = make.filled(MemRefType(f32, [images, rows, *shape_of(written.value)]), 0)
    own = {
        windows.image: windows.image.map.replace_dims_and_symbols(loops, [], total, 0),
        slopes: map_along(total, [0, outer[0] + 2, 1, *(loop + 2 for loop in slopes.loops[1:])]),
    }
    reads = [cut.result if access is slopes else access.value for access in nest.reads]
    maps = [*(own[access] for access in nest.reads), map_along(total, [0, 1, *kept])]
    make.computed(reads, sums, maps, op.body.clone(), [loop + 2 for loop in nest.summed])
    places = range(rank := len(written.loops))
    parts = make.insert(collapse(sums, [[0, 1], *([d + 2] for d in places)])).result
    maps = [map_along(rank + 1, [rank, *places]), map_along(rank + 1, places)]
    make.computed([parts], written.value, maps, lambda part, sum: arith.AddfOp(sum, part).result, [rank])
    rewriter.erase(op)


def _parts(size: int, wanted: int) -> int:
    """The smallest divisor of a size that is as large as wanted; the size if none is."""
    return next(n for n in range(1, size + 1) if size % n == 0 and n >= min(wanted, size))
