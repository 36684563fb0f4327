"""`vector` as MLIR prints it: xDSL's dialect, and the product and the gather that it lacks."""

from __future__ import annotations

from xdsl.dialects import vector
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IndexType, MemRefType, VectorType
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from .upstream import declared


@irdl_op_definition
class VectorContractOp(IRDLOperation):
    """Sums of products of vectors, added to `acc`: `vector.contract {indexing_maps = [...], iterator_types = [...],
    kind = #vector.kind<add>} %a, %b, %c : vector<16x16xf16>, vector<8x16xf16> into vector<16x8xf16>`."""

    name = "vector.contract"

    lhs = operand_def(VectorType[Attribute])
    rhs = operand_def(VectorType[Attribute])
    acc = operand_def(Attribute)
    indexing_maps = prop_def(ArrayAttr)
    iterator_types = prop_def(ArrayAttr)
    kind = prop_def(vector.CombiningKindAttr, default_value=vector.CombiningKindAttr(vector.CombiningKindFlag.ADD))
    result = result_def(Attribute)

    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> VectorContractOp:
        place, properties = parser.pos, parser.parse_attribute()
        if not isinstance(properties, DictionaryAttr):
            parser.raise_error(f"expected maps and kinds of loops in braces, got {properties}", place)
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kinds = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        parser.parse_keyword("into")
        kinds.append(parser.parse_type())
        values = parser.resolve_operands(operands, kinds, place)
        return cls.create(
            operands=values, result_types=[kinds[-1]], properties=dict(properties.data), attributes=attributes
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(DictionaryAttr(self.properties))
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list([self.lhs.type, self.rhs.type], printer.print_attribute)
        printer.print_string(" into ")
        printer.print_attribute(self.result.type)


VECTOR = Dialect(
    "vector",
    [
        *vector.Vector.operations,
        VectorContractOp,
        declared(
            IRDLOperation, "vector.gather",
            "$base `[` $offsets `]` `[` $indices `]` `,` $mask `,` $pass_thru attr-dict `:` type($base) `,`"
            " type($indices) `,` type($mask) `,` type($pass_thru) `into` type($result)",
            "Elements of memory at indices.", base=operand_def(MemRefType), offsets=var_operand_def(IndexType()),
            indices=operand_def(VectorType), mask=operand_def(VectorType), pass_thru=operand_def(VectorType),
            result=result_def(VectorType),
        ),
    ],
    list(vector.Vector.attributes),
)  # fmt: skip
"""xDSL's `vector` with these beside its own."""
