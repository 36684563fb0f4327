"""`warp-expand`: macro-operations as loads, stores, barriers and arithmetic that the printed IR shows."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects import arith, gpu
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from ...dialect.layouts.layout import LANES
from ...dialect.mlir.gpu import BarrierOp, ClusterBlockIdOp, SubgroupIdOp, Z
from ...dialect.warp.attributes import BYTE, FragmentType, enclosing, fragment_of, memory_of
from ...dialect.warp.cta import some_warps
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.fragments import ElementwiseOp, Kind
from ...dialect.warp.matrices import fragment_bytes
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.op_shapes import element_of
from ...dialect.warp.operands import FindGroupOp
from ...dialect.warp.synchronisation import CLUSTER, ScopedBarrierOp
from ...dialect.warp.tile_mma import SumSlicedKOp
from ..diagnostics import fail
from ..patterns import Index, IndexBuilder, PatternPass, op_type_rewrite_pattern
from .operands import group_end

ADDED = ("f32", "f64", "f16", "s32")
"""Elements of accumulators."""


def warps_around(op: Operation) -> int:
    """The number of warps that execute an operation: all of the kernel, or those of the region around it."""
    if (some := some_warps(op)) is not None:
        return some
    kernel = next((around for around in enclosing(op) if isinstance(around, gpu.FuncOp)), None)
    size = kernel.known_block_size if kernel is not None else None
    if size is None:
        fail(op, f"{op.name} is expanded in kernels with gpu.known_block_size")
    return next(int(n) for n in size.iter_values()) // LANES


# Sums over warps that share a tile: what `warp.sum_sliced_k` does.
#
# Every warp writes to shared memory the parts of its fragment that other slices get, each to the row of the warp that
# gets it, and after a barrier adds to its own part what they wrote. Slices that get none only write. Slices that are
# CTAs of a cluster write the memory of the CTA that gets a part, and meet at the cluster's barrier.
#
# All slices add in the same order up to swapped operands, so a sum does not depend on the slice that gets it: two CTAs
# that compute the same element at different places of their tiles store the same bits. The order is a binary tree over
# the slices. The part of slice s lies in slot (s xor r) - 1 of receiver r, whose own part comes first: neighbours in
# this order are neighbours in the tree for every r.


class ExpandSumSlicedK(RewritePattern):
    """`warp.sum_sliced_k`: stores of the parts of other slices, a barrier, and loads that are added in a fixed
    order."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SumSlicedKOp, rewriter: PatternRewriter) -> None:
        fragment, warps, rows = fragment_of(op.input), warps_around(op), memory_of(op.scratch).get_shape()[0]
        if fragment.element.name not in ADDED:
            fail(op, f"{op.name} adds {', '.join(ADDED)}, got {fragment.element.name}")
        positions = warps if op.cluster is not None else warps // op.slices
        if rows != (getting := warps if op.cluster is not None else positions * op.parts):
            fail(op, f"expected a row of memory for each of {getting} warps, got {op.scratch.type}")
        index = IndexBuilder(rewriter)
        parts = _Parts(index, op, index.insert(SubgroupIdOp()).result, positions)
        parts.send()
        index.insert(BarrierOp() if op.cluster is None else ScopedBarrierOp(CLUSTER))
        every = op.slices == op.parts
        rewriter.replace(op, [], [parts.received(index) if every else parts.received_by_some()])


class _Parts:
    """A warp's parts of a sum, by its place among the `positions` warps of its slice."""

    def __init__(self, index: IndexBuilder, op: SumSlicedKOp, warp: SSAValue, positions: int) -> None:
        self.index, self.op, self.positions = index, op, positions
        self.slice, self.position = index.div(warp, positions), index.rem(warp, positions)
        if op.cluster is not None:
            self.slice, self.position = index.insert(ClusterBlockIdOp(Z)).result, warp
            self.cta = index.insert(ClusterBlockIdOp()).result if op.cluster.value.data > 1 else 0
        kind = self.kind
        down = kind.shape[0] < fragment_of(self.op.input).shape[0]
        step = (kind.shape[0], 0) if down else (0, kind.shape[1])
        insert, count = self.index.insert, self.op.parts
        cut = [SubfragmentOp([self.op.input], (i * step[0], i * step[1]), kind.shape) for i in range(count)]
        self.parts: list[SSAValue] = [insert(one).fragment for one in cut]

    @property
    def kind(self) -> FragmentType:
        """The type of a part."""
        return fragment_of(self.op.part)

    def send(self) -> None:
        """Writes the parts of the other slices, each to the row of the warp that adds it."""
        index, of_slice = self.index, self.index.value(self.slice)
        for receiver, part in enumerate(self.parts):
            others = index.compare("ne", of_slice, receiver)
            slot = index.sub(index.xor(self.slice, receiver), 1) if self.op.slices > 2 else 0
            place = self._place(index, receiver, slot)
            each = self.op.cluster
            cta = None if each is None else index.value(index.add(self.cta, receiver * each.value.data))
            index.insert(StoreOp(part, self.op.scratch, place, registers="vectors", taken=others, cta=cta))

    def _own(self, index: IndexBuilder) -> SSAValue:
        """The part of this slice."""
        chosen = self.parts[0]
        for number, part in enumerate(self.parts[1:], 1):
            here = index.compare("eq", self.slice, number)
            chosen = index.insert(arith.SelectOp(here, part, chosen)).result
        return chosen

    def received(self, index: IndexBuilder) -> SSAValue:
        """The sum of this slice's part over all slices."""
        return self._sum(index, self._own(index), 0, self.op.slices)

    def _sum(self, index: IndexBuilder, own: SSAValue, first: int, count: int) -> SSAValue:
        """The sum of `count` parts, a power of two, from part `first` on. Part 0 is this warp's own."""
        if count > 1:
            halves = (self._sum(index, own, start, count // 2) for start in (first, first + count // 2))
            return index.insert(ElementwiseOp(Kind.Add, *halves)).fragment
        if first == 0:
            return own
        place = self._place(index, self.slice, first - 1)
        return index.insert(LoadOp(self.op.scratch, place, self.kind, registers="vectors")).fragment

    def received_by_some(self) -> SSAValue:
        """The same, if only some slices get a part. The others continue with a part of their own."""
        gets = self.index.compare("ult", self.slice, self.op.parts)
        (part,) = self.index.either(gets, lambda inside: [self.received(inside)], lambda _: [self.parts[0]])
        return part

    def _place(self, index: IndexBuilder, receiver: Index, slot: Index) -> tuple[SSAValue, SSAValue]:
        """The row of the warp of slice `receiver`, and where part number `slot` lies in it."""
        size = fragment_bytes(self.kind) * BYTE // element_of(self.op.scratch).memory_bits
        first = 0 if self.op.cluster is not None else index.mul(receiver, self.positions)
        row = index.add(first, self.position)
        return index.value(row), index.value(index.mul(slot, size))


class ExpandFindGroup(RewritePattern):
    """`warp.find_group`: a loop over the ends of groups that counts their tiles."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: FindGroupOp, rewriter: PatternRewriter) -> None:
        index, count, rows = IndexBuilder(rewriter), memory_of(op.ends).get_shape()[0], op.rows.value.data
        down = index.value(index.div(op.tile, index.folded(op.across)))
        with index.loop(0, count, 1, index.values([0] * 4)) as turn:
            inside, number, (begin, tiles, group, first) = turn.index, turn.counter, turn.carried
            end = group_end(inside, op.ends, number)
            here = inside.compare("ule", tiles, down)
            pairs = (number, group), (tiles, first)
            group, first = (inside.insert(arith.SelectOp(here, *pair)).result for pair in pairs)
            following = inside.add(tiles, inside.ceildiv(inside.sub(end, begin), rows))
            turn.handed = inside.values([end, following, group, first])
        _, tiles, group, first = turn.results
        beyond, pairs = index.compare("ule", tiles, down), ((index.value(count), group), (tiles, first))
        group, first = (index.insert(arith.SelectOp(beyond, *pair)).result for pair in pairs)
        rewriter.replace(op, [], [group, index.value(index.mul(first, index.folded(op.across)))])


class ExpandPass(PatternPass):
    """Expands macro-operations to loads, stores, barriers and arithmetic: `warp.sum_sliced_k` (sums over slices of K),
    `warp.find_group` (groups of rows)."""

    name = "warp-expand"
    needs: ClassVar = tuple(kind.name for kind in (SumSlicedKOp, FindGroupOp))
    patterns = ExpandSumSlicedK, ExpandFindGroup
