"""Directed rounding of f64, of quotients and of roots, and the other forms of min and max, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from binary_formats import BF16, F16, F32, F64, Format, add, compare, fma, is_nan, multiply, negative
from interpreted import apply

random = np.random.default_rng(21)
MODES = ("rz", "rm", "rp")


def words(form: Format, count: int = 240) -> np.ndarray[tuple[int, ...], np.dtype[np.unsignedinteger]]:
    return form.words(count)


@pytest.mark.parametrize("mode", MODES)
def test_sums_products_and_fused_sums_of_f64(mode: str) -> None:
    a, b, c = words(F64), words(F64), words(F64)
    compare(f"mul.{mode}.f64", F64, lambda x, y: multiply(F64, x, y, mode), a, b)
    b[::5] = a[::5] ^ np.uint64(1 << 63)
    b[1::5] = a[1::5] + np.uint64(1)
    compare(f"add.{mode}.f64", F64, lambda x, y: add(F64, x, y, mode), a, b)
    compare(f"sub.{mode}.f64", F64, lambda x, y: add(F64, x, y ^ 1 << 63, mode), a, b)
    with np.errstate(all="ignore"):
        c[::3] = (-(a.view(np.float64) * b.view(np.float64))).view(np.uint64)[::3]
    compare(f"fma.{mode}.f64", F64, lambda x, y, z: fma(F64, x, y, z, mode), a, b, c)
    compare(f"mad.{mode}.f64", F64, lambda x, y, z: fma(F64, x, y, z, mode), a[:40], b[:40], c[:40])


def quotient(form: Format, x: int, y: int, mode: str) -> int:
    a, b = form.value(x), form.value(y)
    sign = negative(x, form) ^ negative(y, form)
    if a != a or b != b or (a == 0 and b == 0) or (isinstance(a, float) and isinstance(b, float)):
        return form.nan
    if isinstance(a, float) or b == 0:
        return form.infinity | sign << (form.bits - 1)
    return form.word(Fraction(0) if isinstance(b, float) else Fraction(a) / Fraction(b), mode, sign)


def square_root(form: Format, x: int, mode: str) -> int:
    """By integers: the root of the significand, scaled so that it has many more bits than the result."""
    value = form.value(x)
    if value == 0 or value != value:
        return x if value == 0 else form.nan
    if value < 0:
        return form.nan
    if isinstance(value, float):
        return form.infinity
    scaled = value * Fraction(2) ** 2400
    quotient = scaled.numerator // scaled.denominator
    root = math.isqrt(quotient)
    inexact = root * root != scaled
    return form.word(Fraction(2 * root + inexact, 2) / Fraction(2) ** 1200, mode)


@pytest.mark.parametrize("form", [F32, F64], ids=lambda f: f.name)
@pytest.mark.parametrize("mode", MODES)
def test_quotients_reciprocals_and_roots(form: Format, mode: str) -> None:
    a, b = words(form), words(form)
    b[::4] = form.words(60) & ~np.array((1 << form.mantissa // 2) - 1, b.dtype)
    compare(f"div.{mode}.{form.name}", form, lambda x, y: quotient(form, x, y, mode), a, b)
    one = form.word(Fraction(1))
    compare(f"rcp.{mode}.{form.name}", form, lambda x: quotient(form, one, x, mode), a)
    squares = [form.word(form.value(int(w)) ** 2) for w in b[::4] if isinstance(form.value(int(w)), Fraction)]
    a[: len(squares)] = squares
    compare(f"sqrt.{mode}.{form.name}", form, lambda x: square_root(form, x, mode), a)


def test_directed_f32_with_ftz() -> None:
    """Operands below the normal numbers count as zeros, and so do results."""
    a = np.array([0x00400000, 0x00C00000, 0x40400000], np.uint32)
    b = np.array([0x3F800000, 0x40800000, 0x40000000], np.uint32)
    assert apply("div.rp.ftz.f32 %d, %a, %b;", "u4", a, b).tolist() == [0, 0, 0x3FC00000]


def test_packed_f32() -> None:
    a, b, c = (F32.words(400).view(np.uint64) for _ in range(3))
    low, upper = (np.ascontiguousarray(v.view(np.uint32)) for v in (a, b))
    for name, count in (("add.rn.f32", 2), ("mul.rz.f32", 2), ("sub.rm.f32", 2), ("fma.rp.ftz.f32", 3)):
        operands = (low, upper, np.ascontiguousarray(c.view(np.uint32)))[:count]
        names = ", ".join(f"%{x}" for x in "abc"[:count])
        expected = apply(f"{name} %d, {names};", "u4", *operands)
        got = apply(f"{name}x2 %d, {names};", "u8", *(o.view(np.uint64) for o in operands))
        assert got.view(np.uint32).tolist() == expected.tolist()


@pytest.mark.parametrize("form", [F16, BF16, F32], ids=lambda f: f.name)
@pytest.mark.parametrize("nan", [False, True])
def test_magnitudes_with_the_sign_of_the_product(form: Format, nan: bool) -> None:
    a, b = words(form), words(form)
    sign = 1 << (form.bits - 1)

    def pick(x: int, y: int, larger: bool) -> int:
        if is_nan(form, x) or is_nan(form, y):
            if nan or (is_nan(form, x) and is_nan(form, y)):
                return form.nan
            return ((y if is_nan(form, x) else x) & ~sign) | ((x ^ y) & sign)
        best = (max if larger else min)(x & ~sign, y & ~sign)
        return best | ((x ^ y) & sign)

    for larger, name in enumerate(("min", "max")):
        spelling = f"{name}{'.NaN' if nan else ''}.xorsign.abs.{form.name}"
        compare(spelling, form, lambda x, y, m=bool(larger): pick(x, y, m), a, b)


@pytest.mark.parametrize("modifiers", ["", ".NaN", ".abs", ".NaN.abs"])
def test_the_largest_of_three(modifiers: str) -> None:
    a, b, c = (F32.words(300) for _ in range(3))
    x, y, z = (v.view(np.float32) for v in (a, b, c))
    with np.errstate(invalid="ignore"):
        rows = np.stack([np.abs(v) if ".abs" in modifiers else v for v in (x, y, z)]).astype(np.float64)
        for name in ("min", "max"):
            got = apply(f"{name}{modifiers}.f32 %d, %a, %b, %c;", "u4", a, b, c).view(np.float32)
            function = {"min": np.fmin, "max": np.fmax}[name] if ".NaN" not in modifiers else getattr(np, f"{name}imum")
            assert np.array_equal(got.astype(np.float64), function.reduce(rows), equal_nan=True)


@pytest.mark.parametrize("mode", ["rn", *MODES])
@pytest.mark.parametrize("type", ["s64", "u64"])
def test_wide_integers_to_f64(mode: str, type: str) -> None:
    values = random.integers(0, 1 << 64, 300, np.uint64, endpoint=False) >> random.integers(0, 40, 300).astype(
        np.uint64
    )
    values[:4] = [0, (1 << 64) - 1, 1 << 63, (1 << 53) + 1]
    signed = values.view(np.int64).tolist() if type == "s64" else values.tolist()
    got = apply(f"cvt.{mode}.f64.{type} %d, %a;", "u8", values)
    assert got.tolist() == [F64.word(Fraction(v), mode) for v in signed]
