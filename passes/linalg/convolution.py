"""`warp-im2col`: convolutions as products over all pixels, whose A tensor copies read out of images.

A convolution is raised as a product in each row of pixels, of a window of the images. Warpgroups multiply larger tiles:
here the pixels of all rows and images become the rows of one matrix for each tap of the filter, `warp.im2col`. Copies
in im2col mode read it, with zeros around the images, so that images which were copied to larger memory of zeros are
read where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple, NoReturn

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, MemRefType, ModuleOp, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import CopyOp, FillOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.isa.tensor_map import MOST_RANK, MOST_STEP, most_offset
from ...dialect.isa.wgmma import UNIT
from ...dialect.mlir.affine import loops_of, map_along, runs_backwards, windows
from ...dialect.nest import Nest
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import IndexOp, PointwiseOp
from ...dialect.warp.matmul import BY_ELEMENT, MatmulOp
from ...dialect.warp.operands import drop_forms
from ...dialect.warp.tensor_maps import Im2colOp
from ...dialect.warp.views import WindowOp, strides_of
from ..diagnostics import chose, fail, remark
from ..patterns import apply_patterns, operations_between
from .contraction import multiplies_images
from .elementwise import touched
from .operand import collapse, drop_unused, expand, pitch, root, users_of
from .window_sums import PADDING, WindowSum

ALIGNED = 8
"""Elements of 16 bits in the 16 bytes that places of a tensor map are multiples of."""

PANEL = 64
"""Channels that the matrices of taps must have a multiple of to lie side by side: of a box, which is of one tap."""

NO_TAP = -1, 1, 1
"""The loop, step and size of taps along a dimension that has one alone."""


class NotFlatError(Exception):
    """Why the pixels of a convolution are not the rows of one matrix."""


def _decline(reason: str) -> NoReturn:
    raise NotFlatError(reason)


class Filter(NamedTuple):
    """How a window moves over images: the loop of images; for each dimension of pixels, the loops of pixels and of
    taps, each with its stride in the images and its size; the loop of channels; the first pixel.

    Images and pixels are those of the result. If the filter is the result, they are reduction loops.
    """

    image: int
    pixels: list[tuple[int, int, int]]
    taps: list[tuple[int, int, int]]

    channel: int
    first: list[int]

    @staticmethod
    def of(op: MatmulOp, window: WindowOp, side: int) -> Filter:
        """How the A, or the B, of a product does.

        Raises:
            NotFlatError: if it does otherwise.
        """
        forms, loops = windows(window.along), loops_of(op.maps[side])
        sizes = dict(zip(loops, memory_of(window.result).get_shape(), strict=True))
        if forms is None or not 3 <= len(forms) <= MOST_RANK or forms[0][1] or forms[-1][1]:
            _decline(f"expected images, pixels and channels, got {window.along}")
        along = [{loops[place]: factor for place, factor in by.items()} for by, _ in forms]
        first, *middle, last = along
        if [*first.values(), *last.values()] != [1, 1]:
            _decline(f"expected images first and channels last, got {window.along}")
        (image,), (channel,), written = first, last, set(loops_of(op.maps[2]))
        pixels, taps = (
            [[(loop, by[loop], sizes[loop]) for loop in by if ((loop in written) == (image in written)) == shared]
             for by in middle]
            for shared in (True, False)
        )  # fmt: skip
        if any(len(each) != 1 for each in pixels) or any(len(each) > 1 for each in taps):
            _decline(f"expected a loop of pixels and one of taps along each dimension, got {window.along}")
        first_taps = [offset for _, offset in forms[1:-1]]
        taps = [each[0] if each else NO_TAP for each in taps]
        return Filter(image, [each for (each,) in pixels], taps, channel, first_taps)

    @property
    def rows(self) -> tuple[int, ...]:
        """The loops that become the rows of one matrix."""
        return self.image, *(loop for loop, _, _ in self.pixels)

    @property
    def columns(self) -> tuple[int, ...]:
        """The loops of its columns, of all taps side by side."""
        return *(loop for loop, _, _ in self.taps if loop >= 0), self.channel

    def made(self, images: SSAValue, low: Sequence[int], *, joined: bool) -> Im2colOp:
        """The matrices of images that begin `low` pixels before the first tap; for one tap the matrix of that one."""
        (_, steps, pixels), (_, dilations, taps) = zip(*self.pixels, strict=True), zip(*self.taps, strict=True)
        low = [by - first for by, first in zip(low, self.first, strict=True)]
        return Im2colOp(images, taps, pixels, steps, dilations, low, joined=joined)


class Padded(NamedTuple):
    """Images inside larger memory of zeros: the operation that fills that memory, the view of the images, the offsets
    `low` of their start, and the operation that copies them in. Without a `copy`, the images are computed in place, and
    only one product reads them."""

    fill: FillOp
    part: memref.SubviewOp
    low: tuple[int, ...]
    copy: CopyOp | None

    @staticmethod
    def of(memory: SSAValue, reader: Operation, ends: Collection[int] = ()) -> Padded | None:
        """The padded images that a product reads from an allocation; None for other memory. Zeros before the dimensions
        `ends`, by default the first and the last, are not allowed."""
        users, parts = users_of(memory), [use.operation for use in memory.uses]
        fill, *fills = [op for op in users if isinstance(op, FillOp) and op.outputs[0] == memory] or [None]
        part, *parts = [op for op in parts if isinstance(op, memref.SubviewOp)] or [None]
        if fill is None or part is None or fills or parts or not isinstance(memory.owner, memref.AllocOp):
            return None
        offsets, sizes, steps = ([*each.get_values()] for each in (
            part.static_offsets, part.static_sizes, part.static_strides))  # fmt: skip
        shape, ends = memory_of(memory).get_shape(), ends or (0, len(offsets) - 1)
        around = [at for at in ends if offsets[at] or sizes[at] != shape[at]]
        inside = users_of(part.result)
        readers = users - inside - {fill}
        ordered = {op.parent for op in users} == {reader.parent} and all(map(fill.is_before_in_block, inside))
        reads = all(root(output) != memory for op in readers for output in _writes(op))
        reads = reads and all(isinstance(op, MatmulOp) or BY_ELEMENT in op.attributes or op is reader for op in readers)
        plain = min(*offsets, *sizes) >= 0 and set(steps) == {1} and not any(around)
        if not (ordered and reads and plain and _is_zero(fill.inputs[0])):
            return None
        copy, low = next(iter(inside), None), tuple(at for d, at in enumerate(offsets) if d not in ends)
        if len(inside) == 1 and isinstance(copy, CopyOp) and _stays(copy, reader):
            return Padded(fill, part, low, copy)
        first = next((op for op in inside if all(op is each or op.is_before_in_block(each) for each in inside)), None)
        written = readers == {reader} and all(op.is_before_in_block(reader) for op in inside)
        written = written and first is not None and _overwrites(first, part.result)
        return Padded(fill, part, low, None) if written else None

    def images(self) -> SSAValue:
        """The images in memory of their own."""
        if self.copy is not None:
            return self.copy.inputs[0]
        kind = memory_of(self.part.result)
        alone = MemRefType(kind.element_type, kind.get_shape(), memory_space=kind.memory_space)
        return Builder(InsertPoint.before(self.part)).insert(memref.AllocOp([], [], alone)).memref

    def drop_unused(self, images: SSAValue) -> None:
        """Erases the larger memory if nothing reads it any more; what wrote images there writes these."""
        if self.copy is None:
            self.part.result.replace_all_uses_with(images)
        elif users_of(self.part.source) != {self.fill, self.copy}:
            return
        else:
            Rewriter.erase_op(self.copy)
        Rewriter.erase_op(self.fill)
        drop_unused(self.part.result)


def _writes(op: Operation) -> Sequence[SSAValue]:
    """The memory that an operation writes, of those operations that may read images."""
    return op.outputs if isinstance(op, LinalgStructuredOperation) else [op.d] if isinstance(op, MatmulOp) else ()


def _overwrites(op: Operation, images: SSAValue) -> bool:
    """Whether an operation writes all of the images, and reads nothing of the memory that they are in."""
    if isinstance(op, MatmulOp):
        operands = [value for value in (*op.factors, op.c, *op.epilogue_operands) if value is not None]
        return op.d == images and root(images) not in map(root, operands)
    if not isinstance(op, LinalgStructuredOperation) or list(op.outputs) != [images] or Nest.of(op).summed:
        return False
    return root(images) not in map(root, op.inputs) and not op.body.block.args[-1].uses


def _stays(copy: CopyOp, reader: Operation) -> bool:
    """Whether the source of a copy is unchanged up to the reader of the copy."""
    images, between = root(copy.inputs[0]), operations_between(copy, reader)
    every = map(touched, between or ())
    return between is not None and all(memory is not None and images not in memory[1] for memory in every)


def _is_zero(value: SSAValue) -> bool:
    made = value.owner
    return isinstance(made, arith.ConstantOp) and isinstance(made.value, FloatAttr) and not made.value.value.data


class Flattened:
    """A product over all pixels in the place of one in each row of pixels.

    Raises:
        NotFlatError: if an operand does not lie so.
    """

    def __init__(self, op: MatmulOp, window: WindowOp, side: int, *, joined: bool) -> None:
        self.op, self.window, self.side, self.filter = op, window, side, Filter.of(op, window, side)
        self.builder = Builder(InsertPoint.before(op))
        self.padded = Padded.of(window.memory, op)
        self.made = dict[SSAValue, SSAValue]()
        (*_, row), columns, (m, n, k) = self.filter.rows, self.filter.columns, range(op.outer, op.outer + 3)
        self.units = columns[:-1] if prod(size for _, _, size in self.filter.taps) == 1 else ()
        self.joined = joined and memory_of(window.memory).get_shape()[-1] % PANEL == 0
        self.groups = (self.filter.rows, columns) if self.joined and not self.units else (self.filter.rows,)
        self.taps = [] if self.joined or self.units else list(columns[:-1])
        own, other = (m, n) if side == 0 else (n, m)
        if columns[-1] == k and (side, self.filter.image in loops_of(op.maps[2])) == (0, True):
            order = [*self.taps, row, other, k]
        elif columns[-1] == own and not self.taps and self.filter.image not in loops_of(op.maps[2]):
            order = [own, other, row] if side == 0 else [other, own, row]
        else:
            _decline(f"expected channels of the images along k, or pixels and {PANEL} channels, got {op.maps[side]}")
        if len({*self.filter.rows, *columns, other}) != op.outer + 3:
            _decline("it is a batch, or summed over more than the taps of a filter")
        self.numbers: Mapping[int, int] = {loop: number for number, loop in enumerate(order)}
        self.memory = window.memory if self.padded is None else self.padded.images()

    def along(self, loops: Sequence[int]) -> AffineMap:
        """The map of an operand along these loops of the old product, all pixels as one."""
        kept = [loop for loop in loops if loop in self.numbers]
        return map_along(len(self.numbers), [self.numbers[loop] for loop in kept])

    def images(self) -> SSAValue:
        """The matrices of the images or, if each pixel is read once, the images as a matrix."""
        memory = self.memory
        made = self.filter.made(memory, self.padded.low if self.padded else [0] * len(self.filter.taps),
                                joined=self.joined)  # fmt: skip
        made.verify()
        kind, (taps, pixels, steps, dilations, low) = memory_of(memory), made.numbers
        *places, last = range(rank := kind.get_num_dims())
        plain = max(*taps, *steps) == 1 and not any(low) and kind.get_shape()[1:-1] == pixels
        if plain and self._is_compact(memory, places):
            return self.builder.insert(collapse(memory, [places, [last]])).result
        farthest, offsets = most_offset(rank), [(size - 1) * abs(by) for size, by in zip(taps, dilations, strict=True)]
        if max(steps) > MOST_STEP or max(offsets) > farthest:
            _decline(f"a copy steps over at most {MOST_STEP} pixels, {farthest} in the filter")
        if problem := made.box(UNIT, UNIT).reversed().problem(kind.get_shape()[::-1]):
            _decline(problem)
        if pitch(kind, last, 1) * 2 % UNIT or (strides_of(kind) or ())[-1:] != (1,):
            _decline(f"expected channels that lie side by side, in rows that are multiples of {UNIT} bytes, got {kind}")
        return self.builder.insert(made).matrix

    def as_rows(self, value: SSAValue, loops: Sequence[int]) -> SSAValue:
        """Memory along these loops, with all pixels as one dimension, and all columns."""
        groups = [[at] for at, loop in enumerate(loops) if loop not in self.units]
        for group in self.groups:
            places = [loops.index(loop) for loop in group if loop in loops]
            if not places:
                continue
            if len(places) < len(group) or not self._is_compact(value, places):
                what = "pixels of all images" if group == self.filter.rows else "taps of the filter"
                _decline(f"expected the {what} one after another, got {value.type}")
            groups = [places if each[0] == places[0] else each for each in groups if each[0] not in places[1:]]
        # What stands before a dimension of one tap, or the first, has it too.
        ends = [*(group[0] for group in groups[1:]), len(loops)]
        groups = [[*range(begin, end)] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        if len(groups) == len(loops):
            return value
        if value not in self.made:
            self.made[value] = self.builder.insert(collapse(value, groups)).result
        return self.made[value]

    @staticmethod
    def _is_compact(value: SSAValue, places: Sequence[int]) -> bool:
        """Whether consecutive dimensions of memory have no gaps between them."""
        kind = memory_of(value)
        steps = strides_of(kind) or (None,) * kind.get_num_dims()
        return all(
            after == before + 1 and (step := steps[after]) is not None
            and steps[before] == step * kind.get_shape()[after]
            for before, after in pairwise(places)
        )  # fmt: skip

    def epilogue(self) -> SSAValue | None:
        """The epilogue by the loops of the new product."""
        before = self.op.epilogue
        if before is None:
            return None
        body, inputs = before.body.clone(), list[tuple[SSAValue, AffineMap]]()
        for inner in [inner for inner in body.block.ops if isinstance(inner, IndexOp)]:
            if inner.number not in self.numbers or any(inner.number in group for group in self.groups):
                _decline("its epilogue asks for the place of a pixel")
            Rewriter.replace_op(inner, IndexOp(self.numbers[inner.number]))
        for value, map_ in before.placed:
            loops = loops_of(map_)
            inputs.append((self.as_rows(value, loops) if loops else value, self.along(loops)))
        made = self.builder.insert(PointwiseOp(inputs, body))
        made.function.name_hint, made.location = before.function.name_hint, before.location
        return made.function

    def build(self) -> MatmulOp:
        """The product over all pixels."""
        op, (map_a, map_b, map_d) = self.op, map(loops_of, self.op.maps)
        images = self.images(), [*self.taps, self.filter.rows[-1], self.filter.channel]
        sides = [(self.as_rows(value, loops), loops) for value, loops in ((op.a, map_a), (op.b, map_b))
                 if value is not self.window.result]  # fmt: skip
        (a, of_a), (b, of_b) = (images, *sides) if self.side == 0 else (*sides, images)
        start = op.init if op.c is None else self.as_rows(op.c, map_d)
        maps = [self.along(loops) for loops in (of_a, of_b, map_d)]
        return op.like(a=a, b=b, d=self.as_rows(op.d, map_d), start=start, maps=maps, through=self.epilogue())


class Widened:
    """The same product, of images whose pixels contain the channels of all taps of a filter row.

    Tensor copies cannot read rows of a few channels, such as three colours. So the images are copied to pixels of
    `beside` channels, a power of two. The taps of a row are then contiguous: `along` elements, which begin at a
    multiple of 16 bytes for each pixel of the result. These wide pixels overlap.
    """

    def __init__(self, op: MatmulOp, window: WindowOp, filter_: Filter) -> None:
        self.op, self.window, self.filter = op, window, filter_
        self.builder = Builder(InsertPoint.before(op))
        padded = Padded.of(window.memory, op)
        self.padded = padded if padded is not None and padded.copy is not None else None
        (self.pixel, self.step, self.width), (self.tap, _, taps) = filter_.pixels[-1], filter_.taps[-1]
        channels = memory_of(window.memory).get_shape()[-1]
        self.beside = next(each for each in (1, 2, 4, 8) if each >= channels and self.step * each % ALIGNED == 0)
        self.along = taps * self.beside

    @staticmethod
    def of(op: MatmulOp, window: WindowOp) -> Widened | None:
        """The widened product; None if the images do not need it, or if the filter's channels are not contiguous with
        its taps."""
        filter_, loops = Filter.of(op, window, 0), loops_of(op.maps[1])
        tap, dilation, _ = filter_.taps[-1]
        adjacent = tap in loops and loops[loops.index(tap) :][:2] == (tap, filter_.channel)
        few = memory_of(window.memory).get_shape()[-1] < ALIGNED
        return Widened(op, window, filter_) if few and adjacent and dilation == 1 and not any(filter_.first) else None

    def replace(self) -> tuple[MatmulOp, WindowOp]:
        """Puts the product in the place of the other one."""
        images = self._images()
        made = self.op.like(a=images.result, b=self._weights())
        made.attributes |= self.op.attributes
        through = self.op.through
        Rewriter.replace_op(self.op, made, [])
        drop_forms([through])
        drop_unused(self.window.result)
        if self.padded is not None:
            self.padded.drop_unused(self.padded.images())
        return made, images

    def _images(self) -> WindowOp:
        *outer, size, _ = memory_of(self.window.memory).get_shape()
        needed = max(size * self.beside, (self.width - 1) * self.step * self.beside + self.along)
        rounded = -(-needed // ALIGNED) * ALIGNED // self.beside
        source, low = (self.window.memory, ()) if self.padded is None else (self.padded.images(), self.padded.low)
        copied, rank = self._among_zeros(source, [*outer, rounded, self.beside], low), len(outer) + 2
        rows = self.builder.insert(collapse(copied, [*([d] for d in range(rank - 2)), [rank - 2, rank - 1]])).result
        *own, pixel, element = map(AffineDimExpr, range(rank))
        over = AffineMap(rank, 0, (*own, pixel * (self.step * self.beside) + element))
        seen = self.builder.insert(WindowOp(rows, over, [*outer, self.width, self.along])).result
        loops, forms = loops_of(self.op.maps[0]), self.window.along
        sizes = dict(zip(loops, memory_of(self.window.result).get_shape(), strict=True))
        sizes |= {self.tap: 1, self.filter.channel: self.along}
        pixel, tap = (AffineDimExpr(loops.index(loop)) for loop in (self.pixel, self.tap))
        along = AffineMap(forms.num_dims, 0, (*forms.results[:-2], pixel + tap, forms.results[-1]))
        return self.builder.insert(WindowOp(seen, along, [sizes[loop] for loop in loops]))

    def _weights(self) -> SSAValue:
        """The filter with one tap in a row, of all its channels."""
        sizes, at = [*memory_of(self.op.b).get_shape()], loops_of(self.op.maps[1]).index(self.tap)
        sizes[at : at + 2] = -(-self.along // ALIGNED) * ALIGNED // self.beside, self.beside
        copied, places = self._among_zeros(self.op.b, sizes), [[d] for d in range(len(sizes))]
        flat = self.builder.insert(collapse(copied, [*places[:at], [at, at + 1], *places[at + 2 :]])).result
        parts = [[size] for size in memory_of(flat).get_shape()]
        parts[at].insert(0, 1)
        padded = self.builder.insert(expand(flat, parts)).result
        # Zeros behind the last tap would meet pixels that no tap reads, which may be no numbers.
        sizes[at : at + 2] = 1, self.along
        return self.builder.insert(_part(padded, [0] * len(sizes), sizes)).result

    def _among_zeros(self, source: SSAValue, shape: Sequence[int], low: Sequence[int] = ()) -> SSAValue:
        """A copy of memory inside of larger memory of zeros. Images begin `low` pixels after its start."""
        kind, first = memory_of(source), [0, *(low or [0] * (len(shape) - 2)), 0]
        larger = self.builder.insert(memref.AllocOp([], [], MemRefType(kind.element_type, shape))).memref
        zero = FloatAttr(0.0, kind.element_type)  # pyright: ignore[reportArgumentType, reportCallIssue]
        self.builder.insert(FillOp([self.builder.insert(arith.ConstantOp(zero)).result], [larger], []))
        part = self.builder.insert(_part(larger, first, kind.get_shape())).result
        self.builder.insert(CopyOp([source], [part], []))
        return larger


def _part(memory: SSAValue, first: Sequence[int], sizes: Sequence[int]) -> memref.SubviewOp:
    """A part of memory of these sizes."""
    steps = [1] * len(sizes)
    return memref.SubviewOp.from_static_parameters(memory, memory_of(memory), first, sizes, steps)


class FlattenPixels(RewritePattern):
    """Makes the pixels of all images the rows of one matrix, if warpgroups multiply it."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MatmulOp, rewriter: PatternRewriter) -> None:
        side = next((side for side, value in enumerate(op.a_and_b) if isinstance(value.owner, WindowOp)), 0)
        window = op.a_and_b[side].owner
        if not isinstance(window, WindowOp) or not multiplies_images(op, *op.matrices):
            return
        try:
            if side == 0 and (wider := Widened.of(op, window)) is not None:
                op, window = wider.replace()
                rewriter = PatternRewriter(op)
            flat, made = self._flattened(op, window, side)
        except (NotFlatError, VerifyException) as error:
            if runs_backwards(window.along):
                fail(op, f"only tensor copies read pixels backwards: {error}")
            remark(op, Im2colPass.name, f"it stays a product in each row of pixels: {error}")
            return
        through, images = op.through, window.result
        chose(op, Im2colPass.name, f"copies read the pixels of its {'AB'[side]} out of images")
        rewriter.replace(op, made, [])
        drop_forms([through])
        drop_unused(images)
        if flat.padded is not None:
            flat.padded.drop_unused(flat.memory)

    @staticmethod
    def _flattened(op: MatmulOp, window: WindowOp, side: int) -> tuple[Flattened, MatmulOp]:
        """The product over all pixels, with contiguous taps if possible, otherwise with separate ones.

        Raises:
            NotFlatError: if neither is possible, with the reason for contiguous taps.
        """
        before, errors = op.prev_op, list[Exception]()
        for joined in (True, False):
            flat = None
            try:
                flat = Flattened(op, window, side, joined=joined)
                return flat, flat.build()
            except (NotFlatError, VerifyException) as error:
                errors.append(error)
                while (unused := op.prev_op) is not None and unused is not before:
                    Rewriter.erase_op(unused)
                if flat is not None:
                    drop_unused(flat.memory)
        raise errors[0]


class FoldPadding(RewritePattern):
    """Lets a sum over windows read images where they are, not copied among zeros."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
        windows = WindowSum.of(op)
        padded = None if windows is None or PADDING in op.attributes else Padded.of(windows.image.value, op)
        if windows is None or padded is None:
            return
        images = padded.images()
        op.operands[list(op.operands).index(windows.image.value)] = images
        op.attributes[PADDING] = DenseArrayBase.from_list(i64, [0, *padded.low, 0])
        padded.drop_unused(images)


class Im2colPass(ModulePass):
    """Makes one product over all pixels of a convolution that warpgroups multiply (sm_90a). Its A are matrices of
    `warp.im2col`, one for each tap of the filter. Zeros around the images need no memory."""

    name = "warp-im2col"
    needs = ("warp.window",)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        # The last first: what a product writes may be what the next one reads, without the zeros around it.
        apply_patterns([FlattenPixels()], op, reverse=True)
