"""How a convolution reads images: the loops of its window, and zeros around the images that need no memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

from xdsl.builder import Builder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, DenseArrayBase, MemRefType, StringAttr, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import CopyOp, FillOp, GenericOp, IndexOp, YieldOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.tensor_map import MAX_RANK
from ...dialect.mlir.affine import FIXED, Nest, expression_of, generic, loops_of, steps_of, strides_of, windows
from ...dialect.warp.attributes import ScheduleAttr, memory_of, type_name
from ...dialect.warp.matmul import BY_ELEMENT, PADDED, MatmulOp
from ...dialect.warp.tensor_maps import Im2colOp
from ...dialect.warp.views import WindowOp
from ..patterns import IndexBuilder, float_value, operations_between, rewrite_pattern
from .memory_uses import decline, touched
from .operand import collapse, drop_unused, groups_of, root, users_of
from .tensors import LinalgBuilder
from .window_sums import PADDING, WindowSum

ALIGNED = 8
"""Elements of 16 bits in the 16 bytes that places of a tensor map are multiples of."""

PANEL = 64
"""Channels that the matrices of taps must have a multiple of to lie side by side: of a box, which is of one tap."""

NO_TAP = -1, 1, 1
"""The loop, step and size of taps along a dimension that has one alone."""


class Filter(NamedTuple):
    """How a window moves over images: the loop of images; for each dimension of pixels, the loops of pixels and of
    taps, each with its stride in the images and its size; the loop of channels, and that of their groups, `FIXED` if
    they are one group; the first pixel. Images and pixels are those of the result. If the filter is the result, they
    are reduction loops."""

    image: int
    pixels: list[tuple[int, int, int]]
    taps: list[tuple[int, int, int]]

    channel: int
    group: int
    first: list[int]

    @staticmethod
    def of(op: MatmulOp, window: WindowOp, side: int) -> Filter:
        """How the A, or the B, of a product does. Raises NotFusedError if it does otherwise."""
        forms, loops = windows(window.along), loops_of(op.maps[side])
        sizes = dict(zip(loops, memory_of(window.result).get_shape(), strict=True))
        if forms is None or not 3 <= len(forms) <= MAX_RANK or forms[0][1] or forms[-1][1]:
            decline(f"expected images, pixels and channels, got {window.along}")
        along = [{loops[place]: factor for place, factor in by.items()} for by, _ in forms]
        group = _group(along[-2], op, side)
        if group != FIXED:
            del along[-2], forms[-2]
        first, *middle, last = along
        if [*first.values(), *last.values()] != [1, 1]:
            decline(f"expected images first and channels last, got {window.along}")
        (image,), (channel,), written = first, last, set(loops_of(op.maps[2]))
        pixels, taps = (
            [[(loop, by[loop], sizes[loop]) for loop in by if ((loop in written) == (image in written)) == shared]
             for by in middle]
            for shared in (True, False)
        )  # fmt: skip
        if any(len(each) != 1 for each in pixels) or any(len(each) > 1 for each in taps):
            decline(f"expected a loop of pixels and one of taps along each dimension, got {window.along}")
        first_taps = [offset for _, offset in forms[1:-1]]
        taps = [each[0] if each else NO_TAP for each in taps]
        return Filter(image, [each for (each,) in pixels], taps, channel, group, first_taps)

    @property
    def rows(self) -> tuple[int, ...]:
        """The loops that become the rows of one matrix."""
        return self.image, *(loop for loop, _, _ in self.pixels)

    @property
    def columns(self) -> tuple[int, ...]:
        """The loops of its columns, of all taps side by side."""
        return *(loop for loop, _, _ in self.taps if loop >= 0), self.channel

    def made(self, images: SSAValue, low: Sequence[int], groups: int, *, joined: bool) -> Im2colOp:
        """The matrices of images that begin `low` pixels before the first tap; for one tap the matrix of that one."""
        (_, steps, pixels), (_, dilations, taps) = zip(*self.pixels, strict=True), zip(*self.taps, strict=True)
        low = [by - first for by, first in zip(low, self.first, strict=True)]
        return Im2colOp(images, taps, pixels, steps, dilations, low, joined=joined, groups=groups)


class ImageProduct:
    """A product whose A, or B by `side`, is a `window` of images with so many `channels`. `sizes` are those of the
    window's `loops`; it is the gradient of a filter if that is the result. Raises NotFusedError if the window moves
    otherwise than that of a convolution."""

    def __init__(self, op: MatmulOp, window: WindowOp, side: int) -> None:
        self.op, self.window, self.side, self.filter = op, window, side, Filter.of(op, window, side)
        self.builder, self.loops = LinalgBuilder(op), loops_of(op.maps[side])
        self.sizes = dict(zip(self.loops, memory_of(window.result).get_shape(), strict=True))
        self.channels = memory_of(window.memory).get_shape()[-1]
        self.is_gradient = self.filter.image not in loops_of(op.maps[2])


def _group(along: Mapping[int, int], op: MatmulOp, side: int) -> int:
    """The loop of groups of channels, of which all operands have one: that of a dimension of images; else `FIXED`."""
    loop = next(iter(along)) if list(along.values()) == [1] else FIXED
    return loop if loop in loops_of(op.maps[2]) and loop in loops_of(op.maps[1 - side]) else FIXED


def unshaped(memory: SSAValue, kept: int) -> SSAValue:
    """The memory that a value is another shape of, but for the first `kept` dimensions, which are the same."""
    while isinstance(op := memory.owner, memref.ExpandShapeOp | memref.CollapseShapeOp):
        if any(len(group) > 1 for group in groups_of(op)[:kept]):
            break
        memory = op.src
    return memory


def are_contiguous(value: SSAValue, places: Sequence[int]) -> bool:
    """Whether consecutive dimensions of memory have no gaps between them."""
    kind = memory_of(value)
    steps = strides_of(kind) or (None,) * kind.get_num_dims()
    return all(
        after == before + 1 and (step := steps[after]) is not None
        and steps[before] == step * kind.get_shape()[after]
        for before, after in pairwise(places)
    )  # fmt: skip


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
        if not (ordered and reads and plain and float_value(fill.inputs[0]) == 0):
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


@rewrite_pattern
def fold_padding(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Lets a sum over windows read images where they are, not copied among zeros."""
    windows = WindowSum.of(op)
    padded = None if windows is None or PADDING in op.attributes else Padded.of(windows.image.value, op)
    if windows is None or padded is None:
        return
    images = padded.images()
    op.operands[list(op.operands).index(windows.image.value)] = images
    op.attributes[PADDING] = DenseArrayBase.from_list(i64, [0, *padded.low, 0])
    padded.drop_unused(images)


class Padding(NamedTuple):
    """What the attribute `PADDED` of a product says: of which operand a window is ("a" or "b"), and where along its
    loops it lies in the images, whose ends it passes, by dimension with their size; how far from the start of the
    images its first element is, and how many channels of each tap the columns of the operand have."""

    role: str
    ends: list[tuple[AffineExpr, Mapping[int, int], int]]
    first: int
    together: int

    @staticmethod
    def of(op: MatmulOp) -> Padding | None:
        """The padding that a product has as an attribute."""
        match op.attributes.get(PADDED):
            case ArrayAttr(data=(StringAttr(data=role), AffineMapAttr(data=along), numbers)) if isinstance(
                numbers, DenseArrayBase
            ):
                first, together, *sizes = map(int, numbers.get_values())
                factors = (by for by, _ in windows(along, padded=True) or ())
                return Padding(role, list(zip(along.results, factors, sizes, strict=True)), first, together)
            case _:
                return None


@rewrite_pattern
def pad_window(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """Lets a product whose tiles threads copy read the window of its images where they are, not copied among zeros.
    Every copy of a tile then asks which pixels there are. Of more than `LARGEST_GATHERED` bytes that is faster only
    where channels lie together, and each tile is copied once for each tap (H100, 3x3, microseconds: 64 to 64 channels
    last 95.9 for 108.5, 256 to 256 of them 287 for 233, 64 to 64 first 646 for 456)."""
    schedule = op.attributes.get(ScheduleAttr.name)
    if op.tile or not isinstance(schedule, ScheduleAttr) or schedule.data.together > 1 or op.forms != (None, None):
        return
    for side, value in enumerate(op.a_and_b):
        joined = value.owner if isinstance(value.owner, memref.CollapseShapeOp) else None
        window = value.owner if joined is None else joined.src.owner
        if isinstance(window, WindowOp) and value.has_one_use() and window.result.has_one_use():
            other = memory_of(op.a_and_b[1 - side]).get_shape()
            features = other[loops_of(op.maps[1 - side]).index(op.outer + 1 - side)]
            once = joined is not None and features <= schedule.data.cta[1 - side]
            if once or 0 < _bytes(window.memory) <= LARGEST_GATHERED:
                _pad(op, rewriter, side, window, joined)


def _pad(
    op: MatmulOp, rewriter: PatternRewriter, side: int, window: WindowOp, joined: memref.CollapseShapeOp | None
) -> None:
    padded, shape = Padded.of(window.memory, op, (0,)), memory_of(window.result).get_shape()
    last, groups = len(shape) - 1, [] if joined is None else groups_of(joined)
    *kept, taps = groups or [[last]]
    if padded is None or padded.copy is None or min(shape) < 0 or (groups and [*kept, taps] != [
        *([d] for d in range(last - 1)), [last - 1, last]]):  # fmt: skip
        return
    images, forms, low = padded.copy.inputs[0], windows(window.along) or (), (0, *padded.low)
    moved = [(by, at - before) for (by, at), before in zip(forms, low, strict=True)]
    along, sizes = AffineMap(len(shape), 0, tuple(map(expression_of, moved))), memory_of(images).get_shape()
    _, first = steps_of(along, strides_of(memory_of(images)) or ())
    passed = [d for d, (by, at) in enumerate(moved)
              if at < 0 or at + sum(factor * (shape[i] - 1) for i, factor in by.items()) >= sizes[d]]  # fmt: skip
    if first is None or any(last in moved[d][0] for d in passed if groups):
        return
    if groups and loops_of(op.maps[side])[last - 1] < op.outer:
        return  # taps of several dimensions as one loop, and no columns
    numbers = [first, shape[-1] if groups else 1, *(sizes[d] for d in passed)]
    around = AffineMapAttr(AffineMap(len(shape), 0, tuple(along.results[d] for d in passed)))
    op.attributes[PADDED] = ArrayAttr([StringAttr("ab"[side]), around, DenseArrayBase.from_list(i64, numbers)])
    made = rewriter.insert(WindowOp(images, along, shape, padded=True), InsertPoint.before(op)).result
    old, op.operands[side] = op.a_and_b[side], rewriter.insert(collapse(made, groups)).result if groups else made
    drop_unused(old)
    padded.drop_unused(images)


GATHERED = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i8": 1, "i32": 4, "i64": 8}
"""The bytes of elements that threads load at places that they compute."""

LARGEST_GATHERED = 1 << 21
"""Bytes of memory whose parts are written at once. Each thread writes one element: of larger memory, copies are faster
than the launches that they take (H100: 2 MiB 8.7 microseconds against 9.7, 4 MiB 13.5 against 10.7)."""


class WrittenView(NamedTuple):
    """A part of memory that a copy writes: the view, and how far from the start and how long it is."""

    copy: CopyOp
    view: memref.SubviewOp
    offsets: Sequence[int]
    sizes: Sequence[int]

    @staticmethod
    def of(view: Operation, last: Operation) -> WrittenView | None:
        """The part that a view is, if one copy of unchanged memory writes it, in the block of `last`."""
        if not isinstance(view, memref.SubviewOp) or not view.result.has_one_use():
            return None
        (use,), (offsets, sizes, steps) = view.result.uses, (
            [*each.get_values()] for each in (view.static_offsets, view.static_sizes, view.static_strides)
        )  # fmt: skip
        copy, source = use.operation, memory_of(view.source)
        if not isinstance(copy, CopyOp) or use.index != 1 or copy.parent is not last.parent:
            return None
        kinds = {*map(type_name, (source.element_type, memory_of(copy.inputs[0]).element_type))}
        plain = set(steps) == {1} and min(*offsets, *sizes) >= 0 and len(kinds) == 1 and kinds.issubset(GATHERED)
        stays = plain and root(copy.inputs[0]) != root(view.source) and (copy is last or _stays(copy, last))
        return WrittenView(copy, view, offsets, sizes) if stays and len(sizes) == source.get_num_dims() else None

    def put(self, index: IndexBuilder, loops: Sequence[SSAValue], element: SSAValue) -> SSAValue:
        """The element at these indices of the memory: that of the part, or else another one."""
        shape = memory_of(self.view.source).get_shape()
        inside: SSAValue | None = None
        places = list[SSAValue]()
        for loop, offset, size, length in zip(loops, self.offsets, self.sizes, shape, strict=True):
            places.append(index.insert(arith.SubiOp(loop, index.value(offset))).result if offset else loop)
            if size != length:
                among = index.insert(arith.CmpiOp(places[-1], index.value(size), "ult")).result
                inside = among if inside is None else index.insert(arith.AndIOp(inside, among)).result
        if inside is not None:
            of_start = index.value(0)
            places = [index.insert(arith.SelectOp(inside, place, of_start)).result for place in places]
        loaded = index.insert(memref.LoadOp.get(self.copy.inputs[0], places)).res
        return loaded if inside is None else index.insert(arith.SelectOp(inside, loaded, element)).result


def _bytes(memory: SSAValue) -> int:
    """The bytes of memory of known size; 0 or less of other memory."""
    kind = memory_of(memory)
    return min(1, *kind.get_shape()) * prod(map(abs, kind.get_shape())) * GATHERED.get(type_name(kind.element_type), 0)


@rewrite_pattern
def gather_parts(op: CopyOp, rewriter: PatternRewriter) -> None:
    """Writes memory of a number that has copied parts in it at once: each thread computes the place of its element in
    its part. The fill and the copies would be launches that depend on each other."""
    memory = op.outputs[0].owner.source if isinstance(op.outputs[0].owner, memref.SubviewOp) else None
    if memory is None or root(memory) != memory or not 0 < _bytes(memory) <= LARGEST_GATHERED:
        return
    fills = [use.operation for use in memory.uses if isinstance(use.operation, FillOp)]
    parts = [part for use in memory.uses if (part := WrittenView.of(use.operation, op)) is not None]
    parts.sort(key=lambda part: -len(operations_between(part.copy, op) or ()))
    writers = [*fills, *(part.copy for part in parts)]
    between = operations_between(writers[0], op) if len(writers) > 1 and writers[-1] is op else None
    others = users_of(memory) - {*writers}
    if between is None or len(fills) != 1 or any(inner in others for each in between for inner in each.walk()):
        return
    rewriter.insert(_gathered(op, memory, fills[0].inputs[0], parts), InsertPoint.before(op))
    for writer in writers:
        rewriter.erase(writer)
    for part in parts:
        drop_unused(part.view.result)


def _gathered(op: CopyOp, memory: SSAValue, element: SSAValue, parts: Sequence[WrittenView]) -> GenericOp:
    """The operation that writes what a fill of elements and copies did; the last of them counts."""
    kind = memory_of(memory)
    block = Block(arg_types=[kind.element_type])
    index = IndexBuilder(Builder(InsertPoint.at_end(block)))
    loops = [index.insert(IndexOp(dimension)).result for dimension in range(kind.get_num_dims())]
    for part in parts:
        element = part.put(index, loops, element)
    index.insert(YieldOp(element))
    return generic(op, [], [memory], Region(block), [AffineMap.identity(len(loops))])
