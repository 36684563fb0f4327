"""Sets of numbers, one for each element of an array, and what the operations of `arith` and `math` make of them.

A float is an interval of float64 numbers, perhaps with NaN. Operations that round correctly map points to points, so a
difference of one bit is seen. Functions and sums, whose last bits are free, widen the interval by a stated bound. Every
rounding is done at the operation's own type, and it is monotone: what was an interval before a `truncf` is one after
it.
Nothing here comes from the compiler or its runtime.

What is free, and therefore an interval:

- the order of sums and products of rows, and the sums of matrix instructions (`summed`, `product_sums`);
- functions, within the errors of docs/epilogues.md, and in row kernels those of docs/rows.md (`Freedom`);
- bf16 results below 2^-126, and integers that become 16-bit floats, are rounded once or twice, by way of f32;
- the sign of a zero that `maxnumf` and `minnumf` choose, or that is a sum;
- a float beyond the range of the integer that it becomes, and NaN: any integer.

`truncf` to 8-bit floats gives what APFloat's rounding to nearest even does: NaN beyond the largest number of f8E4M3FN,
and infinity beyond that of f8E5M2. PTX's `cvt.satfinite` saturates instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product as combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


class Format(NamedTuple):
    """A floating-point type: bits of its significand, exponent of its smallest normal number, and its largest."""

    precision: int
    least: int
    largest: float
    has_infinity: bool = True


FORMATS = {
    "f16": Format(11, -14, 65504.0),
    "bf16": Format(8, -126, float.fromhex("0x1.fep127")),
    "f32": Format(24, -126, float.fromhex("0x1.fffffep127")),
    "f64": Format(53, -1022, float.fromhex("0x1.fffffffffffffp1023")),
    "f8E4M3FN": Format(4, -6, 448.0, has_infinity=False),
    "f8E5M2": Format(3, -14, 57344.0),
}

WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32}

SIGN = np.int64(-(2**63))


def rounded(values: Doubles, type_: str) -> Doubles:
    """Values to the nearest of a type, ties to even."""
    form = FORMATS[type_]
    if type_ == "f64":
        return values
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(values)
        quantum = np.ldexp(1.0, np.maximum(exponent - 1, form.least) - form.precision + 1)
        result = np.where(np.isfinite(values) & (values != 0), np.rint(values / quantum) * quantum, values)
    beyond = np.copysign(np.inf, values) if form.has_infinity else np.nan
    return np.where(np.abs(result) > form.largest, beyond, np.copysign(result, values))


def _keys(values: Doubles) -> Integers:
    """Integers in the order of the numbers, with -0 before +0."""
    words = values.view(np.int64)
    return np.where(words < 0, SIGN - words - 1, words)


def _numbers(keys: Integers) -> Doubles:
    return np.where(keys < 0, SIGN - keys - 1, keys).view(np.float64)


def _ends(values: Sequence[Doubles]) -> tuple[Doubles, Doubles]:
    """The least and the greatest of values that are no NaN."""
    keys = np.stack([_keys(np.ascontiguousarray(v)) for v in values])
    return _numbers(keys.min(axis=0)), _numbers(keys.max(axis=0))


@dataclass(frozen=True)
class Reals:
    """Floats of a type, each in [low, high], or NaN where `nan` says so; low and high are NaN where it must be NaN."""

    type: str
    low: Doubles
    high: Doubles
    nan: Flags

    @staticmethod
    def points(type_: str, values: Any) -> Reals:
        array = np.asarray(values, np.float64)
        return Reals(type_, array, array, np.isnan(array))

    @property
    def must_be_nan(self) -> Flags:
        return np.isnan(self.low)

    @property
    def exact(self) -> Flags:
        """Where there is only one value, the sign of zero included."""
        same = (self.low == self.high) & (np.signbit(self.low) == np.signbit(self.high)) & ~self.nan
        return same | self.must_be_nan

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape

    def map(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Reals:
        """The same elements in another arrangement."""
        return Reals(self.type, change(self.low), change(self.high), change(self.nan))

    def holds(self, values: npt.NDArray[Any]) -> Flags:
        """Where values are among those that are right."""
        with np.errstate(invalid="ignore"):
            within = (self.low <= values) & (values <= self.high)
        sign_differs = self.exact & (values == 0) & (np.signbit(values) != np.signbit(self.low))
        return np.where(np.isnan(values), self.nan, within & ~sign_differs)


@dataclass(frozen=True)
class Whole:
    """Integers of a type, signed, each in [low, high]."""

    type: str
    low: Integers
    high: Integers

    @staticmethod
    def points(type_: str, values: Any) -> Whole:
        array = np.asarray(values).astype(np.int64)
        return Whole(type_, array, array)

    @property
    def exact(self) -> Flags:
        return self.low == self.high

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape

    def map(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Whole:
        """The same elements in another arrangement."""
        return Whole(self.type, change(self.low), change(self.high))

    def holds(self, values: npt.NDArray[Any]) -> Flags:
        """Where values are among those that are right."""
        return (self.low <= values) & (values <= self.high)


Values = Reals | Whole


@dataclass(frozen=True)
class Freedom:
    """How far functions and quotients of f32 may be from the exact value: (relative, absolute, relative to |x|)."""

    exponential: tuple[float, float, float] = (1e-7, 2.0**-149, 0.0)
    quotient: float = 0.0


EXACT = Freedom()
"""Elementwise kernels and epilogues."""

ROWS = Freedom((2.0**-21, 2.0**-149, 2.0**-23), 2.0**-22)
"""Row kernels with results of 16 bits: `ex2.approx`, and products with reciprocals."""


# Floats


def _bounded(type_: str, corners: Sequence[Doubles], operands: Sequence[Reals], open_: Flags | bool = False) -> Reals:
    """What an operation gives that is monotone in each operand, from its results where each is least or greatest.

    `open_` says where something between gives NaN.
    """
    rounds = [rounded(c, type_) for c in corners]
    if type_ == "bf16":
        rounds += [rounded(rounded(c, "f32"), type_) for c in corners]
    no_number = np.stack([np.isnan(r) for r in rounds])
    low, high = _ends([np.where(np.isnan(r), 0.0, r) for r in rounds])
    must = np.logical_or.reduce([np.broadcast_to(o.must_be_nan, low.shape) for o in operands])
    points = np.logical_and.reduce([np.broadcast_to(o.exact, low.shape) for o in operands])
    must = must | (points & no_number.all(axis=0))
    wide = (no_number.any(axis=0) | open_) & ~must
    nan = np.logical_or.reduce([np.broadcast_to(o.nan, low.shape) for o in operands]) | wide | must
    low, high = np.where(wide, -np.inf, low), np.where(wide, np.inf, high)
    return Reals(type_, np.where(must, np.nan, low), np.where(must, np.nan, high), nan)


def _monotone(type_: str, exactly: Callable[..., Doubles], *operands: Reals, open_: Flags | bool = False) -> Reals:
    ends = [(o.low,) if bool(o.exact.all()) else (o.low, o.high) for o in operands]
    with np.errstate(all="ignore"):
        corners = [np.asarray(exactly(*choice), np.float64) for choice in combinations(*ends)]
    shape = np.broadcast_shapes(*(c.shape for c in corners))
    return _bounded(type_, [np.broadcast_to(c, shape) for c in corners], operands, open_)


def _has_zero(x: Reals) -> Flags:
    return (x.low <= 0) & (x.high >= 0)


def _has_infinity(x: Reals) -> Flags:
    return np.isinf(x.low) | np.isinf(x.high)


def _multiply(a: Reals, b: Reals) -> Reals:
    open_ = (_has_zero(a) & _has_infinity(b)) | (_has_zero(b) & _has_infinity(a))
    return _monotone(a.type, np.multiply, a, b, open_=open_ & ~(a.exact & b.exact))


def _divide(a: Reals, b: Reals, freedom: Freedom) -> Reals:
    straddles = _has_zero(b) & (~b.exact | (_has_zero(a) & ~a.exact))
    endless = _has_infinity(a) & _has_infinity(b) & ~(a.exact & b.exact)
    result = _monotone(a.type, np.divide, a, b, open_=straddles | endless)
    return _widened(result, freedom.quotient, 0.0) if a.type == "f32" and freedom.quotient else result


def _fused(a: Reals, b: Reals, c: Reals) -> Reals:
    def exactly(x: Doubles, y: Doubles, z: Doubles) -> Doubles:
        return _fma64(x, y, z) if a.type == "f64" else _odd_sum(x * y, z)

    product = _multiply(a, b)
    open_ = (_has_infinity(product) & _has_infinity(c)) | product.nan
    return _monotone(a.type, exactly, a, b, c, open_=open_ & ~(a.exact & b.exact & c.exact))


def _odd_sum(x: Doubles, y: Doubles) -> Doubles:
    """A sum whose last bit is odd if it is not exact, so that rounding it again rounds the exact sum."""
    total = x + y
    part = total - x
    lost = (x - (total - part)) + (y - part)
    even = (total.view(np.int64) & 1) == 0
    return np.where(np.isfinite(total) & (lost != 0) & even, np.nextafter(total, np.copysign(np.inf, lost)), total)


def _fma64(x: Doubles, y: Doubles, z: Doubles) -> Doubles:
    def one(a: float, b: float, c: float) -> float:
        if not all(map(math.isfinite, (a, b, c))) or a * b == 0:
            return a * b + c
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        try:
            return float(exact) if exact else a * b + c
        except OverflowError:
            return math.copysign(math.inf, exact)

    return np.vectorize(one, otypes=[np.float64])(x, y, z)


def _extreme(a: Reals, b: Reals, *, greatest: bool, numbers: bool) -> Reals:
    """maximumf and minimumf, which prefer NaN, and with `numbers` maxnumf and minnumf, which prefer numbers."""

    def choose(x: Doubles, y: Doubles) -> Doubles:
        keys = (np.maximum if greatest else np.minimum)(_keys(np.ascontiguousarray(x)), _keys(np.ascontiguousarray(y)))
        return np.where(np.isnan(x) | np.isnan(y), np.nan, _numbers(keys))

    shape = np.broadcast_shapes(a.shape, b.shape)
    a, b = (o.map(lambda v: np.ascontiguousarray(np.broadcast_to(v, shape))) for o in (a, b))
    low, high = choose(a.low, b.low), choose(a.high, b.high)
    if not numbers:
        return Reals(a.type, low, high, a.nan | b.nan)
    zeros = (a.low == 0) & (b.low == 0) & (a.high == 0) & (b.high == 0) & (np.signbit(a.low) != np.signbit(b.low))
    result = Reals(a.type, np.where(zeros, -0.0, low), np.where(zeros, 0.0, high), a.nan & b.nan)
    for maybe, other in ((a, b), (b, a)):
        joined = _joined_reals(result, other, maybe.nan & ~maybe.must_be_nan & ~other.must_be_nan)
        result = Reals(a.type, joined.low, joined.high, result.nan)
        sure = maybe.must_be_nan
        result = Reals(
            a.type, np.where(sure, other.low, result.low), np.where(sure, other.high, result.high), result.nan
        )
    return result


def joined_values(a: Values, b: Values, where: Flags) -> Values:
    """The values of `a`, and where `where` is true those of `b` too."""
    if isinstance(a, Reals) and isinstance(b, Reals):
        return _joined_reals(a, b, where)
    low, high = np.minimum(a.low, b.low), np.maximum(a.high, b.high)
    return Whole(a.type, *(np.where(where, *ends).astype(np.int64) for ends in ((low, a.low), (high, a.high))))


def _joined_reals(a: Reals, b: Reals, where: Flags) -> Reals:
    low, high = (np.where(a.must_be_nan, other, own) for own, other in ((a.low, b.low), (a.high, b.high)))
    others = (np.where(b.must_be_nan, own, other) for own, other in ((low, b.low), (high, b.high)))
    neither = a.must_be_nan & b.must_be_nan
    least, upper = _ends([np.where(np.isnan(v), 0.0, v) for v in (low, high, *others)])
    low, high = (np.where(where, np.where(neither, np.nan, end), own) for end, own in ((least, a.low), (upper, a.high)))
    return Reals(a.type, low, high, np.where(where, a.nan | b.nan, a.nan))


def _widened(x: Reals, relative: float | Doubles, absolute: float | Doubles) -> Reals:
    """An interval of f32 that is wider by an error, with ends that are f32."""
    with np.errstate(all="ignore"):
        low = np.where(np.isfinite(x.low), x.low - np.abs(x.low) * relative - absolute, x.low)
        high = np.where(np.isfinite(x.high), x.high + np.abs(x.high) * relative + absolute, x.high)
    edge = FORMATS["f32"].largest
    low = np.where((x.low == np.inf) & ~x.exact, edge, low)
    high = np.where((x.high == -np.inf) & ~x.exact, -edge, high)
    return Reals(x.type, rounded(low, "f32"), rounded(high, "f32"), x.nan)


def _erf(x: Doubles) -> Doubles:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


FUNCTIONS: dict[str, tuple[Callable[[Doubles], Doubles], float]] = {
    "math.exp": (np.exp, 1e-7),
    "math.exp2": (np.exp2, 1e-7),
    "math.log": (np.log, 1e-7),
    "math.tanh": (np.tanh, 3e-7),
    "math.erf": (_erf, 5e-7),
    "math.rsqrt": (lambda x: 1 / np.sqrt(x), 1e-7),
}
"""Functions and their relative errors."""

ROUNDINGS: dict[str, Callable[[Doubles], Doubles]] = {
    "arith.negf": np.negative,
    "math.floor": np.floor,
    "math.ceil": np.ceil,
    "math.trunc": np.trunc,
    "math.roundeven": np.rint,
    "math.sqrt": np.sqrt,
}
"""Functions that are exact or correctly rounded."""


def _function(name: str, x: Reals, freedom: Freedom) -> Reals:
    if name == "math.absf":
        low, high = _ends([np.abs(np.where(x.must_be_nan, 0.0, v)) for v in (x.low, x.high)])
        low = np.where(_has_zero(x), 0.0, low)
        return Reals(x.type, np.where(x.must_be_nan, np.nan, low), np.where(x.must_be_nan, np.nan, high), x.nan)
    # Below zero there is no number: what is only perhaps below zero begins at zero, and may be NaN.
    inside = x
    if name in ("math.log", "math.sqrt", "math.rsqrt"):
        part = (x.low < 0) & (x.high >= 0)
        inside = Reals(x.type, np.where(part, -0.0, x.low), x.high, x.nan | part)
    if name in ROUNDINGS:
        return _monotone(x.type, ROUNDINGS[name], inside)
    exactly, bound = FUNCTIONS[name]
    relative: float | Doubles = bound
    absolute: float | Doubles = 2.0**-149
    if name in ("math.exp", "math.exp2"):
        least, absolute, along = freedom.exponential
        furthest = np.maximum(np.abs(x.low), np.abs(x.high))
        relative = max(least, bound) + along * np.where(np.isfinite(furthest), furthest, 0.0)
    with np.errstate(all="ignore"):
        ends = [exactly(v) for v in (inside.low, inside.high)]
    if name == "math.rsqrt":
        # Beside -0, which gives minus infinity, lies 0.
        is_negative_zero = (inside.low == 0) & np.signbit(inside.low) & ~inside.exact
        ends.append(np.where(is_negative_zero, np.inf, ends[1]))
    no_number = np.isnan(ends[0]) & np.isnan(ends[1])
    low, high = _ends([np.where(np.isnan(v), 0.0, v) for v in ends])
    must = x.must_be_nan | no_number
    bare = Reals("f32", np.where(must, np.nan, low), np.where(must, np.nan, high), inside.nan | must)
    wide = _widened(bare, relative, absolute)
    if name in ("math.exp", "math.exp2"):
        wide = Reals("f32", np.maximum(wide.low, 0.0), wide.high, wide.nan)
    if name in ("math.tanh", "math.erf"):
        wide = Reals("f32", np.maximum(wide.low, -1.0), np.minimum(wide.high, 1.0), wide.nan)
    return Reals(x.type, rounded(wide.low, x.type), rounded(wide.high, x.type), wide.nan)


def converted(x: Reals, type_: str) -> Reals:
    """extf and truncf."""
    low, high = rounded(x.low, type_), rounded(x.high, type_)
    if FORMATS[type_].has_infinity:
        return Reals(type_, low, high, x.nan)
    # What is beyond the largest number is NaN.
    largest = FORMATS[type_].largest
    same_side = x.must_be_nan | (np.isnan(low) & np.isnan(high) & (np.sign(x.low) == np.sign(x.high)))
    nan = x.nan | np.isnan(low) | np.isnan(high)
    low, high = np.where(np.isnan(low), -largest, low), np.where(np.isnan(high), largest, high)
    return Reals(type_, np.where(same_side, np.nan, low), np.where(same_side, np.nan, high), nan)


def _to_float(x: Whole, type_: str, *, unsigned: bool) -> Reals:
    ends = [(_unsigned(v, x.type) if unsigned else v).astype(np.float64) for v in (x.low, x.high)]
    every = [rounded(v, type_) for v in ends] + [rounded(rounded(v, "f32"), type_) for v in ends if type_ != "f64"]
    low, high = _ends(every)
    if unsigned:
        # The bits of a range of signed integers are any.
        limit = rounded(np.full(x.shape, 2.0 ** WIDTHS[x.type]), type_)
        low, high = np.where(x.exact, low, 0.0), np.where(x.exact, high, limit)
    return Reals(type_, low, high, np.zeros(x.shape, np.bool_))


def _to_integer(x: Reals, type_: str, *, unsigned: bool) -> Whole:
    bits = WIDTHS[type_]
    least, upper = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    with np.errstate(invalid="ignore"):
        low, high = np.trunc(x.low), np.trunc(x.high)
        free = x.nan | (low < least) | (high > upper) | (unsigned & (low != high))
        low, high = (np.where(free, 0, v).astype(np.int64) for v in (low, high))
    low, high = (signed(v, type_) for v in (low, high))
    return _free(Whole(type_, low, high), free)


# Integers


def _unsigned(values: Integers, type_: str) -> Integers:
    return values & (2 ** WIDTHS[type_] - 1)


def signed(values: Integers, type_: str) -> Integers:
    """Integers modulo their width; those of one bit are 0 and 1."""
    bits = WIDTHS[type_]
    span = values & (2**bits - 1)
    return span if bits == 1 else np.where(span >= 2 ** (bits - 1), span - 2**bits, span)


def _free(x: Whole, where: Flags) -> Whole:
    """Any integer, where nothing is said."""
    bits = WIDTHS[x.type]
    least, high = (0, 1) if bits == 1 else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return Whole(x.type, np.where(where, least, x.low), np.where(where, high, x.high))


INTEGER_OPERATIONS: dict[str, tuple[Callable[[Integers, Integers], Integers], bool]] = {
    "arith.addi": (np.add, False),
    "arith.subi": (np.subtract, False),
    "arith.muli": (np.multiply, False),
    "arith.maxsi": (np.maximum, False),
    "arith.minsi": (np.minimum, False),
    "arith.maxui": (np.maximum, True),
    "arith.minui": (np.minimum, True),
    "arith.andi": (np.bitwise_and, False),
    "arith.ori": (np.bitwise_or, False),
    "arith.xori": (np.bitwise_xor, False),
    "arith.shli": (np.left_shift, False),
    "arith.shrsi": (np.right_shift, False),
    "arith.shrui": (np.right_shift, True),
    "arith.divsi": (lambda a, b: np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)), False),
    "arith.remsi": (lambda a, b: np.sign(a) * (np.abs(a) % np.abs(b)), False),
    "arith.divui": (np.floor_divide, True),
    "arith.remui": (np.remainder, True),
}
"""Operations on two integers, and whether these are read without sign."""

RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _compare_integers(predicate: str, a: Whole, b: Whole) -> Whole:
    unsigned, relation = predicate[0] == "u", predicate.removeprefix("s").removeprefix("u")
    x, y = (_unsigned(v.low, v.type) if unsigned else v.low for v in (a, b))
    result = Whole.points("i1", RELATIONS[relation](x, y))
    return _free(result, ~(a.exact & b.exact))


PREDICATES: dict[str, str] = {
    "oeq": "=", "ogt": ">", "oge": ">=", "olt": "<", "ole": "<=", "one": "<>", "ord": "<=>",
    "ueq": "=u", "ugt": ">u", "uge": ">=u", "ult": "<u", "ule": "<=u", "une": "<>u", "uno": "u",
}  # fmt: skip
"""The cases in which a predicate is true: less, equal, greater, unordered."""


def _compare(predicate: str, a: Reals, b: Reals) -> Whole:
    neither = ~(a.must_be_nan | b.must_be_nan)
    with np.errstate(invalid="ignore"):
        possible = {
            "<": neither & (a.low < b.high),
            "=": neither & (a.low <= b.high) & (b.low <= a.high),
            ">": neither & (a.high > b.low),
            "u": a.nan | b.nan,
        }
    same = neither & a.exact & b.exact & (a.low == b.low)
    possible["<"], possible[">"] = possible["<"] & ~same, possible[">"] & ~same
    true = np.logical_or.reduce([possible[c] for c in possible if c in PREDICATES[predicate]])
    false = np.logical_or.reduce([possible[c] for c in possible if c not in PREDICATES[predicate]] or [~true])
    return Whole("i1", (~false).astype(np.int64), true.astype(np.int64))


def _select(condition: Whole, a: Values, b: Values) -> Values:
    shape = np.broadcast_shapes(condition.shape, a.shape, b.shape)
    a, b = (v.map(lambda x: np.broadcast_to(x, shape)) for v in (a, b))
    condition = condition.map(lambda x: np.broadcast_to(x, shape))
    true, unknown = condition.low == 1, condition.low != condition.high
    if isinstance(a, Whole):
        assert isinstance(b, Whole)
        chosen: Values = Whole(a.type, np.where(true, a.low, b.low), np.where(true, a.high, b.high))
    else:
        assert isinstance(b, Reals)
        chosen = Reals(
            a.type, np.where(true, a.low, b.low), np.where(true, a.high, b.high), np.where(true, a.nan, b.nan)
        )
    return joined_values(chosen, a, unknown)


def apply(name: str, type_: str, attribute: str, operands: Sequence[Any], freedom: Freedom = EXACT) -> Values:
    """What an operation gives whose result has a type; `attribute` is the predicate of a comparison."""
    match name, operands:
        case "arith.addf", (a, b):
            return _monotone(type_, np.add, a, b, open_=_has_infinity(a) & _has_infinity(b) & ~(a.exact & b.exact))
        case "arith.subf", (a, b):
            return _monotone(type_, np.subtract, a, b, open_=_has_infinity(a) & _has_infinity(b) & ~(a.exact & b.exact))
        case "arith.mulf", (a, b):
            return _multiply(converted(a, type_), converted(b, type_))
        case "arith.divf", (a, b):
            return _divide(a, b, freedom)
        case "math.fma", (a, b, c):
            return _fused(a, b, c)
        case (("arith.maximumf" | "arith.minimumf" | "arith.maxnumf" | "arith.minnumf"), (a, b)):
            return _extreme(a, b, greatest="max" in name, numbers="num" in name)
        case (("arith.extf" | "arith.truncf"), (x,)):
            return converted(x, type_)
        case (("arith.sitofp" | "arith.uitofp"), (x,)):
            return _to_float(x, type_, unsigned="ui" in name)
        case (("arith.fptosi" | "arith.fptoui"), (x,)):
            return _to_integer(x, type_, unsigned="ui" in name)
        case "arith.cmpf", (a, b):
            return _compare(attribute, a, b)
        case "arith.cmpi", (a, b):
            return _compare_integers(attribute, a, b)
        case "arith.select", (c, a, b):
            return _select(c, a, b)
        case (("arith.extsi" | "arith.extui" | "arith.trunci"), (x,)):
            as_read = _unsigned(x.low, x.type) if "ui" in name else -x.low if x.type == "i1" else x.low
            return _free(Whole.points(type_, signed(as_read, type_)), ~x.exact)
        case _, (a, b) if name in INTEGER_OPERATIONS:
            compute, unsigned = INTEGER_OPERATIONS[name]
            x, y = (_unsigned(v.low, v.type) if unsigned else v.low for v in (a, b))
            return _free(Whole.points(type_, signed(compute(x, y), type_)), ~(a.exact & b.exact))
        case _, (x,):
            return _function(name, x, freedom)
    raise ValueError(f"no meaning for {name}")
