"""`warp-tensor-memory`: products of warpgroups add up in tensor memory, where the target has no `wgmma` (sm_100a)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, MemRefType, i1
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.isa.tensor_product import ALLOCATIONS, in_tensor_memory
from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.tensor_memory import METADATA_BLOCK
from ...dialect.mlir.gpu import ClusterBlockIdOp, FuncOp, SubgroupIdOp
from ...dialect.mlir.upstream import ElectOp
from ...dialect.warp.attributes import (
    TENSOR_SPACE,
    FragmentType,
    enclosing,
    fragment_of,
    in_pairs,
    memory_of,
    target_of,
)
from ...dialect.warp.cta import (
    ACQUIRE,
    COMMIT,
    FILLED,
    READ,
    RELEASE,
    SOME_WARPS,
    WAIT,
    MakeRingOp,
    PipelineOp,
    RingType,
)
from ...dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind, SubfragmentOp, alike, is_zero
from ...dialect.warp.memory import CopyOp, LoadOp, StoreOp
from ...dialect.warp.op_shapes import is_pure, tile_type
from ...dialect.warp.rows import MapOp
from ...dialect.warp.synchronisation import AFTER_SYNC, BEFORE_SYNC, WGMMA, CommitOp, FenceOp, WaitOp
from ...dialect.warp.tensor_memory import TensorMmaOp, columns_of
from ...dialect.warp.warpgroup import WgmmaOp
from ..diagnostics import fail
from ..patterns import Index, IndexBuilder, PatternPass, constant_value, erase_unused, rewrite_pattern
from ..schedule.needs import BUFFERS
from .ring import Ring

# Products that a warp of the producer's starts, whose sums are in tensor memory: what all loops over K have of it.


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
        self.steps = [op for op in loop.body.block.ops if isinstance(op, PipelineOp)]
        made, start, end = self.steps[0].ring.owner, kernel.body.block.first_op, kernel.body.block.last_op
        if not isinstance(made, MakeRingOp) or start is None or end is None:
            fail(loop, "expected a loop over the stages of a ring: run warp-specialise first")
        self.ctas, self.staged = 2 if in_pairs(loop) else 1, Ring(made.ring)
        self.rows, _ = fragment_of(self.products[0].c).shape
        self.start = IndexBuilder(made, Builder(InsertPoint.before(start)))
        self.end_of_kernel = self.start.before(end)

    def allocated(self, element: Attribute, *shape: int) -> SSAValue:
        """Matrices in tensor memory."""
        return self.start.alloc(tile_type(element, shape, space=TENSOR_SPACE))

    def _roles(self) -> tuple[scf.IfOp, scf.IfOp]:
        """The branches of the consumers, and of the producer."""
        around = next((each for each in enclosing(self.loop) if isinstance(each, scf.IfOp)), None)
        count = None if around is None else around.attributes.get(SOME_WARPS)
        before = None if around is None else around.prev_op
        while before is not None and not isinstance(before, scf.IfOp):
            before = before.prev_op
        if around is None or before is None or not isinstance(count, IntegerAttr):
            fail(self.loop, "expected products of consumer warpgroups: run warp-specialise first")
        self.warps = count.value.data
        return around, before

    # The warp that multiplies

    def multiply(self) -> None:
        """Lets one lane of the producer's second warp start all products."""
        end = self.producers.true_region.block.last_op
        if end is None:
            return
        index = self.start.before(end)
        warp = index.insert(SubgroupIdOp()).result
        second = index.compare("eq", warp, self.warps + 1)
        if self.ctas > 1:
            leads = index.compare("eq", index.number(ClusterBlockIdOp), 0)
            second = index.insert(arith.AndIOp(second, leads)).result
        one = index.insert(arith.AndIOp(second, index.insert(ElectOp.create(result_types=[i1])).results[0])).result
        with index.where(one) as inside:
            if self.tiles is None:
                self.tile(inside, list(self.initial), {})
                return
            values = dict[SSAValue, SSAValue]()
            first, last, step = (inside.again(each, values, self.is_inside) for each in self.tiles.operands[:3])
            with inside.loop(first, last, step, inside.values(self.initial)) as turn:
                tile = {self.tiles.body.block.args[0]: turn.counter}
                turn.handed = turn.index.values(self.tile(turn.index, list(turn.carried), values | tile))

    @abstractmethod
    def load(self) -> None:
        """Lets consumers load what was multiplied, in place of multiplying."""

    @abstractmethod
    def tile(self, index: IndexBuilder, state: list[Index], values: dict[SSAValue, SSAValue]) -> list[Index]:
        """The products of a tile, with the stages and the parities that are `initial` in the first tile, before and
        after it."""

    def place(
        self, index: IndexBuilder, op: WgmmaOp, role: str, first: int, values: dict[SSAValue, SSAValue]
    ) -> list[SSAValue]:
        """Where an operand of all consumers begins, from its row or column `first` on."""
        along, indices = along_mn(op, role), op.a_indices if role == "a" else op.b_indices
        return [
            index.value(first) if number == along else index.again(place, values, self.is_inside)
            for number, place in enumerate(indices)
        ]

    def is_inside(self, op: Operation) -> bool:
        """Whether an operation is the consumers' alone."""
        return self.consumers in enclosing(op)

    # The consumers

    def load_sums(self, index: IndexBuilder, which: int, memory: SSAValue, at: tuple[Index, Index]) -> IndexBuilder:
        """Loads the sums that the loop would hand on as number `which`, of a consumer, from the matrix and the column
        `at` on: part by part where they are used so. Where the last of them are loaded."""
        loop, (result, start) = self.loop, (values[which] for values in (self.loop.results, self.loop.iter_args))
        uses = dict.fromkeys(use.operation for use in result.uses)
        parts = [op for op in loop.parent.ops if op in uses] if loop.parent is not None else []
        within = [op for op in parts if isinstance(op, SubfragmentOp) and not op.at[0]]
        for op in within if len(within) == len(uses) else ():
            index = self.start.after(op)
            sums = self._sums(index, start, memory, at, fragment_of(op.fragment), op.at[1])
            Rewriter.replace_op(op, [], [sums])
        if len(within) < len(uses):
            result.replace_all_uses_with(self._sums(index, start, memory, at, fragment_of(start)))
        return index

    def _sums(self, index: IndexBuilder, start: SSAValue, memory: SSAValue, at: tuple[Index, Index], kind: FragmentType,
              left: int = 0) -> SSAValue:  # fmt: skip
        """The accumulators of a consumer from its column `left` on, added to the initial values. They are the initial
        values alone if K is empty."""
        place, full = index.values([at[0], 0, index.add(at[1], left)]), fragment_of(start)
        first, last = constant_value(self.loop.lb), constant_value(self.loop.ub)
        if first is not None and last is not None and first >= last:
            return start if kind == full else index.insert(SubfragmentOp([start], (0, left), kind.shape)).fragment
        if first is not None and last is not None:
            sums = index.insert(LoadOp(memory, place, kind)).fragment
        else:
            (sums,) = index.either(
                index.compare("slt", self.loop.lb, self.loop.ub),
                lambda inside: [inside.insert(LoadOp(memory, place, kind)).fragment],
                lambda inside: [inside.insert(ConstantOp.of(0.0, kind)).fragment],
            )
        if is_zero(start):
            return sums
        if kind != full:
            start = index.insert(SubfragmentOp([start], (0, left), kind.shape)).fragment
        return index.insert(ElementwiseOp(Kind.Add, start, sums)).fragment


def along_mn(op: WgmmaOp, role: str) -> int:
    """The index of operand "a" or "b" that runs along M or N. Index 0 is the stage."""
    return 2 if op.major(role) else 1


def is_of_wgmma(op: Operation) -> bool:
    """Whether an operation fences, closes or waits for products of `wgmma`."""
    of = op.before if isinstance(op, FenceOp) else op.group if isinstance(op, CommitOp | WaitOp) else None
    return of is not None and of.data == WGMMA


class _Sums(TensorProducts):
    """The sums of one loop over K on their way to tensor memory: those of all consumers side by side, as matrices of
    the rows of an instruction and all columns of the CTA's tile."""

    initial = ()

    def __init__(self, kernel: FuncOp, loop: scf.ForOp) -> None:
        super().__init__(kernel, loop)
        self.kind, first = fragment_of(loop.iter_args[0]), self.products[0]
        self.count = memory_of(first.a).get_shape()[along_mn(first, "a")] // self.rows
        self.columns = self.kind.shape[1] * (self.warps // WARPS // self.count)
        side_operands = [(tile, self._beside_shape(first, tile)) for tile in first.side_operands]
        of_tiles = [(tile, MemRefType(memory_of(tile).element_type, shape)) for tile, shape in side_operands]
        taken = sum(columns_of(kind) * self.staged.stages for _, kind in of_tiles)
        fits = BUFFERS * self.count * self.columns + taken <= ALLOCATIONS[-1]
        self.buffers = BUFFERS if self.tiles is not None and fits else 1
        self.sums = self.allocated(self.kind.element_type, self.buffers * self.count, self.rows, self.columns)
        self.side_operands = {tile: self.allocated(memory_of(tile).element_type, *size) for tile, size in side_operands}
        self.ring = Ring(self.start.insert(MakeRingOp(RingType.of(self.buffers), 1, self.ctas * self.warps)).ring)
        self.end_of_kernel.insert(memref.DeallocOp.get(self.sums))

    def _beside_shape(self, product: WgmmaOp, tile: SSAValue) -> list[int]:
        """The scales of a tile in tensor memory, of the rows of all blocks of a stage; metadata, of all lanes."""
        kind, a, scale = memory_of(tile), memory_of(product.a), product.row.scale
        lines = kind.get_shape()[-2]
        if scale is None:
            block = METADATA_BLOCK
            return [self.staged.stages, block.threads, lines // block.threads * block.elements]
        words = a.get_shape()[-1] // (product.row.shape.k // scale.vector * SCALES_OF_WORD)
        return [self.staged.stages, lines // words * SCALES_OF_WORD, words * SCALES_OF_WORD]

    def tile(self, index: IndexBuilder, state: list[Index], values: dict[SSAValue, SSAValue]) -> list[Index]:
        buffer = self.ring.arrive(index, ACQUIRE)
        index.insert(FenceOp(AFTER_SYNC))
        first, last, step = (index.again(each, values, self.is_inside) for each in self.loop.operands[:3])
        numbers = [index.add(index.mul(buffer, self.count), number) for number in range(self.count)]
        old = self.loop.body.block
        with index.loop(first, last, step) as turn:
            inside, now = turn.index, values | {old.args[0]: turn.counter}
            adds = inside.compare("ne", turn.counter, first)
            for op in old.ops:
                if isinstance(op, WgmmaOp):
                    self._start(inside, op, numbers, adds, now)
                elif isinstance(op, PipelineOp):
                    again = {value: inside.again(value, now, self.is_inside) for value in op.operands}
                    now |= zip(op.results, inside.insert(op.clone(again)).results, strict=True)
                elif not (is_pure(op) or is_of_wgmma(op) or isinstance(op, scf.YieldOp)):
                    fail(op, f"{op.name} in the loop over K is no part of products in tensor memory")
        self.ring.step(index, COMMIT, products=True)
        self.ring.step(index, FILLED)
        return []

    def _start(
        self, index: IndexBuilder, op: WgmmaOp, numbers: Sequence[Index], adds: SSAValue, now: dict[SSAValue, SSAValue]
    ) -> None:
        """Starts a product for all consumers."""
        at = index.again(op.a_indices[0], now, self.is_inside)
        if op is self.products[0]:
            for tile, memory in self.side_operands.items():
                index.insert(CopyOp(tile, [at, *index.values([0, 0])], memory, [at]))
        more = adds if op is self.products[0] else None
        for number, which in enumerate(numbers):
            a, b = (self.place(index, op, *place, now) for place in (("a", number * self.rows), ("b", 0)))
            side_operands = [self.side_operands[tile] for tile in op.side_operands]
            index.insert(TensorMmaOp(op, (a, b), self.sums, index.value(which), more, side_operands, at))

    # The consumers

    def load(self) -> None:
        """Lets consumers wait for their sums and load them, part by part, in place of multiplying."""
        loop, index = self.loop, self.start.before(self.loop)
        buffer = self.ring.arrive(index, WAIT)
        product = self.products[0]
        down, across = (index.folded(places[along_mn(product, role)]) for role, _, places in product.tiles())
        number = index.add(index.mul(buffer, self.count), index.div(down, self.rows))
        index.insert(FenceOp(AFTER_SYNC))
        index = self.load_sums(index, 0, self.sums, (number, across))
        index.insert(FenceOp(BEFORE_SYNC))
        self.ring.step(index, RELEASE)
        self.ring.step(index, READ)
        initial = dict.fromkeys(loop.iter_args)
        Rewriter.replace_op(loop, [], loop.iter_args)
        erase_unused(value.owner for value in initial if isinstance(value.owner, ConstantOp))


# An attention in tensor memory: scores S and outputs O of a loop over keys, and P, operand A of O += P V.

CORRECTED = 64
"""Columns of O that a lane has in registers at a time to multiply them."""


class AttentionProducts(TensorProducts):
    """A loop over keys whose consumers have rows of their own, each with its S, P and O.

    Scores of the next keys are multiplied while a consumer processes those of the last, and products of one consumer
    while another one computes::

        second warp of the producer                     consumer g
          for each tile of keys, and once more:           for each tile of keys:
            for each consumer g:                            wait: S[g] is complete
              wait: P[g] of the last keys is there          load S[g], make P of it
              start S[g] of these keys                      wait: O[g] has the products of the last keys
              start O[g] += P[g] V of the last keys         multiply O[g] as the largest scores have grown
            when these are done V's stage is empty          store P[g], and signal it
    """

    initial = 0, 0, 0, 0, 0

    def __init__(self, kernel: FuncOp, loop: scf.ForOp) -> None:
        super().__init__(kernel, loop)
        self.of_scores, self.of_outputs = (
            [op for op in self.products if op.a_in_registers is late] for late in (False, True)
        )
        end, body = loop.body.block.last_op, self.consumers.true_region.block
        parts = [op.a.owner for op in self.of_outputs]
        self.parts = [op for op in parts if isinstance(op, SubfragmentOp)]
        sums = [] if end is None else [n for n, value in enumerate(end.operands) if value is self.of_outputs[-1].d]
        waits = [op for op in body.walk() if isinstance(op, PipelineOp) and op.ring is not self.staged.value]
        if end is None or len(sums) != 1 or len(self.parts) != len(parts) or not self.of_scores or not waits:
            fail(loop, "expected scores, and products of P that are added up, in a loop over keys")
        self.end, (self.carried,), self.of_queries = end, sums, waits
        self.p, self.groups = self.parts[0].sources[0], self.warps // WARPS
        kinds = (fragment_of(value) for value in (self.of_scores[-1].d, self.of_outputs[-1].d, self.p))
        self.scores, self.outputs, self.operands = (
            self.allocated(kind.element_type, self.groups, *kind.shape) for kind in kinds
        )
        groups = RingType.of(self.groups)
        self.full, self.done = (Ring(self.start.insert(MakeRingOp(groups, 1, WARPS)).ring) for _ in range(2))
        self.end_of_kernel.insert(memref.DeallocOp.get(self.scores))

    # The warp that multiplies

    def tile(self, index: IndexBuilder, state: list[Index], values: dict[SSAValue, SSAValue]) -> list[Index]:
        stage, parity, phase, place, there = state
        first_wait, *others = self.of_queries
        queries = Ring(first_wait.ring)
        queries.step(index, WAIT, place, there)
        first, end, step = (index.folded(index.again(each, values, self.is_inside)) for each in self.loop.operands[:3])
        # Once more than there are tiles of keys, and once where there are none.
        upper = index.add(first, index.add(index.from_zero(index.sub(end, first)), step))
        counter, of_stage = self.loop.body.block.args[0], self.steps[0].results[0]
        now = values | {first_wait.results[0]: index.value(place)}
        initial = index.values([stage, parity, stage, parity, index.sub(1, phase)])
        with index.loop(first, upper, step, initial) as turn:
            inside, (stage, parity, before, _, phase) = turn.index, turn.carried
            ahead, behind = (inside.compare(how, turn.counter, at) for how, at in (("slt", end), ("sgt", first)))
            adds = inside.compare("sgt", turn.counter, inside.add(first, step))
            with inside.where(ahead) as these:
                self.staged.step(these, WAIT, stage, parity)
            for group in range(self.groups):
                with inside.where(behind) as last:
                    self.full.step(last, ACQUIRE, group, phase)
                    last.insert(FenceOp(AFTER_SYNC))
                with inside.where(ahead) as these:
                    self._multiply_scores(these, group, now | {counter: turn.counter, of_stage: stage})
                with inside.where(behind) as last:
                    self._multiply_values(last, group, now | {of_stage: before}, adds)
            with inside.where(behind) as last:
                self.staged.step(last, RELEASE, before, products=True)
            turn.handed = inside.values([*self.staged.next(inside, stage, parity), stage, parity, inside.sub(1, phase)])
        _, _, *after = turn.results
        if others:
            queries.step(index, RELEASE, place, products=True)
        return [*after, *queries.next(index, place, there)]

    def _multiply_scores(self, index: IndexBuilder, group: int, values: dict[SSAValue, SSAValue]) -> None:
        """S of a consumer."""
        zero = index.insert(arith.ConstantOp(BoolAttr.from_bool(False))).result
        for op in self.of_scores:
            places = self.place(index, op, "a", group * self.rows, values), self.place(index, op, "b", 0, values)
            adds = zero if op.overwrite is not None else None
            index.insert(TensorMmaOp(op, places, self.scores, index.value(group), adds))
        self.full.step(index, COMMIT, group, products=True)

    def _multiply_values(
        self, index: IndexBuilder, group: int, values: dict[SSAValue, SSAValue], adds: SSAValue
    ) -> None:
        """Multiplies P by V for one consumer and adds the result to O."""
        for op, part in zip(self.of_outputs, self.parts, strict=True):
            places = index.values([group, 0, part.at[1]]), self.place(index, op, "b", 0, values)
            more = adds if op is self.of_outputs[0] else None
            index.insert(TensorMmaOp(op, places, self.outputs, index.value(group), more, a=self.operands))
        self.done.step(index, COMMIT, group, products=True)

    # The consumers

    def load(self) -> None:
        """Lets a consumer load its scores, and store P, in place of multiplying."""
        loop, body = self.loop, self.loop.body.block
        index, kind = self.start.before(self.tiles or loop), fragment_of(self.of_scores[0].c)
        group = index.div(index.insert(SubgroupIdOp()).result, WARPS)
        # O has the products of the keys before the first.
        self.full.step(index, READ, by=group)
        self.done.step(index, READ, by=index.add(group, self.groups))
        at = index.values([group, 0, 0])
        inside = self.start.before(self.of_scores[0])
        self.full.step(inside, WAIT)
        inside.insert(FenceOp(AFTER_SYNC))
        self.of_scores[-1].d.replace_all_uses_with(inside.insert(LoadOp(self.scores, at, kind)).fragment)
        inside = self.start.before(self.of_outputs[0])
        self.done.step(inside, WAIT)
        inside.insert(FenceOp(AFTER_SYNC))
        self._correct(inside, group)
        inside.insert(StoreOp(self.p, self.operands, at))
        inside.insert(FenceOp(BEFORE_SYNC))
        self.full.step(inside, RELEASE)
        inside = self.start.before(self.end)
        for ring in (self.full, self.done):
            ring.step(inside, READ, by=self.groups)
        Rewriter.replace_op(self.end, scf.YieldOp(*self._others(self.end.operands)))
        start = self.of_outputs[0].c.owner
        correction = [start] if isinstance(start, MapOp) else []
        products = (*reversed(self.of_outputs), *correction, *self.parts, *reversed(self.of_scores))
        for op in (*products, *self.of_queries, *self.steps, *filter(is_of_wgmma, list(body.ops))):
            Rewriter.erase_op(op)
        behind = self.start.after(loop)
        self.done.step(behind, WAIT)
        behind.insert(FenceOp(AFTER_SYNC))
        self.load_sums(behind, self.carried, self.outputs, (group, 0))
        body.erase_arg(body.args[1 + self.carried])
        initial, results = self._others(loop.iter_args), self._others(loop.results)
        new = self.start.before(loop).insert(scf.ForOp(loop.lb, loop.ub, loop.step, initial, loop.detach_region(0)))
        for old, made in zip(results, new.results, strict=True):
            old.replace_all_uses_with(made)
        Rewriter.erase_op(loop)

    def _others(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        """The values that a loop carries other than O."""
        return [value for number, value in enumerate(values) if number != self.carried]

    def _correct(self, index: IndexBuilder, group: Index) -> None:
        """Rescales O in tensor memory before products are added to it. It does so in parts, for registers cannot hold
        all of O."""
        old, start = self.loop.body.block.args[1 + self.carried], self.of_outputs[0].c
        change, (rows, columns) = start.owner, fragment_of(start).shape
        if start is old:
            return
        if not isinstance(change, MapOp) or old not in change.inputs:
            fail(self.loop, "expected O to be changed element by element before products are added")
        width = min(columns, CORRECTED)
        with index.where(index.compare("sgt", self.loop.body.block.args[0], self.loop.lb)) as inside:
            for left in range(0, columns, width):
                at, parts = inside.values([group, 0, left]), list[SSAValue]()
                for value in change.inputs:
                    kind = fragment_of(value)
                    part = kind.with_shape(rows, width)
                    if not alike(kind, fragment_of(old)):
                        parts.append(value)
                    elif value is old:
                        parts.append(inside.insert(LoadOp(self.outputs, at, part)).fragment)
                    else:
                        parts.append(inside.insert(SubfragmentOp([value], (0, left), part.shape)).fragment)
                made = MapOp(parts, fragment_of(parts[0]), change.body.clone())
                inside.insert(StoreOp(inside.insert(made).fragment, self.outputs, at))


@rewrite_pattern
def add_up(op: FuncOp, rewriter: PatternRewriter) -> None:
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
    products = [inner for inner in op.walk() if isinstance(inner, WgmmaOp)]
    target = target_of(op)
    if target is None or not products or not all(in_tensor_memory(product.row, target) for product in products):
        return
    loops = list(dict.fromkeys(map(_loop_of, products)))
    if len(loops) > 1:
        fail(loops[1], "expected one loop over K: products of several are not added up in tensor memory")
    in_registers = any(product.a_in_registers for product in products)
    moved = (AttentionProducts if in_registers else _Sums)(op, loops[0])
    moved.multiply()
    moved.load()


def _loop_of(product: WgmmaOp) -> scf.ForOp:
    loop = product.parent_op()
    if product.e is not None or product.transposed is not None:
        fail(product, "products in tensor memory take dense operands in shared memory, or A in tensor memory")
    if not isinstance(loop, scf.ForOp) or not any(isinstance(op, PipelineOp) for op in loop.body.block.ops):
        fail(product, "expected products in a loop over K that adds up one sum: run warp-specialise first")
    return loop


class TensorMemoryPass(PatternPass):
    """Adds products of warpgroups up in tensor memory on targets that have it in place of `wgmma`.

    It runs after `warp-specialise`, before `warp-synchronise`.
    """

    name = "warp-tensor-memory"
    needs: ClassVar = ("tensor_memory",)
    patterns = (add_up,)
