"""`warp-fragments`: products of tiles in shared memory become products by instructions."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, Float32Type
from xdsl.ir import SSAValue, TypeAttribute

from ...dialect.isa.wgmma import M as ROWS
from ...dialect.warp.attributes import SHARED_SPACE, FragmentType, fragment_of, memory_of, memory_space
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.fragments import ConstantOp, ConvertLayoutOp, ConvertOp
from ...dialect.warp.memory import LoadOp
from ...dialect.warp.op_shapes import bounds_attribute
from ...dialect.warp.synchronisation import WGMMA, CommitOp, FenceOp, WaitOp
from ...dialect.warp.tile_mma import GroupScales, TileMmaOp
from ...dialect.warp.views import MatrixOp
from ...dialect.warp.warpgroup import WgmmaOp
from ..builder import Index, IndexBuilder
from ..diagnostics import fail
from ..linalg.product import along_k
from ..patterns import PatternPass
from ..schedule.arrangement import LANES as BY_LANES
from .fragment_math import constant, mapped
from .metadata import ScaledProduct, SparseProduct, SparseWarpgroupProduct
from .operands import DenseProduct, Multiplication, Place, WarpgroupProduct
from .store_epilogue import held_type
from .tiling import schedule_of

# Products of integers whose groups along k have scales of floats, `times` of `warp.tile_mma`.
#
# The products of a group are added up by themselves, and their sums, times the scales of the columns, are added to the
# rest in f32: the weights themselves are not rounded after they are scaled.


class GroupedProduct(DenseProduct):
    """`warp.mma` for each group, from zero."""

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return op.groups is not None and schedule_of(op).together == 1

    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        groups = self.op.groups
        if groups is None:
            raise ValueError("expected a product with scales of groups")
        schedule = self.tiling.schedule
        depth = schedule.cta[2] // schedule.sliced_k
        run = min(depth, groups.size)
        # Before the products, which hide how long memory takes to answer.
        scales = [self._load(index, groups, warp, first) for first in range(0, depth, run)]
        for number, scale in enumerate(scales):
            sums = constant(outside, fragment_of(accumulator), 0.0)
            sums = self.steps(outside, index, warp, sums, range(number * run, (number + 1) * run, self.tiling.step))
            accumulator = mapped(index, _added, accumulator, sums, scale)
        return accumulator

    def _load(self, index: IndexBuilder, groups: GroupScales, warp: Place, first: int) -> SSAValue:
        """The scales of the columns of a warp, of the group that `first` of the warp's part of k is in."""
        held, swapped = memory_of(groups.scales), self.op.transposed_b is not None
        shared = memory_space(held) == SHARED_SPACE
        count, columns = held.get_shape()[:: -1 if shared and swapped else 1]
        k = index.add(index.add(index.known(groups.k), warp["k"]), first)
        group: Index = index.div(k, groups.size)
        if count * groups.size % self.tiling.schedule.cta[2]:
            group = index.minimum(group, count - 1)  # behind the end of k, where all products are zero
        kind = self.tiling.fragment("acc").with_element(held_type(groups.scales))
        line, start = index.value(group), index.value(index.add(index.known(groups.n), warp["n"]))
        if shared:
            where = [start, line] if swapped else [line, start]
            return index.insert(LoadOp(groups.scales, where, kind, swapped=swapped, along="columns")).fragment
        row = MatrixOp(groups.scales, [line], None, 1)
        if isinstance(view := groups.scales.owner, MatrixOp):
            row = view.at([line], None, 1)
        inside = bounds_attribute(False, columns % self.tiling.schedule.cta[1] == 0)
        where = [index.value(0), start]
        return index.insert(LoadOp(index.insert(row).matrix, where, kind, inside, along="columns")).fragment


def _added(elements: Sequence[SSAValue]) -> SSAValue:
    total, part, scale = elements
    if isinstance(scale.type, AnyFloat) and not isinstance(scale.type, Float32Type):
        scale = arith.ExtFOp(scale, part.type).result
    return arith.AddfOp(total, arith.MulfOp(part, scale).result).result


# Products of warpgroups with an operand in registers, changed on its way there: `in_registers` of a schedule.
#
# An instruction has its first operand in registers, or in shared memory. With A in registers B is read from shared
# memory. With B there the transposes are multiplied, D^T = B^T A^T: a warpgroup has the accumulators of 64 columns of
# D, as many rows as the instruction has columns, and A, as the second operand, is read from shared memory. Each step
# of the instruction is a group of its own. Before the registers of a step are written, a wait makes sure that the
# products of that step a turn ago have read them; those of the steps between go on meanwhile.


class RegisterProduct(Multiplication):
    """`warp.wgmma` of A in registers and B in shared memory, or of B^T and A^T."""

    def begin(self, op: TileMmaOp) -> None:
        super().begin(op)
        self.exchanged = self.tiling.schedule.exchanged
        both = list(zip(self.operands, self.tiles, strict=True))
        (self.first, self.held), (self.second, self.read) = both[::-1] if self.exchanged else both

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return schedule_of(op).in_registers != "none"

    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        (_, _, depth), k = self.tiling.schedule.cta, self.tiling.row.shape.k
        steps = range(0, depth, k)
        changes = self.first.operand.stored is not None or self.first.way.how != BY_LANES
        # What is changed goes to other registers than it comes to: it is loaded at once, before all waits.
        held = self._loaded(outside, index, warp | {"k": 0}, depth) if changes else None
        zero = isinstance(start := accumulator.owner, ConstantOp) and not start.value.value.data
        for at in steps:
            index.insert(WaitOp(WGMMA, len(steps) - 1))
            if held is None:
                first = self._loaded(outside, index, warp | {"k": at}, k)
            else:
                first = self._changed(index, index.insert(SubfragmentOp(held, (0, at), (ROWS, k))).fragment)
            index.insert(FenceOp(WGMMA))
            place = self.second.place(outside, warp | {"k": at})
            product = WgmmaOp(
                *(first, (), self.read, place, accumulator),
                overwrite=zero and not at,
                mn_major_b=not along_k(self.tiling.product, self.second.role),
                transposed=self.exchanged,
            )
            accumulator = index.insert(product).d
            index.insert(CommitOp(WGMMA))
        index.insert(WaitOp(WGMMA, 0))
        return accumulator

    def _loaded(self, outside: IndexBuilder, index: IndexBuilder, at: Place, depth: int) -> SSAValue:
        """The first operand as memory holds it, 64 rows of A or columns of B."""
        held, way = memory_of(self.held).element_type, self.first.way
        if not isinstance(held, TypeAttribute):
            fail(self.op, f"expected {self.first.role.upper()} of elements with a type, got {held}")
        swapped = not along_k(self.tiling.product, self.first.role)
        kind = FragmentType.of("a", ROWS, depth, held, way.delivered)
        where = self.first.place(outside, at)
        if way.how == BY_LANES:
            return index.insert(LoadOp(self.held, where, kind, swapped=swapped)).fragment
        return index.insert(LoadOp(self.held, where, kind, matrices="x4.trans.b16", swapped=swapped)).fragment

    def _changed(self, index: IndexBuilder, held: SSAValue) -> SSAValue:
        """What the instruction multiplies, of what memory holds."""
        stored, layout = self.first.operand.stored, self.first.way.layout
        if stored is None:
            return index.insert(ConvertLayoutOp.to(held, layout)).fragment
        return index.insert(ConvertOp(held, self.tiling.element_type(self.first.role), stored, layout)).fragment


class FragmentsPass(PatternPass):
    """Multiplies a warp's part of the tiles in shared memory by the instruction that the schedule names. A warp loads
    fragments and multiplies them step by step. A warpgroup multiplies tiles directly in shared memory."""

    name = "warp-fragments"
    patterns = (
        WarpgroupProduct,
        RegisterProduct,
        SparseWarpgroupProduct,
        ScaledProduct,
        SparseProduct,
        GroupedProduct,
        DenseProduct,
    )
