"""Functions of f32 elements that are computed in f64: sines and cosines of any angle, powers."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence

from .emitter import VirtualRegister, floating, single
from .f32_functions import Instructions, Operand

# f32 has too few digits for these: an angle of some hundred turns leaves none of them, and a power multiplies the error
# of a logarithm. In f64 each is a polynomial, rounded to f32 at the end; every bit is defined by the ISA.
#
# Relative errors against float64: 1e-7, and 2^-149 for results below 2^-126.

HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
"""Pi / 2 in two numbers: what the first leaves out is in the second."""

ANGLE_LIMIT = 2.0**50
"""From here on sines are NaN: two numbers tell no more where in its turn an angle is."""

SIN = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(8))
COS = tuple((-1.0) ** n / math.factorial(2 * n) for n in range(8))
"""Series in x^2 of sin(x) / x and cos(x), for |x| <= pi / 4 off by less than 1e-13."""

LOG2 = tuple(2 / math.log(2) / (2 * n + 1) for n in range(10))
"""Series in s^2 of log2((1 + s) / (1 - s)) / s, for |s| <= 0.172 off by less than 1e-15."""

EXP2 = tuple(math.log(2) ** n / math.factorial(n) for n in range(12))
"""The series of 2^x, for |x| <= 1/2 off by less than 1e-13."""

EXPONENT, SQRT_HALF_BITS = 1023, 0x3FE6A09E
"""The bias of exponents of f64, and the upper word of the root of one half."""

LARGEST = 200.0
"""Beyond powers of two of this, every f32 is an infinity, or 0."""


def double(value: float) -> Operand:
    """An f64 as a literal."""
    return floating(struct.unpack("<Q", struct.pack("<d", value))[0], 64)


def _polynomial(i: Instructions, x: Operand, coefficients: Sequence[float]) -> VirtualRegister:
    *rest, last = coefficients
    result: Operand = double(last)
    for coefficient in reversed(rest):
        result = i("fma.rn.f64", result, x, double(coefficient))
    return result if isinstance(result, VirtualRegister) else i("mov.f64", result)


def _sine(i: Instructions, x: Operand, quarters: int) -> VirtualRegister:
    """sin(x + quarters * pi / 2)."""
    angle = i("cvt.f64.f32", x)
    turns = i("cvt.rni.f64.f64", i("mul.rn.f64", angle, double(2 / math.pi)))
    rest = i("fma.rn.f64", turns, double(-HALF_PI[0]), angle)
    rest = i("fma.rn.f64", turns, double(-HALF_PI[1]), rest)
    number = i("add.s64", i("cvt.rzi.s64.f64", turns), quarters)
    square = i("mul.rn.f64", rest, rest)
    sine, cosine = i("mul.rn.f64", _polynomial(i, square, SIN), rest), _polynomial(i, square, COS)
    odd = i("setp.ne.s64", i("and.b64", number, 1), 0)
    value = i("selp.f64", cosine, sine, odd)
    value = i("selp.f64", i("neg.f64", value), value, i("setp.ne.s64", i("and.b64", number, 2), 0))
    inside = i("setp.lt.f64", i("abs.f64", angle), double(ANGLE_LIMIT))
    return i("cvt.rn.f32.f64", i("selp.f64", value, double(math.nan), inside))


def sin(i: Instructions, x: Operand) -> VirtualRegister:
    return _sine(i, x, 0)


def cos(i: Instructions, x: Operand) -> VirtualRegister:
    return _sine(i, x, 1)


def _words(i: Instructions, value: VirtualRegister) -> tuple[VirtualRegister, VirtualRegister]:
    """The lower and the upper word of an f64."""
    bits = i("mov.b64", value, type="b64")
    return i("cvt.u32.u64", bits), i("cvt.u32.u64", i("shr.u64", bits, 32))


def _of_words(i: Instructions, low: Operand, high: Operand) -> VirtualRegister:
    bits = i("or.b64", i("shl.b64", i("cvt.u64.u32", high), 32), i("cvt.u64.u32", low))
    return i("mov.b64", bits, type="f64")


def _log2(i: Instructions, x: VirtualRegister) -> VirtualRegister:
    """The logarithm of a positive normal number."""
    low, high = _words(i, x)
    exponent = i("shr.s32", i("sub.s32", high, SQRT_HALF_BITS), 20)
    fraction = _of_words(i, low, i("sub.s32", high, i("shl.b32", exponent, 20)))
    s = i("div.rn.f64", i("sub.rn.f64", fraction, double(1)), i("add.rn.f64", fraction, double(1)))
    series = i("mul.rn.f64", _polynomial(i, i("mul.rn.f64", s, s), LOG2), s)
    return i("add.rn.f64", series, i("cvt.rn.f64.s32", exponent))


def _exp2(i: Instructions, x: VirtualRegister) -> VirtualRegister:
    """Two to the power of a number between -LARGEST and LARGEST."""
    whole = i("cvt.rni.f64.f64", x)
    power = _polynomial(i, i("sub.rn.f64", x, whole), EXP2)
    exponent = i("add.s32", i("cvt.rzi.s32.f64", whole), EXPONENT)
    return i("mul.rn.f64", power, _of_words(i, i("mov.b32", 0), i("shl.b32", exponent, 20)))


def powf(i: Instructions, x: Operand, y: Operand) -> VirtualRegister:
    """x to the power of y, as C has it: of a negative x for whole y, NaN for others; 1 for any x if y is 0."""
    base, by = i("cvt.f64.f32", x), i("cvt.f64.f32", y)
    size = i("abs.f64", base)
    exact = i("mul.rn.f64", by, _log2(i, size))
    infinite = i("setp.eq.f64", size, double(math.inf))
    zero = i("setp.eq.f64", size, double(0))
    upward = i("setp.gt.f64", by, double(0))
    toward = i("selp.f64", double(LARGEST), double(-LARGEST), upward)
    exact = i("selp.f64", toward, exact, infinite)
    exact = i("selp.f64", i("neg.f64", toward), exact, zero)
    bounded = i("max.f64", i("min.f64", exact, double(LARGEST)), double(-LARGEST))
    result = i("cvt.rn.f32.f64", _exp2(i, bounded))
    whole = i("setp.eq.f64", i("cvt.rzi.f64.f64", by), by)
    half = i("mul.rn.f64", by, double(0.5))
    odd = i("and.pred", whole, i("setp.ne.f64", i("cvt.rzi.f64.f64", half), half))
    signed = i("selp.f32", i("copysign.f32", x, result), result, odd)
    undefined = i("and.pred", i("setp.lt.f64", base, double(0)), i("not.pred", whole))
    undefined = i("or.pred", i("and.pred", undefined, i("not.pred", infinite)), i("setp.nan.f64", base, by))
    signed = i("selp.f32", single(math.nan), signed, undefined)
    one = i("setp.eq.f64", by, double(0))
    one = i("or.pred", one, i("setp.eq.f64", base, double(1)))
    one = i(
        "or.pred",
        one,
        i("and.pred", i("setp.eq.f64", base, double(-1)), i("setp.eq.f64", i("abs.f64", by), double(math.inf))),
    )
    return i("selp.f32", single(1.0), signed, one)


FUNCTIONS: Mapping[str, Callable[..., VirtualRegister]] = {"math.sin": sin, "math.cos": cos, "math.powf": powf}
"""Functions by the operation that asks for them."""
