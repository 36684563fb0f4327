"""`linalg.softmax`, which xDSL 0.74 lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import AnyFloat, IntegerAttr, MemRefType, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_result_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

TensorOrMemory: TypeAlias = TensorType[Attribute] | MemRefType[Attribute]


@irdl_op_definition
class SoftmaxOp(IRDLOperation):
    """exp(x - max) / sum(exp(x - max)) along one dimension, on a tensor or memory of floating-point numbers::

    %y = linalg.softmax dimension(2) ins(%x : tensor<2x40x70xf32>) outs(%e : tensor<2x40x70xf32>)
           -> tensor<2x40x70xf32>
    linalg.softmax dimension(1) ins(%x : memref<40x70xf32>) outs(%y : memref<40x70xf32>)
    """

    name = "linalg.softmax"

    input = operand_def()
    output = operand_def()
    dimension = prop_def(IntegerAttr)
    result = opt_result_def()

    def __init__(self, value: SSAValue, output: SSAValue, dimension: int, results: Sequence[Attribute] = ()):
        super().__init__(
            operands=[value, output],
            properties={"dimension": IntegerAttr(dimension, i64)},
            result_types=[list(results)],
        )

    def verify_(self) -> None:
        kind, output, at = self.input.type, self.output.type, self.dimension.value.data
        if not isa(kind, TensorOrMemory) or not isinstance(kind.element_type, AnyFloat):
            raise VerifyException(f"expected a tensor or memory of floating-point numbers, got {kind}")
        if not isa(output, TensorOrMemory) or type(output) is not type(kind) or output.get_shape() != kind.get_shape():
            raise VerifyException(f"expected an output of the shape of the input {kind}, got {output}")
        if not 0 <= at < kind.get_num_dims():
            raise VerifyException(f"expected a dimension of 0 to {kind.get_num_dims() - 1}, got {at}")
        if [r.type for r in self.results] != ([output] if isinstance(kind, TensorType) else []):
            raise VerifyException("expected one result of the output's type on tensors, and none on memory")

    @classmethod
    def parse(cls, parser: Parser) -> SoftmaxOp:
        attributes = parser.parse_optional_attr_dict()
        parser.parse_keyword("dimension")
        with parser.in_parens():
            dimension = parser.parse_integer(allow_negative=False, allow_boolean=False)
        values: list[SSAValue] = []
        for keyword in ("ins", "outs"):
            parser.parse_keyword(keyword)
            with parser.in_parens():
                operand = parser.parse_unresolved_operand()
                parser.parse_punctuation(":")
                values.append(parser.resolve_operand(operand, parser.parse_type()))
        results = [parser.parse_type()] if parser.parse_optional_punctuation("->") else []
        op = cls(values[0], values[1], dimension, results)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_op_attributes(self.attributes)
        printer.print_string(f" dimension({self.dimension.value.data})")
        for keyword, value in (("ins", self.input), ("outs", self.output)):
            printer.print_string(f" {keyword}(")
            printer.print_ssa_value(value)
            printer.print_string(" : ")
            printer.print_attribute(value.type)
            printer.print_string(")")
        for result in self.results:
            printer.print_string(" -> ")
            printer.print_attribute(result.type)
