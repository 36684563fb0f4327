"""Arithmetic and conversions of PTX 9.1 to 9.5 against integers and fractions: packed bytes, carry-less products, pairs
of mixed width, conversions with scales."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from binary_formats import BF16, F16, F32, Format, is_nan, negative
from interpreted import Array, apply
from narrow_formats import ELEMENTS, bits, nearest, tried, values

RANDOM = np.random.default_rng(95)
RUBIN = "sm_107a"


def words(count: int = 400) -> Array:
    """Random words, with the ends of bytes and of halves mixed in."""
    ends = [0, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x80808080, 0x7F7F7F7F, 0x80008000, 0x7FFF7FFF, 0xFFFFFFFF]
    found = RANDOM.integers(0, 1 << 32, count).astype(np.uint32)
    found[: len(ends)] = ends
    return RANDOM.permutation(found)


def elements(word: int, type: str) -> list[int]:
    """The integers of a word, from the low end."""
    kind, size, count = type[0], *map(int, type[1:].split("x"))
    found = [word >> size * i & (1 << size) - 1 for i in range(count)]
    return [v - (1 << size) if kind == "s" and v >> size - 1 else v for v in found]


def packed(numbers: Sequence[int], type: str) -> int:
    size = int(type[1:].split("x")[0])
    return sum((v & (1 << size) - 1) << size * i for i, v in enumerate(numbers))


def clamped(value: int, type: str) -> int:
    size = int(type[1:].split("x")[0])
    low, top = (-(1 << size - 1), (1 << size - 1) - 1) if type[0] == "s" else (0, (1 << size) - 1)
    return min(max(value, low), top)


BINARY: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "min": min, "max": max,
}  # fmt: skip


@pytest.mark.parametrize(
    ("opcode", "types"),
    [
        ("add", "u8x4 s8x4"), ("add.sat", "u8x4 s8x4 u16x2 s16x2"), ("sub", "u8x4 s8x4"), ("sub.sat", "u8x4 s8x4"),
        ("min", "u8x4 s8x4"), ("max", "u8x4 s8x4"), ("min.relu", "s8x4"), ("max.relu", "s8x4"),
    ],
)  # fmt: skip
def test_integers_that_share_a_word(opcode: str, types: str) -> None:
    root, _, how = opcode.partition(".")
    for type in types.split():
        a, b = words(), words()
        got = apply(f"{opcode}.{type} %d, %a, %b;", "u4", a, b, target=RUBIN)
        for x, y, d in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
            results = [BINARY[root](p, q) for p, q in zip(elements(x, type), elements(y, type), strict=True)]
            results = [clamped(v, type) for v in results] if how == "sat" else results
            assert d == packed([max(v, 0) for v in results] if how == "relu" else results, type)


def test_bytes_negated_and_unsigned_sums_clamped() -> None:
    a, b = words(), words()
    got = apply("neg.s8x4 %d, %a;", "u4", a, target=RUBIN)
    assert got.tolist() == [packed([-v for v in elements(x, "s8x4")], "s8x4") for x in a.tolist()]
    got = apply("add.sat.u32 %d, %a, %b;", "u4", a, b, target=RUBIN)
    assert got.tolist() == [min(x + y, (1 << 32) - 1) for x, y in zip(a.tolist(), b.tolist(), strict=True)]


UNSIGNED = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}


@pytest.mark.parametrize("type", ["u8x4", "s8x4", "u16x2", "s16x2"])
def test_comparisons_of_integers_that_share_a_word(type: str) -> None:
    a, b = words(), words()
    b[::3] = a[::3]
    for name in ("eq", "ne", "lt", "le", "gt", "ge", *(UNSIGNED if type[0] == "u" else ())):
        compare = UNSIGNED.get(name) or getattr(operator, name)
        got = apply(f"set.{name}.{type} %d, %a, %b;", "u4", a, b, target=RUBIN)
        for x, y, d in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
            holds = [compare(p, q) for p, q in zip(elements(x, type), elements(y, type), strict=True)]
            assert d == packed([-1 if h else 0 for h in holds], type), (name, hex(x), hex(y))


def test_products_without_carries() -> None:
    a, b, c = (RANDOM.integers(0, 1 << 64, 200, np.uint64) for _ in range(3))
    a[0] = b[1] = (1 << 64) - 1
    low, high = (apply(f"clmad.{part}.u64 %d, %a, %b, %c;", "u8", a, b, c).tolist() for part in ("lo", "hi"))
    for i, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
        product = 0
        for bit in range(64):
            product ^= (y << bit) * (x >> bit & 1)
        assert (low[i], high[i]) == (product & (1 << 64) - 1 ^ z, product >> 64 ^ z)


def exact(form: Format, word: int) -> Fraction | None:
    """A finite value; None for the others."""
    value = form.value(word)
    return None if isinstance(value, float) else Fraction(value)


def halved(words: Array, size: int) -> list[tuple[int, int]]:
    return [(w & (1 << size) - 1, w >> size) for w in words.tolist()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("narrow", [F16, BF16], ids=lambda f: f.name)
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_pairs_of_f32_with_pairs_of_halves(narrow: Format, mode: str) -> None:
    small = narrow.words()[:300].astype(np.uint32)
    a = small | RANDOM.permutation(small) << np.uint32(16)
    b, c = (F32.words()[:300].astype(np.uint64) | F32.words()[-300:].astype(np.uint64) << np.uint64(32) for _ in "bc")
    assert a.size == b.size == c.size
    full = f"f32x2.{narrow.name}x2.f32x2"
    functions: dict[str, tuple[str, Callable[..., Fraction], list[Array]]] = {
        "add": (full, operator.add, [a, c]),
        "sub": (full, operator.sub, [a, c]),
        "fma": (f"{full}.f32x2", lambda x, y, z: x * y + z, [a, b, c]),
    }
    for root, (types, function, operands) in functions.items():
        names = ", ".join(f"%{n}" for n in "abc"[: len(operands)])
        got = halved(apply(f"{root}.{mode}.{types} %d, {names};", "u8", *operands, target=RUBIN), 32)
        parts = [halved(w, 16 if i == 0 else 32) for i, w in enumerate(operands)]
        seen = 0
        for i, pair in enumerate(got):
            for half in (0, 1):
                inputs = [exact(narrow if k == 0 else F32, p[i][half]) for k, p in enumerate(parts)]
                if None not in inputs and (value := function(*inputs)):
                    seen += 1
                    assert pair[half] == F32.word(value, mode, int(value < 0)), (root, inputs)
        assert seen > 100


@pytest.mark.parametrize(("to", "words"), [(F16, "rz.ftz"), (BF16, "rz")], ids=["f16", "bf16"])
def test_pairs_of_halves_of_pairs_of_f32(to: Format, words: str) -> None:
    size = RANDOM.uniform(-2, 2, (2, 600)) * 2.0 ** RANDOM.integers(-20, 12, (2, 600))
    a, b = (x.astype(np.float32).view(np.uint64) for x in size)
    for root, function in (("add", operator.add), ("sub", operator.sub), ("mul", operator.mul)):
        got = halved(apply(f"{root}.{words}.{to.name}x2.f32x2.f32x2 %d, %a, %b;", "u4", a, b, target=RUBIN), 16)
        for pair, x, y in zip(got, halved(a, 32), halved(b, 32), strict=True):
            for half in (0, 1):
                value = function(Fraction(F32.value(x[half])), Fraction(F32.value(y[half])))
                expected = to.word(value, "rz", int(value < 0))
                tiny = "ftz" in words and 0 < abs(value) < Fraction(2) ** -14
                assert pair[half] == (expected & 0x8000 if tiny else expected)


def towards_zero(name: str, value: Fraction | float, sign: bool) -> int:
    """The code of the value next towards zero; as `nearest` for the others."""
    if isinstance(value, float):
        return nearest(name, value, sign)
    table = values(name)
    size = min(abs(value), table[-1])
    above = bisect_left(table, size)
    return above - (table[above] != size) | sign << bits(name) - 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("words", ["rz.satfinite", "rn.satfinite.pzo", "rz.satfinite.relu.pzo", "rn.satfinite.scaled"])
def test_narrow_floats_of_sm_107(name: str, words: str) -> None:
    """Rounded towards zero, without -0, divided by a power of two."""
    a = tried(name)
    b, held = RANDOM.permutation(a), 4 if name == "e2m1" else 8
    scales = RANDOM.integers(90, 160, a.size).astype(np.uint8)
    scales[:3] = 0, 254, 255
    scaled = words.endswith("scaled")
    code = {"rn": nearest, "rz": towards_zero}[words[:2]]

    def model(x: int, factor: int) -> int:
        sign, value = bool(negative(x, F32)), F32.value(x)
        if scaled:
            if factor == 255:
                return nearest(name, math.nan, False)
            value = Fraction(0) if not isinstance(value, float) and abs(value) < Fraction(2) ** -126 else value
            value = value if isinstance(value, float) else value / Fraction(2) ** (factor - 127)
        if "relu" in words and sign and not is_nan(F32, x):
            return 0
        found = code(name, value, sign)
        return 0 if "pzo" in words and found == 1 << bits(name) - 1 else found

    spelling = words.replace("scaled", "scaled::n1::ue8m0")
    operands = [a, b, scales] if scaled else [a, b]
    names = "%a, %b, %c" if scaled else "%a, %b"
    got = apply(f"cvt.{spelling}.{name}x2.f32 %d, {names};", f"u{held // 4}", *operands, target=RUBIN)
    rows = zip(a.view("u4").tolist(), b.view("u4").tolist(), scales.tolist(), got.tolist(), strict=True)
    for x, y, factor, d in rows:
        expected = model(x, factor) << held | model(y, factor)
        if scaled and factor == 255:
            signs = (1 << bits(name) - 1) * ((1 << held) + 1)
            expected, d = expected & ~signs, d & ~signs
        assert d == expected, (hex(x), hex(y), factor)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ELEMENTS)
def test_narrow_floats_from_and_to_bf16(name: str) -> None:
    halves = np.concatenate([np.arange(0, 1 << 16, 7), [0x7F80, 0xFF80, 0x7FFF]]).astype(np.uint32)
    held = 4 if name == "e2m1" else 8
    pairs = halves | halves[::-1] << np.uint32(16)
    got = apply(f"cvt.rn.satfinite.{name}x2.bf16x2 %d, %a;", f"u{held // 4}", pairs, target="sm_100a")
    codes = [nearest(name, BF16.value(int(x)), bool(x >> 15)) for x in halves]
    assert got.tolist() == [y << held | x for x, y in zip(codes, codes[::-1], strict=True)]
    codes = np.arange(0, 1 << 2 * held, 1 if held == 4 else 41).astype(f"u{held // 4}")
    scales = RANDOM.integers(100, 150, (2, codes.size))
    factors = (scales[0] << 8 | scales[1]).astype(np.uint16)
    got = halved(
        apply(f"cvt.rn.scaled::n2::ue8m0.bf16x2.{name}x2 %d, %a, %b;", "u4", codes, factors, target="sm_100a"), 16
    )
    table, sign = values(name), 1 << bits(name) - 1
    for code, (low, high), upper, lower in zip(codes.tolist(), got, *scales.tolist(), strict=True):
        for part, word, factor in ((code & (1 << held) - 1, low, lower), (code >> held, high, upper)):
            part &= 2 * sign - 1
            if part & sign - 1 < len(table):
                value = table[part & sign - 1] * Fraction(2) ** (factor - 127) * (-1 if part & sign else 1)
                assert word == BF16.word(value, "rn", int(bool(part & sign)))


@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_numbers_with_six_bits_behind_the_point(mode: str) -> None:
    a = np.concatenate([np.arange(-140, 140, 0.25) / 64, [np.inf, -np.inf, np.nan, 1e9]]).astype(np.float32)
    b = RANDOM.permutation(a)

    def model(x: float) -> int:
        if math.isnan(x):
            return 127
        size = math.copysign(1e9, x) if math.isinf(x) else float(x) * 64
        return min(max(round(size) if mode == "rn" else int(size), -128), 127) & 255

    got = apply(f"cvt.{mode}.satfinite.s2f6x2.f32 %d, %a, %b;", "u2", a, b, target=RUBIN)
    assert got.tolist() == [model(x) << 8 | model(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    factors = np.full(a.size, 126 << 8 | 128, np.uint16)
    spelling = f"cvt.{mode}.satfinite.scaled::n2::ue8m0.s2f6x2.f32"
    got = apply(f"{spelling} %d, %a, %b, %c;", "u2", a, b, factors, target=RUBIN)
    assert got.tolist() == [model(x * 2) << 8 | model(y / 2) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    codes = np.arange(1 << 16).astype(np.uint16)
    got = apply("cvt.rn.bf16x2.s2f6x2 %d, %a;", "u4", codes, target="sm_120a")
    back = [BF16.word(Fraction(v - 256 * (v > 127), 64), "rn", int(v > 127)) for v in range(256)]
    assert got.tolist() == [back[c >> 8] << 16 | back[c & 255] for c in codes.tolist()]


def test_no_negative_zero_in_halves() -> None:
    a = np.array([-1e-30, 1e-30, -0.0, 0.0, -1.0, np.nan, -np.inf], np.float32)
    for type, form in (("f16", F16), ("bf16", BF16)):
        tiny = a if type == "f16" else np.where(np.abs(a) == np.float32(1e-30), a * np.float32(1e-11), a)
        plain = apply(f"cvt.rn.{type}.f32 %d, %a;", "u2", tiny)
        got = apply(f"cvt.rn.pzo.{type}.f32 %d, %a;", "u2", tiny, target=RUBIN)
        assert got.tolist() == [0 if w == 0x8000 else w for w in plain.tolist()]
        assert 0x8000 in plain.tolist()
        assert form.value(int(got[4])) == -1
        pairs = apply(f"cvt.rn.pzo.{type}x2.f32 %d, %a, %b;", "u4", tiny, tiny[::-1].copy(), target=RUBIN)
        assert pairs.tolist() == [x << 16 | y for x, y in zip(got.tolist(), got.tolist()[::-1], strict=True)]
    tf32 = apply("cvt.rn.pzo.tf32.f32 %d, %a;", "u4", a * np.float32(1e-12), target=RUBIN)
    assert 0x80000000 not in tf32.tolist()


def test_every_ue5m3_as_a_half() -> None:
    codes = np.arange(1 << 16).astype(np.uint16)
    got = halved(apply("cvt.rn.f16x2.ue5m3x2 %d, %a;", "u4", codes, target=RUBIN), 16)
    table = [Fraction((code & 7) + 8 * (code > 7), 8) * Fraction(2) ** (max(code >> 3, 1) - 15) for code in range(255)]
    half = [F16.word(v, "rn", 0) for v in table] + [F16.nan]
    assert got == [(half[c & 255], half[c >> 8]) for c in codes.tolist()]
