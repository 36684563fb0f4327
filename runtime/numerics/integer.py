"""Integer products: s8, u8, s4, u4 and single bits.

Sums are exact, then cut to 32 bits: they wrap or, with `.satfinite`, are clamped. Products of bytes are summed in f32,
which is exact: 64 products of at most 255 * 255 stay below 2^24 as long as half of them are zeros (A sparse), and no
instruction has more.
"""

from __future__ import annotations

import numpy as np

from ...dialect.isa.types import ElementType
from .array import Array

_LOW, _TOP = -(1 << 31), (1 << 31) - 1


def values(words: Array, element: ElementType) -> Array:
    """Bytes that hold one element each, as f32."""
    if not element.signed:
        return words.astype(np.float32)
    if element.bits == 8:
        return words.view(np.int8).astype(np.float32)
    return ((words ^ np.uint8(8)).astype(np.int8) - np.int8(8)).astype(np.float32)


def dot(a: Array, b: Array) -> Array:
    """Sums of products of A (k, m, warps) and B (k, n, warps), as int64 (m, n, warps)."""
    left, right = np.ascontiguousarray(a.transpose(2, 1, 0)), np.ascontiguousarray(b.transpose(2, 0, 1))
    return np.matmul(left, right).transpose(1, 2, 0).astype(np.int64)


def add(sums: Array, c: Array, satfinite: bool) -> Array:
    """C plus the sums, as 32-bit words."""
    total = sums + c.view(np.int32)
    if satfinite:
        total = np.clip(total, _LOW, _TOP)
    return total.astype(np.int32).view(np.uint32)


def bits(a: Array, b: Array, c: Array, op: str) -> Array:
    """C plus the number of ones in the xor, or the and, of words of A (k / 32, m, warps) and B (k / 32, n, warps)."""
    function = np.bitwise_xor if op == "xor" else np.bitwise_and
    total = c.copy()
    for row, column in zip(a, b, strict=True):
        total += np.bitwise_count(function(row[:, None], column[None]))
    return total
