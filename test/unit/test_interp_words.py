"""Carries, byte and half operations, comparison into registers, and narrow formats, against integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from binary_formats import BF16, F16, F32, F64, Format, is_nan
from interpreted import apply
from numpy.typing import NDArray

Array = NDArray[np.generic]
random = np.random.default_rng(31)


def words(bits: int, count: int = 200) -> NDArray[np.unsignedinteger]:
    """Random bits, small and large numbers among them."""
    values = random.integers(0, (1 << 64) - 1, count, np.uint64) >> random.integers(64 - bits, 64, count).astype(
        np.uint64
    )
    values[: count // 4] = (1 << bits) - 1 - (values[: count // 4] & np.uint64(7))
    return random.permutation(values).astype(f"u{bits // 8}")


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


# Carries


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("operation", ["add", "sub"])
def test_three_words_with_carries(bits: int, operation: str) -> None:
    """Numbers of three words; the last instruction takes the carry and gives none."""
    type = f"u{bits}" if operation == "add" else f"s{bits}"
    a, b, c, d = (words(bits) for _ in range(4))
    text = f"""{operation}.cc.{type} %x, %a, %b; {operation}c.cc.{type} %y, %c, %e; {operation}c.{type} %z, 5, 3;
        xor.b{bits} %d, %x, %y; xor.b{bits} %d, %d, %z;"""
    got = apply(text, f"u{bits // 8}", a, b, c, d, keep=f".reg .b{bits} %x; .reg .b{bits} %y; .reg .b{bits} %z;")
    low = (1 << bits) - 1
    for result, *v in zip(got.tolist(), a.tolist(), b.tolist(), c.tolist(), d.tolist(), strict=True):
        x, y = v[0] | v[2] << bits | 5 << 2 * bits, v[1] | v[3] << bits | 3 << 2 * bits
        total = x + y if operation == "add" else x - y
        assert result == (total & low) ^ (total >> bits & low) ^ (total >> 2 * bits & low)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("first", ["add", "sub"])
@pytest.mark.parametrize("second", ["add", "sub"])
def test_the_flag_is_the_carry_of_an_adder(bits: int, first: str, second: str) -> None:
    """A difference adds the complement and 1: no borrow is a flag of 1, also to a sum that reads it."""
    a, b, c, d = (words(bits) for _ in range(4))
    text = f"{first}.cc.u{bits} %x, %a, %b; {second}c.u{bits} %d, %c, %e;"
    got = apply(text, f"u{bits // 8}", a, b, c, d, keep=f".reg .b{bits} %x;")
    low = (1 << bits) - 1
    for result, x, y, z, w in zip(*(v.tolist() for v in (got, a, b, c, d)), strict=True):
        flag = (x + y >> bits) if first == "add" else x + (low ^ y) + 1 >> bits
        assert result == (z + (w if second == "add" else low ^ w) + flag) & low


@pytest.mark.parametrize("type", ["u32", "s32", "u64", "s64"])
def test_products_with_carries(type: str) -> None:
    """(a * b) + c of twice the width, by its halves: `mad.lo.cc` and `madc.hi`."""
    bits = int(type[1:])
    a, b, c, e = (words(bits) for _ in range(4))
    text = f"mad.lo.cc.{type} %x, %a, %b, %c; madc.hi.cc.{type} %d, %a, %b, %e; addc.u32 %r9, 0, 0;"
    low = apply(text.replace("%d", "%q").replace("%x", "%d"), f"u{bits // 8}", a, b, c, e, keep=f".reg .b{bits} %q;")
    upper = apply(text, f"u{bits // 8}", a, b, c, e, keep=f".reg .b{bits} %x;")
    carry = apply(f"{text.replace('%d', '%q')} mov.u32 %d, %r9;", "u4", a, b, c, e, keep=f".reg .b{bits} %x, %q;")
    for result, *v in zip(
        zip(low, upper, carry, strict=True), a.tolist(), b.tolist(), c.tolist(), e.tolist(), strict=True
    ):
        x, y = (signed(n, bits) if type[0] == "s" else n for n in v[:2])
        total = (x * y & (1 << 2 * bits) - 1) + v[2] + (v[3] << bits)
        mask = (1 << bits) - 1
        assert [int(n) for n in result] == [total & mask, total >> bits & mask, total >> 2 * bits]


# Integers


@pytest.mark.parametrize("type", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_sums_of_absolute_differences(type: str) -> None:
    bits = int(type[1:])
    a, b, c = (words(bits) for _ in range(3))
    got = apply(f"sad.{type} %d, %a, %b, %c;", f"u{bits // 8}", a, b, c)
    for result, *v in zip(got.tolist(), a.tolist(), b.tolist(), c.tolist(), strict=True):
        x, y = (signed(n, bits) if type[0] == "s" else n for n in v[:2])
        assert result == (v[2] + abs(x - y)) & ((1 << bits) - 1)


@pytest.mark.parametrize("kinds", [("u32", "u32"), ("s32", "u32"), ("u32", "s32"), ("s32", "s32")])
def test_dot_products_of_bytes(kinds: tuple[str, str]) -> None:
    a, b, c = (words(32) for _ in range(3))
    x, y = (
        v.view("i1" if k == "s32" else "u1").reshape(-1, 4).astype(np.int64) for v, k in zip((a, b), kinds, strict=True)
    )
    types = ".".join(kinds)
    expected = ((x * y).sum(axis=1) + c).astype(np.uint32)
    assert np.array_equal(apply(f"dp4a.{types} %d, %a, %b, %c;", "u4", a, b, c), expected)
    halves = a.view("i2" if kinds[0] == "s32" else "u2").reshape(-1, 2).astype(np.int64)
    for name, part in (("lo", y[:, :2]), ("hi", y[:, 2:])):
        expected = ((halves * part).sum(axis=1) + c).astype(np.uint32)
        assert np.array_equal(apply(f"dp2a.{name}.{types} %d, %a, %b, %c;", "u4", a, b, c), expected)


@pytest.mark.parametrize("type", ["u16x2", "s16x2"])
def test_pairs_of_halves(type: str) -> None:
    a, b = words(32), words(32)
    x, y = (v.view("i2" if type[0] == "s" else "u2") for v in (a, b))
    for name, function in (("add", np.add), ("min", np.minimum), ("max", np.maximum)):
        assert np.array_equal(apply(f"{name}.{type} %d, %a, %b;", "u4", a, b), function(x, y).view(np.uint32))
    if type[0] == "s":
        expected = np.maximum(np.minimum(x, y), 0).view(np.uint32)
        assert np.array_equal(apply("min.relu.s16x2 %d, %a, %b;", "u4", a, b), expected)
        z, w = a.view(np.int32), b.view(np.int32)
        assert np.array_equal(apply("max.relu.s32 %d, %a, %b;", "i4", z, w), np.maximum(np.maximum(z, w), 0))


def test_masks_and_extensions() -> None:
    a, b = words(32), random.integers(0, 70, 200).astype(np.uint32)
    b[:4] = [0, 32, 0xFFFFFFFF, 31]
    start = random.integers(0, 40, 200).astype(np.uint32)
    for mode in ("clamp", "wrap"):
        amount = [min(n, 32) if mode == "clamp" else n & 31 for n in b.tolist()]
        place = [min(n, 32) if mode == "clamp" else n & 31 for n in start.tolist()]
        got = apply(f"bmsk.{mode}.b32 %d, %a, %b;", "u4", start, b)
        assert got.tolist() == [((1 << n) - 1 << s) & 0xFFFFFFFF for s, n in zip(place, amount, strict=True)]
        for type in ("u32", "s32"):
            got = apply(f"szext.{mode}.{type} %d, %a, %b;", "u4", a, b)
            fields = [(v & (1 << n) - 1, n) for v, n in zip(a.tolist(), amount, strict=True)]
            wide = [signed(v, n) & 0xFFFFFFFF if type == "s32" and n else v for v, n in fields]
            assert got.tolist() == wide


PERMUTED = {
    "f4e": ["3210", "4321", "5432", "6543"],
    "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"],
    "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"],
    "rc16": ["1010", "3232", "1010", "3232"],
}
"""Which bytes, from the highest on, each mode of `prmt` picks (the ISA's table)."""


@pytest.mark.parametrize("mode", PERMUTED)
def test_byte_permutations_by_mode(mode: str) -> None:
    a, b, c = words(32), words(32), words(32)
    got = apply(f"prmt.b32.{mode} %d, %a, %b, %c;", "u4", a, b, c)
    for result, x, y, select in zip(got.tolist(), a.tolist(), b.tolist(), c.tolist(), strict=True):
        data = (x | y << 32).to_bytes(8, "little")
        assert result == int.from_bytes(bytes(data[int(n)] for n in PERMUTED[mode][select & 3]), "big")


def test_truth_tables_with_a_predicate() -> None:
    a, b = words(32), words(32)
    b[::3] = ~a[::3]
    for merge, function in (("and", np.logical_and), ("or", np.logical_or)):
        text = f"setp.gt.u32 %p2, %a, 1000; lop3.{merge}.b32 %d|%p1, %a, %b, 0, 0xC0, !%p2; @%p1 xor.b32 %d, %d, -1;"
        both = a & b
        expected = np.where(function(both != 0, a <= 1000), ~both, both)
        assert np.array_equal(apply(text, "u4", a, b), expected)


# Comparison


def holds(form: Format, word: str, x: int, y: int) -> bool:
    """A comparison of two words."""
    unordered = is_nan(form, x) or is_nan(form, y)
    if word in ("num", "nan"):
        return unordered == (word == "nan")
    if unordered:
        return word[-1] == "u" and word != "u"
    a, b = form.value(x), form.value(y)
    base = word.removesuffix("u") if word not in ("eq", "ne", "lt", "le", "gt", "ge") else word
    return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[base]


FLOAT_WORDS = ("eq", "ne", "lt", "ge", "equ", "neu", "gtu", "leu", "num", "nan")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", [F16, BF16], ids=lambda f: f.name)
@pytest.mark.parametrize("word", FLOAT_WORDS)
def test_comparisons_of_pairs(form: Format, word: str) -> None:
    a, b = (form.words(200).view(np.uint32) for _ in range(2))
    b[::4] = a[::4]
    kind = f"{form.name}x2"
    text = f"mov.u32 %d, 0; setp.{word}.{kind} %p1|%p2, %a, %b; @%p1 or.b32 %d, %d, 1; @%p2 or.b32 %d, %d, 2;"
    ones = apply(f"set.{word}.{kind}.{kind} %d, %a, %b;", "u4", a, b)
    masks = apply(f"setp.eq.b32 %p1, %a, %b; set.{word}.xor.u32.{kind} %d, %a, %b, %p1;", "u4", a, b)
    one = form.word(Fraction(1))
    for x, y, flags, value, mask in zip(
        a.tolist(), b.tolist(), apply(text, "u4", a, b).tolist(), ones, masks, strict=True
    ):
        halves = [holds(form, word, x >> s & 0xFFFF, y >> s & 0xFFFF) for s in (0, 16)]
        assert flags == halves[0] + 2 * halves[1]
        assert int(value) == sum(one << s for s, h in zip((0, 16), halves, strict=True) if h)
        assert int(mask) == sum(0xFFFF << s for s, h in zip((0, 16), halves, strict=True) if h != (x == y))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("form", "to"), [(F32, "f32"), (F32, "s32"), (F64, "u32"), (F16, "u16"), (F16, "f16")])
def test_comparisons_into_registers(form: Format, to: str) -> None:
    a, b = form.words(200), form.words(200)
    b[::4] = a[::4]
    true = {"f32": 0x3F800000, "f16": 0x3C00, "u16": 0xFFFF}.get(to, 0xFFFFFFFF)
    size = int(to[1:]) // 8
    for word in FLOAT_WORDS:
        got = apply(f"set.{word}.{to}.{form.name} %d, %a, %b;", f"u{size}", a, b)
        assert got.tolist() == [true * holds(form, word, x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    x, y = words(32), words(32)
    assert (
        apply("set.lt.s32.s32 %d, %a, %b;", "i4", x, y).tolist()
        == (-(x.view("i4") < y.view("i4")).astype(int)).tolist()
    )
    assert apply("set.hi.f32.u32 %d, %a, %b;", "f4", x, y).tolist() == (x > y).astype(float).tolist()
    assert (
        apply("set.ge.bf16.s32 %d, %a, %b;", "u2", x, y).tolist() == (0x3F80 * (x.view("i4") >= y.view("i4"))).tolist()
    )


def test_comparisons_with_ftz() -> None:
    """Subnormal numbers count as zeros."""
    a = np.array([0x00000001, 0x80700000, 0x00800000, 0x00000001], np.uint32)
    b = np.array([0x80000000, 0x00000010, 0x00000001, 0x00800000], np.uint32)
    assert apply("setp.eq.ftz.f32 %p1, %a, %b; selp.u32 %d, 1, 0, %p1;", "u4", a, b).tolist() == [1, 1, 0, 0]
    assert apply("setp.lt.f32 %p1, %a, %b; selp.u32 %d, 1, 0, %p1;", "u4", a, b).tolist() == [0, 1, 0, 1]


def test_selection_by_sign_and_kinds_of_numbers() -> None:
    a, b, c = words(32), words(32), F32.words(200)
    values = [F32.value(w) for w in c.tolist()]
    got = apply("slct.b32.f32 %d, %a, %b, %c;", "u4", a, b, c)
    assert got.tolist() == [x if v >= 0 else y for x, y, v in zip(a.tolist(), b.tolist(), values, strict=True)]
    assert apply("slct.u32.s32 %d, %a, %b, %c;", "u4", a, b, c).tolist() == np.where(c.view("i4") >= 0, a, b).tolist()
    size = [w & 0x7FFFFFFF for w in c.tolist()]
    kinds: dict[str, Callable[[int], bool]] = {
        "finite": lambda w: w < 0x7F800000,
        "infinite": lambda w: w == 0x7F800000,
        "number": lambda w: w <= 0x7F800000,
        "notanumber": lambda w: w > 0x7F800000,
        "normal": lambda w: w == 0 or 0x00800000 <= w < 0x7F800000,
        "subnormal": lambda w: 0 < w < 0x00800000,
    }
    for name, test in kinds.items():
        got = apply(f"testp.{name}.f32 %p1, %a; selp.u32 %d, 1, 0, %p1;", "u4", c)
        assert got.tolist() == [int(test(w)) for w in size]


# Narrow formats

NARROW = {
    "e4m3": (ml_dtypes.float8_e4m3fn, 448.0, 0x7F),
    "e5m2": (ml_dtypes.float8_e5m2, 57344.0, 0x7F),
    "e2m3": (ml_dtypes.float6_e2m3fn, 7.5, 0x1F),
    "e3m2": (ml_dtypes.float6_e3m2fn, 28.0, 0x1F),
    "e2m1": (ml_dtypes.float4_e2m1fn, 6.0, 0x7),
}
"""ml_dtypes' type, the largest value, and what a NaN becomes."""


COUNTS = {"e4m3": 256, "e5m2": 256, "e2m3": 64, "e3m2": 64, "e2m1": 16}


def encoded(values: NDArray[np.float64], name: str, relu: bool) -> NDArray[np.uint8]:
    dtype, largest, nan = NARROW[name]
    clipped = np.clip(values, 0.0 if relu else -largest, largest)
    zero = np.where(np.signbit(values) & (not relu), -0.0, 0.0)
    exact = np.where(np.isnan(values), 0.0, np.where(clipped == 0, zero, clipped))
    return np.where(np.isnan(values), nan, exact.astype(dtype).view(np.uint8)).astype(np.uint8)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("relu", [False, True])
def test_pairs_of_narrow_floats(name: str, relu: bool) -> None:
    """Every f16 there is, in f16x2, and f32 around the ties."""
    bits = 4 if name == "e2m1" else 8
    size = 1 if bits == 4 else 2
    modifier = ".relu" if relu else ""
    every = np.arange(1 << 16, dtype=np.uint16)
    pairs = np.stack([every, every[::-1]], axis=1).reshape(-1).view(np.uint32)[::5].copy()
    halves = pairs.view(np.float16).astype(np.float64).reshape(-1, 2)
    if name not in ("e2m3", "e3m2"):  # which PTX 9.0 has from f32 alone
        got = apply(f"cvt.rn.satfinite{modifier}.{name}x2.f16x2 %d, %a;", f"u{size}", pairs)
        low, upper = encoded(halves[:, 0], name, relu), encoded(halves[:, 1], name, relu)
        assert np.array_equal(got, (upper.astype(got.dtype) << got.dtype.type(bits)) | low)
    exact = np.arange(COUNTS[name], dtype=np.uint8).view(NARROW[name][0]).astype(np.float32)
    ties = np.concatenate([exact, (exact[1:] + exact[:-1]) / 2])
    ties = ties[np.isfinite(ties)]
    near = [np.nextafter(ties, np.float32(sign * math.inf)) for sign in (1, -1)]
    special = np.array([math.inf, -math.inf, math.nan, 1e30, -0.0, 1e-40], np.float32)
    a = random.permutation(np.concatenate([ties, *near, special]))
    b = random.permutation(a)
    got = apply(f"cvt.rn.satfinite{modifier}.{name}x2.f32 %d, %a, %b;", f"u{size}", a, b)
    upper, low = (encoded(v.astype(np.float64), name, relu) for v in (a, b))
    assert np.array_equal(got, (upper.astype(got.dtype) << got.dtype.type(bits)) | low)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("relu", [False, True])
def test_narrow_floats_as_halves(name: str, relu: bool) -> None:
    codes = np.arange(COUNTS[name], dtype=np.uint8)
    exact = codes.view(NARROW[name][0]).astype(np.float16)
    if relu:
        exact = np.where(exact <= 0, np.float16(0), exact)
    expected = np.where(np.isnan(exact), 0x7FFF, exact.view(np.uint16)).astype(np.uint32)
    other = random.permutation(codes.size)
    pairs = (
        codes | codes[other] << 4 if name == "e2m1" else codes.astype("u2") | codes[other].astype("u2") << np.uint16(8)
    )
    got = apply(f"cvt.rn{'.relu' if relu else ''}.f16x2.{name}x2 %d, %a;", "u4", pairs)
    assert np.array_equal(got, expected | expected[other] << np.uint32(16))


@pytest.mark.parametrize(("mode", "rounding"), [("rna", "rna"), ("rn", "rn"), ("rz", "rz")])
@pytest.mark.parametrize("satfinite", [False, True])
def test_tf32(mode: str, rounding: str, satfinite: bool) -> None:
    form = Format("tf32", 8, 10, 0)
    a = F32.words(600)
    a[::3] = (a[::3] & ~np.uint32(0x1FFF)) | np.uint32(0x1000)
    a[:2] = [0x7F7FFFFF, 0xFF7FFFFF]
    got = apply(f"cvt.{mode}{'.satfinite' if satfinite else ''}.tf32.f32 %d, %a;", "u4", a)
    for result, word in zip(got.tolist(), a.tolist(), strict=True):
        value = F32.value(word)
        nan = word & 0xFFFFE000 if mode == "rna" else 0x7FFFE000
        expected = form.word(value, rounding, word >> 31) << 13 if value == value else nan
        beyond = 0x7F800000 if mode == "rna" else 0x7FFFE000  # the bits that say that a step back is to be taken
        if satfinite and expected & beyond == 0x7F800000:
            expected -= 1 << 13
        assert result == expected, hex(word)


def test_halves_stay_finite() -> None:
    a, b = F32.words(400), F32.words(400)
    for form in (F16, BF16):
        top = form.infinity - 1
        got = apply(f"cvt.rn.satfinite.{form.name}x2.f32 %d, %a, %b;", "u4", a, b)
        plain = apply(f"cvt.rn.{form.name}x2.f32 %d, %a, %b;", "u4", a, b).view(np.uint16)
        expected = np.where(plain & 0x7FFF == form.infinity, plain & 0x8000 | top, plain)
        assert np.array_equal(got.view(np.uint16), expected)
        alone = apply(f"cvt.rn.satfinite.{form.name}.f32 %d, %a;", "u2", a)
        assert np.array_equal(alone, got.view(np.uint16)[1::2])


@pytest.mark.parametrize("type", ["u16", "s16", "u8", "s8", "u4", "s4"])
def test_clamped_integers_are_packed(type: str) -> None:
    bits = int(type[1:])
    a, b = (random.integers(-(1 << bits + 1), 1 << bits + 1, 200).astype(np.int32) for _ in range(2))
    c = words(32)
    low, top = (-(1 << bits - 1), (1 << bits - 1) - 1) if type[0] == "s" else (0, (1 << bits) - 1)
    x, y = ((np.clip(v, low, top).astype(np.int64) & ((1 << bits) - 1)) for v in (a, b))
    if bits == 16:
        got, above = apply(f"cvt.pack.sat.{type}.s32 %d, %a, %b;", "u4", a, b), 0
    else:
        got = apply(f"cvt.pack.sat.{type}.s32.b32 %d, %a, %b, %c;", "u4", a, b, c)
        above = c.astype(np.int64) << 2 * bits
    assert np.array_equal(got, ((above | x << bits | y) & 0xFFFFFFFF).astype(np.uint32))
