"""The operands of a fused sum, decoded: values, unnormalised exponents, and which are no numbers.

Words are as fragments hold them: one element each, for the 4-bit and 6-bit types in the byte it lies in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ...dialect.isa.product import IN_BYTES
from ...dialect.isa.types import ElementType
from .array import Array

ZERO_NARROW = -60
"""Stands for the exponent of a zero where sums must fit an int8: with the largest f16 exponent, 15, still below that of
the least product, -28; twice it is -120."""

LEAST_NARROW = -28

ZERO_WIDE = -8000
"""The same where sums are int16."""

_TF32 = np.uint32(0xFFFFE000)


def warp_by_warp(array: Array) -> Array:
    """An array whose last axis runs over warps, laid out in memory one warp after the other."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, -1, 0)), 0, -1)


@dataclass(frozen=True, slots=True)
class Multiplicand:
    """One operand of a product, k x rows x warps, decoded.

    `finite` says that no element is an infinity or a NaN; `single` that products of it with another such operand, and
    the scale that cuts them, stay within the range of f32. `present`, where there is one, says which elements there
    are: others have no part in the sum, whatever they would be multiplied with.
    """

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

    def only(self, k: Array) -> Multiplicand:
        """The same without the products that `k`, a mask over k, leaves out."""
        present = None if self.present is None else self.present[k]
        return replace(self, value=self.value[k], exponent=self.exponent[k], present=present)

    def where(self, chosen: Array) -> Multiplicand:
        """The same with only the `chosen` elements present."""
        zero = self.exponent.dtype.type(ZERO_NARROW if self.exponent.dtype == np.int8 else ZERO_WIDE)
        value = np.where(chosen, self.value, self.value.dtype.type(0))
        return replace(self, value=value, exponent=np.where(chosen, self.exponent, zero), present=chosen)


@dataclass(frozen=True, slots=True)
class _Tables:
    """Per word of a format: its value, and its unnormalised exponent."""

    value: Array
    exponent: Array
    special: int


@cache
def _tables(kind: ElementType) -> _Tables:
    """Of the 16-bit types."""
    words = np.arange(1 << 16, dtype=np.uint16)
    top = (1 << kind.exponent) - 1
    if kind.name == "bf16":
        value = (words.astype(np.uint32) << 16).view(np.float32)
    else:
        value = words.view(np.float16).astype(np.float32)
    field = (words >> kind.mantissa).astype(np.int16) & top
    exponent = np.maximum(field, 1) - (top >> 1)
    narrow = kind.exponent <= 5
    exponent[(words & 0x7FFF) == 0] = ZERO_NARROW if narrow else ZERO_WIDE
    return _Tables(value, exponent.astype(np.int8 if narrow else np.int16), top << kind.mantissa)


@cache
def small_values(kind: ElementType) -> Array:
    """The value of each word of a type of at most 8 bits, as f32.

    e5m2 has infinities and NaNs like f16, e4m3 the one NaN S.1111.111; the narrower types have neither.
    """
    words = np.arange(1 << kind.bits)
    e, m = kind.exponent, kind.mantissa
    bias, field, fraction = (1 << (e - 1)) - 1, words >> m & ((1 << e) - 1), words & ((1 << m) - 1)
    size = np.ldexp(np.where(field == 0, fraction, fraction + (1 << m)), np.maximum(field, 1) - bias - m)
    value = np.where(kind.signed & (words >> (kind.bits - 1)), -size, size).astype(np.float32)
    if kind.name in ("e4m3", "ue4m3"):
        value[words & 0x7F == 0x7F] = np.nan
    if kind.name == "e5m2":
        top = field == (1 << e) - 1
        value[top] = np.where(fraction == 0, np.copysign(np.inf, value), np.nan)[top]
    return value


@cache
def _small_tables(kind: ElementType) -> tuple[Array, Array]:
    words = np.arange(1 << kind.bits)
    top = (1 << kind.exponent) - 1
    exponent = np.maximum(words >> kind.mantissa & top, 1) - (top >> 1)
    value = small_values(kind)
    exponent[value == 0] = ZERO_NARROW
    return value, exponent.astype(np.int8)


def small_codes(words: Array, element: ElementType, kind: str) -> Array:
    """The elements of bytes: under the kinds that keep narrow types in bytes, e2m1 lies in the middle four bits
    (00ABCD00) and the 6-bit types in the low six."""
    if kind in IN_BYTES and element.bits == 4:
        words = words >> 2
    return words & ((1 << element.bits) - 1)


def multiplicand(words: Array, element: ElementType, kind: str = "") -> Multiplicand:
    """Decodes words (k, rows, warps) of f16, bf16, tf32 or a narrower floating-point type."""
    if element.name == "tf32":
        return _tf32(words)
    if element.bits <= 8:
        value, exponent = (table.take(small_codes(words, element, kind)) for table in _small_tables(element))
        return Multiplicand(value, exponent, bool(np.isfinite(value).all()), True)
    tables = _tables(element)
    exponent = tables.exponent.take(words)
    finite = not bool(((words & tables.special) == tables.special).any())
    single = True if exponent.dtype == np.int8 else _is_single(exponent)
    return Multiplicand(tables.value.take(words), exponent, finite, single)


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
