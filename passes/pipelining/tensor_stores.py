"""Stores of a warpgroup's results by tensor copies: staged in shared memory by `stmatrix`, a panel at a time.

Each warpgroup has room of its own, and waits only for its own copies to have read it. What is stored while the next
tile is copied and multiplied costs the tensor cores little more than the staging.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects import memref
from xdsl.dialects.builtin import IntegerAttr, MemRefType, i64
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.gpu import SubgroupIdOp
from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.layout import LANES, column, row
from ...dialect.warp.attributes import SHARED_SPACE, fragment_of
from ...dialect.warp.clusters import NamedBarrierOp
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.memory import StoreOp
from ...dialect.warp.moves import StmatrixOp
from ...dialect.warp.swizzle import SwizzleAttr
from ...dialect.warp.tensor_copies import (
    BulkCommitOp,
    BulkWaitOp,
    ProxyFenceOp,
    TensorStoreOp,
)
from ..schedule.warpgroup_model import panel_columns
from ..schedule.warpgroup_resources import BUFFERS
from ..tile.index_builder import IndexBuilder
from ..tile.launches import LaunchedKernel
from .copy_loop import decline
from .tensor_copies import TensorView, box_type

MATRIX_BITS = 16
"""Bits of elements that `stmatrix` moves whole; each lane stores wider ones that it holds."""


class StagedStores:
    """The stores of one kernel to one matrix, by a tensor map that the kernel is given.

    `index` is where all warpgroups come by before.

    Raises:
        DeclinedError: if no tensor map has what the stores write.
    """

    def __init__(self, stores: Sequence[StoreOp], launch: LaunchedKernel, index: IndexBuilder) -> None:
        self.stores, self.index = stores, index
        fragment = fragment_of(stores[0].fragment)
        self.view = TensorView.of(stores[0], stores[0].memory)
        self.panel = panel_columns(fragment.shape[1], fragment.bits)
        self.columns = max(self.panel, fragment.layout.data.columns)
        if odd := next((op for op in stores if fragment_of(op.fragment).shape[1] % self.columns), None):
            decline(odd, f"it writes no whole panels of {self.columns} columns")
        rows, groups = fragment.shape[0], launch.schedule.consumers // WARPS
        shape = [groups * BUFFERS, rows, self.columns]
        swizzle = SwizzleAttr(self.panel * fragment.bits // 8)
        tile = MemRefType(fragment.element_type, shape, swizzle, IntegerAttr(SHARED_SPACE, i64))
        self.map = launch.tensor_map(self.view.memory, self.view.order, box_type(self.view, tile))
        self.scratch = index.insert(memref.AllocOp([], [], tile)).memref
        group = index.div(index.insert(SubgroupIdOp()).result, WARPS)
        first, self.barrier = index.mul(group, BUFFERS), index.value(index.add(group, 1))
        self.buffers = [index.add(first, number) for number in range(BUFFERS)]

    def replace(self) -> None:
        """Puts staging and tensor copies in the place of the stores."""
        number, total = 0, sum(fragment_of(op.fragment).shape[1] for op in self.stores) // self.columns
        for store in self.stores:
            index = self.index.at(Builder(InsertPoint.before(store)))
            for left in range(0, fragment_of(store.fragment).shape[1], self.columns):
                # Of an odd number of panels the last one has the buffer that the next tile begins with.
                self._panel(index, store, left, number % BUFFERS, 0 if not number and total % BUFFERS else BUFFERS - 1)
                number += 1
            Rewriter.erase_op(store)

    def _panel(self, index: IndexBuilder, store: StoreOp, left: int, buffer: int, pending: int) -> None:
        """Stages the columns from `left` on, and starts their copy, of one panel or of several side by side."""
        rows, columns = fragment_of(store.fragment).shape
        row, column = map(index.known, store.indices)
        part, at = store.fragment, index.values([self.buffers[buffer], 0, 0])
        if columns > self.columns:
            part = index.insert(SubfragmentOp(part, (0, left), (rows, self.columns))).fragment
        index.insert(BulkWaitOp(pending, read=True, each_warpgroup=True))
        index.insert(NamedBarrierOp(self.barrier, WARPS * LANES))
        index.insert(self._moved(part, at))
        index.insert(ProxyFenceOp())
        index.insert(NamedBarrierOp(self.barrier, WARPS * LANES))
        for along in range(0, self.columns, self.panel):
            where = self.view.coordinates(row, index.add(column, left + along), lambda value: value)
            place = index.values([self.buffers[buffer], 0, along])
            index.insert(TensorStoreOp(self.scratch, place, self.map, index.values(where), each_warpgroup=True))
        index.insert(BulkCommitOp(each_warpgroup=True))

    def _moved(self, part: SSAValue, at: Sequence[SSAValue]) -> StmatrixOp | StoreOp:
        """What writes a panel to shared memory: whole matrices, as they lie or transposed, or each lane what it has."""
        kind = fragment_of(part)
        first, line = kind.layout.data.element[0], kind.layout.data.lane[2]
        trans = (first, line) == (row(0), column(0))
        if kind.bits == MATRIX_BITS and (trans or (first == column(0) and line.axis == "r")):
            return StmatrixOp(part, self.scratch, at, trans=trans)
        return StoreOp(part, self.scratch, at)
