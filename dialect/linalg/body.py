"""The body of a product: `c + extend(a) * extend(b)`, written and recognised."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, IntegerType
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.ir import Attribute, Block, BlockArgument, SSAValue
from xdsl.utils.hints import isa

EXTENSIONS = (arith.ExtFOp, arith.ExtSIOp, arith.ExtUIOp)


@dataclass(frozen=True)
class Factor:
    """One factor of a product: which argument of the body, and whether it is extended with zeros."""

    argument: int
    unsigned: bool = False


def fill(block: Block, *, unsigned: bool) -> None:
    """Appends `yield c + extend(a) * extend(b)` to a block of the three elements a, b and c."""
    a, b, c = block.args
    x, y = (extended(block, factor, c.type, unsigned=unsigned) for factor in (a, b))
    floats = isinstance(c.type, AnyFloat)
    product = arith.MulfOp(x, y) if floats else arith.MuliOp(x, y)
    total = arith.AddfOp(c, product.result) if floats else arith.AddiOp(c, product.result)
    block.add_ops([product, total, YieldOp(total.result)])


def extended(block: Block, value: SSAValue, target: Attribute, *, unsigned: bool) -> SSAValue:
    """`value`, or its extension to `target` appended to the block."""
    if value.type == target:
        return value
    extend = arith.ExtFOp
    if isa(target, IntegerType):
        extend = arith.ExtUIOp if unsigned else arith.ExtSIOp
    cast = extend.build(operands=[value], result_types=[target])
    block.add_op(cast)
    return cast.results[0]


def factors(block: Block, zeros: Collection[int] = ()) -> tuple[Factor, Factor] | None:
    """The factors of a body that adds the product of two of its arguments to the last one, in the order in which they
    are multiplied; None for any other body. Of its arguments, `zeros` are 0."""
    end = block.last_op
    if not isinstance(end, YieldOp) or len(end.operands) != 1 or not block.args:
        return None
    total = end.operands[0].owner
    if not isinstance(total, arith.AddfOp | arith.AddiOp):
        return None
    for held, added in ((total.lhs, total.rhs), (total.rhs, total.lhs)):
        product = added.owner
        if held is block.args[-1] and isinstance(product, arith.MulfOp | arith.MuliOp):
            a, b = _factor(product.lhs, zeros), _factor(product.rhs, zeros)
            if a is not None and b is not None and len(block.args) - 1 not in (a.argument, b.argument):
                return a, b
    return None


def _factor(value: SSAValue, zeros: Collection[int] = ()) -> Factor | None:
    """The argument behind a factor; integers may be extended in one way only, for another has another meaning."""
    kinds: set[type] = set()
    if isinstance(shifted := value.owner, arith.SubiOp):
        zero = _factor(shifted.rhs)
        value = shifted.lhs if zero is not None and zero.argument in zeros else value
    while isinstance(owner := value.owner, EXTENSIONS):
        kinds.add(type(owner))
        value = owner.input
    if not isinstance(value, BlockArgument) or len(kinds) > 1:
        return None
    return Factor(value.index, arith.ExtUIOp in kinds)
