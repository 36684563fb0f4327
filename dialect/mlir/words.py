"""Operations, attributes and directives that a row defines; attributes of words, and of parameters by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, TypeVar, cast

from xdsl.dialects.builtin import DenseArrayBase, IntAttr, IntegerAttr, IntegerType, StringAttr, i32, i64
from xdsl.ir import Attribute, OpTraits, ParametrizedAttribute, SpacedOpaqueSyntaxAttribute
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    OpDef,
    PropertyDef,
    VariadicDef,
    get_accessors_from_op_def,
    irdl_attr_definition,
    irdl_to_attr_constraint,
)
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


def _definition_of(kind: type[IRDLOperation]) -> OpDef:
    """What the fields of a class and of its parents define. The decorator takes the fields out of a class; of a parent
    without fields the definition is taken, and those of the classes in front of it are read without it."""
    parent: Any = next(each for each in kind.__mro__ if "get_irdl_definition" in vars(each))
    if parent is IRDLOperation:
        return OpDef.from_pyrdl(kind)
    front = [each for each in kind.__mro__ if parent in each.__mro__ and each is not parent]
    behind = tuple(each for each in kind.__mro__ if parent not in each.__mro__)
    members = {name: value for each in reversed(front) for name, value in vars(each).items() if name != "__dict__"}
    own = OpDef.from_pyrdl(cast(Any, type(kind))(kind.__name__, behind, members))
    theirs: OpDef = parent.get_irdl_definition()
    for fields in ("operands", "results", "regions", "successors"):
        setattr(own, fields, list({**dict(getattr(theirs, fields)), **dict(getattr(own, fields))}.items()))
    for fields in ("properties", "attributes", "accessor_names"):
        setattr(own, fields, {**getattr(theirs, fields), **getattr(own, fields)})
    more = own.traits
    own.traits = OpTraits(lambda: (*theirs.traits.gen_traits(), *more.gen_traits()))
    own.options += [each for each in theirs.options if each not in own.options]
    return own


@cache
def _program(kind: type[IRDLOperation]) -> FormatProgram:
    """The format of a class, or of the next one behind it that has one."""
    every = cast("Sequence[type[IRDLOperation]]", kind.__mro__)
    definitions = (each.get_irdl_definition() for each in every if "get_irdl_definition" in vars(each))
    definition = next(each for each in definitions if each.assembly_format is not None)
    return FormatProgram.from_str(cast("str", definition.assembly_format), definition)


def _read(kind: type[OpT], parser: Parser) -> OpT:
    return _program(kind).parse(parser, kind)


def _write(op: IRDLOperation, printer: Printer) -> None:
    _program(type(op)).print(printer, op)


def irdl_op_definition(kind: type[OpT]) -> type[OpT]:
    """xDSL's decorator of an operation, but for its assembly format, which is parsed when the first operation is read
    or printed: that takes as long as all else, and a compilation reads and prints few of the operations that it makes.
    One with several operands that may be missing, or be many, has a property with the number of each."""
    definition = _definition_of(kind)
    several = sum(isinstance(operand, VariadicDef) for _, operand in definition.operands) > 1
    if several and not any(isinstance(option, AttrSizedOperandSegments) for option in definition.options):
        definition.options.append(AttrSizedOperandSegments(as_property=True))
        counts = PropertyDef(irdl_to_attr_constraint(DenseArrayBase))
        definition.properties[AttrSizedOperandSegments.attribute_name] = counts
    text, definition.assembly_format = definition.assembly_format, None
    members = get_accessors_from_op_def(definition, getattr(kind, "verify_", None))
    if text is not None:
        definition.assembly_format = text
        members |= {"parse": classmethod(_read), "print": _write}
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
    above = parent.__mro__  # `issubclass` asks all subclasses whether they are above, and keeps what each says
    if CustomDirective in above:
        return irdl_custom_directive(cast(Any, type(name, (parent,), members)))
    define: Any = irdl_op_definition if IRDLOperation in above else irdl_attr_definition
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


class FieldsAttr(ParametrizedAttribute):
    """An attribute or a type whose parameters are written by name, in any order: `<m = 16, n = 8>`,
    `<tensor = memref<64x64xf16, 3>, swizzle = none>`."""

    WORDS: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Parameters that are one bare word, and which words there are."""

    DEFAULTS: ClassVar[Mapping[str, Attribute]] = {}
    """Parameters that are left out of the text where they have this value."""

    SIZES: ClassVar[bool] = False
    """Whether all are numbers."""

    @classmethod
    def names(cls) -> list[str]:
        """The names of the parameters."""
        return [name for name, _ in cls.get_irdl_definition().parameters]

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        values, names = dict(cls.DEFAULTS), cls.names()

        def parse_parameter() -> None:
            name = parser.expect(lambda: parser.parse_optional_keyword_in(names), f"expected one of {', '.join(names)}")
            parser.parse_punctuation("=")
            values[name] = cls._parse_value(parser, name)

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parse_parameter)
        if missing := [name for name in names if name not in values]:
            parser.raise_error(f"expected {', '.join(missing)} in {cls.name}")
        return [values[name] for name in names]

    @classmethod
    def _parse_value(cls, parser: AttrParser, name: str) -> Attribute:
        if (words := cls.WORDS.get(name)) is not None:
            return StringAttr(
                parser.expect(lambda: parser.parse_optional_keyword_in(words), f"expected one of {words}")
            )
        if cls.SIZES:
            return IntAttr(parser.parse_integer())
        if isinstance(cls.DEFAULTS.get(name), IntegerAttr):
            return IntegerAttr(parser.parse_integer(), i32)
        return parser.parse_attribute()

    def print_parameters(self, printer: Printer) -> None:
        fields = zip(self.names(), self.parameters, strict=True)
        written = [(name, value) for name, value in fields if self.DEFAULTS.get(name) != value]
        with printer.in_angle_brackets():
            printer.print_list(written, lambda field: self._print_field(printer, *field))

    @staticmethod
    def _print_field(printer: Printer, name: str, value: Attribute) -> None:
        printer.print_string(f"{name} = ")
        match value:
            case StringAttr():
                printer.print_string(value.data)
            case IntAttr():
                printer.print_string(str(value.data))
            case IntegerAttr():
                printer.print_string(str(value.value.data))
            case _:
                printer.print_attribute(value)


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
