"""The tensor-core arithmetic against a model of the same rules in Python integers, one element at a time."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from samples import FULL
from scalar_models import block, decode, encode_f32, multiply

from warploom.dialect.isa import wmma
from warploom.dialect.isa.form import ElementType
from warploom.dialect.isa.mma import ROWS as KERNEL_ROWS
from warploom.dialect.isa.mma import Mma
from warploom.dialect.isa.mma import rows as all_rows
from warploom.runtime.numerics.product import Arithmetic, MatrixProduct, arithmetic


def model(core: Arithmetic, row: Mma, a: list[int], b: list[int], c: int) -> int:
    length = min(row.shape.k, core.block)
    for k in range(0, row.shape.k, length):
        pairs = zip(a[k : k + length], b[k : k + length], strict=True)
        products = [multiply(decode(x, row.a), decode(y, row.b)) for x, y in pairs]
        c = block(core, products, decode(c, row.c), row.d)
    return c


def engine(core: Arithmetic, row: Mma, a: list[int], b: list[int], c: int) -> int:
    """The same element by the engine, put at row 3, column 5 of the second of three warps of other data."""
    m, n, k = row.shape
    words = np.random.default_rng(1)
    kind = np.dtype(f"u{row.a.bits // 8}")
    left = words.integers(0, 1 << row.a.bits, (k, m, 3)).astype(kind)
    right = words.integers(0, 1 << row.a.bits, (k, n, 3)).astype(kind)
    add = words.integers(0, 1 << row.c.bits, (m, n, 3)).astype(f"u{row.c.bits // 8}")
    left[:, 3, 1], right[:, 5, 1], add[3, 5, 1] = a, b, c
    return int(MatrixProduct(row, core)(left, right, add)[3, 5, 1])


TF32 = tuple(row for row in all_rows() if row.a.name == "tf32")
ROWS = (*KERNEL_ROWS, *TF32)
TARGETS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120")


@st.composite
def cores(draw: st.DrawFn, row: Mma) -> Arithmetic:
    """The arithmetic of some target that knows the types of the row."""
    return arithmetic(draw(st.sampled_from(TARGETS if row.a.name == "f16" else TARGETS[2:])), row)


@st.composite
def operand_words(draw: st.DrawFn, kind: ElementType, count: int) -> list[int]:
    """Raw bits of one character: any, without specials, near each other, subnormal, or with many zeros."""
    any_word = st.integers(0, (1 << kind.bits) - 1)
    exponent_top = 1 << kind.exponent
    sign_bit, dropped = kind.bits - 1, kind.bits - 1 - kind.exponent - kind.mantissa

    def built(low: int, high: int) -> st.SearchStrategy[int]:
        fields = st.tuples(st.integers(0, 1), st.integers(low, high), st.integers(0, (1 << kind.mantissa) - 1))
        return fields.map(lambda f: f[0] << sign_bit | (f[1] << kind.mantissa | f[2]) << dropped)

    middle = draw(st.integers(1, exponent_top - 8))
    characters = [
        any_word,
        built(0, exponent_top - 2),
        built(middle, middle + 6),
        built(0, 1),
        st.one_of(st.just(0), st.just(1 << sign_bit), built(0, exponent_top - 2)),
    ]
    word = draw(st.sampled_from(characters))
    return draw(st.lists(word, min_size=count, max_size=count))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.spelling)
@settings(max_examples=120 if FULL else 40, deadline=None)
@given(data=st.data())
def test_one_element_against_the_scalar_model(row: Mma, data: st.DataObject) -> None:
    core = data.draw(cores(row))
    a = data.draw(operand_words(row.a, row.shape.k))
    b = data.draw(operand_words(row.b, row.shape.k))
    (c,) = data.draw(operand_words(row.c, 1))
    assert engine(core, row, a, b, c) == model(core, row, a, b, c)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.spelling)
@settings(max_examples=60 if FULL else 20, deadline=None)
@given(data=st.data())
def test_cancelling_sums(row: Mma, data: st.DataObject) -> None:
    core = data.draw(cores(row))
    half = row.shape.k // 2
    a = data.draw(operand_words(row.a, half))
    b = data.draw(operand_words(row.b, half))
    swap = data.draw(st.permutations(range(row.shape.k)))
    pairs = [*zip(a, b, strict=True), *((x ^ 1 << (row.a.bits - 1), y) for x, y in zip(a, b, strict=True))]
    pairs[0] = (pairs[0][0] ^ data.draw(st.integers(0, 3)), pairs[0][1])
    left, right = ([pairs[i][side] for i in swap] for side in (0, 1))
    (c,) = data.draw(operand_words(row.c, 1))
    assert engine(core, row, left, right, c) == model(core, row, left, right, c)


def drawn_operands(row: Mma, warps: int, kind: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Operands of many warps: "bits" or words of moderate size."""
    m, n, k = row.shape
    words = np.random.default_rng(7)
    a, b, c = (words.integers(0, 1 << 16, s).astype(np.uint16) for s in ((k, m, warps), (k, n, warps), (m, n, warps)))
    if kind == "moderate":
        a, b = ((x & 0x83FF | 0x3C00).astype(np.uint16) for x in (a, b))
    if row.a.bits == 32:
        a, b = (x.astype(np.uint32) << 16 | x.astype(np.uint32)[::-1] for x in (a, b))
    wide = c.astype(np.uint32) << 16 | words.integers(0, 1 << 16, c.shape, np.uint32) if row.c.bits == 32 else c
    return a, b, wide


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["bits", "moderate"])
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.spelling)
def test_every_element_of_a_batch(row: Mma, kind: str) -> None:
    core = arithmetic("sm_90", row)
    a, b, c = drawn_operands(row, 130, kind)
    got = MatrixProduct(row, core)(a, b, c)
    for w in (0, 127, 129):
        for i in range(row.shape.m):
            j = (i * 3 + w) % row.shape.n
            expected = model(core, row, a[:, i, w].tolist(), b[:, j, w].tolist(), int(c[i, j, w]))
            assert int(got[i, j, w]) == expected, (i, j, w)


ROW = next(r for r in ROWS if r.spelling.endswith("m16n8k16.row.col.f32.f16.f16.f32"))
HALF_ROW = next(r for r in ROWS if r.spelling.endswith("m16n8k16.row.col.f16.f16.f16.f16"))
CORE = arithmetic("sm_90", ROW)
ONE, MAX, TINY = 0x3C00, 0x7BFF, 0x0001


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        ([0] * 16, [0] * 16, 0x80000000, 0),
        ([0x8000] * 16, [ONE] * 16, 0x80000000, 0),
        ([TINY] * 16, [TINY] * 16, 0, (127 - 44) << 23),
        ([0] * 16, [0] * 16, 0x00000001, 0x00000001),
        ([0x7C00] + [0] * 15, [0] * 16, 0, 0x7FFFFFFF),
        ([0x7C00, 0xFC00] + [0] * 14, [ONE] * 16, 0, 0x7FFFFFFF),
        ([0x7C00] + [0] * 15, [ONE] * 16, 0xFF800000, 0x7FFFFFFF),
        ([0x7C00] + [0] * 15, [ONE] * 16, 0, 0x7F800000),
        ([0] * 16, [0] * 16, 0xFFC00001, 0x7FFFFFFF),
        ([ONE] * 16, [ONE] * 16, 0x7F7FFFFF, 0x7F7FFFFF),
        ([ONE] + [0] * 15, [ONE] + [0] * 15, 0xBF800000, 0),
    ],
)
def test_special_cases_of_f32(a: list[int], b: list[int], c: int, expected: int) -> None:
    assert engine(CORE, ROW, a, b, c) == expected == model(CORE, ROW, a, b, c)


def test_overflow_of_f16_rounds_to_infinity() -> None:
    assert engine(arithmetic("sm_90", HALF_ROW), HALF_ROW, [MAX] * 16, [ONE] * 16, 0) == 0x7C00


BRAIN_ROW = next(r for r in all_rows() if r.spelling.endswith("m16n8k16.row.col.f32.bf16.bf16.f32"))


@pytest.mark.parametrize(
    ("row", "a", "b", "sign"),
    [
        (HALF_ROW, 0x8001, 0x3400, 0x8000),  # -2^-24 * 2^-2, and -2^-25, which ties to the even zero
        (HALF_ROW, 0x8001, 0x3800, 0x8000),
        (BRAIN_ROW, 0x9A00, 0x1A80, 0x80000000),  # -2^-75 * 2^-74, and half of it, which is cut
        (BRAIN_ROW, 0x9A00, 0x1A00, 0x80000000),
    ],
)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_what_rounds_to_zero_is_positive(target: str, row: Mma, a: int, b: int, sign: int) -> None:
    """Of either sign of the sum, and of C; as an H200 has it."""
    core, rest = arithmetic(target, row), [0] * 15
    for left in (a, a ^ 0x8000):
        for c in (0, sign):
            got = engine(core, row, [left, *rest], [b, *rest], c)
            assert got == model(core, row, [left, *rest], [b, *rest], c)
            assert got in (0, 1 | sign if left == a else 1)
            assert got == 0 or (row is BRAIN_ROW and b == 0x1A80)


VOLTA = {(r.d.name, r.c.name): r for r in all_rows() if r.products > 1 and (r.a_layout, r.b_layout) == ("row", "col")}


@pytest.mark.parametrize(
    ("target", "d", "c", "words", "expected"),
    [
        ("sm_75", "f32", "f32", (0xA4B8519514CA74F4, 0xAC953BE3DC612FC3, 0x845661E3), 0x451C8298),
        ("sm_70", "f32", "f32", (0xA4B8519514CA74F4, 0xAC953BE3DC612FC3, 0x845661E3), 0x451C8298),
        ("sm_70", "f32", "f16", (0x800080008000896A, 0x80008FEC83640CA4, 0x010C), 0x37859B84),
        ("sm_75", "f32", "f16", (0x800080008000896A, 0x80008FEC83640CA4, 0x010C), 0x37859B84),
    ],
)
def test_m8n8k4_as_a_published_model_has_it(
    target: str, d: str, c: str, words: tuple[int, int, int], expected: int
) -> None:
    """MMA-Sim 2.1.1, whose authors compared it with the GPUs: F = 23 and L = 4 on sm_75 too, and a subnormal f16 C of
    an f32 D with the exponent that it has in f16. The words of A and B are in the order of k."""
    row = VOLTA[d, c]
    a, b = ([word >> 16 * (3 - k) & 0xFFFF for k in range(4)] for word in words[:2])
    assert engine(arithmetic(target, row), row, a, b, words[2]) == expected


@pytest.mark.sampled(3)
@pytest.mark.parametrize("types", VOLTA, ids="_".join)
@settings(max_examples=200 if FULL else 50, deadline=None)
@given(data=st.data())
def test_m8n8k4_against_the_scalar_model(types: tuple[str, str], data: st.DataObject) -> None:
    row = VOLTA[types]
    core = arithmetic(data.draw(st.sampled_from(["sm_70", "sm_75"])), row)
    a, b = (data.draw(operand_words(kind, 4)) for kind in (row.a, row.b))
    (c,) = data.draw(operand_words(row.c, 1))
    assert engine(core, row, a, b, c) == model(core, row, a, b, c)


def test_an_f16_c_of_wmma_is_as_it_is_on_sm_70_and_becomes_f32_on_others() -> None:
    """ptxas 12.4 makes HMMA.884.F32.F16 of it for sm_70, and conversions before HMMA.1688.F32 for sm_75."""
    row = next(r for r in wmma.mma_rows() if r.spelling == "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16")
    a, b, c = np.zeros((16, 16, 1), np.uint16), np.zeros((16, 16, 1), np.uint16), np.full((16, 16, 1), 1, np.uint16)
    a[0], b[0] = 0x0001, 0x0401  # 2^-38 + 2^-48: kept beside an exponent of -24, cut beside one of -14
    results = {t: MatrixProduct.on(t, row)(a, b, c)[0, 0, 0] for t in ("sm_70", "sm_75")}
    exact = Fraction(1, 1 << 24) + Fraction(1, 1 << 24) * (Fraction(1, 1 << 14) + Fraction(1, 1 << 24))
    assert results["sm_75"] == encode_f32(exact - exact % Fraction(1, 1 << 48))
    assert results["sm_70"] == encode_f32(exact - exact % Fraction(1, 1 << 37))


def test_terms_below_the_cut_are_lost_on_each_architecture() -> None:
    """1 + 2^-F is kept, 1 + 2^-(F+1) is not: sums of sixteen such terms tell F apart."""
    rules = [arithmetic(target, ROW) for target in TARGETS]
    for core in rules:
        assert model(core, ROW, [ONE] * 16, [ONE] * 16, 0x3F800000) == engine(
            core, ROW, [ONE] * 16, [ONE] * 16, 0x3F800000
        )
    tail = [ONE, *[0x0400] * 15]
    shrunk = [ONE, *[0x1000] * 15]
    results = {core.fraction: engine(core, ROW, tail, shrunk, 0) for core in rules}
    assert len(set(results.values())) >= 2
