"""The region of `warp.rows` on fragments: `warp.reduce` becomes one of fragments, what is between them `warp.map`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith
from xdsl.dialects import math as math_dialect
from xdsl.dialects.builtin import f32, f64, i32
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue, TypeAttribute

from ...dialect.warp.attributes import BYTE, FragmentType, element_row, fragment_of
from ...dialect.warp.convert import IDENTITIES, ReduceOp, ScanOp, column_of
from ...dialect.warp.elements import IndexOp, YieldOp, all_yielded, element_type
from ...dialect.warp.fragments import ConstantOp, Kind
from ...dialect.warp.rows import ACROSS, MapOp
from ..linalg.row_reductions import is_in_logarithm, is_sum_below, needed, shows_its_start
from ..patterns import Index, IndexBuilder, Turn, computed_from, constant_number
from .elementwise_kernel import EXACT
from .fragments import APPROXIMATE, fma, mapped, mapped_to, number, power, until
from .gelu import plus_one

# What depends on rows taken together alone is computed once a row, on columns, and spread out where elements need it.
# Where 16 bits of each element are stored, and it is not rounded before, exp is `ex2.approx`, a quotient by one plus
# an exponential `div.approx`, and an exponential over a value of the row a product with its inverse: what that is off
# by, 2^-21 and |x| 2^-23 for the exponent x, is far below what storing rounds. So is what a logarithm of a sum of
# exponentials is off by, 2^-21: terms of large exponents are small.
#
# Any other quotient of f32 by a value of the row is a product with its inverse in two parts, y + z, which together are
# off by 2^-43. x y + x z is rounded once where x z has been, so a quotient that f32 has is exact. y is below the
# inverse, so z is not zero and has its sign, and infinities stay what they are. `div.rn` takes ten instructions and a
# branch, for three, and calls a function for each zero, such as the elements of lanes beyond the end of a row.

COMBINED: Mapping[Kind, Callable[[SSAValue, SSAValue], SSAValue]] = {
    Kind.Add: lambda a, b: arith.AddfOp(a, b).result,
    Kind.Mul: lambda a, b: arith.MulfOp(a, b).result,
    Kind.Max: lambda a, b: arith.MaxnumfOp(a, b).result,
    Kind.Min: lambda a, b: arith.MinnumfOp(a, b).result,
    Kind.Maximum: lambda a, b: arith.MaximumfOp(a, b).result,
    Kind.Minimum: lambda a, b: arith.MinimumfOp(a, b).result,
}
"""Two elements of a row as one."""

LOWEST = float.fromhex("-0x1.fffffep127")
"""The lowest number of f32: differences from it are no NaN."""

SCALED, BELOW_ONE = 2.0**64, 1 - 2.0**-23
"""Divisors whose inverse has all bits are above 1 / `SCALED` and below `SCALED`."""

MIN_DIVIDED = 8
"""Elements of a row in a lane that are worth an inverse in two parts."""

FUNCTIONS = (math_dialect.ExpOp, math_dialect.TanhOp, math_dialect.ErfOp, arith.DivfOp)
"""What takes many instructions, but for the first where few bits are stored."""

REPEATED = (f32, f64, i32)
"""Types of values of a row that are spread out without an instruction."""

FragmentOf: TypeAlias = Callable[[TypeAttribute], FragmentType]
Load: TypeAlias = Callable[[IndexBuilder, int, Index], SSAValue]
Store: TypeAlias = Callable[[IndexBuilder, int, SSAValue, Index], None]
Join: TypeAlias = Callable[..., Sequence[SSAValue]]


class RowRegion(NamedTuple):
    """The `region` of `warp.rows`. Its arguments are numbers, fragments that `load` reads from a column on, or columns
    for memory in `of_rows`. A warp has the columns from `start` on. `join` reduces columns over all warps that share a
    row, if it is `shared`, those that do not depend on each other `together`. `length` is the length of rows, if tiles
    pass their end; the first `inside` columns of each warp are before it (-1: each is compared). The region yields
    `outputs`, and numbers behind them. Arguments `ahead` are loaded before anything is stored. Sums of one element
    alone are `chosen`: what a few columns are made by, and the first of those. Columns are `early` by so
    many, so that they begin before the row, if that is said. `rows` has where the first row of a warp is, for indices
    that differ among its rows."""

    region: Region
    fragment: FragmentOf
    load: Load
    numbers: Mapping[SSAValue, SSAValue]
    of_rows: Collection[SSAValue]
    start: Index
    join: Join
    together: bool
    shared: bool
    length: Index | None
    inside: int
    outputs: int
    ahead: Sequence[SSAValue] = ()
    chosen: Mapping[ReduceOp, tuple[RowRegion, Index]] = MappingProxyType({})
    early: Index | None = None
    rows: Mapping[SSAValue, Index] = MappingProxyType({})

    @property
    def is_narrow(self) -> bool:
        """Whether at most 16 bits of each element are stored and no exponential is rounded before, so that approximate
        instructions are accurate enough; for values of the row too, if elements have 8 bits, of which they are scales.
        """
        results = all_yielded(self.region)
        columns = [value for value in results if self.is_column(value)]
        wide = any(value.type == f32 and value not in columns for value in results)
        every = [op for op in self.region.block.ops if isinstance(op, arith.TruncFOp)]
        rounded = [op.input for op in every if op.result not in results]
        scales = any((row := element_row(value.type)) is not None and row.bits == BYTE for value in results)
        operation = self.region.parent_op()
        return not (
            wide
            or (operation is not None and EXACT in operation.attributes)
            or (not scales and any(isinstance(value.owner, math_dialect.ExpOp) for value in computed_from(columns)))
            or any(isinstance(value.owner, math_dialect.ExpOp) for value in computed_from(rounded))
        )

    def is_reduced_and_used(self, value: SSAValue) -> bool:
        """Whether an element that takes a function is reduced and used otherwise too: it is computed once."""
        functions = FUNCTIONS[1:] if self.is_narrow else FUNCTIONS
        reduced = needed(op.input for op in self.region.block.ops if isinstance(op, ReduceOp))
        several = value.type == f32 and len({use.operation for use in value.uses}) > 1
        made = (one for one in needed([value]) if isinstance(one.owner, functions))
        return several and value in reduced and not all(map(self.is_column, made))

    def build(self, index: IndexBuilder, end: Index, step: int | None, store: Store) -> None:
        """Whole rows at once, or `step` columns at a time up to `end`."""
        columns: dict[SSAValue, SSAValue] = {}
        chunk = RowChunk(self, index, self.start, columns)
        group, later = list[ReduceOp](), set[SSAValue]()
        parts = dict[ReduceOp, RowChunk]()
        for op in (*self.region.block.ops, None):
            depends = op is None or not later.isdisjoint(op.operands)
            apart = depends or not self.together or isinstance(op, ScanOp)
            if group and apart and (op is None or isinstance(op, ACROSS)):
                below = (self.shared or step is not None) and is_sum_below(op, group[0])
                if below and isinstance(op, ReduceOp):
                    group.insert(1, op)
                if step is not None:
                    parts = parts or self._parts(index, columns)  # on their way beside the loop
                    own = self._along(index, group, end, step, columns, below)
                elif below:
                    own = [*chunk.sum_below(*group[:2]), *(chunk.reduced(each, parts=False) for each in group[2:])]
                else:
                    own = [chunk.reduced(each, parts=False) for each in group]
                parts = parts or self._parts(index, columns)
                kinds = [each.kind.data for each in group]
                joined = self.join(index, list(zip(kinds, own, strict=True)), below)
                op = None if below else op
                for each, column in zip(group, joined, strict=True):
                    shown = step is None and not isinstance(self.length, int) and shows_its_start(each)
                    columns[each.result] = _started(index, each.kind.data, column) if shown else column
                group.clear()
                later.clear()
            elif depends and op is not None:
                later.update(op.results)
            if isinstance(op, ScanOp) and step is None:
                start, own = None, chunk.within(op, chunk.index)
                if self.shared:
                    total = index.insert(ReduceOp(op.kind.data, own)).result
                    (start,) = self.join(index, [(op.kind.data, total)], False, before=True)
                chunk.scan(op, own, start)
            elif isinstance(op, ReduceOp) and op in self.chosen:
                parts = parts or self._parts(index, columns)
                columns[op.result] = parts[op].reduced(op, parts=False)
            elif isinstance(op, ReduceOp):
                later.add(op.result)
                group.append(op)
        results = dict(enumerate(all_yielded(self.region)[: self.outputs]))
        if step is not None:
            for number in [n for n, value in results.items() if self.is_column(value)]:
                store(index, number, chunk.stored(results.pop(number)), self.start)
            if not results:
                return
        scans = [op for op in self.region.block.ops if isinstance(op, ScanOp)]
        kinds = [(IDENTITIES[op.kind.data], column_of(self.fragment(element_type(op.input)))) for op in scans]
        starts = [index.insert(ConstantOp.of(*each)).fragment for each in kinds] if step is not None else []
        with nullcontext() if step is None else index.loop(0, end, step, starts) as turn:
            chunk = chunk if turn is None else RowChunk(self, turn.index, self._at(turn), columns)
            if turn is not None:
                for op, start in zip(scans, turn.carried, strict=True):
                    chunk.scan(op, own := chunk.within(op, chunk.index), start)
                    total = chunk.index.insert(ReduceOp(op.kind.data, own)).result
                    each = mapped(chunk.index, lambda x, by=op.kind.data: COMBINED[by](x[0], x[1]), start, total)
                    turn.handed = [*turn.handed, each]
            for argument in (one for value in results.values() for one in needed([value]) if one in self.ahead):
                chunk.spread(argument)
            for number, value in results.items():
                store(chunk.index, number, chunk.stored(value), chunk.at)

    def _parts(self, index: IndexBuilder, columns: dict[SSAValue, SSAValue]) -> dict[ReduceOp, RowChunk]:
        """The columns of sums of one element, which are loaded here."""
        parts = {op: RowChunk(region, index, at, columns) for op, (region, at) in self.chosen.items()}
        for op, part in parts.items():
            for value in needed([op.input]):
                if isinstance(value, BlockArgument) and value not in (*self.of_rows, *self.numbers):
                    part.spread(value)
        return parts

    def _at(self, turn: Turn) -> Index:
        """The first column of this warp in a turn of a loop along rows."""
        return turn.index.add(turn.counter, self.start)

    def _along(
        self,
        index: IndexBuilder,
        ops: Sequence[ReduceOp],
        end: Index,
        step: int,
        columns: Mapping[SSAValue, SSAValue],
        below: bool,
    ) -> list[SSAValue]:
        """Reductions as one loop along rows. The largest element so far, which another is `below`, is known to all
        lanes, and what they have summed below the one before is scaled."""
        inside = [not below or number > 0 for number in range(len(ops))]
        parts = [column_of(self.fragment(element_type(op.input)), parts=e) for op, e in zip(ops, inside, strict=True)]
        kinds = [op.kind.data for op in ops]
        identities = [IDENTITIES[kind] if each else LOWEST for kind, each in zip(kinds, inside, strict=True)]
        starts = [index.insert(ConstantOp.of(*each)).fragment for each in zip(identities, parts, strict=True)]
        with index.loop(0, end, step, starts) as turn:
            chunk = RowChunk(self, turn.index, self._at(turn), dict(columns))
            for op, kind, carried, each in zip(ops, kinds, turn.carried, inside, strict=True):
                if below and op is ops[1]:
                    carried = mapped(turn.index, rescaled, carried, turn.carried[0], turn.handed[0])
                own = chunk.reduced(op, parts=each)
                own = mapped(turn.index, lambda x, kind=kind: COMBINED[kind](x[0], x[1]), carried, own)
                chunk.columns |= {} if each else {op.result: own}
                turn.handed = [*turn.handed, own]
        pairs = zip(kinds, turn.results, inside, strict=True)
        return [index.insert(ReduceOp(kind, value)).result if each else value for kind, value, each in pairs]

    def is_column(self, value: SSAValue) -> bool:
        """Whether a value is the same for all elements of a row, and no number alone."""
        varying = self._varying(value)
        of_row = all(one in self.of_rows or isinstance(one.owner, ReduceOp) for one in varying)
        return value in self.of_rows or (bool(varying) and of_row)

    def is_number(self, value: SSAValue) -> bool:
        """Whether a value is the same for all rows."""
        return not self._varying(value)

    def _varying(self, value: SSAValue) -> list[SSAValue]:
        """What a value is computed from that is no number: arguments, reductions and indices, each once."""
        every = computed_from([value], until=ACROSS, leaves=self.numbers)
        return [v for v in every if v not in self.numbers and isinstance(v.owner, (Block, *ACROSS, IndexOp))]


def rescaled(x: Sequence[SSAValue]) -> SSAValue:
    """A sum of exponentials below one number as that below another."""
    less = arith.MulfOp(arith.SubfOp(x[1], x[2]).result, number(math.log2(math.e))).result
    return arith.MulfOp(x[0], power(less)).result


def _started(index: IndexBuilder, kind: Kind, column: SSAValue) -> SSAValue:
    """A column combined with the identity of the reduction."""
    return mapped(index, lambda x: COMBINED[kind](x[0], number(IDENTITIES[kind], x[0].type)), column)


@dataclass
class RowChunk:
    """The columns of rows from `at` on: `elements` are fragments, and `columns` values of whole rows."""

    region: RowRegion
    index: IndexBuilder
    at: Index
    columns: dict[SSAValue, SSAValue]
    elements: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    inverses: dict[tuple[SSAValue, bool], list[SSAValue]] = field(
        default_factory=dict[tuple[SSAValue, bool], list[SSAValue]]
    )

    def reduced(self, op: ReduceOp, *, parts: bool) -> SSAValue:
        """The reduction of rows, or with `parts` of each lane's elements of them."""
        length = self.region.length
        if self.region.early is not None and isinstance(length, int):
            return self._reduced_early(op, length, parts=parts)
        fragment, kind = self.spread(op.input), op.kind.data
        if length is not None:
            together = length if isinstance(length, int) and self.region.inside >= 0 else 1
            start = self.index.sub(self.at, length)
            fragment = until(self.index, fragment, start, IDENTITIES[kind], together, self.region.inside)
        return self.index.insert(ReduceOp(kind, fragment, parts=parts)).result

    def _reduced_early(self, op: ReduceOp, length: int, *, parts: bool) -> SSAValue:
        """The same of columns that are early, of which those of other rows are left out where a warp has any."""
        fragment, kind, start = self.spread(op.input), op.kind.data, self.index.sub(self.at, self.region.early or 0)
        (own,) = self.index.either(
            self.index.compare("ult", start, length - fragment_of(fragment).shape[1] + 1),
            lambda index: [index.insert(ReduceOp(kind, fragment, parts=True)).result],
            lambda index: [index.insert(ReduceOp(kind, self.within(op, index), parts=True)).result],
        )
        return own if parts else self.index.insert(ReduceOp(kind, own)).result

    def within(self, op: ReduceOp | ScanOp, index: IndexBuilder) -> SSAValue:
        """What is reduced or scanned, without what columns that are early have of other rows."""
        fragment, early, length = self.spread(op.input), self.region.early, self.region.length
        if early is None or not isinstance(length, int):
            return fragment
        return until(index, fragment, index.sub(self.at, early), IDENTITIES[op.kind.data], length=length)

    def scan(self, op: ScanOp, own: SSAValue, start: SSAValue | None) -> None:
        """Makes the elements of a scan, which a column of what is before these columns begins."""
        self.elements[op.result] = self.index.insert(ScanOp(op.kind.data, own, start)).result

    def sum_below(self, largest: ReduceOp, op: ReduceOp) -> list[SSAValue]:
        """The largest element of this warp, or a finite number, and the sum of exponentials below it."""
        own = self.reduced(largest, parts=False)
        own = mapped(self.index, lambda x: COMBINED[largest.kind.data](x[0], number(LOWEST)), own)
        below = RowChunk(self.region, self.index, self.at, {largest.result: own}, dict(self.elements))
        return [own, below.reduced(op, parts=False)]

    def stored(self, value: SSAValue) -> SSAValue:
        """A value for each element that is stored: of a row one base tile, of which the first column is."""
        if not (self.region.is_column(value) and value.type in REPEATED):
            return self.spread(value)
        kind = self.region.fragment(element_type(value))
        kind = FragmentType.of("acc", kind.shape[0], kind.layout.data.columns, kind.element_type, kind.layout.data)
        return mapped_to(self.index, kind, lambda x: x[0], self.column(value))

    def spread(self, value: SSAValue) -> SSAValue:
        """A value for each element."""
        if value not in self.elements:
            self.elements[value] = self._spread(value)
        return self.elements[value]

    def _spread(self, value: SSAValue) -> SSAValue:
        kind = self.region.fragment(element_type(value))
        if isinstance(value.owner, IndexOp) and value not in self.region.numbers:
            start = self.region.rows.get(value, self.index.sub(self.at, self.region.early or 0))
            along = int(value not in self.region.rows)
            return self.index.insert(IndexOp(along, self.index.value(start), self.region.fragment(i32))).result
        if (constant := constant_number(value)) is not None:
            return self.index.insert(ConstantOp(constant, kind)).fragment
        if isinstance(value, BlockArgument) and not self.region.is_number(value) and value not in self.region.of_rows:
            return self.region.load(self.index, value.index, self.at)
        if self.region.is_column(value) and value.type in REPEATED:
            return mapped_to(self.index, kind, lambda x: x[0], self.column(value))
        return self._mapped(value, kind, self._is_element, self._input)

    def _input(self, value: SSAValue) -> SSAValue:
        """A value as an input of `warp.map`, which repeats columns."""
        is_repeated = value not in self.elements and self.region.is_column(value) and value.type in REPEATED
        return self.column(value) if is_repeated else self.spread(value)

    def column(self, value: SSAValue) -> SSAValue:
        """A value for each row."""
        if value not in self.columns and isinstance(value, BlockArgument):
            self.columns[value] = self.region.load(self.index, value.index, self.at)
        elif value not in self.columns:
            kind = column_of(self.region.fragment(f32)).with_element(element_type(value))
            self.columns[value] = self._mapped(value, kind, self._is_of_row, self.column)
        return self.columns[value]

    def _is_of_row(self, value: SSAValue) -> bool:
        """Whether a value has one element for each row."""
        return isinstance(value.owner, ReduceOp) or value in self.region.of_rows

    def _is_element(self, value: SSAValue) -> bool:
        """Whether a value is a fragment."""
        if isinstance(value, BlockArgument):
            return not self.region.is_number(value)
        is_column = self.region.is_column(value) and value.type in REPEATED
        is_made = value in self.elements or isinstance(value.owner, IndexOp)
        return is_made or is_column or self.region.is_reduced_and_used(value)

    def _factors(self, op: arith.DivfOp, kind: FragmentType) -> list[SSAValue]:
        """The columns that make a quotient by a value of the row a product: its inverse, or a power of two and the two
        parts of the inverse of its product with the value; none for anything else. An exponential, as in a softmax,
        takes the former, for its sum is not small; other divisors may be, so that their inverse is infinite."""
        if op.result.type != f32 or not self.region.is_column(op.rhs):
            return []
        of_exponential = isinstance(op.lhs.owner, math_dialect.ExpOp) and self.region.is_narrow
        layout = kind.layout.data
        few = layout.elements * kind.shape[1] // layout.columns < MIN_DIVIDED
        if kind.shape != self.region.fragment(f32).shape or (few and not of_exponential):
            return []
        own, key = self.column(op.rhs), (op.rhs, of_exponential)
        if key not in self.inverses and of_exponential:
            self.inverses[key] = [mapped(self.index, lambda x: arith.DivfOp(number(1.0), x[0]).result, own)]
        elif key not in self.inverses:
            scale = mapped(self.index, _scale, own)
            inverse = mapped(self.index, lambda x: arith.DivfOp(number(1.0), _product(x)).result, own, scale)
            near = mapped(self.index, lambda x: arith.MulfOp(x[0], number(BELOW_ONE)).result, inverse)
            self.inverses[key] = [scale, near, mapped(self.index, _rest_of_inverse, own, scale, inverse, near)]
        return self.inverses[key]

    def _computed(self, op: Operation, operands: Sequence[SSAValue]) -> SSAValue:
        """An operation on elements, in the block that is being built."""
        if isinstance(op, math_dialect.ExpOp) and (self.region.is_narrow or is_in_logarithm(op)):
            return power(arith.MulfOp(operands[0], number(math.log2(math.e))).result)
        if isinstance(op, arith.DivfOp) and self.region.is_narrow and plus_one(op.rhs, math_dialect.ExpOp):
            return arith.DivfOp(operands[0], operands[1], APPROXIMATE).result
        return op.clone(dict(zip(op.operands, operands, strict=True))).results[0]

    def _mapped(
        self,
        value: SSAValue,
        kind: FragmentType,
        is_known: Callable[[SSAValue], bool],
        value_of: Callable[[SSAValue], SSAValue],
    ) -> SSAValue:
        """A value computed by `warp.map` from operands that satisfy a condition."""
        block, inputs, inner = Block(), list[SSAValue](), dict[SSAValue, SSAValue]()

        def moved(one: SSAValue) -> SSAValue:
            if one in inner:
                return inner[one]
            owner = one.owner
            if one in self.region.numbers or isinstance(owner, Block) or (one is not value and is_known(one)):
                inputs.append(self.region.numbers[one] if one in self.region.numbers else value_of(one))
                inner[one] = block.insert_arg(element_type(one), len(block.args))
                return inner[one]
            if isinstance(owner, arith.DivfOp) and (columns := self._factors(owner, kind)):
                inputs.extend(columns)
                own = [block.insert_arg(f32, len(block.args)) for _ in columns]
                dividend = moved(owner.lhs)
                with ImplicitBuilder(block):
                    inner[one] = arith.MulfOp(dividend, own[0]).result
                    if len(own) > 1:
                        inner[one] = fma(inner[one], own[1], arith.MulfOp(inner[one], own[2]).result)
                return inner[one]
            operands = list(map(moved, owner.operands))
            with ImplicitBuilder(block):
                inner[one] = self._computed(owner, operands)
            return inner[one]

        block.add_op(YieldOp(moved(value)))
        return self.index.insert(MapOp(inputs, kind, Region(block))).fragment


def _scale(x: Sequence[SSAValue]) -> SSAValue:
    """The power of two that makes a divisor of a row one whose inverse has all bits."""
    size = math_dialect.AbsFOp(x[0]).result
    up = arith.CmpfOp(size, number(1 / SCALED), "olt").result
    down = arith.CmpfOp(size, number(SCALED), "ogt").result
    large = arith.SelectOp(down, number(1 / SCALED), number(1.0)).result
    return arith.SelectOp(up, number(SCALED), large).result


def _product(x: Sequence[SSAValue]) -> SSAValue:
    return arith.MulfOp(x[0], x[1]).result


def _rest_of_inverse(x: Sequence[SSAValue]) -> SSAValue:
    """What x[3] lacks of the inverse of x[0] x[1], which is x[2]; for zero and infinity x[3], which lacks nothing."""
    rest = arith.MulfOp(fma(arith.NegfOp(_product(x)).result, x[3], number(1.0)), x[2]).result
    return arith.SelectOp(arith.CmpfOp(rest, rest, "oeq").result, rest, x[3]).result
