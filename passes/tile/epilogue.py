"""The accumulators before the first and after the last step: their initial value, and their way to memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, IntegerAttr
from xdsl.ir import SSAValue

from ...dialect.layout import Layout
from ...dialect.warp.attributes import FragmentType, float_type, fragment_of
from ...dialect.warp.elementwise import ConstantOp, ConvertOp, RegroupOp
from ...dialect.warp.memory import LoadOp, StoreOp, bounds_attribute
from ..diagnostics import fail
from ..index_builder import Index, IndexBuilder
from ..product import Operand
from .tiling import Tiling


@dataclass(frozen=True)
class Epilogue:
    """What happens to the accumulators of a warp outside the K loop."""

    tiling: Tiling

    def initial(self, index: IndexBuilder, m: Index, n: Index) -> SSAValue:
        """The accumulators at the start: a constant, or what C holds."""
        acc, product = self.tiling.fragment("acc"), self.tiling.product
        if product.c is not None:
            return self._load(index, product.c, acc, m, n)
        start = product.initial or 0.0
        self._check_initial(start, acc)
        element = acc.element
        value = FloatAttr(start, float_type(element)) if element.is_float else IntegerAttr(int(start), element.bits)
        return index.insert(ConstantOp(value, acc)).fragment

    def _load(self, index: IndexBuilder, c: Operand, acc: FragmentType, m: Index, n: Index) -> SSAValue:
        held = self._in_order(acc).with_element(c.element_type)
        memory, where = self.tiling.argument(c), index.values([m, n])
        loaded = index.insert(LoadOp(memory, where, held, self._in_bounds())).fragment
        if c.element != acc.element:
            loaded = index.insert(ConvertOp(loaded, acc.element_type)).fragment
        return self._regrouped(index, loaded, acc.layout.data)

    def _in_order(self, acc: FragmentType) -> FragmentType:
        """The accumulators as they meet memory: neighbours in a row follow each other in a lane."""
        return acc.with_layout(self.tiling.arrangement.stored)

    @staticmethod
    def _regrouped(index: IndexBuilder, fragment: SSAValue, layout: Layout) -> SSAValue:
        held = fragment_of(fragment).layout.data
        return fragment if held == layout else index.insert(RegroupOp(fragment, layout)).fragment

    def _check_initial(self, value: float, acc: FragmentType) -> None:
        """Refuses an initial value that the accumulators' type does not have, or only an infinity could stand for."""
        largest, op = acc.element.largest, self.tiling.product.op
        if abs(value) > largest and math.isfinite(value):
            fail(op, f"C starts from {value:g}, accumulators in {acc.element.name} hold up to {largest:g}")

    def finish(self, index: IndexBuilder, accumulator: SSAValue, m: Index, n: Index) -> None:
        """Stores the accumulators to D, rounded to its element type."""
        d, acc = self.tiling.product.d, self.tiling.fragment("acc")
        accumulator = self._regrouped(index, accumulator, self.tiling.arrangement.stored)
        if acc.element != d.element:
            accumulator = index.insert(ConvertOp(accumulator, d.element_type)).fragment
        where = index.values([m, n])
        index.insert(StoreOp(accumulator, self.tiling.argument(d), where, self._in_bounds()))

    def _in_bounds(self) -> ArrayAttr[BoolAttr] | None:
        m, n, _ = self.tiling.schedule.cta
        return bounds_attribute(self.tiling.product.m % m == 0, self.tiling.product.n % n == 0)
