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

from warploom.runtime.interp import InterpreterError

RANDOM = np.random.default_rng(95)
RUBIN = "sm_107a"


def words(count: int = 400) -> Array:
    """Random words, with the ends of bytes and of halves mixed in."""
    ends = [0, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x80808080, 0x7F7F7F7F, 0x80008000, 0x7FFF7FFF, 0xFFFFFFFF]
    words = RANDOM.integers(0, 1 << 32, count).astype(np.uint32)
    words[: len(ends)] = ends
    return RANDOM.permutation(words)


def elements(word: int, type: str) -> list[int]:
    """The integers of a word, from the low end."""
    kind, size, count = type[0], *map(int, type[1:].split("x"))
    parts = [word >> size * i & (1 << size) - 1 for i in range(count)]
    return [v - (1 << size) if kind == "s" and v >> size - 1 else v for v in parts]


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


@pytest.mark.sampled(2)
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


@pytest.mark.sampled(12)
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


@pytest.mark.sampled(2)
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


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("words", ["rz.satfinite", "rn.satfinite.pzo", "rz.satfinite.relu.pzo", "rn.satfinite.scaled"])
def test_narrow_floats_of_sm_107(name: str, words: str) -> None:
    """Rounded towards zero, without -0, divided by a power of two."""
    a = tried(name)
    b, width = RANDOM.permutation(a), 4 if name == "e2m1" else 8
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
        rounded_code = code(name, value, sign)
        return 0 if "pzo" in words and rounded_code == 1 << bits(name) - 1 else rounded_code

    spelling = words.replace("scaled", "scaled::n1::ue8m0")
    operands = [a, b, scales] if scaled else [a, b]
    names = "%a, %b, %c" if scaled else "%a, %b"
    got = apply(f"cvt.{spelling}.{name}x2.f32 %d, {names};", f"u{width // 4}", *operands, target=RUBIN)
    rows = zip(a.view("u4").tolist(), b.view("u4").tolist(), scales.tolist(), got.tolist(), strict=True)
    for x, y, factor, d in rows:
        expected = model(x, factor) << width | model(y, factor)
        if scaled and factor == 255:
            signs = (1 << bits(name) - 1) * ((1 << width) + 1)
            expected, d = expected & ~signs, d & ~signs
        assert d == expected, (hex(x), hex(y), factor)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ELEMENTS)
def test_narrow_floats_from_and_to_bf16(name: str) -> None:
    halves = np.concatenate([np.arange(0, 1 << 16, 7), [0x7F80, 0xFF80, 0x7FFF]]).astype(np.uint32)
    width = 4 if name == "e2m1" else 8
    pairs = halves | halves[::-1] << np.uint32(16)
    got = apply(f"cvt.rn.satfinite.{name}x2.bf16x2 %d, %a;", f"u{width // 4}", pairs, target="sm_100a")
    codes = [nearest(name, BF16.value(int(x)), bool(x >> 15)) for x in halves]
    assert got.tolist() == [y << width | x for x, y in zip(codes, codes[::-1], strict=True)]
    codes = np.arange(0, 1 << 2 * width, 1 if width == 4 else 41).astype(f"u{width // 4}")
    scales = RANDOM.integers(100, 150, (2, codes.size))
    factors = (scales[0] << 8 | scales[1]).astype(np.uint16)
    got = halved(
        apply(f"cvt.rn.scaled::n2::ue8m0.bf16x2.{name}x2 %d, %a, %b;", "u4", codes, factors, target="sm_100a"), 16
    )
    table, sign = values(name), 1 << bits(name) - 1
    for code, (low, high), upper, lower in zip(codes.tolist(), got, *scales.tolist(), strict=True):
        for part, word, factor in ((code & (1 << width) - 1, low, lower), (code >> width, high, upper)):
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


# Registers made sparse and dense again: PTX ISA 9.4, with the figures of its text.

KINDS = {"b16": ("f16", "bf16"), "b8": ("u8", "s8", "e5m2", "e4m3", "e3m2", "e2m3")}
EXPONENTS = {
    "f16": (16, 5),
    "bf16": (16, 8),
    "e5m2": (8, 5),
    "e4m3": (8, 4),
    "e3m2": (6, 3),
    "e2m3": (6, 2),
    "f32": (32, 8),
}


def order(code: int, kind: str) -> tuple[int, int] | None:
    """The magnitude and whether it is negative; None of a NaN."""
    if kind in ("u8", "s8"):
        value = code - 256 if kind == "s8" and code > 127 else code
        return abs(value), value < 0
    size, exponent = EXPONENTS[kind]
    magnitude, mantissa = code & (1 << size - 1) - 1, size - 1 - exponent
    infinity = 0x7E if kind == "e4m3" else ((1 << exponent) - 1) << mantissa
    if size > 6 and magnitude > infinity:
        return None
    return magnitude, bool(code >> size - 1 & 1)


def chosen(group: Sequence[int], kind: str, selection: str) -> list[int]:
    """The places of the two that stay."""

    def rank(place: int) -> tuple[int, int, int]:
        key = order(group[place], kind)
        if key is None:
            return (0, 0, place)
        magnitude, negative = key
        value = magnitude if "abs" in selection else 2 * -magnitude - 1 if negative else 2 * magnitude
        return (1, value if selection.startswith("min") else -value, place)

    return sorted(sorted(range(4), key=rank)[:2])


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("index", [2, 4])
def test_two_of_four_elements_stay(bits: int, index: int) -> None:
    drawn = [words(256) for _ in range(4)]
    kinds = KINDS[f"b{bits}"]
    narrow = RANDOM.integers(0, len(kinds), 256)
    for word in drawn:
        word &= np.where(narrow >= 4, np.uint32(0x3F3F3F3F), np.uint32(0xFFFFFFFF))
    descriptors = (narrow << 2 | RANDOM.integers(0, 4, 256)).astype(np.uint32)
    codes = -(-2 * index // bits)
    places = ", ".join(["%m0", "%m1"][:codes])
    call = f"spcompress.b{bits}.b{index}.sp::2:4.x2 {{{places}}}, {{%v0, %v1}}, {{%a, %b, %c, %e}}, %f;"
    out = [apply(f"{call} mov.b32 %d, {name};", "u4", *drawn, descriptors, keep=".reg .b32 %m<2>, %v<2>;", target=RUBIN)
           for name in ("%m0", "%v0", "%v1")]  # fmt: skip
    for thread in range(256):
        fields = [int(w[thread]) >> at & (1 << bits) - 1 for w in drawn for at in range(0, 32, bits)]
        kind, selection = (
            kinds[int(descriptors[thread]) >> 2],
            ("max", "maxabs", "min", "minabs")[descriptors[thread] & 3],
        )
        kept = [(g, p) for g in range(len(fields) // 4) for p in chosen(fields[4 * g : 4 * g + 4], kind, selection)]
        codes_ = sum(p << index * i for i, (_, p) in enumerate(kept))
        values_ = sum(fields[4 * g + p] << bits * i for i, (g, p) in enumerate(kept))
        assert [int(o[thread]) for o in out] == [codes_ & 0xFFFFFFFF, values_ & 0xFFFFFFFF, values_ >> 32], thread


def test_sparse_registers_of_the_text() -> None:
    data = [np.array([word], np.uint32) for word in (0x0003F900, 0x06030500, 5)]
    call, keep = "spcompress.b8.b4.sp::2:4.x1 {%m}, {%v}, {%a, %b}, %c;", ".reg .b32 %m, %v, %o;"
    got = [int(apply(f"{call} mov.b32 %d, {r};", "u4", *data, keep=keep, target=RUBIN)[0]) for r in ("%m", "%v")]
    assert got == [0x3121, 0x060503F9]
    back = [np.array([word], np.uint32) for word in got]
    call = "spdecompress.b8.b4.sp::2:4.x2 {%d, %o}, {%a}, {%b};"
    assert int(apply(call, "u4", *back, keep=keep, target=RUBIN)[0]) == 0x0003F900
    assert int(apply(f"{call} mov.b32 %d, %o;", "u4", *back, keep=keep, target=RUBIN)[0]) == 0x06000500


@pytest.mark.parametrize(
    ("bits", "index", "part", "of", "times"), [(8, 2, 1, 4, 4), (16, 4, 2, 16, 2), (8, 4, 4, 8, 2)]
)
def test_elements_go_where_their_indices_say(bits: int, index: int, part: int, of: int, times: int) -> None:
    count, total = part * times, of * times * bits // 32
    places = RANDOM.integers(0, of, (64, count))
    numbers = RANDOM.integers(0, 1 << bits, (64, count))
    codes, data = (np.array([sum(int(v) << size * i for i, v in enumerate(row)) for row in rows], np.uint64)
                   for rows, size in ((places, index), (numbers, bits)))  # fmt: skip
    registers = ", ".join(f"%o{i}" for i in range(total))
    low = f"{{{', '.join(['%l', '%h'][: -(-count * bits // 32)])}}}"
    opcode = f"spdecompress.b{bits}.b{index}.sp::{part}:{of}.x{times}"
    call = f"mov.b64 {{%l, %h}}, %b; {opcode} {{{registers}}}, {{%a}}, {low};"
    keep = f".reg .b32 %o<{total}>, %l, %h;"
    expected = np.zeros((64, times, of), np.uint64)
    for thread in range(64):
        for i in range(count):
            expected[thread, i // part, places[thread, i]] = numbers[thread, i]
    flat = expected.reshape(64, total, 32 // bits)
    for number in range(total):
        got = apply(f"{call} mov.b32 %d, %o{number};", "u4", codes.astype(np.uint32), data, keep=keep, target=RUBIN)
        assert [int(g) for g in got] == [sum(int(v) << bits * i for i, v in enumerate(row)) for row in flat[:, number]]


def test_what_sparse_registers_are_refused() -> None:
    one = [np.array([word], np.uint32) for word in (0, 0, 0x18)]
    keep = ".reg .b32 %m, %v;"
    with pytest.raises(InterpreterError, match="expected a type of 8 bits, 0 to 5"):
        apply("spcompress.b8.b4.sp::2:4.x1 {%m}, {%d}, {%a, %b}, %c;", "u4", *one, keep=keep, target=RUBIN)
    with pytest.raises(InterpreterError, match="expected indices below 2, got 8"):
        apply("spdecompress.b8.b4.sp::1:2.x2 {%d}, {%c}, {%a};", "u4", *one, keep=keep, target=RUBIN)


@pytest.mark.parametrize(("operation", "absolute", "nan"), [("max", ".abs", ".NaN"), ("min", "", ""), ("max", "", "")])
def test_loads_of_two_of_four_words(operation: str, absolute: str, nan: str) -> None:
    arrays = [words(32) for _ in range(4)]
    arrays[0][:4] = (0x7FC00000, 0x80000000, 0, 0xFFFFFFFF)
    opcode = f"tcgen05.ld.red.spcompress.sync.aligned.32x32b.x4.{operation}{absolute}.sp::2:4{nan}.f32.b2"
    body = """mov.u32 %w, slot; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%w], 32; bar.sync 0;
        ld.shared.b32 %t, [slot]; tcgen05.st.sync.aligned.32x32b.x4.b32 [%t], {%a, %b, %c, %e};
        tcgen05.wait::st.sync.aligned;"""
    body += f"{opcode} {{%m}}, {{%v0, %v1}}, %s, [%t]; tcgen05.wait::ld.sync.aligned;"
    body += "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 32;"
    keep = ".shared .b32 slot; .reg .b32 %m, %v<2>, %s, %t, %w;"
    # Half of the threads of a CTA leave before: one warp is there.
    m, v0, v1, s = (
        apply(f"{body} mov.b32 %d, {r};", "u4", *arrays, keep=keep, target=RUBIN) for r in ["%m", "%v0", "%v1", "%s"]
    )
    total = {"max": (np.fmax, np.maximum), "min": (np.fmin, np.minimum)}[operation][bool(nan)]
    for lane in range(32):
        group = [int(word[lane]) for word in arrays]
        places = chosen(group, "f32", operation + absolute)
        assert [int(m[lane]), int(v0[lane]), int(v1[lane])] == [places[0] | places[1] << 2, *(group[p] for p in places)]
        numbers = np.array(group, np.uint32) & (0x7FFFFFFF if absolute else 0xFFFFFFFF)
        wanted = total.reduce(numbers.view(np.float32))
        assert (np.isnan(wanted) and s[lane] == 0x7FFFFFFF) or wanted == s[lane : lane + 1].view(np.float32)[0]
