"""`cvt` to and from pairs of 8-bit and narrower floats and tf32, and `cvt.pack`: PTX ISA 9.7.9.21 and .22."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ....dialect.isa.types import ELEMENT_TYPES, ElementType
from ....dialect.ptx.rows.grammar import Bindings
from ...numerics import floats
from ...numerics.array import Array
from ...numerics.operands import small_values
from ..decode import Context, meaning
from ..machine.state import Action
from .actions import elementwise

_TF32_BITS = np.uint32(13)
_INFINITY = np.uint32(0x7F800000)
_SIGN = np.uint32(0x80000000)


def _element(pair: str) -> ElementType:
    """What a pair or a group of four is of."""
    return ELEMENT_TYPES[pair[:-2]]


def _held(element: ElementType) -> int:
    """Bits that an element takes in a pair: 6-bit floats lie in bytes."""
    return 4 if element.bits == 4 else 8


def _packed(ctx: Context, bound: Bindings, encode: Callable[[Array], Array]) -> Action:
    """Two f32 (a above, b below), or the halves of a register, into a pair of codes."""
    bits, half = _held(_element(bound["D"])), bound["S"].removesuffix("x2")

    def pair(upper: Array, low: Array) -> Array:
        return encode(upper) << bits | encode(low)

    def halves(word: Array) -> Array:
        low, upper = (floats.value((word >> np.uint32(s)).astype(np.uint16), half) for s in (0, 16))
        return pair(upper, low)

    d, *operands = ctx.operands
    dest = ctx.dest(d, f"b{2 * bits}")
    if bound["S"] == "f32":
        return elementwise(pair, dest, *(ctx.source(o, "f32") for o in operands))
    return elementwise(halves, dest, ctx.source(operands[0], "b32"))


@meaning("cvt.narrow")
def to_narrow(ctx: Context, bound: Bindings) -> Action:
    """To a pair of floats of 8, 6 or 4 bits."""
    element = _element(bound["D"])

    def encode(values: Array) -> Array:
        exact = values.astype(np.float64)
        return _encoded(floats.relu(exact) if bound.get("RELU") else exact, element)

    return _packed(ctx, bound, encode)


@meaning("cvt.scale")
def to_scale(ctx: Context, bound: Bindings) -> Action:
    """To a pair of powers of two, from 2^-127 on: of magnitudes, toward zero or up. Too large, and a NaN, is 255 or,
    with `.satfinite`, a magnitude 254."""

    def encode(values: Array) -> Array:
        size = np.abs(values.astype(np.float64))
        fraction, exponent = np.frexp(np.where(np.isfinite(size), size, 1.0))
        code = exponent + (126 + ((fraction > 0.5) & (bound["ROUND"] == "rp")))
        code = np.where(np.isinf(size), 255, np.clip(np.where(size == 0, 0, code), 0, 255))
        code = np.minimum(code, 254) if bound.get("FINITE") else code
        return np.where(size != size, 255, code)

    return _packed(ctx, bound, encode)


@meaning("cvt.four")
def to_four(ctx: Context, bound: Bindings) -> Action:
    """Four f32 into one register, the first above. Each takes a byte of the random bits, the first the upper one: which
    takes which is assumed, the text shows it in a figure alone."""
    element = _element(bound["D"])
    width = _held(element)
    d, vector, random = ctx.operands

    def together(bits: Array, *values: Array) -> Array:
        word = np.zeros(bits.shape, np.uint32)
        for i, value in enumerate(values):
            exact = value.astype(np.float64)
            exact = floats.relu(exact) if bound.get("RELU") else exact
            code = _stochastic(exact, element, bits >> np.uint32(24 - 8 * i) & np.uint32(0xFF))
            word = word << np.uint32(width) | code.astype(np.uint32)
        return word

    sources = [ctx.source(item, "f32") for item in ctx.items(vector)]
    return elementwise(together, ctx.dest(d, f"b{4 * width}"), ctx.source(random, "b32"), *sources)


def _stochastic(values: Array, element: ElementType, bits: Array) -> Array:
    """Codes of the next value toward zero or, where what is cut off and 8 random bits make a whole one, of the other;
    beyond the largest, the largest."""
    table, nan = _magnitudes(element)
    size = np.minimum(np.abs(np.where(values != values, 0.0, values)), table[-1])
    below = np.searchsorted(table, size, side="right") - 1
    above = np.minimum(below + 1, table.size - 1)
    step = np.where(above > below, table[above] - table[below], 1.0)
    found = np.where(np.floor((size - table[below]) / step * 256.0) + bits >= 256.0, above, below)
    found |= np.where(np.signbit(values), 1 << (element.bits - 1), 0)
    return np.where(values != values, nan, found)


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


@meaning("cvt.widen")
def from_narrow(ctx: Context, bound: Bindings) -> Action:
    """A pair as halves; every value there is."""
    element, to = _element(bound["S"]), bound["D"].removesuffix("x2")
    bits = _held(element)
    values = _powers() if element.name == "ue8m0" else small_values(element).astype(np.float64)
    table = floats.rounded(floats.relu(values) if bound.get("RELU") else values, to).astype(np.uint32)
    mask = (1 << element.bits) - 1

    def widen(pair: Array) -> Array:
        return table[pair & mask] | table[pair >> bits & mask] << np.uint32(16)

    d, a = ctx.operands
    return elementwise(widen, ctx.dest(d, "b32"), ctx.source(a, f"b{2 * bits}"))


def _powers() -> Array:
    """The values of scales: powers of two, and a NaN."""
    return np.append(np.ldexp(1.0, np.arange(-127, 128)), np.nan)


@meaning("cvt.tf32")
def to_tf32(ctx: Context, bound: Bindings) -> Action:
    """f32 with 10 bits of mantissa; the low 13 bits are 0."""
    mode, relu = bound["ROUND"], bound.get("RELU")
    ones = np.uint32((1 << 13) - 1)

    def convert(values: Array) -> Array:
        words = values.view(np.uint32)
        size, sign = words & ~_SIGN, words & _SIGN
        even = size >> _TF32_BITS & np.uint32(1)
        extra = {"rna": np.uint32(1 << 12), "rn": np.uint32((1 << 12) - 1) + even, "rz": np.uint32(0)}[mode]
        found = np.where(size < _INFINITY, size + extra, size) & ~ones
        if bound.get("FINITE"):
            found = np.minimum(found, _INFINITY - np.uint32(1) & ~ones)
        if relu:
            found, sign = np.where(sign != 0, np.uint32(0), found), np.uint32(0)
        return np.where(values != values, np.uint32(floats.NAN["f32"]), found | sign)

    d, a = ctx.operands
    return elementwise(convert, ctx.dest(d, "b32"), ctx.source(a, "f32"))


@meaning("cvt.pack")
def pack(ctx: Context, bound: Bindings) -> Action:
    """`cvt.pack.sat`: a above b, both clamped; of types below 16 bits, c moves up by both."""
    to = bound["D"]
    bits = int(to[1:])
    mask = (1 << bits) - 1
    low, top = (-(1 << bits - 1), mask >> 1) if to[0] == "s" else (0, mask)

    def code(value: Array) -> Array:
        return (np.clip(value, low, top) & mask).astype(np.uint32)

    def together(a: Array, b: Array, *above: Array) -> Array:
        word = code(a) << np.uint32(bits) | code(b)
        return word | above[0] << np.uint32(2 * bits) if above else word

    d, a, b, *c = ctx.operands
    sources = [ctx.source(a, "s32"), ctx.source(b, "s32"), *(ctx.source(o, "b32") for o in c)]
    return elementwise(together, ctx.dest(d, "b32"), *sources)
