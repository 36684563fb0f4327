"""The exact arithmetic of the tensor cores: operands, one truncated fused sum, and block scales."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ...dialect.isa.form import IN_BYTES, BlockScale, ElementType
from . import floats
from .floats import Array

# The operands of a fused sum, decoded: values, unnormalised exponents, and which are no numbers.
#
# Words are as fragments hold them: one element each, for the 4-bit and 6-bit types in the byte it lies in.

ZERO_NARROW = -60
"""Stands for the exponent of a zero where sums must fit an int8: with the largest f16 exponent, 15, still below that of
the least product, -28; twice it is -120."""

MIN_NARROW = -28

ZERO_WIDE = -8000
"""The same where sums are int16."""

_TF32 = np.uint32(0xFFFFE000)


def warp_by_warp(array: Array) -> Array:
    """An array whose last axis runs over warps, laid out in memory one warp after the other."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, -1, 0)), 0, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """How a fused sum cuts its terms: `block` is L, the largest number of products in one sum, and `fraction` F, the
    number of bits that are kept below the largest exponent. `zero_exponent` is the exponent of a zero term if D is f32.
    `mantissa` is the number of bits of the sum that an f32 D keeps."""

    block: int = 0
    fraction: int = 0
    zero_exponent: int = 0
    mantissa: int = 23

    def zero(self, d: str) -> int:
        """The exponent of a zero term, by the type of D."""
        return self.zero_exponent + (112 if d == "f16" else 0)


@dataclass(frozen=True, slots=True)
class Multiplicand:
    """One decoded operand of a product, k x rows x warps. `finite` says that no element is an infinity or a NaN.
    `single` says that its products with another such operand, and the scale that truncates them, are in the range of
    f32. If `present` is not None, it marks the elements that take part in the sum; the others are left out, whatever
    they would be multiplied with."""

    value: Array
    exponent: Array
    finite: bool
    single: bool
    present: Array | None = None

    def part(self, k: slice, warps: slice) -> Multiplicand:
        """Some of the products of some warps; those of one lie side by side."""
        parts = [None if of is None else of[k, :, warps] for of in (self.value, self.exponent, self.present)]
        if warps.stop - warps.start == 1:
            parts = [None if of is None else np.ascontiguousarray(of) for of in parts]
        return replace(self, value=parts[0], exponent=parts[1], present=parts[2])

    def warp_by_warp(self) -> Multiplicand:
        """The same with what each warp has side by side in memory."""
        parts = [None if of is None else warp_by_warp(of) for of in (self.value, self.exponent, self.present)]
        return replace(self, value=parts[0], exponent=parts[1], present=parts[2])

    def where(self, chosen: Array) -> Multiplicand:
        """The same with only the `chosen` elements present."""
        zero = self.exponent.dtype.type(ZERO_NARROW if self.exponent.dtype == np.int8 else ZERO_WIDE)
        value = np.where(chosen, self.value, self.value.dtype.type(0))
        return replace(self, value=value, exponent=np.where(chosen, self.exponent, zero), present=chosen)


@cache
def small_values(kind: ElementType) -> Array:
    """The value of each word of a type of at most 16 bits, as f32. f16, bf16 and e5m2 have infinities and NaNs, e4m3
    the one NaN S.1111.111, ue5m3 the one NaN 255; the narrower types have neither. ue8m0 are the powers of 2 from
    2^-127 on, and the one NaN 255."""
    if kind.name in ("f16", "bf16", "e5m2"):  # the upper bits of numpy's types, read as these, for tables are large
        word, wide = (np.uint32, np.float32) if kind.exponent == 8 else (np.uint16, np.float16)
        value = (np.arange(1 << kind.bits, dtype=word) << np.finfo(wide).bits - kind.bits).view(wide).astype(np.float32)
        value[np.isnan(value)] = np.nan
        return value
    words = np.arange(1 << kind.bits)
    if kind.name == "ue8m0":
        return np.ldexp(np.where(words < 255, 1, np.nan), words - 127).astype(np.float32)
    e, m = kind.exponent, kind.mantissa
    bias, field, fraction = (1 << (e - 1)) - 1, words >> m & ((1 << e) - 1), words & ((1 << m) - 1)
    size = np.ldexp(np.where(field == 0, fraction, fraction + (1 << m)), np.maximum(field, 1) - bias - m)
    value = np.where(kind.signed & (words >> (kind.bits - 1)), -size, size)
    if kind.name in ("e4m3", "ue4m3", "ue5m3"):
        ones = (1 << e + m) - 1
        value[words & ones == ones] = np.nan
    return value.astype(np.float32)


@cache
def _tables(kind: ElementType) -> tuple[Array, Array]:
    """The value of each word of a type of at most 16 bits, and its unnormalised exponent."""
    words, value = np.arange(1 << kind.bits, dtype=np.uint16), small_values(kind)
    top, narrow = (1 << kind.exponent) - 1, kind.exponent <= 5
    exponent = np.maximum((words >> kind.mantissa).astype(np.int16) & top, 1) - (top >> 1)
    exponent[value == 0] = ZERO_NARROW if narrow else ZERO_WIDE
    return value, exponent.astype(np.int8 if narrow else np.int16)


def small_codes(words: Array, element: ElementType, kind: str) -> Array:
    """The elements of bytes: where narrow types have bytes, e2m1 lies in bits 2 to 5, 6-bit types in the low six."""
    if kind in IN_BYTES and element.bits == 4:
        words = words >> 2
    return words & ((1 << element.bits) - 1)


def multiplicand(words: Array, element: ElementType, kind: str = "") -> Multiplicand:
    """Decodes words (k, rows, warps) of f16, bf16, tf32 or a narrower floating-point type."""
    if element.name == "tf32":
        return _tf32(words)
    codes = small_codes(words, element, kind) if element.bits <= 8 else words
    value, exponent = (table.take(codes) for table in _tables(element))
    single = exponent.dtype == np.int8 or _is_single(exponent)
    return Multiplicand(value, exponent, bool(np.isfinite(value).all()), single)


def _tf32(words: Array) -> Multiplicand:
    """f32 words, of which the low 13 bits count for nothing."""
    words = words.astype(np.uint32) & _TF32
    field = (words >> np.uint32(23)).astype(np.int16) & np.int16(0xFF)
    exponent = np.maximum(field, np.int16(1)) - np.int16(127)
    exponent[words << np.uint32(1) == 0] = ZERO_WIDE
    return Multiplicand(words.view(np.float32), exponent, not bool((field == 0xFF).any()), _is_single(exponent))


def _is_single(exponent: Array) -> bool:
    smallest = int(np.where(exponent == ZERO_WIDE, 0, exponent).min(initial=0))
    return smallest >= -51 and int(exponent.max(initial=0)) <= 63


# The exact arithmetic of the tensor cores: one truncated fused sum, with parameters per architecture.
#
# For one element of D: D = C; then for each consecutive block of L products, k ascending, D = block + D, where
#
# 1. products are exact and not normalised: significand in [0, 4), exponent ea + eb; subnormal operands keep the
#    format's least exponent; tf32 operands lose their low 13 bits;
# 2. E is the largest exponent among the block's products and D; a zero term has `zero_exponent`, which is a floor;
# 3. each term is cut toward zero to F bits below 2^E, and the sum of the cut terms is exact;
# 4. the sum becomes f32 toward zero with gradual underflow (of fewer mantissa bits, where the parameters say so), or
#    f16 to nearest even. A sum that reaches 2^128 is an infinity, what is zero or rounds to zero is +0, NaN is
#    0x7FFFFFFF (f16: 0x7FFF), and inf * 0 and inf - inf are NaN.
#
# `fdp` works on many warps at once: the last axis of its operands runs over them, so that every numpy operation goes
# over long rows. A product of two 11-bit significands is exact in f32, and 16 of them, each below 4 * 2^25 units, sum
# in an int32.

_BATCH = 16 * 8 * 128
"""Elements of D in one pass: measured; temporaries of so many words stay in the second-level cache."""

_MIN_ROW = 16
"""Warps, or warpgroups, that make rows long enough; of fewer each is taken alone, its columns being the rows."""


def fdp(core: Truncation, a: Multiplicand, b: Multiplicand, c: Array, d: str, scale: Array | None = None) -> Array:
    """D = A * B + C. A is (k, m, warps), B (k, n, warps), C and D (m, n, warps). `d` is the type of D, "f32" (uint32
    words) or "f16" (uint16 words), C words of either type; the result is new words. `scale` are exponents (m, n, warps)
    that are added to those of all products. Of a sparse A half of the products are there: L of them lie among twice as
    many columns."""
    depth, warps = a.value.shape[0], a.value.shape[2]
    block = min(depth, core.block * (1 if a.present is None else 2))
    out = np.empty(c.shape, np.uint32 if d == "f32" else np.uint16)
    batch = _BATCH // (c.shape[0] * c.shape[1])
    if batch < _MIN_ROW:
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


def _block(core: Truncation, a: Multiplicand, b: Multiplicand, c: Array, d: str, shift: Array | None) -> Array:
    addend = c.view(np.float32 if c.dtype == np.uint32 else np.float16).astype(np.float64)
    total, quantum = _sum_of_cut_terms(core, a, b, addend, addend_exponents(c, core.zero(d)), shift)
    result = rounded_sum(total, quantum, d, core.mantissa)
    if not (a.finite and b.finite and bool(np.isfinite(addend).all())):
        put_specials(result, special_sum(a, b, addend), d)
    return result


def _sum_of_cut_terms(
    core: Truncation, a: Multiplicand, b: Multiplicand, addend: Array, floor: Array, shift: Array | None
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
        wide[largest < MIN_NARROW] = ZERO_WIDE
    return wide


def addend_exponents(words: Array, zero_exponent: int) -> Array:
    """Unnormalised exponents of f32 or f16 words; a zero has `zero_exponent`."""
    mantissa, mask, bias = (23, 0xFF, 127) if words.dtype == np.uint32 else (10, 0x1F, 15)
    exponent = np.maximum((words >> mantissa).astype(np.int32) & mask, 1) - bias
    exponent[(words << 1) == 0] = zero_exponent
    return np.maximum(exponent, zero_exponent)


def _cut_products(a: Array, b: Array, scale_exponent: Array, single: bool, narrow: bool) -> Array:
    """Sum over k of a[k, i] * b[k, j] * 2^scale_exponent[i, j], each term cut toward zero. In f32 the exponent of the
    scale is held to 127: with `single`, it is larger only where all products are zero."""
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
    """The sum of those terms that are infinite or NaN; 0 without such terms."""
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
    words[np.isnan(total)] = floats.NAN[d]


# Products whose multiplicands have scales: one of each row of A, and of each column of B, for so many columns of A.
#
# **mxf8f6f4** has one scale per row: its ue8m0 exponents are added to those of all products of a fused block.
#
# **mxf4 and mxf4nvf4**: the exact dot of each group of 16 stored products, times the significands of its two scales,
# has the sum of the scales' exponents, whatever its own size: also where its products cancel. It has that of a zero
# only if all of its products, or one of its scales, are zero. All groups and C make one sum, cut to F bits below the
# largest exponent and rounded as above. A ue4m3 scale has no sign; its word 0x7F, like ue8m0's 0xFF, is a NaN.
# Source: MMA-Sim 2.1.1, `gst_fdpa`.


def scales(row: BlockScale, role: str, words: Array, byte_id: int, thread_id: int) -> Array:
    """The words of the scales that a selector chooses: (vector, rows of A or columns of B, warps)."""
    layout = row.layout(role)
    axis, along = ("r", "c") if role == "a" else ("c", "r")
    size = layout.extent(axis)
    chosen = row.byte_ids.index(byte_id)
    at = {"t": thread_id, "b": chosen}
    places = [[layout.find(**{axis: i, along: v}, **at) for i in range(size)] for v in range(row.vector)]
    lanes, number = np.moveaxis(np.array(places), -1, 0)
    return (words[lanes] >> (number.astype(np.uint32) * np.uint32(8))[..., None]).astype(np.uint8)


@cache
def _scale_tables(kind: ElementType) -> tuple[Array, Array]:
    """The significand and the exponent of each word of a scale; NaN is in the significand."""
    words = np.arange(256)
    if kind.name == "ue8m0":
        significand = np.where(words == 0xFF, np.nan, 1.0)
        return significand, words.astype(np.int32) - 127
    words &= 0x7F
    exponent = np.maximum(words >> kind.mantissa, 1) - 7
    value = small_values(kind).astype(np.float64)[words]
    return np.ldexp(value, -exponent), exponent.astype(np.int32)


def decoded(words: Array, kind: ElementType) -> tuple[Array, Array]:
    """Significands (f64) and exponents (int32) of scales."""
    significand, exponent = _scale_tables(kind)
    return significand.take(words), exponent.take(words)


def group_dots(a: Array, b: Array, groups: int, where: Array | None) -> Array:
    """Exact dots of the groups of values of A (k, m, warps; stored ones, if `where` says at which columns) and B
    (depth, n, warps): (groups, m, n, warps) in f64."""
    dots = np.empty((groups, a.shape[1], b.shape[1], a.shape[2]))
    size = len(a) // groups
    for g in range(groups):
        part = slice(g * size, (g + 1) * size)
        left, right = a[part], b[part if where is None else slice(2 * part.start, 2 * part.stop)]
        dots[g] = dot(left if where is None else spread(left, where[part] - 2 * part.start, 2 * size), right)
    return dots


def spread(stored: Array, where: Array, depth: int) -> Array:
    """Stored elements (k / 2, m, warps) at their columns of a matrix of `depth` columns; zeros elsewhere."""
    full = np.zeros((depth, *stored.shape[1:]), stored.dtype)
    np.put_along_axis(full, where, stored, axis=0)
    return full


def dot(a: Array, b: Array) -> Array:
    """Sums of products of A (k, m, warps) and B (k, n, warps), which f32 has to hold exactly: (m, n, warps)."""
    left, right = np.ascontiguousarray(a.transpose(2, 1, 0)), np.ascontiguousarray(b.transpose(2, 0, 1))
    return np.matmul(left, right).transpose(1, 2, 0)


def grouped_sum(
    core: Truncation, dots: Array, zero: Array, c: Array, scale_a: Array, scale_b: Array, kind: ElementType
) -> Array:
    """D = C plus scaled dots of groups; scales are words (vector, m or n, warps), `zero` says which groups are."""
    vector = len(scale_a)
    (sa, ea), (sb, eb) = decoded(scale_a, kind), decoded(scale_b, kind)
    of_group = np.arange(len(dots)) * vector // len(dots)
    with np.errstate(all="ignore"):
        factors = (sa[:, :, None] * sb[:, None])[of_group]
        terms = dots * factors
        exponents = (ea[:, :, None] + eb[:, None])[of_group]
        addend = c.view(np.float32).astype(np.float64)
        floor = addend_exponents(c, core.zero_exponent)
        top = np.maximum(np.where(zero | (factors == 0), core.zero_exponent, exponents).max(axis=0), floor)
        quantum = top - core.fraction
        total = np.trunc(np.ldexp(addend, -quantum))
        for term, exponent in zip(terms, exponents, strict=True):
            total += np.trunc(np.ldexp(term, exponent - quantum))
        result = rounded_sum(np.where(np.isfinite(total), total, 0.0), quantum, "f32", core.mantissa)
        special = terms.sum(axis=0) * 0.0 + np.where(np.isfinite(addend), 0.0, addend)
    if not np.isfinite(special).all():
        put_specials(result, special, "f32")
    return result
