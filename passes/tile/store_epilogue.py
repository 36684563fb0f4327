"""The way of a warp's accumulators to D: C added, rounded, through the epilogue and to other lanes, part by part."""

from __future__ import annotations

import math
from collections.abc import Iterator

from xdsl.dialects import memref
from xdsl.dialects.builtin import IntegerAttr, MemRefType, f32, i64
from xdsl.ir import SSAValue

from ...dialect.warp.attributes import SHARED_SPACE, FragmentType, element_row, fragment_of, memory_of
from ...dialect.warp.elementwise import ElementwiseOp, Kind
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.exchange import BANKS, ExchangeOp, in_lines
from ...dialect.warp.memory import StoreOp, bounds_attribute
from ..schedule.staging import adds_last, exchanged_first, exchanged_rows, matrices
from ..schedule.warpgroup import panel_columns
from .epilogue_operands import EpilogueOperands
from .index_builder import Index, IndexBuilder
from .matrix_load import converted, load
from .tiling import Tiling

MOST_BITS = 32
"""Bits of elements that lie beside each sum of a row of base tiles, 64 columns wide, without spills."""


GROUP_COLUMNS = 32
"""Columns of a warpgroup's sums that an epilogue is computed for at a time: all 256 of them would spill."""

EARLY_BITS = 16
"""Bits of elements for which there are registers before the strip before is stored."""


def store(
    tiling: Tiling, index: IndexBuilder, accumulator: SSAValue, m: Index, n: Index, scratch: SSAValue | None = None
) -> SSAValue | None:
    """Takes accumulators, whose first element is that of row m and column n, to D.

    Where elements change lanes they do so in `scratch`, or in shared memory that is made for it; returns it, for what
    is stored next. Where elements of several matrices lie beside them, that is done for one half of the columns after
    the other, or for smaller parts, so that these and their addresses take no more registers than one matrix of
    `MOST_BITS` would.
    """
    whole = fragment_of(accumulator)
    bits, (rows, width) = _bits(tiling), whole.shape
    most = MOST_BITS if len(matrices(tiling.product)) == 1 else MOST_BITS // 2
    while bits > most and width % (2 * whole.layout.data.columns) == 0:
        bits, width = bits // 2, width // 2
    if tiling.schedule.tile.together > 1 and tiling.product.op.epilogue is not None:
        staged = panel_columns(width, tiling.product.d.element.bits) if tiling.schedule.epilogue.staging else 0
        least = staged or GROUP_COLUMNS
        width = next((n for n in range(least, width, 8) if width % n == 0), width)
    for left in range(0, whole.shape[1], width):
        held = accumulator
        if width < whole.shape[1]:
            held = index.insert(SubfragmentOp(accumulator, (0, left), (rows, width))).fragment
        ending = Ending(tiling, index, fragment_of(held), m, index.add(n, left), scratch)
        ending.store(held)
        scratch = ending.scratch
    return scratch


def _bits(tiling: Tiling) -> int:
    """Bits of what the epilogue's matrices hold for each element of D."""
    found = (element_row(memory_of(extra.value).element_type) for extra in matrices(tiling.product))
    return sum(element.bits for element in found if element is not None)


class Ending:
    """Takes accumulators of the type `whole`, whose first element is that of row m and column n, to D.

    That is done for all of them at once where nothing else is loaded; for a row of base tiles after the other, or a
    strip of more of them, where elements change lanes or other operands lie beside them in registers.
    """

    def __init__(
        self,
        tiling: Tiling,
        index: IndexBuilder,
        whole: FragmentType,
        m: Index,
        n: Index,
        scratch: SSAValue | None = None,
    ) -> None:
        self.tiling, self.index, self.m, self.n = tiling, index, m, n
        product, schedule = tiling.product, tiling.schedule
        rows = exchanged_rows(schedule) or (whole.shape[0] if product.op.epilogue is None else whole.layout.data.rows)
        self.rows = min(rows, whole.shape[0])
        part = FragmentType.of("acc", self.rows, whole.shape[1], whole.element_type, whole.layout.data)
        self.first = exchanged_first(product, schedule)
        self.part = part.with_layout(in_lines(part)) if self.first else part
        self.c = product.c if adds_last(product, schedule) else None
        self.early = _bits(tiling) <= EARLY_BITS
        self.epilogue_operands = self._extras()
        self.scratch = scratch or self._scratch(part if self.first else part.with_element(product.d.element_type))

    def _extras(self) -> EpilogueOperands | None:
        """The product's epilogue, if it has one."""
        if self.tiling.product.op.epilogue is None:
            return None
        return EpilogueOperands(self.tiling, self.index, self.part, self.m, self.n)

    def _scratch(self, part: FragmentType) -> SSAValue | None:
        """Shared memory in which each warp has room for a part, if elements change lanes."""
        if not exchanged_rows(self.tiling.schedule):
            return None
        room = max(BANKS, math.prod(part.shape) * part.bits // 8) // (f32.bitwidth // 8)
        kind = MemRefType(f32, [self.tiling.schedule.tile.warps, room], memory_space=IntegerAttr(SHARED_SPACE, i64))
        return self.index.insert(memref.AllocOp([], [], kind)).memref

    def store(self, accumulator: SSAValue) -> None:
        """Stores what becomes of the accumulators."""
        index, product, last = self.index, self.tiling.product, fragment_of(accumulator).shape[0] - self.rows
        memory, inside = product.d.value, bounds_attribute(*map(self.tiling.inside, "mn"))
        upcoming = self._load(0)
        for part, row in self._parts(accumulator):
            c, loaded = upcoming
            held = self._exchanged(part) if self.first else part
            if c is not None:
                start = converted(index, c, fragment_of(held).element_type)
                held = index.insert(ElementwiseOp(Kind.Add, start, held)).fragment
            held = converted(index, held, product.element_type)
            if self.epilogue_operands is not None:
                held = self.epilogue_operands.map(held, loaded, row)
            if row < last and self.early:
                # Before the store, for nothing is moved across one that may be to the same memory.
                upcoming = self._load(row + self.rows)
            held = held if self.first else self._exchanged(held)
            index.insert(StoreOp(held, memory, index.values([index.add(self.m, row), self.n]), inside))
            if row < last and not self.early:
                upcoming = self._load(row + self.rows)

    def _exchanged(self, held: SSAValue) -> SSAValue:
        """The fragment with its elements along lines, where they change lanes."""
        if self.scratch is None:
            return held
        return self.index.insert(ExchangeOp(held, self.scratch, in_lines(fragment_of(held)))).fragment

    def _parts(self, accumulator: SSAValue) -> Iterator[tuple[SSAValue, int]]:
        """Each part, with the row it starts at."""
        whole, across = fragment_of(accumulator).shape
        if whole == self.rows:
            yield accumulator, 0
            return
        for row in range(0, whole, self.rows):
            yield self.index.insert(SubfragmentOp(accumulator, (row, 0), (self.rows, across))).fragment, row

    def _load(self, row: int) -> tuple[SSAValue | None, list[SSAValue]]:
        """What the part that starts at a row takes beside sums: of C, if it is added here, and the epilogue's."""
        at = self.index.add(self.m, row)
        c = None if self.c is None else load(self.tiling, self.index, self.c, self.part, at, self.n)
        return c, [] if self.epilogue_operands is None else self.epilogue_operands.load(row)
