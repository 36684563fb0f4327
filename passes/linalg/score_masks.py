"""Which keys count for a query, and by what scores are scaled, as expressions of the product of Q and K say it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import IntegerAttr, i32

from ...dialect.warp.attention import Keys
from ...dialect.warp.elements import element_type
from .element_expressions import ElementExpression, Name, map_of

QUERY, KEY, DEPTH, COLUMN = "m", "n", "d", "e"
"""The names of loops; those of the batch are numbers."""


def loop_order(batch: int) -> dict[Name, int]:
    """The numbers of loops behind so many of a batch."""
    return {name: i for i, name in enumerate((*range(batch), QUERY, KEY, DEPTH, COLUMN))}


class KeyRange(NamedTuple):
    """The range of keys of query m: from m - window to m + diagonal, below the sequence's length, and of the same
    document. Each limit is optional."""

    diagonal: int | None = None
    window: int | None = None
    lengths: ElementExpression | None = None
    documents: tuple[ElementExpression, ...] = ()

    def both(self, other: KeyRange) -> KeyRange | None:
        """The keys that are in both; None for two kinds of lengths, or of documents."""
        for one, another in ((self.lengths, other.lengths), (self.documents, other.documents)):
            if one and another and one != another:
                return None
        diagonals, windows = (
            [bound for bound in pair if bound is not None]
            for pair in ((self.diagonal, other.diagonal), (self.window, other.window))
        )
        bounds = min(diagonals, default=None), min(windows, default=None)
        return KeyRange(*bounds, self.lengths or other.lengths, self.documents or other.documents)

    def placed(self, order: Mapping[Name, int]) -> Keys:
        """The keys that count, as an operation has them whose loops stand in this order."""
        lengths, *documents = (
            None if load is None or load.value is None else (load.value, map_of(load.place, order))
            for load in (self.lengths, *self.documents)
        )
        return Keys(self.diagonal, self.window, lengths, tuple(filter(None, documents)))


class Scores(NamedTuple):
    """Scores: `scale`, above 0, times `rest`, an expression of the product, for the keys of a range."""

    rest: ElementExpression
    scale: float
    keys: KeyRange

    @staticmethod
    def of(x: ElementExpression, *, single: bool, lengths: bool = True) -> Scores:
        """Scores as masks leave them, those by lengths only if `lengths`. `single`: the only query has number 0."""
        inner, keys = _masked(x, single)
        if keys.lengths and not lengths:
            inner, keys = x, keys._replace(lengths=None)
        rest, scale = scaled(inner)
        return Scores(rest, scale, keys) if scale > 0 else Scores(inner, 1.0, keys)


def _masked(x: ElementExpression, single: bool) -> tuple[ElementExpression, KeyRange]:
    """Splits scores into the unmasked scores and the range of keys that the masks leave."""
    rest, keys = _outermost(x, single)
    if keys is None:
        return x, KeyRange()
    inner, others = _masked(rest, single)
    both = keys.both(others)
    return (rest, keys) if both is None else (inner, both)


def _outermost(x: ElementExpression, single: bool) -> tuple[ElementExpression, KeyRange | None]:
    """Scores without the last mask, and the range of keys that the mask keeps."""
    if x.is_op("arith.select"):
        condition, yes, no = x.operands
        for kept, gone, holds in ((no, yes, False), (yes, no, True)):
            keys = _key_range(condition, single, holds=holds) if gone.number == -math.inf else None
            if keys is not None:
                return kept, keys
    if x.is_op("arith.addf"):
        for rest, mask in (x.operands, x.operands[::-1]):
            kept, keys = _outermost(mask, single)
            if keys is not None and kept.number == 0:
                return rest, keys
    if x.is_op("arith.mulf"):
        for rest, factor in (x.operands, x.operands[::-1]):
            kept, keys = _outermost(rest, single)
            if keys is not None and factor.number is not None and factor.number > 0:
                return replace(x, operands=(kept, factor)), keys
    return x, None


def _key_range(condition: ElementExpression, single: bool, *, holds: bool) -> KeyRange | None:
    """The range of keys for which a condition holds, or for which it fails if `holds` is False. None for a condition
    that is not a range."""
    if condition.is_op("arith.andi" if holds else "arith.ori"):
        asked = [side for side in condition.operands if side.kind != "constant" or bool(side.number) != holds]
        if len(asked) == 1:
            return _key_range(asked[0], single, holds=holds)
        one, other = (_key_range(side, single, holds=holds) for side in condition.operands)
        return None if one is None or other is None else one.both(other)
    if not condition.is_op("arith.cmpi") or condition.op is None:
        return None
    predicate = condition.op.properties["predicate"]
    name = CMPI_COMPARISON_OPERATIONS[predicate.value.data] if isinstance(predicate, IntegerAttr) else ""
    if name == ("eq" if holds else "ne"):
        return _of_same_document(condition)
    a, b = (_linear(side, single) for side in condition.operands)
    if a is None or b is None or name[1:] not in ("gt", "ge", "lt", "le") or (a.length and b.length):
        return None
    side = Linear(a.m - b.m, a.n - b.n, a.constant - b.constant, a.sign - b.sign, a.length or b.length)
    above, equal = name[1] == "g", name[2] == "e"
    if side.n == -1:
        side, above = Linear(-side.m, 1, -side.constant, -side.sign, side.length), not above
    if side.n != 1 or (side.length is not None and name[0] != "s"):
        return None
    # The key against m' m + c + length: from there on, or up to there, or below a length.
    excluded = not equal if holds else equal
    last = side._replace(m=-side.m, constant=-side.constant, sign=-side.sign)
    first, end = last.constant + excluded, last.constant - excluded
    if above == holds:
        return KeyRange(window=-first) if last.m == 1 and last.length is None else None
    if last.length is None:
        return KeyRange(diagonal=end) if last.m == 1 else None
    return KeyRange(lengths=last.length) if (last.m, last.sign, end) == (0, 1, -1) else None


def _of_same_document(condition: ElementExpression) -> KeyRange | None:
    """The keys with the number of the query, if a condition compares two numbers in memory of i32."""
    sides = [side.operands[0] if side.is_op("arith.index_cast") else side for side in condition.operands]
    if any(side.kind != "load" or side.value is None or element_type(side.value) != i32 for side in sides):
        return None
    of_query, of_key = sorted(sides, key=lambda side: KEY in side.place)
    if QUERY not in of_query.place or KEY not in of_key.place:
        return None
    inside = all(isinstance(name, int) and name >= 0 for side in sides for name in set(side.place) - {QUERY, KEY})
    return KeyRange(documents=(of_query, of_key)) if inside and not {QUERY, KEY} <= set(of_key.place) else None


class Linear(NamedTuple):
    """m and n of an index, a constant, and a number from memory that is the same for all m and n, added or
    subtracted."""

    m: int
    n: int
    constant: int
    sign: int = 0
    length: ElementExpression | None = None


def _linear(side: ElementExpression, single: bool) -> Linear | None:
    if side.kind == "index":
        return {QUERY: Linear(int(not single), 0, 0), KEY: Linear(0, 1, 0)}.get(str(side.name))
    if side.kind == "constant" and isinstance(side.number, int):
        return Linear(0, 0, side.number)
    if side.kind == "load" and side.value is not None and element_type(side.value) == i32:
        return Linear(0, 0, 0, 1, side) if all(isinstance(name, int) and name >= 0 for name in side.place) else None
    if side.is_op("arith.index_cast", "arith.extsi", "arith.trunci"):
        return _linear(side.operands[0], single)
    if side.is_op("arith.addi", "arith.subi"):
        a, b = (_linear(operand, single) for operand in side.operands)
        sign = 1 if side.is_op("arith.addi") else -1
        if a is not None and b is not None and None in (a.length, b.length):
            length = a.length or b.length
            return Linear(
                a.m + sign * b.m, a.n + sign * b.n, a.constant + sign * b.constant, a.sign + sign * b.sign, length
            )
    return None


def scaled(x: ElementExpression) -> tuple[ElementExpression, float]:
    """Scores without a constant that multiplies or divides them, and the constant."""
    if x.is_op("arith.mulf"):
        for rest, factor in (x.operands, x.operands[::-1]):
            if factor.number is not None:
                inner, scale = scaled(rest)
                return inner, scale * factor.number
    if x.is_op("arith.divf") and (divisor := x.operands[1].number):
        inner, scale = scaled(x.operands[0])
        return inner, scale / divisor
    return x, 1.0
