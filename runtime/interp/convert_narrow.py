"""`cvt` to and from pairs of 8-bit and narrower floats and tf32, and `cvt.pack`: PTX ISA 9.7.9.21 and .22."""

from __future__ import annotations

from functools import cache

import numpy as np

from ...dialect.isa.types import ELEMENT_TYPES, ElementType
from . import floats
from .actions import elementwise
from .decode import Context
from .operands import small_values
from .state import Action, Array
from .words import Modifiers

PAIRS = {f"{name}x2": name for name in ("e4m3", "e5m2", "e2m1", "e2m3", "e3m2")}
"""The types of pairs, and of what."""

_TF32_BITS = np.uint32(13)
_INFINITY = np.uint32(0x7F800000)
_SIGN = np.uint32(0x80000000)


def to_narrow(ctx: Context, m: Modifiers, mode: str, satfinite: bool, relu: bool) -> Action:
    """Two f32 (a above, b below), or the halves of f16x2, into a pair."""
    element = ELEMENT_TYPES[PAIRS[m.type(*PAIRS)]]
    origin = m.type("f32", "f16x2")
    if mode != "rn" or not satfinite:
        ctx.fail("expected .rn.satfinite")
    bits = 4 if element.bits == 4 else 8

    def code(values: Array) -> Array:
        return _encoded(floats.relu(values) if relu else values, element)

    def pair(upper: Array, low: Array) -> Array:
        return code(upper.astype(np.float64)) << bits | code(low.astype(np.float64))

    def halves(word: Array) -> Array:
        low, upper = (floats.value((word >> np.uint32(s)).astype(np.uint16), "f16") for s in (0, 16))
        return pair(upper, low)

    d, *operands = ctx.take(3 if origin == "f32" else 2)
    dest = ctx.dest(d, f"b{2 * bits}")
    if origin == "f32":
        return elementwise(pair, dest, *(ctx.source(o, "f32") for o in operands))
    return elementwise(halves, dest, ctx.source(operands[0], "b32"))


def _encoded(values: Array, element: ElementType) -> Array:
    """Codes of the nearest values, ties to even; beyond the largest, the largest. A NaN becomes the one there is, or
    the largest value."""
    table, nan = _magnitudes(element)
    size = np.minimum(np.abs(values), table[-1])
    above = np.minimum(np.searchsorted(table, size), table.size - 1)
    below = np.maximum(above - 1, 0)
    up, down = table[above] - size, size - table[below]
    found = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    found |= np.where(np.signbit(values), 1 << (element.bits - 1), 0)
    return np.where(values != values, nan, found)


@cache
def _magnitudes(element: ElementType) -> tuple[Array, int]:
    """The values of the codes from 0 to that of the largest, and the code of NaN."""
    values = small_values(element)[: 1 << (element.bits - 1)].astype(np.float64)
    finite = values[np.isfinite(values)]
    return finite, (1 << (element.bits - 1)) - 1 if finite.size < values.size else finite.size - 1


def from_narrow(ctx: Context, m: Modifiers, mode: str, relu: bool) -> Action:
    """A pair as f16x2; every value there is."""
    m.type("f16x2")
    element = ELEMENT_TYPES[PAIRS[m.type(*PAIRS)]]
    if mode != "rn":
        ctx.fail("expected .rn")
    bits = 4 if element.bits == 4 else 8
    values = small_values(element).astype(np.float64)
    table = floats.rounded(floats.relu(values) if relu else values, "f16").astype(np.uint32)
    mask = (1 << element.bits) - 1

    def widen(pair: Array) -> Array:
        return table[pair & mask] | table[pair >> bits & mask] << np.uint32(16)

    d, a = ctx.take(2)
    return elementwise(widen, ctx.dest(d, "b32"), ctx.source(a, f"b{2 * bits}"))


def to_tf32(ctx: Context, m: Modifiers, mode: str, satfinite: bool, relu: bool) -> Action:
    """f32 with 10 bits of mantissa; the low 13 bits are 0."""
    m.type("tf32")
    m.type("f32")
    if mode not in ("rna", "rn", "rz"):
        ctx.fail("expected .rna, .rn or .rz")
    ones = np.uint32((1 << 13) - 1)

    def convert(values: Array) -> Array:
        words = values.view(np.uint32)
        size, sign = words & ~_SIGN, words & _SIGN
        even = size >> _TF32_BITS & np.uint32(1)
        extra = {"rna": np.uint32(1 << 12), "rn": np.uint32((1 << 12) - 1) + even, "rz": np.uint32(0)}[mode]
        found = np.where(size < _INFINITY, size + extra, size) & ~ones
        if satfinite:
            found = np.minimum(found, _INFINITY - np.uint32(1) & ~ones)
        if relu:
            found, sign = np.where(sign != 0, np.uint32(0), found), np.uint32(0)
        return np.where(values != values, np.uint32(floats.NAN["f32"]), found | sign)

    d, a = ctx.take(2)
    return elementwise(convert, ctx.dest(d, "b32"), ctx.source(a, "f32"))


def pack(ctx: Context, m: Modifiers) -> Action:
    """`cvt.pack.sat`: a above b, both clamped; of types below 16 bits, c moves up by both."""
    m.expect("sat")
    to = m.expect("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2")
    m.type("s32")
    bits = int(to[1:])
    if bits < 16:
        m.type("b32")
    mask = (1 << bits) - 1
    low, top = (-(1 << bits - 1), mask >> 1) if to[0] == "s" else (0, mask)

    def code(value: Array) -> Array:
        return (np.clip(value, low, top) & mask).astype(np.uint32)

    def together(a: Array, b: Array, *above: Array) -> Array:
        word = code(a) << np.uint32(bits) | code(b)
        return word | above[0] << np.uint32(2 * bits) if above else word

    d, a, b, *c = ctx.take(3 if bits == 16 else 4)
    sources = [ctx.source(a, "s32"), ctx.source(b, "s32"), *(ctx.source(o, "b32") for o in c)]
    return elementwise(together, ctx.dest(d, "b32"), *sources)
