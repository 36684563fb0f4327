"""How warps that share a row reduce it: through shared memory, of a CTA or of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import memref
from xdsl.ir import SSAValue

from ...dialect.layouts.layout import Bit, Layout
from ...dialect.layouts.layout import column as column_bit
from ...dialect.mlir.gpu import BarrierOp, ClusterBlockIdOp, SubgroupIdOp
from ...dialect.warp.attributes import BYTE, FragmentType, element_row, fragment_of
from ...dialect.warp.fragments import IDENTITIES, Kind, ReduceOp
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.op_shapes import tile_type
from ...dialect.warp.rows import ACROSS, RowsOp
from ...dialect.warp.synchronisation import CLUSTER, ArriveOp, AwaitOp, BarriersType, MakeBarriersOp, ScopedBarrierOp
from ..patterns import Index, IndexBuilder
from .fragment_math import mapped, until
from .row_region import rescaled
from .traversal import LANE_BITS

CHUNK_ELEMENTS = 4
"""Elements of f32 in the shortest line of shared memory."""


@dataclass
class RowJoin:
    """Reduces columns of a row over the warps of a CTA, or of CTAs, that share the row, through shared memory. `sent`
    has the bytes that a barrier counts for each reduction. In turns, lines and barriers of one are not those of the
    next, so that all have read a line before it is written again."""

    warps: int
    ctas: int
    copies: int
    sent: Sequence[int] = ()
    full: SSAValue | None = None
    turn: Index = 0
    reduced: int = 0

    @staticmethod
    def of(index: IndexBuilder, warps: int, ctas: int, op: RowsOp, *, turns: bool) -> RowJoin:
        """That of a kernel's rows. CTAs of a cluster count what others send at a barrier for each reduction."""
        copies = 2 if turns else 1
        if ctas == 1:
            return RowJoin(warps, ctas, copies)
        rows = [element_row(each.result.type) for each in op.body.block.ops if isinstance(each, ACROSS)]
        sent = [0 if row is None else row.bits // BYTE * warps * ctas for row in rows]
        full = index.insert(MakeBarriersOp(BarriersType.of(copies * len(sent)), 1)).barriers
        for number, size in enumerate(sent * copies):
            index.insert(ArriveOp(full, index.value(number), bytes=size))
        index.insert(ScopedBarrierOp(CLUSTER, arrive=True, mbarriers=True))
        return RowJoin(warps, ctas, copies, sent, full)

    def enter(self, index: IndexBuilder) -> None:
        """Waits until all CTAs run, before others write their memory."""
        if self.full is not None:
            index.insert(ScopedBarrierOp(CLUSTER, wait=True))

    def __call__(
        self, index: IndexBuilder, columns: Sequence[tuple[Kind, SSAValue]], below: bool, *, before: bool = False
    ) -> list[SSAValue]:
        """The columns of whole rows. With two that are `below`, sums below the largest of each warp are scaled. Those
        of the part of a row `before` what this warp has begin from the identity."""
        warps, count = self.warps, self.warps * self.ctas
        if count == 1:
            return [column for _, column in columns]
        element = [fragment_of(column).element_type for _, column in columns]
        bits = (count - 1).bit_length()
        kinds = [tile_type(e, [self.copies, max(1 << bits, CHUNK_ELEMENTS)]) for e in element]
        copy = index.rem(self.turn, self.copies)
        lines = [index.constants.insert(memref.AllocOp([], [], kind)).memref for kind in kinds]
        warp: Index = index.insert(SubgroupIdOp()).result

        def rank() -> Index:
            """The number of this warp among those that share a row."""
            if self.ctas == 1:
                return warp
            return index.add(index.mul(index.number(ClusterBlockIdOp), warps), warp)

        if self.copies == 1 and not self.reduced:
            self.enter(index)
        counted = list[tuple[SSAValue, SSAValue]]()
        for (_, column), memory in zip(columns, lines, strict=True):
            if self.full is None:
                index.insert(StoreOp(column, memory, index.values([copy, warp])))
                continue
            own = index.values([copy, rank()])
            full, number = self.full, index.value(index.add(index.mul(copy, len(self.sent)), self.reduced))
            counted.append((full, number))
            index.insert(StoreOp(column, memory, own, barriers=full, number=number))
            self.reduced += 1
        if self.full is None:
            index.insert(BarrierOp())
        parity = index.value(index.rem(index.div(self.turn, self.copies), 2))
        for barrier, size in zip(counted, self.sent[self.reduced - len(counted) :], strict=False):
            index.insert(AwaitOp(*barrier, parity))
            if self.copies > 1:
                index.insert(ArriveOp(*barrier, bytes=size))
        lane = [column_bit(i) if i < bits else Bit("x", i - bits) for i in range(LANE_BITS)]
        layout = Layout(tuple(lane), tuple(column_bit(i) for i in range(LANE_BITS, bits)))
        joined, parts = list[SSAValue](), list[SSAValue]()
        for (by, _), memory, kind in zip(columns, lines, element, strict=True):
            every = index.insert(
                LoadOp(memory, index.values([copy, 0]), FragmentType.of("acc", 1, 1 << bits, kind, layout))
            ).fragment
            if before or count < 1 << bits:
                every = until(index, every, index.sub(0, rank()) if before else -count, IDENTITIES[by], 1, -1)
            part = mapped(index, rescaled, every, parts[0], joined[0]) if below and len(parts) == 1 else every
            parts.append(part)
            joined.append(index.insert(ReduceOp(by, part)).result)
        return joined
