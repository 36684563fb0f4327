"""The arithmetic of narrow types, of sparse operands and of block scales, against models of one element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scalar_models import Value, block, decode, multiply, rounded

from warploom.dialect.isa import mma, sparse_mma
from warploom.dialect.isa.form import ElementType, element_type
from warploom.dialect.isa.mma import Mma
from warploom.runtime.interp import Arithmetic, arithmetic
from warploom.runtime.numerics.fused_sum import scales
from warploom.runtime.numerics.product import GROUPED, WIDENED, MatrixProduct, SideOperands
from warploom.runtime.numerics.sparse import NibbleError, columns, positions

Array = NDArray[Any]
Row = Mma
WARPS = 3
F16 = element_type("f16")


def drawn(random: np.random.Generator, element: ElementType, kind: str, shape: tuple[int, ...]) -> Array:
    """Words of a type as they lie in registers: any bits, small exponents, or near one; with zeros mixed in."""
    e, m = element.exponent, element.mantissa
    bias = (1 << (e - 1)) - 1 if e else 0
    fields = {
        "bits": random.integers(0, 1 << e, shape),
        "least": random.integers(0, 2, shape),
        "near": np.clip(random.integers(bias - 2, bias + 3, shape), 0, (1 << e) - 1),
    }[kind]
    words = random.integers(0, 2, shape) << (e + m) | fields << m | random.integers(0, 1 << m, shape)
    words[random.random(shape) < 0.1] &= 1 << (e + m)
    words <<= max(0, element.bits - 1 - e - m) if element.name == "tf32" else 0
    return words.astype(f"u{max(1, element.bits // 8)}")


def in_bytes(words: Array, row: Row, element: ElementType) -> Array:
    """Where the narrow types lie in their bytes, with noise around them."""
    if row.kind in ("f8f6f4", "mxf8f6f4"):
        noise = np.uint8(0xC3 if element.bits == 4 else 0xC0 if element.bits == 6 else 0)
        return words << np.uint8(2 if element.bits == 4 else 0) | noise
    return words


def words_as_half(word: int, kind: ElementType) -> int:
    """The f16 word of the value of an 8-bit float."""
    value = decode(word, kind)
    number = float(value) if isinstance(value, str) else float(value[0])
    sign = word >> 7
    return int(np.array(np.copysign(number, -1.0 if sign else 1.0), np.float16).view(np.uint16))


def widened(core: Arithmetic, pairs: list[tuple[int, int]], types: tuple[ElementType, ElementType], c: int,
            d: ElementType) -> int:  # fmt: skip
    """P over k mod 4 < 2, then Q, then an addition to nearest."""
    total = 0
    for chosen in ((0, 1), (2, 3)):
        words = [(words_as_half(x, types[0]), words_as_half(y, types[1])) for x, y in pairs_at(pairs, chosen)]
        products = [multiply(decode(x, F16), decode(y, F16)) for x, y in words]
        total = block(core, products, decode(total, d), d)
    word, number, nan = (np.uint32, np.float32, 0x7FFFFFFF) if d.bits == 32 else (np.uint16, np.float16, 0x7FFF)
    with np.errstate(all="ignore"):
        result = np.array(c, word).view(number) + np.array(total, word).view(number)
    return nan if np.isnan(result) else int(np.array(result).view(word))


def pairs_at(pairs: list[tuple[int, int]], rest: tuple[int, int]) -> list[tuple[int, int]]:
    return [pair for k, pair in enumerate(pairs) if k % 4 in rest]


def in_blocks(core: Arithmetic, products: list[Value], c: int, d: ElementType) -> int:
    size = min(len(products), core.block)
    for k in range(0, len(products), size):
        c = block(core, products[k : k + size], decode(c, d), d)
    return c


def scaled(value: Value, scale: Value) -> Value:
    if isinstance(value, str) or isinstance(scale, str):
        return "nan" if "nan" in (value, scale) else value
    return value[0] * scale[0], value[1] + scale[1]


def scale_value(word: int, kind: ElementType) -> Value:
    if kind.name == "ue8m0":
        return "nan" if word == 255 else (Fraction(2) ** (word - 127), word - 127)
    return decode(word & 0x7F, kind)


def model(core: Arithmetic, row: Row, pairs: list[tuple[int, int]], c: int, scale: list[Value]) -> int:
    """One element of D; `scale` has that of each stored product."""
    if core.algorithm == WIDENED:
        return widened(core, pairs, (row.a, row.b), c, row.d)
    products = [multiply(decode(x, row.a), decode(y, row.b)) for x, y in pairs]
    if core.algorithm != GROUPED:
        return in_blocks(core, [scaled(p, s) for p, s in zip(products, scale, strict=True)], c, row.d)
    terms: list[Value] = []
    exponents: list[int] = []
    for g in range(0, len(products), 16):
        # Not where the products cancel, only where each is zero, or the scale is.
        times = scale[g]
        if (
            not isinstance(times, str)
            and times[0]
            and any(p[0] for p in products[g : g + 16] if not isinstance(p, str))
        ):
            exponents.append(times[1])
        dot = sum((p[0] for p in products[g : g + 16] if not isinstance(p, str)), Fraction(0))
        terms.append(scaled((dot, 0), scale[g]))
    return block(core, terms, decode(c, row.d), row.d, exponents)


def stored_columns(random: np.random.Generator, row: Mma) -> Array:
    """Columns of stored elements, of random legal metadata: (k / 2, m, warps)."""
    words = random.choice(row.codes, (32, 8, WARPS)) << (4 * np.arange(8))[:, None]
    return columns(row, np.bitwise_or.reduce(words, axis=1).astype(np.uint32), row.selectors[-1])


def operands(row: Row, kind: str, seed: int) -> tuple[Array, Array, Array, SideOperands]:
    """Words of A, B and C without noise, and the rest."""
    random = np.random.default_rng(seed)
    m, n, k = row.shape
    sparse = row.sparse
    a = drawn(random, row.a, kind, (k // 2 if sparse else k, m, WARPS))
    b, c = drawn(random, row.b, kind, (k, n, WARPS)), drawn(random, row.c, kind, (m, n, WARPS))
    where = stored_columns(random, row) if sparse else None
    if row.scale is None:
        return a, b, c, SideOperands(where)
    low, high = (120, 134) if row.scale.type.name == "ue8m0" else (0, 256)
    sizes = ((row.scale.vector, m, WARPS), (row.scale.vector, n, WARPS))
    of_a, of_b = (random.integers(low, high, s).astype(np.uint8) for s in sizes)
    of_a[0, 0, 0] = 255
    return a, b, c, SideOperands(where, of_a, of_b)


def compared(target: str, row: Row, kind: str, seed: int = 0, elements: int = 12) -> None:
    core = arithmetic(target, row)
    a, b, c, extras = operands(row, kind, seed)
    got = MatrixProduct(row, core)(in_bytes(a, row, row.a), in_bytes(b, row, row.b), c, extras)
    random = np.random.default_rng(seed + 1)
    for number in range(elements):
        i, j, w = (int(random.integers(s)) if number else 0 for s in (row.shape.m, row.shape.n, WARPS))
        at = np.arange(row.shape.k) if extras.columns is None else extras.columns[:, i, w]
        pairs = [(int(a[s, i, w]), int(b[column, j, w])) for s, column in enumerate(at)]
        scale: list[Value] = [(Fraction(1), 0)] * len(pairs)
        if row.scale and extras.scale_a is not None and extras.scale_b is not None:
            vector = row.scale.vector
            both = [(int(extras.scale_a[v, i, w]), int(extras.scale_b[v, j, w])) for v in range(vector)]
            values = [multiply(*(scale_value(x, row.scale.type) for x in pair)) for pair in both]
            scale = [values[int(column) * vector // row.shape.k] for column in at]
        expected = model(core, row, pairs, int(c[i, j, w]), scale)
        assert hex(int(got[i, j, w])) == hex(expected), (i, j, w)


def narrow() -> Iterator[tuple[str, Row]]:
    """Each family of narrow types on each target that computes it in its own way; a few of the mixes of types."""
    for row in (*mma.rows(), *sparse_mma.rows()):
        if not row.a.is_float or row.a.bits > 8:
            continue
        plain = isinstance(row, Mma) or row.ordered
        if row.kind:
            if row.a.bits + row.b.bits in (8, 10, 12, 13, 16) and row.a.name <= row.b.name and plain:
                yield "sm_120a", row
        elif plain:
            yield from ((t, row) for t in ("sm_89", "sm_90", "sm_120a") if row.sm <= int(t[3:].rstrip("a")))


CASES = list(narrow())


CANCELLING = [row for _, row in CASES if "mxf4" in row.kind and isinstance(row, Mma)]


@pytest.mark.parametrize("row", CANCELLING, ids=lambda x: x.spelling)
def test_a_group_that_cancels_keeps_the_exponent_of_its_scales(row: Mma) -> None:
    """C = 2^-30 is cut by the scales 2^8 of a group of 1 - 1 + 1 - ..., and not by groups of zeros or zero scales."""
    assert row.scale is not None
    (m, n, k), vector = row.shape, row.scale.vector
    one, minus, large = 0b0010, 0b1010, {"ue8m0": 135, "ue4m3": 0x78}[row.scale.type.name]
    signs = np.where(np.arange(k) % 2 == 0, one, minus).astype(np.uint8)[:, None, None]
    c = np.full((m, n, WARPS), 2.0**-30, np.float32).view(np.uint32)

    def result(a: Array, size: int) -> set[int]:
        ones, scale_b = np.full((k, n, WARPS), one, np.uint8), np.full((vector, n, WARPS), large, np.uint8)
        extras = SideOperands(None, np.full((vector, m, WARPS), size, np.uint8), scale_b)
        words = in_bytes(np.ascontiguousarray(a), row, row.a), in_bytes(ones, row, row.b)
        return set(MatrixProduct(row, arithmetic("sm_120a", row))(*words, c.copy(), extras).ravel().tolist())

    kept, shape = {int(c[0, 0, 0])}, (k, m, WARPS)
    assert result(np.broadcast_to(signs, shape), large) == {0}
    assert result(np.zeros(shape, np.uint8), large) == kept
    assert result(np.broadcast_to(signs * (np.arange(k) < 16)[:, None, None].astype(np.uint8), shape), large) == {0}
    if row.scale.type.name == "ue4m3":
        assert result(np.broadcast_to(signs, shape), 0) == kept


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("target", "row"), CASES, ids=lambda x: x if isinstance(x, str) else x.spelling)
def test_narrow_types(target: str, row: Row) -> None:
    for seed, kind in enumerate(("bits", "least", "near")):
        compared(target, row, kind, seed)


WIDE_SPARSE = [row for row in sparse_mma.rows() if row.a.is_float and row.a.bits > 8 and not row.ordered]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("row", WIDE_SPARSE, ids=lambda r: r.spelling)
def test_sparse_operands(row: Mma, target: str) -> None:
    for seed, kind in enumerate(("bits", "least", "near")):
        compared(target, row, kind, seed)


def test_what_a_sparse_operand_does_not_meet_leaves_no_trace() -> None:
    """Infinities and NaNs of B beside the stored columns; a stored zero meets an infinity."""
    row = next(r for r in WIDE_SPARSE if r.a.name == "f16" and r.d.name == "f32")
    a = np.full((row.shape.k // 2, 16, 1), 0x3C00, np.uint16)
    b = np.full((row.shape.k, 8, 1), 0x7C00, np.uint16)
    b[::2] = 0x3C00
    c = np.zeros((16, 8, 1), np.uint32)
    where = np.repeat(np.arange(0, row.shape.k, 2), 16).reshape(-1, 16, 1)
    compute = MatrixProduct.on("sm_90", row)
    expected = np.float32(row.shape.k // 2).view(np.uint32)
    assert np.all(compute(a, b, c, SideOperands(where)) == expected)
    a[0, 3] = 0
    b[0, 5] = 0x7C00
    got = compute(a, b, c, SideOperands(where))
    assert got[3, 5, 0] == 0x7FFFFFFF
    assert got[2, 5, 0] == 0x7F800000
    assert got[3, 4, 0] == np.float32(row.shape.k // 2 - 1).view(np.uint32)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("row", sparse_mma.rows(), ids=lambda r: r.spelling)
def test_metadata_against_the_rows_of_sparse_storage(row: Mma) -> None:
    layout, how = row.metadata, row.granularity
    assert layout is not None
    assert how is not None
    random = np.random.default_rng(5)
    for selector in row.selectors:
        nibbles = random.choice(row.codes, (32, 8, 2))
        words = np.bitwise_or.reduce(nibbles << (4 * np.arange(8))[:, None], axis=1).astype(np.uint32)
        matrix = columns(row, words, selector).reshape(layout.columns, -1, 16, 2)
        for r, chunk, w in np.ndindex(16, layout.columns, 2):
            lane, nibble = layout.find(f=selector, r=r, c=chunk)
            units = positions(how, int(nibbles[lane, nibble, w]))
            expected = [chunk * how.chunk + u * how.group + i for u in units for i in range(how.group)]
            assert matrix[chunk, :, r, w].tolist() == expected


def test_metadata_is_checked() -> None:
    row = next(r for r in sparse_mma.rows() if r.ordered and r.a.name == "f16" and r.shape.k == 32)
    words = np.full((32, 2), 0x44444444, np.uint32)
    words[9, 1] = 0x44144444
    with pytest.raises(NibbleError, match="metadata 0b0001 for chunk 5 of row 10 of A means nothing; expected one of"):
        columns(row, words, 0)
    columns(row, words, 1)
    columns(replace(row, ordered=False), words, 0)


@pytest.mark.parametrize("role", ["a", "b"])
@pytest.mark.parametrize("vector", [1, 2, 4])
def test_scales_by_the_rule_of_the_tables(vector: int, role: str) -> None:
    """Row g + 8h of A: lane 4g + 2 * thread-id + h; column n of B: lane 4n + thread-id; byte byte-id + s."""
    row = next(r.scale for r in mma.rows() if r.scale and r.scale.vector == vector)
    words = np.random.default_rng(6).integers(0, 1 << 32, (32, 3)).astype(np.uint32)
    for byte_id in row.byte_ids:
        for thread_id in row.thread_ids(role):
            got = scales(row, role, words, byte_id, thread_id)
            for i in range(got.shape[1]):
                lane = 4 * (i % 8) + 2 * thread_id + i // 8 if role == "a" else 4 * i + thread_id
                for s in range(vector):
                    assert got[s, i].tolist() == (words[lane] >> np.uint32(8 * (byte_id + s)) & 0xFF).tolist()


def half(word: int) -> Fraction:
    value = decode(word, F16)
    assert not isinstance(value, str)
    return value[0]


def single(value: Fraction) -> Fraction:
    result = rounded(value, 23, -126, 127)
    assert not isinstance(result, str)
    return result


@pytest.mark.parametrize("d", ["f16", "f32"])
def test_m8n8k4_of_later_targets(d: str) -> None:
    """f32: a chain of multiply-adds from 0, then C; f16: two pairs of products, in f32, rounded to f16 once."""
    row = next(r for r in mma.rows() if r.products == 4 and r.c.name == r.d.name == d)
    random = np.random.default_rng(7)
    a, b = (random.integers(0x2000, 0x4800, (4, 8, 5)).astype(np.uint16) for _ in range(2))
    a ^= random.integers(0, 2, a.shape).astype(np.uint16) << np.uint16(15)
    c = random.standard_normal((8, 8, 5)).astype(f"f{row.c.bits // 8}")
    got = MatrixProduct.on("sm_80", row)(a, b, c.view(f"u{row.c.bits // 8}"))
    for i, j, w in np.ndindex(8, 8, 5):
        p = [half(int(a[k, i, w])) * half(int(b[k, j, w])) for k in range(4)]
        total = Fraction(float(c[i, j, w]))
        if d == "f32":
            chain = Fraction(0)
            for product in p:
                chain = single(chain + product)
            expected = single(total + chain)
        else:
            total = single(single(total + single(p[0] + p[1])) + single(p[2] + p[3]))
            expected = rounded(total, 10, -14, 15)
        assert Fraction(float(got[i, j, w].view(c.dtype))) == expected
