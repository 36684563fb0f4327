"""`cvt` between integers, floats and pairs of halves: PTX ISA 9.7.9.21."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....dialect.isa.types import ELEMENT_TYPES
from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.types import bits_of
from ...numerics import directed, floats
from ...numerics.array import Array
from ..decode import Context, constant, meaning
from ..machine.state import Action
from .actions import elementwise
from .register_dtypes import DTYPES, integer_range

_TO_INTEGER: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def _unary(ctx: Context, bound: Bindings, function: Callable[[Array], Array]) -> Action:
    d, a = ctx.operands
    return elementwise(function, ctx.dest(d, bound["D"], wide=True), ctx.source(a, bound["S"], wide=True))


@meaning("cvt.integer")
def between_integers(ctx: Context, bound: Bindings) -> Action:
    """The low bits, or the nearest integer there is."""
    return _unary(ctx, bound, _clip(bound["S"], bound["D"]) if bound.get("SAT") else _between(bound["D"]))


@meaning("cvt.to_integer")
def to_integer(ctx: Context, bound: Bindings) -> Action:
    """A float rounded to a whole number."""
    whole = _TO_INTEGER[bound["WHOLE"]]
    return _unary(ctx, bound, _to_integer(bound["S"], bound["D"], whole, bool(bound.get("FTZ"))))


@meaning("cvt.from_integer")
def from_integer(ctx: Context, bound: Bindings) -> Action:
    """An integer as a float."""
    return _unary(ctx, bound, _from_integer(bound["S"], bound["D"], bound["ROUND"], bool(bound.get("SAT"))))


@meaning("cvt.float")
def between_floats(ctx: Context, bound: Bindings) -> Action:
    """A float as another, or rounded to a whole number."""
    changes = any(bound.get(name) for name in ("WHOLE", "FTZ", "SAT", "RELU"))
    by_shift = None if changes else _BY_SHIFT.get((bound["S"], bound["D"]))
    return _unary(ctx, bound, by_shift or _between_floats(bound))


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
    dtype, bits = np.dtype(DTYPES[to]), bits_of(to)
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
        if to == "f64" and bits_of(origin) == 64:
            total, error = floats.two_sum(*_parts(a))
            found = total if mode == "rn" else directed.rounded(total, np.sign(error), mode)
            return np.clip(found, 0.0, 1.0) if saturate else found
        exact = _odd_double(a) if bits_of(origin) == 64 else a.astype(np.float64)
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


def _between_floats(bound: Bindings) -> Callable[[Array], Array]:
    origin, to, mode = bound["S"], bound["D"], bound.get("ROUND") or "rn"
    whole, ftz, saturate, relu, satfinite = (bound.get(n) for n in ("WHOLE", "FTZ", "SAT", "RELU", "FINITE"))
    dtype = DTYPES[to]

    def convert(a: Array) -> Array:
        values = floats.value(a.view(floats.WORDS[origin]), origin)
        if ftz and origin in ("f32", "bf16") and to != "f16":
            values = floats.flush(np.where(values == values, values, _FLUSHED_NAN), origin)
        if whole:
            values = np.copysign(_TO_INTEGER[whole](values), values)
        if saturate:
            values = floats.saturated(values)
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


@meaning("cvt.pair")
def pair(ctx: Context, bound: Bindings) -> Action:
    """Two f32 into one register: a above, b below. With `.rs` each takes its half of the random bits."""
    to, mode = bound["D"].removesuffix("x2"), bound["ROUND"]

    def half(values: Array, bits: Array) -> Array:
        exact = values.astype(np.float64)
        exact = _finite(exact, to) if bound.get("FINITE") else exact
        exact = floats.relu(exact) if bound.get("RELU") else exact
        words = stochastic(exact, to, bits & np.uint32(0xFFFF)) if mode == "rs" else floats.rounded(exact, to, mode)
        return words.astype(np.uint32)

    def pack(upper: Array, low: Array, bits: Array) -> Array:
        return half(upper, bits >> np.uint32(16)) << np.uint32(16) | half(low, bits)

    d, a, b, *random = ctx.operands
    bits = ctx.source(random[0], "b32") if random else constant(np.uint32(0))
    return elementwise(pack, ctx.dest(d, "b32"), ctx.source(a, "f32"), ctx.source(b, "f32"), bits)


def stochastic(exact: Array, to: str, bits: Array) -> Array:
    """Words of f16 or bf16: away from zero where what is cut off, in units of 2^-16 of the last place, and 16 random
    bits make a whole one. Which bits serve which number is assumed: the text shows it in figures alone."""
    down = floats.rounded(exact, to, "rz")
    low, up = floats.value(down, to), floats.value(down + np.array(1, down.dtype), to)
    inexact = np.isfinite(exact) & np.isfinite(low) & (exact != low)
    with np.errstate(invalid="ignore"):
        step = np.where(np.isfinite(up), up - low, low - floats.value(down - np.array(1, down.dtype), to))
        cut = np.floor(np.where(inexact, (exact - low) / step, 0.0) * 65536.0)
    return np.where(inexact & (cut + bits >= 65536.0), down + np.array(1, down.dtype), down)
