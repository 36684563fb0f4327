"""Products of warpgroups with an operand in registers, changed on its way there: `in_registers` of a schedule.

An instruction has its first operand in registers, or in shared memory. With A in registers B is read from shared
memory. With B there the transposes are multiplied, D^T = B^T A^T: a warpgroup has the accumulators of 64 columns of D,
as many rows as the instruction has columns, and A, as the second operand, is read from shared memory. Each step of the
instruction is a group of its own. Before the registers of a step are written, a wait makes sure that the products of
that step a turn ago have read them; those of the steps between go on meanwhile.
"""

from __future__ import annotations

from xdsl.ir import SSAValue, TypeAttribute

from ...dialect.isa.wgmma import M as ROWS
from ...dialect.warp.attributes import FragmentType, memory_of
from ...dialect.warp.convert_layout import ConvertLayoutOp
from ...dialect.warp.elementwise import ConstantOp, ConvertOp
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.memory import LdmatrixOp, LoadOp
from ...dialect.warp.tile_mma import TileMmaOp
from ...dialect.warp.warpgroup import WgmmaCommitOp, WgmmaFenceOp, WgmmaOp, WgmmaWaitOp
from ..diagnostics import fail
from ..linalg.multiplied import along_k
from .arrangement import LANES
from .index_builder import IndexBuilder
from .multiplication import Multiplication, Place
from .tiling import schedule_of


class RegisterProduct(Multiplication):
    """`warp.wgmma` of A in registers and B in shared memory, or of B^T and A^T."""

    def __init__(self, op: TileMmaOp) -> None:
        super().__init__(op)
        self.exchanged = self.tiling.schedule.tile.exchanged
        both = list(zip(self.operands, self.tiles, strict=True))
        (self.first, self.held), (self.second, self.read) = both[::-1] if self.exchanged else both

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return schedule_of(op).tile.in_registers != "none"

    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        (_, _, depth), k = self.tiling.schedule.tile.cta, self.tiling.row.shape.k
        steps = range(0, depth, k)
        changes = self.first.operand.stored is not None or self.first.way.how != LANES
        # What is changed goes to other registers than it comes to: it is loaded at once, before all waits.
        held = self._loaded(outside, index, warp | {"k": 0}, depth) if changes else None
        zero = isinstance(start := accumulator.owner, ConstantOp) and not start.value.value.data
        for at in steps:
            index.insert(WgmmaWaitOp(len(steps) - 1))
            if held is None:
                first = self._loaded(outside, index, warp | {"k": at}, k)
            else:
                first = self._changed(index, index.insert(SubfragmentOp(held, (0, at), (ROWS, k))).fragment)
            index.insert(WgmmaFenceOp())
            place = self.second.place(outside, warp | {"k": at})
            product = WgmmaOp(
                *(first, (), self.read, place, accumulator),
                overwrite=zero and not at,
                mn_major_b=not along_k(self.tiling.product, self.second.role),
                transposed=self.exchanged,
            )
            accumulator = index.insert(product).d
            index.insert(WgmmaCommitOp())
        index.insert(WgmmaWaitOp(0))
        return accumulator

    def _loaded(self, outside: IndexBuilder, index: IndexBuilder, at: Place, depth: int) -> SSAValue:
        """The first operand as memory holds it, 64 rows of A or columns of B."""
        held, way = memory_of(self.held).element_type, self.first.way
        if not isinstance(held, TypeAttribute):
            fail(self.op, f"expected {self.first.role.upper()} of elements with a type, got {held}")
        swapped = not along_k(self.tiling.product, self.first.role)
        kind = FragmentType.of("a", ROWS, depth, held, way.delivered)
        where = self.first.place(outside, at)
        if way.how == LANES:
            return index.insert(LoadOp(self.held, where, kind, swapped=swapped)).fragment
        return index.insert(LdmatrixOp(self.held, where, kind, trans=True, b16=True, swapped=swapped)).fragment

    def _changed(self, index: IndexBuilder, held: SSAValue) -> SSAValue:
        """What the instruction multiplies, of what memory holds."""
        stored, layout = self.first.operand.stored, self.first.way.layout
        if stored is None:
            return index.insert(ConvertLayoutOp.to(held, layout)).fragment
        return index.insert(ConvertOp(held, self.tiling.element_type(self.first.role), stored, layout)).fragment
