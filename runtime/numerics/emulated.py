"""Matrix instructions that an architecture has no unit for: ptxas makes them of others.

**8-bit floats on sm_90 and sm_100** are widened to f16, exactly. P are the products with k mod 4 < 2, Q the others;
t = fused(P, 0), t = fused(Q, t), D = C + t, an ordinary addition to nearest, of f32 or f16. For `mma.sp` P and Q go by
the place of an element among the stored ones. Read in machine code of ptxas 13.0, and replayed.

**m8n8k4 with f16 from sm_80 on** is made of scalar instructions, see `scalar_product`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from ...dialect.isa.types import ElementType, element_type
from . import floats
from .array import Array
from .fused_sum import F16_NAN, F32_NAN, fdp
from .operands import Multiplicand, multiplicand, small_values
from .parameters import Arithmetic
from .sparse import spread

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
    whole = replace(core, block=len(b))
    for chosen in (first, ~first):
        if where is None:
            x, y = multiplicand(left[chosen], _F16), multiplicand(right[chosen], _F16)
        else:
            x, y = spread_multiplicand(left[chosen], where[chosen], len(b), _F16), multiplicand(right, _F16)
        total = fdp(whole, x, y, total, types[2])
    return plus(c, total, types[2])


def spread_multiplicand(stored: Array, where: Array, depth: int, element: ElementType, kind: str = "") -> Multiplicand:
    """Stored elements of a sparse A, decoded, at their columns."""
    present = spread(np.ones(stored.shape, np.bool_), where, depth)
    return multiplicand(spread(stored, where, depth), element, kind).where(present)


def as_singles(words: Array) -> Array:
    """f16 words as f32 words."""
    return words.view(np.float16).astype(np.float32).view(np.uint32)


def as_halves(words: Array) -> Array:
    """f32 words as f16 words, to nearest."""
    with np.errstate(all="ignore"):
        values = words.view(np.float32).astype(np.float16)
    halves = values.view(np.uint16)
    halves[np.isnan(values)] = F16_NAN
    return halves


def plus(c: Array, sums: Array, d: str) -> Array:
    """C + sums as an ordinary addition to nearest of f32 or f16 words."""
    kind = np.float32 if d == "f32" else np.float16
    with np.errstate(all="ignore"):
        total = c.view(kind) + sums.view(kind)
    words = total.view(c.dtype)
    words[np.isnan(total)] = F32_NAN if d == "f32" else F16_NAN
    return words


def scalar_product(a: Array, b: Array, c: Array, d: str) -> Array:
    """m8n8k4 of f16: A (4, m, warps), B (4, n, warps), words; C and D of type `d`.

    With f32 sums t is a chain of fused multiply-adds from 0, k ascending, and D = C + t. With f16 sums it is
    (C + p01) + p23 in f32, p01 and p23 being two products each, rounded to f16 once.
    """
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
    words = result.view(np.uint16)
    words[np.isnan(result)] = F16_NAN
    return words


def _fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in f32, rounded once, of arrays that broadcast to c."""
    x, y = (np.broadcast_to(v, c.shape).reshape(-1) for v in (a, b))
    return floats.fma32(x, y, c.reshape(-1)).reshape(c.shape)
