"""Double precision: directed rounding, and fused multiply-adds in the four rounding modes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from . import floats
from .array import Array
from .floats import two_sum

# Directed rounding of f64, and results of division and roots rounded to odd.
#
# A result rounded to nearest says, with the sign of what it lacks, what every other rounding gives. The sign comes
# from the error of a product that is computed exactly; where exponents are extreme, from fractions.

_LOW, _HIGH = 2.0**-400, 2.0**400


def rounded(nearest: Array, lacking: Array, mode: str) -> Array:
    """f64 results by mode, from those rounded to nearest and the sign of what they lack."""
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
    return _finish(a * b, np.sign(floats.two_product(a, b)[1]), [a, b], _product, mode)


def divide(a: Array, b: Array, mode: str) -> Array:
    """a / b."""
    return _finish(a / b, _quotient_lacks(a, b), [a, b], _quotient, mode)


def reciprocal(a: Array, mode: str) -> Array:
    """1 / a."""
    return divide(np.ones_like(a), a, mode)


def root(a: Array, mode: str) -> Array:
    """The square root of a."""
    return _finish(np.sqrt(a), _root_lacks(a), [a], _root, mode)


def directed_fma(a: Array, b: Array, c: Array, mode: str) -> Array:
    """a * b + c."""
    nearest = floats.fma64(a, b, c)
    everyone = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    lacking = _missing_sign(nearest, [a, b, c], everyone, _fused)
    result = rounded(nearest, lacking, mode)
    if mode == "rm":
        # Products and sums of opposite signs that leave nothing.
        signs = np.signbit(a) ^ np.signbit(b) | np.signbit(c)
        return np.where(everyone & (nearest == 0) & (lacking == 0) & signs, -0.0, result)
    return result


def odd_quotient(a: Array, b: Array) -> Array:
    """a / b of f32 values, in f64 rounded to odd."""
    return floats.odd(a / b, _quotient_lacks(a, b))


def odd_root(a: Array) -> Array:
    """The square root of f32 values, in f64 rounded to odd."""
    return floats.odd(np.sqrt(a), _root_lacks(a))


# What results lack


def _quotient_lacks(a: Array, b: Array) -> Array:
    product, error = floats.two_product(a / b, b)
    return np.sign((a - product) - error) * np.sign(b)


def _root_lacks(a: Array) -> Array:
    near = np.sqrt(a)
    product, error = floats.two_product(near, near)
    return np.sign((a - product) - error)


def _finish(nearest: Array, lacking: Array, operands: list[Array], exact: Callable[..., int], mode: str) -> Array:
    """Rounds. Where an operand is 0, infinite or a NaN, nothing is lacking; extreme exponents are looked at again."""
    sizes = [np.abs(v) for v in (*operands, nearest)]
    plain = np.logical_and.reduce([(s > _LOW) & (s < _HIGH) for s in sizes])
    special = np.logical_or.reduce([~np.isfinite(v) | (v == 0) for v in operands]) | (nearest != nearest)
    lacking = np.where(plain, lacking, 0.0)
    extreme = _missing_sign(nearest, operands, ~plain & ~special, exact)
    return rounded(nearest, lacking + extreme, mode)


def _missing_sign(nearest: Array, operands: list[Array], chosen: Array, exact: Callable[..., int]) -> Array:
    """The sign of what each chosen result lacks, by fractions."""
    lacking = np.zeros(nearest.shape)
    for i in np.flatnonzero(chosen):
        lacking[i] = exact(float(nearest[i]), *(Fraction(float(v[i])) for v in operands))
    return lacking


def _compare(value: Fraction, near: float) -> int:
    if np.isinf(near):
        return -1 if near > 0 else 1
    return (value > Fraction(near)) - (value < Fraction(near))


def _product(near: float, a: Fraction, b: Fraction) -> int:
    return _compare(a * b, near)


def _quotient(near: float, a: Fraction, b: Fraction) -> int:
    return _compare(a / b, near)


def _fused(near: float, a: Fraction, b: Fraction, c: Fraction) -> int:
    return _compare(a * b + c, near)


def _root(near: float, a: Fraction) -> int:
    square = Fraction(near) ** 2
    return (a > square) - (a < square)


# Double precision: fused multiply-adds in the four rounding modes, on arrays.
#
# numpy has no fused multiply-add. Here the significands of the operands are multiplied and added exactly, as sums of
# two or three f64 that do not overlap, away from the ends of the exponent range; the exponents follow separately. What
# that cannot do, because the result is subnormal or beyond the range, is computed in Python's integers.
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
    """C plus the products of A (k, m, warps) and B (k, n, warps), one after the other, each step rounded once.

    All are words of f64 (uint64); `mode` is "rn", "rz", "rm" or "rp".
    """
    total = c.view(np.float64)
    for row, column in zip(a.view(np.float64), b.view(np.float64), strict=True):
        x, y = np.broadcast_arrays(row[:, None], column[None])
        total = fma(x, y, total, mode)
    return total.view(np.uint64)


def fma(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c, rounded once."""
    with np.errstate(all="ignore"):
        result = a * b + c
        exact = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
        zero = (a == 0) | (b == 0)
        if mode == "rm":
            # An exact zero that is not +0 + +0 is -0 there.
            negative = exact & zero & (c == 0) & (np.signbit(c) | (np.signbit(a) != np.signbit(b)))
            result = np.where(negative, -0.0, result)
        infinite = np.isfinite(a) & np.isfinite(b) & np.isinf(c)
        result = np.where(infinite, c, result)
        todo = np.flatnonzero(exact & ~zero)
        if todo.size:
            x, y, z = (v.reshape(-1)[todo] for v in (a, b, c))
            result.reshape(-1)[todo] = _finite(x, y, z, mode)
        return _with_nans(result, a, b, c)


def _with_nans(result: Array, a: Array, b: Array, c: Array) -> Array:
    """The silicon's NaNs instead of the host's."""
    bad = np.flatnonzero(np.isnan(result))
    if bad.size:
        words = np.full(bad.size, NAN)
        for operand in (a, c, b):
            given = operand.reshape(-1)[bad]
            words = np.where(np.isnan(given), given.view(np.uint64) | _QUIET, words)
        result.view(np.uint64).reshape(-1)[bad] = words
    return result


def _finite(a: Array, b: Array, c: Array, mode: str) -> Array:
    """Of finite a and b other than zero, and finite c."""
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


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Product and its error (Veltkamp, Dekker), for operands in [1/2, 1)."""
    product = a * b
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    return product, al * bl - (((product - ah * bh) - al * bh) - ah * bl)


def _halves(x: Array) -> tuple[Array, Array]:
    scaled = x * 134217729.0
    upper = scaled - (scaled - x)
    return upper, x - upper


def _near(a: Array, b: Array, c: Array, mode: str) -> Array:
    """a * b + c rounded once, a and b in [1/2, 1) in size, c within 2^-161 to 2^160, or zero.

    The sum is total + error + rest without overlap; error and rest together are rounded to odd, which leaves the
    rounding of the whole unharmed: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums" (2008).
    """
    upper, low = _two_product(a, b)
    first, rest = two_sum(c, low)
    total, error = two_sum(upper, first)
    tail = _odd_sum(error, rest)
    result, lacks = two_sum(total, tail)
    if mode == "rn":
        return result
    if mode == "rm":
        result = np.where(result == 0, -0.0, result)
    return _directed(result, lacks, mode)


def _odd_sum(a: Array, b: Array) -> Array:
    """a + b, rounded to odd."""
    total, error = two_sum(a, b)
    words = total.view(np.int64)
    fix = (error != 0) & (words & 1 == 0)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(fix, words + step, words).view(np.float64)


def _directed(result: Array, lacks: Array, mode: str) -> Array:
    """Steps from the nearest value to the one on the right side, where it lies on the wrong side."""
    low = {"rz": np.where(result > 0, lacks < 0, False), "rm": lacks < 0, "rp": np.zeros_like(lacks, np.bool_)}[mode]
    up = {"rz": np.where(result < 0, lacks > 0, False), "rm": np.zeros_like(lacks, np.bool_), "rp": lacks > 0}[mode]
    stepped = np.where(low, np.nextafter(result, -np.inf), result)
    return np.where(up, np.nextafter(stepped, np.inf), stepped)


_UNIT = 1074
"""f64 are multiples of 2^-1074."""


def _exactly(a: float, b: float, c: float, mode: str) -> float:
    """The same in integers, for finite operands whose sum is not zero."""
    (na, da), (nb, db), (nc, dc) = (v.as_integer_ratio() for v in (a, b, c))
    denominator = da * db
    numerator = na * nb * max(1, dc // denominator) + nc * max(1, denominator // dc)
    shift = max(denominator, dc).bit_length() - 1
    # numerator / 2^shift, in units of 2^-1074 or of the last place of a normal number
    size = abs(numerator)
    unit = max(size.bit_length() - 53 - shift, -_UNIT)
    drop = unit + shift
    kept, rest = (size >> drop, size & ((1 << drop) - 1)) if drop > 0 else (size << -drop, 0)
    kept += _rounds_up(kept, rest, drop, mode, numerator < 0)
    sign = -1.0 if numerator < 0 else 1.0
    if kept.bit_length() + unit > 1024:
        away = mode == "rn" or (mode == "rp" and sign > 0) or (mode == "rm" and sign < 0)
        return sign * (float("inf") if away else float.fromhex("0x1.fffffffffffffp+1023"))
    return sign * float(np.ldexp(np.float64(kept), unit))


def _rounds_up(kept: int, rest: int, drop: int, mode: str, negative: bool) -> bool:
    if not rest:
        return False
    if mode == "rn":
        half = 1 << (drop - 1)
        return rest > half or (rest == half and kept & 1 == 1)
    return (mode == "rm" and negative) or (mode == "rp" and not negative)
