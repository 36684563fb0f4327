"""Approximate functions as an H200 computes them, on words: ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh, and quotients.

The unit cuts a range of arguments into segments and interpolates by c0 + c1 x + c2 x^2, with a squarer that leaves out
columns of low weight: S. F. Oberman and M. Y. Siu, "A high-performance area-efficient multifunction interpolator",
ARITH 2005. It flushes subnormal arguments and results. Instructions without `.ftz` scale arguments around it, as ptxas
does it. All words of the ranges that the coefficients come from agree, and so do random words of all exponents; of
other GPUs nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from . import f64, floats
from .floats import Array

Approximation: TypeAlias = Callable[[Array], Array]
"""From words to words of f32."""

_MANTISSA = 23
_ONE = 1 << _MANTISSA
_BIAS = 127
_INFINITY = 0x7F800000
_NAN = 0x7FFFFFFF
_SIGN = 1 << 31
_MAX = 255
_FRACTION = 17
"""Bits of a sum behind the last place of the result."""

_SQUARE = 15
"""Bits behind the point that the square of a number of [0, 1) has."""


class Segments(NamedTuple):
    """For an argument that goes from 0 to 1 within a segment, c0 counts eighths of a unit of the result, c1 units, c2
    halves of a unit, and the bias units of 2^-17."""

    bias: int
    c0: Array
    c1: Array
    c2: Array


def _read() -> dict[str, Segments]:
    """The tables of `coefficients.txt`, by name."""
    tables: dict[str, Segments] = {}
    for block in Path(__file__).with_name("coefficients.txt").read_text().split("\n\n"):
        name, bias, *numbers = " ".join(line for line in block.splitlines() if line[0] != "#").split()
        tables[name] = Segments(int(bias), *np.array(numbers, np.int64).reshape(-1, 3).T)
    return tables


TABLES = _read()

TANH_BITS = (0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3)
"""Into how many segments each power of two from 2^-8 on is cut in the table of tanh, in a power of two."""


# The unit


@cache
def squares(bits: int) -> Array:
    """The truncated squares of all x / 2^bits: the sum of the partial products whose weight is at least 2^-15."""
    x = np.arange(1 << bits, dtype=np.int64)
    total, first = np.zeros_like(x), 2 * bits - _SQUARE
    for i in range(bits):
        for j in range(i, bits):
            column = i + j + (i != j)
            if column >= first:
                total += (x >> i & x >> j & 1) << column - first
    return total


def _sum(segments: Segments, at: Array, x: Array, bits: int) -> Array:
    """The sum for x / 2^bits of segments, with 17 bits behind its last place."""
    return (
        (segments.c0[at] << _FRACTION - 3) + segments.bias + (segments.c1[at] * x << _FRACTION - bits)
        + (segments.c2[at] * squares(bits)[x] << _FRACTION - 1 - _SQUARE)
    )  # fmt: skip


def _interpolated(segments: Segments, fraction: Array) -> Array:
    """The same for the 23 bits of a fraction, of which the first are the number of the segment."""
    bits = _MANTISSA + 1 - segments.c0.size.bit_length()
    return _sum(segments, fraction >> bits, fraction & (1 << bits) - 1, bits)


def _parts(words: Array) -> tuple[Array, Array, Array]:
    """Sign, biased exponent, fraction."""
    wide = words.astype(np.int64)
    return wide >> 31, wide >> _MANTISSA & _MAX, wide & _ONE - 1


def _joined(exponent: Array, mantissa: Array) -> Array:
    """A word of a biased exponent and 24 bits, or 2^24: zero where it would be subnormal."""
    word = (exponent << _MANTISSA) + mantissa - _ONE
    return np.where(word < _ONE, 0, word)


def _finished(word: Array, words: Array, zero: int | Array, infinity: int | Array) -> Array:
    """The word of each argument, but for zeros (subnormal numbers are), infinities and NaN."""
    _, exponent, fraction = _parts(words)
    word = np.where(exponent == 0, zero, word)
    word = np.where(exponent == _MAX, infinity, word)
    return np.where((exponent == _MAX) & (fraction != 0), _NAN, word).astype(np.uint32)


def _of_positive(word: Array, words: Array, zero: int | Array, infinity: int) -> Array:
    """The same of a function that negative numbers do not have."""
    negative = words.astype(np.int64) >> 31 == 1
    return _finished(np.where(negative, _NAN, word), words, zero, np.where(negative, _NAN, infinity))


def _fixed(fraction: Array, left: Array, limit: int) -> Array:
    """The 24 bits of a mantissa, moved to the left by no more than `limit` or cut on the right."""
    mantissa = fraction | _ONE
    return np.where(left < 0, mantissa >> np.clip(-left, 0, _MANTISSA + 1), mantissa << np.clip(left, 0, limit))


def ex2(words: Array) -> Array:
    """2^x. x has 23 fractional bits; those of a negative number are inverted, not negated, as in hardware."""
    sign, exponent, fraction = _parts(words)
    size = _fixed(fraction, exponent - _BIAS, 8)
    fixed = np.where(sign == 0, size, np.where(size & _ONE - 1, ~size, -size))
    result = (fixed >> _MANTISSA) + _BIAS
    word = _joined(result, _interpolated(TABLES["EX2"], fixed & _ONE - 1) >> _FRACTION)
    word = np.where(result <= 0, 0, np.where(result >= _MAX, _INFINITY, word))
    return _finished(word, words, _BIAS << _MANTISSA, np.where(sign == 1, 0, _INFINITY))


def _float(size: Array, point: int) -> Array:
    """The word of a fixed-point number with `point` fractional bits, rounded towards zero."""
    length = np.frexp(size.astype(np.float64))[1].astype(np.int64)
    cut = size >> np.maximum(length - _MANTISSA - 1, 0) << np.maximum(_MANTISSA + 1 - length, 0)
    return np.where(size == 0, 0, _joined(length - 1 - point + _BIAS, cut))


def lg2(words: Array) -> Array:
    """log2(x). The sum has 36 fractional bits; a negative sum is inverted rather than negated, as in hardware."""
    _, exponent, fraction = _parts(words)
    kept = _FRACTION - 4
    total = (_interpolated(TABLES["LG2"], fraction) >> 4) + (exponent - _BIAS << _MANTISSA + kept)
    total = np.where((exponent == _BIAS) & (fraction == 0), 0, total)
    word = _float(np.where(total < 0, ~total, total), _MANTISSA + kept)
    return _of_positive(word | (total < 0) * _SIGN, words, _INFINITY | _SIGN, _INFINITY)


def rcp(words: Array) -> Array:
    """1 / x."""
    sign, exponent, fraction = _parts(words)
    word = _joined(2 * _BIAS - 1 - exponent, _interpolated(TABLES["RCP"], fraction) >> _FRACTION)
    return _finished(word | sign << 31, words, _INFINITY | sign << 31, sign << 31)


def _root(even: Segments, odd: Segments, words: Array) -> tuple[Array, Array]:
    """Half of the exponent, and 24 bits, of a function of a square root."""
    _, exponent, fraction = _parts(words)
    above = exponent - _BIAS & 1
    mantissa = np.where(above, _interpolated(odd, fraction), _interpolated(even, fraction)) >> _FRACTION
    return exponent - _BIAS - above >> 1, mantissa


def rsqrt(words: Array) -> Array:
    """1 / sqrt(x), of powers of 4 exact."""
    sign, exponent, fraction = _parts(words)
    half, mantissa = _root(TABLES["RSQRT"], TABLES["RSQRT_ODD"], words)
    exact = (fraction == 0) & (exponent - _BIAS & 1 == 0)
    word = _joined(_BIAS - 1 - half, np.where(exact, 2 * _ONE, mantissa))
    return _of_positive(word, words, _INFINITY | sign << 31, 0)


def sqrt(words: Array) -> Array:
    """sqrt(x)."""
    half, mantissa = _root(TABLES["SQRT"], TABLES["SQRT_ODD"], words)
    return _of_positive(_joined(half + _BIAS, mantissa), words, words & np.uint32(_SIGN), _INFINITY)


_TANH_FIRST = np.cumsum((0, *(1 << bits for bits in TANH_BITS)))[:-1]
_TANH_MIN = -8


def tanh(words: Array) -> Array:
    """tanh(x): x below 2^-8, 1 from 8 on. Of x as many bits count as a segment has, and the number of the segment."""
    sign, exponent, fraction = _parts(words)
    power = np.clip(exponent - _BIAS - _TANH_MIN, 0, len(TANH_BITS) - 1)
    bits = _MANTISSA - np.array(TANH_BITS)[power]
    x = (fraction & (1 << bits) - 1) >> bits - _FRACTION
    total = _sum(TABLES["TANH"], _TANH_FIRST[power] + (fraction >> bits), x, _FRACTION)
    word = _float(total, _MANTISSA + _FRACTION) + (power + _TANH_MIN << _MANTISSA)
    low, high = exponent - _BIAS < _TANH_MIN, exponent - _BIAS >= _TANH_MIN + len(TANH_BITS)
    word = np.where(low, exponent << _MANTISSA | fraction, np.where(high, _BIAS << _MANTISSA, word)) | sign << 31
    return np.where((exponent == _MAX) & (fraction != 0), _NAN, word).astype(np.uint32)


_TURNS = np.float32(0.15915493667125702)
"""1 / (2 pi)."""

_QUARTER = 23
"""Bits of a quarter of a turn."""


def _turned(turns: Array, quarters: int) -> Array:
    """sin(2 pi (x + `quarters` / 4)): of the number of turns 25 bits behind the point. ptxas 13.5 makes `sin` of it and
    the product with 1 / (2 pi)."""
    sign, exponent, fraction = _parts(turns)
    size = _fixed(fraction, exponent - _BIAS + 2, _QUARTER + 2)
    size = np.where(exponent == 0, 0, size) & (1 << _QUARTER + 2) - 1
    quarter, part = (size >> _QUARTER) + quarters & 3, size & (1 << _QUARTER) - 1
    part = np.where(quarter & 1, ~part & (1 << _QUARTER) - 1, part)
    word = _float(_interpolated(TABLES["SIN"], part), _MANTISSA + 1 + _FRACTION)
    negative = quarter >> 1 ^ (sign if quarters == 0 else 0)
    return np.where(exponent == _MAX, _NAN, word | negative << 31).astype(np.uint32)


def _turns(words: Array) -> Array:
    """x / (2 pi)."""
    return floats.rounded(_value(words).astype(np.float64) * np.float64(_TURNS), "f32", "rz")


def sin(words: Array) -> Array:
    """sin(x)."""
    return _turned(_turns(words), 0)


def cos(words: Array) -> Array:
    """cos(x)."""
    return _turned(_turns(words), 1)


# Around it

_SMALLEST = np.float32(2.0**-126)
_LARGE = np.float32(2.0**126)
_UP = np.float32(2.0**24)


def _value(words: Array) -> Array:
    return words.view(np.float32)


def _product(a: Array, b: Array, *, ftz: bool) -> Array:
    if ftz:
        a, b = floats.flush(a, "f32"), floats.flush(b, "f32")
    product = np.asarray(a * b)
    if ftz:
        product = floats.flush_result(product, a.astype(np.float64) * b, "f32")
    return floats.canonical(product.view(np.uint32), product, "f32")


def _scaled(function: Approximation, after: Callable[[Array], Array]) -> Approximation:
    """A function that takes subnormal arguments times 2^24, with what this makes necessary after it."""

    def on_words(words: Array) -> Array:
        x = _value(words)
        small = np.abs(x) < _SMALLEST
        results = function(np.where(small, x * _UP, x).view(np.uint32))
        return np.where(small, after(_value(results)).view(np.uint32), results)

    return on_words


def _ex2(words: Array) -> Array:
    """2^x with subnormal results: the square of 2^(x / 2)."""
    x = _value(words)
    low = x < np.float32(-126)
    root = _value(ex2(np.where(low, x * np.float32(0.5), x).view(np.uint32)))
    return np.where(low, root * root, root).view(np.uint32)


def of_upper_half(function: Approximation) -> Approximation:
    """`rcp` or `rsqrt` of f64 by that of f32: of the argument the upper 32 bits count, and those of the result are
    given. Subnormal arguments and results are flushed."""

    def on_words(words: Array) -> Array:
        upper = (words >> np.uint64(32)).astype(np.int64)
        exponent, fraction = upper >> 20 & 0x7FF, upper & (1 << 20) - 1
        odd = exponent - 1023 & 1 if function is rsqrt else np.zeros_like(exponent)
        power = exponent - 1023 - odd
        near = upper >> 31 << 31 | _BIAS + odd << _MANTISSA | fraction << 3
        near = np.where(exponent == 0, upper >> 31 << 31, np.where(exponent == 0x7FF, near | _INFINITY, near))
        sign, biased, mantissa = _parts(function(near.astype(np.uint32)))
        moved = np.where(biased == _MAX, 0x7FF, biased - _BIAS + 1023 - (power >> (function is rsqrt)))
        result = np.where((biased > 0) & (moved > 0), moved << 20 | mantissa >> 3, 0)
        return (result | sign << 31).astype(np.uint64) << np.uint64(32)

    return on_words


def rsqrt64(words: Array) -> Array:
    """`rsqrt.approx.f64` as ptxas 13.5 computes it: the approximation of the upper half, and one step of Halley's."""
    x = words.view(np.float64)
    small = (np.abs(x) < 2.0**-1022) & (x != 0)
    scaled = np.where(small, x * 2.0**54, x)
    first = of_upper_half(rsqrt)(scaled.view(np.uint64)).view(np.float64)
    with np.errstate(all="ignore"):
        lacks = f64.fused(scaled, -(first * first), np.ones_like(x))
        result = f64.fused(f64.fused(lacks, np.full_like(x, 0.375), np.full_like(x, 0.5)), first * lacks, first)
        plain = np.isfinite(x) & (x > 0)
        result = np.where(plain, np.where(small, result * 2.0**27, result), 1.0 / np.sqrt(x))
    return f64.with_nans(result, x).view(np.uint64)


def quotient(a: Array, b: Array, *, full: bool, ftz: bool) -> Array:
    """The words of `div.approx` or `div.full`: a times the reciprocal of b. Both are scaled where b is large (`full`)
    or subnormal (without `ftz`)."""
    a, b = _value(a), _value(b)
    scale = np.ones_like(b)
    if full:
        scale = np.where(np.abs(b) > _LARGE / 2, np.float32(0.25), scale)
    if not ftz:
        scale = np.where(np.abs(b) < _SMALLEST, _UP, scale)
    over, under = (_value(_product(x, scale, ftz=ftz)) if (scale != 1).any() else x for x in (a, b))
    return _product(over, _value(rcp(under.view(np.uint32))), ftz=ftz)


FLUSHED: dict[str, Approximation] = {
    "ex2": ex2, "lg2": lg2, "rcp": rcp, "rsqrt": rsqrt, "sqrt": sqrt, "sin": sin, "cos": cos,
    "sin.2pi": partial(_turned, quarters=0), "cos.2pi": partial(_turned, quarters=1),
}  # fmt: skip
"""The instructions `NAME.approx.ftz.f32`; `NAME.approx.2pi.ftz.f32`."""

FULL: dict[str, Approximation] = {
    "ex2": _ex2,
    "lg2": _scaled(lg2, lambda y: y - np.float32(24)),
    "rcp": lambda words: quotient(np.full_like(words, _BIAS << _MANTISSA), words, full=True, ftz=False),
    "rsqrt": _scaled(rsqrt, lambda y: y * np.float32(2.0**12)),
    "sqrt": _scaled(sqrt, lambda y: y * np.float32(2.0**-12)),
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
}
"""The instructions `NAME.approx.f32`."""


_INFINITE_FROM = {"f16": 2.0**16, "bf16": np.inf}
"""Where results are infinite; those of bf16 are so in f32."""


def _narrow(function: Approximation, type: str) -> Approximation:
    """A function of a type of 16 bits: that of f32, rounded towards zero."""

    def on_words(words: Array) -> Array:
        value = _value(function(floats.value(words, type).astype(np.float32).view(np.uint32))).astype(np.float64)
        cut = floats.rounded(value, type, "rz")
        return np.where(np.abs(value) >= _INFINITE_FROM[type], floats.rounded(np.copysign(np.inf, value), type), cut)

    return on_words


NARROW: dict[tuple[str, str], Approximation] = {
    (name, type): _narrow(function, type)
    for name, function in (("ex2", ex2), ("tanh", tanh))
    for type in ("f16", "bf16")
}
"""The instructions `NAME.approx.TYPE`."""
