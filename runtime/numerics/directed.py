"""Directed rounding of f64, and results of division and roots rounded to odd.

A result rounded to nearest says, with the sign of what it lacks, what every other rounding gives. The sign comes from
the error of a product that is computed exactly; where exponents are extreme, from fractions.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from . import floats
from .array import Array

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


def fma(a: Array, b: Array, c: Array, mode: str) -> Array:
    """a * b + c."""
    nearest = floats.fma64(a, b, c)
    everyone = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    lacking = _exactly(nearest, [a, b, c], everyone, _fused)
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
    extreme = _exactly(nearest, operands, ~plain & ~special, exact)
    return rounded(nearest, lacking + extreme, mode)


def _exactly(nearest: Array, operands: list[Array], chosen: Array, exact: Callable[..., int]) -> Array:
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
