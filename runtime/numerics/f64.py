"""Double precision: directed rounding, and fused multiply-adds in the four rounding modes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from . import floats
from .floats import Array, two_sum

# Directed rounding of f64, and results of division and roots rounded to odd.
#
# A result rounded to nearest says, with the sign of what it lacks, what every other rounding gives. The sign of a
# remainder is that of a fused multiply-add, which is no zero where it is rounded away from that.

_LOW, _HIGH = 2.0**-400, 2.0**400


def rounded(nearest: Array, lacking: Array, mode: str) -> Array:
    """f64 results in a rounding mode, from those rounded to nearest and the sign of the exact result minus those."""
    up, down = np.inf, -np.inf
    toward = {
        "rm": np.where(lacking < 0, down, nearest),
        "rp": np.where(lacking > 0, up, nearest),
        "rz": np.where((lacking < 0) & (nearest > 0), down, np.where((lacking > 0) & (nearest < 0), up, nearest)),
    }[mode]
    return np.where(lacking == 0, nearest, np.nextafter(nearest, toward))


def add(a: Array, b: Array, mode: str) -> Array:
    """a + b. An exact zero that is not of equal zeros is -0 where the mode is "rm"."""
    total, error = floats.two_sum(a, b)
    finite = np.isfinite(a) & np.isfinite(b)
    lacking = np.where(np.isinf(total) & finite, -np.sign(total), np.where(finite, np.sign(error), 0.0))
    result = rounded(total, lacking, mode)
    if mode == "rm":
        return np.where((result == 0) & (np.signbit(a) | np.signbit(b)), -0.0, result)
    return result


def subtract(a: Array, b: Array, mode: str) -> Array:
    """a - b; a NaN keeps its sign."""
    return add(a, np.where(b == b, -b, b), mode)


def multiply(a: Array, b: Array, mode: str) -> Array:
    """a * b."""
    return fused(a, b, np.where(np.signbit(a) ^ np.signbit(b), -0.0, 0.0), mode)


def divide(a: Array, b: Array, mode: str) -> Array:
    """a / b."""
    return rounded(a / b, _quotient_lacks(a, b), mode)


def reciprocal(a: Array, mode: str) -> Array:
    """1 / a."""
    return divide(np.ones_like(a), a, mode)


def root(a: Array, mode: str) -> Array:
    """The square root of a."""
    return rounded(np.sqrt(a), _root_lacks(a), mode)


def odd_quotient(a: Array, b: Array) -> Array:
    """a / b of f32 values, in f64 rounded to odd."""
    return floats.odd(a / b, _quotient_lacks(a, b))


def odd_root(a: Array) -> Array:
    """The square root of f32 values, in f64 rounded to odd."""
    return floats.odd(np.sqrt(a), _root_lacks(a))


# What results lack


def _quotient_lacks(a: Array, b: Array) -> Array:
    return _remainder(a / b, b, a) * np.sign(b)


def _root_lacks(a: Array) -> Array:
    near = np.sqrt(a)
    return _remainder(near, near, a)


def _remainder(a: Array, b: Array, c: Array) -> Array:
    """The sign of c - a * b; 0 where that is NaN."""
    return np.where(fused(-a, b, c, "rp") > 0, 1.0, np.where(fused(-a, b, c, "rm") < 0, -1.0, 0.0))


# Fused multiply-adds in the four rounding modes, on arrays.
#
# numpy has no fused multiply-add. Here the significands of the operands are multiplied and added exactly, as sums of
# two or three f64 that do not overlap, away from the ends of the exponent range; the exponents follow separately. What
# that cannot do, because the result is subnormal or beyond the range, is computed in fractions.
#
# NaNs keep their words, made quiet: of several operands that are NaN, the result is that from B, else the sum so far,
# else that from A. An invalid operation gives 0xFFF8000000000000. Both were found in an H200's words: of 3459 recorded
# sums with two NaNs or more no other order of A, B and C explains all (the next best, 1834), and the whole recording
# replays without a difference.

NAN = np.uint64(0xFFF8000000000000)
_QUIET = np.uint64(1 << 51)

_FAR = 160
"""An addend this many binary digits above or below a product acts by its sign alone."""


def chain(a: Array, b: Array, c: Array, mode: str) -> Array:
    """C plus the products of A (k, m, warps) and B (k, n, warps), one after the other, each step rounded once. All are
    words of f64 (uint64); `mode` is "rn", "rz", "rm" or "rp"."""
    total = c.view(np.float64)
    for row, column in zip(a.view(np.float64), b.view(np.float64), strict=True):
        x, y = np.broadcast_arrays(row[:, None], column[None])
        total = fma(x, y, total, mode)
    return total.view(np.uint64)


def fma(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c, rounded once, with the NaNs of a tensor core."""
    with np.errstate(all="ignore"):
        return with_nans(fused(a, b, c, mode), b, c, a)


def fused(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c, rounded once, with numpy's NaNs."""
    result = a * b + c
    factors = np.isfinite(a) & np.isfinite(b)
    exact, zero = factors & np.isfinite(c), (a == 0) | (b == 0)
    if mode == "rm":
        # An exact zero that is not +0 + +0 is -0 there.
        negative = exact & zero & (c == 0) & (np.signbit(c) | (np.signbit(a) != np.signbit(b)))
        result = np.where(negative, -0.0, result)
    result = np.where(factors & np.isinf(c), c, result)
    todo = np.flatnonzero(exact & ~zero)
    if todo.size:
        x, y, z = (v.reshape(-1)[todo] for v in (a, b, c))
        result.reshape(-1)[todo] = _finite(x, y, z, mode)
    return result


def with_nans(result: Array, *operands: Array) -> Array:
    """The silicon's NaNs instead of the host's: the first operand that is NaN, made quiet."""
    bad = np.flatnonzero(np.isnan(result))
    if bad.size:
        words = np.full(bad.size, NAN)
        for operand in reversed(operands):
            values = operand.reshape(-1)[bad]
            words = np.where(np.isnan(values), values.view(np.uint64) | _QUIET, words)
        result.view(np.uint64).reshape(-1)[bad] = words
    return result


def _finite(a: Array, b: Array, c: Array, mode: str) -> Array:
    """The result for finite, non-zero a and b and finite c. Extreme exponents are scaled first."""
    sizes = [np.abs(v) for v in (a, b, c)]
    plain = np.logical_and.reduce([(s > _LOW) & (s < _HIGH) for s in sizes[:2]])
    plain &= (sizes[2] == 0) | ((sizes[2] > _LOW * _LOW) & (sizes[2] < _HIGH))
    if plain.all():
        return _near(a, b, c, mode)
    result = np.empty(a.shape)
    result[plain] = _near(a[plain], b[plain], c[plain], mode)
    result[~plain] = _scaled(a[~plain], b[~plain], c[~plain], mode)
    return result


def _scaled(a: Array, b: Array, c: Array, mode: str) -> Array:
    (x, ea), (y, eb), (z, ec) = np.frexp(a), np.frexp(b), np.frexp(c)
    exponent = ea + eb
    apart = ec - exponent
    # Far apart, the smaller one acts by its sign alone: bring it near, but not so near that more of it acts.
    z = np.ldexp(z, np.clip(apart, -_FAR, _FAR))
    lift = np.where((apart > _FAR) & (z != 0), apart - _FAR, 0)
    scaled = _near(x, y, z, mode)
    exponent = exponent + lift
    result = np.ldexp(scaled, exponent)
    _, top = np.frexp(scaled)
    top = top + exponent
    hard = np.flatnonzero((scaled != 0) & ((top < -1020) | (top > 1024)))
    for i in hard:
        result[i] = _exactly(float(a[i]), float(b[i]), float(c[i]), mode)
    return result


def _near(a: Array, b: Array, c: Array, mode: str) -> Array:
    """a * b + c rounded once, where no exponent is extreme; c may be zero. The sum is total + error + rest without
    overlap; error and rest together are rounded to odd, which leaves the rounding of the whole unharmed: Boldo and
    Melquiond, "Emulation of a FMA and correctly rounded sums" (2008)."""
    upper, low = floats.two_product(a, b)
    first, rest = two_sum(c, low)
    total, error = two_sum(upper, first)
    result, lacks = two_sum(total, floats.sum_odd(error, rest))
    if mode == "rn":
        return result
    return rounded(np.where(result == 0, -0.0, result) if mode == "rm" else result, np.sign(lacks), mode)


def _exactly(a: float, b: float, c: float, mode: str) -> float:
    """The same in fractions, for finite operands whose sum is not zero."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        nearest = float(exact)
        lacking = float(exact > nearest) - float(exact < nearest)
    except OverflowError:
        lacking = -1.0 if exact > 0 else 1.0
        nearest = -lacking * np.inf
    return nearest if mode == "rn" else float(rounded(np.array(nearest), np.array(lacking), mode))
