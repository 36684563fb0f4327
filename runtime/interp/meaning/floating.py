"""Floating-point arithmetic, comparison and selection. PTX ISA 9.7.3, 9.7.4, 9.7.6, 9.7.7."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, cast

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.ptx.rows.arithmetic import COMPARISONS, UNSIGNED
from ....dialect.ptx.text.syntax import bits_of
from ...numerics import approximate as approximations
from ...numerics import f64, floats
from ...numerics.floats import Array, ArrayFunction
from ..machine.decode import DTYPES, Context, meaning
from ..machine.state import Action, Source
from .access import computes, elementwise, several

# add, sub, mul, fma, div, sqrt and rcp are correctly rounded in every mode. What the ISA calls approximate (`.approx`
# and `.full`) has the bits of an H200 (`runtime/numerics/approximate.py`). Those of f64 are not known: there rsqrt is
# rounded once, and rcp correctly.


class _Format:
    """The type and the common modifiers of a floating-point instruction."""

    def __init__(self, bound: Bindings) -> None:
        self.type = bound["T"]
        self.ftz, self.saturate, self.relu = (bool(bound.get(name)) for name in ("FTZ", "SAT", "RELU"))
        self.mode = bound.get("ROUND") or "rn"

    @property
    def scalar(self) -> str:
        return self.type.removesuffix("x2")

    @property
    def is_native(self) -> bool:
        """Whether numpy's f32 or f64 arithmetic gives the result, except for `.ftz`."""
        return self.type in ("f32", "f64") and self.mode == "rn" and not (self.saturate or self.relu)

    def _read(self, words: Array) -> Array:
        """Values as f64."""
        values = floats.value(words, self.scalar)
        return floats.flush(values, self.scalar) if self.ftz else values

    def _write(self, exact: Array) -> Array:
        words = floats.rounded(exact, self.scalar, self.mode)
        if not (self.ftz or self.saturate or self.relu):
            return words
        values = floats.value(words, self.scalar)
        values = floats.flush_result(values, exact, self.scalar, self.mode) if self.ftz else values
        values = floats.saturated(values) if self.saturate else values
        return floats.rounded(floats.relu(values) if self.relu else values, self.scalar)

    def on_values(self, function: ArrayFunction) -> ArrayFunction:
        """A function of f64 values, whose results are exact or rounded to odd."""
        compute = cast(Callable[..., Array], function)

        def on_words(*words: Array) -> Array:
            return self._write(compute(*map(self._read, words)))

        packed = self.type.endswith("x2")
        return self.on_words(floats.on_parts(on_words, floats.WORDS[self.scalar]) if packed else on_words)

    def on_words(self, function: ArrayFunction) -> ArrayFunction:
        word, dtype = np.dtype(f"u{bits_of(self.type) // 8}"), DTYPES[self.type]
        compute = cast(Callable[..., Array], function)

        def on_values(*values: Array) -> Array:
            return compute(*(v.view(word) for v in values)).view(dtype)

        return on_values

    def natively(self, function: Callable[..., Array], odd: _Rounded) -> ArrayFunction:
        """Computes by numpy, which rounds to nearest; subnormal numbers are flushed if the instruction does so, for
        which `odd` gives exact results."""
        type, ftz, exactly = self.type, self.ftz, cast(Callable[..., Array], odd)
        word, nan = floats.WORDS[type], floats.NAN.get(type)

        def compute(*values: Array) -> Array:
            values = tuple(floats.flush(v, type) for v in values) if ftz else values
            result = function(*values)
            if ftz:
                doubtful = (np.abs(result) == floats.SMALLEST_NORMAL[type]).any()
                exact = exactly(*(v.astype(np.float64) for v in values), "rn") if doubtful else result
                result = floats.flush_result(result, exact, type)
            if nan is not None:
                bad = result != result
                if bad.any():
                    result.view(word)[bad] = nan
            return result

        return compute


def _fma(a: Array, b: Array, c: Array) -> Array:
    return (floats.fma32 if a.dtype == np.float32 else f64.fused)(a, b, c)


def _difference(a: Array, b: Array, mode: str) -> Array:
    return floats.sum_odd(a, -b, mode)


_Rounded: TypeAlias = (
    Callable[[Array, str], Array] | Callable[[Array, Array, str], Array] | Callable[[Array, Array, Array, str], Array]
)
"""Takes the operands, and a rounding mode behind them."""

_ROUNDED: dict[str, tuple[Callable[..., Array], _Rounded, _Rounded]] = {
    "add": (np.add, floats.sum_odd, f64.add),
    "sub": (np.subtract, _difference, f64.subtract),
    "mul": (np.multiply, lambda a, b, mode: a * b, f64.multiply),
    "fma": (_fma, floats.fma_odd, f64.fused),
    "mad": (_fma, floats.fma_odd, f64.fused),
    "div": (np.divide, lambda a, b, mode: f64.odd_quotient(a, b), f64.divide),
    "rcp": (np.reciprocal, lambda a, mode: f64.odd_quotient(np.ones_like(a), a), f64.reciprocal),
    "sqrt": (np.sqrt, lambda a, mode: f64.odd_root(a), f64.root),
}
"""Correctly rounded operations: numpy's own to nearest, that on f64 values rounded to odd, that of f64 by mode."""


@computes(*(f"{root}.float" for root in _ROUNDED))
def rounded(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Exact with a rounding; `div`, `rcp` and `sqrt` may be as an H200 approximates them."""
    format, root = _Format(bound), ctx.row.root
    if mode := bound.get("MODE"):
        return format.on_words(partial(approximations.quotient, full=mode == "full", ftz=format.ftz))
    if root in ("rcp", "sqrt") and not bound.get("ROUND"):
        return format.on_words(_approximation(root, format) or approximations.of_upper_half(approximations.rcp))
    nearest, odd, directed = _ROUNDED[root]
    if format.type == "f64":
        compute = nearest if format.mode == "rn" else partial(cast(Callable[..., Array], directed), mode=format.mode)
        routine = root in ("div", "rcp", "sqrt")

        def with_nans(a: Array, *others: Array) -> Array:
            result = compute(a, *others)
            return result if routine else f64.with_nans(result, *others, a)

        return with_nans
    if format.is_native:
        return format.natively(nearest, odd)
    return format.on_values(partial(cast(Callable[..., Array], odd), mode=format.mode))


@computes("fma.oob")
def outside(ctx: Context, bound: Bindings) -> ArrayFunction:
    """A fused multiply-add of f16 or bf16 that is +0 where a or b is what tensor copies put outside a tensor."""
    format = _Format(bound)
    fused = format.on_values(partial(floats.fma_odd, mode="rn"))

    def on_words(*words: Array) -> Array:
        halves = [np.ascontiguousarray(word).view(np.uint16) & np.uint16(0x7FFF) for word in words]
        result = np.ascontiguousarray(cast(Callable[..., Array], fused)(*words))
        result.view(np.uint16)[(halves[0] == floats.OUTSIDE) | (halves[1] == floats.OUTSIDE)] = 0
        return result

    return on_words


@computes("add.mixed", "sub.mixed", "fma.mixed")
def mixed(ctx: Context, bound: Bindings) -> ArrayFunction:
    """f32 with operands of 16 bits in front of the last, rounded once; of pairs, the first alone has 16 bits."""
    function, mode = cast(Callable[..., Array], _ROUNDED[ctx.row.root][1]), bound.get("ROUND") or "rn"
    narrow, packed, pairs = bound["T"].removesuffix("x2"), bound["T"].endswith("x2"), bound.get("B", bound["T"])
    types = (narrow, pairs.removesuffix("x2"), "f32") if function is floats.fma_odd else (narrow, "f32")

    def compute(*operands: Array) -> Array:
        values = (floats.value(word, type) for word, type in zip(operands, types, strict=True))
        result = floats.rounded(function(*values, mode), "f32", mode)
        result = floats.rounded(floats.saturated(floats.value(result, "f32")), "f32") if bound.get("SAT") else result
        return result.view(np.float32)

    return floats.on_parts(compute, *(floats.WORDS[type] for type in types)) if packed else compute


@computes("add.down", "sub.down", "mul.down")
def narrowed(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Converts pairs of f32 to a pair of halves, towards zero: rounding twice that way is rounding once."""
    function = cast(Callable[..., Array], _ROUNDED[ctx.row.root][1])
    to, ftz = bound["D"].removesuffix("x2"), bool(bound.get("FTZ"))

    def compute(*operands: Array) -> Array:
        values = [floats.value(word, "f32") for word in operands]
        values = [floats.flush(value, "f32") for value in values] if ftz else values
        words = floats.rounded(function(*values, "rz"), to, "rz")
        return floats.rounded(floats.flush(floats.value(words, to), to), to) if ftz else words

    return floats.on_parts(compute, np.uint32)


@computes("min.float", "max.float")
def minimum_maximum(ctx: Context, bound: Bindings) -> ArrayFunction:
    """The least or greatest of two or three: of a number and a NaN, the number; with `.NaN`, a NaN. `.abs` takes
    magnitudes, and `.xorsign` gives the result the sign that the product would have."""
    nan, signed, magnitudes = (bool(bound.get(name)) for name in ("NAN", "SIGN", "ABS"))
    pick = floats.smaller if ctx.row.root == "min" else floats.larger

    def chosen(*values: Array) -> Array:
        result, *others = [np.abs(v) for v in values] if magnitudes else values
        for other in others:
            picked = pick(result, other)
            result = np.where((result != result) | (other != other), np.nan, picked) if nan else picked
        if signed:
            return np.copysign(result, np.where(np.signbit(values[0]) ^ np.signbit(values[1]), -1.0, 1.0))
        return f64.with_nans(result, *values[1:], values[0]) if bound["T"] == "f64" else result

    return _Format(bound).on_values(chosen)


@computes("abs.float", "neg.float")
def absolute_negative(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Of the sign, but a NaN becomes the machine's own or, in f64, stays and is quiet."""
    format, function = _Format(bound), np.abs if ctx.row.root == "abs" else np.negative
    return format.on_values((lambda a: np.where(a == a, function(a), a + 0.0)) if format.type == "f64" else function)


@computes("copysign.float")
def copysign(ctx: Context, bound: Bindings) -> ArrayFunction:
    """The sign of a with the magnitude of b."""
    return lambda a, b: np.copysign(b, a)


def _approximation(root: str, format: _Format) -> ArrayFunction | None:
    """What a function gives on an H200; None in f64."""
    if format.type == "f32":
        return (approximations.FLUSHED if format.ftz else approximations.FULL).get(root)
    approximation = approximations.NARROW.get((root, format.scalar))
    return floats.on_parts(approximation, np.uint16) if approximation and format.type.endswith("x2") else approximation


@computes(*(f"{root}.float" for root in ("ex2", "lg2", "sin", "cos", "tanh", "rsqrt")))
def approximate(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Functions the ISA defines up to a bound."""
    format = _Format(bound)
    if approximation := _approximation(".".join(filter(None, (ctx.row.root, bound.get("UNIT")))), format):
        return format.on_words(approximation)
    return format.on_words(approximations.of_upper_half(approximations.rsqrt) if format.ftz else approximations.rsqrt64)


# Comparison and selection: PTX ISA 9.7.6, and 9.7.7 for halves.

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
        if self.merge is None:
            return holds
        return self.merge(holds, ~other[0] if self.negated else other[0])

    def halves(self, x: Array, y: Array, *other: Array) -> tuple[Array, Array]:
        """The answers for the low and the upper halves of pairs."""
        holds = self.compare(*(np.ascontiguousarray(words).view(np.uint16) for words in (x, y)))
        return self.combined(holds[::2], other), self.combined(holds[1::2], other)


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
    """`selp`: a if the predicate holds, otherwise b."""
    type = bound["T"]
    d, a, b, p = ctx.operands
    condition, negated = ctx.predicate(p)
    yes, no = (b, a) if negated else (a, b)
    return elementwise(np.where, ctx.dest(d, type), condition, ctx.source(yes, type), ctx.source(no, type))


@computes("slct")
def slct(ctx: Context, bound: Bindings) -> ArrayFunction:
    """a if c is at least 0 (-0 is, a NaN is not), else b."""
    ftz = bool(bound.get("FTZ"))
    return lambda a, b, c: np.where((floats.flush(c, "f32") if ftz else c) >= 0, a, b)


_TESTS: dict[str, Callable[[Array, float], Array]] = {
    "finite": lambda a, _: np.isfinite(a),
    "infinite": lambda a, _: np.isinf(a),
    "number": lambda a, _: a == a,
    "notanumber": lambda a, _: a != a,
    "normal": lambda a, least: np.isfinite(a) & ((a == 0) | (np.abs(a) >= least)),
    "subnormal": lambda a, least: (a != 0) & (np.abs(a) < least),
}


@computes("testp.float")
def testp(ctx: Context, bound: Bindings) -> ArrayFunction:
    """What kind of number a is. Zeros count as normal."""
    test, least = _TESTS[bound["TEST"]], floats.SMALLEST_NORMAL[bound["T"]]
    return lambda a: test(a, least)
