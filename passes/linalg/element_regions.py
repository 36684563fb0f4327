"""Expressions of elements as the operations of a region, in f32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from xdsl.dialects import arith
from xdsl.dialects.builtin import BFloat16Type, Float16Type, FloatAttr, IndexType, IntegerAttr, IntegerType, f32, i32
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.utils.hints import isa

from ...dialect.warp.elements import YieldOp
from ...dialect.warp.elementwise import Kind
from ...dialect.warp.indices import IndexOp
from ...dialect.warp.loops import map_along
from ...dialect.warp.row_wise import AcrossOp
from .element_expressions import ROUNDED, ElementExpression, Name, Subscripts


class NotFusedError(Exception):
    """Why something is not fused."""


def decline(reason: str) -> NoReturn:
    """Leaves operations as they are; with no reason, because they do not look like what is fused at all."""
    raise NotFusedError(reason)


def map_of(place: Subscripts, order: Mapping[Name, int]) -> AffineMap:
    """The map of memory that is read, or written, at a place, where loops have this order."""
    if any(name not in order for name in place):
        decline("an operand is read at one place along a dimension")
    return map_along(len(order), (order[name] for name in place))


def region_of(
    element: ElementExpression,
    given: Mapping[ElementExpression, Attribute],
    *,
    stored: Attribute = f32,
    indices: Mapping[Name, int] | None = None,
    across: bool = False,
) -> Region:
    """The region that takes elements of types, of the leaves in `given`, and yields one that is stored as a type.

    It may use the indices of loops with a number in `indices`.
    """
    block = Block(arg_types=given.values())
    builder = ElementBuilder(block, {}, across)
    for leaf, argument in zip(given, block.args, strict=True):
        builder.known[leaf] = builder.widened(argument)
    for leaf in element.leaves("index"):
        if indices is not None and leaf.name in indices:
            block.add_op(index := IndexOp(indices[leaf.name]))
            builder.known[leaf] = index.result
    block.add_op(YieldOp(builder.narrowed(builder.built(element), stored)))
    return Region(block)


class ElementBuilder(NamedTuple):
    """Builds expressions in a block, in which some are `known`; `across` says whether rows may be taken together."""

    block: Block
    known: dict[ElementExpression, SSAValue]
    across: bool = False

    def widened(self, argument: SSAValue) -> SSAValue:
        """An element of 16 bits in f32."""
        if argument.type == f32 or isa(argument.type, IntegerType):
            return argument
        self.block.add_op(op := arith.ExtFOp(argument, f32))
        return op.result

    def narrowed(self, value: SSAValue, kind: Attribute) -> SSAValue:
        """A value in f32 as an element of memory."""
        if kind == value.type:
            return value
        if isinstance(value.owner, arith.ExtFOp) and value.owner.input.type == kind:
            return value.owner.input
        if not isinstance(kind, Float16Type | BFloat16Type):
            decline(f"it is stored as {kind}")
        self.block.add_op(op := arith.TruncFOp(value, kind))
        return op.result

    def built(self, expression: ElementExpression) -> SSAValue:
        """The value of an expression.

        Raises:
            NotFusedError: for one of something that is not known.
        """
        if expression not in self.known:
            self.known[expression] = self._built(expression)
        return self.known[expression]

    def _built(self, expression: ElementExpression) -> SSAValue:
        if expression.kind == "reduce" and self.across:
            self.block.add_op(taken := AcrossOp(Kind(str(expression.name)), self.built(expression.operands[0])))
            return taken.result
        if expression.is_op(ROUNDED) and expression.type is not None:
            narrow = arith.TruncFOp(self.built(expression.operands[0]), expression.type)
            self.block.add_op(narrow)
            return self.widened(narrow.result)
        op = expression.op
        if op is None:
            decline(f"it depends on a {expression.kind} from outside")
        if expression.is_op("arith.index_cast"):
            return self.built(expression.operands[0])
        operands = [self.built(operand) for operand in expression.operands]
        properties = dict(op.properties)
        if isinstance(op, arith.ConstantOp):
            properties["value"] = _number_of(op, expression.number)
        types = [_computed_as(result.type) for result in op.results]
        made = type(op).create(operands=operands, result_types=types, properties=properties)
        self.block.add_op(made)
        return made.results[0]


def _computed_as(kind: Attribute) -> Attribute:
    """The type that an expression computes with: f32, i32, and integers that are narrower."""
    if isinstance(kind, IndexType) or kind == IntegerType(64):
        return i32
    return kind if isa(kind, IntegerType) else f32


def _number_of(op: arith.ConstantOp, number: float | None) -> FloatAttr | IntegerAttr:
    value = op.value
    if isinstance(value, FloatAttr) and number is not None:
        return FloatAttr(number, f32)
    if isinstance(value, IntegerAttr):
        kind = _computed_as(value.type)
        return IntegerAttr(value.value.data, kind if isa(kind, IntegerType) else i32)
    decline("it depends on a constant of several values")
