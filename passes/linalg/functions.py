"""Functions that no instruction computes, by those that one does.

Where a sum would cancel, 1 + x is rounded, and what it is rounded by is made up for; so is exp(x) for exp(x) - 1.
Others are Taylor series on an interval to which the argument is reduced. Of f32 and of f64 they are off by at most 3
times what rounding a result just above 1 may be off by, relative to the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import factorial, inf, log, nan, pi, sqrt
from typing import Any, TypeAlias, cast

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, IntegerType, f16, f32, f64, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.affine import number_of
from ...dialect.warp.elements import is_approximate
from ..diagnostics import fail
from ..patterns import constant_value

Scalar = SSAValue

Unary: TypeAlias = "Callable[[Scalar], Scalar]"

Expansion: TypeAlias = "Callable[..., Scalar | tuple[Scalar, Scalar]]"

Binary: TypeAlias = "arith.DivSIOp | arith.DivUIOp | arith.RemSIOp | arith.RemUIOp"


def _binary(kind: Callable[..., Operation], a: Scalar | float, b: Scalar | float) -> Scalar:
    """An operation on two numbers, one of which may be a constant of the other's type."""
    like: SSAValue = cast("Any", a if isinstance(a, SSAValue) else b)
    operands = (x if isinstance(x, SSAValue) else number_of(like.type, x).result for x in (a, b))
    return kind(*operands).results[0]


_plus, _minus = partial(_binary, arith.AddfOp), partial(_binary, arith.SubfOp)
_times, _over = partial(_binary, arith.MulfOp), partial(_binary, arith.DivfOp)
_larger, _smaller = partial(_binary, arith.MaximumfOp), partial(_binary, arith.MinimumfOp)
_and, _right = partial(_binary, arith.AndIOp), partial(_binary, arith.ShRUIOp)
_times_i = partial(_binary, arith.MuliOp)


def _is(a: Scalar, predicate: str, b: Scalar | float) -> Scalar:
    kind = arith.CmpfOp if isinstance(a.type, AnyFloat) else arith.CmpiOp
    return _binary(partial(kind, arg=predicate), a, b)


def _select(condition: Scalar, then: Scalar, otherwise: Scalar) -> Scalar:
    return arith.SelectOp(condition, then, otherwise).result


def _equal(a: Scalar, b: Scalar | float, then: Scalar, otherwise: Scalar) -> Scalar:
    return _select(_is(a, "oeq", b), then, otherwise)


def _size(x: Scalar) -> Scalar:
    return math.AbsFOp(x).result


def _polynomial(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """Powers of x times coefficients, those of 1 first."""
    total: Scalar = number_of(x.type, coefficients[-1]).result
    for coefficient in reversed(coefficients[:-1]):
        total = math.FmaOp(total, x, number_of(x.type, coefficient)).result
    return total


def _log1p(x: Scalar) -> Scalar:
    """The logarithm of 1 + x as rounded, and what it is rounded by: log(u + d) is log(u) + d / u for a small d."""
    above = _plus(1, x)
    rounded, log = _minus(above, 1), math.LogOp(above).result
    return _equal(above, 1, x, _equal(rounded, x, log, _plus(log, _over(_minus(x, rounded), above))))


def _expm1(x: Scalar) -> Scalar:
    """Where a sum cancels, exp(x) - 1 as rounded, and what exp(x) is rounded by: exp(y + d) is exp(y) + d exp(y)."""
    power = math.ExpOp(x).result
    less = _minus(power, 1)
    mended = math.FmaOp(power, _minus(x, math.LogOp(power).result), less).result
    return _equal(power, 1, x, _select(_is(_size(x), "ogt", 1), less, mended))


def _is_negative(x: Scalar) -> Scalar:
    return arith.OrIOp(_is(x, "olt", 0), _is(_over(1, x), "olt", 0)).result  # 1 / -0 is


def _copysign(x: Scalar, y: Scalar) -> Scalar:
    size = _size(x)
    return _select(_is_negative(y), arith.NegfOp(size).result, size)


def _round(x: Scalar) -> Scalar:
    truncated = math.TruncOp(x).result
    one = _copysign(number_of(x.type, 1).result, x)
    far = _is(_size(_minus(x, truncated)), "oge", 0.5)
    return _plus(truncated, _select(far, one, number_of(x.type, -0.0).result))


def _half_power(x: Scalar) -> tuple[Scalar, Scalar]:
    """exp(|x|) / 2, which may be finite where exp(|x|) is not, and exp(|x| / 2)."""
    root_ = math.ExpOp(_times(_size(x), 0.5)).result
    return _times(_times(root_, 0.5), root_), root_


def _sinh(x: Scalar) -> Scalar:
    less = _expm1(_size(x))
    more = _plus(less, 1)
    near = _times(_plus(less, _over(less, more)), 0.5)
    return _copysign(_equal(more, less, _half_power(x)[0], near), x)


def _cosh(x: Scalar) -> Scalar:
    half, root_ = _half_power(x)
    return _plus(half, _over(_over(0.5, root_), root_))


def _asinh(x: Scalar) -> Scalar:
    size = _size(x)
    inverse = _over(1, size)
    root_ = math.SqrtOp(_plus(1, _times(inverse, inverse))).result
    return _copysign(_log1p_of_double(size, _plus(size, _over(size, _plus(inverse, root_)))), x)


def _acosh(x: Scalar) -> Scalar:
    above = _minus(x, 1)
    return _log1p_of_double(x, _plus(above, _times(math.SqrtOp(above).result, math.SqrtOp(_plus(above, 2)).result)))


def _log1p_of_double(x: Scalar, double: Scalar) -> Scalar:
    """log(1 + double), where that is 2 x for a large x, and may overflow."""
    large = _is(x, "ogt", 2.0**64)
    two, none = (number_of(x.type, number).result for number in (log(2), 0.0))
    return _plus(_log1p(_select(large, x, double)), _select(large, two, none))


def _atanh(x: Scalar) -> Scalar:
    size = _size(x)
    return _copysign(_times(_log1p(_over(_plus(size, size), _minus(1, size))), 0.5), x)


def _angle(tangent: Scalar) -> Scalar:
    """The angle from 0 to pi / 2 of a tangent: by its inverse above 1, and less pi / 4 above tan(pi / 8)."""
    far = _is(tangent, "ogt", 1)
    near = _select(far, _over(1, tangent), tangent)
    turned = _is(near, "ogt", sqrt(2) - 1)
    rest = _select(turned, _over(_minus(near, 1), _plus(near, 1)), near)
    series = [0.0, *((-1) ** n / (2 * n + 1) for n in range(1, 22 if tangent.type == f64 else 10))]
    angle = math.FmaOp(rest, _polynomial(_times(rest, rest), series), rest).result
    angle = _select(turned, _plus(angle, pi / 4), angle)
    return _select(far, _minus(pi / 2, angle), angle)


def _atan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle of (x, y), as C has it for zeros and infinities."""
    height, width = _size(y), _size(x)
    diagonal = _equal(height, 0, height, number_of(x.type, 1).result)
    angle = _angle(_equal(height, width, diagonal, _over(height, width)))
    return _copysign(_select(_is_negative(x), _minus(pi, angle), angle), y)


def _cbrt(x: Scalar) -> Scalar:
    """By a logarithm, and a step of Newton's."""
    size = _size(x)
    root = math.ExpOp(_times(math.LogOp(size).result, 1 / 3)).result
    root = _plus(root, _times(_minus(_over(size, _times(root, root)), root), 1 / 3))
    return _copysign(_equal(size, 0, size, _equal(size, inf, size, root)), x)


_TAIL = (
    0.5107913569159452, 0.3435803329700964, 0.13973573352192914, 0.018221384245757106, -0.010751626186584588,
    -0.0032418548953675043, 0.001529157160763692, 0.0004270201507622499, -0.0002993827120715645,
    -3.295153927018533e-05, 4.2161197196387805e-05, -1.327395517676192e-06,
)  # fmt: skip
_TAIL_F64 = (
    0.5107913526210115, 0.34358034220690514, 0.13973604627801475, 0.01822111575345904, -0.010755330944036532,
    -0.0032395925345820673, 0.0015453060141013286, 0.0004186480432791111, -0.0003315365766901461,
    -1.7185831874889752e-05, 7.223418829504806e-05, -1.7073781133818914e-05, -1.084298532996441e-05,
    8.05787586714734e-06, -5.776423611511427e-07, -1.8150355080541665e-06, 1.0305699215291105e-06,
    -1.3754508233185945e-08, -3.262460935296672e-07, 1.7867229479168533e-07, 3.6000845292079935e-08,
    -6.965842943409138e-08, 6.52043461440154e-09, 1.3216325517632649e-08, -1.911173728607894e-09,
    -1.05903331435718e-09,
)  # fmt: skip
"""erfc(x) exp(x^2) / t, where t = 2 / (2 + x), as powers of 2 t - 1: their sums of Chebyshev polynomials."""


def _erfc(x: Scalar) -> Scalar:
    """By exp(-x^2), with what is rounded off x^2; of negative numbers by 2 less that of their size."""
    size = _smaller(_size(x), 28)
    t, square = _over(2, _plus(size, 2)), _times(size, size)
    lost = math.FmaOp(size, size, arith.NegfOp(square)).result
    power = math.ExpOp(arith.NegfOp(square)).result
    tail = _polynomial(_minus(_plus(t, t), 1), _TAIL_F64 if x.type == f64 else _TAIL)
    tail = _times(_times(t, tail), math.FmaOp(arith.NegfOp(power), lost, power).result)
    return _select(_is(x, "olt", 0), _minus(2, tail), tail)


def _clampf(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    return _smaller(_larger(x, low), high)


def _sincos(x: Scalar) -> tuple[Scalar, Scalar]:
    return math.SinOp(x).result, math.CosOp(x).result


def _remf(x: Scalar, y: Scalar) -> Scalar:
    """The rest of x / y, with the sign of x. Each step takes a multiple of y 2^(29 n) off, exactly in f64."""
    start, unit = (_size(arith.ExtFOp(value, f64).result) for value in (x, y))
    rest = start
    for step in reversed(range(10)):
        scaled = _times(unit, 2.0 ** (29 * step))
        rest = math.FmaOp(arith.NegfOp(math.TruncOp(_over(rest, scaled))), scaled, rest).result
    rest = _select(_is(start, "olt", unit), start, rest)
    return _copysign(arith.TruncFOp(rest, f32).result, x)


def _fpowi(x: Scalar, power: Scalar) -> Scalar:
    """By squares for known powers up to 64; else |x| to the power as a float, whose parity may be lost."""
    exponent = constant_value(power)
    if exponent is not None and abs(exponent) <= 64:
        result = x if exponent else number_of(x.type, 1).result
        for bit in f"{abs(exponent):b}"[1:]:
            result = _times(_times(result, result), x) if bit == "1" else _times(result, result)
        return result if exponent >= 0 else _over(1, result)
    size = math.PowFOp(_size(x), arith.SIToFPOp(power, cast("AnyFloat", x.type))).result
    negative = arith.AndIOp(_is(_and(power, 1), "ne", 0), _is_negative(x)).result
    return _select(negative, arith.NegfOp(size).result, size)


_OF_ONE: Mapping[str, Unary] = {
    "math.tan": lambda x: _over(math.SinOp(x).result, math.CosOp(x).result),
    "math.log2": lambda x: _times(math.LogOp(x).result, 1 / log(2)),
    "math.log10": lambda x: _times(math.LogOp(x).result, 1 / log(10)),
    "math.atan": lambda x: _copysign(_angle(_size(x)), x),
    "math.asin": lambda x: _atan2(x, math.SqrtOp(_times(_minus(1, x), _plus(1, x))).result),
    "math.acos": lambda x: _times(_angle(math.SqrtOp(_over(_minus(1, x), _plus(1, x))).result), 2),
}
_NAMED = (
    _log1p, _expm1, _copysign, _round, _sinh, _cosh, _asinh, _acosh, _atanh, _atan2, _cbrt, _fpowi, _erfc, _clampf,
    _sincos,
)  # fmt: skip

OF_FLOATS: Mapping[str, Expansion] = {
    **_OF_ONE,
    **{f"math.{of.__name__.removeprefix('_')}": of for of in _NAMED},
    "arith.remf": _remf,
}
"""Functions of f32 and f64, but for rests, which are of f32; of narrower floats they are computed in f32."""


LOG_2, HALF_PI = (log(2), 2.319046813846299e-17), (pi / 2, 6.123233995736766e-17, -1.4973849048591833e-33)
"""Numbers as sums: what each term leaves out is in the next."""

EXPONENT, BIAS, ROOT_HALF = 52, 1023, 0x3FE6A09E667F3BCD
"""The first bit of the exponent of an f64, and its bias; the bits of the root of 1/2."""

ANGLE_LIMIT = 2.0**50
"""From here on sines are NaN: two numbers tell no more where in its turn an angle is."""


def _rest(x: Scalar, count: Scalar, parts: Sequence[float]) -> Scalar:
    """x less a whole number times a sum."""
    for part in parts:
        x = math.FmaOp(count, number_of(f64, -part), x).result
    return x


def _power(x: Scalar, unit: Sequence[float], of_rest: float = 1.0) -> Scalar:
    """Two to the power of x / unit: a series for what x has beyond whole units, times `of_rest`; and two factors for
    these, because the power of them all may have no exponent."""
    x = _smaller(_larger(x, -1080 * unit[0]), 1080 * unit[0])
    count = math.RoundEvenOp(_times(x, 1 / unit[0])).result
    value = _polynomial(_times(_rest(x, count, unit), of_rest), [1 / factorial(n) for n in range(14)])
    whole = arith.FPToSIOp(count, i64).result
    half = _binary(arith.ShRSIOp, whole, 1)
    for part in (half, arith.SubiOp(whole, half).result):
        bits = _binary(arith.ShLIOp, _binary(arith.AddiOp, part, BIAS), EXPONENT)
        value = _times(value, arith.BitcastOp(bits, f64).result)
    return value


def _log(x: Scalar) -> Scalar:
    """The logarithm of a number between the roots of 1/2 and 2, by a series in f / (2 + f) of what it has beyond 1, and
    that of a power of two (FreeBSD's e_log.c describes how)."""
    tiny = _is(x, "olt", 2.0**-1022)
    bits = arith.BitcastOp(_select(tiny, _times(x, 2.0**54), x), i64).result
    whole = _binary(arith.ShRSIOp, _binary(arith.SubiOp, bits, ROOT_HALF), EXPONENT)
    mantissa = arith.SubiOp(bits, _binary(arith.ShLIOp, whole, EXPONENT))
    f, power = _minus(arith.BitcastOp(mantissa, f64).result, 1), arith.SIToFPOp(whole, f64).result
    power = _select(tiny, _minus(power, 54), power)
    s, half = _over(f, _plus(f, 2)), _times(_times(f, f), 0.5)
    series = _polynomial(_times(s, s), [0.0, *(2 / (2 * n + 1) for n in range(1, 12))])
    low = _plus(_times(power, LOG_2[1]), _times(s, _plus(half, series)))
    value = math.FmaOp(power, number_of(f64, LOG_2[0]), _minus(f, _minus(half, low))).result
    value = _equal(x, inf, x, _equal(x, 0, number_of(f64, -inf).result, value))
    return _select(_is(x, "oge", 0), value, number_of(f64, nan).result)


def _tanh(x: Scalar) -> Scalar:
    size = _smaller(_size(x), 22)
    less = _expm1(_plus(size, size))
    return _copysign(_over(less, _plus(less, 2)), x)


def _erf(x: Scalar) -> Scalar:
    """A series up to 1, and 1 less the rest beyond."""
    size = _size(x)
    series = [2 / sqrt(pi) * (-1) ** n / (factorial(n) * (2 * n + 1)) for n in range(20)]
    near = _times(size, _polynomial(_times(size, size), series))
    return _copysign(_select(_is(size, "ogt", 1), _minus(1, _erfc(size)), near), x)


def _sine(x: Scalar, quarters: int) -> Scalar:
    """sin(x + quarters * pi / 2)."""
    count = math.RoundEvenOp(_times(x, 2 / pi)).result
    rest, whole = _rest(x, count, HALF_PI), _binary(arith.AddiOp, arith.FPToSIOp(count, i64).result, quarters)
    square = _times(rest, rest)
    series = [[(-1) ** n / factorial(2 * n + odd) for n in range(10)] for odd in (0, 1)]
    sine = _equal(x, 0, x, math.FmaOp(rest, _polynomial(square, [0.0, *series[1][1:]]), rest).result)
    value = _select(_is(_and(whole, 1), "ne", 0), _polynomial(square, series[0]), sine)
    value = _select(_is(_and(whole, 2), "ne", 0), arith.NegfOp(value).result, value)
    return _select(_is(_size(x), "olt", ANGLE_LIMIT), value, number_of(f64, nan).result)


def _powf(x: Scalar, y: Scalar, *, flags: arith.FastMathFlagsAttr | None) -> Scalar:
    """x to the power of y, as C has it: of a negative x for whole y, NaN for others; 1 for any x if y is 0. In f64,
    whose own powers are off by |y log(x)| 2^-52. With the flags of an approximate one, in f32, off by |y| 2^-21."""
    size, wide = _size(x), x.type == f64 or flags is not None
    base, by = (each if wide else arith.ExtFOp(each, f64).result for each in (size, y))
    power = math.ExpOp(_times(by, math.LogOp(base, flags).result), flags).result
    power = power if wide else arith.TruncFOp(power, cast("AnyFloat", x.type)).result
    whole, half = _is(math.TruncOp(y).result, "oeq", y), _times(y, 0.5)
    odd = _and(_and(whole, _is(math.TruncOp(half).result, "one", half)), _is_negative(x))
    undefined = _and(_and(_is(x, "olt", 0), _is(size, "one", inf)), _binary(arith.XOrIOp, whole, 1))
    power = _select(undefined, number_of(x.type, nan).result, _select(odd, arith.NegfOp(power).result, power))
    endless = _and(_is(x, "oeq", -1), _is(_size(y), "oeq", inf))
    one = arith.OrIOp(arith.OrIOp(_is(y, "oeq", 0), _is(x, "oeq", 1)), endless).result
    return _select(one, number_of(x.type, 1).result, power)


OF_F64: Mapping[str, Unary] = {
    "math.exp": partial(_power, unit=LOG_2),
    "math.exp2": partial(_power, unit=(1.0,), of_rest=log(2)),
    "math.log": _log,
    "math.erf": _erf,
    "math.tanh": _tanh,
    "math.sin": partial(_sine, quarters=0),
    "math.cos": partial(_sine, quarters=1),
    "math.rsqrt": lambda x: _over(1, math.SqrtOp(x).result),
}
"""Functions of f64 alone, which are replaced last: fusion, and the reference, see what is computed."""

OF_CLASSES: Mapping[str, Unary] = {
    "math.isnan": lambda x: _is(x, "uno", x),
    "math.isinf": lambda x: _is(_size(x), "oeq", inf),
    "math.isfinite": lambda x: _is(_size(x), "olt", inf),
    "math.isnormal": lambda x: _and(
        _is(_size(x), "olt", inf),
        _is(_size(x), "oge", 2.0 ** (-14 if x.type == f16 else -1022 if x.type == f64 else -126)),
    ),
}
"""Whether a float is of a kind."""


def _divided(a: Scalar, b: Scalar, kinds: tuple[type[Binary], type[Binary]], where: str, step: int) -> Scalar:
    """The quotient rounded to zero, moved by `step` where there is a rest whose sign beside that of b is such."""
    quotient, rest = kinds[0](a, b).result, kinds[1](a, b).result
    moves = _and(_is(rest, "ne", 0), _is(arith.XOrIOp(rest, b).result, where, 0))
    return _select(moves, _binary(arith.AddiOp, quotient, step), quotient)


def _doubling(x: Scalar) -> Iterator[int]:
    """1, 2, 4 and so on, below the bits of an integer."""
    return (1 << n for n in range(cast("IntegerType", x.type).bitwidth.bit_length() - 1))


def _ctpop(x: Scalar) -> Scalar:
    """Adds neighbours: bits, then pairs of them, and so on."""
    every = (1 << cast("IntegerType", x.type).bitwidth) - 1
    for shift in _doubling(x):
        mask = every // ((1 << shift) + 1)
        x = arith.AddiOp(_and(x, mask), _and(_right(x, shift), mask)).result
    return x


def _ctlz(x: Scalar) -> Scalar:
    for shift in _doubling(x):
        x = arith.OrIOp(x, _right(x, shift)).result
    return _ctpop(_binary(arith.XOrIOp, x, -1))


def _ipowi(x: Scalar, power: Scalar) -> Scalar:
    """By squares, for each bit of the power. With a negative one, it is 0 but for 1 and -1."""
    result, square, none = number_of(x.type, 1).result, x, number_of(x.type).result
    for n in range(cast("IntegerType", x.type).bitwidth - 1):
        result = _select(_is(_and(power, 1 << n), "ne", 0), arith.MuliOp(result, square).result, result)
        square = arith.MuliOp(square, square).result
    return _select(_and(_is(power, "slt", 0), _is(_binary(arith.AddiOp, x, 1), "ugt", 2)), none, result)


def _addui_extended(a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
    total = arith.AddiOp(a, b).result
    return total, _is(total, "ult", a)


def _upper_half(a: Scalar, b: Scalar, signed: bool) -> Scalar:
    """The upper half of a product of two i64, by products of their halves."""
    (a0, a1), (b0, b1) = ((_and(x, 2**32 - 1), _right(x, 32)) for x in (a, b))
    middle = arith.AddiOp(_times_i(a1, b0), _right(_times_i(a0, b0), 32)).result
    cross = arith.AddiOp(_times_i(a0, b1), _and(middle, 2**32 - 1)).result
    upper = arith.AddiOp(_times_i(a1, b1), arith.AddiOp(_right(middle, 32), _right(cross, 32))).result
    for x, y in ((a, b), (b, a)) if signed else ():
        upper = arith.SubiOp(upper, _and(_binary(arith.ShRSIOp, x, 63), y)).result
    return upper


def _extended_product(a: Scalar, b: Scalar, extend: type[arith.ExtSIOp | arith.ExtUIOp]) -> tuple[Scalar, Scalar]:
    """The lower and the upper half of a product."""
    if a.type == i64:
        return _times_i(a, b), _upper_half(a, b, extend is arith.ExtSIOp)
    product, kind = arith.MuliOp(extend(a, i64), extend(b, i64)).result, cast("IntegerType", a.type)
    return arith.TruncIOp(product, kind).result, arith.TruncIOp(_right(product, kind.bitwidth), kind).result


SIGNED, UNSIGNED = (arith.DivSIOp, arith.RemSIOp), (arith.DivUIOp, arith.RemUIOp)

_OF_INTEGER: Mapping[str, Unary] = {
    "math.absi": lambda x: arith.MaxSIOp(x, _binary(arith.SubiOp, 0, x)).result,
    "math.ctpop": _ctpop,
    "math.ctlz": _ctlz,
    "math.cttz": lambda x: _ctpop(_and(_binary(arith.XOrIOp, x, -1), _binary(arith.AddiOp, x, -1))),
}

OF_INTEGERS: Mapping[str, Expansion] = {
    **_OF_INTEGER,
    "math.ipowi": _ipowi,
    "arith.mulsi_extended": partial(_extended_product, extend=arith.ExtSIOp),
    "arith.mului_extended": partial(_extended_product, extend=arith.ExtUIOp),
    "arith.addui_extended": _addui_extended,
    "arith.floordivsi": partial(_divided, kinds=SIGNED, where="slt", step=-1),
    "arith.ceildivsi": partial(_divided, kinds=SIGNED, where="sge", step=1),
    "arith.ceildivui": partial(_divided, kinds=UNSIGNED, where="uge", step=1),
}
"""Functions of integers. Those of indices stay, and those that the host computes."""

EXPANDED = (*OF_FLOATS, *OF_CLASSES, *OF_INTEGERS)
"""The names of all functions that become others, beside those of f64 alone."""
LAST = {*EXPANDED, *OF_F64, math.PowFOp.name}
"""Those that no kernel may have left, of `OF_F64` if they are of f64."""


@dataclass(frozen=True)
class ExpandFunction(RewritePattern):
    """Replaces functions that no instruction computes by others, but for those that are `kept` by name; those of f64
    alone only where it is the `last` to."""

    last: bool = False
    kept: Collection[str] = ()

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        kind, hosted = op.operands[0].type if op.operands else None, isinstance(op.parent_op(), FuncOp)
        tables: tuple[Mapping[str, Expansion], ...] = ()
        if isinstance(kind, AnyFloat):
            tables = OF_CLASSES, OF_FLOATS, OF_F64 if self.last and kind == f64 else {}
            if self.last and isinstance(op, math.PowFOp):
                tables = ({op.name: partial(_powf, flags=op.fastmath if is_approximate(op) else None)},)
        elif isinstance(kind, IntegerType) and not hosted:
            tables = (OF_INTEGERS,)
        function = next((table[op.name] for table in tables if op.name in table), None)
        if function is None or kind is None or op.name in self.kept:
            return
        if kind == f64 and op.name == "arith.remf":
            fail(op, f"{op.name} of {kind} is not lowered; of 32 bits and fewer it is")
        narrow = kind if isinstance(kind, AnyFloat) and kind.bitwidth < 32 and op.name not in OF_CLASSES else None
        with ImplicitBuilder(Builder(InsertPoint.before(op))):
            made = function(*(arith.ExtFOp(v, f32).result if v.type == narrow else v for v in op.operands))
            results = made if isinstance(made, tuple) else (made,)
            rewriter.replace(op, [], [arith.TruncFOp(r, narrow).result if narrow else r for r in results])
