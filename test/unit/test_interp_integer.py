"""Integer, logic, comparison and selection instructions against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interpreted import apply
from numpy.typing import NDArray

Array = NDArray[Any]

EDGES = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 127, 128, 255, 256, 32767, 32768, 65535]
random = np.random.default_rng(3)


def words(bits: int, count: int = 600) -> Array:
    """Random words with the edges mixed in, small ones too."""
    raw = random.integers(0, 1 << bits, count, np.uint64, endpoint=False) if bits < 64 else random.bytes(8 * count)
    values = np.frombuffer(raw, np.uint64).copy() if isinstance(raw, bytes) else raw
    values[::3] >>= np.uint64(bits // 2)
    edges = [e & ((1 << bits) - 1) for e in EDGES] + [(1 << bits) - 1 - e for e in EDGES[:6]]
    edges += [1 << (bits - 1), (1 << (bits - 1)) - 1]
    values[: len(edges)] = edges
    return random.permutation(values).astype(f"u{bits // 8}")


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def read(word: Any, type: str) -> int:
    bits = int(type[1:])
    return signed(int(word), bits) if type[0] == "s" else int(word)


def check(spelling: str, types: str, result: int, model: Callable[..., int], *operands: Array) -> None:
    """One instruction on arrays; `types` are those of the operands, `result` the bits of the result."""
    kinds = types.split()
    names = ", ".join(f"%{x}" for x in "abcefg"[: len(operands)])
    got = apply(f"{spelling} %d, {names};", f"u{result // 8}", *operands)
    for i in range(operands[0].size):
        values = [read(o[i], t) for o, t in zip(operands, kinds, strict=True)]
        assert int(got[i]) == model(*values) & ((1 << result) - 1), (spelling, values)


TYPES = [f"{s}{n}" for n in (16, 32, 64) for s in "us"]


@pytest.mark.parametrize("type", TYPES)
def test_add_sub_mul_mad(type: str) -> None:
    bits = int(type[1:])
    a, b, c = words(bits), words(bits), words(bits)
    two, three = f"{type} {type}", f"{type} {type} {type}"
    check(f"add.{type}", two, bits, lambda x, y: x + y, a, b)
    check(f"sub.{type}", two, bits, lambda x, y: x - y, a, b)
    check(f"mul.lo.{type}", two, bits, lambda x, y: x * y, a, b)
    check(f"mul.hi.{type}", two, bits, lambda x, y: x * y >> bits, a, b)
    check(f"mad.lo.{type}", three, bits, lambda x, y, z: x * y + z, a, b, c)
    check(f"mad.hi.{type}", three, bits, lambda x, y, z: (x * y >> bits) + z, a, b, c)


@pytest.mark.parametrize("type", [t for t in TYPES if t[1:] != "64"])
def test_wide(type: str) -> None:
    bits = int(type[1:])
    a, b, c = words(bits), words(bits), words(2 * bits)
    check(f"mul.wide.{type}", f"{type} {type}", 2 * bits, lambda x, y: x * y, a, b)
    wide = f"{type[0]}{2 * bits}"
    check(f"mad.wide.{type}", f"{type} {type} {wide}", 2 * bits, lambda x, y, z: x * y + z, a, b, c)


@pytest.mark.parametrize("type", TYPES)
def test_div_rem_min_max(type: str) -> None:
    bits = int(type[1:])
    a, b = words(bits), words(bits)
    b[b == 0] = 3

    def quotient(x: int, y: int) -> int:
        return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    two = f"{type} {type}"
    check(f"div.{type}", two, bits, quotient, a, b)
    check(f"rem.{type}", two, bits, lambda x, y: x - y * quotient(x, y), a, b)
    check(f"min.{type}", two, bits, min, a, b)
    check(f"max.{type}", two, bits, max, a, b)
    if type[0] == "s":
        check(f"neg.{type}", type, bits, lambda x: -x, a)
        check(f"abs.{type}", type, bits, lambda x: abs(x), a)


@pytest.mark.parametrize("type", TYPES)
def test_a_divisor_of_zero_gives_ones(type: str) -> None:
    bits = int(type[1:])
    a = words(bits, 40)
    check(f"div.{type}", f"{type} {type}", bits, lambda x, y: -1, a, np.zeros_like(a))
    check(f"rem.{type}", f"{type} {type}", bits, lambda x, y: -1, a, np.zeros_like(a))


def test_saturating_sum() -> None:
    a, b = words(32), words(32)

    def clip(value: int) -> int:
        return max(-(2**31), min(2**31 - 1, value))

    check("add.sat.s32", "s32 s32", 32, lambda x, y: clip(x + y), a, b)
    check("sub.sat.s32", "s32 s32", 32, lambda x, y: clip(x - y), a, b)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic_and_shifts(bits: int) -> None:
    a, b = words(bits), words(bits)
    amounts = random.integers(0, 80, a.size).astype(np.uint32)
    unsigned, sign = f"u{bits}", f"s{bits}"
    for name, model in {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}.items():
        check(f"{name}.b{bits}", f"{unsigned} {unsigned}", bits, model, a, b)
    check(f"not.b{bits}", unsigned, bits, int.__invert__, a)
    check(f"cnot.b{bits}", unsigned, bits, lambda x: int(x == 0), a)
    check(f"shl.b{bits}", f"{unsigned} u32", bits, lambda x, n: x << n, a, amounts)
    check(f"shr.{unsigned}", f"{unsigned} u32", bits, lambda x, n: x >> n, a, amounts)
    check(f"shr.{sign}", f"{sign} u32", bits, lambda x, n: x >> n, a, amounts)
    check(f"shr.b{bits}", f"{unsigned} u32", bits, lambda x, n: x >> n, a, amounts)


@pytest.mark.parametrize("table", [0x00, 0x1B, 0x96, 0xCA, 0xE8, 0xFF])
def test_lop3(table: int) -> None:
    a, b, c = words(32), words(32), words(32)

    def model(x: int, y: int, z: int) -> int:
        bits = (table >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | z >> i & 1) & 1 for i in range(32))
        return sum(bit << i for i, bit in enumerate(bits))

    got = apply(f"lop3.b32 %d, %a, %b, %c, {table};", "u4", a, b, c)
    assert [int(x) for x in got] == [model(int(x), int(y), int(z)) for x, y, z in zip(a, b, c, strict=True)]


def test_funnel_shifts() -> None:
    a, b = words(32), words(32)
    amounts = random.integers(0, 70, a.size).astype(np.uint32)
    types = "u32 u32 u32"
    check("shf.l.wrap.b32", types, 32, lambda x, y, n: (y << 32 | x) << (n & 31) >> 32, a, b, amounts)
    check("shf.r.wrap.b32", types, 32, lambda x, y, n: (y << 32 | x) >> (n & 31), a, b, amounts)
    check("shf.l.clamp.b32", types, 32, lambda x, y, n: (y << 32 | x) << min(n, 32) >> 32, a, b, amounts)
    check("shf.r.clamp.b32", types, 32, lambda x, y, n: (y << 32 | x) >> min(n, 32), a, b, amounts)


def test_prmt() -> None:
    def model(x: int, y: int, selectors: int) -> int:
        source = (y << 32 | x).to_bytes(8, "little")
        result = 0
        for i in range(4):
            selector = selectors >> 4 * i & 15
            byte = source[selector & 7]
            result |= ((0xFF if byte & 0x80 else 0) if selector & 8 else byte) << 8 * i
        return result

    check("prmt.b32", "u32 u32 u32", 32, model, words(32), words(32), words(32))


@pytest.mark.parametrize("bits", [32, 64])
def test_counts_and_fields(bits: int) -> None:
    a, b = words(bits), words(bits)
    start = random.integers(0, 300, a.size).astype(np.uint32)
    length = random.integers(0, 300, a.size).astype(np.uint32)
    start[::2] %= bits
    length[::3] %= bits
    unsigned, sign = f"u{bits}", f"s{bits}"
    check(f"popc.b{bits}", unsigned, 32, int.bit_count, a)
    check(f"clz.b{bits}", unsigned, 32, lambda x: bits - x.bit_length(), a)
    check(f"brev.b{bits}", unsigned, bits, lambda x: int(f"{x:0{bits}b}"[::-1], 2), a)
    check(f"bfind.{unsigned}", unsigned, 32, lambda x: x.bit_length() - 1, a)
    check(f"bfind.{sign}", sign, 32, lambda x: (~x if x < 0 else x).bit_length() - 1, a)
    check(f"bfind.shiftamt.{unsigned}", unsigned, 32, lambda x: bits - x.bit_length() if x else -1, a)

    counted = 255 if bits == 32 else (1 << 32) - 1

    def extract(x: int, s: int, n: int) -> int:
        s, n = s & counted, n & counted
        return x >> s & ((1 << n) - 1)

    def extract_signed(x: int, s: int, n: int) -> int:
        s, n = s & counted, n & counted
        if n == 0:
            return 0
        field = x >> s & ((1 << n) - 1)
        return field - (1 << n) if field >> (n - 1) & 1 else field

    def insert(x: int, y: int, s: int, n: int) -> int:
        s, n = s & counted, n & counted
        mask = ((1 << n) - 1) << s
        return y & ~mask | x << s & mask

    check(f"bfe.{unsigned}", f"{unsigned} u32 u32", bits, extract, a, start, length)
    check(f"bfe.{sign}", f"{sign} u32 u32", bits, extract_signed, a, start, length)
    check(f"bfi.b{bits}", f"{unsigned} {unsigned} u32 u32", bits, insert, a, b, start, length)


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": int.__eq__,
    "ne": int.__ne__,
    "lt": int.__lt__,
    "le": int.__le__,
    "gt": int.__gt__,
    "ge": int.__ge__,
}


@pytest.mark.parametrize("type", TYPES)
def test_setp(type: str) -> None:
    bits = int(type[1:])
    a, b = words(bits), words(bits)
    b[::4] = a[::4]
    for word, compare in COMPARISONS.items():
        got = apply(f"setp.{word}.{type} %p1, %a, %b; selp.b32 %d, 7, 9, %p1;", "u4", a, b)
        expected = [7 if compare(read(x, type), read(y, type)) else 9 for x, y in zip(a, b, strict=True)]
        assert got.tolist() == expected


def test_setp_with_two_results_and_a_third_predicate() -> None:
    a, b = words(32), words(32)
    text = """setp.gt.s32 %p3, %b, 0;
        setp.lt.and.u32 %p1|%p2, %a, %b, !%p3;
        selp.b32 %r5, 1, 0, %p1; selp.b32 %r6, 2, 0, %p2; or.b32 %d, %r5, %r6;"""
    got = apply(text, "u4", a, b)
    for x, y, word in zip(a, b, got, strict=True):
        third = not signed(int(y), 32) > 0
        assert int(word) == int(x < y and third) + 2 * int(not x < y and third)


def test_unsigned_comparison_words() -> None:
    a, b = words(32), words(32)
    got = apply("setp.lo.u32 %p1, %a, %b; setp.hs.u32 %p2, %a, %b; selp.b32 %d, 1, 2, !%p2;", "u4", a, b)
    assert got.tolist() == [1 if x < y else 2 for x, y in zip(a, b, strict=True)]


def test_moves_take_words_apart_and_together() -> None:
    a = words(64)
    text = "mov.b64 {%r5, %r6}, %a; mov.b32 {%h1, %h2}, %r5; mov.b32 %r7, {%h2, %h1}; mov.b64 %d, {%r6, %r7};"
    got = apply(text, "u8", a)
    for x, y in zip(a.tolist(), got.tolist(), strict=True):
        low = x & 0xFFFFFFFF
        assert y == (low >> 16 | (low & 0xFFFF) << 16) << 32 | x >> 32


def test_predicates_are_registers() -> None:
    a = words(32)
    text = """and.b32 %r5, %a, 1; setp.eq.u32 %p1, %r5, 1; and.b32 %r6, %a, 2; setp.eq.u32 %p2, %r6, 2;
        xor.pred %p3, %p1, %p2; not.pred %p4, %p3; mov.pred %p5, %p4; selp.u32 %d, 1, 0, %p5;"""
    assert apply(text, "u4", a).tolist() == [int((x & 1) == (x >> 1 & 1)) for x in a.tolist()]
