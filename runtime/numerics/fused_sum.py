"""The exact arithmetic of the tensor cores: one truncated fused sum, with parameters per architecture.

For one element of D: D = C; then for each consecutive block of L products, k ascending, D = block + D, where

1. products are exact and not normalised: significand in [0, 4), exponent ea + eb; subnormal operands keep the
   format's least exponent; tf32 operands lose their low 13 bits;
2. E is the largest exponent among the block's products and D; a zero term has `zero_exponent`, which is a floor;
3. each term is cut toward zero to F bits below 2^E, and the sum of the cut terms is exact;
4. the sum becomes f32 toward zero with gradual underflow (of fewer mantissa bits, where the parameters say so), or f16
   to nearest even. A sum that reaches 2^128 is an infinity, what is zero or rounds to zero is +0, NaN is 0x7FFFFFFF
   (f16: 0x7FFF), and inf * 0 and inf - inf are NaN.

`fdp` works on many warps at once: the last axis of its operands runs over them, so that every numpy operation goes
over long rows. A product of two 11-bit significands is exact in f32, and 16 of them, each below 4 * 2^25 units,
sum in an int32.
"""

from __future__ import annotations

import numpy as np

from .array import Array
from .operands import LEAST_NARROW, ZERO_WIDE, Multiplicand, warp_by_warp
from .parameters import Arithmetic

F32_NAN = np.uint32(0x7FFFFFFF)
F16_NAN = np.uint16(0x7FFF)

_BATCH = 16 * 8 * 128
"""Elements of D in one pass: measured; temporaries of so many words stay in the second-level cache."""

_LEAST_ROW = 16
"""Warps, or warpgroups, that make rows long enough; of fewer each is taken alone, its columns being the rows."""


def fdp(core: Arithmetic, a: Multiplicand, b: Multiplicand, c: Array, d: str, scale: Array | None = None) -> Array:
    """D = A * B + C. A is (k, m, warps), B (k, n, warps), C and D (m, n, warps).

    `d` is the type of D, "f32" (uint32 words) or "f16" (uint16 words), C words of either type; the result is new words.
    `scale` are exponents (m, n, warps) that are added to those of all products. Of a sparse A half of the products are
    there: L of them lie among twice as many columns.
    """
    depth, warps = a.value.shape[0], a.value.shape[2]
    block = min(depth, core.block * (1 if a.present is None else 2))
    out = np.empty(c.shape, np.uint32 if d == "f32" else np.uint16)
    batch = _BATCH // (c.shape[0] * c.shape[1])
    if batch < _LEAST_ROW:
        batch, a, b, c, out = 1, a.warp_by_warp(), b.warp_by_warp(), warp_by_warp(c), warp_by_warp(out)
    for start in range(0, warps, batch):
        part = slice(start, min(start + batch, warps))
        acc = np.ascontiguousarray(c[..., part])
        shift = None if scale is None else scale[..., part]
        for k in range(0, depth, block):
            products = slice(k, k + block)
            with np.errstate(all="ignore"):
                acc = _block(core, a.part(products, part), b.part(products, part), acc, d, shift)
        out[..., part] = acc
    return out


def _block(core: Arithmetic, a: Multiplicand, b: Multiplicand, c: Array, d: str, shift: Array | None) -> Array:
    addend = c.view(np.float32 if c.dtype == np.uint32 else np.float16).astype(np.float64)
    total, quantum = _sum_of_cut_terms(core, a, b, addend, addend_exponents(c, core.zero(d)), shift)
    result = rounded_sum(total, quantum, d, core.mantissa)
    if not (a.finite and b.finite and bool(np.isfinite(addend).all())):
        put_specials(result, special_sum(a, b, addend), d)
    return result


def _sum_of_cut_terms(
    core: Arithmetic, a: Multiplicand, b: Multiplicand, addend: Array, floor: Array, shift: Array | None
) -> tuple[Array, Array]:
    """The sums in units, as float64, and the exponents of the units."""
    top = _largest_exponents(a.exponent, b.exponent)
    if shift is not None:
        top = top + shift
    top = np.maximum(top, floor)
    quantum = top - core.fraction
    single = a.single and b.single
    # Few enough products of few enough bits sum in an int32; of a sparse A, half of the terms are zeros.
    terms = a.value.shape[0] // (1 if a.present is None else 2)
    narrow = terms * 4 << core.fraction <= 1 << 31
    right = b.value if a.present is None else _finite(b)
    scale = -quantum if shift is None else shift - quantum
    products = _cut_products(a.value, right, scale, single, narrow)
    return products + np.trunc(np.ldexp(addend, -quantum)), quantum


def _finite(b: Multiplicand) -> Array:
    """The values of B with zeros for infinities and NaNs: what no element of A meets leaves no trace."""
    return b.value if b.finite else np.where(np.isfinite(b.value), b.value, b.value.dtype.type(0))


def _largest_exponents(a: Array, b: Array) -> Array:
    """max over k of a[k, i] + b[k, j]: (m, n, warps), int32; far below any exponent where all products are zero."""
    largest = np.add(a[0][:, None], b[0][None])
    term = np.empty_like(largest)
    for row, column in zip(a[1:], b[1:], strict=True):
        np.add(row[:, None], column[None], out=term)
        np.maximum(largest, term, out=largest)
    wide = largest.astype(np.int32)
    if largest.dtype == np.int8:
        wide[largest < LEAST_NARROW] = ZERO_WIDE
    return wide


def addend_exponents(words: Array, zero_exponent: int) -> Array:
    """Unnormalised exponents of f32 or f16 words; a zero has `zero_exponent`."""
    mantissa, mask, bias = (23, 0xFF, 127) if words.dtype == np.uint32 else (10, 0x1F, 15)
    exponent = np.maximum((words >> mantissa).astype(np.int32) & mask, 1) - bias
    exponent[(words << 1) == 0] = zero_exponent
    return np.maximum(exponent, zero_exponent)


def _cut_products(a: Array, b: Array, scale_exponent: Array, single: bool, narrow: bool) -> Array:
    """Sum over k of a[k, i] * b[k, j] * 2^scale_exponent[i, j], each term cut toward zero.

    In f32 the exponent of the scale is held to 127: with `single`, it is larger only where all products are zero.
    """
    shape = scale_exponent.shape
    kind = np.float32 if single else np.float64
    scale = np.ldexp(kind(1), np.minimum(scale_exponent, 127) if single else scale_exponent).astype(kind)
    product, term = np.empty(shape, kind), np.empty(shape, np.int32)
    total = np.zeros(shape, np.int32 if narrow else np.int64)
    for row, column in zip(a, b, strict=True):
        np.multiply(row[:, None], column[None], out=product, dtype=kind)
        np.multiply(product, scale, out=product)
        np.copyto(term, product, casting="unsafe")
        np.add(total, term, out=total)
    return total.astype(np.float64)


def rounded_sum(total: Array, quantum: Array, d: str, mantissa: int = 23) -> Array:
    """total * 2^quantum as words: f16 to nearest even, f32 toward zero, to `mantissa` bits; no zero is negative."""
    if d == "f16":
        words, negative_zero = np.ldexp(total, quantum).astype(np.float16).view(np.uint16), np.uint16(0x8000)
    else:
        words, negative_zero = _round_f32(total, quantum), np.uint32(0x80000000)
        if mantissa != 23:
            words &= ~np.uint32((1 << (23 - mantissa)) - 1)
    words[words == negative_zero] = 0
    return words


def _round_f32(total: Array, quantum: Array) -> Array:
    """total * 2^quantum as f32 words, toward zero, with gradual underflow; from 2^128 on an infinity."""
    exact = np.ldexp(total, quantum)
    words = exact.astype(np.float32).view(np.uint32)
    beyond = (np.abs(words.view(np.float32)) > np.abs(exact)) & (np.abs(exact) < 2.0**128)
    words -= beyond
    return words


def special_sum(a: Multiplicand, b: Multiplicand, addend: Array) -> Array:
    """What the infinities and NaNs among the terms make of the sum; 0 where there are none."""
    total = np.where(np.isfinite(addend), 0.0, addend)
    for k in range(a.value.shape[0]):
        product = a.value[k].astype(np.float64)[:, None] * b.value[k].astype(np.float64)[None]
        counts = ~np.isfinite(product)
        if a.present is not None:
            counts &= a.present[k][:, None]
        total += np.where(counts, product, 0.0)
    return total


def put_specials(words: Array, total: Array, d: str) -> None:
    """Writes the infinities and NaNs of `special_sum` over the words of a sum."""
    infinite = np.isinf(total)
    words[infinite] = total[infinite].astype(np.float32 if d == "f32" else np.float16).view(words.dtype)
    words[np.isnan(total)] = F32_NAN if d == "f32" else F16_NAN
