"""`warp-tensor-memory`: products of warpgroups add up in tensor memory, where the target has no `wgmma` (sm_100a)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.isa.tensor_product import ALLOCATIONS, in_tensor_memory
from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.tensor_memory import METADATA_BLOCK
from ...dialect.mlir.gpu import FuncOp, SubgroupIdOp
from ...dialect.warp.attributes import TENSOR_SPACE, FragmentType, fragment_of, memory_of, target_of
from ...dialect.warp.cta import ACQUIRE, COMMIT, RELEASE, WAIT, CopyOp, MakeRingOp, PipelineOp
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind
from ...dialect.warp.memory import LoadOp
from ...dialect.warp.op_shapes import is_pure
from ...dialect.warp.synchronisation import (
    AFTER_SYNC,
    BEFORE_SYNC,
    SOME_WARPS,
    WGMMA,
    ClusterRankOp,
    CommitOp,
    ElectOp,
    FenceOp,
    WaitOp,
)
from ...dialect.warp.tensor_memory import TensorMmaOp, columns_of, in_pairs
from ...dialect.warp.warpgroup import WgmmaOp
from ..diagnostics import fail
from ..patterns import Index, IndexBuilder, PatternPass, constant_value
from ..schedule.tensor_memory import BUFFERS
from ..tile.fragment_math import constant
from .ring import Ring


class AddUp(RewritePattern):
    """The loop over K of a kernel of warpgroups, whose sums are in tensor memory in place of registers.

    A warp of the producer's warpgroup starts the products of all consumers, which load the sums of a tile while those
    of the next are added up::

        second warp of the producer                     consumers
          for each tile of this CTA:                      for each tile of this CTA:
            wait: sums[b] have been loaded                  wait: sums[b] are complete
            for each K tile:                                load sums[b], say that they have been
              wait: stage is full                           store them
              start products, when they are done
              the stage is empty
            when all are done sums[b] are complete
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: FuncOp, rewriter: PatternRewriter) -> None:
        products = [inner for inner in op.walk() if isinstance(inner, WgmmaOp)]
        target = target_of(op)
        if target is None or not products or not all(in_tensor_memory(product.row, target) for product in products):
            return
        loops = list(dict.fromkeys(map(_loop_of, products)))
        if len(loops) > 1:
            fail(loops[1], "expected one loop over K: products of several are not added up in tensor memory")
        _Sums(op, loops[0]).move()


def _loop_of(product: WgmmaOp) -> scf.ForOp:
    loop = product.parent_op()
    if product.a_in_registers or product.e is not None or product.transposed is not None:
        fail(product, "products in tensor memory take dense operands in shared memory")
    if not isinstance(loop, scf.ForOp) or len(loop.iter_args) != 3:
        fail(product, "expected products in a loop over K that adds up one sum: run warp-specialise first")
    return loop


class _Sums:
    """The sums of one loop over K on their way to tensor memory: those of all consumers side by side, as matrices of
    the rows of an instruction and all columns of the CTA's tile."""

    def __init__(self, kernel: FuncOp, loop: scf.ForOp) -> None:
        self.loop = loop
        self.products = [op for op in loop.body.block.ops if isinstance(op, WgmmaOp)]
        self.tiles = around if isinstance(around := loop.parent_op(), scf.ForOp) else None
        self.consumers, self.producers = self._roles()
        kind, first = fragment_of(loop.iter_args[0]), self.products[0]
        self.kind, (self.rows, columns) = kind, kind.shape
        steps = [op for op in loop.body.block.ops if isinstance(op, PipelineOp)]
        made, start, end = steps[0].ring.owner, kernel.body.block.first_op, kernel.body.block.last_op
        if not isinstance(made, MakeRingOp) or start is None or end is None:
            fail(loop, "expected a loop over the stages of a ring: run warp-specialise first")
        self.count = memory_of(first.a).get_shape()[_along_mn(first, "a")] // self.rows
        self.columns = columns * (self.warps // WARPS // self.count)
        self.ctas = 2 if in_pairs(loop) else 1
        self.stages = made.ring.type.count.data
        beside = [(tile, self._beside_type(first, tile)) for tile in first.beside]
        taken = sum(columns_of(kind) * self.stages for _, kind in beside)
        fits = BUFFERS * self.count * self.columns + taken <= ALLOCATIONS[-1]
        self.buffers = BUFFERS if self.tiles is not None and fits else 1
        self.start = IndexBuilder(Builder(InsertPoint.before(made)), Builder(InsertPoint.before(start)))
        shape = [self.buffers * self.count, self.rows, self.columns]
        sums = MemRefType(kind.element_type, shape, memory_space=IntegerAttr(TENSOR_SPACE, i64))
        self.sums = self.start.insert(memref.AllocOp([], [], sums)).memref
        self.beside = {tile: self.start.insert(memref.AllocOp([], [], kind)).memref for tile, kind in beside}
        self.ring = Ring.of(self.start, MakeRingOp(self.buffers, 1, self.ctas * self.warps))
        self.start.at(Builder(InsertPoint.before(end))).insert(memref.DeallocOp.get(self.sums))

    def _beside_type(self, product: WgmmaOp, tile: SSAValue) -> MemRefType:
        """The scales of a tile in tensor memory, of the rows of all blocks of a stage; metadata, of all lanes."""
        kind, a, scale = memory_of(tile), memory_of(product.a), product.row.scale
        lines = kind.get_shape()[-2]
        shape = [self.stages, METADATA_BLOCK.threads, lines // METADATA_BLOCK.threads * METADATA_BLOCK.elements]
        if scale is not None:
            words = a.get_shape()[-1] // (product.row.shape.k // scale.vector * SCALES_OF_WORD)
            shape = [self.stages, lines // words * SCALES_OF_WORD, words * SCALES_OF_WORD]
        return MemRefType(kind.element_type, shape, memory_space=IntegerAttr(TENSOR_SPACE, i64))

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

    def move(self) -> None:
        """Puts the sums in tensor memory."""
        self._multiply()
        self._load()

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
        body = Block()
        inside = index.at(Builder(InsertPoint.at_end(body)))
        if self.tiles is None:
            self._tile(inside, [0, 0, 0, 1], {})
        else:
            turn, known = Block(arg_types=[IndexType()] * 5), dict[SSAValue, SSAValue]()
            first, last, step = (inside.again(each, known, self._is_inside) for each in self.tiles.operands[:3])
            tile, *state = turn.args
            within = inside.at(Builder(InsertPoint.at_end(turn)))
            after = self._tile(within, list(state), known | {self.tiles.body.block.args[0]: tile})
            within.insert(scf.YieldOp(*within.values(after)))
            inside.insert(scf.ForOp(first, last, step, inside.values([0, 0, 0, 1]), turn))
        inside.insert(scf.YieldOp())
        index.insert(scf.IfOp(one, [], Region(body)))

    def _tile(self, index: IndexBuilder, state: list[Index], known: dict[SSAValue, SSAValue]) -> list[Index]:
        """The products of a tile, with the stage of the ring and that of the sums, each with its parity, before and
        after it."""
        stage, parity, buffer, phase = state
        self.ring.step(index, ACQUIRE, buffer, phase)
        index.insert(FenceOp(AFTER_SYNC))
        first, last, step = (index.again(each, known, self._is_inside) for each in self.loop.operands[:3])
        numbers = [index.add(index.mul(buffer, self.count), number) for number in range(self.count)]
        old, body = self.loop.body.block, Block(arg_types=[IndexType()] * 3)
        inside = index.at(Builder(InsertPoint.at_end(body)))
        now = known | dict(zip([old.args[0], *old.args[2:]], body.args, strict=True))
        adds = inside.insert(arith.CmpiOp(body.args[0], first, "ne")).result
        for op in old.ops:
            if isinstance(op, WgmmaOp):
                at = inside.again(op.a_indices[0], now, self._is_inside)
                if op is self.products[0]:
                    for tile, memory in self.beside.items():
                        inside.insert(CopyOp(tile, [at, *inside.values([0, 0])], memory, [at]))
                more = adds if op is self.products[0] else None
                for number, which in enumerate(numbers):
                    a, b = self._places(inside, op, number, now)
                    beside = [self.beside[tile] for tile in op.beside]
                    inside.insert(TensorMmaOp(op, (a, b), self.sums, inside.value(which), more, beside, at))
            elif isinstance(op, PipelineOp | scf.YieldOp):
                values = [value for value in op.operands if value is not self.products[-1].d]
                again = {value: inside.again(value, now, self._is_inside) for value in values}
                inside.insert(op.clone(again) if isinstance(op, PipelineOp) else scf.YieldOp(*again.values()))
            elif not (is_pure(op) or _is_of_wgmma(op)):
                fail(op, f"{op.name} in the loop over K is no part of products in tensor memory")
        loop = index.insert(scf.ForOp(first, last, step, index.values([stage, parity]), body))
        self.ring.step(index, COMMIT, buffer, products=True)
        return [*loop.results, *self.ring.next(index, buffer, phase)]

    def _places(
        self, index: IndexBuilder, op: WgmmaOp, matrix: int, known: dict[SSAValue, SSAValue]
    ) -> Iterator[Sequence[SSAValue]]:
        """Where A and B of all consumers begin: the rows of the matrix of a number, and the first column."""
        for role, first, indices in (("a", matrix * self.rows, op.a_indices), ("b", 0, op.b_indices)):
            along = _along_mn(op, role)
            yield [
                index.value(first) if number == along else index.again(place, known, self._is_inside)
                for number, place in enumerate(indices)
            ]

    def _is_inside(self, op: Operation) -> bool:
        """Whether an operation is the consumers' alone."""
        around = op.parent_op()
        while around is not None and around is not self.consumers:
            around = around.parent_op()
        return around is not None

    # The consumers

    def _load(self) -> None:
        """Lets consumers wait for their sums and load them, part by part, in place of multiplying."""
        loop, index = self.loop, self.start.at(Builder(InsertPoint.before(self.loop)))
        buffer, parity = (index.known(value) for value in loop.iter_args[1:])
        product = self.products[0]
        down, across = (index.known(places[_along_mn(product, role)]) for role, _, places in product.tiles())
        number = index.add(index.mul(buffer, self.count), index.div(down, self.rows))
        self.ring.step(index, WAIT, buffer, parity)
        index.insert(FenceOp(AFTER_SYNC))
        uses = dict.fromkeys(use.operation for use in loop.results[0].uses)
        parts = [op for op in loop.parent.ops if op in uses] if loop.parent is not None else []
        within = [op for op in parts if isinstance(op, SubfragmentOp) and not op.at[0]]
        for op in within if len(within) == len(uses) else ():
            index = self.start.at(Builder(InsertPoint.after(op)))
            sums = self._sums(index, number, across, fragment_of(op.fragment), op.at[1])
            Rewriter.replace_op(op, [], [sums])
        if len(within) < len(uses):
            loop.results[0].replace_all_uses_with(self._sums(index, number, across, self.kind))
        index.insert(FenceOp(BEFORE_SYNC))
        self.ring.step(index, RELEASE, buffer)
        following = index.values(self.ring.next(self.start.at(Builder(InsertPoint.before(loop))), buffer, parity))
        Rewriter.replace_op(loop, [], [loop.iter_args[0], *following])

    def _sums(self, index: IndexBuilder, number: Index, across: Index, kind: FragmentType, left: int = 0) -> SSAValue:
        """The sums of a consumer from column `left` of its own on, with what they start from: what it loads, or zeros
        where K is empty."""
        at, start = index.values([number, 0, index.add(across, left)]), self.loop.iter_args[0]
        first, last = constant_value(self.loop.lb), constant_value(self.loop.ub)
        if first is not None and last is not None and first >= last:
            return start if kind == self.kind else index.insert(SubfragmentOp(start, (0, left), kind.shape)).fragment
        if first is not None and last is not None:
            sums = index.insert(LoadOp(self.sums, at, kind)).fragment
        else:
            some = index.insert(arith.CmpiOp(self.loop.lb, self.loop.ub, "slt")).result
            loaded, zeros = Block(), Block()
            inside = [index.at(Builder(InsertPoint.at_end(block))) for block in (loaded, zeros)]
            inside[0].insert(scf.YieldOp(inside[0].insert(LoadOp(self.sums, at, kind)).fragment))
            inside[1].insert(scf.YieldOp(constant(inside[1], kind, 0)))
            sums = index.insert(scf.IfOp(some, [kind], Region(loaded), Region(zeros))).results[0]
        if isinstance(start.owner, ConstantOp) and start.owner.value.value.data == 0:
            return sums
        if kind != self.kind:
            start = index.insert(SubfragmentOp(start, (0, left), kind.shape)).fragment
        return index.insert(ElementwiseOp(Kind.Add, start, sums)).fragment


def _along_mn(op: WgmmaOp, role: str) -> int:
    """Which index of operand "a" or "b", behind that of the stage, is along M or N."""
    return 2 if op.major(role) else 1


def _is_of_wgmma(op: Operation) -> bool:
    """Whether an operation fences, closes or waits for products of `wgmma`."""
    of = op.before if isinstance(op, FenceOp) else op.group if isinstance(op, CommitOp | WaitOp) else None
    return of is not None and of.data == WGMMA


class TensorMemoryPass(PatternPass):
    """Adds products of warpgroups up in tensor memory on targets that have it in place of `wgmma`.

    It runs after `warp-specialise`, before `warp-synchronise`.
    """

    name = "warp-tensor-memory"
    needs: ClassVar = ("warp.wgmma",)
    patterns = (AddUp,)
