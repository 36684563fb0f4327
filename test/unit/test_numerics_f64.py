"""Fused multiply-adds of f64 against fractions, in every rounding mode; NaNs by the rule read off an H200."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import FULL
from scalar_models import rounded

from warploom.dialect.isa import mma
from warploom.runtime.numerics import f64 as numerics_f64
from warploom.runtime.numerics.product import MatrixProduct

MODES = ("rn", "rz", "rm", "rp")
QUIET, INVALID = 1 << 51, 0xFFF8000000000000


def value(word: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", word))[0]


def word(number: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", number))[0]


def is_nan(bits: int) -> bool:
    return bits & ~(1 << 63) > 0x7FF << 52


def model(a: int, b: int, c: int, mode: str) -> int:
    for operand in (b, c, a):
        if is_nan(operand):
            return operand | QUIET
    x, y, z = value(a), value(b), value(c)
    infinite = [abs(v) == float("inf") for v in (x, y, z)]
    if any(infinite):
        if (infinite[0] and y == 0) or (infinite[1] and x == 0):
            return INVALID
        negative = bool((a ^ b) >> 63)
        if infinite[0] or infinite[1]:
            return INVALID if infinite[2] and bool(c >> 63) != negative else word(-np.inf if negative else np.inf)
        return c
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        signs = {bool((a ^ b) >> 63), bool(c >> 63)}
        alike = Fraction(x) * Fraction(y) == 0 and len(signs) == 1
        return word(-0.0 if (alike and True in signs) or (not alike and mode == "rm") else 0.0)
    result = rounded(exact, 52, -1022, 1023, mode)
    if isinstance(result, str):
        return word(float(result))
    return word(float(result)) if result else (1 << 63 if exact < 0 else 0)


def engine(a: int, b: int, c: int, mode: str) -> int:
    x, y, z = (np.array([7, w, 0x3FF0000000000000], np.uint64).view(np.float64) for w in (a, b, c))
    return int(numerics_f64.fma(x, y, z, mode).view(np.uint64)[1])


ANY = st.integers(0, (1 << 64) - 1)


def built(low: int, top: int) -> st.SearchStrategy[int]:
    """Words whose exponent fields lie in a range, many with short significands, for ties and exact sums."""
    tail = st.one_of(st.integers(0, (1 << 52) - 1), st.integers(0, 15).map(lambda n: n << 48), st.integers(0, 3))
    return st.builds(lambda s, e, m: s << 63 | e << 52 | m, st.integers(0, 1), st.integers(low, top), tail)


NEAR, TINY, HUGE = built(1000, 1050), built(0, 60), built(1980, 2046)
ZEROS = st.sampled_from([0, 1 << 63, 1, (1 << 63) + 1, 0x7FF << 52, 0xFFF << 52, 0x7FF4 << 48, 0xFFF8 << 48 | 5])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=400 if FULL else 100, deadline=None)
@given(data=st.data())
def test_one_multiply_add(mode: str, data: st.DataObject) -> None:
    kinds = [NEAR, TINY, HUGE, ZEROS, ANY, built(480, 560), built(0, 2046)]
    a, b, c = (data.draw(data.draw(st.sampled_from(kinds))) for _ in range(3))
    assert hex(engine(a, b, c, mode)) == hex(model(a, b, c, mode))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=200 if FULL else 50, deadline=None)
@given(a=NEAR, b=NEAR, difference=st.integers(-3, 3))
def test_cancellation(mode: str, a: int, b: int, difference: int) -> None:
    """C is nearly the negative of the product."""
    c = word(-(value(a) * value(b))) + difference
    assert hex(engine(a, b, c, mode)) == hex(model(a, b, c, mode))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("field", [0, 1, 2, 50, 2045, 2046])
def test_the_ends_of_the_range(mode: str, field: int) -> None:
    """Products around the least normal, the least subnormal and the largest number, with a nudge from C."""
    for factor in (word(1.0 + 2.0**-30), word(-0.5), word(2.0**-54), word(1.75)):
        for low in (3, 1 << 30, (1 << 52) - 1):
            for c in (0, 1, 1 << 63 | 1, word(2.0**-1074 * 7), word(-(2.0**-1030)), word(2.0**970)):
                b = field << 52 | low
                assert hex(engine(factor, b, c, mode)) == hex(model(factor, b, c, mode))


def test_the_mode_of_the_spelling_is_used_and_k_ascends() -> None:
    random = np.random.default_rng(1)
    shapes = ((8, 4, 2), (8, 4, 2), (8, 8, 2))
    a, b, c = (random.standard_normal((s[1], s[0], s[2])) for s in shapes)
    c = c.transpose(1, 0, 2).copy()
    for row in (r for r in mma.rows() if r.a.name == "f64" and r.shape == (8, 8, 4)):
        got = MatrixProduct.on("sm_90", row)(a.view(np.uint64), b.view(np.uint64), c.view(np.uint64))
        total = word(float(c[3, 5, 1]))
        for k in range(4):
            total = model(word(float(a[k, 3, 1])), word(float(b[k, 5, 1])), total, row.rounding or "rn")
        assert int(got[3, 5, 1]) == total
