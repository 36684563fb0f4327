"""Comparison and selection: PTX ISA 9.7.6, and 9.7.7 for halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ....dialect.ptx.rows.comparison import COMPARISONS, UNSIGNED
from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.types import bits_of
from ...numerics import floats
from ...numerics.array import Array
from ..decode import Context, meaning
from ..machine.state import Action, Source
from .actions import elementwise, several
from .register_dtypes import DTYPES

Compare: TypeAlias = Callable[[Array, Array], Array]

_MERGE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_SMALL = ("f16", "bf16", "f32", "f64")


def _numbers(a: Array, b: Array) -> Array:
    return (a == a) & (b == b)


def _comparison(word: str, type: str, ftz: bool) -> Compare:
    """The comparison a word names, on values that a source of `type` (of one half, for pairs) has."""
    scalar = type.removesuffix("x2")
    if scalar not in _SMALL:
        return COMPARISONS.get(word) or UNSIGNED[word]
    compare = _float_comparison(word)
    if not ftz and type in ("f32", "f64", "f16"):
        return compare

    def on_values(a: Array, b: Array) -> Array:
        x, y = (floats.value(v.view(floats.WORDS[scalar]), scalar) for v in (a, b))
        return compare(floats.flush(x, scalar), floats.flush(y, scalar)) if ftz else compare(x, y)

    return on_values


def _float_comparison(word: str) -> Compare:
    if word in ("num", "nan"):
        return _numbers if word == "num" else lambda a, b: ~_numbers(a, b)
    if word == "ne":
        return lambda a, b: (a != b) & _numbers(a, b)
    if word in COMPARISONS:
        return COMPARISONS[word]
    compare = COMPARISONS[word.removesuffix("u")]
    return lambda a, b: compare(a, b) | ~_numbers(a, b)


class _Question:
    """A comparison with its operands and the predicate it is combined with."""

    def __init__(self, ctx: Context, bound: Bindings) -> None:
        type = bound["T"]
        self.compare = _comparison(bound["IS"], type, bool(bound.get("FTZ")))
        self.target, a, b, *rest = ctx.operands
        self.sources: list[Source] = [ctx.source(a, type), ctx.source(b, type)]
        self.merge, self.negated = _MERGE.get(bound.get("OP", "")), False
        if self.merge is not None:
            source, self.negated = ctx.predicate(rest[0])
            self.sources.append(source)

    def combined(self, holds: Array, other: tuple[Array, ...]) -> Array:
        """With the predicate, where there is one."""
        if self.merge is None:
            return holds
        return self.merge(holds, ~other[0] if self.negated else other[0])

    def halves(self, x: Array, y: Array, *other: Array) -> tuple[Array, Array]:
        """The answers for the low and the upper halves of pairs."""
        shift = np.uint32(16)
        low = self.compare(x.astype(np.uint16), y.astype(np.uint16))
        upper = self.compare((x >> shift).astype(np.uint16), (y >> shift).astype(np.uint16))
        return self.combined(low, other), self.combined(upper, other)


@meaning("setp")
def setp(ctx: Context, bound: Bindings) -> Action:
    """Compares; the result, and its complement, may be combined with a predicate. Of pairs, both results are given."""
    question = _Question(ctx, bound)
    dests = [ctx.dest(target, "pred") for target in ctx.pair(question.target)]
    if bound["T"].endswith("x2"):
        return several(question.halves, dests, *question.sources)
    if question.merge is None and len(dests) == 1:
        return elementwise(question.compare, dests[0], *question.sources)

    def results(x: Array, y: Array, *other: Array) -> tuple[Array, ...]:
        holds = question.compare(x, y)
        both = question.combined(holds, other), question.combined(~holds, other)
        return both[: len(dests)]

    return several(results, dests, *question.sources)


_ONE = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}


@meaning("set")
def set_(ctx: Context, bound: Bindings) -> Action:
    """Compares; true is all ones or, for a floating-point result, 1."""
    to, question = bound["D"], _Question(ctx, bound)
    pairs, word = bound["T"].endswith("x2"), DTYPES[f"u{bits_of(to)}"]
    true: int = _ONE.get(to.removesuffix("x2"), (1 << (16 if pairs else bits_of(to))) - 1)

    low_bits, upper_bits, no_bits = (np.array(bits, word) for bits in (true, true << 16 if pairs else 0, 0))

    def result(x: Array, y: Array, *other: Array) -> Array:
        if not pairs:
            return np.where(question.combined(question.compare(x, y), other), low_bits, no_bits)
        low, upper = question.halves(x, y, *other)
        return np.where(low, low_bits, no_bits) | np.where(upper, upper_bits, no_bits)

    return elementwise(result, ctx.dest(question.target, f"b{bits_of(to)}"), *question.sources)


@meaning("selp")
def selp(ctx: Context, bound: Bindings) -> Action:
    """a if the predicate holds, else b."""
    type = bound["T"]
    d, a, b, p = ctx.operands
    condition, negated = ctx.predicate(p)
    yes, no = (b, a) if negated else (a, b)
    return elementwise(np.where, ctx.dest(d, type), condition, ctx.source(yes, type), ctx.source(no, type))


@meaning("slct")
def slct(ctx: Context, bound: Bindings) -> Action:
    """a if c is at least 0 (-0 is, a NaN is not), else b."""
    type, by = bound["T"], bound["C"]
    d, a, b, c = ctx.operands
    sources = (ctx.source(c, by), ctx.source(a, type), ctx.source(b, type))
    return elementwise(lambda x, yes, no: np.where(x >= 0, yes, no), ctx.dest(d, type), *sources)


_TESTS: dict[str, Callable[[Array, float], Array]] = {
    "finite": lambda a, _: np.isfinite(a),
    "infinite": lambda a, _: np.isinf(a),
    "number": lambda a, _: a == a,
    "notanumber": lambda a, _: a != a,
    "normal": lambda a, least: np.isfinite(a) & ((a == 0) | (np.abs(a) >= least)),
    "subnormal": lambda a, least: (a != 0) & (np.abs(a) < least),
}


@meaning("testp.float")
def testp(ctx: Context, bound: Bindings) -> Action:
    """What kind of number a is. Zeros count as normal."""
    test, type = _TESTS[bound["TEST"]], bound["T"]
    least = floats.SMALLEST_NORMAL[type]
    p, a = ctx.operands
    return elementwise(lambda v: test(v, least), ctx.dest(p, "pred"), ctx.source(a, type))
