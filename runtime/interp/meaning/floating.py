"""Floating-point arithmetic, comparison and selection. PTX ISA 9.7.3, 9.7.4, 9.7.6, 9.7.7."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, cast

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.ptx.rows.arithmetic import COMPARISONS, UNSIGNED
from ....dialect.ptx.types import bits_of
from ...numerics import approximate as approximations
from ...numerics import f64, floats
from ...numerics.array import Array
from ...numerics.floats import ArrayFunction
from ..machine.decode import Context, meaning
from ..machine.names import DTYPES
from ..machine.state import Action, Source
from .actions import elementwise, several

# Floating-point instructions: PTX ISA 9.7.3 and 9.7.4.
#
# add, sub, mul, fma, div, sqrt and rcp are correctly rounded in every mode. What the ISA calls approximate (`.approx`
# and `.full`) has the bits of an H200 (`runtime/numerics/approximate.py`). Those of f64 are not known: there rsqrt is
# rounded once, and rcp correctly.


class _Form:
    """The type and the common modifiers of a floating-point instruction."""

    def __init__(self, bound: Bindings) -> None:
        self.type = bound["T"]
        self.ftz, self.saturate, self.relu = (bool(bound.get(name)) for name in ("FTZ", "SAT", "RELU"))
        self.mode = bound.get("ROUND") or "rn"

    @property
    def scalar(self) -> str:
        """The type of one element."""
        return self.type.removesuffix("x2")

    def plain(self) -> bool:
        """Whether numpy's own f32 or f64 arithmetic is all there is to it."""
        return self.type in ("f32", "f64") and self.mode == "rn" and not (self.ftz or self.saturate or self.relu)

    def read(self, words: Array) -> Array:
        """Values as f64."""
        values = floats.value(words, self.scalar)
        return floats.flush(values, self.scalar) if self.ftz else values

    def write(self, exact: Array) -> Array:
        """Words of the result."""
        words = floats.rounded(exact, self.scalar, self.mode)
        if self.ftz or self.saturate or self.relu:
            words = floats.rounded(self._bounded(floats.value(words, self.scalar)), self.scalar)
        return words

    def _bounded(self, values: Array) -> Array:
        if self.ftz:
            values = floats.flush(values, self.scalar)
        if self.saturate:
            values = floats.saturated(values)
        return floats.relu(values) if self.relu else values

    def over_words(self, function: ArrayFunction) -> ArrayFunction:
        """A function of f64 values, exact or rounded to odd, as one of words."""

        compute = cast(Callable[..., Array], function)

        def on_words(*words: Array) -> Array:
            return self.write(compute(*map(self.read, words)))

        return floats.halves(on_words, bits_of(self.scalar)) if self.type.endswith("x2") else on_words

    def action(self, ctx: Context, function: ArrayFunction) -> Action:
        """d = function(...) on values, whose results are exact or rounded to odd."""
        d, *operands = ctx.operands
        inputs = [ctx.source(o, self.type) for o in operands]
        if self.type in ("f32", "f64"):
            inputs = [_as_words(i, self.type) for i in inputs]
        return elementwise(self.over_words(function), _as_words(ctx.dest(d, self.type), self.type), *inputs)


def _as_words(source: Source, type: str) -> Source:
    word = np.dtype(f"u{bits_of(type) // 8}")
    return lambda state: source(state).view(word)


def _native(ctx: Context, form: _Form, function: ArrayFunction) -> Action:
    """f32 and f64 to nearest, by numpy's own arithmetic."""
    type = form.type
    word, nan, native = floats.WORDS[type], floats.NAN.get(type), cast(Callable[..., Array], function)

    def compute(*values: Array) -> Array:
        result = native(*values)
        if nan is not None:
            bad = result != result
            if bad.any():
                result.view(word)[bad] = nan
        return result

    d, *operands = ctx.operands
    return elementwise(compute, ctx.dest(d, type), *(ctx.source(o, type) for o in operands))


def _directed(ctx: Context, form: _Form, function: Callable[..., Array]) -> Action:
    """f64 rounded by the mode of the form, which `function` takes behind its operands."""
    d, *operands = ctx.operands

    def compute(*values: Array) -> Array:
        return function(*values, form.mode)

    return elementwise(compute, ctx.dest(d, "f64"), *(ctx.source(o, "f64") for o in operands))


_DIRECTED: dict[str, Callable[..., Array]] = {
    "add": f64.add,
    "sub": f64.subtract,
    "mul": f64.multiply,
}
_BINARY: dict[str, tuple[ArrayFunction, Callable[[str], ArrayFunction]]] = {
    "add": (np.add, lambda mode: lambda a, b: floats.sum_odd(a, b, mode)),
    "sub": (np.subtract, lambda mode: lambda a, b: floats.sum_odd(a, -b, mode)),
    "mul": (np.multiply, lambda mode: np.multiply),
}


@meaning("add.float", "sub.float", "mul.float")
def binary(ctx: Context, bound: Bindings) -> Action:
    """Sum, difference, product."""
    form, root = _Form(bound), ctx.row.root
    native, exact = _BINARY[root]
    if form.type == "f64" and form.mode != "rn":
        return _directed(ctx, form, _DIRECTED[root])
    return _native(ctx, form, native) if form.plain() else form.action(ctx, exact(form.mode))


@meaning("fma.float", "mad.float")
def fma(ctx: Context, bound: Bindings) -> Action:
    """a * b + c, rounded once."""
    form = _Form(bound)
    if form.plain():
        return _native(ctx, form, floats.fma32 if form.type == "f32" else floats.fma64)
    if form.type == "f64":
        return _directed(ctx, form, f64.directed_fma)
    return form.action(ctx, lambda a, b, c: floats.fma_odd(a, b, c, form.mode))


def _difference(a: Array, b: Array, mode: str) -> Array:
    return floats.sum_odd(a, -b, mode)


_MIXED: dict[str, tuple[int, Callable[..., Array]]] = {
    "add.mixed": (1, floats.sum_odd),
    "sub.mixed": (1, _difference),
    "fma.mixed": (2, floats.fma_odd),
}


def _mixed(name: str) -> Callable[[Context, Bindings], Action]:
    narrow, function = _MIXED[name]

    def action(ctx: Context, bound: Bindings) -> Action:
        """f32 with operands of 16 bits in front of the last, rounded once."""
        type, mode = bound["T"], bound["ROUND"] or "rn"

        def compute(*words: Array) -> Array:
            values = [floats.value(w, t) for w, t in zip(words, (*[type] * narrow, "f32"), strict=True)]
            result = floats.rounded(function(*values, mode), "f32", mode)
            return floats.rounded(floats.saturated(floats.value(result, "f32")), "f32") if bound["SAT"] else result

        d, *operands, c = ctx.operands
        sources = (*(ctx.source(o, "b16") for o in operands), ctx.source(c, "b32"))
        return elementwise(compute, ctx.dest(d, "b32"), *sources)

    return action


for _name in _MIXED:
    meaning(_name)(_mixed(_name))


@meaning("fma.oob")
def fma_out_of_bounds(ctx: Context, bound: Bindings) -> Action:
    """0 where an operand is the NaN that stands for what lies out of bounds, whose word the text does not give."""
    ctx.fail("not supported: the word of the out-of-bounds NaN is not known")


@meaning("div.float")
def divide(ctx: Context, bound: Bindings) -> Action:
    """Exact with a rounding, or as an H200 approximates it."""
    form = _Form(bound)
    if mode := bound.get("MODE"):
        quotient = partial(approximations.quotient, full=mode == "full", ftz=form.ftz)
        return _on_words(ctx, "f32", quotient)
    if form.mode != "rn" and form.type == "f64":
        return _directed(ctx, form, f64.divide)
    if form.mode != "rn":
        return form.action(ctx, f64.odd_quotient)
    return _flushed(ctx, form, np.divide) if form.ftz else _native(ctx, form, np.divide)


def _on_words(ctx: Context, type: str, function: ArrayFunction) -> Action:
    """d = function(...) on words."""
    d, *operands = ctx.operands
    inputs = [ctx.source(o, type) for o in operands]
    if type == "f32":
        inputs = [_as_words(i, type) for i in inputs]
    return elementwise(function, _as_words(ctx.dest(d, type), type), *inputs)


def _flushed(ctx: Context, form: _Form, function: ArrayFunction) -> Action:
    """A correctly rounded f32 operation whose operands and result are flushed."""
    type, native = form.type, cast(Callable[..., Array], function)

    def compute(*values: Array) -> Array:
        result = native(*(floats.flush(v, type) for v in values))
        return floats.canonical(floats.flush(result, type).view(floats.WORDS[type]), result, type)

    d, *operands = ctx.operands
    return elementwise(compute, _as_words(ctx.dest(d, type), type), *(ctx.source(o, type) for o in operands))


@meaning("min.float", "max.float")
def minimum_maximum(ctx: Context, bound: Bindings) -> Action:
    """The least or greatest of two or three: of a number and a NaN, the number; with `.NaN`, a NaN.

    `.abs` takes magnitudes, and `.xorsign` gives the result the sign that the product would have.
    """
    form = _Form(bound)
    nan, signed, magnitudes = (bool(bound.get(name)) for name in ("NAN", "SIGN", "ABS"))
    pick = floats.smaller if ctx.row.root == "min" else floats.larger

    def chosen(*values: Array) -> Array:
        given = [np.abs(v) for v in values] if magnitudes else values
        result = given[0]
        for other in given[1:]:
            picked = pick(result, other)
            result = np.where((result != result) | (other != other), np.nan, picked) if nan else picked
        if signed:
            return np.copysign(result, np.where(np.signbit(values[0]) ^ np.signbit(values[1]), -1.0, 1.0))
        return result

    return form.action(ctx, chosen)


@meaning("abs.float", "neg.float")
def absolute_negative(ctx: Context, bound: Bindings) -> Action:
    """Of the sign, but a NaN becomes the machine's own or, in f64, stays and is quiet."""
    form, function = _Form(bound), np.abs if ctx.row.root == "abs" else np.negative
    if form.type == "f64":
        return form.action(ctx, lambda a: np.where(a == a, function(a), a + 0.0))
    return form.action(ctx, function)


@meaning("copysign.float")
def copysign(ctx: Context, bound: Bindings) -> Action:
    """The sign of a with the magnitude of b."""
    type = bound["T"]
    d, a, b = ctx.operands
    return elementwise(lambda x, y: np.copysign(y, x), ctx.dest(d, type), ctx.source(a, type), ctx.source(b, type))


def _approximation(root: str, form: _Form) -> ArrayFunction | None:
    """What a function gives on an H200; None in f64."""
    if form.type == "f32":
        return (approximations.FLUSHED if form.ftz else approximations.FULL).get(root)
    known = approximations.NARROW.get((root, form.scalar))
    return floats.halves(known, 16) if known and form.type.endswith("x2") else known


@meaning(*(f"{root}.float" for root in ("ex2", "lg2", "sin", "cos", "tanh", "rsqrt")))
def approximate(ctx: Context, bound: Bindings) -> Action:
    """Functions the ISA defines up to a bound."""
    form = _Form(bound)
    if known := _approximation(ctx.row.root, form):
        return _on_words(ctx, form.type, known)
    return form.action(ctx, lambda x: 1.0 / np.sqrt(x))


_ROOTS: dict[str, tuple[np.ufunc, Callable[[Array], Array], Callable[..., Array]]] = {
    "rcp": (np.reciprocal, lambda a: f64.odd_quotient(np.ones_like(a), a), f64.reciprocal),
    "sqrt": (np.sqrt, f64.odd_root, f64.root),
}


@meaning(*(f"{root}.float" for root in _ROOTS))
def root(ctx: Context, bound: Bindings) -> Action:
    """Exact with a rounding, or approximate."""
    form = _Form(bound)
    if not bound.get("ROUND") and (known := _approximation(ctx.row.root, form)):
        return _on_words(ctx, form.type, known)
    nearest, odd, other = _ROOTS[ctx.row.root]
    if form.mode != "rn":
        return _directed(ctx, form, other) if form.type == "f64" else form.action(ctx, odd)
    return _native(ctx, form, nearest) if form.plain() else _flushed(ctx, form, nearest)


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
