"""Sparse metadata: layouts against the tables, words against slow formulas, and every complaint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from warploom.dialect.sparsity import matrix, patterns
from warploom.dialect.sparsity.matrix import MetadataError, validate_words
from warploom.dialect.sparsity.patterns import MetadataLayout, SparseOperand, UnknownOperandError, sparse_operand

Array = NDArray[Any]

# Straight from the text of 9.7.14.6.1
ORDERED = {0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110}
INVALID = {0b0000, 0b0101, 0b1010, 0b1111}
TF32 = {0b1110, 0b0100}

OPERANDS = pytest.mark.parametrize("operand", patterns.ROWS, ids=str)

# The layouts a second time: which lane and nibble hold (row g + 8h, chunk c) under selector f.


def rule_s(g: int, h: int, c: int, f: int) -> tuple[int, int]:
    return 4 * g + f, 4 * h + c


def rule_p16(g: int, h: int, c: int, f: int) -> tuple[int, int]:
    return 4 * g + 2 * f + c // 4, 4 * h + c % 4


def rule_p8(g: int, h: int, c: int, f: int) -> tuple[int, int]:
    return 4 * g + 2 * f + h, c


def rule_a8(g: int, h: int, c: int, f: int) -> tuple[int, int]:
    return 4 * g + 2 * (c // 8) + h, c % 8


# (rows, k, type, kind) -> rule, chunks of a row, selectors; from 9.7.14.6.1, 9.7.14.6.2 and 9.7.15.6.1
RULES = {
    **{(16, 16, t, ""): (rule_s, 4, 4) for t in ("f16", "bf16")},
    **{(16, 32, t, ""): (rule_p16, 8, 2) for t in ("f16", "bf16")},
    (16, 8, "tf32", ""): (rule_s, 4, 4),
    (16, 16, "tf32", ""): (rule_p16, 8, 2),
    **{(16, 32, t, ""): (rule_p8, 8, 2) for t in ("s8", "u8")},
    **{(16, 64, t, ""): (rule_p8, 8, 2) for t in ("s4", "u4")},
    **{(16, 64, t, ""): (rule_a8, 16, 1) for t in ("s8", "u8", "e4m3", "e5m2")},
    **{(16, 128, t, ""): (rule_a8, 16, 1) for t in ("s4", "u4")},
    **{(16, 64, t, k): (rule_a8, 16, 1) for t in ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
       for k in ("f8f6f4", "mxf8f6f4")},
    **{(16, 128, "e2m1", k): (rule_a8, 16, 1) for k in ("mxf4", "mxf4nvf4")},
    **{(64, 32, t, ""): (rule_p16, 8, 2) for t in ("f16", "bf16")},
    (64, 16, "tf32", ""): (rule_p16, 8, 2),
    **{(64, 64, t, ""): (rule_a8, 16, 1) for t in ("e4m3", "e5m2", "s8", "u8")},
}  # fmt: skip


def slow_words(codes: Array, operand: SparseOperand, selector: int) -> list[int]:
    """The words of one tile, nibble by nibble."""
    rule, chunks, _ = RULES[operand.m, operand.k, operand.element, operand.kind]
    words = [0] * (2 * operand.m)
    for row in range(operand.m):
        for c in range(chunks):
            lane, q = rule(row % 8, row % 16 // 8, c, selector)
            words[32 * (row // 16) + lane] |= int(codes[row, c]) << 4 * q
    return words


def failed(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises((MetadataError, UnknownOperandError)) as error:
        call(*args, **kwargs)
    return str(error.value)


def test_every_row_has_a_rule_and_every_rule_a_row() -> None:
    assert {(r.m, r.k, r.element, r.kind) for r in patterns.ROWS} == set(RULES)
    assert len(patterns.BY_KEY) == len(patterns.ROWS)


@OPERANDS
def test_metadata_layout_is_the_rule(operand: SparseOperand) -> None:
    rule, chunks, selectors = RULES[operand.m, operand.k, operand.element, operand.kind]
    assert (operand.chunks, operand.selectors) == (chunks, selectors)
    expected = {(f, g + 8 * h, c): rule(g, h, c, f)
                for f in range(selectors) for g in range(8) for h in range(2) for c in range(chunks)}  # fmt: skip
    assert operand.metadata.inverse() == expected
    for f in range(selectors):
        assert set(operand.metadata.lanes(f)) == {lane for key, (lane, _) in expected.items() if key[0] == f}


def test_operand_is_found_and_named() -> None:
    assert str(sparse_operand(16, 32, "f16")) == "mma.sp m16n8k32 f16"
    assert str(sparse_operand(16, 128, "e2m1", "mxf4")) == "mma.sp m16n8k128 e2m1 .kind::mxf4"
    assert str(sparse_operand(64, 64, "e4m3")) == "wgmma.mma_async.sp m64nNk64 e4m3"
    assert (sparse_operand(64, 64, "s8").warps, sparse_operand(64, 64, "s8").threads) == (4, 128)


def test_unknown_operands_get_the_nearest() -> None:
    assert failed(sparse_operand, 16, 64, "f16") == (
        "no sparse instruction takes A of 16x64 f16; the nearest are "
        "mma.sp m16n8k16 f16, mma.sp m16n8k32 f16, mma.sp m16n8k64 s8"
    )
    assert "A of 16x128 e4m3 under .kind::mxf4; the nearest are" in failed(sparse_operand, 16, 128, "e4m3", "mxf4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f0 f1 r0 r1 r2", "expected a metadata layout"),
        ("x0 f1 r0 r1 r2 | c0 c1 r3", "expected a metadata layout"),
        ("f0 r0 r1 r2 | c0 c1 r3", "has 5 lane bits and 3 nibble bits"),
        ("f0 f1 r0 r1 r2 | c0 c2 r3", "must carry each bit of axis c once"),
        ("f0 f1 r0 r1 r2 | c0 c1 c2", "4 bits of the row"),
    ],
)
def test_metadata_layouts_check_themselves(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MetadataLayout.parse(text)


def test_operand_rows_check_themselves() -> None:
    with pytest.raises(ValueError, match=r"mma\.sp m16n8k32 f16: 4 chunks of 4 are not 32 columns"):
        SparseOperand(16, 32, "f16", "", patterns.SINGLE, "")


def test_metadata_layout_prints_as_it_is_written() -> None:
    assert str(patterns.PAIR_16) == "c2 f0 r0 r1 r2 | c0 c1 r3"


def some_codes(operand: SparseOperand, rows: int, chunks: int, data: st.DataObject) -> Array:
    """Legal codes; drawn as a seed, since there are up to 2048 of them."""
    legal = operand.pattern.legal(operand.ordered_only)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    return rng.choice(np.array(legal, np.uint8), (rows, chunks))


@pytest.mark.sampled(3)
@OPERANDS
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_tile_words_are_the_formula(operand: SparseOperand, data: st.DataObject) -> None:
    codes = some_codes(operand, operand.m, operand.chunks, data)
    for selector in range(operand.selectors):
        words = matrix.tile_words(codes, operand, selector)
        assert words.dtype == np.uint32
        assert words.tolist() == slow_words(codes, operand, selector)
        assert (matrix.tile_codes(words, operand, selector) == codes).all()
        validate_words(words, operand, selector, ordered=False)


@pytest.mark.sampled(4)
@OPERANDS
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_matrix_words_are_the_tiles_in_loading_order(operand: SparseOperand, data: st.DataObject) -> None:
    rows, chunks = data.draw(st.integers(1, 2 * operand.m)), data.draw(st.integers(1, 70))
    codes = some_codes(operand, rows, chunks, data)
    words = matrix.metadata_words(codes, operand)
    across = operand.selectors * operand.chunks
    assert words.shape == (-(-rows // operand.m), -(-chunks // across), operand.threads)
    whole = np.full((words.shape[0] * operand.m, words.shape[1] * across), patterns.ANY_CODE, np.uint8)
    whole[:rows, :chunks] = codes
    for i, j in np.ndindex(*words.shape[:2]):
        expected = np.zeros(operand.threads, np.uint32)
        for f in range(operand.selectors):
            start = (j * operand.selectors + f) * operand.chunks
            tile = whole[i * operand.m : (i + 1) * operand.m, start : start + operand.chunks]
            expected |= np.array(slow_words(tile, operand, f), np.uint32)
        assert (words[i, j] == expected).all()
    assert (matrix.metadata_codes(words, operand, rows, chunks) == codes).all()
    assert (matrix.metadata_codes(words, operand) == whole).all()
    validate_words(words, operand, ordered=False)


@pytest.mark.sampled(3)
@OPERANDS
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_wrong_nibble_is_named(operand: SparseOperand, data: st.DataObject) -> None:
    ordered = data.draw(st.booleans())
    legal = TF32 if operand.element == "tf32" else ORDERED if ordered or operand.kind else set(range(16)) - INVALID
    rule, _, selectors = RULES[operand.m, operand.k, operand.element, operand.kind]
    f, row = data.draw(st.integers(0, selectors - 1)), data.draw(st.integers(0, operand.m - 1))
    chunk = data.draw(st.integers(0, operand.chunks - 1))
    code = data.draw(st.sampled_from(sorted(set(range(16)) - legal)))
    codes = np.full((operand.m, operand.chunks), 0b0100, np.uint8)
    codes[row, chunk] = code
    words = matrix.tile_words(codes, operand, f)
    lane, q = rule(row % 8, row % 16 // 8, chunk, f)
    warp = f"warp {row // 16}, " if operand.m == 64 else ""
    where = f"{warp}lane {lane}, nibble {q} (row {row}, chunk {chunk}): 0b{code:04b} of word 0x"
    message = failed(validate_words, words, operand, f, ordered=ordered)
    assert message.startswith(where)
    assert f"has no meaning for {operand}: " in message
    found = matrix.illegal_nibbles(words, operand, f, ordered=ordered)
    assert found.tolist() == [[32 * (row // 16) + lane, q]]


def test_wrong_nibbles_say_why() -> None:
    operand = sparse_operand(16, 16, "f16")
    codes = np.full((16, 4), 0b0100, np.uint8)
    codes[9, 2] = 0b0001
    words = matrix.tile_words(codes, operand, 3)
    validate_words(words, operand, 3, ordered=False)
    assert failed(validate_words, words, operand, 3, ordered=True) == (
        "lane 7, nibble 6 (row 9, chunk 2): 0b0001 of word 0x41444444 has no meaning for mma.sp m16n8k16 f16: "
        "indices must increase from the lowest bits, got 1, 0; 0b0100 with the stored elements exchanged says the same"
    )
    assert failed(validate_words, words, operand, ordered=False).startswith("lane 0, nibble 0 (row 0, chunk 0): 0b0000")
    assert failed(validate_words, words, operand, ordered=False).endswith("; 192 nibbles have none")
    tf32 = sparse_operand(16, 8, "tf32")
    assert failed(validate_words, np.full(32, 0x44444448, np.uint32), tf32, 0).endswith(
        "for mma.sp m16n8k8 tf32: expected one of 0b0100, 0b1110; 8 nibbles have none"
    )


def test_kinds_take_ordered_codes_alone() -> None:
    words = np.full(32, 0x11111111, np.uint32)
    validate_words(words, sparse_operand(16, 64, "e4m3"))
    assert "indices must increase" in failed(validate_words, words, sparse_operand(16, 64, "e4m3", "f8f6f4"))


def test_wrong_nibbles_of_a_matrix_are_named_by_tile() -> None:
    operand = sparse_operand(64, 32, "bf16")
    codes = np.full((128, 48), 0b1110, np.uint8)
    codes[64 + 37, 16 + 13] = 0b1111
    words = matrix.metadata_words(codes, operand)
    # row 37 of the tile is row 5 of warp 2; chunk 13 of the group is chunk 5 under selector 1
    assert failed(validate_words, words, operand).startswith(
        "row tile 1, column group 1, warp 2, lane 23, nibble 1 (row 101, chunk 29): 0b1111 of word 0xeeeeeefe has"
    )
    assert failed(validate_words, words[1], operand).startswith(
        "words [1], warp 2, lane 23, nibble 1 (row 37, chunk 5)"
    )


def test_selectors_are_those_of_the_operand() -> None:
    words, codes = np.zeros(32, np.uint32), np.zeros((16, 16), np.uint8)
    operand = sparse_operand(16, 64, "s8")
    message = "the sparsity selector of mma.sp m16n8k64 s8 must be 0, got 1"
    assert failed(matrix.tile_words, codes, operand, 1) == failed(matrix.tile_codes, words, operand, 1) == message
    assert failed(validate_words, words, operand, 1) == message
    assert failed(validate_words, words, sparse_operand(16, 16, "f16"), 4) == (
        "the sparsity selector of mma.sp m16n8k16 f16 must be in 0..3, got 4"
    )
    assert "must be in 0..1, got -1" in failed(validate_words, words, sparse_operand(16, 32, "f16"), -1)


def test_words_and_codes_of_other_shapes() -> None:
    operand = sparse_operand(16, 32, "f16")
    words = np.zeros((2, 3, 32), np.uint32)
    for call, args, message in (
        (matrix.tile_words, (np.zeros((8, 8), np.uint8), operand), "takes a tile of 16x8 codes of uint8, got 8x8 of"),
        (matrix.tile_codes, (words, operand), "has 32 words of uint32, got 2x3x32 of uint32"),
        (matrix.metadata_words, (np.zeros(8, np.uint8), operand), "codes (rows, chunks) of uint8, got 8 of uint8"),
        (
            matrix.metadata_words,
            (np.full((1, 2), 16, np.uint8), operand),
            "row 0, chunk 0: expected a nibble, got 16",
        ),
        (matrix.metadata_codes, (words[0], operand), "words (row tiles, column groups, 32) of uint32, got 3x32 of"),
        (
            matrix.metadata_codes,
            (words, operand, 33),
            "2x3x32 words hold 32x48 codes of mma.sp m16n8k32 f16, not 33x48",
        ),
        (matrix.metadata_codes, (words, operand, 1, 49), "not 1x49"),
        (matrix.metadata_codes, (words, operand, -1), "not -1x48"),
        (validate_words, (words[..., :31], operand), "has words (..., 32) of uint32, got 2x3x31 of uint32"),
        (validate_words, (words.astype(np.int32), operand), "of uint32, got 2x3x32 of int32"),
    ):
        assert message in failed(call, *args)
