"""`arith` as MLIR prints it: xDSL's dialect, with what MLIR says beside a conversion between floating-point types."""

from __future__ import annotations

from typing import TypeVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, IntegerAttr, i32
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.type import get_element_type_or_self

ROUNDING_MODES = ("to_nearest_even", "downward", "upward", "toward_zero", "to_nearest_away")
"""What MLIR calls them, by number."""

Conversion = TypeVar("Conversion", bound="arith.ExtFOp | arith.TruncFOp")


@irdl_op_definition
class ExtFOp(arith.ExtFOp):
    """The same number in a wider type: `arith.extf %x fastmath<contract> : f16 to f32`."""

    name = "arith.extf"
    assembly_format = None

    input = operand_def(arith.floatingPointLike)
    result = result_def(arith.floatingPointLike)
    fastmath = opt_prop_def(arith.FastMathFlagsAttr)

    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> ExtFOp:
        return _parsed(cls, parser)

    def print(self, printer: Printer) -> None:
        _print(self, printer)

    def verify_(self) -> None:
        if _bits(self.result.type) <= _bits(self.input.type):
            raise VerifyException(f"expected a type wider than {self.input.type}, got {self.result.type}")


@irdl_op_definition
class TruncFOp(arith.TruncFOp):
    """A number rounded to a narrower type: `arith.truncf %x fastmath<contract> : f32 to f16`.

    It is rounded to nearest even, which `to_nearest_even` before `fastmath` may say.
    """

    name = "arith.truncf"
    assembly_format = None

    input = operand_def(arith.floatingPointLike)
    result = result_def(arith.floatingPointLike)
    roundingmode = opt_prop_def(IntegerAttr)
    fastmath = opt_prop_def(arith.FastMathFlagsAttr)

    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> TruncFOp:
        return _parsed(cls, parser)

    def print(self, printer: Printer) -> None:
        _print(self, printer)

    def verify_(self) -> None:
        if _bits(self.result.type) >= _bits(self.input.type):
            raise VerifyException(f"expected a type narrower than {self.input.type}, got {self.result.type}")
        number = 0 if self.roundingmode is None else self.roundingmode.value.data
        if number not in range(len(ROUNDING_MODES)):
            raise VerifyException(f"expected a rounding mode of 0 to {len(ROUNDING_MODES) - 1}, got {number}")
        if number:
            raise VerifyException(f"expected arith.truncf to round to_nearest_even, got {ROUNDING_MODES[number]}")


def _bits(kind: Attribute) -> int:
    element = get_element_type_or_self(kind)
    return element.bitwidth if isinstance(element, AnyFloat) else 0


def _parsed(kind: type[Conversion], parser: Parser) -> Conversion:
    source = parser.parse_unresolved_operand()
    properties: dict[str, Attribute] = {}
    for number, mode in enumerate(ROUNDING_MODES if kind is TruncFOp else ()):
        if parser.parse_optional_keyword(mode) is not None:
            properties["roundingmode"] = IntegerAttr(number, i32)
    if parser.parse_optional_keyword("fastmath") is not None:
        properties["fastmath"] = arith.FastMathFlagsAttr(arith.FastMathFlagsAttr.parse_parameter(parser))
    attributes = parser.parse_optional_attr_dict()
    properties |= {name: attributes.pop(name) for name in ("roundingmode", "fastmath") if name in attributes}
    parser.parse_punctuation(":")
    operand = parser.resolve_operand(source, parser.parse_type())
    parser.parse_keyword("to")
    return kind.create(
        operands=[operand], result_types=[parser.parse_type()], properties=properties, attributes=attributes
    )


def _print(op: ExtFOp | TruncFOp, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_ssa_value(op.input)
    if isinstance(op, TruncFOp) and op.roundingmode is not None:
        printer.print_string(f" {ROUNDING_MODES[op.roundingmode.value.data]}")
    if op.fastmath is not None:
        printer.print_string(" fastmath")
        op.fastmath.print_parameter(printer)
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")
    printer.print_attribute(op.input.type)
    printer.print_string(" to ")
    printer.print_attribute(op.result.type)


_OWN = (arith.ExtFOp, arith.TruncFOp)

ARITH = Dialect(
    "arith",
    [*(op for op in arith.Arith.operations if op not in _OWN), ExtFOp, TruncFOp],
    list(arith.Arith.attributes),
)
"""xDSL's `arith` with these in place of its own; patterns written for xDSL's match them too."""
