"""`cvt`, `cvt.pack`, `spcompress` and `spdecompress`. PTX ISA 9.7.9.21, .22; 9.4 for the last two."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, reduce

import numpy as np

from ....dialect.isa.form import ELEMENT_TYPES, ElementType
from ....dialect.isa.row import Bindings
from ....dialect.ptx.text.syntax import bits_of
from ...numerics import f64, floats
from ...numerics.floats import Array, ArrayFunction
from ...numerics.fused_sum import small_values
from ..machine.decode import DTYPES, Context, integer_range, meaning
from ..machine.memory import FaultError
from ..machine.state import Action
from .access import computes, identity, several
from .matrix import elements as fields_of
from .matrix import packed

# `cvt` between integers, floats and pairs of halves: PTX ISA 9.7.9.21.

_TO_INTEGER: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@computes("cvt.integer")
def between_integers(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Keeps the low bits; with `.sat`, takes the nearest integer that the result's type has."""
    origin, to, dtype = bound["S"], bound["D"], DTYPES[bound["D"]]
    if not bound.get("SAT"):
        return lambda a: a.astype(dtype)
    low, top = (pick(integer_range(to)[i], integer_range(origin)[i]) for i, pick in enumerate((max, min)))
    return lambda a: np.clip(a, low, top).astype(dtype)


@computes("cvt.to_integer")
def to_integer(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Rounds a float to an integer and saturates. NaN gives 0, or the highest bit alone where 64 bits are involved."""
    origin, to, rounding = bound["S"], bound["D"], _TO_INTEGER[bound["WHOLE"]]
    low, top = integer_range(to)
    dtype, bits = np.dtype(DTYPES[to]), bits_of(to)
    nan = np.uint64(0 if origin != "f64" and bits != 64 else 1 << (bits - 1)).astype(dtype)

    def convert(a: Array) -> Array:
        values = floats.value(a, origin)
        values = rounding(floats.flush(values, origin) if bound.get("FTZ") else values)
        inside = (values > float(low) - 1) & (values < float(top + 1)) if low else (values >= 0) & (values < top + 1.0)
        result: Array = np.where(inside, values, 0.0).astype(dtype)
        result[(values >= float(top + 1)) | ((values > 0) & ~inside)] = top
        result[(values < 0) & ~inside] = low
        result[values != values] = nan
        return result

    return convert


@computes("cvt.from_integer")
def from_integer(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Converts integers to floats. 64-bit integers go by way of f64, rounded to odd."""
    to, mode, saturate = bound["D"], bound["ROUND"], bool(bound.get("SAT"))
    wide = bits_of(bound["S"]) == 64

    def exact(a: Array) -> Array:
        if not wide:
            return a.astype(np.float64)
        total, error = floats.two_sum(*_parts(a))
        if to != "f64":
            return floats.odd(total, error)
        return total if mode == "rn" else f64.rounded(total, np.sign(error), mode)

    def convert(a: Array) -> Array:
        value = np.clip(exact(a), 0.0, 1.0) if saturate else exact(a)
        return floats.rounded(value, to, mode).view(DTYPES[to])

    return convert


def _parts(a: Array) -> tuple[Array, Array]:
    """64-bit integers as exact sums of two f64."""
    low = a & a.dtype.type(0xFFF)
    return (a - low).astype(np.float64), low.astype(np.float64)


@computes("cvt.float")
def between_floats(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Converts floats to other floats, or rounds them to integers. Some conversions copy words, including NaNs."""
    if not any(bound.get(name) for name in ("WHOLE", "FTZ", "SAT", "RELU")):
        if (bound["S"], bound["D"]) == ("bf16", "f32"):
            return lambda a: floats.single(a, "bf16")
        if bound["S"] == bound["D"] in ("f32", "f64"):
            return identity
    origin, to, mode = bound["S"], bound["D"], bound.get("ROUND") or "rn"
    integral, ftz, saturate, relu, satfinite = (bound.get(n) for n in ("WHOLE", "FTZ", "SAT", "RELU", "FINITE"))
    dtype, zero = DTYPES[to], bound.get("ZERO")

    def convert(a: Array) -> Array:
        values = floats.value(a, origin)
        if ftz and origin in ("f32", "bf16") and to != "f16":
            values = floats.flush(np.where(values == values, values, _FLUSHED_NAN), origin)
        if integral:
            values = np.copysign(_TO_INTEGER[integral](values), values)
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
        return (_positive_zero(words) if zero else words).view(dtype)

    return convert


def _positive_zero(words: Array) -> Array:
    kind = words.dtype.type
    return np.where(words == kind(1 << 8 * words.itemsize - 1), kind(0), words)


def _keep_payload(values: Array, to: str) -> Array:
    """Converts f64 NaNs to quiet NaN words of a type, with the sign and the upper bits of the payload."""
    words = values.view(np.uint64)
    exponent, mantissa = ELEMENT_TYPES[to].exponent, ELEMENT_TYPES[to].mantissa
    top = np.uint64(((1 << exponent) - 1) << mantissa | 1 << (mantissa - 1))
    sign = words >> np.uint64(63) << np.uint64(exponent + mantissa)
    payload = words >> np.uint64(52 - mantissa) & np.uint64((1 << mantissa) - 1)
    return (sign | top | payload).astype(floats.WORDS[to])


_FLUSHED_NAN = floats.value(np.array([floats.NAN["f32"]], np.uint32), "f32")[0]


def _finite(values: Array, type: str) -> Array:
    """At most the largest finite value; NaN stays."""
    largest = ELEMENT_TYPES[type].largest
    return np.clip(values, -largest, largest)


@computes("cvt.pair")
def pair(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Two f32 into one register: a above, b below. With `.rs` each takes its half of the random bits."""
    to, mode = bound["D"].removesuffix("x2"), bound["ROUND"]

    def encode(exact: Array, random: Array) -> Array:
        exact = _finite(exact, to) if bound.get("FINITE") else exact
        words = stochastic(exact, to, random) if mode == "rs" else floats.rounded(exact, to, mode)
        return (_positive_zero(words) if bound.get("ZERO") else words).astype(np.uint32)

    return _packed(bound, encode, 16, random=mode == "rs")


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


# `cvt` to and from pairs of 8-bit and narrower floats and tf32, and `cvt.pack`: PTX ISA 9.7.9.21 and .22.

_INFINITY = np.uint32(0x7F800000)
_SIGN = np.uint32(0x80000000)
_UE5M3 = ElementType("ue5m3", 8, exponent=5, mantissa=3, signed=False)
"""A type that is converted alone."""


def _element(pair: str) -> ElementType:
    """What a pair or a group of four is of."""
    return ELEMENT_TYPES[pair[:-2]]


def _bits_in_pair(element: ElementType) -> int:
    """Bits of an element within a pair. 6-bit floats take a byte."""
    return 4 if element.bits == 4 else 8


def _packed(
    bound: Bindings, encode: Callable[[Array, Array], Array], bits: int = 8, *, random: bool = False
) -> ArrayFunction:
    """Two or four f32 (the first above), or the halves of a register, into one of codes; divided by their scales before
    or, with `random`, encoded with as many bits each of the last operand."""
    half, scale = bound["S"].removesuffix("x2"), bound.get("SCALE", "")

    def together(*operands: Array) -> Array:
        *values, last = operands if scale or random else (*operands, operands[0])
        if half != "f32":
            values = [floats.value((values[0] >> np.uint32(s)).astype(np.uint16), half) for s in (16, 0)]
        if "n1" in scale:
            values = [floats.flush(value, half) for value in values]
        if scale:
            values = [v / s for v, s in zip(values, _scales(last, scale), strict=True)]
        codes, each = list[Array](), 32 // len(values)
        for i, value in enumerate(values, 1):
            exact = value.astype(np.float64)
            chance = last >> np.uint32(32 - each * i) & np.uint32((1 << each) - 1) if random else last
            codes.append(encode(floats.relu(exact) if bound.get("RELU") else exact, chance))
        return reduce(lambda word, code: word << bits | code, codes)

    return together


def _scales(factor: Array, qualifier: str) -> tuple[Array, Array]:
    """The scales of the upper and of the lower number: two bytes, or one for both."""
    code, powers = factor.astype(np.int64), small_values(ELEMENT_TYPES["ue8m0"]).astype(np.float64)
    return powers[code >> (0 if "n1" in qualifier else 8) & 255], powers[code & 255]


@computes("cvt.narrow")
def to_narrow(ctx: Context, bound: Bindings) -> ArrayFunction:
    """To a pair of floats of 8, 6 or 4 bits."""
    element, nearest = _element(bound["D"]), bound["ROUND"] == "rn"
    above: Callable[[Array, Array], Array] = _nearest if nearest else lambda _, codes: np.zeros(codes.shape, np.bool_)
    sign = 1 << element.bits - 1

    def encode(exact: Array, _: Array) -> Array:
        codes = _encoded(exact, element, above)
        return np.where(codes == sign, 0, codes) if bound.get("ZERO") else codes

    return _packed(bound, encode, _bits_in_pair(element))


@computes("cvt.fixed")
def to_fixed(ctx: Context, bound: Bindings) -> ArrayFunction:
    """To a pair of signed numbers of 8 bits in units of 2^-6; a NaN becomes the largest."""
    rounding = np.rint if bound["ROUND"] == "rn" else np.trunc

    def encode(exact: Array, _: Array) -> Array:
        units = np.where(exact == exact, exact * 64.0, 127.0)
        return np.clip(rounding(units), -128, 127).astype(np.int64) & 255

    return _packed(bound, encode)


@computes("cvt.scale")
def to_scale(ctx: Context, bound: Bindings) -> ArrayFunction:
    """To a pair of powers of two, from 2^-127 on: of magnitudes, toward zero or up. Too large, and a NaN, is 255 or,
    with `.satfinite`, a magnitude 254."""

    def encode(exact: Array, _: Array) -> Array:
        size = np.abs(exact)
        fraction, exponent = np.frexp(np.where(np.isfinite(size), size, 1.0))
        code = exponent + (126 + ((fraction > 0.5) & (bound["ROUND"] == "rp")))
        code = np.where(np.isinf(size), 255, np.clip(np.where(size == 0, 0, code), 0, 255))
        code = np.minimum(code, 254) if bound.get("FINITE") else code
        return np.where(size != size, 255, code)

    return _packed(bound, encode)


@computes("cvt.four")
def to_four(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Four f32 into one register, the first above. Each goes away from zero where what is cut off, in units of 2^-8 of
    the step, and its byte of random bits make a whole step. The first takes the upper byte: which takes which is
    assumed, the text shows it in a figure alone."""
    element = _element(bound["D"])

    def encode(exact: Array, byte: Array) -> Array:
        return _encoded(exact, element, lambda fraction, _: np.floor(fraction * 256.0) + byte >= 256.0)

    return _packed(bound, encode, _bits_in_pair(element), random=True)


def _encoded(values: Array, element: ElementType, above: Callable[[Array, Array], Array]) -> Array:
    """Codes of the next values toward zero or, where `above` says so of the fraction that is left of the step to the
    next ones and of the codes, of those; beyond the largest, the largest. A NaN becomes the one there is, or the
    largest value."""
    table, nan = _magnitudes(element)
    size = np.minimum(np.abs(np.where(values != values, 0.0, values)), table[-1])
    codes = np.searchsorted(table, size, side="right") - 1
    step = np.diff(table, append=np.inf)[codes]
    codes += above((size - table[codes]) / step, codes)
    codes |= np.where(np.signbit(values), 1 << (element.bits - 1), 0)
    return np.where(values != values, nan, codes)


def _nearest(fraction: Array, codes: Array) -> Array:
    """Ties to even."""
    return (fraction > 0.5) | ((fraction == 0.5) & (codes % 2 == 1))


@cache
def _magnitudes(element: ElementType) -> tuple[Array, int]:
    """The values of the codes from 0 to that of the largest, and the code of NaN."""
    values = small_values(element)[: 1 << (element.bits - 1)].astype(np.float64)
    finite = values[np.isfinite(values)]
    return finite, (1 << (element.bits - 1)) - 1 if finite.size < values.size else finite.size - 1


@computes("cvt.widen")
def from_narrow(ctx: Context, bound: Bindings) -> ArrayFunction:
    """A pair as halves, each times its scale where there are two."""
    to, scale = bound["D"].removesuffix("x2"), bound.get("SCALE", "")
    values, bits = _values(bound["S"])
    values = floats.relu(values) if bound.get("RELU") else values
    mask = values.size - 1

    def words(exact: Array) -> Array:
        return floats.rounded(_finite(exact, to) if bound.get("FINITE") else exact, to).astype(np.uint32)

    def scaled(pair: Array, factor: Array) -> Array:
        upper, lower = _scales(factor, scale)
        return words(values[pair & mask] * lower) | words(values[pair >> bits & mask] * upper) << np.uint32(16)

    if scale:
        return scaled
    table = words(values)
    return lambda pair: table[pair & mask] | table[pair >> bits & mask] << np.uint32(16)


def _values(pair: str) -> tuple[Array, int]:
    """The values of all codes of a format, and the bits of one in a pair."""
    if pair == "s2f6x2":
        return np.arange(256, dtype=np.uint8).view(np.int8) / 64.0, 8
    element = _UE5M3 if pair == "ue5m3x2" else _element(pair)
    return small_values(element).astype(np.float64), _bits_in_pair(element)


@computes("cvt.tf32")
def to_tf32(ctx: Context, bound: Bindings) -> ArrayFunction:
    """f32 with 10 bits of mantissa; `.satfinite` takes what is beyond one step back."""
    mode, relu, finite, zero = bound["ROUND"], bound.get("RELU"), bound.get("FINITE"), bound.get("ZERO")
    step = np.uint32(1 << 13)

    def convert(values: Array) -> Array:
        words = floats.tf32(values.view(np.uint32), mode)
        if finite:
            beyond = ((words & ~_SIGN) >= _INFINITY) & ((values == values) | (mode == "rna"))
            words = np.where(beyond, words - step, words)
        words = np.where(words & _SIGN != 0, np.uint32(0), words) if relu else words
        return _positive_zero(words) if zero else words

    return convert


@computes("cvt.pack")
def pack(ctx: Context, bound: Bindings) -> ArrayFunction:
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

    return together


# Registers made sparse, and dense again: PTX ISA 9.4. Of four elements two stay, in their order; indices say which.
#
# Nothing says what is chosen of equal elements, or of more than two NaNs: here the first.

SELECTIONS = ("max", "maxabs", "min", "minabs")
"""Bits 1:0 of the descriptor of `spcompress`."""

_COMPRESSED = {16: ("f16", "bf16"), 8: ("u8", "s8", "e5m2", "e4m3", "e3m2", "e2m3")}
"""Bits 4:2, by the size of elements. Elements of 6 bits have two more above them."""

_MIN_NAN = {"f16": 0x7C01, "bf16": 0x7F81, "f32": 0x7F800001, "e5m2": 0x7D, "e4m3": 0x7F}


def _order(elements: Array, type: str, selection: str) -> Array:
    """Numbers that are the greater, the sooner elements are chosen: NaNs first. -0.0 is less than 0.0."""
    words, size = elements.astype(np.int64), 6 if type in ("e3m2", "e2m3") else int(type[-2:] if type[0] in "fb" else 8)
    sign = words >> size - 1 & 1 if type != "u8" else np.zeros_like(words)
    magnitude = words & (1 << size - (type != "u8")) - 1
    if type == "s8":
        value, magnitude = magnitude - (sign << 7), np.abs(magnitude - (sign << 7))
    else:
        value = np.where(sign == 1, ~magnitude, magnitude)
    key = magnitude if selection.endswith("abs") else value
    key = -key if selection.startswith("min") else key
    least = _MIN_NAN.get(type)
    return key if least is None else np.where(magnitude >= least, np.int64(1 << 40), key)


def sparse(elements: Array, type: str, selection: str) -> tuple[Array, Array]:
    """Two of each four elements (groups, 4, threads), and their indices: (groups, 2, threads)."""
    first = np.argsort(-_order(elements, type, selection), axis=1, kind="stable")[:, :2]
    where = np.sort(first, axis=1)
    return np.take_along_axis(elements, where, axis=1), where


@meaning("spcompress")
def compress(ctx: Context, bound: Bindings) -> Action:
    """Two of each four elements, chosen by a descriptor in a register."""
    *dests, data, descriptor = ctx.operands
    bits, index = (int(bound[name][1:]) for name in "TI")
    outs = [ctx.dest(item, "b32") for operand in dests for item in ctx.items(operand)]
    sources = [ctx.source(item, "b32") for item in ctx.items(data)]

    def work(*words: Array) -> tuple[Array, ...]:
        elements, chosen = fields_of(list(words[:-1]), bits).reshape(-1, 4, words[0].size), words[-1]
        values, indices = np.empty((2, len(elements), 2, words[0].size), np.uint32)
        types = _COMPRESSED[bits]
        for word in map(int, np.unique(chosen)):
            if word >> 2 >= len(types):
                wanted = f"expected a type of {bits} bits, 0 to {len(types) - 1}"
                raise FaultError(f"spcompress: bits 31:2 of the descriptor {word:#x}: {wanted}")
            at = chosen == word
            kept = sparse(elements[..., at], types[word >> 2], SELECTIONS[word & 3])
            values[..., at], indices[..., at] = kept
        flat = (-1, words[0].size)
        made: Array = np.concatenate(packed(indices.reshape(flat), index, 1) + packed(values.reshape(flat), bits, 1))
        return tuple(made)

    return several(work, outs, *sources, ctx.source(descriptor, "b32"))


@meaning("spdecompress")
def decompress(ctx: Context, bound: Bindings) -> Action:
    """Each element to the place that its index names in its group; others are 0, and of two the last stays."""
    dest, codes, data = ctx.operands
    bits, index = (int(bound[name][1:]) for name in "TI")
    part, of = (int(number) for number in bound["P"].removeprefix("sp::").split(":"))
    outs = [ctx.dest(item, "b32") for item in ctx.items(dest)]
    groups = 32 * len(outs) // (of * bits)
    sources = [ctx.source(item, "b32") for operand in (codes, data) for item in ctx.items(operand)]
    kinds = len(ctx.items(codes))

    def work(*words: Array) -> tuple[Array, ...]:
        places, values = (
            fields_of(list(w), b)[: groups * part] for w, b in ((words[:kinds], index), (words[kinds:], bits))
        )
        if int(places.max(initial=0)) >= of:
            raise FaultError(f"spdecompress: expected indices below {of}, got {int(places.max())}", None)
        dense = np.zeros((groups, of, words[0].size), np.uint32)
        for which in range(part):
            np.put_along_axis(dense, places[which::part, None], values[which::part, None], axis=1)
        made: Array = np.concatenate(packed(dense.reshape(-1, words[0].size), bits, 1))
        return tuple(made)

    return several(work, outs, *sources)
