"""`warp-im2col`: convolutions as products over all pixels, whose A tensor copies read out of images.

A convolution is raised as a product in each row of pixels, of a window of the images. Warpgroups multiply larger tiles:
here the pixels of all rows and images become the rows of one matrix for each tap of the filter, `warp.im2col`. Copies
in im2col mode read it, with zeros around the images, so that images which were copied to larger memory of zeros are
read where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from xdsl.context import Context
from xdsl.dialects import memref
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.dialects.linalg.ops import CopyOp
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.isa.tensor_map import MAX_STEP, max_offset
from ...dialect.isa.wgmma import UNIT
from ...dialect.mlir.affine import FIXED, loops_of, map_along, runs_backwards, strides_of
from ...dialect.warp.attributes import BYTE, Memory, element_row, memory_of
from ...dialect.warp.elements import IndexOp
from ...dialect.warp.matmul import MatmulOp, drop_forms
from ...dialect.warp.tensor_maps import Im2colOp
from ...dialect.warp.views import WindowOp
from ..diagnostics import chose, fail, remark
from ..patterns import apply_patterns, rewrite_pattern
from .channels import Blocked, Widened
from .contraction import multiplies_images
from .image_windows import ALIGNED, PANEL, ImageProduct, Padded, are_contiguous, unshaped
from .memory_uses import NotFusedError, decline
from .operand import collapse, drop_unused, expand, part_of, pitch


class Flattened(ImageProduct):
    """A product over all pixels in the place of one in each row of pixels. Raises NotFusedError if an operand does not
    lie so."""

    def __init__(self, op: MatmulOp, window: WindowOp, side: int, *, joined: bool) -> None:
        super().__init__(op, window, side)
        self.outer = 1 + len(self.filter.pixels)
        base = unshaped(window.memory, self.outer)
        rank = memory_of(base).get_num_dims()
        self.padded = Padded.of(base, op, (0, *range(self.outer, rank)))
        self.made = dict[SSAValue, SSAValue]()
        (*_, row), columns, (m, n, k) = self.filter.rows, self.filter.columns, range(op.outer, op.outer + 3)
        alone = prod(size for _, _, size in self.filter.taps) == 1
        self.units = columns[:-1] if alone else ()
        self.joined = joined and self.channels % PANEL == 0
        self.groups = (self.filter.rows, columns) if self.joined and not alone else (self.filter.rows,)
        self.taps = [] if self.joined or alone else list(columns[:-1])
        own, other = (m, n) if side == 0 else (n, m)
        if columns[-1] == k and (side, self.is_gradient) == (0, False):
            order = [*self.taps, row, other, k]
        elif columns[-1] == own and self.is_gradient:
            order = [*self.taps, *((own, other) if side == 0 else (other, own)), row]
        else:
            decline(f"expected channels of the images along k, or pixels, got {op.maps[side]}")
        if len({*self.filter.rows, *columns, other, self.filter.group} - {FIXED}) != op.outer + 3:
            decline("it is a batch, or summed over more than the taps of a filter")
        self.group = [loop for loop in (self.filter.group,) if self.sizes.get(loop, 1) > 1]
        self.units += (self.filter.group,) if not self.group else ()
        order = [*self.group, *order]
        self.numbers: Mapping[int, int] = {loop: number for number, loop in enumerate(order)}
        self.memory = base if self.padded is None else self.padded.images()

    def along(self, loops: Sequence[int]) -> AffineMap:
        """The map of an operand along these loops of the old product, all pixels as one."""
        kept = [loop for loop in loops if loop in self.numbers]
        return map_along(len(self.numbers), [self.numbers[loop] for loop in kept])

    def images(self) -> tuple[SSAValue, list[int]]:
        """The matrices of the images or, if each pixel is read once, the images as a matrix; and their loops."""
        memory, groups, row = self.memory, 0, self.filter.rows[-1]
        *outer, first = range(memory_of(memory).get_num_dims())
        if first > self.outer:
            if not are_contiguous(memory, range(self.outer, first + 1)):
                decline(f"expected the channels of all groups side by side, got {memory.type}")
            places = [*([d] for d in outer[: self.outer]), [*range(self.outer, first + 1)]]
            memory = self.builder.insert(collapse(memory, places)).result
        memory = self._aligned(memory) if self.taps else memory
        if self.group:
            groups = memory_of(memory).get_shape()[-1] // self.channels
        low = self.padded.low if self.padded else [0] * len(self.filter.taps)
        made = self.builder.insert(self.filter.made(memory, low, groups, joined=self.joined))
        made.verify()
        kind, (taps, pixels, steps, dilations, low) = memory_of(memory), made.numbers
        *places, last = range(rank := kind.get_num_dims())
        plain = max(*taps, *steps) == 1 and not any(low) and kind.get_shape()[1:-1] == pixels
        if plain and are_contiguous(memory, places):
            flat = self.builder.insert(collapse(memory, [places, [last]])).result
            if self.group:
                parts = [[size] for size in memory_of(flat).get_shape()]
                parts[-1] = [groups, made.channels]
                flat = self.builder.insert(expand(flat, parts)).result
            Rewriter.erase_op(made)
            return flat, [row, *self.group, self.filter.channel]
        farthest, offsets = max_offset(rank), [(size - 1) * abs(by) for size, by in zip(taps, dilations, strict=True)]
        if max(steps) > MAX_STEP or max(offsets) > farthest:
            decline(f"a copy steps over at most {MAX_STEP} pixels, {farthest} in the filter")
        if problem := made.box(UNIT, UNIT).reversed().problem(kind.get_shape()[::-1]):
            decline(problem)
        if pitch(kind, last, 1) % ALIGNED or (strides_of(kind) or ())[-1:] != (1,):
            decline(f"expected channels that lie side by side, in rows that are multiples of {UNIT} bytes, got {kind}")
        return made.matrix, [*self.group, *self.taps, row, self.filter.channel]

    def as_rows(self, value: SSAValue, loops: Sequence[int]) -> SSAValue:
        """Memory along these loops, with all pixels as one dimension, and all columns."""
        groups = [[at] for at, loop in enumerate(loops) if loop not in self.units]
        for group in self.groups:
            places = [loops.index(loop) for loop in group if loop in loops]
            if not places:
                continue
            if len(places) < len(group) or not are_contiguous(value, places):
                what = "pixels of all images" if group == self.filter.rows else "taps of the filter"
                decline(f"expected the {what} one after another, got {value.type}")
            groups = [places if each[0] == places[0] else each for each in groups if each[0] not in places[1:]]
        # What stands before a dimension of one tap, or the first, has it too.
        ends = [*(group[0] for group in groups[1:]), len(loops)]
        groups = [[*range(begin, end)] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        if len(groups) == len(loops):
            return value
        if value not in self.made:
            self.made[value] = self.builder.insert(collapse(value, groups)).result
        return self.made[value]

    def _aligned(self, value: SSAValue) -> SSAValue:
        """Memory whose rows begin at multiples of 16 bytes, which tensor copies take, or one matrix, which the product
        packs where it must: a copy of other memory."""
        kind = memory_of(value)
        *outer, columns = shape = kind.get_shape()
        is_packed = len(outer) == 1 and columns > 1 and are_contiguous(value, (0, 1))
        if is_packed or pitch(kind, len(outer), 1) % ALIGNED == 0:
            return value
        rows = MemRefType(kind.element_type, [*outer, -(-columns // ALIGNED) * ALIGNED])
        made = self.builder.insert(memref.AllocOp([], [], rows)).memref
        part = self.builder.insert(part_of(made, [0] * len(shape), shape)).result
        self.builder.insert(CopyOp([value], [part], []))
        return part

    def epilogue(self) -> SSAValue | None:
        """The epilogue by the loops of the new product."""
        before = self.op.epilogue
        if before is None:
            return None
        asked = {inner.number for inner in before.body.block.ops if isinstance(inner, IndexOp)}
        if not asked <= set(self.numbers).difference(*self.groups):
            decline("its epilogue asks for the place of a pixel")
        inputs = list[tuple[SSAValue, AffineMap]]()
        for value, map_ in before.placed:
            loops = loops_of(map_)
            inputs.append((self.as_rows(value, loops) if loops else value, self.along(loops)))
        order = [self.numbers.get(loop, FIXED) for loop in range(self.op.maps[2].num_dims)]
        return self.builder.insert(before.moved(inputs, len(self.numbers), order)).function

    def build(self) -> MatmulOp:
        """The product over all pixels."""
        op, (map_a, map_b, map_d) = self.op, map(loops_of, self.op.maps)
        images = self.images()
        sides = [(self._aligned(self.as_rows(value, loops)), loops) for value, loops in ((op.a, map_a), (op.b, map_b))
                 if value is not self.window.result]  # fmt: skip
        (a, of_a), (b, of_b) = (images, *sides) if self.side == 0 else (*sides, images)
        start = op.init if op.c is None else self.as_rows(op.c, map_d)
        maps = [self.along(loops) for loops in (of_a, of_b, map_d)]
        through = self.epilogue()
        d = self._result(map_d)  # last, behind all that may decline: it may put a copy behind the product
        return op.like(a=a, b=b, d=d, start=start, indexing_maps=maps, through=through)

    def _result(self, loops: Sequence[int]) -> SSAValue:
        """The result by rows. Where pixels have others between them, copies write the matrix of images, or the result
        is memory of its own, which is copied."""
        places = [loops.index(loop) for loop in self.filter.rows if loop in loops]
        if are_contiguous(self.op.d, places) or self.op.c is not None:
            return self.as_rows(self.op.d, loops)
        kind = memory_of(self.op.d)
        if _is_boxed(kind) and [*places, len(loops) - 1] == [*range(len(loops))]:
            pixels, once = kind.get_shape()[1:-1], [1] * len(self.filter.pixels)
            return self.builder.insert(Im2colOp(self.op.d, once, pixels, once, once, [0] * len(once))).matrix
        made = memref.AllocOp([], [], MemRefType(kind.element_type, kind.get_shape()))
        rows = self.as_rows(self.builder.insert(made).memref, loops)
        Rewriter.insert_op(CopyOp([made.memref], [self.op.d], []), InsertPoint.after(self.op))
        return rows


def _is_boxed(images: Memory) -> bool:
    """Whether tensor copies write the pixels of images: channels that lie side by side, from multiples of 16 bytes."""
    *_, last = range(images.get_num_dims())
    element, steps = element_row(images.element_type), strides_of(images) or ()
    aligned = element is not None and not pitch(images, last, 1) * element.bits % (UNIT * BYTE)
    return aligned and element is not None and element.bits > BYTE and steps[-1:] == (1,)


@rewrite_pattern
def flatten_pixels(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """Makes the pixels of all images the rows of one matrix, if warpgroups multiply it."""
    side = next((side for side, value in enumerate(op.a_and_b) if isinstance(value.owner, WindowOp)), 0)
    window = op.a_and_b[side].owner
    if not isinstance(window, WindowOp) or not multiplies_images(op, *op.matrices):
        return
    try:
        for kind in (Blocked, Widened):
            if (changed := kind(op, window, side)).pays:
                op, window = changed.replace()
                rewriter = PatternRewriter(op)
                break
        flat, made = _flattened(op, window, side)
    except (NotFusedError, VerifyException) as error:
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


def _flattened(op: MatmulOp, window: WindowOp, side: int) -> tuple[Flattened, MatmulOp]:
    """The product over all pixels, with contiguous taps if possible, otherwise with separate ones. Raises
    NotFusedError if neither is possible, with the reason for contiguous taps."""
    before, errors = op.prev_op, list[Exception]()
    for joined in (True, False):
        flat = None
        try:
            flat = Flattened(op, window, side, joined=joined)
            return flat, flat.build()
        except (NotFusedError, VerifyException) as error:
            errors.append(error)
            while (unused := op.prev_op) is not None and unused is not before:
                Rewriter.erase_op(unused)
            if flat is not None:
                drop_unused(flat.memory)
    raise errors[0]


class Im2colPass(ModulePass):
    """Makes one product over all pixels of a convolution that warpgroups multiply (sm_90a). Its A are matrices of
    `warp.im2col`, one for each tap of the filter. Zeros around the images need no memory."""

    name = "warp-im2col"
    needs = ("warp.window",)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        # The last first: what a product writes may be what the next one reads, without the zeros around it.
        apply_patterns([flatten_pixels], op, reverse=True)
