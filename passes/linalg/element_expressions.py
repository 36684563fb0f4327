"""The elements of memory as expressions of earlier elements, and such expressions as operations of a region."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IndexType, IntegerAttr, MemRefType, bf16, f16, f32, f64, i1
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import FillOp, IndexOp
from xdsl.dialects.math import FmaOp
from xdsl.dialects.memref import AllocOp, LoadOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap, AffineSymExpr
from xdsl.utils.exceptions import DiagnosticException

from ...dialect.mlir.affine import FIXED, Nest, contracted, loops_of, weighted
from ...dialect.warp.attributes import element_row
from ...dialect.warp.convert import IDENTITIES
from ...dialect.warp.elements import element_type, only_computes, shape_of
from ...dialect.warp.fragments import Kind
from . import contraction
from .elementwise import EVERYTHING, Bounds, bounds_after, is_long
from .memory_uses import decline
from .operand import SIZE_LIMIT, root, users_of

# Two ways to write the same elements give equal expressions, which are computed in f32, or in f64 where they are
# written so. An `arith.truncf` is a rounding to its `type`; so is arithmetic in a narrower type, which is arithmetic in
# f32 rounded once more. An extension to f32 changes nothing, and neither does rounding what has the type already.

Name: TypeAlias = "int | str | tuple[tuple[Name, int], ...] | ElementExpression"
"""A loop; or several that a dimension runs along, slowest first, with their sizes; or a number that is computed."""

Naming: TypeAlias = "dict[int, Name]"
"""Those of an operation's loops, by number."""

Subscripts: TypeAlias = tuple[Name, ...]
"""Where in memory an element lies: a loop for each dimension, `FIXED` for one that is always at 0."""

ROUNDED = "arith.truncf"

EXACT = ("arith.negf", "math.absf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf",
         "arith.select", "math.floor", "math.ceil", "math.trunc", "math.roundeven")  # fmt: skip
"""Operations whose result has the type of their operands, unrounded."""

REDUCTIONS = {
    "arith.addf": Kind.Add,
    "arith.mulf": Kind.Mul,
    "arith.maximumf": Kind.Maximum,
    "arith.maxnumf": Kind.Max,
    "arith.minimumf": Kind.Minimum,
    "arith.minnumf": Kind.Min,
}
"""What reductions over a loop are called."""

WIDE_REDUCTIONS = (Kind.Add, Kind.Mul, Kind.Max, Kind.Min)
"""Those of f64: PTX has no maximum of f64 that is NaN where one number is."""


FIRST = arith.ConstantOp(IntegerAttr(0, IndexType()))
"""The index along a loop of one turn."""


def nearest(number: float, kind: Attribute) -> float | None:
    """A constant as f16 or bf16 holds it; None for another type."""
    element = element_row(kind)
    return element.nearest(number) if element is not None and element.name in ("f16", "bf16") else None


@dataclass(frozen=True)
class ElementExpression:
    """One element: an operation on others, or a leaf. `kind` is "op" (`name`, with its properties), "constant"
    (`number`), "outside" (`value`), "index" (of the loop `name`), "load" (from `value` at `place`), "reduce" (by
    `name`, one of `REDUCTIONS`, of its only operand over the reader's loop), or "product" (the element at `place` of
    what `product` makes). The operands of a load are indices in `place` that are computed. `op` is an operation for it.
    `type` is what an `arith.truncf` rounds to, f64 of what is computed in it, or that of a constant integer."""

    kind: str
    name: Name = ""
    operands: tuple[ElementExpression, ...] = ()
    number: float | int | None = None
    value: SSAValue | None = None
    place: Subscripts = ()
    properties: tuple[tuple[str, str], ...] = ()
    product: LinalgStructuredOperation | None = None
    type: Attribute | None = None
    op: Operation | None = field(default=None, compare=False)

    def leaves(self, kind: str) -> dict[ElementExpression, None]:
        """The leaves of a kind, each once."""
        return {node: None for node in self._nodes() if node.kind == kind}

    def memories(self, taken: Sequence[ElementExpression]) -> dict[ElementExpression, SSAValue]:
        """The memory and scalars that it is computed from, without those of the elements that are taken."""
        nodes = self._nodes(taken)
        return {node: node.value for node in nodes if node.kind in ("load", "outside") and node.value is not None}

    def _nodes(self, taken: Sequence[ElementExpression] = ()) -> dict[ElementExpression, None]:
        """It and what it is computed from, each once, but for elements that are taken."""
        nodes, wanted = dict[ElementExpression, None](), list[ElementExpression]((self,))
        while wanted:
            node = wanted.pop()
            if node not in nodes and node not in taken:
                nodes[node] = None
                wanted += reversed(node.operands)
        return nodes

    @cached_property
    def _hash(self) -> int:
        own = self.kind, self.name, self.number, self.value, self.place, self.properties, self.product, self.type
        return hash((self.operands, *own))

    def __hash__(self) -> int:
        return self._hash  # of operands that others share computed once

    @property
    def is_wide(self) -> bool:
        """Whether its value is an f64."""
        if self.kind == "reduce":
            return self.operands[0].is_wide
        if self.kind in ("load", "outside"):
            return self.value is not None and element_type(self.value) == f64
        return self.type == f64

    @cached_property
    def bounds(self) -> Bounds:
        """Of an index, or of an integer of 64 bits."""
        if self.kind == "index":
            return 0, SIZE_LIMIT
        if self.op is None or self.kind == "reduce":
            return EVERYTHING
        pairs = zip(self.op.operands, self.operands, strict=False)
        return bounds_after(self.op, {value: operand.bounds for value, operand in pairs if is_long(value.type)})

    def is_op(self, *names: str) -> bool:
        """Whether it is one of these operations."""
        return self.kind == "op" and self.name in names

    def is_of(self, kind: Attribute) -> bool:
        """Whether its value is always one of a floating-point type."""
        if self.kind in ("load", "outside"):
            return self.value is not None and element_type(self.value) == kind
        if self.kind == "constant":
            return self.number is not None and (math.isnan(self.number) or nearest(self.number, kind) == self.number)
        if self.is_op(ROUNDED):
            return self.type == kind
        if self.kind == "reduce":
            # Of nothing but NaN, the largest number is the infinity that the reduction starts from.
            starts = nearest(-math.inf, kind) == -math.inf
            return starts and self.name not in ("add", "mul") and self.operands[0].is_of(kind)
        values = self.operands[1:] if self.is_op("arith.select") else self.operands
        return self.is_op(*EXACT) and all(value.is_of(kind) for value in dict.fromkeys(values))

    def rounded(self, kind: Attribute) -> ElementExpression:
        """It rounded to a type of floats; itself if it has that type, or f32 has no more digits."""
        if not isinstance(kind, AnyFloat) or kind.bitwidth >= f32.bitwidth or self.is_of(kind):
            return self
        if self.kind == "constant" and self.number is not None and (number := nearest(self.number, kind)) is not None:
            return replace(self, number=number)
        return ElementExpression("op", ROUNDED, (self,), type=kind)

    def narrowed(self, kind: Attribute) -> ElementExpression | None:
        """An f64 rounded to f32; None for other types, to which an f64 is not rounded at once."""
        if kind != f32:
            return None
        if self.kind == "constant":
            return replace(self, type=None)
        return ElementExpression("op", ROUNDED, (self,), type=f32)

    def unrounded(self, kind: Attribute) -> ElementExpression:
        """What is rounded to a type last; itself if nothing is."""
        return self.operands[0] if self.is_op(ROUNDED) and self.type == kind else self


def is_computed_in_f32(op: Operation) -> bool:
    """Whether f32, rounded once more if the operation's type is narrower, gives its result: f64 has more digits, and an
    `fma` of 16 bits would be rounded twice to another one."""
    floats = [result.type.bitwidth for result in op.results if isinstance(result.type, AnyFloat)]
    return all(bits == f32.bitwidth or (bits < f32.bitwidth and not isinstance(op, FmaOp)) for bits in floats)


def is_wide(op: Operation) -> bool:
    """Whether an operation makes an f64."""
    return any(result.type == f64 for result in op.results)


def _as_narrow(operands: tuple[ElementExpression, ...]) -> tuple[ElementExpression, ...]:
    """What is compared, in f32 where it was only extended to f64."""
    narrow = list[ElementExpression]()
    for operand in operands:
        if operand.is_op("arith.extf"):
            narrow.append(operand.operands[0])
        elif operand.kind == "constant" and operand.number == FloatAttr(operand.number or 0.0, f32).value.data:
            narrow.append(replace(operand, type=None))
        else:
            return operands
    return tuple(narrow)


def _constant(number: float | int, op: Operation) -> ElementExpression:
    """A number. Zeros of either sign are two, for a quotient by them has either sign; all NaN are one."""
    number = math.nan if math.isnan(number) else number
    sign = (("sign", "-"),) if number == 0 and math.copysign(1, number) < 0 else ()
    return ElementExpression("constant", number=number, properties=sign, op=op)


class ElementReader:
    """Reads elements of memory in one block. `used` are the operations on the way, `over` the name of reduced loops.
    What operations in `left` write is read from memory."""

    wide = False
    """Whether expressions may be computed in f64."""

    gathers = False
    """Whether rows of memory may have computed numbers."""

    beyond = 6e4
    """A maximum that is subtracted from all scores, whatever it is, may start from minus this, or below: f16 has
    numbers up to 65504."""

    def __init__(self, over: Name) -> None:
        self.over = over
        self.used: dict[Operation, None] = {}
        self.left = set[Operation]()
        self._expressions: dict[tuple[SSAValue, Subscripts, Operation], ElementExpression] = {}
        self._values: dict[tuple[Operation, SSAValue, tuple[tuple[int, Name], ...]], ElementExpression | None] = {}

    def element(self, value: SSAValue, at: Subscripts, before: Operation) -> ElementExpression:
        """The element of `value` at a place, as it is before an operation of the block."""
        key = (value, at, before)
        if key not in self._expressions:
            self._expressions[key] = self._element(value, at, before)
        return self._expressions[key]

    def _element(self, value: SSAValue, at: Subscripts, before: Operation) -> ElementExpression:
        writer, leaf = writer_before(value, before), ElementExpression("load", value=value, place=at)
        if writer is None or len(writer.outputs) != 1 or writer.outputs[0] != value or writer.results:
            return leaf
        if isinstance(writer, FillOp):
            element = self._from_outside(writer.inputs[0])
        elif Nest.of(writer).summed:
            element = self._product(writer, at) or self._reduced(writer, at)
        else:
            element = self._computed(writer, at)
        if element is None:
            self.left.add(writer)
            return leaf
        self.used[writer] = None
        return element

    def _bound(self, op: LinalgStructuredOperation, at: Subscripts) -> dict[int, Name] | None:
        """The names of an operation's loops where its output is at a place; None if its output's map says less."""
        loops = loops_of(op.get_indexing_maps().data[-1].data)
        if FIXED in loops or len(set(loops)) != len(loops) or FIXED in at:
            return None
        return dict(zip(loops, at, strict=True))

    def _computed(self, op: LinalgStructuredOperation, at: Subscripts) -> ElementExpression | None:
        names, nest = self._bound(op, at), Nest.of(op)
        if names is None or len(names) != nest.loops:
            return None
        return self._value(op, nest.yielded[0], names) if nest.yielded else None

    def _value(self, op: LinalgStructuredOperation, value: SSAValue, names: Naming) -> ElementExpression | None:
        key = op, value, tuple(names.items())
        if key not in self._values:
            self._values[key] = self._compute(op, value, names)
        return self._values[key]

    def _compute(self, op: LinalgStructuredOperation, value: SSAValue, names: Naming) -> ElementExpression | None:
        body, owner = op.body.block, value.owner
        if isinstance(owner, Block):
            if owner is not body or not isinstance(value, BlockArgument):
                return self._from_outside(value)
            operand = [*op.inputs, *op.outputs][value.index]
            if not isinstance(operand.type, MemRefType):
                return self._from_outside(operand)
            loops = loops_of(op.get_indexing_maps().data[value.index].data)
            element = self.element(operand, tuple(names.get(loop, FIXED) for loop in loops), op)
            return None if self.wide and element.kind == "load" and element.is_wide else element
        if owner.parent is not body or isinstance(owner, arith.ConstantOp):
            return self._from_outside(value)
        if isinstance(owner, IndexOp):
            name = names.get(owner.dim.value.data, FIXED)
            return self._from_outside(FIRST.result) if name == FIXED else ElementExpression("index", name)
        if isinstance(owner, LoadOp) and self.gathers:
            return self._gathered(op, owner, names)
        if not owner.operands or not only_computes(owner):
            return None
        if not is_computed_in_f32(owner) and not (self.wide and is_wide(owner)):
            return None
        if (wide := contracted(owner)) is not None:
            return self._value(op, wide, names)
        parts = [self._value(op, operand, names) for operand in owner.operands]
        operands = tuple(operand for operand in parts if operand is not None)
        if len(operands) != len(parts):
            return None
        kind, wide_kind = owner.results[0].type, f64 if self.wide and is_wide(owner) else None
        if isinstance(owner, arith.ExtFOp) and (wide_kind is None or operands[0].is_wide):
            return operands[0]
        if operands[0].is_op("arith.extui") and _reads_truth(owner, operands):
            return operands[0].operands[0]
        if isinstance(owner, arith.TruncFOp):
            return operands[0].narrowed(kind) if operands[0].is_wide else operands[0].rounded(kind)
        if isinstance(owner, arith.CmpfOp):
            operands = _as_narrow(operands)
        properties = tuple(sorted((name, str(v)) for name, v in owner.properties.items() if name != "fastmath"))
        made = ElementExpression("op", owner.name, operands, properties=properties, op=owner, type=wide_kind)
        return made.rounded(kind)

    def _gathered(self, op: LinalgStructuredOperation, load: LoadOp, names: Naming) -> ElementExpression | None:
        """An element of a row of memory whose number is computed of what is the same along the row."""
        indices = [each for index in load.indices if (each := self._value(op, index, names)) is not None]
        place = tuple(each.name if each.kind == "index" else each for each in indices)
        numbers = tuple(each for each in place if isinstance(each, ElementExpression))
        leaves = [leaf for each in numbers for kind in ("load", "index", "reduce") for leaf in each.leaves(kind)]
        of_row = all(leaf.kind != "reduce" and self.over not in (leaf.name, *leaf.place) for leaf in leaves)
        if len(place) < len(load.indices) or not (numbers and of_row and self.over in place) or is_wide(load):
            return None
        return ElementExpression("load", value=load.memref, place=place, operands=numbers)

    def _from_outside(self, value: SSAValue) -> ElementExpression:
        owner = value.owner
        if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, FloatAttr | IntegerAttr):
            number = _constant(owner.value.value.data, owner).rounded(value.type)
            is_typed = isinstance(owner.value, IntegerAttr) or (self.wide and value.type == f64)
            return replace(number, type=value.type) if is_typed else number
        return ElementExpression("outside", value=value)

    def _product(self, op: LinalgStructuredOperation, at: Subscripts) -> ElementExpression | None:
        """A product of matrices that starts from zero."""
        if read_product(op) is None or not self.starts_from(op, 0.0):
            return None
        return ElementExpression("product", product=op, place=at).rounded(element_type(op.outputs[0]))

    def _reduced(self, op: LinalgStructuredOperation, at: Subscripts) -> ElementExpression | None:
        """A reduction over one loop, from what changes nothing."""
        names, nest = self._bound(op, at), Nest.of(op)
        left, how = [loop for loop in range(nest.loops) if names is not None and loop not in names], nest.combination
        if names is None or len(left) != 1 or how is None or self.over in at:
            return None
        combined = how.by
        subtracted = isinstance(combined, arith.SubfOp) and combined.rhs is how.value
        if (subtracted and weighted(nest.body) is not None) or (not subtracted and combined.name not in REDUCTIONS):
            return None
        kind = Kind.Add if subtracted else REDUCTIONS[combined.name]
        element = self._value(op, how.value, names | {left[0]: self.over})
        wide = is_wide(combined)
        if element is None or element.is_wide != wide or (wide and kind not in WIDE_REDUCTIONS):
            return None
        if subtracted:
            of_wide = f64 if wide else None
            element = ElementExpression("op", "arith.negf", (element,), op=arith.NegfOp(how.value), type=of_wide)
        taken = ElementExpression("reduce", kind.value, (element,))
        total = taken if self.starts_from(op, IDENTITIES[kind]) else self._onto(op, at, combined, taken)
        return None if total is None else total.rounded(combined.results[0].type)

    def _onto(
        self, op: LinalgStructuredOperation, at: Subscripts, combined: Operation, taken: ElementExpression
    ) -> ElementExpression | None:
        """The result of a reduction combined with its start value."""
        before = self.element(op.outputs[0], at, op)
        if isinstance(combined, arith.SubfOp):
            combined = arith.AddfOp(combined.lhs, combined.rhs)
        return ElementExpression(
            "op", combined.name, (before, taken), op=combined, type=f64 if is_wide(combined) else None
        )

    def source(
        self, value: SSAValue, at: Subscripts, before: Operation, *, widened: bool = False
    ) -> tuple[SSAValue, Subscripts]:
        """The memory that an operand of a product is copied or transposed from, with the place of its element there;
        else the operand. With `widened`, f32 may be copied from f16 or bf16."""
        reader = copy(self)
        reader.used, reader._expressions = {}, {}
        element = reader.element(value, at, before)
        if element.kind != "load" or element.value is None or FIXED in element.place:
            return value, at
        kinds = element_type(element.value), element_type(value)
        if kinds[0] != kinds[1] and not (widened and kinds in ((f16, f32), (bf16, f32))):
            return value, at
        self.used |= reader.used
        return element.value, element.place

    def factors(
        self, element: ElementExpression, over: Name, *, widened: bool = False
    ) -> list[tuple[SSAValue, Subscripts]] | None:
        """The memories that an element of a product is summed from, over a loop of this name, and their places; None
        for what is no product."""
        op, product = element.product, None if element.product is None else read_product(element.product)
        if op is None or product is None:
            return None
        of_a, of_b, of_c = (loops_of(map_) for map_ in product.maps)
        names: Naming = {**dict(zip(of_c, element.place, strict=True)), len(of_c): over}
        sides = zip(product.inputs, (of_a, of_b), strict=True)
        return [self.source(op.inputs[number], names_of(loops, names), op, widened=widened) for number, loops in sides]

    def sole_reader(self, op: LinalgStructuredOperation, temporary: SSAValue) -> LinalgStructuredOperation | None:
        """The elementwise operation of the same block that alone uses an allocation which an operation writes."""
        users = {use.operation for use in temporary.uses} - {*self.used, op}
        following = users.pop() if len(users) == 1 and isinstance(temporary.owner, AllocOp) else None
        if not isinstance(following, LinalgStructuredOperation) or following.parent is not op.parent:
            return None
        return following if Nest.of(following).is_elementwise else None

    def behind(
        self, temporary: SSAValue, at: Subscripts, op: Operation | None
    ) -> tuple[ElementExpression, ElementExpression, tuple[SSAValue, Subscripts]] | None:
        """An element of what an operation makes of a temporary, the element of the temporary, and where the operation
        stores it. None if it does something else."""
        if not isinstance(op, LinalgStructuredOperation) or len(op.outputs) != 1 or temporary not in op.inputs:
            return None
        maps, (output,) = [loops_of(attribute.data) for attribute in op.get_indexing_maps()], op.outputs
        names = dict(zip(maps[op.inputs.index(temporary)], at, strict=True))
        if len(names) != op.get_num_loops() or FIXED in (*names, *maps[-1]):
            return None
        place = names_of(maps[-1], names)
        result = self.element(output, place, op.next_op or op).unrounded(element_type(output))
        return result, self.element(temporary, at, op).unrounded(element_type(temporary)), (output, place)

    def starts_from(self, op: LinalgStructuredOperation, wanted: float) -> bool:
        """Whether the output of a reduction is filled with its identity. Any number that exceeds `beyond` may stand for
        an infinity."""
        fill = writer_before(op.outputs[0], op)
        if not isinstance(fill, FillOp) or fill.outputs[0] != op.outputs[0]:
            return False
        start = self._from_outside(fill.inputs[0]).number
        beyond = math.isinf(wanted) and start is not None and start * math.copysign(1, wanted) >= self.beyond
        if start != wanted and not beyond:
            return False
        self.used[fill] = None
        return True


def _reads_truth(op: Operation, operands: Sequence[ElementExpression]) -> bool:
    """Whether an operation on a truth value that was extended to an integer gives that value again."""
    if not isinstance(op, arith.CmpiOp):
        return isinstance(op, arith.TruncIOp) and op.result.type == i1
    narrow = operands[0].op is not None and operands[0].op.operands[0].type == i1
    return narrow and op.predicate.value.data == 1 and operands[1].number == 0  # != 0


def writer_before(value: SSAValue, before: Operation) -> LinalgStructuredOperation | None:
    """The last operation before another one in its block that writes the memory of `value`. None if there is none, or
    if an unknown operation may have written it since."""
    op, memory = before.prev_op, root(value)
    users = users_of(memory)
    while op is not None:
        if op in users and isinstance(op, LinalgStructuredOperation):
            if any(root(output) is memory for output in op.outputs):
                return op
        elif op in users and not only_computes(op):
            return None
        op = op.prev_op
    return None


def multiplies(op: LinalgStructuredOperation) -> bool:
    """Whether an operation is a product of matrices or vectors. A batch of dot products is a reduction of rows."""
    if read_product(op) is not None:
        return True
    ranks = [len(shape_of(value)) for value in op.inputs]
    return _contraction(op) is not None and (ranks[0] != ranks[1] or not shape_of(op.outputs[0]))


def _contraction(op: LinalgStructuredOperation) -> contraction.Contraction | None:
    if len(op.inputs) != 2 or len(op.outputs) != 1 or not contraction.is_simple(op):
        return None
    try:
        return contraction.read(op)
    except (DiagnosticException, contraction.SeparateProductsError):
        return None


def read_product(op: LinalgStructuredOperation) -> contraction.Contraction | None:
    """The operation as a product of matrices; None if it is none."""
    if (product := _contraction(op)) is None:
        return None
    ranks = [len(shape_of(value)) for value in (*(op.inputs[n] for n in product.inputs), op.outputs[0])]
    return product if ranks == [len(map_.results) for map_ in product.maps] else None


def names_of(loops: Sequence[int], names: Mapping[int, Name]) -> Subscripts:
    """The subscripts of an element along these loops."""
    return tuple(names[loop] for loop in loops)


def map_of(place: Subscripts, order: Mapping[Name, int]) -> AffineMap:
    """The map of memory that is read, or written, at a place; numbers are below `FIXED` in the order of loops."""
    if any(name not in order for name in place):
        decline("an operand is read at one place along a dimension")
    numbers = [order[name] for name in place]
    exprs = (AffineDimExpr(n) if n > FIXED else AffineSymExpr(FIXED - 1 - n) for n in numbers)
    return AffineMap(sum(n > FIXED for n in order.values()), FIXED - min((FIXED, *numbers)), tuple(exprs))
