"""An attention in tensor memory: scores S and outputs O of a loop over keys, and P, which is operand A of O += P V."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import BoolAttr
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.wgmma import WARPS
from ...dialect.mlir.gpu import FuncOp, SubgroupIdOp
from ...dialect.warp.attributes import FragmentType, fragment_of
from ...dialect.warp.cta import ACQUIRE, COMMIT, RELEASE, WAIT, MakeRingOp, PipelineOp
from ...dialect.warp.epilogue import MapOp, SubfragmentOp
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.synchronisation import AFTER_SYNC, BEFORE_SYNC, FenceOp
from ...dialect.warp.tensor_memory import TensorMmaOp
from ..diagnostics import fail
from ..patterns import Index, IndexBuilder
from .ring import Ring
from .tensor_products import TensorProducts, is_of_wgmma

CORRECTED = 64
"""Columns of O that a lane has in registers at a time to multiply them."""


class AttentionProducts(TensorProducts):
    """A loop over keys whose consumers have rows of their own, each with its S, P and O.

    Scores of the next keys are multiplied while a consumer works on those of the last, and products of one consumer
    while another works::

        second warp of the producer                     consumer g
          for each tile of keys, and once more:           for each tile of keys:
            for each consumer g:                            wait: S[g] is complete
              wait: P[g] of the last keys is there          load S[g], make P of it
              start S[g] of these keys                      wait: O[g] has the products of the last keys
              start O[g] += P[g] V of the last keys         multiply O[g] as the largest scores have grown
            when these are done V's stage is empty          store P[g], and say so
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
        self.p, self.groups = self.parts[0].source, self.warps // WARPS
        kinds = (fragment_of(value) for value in (self.of_scores[-1].d, self.of_outputs[-1].d, self.p))
        self.scores, self.outputs, self.operands = (
            self.allocated(kind.element_type, self.groups, *kind.shape) for kind in kinds
        )
        self.full, self.done = (Ring.of(self.start, MakeRingOp(self.groups, 1, WARPS)) for _ in range(2))
        self.free(self.scores)

    # The warp that multiplies

    def tile(self, index: IndexBuilder, state: list[Index], known: dict[SSAValue, SSAValue]) -> list[Index]:
        stage, parity, phase, place, there = state
        first_wait, *others = self.of_queries
        queries = Ring.of_value(first_wait.ring)
        queries.step(index, WAIT, place, there)
        first, end, step = (index.folded(index.again(each, known, self.is_inside)) for each in self.loop.operands[:3])
        # Once more than there are tiles of keys, and once where there are none.
        upper = index.add(first, index.add(index.from_zero(index.sub(end, first)), step))
        counter, *_, of_stage, _ = self.loop.body.block.args
        now = known | ({} if first_wait.stage is None else {first_wait.stage: index.value(place)})
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

    def _multiply_scores(self, index: IndexBuilder, group: int, known: dict[SSAValue, SSAValue]) -> None:
        """S of a consumer."""
        zero = index.insert(arith.ConstantOp(BoolAttr.from_bool(False))).result
        for op in self.of_scores:
            places = self.place(index, op, "a", group * self.rows, known), self.place(index, op, "b", 0, known)
            adds = zero if op.overwrite is not None else None
            index.insert(TensorMmaOp(op, places, self.scores, index.value(group), adds))
        self.full.step(index, COMMIT, group, products=True)

    def _multiply_values(
        self, index: IndexBuilder, group: int, known: dict[SSAValue, SSAValue], adds: SSAValue
    ) -> None:
        """P V of a consumer, to O where there is some."""
        for op, part in zip(self.of_outputs, self.parts, strict=True):
            places = index.values([group, 0, part.at[1]]), self.place(index, op, "b", 0, known)
            more = adds if op is self.of_outputs[0] else None
            index.insert(TensorMmaOp(op, places, self.outputs, index.value(group), more, a=self.operands))
        self.done.step(index, COMMIT, group, products=True)

    # The consumers

    def load(self) -> None:
        """Lets a consumer load its scores, and store P, in place of multiplying."""
        loop, body = self.loop, self.loop.body.block
        index, kind = self.start.at(Builder(InsertPoint.before(loop))), fragment_of(self.of_scores[0].c)
        group = index.div(index.insert(SubgroupIdOp()).result, WARPS)
        at, (*_, stage, parity) = index.values([group, 0, 0]), body.args
        inside = self.start.at(Builder(InsertPoint.before(self.of_scores[0])))
        self.full.step(inside, WAIT, group, parity)
        inside.insert(FenceOp(AFTER_SYNC))
        self.of_scores[-1].d.replace_all_uses_with(inside.insert(LoadOp(self.scores, at, kind)).fragment)
        inside = self.start.at(Builder(InsertPoint.before(self.of_outputs[0])))
        self.done.step(inside, WAIT, group, inside.sub(1, parity))
        inside.insert(FenceOp(AFTER_SYNC))
        self._correct(inside, group)
        inside.insert(StoreOp(self.p, self.operands, at))
        inside.insert(FenceOp(BEFORE_SYNC))
        self.full.step(inside, RELEASE, group)
        inside = self.start.at(Builder(InsertPoint.before(self.end)))
        handed = [*self.end.operands[:-2], stage, inside.value(inside.sub(1, parity))]
        Rewriter.replace_op(self.end, scf.YieldOp(*self._others(handed)))
        steps = [op for op in body.ops if isinstance(op, PipelineOp) and op.ring is self.staged.value]
        start = self.of_outputs[0].c.owner
        correction = [start] if isinstance(start, MapOp) else []
        products = (*reversed(self.of_outputs), *correction, *self.parts, *reversed(self.of_scores))
        for op in (*self.of_queries, *steps, *filter(is_of_wgmma, list(body.ops)), *products):
            Rewriter.erase_op(op)
        behind = self.start.at(Builder(InsertPoint.after(loop)))
        self.done.step(behind, WAIT, group, behind.sub(1, loop.results[-1]))
        behind.insert(FenceOp(AFTER_SYNC))
        self.load_sums(behind, self.carried, self.outputs, (group, 0))
        body.erase_arg(body.args[1 + self.carried])
        initial, results = self._others(loop.iter_args), self._others(loop.results)
        new = index.insert(scf.ForOp(loop.lb, loop.ub, loop.step, initial, loop.detach_region(0)))
        for old, made in zip(results, new.results, strict=True):
            old.replace_all_uses_with(made)
        Rewriter.erase_op(loop)

    def _others(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        """What a loop hands on beside O."""
        return [value for number, value in enumerate(values) if number != self.carried]

    def _correct(self, index: IndexBuilder, group: Index) -> None:
        """Makes of O what products are added to, where it has some: part by part, as registers have no place for it."""
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
                    part = FragmentType.of(kind.role.data, rows, width, kind.element_type, kind.layout.data, kind.bits)
                    if value is old:
                        parts.append(inside.insert(LoadOp(self.outputs, at, part)).fragment)
                    else:
                        parts.append(inside.insert(SubfragmentOp(value, (0, left), part.shape)).fragment)
                made = MapOp(parts, fragment_of(parts[0]), change.body.clone())
                inside.insert(StoreOp(inside.insert(made).fragment, self.outputs, at))
