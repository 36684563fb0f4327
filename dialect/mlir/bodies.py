"""Bodies of operations of `linalg`: those of products, written and recognised, and conversions in any."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, IntegerType
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.dialects.math import FmaOp
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

# The body of a product: `c + extend(a) * extend(b)`, written and recognised.

EXTENSIONS = (arith.ExtFOp, arith.ExtSIOp, arith.ExtUIOp)
CONVERSIONS = (arith.SIToFPOp, arith.UIToFPOp)


class Factor(NamedTuple):
    """One factor of a product: which argument of the body, and whether it is extended with zeros."""

    argument: int
    unsigned: bool = False


def product_body(types: Sequence[Attribute], *, unsigned: bool = False) -> Region:
    """`yield c + convert(a) * convert(b)` of elements a, b and c of these types; with two more behind a and b, their
    zero points, `yield c + (convert(a) - convert(x)) * (convert(b) - convert(y))`."""
    block = Block(arg_types=types)
    *given, c = block.args
    with ImplicitBuilder(block):
        a, b, *zeros = (converted(value, c.type, unsigned=unsigned) for value in given)
        if zeros:
            a, b = arithmetic("sub", a, zeros[0]), arithmetic("sub", b, zeros[1])
        YieldOp(arithmetic("add", c, arithmetic("mul", a, b)))
    return Region(block)


ARITHMETIC = {
    "add": (arith.AddfOp, arith.AddiOp),
    "sub": (arith.SubfOp, arith.SubiOp),
    "mul": (arith.MulfOp, arith.MuliOp),
}
"""Operations on two floats, and on two integers."""


def arithmetic(name: str, a: SSAValue, b: SSAValue) -> SSAValue:
    """A sum, difference or product, as floats or as integers, where an `ImplicitBuilder` stands."""
    of_floats, of_integers = ARITHMETIC[name]
    return (of_floats if isinstance(a.type, AnyFloat) else of_integers)(a, b).result


def converted(value: SSAValue, kind: Attribute, *, unsigned: bool = False) -> SSAValue:
    """A value converted to another type, where an `ImplicitBuilder` stands; integers may be `unsigned`."""
    source = value.type
    if source == kind:
        return value
    if isinstance(source, IntegerType):
        to_float, to_integer = (arith.UIToFPOp, arith.ExtUIOp) if unsigned else (arith.SIToFPOp, arith.ExtSIOp)
        cast = to_float if isinstance(kind, AnyFloat) else to_integer
    else:
        bits = [each.bitwidth for each in (source, kind) if isinstance(each, AnyFloat)]
        cast = arith.TruncFOp if bits[1:] and bits[1] < bits[0] else arith.ExtFOp
    return cast.build(operands=[value], result_types=[kind]).results[0]


def contracted(op: Operation) -> SSAValue | None:
    """The value that an extension may take in place of its truncation, unrounded: both say `fastmath<contract>`, and
    the value has the extension's type, as in MLIR's own folding. None where a rounding is kept."""
    if not isinstance(op, arith.ExtFOp) or not isinstance(truncated := op.input.owner, arith.TruncFOp):
        return None
    both = _may_contract(op) and _may_contract(truncated)
    return truncated.input if both and truncated.input.type == op.result.type else None


def _may_contract(op: Operation) -> bool:
    flags = op.properties.get("fastmath")
    return isinstance(flags, arith.FastMathFlagsAttr) and FastMathFlag.ALLOW_CONTRACT in flags.data


class Weighted(NamedTuple):
    """The body `c + w * extend(a) * extend(b)`: its factors, in the order in which they are multiplied, and its weight.

    The weight is the product of `weights`, numbers from outside of the body or constants in it, and -1 if `negated`.
    With `converted`, both factors are integers that are converted to c's type.
    """

    factors: tuple[Factor, Factor]
    weights: tuple[SSAValue, ...] = ()
    negated: bool = False
    converted: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is `c + extend(a) * extend(b)`."""
        return not (self.weights or self.negated or self.converted)


def factors(block: Block, zeros: Collection[int] = ()) -> tuple[Factor, Factor] | None:
    """The factors of a body that adds the product of two of its arguments to the last one, in the order in which they
    are multiplied; None for any other body. Of its arguments, `zeros` are 0."""
    found = weighted(block, zeros)
    return found.factors if found is not None and found.is_plain else None


def weighted(block: Block, zeros: Collection[int] = ()) -> Weighted | None:
    """The product that a body adds to its last argument, or subtracts from it; None for any other body. Of its
    arguments, `zeros` are 0."""
    end = block.last_op
    if not isinstance(end, YieldOp) or len(end.operands) != 1 or not block.args:
        return None
    total, held = end.operands[0].owner, block.args[-1]
    match total:
        case arith.AddfOp() | arith.AddiOp() if held in (total.lhs, total.rhs):
            return _product([total.rhs if total.lhs is held else total.lhs], block, zeros)
        case arith.SubfOp() | arith.SubiOp() if total.lhs is held:
            return _product([total.rhs], block, zeros, negated=True)
        case FmaOp() if total.c is held:
            return _product([total.a, total.b], block, zeros)
        case _:
            return None


def _product(
    values: Sequence[SSAValue], block: Block, zeros: Collection[int], *, negated: bool = False
) -> Weighted | None:
    """The product of values, each of which may be one of others."""
    operands: list[tuple[Factor, bool]] = []
    weights: list[SSAValue] = []
    rest = list(values)
    while rest:
        value = rest.pop(0)
        owner = value.owner
        if isinstance(owner, arith.MulfOp | arith.MuliOp):
            rest = [owner.lhs, owner.rhs, *rest]
        elif isinstance(owner, arith.NegfOp):
            negated, rest = not negated, [owner.operand, *rest]
        elif (factor := _factor(value, block, zeros)) is not None:
            operands.append(factor)
        elif _is_weight(value, block):
            weights.append(value)
        else:
            return None
    if len(operands) != 2 or any(factor.argument == len(block.args) - 1 for factor, _ in operands):
        return None
    (a, first), (b, second) = operands
    return Weighted((a, b), tuple(weights), negated, first and second)


def _is_weight(value: SSAValue, block: Block) -> bool:
    """Whether a value is the same for every element: a constant, or a number from outside of the body."""
    owner = value.owner
    outside = owner is not block and not (isinstance(owner, Operation) and owner.parent is block)
    return isinstance(owner, arith.ConstantOp) or outside


def _factor(value: SSAValue, block: Block, zeros: Collection[int] = ()) -> tuple[Factor, bool] | None:
    """The argument behind a factor, and whether it is an integer that is converted to a float; integers may be extended
    in one way only, for another has another meaning."""
    kinds: set[type] = set()
    converted = isinstance(value.owner, CONVERSIONS)
    if isinstance(cast := value.owner, CONVERSIONS):
        kinds |= {arith.ExtUIOp if isinstance(cast, arith.UIToFPOp) else arith.ExtSIOp}
        value = cast.input
    if isinstance(shifted := value.owner, arith.SubiOp):
        zero = _factor(shifted.rhs, block)
        value = shifted.lhs if zero is not None and zero[0].argument in zeros else value
    while isinstance(owner := value.owner, EXTENSIONS):
        kinds.add(type(owner))
        value = owner.input
    if not isinstance(value, BlockArgument) or value.owner is not block or len(kinds) > 1:
        return None
    return Factor(value.index, arith.ExtUIOp in kinds), converted
