"""Floating-point instructions and conversions against exact fractions, rounded once by the test's own code."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from binary_formats import (
    BF16,
    F16,
    F32,
    F64,
    FORMATS,
    Format,
    add,
    compare,
    fma,
    is_nan,
    multiply,
    negative,
)
from interpreted import apply
from numpy.typing import NDArray

Array = NDArray[Any]
random = np.random.default_rng(11)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", FORMATS, ids=lambda f: f.name)
def test_to_nearest(form: Format) -> None:
    a, b, c = form.words(), form.words(), form.words()
    b[::5] = a[::5] ^ (1 << (form.bits - 1))
    rn = ".rn" if form is not F16 and form is not BF16 else ""
    compare(f"add{rn}.{form.name}", form, lambda x, y: add(form, x, y), a, b)
    compare(
        f"sub{rn}.{form.name}",
        form,
        lambda x, y: add(form, x, y if is_nan(form, y) else y ^ 1 << (form.bits - 1)),
        a,
        b,
    )
    compare(f"mul{rn}.{form.name}", form, lambda x, y: multiply(form, x, y), a, b)
    compare(f"fma.rn.{form.name}", form, lambda x, y, z: fma(form, x, y, z), a, b, c)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_directed_f32(mode: str) -> None:
    a, b, c = F32.words(), F32.words(), F32.words()
    compare(f"mul.{mode}.f32", F32, lambda x, y: multiply(F32, x, y, mode), a, b)
    b[::5] = a[::5] ^ np.uint32(1 << 31)
    compare(f"add.{mode}.f32", F32, lambda x, y: add(F32, x, y, mode), a, b)
    compare(f"fma.{mode}.f32", F32, lambda x, y, z: fma(F32, x, y, z, mode), a, b, c)


def test_fma_rounds_once_where_f64_would_give_a_tie() -> None:
    """a * b is a tie of f32, and c, too small for f64 to keep beside it, decides."""
    a = np.array([0x3F800800] * 4, np.uint32)
    b = np.array([0x3F800800] * 4, np.uint32)
    c = np.array([0x00000001, 0x80000001, 0x20000000, 0xA0000000], np.uint32)
    compare("fma.rn.f32", F32, lambda x, y, z: fma(F32, x, y, z), a, b, c)
    one, half = np.array([0x3F80], np.uint16), np.array([0x0080], np.uint16)
    product = apply("fma.rn.bf16 %d, %a, %b, %c;", "u2", one | np.uint16(8), one | np.uint16(8), half)
    assert int(product[0]) == fma(BF16, 0x3F88, 0x3F88, 0x0080)


def test_fma_f64_with_extreme_exponents_and_cancellation() -> None:
    a, b = F64.words(300), F64.words(300)
    with np.errstate(all="ignore"):
        c = (-(a.view(np.float64) * b.view(np.float64))).view(np.uint64)
    compare("fma.rn.f64", F64, lambda x, y, z: fma(F64, x, y, z), a, b, c)


@pytest.mark.parametrize("form", FORMATS, ids=lambda f: f.name)
def test_min_max(form: Format) -> None:
    a, b = form.words(), form.words()

    def pick(x: int, y: int, larger: bool, nan: bool) -> int:
        if is_nan(form, x) or is_nan(form, y):
            other = y if is_nan(form, x) else x
            return form.nan if nan or is_nan(form, other) else other
        keys = [(form.value(w), -negative(w, form)) for w in (x, y)]
        best = max(keys) if larger else min(keys)
        return (x, y)[keys.index(best)]

    for larger, name in enumerate(("min", "max")):
        compare(f"{name}.{form.name}", form, lambda x, y, m=bool(larger): pick(x, y, m, False), a, b)
        if form is not F64:
            compare(f"{name}.NaN.{form.name}", form, lambda x, y, m=bool(larger): pick(x, y, m, True), a, b)


def test_ftz_flushes_operands_and_results() -> None:
    a, b = F32.words(), F32.words()

    def flush(word: int) -> int:
        return word & 0x80000000 if not word & 0x7F800000 else word

    compare("add.ftz.f32", F32, lambda x, y: flush(add(F32, flush(x), flush(y))), a, b)
    compare("mul.ftz.f32", F32, lambda x, y: flush(multiply(F32, flush(x), flush(y))), a, b)
    c = F32.words()
    compare("fma.rn.ftz.f32", F32, lambda x, y, z: flush(fma(F32, flush(x), flush(y), flush(z))), a, b, c)


def test_saturation_and_relu() -> None:
    a, b, c = F32.words(), F32.words(), F32.words()

    def saturate(word: int) -> int:
        value = F32.value(word)
        return 0 if value != value or value <= 0 else min(word, 0x3F800000)

    compare("add.sat.f32", F32, lambda x, y: saturate(add(F32, x, y)), a, b)
    compare("fma.rn.sat.f32", F32, lambda x, y, z: saturate(fma(F32, x, y, z)), a, b, c)
    a, b, c = F16.words(), F16.words(), F16.words()

    def relu(word: int) -> int:
        return word if is_nan(F16, word) or F16.value(word) > 0 else 0

    compare("fma.rn.relu.f16", F16, lambda x, y, z: relu(fma(F16, x, y, z)), a, b, c)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", [F16, BF16], ids=lambda f: f.name)
def test_packed(form: Format) -> None:
    low, upper = [form.words() for _ in range(3)], [form.words() for _ in range(3)]
    packed = [lo.astype(np.uint32) | up.astype(np.uint32) << 16 for lo, up in zip(low, upper, strict=True)]
    models: tuple[tuple[str, int, Callable[..., int]], ...] = (
        ("fma.rn", 3, fma),
        ("add", 2, add),
        ("mul", 2, multiply),
    )
    for name, count, model in models:
        got = apply(f"{name}.{form.name}x2 %d, {', '.join(['%a', '%b', '%c'][:count])};", "u4", *packed[:count])
        for i, word in enumerate(got.tolist()):
            halves: list[list[Any]] = [[int(v[i]) for v in words[:count]] for words in (low, upper)]
            assert word & 0xFFFF == model(form, *halves[0])
            assert word >> 16 == model(form, *halves[1])


@pytest.mark.parametrize("form", [F32, F64], ids=lambda f: f.name)
def test_div_sqrt_rcp_are_correctly_rounded(form: Format) -> None:
    a, b = form.words(), form.words()

    def divide(x: int, y: int) -> int:
        p, q, sign = form.value(x), form.value(y), negative(x, form) ^ negative(y, form)
        if p != p or q != q or (p == 0 and q == 0) or (isinstance(p, float) and isinstance(q, float)):
            return form.nan
        if isinstance(q, float):
            return sign << (form.bits - 1)
        if isinstance(p, float) or q == 0:
            return form.infinity | sign << (form.bits - 1)
        return form.word(p / q, "rn", sign)

    one = form.word(Fraction(1))
    compare(f"div.rn.{form.name}", form, divide, a, b)
    compare(f"rcp.rn.{form.name}", form, lambda x: divide(one, x), a)
    roots = apply(f"sqrt.rn.{form.name} %d, %a;", f"u{form.bits // 8}", a)
    for word, root in zip(a.tolist(), roots.tolist(), strict=True):
        value, result = form.value(word), form.value(root)
        if isinstance(value, float) or value <= 0:
            expected = form.infinity if value == math.inf else word if value == 0 else form.nan
            assert root == expected or (form is F64 and is_nan(form, root) and is_nan(form, expected))
        else:
            below, above = form.value(root - 1), form.value(root + 1)
            assert ((result + below) / 2) ** 2 <= value <= ((result + above) / 2) ** 2


@pytest.mark.parametrize(
    ("name", "function", "bound"),
    [
        ("ex2.approx.f32", np.exp2, 2.0**-22),
        ("lg2.approx.f32", np.log2, 2.0**-22),
        ("tanh.approx.f32", np.tanh, 2.0**-11),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x), 2.0**-22),
        ("rcp.approx.ftz.f32", lambda x: 1 / x, 2.0**-22),
        ("sqrt.approx.f32", np.sqrt, 2.0**-22),
        ("sin.approx.2pi.ftz.f32", lambda x: np.sin(2 * np.pi * x), 2.0**-20),
        ("cos.approx.2pi.ftz.f32", lambda x: np.cos(2 * np.pi * x), 2.0**-20),
    ],
)
def test_approximate_functions_stay_within_the_bound(
    name: str, function: Callable[[Array], Array], bound: float
) -> None:
    x = np.abs(random.standard_normal(500)).astype(np.float32) + np.float32(0.1)
    got = apply(f"{name} %d, %a;", "f4", x).astype(np.float64)
    exact = function(x.astype(np.float64))
    assert np.all(np.abs(got - exact) <= bound * np.maximum(np.abs(exact), 1))
    assert np.count_nonzero(got) == got.size


@pytest.mark.parametrize("form", FORMATS, ids=lambda f: f.name)
def test_abs_neg_touch_the_sign_and_make_nans_canonical(form: Format) -> None:
    a = form.words()
    sign = 1 << (form.bits - 1)
    compare(f"neg.{form.name}", form, lambda x: form.nan if is_nan(form, x) else x ^ sign, a)
    compare(f"abs.{form.name}", form, lambda x: form.nan if is_nan(form, x) else x & ~sign, a)


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x == x and y == y and x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "equ": lambda x, y: x != x or y != y or x == y,
    "neu": lambda x, y: x != y or x != x or y != y,
    "ltu": lambda x, y: not x >= y,
    "leu": lambda x, y: not x > y,
    "gtu": lambda x, y: not x <= y,
    "geu": lambda x, y: not x < y,
    "num": lambda x, y: x == x and y == y,
    "nan": lambda x, y: x != x or y != y,
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", FORMATS, ids=lambda f: f.name)
def test_setp(form: Format) -> None:
    a, b = form.words(300), form.words(300)
    b[::4] = a[::4]
    for word, holds in COMPARISONS.items():
        got = apply(f"setp.{word}.{form.name} %p1, %a, %b; selp.b32 %d, 1, 0, %p1;", "u4", a, b)
        expected = [int(holds(form.value(int(x)), form.value(int(y)))) for x, y in zip(a, b, strict=True)]
        assert got.tolist() == expected, word


# Conversions


@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("form", [F16, BF16], ids=lambda f: f.name)
def test_f32_to_halves(form: Format, mode: str) -> None:
    a, b = F32.words(), F32.words()
    a[::3] = random.integers(0x33000000, 0x47900000, a[::3].size)

    def model(x: int) -> int:
        return form.word(F32.value(x), mode, negative(x, F32))

    got = apply(f"cvt.{mode}.{form.name}.f32 %d, %a;", "u2", a)
    assert got.tolist() == [model(x) for x in a.tolist()]
    both = apply(f"cvt.{mode}.{form.name}x2.f32 %d, %a, %b;", "u4", a, b)
    assert both.tolist() == [model(x) << 16 | model(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]


@pytest.mark.parametrize("form", [F16, BF16, F32], ids=lambda f: f.name)
def test_wider_floats_are_exact(form: Format) -> None:
    a = form.words()
    a = a[[not is_nan(form, int(x)) for x in a]]
    for to in (F32, F64):
        if to.bits > form.bits:
            got = apply(f"cvt.{to.name}.{form.name} %d, %a;", f"u{to.bits // 8}", a)
            assert got.tolist() == [to.word(form.value(x), "rn", negative(x, form)) for x in a.tolist()]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_f64_to_f32(mode: str) -> None:
    a = F64.words()
    a[::2] = F32.words(a[::2].size).view(np.float32).astype(np.float64).view(np.uint64) ^ np.uint64(0x10000001)
    a = a[[not is_nan(F64, int(x)) for x in a]]
    got = apply(f"cvt.{mode}.f32.f64 %d, %a;", "u4", a)
    assert got.tolist() == [F32.word(F64.value(x), mode, negative(x, F64)) for x in a.tolist()]


@pytest.mark.parametrize(
    ("conversion", "bits", "origin", "expected"),
    [
        ("cvt.rn.f32.f64", 32, [0x7FF0000000000001], [0x7FC00000]),
        ("cvt.rn.f16.f64", 16, [0x7FF0000000000001], [0x7E00]),
        ("cvt.rn.bf16.f64", 16, [0x7FF0000000000001], [0x7FC0]),
        ("cvt.f64.f32", 64, [0x7F87EA7B, 0xFFE6B1F8], [0x7FF8FD4F60000000, 0xFFFCD63F00000000]),
        ("cvt.ftz.f64.f32", 64, [0x7F87EA7B, 0xFFE6B1F8], [0x7FFFFFFFE0000000] * 2),
        ("cvt.f64.f16", 64, [0xFD4D, 0x7C01], [0xFFFD340000000000, 0x7FF8040000000000]),
        ("cvt.f64.bf16", 64, [0x7F81, 0xFFED], [0x7FF8200000000000, 0xFFFDA00000000000]),
        ("cvt.f32.bf16", 32, [0x7F81, 0xFFED], [0x7F810000, 0xFFED0000]),
        ("cvt.f32.f16", 32, [0xFD4D, 0x7C01], [0x7FFFFFFF] * 2),
        ("cvt.f32.f32", 32, [0x7F87EA7B, 0xFFE6B1F8], [0x7F87EA7B, 0xFFE6B1F8]),
        ("cvt.f16.f16", 16, [0xFD4D, 0x7C01, 0x8001], [0x7FFF, 0x7FFF, 0x8001]),
        ("cvt.ftz.f32.f16", 32, [0x832B, 0x0001], [0xB84AC000, 0x33800000]),
        ("cvt.rn.ftz.f32.f64", 32, [0x7FF0000000000001], [0x7FC00000]),
        ("cvt.rm.ftz.f16.f32", 16, [0x802FFE8D], [0x8001]),
        ("cvt.rn.relu.bf16.f32", 16, [0x80000000], [0]),
        ("neg.f64", 64, [0x7FF0000000000001], [0x7FF8000000000001]),
        ("sqrt.rn.f64", 64, [0xBFB23757D8CC784C], [0xFFF8000000000000]),
    ],
)
def test_nans_and_zeros_as_an_h200_answers(conversion: str, bits: int, origin: list[int], expected: list[int]) -> None:
    size = int(conversion.rpartition("f")[2]) // 8
    got = apply(f"{conversion} %d, %a;", f"u{bits // 8}", np.array(origin, f"u{size}"))
    assert [hex(x) for x in got.tolist()] == [hex(x) for x in expected]


INTEGERS = [f"{s}{n}" for n in (16, 32, 64) for s in "us"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", [F16, F32, F64], ids=lambda f: f.name)
@pytest.mark.parametrize("to", INTEGERS)
def test_floats_to_integers(form: Format, to: str) -> None:
    bits = int(to[1:])
    low, top = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    a = form.words()
    rounds: dict[str, Callable[[Fraction], int]] = {"rni": round, "rzi": int, "rmi": math.floor, "rpi": math.ceil}
    for mode, rounding in rounds.items():
        got = apply(f"cvt.{mode}.{to}.{form.name} %d, %a;", f"u{bits // 8}", a)
        for x, word in zip(a.tolist(), got.tolist(), strict=True):
            value = form.value(x)
            if value != value:
                expected = 1 << (bits - 1) if bits == 64 or form is F64 else 0
            elif isinstance(value, float):
                expected = top if value > 0 else low
            else:
                expected = min(max(rounding(Fraction(value)), low), top)
            assert word == expected & ((1 << bits) - 1), (mode, hex(x))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", [F16, F32, F64], ids=lambda f: f.name)
@pytest.mark.parametrize("to", ["u8", "s8", *INTEGERS])
def test_floats_beside_the_ends_of_integers(form: Format, to: str) -> None:
    """Numbers around the least and the greatest integer, and around zero; 8 bits are extended in their register."""
    bits = int(to[1:])
    low, top = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    values = [Fraction(n, 4) for end in (low, 0, top) for n in range(4 * end - 9, 4 * end + 10)]
    words = {form.word(x, mode) for x in values for mode in ("rm", "rp")}
    near = {w + step for w in words for step in (-1, 0, 1) if 0 <= w + step < 1 << form.bits}
    a = np.array(sorted(w for w in near if isinstance(form.value(w), Fraction)), f"u{form.bits // 8}")
    rounds: dict[str, Callable[[Fraction], int]] = {"rni": round, "rzi": int, "rmi": math.floor, "rpi": math.ceil}
    wide = max(bits, 16)
    for mode, rounding in rounds.items():
        got = apply(f"cvt.{mode}.{to}.{form.name} %d, %a;", f"u{wide // 8}", a)
        expected = [min(max(rounding(Fraction(form.value(x))), low), top) for x in a.tolist()]
        assert got.tolist() == [x & ((1 << wide) - 1) for x in expected], mode


@pytest.mark.parametrize("form", [F16, F32, F64], ids=lambda f: f.name)
@pytest.mark.parametrize("origin", INTEGERS)
def test_integers_to_saturated_floats(form: Format, origin: str) -> None:
    bits = int(origin[1:])
    a = np.array([0, 1, 2, 3, (1 << bits) - 1, (1 << bits - 1) - 1, 1 << bits - 1], f"u{bits // 8}")
    values = (a.view(f"i{bits // 8}") if origin[0] == "s" else a).tolist()
    for mode in ("rn", "rz") if form in (F32, F64) else ("rn",):
        got = apply(f"cvt.{mode}.sat.{form.name}.{origin} %d, %a;", f"u{form.bits // 8}", a)
        assert got.tolist() == [form.word(Fraction(min(max(v, 0), 1)), mode) for v in values]


@pytest.mark.parametrize("form", [F16, BF16, F32, F64], ids=lambda f: f.name)
@pytest.mark.parametrize("origin", INTEGERS)
def test_integers_to_floats(form: Format, origin: str) -> None:
    bits = int(origin[1:])
    a = (random.integers(0, 1 << 63, 300, np.uint64) * np.uint64(2)).astype(f"u{bits // 8}")
    a ^= np.array(1, a.dtype)
    a[::2] >>= np.array(bits // 2, a.dtype)
    a[:3] = [0, (1 << bits) - 1, 1 << (bits - 1)]
    values = a.view(f"i{bits // 8}") if origin[0] == "s" else a
    for mode in ("rn", "rz", "rm", "rp") if form is F32 else ("rn",):
        got = apply(f"cvt.{mode}.{form.name}.{origin} %d, %a;", f"u{form.bits // 8}", a)
        assert got.tolist() == [form.word(Fraction(v), mode) for v in values.tolist()]


def test_floats_to_whole_floats() -> None:
    a = F32.words()
    rounds: dict[str, Callable[[Fraction], int]] = {"rni": round, "rzi": int, "rmi": math.floor, "rpi": math.ceil}
    for mode, rounding in rounds.items():

        def model(x: int, nearest: Callable[[Fraction], int] = rounding) -> int:
            value = F32.value(x)
            return F32.word(
                value if isinstance(value, float) else Fraction(nearest(Fraction(value))), "rn", negative(x, F32)
            )

        compare(f"cvt.{mode}.f32.f32", F32, model, a)


def test_integers_change_width_with_and_without_saturation() -> None:
    a = random.integers(-(2**31), 2**31, 400).astype(np.int32)
    a[::2] >>= 20
    words = a.view(np.uint32)
    assert apply("cvt.u16.u32 %d, %a;", "u2", words).tolist() == (words & 0xFFFF).tolist()
    assert apply("cvt.s64.s32 %d, %a;", "i8", words).tolist() == a.tolist()
    assert apply("cvt.u64.u32 %d, %a;", "u8", words).tolist() == words.tolist()
    assert apply("cvt.s32.s8 %d, %a;", "i4", words).tolist() == a.astype(np.int8).tolist()
    assert apply("cvt.sat.u8.s32 %d, %a;", "u4", words).tolist() == np.clip(a, 0, 255).tolist()
    assert apply("cvt.sat.s16.s32 %d, %a;", "i2", words).tolist() == np.clip(a, -32768, 32767).tolist()
