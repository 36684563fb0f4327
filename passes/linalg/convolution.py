"""`warp-im2col`: convolutions as products over all pixels, whose A tensor copies read out of images.

A convolution is raised as a product in each row of pixels, of a window of the images. Warpgroups multiply larger tiles:
here the pixels of all rows and images become the rows of one matrix for each tap of the filter, `warp.im2col`. Copies
in im2col mode read it, with zeros around the images, so that images which were copied to larger memory of zeros are
read where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple, NoReturn

from xdsl.builder import Builder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import FloatAttr
from xdsl.dialects.linalg.ops import CopyOp, FillOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.isa.tensor_map import MOST_RANK, MOST_STEP, most_offset
from ...dialect.isa.wgmma import UNIT
from ...dialect.mlir.affine import loops_of, map_along, windows
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import IndexOp, K, M, PointwiseOp
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operands import drop_forms
from ...dialect.warp.tensor_maps import Im2colOp
from ...dialect.warp.views import WindowOp, strides_of
from ..diagnostics import chose, remark
from ..patterns import PatternPass
from .contraction import multiplies_images
from .fuse_epilogue import touched
from .operand import collapse, drop_unused, pitch, root, users_of

NO_TAP = -1, 1, 1
"""The loop, step and size of taps along a dimension that has one alone."""


class NotFlatError(Exception):
    """Why the pixels of a convolution are not the rows of one matrix."""


def _decline(reason: str) -> NoReturn:
    raise NotFlatError(reason)


class Filter(NamedTuple):
    """How a window goes through images: the loop of images; along each dimension of pixels the loop of pixels and that
    of taps, each with its step in the images and its size."""

    image: int
    pixels: list[tuple[int, int, int]]
    taps: list[tuple[int, int, int]]

    @staticmethod
    def of(op: MatmulOp, window: WindowOp) -> Filter:
        """How the A of a product does.

        Raises:
            NotFlatError: if it does otherwise.
        """
        forms, loops = windows(window.along), loops_of(op.maps[0])
        sizes = dict(zip(loops, memory_of(window.result).get_shape(), strict=True))
        written, k = set(loops_of(op.maps[2])), op.outer + K
        if forms is None or not 3 <= len(forms) <= MOST_RANK or any(offset for _, offset in forms):
            _decline(f"expected images, pixels and channels, got {window.along}")
        along = [{loops[place]: factor for place, factor in by.items()} for by, _ in forms]
        first, *middle, last = along
        if list(last.items()) != [(k, 1)] or list(first.values()) != [1] or not written.issuperset(first):
            _decline(f"expected images first and channels last, got {window.along}")
        pixels, taps = (
            [[(loop, by[loop], sizes[loop]) for loop in by if (loop in written) == kept] for by in middle]
            for kept in (True, False)
        )
        if any(len(each) != 1 for each in pixels) or any(len(each) > 1 for each in taps):
            _decline(f"expected a loop of pixels and one of taps along each dimension, got {window.along}")
        return Filter(next(iter(first)), [each for (each,) in pixels], [each[0] if each else NO_TAP for each in taps])

    @property
    def rows(self) -> tuple[int, ...]:
        """The loops that become the rows of one matrix."""
        return self.image, *(loop for loop, _, _ in self.pixels)

    def made(self, images: SSAValue, low: Sequence[int]) -> Im2colOp:
        """The matrices of images that begin so far behind the first tap."""
        (_, steps, pixels), (_, dilations, taps) = zip(*self.pixels, strict=True), zip(*self.taps, strict=True)
        return Im2colOp(images, taps, pixels, steps, dilations, low)


class Padded(NamedTuple):
    """Images in larger memory of zeros: what fills that, what copies them there, and how far behind its start."""

    memory: SSAValue
    fill: FillOp
    copy: CopyOp
    low: tuple[int, ...]

    @staticmethod
    def of(memory: SSAValue, reader: Operation) -> Padded | None:
        """The images that a product reads out of an allocation; None if it reads others."""
        users = users_of(memory)
        fill = next((op for op in users if isinstance(op, FillOp)), None)
        copy = next((op for op in users if isinstance(op, CopyOp)), None)
        others = users - {fill, copy}
        if not isinstance(memory.owner, memref.AllocOp) or fill is None or copy is None:
            return None
        view, block = copy.outputs[0].owner, reader.parent
        same = {op.parent for op in users} == {block} and fill.is_before_in_block(copy)
        if not same or not all(isinstance(op, MatmulOp) and root(op.d) != memory for op in others):
            return None
        if not _is_zero(fill.inputs[0]) or fill.outputs[0] != memory or not isinstance(view, memref.SubviewOp):
            return None
        offsets, sizes, steps = (
            list(each.get_values()) for each in (view.static_offsets, view.static_sizes, view.static_strides)
        )
        whole, source = memory_of(memory).get_shape(), memory_of(copy.inputs[0])
        inner = [size for at, size in enumerate(whole) if at in (0, len(whole) - 1)] == [sizes[0], sizes[-1]]
        known = view.source == memory and min(*offsets, *sizes) >= 0 and set(steps) == {1}
        if not known or not inner or source.get_shape() != tuple(sizes) or strides_of(source) is None:
            return None
        op, images = copy.next_op, root(copy.inputs[0])
        while op is not None and op is not reader:
            found = touched(op)
            if found is None or images in found[1]:
                return None
            op = op.next_op
        return None if op is None else Padded(memory, fill, copy, tuple(offsets[1:-1]))

    def drop_unused(self) -> None:
        """Erases the copy if nothing reads it any more."""
        if users_of(self.memory) == {self.fill, self.copy}:
            view = self.copy.outputs[0]
            Rewriter.erase_op(self.copy)
            Rewriter.erase_op(self.fill)
            drop_unused(view)
            drop_unused(self.memory)


def _is_zero(value: SSAValue) -> bool:
    made = value.owner
    return isinstance(made, arith.ConstantOp) and isinstance(made.value, FloatAttr) and not made.value.value.data


class Flattened:
    """A product over all pixels in the place of one in each row of pixels.

    Raises:
        NotFlatError: if an operand does not lie so.
    """

    def __init__(self, op: MatmulOp, window: WindowOp) -> None:
        self.op, self.window, self.filter = op, window, Filter.of(op, window)
        self.builder = Builder(InsertPoint.before(op))
        self.padded = Padded.of(window.memory, op)
        self.made = dict[SSAValue, SSAValue]()
        rows, taps = self.filter.rows, [loop for loop, _, _ in self.filter.taps if loop >= 0]
        if rows[-1] != op.outer + M:
            _decline(f"expected rows of A along the last dimension of pixels, got {op.maps[0]}")
        kept = [loop for loop in range(op.batch) if loop not in rows]
        if sorted(taps) != list(range(op.batch, op.outer)) or kept:
            _decline("it is a batch, or summed over more than the taps of a filter")
        self.taps = taps if prod(size for _, _, size in self.filter.taps) > 1 else []
        order = [*self.taps, op.outer + M, *(op.outer + loop for loop in range(1, 3))]
        self.numbers: Mapping[int, int] = {loop: number for number, loop in enumerate(order)}

    def along(self, loops: Sequence[int]) -> AffineMap:
        """The map of an operand along these loops of the old product, all pixels as one."""
        kept = [loop for loop in loops if loop in self.numbers]
        return map_along(len(self.numbers), [self.numbers[loop] for loop in kept])

    def images(self) -> SSAValue:
        """A: the matrices of the images or, if each pixel is read once, the images as a matrix."""
        memory = self.window.memory if self.padded is None else self.padded.copy.inputs[0]
        made = self.filter.made(memory, self.padded.low if self.padded else [0] * len(self.filter.taps))
        made.verify()
        kind, (taps, pixels, steps, dilations, low) = memory_of(memory), made.numbers
        *places, last = range(rank := kind.get_num_dims())
        plain = max(*taps, *steps) == 1 and not any(low) and kind.get_shape()[1:-1] == pixels
        if plain and self._is_compact(memory, places):
            return self.builder.insert(collapse(memory, [places, [last]])).result
        most, offsets = most_offset(rank), [(size - 1) * by for size, by in zip(taps, dilations, strict=True)]
        if max(steps) > MOST_STEP or max(offsets) > most:
            _decline(f"a copy steps over at most {MOST_STEP} pixels, {most} in the filter")
        if problem := made.box(UNIT, UNIT).reversed().problem(kind.get_shape()[::-1]):
            _decline(problem)
        if pitch(kind, last, 1) * 2 % UNIT or (strides_of(kind) or ())[-1:] != (1,):
            _decline(f"expected channels that lie side by side, in rows that are multiples of {UNIT} bytes, got {kind}")
        return self.builder.insert(made).matrix

    def weights(self) -> SSAValue:
        """B, without the dimensions of a filter of one tap."""
        b, loops = self.op.b, loops_of(self.op.maps[1])
        if all(loop in self.numbers for loop in loops):
            return b
        groups: list[list[int]] = [[]]
        for at, loop in enumerate(loops):
            groups[-1].append(at)
            if loop in self.numbers:
                groups.append([])
        if groups.pop():
            _decline("the taps of the filter lie behind its channels")
        return self.builder.insert(collapse(b, groups)).result

    def as_rows(self, value: SSAValue, loops: Sequence[int]) -> SSAValue:
        """Memory along these loops with all pixels as one dimension."""
        rows = self.filter.rows
        if set(rows).isdisjoint(loops):
            return value
        places = [loops.index(loop) for loop in rows if loop in loops]
        if len(places) < len(rows) or not self._is_compact(value, places):
            _decline(f"expected the pixels of all images one after another, got {value.type}")
        if value not in self.made:
            groups = [places if at == places[0] else [at] for at in range(len(loops)) if at not in places[1:]]
            self.made[value] = self.builder.insert(collapse(value, groups)).result
        return self.made[value]

    @staticmethod
    def _is_compact(value: SSAValue, places: Sequence[int]) -> bool:
        """Whether some dimensions of memory follow each other without gaps."""
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
            if inner.number not in self.numbers or inner.number in self.filter.rows:
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
        op, written = self.op, loops_of(self.op.maps[2])
        maps = [self.along([*self.taps, op.outer + M, op.outer + K]), *(self.along(loops_of(m)) for m in op.maps[1:])]
        a, b, d = self.images(), self.weights(), self.as_rows(op.d, written)
        start = op.init if op.c is None else self.as_rows(op.c, written)
        return op.like(a=a, b=b, d=d, start=start, maps=maps, through=self.epilogue())


class FlattenPixels(RewritePattern):
    """Makes the pixels of all images the rows of one matrix, if warpgroups multiply it."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MatmulOp, rewriter: PatternRewriter) -> None:
        window = op.a.owner
        if not isinstance(window, WindowOp) or not multiplies_images(op, *op.matrices):
            return
        before = op.prev_op
        try:
            flat = Flattened(op, window)
            made = flat.build()
        except (NotFlatError, VerifyException) as error:
            while (unused := op.prev_op) is not None and unused is not before:
                Rewriter.erase_op(unused)
            remark(op, Im2colPass.name, f"it stays a product in each row of pixels: {error}")
            return
        through, images = op.through, op.a
        chose(op, Im2colPass.name, "copies read the pixels of its A out of images")
        rewriter.replace(op, made, [])
        drop_forms([through])
        drop_unused(images)
        if flat.padded is not None:
            flat.padded.drop_unused()


class Im2colPass(PatternPass):
    """Makes one product over all pixels of a convolution that warpgroups multiply (sm_90a). Its A are matrices of
    `warp.im2col`, one for each tap of the filter. Zeros around the images need no memory."""

    name = "warp-im2col"
    needs = ("warp.window",)
    patterns = (FlattenPixels,)
