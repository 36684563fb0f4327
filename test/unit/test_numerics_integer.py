"""Products of integers and single bits against Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.dialect.isa import mma, sparse_mma
from warploom.dialect.isa.form import ElementType
from warploom.dialect.isa.mma import Mma
from warploom.runtime.numerics.product import MatrixProduct, SideOperands
from warploom.runtime.numerics.sparse import columns

Array = NDArray[Any]
WARPS = 3


def number(word: int, element: ElementType) -> int:
    return word - (1 << element.bits) if element.signed and word >> (element.bits - 1) else word


def finished(total: int, satfinite: bool) -> int:
    """The word of a sum: clamped or wrapped."""
    if satfinite:
        total = min(max(total, -(2**31)), 2**31 - 1)
    return total & 0xFFFFFFFF


ROWS: list[Mma] = [
    *(r for r in mma.rows() if r.a.bits in (4, 8) and not r.a.is_float),
    *(r for r in sparse_mma.rows() if not r.a.is_float and not r.ordered),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.spelling)
def test_products_of_integers(row: Mma, target: str) -> None:
    """The largest values too, and C at the ends of its range."""
    random = np.random.default_rng(3)
    m, n, k = row.shape
    stored = k // 2 if row.sparse else k
    top = 1 << row.a.bits
    a, b = (random.integers(0, top, s).astype(np.uint8) for s in ((stored, m, WARPS), (k, n, WARPS)))
    extreme = np.uint8(top // 2 if row.a.signed else top - 1), np.uint8(top // 2 if row.b.signed else top - 1)
    a[..., 2], b[..., 2] = extreme
    c = random.choice([5, 0x7FFFFFFF, 0x80000000, 0x7FFFFF00, 0x80000100], (m, n, WARPS)).astype(np.uint32)
    where = None
    if row.sparse:
        nibbles = random.choice(row.codes, (32, 8, WARPS)) << (4 * np.arange(8))[:, None]
        where = columns(row, np.bitwise_or.reduce(nibbles, axis=1).astype(np.uint32), 0)
    got = MatrixProduct.on(target, row)(a, b, c, SideOperands(where))
    for i, j, w in [(0, 0, 0), (m - 1, n - 1, 2), (3, 5, 2), (7, 2, 1), (5, 1, 0)]:
        at = np.arange(k) if where is None else where[:, i, w]
        pairs = [(int(a[s, i, w]), int(b[column, j, w])) for s, column in enumerate(at)]
        total = sum(number(x, row.a) * number(y, row.b) for x, y in pairs)
        assert int(got[i, j, w]) == finished(total + number(int(c[i, j, w]), row.c), row.satfinite)


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("row", [r for r in mma.rows() if r.a.name == "b1"], ids=lambda r: r.spelling)
def test_products_of_single_bits(row: Mma, target: str) -> None:
    random = np.random.default_rng(4)
    m, n, k = row.shape
    a, b = (random.integers(0, 1 << 32, s).astype(np.uint32) for s in ((k // 32, m, WARPS), (k // 32, n, WARPS)))
    c = random.choice([0, 0x7FFFFFFF, 0xFFFFFFFF], (m, n, WARPS)).astype(np.uint32)
    got = MatrixProduct.on(target, row)(a, b, c)
    for i, j, w in np.ndindex(m, n, WARPS):
        total = int(c[i, j, w])
        for x, y in zip(a[:, i, w].tolist(), b[:, j, w].tolist(), strict=True):
            total += (x ^ y if row.bit_op == "xor" else x & y).bit_count()
        assert int(got[i, j, w]) == total & 0xFFFFFFFF
