"""What a matrix instruction computes: from its row and the target to a function of matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ...dialect.isa.form import ElementType, element_type
from ...dialect.isa.wmma import WmmaMma
from . import f64 as numerics_f64
from . import floats
from .floats import Array
from .fused_sum import (
    Multiplicand,
    decoded,
    dot,
    fdp,
    group_dots,
    grouped_sum,
    multiplicand,
    small_codes,
    small_values,
    spread,
)
from .parameters import BITS, CHAIN, FUSED, GROUPED, INTEGER, SCALAR, WIDENED, Arithmetic, Row, arithmetic

# Integer products: s8, u8, s4, u4 and single bits.
#
# Sums are exact, then cut to 32 bits: they wrap or, with `.satfinite`, are clamped. Products of bytes are summed in
# f32, which is exact: 64 products of at most 255 * 255 stay below 2^24 as long as half of them are zeros (A sparse),
# and no instruction has more.

_LOW, _TOP = -(1 << 31), (1 << 31) - 1


def values(words: Array, element: ElementType) -> Array:
    """Bytes that hold one element each, as f32."""
    if not element.signed:
        return words.astype(np.float32)
    if element.bits == 8:
        return words.view(np.int8).astype(np.float32)
    return ((words ^ np.uint8(8)).astype(np.int8) - np.int8(8)).astype(np.float32)


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


# Matrix instructions that an architecture has no unit for: ptxas makes them of others.
#
# **8-bit floats on sm_90 and sm_100** are widened to f16, exactly. P are the products with k mod 4 < 2, Q the others;
# t = fused(P, 0), t = fused(Q, t), D = C + t, an ordinary addition to nearest, of f32 or f16. For `mma.sp` P and Q go
# by the place of an element among the stored ones. Read in machine code of ptxas 13.0, and replayed.
#
# **m8n8k4 with f16 from sm_80 on** is made of scalar instructions, see `scalar_product`.

_F16 = element_type("f16")


@cache
def _as_halves(kind: ElementType) -> Array:
    """The f16 word of each word of e4m3 or e5m2."""
    return small_values(kind).astype(np.float16).view(np.uint16)


def widened_product(
    core: Arithmetic, a: Array, b: Array, c: Array, types: tuple[ElementType, ElementType, str], where: Array | None
) -> Array:
    """D = A * B + C of words of 8-bit floats; `where` are the columns of a stored A."""
    left, right = _as_halves(types[0]).take(a), _as_halves(types[1]).take(b)
    first = np.arange(len(left)) % 4 < 2
    total = np.zeros_like(c)
    unblocked = replace(core, block=len(b))
    for chosen in (first, ~first):
        if where is None:
            x, y = multiplicand(left[chosen], _F16), multiplicand(right[chosen], _F16)
        else:
            x, y = spread_multiplicand(left[chosen], where[chosen], len(b), _F16), multiplicand(right, _F16)
        total = fdp(unblocked, x, y, total, types[2])
    return plus(c, total, types[2])


def spread_multiplicand(stored: Array, where: Array, depth: int, element: ElementType, kind: str = "") -> Multiplicand:
    """Stored elements of a sparse A, decoded, at their columns."""
    present = spread(np.ones(stored.shape, np.bool_), where, depth)
    return multiplicand(spread(stored, where, depth), element, kind).where(present)


def as_singles(words: Array) -> Array:
    """f16 words as f32 words."""
    return floats.single(words, "f16").view(np.uint32)


def plus(c: Array, sums: Array, d: str) -> Array:
    """C + sums as an ordinary addition to nearest of f32 or f16 words."""
    kind = np.float32 if d == "f32" else np.float16
    with np.errstate(all="ignore"):
        total = c.view(kind) + sums.view(kind)
    return floats.canonical(total.view(c.dtype), total, d)


def scalar_product(a: Array, b: Array, c: Array, d: str) -> Array:
    """m8n8k4 of f16: A (4, m, warps), B (4, n, warps), words; C and D of type `d`. With f32 sums t is a chain of fused
    multiply-adds from 0, k ascending, and D = C + t. With f16 sums it is (C + p01) + p23 in f32, p01 and p23 being two
    products each, rounded to f16 once."""
    x, y = (words.view(np.float16).astype(np.float32) for words in (a, b))
    left, right = x[:, :, None], y[:, None]
    with np.errstate(all="ignore"):
        if d == "f32":
            total = np.zeros(c.shape, np.float32)
            for row, column in zip(left, right, strict=True):
                total = _fma(row, column, total)
            return plus(c, total.view(np.uint32), d)
        total = c.view(np.float16).astype(np.float32)
        for k in (0, 2):
            pair = _fma(left[k + 1], right[k + 1], left[k] * right[k])
            total = total + pair
        result = total.astype(np.float16)
    return floats.canonical(result.view(np.uint16), result, d)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in f32, rounded once, of arrays that broadcast to c."""
    x, y = (np.broadcast_to(v, c.shape).reshape(-1) for v in (a, b))
    return floats.fma32(x, y, c.reshape(-1)).reshape(c.shape)


# What a matrix instruction computes: from its row and the target to a function of matrices.
#
# Matrices are arrays of words as `fragments` makes them of registers: A is (k, m, warps), of a sparse A the stored
# elements, B (k, n, warps), C and D (m, n, warps).


@dataclass(frozen=True, slots=True)
class SideOperands:
    """The columns of stored elements of A; the scales of A and B as words (vector, rows or columns, warps)."""

    columns: Array | None = None
    scale_a: Array | None = None
    scale_b: Array | None = None


@dataclass(frozen=True)
class MatrixProduct:
    """D = A * B + C as `row` says, in the arithmetic of an architecture."""

    row: Row
    core: Arithmetic

    @staticmethod
    def on(target: str, row: Row) -> MatrixProduct:
        """The product on a target such as "sm_90a". Raises ValueError if no arithmetic of it is known there."""
        return MatrixProduct(row, arithmetic(target, row))

    def __call__(self, a: Array, b: Array, c: Array, extras: SideOperands | None = None) -> Array:
        d = _COMPUTE[self.core.algorithm](self, a, b, c, extras or SideOperands())
        row = self.row
        return _clamped(d, row.d) if isinstance(row, WmmaMma) and row.satfinite and row.d.is_float else d


def _clamped(words: Array, type: ElementType) -> Array:
    """No infinities: the largest number in their place, and +0 in that of a NaN."""
    magnitude, infinity = (1 << type.bits - 1) - 1, ((1 << type.exponent) - 1) << type.mantissa
    size = words & words.dtype.type(magnitude)
    finite = np.where(size == infinity, words - words.dtype.type(1), words)
    return np.where(size > infinity, words.dtype.type(0), finite)


def _fused(p: MatrixProduct, a: Array, b: Array, c: Array, extras: SideOperands) -> Array:
    row, d = p.row, p.row.d.name
    if row.c.name == "f32" and d == "f16":
        # wmma alone has such forms: the sum is f32, and then rounded again.
        with np.errstate(all="ignore"):
            return floats.rounded(floats.value(_sum(p, a, b, c, "f32", extras), "f32"), "f16")
    return _sum(p, a, b, c if row.c == row.d or p.core.half_addend else as_singles(c), d, extras)


def _sum(p: MatrixProduct, a: Array, b: Array, c: Array, d: str, extras: SideOperands) -> Array:
    row = p.row
    if extras.columns is None:
        left = multiplicand(a, row.a, row.kind)
    else:
        left = spread_multiplicand(a, extras.columns, len(b), row.a, row.kind)
    right = multiplicand(b, row.b, row.kind)
    if extras.scale_a is None or extras.scale_b is None or row.scale is None:
        return fdp(p.core, left, right, c, d)
    (sa, ea), (sb, eb) = (decoded(s[0], row.scale.type) for s in (extras.scale_a, extras.scale_b))
    result = fdp(p.core, left, right, c, d, ea[:, None] + eb[None])
    result[np.isnan(sa[:, None] * sb[None])] = floats.NAN[d]
    return result


def _grouped(p: MatrixProduct, a: Array, b: Array, c: Array, extras: SideOperands) -> Array:
    row = p.row
    if extras.scale_a is None or extras.scale_b is None or row.scale is None:
        raise ValueError(f"{row.spelling} has no scales")
    x, y = (small_values(t).take(small_codes(w, t, row.kind)) for w, t in ((a, row.a), (b, row.b)))
    dots, sizes = (group_dots(*pair, len(a) // 16, extras.columns) for pair in ((x, y), (np.abs(x), np.abs(y))))
    return grouped_sum(p.core, dots, sizes == 0, c, extras.scale_a, extras.scale_b, row.scale.type)


def _integer(p: MatrixProduct, a: Array, b: Array, c: Array, extras: SideOperands) -> Array:
    x = values(a, p.row.a) if extras.columns is None else spread(values(a, p.row.a), extras.columns, len(b))
    return add(dot(x, values(b, p.row.b)).astype(np.int64), c, p.row.satfinite)


_COMPUTE: dict[str, Callable[[MatrixProduct, Array, Array, Array, SideOperands], Array]] = {
    FUSED: _fused,
    WIDENED: lambda p, a, b, c, extras: widened_product(
        p.core, a, b, c, (p.row.a, p.row.b, p.row.d.name), extras.columns
    ),
    SCALAR: lambda p, a, b, c, _: scalar_product(a, b, c if p.row.c == p.row.d else as_singles(c), p.row.d.name),
    CHAIN: lambda p, a, b, c, _: numerics_f64.chain(a, b, c, p.row.rounding or "rn"),
    GROUPED: _grouped,
    INTEGER: _integer,
    BITS: lambda p, a, b, c, _: bits(a, b, c, getattr(p.row, "bit_op", "") or "xor"),
}
