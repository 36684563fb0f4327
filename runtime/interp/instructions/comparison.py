"""Comparison and selection: PTX ISA 9.7.6, and 9.7.7 for halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ....dialect.ptx.rows.comparison import COMPARISONS, UNSIGNED
from ....dialect.ptx.text.syntax import Operand, Pair
from ...numerics import floats
from ..decode import Context, opcode
from ..machine.state import Action, Array, Source
from .actions import elementwise, several
from .words import BITS, DTYPES, FLOATS, INTEGERS, Modifiers, width_of

Comparison: TypeAlias = Callable[[Array, Array], Array]

_MERGE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_COMPARED = (INTEGERS | BITS | FLOATS) - {"b8", "f32x2"}
_SMALL = ("f16", "bf16", "f32", "f64")


def _numbers(a: Array, b: Array) -> Array:
    return (a == a) & (b == b)


def _comparison(ctx: Context, word: str, type: str, ftz: bool) -> Comparison:
    """The comparison a word names, on values that a source of `type` (of one half, for pairs) has."""
    scalar = type.removesuffix("x2")
    if scalar not in _SMALL:
        found = COMPARISONS.get(word) or (UNSIGNED.get(word) if type[0] in "ub" else None)
        if found is None or ftz or (type[0] == "b" and word not in ("eq", "ne")):
            ctx.fail(f"comparison .{word} is not defined for .{type}")
        return found
    compare = _float_comparison(ctx, word, type)
    if not ftz and type in ("f32", "f64", "f16"):
        return compare

    def on_values(a: Array, b: Array) -> Array:
        x, y = (floats.value(v.view(floats.WORDS[scalar]), scalar) for v in (a, b))
        return compare(floats.flush(x, scalar), floats.flush(y, scalar)) if ftz else compare(x, y)

    return on_values


def _float_comparison(ctx: Context, word: str, type: str) -> Comparison:
    if word in ("num", "nan"):
        return _numbers if word == "num" else lambda a, b: ~_numbers(a, b)
    if word == "ne":
        return lambda a, b: (a != b) & _numbers(a, b)
    if word in COMPARISONS:
        return COMPARISONS[word]
    if word[-1:] == "u" and word[:-1] in COMPARISONS:
        compare = COMPARISONS[word[:-1]]
        return lambda a, b: compare(a, b) | ~_numbers(a, b)
    ctx.fail(f"comparison .{word} is not defined for .{type}")


class _Question:
    """A comparison with its operands and the predicate it is combined with."""

    def __init__(self, ctx: Context, m: Modifiers, type: str) -> None:
        ftz = m.flag("ftz")
        word, combine = (m.words.pop(0) if m.words else ""), m.one(*_MERGE)
        self.compare = _comparison(ctx, word, type, ftz)
        self.target, a, b, *rest = ctx.take(4 if combine else 3)
        self.sources: list[Source] = [ctx.source(a, type), ctx.source(b, type)]
        self.merge, self.negated = _MERGE.get(combine), False
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


@opcode("setp")
def setp(ctx: Context, m: Modifiers) -> Action:
    """Compares; the result, and its complement, may be combined with a predicate. Of pairs, both results are given."""
    type = m.last_type(_COMPARED)
    question = _Question(ctx, m, type)
    p, q = _targets(question.target)
    dests = [ctx.dest(t, "pred") for t in (p, q) if t is not None]
    if type.endswith("x2"):
        if q is None:
            ctx.fail(f"expected two predicates, written p|q, for .{type}")
        return several(question.halves, dests, *question.sources)
    if question.merge is None and q is None:
        return elementwise(question.compare, dests[0], *question.sources)

    def results(x: Array, y: Array, *other: Array) -> tuple[Array, ...]:
        holds = question.compare(x, y)
        both = question.combined(holds, other), question.combined(~holds, other)
        return both if q is not None else both[:1]

    return several(results, dests, *question.sources)


def _targets(operand: Operand) -> tuple[Operand, Operand | None]:
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)


_ONE = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}


@opcode("set")
def set_(ctx: Context, m: Modifiers) -> Action:
    """Compares; true is all ones or, for a floating-point result, 1."""
    type = m.last_type(_COMPARED)
    to = m.last_type(("u16", "s16", "u32", "s32", "f16", "bf16", "f32", "f16x2", "bf16x2"))
    question = _Question(ctx, m, type)
    pairs, word = type.endswith("x2"), DTYPES[f"u{width_of(to)}"]
    if pairs and width_of(to) != 32:
        ctx.fail(f"expected a result of 32 bits for .{type}, got .{to}")
    true: int = _ONE.get(to.removesuffix("x2"), (1 << (16 if pairs else width_of(to))) - 1)

    low_bits, upper_bits, no_bits = (np.array(bits, word) for bits in (true, true << 16 if pairs else 0, 0))

    def result(x: Array, y: Array, *other: Array) -> Array:
        if not pairs:
            return np.where(question.combined(question.compare(x, y), other), low_bits, no_bits)
        low, upper = question.halves(x, y, *other)
        return np.where(low, low_bits, no_bits) | np.where(upper, upper_bits, no_bits)

    return elementwise(result, ctx.dest(question.target, f"b{width_of(to)}"), *question.sources)


@opcode("selp")
def selp(ctx: Context, m: Modifiers) -> Action:
    """a if the predicate holds, else b."""
    type = m.type(*sorted(INTEGERS | (BITS - {"b8"})), "f32", "f64")
    d, a, b, p = ctx.take(4)
    condition, negated = ctx.predicate(p)
    yes, no = (b, a) if negated else (a, b)
    return elementwise(np.where, ctx.dest(d, type), condition, ctx.source(yes, type), ctx.source(no, type))


@opcode("slct")
def slct(ctx: Context, m: Modifiers) -> Action:
    """a if c is at least 0 (-0 is, a NaN is not), else b."""
    m.drop("ftz")
    type = m.type(*sorted(INTEGERS | (BITS - {"b8"})), "f32", "f64")
    by = m.type("s32", "f32")
    d, a, b, c = ctx.take(4)
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


@opcode("testp")
def testp(ctx: Context, m: Modifiers) -> Action:
    """What kind of number a is. Zeros count as normal."""
    test = _TESTS[m.expect(*_TESTS)]
    type = m.type("f32", "f64")
    least = floats.SMALLEST_NORMAL[type]
    p, a = ctx.take(2)
    return elementwise(lambda v: test(v, least), ctx.dest(p, "pred"), ctx.source(a, type))
