"""Floats of 8, 6 and 4 bits in exact fractions, rounded by code of the tests' own."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ELEMENTS = {
    "e4m3": (4, 3, 0x7F),
    "e5m2": (5, 2, 0x7F),
    "e2m3": (2, 3, None),
    "e3m2": (3, 2, None),
    "e2m1": (2, 1, None),
}
"""Bits of exponent and mantissa, and the NaN."""


@cache
def values(name: str) -> list[Fraction]:
    """The magnitudes of a format, by their codes, from the definition of a binary format."""
    exponent, mantissa, nan = ELEMENTS[name]
    bias = (1 << exponent - 1) - 1
    numbers: list[Fraction] = []
    for code in range(1 << exponent + mantissa):
        field, fraction = code >> mantissa, code & (1 << mantissa) - 1
        if (name == "e4m3" and code == nan) or (name == "e5m2" and field == 31):
            break
        lead = Fraction(fraction + (1 << mantissa if field else 0), 1 << mantissa)
        numbers.append(lead * Fraction(2) ** (max(field, 1) - bias))
    return numbers


def bits(name: str) -> int:
    return 1 + ELEMENTS[name][0] + ELEMENTS[name][1]


def nearest(name: str, value: Fraction | float, sign: bool) -> int:
    """The code of the nearest value, ties to even codes; the largest for what is beyond it."""
    table, nan = values(name), ELEMENTS[name][2]
    if isinstance(value, float) and math.isnan(value):
        return len(table) - 1 if nan is None else nan
    size = table[-1] if isinstance(value, float) else min(abs(value), table[-1])
    above = bisect_left(table, size)
    code = min({max(above - 1, 0), above}, key=lambda i: (abs(table[i] - size), i & 1))
    return code | sign << bits(name) - 1


def tried(name: str) -> Array:
    """f32: all values of the format, what lies in the middle of two, a little beside both, and special ones."""
    table = np.array([float(v) for v in values(name)], np.float32)
    middle = (table[1:] + table[:-1]) / np.float32(2)
    exact = np.concatenate(
        [table, middle, table * np.float32(1.03), np.array([1e-30, 1e9, np.inf, np.nan, 0], np.float32)]
    )
    neighbours = [np.nextafter(exact, np.float32(to)) for to in (-1, 1)]
    all_ = np.concatenate([exact, *neighbours]).astype(np.float32)
    return np.concatenate([all_, -all_])
