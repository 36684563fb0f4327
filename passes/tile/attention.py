"""`warp.attention` of one CTA: a loop over tiles of K and V that keeps each row's largest score and sum so far.

With s the scores of a tile, m and l what is known of each row, and c the scale times log2(e)::

    m' = max(m, max(s)),  p = 2^(c s - c m'),  a = 2^(c m - c m')
    l' = a l + sum(p),    O' = a O + p V

and O / l at the end. l stays in parts, one for each lane that has elements of a row. m begins with a number that is
lower than any score of use, and finite, so that a row of which nothing counts yet is multiplied by 1 and not by NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IndexType, MemRefType, f32
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.gpu import BarrierOp
from ...dialect.schedule import Schedule
from ...dialect.warp.attention import AttentionOp, ReduceOp, StepOp, column_of
from ...dialect.warp.attributes import FragmentType, ScheduleAttr, fragment_of
from ...dialect.warp.epilogue import EpilogueOp
from ...dialect.warp.fragments import ConvertLayoutOp, ConvertOp, Kind
from ...dialect.warp.tile_mma import TileMmaOp
from ..builder import Index, IndexBuilder
from ..diagnostics import fail
from ..linalg.attention import Attention, padded
from ..linalg.product import Product
from ..schedule.attention import part_schedule, values_schedule
from .fragment_math import below, constant, fma, mapped, number, power, spread, times, until
from .operands import OperandTiles, copies_done, warp_origin
from .store_epilogue import EpilogueOperands, placed
from .tiling import Tiling

LOWEST = -1e38
"""The largest score of a row before the first, in units of the scale."""

LOWEST_OF_F32 = -(2.0 - 2.0**-23) * 2.0**127
"""The same where a region makes scores: these may be that low."""


class AttentionBuilder:
    """Builds what the warps of a CTA do for its rows of O."""

    def __init__(self, op: AttentionOp, index: IndexBuilder, schedule: Schedule) -> None:
        self.op, self.index, self.schedule = op, index, schedule
        self.read = Attention.of(op)
        columns = padded(self.read.values.n)
        self.scores = Tiling(self.read.scores, schedule)
        self.values = Tiling(self.read.values, values_schedule(schedule, columns))
        self.q = OperandTiles(self.scores, "a")
        self.k = OperandTiles(self.scores, "b")
        self.v = OperandTiles(self.values, "b")
        scale = op.scale.value.data
        if not 0 < scale < math.inf:
            fail(op, f"expected a scale above 0, got {scale:g}")
        self.factor = scale * math.log2(math.e)
        self.start: Index = index.known(op.tile[0])
        warp_row, _ = warp_origin(index, schedule)
        self.row = index.add(self.start, warp_row)
        self.warp_row = warp_row

    def build(self) -> None:
        index, (rows, step, _) = self.index, self.schedule.cta
        q, k, v = (index.insert(memref.AllocOp([], [], o.shared_type())).memref for o in (self.q, self.k, self.v))
        self.q.copy(index, {"m": self.start, "k": 0}, q)
        copies_done(index, self.schedule)
        initial = self._initial()
        body = Block(arg_types=[IndexType(), *(value.type for value in initial)])
        start, end, stride = index.values([0, self._end(rows), step])
        loop = scf.ForOp(start, end, stride, initial, body)
        inside = index.at(Builder(InsertPoint.at_end(body)))
        at, largest, sums, *parts = body.args
        self.k.copy(inside, {"n": at, "k": 0}, k)
        self.v.copy(inside, {"k": at, "n": 0}, v)
        copies_done(inside, self.schedule)
        scores = constant(inside, self.scores.fragment("acc"), 0.0)
        scores = self._masked(inside, at, self._product(inside, self.scores, q, k, scores, self.warp_row, 0))
        largest, sums, again, p = self._softmax(inside, scores, largest, sums)
        parts = [times(inside, part, again) for part in parts]
        p, width = self._operand(inside, p), self.values.schedule.warp[1]
        parts = [self._product(inside, self.values, p, v, o, 0, i * width) for i, o in enumerate(parts)]
        inside.insert(BarrierOp())
        inside.insert(scf.YieldOp(largest, sums, *parts))
        index.insert(loop)
        _, sums, *parts = loop.results
        self._finish(sums, parts)

    def _end(self, rows: int) -> Index:
        """Where keys end that count for a row of the CTA."""
        read, index = self.read.scores, self.index
        keys = read.n if read.is_known("n") else index.dim(self.op.k, read.b.loops[1])
        self.keys = keys
        if self.op.diagonal is None:
            return keys
        reached = index.add(self.start, rows + self.op.diagonal.value.data)
        keys, reached = index.value(keys), index.value(reached)
        return index.insert(arith.MinSIOp(keys, reached, IndexType())).result

    # Scores

    def _product(
        self, index: IndexBuilder, tiling: Tiling[Product], a: SSAValue, b: SSAValue, sums: SSAValue, m: Index, n: Index
    ) -> SSAValue:
        """Sums with the product of tiles, or of a fragment and a tile, added."""
        product = tiling.product
        transposed = (product.a.transposed and isinstance(a.type, MemRefType), product.b.transposed)
        part = index.values([m, n, 0])
        op = TileMmaOp(a, b, sums, product.op.multiplied, transposed=transposed, part=part)
        op.attributes[ScheduleAttr.name] = ScheduleAttr(tiling.schedule)
        op.location = self.op.location
        return index.insert(op).d

    def _masked(self, index: IndexBuilder, at: SSAValue, scores: SSAValue) -> SSAValue:
        """Scores as the region makes them, and minus infinity where they do not count."""
        step = self.schedule.cta[1]
        if self.op.score is not None:
            kind = fragment_of(scores)
            given = list(map(placed, self.read.scores.epilogue_operands))
            operands = EpilogueOperands(index, given, kind, self.row, at, self.scores.in_bounds)
            scores = operands.map([scores], operands.load(0), self.op.score, f32, 0)
        beyond: list[SSAValue] = []
        keys, last = self.keys, index.add(at, step)
        if not isinstance(keys, int) or keys % step:
            beyond.append(index.insert(arith.CmpiOp(index.value(last), index.value(keys), "sgt")).result)
        if self.op.diagonal is not None:
            # The last column of the tile against the last that counts for the first row of the warp.
            first = index.add(self.row, self.op.diagonal.value.data + 1)
            beyond.append(index.insert(arith.CmpiOp(index.value(last), index.value(first), "sgt")).result)
        if not beyond:
            return scores
        condition = beyond[0] if len(beyond) == 1 else index.insert(arith.OrIOp(beyond[0], beyond[1])).result
        then, otherwise = Block(), Block()
        inner = index.at(Builder(InsertPoint.at_end(then)))
        inner.insert(scf.YieldOp(self._mask(inner, at, scores)))
        Builder(InsertPoint.at_end(otherwise)).insert(scf.YieldOp(scores))
        op = scf.IfOp(condition, [scores.type], Region(then), Region(otherwise))
        return index.insert(op).results[0]

    def _mask(self, index: IndexBuilder, at: SSAValue, scores: SSAValue) -> SSAValue:
        """Scores with minus infinity behind the last key, and right of the diagonal."""
        kind, keys = fragment_of(scores), self.keys
        if not isinstance(keys, int) or keys % self.schedule.cta[1]:
            scores = until(index, scores, index.sub(at, keys), -math.inf)
        if self.op.diagonal is not None:
            start = index.sub(index.sub(at, index.value(self.row)), self.op.diagonal.value.data + 1)
            column = index.insert(StepOp("columns", index.value(start), kind)).fragment
            row = index.insert(StepOp("rows", index.value(0), kind)).fragment
            scores = mapped(index, lambda x: below(x[1], x[2], x[0], -math.inf), scores, column, row)
        return scores

    # Softmax

    def _softmax(
        self, index: IndexBuilder, scores: SSAValue, before: SSAValue, sums: SSAValue
    ) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue]:
        """The largest score and the sums of each row with those of this tile, what multiplies all that was added up
        with the largest score `before`, and P of this tile."""
        factor, computed = self.factor, self.op.score is not None
        found = index.insert(ReduceOp(Kind.Max, scores)).fragment
        largest = mapped(index, lambda x: arith.MaxnumfOp(x[0], x[1]).result, before, found)

        def subtracted_of(x: Sequence[SSAValue]) -> SSAValue:
            return arith.NegfOp(x[0] if computed else arith.MulfOp(x[0], number(factor)).result).result

        def raised(x: Sequence[SSAValue]) -> SSAValue:
            # What a region makes may be as large as f32 is, such as a mask of its lowest number.
            if computed:
                return power(arith.MulfOp(arith.AddfOp(x[0], x[1]).result, number(factor)).result)
            return power(fma(x[0], number(factor), x[1]))

        subtracted = mapped(index, subtracted_of, largest)
        again = mapped(index, raised, before, subtracted)
        p = mapped(index, raised, scores, spread(index, subtracted, scores))
        added = index.insert(ReduceOp(Kind.Add, p, parts=True)).fragment
        sums = mapped(index, lambda x: fma(x[0], x[1], x[2]), sums, spread(index, again, sums), added)
        return largest, sums, again, p

    def _operand(self, index: IndexBuilder, p: SSAValue) -> SSAValue:
        """P as the operand of a product."""
        kind, (rows, keys) = self.values.fragment("a"), fragment_of(p).shape
        half = index.insert(ConvertOp(p, kind.element_type)).fragment
        whole = FragmentType.of("a", rows, keys, kind.element_type, kind.layout.data)
        return index.insert(ConvertLayoutOp(half, whole)).fragment

    def _initial(self) -> list[SSAValue]:
        """What the loop hands on, before it: the largest score of each row, its sum in parts, the columns of O."""
        index, scores, part = self.index, self.scores.fragment("acc"), self.values.fragment("acc")
        lowest = LOWEST / max(1.0, self.factor) if self.op.score is None else LOWEST_OF_F32
        width = self.values.schedule.cta[1]
        parts = [constant(index, part, 0.0) for _ in range(0, width, part.shape[1])]
        largest = constant(index, column_of(scores), lowest)
        return [largest, constant(index, column_of(scores, parts=True), 0.0), *parts]

    def _finish(self, sums: SSAValue, parts: Sequence[SSAValue]) -> None:
        """Divides O by the sums, and stores it."""
        index = self.index
        total = index.insert(ReduceOp(Kind.Add, sums)).fragment
        inverse = mapped(index, lambda x: arith.DivfOp(number(1.0), x[0]).result, total)
        schedule = ScheduleAttr(part_schedule(self.values.schedule))
        for i, part in enumerate(parts):
            left = i * fragment_of(part).shape[1]
            if left < self.read.values.n or not self.read.values.is_known("n"):
                at = index.values([self.row, left])
                end = EpilogueOp(times(index, part, inverse), self.op.o, at, in_bounds=self.values.in_bounds)
                end.attributes[ScheduleAttr.name] = schedule
                end.location = self.op.location
                index.insert(end)
