"""The exact arithmetic of the tensor cores: one truncated fused dot product, with parameters per architecture.

For one element of D: D = C; then for each consecutive block of L products, k ascending, D = block + D, where

1. products are exact and not normalised: significand in [0, 4), exponent ea + eb; subnormal operands keep the
   format's least exponent;
2. E is the largest exponent among the block's products and D; a zero term has `zero_exponent`, which is a floor;
3. each term is cut toward zero to F bits below 2^E, and the sum of the cut terms is exact;
4. the sum becomes f32 toward zero with gradual underflow, or f16 to nearest even. A sum that reaches 2^128 is an
   infinity, a zero sum is +0, NaN is 0x7FFFFFFF (f16: 0x7FFF), and inf * 0 and inf - inf are NaN.

`fdp` works on many warps at once: the last axis of its operands runs over them, so that every numpy operation goes
over long rows. A product of two 11-bit significands is exact in f32, and 16 of them, each below 4 * 2^25 units,
sum in an int32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...dialect.isa.mma import Mma
from ...dialect.isa.types import ElementType

Array: TypeAlias = NDArray[Any]

F32_NAN = np.uint32(0x7FFFFFFF)
F16_NAN = np.uint16(0x7FFF)

_BATCH = 128
"""Warps in one pass: measured; temporaries of 16 x 8 x 128 words stay in the second-level cache."""

_ZERO_NARROW = -60
"""Stands for the exponent of a zero where sums must fit an int8: with the largest f16 exponent, 15, still below that of
the least product, -28; twice it is -120."""

_LEAST_NARROW = -28

_ZERO_WIDE = -8000
"""The same where sums are int16."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The parameters of one architecture.

    `block` is L by width of the operands in bits, `fraction` is F, `zero_exponent` the exponent of a zero term by
    the type of D. `evidence` says where the numbers come from; `confirmed` whether hardware agreed bit for bit.
    """

    arch: str
    block: Mapping[int, int]
    fraction: int
    zero_exponent: Mapping[str, int]
    evidence: str
    confirmed: bool = False

    def __post_init__(self) -> None:
        terms = max(self.block.values())
        if terms * 4 * 2**self.fraction > 2**31:
            raise ValueError(f"{self.arch}: {terms} products of {self.fraction} fraction bits must sum in an int32")


_MODELS = "published models: MMA-Sim 2.1.1, MATLAB-tensor-core, arXiv 2511.10909 and 2512.07004"
_H200 = "an H200's own words: no difference over 64 warps of normal, wide, subnormal, cancelling and random operands"


def _core(arch: str, block: int, fraction: int, zero: int, evidence: str, confirmed: bool = False) -> Arithmetic:
    zeros = {"f32": zero, "f16": zero + 112}
    return Arithmetic(arch, {16: block, 32: block // 2}, fraction, zeros, evidence, confirmed)


ARITHMETIC: Mapping[int, Arithmetic] = {
    70: _core("sm_70", 4, 23, -131, _MODELS),
    75: _core("sm_75", 8, 24, -132, _MODELS),
    80: _core("sm_80", 8, 24, -132, _MODELS),
    86: _core("sm_86", 8, 24, -132, _MODELS),
    87: _core("sm_87", 8, 24, -132, _MODELS),
    89: _core("sm_89", 8, 24, -132, _MODELS),
    90: _core("sm_90", 16, 25, -133, _H200, confirmed=True),
    100: _core("sm_100", 16, 25, -133, _MODELS),
    120: _core("sm_120", 16, 25, -133, _MODELS),
}
"""By target number; a target without a row has the arithmetic of the nearest lower one (sm_103 that of sm_100)."""


def arithmetic(sm: int) -> Arithmetic:
    """The parameters for target number `sm`, such as 90.

    Raises:
        ValueError: if no tensor core of that target is known.
    """
    older = [known for known in ARITHMETIC if known <= sm]
    if not older:
        raise ValueError(f"no tensor core arithmetic is known for sm_{sm}; the oldest is sm_{min(ARITHMETIC)}")
    return ARITHMETIC[max(older)]


@dataclass(frozen=True, slots=True)
class _Tables:
    """Per 16-bit word of a format: its value, its unnormalised exponent, and whether it is an infinity or a NaN."""

    value: Array
    exponent: Array
    special: int
    bias: int

    def is_finite(self, words: Array) -> bool:
        return not bool(((words & self.special) == self.special).any())


@cache
def _tables(kind: ElementType) -> _Tables:
    words = np.arange(1 << 16, dtype=np.uint16)
    top = (1 << kind.exponent) - 1
    bias = top >> 1
    if kind.name == "bf16":
        value = (words.astype(np.uint32) << 16).view(np.float32)
    else:
        value = words.view(np.float16).astype(np.float32)
    field = (words >> kind.mantissa).astype(np.int16) & top
    exponent = np.maximum(field, 1) - bias
    narrow = kind.exponent <= 5
    zero = (words & 0x7FFF) == 0
    exponent[zero] = _ZERO_NARROW if narrow else _ZERO_WIDE
    return _Tables(value, exponent.astype(np.int8 if narrow else np.int16), top << kind.mantissa, bias)


@dataclass(frozen=True, slots=True)
class Multiplicand:
    """One operand of a product, decoded: k x rows x warps of words, values and exponents.

    `finite` says that no word is an infinity or a NaN; `single` that products of it with another such operand,
    and the scale that cuts them, stay within the range of f32.
    """

    words: Array
    value: Array
    exponent: Array
    finite: bool
    single: bool
    kind: ElementType


def multiplicand(words: Array, kind: ElementType) -> Multiplicand:
    """Decodes 16-bit words (k, rows, warps)."""
    tables = _tables(kind)
    exponent = tables.exponent.take(words)
    single = True
    if exponent.dtype == np.int16:
        smallest = int(np.where(exponent == _ZERO_WIDE, 0, exponent).min(initial=0))
        single = smallest >= -51 and int(exponent.max(initial=0)) <= 63
    return Multiplicand(words, tables.value.take(words), exponent, tables.is_finite(words), single, kind)


def fdp(core: Arithmetic, a: Multiplicand, b: Multiplicand, c: Array, d: str) -> Array:
    """D = A * B + C. A is (k, m, warps), B (k, n, warps), C and D (m, n, warps).

    `d` is the type of C and D, "f32" (uint32 words) or "f16" (uint16 words); the result is new words.
    """
    depth, warps = a.words.shape[0], a.words.shape[2]
    block = min(depth, core.block[a.kind.bits])
    out = np.empty(c.shape, c.dtype)
    for start in range(0, warps, _BATCH):
        part = slice(start, min(start + _BATCH, warps))
        acc = c[..., part]
        for k in range(0, depth, block):
            with np.errstate(all="ignore"):
                acc = _block(core, a, b, slice(k, k + block), part, acc, d)
        out[..., part] = acc
    return out


def _block(core: Arithmetic, a: Multiplicand, b: Multiplicand, k: slice, part: slice, c: Array, d: str) -> Array:
    addend = c.view(np.float32 if d == "f32" else np.float16).astype(np.float64)
    total, quantum = _sum_of_cut_terms(core, a, b, k, part, addend, c, d)
    result = _round_f32(total, quantum) if d == "f32" else np.ldexp(total, quantum).astype(np.float16).view(np.uint16)
    if not (a.finite and b.finite and bool(np.isfinite(addend).all())):
        _put_specials(result, a.value[k, :, part], b.value[k, :, part], addend, d)
    return result


def _sum_of_cut_terms(
    core: Arithmetic, a: Multiplicand, b: Multiplicand, k: slice, part: slice, addend: Array, c: Array, d: str
) -> tuple[Array, Array]:
    """The sums in units, as float64, and the exponents of the units."""
    top = _largest_exponents(a.exponent[k, :, part], b.exponent[k, :, part])
    top = np.maximum(top, _addend_exponents(c, d, core.zero_exponent[d]))
    quantum = top - core.fraction
    single = a.single and b.single
    products = _cut_products(a.value[k, :, part], b.value[k, :, part], -quantum, single)
    return products + np.trunc(np.ldexp(addend, -quantum)), quantum


def _largest_exponents(a: Array, b: Array) -> Array:
    """max over k of a[k, i] + b[k, j]: (m, n, warps), int32; far below any exponent where all products are zero."""
    largest = np.add(a[0][:, None], b[0][None])
    term = np.empty_like(largest)
    for row, column in zip(a[1:], b[1:], strict=True):
        np.add(row[:, None], column[None], out=term)
        np.maximum(largest, term, out=largest)
    wide = largest.astype(np.int32)
    if largest.dtype == np.int8:
        wide[largest < _LEAST_NARROW] = _ZERO_WIDE
    return wide


def _addend_exponents(words: Array, d: str, zero_exponent: int) -> Array:
    """Unnormalised exponents; a zero has `zero_exponent`."""
    mantissa, mask, bias = (23, 0xFF, 127) if d == "f32" else (10, 0x1F, 15)
    exponent = np.maximum((words >> mantissa).astype(np.int32) & mask, 1) - bias
    exponent[(words << 1) == 0] = zero_exponent
    return np.maximum(exponent, zero_exponent)


def _cut_products(a: Array, b: Array, scale_exponent: Array, single: bool) -> Array:
    """Sum over k of a[k, i] * b[k, j] * 2^scale_exponent[i, j], each term cut toward zero.

    In f32 the exponent of the scale is held to 127: with `single`, it is larger only where all products are zero.
    """
    shape = scale_exponent.shape
    kind = np.float32 if single else np.float64
    scale = np.ldexp(kind(1), np.minimum(scale_exponent, 127) if single else scale_exponent).astype(kind)
    product, term = np.empty(shape, kind), np.empty(shape, np.int32)
    total = np.zeros(shape, np.int32)
    for row, column in zip(a, b, strict=True):
        np.multiply(row[:, None], column[None], out=product, dtype=kind)
        np.multiply(product, scale, out=product)
        np.copyto(term, product, casting="unsafe")
        np.add(total, term, out=total)
    return total.astype(np.float64)


def _round_f32(total: Array, quantum: Array) -> Array:
    """total * 2^quantum as f32 words, toward zero, with gradual underflow; from 2^128 on an infinity."""
    exact = np.ldexp(total, quantum)
    words = exact.astype(np.float32).view(np.uint32)
    beyond = (np.abs(words.view(np.float32)) > np.abs(exact)) & (np.abs(exact) < 2.0**128)
    words -= beyond
    return words


def _put_specials(words: Array, a: Array, b: Array, addend: Array, d: str) -> None:
    """Writes infinities and NaNs where a term is one."""
    total = np.where(np.isfinite(addend), 0.0, addend)
    for row, column in zip(a.astype(np.float64), b.astype(np.float64), strict=True):
        product = row[:, None] * column[None]
        total += np.where(np.isfinite(product), 0.0, product)
    infinite = np.isinf(total)
    words[infinite] = total[infinite].astype(np.float32 if d == "f32" else np.float16).view(words.dtype)
    words[np.isnan(total)] = F32_NAN if d == "f32" else F16_NAN


@dataclass(frozen=True)
class MmaModel:
    """What one row of the ISA computes on one architecture, on words rather than registers."""

    row: Mma
    core: Arithmetic

    def __call__(self, a: Array, b: Array, c: Array) -> Array:
        """A (k, m, warps) and B (k, n, warps) as 16-bit words, C (m, n, warps) as words of its type."""
        return fdp(self.core, multiplicand(a, self.row.a), multiplicand(b, self.row.b), c, self.row.d.name)
