"""Functions of f32 elements as sequences of instructions whose every bit the ISA defines; `warp.gelu`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ..linalg.functions import ANGLE_LIMIT, HALF_PI
from .emitter import VirtualRegister, single
from .scalars import Instructions, Operand, double

# `ex2.approx`, `tanh.approx` and their like have an error bound but no defined bits, so a kernel with them could not
# be run ahead bit for bit on another machine, and their bounds (`tanh.approx`: 2^-11) are too wide for f32. So
# functions are polynomials and quotients of polynomials in `fma.rn`, `mul.rn` and integer arithmetic on the bits,
# without branches: the elements of a fragment are independent, and straight code lets the assembler interleave them.
# For the same reason the reciprocals inside are not `rcp.rn`, which branches for numbers that do not occur here; they
# start from `rcp.approx`, and nothing is left of its last bits after one step of Newton's.
#
# Relative errors against float64, the worst of arguments of every exponent (test/unit/test_passes_functions.py):
#
#     exp, exp2, log   1e-7 (and 2^-149 for results below 2^-126)
#     tanh             3e-7
#     erf              5e-7
#     rsqrt            1e-7, by sqrt.rn and rcp.rn
#
# Every function gives NaN for NaN. Coefficients are minimax fits, relative, to what is written beside them.
#
# With `fastmath<afn>` the approximate instructions stand in: `ex2.approx.ftz`, `lg2.approx.ftz`, `tanh.approx` (f32
# relative errors about 2^-22, 2^-22, 2^-11; PTX ISA 9.7.3.20 to 22), erf(x) as tanh of an odd cubic, within 1e-3, and
# powers by both of the first.

LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453
LN2_HIGH = 0.693145751953125
"""The upper 16 bits of ln 2: times a whole number of 8 bits it is exact."""
ROUNDER = 12582912.0
"""1.5 * 2^23: added to a small number, it leaves the nearest whole one in the low bits."""
ROUNDER_BITS = 0x4B400000
ONE_BITS = 0x3F800000

# e^x on [-ln2 / 2, ln2 / 2] and 2^x on [-1/2, 1/2]
EXP = (1.0, 1.0, 0.49999991059303284, 0.16666419804096222, 0.04166822507977486, 0.008374824188649654,
       0.0013836835278198123)  # fmt: skip
EXP2 = (1.0, 0.6931471824645996, 0.24022646248340607, 0.05550328642129898, 0.009618489071726799,
        0.0013399934396147728, 0.00015345809515565634)  # fmt: skip
# (log(1 + x) - x) / x^2 on [sqrt(1/2) - 1, sqrt(2) - 1]
LOG = (-0.4999999701976776, 0.3333366811275482, -0.2500140070915222, 0.1997251808643341, -0.16581079363822937,
       0.14820605516433716, -0.1421431601047516, 0.08903014659881592)  # fmt: skip
# tanh(x) / x and erf(x) / x as T(x^2) + P(x^2) / Q(x^2), up to a limit at which x times that is 1 to the last bit. What
# is beyond, and infinity, is taken for the limit.
TANH_LIMIT = 8.21
TANH_T = (0.04859069362282753, -7.12278633727692e-05, 9.701084735525001e-08)
TANH_P = (0.682993471622467, 0.077031709253788, 0.0013253063661977649)
TANH_Q = (0.7178755402565002, 0.332425057888031, 0.017230773344635963, 0.000169642866239883)
ERF_LIMIT = 3.6125
ERF_T = (0.1197078675031662, -0.0006896577542647719)
ERF_P = (0.7396672368049622, 0.17346182465553284, 0.03355638310313225, 0.0038417624309659004)
ERF_Q = (0.7333086133003235, 0.4449101388454437, 0.11685851216316223, 0.017015034332871437, 0.0013663513818755746)


def _power(i: Instructions, rounded: Operand, fraction: VirtualRegister) -> VirtualRegister:
    """fraction * 2^n, n being in the low bits of `rounded`; in two steps, so that the ends of the range are right."""
    n = i("sub.s32", i.bits(rounded), ROUNDER_BITS)
    half = i("shr.s32", n, 1)
    rest = i("sub.s32", n, half)
    for power in (half, rest):
        factor = i.of_bits(i("add.s32", i("shl.b32", power, 23), ONE_BITS))
        fraction = i.mul(fraction, factor)
    return fraction


def exp(i: Instructions, x: Operand, sm: int) -> VirtualRegister:
    """e^x = 2^n e^r, with n the integer nearest to x log2(e) and r the rest."""
    x = i.clamp(x, -104.0, 89.0, sm)
    rounded = i.fma(x, single(LOG2_E), single(ROUNDER))
    n = i.add(rounded, single(-ROUNDER))
    r = i.fma(n, single(LN2_HIGH - LN2), i.fma(n, single(-LN2_HIGH), x))
    return _power(i, rounded, i.polynomial(r, EXP))


def exp2(i: Instructions, x: Operand, sm: int) -> VirtualRegister:
    """2^x = 2^n 2^r."""
    x = i.clamp(x, -151.0, 129.0, sm)
    rounded = i.add(x, single(ROUNDER))
    r = i.add(x, i.neg(i.add(rounded, single(-ROUNDER))))
    return _power(i, rounded, i.polynomial(r, EXP2))


def log(i: Instructions, x: Operand, sm: int) -> VirtualRegister:
    """log(2^n m) = n ln2 + log(m), m from sqrt(1/2) to sqrt(2); subnormals are scaled first."""
    small = i("setp.lt.f32", x, single(2.0**-126))
    bits = i.bits(i("selp.f32", i.mul(x, single(2.0**23)), x, small))
    shift = i("selp.b32", -23, 0, small)
    exponent = i("shr.s32", i("sub.s32", bits, 0x3F3504F3), 23)
    m = i.of_bits(i("sub.s32", bits, i("shl.b32", exponent, 23)))
    f = i.add(m, single(-1.0))
    n = i("cvt.rn.f32.s32", i("add.s32", exponent, shift))
    tail = i.fma(i.mul(f, f), i.polynomial(f, LOG), i.mul(n, single(LN2 - LN2_HIGH)))
    result = i.fma(n, single(LN2_HIGH), i.add(f, tail))
    # What is not positive and finite: infinity and NaN as they are, minus infinity for 0, NaN below.
    beyond = i("setp.geu.f32", x, single(float("inf")))
    result = i("selp.f32", x, result, beyond)
    result = i("selp.f32", single(float("nan")), result, i("setp.lt.f32", x, single(0.0)))
    return i("selp.f32", single(float("-inf")), result, i("setp.eq.f32", x, single(0.0)))


def _odd(
    i: Instructions, x: VirtualRegister, t: Sequence[float], p: Sequence[float], q: Sequence[float]
) -> VirtualRegister:
    """x (T(x^2) + P(x^2) / Q(x^2)): an instruction less than x P / Q with as many coefficients."""
    square = i.mul(x, x)
    quotient = i.reciprocal(i.polynomial(square, q))
    return i.mul(x, i.fma(i.polynomial(square, p), quotient, i.polynomial(square, t)))


Function = Callable[[Instructions, Operand, int], VirtualRegister]

ACCURATE: Mapping[str, Function] = {
    "math.exp": exp,
    "math.exp2": exp2,
    "math.log": log,
    "math.tanh": lambda i, x, sm: _odd(i, i.within(x, TANH_LIMIT, sm), TANH_T, TANH_P, TANH_Q),
    "math.erf": lambda i, x, sm: _odd(i, i.within(x, ERF_LIMIT, sm), ERF_T, ERF_P, ERF_Q),
    "math.sqrt": lambda i, x, sm: i("sqrt.rn.f32", x),
    "math.rsqrt": lambda i, x, sm: i("rcp.rn.f32", i("sqrt.rn.f32", x)),
}
"""Functions by the operation that asks for them."""


APPROXIMATE: Mapping[str, Function] = {
    "math.exp": lambda i, x, sm: i("ex2.approx.ftz.f32", i.mul(x, single(LOG2_E))),
    "math.exp2": lambda i, x, sm: i("ex2.approx.ftz.f32", x),
    "math.log": lambda i, x, sm: i.mul(i("lg2.approx.ftz.f32", x), single(LN2)),
    "math.tanh": lambda i, x, sm: i("tanh.approx.f32", x),
    "math.erf": lambda i, x, sm: i("tanh.approx.f32", i.mul(x, i.fma(i.mul(x, x), single(0.1), single(1.1295)))),
    "math.sqrt": lambda i, x, sm: i("sqrt.approx.ftz.f32", x),
    "math.rsqrt": lambda i, x, sm: i("rsqrt.approx.ftz.f32", x),
}
"""What `fastmath<afn>` allows."""


# `warp.gelu` of several elements, whose reciprocals come from one.
#
# gelu(x) = x / (1 + 2^t), where t is an odd polynomial of x: for a gelu by tanh it is exact, t = -2 log2(e) u, for one
# by erf it is a fit to the logarithm of the distribution function's odds, for a silu exactly -log2(e) x. A special
# function takes as long as eight other instructions (16 results a cycle of an SM), so up to four elements share a
# reciprocal: with a = 1 + 2^t of each, 1 / a = b / (a b). For that x is bounded where t is computed, so that no product
# overflows, and NaN stays with itself.
#
# Absolute errors, |x| times: by tanh 5e-10, where |x| > 5.6, of a silu where |x| > 21.4; by erf 5e-7. Relative errors
# beside these: 2e-6 (test/unit/test_gelu.py)
#
# The derivative of a gelu by erf is 1/2 + x P(x^2) / Q(x^2), off by 5e-7 at most.
#
# With `fastmath<afn>` a gelu is x (1 + T) / 2, T being `tanh.approx` of a cubic.

TOGETHER = 4
"""Elements that share a reciprocal."""


class Odds(NamedTuple):
    """A polynomial for log2 of the odds (1 - p) / p: x times a polynomial of x^2, for x up to `limit`. The result is at
    most 31 there, so that four powers of two can be multiplied without overflow."""

    limit: float
    coefficients: tuple[float, ...]


ODDS: Mapping[str, Odds] = {
    # -2 log2(e) sqrt(2 / pi) (x + 0.044715 x^3)
    "tanh": Odds(5.6, (-2.302208198144325, -0.1029432395800235)),
    # Least absolute error of the distribution function, 4e-7.
    "erf": Odds(5.0, (-2.3021963779409296, -0.10488829835093903, 0.00014786620270489505, 0.0001392513172821161,
                      -8.166017171640311e-06, 1.5933034360325206e-07)),
    "silu": Odds(21.45, (-1.4426950408889634,)),
}  # fmt: skip
"""By how the gelu is written."""


HALVED: Mapping[str, tuple[float, float]] = {
    "tanh": (0.7978845608028654, 0.7978845608028654 * 0.044715),
    "erf": (1.1295 * 0.7071067811865476, 0.1 * 0.7071067811865476 / 2),
}
"""x and x^3 in the argument of the tanh that stands for the function of an approximate gelu."""


def approximate_gelu(i: Instructions, x: Operand, by: str) -> VirtualRegister:
    """The gelu of one element, within 1e-3 of |x|."""
    half, inner = i.mul(x, single(0.5)), i.polynomial(i.mul(x, x), HALVED[by])
    return i.fma(half, i("tanh.approx.f32", i.mul(inner, x)), half)


class _Sum(NamedTuple):
    """A denominator, the product of those of up to four elements: 1 + e of each."""

    exponentials: tuple[VirtualRegister, ...]
    last: VirtualRegister
    product: VirtualRegister


def gelu(i: Instructions, elements: Sequence[Operand], by: str) -> list[VirtualRegister]:
    """The gelus of up to `TOGETHER` elements, or the derivatives."""
    if by == "erf_gradient":
        return [_gelu_gradient(i, x) for x in elements]
    exponentials = [_exponential(i, x, ODDS[by]) for x in elements]
    pairs = [_denominator(i, exponentials[n : n + 2]) for n in range(0, len(exponentials), 2)]
    shares = [s for pair, inverse in zip(pairs, _inverses(i, pairs), strict=True) for s in _shares(i, pair, inverse)]
    return [i.mul(x, share) for x, share in zip(elements, shares, strict=True)]


GRADIENT_LIMIT = 5.75
GRADIENT_P = (0.7978853583335876, -0.030995260924100876, 0.014230185188353062, 1.923583658935968e-05,
              3.595433008740656e-05, 1.929075921225376e-07)  # fmt: skip
GRADIENT_Q = (1.0, 0.29449477791786194, 0.04098031669855118, 0.003523024031892419, 0.00019203691044822335,
              8.9517288870411e-06)  # fmt: skip


def _gelu_gradient(i: Instructions, x: Operand) -> VirtualRegister:
    bounded = i("min.NaN.xorsign.abs.f32", x, single(GRADIENT_LIMIT))
    square = i.mul(bounded, bounded)
    inverse = i("rcp.approx.ftz.f32", i.polynomial(square, GRADIENT_Q))
    return i.fma(i.mul(i.polynomial(square, GRADIENT_P), bounded), inverse, single(0.5))


def _exponential(i: Instructions, x: Operand, odds: Odds) -> VirtualRegister:
    """2^t, at most 2^31; of NaN too."""
    bounded = i("min.xorsign.abs.f32", x, single(odds.limit))
    if len(odds.coefficients) == 1:
        return i("ex2.approx.ftz.f32", i.mul(bounded, single(odds.coefficients[0])))
    square = i.mul(bounded, bounded)
    return i("ex2.approx.ftz.f32", i.mul(i.polynomial(square, odds.coefficients), bounded))


def _denominator(i: Instructions, exponentials: Sequence[VirtualRegister]) -> _Sum:
    """(1 + e)(1 + f), or 1 + e."""
    last = i.add(exponentials[-1], single(1.0))
    product = i.fma(exponentials[0], last, last) if len(exponentials) > 1 else last
    return _Sum(tuple(exponentials), last, product)


def _inverses(i: Instructions, pairs: Sequence[_Sum]) -> list[VirtualRegister]:
    """The reciprocals of one or two products, from one of both."""
    if len(pairs) == 1:
        return [i("rcp.approx.ftz.f32", pairs[0].product)]
    first, second = (pair.product for pair in pairs)
    both = i("rcp.approx.ftz.f32", i.mul(first, second))
    return [i.mul(both, second), i.mul(both, first)]


def _shares(i: Instructions, pair: _Sum, inverse: VirtualRegister) -> list[VirtualRegister]:
    """1 / (1 + e) for each element of a pair."""
    if len(pair.exponentials) == 1:
        return [inverse]
    return [i.mul(inverse, pair.last), i.fma(pair.exponentials[0], inverse, inverse)]


# Functions of f32 elements that need f64: sines and cosines of any angle.


# Of an angle, the rest in its quarter of a turn is computed with pi / 2 in several numbers (W. J. Cody and W. Waite,
# "Software Manual for the Elementary Functions", 1980): in f32 up to `NEAR`, and in f64 beyond, around which lanes with
# smaller angles branch. Its sine is in f32. Every bit is defined by the ISA.
#
# Relative errors against float64: 2e-7, and 2^-149 for results below 2^-126.

HALF_PI_F32 = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
"""Pi / 2 in three numbers of f32: what each leaves out is in the next."""

NEAR = 2.0**16
"""Below this, a multiple of the first of three numbers leaves an angle's rest exactly: a multiple of 2^-24 below 1."""

# (sin(x) / x - 1) and cos(x) in x^2, for |x| <= pi / 4 (Cephes)
SIN = (0.0, -1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
COS = (1.0, -0.5, 4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)

ROUNDER_F64 = 1.5 * 2.0**52
"""Added to a number below 2^51, it leaves the nearest whole one in the low bits."""


def _rest(i: Instructions, angle: Operand, parts: Sequence[float], width: int) -> tuple[Operand, VirtualRegister]:
    """What an angle has beyond the nearest multiple of pi / 2, and a number whose low bits count its quarters."""
    number, rounder = (single, ROUNDER) if width == 32 else (double, ROUNDER_F64)
    rounded = i(f"fma.rn.f{width}", angle, number(2 / math.pi), number(rounder))
    turns = i(f"sub.rn.f{width}", rounded, number(rounder))
    for part in parts:
        angle = i(f"fma.rn.f{width}", turns, number(-part), angle)
    return angle, rounded


def _sine(i: Instructions, x: Operand, quarters: int) -> VirtualRegister:
    """sin(x + quarters * pi / 2)."""
    emitter, size = i.emitter, i("abs.f32", x)
    rest, turns = _rest(i, x, HALF_PI_F32, 32)
    near, number = emitter.register("f32"), emitter.register("b32")
    emitter.move(near, rest)
    emitter.move(number, i.bits(turns))
    with emitter.skipping("near", guard=i("setp.lt.f32", size, single(NEAR))):
        far = Instructions(emitter)
        rest, turns = _rest(far, far("cvt.f64.f32", x), HALF_PI[:2], 64)
        emitter.move(near, far("cvt.rn.f32.f64", rest))
        emitter.move(number, far("cvt.u32.u64", far("mov.b64", turns, type="b64")))
    number = i("add.s32", number, quarters)
    square = i.mul(near, near)
    sine, cosine = i.fma(near, i.polynomial(square, SIN), near), i.polynomial(square, COS)
    value = i("selp.f32", cosine, sine, i("setp.ne.s32", i("and.b32", number, 1), 0))
    value = i("selp.f32", i.neg(value), value, i("setp.ne.s32", i("and.b32", number, 2), 0))
    return i("selp.f32", value, single(math.nan), i("setp.lt.f32", size, single(ANGLE_LIMIT)))


FUNCTIONS: Mapping[str, Callable[[Instructions, Operand], VirtualRegister]] = {
    "math.sin": partial(_sine, quarters=0),
    "math.cos": partial(_sine, quarters=1),
}
"""Functions that are computed as they are where approximate ones are allowed, too."""
