"""Sums over warps that share a tile: what `warp.sum_sliced_k` does.

Every warp writes to shared memory the parts of its fragment that other slices get, each to the row of the warp that
gets it, and after a barrier adds to its own part what they wrote. Slices that get none only write.

All slices add in the same order up to swapped operands, so a sum does not depend on the slice that gets it: two CTAs
that compute the same element at different places of their tiles store the same bits. The order is a binary tree over
the slices. The part of slice s lies in slot (s xor r) - 1 of receiver r, whose own part comes first: neighbours in
this order are neighbours in the tree for every r.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.dialects import arith, scf
from xdsl.ir import Block, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from ...dialect.gpu import BarrierOp, SubgroupIdOp
from ...dialect.warp.attributes import FragmentType, element_row, fragment_of, memory_of
from ...dialect.warp.elementwise import ElementwiseOp, Kind
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.registers import LoadRegistersOp, StoreRegistersOp, fragment_bytes
from ...dialect.warp.sliced_k import SumSlicedKOp
from ..diagnostics import fail
from ..tile.index_builder import Index, IndexBuilder
from .sums import check_added, warps_around


class ExpandSumSlicedK(RewritePattern):
    """`warp.sum_sliced_k`: stores of the others' parts, a barrier, and loads that are added in one order."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SumSlicedKOp, rewriter: PatternRewriter) -> None:
        whole, warps, rows = fragment_of(op.input), warps_around(op), memory_of(op.scratch).get_shape()[0]
        check_added(op, whole, whole.element.name)
        if rows != (getting := warps // op.slices * op.parts):
            fail(op, f"expected a row of memory for each of {getting} warps, got {op.scratch.type}")
        index = IndexBuilder(rewriter)
        warp, positions = index.insert(SubgroupIdOp()).result, warps // op.slices
        parts = _Parts(index, op, positions, index.div(warp, positions), index.rem(warp, positions))
        parts.send()
        index.insert(BarrierOp())
        rewriter.replace(op, [], [parts.received(parts.own()) if op.slices == op.parts else parts.received_by_some()])


@dataclass
class _Parts:
    """A warp's parts of a sum: it is at `position` of the `positions` warps of its slice."""

    index: IndexBuilder
    op: SumSlicedKOp
    positions: int
    slice: Index
    position: Index

    def __post_init__(self) -> None:
        kind = self.kind
        down = kind.shape[0] < fragment_of(self.op.input).shape[0]
        step = (kind.shape[0], 0) if down else (0, kind.shape[1])
        insert, count = self.index.insert, self.op.parts
        cut = [SubfragmentOp(self.op.input, (i * step[0], i * step[1]), kind.shape) for i in range(count)]
        self.parts: list[SSAValue] = [insert(one).fragment for one in cut]

    @property
    def kind(self) -> FragmentType:
        """The type of a part."""
        return fragment_of(self.op.part)

    def send(self) -> None:
        """Writes the parts of the other slices, each to the row of the warp that gets it."""
        index, of_slice = self.index, self.index.value(self.slice)
        for receiver, part in enumerate(self.parts):
            others = index.insert(arith.CmpiOp(of_slice, index.value(receiver), "ne")).result
            slot = index.sub(index.xor(self.slice, receiver), 1) if self.op.slices > 2 else 0
            row, column = self._place(receiver, slot)
            index.insert(StoreRegistersOp(part, self.op.scratch, row, column, others))

    def own(self) -> SSAValue:
        """The part that this slice gets."""
        index, chosen = self.index, self.parts[0]
        for number, part in enumerate(self.parts[1:], 1):
            here = index.insert(arith.CmpiOp(index.value(self.slice), index.value(number), "eq")).result
            chosen = index.insert(arith.SelectOp(here, part, chosen)).result
        return chosen

    def received(self, own: SSAValue) -> SSAValue:
        """The sum of this slice's part over all slices."""
        return self._sum(own, 0, self.op.slices)

    def _sum(self, own: SSAValue, first: int, count: int) -> SSAValue:
        """The sum of `count` parts, a power of two, from number `first`: its own and those in the slots."""
        index = self.index
        if count > 1:
            halves = (self._sum(own, start, count // 2) for start in (first, first + count // 2))
            return index.insert(ElementwiseOp(Kind.Add, *halves)).fragment
        if first == 0:
            return own
        row, column = self._place(self.slice, first - 1)
        return index.insert(LoadRegistersOp(self.op.scratch, row, column, self.kind)).fragment

    def received_by_some(self) -> SSAValue:
        """The same, where slices that get no part go on with one of their own."""
        around = self.index
        gets = around.insert(arith.CmpiOp(around.value(self.slice), around.value(self.op.parts), "ult")).result
        ways: list[Region] = []
        for way in (lambda: self.received(self.own()), lambda: self.parts[0]):
            ways.append(Region(block := Block()))
            self.index = around.at(Builder(InsertPoint.at_end(block)))
            self.index.insert(scf.YieldOp(way()))
        self.index = around
        return around.insert(scf.IfOp(gets, [self.kind], ways[0], ways[1])).results[0]

    def _place(self, receiver: Index, slot: Index) -> tuple[SSAValue, SSAValue]:
        """The row of the warp of slice `receiver`, and where part number `slot` lies in it."""
        index, element = self.index, element_row(memory_of(self.op.scratch).element_type)
        size = fragment_bytes(self.kind) * 8 // element.memory_bits if element is not None else 0
        row = index.add(index.mul(receiver, self.positions), self.position)
        return index.value(row), index.value(index.mul(slot, size))
