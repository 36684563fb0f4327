"""Operations, attributes and directives that a row defines; attributes that are one of several words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, TypeVar, cast

from xdsl.dialects.builtin import IntegerAttr, IntegerType, StringAttr, i64
from xdsl.ir import Attribute, ParametrizedAttribute, SpacedOpaqueSyntaxAttribute
from xdsl.irdl import IRDLOperation, OpDef, get_accessors_from_op_def, irdl_attr_definition
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    FormatProgram,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

DefinedT = TypeVar("DefinedT", bound=IRDLOperation | Attribute | CustomDirective)
OpT = TypeVar("OpT", bound=IRDLOperation)


def irdl_op_definition(kind: type[OpT]) -> type[OpT]:
    """xDSL's decorator of an operation, but for its assembly format, which is parsed when the first operation is read
    or printed: that takes as long as all else, and a compilation reads and prints few of the operations that it makes.
    """
    definition = OpDef.from_pyrdl(kind)
    text, definition.assembly_format = definition.assembly_format, None
    members = get_accessors_from_op_def(definition, getattr(kind, "verify_", None))
    if text is not None:
        definition.assembly_format = text
        program = cache(lambda: FormatProgram.from_str(text, definition))

        def read(own: type[OpT], parser: Parser) -> OpT:
            return program().parse(parser, own)

        def write(op: IRDLOperation, printer: Printer) -> None:
            program().print(printer, op)

        members |= {"parse": classmethod(read), "print": write}
    for name, member in members.items():
        setattr(kind, name, member)
    return kind


def defined(
    parent: type[DefinedT], name: str, summary: str, parameters: Mapping[str, object] | None = None, /, **fields: object
) -> type[DefinedT]:
    """An operation, an attribute or a directive by its name, what it is, its parameters, by which attributes are
    compared, and its fields. Fields in capitals are constants."""
    kinds = {**(parameters or {}), **{field: ClassVar for field in fields if field.isupper()}}
    members = {"__module__": __name__, "__doc__": summary, "__annotations__": kinds, **fields}
    if issubclass(parent, CustomDirective):
        return irdl_custom_directive(cast(Any, type(name, (parent,), members)))
    define: Any = irdl_op_definition if issubclass(parent, IRDLOperation) else irdl_attr_definition
    return define(type(name, (parent,), {"name": name, **members}))


class WordAttr(ParametrizedAttribute):
    """A keyword out of a fixed set."""

    WORDS: ClassVar[Sequence[str]] = ()

    word: StringAttr

    @classmethod
    def of(cls, word: str) -> WordAttr:
        return cls(StringAttr(word))

    @classmethod
    def parse_word(cls, parser: AttrParser) -> StringAttr:
        """Reads a word, which may have dots."""
        place = parser.pos
        word = parser.parse_identifier(f" as one of {', '.join(cls.WORDS)}")
        if word not in cls.WORDS:
            parser.raise_error(f"expected one of {', '.join(cls.WORDS)}, got {word}", place)
        return StringAttr(word)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (cls.parse_word(parser),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.word.data)


class BareWordAttr(WordAttr, SpacedOpaqueSyntaxAttribute):
    """A keyword that operations print without brackets: `#nvvm<shfl_kind bfly>` alone."""

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        return (cls.parse_word(parser),)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(self.word.data)


def words(name: str, text: str, base: type[WordAttr] = WordAttr) -> type[WordAttr]:
    """An attribute by its name and its words."""
    listed = tuple(text.split())
    return defined(base, name, f"One of {', '.join(listed)}.", {"word": StringAttr}, WORDS=listed)


class WordText(CustomDirective):
    """The text of a property that is one word of a list, by its number there; an optional one may be left out."""

    WORDS: ClassVar[Sequence[str]]
    KIND: ClassVar[IntegerType] = i64

    attribute: AttributeVariable

    @classmethod
    def attribute_of(cls, word: str) -> Attribute:
        return IntegerAttr(cls.WORDS.index(word), cls.KIND)

    def parse(self, parser: Parser, state: ParsingState) -> None:
        word = parser.parse_optional_keyword_in(self.WORDS)
        if word is not None:
            self.attribute.set(state, self.attribute_of(word))
        elif not self.attribute.is_optional:
            parser.raise_error(f"expected one of {', '.join(self.WORDS)}")

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        value = self.attribute.get(op)
        if value is not None:
            state.print_whitespace(printer)
            printer.print_string(next(word for word in self.WORDS if self.attribute_of(word) == value))


# Attributes that are kept as text.


class CarriedAttr(ParametrizedAttribute):
    """An attribute that is kept as text, from its bracket on: `<chip = "sm_80">`."""

    text: StringAttr

    @classmethod
    def of(cls, text: str) -> CarriedAttr:
        return cls(StringAttr(text))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        depth, start = 0, parser.pos
        while True:
            token = parser._current_token  # pyright: ignore[reportPrivateUsage]
            if not depth and token.text != "<":
                return (StringAttr(""),)
            depth += (token.text in OPENING) - (token.text in CLOSING)
            parser._consume_token()  # pyright: ignore[reportPrivateUsage]
            if not depth:
                text = parser.lexer.input.content[start : token.span.end]
                return (StringAttr(re.sub(r'("(?:[^"\\]|\\.)*")|\s+', lambda part: part[1] or " ", text)),)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(self.text.data)


OPENING, CLOSING = ("<", "(", "[", "{"), (">", ")", "]", "}")


def carried(name: str) -> type[CarriedAttr]:
    """An attribute by its name."""
    return defined(CarriedAttr, name, f"`#{name}`, as it is written.", {"text": StringAttr})
