"""`linalg` as MLIR's users write it: xDSL's dialect with a matmul that widens and keeps its maps.

xDSL's `linalg.matmul` has neither the casts of a product whose result is wider than its operands
nor a text form for `indexing_maps`, and crashes on some malformed text. The operation here is a
subclass of it, so that a pattern written for xDSL's matches ours too.
Source: MLIR, Linalg dialect, `linalg.matmul`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    BFloat16Type,
    DictionaryAttr,
    Float16Type,
    Float32Type,
    IntegerType,
    MemRefType,
    TensorType,
)
from xdsl.dialects.linalg import Linalg, ops
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

Element: TypeAlias = AnyFloat | IntegerType
Matrix: TypeAlias = MemRefType[Element] | TensorType[Element]

WIDENING: tuple[tuple[Element, Element, Element], ...] = (
    (Float16Type(), Float16Type(), Float32Type()),
    (BFloat16Type(), BFloat16Type(), Float32Type()),
    (IntegerType(8), IntegerType(8), IntegerType(32)),
)
"""Element types of A, B and C where the operands are extended before they are multiplied. A product
of three equal types needs no row."""

METADATA = "warp.metadata"
"""The attribute of a product with a sparse A: which argument of the function holds the metadata."""

_NAMES = "ABC"
_LOOPS = "mnk"
_OPERAND_LOOPS = ((0, 2), (2, 1), (0, 1))
"""The loops (m, n, k by number) of the rows and columns of A, B and C when nothing is transposed."""

DEFAULT_MAPS = ArrayAttr(
    AffineMapAttr(AffineMap(3, 0, tuple(AffineDimExpr(loop) for loop in loops))) for loops in _OPERAND_LOOPS
)


class MatmulOp(ops.MatmulOp):
    """`C += A * B` on memrefs, or the tensor `C + A * B`; the operands are extended to C's type first.

    `indexing_maps`, when given, says which of A and B are stored transposed. MLIR's other maps,
    which repeat an operand along a loop, are refused. The IRDL definition is the base class's own.

    With `warp.metadata = i`, A is sparse: it has half as many columns as B has rows, and argument i of the function
    says where its elements belong (`docs/sparse.md`).
    """

    name = "linalg.matmul"

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        """The body MLIR gives the operation. Raises VerifyException for types that have no product."""
        if (problem := _operand_problem(_types(inputs), _types(outputs))) is not None:
            raise VerifyException(problem)
        block = Block(arg_types=cls.body_arg_types((*inputs, *outputs)))
        _fill_body(block)
        return Region(block)

    def verify_(self) -> None:
        self.get_irdl_definition().verify(self)
        for check in (self._operand_problem, self._maps_problem, self._shape_problem, self._result_problem):
            if (problem := check()) is not None:
                raise VerifyException(problem)
        if METADATA not in self.attributes:  # xDSL counts what is stored of A
            super().verify_()
        if not _is_product(self.body.block):
            raise VerifyException(
                "expected the body to extend A and B to C's type, multiply, and add to C; "
                "another body is written as linalg.generic"
            )

    @property
    def transposed(self) -> tuple[bool, bool]:
        """Whether A and B are stored transposed: A as K x M, B as N x K."""
        a, b, _ = (_loops_of(attr.data) for attr in self.indexing_maps)
        return a != _OPERAND_LOOPS[0], b != _OPERAND_LOOPS[1]

    def _operand_problem(self) -> str | None:
        return _operand_problem(_types(self.inputs), _types(self.outputs))

    def _maps_problem(self) -> str | None:
        maps = [attr.data for attr in self.indexing_maps]
        if len(maps) != 3:
            return f"expected three indexing_maps, one each for A, B and C, got {len(maps)}"
        for name, loops, map_ in zip(_NAMES, _OPERAND_LOOPS, maps, strict=True):
            allowed = [loops] if name == "C" else [loops, loops[::-1]]
            if map_.num_dims != 3 or map_.num_symbols or _loops_of(map_) not in allowed:
                texts = " or ".join(str(AffineMap(3, 0, tuple(map(AffineDimExpr, ls)))) for ls in allowed)
                return f"expected the indexing map of {name} to be {texts}, got {map_}"
        return None

    def _shape_problem(self) -> str | None:
        """Every loop has one length, whichever operand it is read from."""
        seen: dict[int, tuple[str, int, int]] = {}
        for name, operand, attr in zip(_NAMES, self.operands, self.indexing_maps, strict=True):
            shape = _matrix(operand.type).get_shape()
            for axis, (loop, length) in enumerate(zip(_loops_of(attr.data), shape, strict=True)):
                sparse = METADATA in self.attributes and (name, loop) == ("A", 2)
                size = 2 * length if sparse and length >= 0 else length
                other, other_axis, expected = seen.setdefault(loop, (name, axis, size))
                if expected != size and expected >= 0 and size >= 0:
                    return (
                        f"expected {other}'s {_ordinal(other_axis)} dimension and {name}'s {_ordinal(axis)} to agree"
                        f" ({_LOOPS[loop]}), got {expected} and {size}"
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
        maps = DEFAULT_MAPS
        if parser.parse_optional_keyword("indexing_maps"):
            parser.parse_punctuation("=")
            maps = _maps_attribute(parser, parser.pos, parser.parse_attribute())
        start = parser.pos
        attributes = dict(parser.parse_optional_attr_dict())
        attributes.pop("operandSegmentSizes", None)
        if (attribute := attributes.pop("indexing_maps", None)) is not None:
            maps = _maps_attribute(parser, start, attribute)
        inputs, input_types = _parse_operands(parser, "ins")
        outputs, output_types = _parse_operands(parser, "outs")
        results = _parse_results(parser)
        if (problem := _operand_problem(input_types, output_types)) is not None:
            parser.raise_error(problem, start)
        ins = parser.resolve_operands(inputs, input_types, start)
        outs = parser.resolve_operands(outputs, output_types, start)
        return cls.build(
            operands=(ins, outs),
            result_types=(results,),
            properties={"indexing_maps": maps},
            attributes=attributes,
            regions=(cls.get_hidden_region(ins, outs),),
        )

    def print(self, printer: Printer) -> None:
        if self.indexing_maps != DEFAULT_MAPS:
            printer.print_string(" indexing_maps = ")
            printer.print_attribute(self.indexing_maps)
        if self.attributes:
            printer.print_string(" ")
            printer.print_attribute(DictionaryAttr(self.attributes))
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
    return ("first", "second")[axis]


def _matrix(type_: Attribute) -> Matrix:
    """The type as a matrix. Raises VerifyException, with the fix, if it is not one."""
    if not isa(type_, Matrix):
        raise VerifyException(f"a memref or tensor of floats or integers, got {type_}")
    if len(type_.get_shape()) != 2:
        raise VerifyException(f"of rank 2, got rank {len(type_.get_shape())} ({type_})")
    return type_


def _operand_problem(inputs: Sequence[Attribute], outputs: Sequence[Attribute]) -> str | None:
    """What is wrong with the operands' number, kinds, ranks or element types; None if nothing is."""
    if len(inputs) != 2 or len(outputs) != 1:
        return f"expected two operands in ins(...) and one in outs(...), got {len(inputs)} and {len(outputs)}"
    types: list[Matrix] = []
    for name, type_ in zip(_NAMES, (*inputs, *outputs), strict=True):
        try:
            types.append(_matrix(type_))
        except VerifyException as error:
            return f"expected {name} to be {error}"
    if len({isinstance(type_, TensorType) for type_ in types}) > 1:
        return f"expected A, B and C to be all memrefs or all tensors, got {_listed(types)}"
    a, b, c = elements = tuple(type_.get_element_type() for type_ in types)
    if a == b == c or elements in WIDENING:
        return None
    return f"expected element types {_widening_forms()} or three equal types, got {a} x {b} -> {c}"


def _widening_forms() -> str:
    return ", ".join(f"{a} x {b} -> {c}" for a, b, c in WIDENING)


def _loops_of(map_: AffineMap) -> tuple[int, ...]:
    """The loops a map reads its dimensions from; -1 for any other expression."""
    return tuple(expr.position if isinstance(expr, AffineDimExpr) else -1 for expr in map_.results)


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


def _fill_body(block: Block) -> None:
    """Append `yield c + extend(a) * extend(b)` to a block of the three elements a, b and c."""
    a, b, c = block.args
    x, y = (_extended(block, factor, c.type) for factor in (a, b))
    floats = isinstance(c.type, AnyFloat)
    product = arith.MulfOp(x, y) if floats else arith.MuliOp(x, y)
    total = arith.AddfOp(c, product.result) if floats else arith.AddiOp(c, product.result)
    block.add_ops([product, total, ops.YieldOp(total.result)])


def _extended(block: Block, value: SSAValue, target: Attribute) -> SSAValue:
    """`value`, or its extension to `target` appended to the block; integers are signed."""
    if value.type == target:
        return value
    extend = arith.ExtSIOp if isa(target, IntegerType) else arith.ExtFOp
    cast = extend.build(operands=[value], result_types=[target])
    block.add_op(cast)
    return cast.results[0]


def _is_product(block: Block) -> bool:
    """Whether a body computes what `_fill_body` writes, in either order of the factors and terms."""
    expected = Block(arg_types=block.arg_types)
    _fill_body(expected)
    return _expression(block.last_op) == _expression(expected.last_op)


def _expression(value: Operation | SSAValue | None) -> object:
    """A hashable tree of operation names over argument numbers; operands of a sum or product unordered."""
    if isinstance(value, SSAValue):
        return _expression(value.owner) if isinstance(value.owner, Operation) else getattr(value, "index", None)
    if value is None:
        return None
    operands = [_expression(operand) for operand in value.operands]
    commutes = isinstance(value, arith.AddfOp | arith.AddiOp | arith.MulfOp | arith.MuliOp)
    return value.name, frozenset(operands) if commutes else tuple(operands)


LINALG = Dialect(
    "linalg",
    [MatmulOp if op is ops.MatmulOp else op for op in Linalg.operations],
    list(Linalg.attributes),
)
"""xDSL's `linalg` with the matmul above in place of its own."""
