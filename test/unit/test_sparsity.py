"""Sparse storage: patterns, compressing and expanding matrices, and every complaint."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from samples import FULL

from warploom.dialect.isa import sparse_mma, wgmma
from warploom.dialect.isa.form import Granularity, ProductForm
from warploom.dialect.isa.sparse_mma import FOUR_OF_EIGHT, ONE_OF_TWO, TWO_OF_FOUR
from warploom.runtime.numerics import sparse
from warploom.runtime.numerics.sparse import SparsityError, complaint, dense_of, pruned, stored_of, validate_words

Array = NDArray[Any]

DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "s8": np.int8,
    "u8": np.uint8,
    "s4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s4": 4, "u4": 4, "e3m2": 6, "e2m3": 6, "e2m1": 4}
SIGNED_ZERO = {"f16", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}

# Straight from the text of 9.7.14.6.1
ORDERED = {0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110}
INVALID = {0b0000, 0b0101, 0b1010, 0b1111}
TF32 = {0b1110, 0b0100}

ROWS: dict[tuple[int, int, str, str], ProductForm] = {
    (row.shape.m, row.shape.k, row.a.name, row.kind): row for row in (*sparse_mma.rows(), *wgmma.rows()) if row.sparse
}
PATTERNS = {(row.a.name, row.kind): row.granularity for row in sparse_mma.rows() if row.granularity is not None}
OPERANDS = pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.spelling)
KEYS = pytest.mark.parametrize("key", PATTERNS, ids=lambda key: "-".join(filter(None, key)))


def slow_positions(pattern: Granularity, code: int) -> list[int]:
    """Which elements of a chunk the code stores, by the words of the text."""
    if pattern == ONE_OF_TWO:
        return {0b0100: [0], 0b1110: [1]}[code]
    first, second = code & 3, code >> 2
    return [first, second] if pattern == TWO_OF_FOUR else [2 * first, 2 * first + 1, 2 * second, 2 * second + 1]


def slow_expand(values: Array, codes: Array, pattern: Granularity) -> Array:
    rows, chunks = codes.shape
    dense = np.zeros((rows, chunks * pattern.chunk), values.dtype)
    for row in range(rows):
        for chunk in range(chunks):
            for i, at in enumerate(slow_positions(pattern, int(codes[row, chunk]))):
                dense[row, chunk * pattern.chunk + at] = values[row, chunk * pattern.stored + i]
    return dense


def raw(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


def is_zero(array: Array, element: str) -> Array:
    """Zero by value, by hand: all bits but a float's sign are 0."""
    sign = 1 << BITS.get(element, 8) - 1 if element in SIGNED_ZERO else 0
    return (raw(array) & ((1 << BITS.get(element, 8)) - 1) & ~np.array(sign, raw(array).dtype)) == 0


def words_of(element: str) -> st.SearchStrategy[int]:
    """Bit patterns of elements, with many zeros, subnormals, infinities and NaNs."""
    bits = BITS.get(element, 8)
    return st.one_of(st.just(0), st.just(1 << bits - 1), st.integers(0, (1 << bits) - 1))


def make(element: str, bits: list[int], shape: tuple[int, int]) -> Array:
    size = np.dtype(DTYPES[element]).itemsize
    return np.array(bits, f"u{size}").reshape(shape).view(DTYPES[element])


@st.composite
def compressed(draw: st.DrawFn, element: str, pattern: Granularity, ordered: bool) -> tuple[Array, Array]:
    """Any values (zeros among them) and any legal codes."""
    rows, chunks = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    codes = draw(st.lists(st.sampled_from(pattern.codes(ordered)), min_size=rows * chunks, max_size=rows * chunks))
    count = rows * chunks * pattern.stored
    values = draw(st.lists(words_of(element), min_size=count, max_size=count))
    return make(element, values, (rows, chunks * pattern.stored)), np.array(codes, np.uint8).reshape(rows, chunks)


def failed(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(SparsityError) as error:
        call(*args, **kwargs)
    return str(error.value)


def test_granularities_are_those_of_the_text() -> None:
    assert {key[2:] for key in ROWS} == set(PATTERNS)
    for (element, kind), pattern in PATTERNS.items():
        if element == "tf32":
            expected = ONE_OF_TWO
        elif element in ("s4", "u4") or kind in ("mxf4", "mxf4nvf4"):
            expected = FOUR_OF_EIGHT
        else:
            expected = TWO_OF_FOUR
        assert pattern == expected
        assert kind or sparse_mma.granularities()[element] == expected
    assert [(p.chunk, p.stored, p.group) for p in (ONE_OF_TWO, TWO_OF_FOUR, FOUR_OF_EIGHT)] == [
        (2, 1, 1),
        (4, 2, 1),
        (8, 4, 2),
    ]


@pytest.mark.parametrize("pattern", [TWO_OF_FOUR, FOUR_OF_EIGHT], ids=str)
def test_codes_are_those_of_the_text(pattern: Granularity) -> None:
    assert set(pattern.codes(True)) == ORDERED
    assert set(pattern.codes(False)) == set(range(16)) - INVALID
    assert set(ONE_OF_TWO.codes(True)) == set(ONE_OF_TWO.codes(False)) == TF32


def test_a_code_every_pattern_takes() -> None:
    assert all(sparse.ANY_CODE in pattern.codes(ordered=True) for pattern in PATTERNS.values())


@pytest.mark.parametrize("pattern", [ONE_OF_TWO, TWO_OF_FOUR, FOUR_OF_EIGHT], ids=str)
def test_codes_place_different_units(pattern: Granularity) -> None:
    """Ordered codes are the increasing choices, once each."""
    ordered = [sparse.positions(pattern, code) for code in pattern.codes(ordered=True)]
    assert sorted(ordered) == list(combinations(range(pattern.units), pattern.slots))
    assert all(len({*sparse.positions(pattern, code)}) == pattern.slots for code in pattern.codes(ordered=False))


@pytest.mark.sampled(24)
@KEYS
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_expand_undoes_compress(key: tuple[str, str], data: st.DataObject) -> None:
    """On any matrix of the pattern, chunks of zeros and of few elements among them."""
    element, pattern = key[0], PATTERNS[key]
    stored, chosen = data.draw(compressed(element, pattern, ordered=False))
    dense = slow_expand(stored, chosen, pattern)
    values, codes = stored_of(dense, pattern)
    assert values.dtype == dense.dtype
    assert set(codes.flat) <= set(pattern.codes(ordered=True))
    for back in (dense_of(values, codes, pattern), slow_expand(values, codes, pattern)):
        same = (raw(back) == raw(dense)) | (is_zero(dense, element) & (raw(back) == 0))
        assert back.shape == dense.shape
        assert same.all()


@pytest.mark.sampled(16)
@KEYS
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_expand_takes_any_legal_code(key: tuple[str, str], data: st.DataObject) -> None:
    element, pattern = key[0], PATTERNS[key]
    values, codes = data.draw(compressed(element, pattern, ordered=False))
    assert (raw(dense_of(values, codes, pattern)) == raw(slow_expand(values, codes, pattern))).all()


@pytest.mark.parametrize("pattern", [ONE_OF_TWO, TWO_OF_FOUR, FOUR_OF_EIGHT], ids=str)
def test_every_full_chunk_comes_back_as_it_was(pattern: Granularity) -> None:
    for code in pattern.codes(ordered=True):
        codes = np.array([[code]], np.uint8)
        values = np.arange(1, pattern.stored + 1, dtype=np.int8)[None]
        got, got_codes = stored_of(slow_expand(values, codes, pattern), pattern)
        assert (got == values).all()
        assert (got_codes == codes).all()


@pytest.mark.parametrize(
    ("row", "code", "values"),
    [
        ([0, 0, 0, 0], 0b0100, [0, 0]),
        ([7, 0, 0, 0], 0b0100, [7, 0]),
        ([0, 7, 0, 0], 0b0100, [0, 7]),
        ([0, 0, 7, 0], 0b1000, [0, 7]),
        ([0, 0, 0, 7], 0b1100, [0, 7]),
    ],
)
def test_few_elements_take_the_least_code(row: list[int], code: int, values: list[int]) -> None:
    stored, codes = stored_of(np.array([row], np.int8), TWO_OF_FOUR)
    assert (codes.tolist(), stored.tolist()) == ([[code]], [values])


def test_zeros_are_zeros_by_value() -> None:
    dense = np.array([[1, -0.0, 2, -0.0], [np.nan, 0, np.inf, -0.0]], np.float16)
    values, codes = stored_of(dense, TWO_OF_FOUR)
    assert codes.tolist() == [[0b1000], [0b1000]]
    assert raw(dense_of(values, codes, TWO_OF_FOUR))[0].tolist() == [0x3C00, 0, 0x4000, 0]
    np.testing.assert_array_equal(values, np.array([[1, 2], [np.nan, np.inf]], np.float16))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("element", DTYPES)
def test_what_is_zero(element: str) -> None:
    """A chunk of equal elements breaks 2:4 and 4:8 alike unless they are zeros, negative ones included.

    Of 16 bits, every 61st number and those at the ends of exponents are tried one by one.
    """
    bits = BITS.get(element, 8)
    every = [*range(1 << bits)] if bits <= 16 else [0, 1 << 31, 1, 1 << 22, 1 << 23, 0x7F800000, 0x7FC00000]
    column = make(element, every, (len(every), 1))
    zero = is_zero(column, element).reshape(-1)
    tried = [n for n in range(len(every)) if len(every) < 1 << 16 or FULL or n % 61 == 0 or n % 128 in (0, 1, 127)]
    for pattern in (TWO_OF_FOUR, FOUR_OF_EIGHT):
        stored_of(np.repeat(column[zero], pattern.chunk, axis=1), pattern)
        for row in (column[n : n + 1] for n in tried if not zero[n]):
            assert failed(stored_of, np.repeat(row, pattern.chunk, axis=1), pattern).startswith("row 0, chunk 0 (")


@pytest.mark.parametrize("columns", range(1, 20))
def test_a_last_chunk_may_be_incomplete(columns: int) -> None:
    for pattern in (ONE_OF_TWO, TWO_OF_FOUR, FOUR_OF_EIGHT):
        dense = pruned(np.arange(1, 3 * columns + 1, dtype=np.int8).reshape(3, columns), pattern)
        values, codes = stored_of(dense, pattern)
        assert codes.shape == (3, -(-columns // pattern.chunk))
        assert (dense_of(values, codes, pattern)[:, :columns] == dense).all()


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (0, 0)])
def test_empty_matrices(shape: tuple[int, int]) -> None:
    values, codes = stored_of(np.zeros(shape, np.float16), TWO_OF_FOUR)
    assert (values.shape, codes.shape) == ((shape[0], shape[1] // 2), (shape[0], shape[1] // 4))
    assert dense_of(values, codes, TWO_OF_FOUR).shape == shape
    assert pruned(np.zeros(shape, np.float16), TWO_OF_FOUR).shape == shape


def test_matrices_need_not_be_contiguous() -> None:
    dense = pruned(np.random.default_rng(0).normal(size=(24, 16)).astype(np.float16), TWO_OF_FOUR)
    for view, base in ((dense.T.copy().T, dense), (np.repeat(dense, 2, axis=0)[::2], dense)):
        values, codes = stored_of(view, TWO_OF_FOUR)
        assert (dense_of(values, codes, TWO_OF_FOUR) == base).all()
        assert (pruned(view, TWO_OF_FOUR) == base).all()


@pytest.mark.sampled(24)
@KEYS
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_prune_keeps_the_largest(key: tuple[str, str], data: st.DataObject) -> None:
    """Against a sort of each chunk; what is pruned is of the pattern, and pruning again changes nothing."""
    element, pattern = key[0], PATTERNS[key]
    rows, columns = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 20))
    dense = make(element, [data.draw(words_of(element)) for _ in range(rows * columns)], (rows, columns))
    left = pruned(dense, pattern)
    for row in range(rows):
        for start in range(0, columns, pattern.chunk):
            stop = min(start + pattern.chunk, columns)
            chunk = np.abs(dense[row, start:stop].astype(np.float64))
            sizes = np.where(np.isnan(chunk), np.inf, chunk).astype(np.float32)
            units = [sizes[i : i + pattern.group].sum() for i in range(0, stop - start, pattern.group)]
            best = sorted(range(len(units)), key=lambda i: (-units[i], i))[: pattern.slots]
            kept = [i // pattern.group in best for i in range(stop - start)]
            assert (raw(left)[row, start:stop] == np.where(kept, raw(dense)[row, start:stop], 0)).all()
    stored_of(left, pattern)
    assert (raw(pruned(left, pattern)) == raw(left)).all()


def test_prune_leaves_its_argument_alone() -> None:
    dense = np.array([[-128, 127, 1, 2]], np.int8)
    assert pruned(dense, TWO_OF_FOUR).tolist() == [[-128, 127, 0, 0]]
    assert pruned(dense, ONE_OF_TWO).tolist() == [[-128, 0, 0, 2]]
    assert dense.tolist() == [[-128, 127, 1, 2]]


def test_broken_pattern_is_named() -> None:
    dense = np.zeros((32, 64), np.float16)
    dense[17, [20, 22, 23]] = 1, -2, np.nan
    message = "row 17, chunk 5 (columns 20..23): 3 non-zeros, 2:4 allows 2; prune() keeps the largest"
    assert failed(stored_of, dense, TWO_OF_FOUR) == message
    dense[30, :4] = 1
    assert failed(stored_of, dense, TWO_OF_FOUR) == message.replace("; prune", "; 2 chunks break the pattern; prune")


def test_broken_pairs_and_halves_are_named() -> None:
    pairs = np.zeros((3, 24), ml_dtypes.int4)
    pairs[2, [8, 11, 15]] = -8
    assert failed(stored_of, pairs, FOUR_OF_EIGHT).startswith(
        "row 2, chunk 1 (columns 8..15): 3 non-zero pairs, 4:8 in pairs allows 2;"
    )
    halves = np.zeros((3, 4), np.float32)
    halves[1, 2:] = 1
    assert failed(stored_of, halves, ONE_OF_TWO).startswith("row 1, chunk 1 (columns 2..3): 2 non-zeros, 1:2 allows 1;")
    cut = np.ones((1, 7), np.int8)
    cut[:, :4] = 0
    assert "row 0, chunk 1 (columns 4..6): 3 non-zeros" in failed(stored_of, cut, TWO_OF_FOUR)


@pytest.mark.sampled(8)
@KEYS
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_broken_chunk_is_found(key: tuple[str, str], data: st.DataObject) -> None:
    element, pattern = key[0], PATTERNS[key]
    dense = slow_expand(*data.draw(compressed(element, pattern, ordered=True)), pattern)
    row = data.draw(st.integers(0, len(dense) - 1))
    chunk = data.draw(st.integers(0, dense.shape[1] // pattern.chunk - 1))
    dense[row, chunk * pattern.chunk : (chunk + 1) * pattern.chunk] = 1
    first = f"row {row}, chunk {chunk} (columns {chunk * pattern.chunk}..{(chunk + 1) * pattern.chunk - 1}): "
    assert failed(stored_of, dense, pattern).startswith(first)


def test_arrays_of_other_ranks() -> None:
    for call in (stored_of, pruned):
        assert failed(call, np.zeros(4, np.int8), TWO_OF_FOUR) == "expected a matrix (rows, columns), got 4 of int8"


def test_expand_names_a_code_without_meaning() -> None:
    values, codes = np.zeros((3, 4), np.int8), np.full((3, 2), 0b0100, np.uint8)
    codes[2, 1] = 0b1010
    assert failed(dense_of, values, codes, TWO_OF_FOUR) == (
        "row 2, chunk 1: code 0b1010 has no meaning under 2:4: index 2 is there twice; expected one of "
        "0b0001, 0b0010, 0b0011, 0b0100, 0b0110, 0b0111, 0b1000, 0b1001, 0b1011, 0b1100, 0b1101, 0b1110"
    )
    codes[2, 1] = 0b1000
    assert failed(dense_of, values[:, :2], codes, ONE_OF_TWO) == (
        "row 2, chunk 1: code 0b1000 has no meaning under 1:2: expected one of 0b0100, 0b1110"
    )


def test_expand_names_shapes_that_do_not_belong_together() -> None:
    codes = np.full((3, 2), 0b0100, np.uint8)
    assert failed(dense_of, np.zeros((3, 5), np.int8), codes, TWO_OF_FOUR) == (
        "3x2 codes of 2:4 describe 3x4 stored elements, got 3x5"
    )


def test_a_code_without_meaning_is_explained() -> None:
    assert complaint(TWO_OF_FOUR, 0b0100, ordered=True) is None
    assert complaint(FOUR_OF_EIGHT, 0b0101, ordered=True) == (
        "index 1 is there twice; expected one of 0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110"
    )


@OPERANDS
def test_from_matrix_to_words_and_back(row: ProductForm) -> None:
    """The whole way: prune, compress, words, codes, expand."""
    pattern = PATTERNS[row.a.name, row.kind]
    dense = np.random.default_rng(1).normal(size=(row.shape.m + 3, 3 * row.shape.k)) * 3
    dense = pruned(dense.astype(DTYPES[row.a.name]), pattern)
    values, codes = stored_of(dense, pattern)
    words = sparse.metadata_words(codes, row)
    validate_words(words, row)
    back = dense_of(values, sparse.metadata_codes(words, row, *codes.shape), pattern)
    assert ((raw(back) == raw(dense)) | is_zero(dense, row.a.name)).all()
