"""Floating-point arithmetic with one rounding, on arrays of words.

Results are formed in f64, exactly or rounded to odd (the last bit is set where something was cut off), and rounded
once to the result's format: with 53 bits that is the same as rounding the exact result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]

ArrayFunction: TypeAlias = (
    Callable[[Array], Any]
    | Callable[[Array, Array], Any]
    | Callable[[Array, Array, Array], Any]
    | Callable[[Array, Array, Array, Array], Any]
)
"""What one to four operands give: arrays, or a tuple of them."""

_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
WORDS = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}
OUTSIDE = 0x7FF7
"""What an H200's tensor copies put outside a tensor of floats, 16 bits at a time."""
SMALLEST_NORMAL = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}

_INFINITY = np.uint32(0x7F800000)
_TIE_MASK = np.uint64(0x1FFFFFFF)
_TIE = np.uint64(0x10000000)


def value(words: Array, type: str) -> Array:
    """The values of words of a type, as f64."""
    return words.view(np.float64) if type == "f64" else single(words, type).astype(np.float64)


def single(words: Array, type: str) -> Array:
    """The values of words of f16, bf16 or f32, as f32."""
    if type == "f16":
        return words.view(np.float16).astype(np.float32)
    wide = words.astype(np.uint32) << np.uint32(16) if type == "bf16" else words
    return wide.view(np.float32)


def rounded(exact: Array, type: str, mode: str = "rn") -> Array:
    """Words of `type` for f64 values that are exact or rounded to odd. A NaN becomes the one that the machine writes;
    f64 keeps its own, as the machine does."""
    if type == "f64":
        return exact.view(np.uint64)
    words = _nearest(exact, type) if mode == "rn" else _directed(exact, type, mode)
    return canonical(words, exact, type)


def canonical(words: Array, values: Array, type: str) -> Array:
    """Replaces NaNs by the one the machine writes."""
    bad = values != values
    if type in NAN and bad.any():
        words = np.where(bad, WORDS[type](NAN[type]), words)
    return words


def _nearest(exact: Array, type: str) -> Array:
    if type == "f16":
        return exact.astype(np.float16).view(np.uint16)
    if type == "f32":
        return exact.astype(np.float32).view(np.uint32)
    words = _to_odd_single(exact)
    even = (words >> np.uint32(16)) & np.uint32(1)
    return ((words + np.uint32(0x7FFF) + even) >> np.uint32(16)).astype(np.uint16)


def _to_odd_single(exact: Array) -> Array:
    """f32 words, cut toward zero, the last bit set where something was cut off."""
    words = _directed(exact, "f32", "rz")
    inexact = words.view(np.float32).astype(np.float64) != exact
    return np.where(np.isfinite(exact) & inexact, words | np.uint32(1), words)


def _directed(exact: Array, type: str, mode: str) -> Array:
    """Starts at the nearest value and steps over by one place where that lies on the wrong side."""
    words = _nearest(exact, type)
    near = value(words, type)
    wrong = {"rz": np.abs(near) > np.abs(exact), "rm": near > exact, "rp": near < exact}[mode]
    outward = np.abs(near) < np.abs(exact)
    step = np.where(outward, WORDS[type](1), WORDS[type](-1 & int(np.iinfo(WORDS[type]).max)))
    return np.where(wrong, words + step, words)


def odd(result: Array, error: Array) -> Array:
    """Rounded to odd: `result` was rounded to nearest, and `error` is what it lacks."""
    inexact = (error < 0) | (error > 0)
    words = result.view(np.int64)
    fix = inexact & (words & 1 == 0)
    if not fix.any():
        return result
    step = np.where((error > 0) == (result > 0), 1, -1)
    return np.where(fix, words + step, words).view(np.float64)


def sum_odd(a: Array, b: Array, mode: str = "rn") -> Array:
    """a + b in f64, rounded to odd. An exact zero that is not +0 + +0 is -0 where the mode is "rm"."""
    total, error = two_sum(a, b)
    result = odd(total, error)
    return np.where((total == 0) & (np.signbit(a) | np.signbit(b)), -0.0, result) if mode == "rm" else result


def fma_odd(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c, rounded to odd, for operands of at most 26 bits and the exponents of f32."""
    return sum_odd(a * b, c, mode)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of f32, rounded once to nearest. Rounding to f64 first does harm only where that gives a tie between
    two f32 values, or a subnormal one."""
    total = a.astype(np.float64) * b + c
    result = total.astype(np.float32)
    doubtful = ((total.view(np.uint64) & _TIE_MASK) == _TIE) | (np.abs(total) < 2.0**-125)
    if doubtful.any():
        where = np.flatnonzero(doubtful)
        x, y, z = (np.broadcast_to(v, total.shape)[where].astype(np.float64) for v in (a, b, c))
        result[where] = fma_odd(x, y, z).astype(np.float32)
    return result


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Product and its error (Dekker, Veltkamp)."""
    product = a * b
    halves: list[tuple[Array, Array]] = []
    for x in (a, b):
        scaled = x * 134217729.0
        upper = scaled - (scaled - x)
        halves.append((upper, x - upper))
    (ah, al), (bh, bl) = halves
    return product, al * bl - (((product - ah * bh) - al * bh) - ah * bl)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Sum and its error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def flush(values: Array, type: str) -> Array:
    """Subnormal values as zeros of their sign."""
    return np.where(np.abs(values) < SMALLEST_NORMAL[type], np.copysign(values.dtype.type(0), values), values)


def flush_result(values: Array, exact: Array, type: str, mode: str = "rn") -> Array:
    """Results, with zeros for those that would be subnormal if exponents had no end, as an H200 flushes them: what is
    rounded up to the least normal number stays if it is a quarter of a step below it, in directed modes half of one."""
    least = SMALLEST_NORMAL[type]
    small = (np.abs(values) == least) & (np.abs(exact) < least)
    if small.any():
        wider = value(rounded(np.where(small, exact * 2, 0.0), type, mode), type)
        values = np.where(small & (np.abs(wider) < 2 * least), np.copysign(values.dtype.type(0), values), values)
    return flush(values, type)


def tf32(words: Array, mode: str = "rn") -> Array:
    """Words of f32 with 10 bits of mantissa, the low 13 bits 0. A NaN becomes 0x7FFFE000, but rounded away from zero,
    which ptxas computes by integers, it keeps its upper bits."""
    size, sign, ones = words & np.uint32(0x7FFFFFFF), words & np.uint32(0x80000000), np.uint32(0x1FFF)
    even = size >> np.uint32(13) & np.uint32(1)
    extra = {"rna": np.uint32(0x1000), "rn": np.uint32(0xFFF) + even, "rz": np.uint32(0)}[mode]
    rounded = (np.where(size < _INFINITY, size + extra, size) & ~ones) | sign
    return rounded if mode == "rna" else np.where(size > _INFINITY, np.uint32(0x7FFFE000), rounded)


def relu(values: Array) -> Array:
    """+0 for what is not above it; NaN stays."""
    return np.where(values <= 0, 0.0, values)


def saturated(values: Array) -> Array:
    """Between +0 and 1; a NaN becomes +0."""
    return np.where(values != values, 0.0, np.minimum(larger(values, np.zeros_like(values)), 1.0))


def smaller(a: Array, b: Array) -> Array:
    """The smaller value, -0 below +0; the other one where one is a NaN."""
    return np.where(a == b, _bits(np.bitwise_or, a, b), np.fmin(a, b))


def larger(a: Array, b: Array) -> Array:
    """The larger value, +0 above -0; the other one where one is a NaN."""
    return np.where(a == b, _bits(np.bitwise_and, a, b), np.fmax(a, b))


def _bits(function: np.ufunc, a: Array, b: Array) -> Array:
    """A function of the bits of numbers: those of equal ones differ in the sign of a zero alone."""
    word = _UNSIGNED[a.itemsize]
    return function(a.view(word), b.view(word)).view(a.dtype)


def on_parts(function: Callable[..., Array], *kinds: DTypeLike) -> ArrayFunction:
    """A function of numbers of these types (the last one for all further operands), on words of several of them."""

    size, kinds = np.dtype(kinds[0]).itemsize, (*kinds, *3 * kinds[-1:])

    def on_words(*words: Array) -> Array:
        parts = [np.ascontiguousarray(word).view(kind) for word, kind in zip(words, kinds, strict=False)]
        result = np.ascontiguousarray(function(*parts))
        return result.view(_UNSIGNED[words[0].itemsize // size * result.itemsize])

    return on_words
