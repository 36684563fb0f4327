"""Convolutions of few channels, or of small groups of them, by copies of images and filters that tensor copies read."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import FloatAttr, MemRefType
from xdsl.dialects.linalg.ops import CopyOp, FillOp
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.affine import loops_of
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operands import drop_forms
from ...dialect.warp.views import WindowOp
from .image_windows import ALIGNED, Filter, Padded
from .operand import collapse, drop_unused, expand


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
