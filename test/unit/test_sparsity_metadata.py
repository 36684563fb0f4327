"""Sparse metadata: layouts against the tables, words against slow formulas, and every complaint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from warploom.dialect.isa import mma, sparse_mma, wgmma
from warploom.dialect.isa.form import ProductForm
from warploom.dialect.layouts.layout import Layout
from warploom.runtime.numerics import sparse
from warploom.runtime.numerics.sparse import SparsityError, validate_words

Array = NDArray[Any]

# Straight from the text of 9.7.14.6.1
ORDERED = {0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110}
TF32 = {0b1110, 0b0100}

Key = tuple[int, int, str, str]
ROWS: dict[Key, ProductForm] = {
    (row.shape.m, row.shape.k, row.a.name, row.kind): row for row in (*sparse_mma.rows(), *wgmma.rows()) if row.sparse
}
OPERANDS = pytest.mark.parametrize("key", ROWS, ids=lambda key: "-".join(map(str, key)))

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


def metadata(row: ProductForm) -> Layout:
    assert row.metadata is not None
    return row.metadata


def slow_words(codes: Array, key: Key, selector: int) -> list[int]:
    """The words of one tile, nibble by nibble."""
    rule, chunks, _ = RULES[key]
    words = [0] * (2 * key[0])
    for row in range(key[0]):
        for c in range(chunks):
            lane, q = rule(row % 8, row % 16 // 8, c, selector)
            words[32 * (row // 16) + lane] |= int(codes[row, c]) << 4 * q
    return words


def failed(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(SparsityError) as error:
        call(*args, **kwargs)
    return str(error.value)


def test_every_row_has_a_rule_and_every_rule_a_row() -> None:
    assert set(ROWS) == set(RULES)


@OPERANDS
def test_metadata_layout_is_the_rule(key: Key) -> None:
    (rule, chunks, selectors), layout = RULES[key], metadata(ROWS[key])
    assert (layout.columns, layout.extent("f"), layout.rows) == (chunks, selectors, key[0])
    for f, row, c in np.ndindex(selectors, key[0], chunks):
        lane, q = rule(row % 8, row % 16 // 8, c, f)
        assert layout.find(f=f, r=row, c=c) == (32 * (row // 16) + lane, q)


def some_codes(row: ProductForm, rows: int, chunks: int, data: st.DataObject) -> Array:
    """Legal codes; drawn as a seed, since there are up to 2048 of them."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    return rng.choice(np.array(row.codes, np.uint8), (rows, chunks))


@pytest.mark.sampled(8)
@OPERANDS
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_matrix_words_are_the_tiles_in_loading_order(key: Key, data: st.DataObject) -> None:
    row, m, (_, of_tile, selectors) = ROWS[key], key[0], RULES[key]
    rows, chunks = data.draw(st.integers(1, 2 * m)), data.draw(st.integers(1, 70))
    codes = some_codes(row, rows, chunks, data)
    words = sparse.metadata_words(codes, row)
    across = selectors * of_tile
    assert words.dtype == np.uint32
    assert words.shape == (-(-rows // m), -(-chunks // across), 2 * m)
    tiles = np.full((words.shape[0] * m, words.shape[1] * across), sparse.ANY_CODE, np.uint8)
    tiles[:rows, :chunks] = codes
    for i, j in np.ndindex(*words.shape[:2]):
        expected = np.zeros(2 * m, np.uint32)
        for f in range(selectors):
            start = (j * selectors + f) * of_tile
            tile = tiles[i * m : (i + 1) * m, start : start + of_tile]
            expected |= np.array(slow_words(tile, key, f), np.uint32)
        assert (words[i, j] == expected).all()
    assert (sparse.metadata_codes(words, row, rows, chunks) == codes).all()
    assert (sparse.metadata_codes(words, row, *tiles.shape) == tiles).all()


@pytest.mark.sampled(6)
@OPERANDS
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_wrong_nibble_is_named(key: Key, data: st.DataObject) -> None:
    (m, _, element, kind), row = key, ROWS[key]
    legal = TF32 if element == "tf32" else ORDERED
    rule, chunks, selectors = RULES[key]
    at, chunk = data.draw(st.integers(0, m - 1)), data.draw(st.integers(0, selectors * chunks - 1))
    code = data.draw(st.sampled_from(sorted(set(range(16)) - legal)))
    codes = np.full((m, selectors * chunks), 0b0100, np.uint8)
    codes[at, chunk] = code
    lane, q = rule(at % 8, at % 16 // 8, chunk % chunks, chunk // chunks)
    warp = f"warp {at // 16}, " if m == 64 else ""
    where = f"row tile 0, column group 0, {warp}lane {lane}, nibble {q} (row {at}, chunk {chunk}): 0b{code:04b} of word"
    message = failed(validate_words, sparse.metadata_words(codes, row), row)
    assert message.startswith(where)
    name = f"mma.sp {row.shape}" if m == 16 else f"wgmma.mma_async.sp m64nNk{row.shape.k}"
    assert f"has no meaning for {name} {element}{f' .kind::{kind}' if kind else ''}: " in message


def test_wrong_nibbles_say_why() -> None:
    row = ROWS[16, 16, "f16", ""]
    codes = np.full((16, 16), 0b0100, np.uint8)
    codes[9, 3 * 4 + 2] = 0b0001
    words = sparse.metadata_words(codes, row)
    assert failed(validate_words, words, row) == (
        "row tile 0, column group 0, lane 7, nibble 6 (row 9, chunk 14): 0b0001 of word 0x41444444 has no meaning for "
        "mma.sp m16n8k16 f16: indices must increase from the lowest bits, got 1, 0; 0b0100 with the stored elements "
        "exchanged says the same"
    )
    tf32 = np.full((1, 1, 32), 0x44444444, np.uint32)
    tf32[..., ::4] += 4
    assert failed(validate_words, tf32, ROWS[16, 8, "tf32", ""]).endswith(
        "for mma.sp m16n8k8 tf32: expected one of 0b0100, 0b1110; 8 nibbles have none"
    )


def test_wrong_nibbles_of_a_matrix_are_named_by_tile() -> None:
    row = ROWS[64, 32, "bf16", ""]
    codes = np.full((128, 48), 0b1110, np.uint8)
    codes[64 + 37, 16 + 13] = 0b1111
    words = sparse.metadata_words(codes, row)
    # row 37 of the tile is row 5 of warp 2; chunk 13 of the group is chunk 5 under selector 1
    assert failed(validate_words, words, row).startswith(
        "row tile 1, column group 1, warp 2, lane 23, nibble 1 (row 101, chunk 29): 0b1111 of word 0xeeeeeefe has"
    )


def test_words_of_other_instructions_and_of_less() -> None:
    row, words = ROWS[16, 32, "f16", ""], np.zeros((2, 3, 32), np.uint32)
    assert "has no sparse A" in failed(sparse.metadata_words, np.zeros((1, 2), np.uint8), mma.rows()[0])
    assert failed(sparse.metadata_codes, words, row, 33, 48) == (
        "2x3x32 words hold 32x48 codes of mma.sp m16n8k32 f16, not 33x48"
    )
    assert "not 1x49" in failed(sparse.metadata_codes, words, row, 1, 49)
