"""`warp-distribute`: which warp of a CTA has what of the tiles that the CTA holds.

The warps cut D into warp tiles, and with `sliced_k` each K tile into slices too. A warp, or the four of a warpgroup,
has its warp tile of the sums as a fragment, which lies as the accumulators of the instruction do.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType, f32, f64, i64
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.warp.attributes import SHARED_SPACE, FragmentType, fragment_of
from ...dialect.warp.epilogue import EpilogueOp
from ...dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind
from ...dialect.warp.memory import LoadOp
from ...dialect.warp.synchronisation import SOME_WARPS
from ...dialect.warp.tile_mma import LANES, SumSlicedKOp, TileMmaOp, part_of
from ..builder import Index, IndexBuilder
from ..diagnostics import fail
from ..linalg.product import TileProduct
from ..patterns import PatternPass
from ..schedule.arrangement import stored
from . import raster
from .fragment_math import constant, in_layout
from .store_epilogue import converted, load
from .tiling import Tiling, schedule_of

Start = ConstantOp | LoadOp


class Distribution:
    """Gives each warp its part of the sums of a product: of all values that are the same tile of sums, from what it
    starts from to D, and of the operations that they go through.

    Raises a located diagnostic if other operations take or make the tile.
    """

    def __init__(self, product: TileMmaOp) -> None:
        self.product, self.schedule, self.kind = product, schedule_of(product), _held(product)
        self.values: list[SSAValue] = []
        self.starts: list[Start] = []
        self.products: list[TileMmaOp] = []
        self.ends: list[EpilogueOp] = []
        self._follow(product.d)
        for other in self.products:
            if _held(other) != self.kind:
                fail(other, f"expected sums that warps hold as another product of them does, as {self.kind}")
        if len(self.starts) != 1:
            fail(product, f"expected sums that start in one place, got {len(self.starts)}")
        (self.start,) = self.starts
        self.index = IndexBuilder(Builder(InsertPoint.before(self.start)))
        self.moved = dict[tuple[SSAValue, str], Index]()
        m, n = raster.warp_origin(self.index, self.schedule)
        self.slice = raster.slice_number(self.index, self.schedule)
        k = self.index.mul(self.slice, self.schedule.cta[2] // self.schedule.sliced_k)
        self.warp: dict[str, Index] = {"m": m, "n": n, "k": k}

    def _follow(self, value: SSAValue) -> None:
        """Adds a value, and those that are the same tile before and after it."""
        if value in self.values:
            return
        self.values.append(value)
        if isinstance(value, BlockArgument):
            self._handed_on(value.block, value.index - 1)
        else:
            self._made(value, value.owner)
        for use in list(value.uses):
            self._used(use.operation, use.index)

    def _made(self, value: SSAValue, op: Operation | Block) -> None:
        if isinstance(op, scf.ForOp):
            self._handed_on(op.body.block, next(i for i, result in enumerate(op.results) if result is value))
        elif isinstance(op, ConstantOp | LoadOp):
            self.starts.append(op)
        elif isinstance(op, TileMmaOp):
            self.products.append(op)
            self._follow(op.c)
        elif isinstance(op, Operation):
            fail(op, f"{op.name} cannot make a tile of sums that warps are to have parts of")

    def _used(self, op: Operation, index: int) -> None:
        if isinstance(op, TileMmaOp):
            self._follow(op.d)
        elif isinstance(op, EpilogueOp):
            self.ends.append(op)
        elif isinstance(op, scf.ForOp):
            self._handed_on(op.body.block, index - 3)
        elif isinstance(op, scf.YieldOp) and (block := op.parent) is not None:
            self._handed_on(block, index)
        else:
            fail(op, f"{op.name} cannot take a tile of sums that warps are to have parts of")

    def _handed_on(self, body: Block, number: int) -> None:
        """What a loop starts with, what each turn begins and ends with, and the result."""
        loop, last = body.parent_op(), body.last_op
        if not isinstance(loop, scf.ForOp) or last is None:
            fail(self.product, "expected sums of a loop, or of none, to give warps their parts of")
        for value in (loop.iter_args[number], body.args[1 + number], last.operands[number], loop.results[number]):
            self._follow(value)

    def rewrite(self) -> None:
        """Puts fragments in the place of tiles."""
        ends = [(end, *self._place(end.at)) for end in self.ends]
        # Slices start from zero each: what the product starts from is added to the sum of them all.
        whole = self.schedule.sliced_k == 1
        start = self._started(self.index, self.kind) if whole else constant(self.index, self.kind, 0.0)
        self.start.fragment.replace_all_uses_with(start)
        for value in self.values:
            if isinstance(value, BlockArgument) or isinstance(value.owner, scf.ForOp):
                Rewriter.replace_value_with_new_type(value, self.kind)
        part = self.index.values([self.warp[axis] for axis in "mnk"])
        for product in self.products:
            Rewriter.replace_op(product, product.of_warp(product.c, part))
        for end, m, n in ends:
            self._end(end, m, n)
        Rewriter.erase_op(self.start)

    def _place(self, at: Sequence[SSAValue]) -> list[Index]:
        """Where in memory the warp's part begins, of a tile that begins at a row and a column."""
        for place in zip(at, "mn", strict=True):
            if place not in self.moved:
                self._check_known(place[0])
                self.moved[place] = self.index.add(self.index.known(place[0]), self.warp[place[1]])
        return [self.moved[place] for place in zip(at, "mn", strict=True)]

    def _check_known(self, value: SSAValue) -> None:
        """Refuses a place that is not known where the sums start, before which warps compute their own."""
        made = value.owner
        if isinstance(made, Operation) and made.parent is self.start.parent and not made.is_before_in_block(self.start):
            fail(made, "expected the place of a tile in memory to be computed before its sums start")

    def _started(self, index: IndexBuilder, kind: FragmentType, down: Index = 0, across: Index = 0) -> SSAValue:
        """What the sums start from, as a fragment that begins some rows down and columns across in the warp's part."""
        if isinstance(self.start, ConstantOp):
            return index.insert(ConstantOp(self.start.value, kind)).fragment
        m, n = self._place(self.start.indices)
        place = index.add(m, down), index.add(n, across)
        loaded = load(
            index, self.start.memory, kind.with_layout(stored(kind.layout.data)), *place, self.start.in_bounds
        )
        return in_layout(index, converted(index, loaded, kind.element_type), kind.layout.data)

    def _end(self, end: EpilogueOp, m: Index, n: Index) -> None:
        """Stores the warp's part, or its slice's part of that."""
        index, sums = self.index.at(Builder(InsertPoint.before(end))), end.sums
        if self.schedule.sliced_k > 1:
            sums, down, across, parts = self._sum(index, sums)
            if parts < self.schedule.sliced_k:
                index = self._some(index, end, parts)
            m, n = index.add(m, down), index.add(n, across)
            if isinstance(self.start, LoadOp) or self.start.value.value.data:
                start = self._started(index, fragment_of(sums), down, across)
                sums = index.insert(ElementwiseOp(Kind.Add, start, sums)).fragment
        Rewriter.replace_op(end, end.of_warp(sums, index.values([m, n])))

    def _some(self, index: IndexBuilder, end: EpilogueOp, parts: int) -> IndexBuilder:
        """Lets only the slices that got a part execute an end, the first `parts` of them; what precedes it there."""
        gets = index.insert(arith.CmpiOp(index.value(self.slice), index.value(parts), "ult")).result
        some = scf.IfOp(gets, [], Region(body := Block([last := scf.YieldOp()])))
        some.attributes[SOME_WARPS] = IntegerAttr(self.schedule.warps // self.schedule.sliced_k * parts, i64)
        index.insert(some)
        end.detach()
        body.insert_op_before(end, last)
        return index.at(Builder(InsertPoint.before(end)))

    def _sum(self, index: IndexBuilder, sums: SSAValue) -> tuple[SSAValue, Index, Index, int]:
        """This slice's part of the sum over all slices, how many rows down and columns across it begins, and how many
        slices get one."""
        schedule, whole = self.schedule, fragment_of(sums)
        try:
            part = part_of(whole, schedule.sliced_k)
        except VerifyException as error:
            fail(self.product, f"schedule: {error}")
        if whole.registers // part.registers < schedule.sliced_k and schedule.split_k > 1:
            fail(self.product, f"schedule: split_k takes no more slices than {whole} has base tiles")
        room, parts = part.registers * LANES * (schedule.sliced_k - 1), whole.registers // part.registers
        word = f64 if whole.bits == 64 else f32
        rows = schedule.warps // schedule.sliced_k * parts
        kind = MemRefType(word, [rows, room], memory_space=IntegerAttr(SHARED_SPACE, i64))
        scratch = index.insert(memref.AllocOp([], [], kind)).memref
        total = index.insert(SumSlicedKOp(sums, scratch, schedule.sliced_k)).part
        steps = (size if size < all_ else 0 for size, all_ in zip(part.shape, whole.shape, strict=True))
        # A slice that gets nothing is at the place of another one, so that what is loaded there early is in bounds.
        place = self.slice if parts == schedule.sliced_k else index.rem(self.slice, parts)
        down, across = (index.mul(place, step) for step in steps)
        return total, down, across, parts


def _held(product: TileMmaOp) -> FragmentType:
    """The part of a product's sums that a warp has."""
    return Tiling(TileProduct.of(product), schedule_of(product)).fragment("acc")


class DistributeSums(RewritePattern):
    """`warp.tile_mma` of a CTA, with all that its sums go through: fragments of each warp."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TileMmaOp, rewriter: PatternRewriter) -> None:
        if not op.part:
            Distribution(op).rewrite()


class DistributePass(PatternPass):
    """Distributes the tiles of a CTA among its warps or warpgroups, as fragments. If `sliced_k` makes groups of warps
    share a K tile, it also adds their sums."""

    name = "warp-distribute"
    patterns = (DistributeSums,)
