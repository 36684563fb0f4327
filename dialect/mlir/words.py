"""Attributes that are one of several words, as enumerations of MLIR's dialects are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute, SpacedOpaqueSyntaxAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer


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
    members = {
        "name": name,
        "WORDS": listed,
        "__annotations__": {"word": StringAttr},  # a field of this class, by which its attributes are compared
        "__module__": __name__,
        "__doc__": f"One of {', '.join(listed)}.",
    }
    return irdl_attr_definition(type(name, (base,), members))
