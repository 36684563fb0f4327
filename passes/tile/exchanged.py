"""Products of warpgroups with B in registers, changed on its way there: `in_registers = b` of a schedule.

An instruction has its first operand in registers, or in shared memory. So the transposes are multiplied,
D^T = B^T A^T: a warpgroup has the accumulators of 64 columns of D, as many rows as the instruction has columns, and A,
as the second operand, is read from shared memory. Each step of the instruction is a group of its own. Before the
registers of a step are written, a wait makes sure that the products of that step a turn ago have read them; those of
the steps between go on meanwhile.
"""

from __future__ import annotations

from xdsl.ir import SSAValue, TypeAttribute

from ...dialect.isa.wgmma import M as COLUMNS
from ...dialect.warp.attributes import FragmentType, memory_of
from ...dialect.warp.convert_layout import ConvertLayoutOp
from ...dialect.warp.elementwise import ConstantOp, ConvertOp
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.memory import LdmatrixOp, LoadOp
from ...dialect.warp.tile_mma import TileMmaOp
from ...dialect.warp.warpgroup import WgmmaCommitOp, WgmmaFenceOp, WgmmaOp, WgmmaWaitOp
from ..diagnostics import fail
from .arrangement import LANES
from .index_builder import IndexBuilder
from .multiplication import Multiplication, Place
from .tiling import schedule_of


class ExchangedProduct(Multiplication):
    """`warp.wgmma` of B^T in registers and A^T in shared memory."""

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return schedule_of(op).tile.exchanged

    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        (_, _, depth), k, (a, _) = self.tiling.schedule.tile.cta, self.tiling.row.shape.k, self.operands
        steps = range(0, depth, k)
        changes = self.operands[1].operand.stored is not None or self.operands[1].way.how != LANES
        # What is changed goes to other registers than it comes to: it is loaded at once, before all waits.
        held = self._loaded(outside, index, warp | {"k": 0}, depth) if changes else None
        zero = isinstance(start := accumulator.owner, ConstantOp) and not start.value.value.data
        for at in steps:
            index.insert(WgmmaWaitOp(len(steps) - 1))
            if held is None:
                of_b = self._loaded(outside, index, warp | {"k": at}, k)
            else:
                of_b = self._changed(index, index.insert(SubfragmentOp(held, (0, at), (COLUMNS, k))).fragment)
            index.insert(WgmmaFenceOp())
            place = a.place(outside, warp | {"k": at})
            product = WgmmaOp(
                *(of_b, (), self.tiles[0], place, accumulator),
                overwrite=zero and not at,
                mn_major_b=a.operand.transposed,
                transposed=True,
            )
            accumulator = index.insert(product).d
            index.insert(WgmmaCommitOp())
        index.insert(WgmmaWaitOp(0))
        return accumulator

    def _loaded(self, outside: IndexBuilder, index: IndexBuilder, at: Place, depth: int) -> SSAValue:
        """B^T as memory holds it, 64 columns of B."""
        tile, b = self.tiles[1], self.operands[1]
        held = memory_of(tile).element_type
        if not isinstance(held, TypeAttribute):
            fail(self.op, f"expected B of elements with a type, got {held}")
        along_k = b.operand.transposed
        kind = FragmentType.of("a", COLUMNS, depth, held, b.way.delivered)
        where = b.place(outside, at)
        if b.way.how == LANES:
            return index.insert(LoadOp(tile, where, kind, swapped=not along_k)).fragment
        return index.insert(LdmatrixOp(tile, where, kind, trans=True, b16=True, swapped=not along_k)).fragment

    def _changed(self, index: IndexBuilder, held: SSAValue) -> SSAValue:
        """What the instruction multiplies, of what memory holds."""
        b = self.operands[1]
        if b.operand.stored is None:
            return index.insert(ConvertLayoutOp.to(held, b.way.layout)).fragment
        return index.insert(ConvertOp(held, self.tiling.element_type("b"), b.operand.stored, b.way.layout)).fragment
