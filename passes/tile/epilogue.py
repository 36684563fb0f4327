"""The accumulators before the first and after the last step: their initial value, and their way to memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from xdsl.dialects import memref
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, MemRefType, f32, f64, i64
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialect.layouts.layout import Layout
from ...dialect.warp.attributes import SHARED_SPACE, FragmentType, float_type, fragment_of
from ...dialect.warp.convert_layout import ConvertLayoutOp
from ...dialect.warp.elementwise import ConstantOp, ElementwiseOp, Kind
from ...dialect.warp.sliced_k import LANES, SumSlicedKOp, part_of
from ..diagnostics import fail
from ..linalg.operand import Operand
from ..schedule.staging import adds_last
from .index_builder import Index, IndexBuilder
from .matrix_load import converted, load
from .store_epilogue import store
from .tiling import Tiling


@dataclass(frozen=True)
class Epilogue:
    """What happens to the accumulators of a warp outside the K loop."""

    tiling: Tiling

    def initial(self, index: IndexBuilder, m: Index, n: Index) -> SSAValue:
        """The accumulators at the start: a constant, or what C holds; zero where it or slices come later."""
        acc, schedule = self.tiling.fragment("acc"), self.tiling.schedule
        if schedule.tile.sliced_k > 1 or adds_last(self.tiling.product, schedule):
            return self._constant(index, acc, 0.0)
        return self._start(index, acc, m, n)

    def _start(self, index: IndexBuilder, kind: FragmentType, m: Index, n: Index) -> SSAValue:
        """What the product is added to."""
        product = self.tiling.product
        if product.c is not None:
            return self._load(index, product.c, kind, m, n)
        start = product.initial or 0.0
        self._check_initial(start, kind)
        return self._constant(index, kind, start)

    @staticmethod
    def _constant(index: IndexBuilder, kind: FragmentType, value: float) -> SSAValue:
        element = kind.element
        number = FloatAttr(value, float_type(element)) if element.is_float else IntegerAttr(int(value), element.bits)
        return index.insert(ConstantOp(number, kind)).fragment

    def _load(self, index: IndexBuilder, c: Operand, acc: FragmentType, m: Index, n: Index) -> SSAValue:
        loaded = load(self.tiling, index, c, self.in_order(acc), m, n)
        return self.regrouped(index, converted(index, loaded, acc.element_type), acc.layout.data)

    def in_order(self, acc: FragmentType) -> FragmentType:
        """The accumulators as they meet memory: neighbours in a row follow each other in a lane."""
        return acc.with_layout(self.tiling.arrangement.stored)

    @staticmethod
    def regrouped(index: IndexBuilder, fragment: SSAValue, layout: Layout) -> SSAValue:
        """The fragment in another layout of the same lanes."""
        held = fragment_of(fragment).layout.data
        return fragment if held == layout else index.insert(ConvertLayoutOp.to(fragment, layout)).fragment

    def _check_initial(self, value: float, acc: FragmentType) -> None:
        """Refuses an initial value that the accumulators' type does not have, or only an infinity could stand for."""
        largest, op = acc.element.largest, self.tiling.product.op
        if abs(value) > largest and math.isfinite(value):
            fail(op, f"C starts from {value:g}, accumulators in {acc.element.name} hold up to {largest:g}")

    def finish(self, index: IndexBuilder, accumulator: SSAValue, m: Index, n: Index, place: Index = 0) -> None:
        """Stores the slice with the number `place` of D."""
        if self.tiling.schedule.tile.sliced_k > 1:
            accumulator, m, n = self._sum(index, accumulator, m, n, place)
        started = self.tiling.product.c is not None or self.tiling.product.initial
        if self.tiling.schedule.tile.sliced_k > 1 and started:
            start = self._start(index, fragment_of(accumulator), m, n)
            accumulator = index.insert(ElementwiseOp(Kind.Add, start, accumulator)).fragment
        self._end(index, accumulator, m, n)

    def _end(self, index: IndexBuilder, accumulator: SSAValue, m: Index, n: Index) -> None:
        """Stores the accumulators, rounded to the product's type, or what the epilogue makes of those."""
        accumulator = self.regrouped(index, accumulator, self.tiling.arrangement.stored)
        store(self.tiling, index, accumulator, m, n)

    def _sum(
        self, index: IndexBuilder, accumulator: SSAValue, m: Index, n: Index, place: Index
    ) -> tuple[SSAValue, Index, Index]:
        """This slice's part of the sum over all slices, and where it lies."""
        schedule, whole = self.tiling.schedule, fragment_of(accumulator)
        try:
            part = part_of(whole, schedule.tile.sliced_k)
        except VerifyException as error:
            fail(self.tiling.product.op, f"schedule: {error}")
        room = part.registers * LANES * (schedule.tile.sliced_k - 1)
        word = f64 if whole.bits == 64 else f32
        kind = MemRefType(word, [schedule.tile.warps, room], memory_space=IntegerAttr(SHARED_SPACE, i64))
        scratch = index.insert(memref.AllocOp([], [], kind)).memref
        total = index.insert(SumSlicedKOp(accumulator, scratch, schedule.tile.sliced_k)).part
        down, across = (size if size < all_ else 0 for size, all_ in zip(part.shape, whole.shape, strict=True))
        return total, index.add(m, index.mul(place, down)), index.add(n, index.mul(place, across))
