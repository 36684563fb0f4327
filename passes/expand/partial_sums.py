"""Sums that CTAs share: what `warp.store_part`, `warp.arrive_last` and `warp.add_parts` do.

A part is a row of memory. Warp after warp has its registers there, as `warp.store_registers` leaves them.
"""

from __future__ import annotations

from xdsl.builder import Builder
from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from ...dialect.gpu import BarrierOp, SubgroupIdOp, ThreadIdOp
from ...dialect.layouts.layout import LANES
from ...dialect.warp.attributes import FragmentType, element_row, fragment_of, memory_of
from ...dialect.warp.clusters import NamedBarrierOp
from ...dialect.warp.elementwise import ElementwiseOp, Kind
from ...dialect.warp.partial_sums import AddPartsOp, ArriveLastOp, StorePartOp
from ...dialect.warp.registers import LoadRegistersOp, StoreRegistersOp, fragment_bytes, together
from ...dialect.warp.synchronisation import AtomicIncOp, BarrierAnyOp, some_warps
from ..diagnostics import fail
from ..tile.index_builder import IndexBuilder, constant_value
from .sums import CONSUMERS_BARRIER, check_added, warps_around

MOST_UNROLLED = 64
"""Loads of a lane that stand one after another; more of them, for further parts, are a loop."""


class ExpandStorePart(RewritePattern):
    """`warp.store_part`: every warp stores its registers to its place in the row."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: StorePartOp, rewriter: PatternRewriter) -> None:
        column = _own_column(IndexBuilder(rewriter), op, op.memory, fragment_of(op.fragment))
        rewriter.replace(op, StoreRegistersOp(op.fragment, op.memory, op.slot, column))


class ExpandArriveLast(RewritePattern):
    """`warp.arrive_last`: after a barrier one thread counts the CTA in, and tells the others whether it was last."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ArriveLastOp, rewriter: PatternRewriter) -> None:
        index = IndexBuilder(rewriter)
        known = constant_value(op.of)
        limit = index.value(index.sub(op.of if known is None else known, 1))
        thread, zero = index.insert(ThreadIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X))).result, index.value(0)
        some = some_warps(op)
        threads = None if some is None else some * LANES
        index.insert(BarrierOp() if threads is None else NamedBarrierOp(index.value(CONSUMERS_BARRIER), threads))
        first = index.insert(arith.CmpiOp(thread, zero, "eq")).result
        seen = index.insert(AtomicIncOp(op.counters, op.number, limit, first)).seen
        was_last = index.insert(arith.CmpiOp(seen, limit, "eq")).result
        mine = index.insert(arith.AndIOp(was_last, first)).result
        rewriter.replace(op, BarrierAnyOp(mine) if threads is None else BarrierAnyOp(mine, CONSUMERS_BARRIER, threads))


class ExpandAddParts(RewritePattern):
    """`warp.add_parts`: loads that are added in the order of the parts, in a loop if there are many."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AddPartsOp, rewriter: PatternRewriter) -> None:
        kind, index, total = op.fragment.type, IndexBuilder(rewriter), op.input
        check_added(op, kind, kind)
        column, count = _own_column(index, op, op.memory, kind), constant_value(op.count)
        if count is not None and count * kind.registers // together(kind) <= MOST_UNROLLED:
            for part in range(count):
                total = _added(index, op, total, index.value(index.add(op.first, part)), column)
        else:
            total = _loop(index, op, column)
        rewriter.replace(op, [], [total])


def _added(index: IndexBuilder, op: AddPartsOp, total: SSAValue, row: SSAValue, column: SSAValue) -> SSAValue:
    """The sum with one more part."""
    part = index.insert(LoadRegistersOp(op.memory, row, column, op.fragment.type)).fragment
    return index.insert(ElementwiseOp(Kind.Add, total, part)).fragment


def _loop(index: IndexBuilder, op: AddPartsOp, column: SSAValue) -> SSAValue:
    """The sum of all parts, one in each turn."""
    body = Block(arg_types=[IndexType(), op.fragment.type])
    inside = index.at(Builder(InsertPoint.at_end(body)))
    number, total = body.args
    row = inside.value(inside.add(op.first, number))
    inside.insert(scf.YieldOp(_added(inside, op, total, row, column)))
    zero, one = index.values([0, 1])
    return index.insert(scf.ForOp(zero, op.count, one, [op.input], Region(body))).results[0]


def _own_column(index: IndexBuilder, op: Operation, memory: SSAValue, kind: FragmentType) -> SSAValue:
    """Where a warp's registers begin in a row. Raises a located diagnostic for rows that hold more or less."""
    held, warps = memory_of(memory), warps_around(op)
    element, size = element_row(held.element_type), fragment_bytes(kind)
    width = element.memory_bits // 8 if element is not None else 1
    if held.get_shape()[1] * width != warps * size:
        threads = warps * LANES
        fail(op, f"expected rows of {warps * size} bytes, the fragments of {threads} threads, got {held}")
    warp = 0 if warps == 1 else index.insert(SubgroupIdOp()).result
    return index.value(index.mul(warp, size // width))
