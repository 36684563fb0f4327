"""What the text of operations has beside what a declarative format can say."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.irdl import IRDLOperation
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    FormatDirective,
    OptionalOperandVariable,
    ParsingState,
    PrintingState,
    TypeDirective,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer


@irdl_custom_directive
class BareWord(CustomDirective):
    """A text that stands without quotes, as `columns` in `warp.step columns %start`; or none, where it is optional."""

    attribute: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        optional = self.attribute.is_optional
        word = parser.parse_optional_identifier() if optional else parser.parse_identifier(" as a word of the text")
        if word is not None:
            self.attribute.set(state, StringAttr(word))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if isinstance(word := self.attribute.get(op), StringAttr):
            state.print_whitespace(printer)
            printer.print_string(word.data)
            state.should_emit_space = True


@irdl_custom_directive
class TypeOfOptional(CustomDirective):
    """The type of an operand that may be left out, and what stands before it: ` plus memref<256x320xf32>`."""

    before: FormatDirective
    type: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        start, operand = parser.pos, self.type.inner
        self.before.parse_optional(parser, state)
        given = isinstance(operand, OptionalOperandVariable) and bool(state.operands[operand.index])
        if given != (parser.pos > start):
            name = operand.name if isinstance(operand, OptionalOperandVariable) else "it"
            parser.raise_error(
                f"expected {'the' if given else 'no'} type of {name}, which is {'' if given else 'not '}given"
            )
        self.type.set(state, (parser.parse_type(),) if given else ())

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if self.type.get(op):
            self.before.print(printer, state, op)
            self.type.print(printer, state, op)
