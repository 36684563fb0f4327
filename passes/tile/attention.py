"""`warp.attention` of one CTA: a loop over tiles of K and V that keeps each row's largest score and sum so far.

With s the scores of a tile, m and l what is known of each row, and c the scale times log2(e)::

    m' = max(m, max(s)),  p = 2^(c s - c m'),  a = 2^(c m - c m')
    l' = a l + sum(p),    O' = a O + p V

and O / l at the end, where l gets what rounding changed of the largest p. Warps of a CTA may share the keys of each
tile, and CTAs may share all keys. Each then has an m, an l and an O of its own, a state. States are merged in the same
way: m' is the largest m, and all l and O are multiplied by 2^(c m - c m') before they are added, those of warps in
shared memory, those of CTAs by the last one to arrive.

l stays in parts, one for each lane that has elements of a row, or columns of ones beside V make it. m begins lower
than any score of use, and finite, so that a row of which nothing counts yet is multiplied by 1 and not by NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import NamedTuple

from xdsl.dialects import arith, memref
from xdsl.dialects import math as math_dialect
from xdsl.dialects.builtin import IndexType, f32
from xdsl.ir import SSAValue

from ...dialect.isa.wgmma import M as GROUP_ROWS
from ...dialect.mlir.affine import loops_of, map_along, strides_of
from ...dialect.mlir.gpu import BarrierOp, SubgroupIdOp
from ...dialect.schedule import Schedule
from ...dialect.warp.attention import AttentionOp
from ...dialect.warp.attributes import BYTE, ScheduleAttr, fragment_of, memory_of
from ...dialect.warp.convert import ConvertOp, ReduceOp, column_of
from ...dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind, SubfragmentOp, fragment_bytes
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.op_shapes import TilePart, bounds_attribute, tile_type
from ...dialect.warp.rows import EpilogueOp
from ...dialect.warp.synchronisation import ArriveLastOp
from ...dialect.warp.views import MatrixOp, PagedOp
from ..linalg.product import Product, padded
from ..linalg.read_attention import KEYS_OF_BYTES, Attention
from ..patterns import Index, IndexBuilder
from ..schedule.attention import part_schedule, slices_of, values_schedule
from ..schedule.warpgroup import PLAIN
from .fragments import (
    EpilogueOperands,
    converted,
    fma,
    load,
    mapped,
    multiply_add,
    number,
    of_same_document,
    placed,
    power,
    times,
)
from .operands import COLUMNS_OF_ONES, OperandTiles, as_operand, copies_done, multiplied, warp_origin
from .outline_attention import Band, OfScores
from .tiling import Tiling

LOWEST_OF_F32 = -(2.0 - 2.0**-23) * 2.0**127
"""The largest score of a row before the first, where a region makes scores: these may be that low."""

POSITIVE_COLUMNS, POSITIVE_KEYS = 128, 128
"""Columns of O from which on, and keys of a tile up to which, integers give maxima: 0.94 to 0.99 of the time on an H200
(64 columns up to 1.42, by ptxas's order behind the branch)."""
POWERS_KEYS = 256
"""Keys of a tile from which on P of bytes is made as powers: 0.85 to 0.98 of the time on an H200 without a mask,
where 128 keys take up to 1.05, and 1.5 with a region that makes scores. Its sums are a product with columns of ones."""

EXPONENT_OF_BYTES = 8
"""The exponent of two that P is multiplied with where it is rounded to e4m3, whose largest number is 448: numbers below
2^-6 would have fewer digits. Sums of P are too, so that their quotient is what it was."""

MAX_MERGED = 8
"""Fragments of sums that the last CTA of a tile loads together."""

LOADED = 64
"""Columns of O in tensor memory that are loaded and stored together: a panel of 16-bit elements, or two."""


class SoftmaxState(NamedTuple):
    """The state of a warp's rows: the largest score and the sum of each, and the columns of O."""

    largest: SSAValue
    sum: SSAValue
    parts: Sequence[SSAValue]

    @staticmethod
    def of(values: Sequence[SSAValue]) -> SoftmaxState:
        """The state of these `values`."""
        return SoftmaxState(values[0], values[1], values[2:])

    @property
    def values(self) -> Sequence[SSAValue]:
        """The largest scores, the sums, the columns of O."""
        return self.largest, self.sum, *self.parts


class SharedState:
    """Shared memory for so many fragments like one, each in a row, as registers hold them."""

    def __init__(self, index: IndexBuilder, like: SSAValue, count: int) -> None:
        self.kind = fragment_of(like)
        self.memory = index.alloc(tile_type(f32, [count, fragment_bytes(self.kind) // 4]))

    def store(self, index: IndexBuilder, value: SSAValue, row: Index) -> None:
        index.insert(StoreOp(value, self.memory, index.values([row, 0]), registers="vectors"))

    def load(self, index: IndexBuilder, row: Index) -> SSAValue:
        return index.insert(LoadOp(self.memory, index.values([row, 0]), self.kind, registers="vectors")).fragment


def _larger(x: Sequence[SSAValue]) -> SSAValue:
    return arith.MaxnumfOp(x[0], x[1]).result


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
        self.band = Band(op.keys.diagonal, op.keys.window, schedule)
        self.factor, self.computed = op.scale.value.data * math.log2(math.e), op.score is not None
        self.bias = EXPONENT_OF_BYTES if self.read.values.b.element.bits == BYTE else 0
        # A warpgroup waits for its turn where ptxas wants it to: at once, behind a branch that leaves the softmax open.
        self.apart = schedule.consumers == "pingpong" and bool(self.bias)
        by_powers = schedule.together > 1 and bool(self.bias) and schedule.warp[1] >= POWERS_KEYS
        by_powers &= not self.computed and op.of_keys is None and op.lse is None  # whose sums are to be of f32
        # Columns of V, those of ones behind them where P is made as powers, and how many times as many V has.
        self.columns, self.ones, self.parts = columns, COLUMNS_OF_ONES * by_powers, columns // COLUMNS_OF_ONES
        self.added = Tiling(self.read.values, values_schedule(schedule, columns + self.ones))
        self.positive = schedule.together > 1 and not self.computed and schedule.warp[1] <= POSITIVE_KEYS
        self.positive &= columns >= POSITIVE_COLUMNS
        self.slices = slices_of(schedule)
        self.start: Index = index.folded(op.tile[0])
        self.warp_row, self.warp_key = warp_origin(index, schedule)
        self.row, self.left = index.add(self.start, self.warp_row), self._left()

    def _left(self) -> Index:
        """The first column of V in its tile."""
        if self.op.of_keys is None:
            return 0
        left: Index = self.op.of_keys.value.data
        if isinstance(view := self.op.v.owner, MatrixOp):
            steps = strides_of(memory_of(view.memory)) or ()
            along = [step or 0 for d, step in enumerate(steps) if d not in view.dimensions]
            for at, step in zip(view.indices, along, strict=True):
                if 0 < step < self.read.scores.k:  # of a part of the columns
                    left = self.index.add(left, self.index.mul(at, step))
        return left

    def build(self) -> None:
        index, (_, step, _) = self.index, self.schedule.cta
        q, k = (index.alloc(o.shared_type()) for o in (self.q, self.k))
        tile = OperandTiles(self.added, "b")
        with_ones = [tile.with_ones(self.op, self.columns)] if self.ones else []
        of_v = with_ones or ([index.alloc(tile.shared_type())] if self.op.of_keys is None else [])
        self.q.copy(index, {"m": self.start, "k": 0}, q)
        copies_done(index, self.schedule)
        initial = self._initial()
        first, count, until = self._range(step)
        kept = 1 if self.ones else 2  # of what turns hand on, before the columns of O
        with index.loop(0, count, step, initial) as turn:
            inside, (largest, *sums), parts = turn.index, turn.carried[:kept], turn.carried[kept:]
            at = inside.value(inside.add(turn.counter, first))
            self._copy(inside, self.k, at, k, until)
            for v in of_v:
                self._copy(inside, self.v, at, v, until)
            copies_done(inside, self.schedule)
            scores = inside.insert(ConstantOp.of(0.0, self.scores.fragment("acc"))).fragment
            scores = multiplied(inside, self.scores, q, k, scores, (self.warp_row, self.warp_key, 0))
            first_key, softmax = inside.value(inside.add(at, self.warp_key)), partial(self._softmax, largest, sums)
            largest, *sums, again, p = self._masked(inside, first_key, scores, softmax)
            zero = ConstantOp.of(0.0, fragment_of(parts[0]))
            starts = [inside.insert(zero.clone()).fragment if self.bias else times(inside, o, again) for o in parts]
            p = p if self.apart or self.ones else self._operand(inside, p)
            width, key = self.values.schedule.warp[1], self.warp_key
            v, lefts = next(iter(of_v), k), (index.add(self.left, i * width) for i in range(len(starts)))
            made = [multiplied(inside, self.added, p, v, o, (0, at, key)) for o, at in zip(starts, lefts, strict=True)]
            # Instructions on bytes cut long sums short, which f32 does not.
            added = (multiply_add(inside, o, again, more) for o, more in zip(parts, made, strict=True))
            parts = list(added) if self.bias else made
            inside.insert(BarrierOp())
            turn.handed = largest, *sums, *parts
        largest, *parts = turn.results
        sums, *parts = self._by_ones(parts[0]) if self.ones else parts
        total = self._as_multiplied(largest, index.insert(ReduceOp(Kind.Add, sums)).result)
        self._finish(SoftmaxState(largest, total, parts))

    def _range(self, step: int) -> tuple[Index, Index, SSAValue | None]:
        """The first key of this CTA, how many it has, and where copies end if not where memory does."""
        index, read, parts = self.index, self.read.scores, self.schedule.split_k
        self.keys = read.n if read.is_known("n") else index.dim(self.op.k, read.b.loops[1])
        if self.op.until is not None:
            self.keys = index.minimum(self.keys, self.op.until)
        end = self.band.end(index, self.keys, self.start)
        begin = self.band.first(index, self.start, self.op.first)
        if parts == 1:
            first = index.mul(begin, step)
            ends = self.op.until is not None and self.schedule.together == 1
            return first, index.sub(end, first), index.value(end) if ends else None
        if self.op.diagonal is not None:
            end = index.from_zero(end)
        tiles, part = index.ceildiv(end, step), index.folded(self.op.tile[2])
        if self.op.window is not None or self.op.first is not None:
            tiles = index.from_zero(index.sub(tiles, begin))
        first, last = (
            index.mul(index.add(begin, index.div(index.mul(i, tiles), parts)), step) for i in (part, index.add(part, 1))
        )
        last = index.minimum(last, end)
        return first, index.sub(last, first), index.value(last)

    def _copy(
        self, index: IndexBuilder, tiles: OperandTiles[Product], at: SSAValue, tile: SSAValue, until: SSAValue | None
    ) -> None:
        """Copies the tile of K or V from a key on: of a view of pages, from the page that it is in."""
        view, (axis, other) = (self.op.k.owner, "nk") if tiles is self.k else (self.op.v.owner, "kn")
        part = TilePart(0, self.parts + 1, 0, self.parts) if self.ones and tiles is self.v else None
        paged = view.memory.owner if isinstance(view, MatrixOp) else view
        if not isinstance(paged, PagedOp):
            tiles.copy(index, {axis: at, other: 0}, tile, until if tiles.in_memory[0] == axis else None, part=part)
            return
        row = index.rem(at, paged.rows)
        end = index.sub(self.keys if until is None else until, index.sub(at, row))
        source = self._page(index, paged, view if isinstance(view, MatrixOp) else None, at)
        tiles.copy(index, {axis: row, other: 0}, tile, index.value(end), source, part)

    @staticmethod
    def _page(index: IndexBuilder, paged: PagedOp, view: MatrixOp | None, at: SSAValue) -> SSAValue:
        """The matrix of the page of a key; the last page for keys beyond the end."""
        keys, (page, slot) = paged.loops[paged.dimensions[0]], paged.dimensions
        row, column = (keys, 1 - keys) if view is None else view.dimensions
        others = [d for d in range(memory_of(paged.result).get_num_dims()) if d not in (row, column)]
        indices = dict(zip(others, () if view is None else view.indices, strict=True))
        block = index.minimum(index.div(at, paged.rows), memory_of(paged.table).get_shape()[-1] - 1)
        of_table = [indices[d] for d in paged.table_along.get_values()]
        loaded = index.insert(memref.LoadOp.get(paged.table, [*of_table, index.value(block)])).res
        number = index.insert(arith.IndexCastOp(loaded, IndexType())).result
        rank = memory_of(paged.memory).get_num_dims()
        of_column = next(i for i in range(rank) if i not in (page, slot) and paged.loops[i] == column)
        places = (number if i == page else indices[paged.loops[i]] for i in range(rank) if i not in (slot, of_column))
        return index.insert(MatrixOp(paged.memory, list(places), slot, of_column)).matrix

    # Scores

    def _masked(self, index: IndexBuilder, at: SSAValue, scores: SSAValue, softmax: OfScores) -> Sequence[SSAValue]:
        """The softmax of scores as the region makes them, and minus infinity where they do not count."""
        if self.op.score is not None:
            kind = fragment_of(scores)
            operands_ = list(map(placed, self.read.scores.epilogue_operands))
            operands = EpilogueOperands(index, operands_, kind, self.row, at, self.scores.in_bounds)
            scores = operands.map([scores], operands.load(0), self.op.score, f32, 0)
        if self.op.documents:
            kind, bounds = fragment_of(scores), bounds_attribute(self.scores.inside("m"), self.scores.inside("n"))
            numbers = (load(index, memory, kind, self.row, at, bounds) for memory in self.op.documents)
            scores = mapped(index, of_same_document, scores, *numbers)
        place = self.row, at, self.keys
        if self.apart:
            return self.band.either(index, scores, place, softmax)
        return softmax(index, self.band.masked(index, scores, place))

    # Softmax

    def _softmax(
        self, before: SSAValue, sums: Sequence[SSAValue], index: IndexBuilder, scores: SSAValue
    ) -> Sequence[SSAValue]:
        """One step of the online softmax: the largest scores of the rows including this tile, their sums unless columns
        of ones make them, the factor that rescales results of the largest scores `before`, and P of this tile."""
        in_tile = index.insert(ReduceOp(Kind.Max, scores, positive=self.positive)).result
        largest = mapped(index, _larger, before, in_tile)
        subtracted = mapped(index, self._subtracted, largest)
        again = mapped(index, self._again, before, subtracted)
        biased = self._biased(index, subtracted)
        if self.ones:
            kind = self.values.element_type("a")
            powers = partial(ConvertOp, element_type=kind, exponents=biased, factor=self.factor)
            return largest, again, self._operand(index, scores, lambda x: index.insert(powers(x)).fragment)
        p = mapped(index, self._raised, scores, biased)
        added = index.insert(ReduceOp(Kind.Add, p, parts=True)).result
        sums = [multiply_add(index, each, again, added) for each in sums]
        return largest, *sums, again, self._operand(index, p) if self.apart else p

    def _operand(
        self, index: IndexBuilder, p: SSAValue, rounded: Callable[[SSAValue], SSAValue] | None = None
    ) -> SSAValue:
        """P as it is multiplied, `rounded` to its type."""
        return as_operand(index, self.values, p, () if self.schedule.transpose == PLAIN else KEYS_OF_BYTES, rounded)

    def _as_multiplied(self, largest: SSAValue, total: SSAValue) -> SSAValue:
        """The sums with the largest p of each row as the second product has it: rounded to the type of V. It is 1, or
        2^d where c m was rounded by d, which a row whose other keys weigh nothing must not notice."""
        if self.computed or self.bias:
            return total

        def added(x: Sequence[SSAValue]) -> SSAValue:
            p = self._raised([x[0], self._subtracted(x)])
            rounded = arith.ExtFOp(arith.TruncFOp(p, self.values.fragment("a").element_type).result, f32).result
            return arith.AddfOp(x[1], arith.SubfOp(rounded, p).result).result

        return mapped(self.index, added, largest, total)

    def _subtracted(self, x: Sequence[SSAValue]) -> SSAValue:
        """What is added to exponents for the largest score of a row."""
        return arith.NegfOp(x[0] if self.computed else arith.MulfOp(x[0], number(self.factor)).result).result

    def _biased(self, index: IndexBuilder, subtracted: SSAValue) -> SSAValue:
        """What is added to exponents of P."""
        bias = self.bias / self.factor if self.computed else float(self.bias)
        return mapped(index, lambda x: arith.AddfOp(x[0], number(bias)).result, subtracted) if bias else subtracted

    def _raised(self, x: Sequence[SSAValue]) -> SSAValue:
        """2^(c s - c m) of a score, and of what is added for m."""
        # What a region makes may be as large as f32 is, such as a mask of its lowest number.
        if self.computed:
            return power(arith.MulfOp(arith.AddfOp(x[0], x[1]).result, number(self.factor)).result)
        return power(fma(x[0], number(self.factor), x[1]))

    def _again(self, x: Sequence[SSAValue]) -> SSAValue:
        """2^(c m - c m') of two largest scores, both products rounded: 1 where they are equal, after many tiles too."""
        if self.computed:
            return self._raised(x)
        return power(arith.AddfOp(arith.MulfOp(x[0], number(self.factor)).result, x[1]).result)

    def _logarithm(self, x: Sequence[SSAValue]) -> SSAValue:
        """The logarithm of the sum of the exponentials of a row, from its largest score and its sum."""
        logarithm, factor = math_dialect.LogOp(x[1]).result, self.op.lse_factor
        if self.bias:
            logarithm = arith.SubfOp(logarithm, number(self.bias * math.log(2.0))).result
        logarithm = fma(x[0], number(self.op.scale.value.data), logarithm)
        if self.op.zero_lse is not None:
            logarithm = arith.SelectOp(arith.CmpfOp(x[1], number(0.0), "oeq").result, number(0.0), logarithm).result
        return logarithm if factor is None else arith.MulfOp(logarithm, number(factor.value.data)).result

    # States that are merged

    def _merged(self, index: IndexBuilder, states: Sequence[SoftmaxState]) -> SoftmaxState:
        """One state of several."""
        largest = states[0].largest
        for state in states[1:]:
            largest = mapped(index, _larger, largest, state.largest)
        subtracted = mapped(index, self._subtracted, largest)
        scaled: list[SoftmaxState] = []
        for state in states:
            again = mapped(index, self._again, state.largest, subtracted)
            parts = [times(index, part, again) for part in state.parts]
            scaled.append(SoftmaxState(largest, times(index, state.sum, again), parts))
        return reduce(partial(self._added, index), scaled)

    @staticmethod
    def _added(index: IndexBuilder, a: SoftmaxState, b: SoftmaxState) -> SoftmaxState:
        """Two states with the same largest scores as one."""
        pairs = zip(a.values[1:], b.values[1:], strict=True)
        return SoftmaxState.of([a.largest, *(index.insert(ElementwiseOp(Kind.Add, *each)).fragment for each in pairs)])

    def _of_slices(self, state: SoftmaxState) -> SoftmaxState:
        """The state of all warps of the CTA that share its keys, in each of them with its part of the columns."""
        index, slices = self.index, self.slices
        of_state, of_sums = SharedState(index, state.sum, 2 * slices), SharedState(index, state.parts[0], slices**2)
        warp = index.div(self.warp_key, self.schedule.warp[1])
        for memory, values in ((of_state, (state.largest, state.sum)), (of_sums, state.parts)):
            for i, value in enumerate(values):
                memory.store(index, value, index.add(index.mul(warp, len(values)), i))
        index.insert(BarrierOp())

        def state_of(i: int) -> SoftmaxState:
            largest, total = (of_state.load(index, 2 * i + number) for number in range(2))
            return SoftmaxState(largest, total, [of_sums.load(index, index.add(warp, i * slices))])

        return self._merged(index, list(map(state_of, range(slices))))

    def _initial(self) -> list[SSAValue]:
        """What the loop hands on, before it: the largest score of each row, its sum in parts, the columns of O."""
        index, scores, part = self.index, self.scores.fragment("acc"), self.added.fragment("acc")
        # Its product with c is exact.
        lowest = -(2.0 ** (126 - max(0, math.frexp(self.factor)[1]))) if self.op.score is None else LOWEST_OF_F32
        width = self.added.schedule.cta[1]
        parts = [index.insert(ConstantOp.of(0.0, part)).fragment for _ in range(0, width, part.shape[1])]
        largest = index.insert(ConstantOp.of(lowest, column_of(scores))).fragment
        sums = [] if self.ones else [index.insert(ConstantOp.of(0.0, column_of(scores, parts=True))).fragment]
        return [largest, *sums, *parts]

    def _by_ones(self, added: SSAValue) -> Sequence[SSAValue]:
        """Sums in parts, and the columns of O, of what was added for V and columns of ones."""
        rows, parts = fragment_of(added).shape[0], ((self.columns, self.ones), (0, self.columns))
        return [self.index.insert(SubfragmentOp([added], (0, at), (rows, size))).fragment for at, size in parts]

    def _finish(self, state: SoftmaxState) -> None:
        """Merges the states of warps that share keys, and stores O."""
        index = self.index
        left: Index = 0
        if self.slices > 1:
            state = self._of_slices(state)
            left = index.mul(index.div(self.warp_key, self.schedule.warp[1]), self.values.schedule.warp[1])
        if self.schedule.split_k == 1:
            self._store(index, self._with_sinks(index, state), left)
            return
        last, merged = self._shared(state)
        with index.where(last) as inside:
            self._store(inside, self._with_sinks(inside, merged(inside)), left)

    def _with_sinks(self, index: IndexBuilder, state: SoftmaxState) -> SoftmaxState:
        """The state with a further score of each row, its sink, that has no values."""
        if self.op.sinks is None:
            return state
        kind = fragment_of(state.largest)
        bounds = bounds_attribute(self.scores.inside("m"), True)
        loaded = converted(index, load(index, self.op.sinks, kind, self.row, 0, bounds), f32)
        scale = 1.0 / self.op.scale.value.data
        sink = mapped(index, lambda x: arith.MulfOp(x[0], number(scale)).result, loaded)
        largest = mapped(index, _larger, state.largest, sink)
        subtracted = mapped(index, self._subtracted, largest)
        again = mapped(index, self._again, state.largest, subtracted)
        added = mapped(index, self._raised, sink, self._biased(index, subtracted))
        total = multiply_add(index, state.sum, again, added)
        return SoftmaxState(largest, total, [times(index, part, again) for part in state.parts])

    def _shared(self, state: SoftmaxState) -> tuple[SSAValue, Callable[[IndexBuilder], SoftmaxState]]:
        """Leaves the state for the last CTA of the tile: whether this is it, and what then loads the state of all."""
        index, parts, (tile, part) = self.index, self.schedule.split_k, map(self.index.folded, self.op.tile[1:])
        sums, states, counters = self.op.parts
        warp = index.insert(SubgroupIdOp()).result if self.schedule.warps > 1 else 0
        columns = [index.mul(warp, fragment_bytes(fragment_of(v)) // 4) for v in (state.parts[0], state.sum)]
        first, count = index.mul(tile, parts), len(state.parts)

        def places(index: IndexBuilder, part: Index) -> list[tuple[SSAValue, list[SSAValue]]]:
            slot = index.add(first, part)
            of_state = [(states, [index.add(index.mul(slot, 2), i), columns[1]]) for i in range(2)]
            of_sums = [(sums, [index.add(index.mul(slot, count), i), columns[0]]) for i in range(count)]
            return [(memory, index.values(at)) for memory, at in (*of_state, *of_sums)]

        for (memory, at), value in zip(places(index, part), state.values, strict=True):
            index.insert(StoreOp(value, memory, at, registers="vectors"))
        last = index.insert(ArriveLastOp(counters, *index.values([tile, parts]))).last

        def loaded(index: IndexBuilder, part: Index) -> SoftmaxState:
            pairs = zip(places(index, part), map(fragment_of, state.values), strict=True)
            loads = (LoadOp(memory, at, kind, registers="vectors") for (memory, at), kind in pairs)
            return SoftmaxState.of([index.insert(load).fragment for load in loads])

        def merged(inside: IndexBuilder) -> SoftmaxState:
            together = next(n for n in range(min(parts, MAX_MERGED // count), 0, -1) if parts % n == 0)
            every = self._merged(inside, [loaded(inside, i) for i in range(together)])
            if together == parts:
                return every
            with inside.loop(together, parts, together, every.values) as turn:
                following = (loaded(turn.index, turn.index.add(turn.counter, i)) for i in range(together))
                turn.handed = self._merged(turn.index, [SoftmaxState.of(turn.carried), *following]).values
            return SoftmaxState.of(turn.results)

        return last, merged

    def _inverse(self, total: Sequence[SSAValue]) -> SSAValue:
        """The factor of a row of the result; 0 for an empty row, if its result is to be 0."""
        inverse = arith.DivfOp(number(1.0), total[0]).result
        if self.op.zero_rows is None:
            return inverse
        return arith.SelectOp(arith.CmpfOp(total[0], number(0.0), "oeq").result, number(0.0), inverse).result

    def _store(self, index: IndexBuilder, state: SoftmaxState, first: Index) -> None:
        """Divides O by the sums, and stores it from the column `first` on."""
        if self.op.lse is not None:
            lse = mapped(index, self._logarithm, state.largest, state.sum)
            rows = bounds_attribute(self.scores.inside("m"), True)
            index.insert(StoreOp(lse, self.op.lse, index.values([self.row, 0]), in_bounds=rows))
        inverse = mapped(index, self._inverse, state.sum)
        schedule, through, function = ScheduleAttr(part_schedule(self.values.schedule)), None, self.op.function
        if function is not None:
            inputs = [
                (value, map_along(2, ((0, -1, -1, 1)[loop] for loop in loops_of(map_))))
                for value, map_ in function.placed
            ]
            through = index.insert(function.moved(inputs, 2, 0)).function
        rows, columns = fragment_of(state.parts[0]).shape
        # Sums in tensor memory are loaded in parts.
        width = min(columns, LOADED) if self.schedule.mma.m > GROUP_ROWS else columns
        for i in range(len(state.parts) * columns // width):
            left, part = index.add(first, i * width), state.parts[i * width // columns]
            if width < columns:
                part = index.insert(SubfragmentOp([part], (0, i * width % columns), (rows, width))).fragment
            if not isinstance(left, int) or left < self.read.values.n or not self.read.values.is_known("n"):
                at = index.values([self.row, left])
                end = EpilogueOp(
                    times(index, part, inverse), at, d=self.op.o, in_bounds=self.values.in_bounds, through=through
                )
                end.attributes[ScheduleAttr.name] = schedule
                end.location = self.op.location
                index.insert(end)
