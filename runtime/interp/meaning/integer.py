"""Integer arithmetic: PTX ISA 9.7.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.ptx.types import bits_of
from ...numerics.array import Array
from ...numerics.floats import ArrayFunction
from ..machine.decode import Context, meaning
from ..machine.names import DTYPES
from ..machine.state import Action
from .actions import elementwise

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def unsigned(type: str) -> str:
    """The unsigned type of the same width: wrapping arithmetic does not depend on the sign."""
    return f"u{bits_of(type)}"


def binary(ctx: Context, type: str, function: ArrayFunction) -> Action:
    """d = function(a, b), all of one type."""
    d, a, b = ctx.operands
    return elementwise(function, ctx.dest(d, type), ctx.source(a, type), ctx.source(b, type))


def pairs(ctx: Context, type: str, function: Callable[[Array, Array], Array]) -> Action:
    """d = function(a, b) on each half of 32 bits."""
    half = DTYPES[type.removesuffix("x2")]

    def on_halves(a: Array, b: Array) -> Array:
        x, y = (np.ascontiguousarray(v).view(half) for v in (a, b))
        return np.ascontiguousarray(function(x, y)).view(np.uint32)

    return binary(ctx, type, on_halves)


def unary(ctx: Context, type: str, function: ArrayFunction) -> Action:
    """d = function(a), both of one type."""
    d, a = ctx.operands
    return elementwise(function, ctx.dest(d, type), ctx.source(a, type))


_ADDED = {"add": np.add, "sub": np.subtract}


@meaning(*_ADDED)
def add_sub(ctx: Context, bound: Bindings) -> Action:
    """Sum and difference; `.sat` clamps those of s32."""
    type, function = bound["T"], _ADDED[ctx.row.root]
    if type.endswith("x2"):
        return pairs(ctx, type, function)
    if bound.get("SAT"):
        return binary(ctx, type, lambda a, b: _saturate(function(a.astype(np.int64), b)))
    return binary(ctx, unsigned(type), function)


def _saturate(value: Array) -> Array:
    return np.clip(value, -(2**31), 2**31 - 1).astype(np.int32)


def high(a: Array, b: Array) -> Array:
    """The upper half of the product of two integers."""
    if a.dtype.itemsize < 8:
        bits = a.dtype.itemsize * 8
        wide = np.dtype(f"{a.dtype.kind}{bits // 4}")
        return ((a.astype(wide) * b.astype(wide)) >> bits).astype(a.dtype)
    if a.dtype == np.uint64:
        return _high64(a, b)
    x, y = a.view(np.uint64), b.view(np.uint64)
    correction = np.where(a < 0, y, np.uint64(0)) + np.where(b < 0, x, np.uint64(0))
    return (_high64(x, y) - correction).view(np.int64)


def _high64(a: Array, b: Array) -> Array:
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + (a0 * b0 >> _HALF)
    other = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _HALF) + (other >> _HALF)


def wide(type: str) -> tuple[str, Callable[[Array, Array], Array]]:
    """The type twice as wide as `type`, and the exact product in it."""
    result = f"{type[0]}{bits_of(type) * 2}"
    dtype = np.dtype(f"{'i' if type[0] == 's' else 'u'}{bits_of(type) // 4}")
    return result, lambda a, b: np.multiply(a, b, dtype=dtype)


def _product24(part: str, type: str) -> Callable[[Array, Array], Array]:
    """Bits 31 to 0 (lo) or 47 to 16 (hi) of the product of the low 24 bits of two words; an s32 has bit 23 as sign."""
    wider = np.int64 if type == "s32" else np.uint64

    def product(a: Array, b: Array) -> Array:
        x, y = (v.astype(wider) << wider(40) >> wider(40) for v in (a, b))
        return (x * y >> wider(16 if part == "hi" else 0)).astype(DTYPES[type])

    return product


@meaning("mul24")
def mul24(ctx: Context, bound: Bindings) -> Action:
    """Half of the product of 24-bit numbers."""
    return binary(ctx, bound["T"], _product24(bound["PART"], bound["T"]))


@meaning("mad24")
def mad24(ctx: Context, bound: Bindings) -> Action:
    """Half of the product of 24-bit numbers, and a sum; with `.sat` it is clamped."""
    type, saturated = bound["T"], bound.get("SAT")
    d, a, b, c = ctx.operands
    product = _product24(bound["PART"], type)

    def fused(x: Array, y: Array, z: Array) -> Array:
        half = product(x, y)
        return _saturate(half.astype(np.int64) + z) if saturated else half + z

    return elementwise(fused, ctx.dest(d, type), *(ctx.source(o, type) for o in (a, b, c)))


def _product(part: str, type: str) -> tuple[str, str, Callable[[Array, Array], Array]]:
    """The types of the factors and of a part of their product, and how it is computed."""
    if part == "lo":
        return unsigned(type), unsigned(type), np.multiply
    return (type, type, high) if part == "hi" else (type, *wide(type))


@meaning("mul")
def multiply(ctx: Context, bound: Bindings) -> Action:
    """`mul.lo`, `mul.hi`, `mul.wide` of integers."""
    type, result, product = _product(bound["PART"], bound["T"])
    d, a, b = ctx.operands
    return elementwise(product, ctx.dest(d, result), ctx.source(a, type), ctx.source(b, type))


@meaning("mad")
def multiply_add(ctx: Context, bound: Bindings) -> Action:
    """`mad.lo`, `mad.hi`, `mad.wide` of integers."""
    type, result, product = _product(bound["PART"], bound["T"])
    d, a, b, c = ctx.operands

    def fused(x: Array, y: Array, z: Array) -> Array:
        if bound.get("SAT"):
            return _saturate(product(x, y).astype(np.int64) + z)
        return product(x, y) + z

    sources = (ctx.source(a, type), ctx.source(b, type), ctx.source(c, result))
    return elementwise(fused, ctx.dest(d, result), *sources)


def quotient(a: Array, b: Array) -> Array:
    """Toward zero. Division by zero gives all ones, as the machine's own routine does."""
    divisor = np.where(b == 0, b.dtype.type(1), b)
    result = a // divisor if a.dtype.kind == "u" else (a - np.fmod(a, divisor)) // divisor
    return np.where(b == 0, ~b, result)


def remainder(a: Array, b: Array) -> Array:
    """With the sign of the dividend; all ones for a divisor of zero."""
    return np.where(b == 0, ~b, np.fmod(a, np.where(b == 0, b.dtype.type(1), b)))


_DIVIDED = {"div": quotient, "rem": remainder}


@meaning(*_DIVIDED)
def divide(ctx: Context, bound: Bindings) -> Action:
    """Quotient and remainder."""
    return binary(ctx, bound["T"], _DIVIDED[ctx.row.root])


def _count_leading_zeros(value: Array) -> Array:
    bits = value.dtype.itemsize * 8
    shift = 1
    while shift < bits:
        value = value | (value >> value.dtype.type(shift))
        shift *= 2
    return (bits - np.bitwise_count(value)).astype(np.uint32)


def _count_ones(value: Array) -> Array:
    return np.bitwise_count(value).astype(np.uint32)


def _reverse(value: Array) -> Array:
    bits = value.dtype.itemsize * 8
    mask, shift = (1 << bits) - 1, bits // 2
    kind = value.dtype.type
    while shift:
        mask ^= (mask << shift) & ((1 << bits) - 1)
        value = ((value >> kind(shift)) & kind(mask)) | ((value & kind(mask)) << kind(shift))
        shift //= 2
    return value


_COUNTED = {"popc": _count_ones, "clz": _count_leading_zeros}


@meaning(*_COUNTED)
def count_bits(ctx: Context, bound: Bindings) -> Action:
    """Counts of ones and of leading zeros: a 32-bit result."""
    d, a = ctx.operands
    return elementwise(_COUNTED[ctx.row.root], ctx.dest(d, "u32"), ctx.source(a, bound["T"]))


@meaning("fns")
def find_set(ctx: Context, bound: Bindings) -> Action:
    """The place of the n-th one bit of a from bit b on, upwards or, where n is negative, downwards; all ones if there
    is none. For n = 0, bit b itself."""

    def find(mask: Array, base: Array, n: Array) -> Array:
        found, left = np.full(mask.shape, 0xFFFFFFFF, np.uint32), np.maximum(np.abs(n.astype(np.int64)), 1)
        left = np.where(base < 32, left, 33)
        step, place = np.where(n < 0, -1, 1), base.astype(np.int64)
        for distance in range(32):
            inside = (place >= 0) & (place < 32) & ((n != 0) | (distance == 0))
            one = inside & (mask >> (place & 31).astype(np.uint32) & np.uint32(1) != 0)
            left -= one
            found = np.where(one & (left == 0), place, found)
            place = place + step
        return found

    d, a, b, c = ctx.operands
    sources = (ctx.source(a, "b32"), ctx.source(b, "b32"), ctx.source(c, "s32"))
    return elementwise(find, ctx.dest(d, "b32"), *sources)


@meaning("brev")
def brev(ctx: Context, bound: Bindings) -> Action:
    """Bits in reverse order."""
    return unary(ctx, bound["T"], _reverse)


@meaning("bfind")
def bfind(ctx: Context, bound: Bindings) -> Action:
    """The position of the leading bit that is not a sign bit; all ones if there is none."""
    as_shift, type = bound["SHIFT"], bound["T"]
    bits = bits_of(type)
    word = np.uint32 if bits == 32 else np.uint64
    d, a = ctx.operands

    def find(value: Array) -> Array:
        plain = np.where(value < 0, ~value, value).astype(word)
        zeros = _count_leading_zeros(plain)
        place = zeros if as_shift else np.uint32(bits - 1) - zeros
        return np.where(plain == 0, np.uint32(0xFFFFFFFF), place)

    return elementwise(find, ctx.dest(d, "u32"), ctx.source(a, type))


def _field(start: Array, length: Array, bits: int) -> tuple[Array, Array]:
    """Of 32 bits, only the low 8 bits of a position and a length count; 64-bit fields are software, which clamps."""
    if bits == 32:
        start, length = start & np.uint32(0xFF), length & np.uint32(0xFF)
    return start.astype(np.uint64), length.astype(np.uint64)


def _ones(length: Array) -> Array:
    """Words of `length` low ones."""
    one = np.uint64(1)
    return (one << length) - one


@meaning("bfe")
def bfe(ctx: Context, bound: Bindings) -> Action:
    """Bit field extract: beyond the operand's top bit, the sign (or zero) goes on."""
    type = bound["T"]
    bits = bits_of(type)
    d, a, b, c = ctx.operands

    def extract(value: Array, start: Array, length: Array) -> Array:
        start, length = _field(start, length, bits)
        if type[0] == "u":
            return value.astype(np.uint64) >> start & _ones(length)
        shifted = value.astype(np.int64) >> np.minimum(start, np.uint64(63)).astype(np.int64)
        top = np.minimum(length, np.uint64(bits))
        left = np.uint64(64) - top
        kept = (shifted.view(np.uint64) << left).view(np.int64) >> np.minimum(left, np.uint64(63)).astype(np.int64)
        return np.where(top == 0, 0, kept)

    return elementwise(extract, ctx.dest(d, type), ctx.source(a, type), ctx.source(b, "u32"), ctx.source(c, "u32"))


@meaning("bfi")
def bfi(ctx: Context, bound: Bindings) -> Action:
    """Bit field insert: the low bits of a into b."""
    type = bound["T"]
    bits = bits_of(type)
    f, a, b, c, d = ctx.operands

    def insert(field: Array, into: Array, start: Array, length: Array) -> Array:
        start, length = _field(start, length, bits)
        mask = _ones(length) << start
        return (into & ~mask) | ((field.astype(np.uint64) << start) & mask)

    sources = (ctx.source(a, type), ctx.source(b, type), ctx.source(c, "u32"), ctx.source(d, "u32"))
    return elementwise(insert, ctx.dest(f, type), *sources)


_PICKED = {"min": np.minimum, "max": np.maximum}


@meaning(*_PICKED)
def minimum_maximum(ctx: Context, bound: Bindings) -> Action:
    """The least or greatest integer, or pair of them; `.relu` makes negative results 0."""
    type, function = bound["T"], _PICKED[ctx.row.root]

    def compute(a: Array, b: Array) -> Array:
        return np.maximum(function(a, b), 0)

    return (pairs if type.endswith("x2") else binary)(ctx, type, compute if bound.get("RELU") else function)


_SIGNED: dict[str, Any] = {"abs": np.abs, "neg": np.negative}


@meaning(*_SIGNED)
def absolute_negative(ctx: Context, bound: Bindings) -> Action:
    """Magnitude and negation of signed integers; the least integer stays itself."""
    return unary(ctx, bound["T"], _SIGNED[ctx.row.root])


@meaning("sad")
def sum_of_differences(ctx: Context, bound: Bindings) -> Action:
    """c + |a - b|."""
    type = bound["T"]
    d, a, b, c = ctx.operands
    sources = (ctx.source(a, type), ctx.source(b, type), ctx.source(c, type))
    return elementwise(lambda x, y, z: np.where(x < y, y - x, x - y) + z, ctx.dest(d, type), *sources)


@meaning("dp4a", "dp2a")
def dot_product(ctx: Context, bound: Bindings) -> Action:
    """Products of the bytes of b with bytes of a, or with halves of a, summed with c."""
    upper = bound.get("HALF") == "hi"
    d, a, b, c = ctx.operands
    wide = np.dtype(f"{'i' if bound['A'] == 's32' else 'u'}{2 if 'HALF' in bound else 1}")
    narrow = np.dtype(f"{'i' if bound['B'] == 's32' else 'u'}1")

    def dot(x: Array, y: Array, z: Array) -> Array:
        left = np.ascontiguousarray(x).view(wide).reshape(x.size, -1).astype(np.int64)
        right = np.ascontiguousarray(y).view(narrow).reshape(y.size, -1).astype(np.int64)
        n = left.shape[1]
        total = (left * right[:, n:] if upper else left * right[:, :n]).sum(axis=1)
        return (total + z).astype(np.uint32)

    return elementwise(dot, ctx.dest(d, "b32"), *(ctx.source(o, "b32") for o in (a, b, c)))


@meaning("bmsk")
def bit_mask(ctx: Context, bound: Bindings) -> Action:
    """b ones from bit a on; both are clamped to 32 bits, or taken modulo 32."""
    wrap = bound["RANGE"] == "wrap"

    def mask(start: Array, length: Array) -> Array:
        first, count = (v & 31 if wrap else np.minimum(v, 32) for v in (start, length))
        return _ones(count.astype(np.uint64)) << first.astype(np.uint64)

    return binary(ctx, "u32", mask)


@meaning("szext")
def sign_extend(ctx: Context, bound: Bindings) -> Action:
    """The low b bits of a, extended by their sign or by zeros."""
    wrap, type = bound["RANGE"] == "wrap", bound["T"]

    def extend(value: Array, length: Array) -> Array:
        bits = length.view(np.uint32)
        count = (bits & 31 if wrap else np.minimum(bits, 32)).astype(np.int64)
        low = value.astype(np.int64) & ((1 << count) - 1)
        sign = np.where(count > 0, 1 << np.maximum(count - 1, 0), 0)
        return (low ^ sign) - sign if type == "s32" else low

    d, a, b = ctx.operands
    return elementwise(extend, ctx.dest(d, type), ctx.source(a, type), ctx.source(b, "u32"))
