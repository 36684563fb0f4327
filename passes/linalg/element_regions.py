"""Expressions of elements as the operations of a region, in f32, or in f64 where they are written so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float16Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    f32,
    f64,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import FIXED
from ...dialect.warp.convert import ReduceOp
from ...dialect.warp.elements import IndexOp as ElementIndexOp
from ...dialect.warp.elements import PointwiseOp, element_type, shape_of
from ...dialect.warp.elements import YieldOp as ElementYieldOp
from ...dialect.warp.fragments import Kind
from ..patterns import constant_value
from .element_expressions import ROUNDED, ElementExpression, Name, Subscripts, map_of
from .elementwise import CASTS, fits, is_long
from .memory_uses import decline
from .operand import groups_of

ReshapedView = memref.CollapseShapeOp | memref.ExpandShapeOp


def place_in(value: SSAValue, at: Subscripts, other: SSAValue) -> Subscripts | None:
    """The indices of an element of memory, or of a reshaped view of it, in another such view; None if no loops express
    them."""
    place: Subscripts | None = at
    while place is not None and isinstance(view := value.owner, ReshapedView):
        value, place = view.operands[0], _through(view, place, to_source=True)
    views = list[ReshapedView]()
    while isinstance(view := other.owner, ReshapedView):
        views.append(view)
        other = view.operands[0]
    if value is not other:
        return None
    for view in reversed(views):
        place = None if place is None else _through(view, place, to_source=False)
    return place


def _through(view: ReshapedView, place: Subscripts, *, to_source: bool) -> Subscripts | None:
    """The place in the source of a view of one in the view, or the other way round."""
    collapses = isinstance(view, memref.CollapseShapeOp)
    sizes = shape_of(view.operands[0] if collapses else view.results[0])
    return (_split if collapses == to_source else _merged)(place, sizes, groups_of(view))


def _merged(place: Subscripts, sizes: Sequence[int], groups: Sequence[Sequence[int]]) -> Subscripts | None:
    """A place with the dimensions of each group as one."""
    merged = list[Name]()
    for group in groups:
        digits = list[tuple[Name, int]]()
        for d in (d for d in group if sizes[d] != 1):
            name = place[d]
            if name == FIXED:
                return None
            digits += name if isinstance(name, tuple) else [(name, sizes[d])]
        merged.append(_name_of(digits))
        if len(digits) > 1 and any(size < 0 for _, size in digits):
            return None
    return tuple(merged)


def _split(place: Subscripts, sizes: Sequence[int], groups: Sequence[Sequence[int]]) -> Subscripts | None:
    """A place with a group of dimensions for each; one without dimensions is that of a single element."""
    split = list[Name]([] if groups else [FIXED] * len(sizes))
    for name, group in zip(place, groups, strict=True):
        digits = list(name) if isinstance(name, tuple) else [(name, -1)]
        parts = [sizes[d] for d in group]
        if sum(size != 1 for size in parts) <= 1:
            split += [FIXED if size == 1 else name for size in parts]
            continue
        for size in parts:
            part = list[tuple[Name, int]]()
            while digits and math.prod(n for _, n in part) < size:
                part.append(digits.pop(0))
            if math.prod(n for _, n in part) != size:
                return None
            split.append(_name_of(part))
        if digits:
            return None
    return tuple(split)


def _name_of(digits: Sequence[tuple[Name, int]]) -> Name:
    """What a dimension is along that is made of these."""
    return FIXED if not digits else digits[0][0] if len(digits) == 1 else tuple(digits)


def region_of(
    elements: Sequence[ElementExpression],
    types: Mapping[ElementExpression, Attribute],
    stored: Sequence[Attribute] = (f32,),
    *,
    indices: Mapping[Name, int] | None = None,
    across: bool = False,
    numbers: Sequence[ElementExpression] = (),
) -> Region:
    """A region that computes elements. Its arguments are the leaves in `types`, of these types. It yields each element,
    converted to the type in memory, and then the integers `numbers`. It may use the loop indices that have a number in
    `indices`."""
    block = Block(arg_types=types.values())
    builder = ElementBuilder(block, {}, across)
    for leaf, argument in zip(types, block.args, strict=True):
        builder.values[leaf] = builder.widened(argument)
    for leaf in dict.fromkeys(leaf for element in elements for leaf in element.leaves("index")):
        if indices is not None and leaf.name in indices:
            builder.values[leaf] = builder.added(ElementIndexOp(indices[leaf.name]))
    made = [builder.built(number) for number in numbers]
    built = [builder.built(element) for element in elements]
    for element, kind in zip(elements, stored, strict=True):
        if kind == i64 and not element.is_op("arith.extsi"):
            decline("it is stored as i64, and no integer of 32 bits that is extended")
    kinds = [i32 if kind == i64 else kind for kind in stored]
    results = [builder.narrowed(value, kind) for value, kind in zip(built, kinds, strict=True)]
    block.add_op(ElementYieldOp(*results, *made))
    return Region(block)


def function_of(
    name: str,
    element: ElementExpression,
    taken: Sequence[ElementExpression],
    order: Mapping[Name, int],
    stored: Attribute = f32,
) -> SSAValue | None:
    """The function of this name that makes an element of those that are taken, of f32; None where it is one of them.
    Loops have the numbers in `order`."""
    if element in taken:
        return None
    operands = element.memories(taken)
    types = {**dict.fromkeys(taken, f32), **{leaf: element_type(value) for leaf, value in operands.items()}}
    inputs = [(value, map_of(leaf.place, order)) for leaf, value in operands.items()]
    function = PointwiseOp(inputs, region_of([element], types, [stored], indices=order)).function
    function.name_hint = name
    return function


MODULAR = (arith.AddiOp, arith.SubiOp, arith.MuliOp, arith.AndIOp, arith.OrIOp, arith.XOrIOp, arith.SelectOp)
"""Operations the low word of whose result is made of low words."""


class ElementBuilder(NamedTuple):
    """Builds expressions in a block. `values` has the elements that exist already; `across` allows reductions along
    rows."""

    block: Block
    values: dict[ElementExpression, SSAValue]
    across: bool = False

    def widened(self, argument: SSAValue) -> SSAValue:
        """An element of 16 bits in f32."""
        plain = argument.type in (f32, f64) or isa(argument.type, IntegerType)
        return argument if plain else self.added(arith.ExtFOp(argument, f32))

    def narrowed(self, value: SSAValue, kind: Attribute) -> SSAValue:
        """A value in f32 as an element of memory."""
        if kind == value.type:
            return value
        if isinstance(value.owner, arith.ExtFOp) and value.owner.input.type == kind:
            return value.owner.input
        if not isinstance(kind, Float16Type | BFloat16Type | Float8E4M3FNType | Float8E5M2Type):
            decline(f"it is stored as {kind}")
        return self.added(arith.TruncFOp(value, kind))

    def built(self, expression: ElementExpression) -> SSAValue:
        """The value of an expression. Raises NotFusedError for a leaf without a value."""
        if expression not in self.values:
            self.values[expression] = self._built(expression)
        return self.values[expression]

    def _built(self, expression: ElementExpression) -> SSAValue:
        if expression.kind == "reduce" and self.across:
            return self.added(ReduceOp(Kind(str(expression.name)), self.built(expression.operands[0])))
        if expression.is_op(ROUNDED) and expression.type is not None:
            return self.widened(self.added(arith.TruncFOp(self.built(expression.operands[0]), expression.type)))
        op = expression.op
        if op is None:
            decline(f"it depends on a {expression.kind} from outside")
        if any(is_long(value.type) for value in (*op.operands, *op.results)):
            return self._built_long(op, expression)
        operands = [self.built(operand) for operand in expression.operands]
        properties = dict(op.properties)
        if isinstance(op, arith.ConstantOp):
            properties["value"] = _number_of(op, expression)
        types = [f64 if expression.is_wide else computed_as(result.type) for result in op.results]
        return self.added(type(op).create(operands=operands, result_types=types, properties=properties))

    def _built_long(self, op: Operation, expression: ElementExpression) -> SSAValue:
        """An operation on integers of 64 bits, or on indices: on 32 bits where these hold its numbers, or all that is
        used of them."""
        taken, result = expression.operands, op.results[0].type
        if (
            result == i32
            and isinstance(op, CASTS)
            and isinstance(cut := taken[0].op, MODULAR)
            and not fits(taken[0].bounds)
        ):
            pairs = zip(taken[0].operands, cut.operands, strict=True)
            low = [self.built(replace(expression, operands=(x,)) if is_long(of.type) else x) for x, of in pairs]
            return self.added(type(cut).create(operands=low, result_types=[i32]))
        operands = [self.built(operand) for operand in taken]
        bounds = [one.bounds for one, value in zip(taken, op.operands, strict=True) if is_long(value.type)]
        bounds += [expression.bounds] if is_long(result) else []
        short = all(map(fits, bounds)) and not (isinstance(op, arith.UIToFPOp) and bounds[0][0] < 0)
        kind = f64 if expression.is_wide else computed_as(result, i32 if short else i64)
        if isinstance(op, arith.ConstantOp) and isa(kind, IntegerType):
            return self.added(arith.ConstantOp(IntegerAttr(int(expression.number or 0), kind)))
        if isinstance(op, (*CASTS, arith.ExtUIOp)):
            return self._cast(operands[0], kind, arith.ExtUIOp if isinstance(op, arith.ExtUIOp) else arith.ExtSIOp)
        pairs = zip(operands, op.operands, strict=True)
        own = [value if short or not is_long(of.type) else self._cast(value, i64) for value, of in pairs]
        return self.added(type(op).create(operands=own, result_types=[kind], properties=dict(op.properties)))

    def _cast(self, value: SSAValue, kind: Attribute, wider: type[Operation] = arith.ExtSIOp) -> SSAValue:
        """An integer as one of another type."""
        before, after = (isa(k, IntegerType) and k.bitwidth for k in (value.type, kind))
        if before == after:
            return value
        if (number := constant_value(value)) is not None and kind == i64 and wider is arith.ExtSIOp:
            return self.added(arith.ConstantOp(IntegerAttr(number, i64)))
        cast = wider if before < after else arith.TruncIOp
        return self.added(cast.create(operands=[value], result_types=[kind]))

    def added(self, op: Operation) -> SSAValue:
        """The result of an operation at the end of the block."""
        self.block.add_op(op)
        return op.results[0]


def computed_as(kind: Attribute, long: Attribute = i32) -> Attribute:
    """The type in which expressions compute: f32, or an integer, `long` for indices and those of 64 bits."""
    return long if is_long(kind) else kind if isa(kind, IntegerType) else f32


def _number_of(op: arith.ConstantOp, expression: ElementExpression) -> FloatAttr | IntegerAttr:
    value, number = op.value, expression.number
    if isinstance(value, FloatAttr) and number is not None:
        return FloatAttr(number, f64 if expression.is_wide else f32)
    if isinstance(value, IntegerAttr):
        return IntegerAttr(value.value.data, value.type)
    decline("it depends on a constant of several values")


def is_of_elements(value: BlockArgument, output: int) -> bool:
    """Whether a value of the body's reaches more than an output: another one, or a reduction."""
    reached: set[SSAValue] = {value}
    for op in value.block.ops:
        used = [number for number, operand in enumerate(op.operands) if operand in reached]
        if used and (isinstance(op, ReduceOp) or (isinstance(op, ElementYieldOp) and used != [output])):
            return True
        reached.update(op.results if used else ())
    return False
