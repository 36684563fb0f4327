"""Conversions to and from floats of 8, 6 and 4 bits and scales, of bf16, and with random bits: against fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from binary_formats import BF16, F16, F32, F64, Format, is_nan, negative
from interpreted import apply
from narrow_formats import ELEMENTS, bits, nearest, tried, values

GENERATOR = np.random.default_rng(91)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_pairs_of_narrow_floats_from_f32(name: str, relu: str) -> None:
    a = tried(name)
    b = GENERATOR.permutation(a)
    width = 4 if name == "e2m1" else 8

    def model(x: int) -> int:
        sign = negative(x, F32)
        value = F32.value(x)
        return 0 if relu and sign and not is_nan(F32, x) else nearest(name, value, bool(sign))

    got = apply(f"cvt.rn.satfinite{relu}.{name}x2.f32 %d, %a, %b;", f"u{width // 4}", a, b)
    codes = {int(x): model(int(x)) for x in a.view(np.uint32)}
    expected = [codes[int(x)] << width | codes[int(y)] for x, y in zip(a.view("u4"), b.view("u4"), strict=True)]
    assert got.tolist() == expected


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e2m1"])
def test_pairs_of_narrow_floats_from_halves(name: str) -> None:
    words = np.concatenate([np.arange(0, 1 << 16, 7), [0x7C00, 0xFC00, 0x7FFF]]).astype(np.uint32)
    width = 4 if name == "e2m1" else 8
    got = apply(f"cvt.rn.satfinite.{name}x2.f16x2 %d, %a;", f"u{width // 4}", words | words[::-1] << 16)
    codes = [nearest(name, F16.value(int(x)), bool(x >> 15)) for x in words]
    assert got.tolist() == [y << width | x for x, y in zip(codes, codes[::-1], strict=True)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_every_pair_of_narrow_floats_as_halves(name: str, relu: str) -> None:
    width, table, sign = (4 if name == "e2m1" else 8), values(name), 1 << bits(name) - 1
    pairs = np.arange(1 << 2 * width).astype(f"u{width // 4}")

    def model(code: int) -> int:
        size = code & sign - 1
        if size >= len(table):
            infinite = name == "e5m2" and size == 0x7C
            return (0 if relu and code & sign else 0x7C00 | (code & sign) << 8) if infinite else 0x7FFF
        if code & sign and relu:
            return 0
        return F16.word(table[size] * (-1 if code & sign else 1), "rn", int(bool(code & sign)))

    halves = [model(code & 2 * sign - 1) for code in range(1 << width)]
    got = apply(f"cvt.rn{relu}.f16x2.{name}x2 %d, %a;", "u4", pairs)
    assert got.tolist() == [halves[p >> width] << 16 | halves[p & (1 << width) - 1] for p in pairs.tolist()]


def scale(value: Fraction | float, mode: str, satfinite: bool) -> int:
    if isinstance(value, float):
        return 255 if math.isnan(value) or not satfinite else 254
    size = abs(value)
    power = size.numerator.bit_length() - size.denominator.bit_length() if size else -127
    code = min(max(0, power - (Fraction(2) ** power > size) + 127), 255)
    if mode == "rp" and size > Fraction(2) ** (code - 127):
        code += 1
    return min(code, 254 if satfinite else 255)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("satfinite", ["", ".satfinite"])
@pytest.mark.parametrize("mode", ["rz", "rp"])
def test_scales(mode: str, satfinite: str) -> None:
    powers = np.arange(0, 256, dtype=np.uint32) << 23
    a = np.concatenate(
        [F32.words()[:100], *(powers + d for d in (0, 1)), powers[1:] - 1, np.array([0x400000, 0x400001], np.uint32)]
    )
    b = GENERATOR.permutation(a)
    codes = {int(x): scale(F32.value(int(x)), mode, bool(satfinite)) for x in a}
    got = apply(f"cvt.{mode}{satfinite}.ue8m0x2.f32 %d, %a, %b;", "u2", a, b)
    assert got.tolist() == [codes[int(x)] << 8 | codes[int(y)] for x, y in zip(a, b, strict=True)]
    halves = np.arange(0, 1 << 16, 5).astype(np.uint32)
    got = apply(f"cvt.{mode}{satfinite}.ue8m0x2.bf16x2 %d, %a;", "u2", halves << 16)
    assert (got >> 8).tolist() == [scale(BF16.value(int(x)), mode, bool(satfinite)) for x in halves]
    pairs = np.arange(0, 1 << 16, 3).astype(np.uint16)
    wide = [0x7FFF if code == 255 else BF16.word(Fraction(2) ** (code - 127)) for code in range(256)]
    got = apply("cvt.rn.bf16x2.ue8m0x2 %d, %a;", "u4", pairs)
    assert got.tolist() == [wide[p >> 8] << 16 | wide[p & 255] for p in pairs.tolist()]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mode", ["", ".rn", ".rz", ".rm", ".rp"])
def test_bf16_in_every_rounding(mode: str) -> None:
    for name, form, width in (("f32", F32, 4), ("f64", F64, 8), ("f16", F16, 2)):
        if mode or name == "f16":
            a = form.words()
            a = a[[not is_nan(form, int(x)) for x in a]]
            got = apply(f"cvt{mode}.bf16.{name} %d, %a;", "u2", a)
            rounding = mode[1:] or "rn"
            assert got.tolist() == [BF16.word(form.value(int(x)), rounding, negative(int(x), form)) for x in a]
        if width != 2:
            a = BF16.words()
            a = a[[not is_nan(BF16, int(x)) for x in a]]
            got = apply(f"cvt{mode}.{name}.bf16 %d, %a;", f"u{width}", a)
            assert got.tolist() == [form.word(BF16.value(int(x)), "rn", negative(int(x), BF16)) for x in a]


def test_bf16_flushed() -> None:
    words = np.array([0x0001, 0x8001, 0x007F, 0x0080, 0x8080, 0x3F80], np.uint16)
    got = apply("cvt.ftz.f32.bf16 %d, %a;", "u4", words)
    assert got.tolist() == [0, 0x80000000, 0, 0x00800000, 0x80800000, 0x3F800000]


def neighbours(form: Format, value: Fraction) -> tuple[int, int]:
    """The words of the next values toward zero and away from it."""
    sign = int(value < 0)
    away = form.word(value, "rm" if sign else "rp", sign)
    return form.word(value, "rz", sign), away


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", [F16, BF16], ids=lambda f: f.name)
def test_random_bits_decide_between_two_neighbours(form: Format) -> None:
    """Nothing is cut off: the value itself. Else one neighbour for few bits, the other for many, and as often as it is
    near, over all 2^16 values."""
    a = GENERATOR.standard_normal(40).astype(np.float32)
    a[0], a[1], a[2] = 1.5, 0.0, -2.0
    for value in a:
        word = int(value.view(np.uint32))
        low, away = neighbours(form, Fraction(float(value)))
        numbers = np.arange(0, 1 << 16, 64, dtype=np.uint32)
        x = np.full(numbers.size, word, np.uint32)
        got = apply(f"cvt.rs.{form.name}x2.f32 %d, %a, %b, %c;", "u4", x, x, numbers << 16 | numbers)
        assert np.array_equal(got >> 16, got & 0xFFFF)
        assert set((got & 0xFFFF).tolist()) <= {low, away}
        if low == away:
            continue
        below, above = (abs(Fraction(form.value(w))) for w in (low, away))
        share = (abs(Fraction(float(value))) - below) / (above - below)
        assert abs(np.mean((got & 0xFFFF) == away) - float(share)) <= 2 / numbers.size
        assert np.all(np.diff((got & 0xFFFF) == away) <= 1)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_four_with_random_bits(name: str, relu: str) -> None:
    table, width = values(name), 4 if name == "e2m1" else 8
    inputs = tried(name)
    a, b, c, e = (GENERATOR.permutation(inputs) for _ in range(4))
    random = GENERATOR.integers(0, 1 << 32, a.size, np.uint32)
    keep = ".reg .b16 %q;" if name == "e2m1" else ""
    vector = "{%a, %b, %c, %e}"
    got = apply(
        f"cvt.rs.satfinite{relu}.{name}x4.f32 %d, {vector}, %f;", f"u{width // 2}", a, b, c, e, random, keep=keep
    )
    for word, bits_, *group in zip(got.tolist(), random.tolist(), a, b, c, e, strict=True):
        for place, value in enumerate(group):
            code = word >> width * (3 - place) & (1 << width) - 1
            if math.isnan(value):
                assert code == nearest(name, math.nan, False)
                continue
            sign = bool(np.signbit(value))
            if sign and relu:
                assert code == 0
                continue
            size = min(Fraction(abs(float(value))), table[-1]) if math.isfinite(value) else table[-1]
            below = max(i for i, v in enumerate(table) if v <= size)
            above = min(below + 1, len(table) - 1)
            part = 0 if below == above else (size - table[below]) / (table[above] - table[below])
            up = int(part * 256) + (bits_ >> 24 - 8 * place & 255) >= 256
            assert code == (above if up else below) | sign << bits(name) - 1
