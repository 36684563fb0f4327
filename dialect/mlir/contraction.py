"""What the named products of `linalg` share: bodies, operands, maps, checks, and text."""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Sequence
from typing import ClassVar, NamedTuple, Self, TypeAlias, TypeGuard

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    DictionaryAttr,
    IntegerType,
    MemRefType,
    ShapedType,
    TensorType,
)
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation, NamedOperation
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.dialects.math import FmaOp
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.irdl import opt_prop_def, prop_def, region_def, var_operand_def, var_result_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from ..warp.elements import loops_of
from .generic import TypeFn, TypeFnAttr

# The body of a product: `c + extend(a) * extend(b)`, written and recognised.

EXTENSIONS = (arith.ExtFOp, arith.ExtSIOp, arith.ExtUIOp)
CONVERSIONS = (arith.SIToFPOp, arith.UIToFPOp)


class Factor(NamedTuple):
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
    if isa(value.type, IntegerType) and not isa(target, IntegerType):
        extend = arith.UIToFPOp if unsigned else arith.SIToFPOp
    elif isa(target, IntegerType):
        extend = arith.ExtUIOp if unsigned else arith.ExtSIOp
    cast = extend.build(operands=[value], result_types=[target])
    block.add_op(cast)
    return cast.results[0]


def converted_to(block: Block, value: SSAValue, kind: Attribute) -> SSAValue:
    """A value converted to another type."""
    if value.type == kind:
        return value
    if isinstance(value.type, IntegerType):
        cast = arith.SIToFPOp.build(operands=[value], result_types=[kind])
    else:
        narrows = (
            isinstance(value.type, AnyFloat) and isinstance(kind, AnyFloat) and kind.bitwidth < value.type.bitwidth
        )
        cast = (arith.TruncFOp if narrows else arith.ExtFOp).build(operands=[value], result_types=[kind])
    block.add_op(cast)
    return cast.results[0]


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
    found: list[tuple[Factor, bool]] = []
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
            found.append(factor)
        elif _is_weight(value, block):
            weights.append(value)
        else:
            return None
    if len(found) != 2 or any(factor.argument == len(block.args) - 1 for factor, _ in found):
        return None
    (a, first), (b, second) = found
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


# What the named products of `linalg` share: operands, maps, checks, and text.
#
# xDSL's `linalg.matmul` has neither the casts of a product whose result is wider than its operands nor a text form for
# `indexing_maps`, and crashes on some malformed text. Source: MLIR, Linalg dialect, `linalg.matmul`.

OperandElement: TypeAlias = AnyFloat | IntegerType
OperandMatrix: TypeAlias = MemRefType[OperandElement] | TensorType[OperandElement]

METADATA = "warp.metadata"
"""The attribute of a product with a sparse A: which argument of the function holds the metadata."""

_NAMES = "ABC"


def map_of(loops: str, dimensions: str) -> AffineMap:
    """The map of an operand whose dimensions run along some of the loops, each a letter: map_of("mnk", "km")."""
    return AffineMap(len(loops), 0, tuple(AffineDimExpr(loops.index(d)) for d in dimensions))


def maps_of(loops: str, operands: Sequence[str]) -> ArrayAttr[AffineMapAttr]:
    """The maps of several operands."""
    return ArrayAttr(AffineMapAttr(map_of(loops, dimensions)) for dimensions in operands)


class ContractionOp(NamedOperation, ABC):
    """`C += A * B` in one of its named forms; A and B are extended to C's type first.

    `LOOPS` names the loops by letters, in order, and `OPERANDS` the loops that the dimensions of A, B and C run along
    when no maps are given. Where they are `MOVABLE`, maps may exchange the last two of A or B, leave out a batch, and
    leave out m or n, along which the operand is then repeated.

    With `warp.metadata = i`, A is sparse: it has half as many columns as B has rows, and argument i of the function
    says where its elements belong (`docs/sparse.md`).
    """

    LOOPS: ClassVar[str]
    OPERANDS: ClassVar[tuple[str, str, str]]
    MOVABLE: ClassVar[bool] = False

    # Said again, because xDSL's own product, of which one of ours is a subclass, no longer has them as definitions.
    inputs = var_operand_def()
    outputs = var_operand_def(ShapedType)
    res = var_result_def(TensorType)
    body = region_def("single_block")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr])
    cast = opt_prop_def(TypeFnAttr)

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        """The body MLIR gives the operation. Raises VerifyException for types that have no product."""
        return cls.region_for(inputs, outputs, unsigned=False)

    @classmethod
    def region_for(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue], *, unsigned: bool) -> Region:
        """The body, which extends integers with zeros if `unsigned`."""
        if (problem := _operand_problem(_types(inputs), _types(outputs))) is not None:
            raise VerifyException(problem)
        block = Block(arg_types=cls.body_arg_types((*inputs, *outputs)))
        fill(block, unsigned=unsigned)
        return Region(block)

    @property
    def unsigned(self) -> bool:
        """Whether integers are extended with zeros."""
        return self.cast is not None and self.cast.data == TypeFn.CAST_UNSIGNED

    def verify_(self) -> None:
        for check in (self._types_problem, self.maps_problem, self._shape_problem, self._result_problem):
            if (problem := check()) is not None:
                raise VerifyException(problem)
        if METADATA not in self.attributes:  # xDSL counts what is stored of A
            # Not super(): xDSL's own product, the next in line, knows no cast.
            LinalgStructuredOperation.verify_(self)
        body = weighted(self.body.block)
        found = () if body is None or body.weights or body.negated else body.factors
        if {f.argument for f in found} != {0, 1} or not all(map(self._extends_as_said, found)):
            raise VerifyException(
                "expected the body to extend A and B to C's type, multiply, and add to C; "
                "another body is written as linalg.generic"
            )

    def _extends_as_said(self, factor: Factor) -> bool:
        integer, result = self.body.block.args[factor.argument].type, self.body.block.args[-1].type
        extended = isinstance(integer, IntegerType) and integer != result
        return factor.unsigned == (extended and self.unsigned)

    @property
    def repeats(self) -> bool:
        """Whether A is repeated along m, or B along n."""
        named = zip(self.OPERANDS[:2], self.indexing_maps, strict=False)
        return any(self.LOOPS.index(loop) not in loops_of(map_.data) for dims, map_ in named for loop in dims[-2:])

    @property
    def converts(self) -> bool:
        """Whether A and B are integers that are multiplied and added as floats."""
        kinds = [_matrix(value.type).get_element_type() for value in (*self.inputs, *self.outputs)]
        return all(isinstance(kind, IntegerType) for kind in kinds[:2]) and not isinstance(kinds[-1], IntegerType)

    def _types_problem(self) -> str | None:
        return _operand_problem(_types(self.inputs), _types(self.outputs))

    def maps_problem(self) -> str | None:
        """What is wrong with the indexing maps; None if nothing is."""
        maps = [attr.data for attr in self.indexing_maps]
        if len(maps) != 3:
            return f"expected three indexing_maps, one each for A, B and C, got {len(maps)}"
        for name, dimensions, map_ in zip(_NAMES, self.OPERANDS, maps, strict=True):
            allowed = [map_of(self.LOOPS, d) for d in self._allowed(name, dimensions)]
            if map_ not in allowed:
                return f"expected the indexing map of {name} to be {' or '.join(map(str, allowed))}, got {map_}"
        return None

    def loop_name(self, loop: int) -> str:
        """What a loop is called in messages."""
        return self.LOOPS[loop]

    def _allowed(self, name: str, dimensions: str) -> list[str]:
        """What the dimensions of an operand may run along."""
        if name == "C" or not self.MOVABLE:
            return [dimensions]
        batch, matrix = dimensions[:-2], dimensions[-2:]
        summed = "".join(loop for loop in matrix if loop not in self.OPERANDS[2])
        return [kept + order for kept in dict.fromkeys((batch, "")) for order in (matrix, matrix[::-1], summed)]

    def _shape_problem(self) -> str | None:
        """Every loop has one length, whichever operand it is read from."""
        seen: dict[int, tuple[str, int, int]] = {}
        for name, operand, attr in zip(_NAMES, self.operands, self.indexing_maps, strict=True):
            shape, loops = _matrix(operand.type).get_shape(), loops_of(attr.data)
            if len(shape) != len(loops):
                return f"expected {name} to be of rank {len(loops)}, got rank {len(shape)} ({operand.type})"
            for axis, (loop, length) in enumerate(zip(loops, shape, strict=True)):
                sparse = METADATA in self.attributes and (name, self.loop_name(loop)) == ("A", "k")
                size = 2 * length if sparse and length >= 0 else length
                other, other_axis, expected = seen.setdefault(loop, (name, axis, size))
                if expected != size and expected >= 0 and size >= 0:
                    return (
                        f"expected {other}'s {_ordinal(other_axis)} dimension and {name}'s {_ordinal(axis)} to agree"
                        f" ({self.loop_name(loop)}), got {expected} and {size}"
                    )
                if expected < 0:
                    seen[loop] = (name, axis, size)
        return None

    def _result_problem(self) -> str | None:
        c = self.outputs[0].type
        expected: list[Attribute] = [] if isinstance(c, MemRefType) else [c]
        got = list(_types(self.res))
        if expected == got:
            return None
        if not expected:
            return f"expected no result, as C is a memref and is written in place, got {_listed(got)}"
        return f"expected one result of C's type {c}, got {_listed(got)}"

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        maps = maps_of(cls.LOOPS, cls.OPERANDS)
        if parser.parse_optional_keyword("indexing_maps"):
            parser.parse_punctuation("=")
            maps = _maps_attribute(parser, parser.pos, parser.parse_attribute())
        start = parser.pos
        attributes = dict(parser.parse_optional_attr_dict())
        attributes.pop("operandSegmentSizes", None)
        if (attribute := attributes.pop("indexing_maps", None)) is not None:
            maps = _maps_attribute(parser, start, attribute)
        cast = attributes.pop("cast", None)
        if cast is not None and not isinstance(cast, TypeFnAttr):
            parser.raise_error(
                f"expected cast to be #linalg.type_fn<cast_signed> or <cast_unsigned>, got {cast}", start
            )
        inputs, input_types = _parse_operands(parser, "ins")
        outputs, output_types = _parse_operands(parser, "outs")
        results = _parse_results(parser)
        if (problem := _operand_problem(input_types, output_types)) is not None:
            parser.raise_error(problem, start)
        ins = parser.resolve_operands(inputs, input_types, start)
        outs = parser.resolve_operands(outputs, output_types, start)
        unsigned = cast is not None and cast.data == TypeFn.CAST_UNSIGNED
        return cls.build(
            operands=(ins, outs),
            result_types=(results,),
            properties={"indexing_maps": maps, "cast": cast},
            attributes=attributes,
            regions=(cls.region_for(ins, outs, unsigned=unsigned),),
        )

    def print(self, printer: Printer) -> None:
        if self.indexing_maps != maps_of(self.LOOPS, self.OPERANDS):
            printer.print_string(" indexing_maps = ")
            printer.print_attribute(self.indexing_maps)
        attributes = self.attributes if self.cast is None else {"cast": self.cast, **self.attributes}
        if attributes:
            printer.print_string(" ")
            printer.print_attribute(DictionaryAttr(attributes))
        for keyword, values in (("ins", self.inputs), ("outs", self.outputs)):
            printer.print_string(f" {keyword}(")
            printer.print_list(values, printer.print_ssa_value)
            printer.print_string(" : ")
            printer.print_list(values.types, printer.print_attribute)
            printer.print_string(")")
        if self.res:
            printer.print_string(" -> ")
            printer.print_list(self.res.types, printer.print_attribute)


def _types(values: Sequence[SSAValue]) -> Sequence[Attribute]:
    return [value.type for value in values]


def _listed(types: Sequence[Attribute]) -> str:
    return ", ".join(map(str, types)) or "none"


def _ordinal(axis: int) -> str:
    return ("first", "second", "third", "fourth", "fifth", "sixth")[min(axis, 5)]


def _matrix(type_: Attribute) -> OperandMatrix:
    """The type as a matrix or batch of matrices. Raises VerifyException, with the fix, if it is not one."""
    if not _is_matrix(type_):
        raise VerifyException(f"a memref or tensor of floats or integers, got {type_}")
    return type_


def _is_matrix(type_: Attribute) -> TypeGuard[OperandMatrix]:
    """`isa` of `OperandMatrix`, which would build the constraint of that type each time."""
    return isinstance(type_, MemRefType | TensorType) and isinstance(type_.get_element_type(), OperandElement)


def _operand_problem(inputs: Sequence[Attribute], outputs: Sequence[Attribute]) -> str | None:
    """What is wrong with the operands' number, kinds, ranks or element types; None if nothing is."""
    if len(inputs) != 2 or len(outputs) != 1:
        return f"expected two operands in ins(...) and one in outs(...), got {len(inputs)} and {len(outputs)}"
    types: list[OperandMatrix] = []
    for name, type_ in zip(_NAMES, (*inputs, *outputs), strict=True):
        try:
            types.append(_matrix(type_))
        except VerifyException as error:
            return f"expected {name} to be {error}"
    if len({isinstance(type_, TensorType) for type_ in types}) > 1:
        return f"expected A, B and C to be all memrefs or all tensors, got {_listed(types)}"
    a, b, c = (type_.get_element_type() for type_ in types)
    if all(element == c or _widens(element, c) for element in (a, b)):
        return None
    return f"expected element types of A and B that can be extended to C's, got {a} x {b} -> {c}"


def _widens(source: OperandElement, target: OperandElement) -> bool:
    """Whether an element type is extended by `arith.extf`, `arith.extsi`, or, if it is unsigned, `arith.extui`; or
    converted, an integer to a float."""
    if isinstance(source, IntegerType) and not isinstance(target, IntegerType):
        return True
    return isinstance(source, IntegerType) == isinstance(target, IntegerType) and source.bitwidth < target.bitwidth


def _maps_attribute(parser: Parser, start: int, attribute: Attribute) -> ArrayAttr[AffineMapAttr]:
    if not isa(attribute, ArrayAttr[AffineMapAttr]):
        parser.raise_error(f"expected indexing_maps to be a list of affine maps, got {attribute}", start)
    return attribute


def _parse_operands(parser: Parser, keyword: str) -> tuple[list[UnresolvedOperand], list[Attribute]]:
    """`keyword(%a, %b : type, type)`."""
    parser.parse_characters(keyword)
    parser.parse_punctuation("(")
    operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
    parser.parse_punctuation(":")
    start = parser.pos
    types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    parser.parse_punctuation(")")
    if len(operands) != len(types):
        parser.raise_error(f"expected a type for each of {len(operands)} operands, got {len(types)}", start)
    return operands, list(types)


def _parse_results(parser: Parser) -> list[Attribute]:
    if not parser.parse_optional_punctuation("->"):
        return []
    types = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    return [parser.parse_type()] if types is None else list(types)
