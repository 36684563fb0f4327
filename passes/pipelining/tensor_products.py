"""Products that a warp of the producer's starts, whose sums are in tensor memory: what all loops over K have of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.gpu import FuncOp, SubgroupIdOp
from ...dialect.warp.attributes import TENSOR_SPACE, FragmentType, fragment_of
from ...dialect.warp.cta import MakeRingOp, PipelineOp
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind
from ...dialect.warp.memory import LoadOp
from ...dialect.warp.synchronisation import SOME_WARPS, WGMMA, ClusterRankOp, CommitOp, ElectOp, FenceOp, WaitOp
from ...dialect.warp.tensor_memory import in_pairs
from ...dialect.warp.warpgroup import WgmmaOp
from ..diagnostics import fail
from ..patterns import Index, IndexBuilder, constant_value
from ..tile.fragment_math import constant
from .ring import Ring


class TensorProducts(ABC):
    """The products of a loop over K, which consumers no longer start: the second warp of the producer's does.

    `rows` are those of an instruction, of matrices as high in tensor memory.
    """

    initial: ClassVar[Sequence[int]]

    def __init__(self, kernel: FuncOp, loop: scf.ForOp) -> None:
        self.loop = loop
        self.products = [op for op in loop.body.block.ops if isinstance(op, WgmmaOp)]
        self.tiles = around if isinstance(around := loop.parent_op(), scf.ForOp) else None
        self.consumers, self.producers = self._roles()
        steps = [op for op in loop.body.block.ops if isinstance(op, PipelineOp)]
        made, start, end = steps[0].ring.owner, kernel.body.block.first_op, kernel.body.block.last_op
        if not isinstance(made, MakeRingOp) or start is None or end is None:
            fail(loop, "expected a loop over the stages of a ring: run warp-specialise first")
        self.ctas, self.staged = 2 if in_pairs(loop) else 1, Ring.of_value(made.ring)
        self.rows, _ = fragment_of(self.products[0].c).shape
        self.start = IndexBuilder(Builder(InsertPoint.before(made)), Builder(InsertPoint.before(start)))
        self._end = self.start.at(Builder(InsertPoint.before(end)))

    def free(self, memory: SSAValue) -> None:
        """Frees all tensor memory, of which this comes first, where the kernel ends."""
        self._end.insert(memref.DeallocOp.get(memory))

    def allocated(self, element: Attribute, *shape: int) -> SSAValue:
        """Matrices in tensor memory."""
        kind = MemRefType(element, shape, memory_space=IntegerAttr(TENSOR_SPACE, i64))
        return self.start.insert(memref.AllocOp([], [], kind)).memref

    def _roles(self) -> tuple[scf.IfOp, scf.IfOp]:
        """The branches of the consumers, and of the producer."""
        around = self.loop.parent_op()
        while around is not None and not isinstance(around, scf.IfOp):
            around = around.parent_op()
        count = None if around is None else around.attributes.get(SOME_WARPS)
        before = None if around is None else around.prev_op
        while before is not None and not isinstance(before, scf.IfOp):
            before = before.prev_op
        if around is None or before is None or not isinstance(count, IntegerAttr):
            fail(self.loop, "expected products of consumer warpgroups: run warp-specialise first")
        self.warps = count.value.data
        return around, before

    # The warp that multiplies

    def _multiply(self) -> None:
        """Lets one lane of the producer's second warp start all products."""
        end = self.producers.true_region.block.last_op
        if end is None:
            return
        index = self.start.at(Builder(InsertPoint.before(end)))
        warp = index.insert(SubgroupIdOp()).result
        second = index.insert(arith.CmpiOp(warp, index.value(self.warps + 1), "eq")).result
        if self.ctas > 1:
            leads = index.insert(arith.CmpiOp(index.insert(ClusterRankOp()).rank, index.value(0), "eq")).result
            second = index.insert(arith.AndIOp(second, leads)).result
        one = index.insert(arith.AndIOp(second, index.insert(ElectOp()).chosen)).result
        with index.where(one) as inside:
            if self.tiles is None:
                self.tile(inside, list(self.initial), {})
                return
            known = dict[SSAValue, SSAValue]()
            first, last, step = (inside.again(each, known, self.is_inside) for each in self.tiles.operands[:3])
            with inside.loop(first, last, step, inside.values(self.initial)) as turn:
                tile = {self.tiles.body.block.args[0]: turn.counter}
                turn.handed = turn.index.values(self.tile(turn.index, list(turn.carried), known | tile))

    @abstractmethod
    def load(self) -> None:
        """Lets consumers load what was multiplied, in place of multiplying."""

    def move(self) -> None:
        """Puts the sums in tensor memory."""
        self._multiply()
        self.load()

    @abstractmethod
    def tile(self, index: IndexBuilder, state: list[Index], known: dict[SSAValue, SSAValue]) -> list[Index]:
        """The products of a tile, with the stages and the parities that are `initial` in the first tile, before and
        after it."""

    def place(
        self, index: IndexBuilder, op: WgmmaOp, role: str, first: int, known: dict[SSAValue, SSAValue]
    ) -> list[SSAValue]:
        """Where an operand of all consumers begins, from its row or column `first` on."""
        along, indices = along_mn(op, role), op.a_indices if role == "a" else op.b_indices
        return [
            index.value(first) if number == along else index.again(place, known, self.is_inside)
            for number, place in enumerate(indices)
        ]

    def is_inside(self, op: Operation) -> bool:
        """Whether an operation is the consumers' alone."""
        around = op.parent_op()
        while around is not None and around is not self.consumers:
            around = around.parent_op()
        return around is not None

    # The consumers

    def load_sums(self, index: IndexBuilder, which: int, memory: SSAValue, at: tuple[Index, Index]) -> IndexBuilder:
        """Loads the sums that the loop would hand on as number `which`, of a consumer, from the matrix and the column
        `at` on: part by part where they are used so. Where the last of them are loaded."""
        loop, (result, start) = self.loop, (values[which] for values in (self.loop.results, self.loop.iter_args))
        uses = dict.fromkeys(use.operation for use in result.uses)
        parts = [op for op in loop.parent.ops if op in uses] if loop.parent is not None else []
        within = [op for op in parts if isinstance(op, SubfragmentOp) and not op.at[0]]
        for op in within if len(within) == len(uses) else ():
            index = self.start.at(Builder(InsertPoint.after(op)))
            sums = self._sums(index, start, memory, at, fragment_of(op.fragment), op.at[1])
            Rewriter.replace_op(op, [], [sums])
        if len(within) < len(uses):
            result.replace_all_uses_with(self._sums(index, start, memory, at, fragment_of(start)))
        return index

    def _sums(
        self,
        index: IndexBuilder,
        start: SSAValue,
        memory: SSAValue,
        at: tuple[Index, Index],
        kind: FragmentType,
        left: int = 0,
    ) -> SSAValue:
        """The sums of a consumer from column `left` of its own on, with what they start from: what it loads, or zeros
        where K is empty."""
        place, whole = index.values([at[0], 0, index.add(at[1], left)]), fragment_of(start)
        first, last = constant_value(self.loop.lb), constant_value(self.loop.ub)
        if first is not None and last is not None and first >= last:
            return start if kind == whole else index.insert(SubfragmentOp(start, (0, left), kind.shape)).fragment
        if first is not None and last is not None:
            sums = index.insert(LoadOp(memory, place, kind)).fragment
        else:
            some = index.insert(arith.CmpiOp(self.loop.lb, self.loop.ub, "slt")).result
            loaded, zeros = Block(), Block()
            inside = [index.at(Builder(InsertPoint.at_end(block))) for block in (loaded, zeros)]
            inside[0].insert(scf.YieldOp(inside[0].insert(LoadOp(memory, place, kind)).fragment))
            inside[1].insert(scf.YieldOp(constant(inside[1], kind, 0)))
            sums = index.insert(scf.IfOp(some, [kind], Region(loaded), Region(zeros))).results[0]
        if isinstance(start.owner, ConstantOp) and start.owner.value.value.data == 0:
            return sums
        if kind != whole:
            start = index.insert(SubfragmentOp(start, (0, left), kind.shape)).fragment
        return index.insert(ElementwiseOp(Kind.Add, start, sums)).fragment


def along_mn(op: WgmmaOp, role: str) -> int:
    """Which index of operand "a" or "b", behind that of the stage, is along M or N."""
    return 2 if op.major(role) else 1


def is_of_wgmma(op: Operation) -> bool:
    """Whether an operation fences, closes or waits for products of `wgmma`."""
    of = op.before if isinstance(op, FenceOp) else op.group if isinstance(op, CommitOp | WaitOp) else None
    return of is not None and of.data == WGMMA
