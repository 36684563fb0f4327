"""`cvt`: PTX ISA 9.7.9.21."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...dialect.isa.types import ELEMENT_TYPES
from . import convert_narrow, directed, floats
from .actions import elementwise
from .decode import Context, opcode
from .state import Action, Array
from .words import DTYPES, Modifiers, integer_range, width_of

_INTEGERS = tuple(f"{s}{n}" for s in "us" for n in (8, 16, 32, 64))
_FLOATS = ("f16", "bf16", "f32", "f64")
_TO_INTEGER: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


@opcode("cvt")
def cvt(ctx: Context, m: Modifiers) -> Action:
    """Between integers and floats of all widths, and of two numbers into one register."""
    if m.one("pack"):
        return convert_narrow.pack(ctx, m)
    whole, mode = m.one(*_TO_INTEGER), m.one(*floats.MODES)
    ftz, saturate, relu, satfinite = (m.flag(word) for word in ("ftz", "sat", "relu", "satfinite"))
    if m.words and (m.words[0].endswith("x2") or m.words[0] == "tf32"):
        if ftz or saturate or whole:
            ctx.fail("expected a rounding, and at most .relu and .satfinite")
        return _into_register(ctx, m, mode, relu, satfinite)
    to, origin = m.type(*_INTEGERS, *_FLOATS), m.type(*_INTEGERS, *_FLOATS)
    d, a = ctx.take(2)
    source, dest = ctx.source(a, origin, wide=True), ctx.dest(d, to, wide=True)
    if origin in _INTEGERS and to in _INTEGERS:
        if whole or mode:
            ctx.fail("integers convert without rounding")
        return elementwise(_clip(origin, to) if saturate else _between(to), dest, source)
    if origin in _FLOATS and to in _INTEGERS:
        if not whole:
            ctx.fail("expected .rni, .rzi, .rmi or .rpi to convert a float to an integer")
        return elementwise(_to_integer(origin, to, _TO_INTEGER[whole], ftz), dest, source)
    if origin in _INTEGERS:
        mode = mode or ctx.fail("expected a rounding such as .rn to convert an integer to a float")
        return elementwise(_from_integer(origin, to, mode, saturate), dest, source)
    if whole and origin != to:
        ctx.fail(f"rounding .{whole} to a whole number keeps the type; expected .{origin}")
    if satfinite and to not in ("f16", "bf16"):
        ctx.fail(f".satfinite is not for .{to}")
    plain = not (whole or ftz or saturate or relu)
    if plain and (origin, to) in _BY_SHIFT:
        return elementwise(_BY_SHIFT[origin, to], dest, source)
    return elementwise(_between_floats(origin, to, mode or "rn", whole, ftz, saturate, relu, satfinite), dest, source)


def _between(to: str) -> Callable[[Array], Array]:
    dtype = DTYPES[to]
    return lambda a: a.astype(dtype)


def _clip(origin: str, to: str) -> Callable[[Array], Array]:
    low, top = (
        max(integer_range(to)[0], integer_range(origin)[0]),
        min(integer_range(to)[1], integer_range(origin)[1]),
    )

    def clip(a: Array) -> Array:
        return np.clip(a, low, top).astype(DTYPES[to])

    return clip


def _to_integer(origin: str, to: str, whole: Callable[[Array], Array], ftz: bool) -> Callable[[Array], Array]:
    """Out of range gives the nearest integer there is; NaN gives 0 or, where 64 bits take part, the top bit alone."""
    low, top = integer_range(to)
    dtype, bits = np.dtype(DTYPES[to]), width_of(to)
    nan = np.uint64(0 if origin != "f64" and bits != 64 else 1 << (bits - 1)).astype(dtype)

    def convert(a: Array) -> Array:
        values = floats.value(a.view(floats.WORDS[origin]), origin)
        if ftz:
            values = floats.flush(values, origin)
        values = whole(values)
        inside = (values > float(low) - 1) & (values < float(top + 1)) if low else (values >= 0) & (values < top + 1.0)
        result: Array = np.where(inside, values, 0.0).astype(dtype)
        result[(values >= float(top + 1)) | ((values > 0) & ~inside)] = top
        result[(values < 0) & ~inside] = low
        result[values != values] = nan
        return result

    return convert


def _from_integer(origin: str, to: str, mode: str, saturate: bool) -> Callable[[Array], Array]:
    """64-bit integers go to f64 rounded to odd first."""
    dtype = DTYPES[to]

    def convert(a: Array) -> Array:
        if to == "f64" and mode == "rn" and not saturate:
            return a.astype(np.float64)
        if to == "f64" and width_of(origin) == 64:
            total, error = floats.two_sum(*_parts(a))
            found = total if mode == "rn" else directed.rounded(total, np.sign(error), mode)
            return np.clip(found, 0.0, 1.0) if saturate else found
        exact = _odd_double(a) if width_of(origin) == 64 else a.astype(np.float64)
        if saturate:
            exact = np.clip(exact, 0.0, 1.0)
        return floats.rounded(exact, to, mode).view(dtype)

    return convert


def _odd_double(a: Array) -> Array:
    """64-bit integers as f64, rounded to odd."""
    return floats.sum_odd(*_parts(a))


def _parts(a: Array) -> tuple[Array, Array]:
    """64-bit integers as exact sums of two f64."""
    low = a & a.dtype.type(0xFFF)
    return (a - low).astype(np.float64), low.astype(np.float64)


def _between_floats(
    origin: str, to: str, mode: str, whole: str, ftz: bool, saturate: bool, relu: bool, satfinite: bool
) -> Callable[[Array], Array]:
    dtype = DTYPES[to]

    def convert(a: Array) -> Array:
        values = floats.value(a.view(floats.WORDS[origin]), origin)
        if ftz and origin == "f32" and to != "f16":
            values = floats.flush(np.where(values == values, values, _FLUSHED_NAN), origin)
        if whole:
            values = np.copysign(_TO_INTEGER[whole](values), values)
        if saturate:
            values = np.where(values > 0, np.minimum(values, 1.0), 0.0)
        if relu:
            values = floats.relu(values)
        if satfinite:
            values = _finite(values, to)
        words = floats.rounded(values, to, mode)
        if origin == "f64" and to != "f64":
            words = np.where(values != values, _keep_payload(values, to), words)
        if ftz and to == "f32":
            words = floats.flush(words.view(np.float32), to)
        return words.view(dtype)

    return convert


def _keep_payload(values: Array, to: str) -> Array:
    """Quiet NaN words with the sign and upper bits of those of f64: what the machine makes of f64 NaNs."""
    words = values.view(np.uint64)
    exponent, mantissa = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23)}[to]
    top = np.uint64(((1 << exponent) - 1) << mantissa | 1 << (mantissa - 1))
    sign = words >> np.uint64(63) << np.uint64(exponent + mantissa)
    payload = words >> np.uint64(52 - mantissa) & np.uint64((1 << mantissa) - 1)
    return (sign | top | payload).astype(floats.WORDS[to])


_FLUSHED_NAN = floats.value(np.array([floats.NAN["f32"]], np.uint32), "f32")[0]


def _same(a: Array) -> Array:
    return a


_BY_SHIFT: dict[tuple[str, str], Callable[[Array], Array]] = {
    ("bf16", "f32"): lambda a: floats.single(a, "bf16"),
    ("f32", "f32"): _same,
    ("f64", "f64"): _same,
}
"""Conversions that move words, NaNs and all."""


def _finite(values: Array, type: str) -> Array:
    """At most the largest finite value; NaN stays."""
    largest = ELEMENT_TYPES[type].largest
    return np.clip(values, -largest, largest)


def _into_register(ctx: Context, m: Modifiers, mode: str, relu: bool, satfinite: bool) -> Action:
    """Pairs, and tf32."""
    if m.words[0] == "tf32":
        return convert_narrow.to_tf32(ctx, m, mode, satfinite, relu)
    if m.words[0] in convert_narrow.PAIRS:
        return convert_narrow.to_narrow(ctx, m, mode, satfinite, relu)
    if m.words[1:2] and m.words[1] in convert_narrow.PAIRS and not satfinite:
        return convert_narrow.from_narrow(ctx, m, mode, relu)
    return _packed(ctx, m, mode, relu, satfinite)


def _packed(ctx: Context, m: Modifiers, mode: str, relu: bool, satfinite: bool) -> Action:
    """Two f32 into one register: a above, b below."""
    to = m.type("f16x2", "bf16x2").removesuffix("x2")
    m.type("f32")
    if mode not in ("rn", "rz"):
        ctx.fail("expected .rn or .rz")
    d, a, b = ctx.take(3)

    def half(values: Array) -> Array:
        exact = values.astype(np.float64)
        exact = _finite(exact, to) if satfinite else exact
        return floats.rounded(floats.relu(exact) if relu else exact, to, mode).astype(np.uint32)

    def pack(upper: Array, low: Array) -> Array:
        return half(upper) << np.uint32(16) | half(low)

    return elementwise(pack, ctx.dest(d, "b32"), ctx.source(a, "f32"), ctx.source(b, "f32"))
