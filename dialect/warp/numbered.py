"""The text of operations on one value with numbers in brackets: `%d[16, 0] : type to type`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from xdsl.dialects.builtin import DenseArrayBase, i64
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser
from xdsl.printer import Printer

NumberedT = TypeVar("NumberedT", bound=IRDLOperation)


def parse_numbered(kind: type[NumberedT], parser: Parser, name: str) -> NumberedT:
    """Reads an operation of a kind, whose numbers are the property of that name."""
    position = parser.pos
    value = parser.parse_unresolved_operand()
    numbers = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    given = parser.parse_type()
    parser.parse_keyword("to")
    return kind.create(
        operands=parser.resolve_operands([value], [given], position),
        properties={name: DenseArrayBase.from_list(i64, numbers)},
        attributes=attributes,
        result_types=[parser.parse_type()],
    )


def print_numbered(printer: Printer, op: IRDLOperation, numbers: Sequence[int], before: str = "") -> None:
    """Prints what `parse_numbered` reads, with `before` between the value and its numbers."""
    printer.print_string(" ")
    printer.print_ssa_value(op.operands[0])
    printer.print_string(f"{before}[{', '.join(map(str, numbers))}]")
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")
    printer.print_attribute(op.operands[0].type)
    printer.print_string(" to ")
    printer.print_attribute(op.results[0].type)
