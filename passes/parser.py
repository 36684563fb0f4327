"""xDSL's parser of MLIR, which remembers where each operation stood and reads what MLIR prints behind a module."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import TypeVar, cast

from xdsl.context import Context
from xdsl.dialects.builtin import (
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    LocationAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.utils.exceptions import DiagnosticException, ParseError
from xdsl.utils.lexer import Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from ..dialect.mlir.locations import parts_of
from .diagnostics import LocatedError, with_notes

_Element = TypeVar("_Element")


def _check_location(span: Span, value: Attribute) -> LocationAttr:
    """The value of an alias that stands in a location."""
    if not isinstance(value, LocationAttr):
        raise ParseError(span, f"expected the alias of a location, got {span.text}, which is {value}")
    return value


class LocatingParser(Parser):
    """xDSL's parser, which also remembers where each operation stood, and lets nothing but a
    ParseError or another diagnostic out of malformed text.
    """

    def __init__(self, ctx: Context, text: str, name: str, line_offset: int = 0) -> None:
        super().__init__(ctx, text, name)
        self._file = StringAttr(name)
        self._line_offset = line_offset
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._used_before: dict[str, Span] = {}
        """Aliases of locations whose definitions come later, with the first use of each."""
        self._starts: dict[Operation, int] = {}

    def location_at(self, position: int) -> FileLineColLoc:
        """The place of a character offset, counting lines and columns from one."""
        line = bisect_right(self._line_starts, position)
        column = position - self._line_starts[line - 1] + 1
        return FileLineColLoc(self._file, IntAttr(line + self._line_offset), IntAttr(column))

    def parse_operation(self) -> Operation:
        start = self.pos
        try:
            op = super().parse_operation()
        except (ParseError, DiagnosticException, ImportError, RecursionError):
            raise
        except Exception as error:
            # xDSL checks some of what it reads by assertion or by the exception of a helper
            raise self._unreadable(start, error) from error
        if isinstance(op.location, UnknownLoc):
            op.location = self.location_at(start)
        elif self._used_before:
            self._starts[op] = start
        return op

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        try:
            module = super().parse_module(allow_implicit_module)
            if self._used_before:
                self._resolve_aliases(module)
            if self.dialect_resources:
                self._embed_resources(module)
            return module
        except (ParseError, LocatedError, ImportError, RecursionError):
            raise
        except DiagnosticException as error:
            place = self.location_at(self.pos)
            where = f"{self._file.data}:{place.line.data}:{place.column.data}"
            raise with_notes(LocatedError(where, str(error)), error) from error
        except Exception as error:
            raise self._unreadable(self.pos, error) from error

    def _embed_resources(self, module: ModuleOp) -> None:
        """Gives constants that name a resource of the text its elements; those of one without contents stay names."""
        from ..dialect.mlir.builtin import ResourceBlobs, embed

        resources = self.ctx.get_dialect("builtin").get_interface(ResourceBlobs)
        if resources is not None:
            embed(module, resources.take_all())

    def _parse_external_resources(self) -> None:
        """Passes over what tools keep behind a module; `warploom-opt --run-reproducer` reads it from the text."""
        self.parse_comma_separated_list(self.Delimiter.BRACES, self._parse_external_resource)

    def _parse_external_resource(self) -> None:
        self.parse_identifier()
        self.parse_punctuation(":")
        if self._current_token.kind == MLIRTokenKind.L_BRACE:
            self._parse_external_resources()
        elif self.parse_optional_str_literal() is None and self.parse_optional_boolean() is None:
            self.parse_integer()

    def parse_comma_separated_list(
        self, delimiter: Parser.Delimiter, parse: Callable[[], _Element], context_msg: str = ""
    ) -> list[_Element]:
        """xDSL's list, but behind an arrow one type needs no parentheses, as in MLIR: `scf.for` wants them."""
        before = self.lexer.input.content[max(self.pos - 40, 0) : self.pos].rstrip()
        if delimiter is Parser.Delimiter.PAREN and before.endswith("->") and self._current_token.text != "(":
            return [parse()]
        return super().parse_comma_separated_list(delimiter, parse, context_msg)

    def parse_optional_location(self) -> LocationAttr | None:
        """As xDSL's, and also: ranges, of which the start is kept; metadata of fused locations, which are dropped; and
        aliases that are defined later, which `parse_module` replaces.
        """
        if not self.parse_optional_characters("loc"):
            return None
        with self.in_parens():
            return self._location()

    def _location(self) -> LocationAttr:
        if self._current_token.kind == MLIRTokenKind.HASH_IDENT:
            return self._alias()
        if (name := self.parse_optional_str_literal()) is not None:
            return self._file_or_name(name)
        if self.parse_optional_keyword("callsite"):
            with self.in_parens():
                callee = self._location()
                self.parse_keyword("at")
                return CallSiteLoc(callee, self._location())
        if self.parse_optional_keyword("fused"):
            if self.parse_optional_punctuation("<"):
                self.parse_attribute()
                self.parse_punctuation(">")
            return FusedLoc(tuple(self.parse_comma_separated_list(self.Delimiter.SQUARE, self._location)), NoneAttr())
        self.parse_keyword("unknown", " or another location")
        return UnknownLoc()

    def _file_or_name(self, name: str) -> LocationAttr:
        if self.parse_optional_punctuation(":") is None:
            inner = NoneAttr()
            if self.parse_optional_punctuation("("):
                inner = self._location()
                self.parse_punctuation(")")
            return NameLoc(StringAttr(name), inner)
        line = self.parse_integer(allow_boolean=False, allow_negative=False)
        self.parse_punctuation(":")
        column = self.parse_integer(allow_boolean=False, allow_negative=False)
        if self.parse_optional_keyword("to"):
            self.parse_optional_integer(allow_boolean=False, allow_negative=False)
            self.parse_punctuation(":")
            self.parse_integer(allow_boolean=False, allow_negative=False)
        return FileLineColLoc(StringAttr(name), IntAttr(line), IntAttr(column))

    def _alias(self) -> LocationAttr:
        """The location that an alias stands for; under its name, where that is defined later."""
        span = self._current_token.span
        if span.text in self.attribute_aliases:
            return _check_location(span, self.parse_attribute())
        self._consume_token()
        self._used_before.setdefault(span.text, span)
        return NameLoc(StringAttr(span.text), NoneAttr())

    def _resolve_aliases(self, module: ModuleOp) -> None:
        """Gives operations and block arguments the locations whose aliases were defined after their use."""
        for name, span in self._used_before.items():
            if name not in self.attribute_aliases:
                raise ParseError(span, f"undefined symbol alias '{name}'")
            _check_location(span, self.attribute_aliases[name])
        for op in module.walk():
            op.location = self._resolved(op.location)
            if isinstance(op.location, UnknownLoc) and op in self._starts:
                op.location = self.location_at(self._starts[op])
            for argument in (a for region in op.regions for block in region.blocks for a in block.args):
                argument.location = self._resolved(argument.location)

    def _resolved(self, location: Attribute) -> LocationAttr:
        match location:
            case NameLoc() if location.desc.data in self._used_before:
                return self._resolved(self.attribute_aliases[location.desc.data])
            case NameLoc() if isinstance(location.location, LocationAttr):
                return NameLoc(location.desc, self._resolved(location.location))
            case CallSiteLoc():
                return CallSiteLoc(self._resolved(location.callee), self._resolved(location.caller))
            case FusedLoc():
                return FusedLoc(tuple(map(self._resolved, parts_of(location))), location.metadata)
            case _:
                return cast("LocationAttr", location)

    def _unreadable(self, start: int, error: Exception) -> ParseError:
        """An error at the current token; where that is on a line behind an operation, at the start of that."""
        text = self.lexer.input.content
        whole = "\n" in text[len(text[: self.pos].rstrip()) : self.pos] and start < self.pos
        detail = str(error) or "this is not something the operation accepts here"
        if whole and not str(error):
            detail = "its types or attributes are not those that this operation is known with"
        token = re.compile(r"\S*").match(text, start if whole else self.pos)
        span = Span(start, token.end(), self.lexer.input) if whole and token else self._current_token.span
        return ParseError(span, f"cannot read this: {detail}")
