"""`warp.gelu` of several elements, whose reciprocals come from one.

gelu(x) = x / (1 + 2^t), where t is an odd polynomial of x: for a gelu by tanh it is exact, t = -2 log2(e) u, for one by
erf it is a fit to the logarithm of the distribution function's odds. A special function takes as long as eight other
instructions (16 results a cycle of an SM), so up to four elements share a reciprocal: with a = 1 + 2^t of each,
1 / a = b / (a b). For that x is bounded where t is computed, so that no product overflows, and NaN stays with itself.

Absolute errors, |x| times:         by tanh 5e-10, where |x| > 5.6; by erf 5e-7
Relative errors beside these:       2e-6
(test/unit/test_gelu.py)

With `fastmath<afn>` a gelu is x (1 + T) / 2, T being `tanh.approx` of a cubic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .f32_functions import Instructions, Operand
from .operands import VirtualRegister, single

TOGETHER = 4
"""Elements that share a reciprocal."""


class Odds(NamedTuple):
    """The logarithm to the base 2 of the odds against, as x times a polynomial of x^2, for x up to a limit: there it is
    at most 31, so that four of them can be multiplied."""

    limit: float
    coefficients: tuple[float, ...]


ODDS: Mapping[str, Odds] = {
    # -2 log2(e) sqrt(2 / pi) (x + 0.044715 x^3)
    "tanh": Odds(5.6, (-2.302208198144325, -0.1029432395800235)),
    # Least absolute error of the distribution function, 4e-7.
    "erf": Odds(5.0, (-2.3021963779409296, -0.10488829835093903, 0.00014786620270489505, 0.0001392513172821161,
                      -8.166017171640311e-06, 1.5933034360325206e-07)),
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
    """The gelus of up to `TOGETHER` elements."""
    exponentials = [_exponential(i, x, ODDS[by]) for x in elements]
    pairs = [_denominator(i, exponentials[n : n + 2]) for n in range(0, len(exponentials), 2)]
    shares = [
        share for pair, inverse in zip(pairs, _inverses(i, pairs), strict=True) for share in _shares(i, pair, inverse)
    ]
    return [i.mul(x, share) for x, share in zip(elements, shares, strict=True)]


def _exponential(i: Instructions, x: Operand, odds: Odds) -> VirtualRegister:
    """2^t, at most 2^31; of NaN too."""
    bounded = i("min.xorsign.abs.f32", x, single(odds.limit))
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
    """1 / (1 + e) of each, which is at most 1."""
    if len(pair.exponentials) == 1:
        return [inverse]
    return [i.mul(inverse, pair.last), i.fma(pair.exponentials[0], inverse, inverse)]
