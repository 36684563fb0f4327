"""`warp.attention_gradient`: the tiles of CTAs, and a loop that makes scores again from what the forward pass keeps.

With rows r and columns c of the scores, queries and keys for dQ, keys and queries for dK and dV, and k the scale times
log2(e), each turn computes for a tile of columns, where f(s) = s and g(s, x) = scale x if no others are given, and
s a function of the product if there is one::

    p = 2^(k (f(s) - lse / scale))    ds = g(s, p (dp - delta))    sums += p dO, ds Q, or ds K

s and dp are products of tiles that stay, one row of them for each row of the results, with those of the turn. p and ds
lie in registers as operand A of the products of sums. Nothing is added by several CTAs, so all orders of CTAs give the
same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import f32, i32
from xdsl.ir import SSAValue

from ...dialect.mlir.affine import map_along
from ...dialect.mlir.gpu import BarrierOp
from ...dialect.schedule import Schedule
from ...dialect.warp.attention import AttentionGradientOp, M, N
from ...dialect.warp.attributes import ScheduleAttr, fragment_of
from ...dialect.warp.elements import IndexOp, element_type
from ...dialect.warp.fragments import ConstantOp
from ...dialect.warp.memory import LoadOp
from ...dialect.warp.op_shapes import bounds_attribute
from ...dialect.warp.rows import EpilogueOp
from ...dialect.warp.views import MatrixOp
from ..linalg.operand import Spread
from ..linalg.product import Product, padded
from ..linalg.read_attention import AttentionGradient
from ..patterns import Index, IndexBuilder
from ..schedule.attention import part_schedule, values_schedule
from .attention import LOWEST_OF_F32
from .fragments import EpilogueOperands, fma, mapped, number, of_same_document, power
from .operands import KTurns, OperandTiles, as_operand, axis, copies_done, matrix_of, multiplied, warp_origin
from .outline_attention import Band
from .side_operands import Place
from .tiling import Tiling

POWER_OF_TWO = 0.5
"""The fraction of a number that multiplies exactly, as `math.frexp` has it."""


class GradientBuilder:
    """Builds what the warps of a CTA do for its rows of the results."""

    def __init__(self, op: AttentionGradientOp, index: IndexBuilder, schedule: Schedule) -> None:
        self.op, self.index, self.schedule = op, index, schedule
        self.read = read = AttentionGradient.of(op)
        rows, columns, _ = schedule.cta
        self.scores = Tiling(read.scores, schedule)
        self.sums = {name: Tiling(one, values_schedule(schedule, padded(one.n))) for name, one in read.sums.items()}
        self.stays, self.moves = [OperandTiles(self.scores, "a")], [OperandTiles(self.scores, "b")]
        self.slopes: Tiling[Product] | None = None
        if read.slopes is None:
            self.moves.append(OperandTiles(self.sums["dV"], "b"))
        else:
            self.slopes = Tiling(read.slopes, schedule.with_fields(cta=(rows, columns, padded(read.slopes.k))))
            self.stays.append(OperandTiles(self.slopes, "a"))
            self.moves.append(OperandTiles(self.slopes, "b"))
        # Where p is not needed alone, its exponent has the scale of ds. A power of two may as well scale the sums.
        self.functions = op.functions
        self.scale = op.scale.value.data
        self.scales_p = "dV" not in self.sums and not self.functions
        self.scales_sums = not self.scales_p and not self.functions and math.frexp(self.scale)[0] == POWER_OF_TWO
        # Of two warpgroups, whose threads have registers for delta until then: H100, dK and dV of 128 columns, 16384
        # causal 2854 microseconds for 3118, 4096 causal 830 for 906, full 1511 for 1543.
        self.subtracts = len(self.sums) > 1 and schedule.together > 1 and schedule.warps <= 2 * schedule.together
        # What a function makes of indices has registers then if dP begins behind it: H200, slopes of 128 columns 542
        # microseconds for 618. Elements of a matrix arrive while dP is computed: a bias 1258 for 1293.
        wide = [each for name in self.functions for each in read.operands(name) if isinstance(each, Spread)]
        self.late = self.subtracts and bool(self.functions) and all(None in each.dimensions for each in wide)
        keys = op.keys
        limits = (keys.diagonal, keys.window) if op.rows == M else (keys.window, keys.diagonal)
        self.band = Band(*limits, schedule)
        self.start, *batch = map(index.folded, op.tile)
        self.place: Place = {axis(loop): at for loop, at in enumerate(batch)}
        self.warp_row, _ = warp_origin(index, schedule)
        self.row = index.add(self.start, self.warp_row)

    def build(self) -> None:
        index, step = self.index, self.schedule.cta[1]
        stays, moves = ([index.alloc(tiles.shared_type()) for tiles in each] for each in (self.stays, self.moves))
        for tiles, memory in zip(self.stays, stays, strict=True):
            tiles.copy(index, {"m": self.start, "k": 0} | self.place, memory)
        copies_done(index, self.schedule)
        self._find_turns()
        at, place = (self.row, self.place) if self.op.rows == M else self._place(index, 0)
        vectors = self.read.of_queries[: 1 if self.slopes is None else 2]
        ahead = [self._loaded(index, vector, place, at) for vector in vectors]
        zeros = {name: self._zeros(tiling) for name, tiling in self.sums.items()}
        # lse and delta of the next columns are on their way while the last products of a turn run.
        initial = [part for parts in zeros.values() for part in parts] + ([] if self.op.rows == M else ahead)
        with index.loop(0, self.turns.end(index), step, initial) as turn:
            inside, carried = turn.index, iter(turn.carried)
            at, place = self._place(inside, turn.counter)
            for tiles, memory in zip(self.moves, moves, strict=True):
                along, other = ("n", "k") if tiles.tiling in (self.scores, self.slopes) else ("k", "n")
                tiles.copy(inside, {along: at, other: 0} | place, memory)
            copies_done(inside, self.schedule)
            sums = {name: [next(carried) for _ in parts] for name, parts in zeros.items()}
            starts = ahead if self.op.rows == M else list(carried)
            turn.handed = self._turn(inside, turn.counter, (at, place), (stays, moves), starts, sums)
            inside.insert(BarrierOp())
        results = iter(turn.results)
        for name, parts in zeros.items():
            self._store(name, [next(results) for _ in parts])

    def _find_turns(self) -> None:
        """The first column that counts for a row of the CTA, and the turns from there on: of all loops summed over."""
        index, step, product = self.index, self.schedule.cta[1], self.read.scores
        columns = product.n if product.is_known("n") else index.dim(product.b.value, product.b.loops[1])
        self.columns = columns
        end = self.band.end(index, columns, self.start)
        first = self.band.first(index, self.start, self.op.first)
        if self.op.until is not None:
            end = index.minimum(end, self.op.until)
        self.first = index.mul(first, step)
        count = index.sub(end, self.first)
        span = index.mul(index.ceildiv(count if isinstance(count, int) else index.from_zero(count), step), step)
        self.turns = KTurns(span, product.batch[self.read.outer :])

    def _place(self, index: IndexBuilder, turn: Index) -> tuple[SSAValue, Place]:
        """The first column of a turn, and the index of each loop around."""
        turns, outer = self.turns, self.read.outer
        if not isinstance(turns.span, int) and turns.sizes:
            # One at least: without a turn nobody asks for its place.
            turns = turns._replace(span=index.add(index.from_zero(index.sub(turns.span, 1)), 1))
        place = turns.place(index, turn)
        others = {axis(outer + loop): place[axis(loop)] for loop in range(len(turns.sizes))}
        return index.value(index.add(place["k"], self.first)), self.place | others

    def _zeros(self, tiling: Tiling[Product]) -> list[SSAValue]:
        """Sums at the start, part by part of the columns."""
        kind = tiling.fragment("acc")
        return [self.index.insert(ConstantOp.of(0.0, kind)).fragment for _ in self._widths(tiling)]

    @staticmethod
    def _widths(tiling: Tiling[Product]) -> range:
        """The first columns of the parts that a warp accumulates at a time."""
        return range(0, tiling.schedule.cta[1], tiling.schedule.warp[1])

    # Scores

    def _loaded(self, index: IndexBuilder, vector: Spread, place: Place, at: Index) -> SSAValue:
        """A vector along the rows or the columns of scores from `at` on, as a fragment like them."""
        kind, scores, (row, _) = self.scores.fragment("acc"), self.read.scores, vector.dimensions
        kind = kind.with_element(element_type(vector.value))
        size, step, name = (scores.n, self.schedule.cta[1], "n") if row is None else (
            scores.m, self.schedule.cta[0], "m")  # fmt: skip
        inside = scores.is_known(name) and size % step == 0
        if inside and row is None:
            at = index.minimum(at, size - step)  # behind the last turn
        memory = self._matrix(index, vector, place)
        if row is None:
            where = index.values([0, at])
            load = LoadOp(memory, where, kind, in_bounds=bounds_attribute(True, inside), along="columns")
        else:
            load = LoadOp(memory, index.values([at, 0]), kind, in_bounds=bounds_attribute(inside, True))
        return index.insert(load).fragment

    @staticmethod
    def _matrix(index: IndexBuilder, spread: Spread, place: Place) -> SSAValue:
        """Numbers along rows, columns or both, of one place in the batch."""
        indices = index.values([place[axis(loop)] for loop in spread.batch])
        return index.insert(MatrixOp(spread.value, indices, *spread.dimensions)).matrix

    def _through(
        self, index: IndexBuilder, name: str, parts: Sequence[SSAValue], where: tuple[SSAValue, Place]
    ) -> SSAValue:
        """What the function of this name makes of elements whose columns begin at `where`."""
        (at, place), function, batch = where, self.functions[name], self.op.batch
        used = {op.number for op in function.body.block.ops if isinstance(op, IndexOp)}
        of_batch = ((loop, place[axis(self.read.around.index(loop))]) for loop in sorted(used) if loop < batch)
        numbers = {loop: index.insert(arith.IndexCastOp(index.value(i), i32)).result for loop, i in of_batch}
        order = [*range(batch), *((M, N) if self.op.rows == M else (N, M))]
        inputs = [
            (self._matrix(index, each, place), map_along(2, (M, N)))
            if isinstance(each, Spread)
            else (each.value, map_along(2, ()))
            for each in self.read.operands(name)
        ]
        moved = function.moved(inputs, 2, order, numbers)
        bounds = bounds_attribute(self.scores.inside("m"), self.scores.inside("n"))
        operands = EpilogueOperands(index, moved.placed, fragment_of(parts[0]), self.row, at, bounds)
        return operands.map(parts, operands.load(0), moved, f32, 0)

    def _turn(
        self,
        index: IndexBuilder,
        turn: SSAValue,
        where: tuple[SSAValue, Place],
        tiles: tuple[Sequence[SSAValue], Sequence[SSAValue]],
        of_queries: Sequence[SSAValue],
        sums: Mapping[str, Sequence[SSAValue]],
    ) -> list[SSAValue]:
        """One iteration of the loop, whose columns begin at `where`. It carries sums, and lse and delta of the next
        columns."""
        (stays, moves), part, factors = tiles, (self.warp_row, 0, 0), (-1.0 / self.scale, -1.0)
        at, place = where
        # Scores start from -lse, and dp from -delta, which so take no further registers. Both starts are made before
        # products: ptxas lets registers wait that are written while others are.
        early = of_queries[:1] if self.subtracts else of_queries
        starts = [_scaled(index, start, factor) for start, factor in zip(early, factors, strict=False)]
        zero = ConstantOp.of(0.0, self.scores.fragment("acc"))
        starts += [index.insert(zero.clone()).fragment for _ in range(len(of_queries) - len(starts))]
        if self.functions:
            starts[0] = index.insert(zero).fragment
        elif self.scales_p:
            shift = math.log(self.scale) / self.scale
            starts[0] = mapped(index, lambda x: fma(x[0], number(factors[0]), number(shift)), of_queries[0])
        made = (
            multiplied(index, tiling, a, b, start, part)
            for tiling, a, b, start in zip(filter(None, (self.scores, self.slopes)), stays, moves, starts, strict=False)
        )
        scores, slopes = next(made), [] if self.late else list(made)
        if "products" in self.functions:
            scores = self._through(index, "products", [scores], where)
        products = scores
        if "scores" in self.functions:
            scores = self._through(index, "scores", [scores], where)
        slopes = slopes or list(made)
        if self.functions:  # of scores that may be as low as f32 is, and lse with them

            def exponent(x: Sequence[SSAValue]) -> SSAValue:
                lse = arith.MaximumfOp(x[1], number(LOWEST_OF_F32 * min(1.0, self.scale))).result  # of no key: p is 0
                return fma(lse, number(factors[0]), x[0])

            scores = mapped(index, exponent, scores, of_queries[0])
        # Behind the last query, lse and the rows of dO are zero, and so is all that is added, where p is finite. Behind
        # the last key, p would be as large as lse is low.
        columns = self.columns if self.op.rows == M or self.functions else 0
        if documents := self.read.documents:
            rows = [at if vector.dimensions[0] is None else self.row for vector in documents]
            numbers = (self._loaded(index, vector, place, row) for vector, row in zip(documents, rows, strict=True))
            scores = mapped(index, of_same_document, scores, *numbers)
        scores = self.band.masked(index, scores, (self.row, at, columns))
        p = mapped(index, self._raised, scores)
        results, following = dict[str, list[SSAValue]](), list[SSAValue]()
        # dV first, so that its products run while ds is computed.
        for name in sorted(self.sums, reverse=True):
            tiling, b = self.sums[name], moves[1 if name == "dV" else 0]
            a = p if name == "dV" else mapped(index, self._slope, p, slopes[0], *of_queries[len(early) :])
            if name != "dV" and "slopes" in self.functions:
                a = self._through(index, "slopes", [products, a], where)
            a, lefts = as_operand(index, tiling, a), self._widths(tiling)
            if len(results) == len(self.sums) - 1 and self.op.rows != M:
                after, of_turn = self._place(index, index.add(turn, self.schedule.cta[1]))
                vectors = self.read.of_queries[: len(of_queries)]
                following = [self._loaded(index, vector, of_turn, after) for vector in vectors]
            results[name] = [
                multiplied(index, tiling, a, b, before, (0, left, 0))
                for before, left in zip(sums[name], lefts, strict=True)
            ]
        return [value for name in self.sums for value in results[name]] + following

    def _raised(self, x: Sequence[SSAValue]) -> SSAValue:
        """2^(k s) of a score less lse, with or without the scale of ds."""
        return power(arith.MulfOp(x[0], number(self.scale * math.log2(math.e))).result)

    def _slope(self, x: Sequence[SSAValue]) -> SSAValue:
        """scale * p * (dp - delta). The scale is left out where a later step multiplies by it without another
        rounding, or a function does. If delta is given, dp does not start from it."""
        slope = x[1] if len(x) == 2 else arith.SubfOp(x[1], x[2]).result
        plain = self.scales_p or self.scales_sums or "slopes" in self.functions
        return arith.MulfOp(x[0] if plain else arith.MulfOp(x[0], number(self.scale)).result, slope).result

    # Results

    def _store(self, name: str, parts: Sequence[SSAValue]) -> None:
        """Stores a result."""
        index, tiling = self.index, self.sums[name]
        product, schedule = tiling.product, ScheduleAttr(part_schedule(tiling.schedule))
        to = product.d.value if product.d.is_whole else matrix_of(index, product.d, self.place)
        for i, part in enumerate(parts):
            left = i * fragment_of(part).shape[1]
            if left >= product.n:
                continue
            if self.scales_sums and name != "dV":
                part = _scaled(index, part, self.scale)
            end = EpilogueOp(part, index.values([self.row, left]), d=to, in_bounds=tiling.in_bounds)
            end.attributes[ScheduleAttr.name] = schedule
            end.location = self.op.location
            index.insert(end)


def _scaled(index: IndexBuilder, fragment: SSAValue, by: float) -> SSAValue:
    """A fragment times a number."""
    return mapped(index, lambda x: arith.MulfOp(x[0], number(by)).result, fragment)
