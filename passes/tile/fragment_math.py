"""Arithmetic on fragments from operations on one element, and `warp-raise-gelu`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith
from xdsl.dialects import math as math_dialect
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, f32, f64, i32
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, TypeAttribute
from xdsl.pattern_rewriter import PatternRewriter

from ...dialect.isa.row import Target
from ...dialect.layouts.layout import column
from ...dialect.warp.attributes import FragmentType, fragment_of, schedule_around, target_of
from ...dialect.warp.elements import GeluOp, IndexOp, YieldOp, is_approximate
from ...dialect.warp.rows import MapOp
from ..linalg.product import Product
from ..patterns import Index, IndexBuilder, PatternPass, erase_unused, float_value, rewrite_pattern
from ..schedule.needs import functions

ElementFunction: TypeAlias = Callable[[Sequence[SSAValue]], SSAValue]
"""Takes an element of each input and makes one of the result."""

APPROXIMATE = FastMathFlagsAttr([FastMathFlag.APPROX_FUNC])


def mapped(index: IndexBuilder, compute: ElementFunction, *inputs: SSAValue) -> SSAValue:
    """A fragment like the first input, made element by element; other inputs may be columns."""
    return mapped_to(index, fragment_of(inputs[0]), compute, *inputs)


def mapped_to(index: IndexBuilder, kind: FragmentType, compute: ElementFunction, *inputs: SSAValue) -> SSAValue:
    """A fragment of a type, made element by element."""
    block = Block(arg_types=[fragment_of(value).element_type for value in inputs])
    with ImplicitBuilder(block):
        YieldOp(compute(block.args))
    return index.insert(MapOp(inputs, kind, Region(block))).fragment


def times(index: IndexBuilder, fragment: SSAValue, column: SSAValue) -> SSAValue:
    """Each row of a fragment times the element of a column."""
    return mapped(index, lambda x: arith.MulfOp(x[0], x[1]).result, fragment, column)


def multiply_add(index: IndexBuilder, fragment: SSAValue, column: SSAValue, added: SSAValue) -> SSAValue:
    """Each row of a fragment times the element of a column, plus another fragment, rounded once."""
    return mapped(index, lambda x: fma(x[0], x[1], x[2]), fragment, column, added)


def number(value: float, kind: Attribute = f32) -> SSAValue:
    """A constant of f32 or f64, in a region on elements."""
    return arith.ConstantOp(FloatAttr(value, f64 if kind == f64 else f32)).result


def integer(value: int) -> SSAValue:
    """A constant of i32, in a region on elements."""
    return arith.ConstantOp(IntegerAttr(value, i32)).result


def fma(a: SSAValue, b: SSAValue, c: SSAValue) -> SSAValue:
    """a * b + c of elements, rounded once."""
    return math_dialect.FmaOp(a, b, c).result


def power(exponent: SSAValue) -> SSAValue:
    """2 to the power of an element, by `ex2.approx.ftz` (relative error 2^-22, PTX ISA 9.7.3.21)."""
    return math_dialect.Exp2Op(exponent, APPROXIMATE).result


def below(column: SSAValue, end: SSAValue, element: SSAValue, otherwise: float, how: str = "slt") -> SSAValue:
    """The element if its column is before `end`, `otherwise` if not."""
    return arith.SelectOp(arith.CmpiOp(column, end, how), element, number(otherwise, element.type)).result


def one_below(bound: int, kind: TypeAttribute, x: Sequence[SSAValue]) -> SSAValue:
    """1 as a float of at most 16 bits for integers from 0 to below a bound, 0 for others."""
    inside = arith.CmpiOp(x[0], integer(bound), "ult")
    return arith.TruncFOp(arith.SelectOp(inside, number(1.0), number(0.0)).result, kind).result


def of_same_document(x: Sequence[SSAValue]) -> SSAValue:
    """A score, or minus infinity where the numbers of the query and of the key differ."""
    return arith.SelectOp(arith.CmpiOp(x[1], x[2], "eq"), x[0], number(-math.inf)).result


def until(
    index: IndexBuilder, fragment: SSAValue, start: Index, otherwise: float, together: int = 1, inside: int = 0,
    *, length: int = 0,
) -> SSAValue:  # fmt: skip
    """A fragment with `otherwise` beyond the end of rows. Columns count from `start`; negative ones are before the
    end. Those that are neighbours in a lane are so together, if `together` divides their number, and the first
    `inside` in any case. With a `length`, they count from the row, and those before it are beyond it too."""
    kind, held = fragment_of(fragment), fragment_of(fragment).layout.data.element
    bits = next((i for i, bit in enumerate(held) if bit != column(i)), len(held))
    own = IndexOp(1, index.value(start), kind, step=math.gcd(1 << bits, together), below=inside)
    columns, how = index.insert(own).result, "ult" if length else "slt"
    return mapped(index, lambda x: below(x[1], integer(length), x[0], otherwise, how), fragment, columns)


# `warp-raise-gelu`: what a gelu is written as, by `tanh` or by `erf`, becomes one `warp.gelu`.
#
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
