"""Products whose multiplicands have scales: one of each row of A, and of each column of B, for so many columns of A.

**mxf8f6f4** has one scale per row: its ue8m0 exponents are added to those of all products of a fused block.

**mxf4 and mxf4nvf4**: the exact dot of each group of 16 stored products, times the significands of its two scales,
has the sum of the scales' exponents, whatever its own size: also where its products cancel. It has that of a zero only
if all of its products, or one of its scales, are zero. All groups and C make one sum, cut to F bits below the largest
exponent and rounded as in `numerics`. A ue4m3 scale has no sign; its word 0x7F, like ue8m0's 0xFF, is a NaN.
Source: MMA-Sim 2.1.1, `gst_fdpa`.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ...dialect.isa.block_scale import BlockScale
from ...dialect.isa.types import ElementType
from .array import Array
from .fused_sum import addend_exponents, put_specials, rounded_sum
from .operands import small_values
from .parameters import Arithmetic

_GROUP = 16


def scales(row: BlockScale, role: str, words: Array, byte_id: int, thread_id: int) -> Array:
    """The words of the scales that a selector chooses: (vector, rows of A or columns of B, warps)."""
    layout = row.layout(role)
    axis, along = ("r", "c") if role == "a" else ("c", "r")
    size = layout.extent(axis)
    chosen = row.byte_ids.index(byte_id)
    places = [
        [layout.find(**{axis: i, along: v, "t": thread_id, "b": chosen}) for i in range(size)]
        for v in range(row.vector)
    ]
    lanes, number = np.moveaxis(np.array(places), -1, 0)
    return (words[lanes] >> (number.astype(np.uint32) * np.uint32(8))[..., None]).astype(np.uint8)


@cache
def _tables(kind: ElementType) -> tuple[Array, Array]:
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
    significand, exponent = _tables(kind)
    return significand.take(words), exponent.take(words)


def group_dots(a: Array, b: Array, groups: int, where: Array | None) -> Array:
    """Exact dots of the groups of values of A (k, m, warps; stored ones, if `where` says at which columns) and B
    (depth, n, warps): (groups, m, n, warps) in f64."""
    dots = np.empty((groups, a.shape[1], b.shape[1], a.shape[2]))
    size = len(a) // groups
    for g in range(groups):
        part = slice(g * size, (g + 1) * size)
        if where is None:
            dots[g] = _dot(a[part], b[part])
        else:
            columns = slice(g * 2 * size, (g + 1) * 2 * size)
            full = np.zeros((2 * size, *a.shape[1:]), a.dtype)
            np.put_along_axis(full, where[part] - g * 2 * size, a[part], axis=0)
            dots[g] = _dot(full, b[columns])
    return dots


def _dot(a: Array, b: Array) -> Array:
    """Exact in f32: the values are multiples of 1/2 up to 6."""
    left, right = np.ascontiguousarray(a.transpose(2, 1, 0)), np.ascontiguousarray(b.transpose(2, 0, 1))
    return np.matmul(left, right).transpose(1, 2, 0)


def grouped_sum(
    core: Arithmetic, dots: Array, zero: Array, c: Array, scale_a: Array, scale_b: Array, kind: ElementType
) -> Array:
    """D = C plus the scaled dots of the groups; the scales are words (vector, m or n, warps). `zero` says of which
    groups all products are zero."""
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
