"""`warp-raise-gelu`: what a gelu is written as, by `tanh` or by `erf`, becomes one `warp.gelu`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects import arith
from xdsl.dialects import math as math_dialect
from xdsl.dialects.builtin import f32
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from ...dialect.isa.row import Target
from ...dialect.warp.attributes import schedule_around, target_of
from ...dialect.warp.elements import GeluOp, is_approximate
from ...dialect.warp.rows import MapOp
from ..linalg.product import Product
from ..patterns import PatternPass, erase_unused, float_value, rewrite_pattern
from ..schedule.needs import functions

# x (1 + tanh(u)) / 2 is x / (1 + 2^t) with t = -2 u log2(e): no sum cancels, and half as many instructions compute it.
# Likewise x (1 + erf(x / sqrt(2))) / 2. Factors may stand in any order. That is done where the result of the region
# has at most 16 bits, on targets whose approximate instructions have known bits (`docs/epilogues.md` has the errors).

MEASURED_TARGETS = (90,)
"""The targets of which the bits of `ex2.approx` and `rcp.approx` are known (`docs/arithmetic.md`)."""

MAX_BITS = 16
"""Bits of the widest results."""

NEAR = 1e-6
"""How far the constants of a gelu may be from what they stand for, relative to it."""

WINDOW = 64
"""Columns of D, from a multiple of them in a tile, beyond which no element depends on another of its row: those of the
widest panel. Elements of a row share a reciprocal, so their last bits depend on which they are."""

WRITTEN_BY = (math_dialect.TanhOp, math_dialect.ErfOp)
"""The functions that gelus are written by."""

INNER, CUBIC = math.sqrt(2 / math.pi), 0.044715
"""The constants of a gelu by tanh."""


def _factors(value: SSAValue) -> list[SSAValue]:
    """The factors of a value, in any order."""
    op = value.owner
    return [*_factors(op.lhs), *_factors(op.rhs)] if isinstance(op, arith.MulfOp) else [value]


def _terms(value: SSAValue) -> list[list[SSAValue]]:
    """The two terms of a sum, each as its factors; an empty list for anything else."""
    op = value.owner
    if isinstance(op, arith.AddfOp):
        return [_factors(op.lhs), _factors(op.rhs)]
    return [[*_factors(op.a), *_factors(op.b)], _factors(op.c)] if isinstance(op, math_dialect.FmaOp) else []


def _split(factors: Sequence[SSAValue]) -> tuple[float, list[SSAValue]]:
    """The product of the constants among factors, and the others."""
    numbers = [float_value(value) for value in factors]
    others = [value for value, number in zip(factors, numbers, strict=True) if number is None]
    return math.prod(number for number in numbers if number is not None), others


def _is(number: float, wanted: float) -> bool:
    return abs(number - wanted) <= NEAR * wanted


def plus_one(value: SSAValue, *kinds: type[Operation]) -> Operation | None:
    """For a value f + 1, the operation f if it is one of `kinds`; None otherwise."""
    op = value.owner
    if not isinstance(op, arith.AddfOp):
        return None
    for one, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        function = other.owner
        if float_value(one) == 1.0 and isinstance(function, kinds):
            return function
    return None


def _is_argument(function: Operation, x: SSAValue) -> bool:
    """Whether a function's argument is that of a gelu of x."""
    scale, others = _split(_factors(function.operands[0]))
    if isinstance(function, math_dialect.ErfOp):
        return _is(scale, math.sqrt(0.5)) and others == [x]
    terms = [_split(term) for term in _terms(others[0])] if len(others) == 1 else []
    linear = [term for term in terms if term[0] == 1.0 and term[1] == [x]]
    cubic = [term for term in terms if _is(term[0], CUBIC) and term[1] == [x] * 3]
    return _is(scale, INNER) and len(linear) == len(cubic) == 1


def gelu_of(value: SSAValue) -> GeluOp | None:
    """The gelu that a value is; None if it is none."""
    scale, others = _split(_factors(value))
    sums = [(other, function) for other in others if (function := plus_one(other, *WRITTEN_BY)) is not None]
    if not isinstance(value.owner, arith.MulfOp) or scale != 0.5 or len(others) != 2 or len(sums) != 1:
        return None
    (total, function), (x,) = sums[0], [other for other in others if other is not sums[0][0]] or [sums[0][0]]
    if x is total or x.type != f32 or not _is_argument(function, x):
        return None
    return GeluOp(
        "tanh" if isinstance(function, math_dialect.TanhOp) else "erf", x, approximate=is_approximate(function)
    )


def gelu_gradient_of(value: SSAValue) -> GeluOp | None:
    """The derivative of a gelu by erf that a value is, the sum of the distribution function and x times the density;
    None if it is none."""
    terms = [_split(term) for term in _terms(value)]
    for first, second in (terms, terms[::-1]) if terms else ():
        function = plus_one(first[1][0], math_dialect.ErfOp) if len(first[1]) == 1 else None
        powers = [power for one in second[1] if isinstance(power := one.owner, math_dialect.ExpOp)]
        if function is None or len(powers) != 1 or len(second[1]) != 2:
            continue
        (x,) = [one for one in second[1] if one.owner is not powers[0]]
        exponent = _split(_factors(powers[0].operands[0]))
        is_erf = first[0] == 0.5 and _is(second[0], 1 / math.sqrt(2 * math.pi)) and exponent == (-0.5, [x, x])
        if is_erf and x.type == f32 and _is_argument(function, x):
            return GeluOp("erf_gradient", x)
    return None


def silu_of(value: SSAValue) -> GeluOp | None:
    """The silu that a value is: x / (1 + exp(-x)), or x times the reciprocal; None if it is none."""
    op = value.owner
    pairs: list[tuple[SSAValue, SSAValue]] = []
    if isinstance(op, arith.DivfOp):
        pairs.append((op.lhs, op.rhs))
    elif isinstance(op, arith.MulfOp):
        for x, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            if isinstance(inverse := other.owner, arith.DivfOp) and float_value(inverse.lhs) == 1.0:
                pairs.append((x, inverse.rhs))
    for x, below in pairs:
        function = plus_one(below, math_dialect.ExpOp)
        if x.type == f32 and function is not None and _negated(function.operands[0]) == x:
            return GeluOp("silu", x)
    return None


def _negated(value: SSAValue) -> SSAValue | None:
    """What a value is the negative of."""
    op = value.owner
    if isinstance(op, arith.NegfOp):
        return op.operand
    if isinstance(op, arith.SubfOp) and float_value(op.lhs) == 0.0:
        return op.rhs
    scale, others = _split(_factors(value))
    return others[0] if scale == -1.0 and len(others) == 1 else None


def depends_on_neighbours(product: Product, target: Target | None) -> bool:
    """Whether the words of an element of D may depend on the elements of its row within a `WINDOW`."""
    raised = product.d.element.bits <= MAX_BITS and target is not None and target.sm in MEASURED_TARGETS
    epilogue = product.op.epilogue
    silu = epilogue is not None and any(silu_of(value) for op in epilogue.body.block.ops for value in op.results)
    return raised and (silu or not functions(product).isdisjoint({"math.tanh", "math.erf"}))


@rewrite_pattern
def raise_gelu(op: MapOp, rewriter: PatternRewriter) -> None:
    """Replaces the expression of a gelu in a `warp.map` of narrow results by `warp.gelu`, and erases operations that
    become unused."""
    target = target_of(op)
    if op.fragment.type.bits > MAX_BITS or target is None or target.sm not in MEASURED_TARGETS:
        return
    schedule = schedule_around(op)
    if schedule is not None and schedule.batch_invariant == "True":
        return  # elements that share a reciprocal are those of a tile, which is chosen by M too
    for one in list(op.body.block.ops):
        function = gelu_of(one.results[0]) if isinstance(one, arith.MulfOp) else None
        if schedule is not None and isinstance(one, arith.MulfOp | arith.DivfOp):
            function = function or silu_of(one.results[0])  # whose error is small beside that of sums
        if isinstance(one, arith.AddfOp | math_dialect.FmaOp):
            function = gelu_gradient_of(one.results[0])
        if function is not None:
            rewriter.replace(one, function)
            erase_unused(reversed(list(op.body.block.ops)))


class RaiseGeluPass(PatternPass):
    """Replaces the operations of a gelu, and those of a silu after a product, by one `warp.gelu` if the result has at
    most 16 bits (sm_90)."""

    name = "warp-raise-gelu"
    needs: ClassVar = ("math.tanh", "math.erf", "math.exp")
    patterns = (raise_gelu,)
