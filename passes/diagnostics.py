"""Errors that name file, line and column: how they are raised, and how they are shown to a user."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NoReturn, TypeVar, cast

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
    UnregisteredOp,
)
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.utils.exceptions import DiagnosticException, MultipleSpansParseError, ParseError, VerifyException
from xdsl.utils.lexer import Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from ..dialect.mlir.locations import line_of, parts_of

_Element = TypeVar("_Element")


class LocatedError(DiagnosticException):
    """A diagnostic that knows where in the user's file it belongs; `location` is "file:line:col"."""

    def __init__(self, location: str, message: str) -> None:
        super().__init__(location, message)
        self.location = location
        self.message = message

    def __str__(self) -> str:
        return f"{self.location}: error: {self.message}"


def name_of(op: Operation) -> str:
    """The name of an operation, also where its dialect is not known."""
    return op.op_name.data if isinstance(op, UnregisteredOp) else op.name


def location_of(op: Operation) -> str | None:
    """ "file:line:col" of an operation, or of the nearest enclosing one that has a location."""
    ancestor: Operation | None = op
    while ancestor is not None:
        if (location := line_of(ancestor.location)) is not None:
            return f"{location.filename.data}:{location.line.data}:{location.column.data}"
        ancestor = ancestor.parent_op()
    return None


def place_of(op: Operation) -> str:
    """ "file:line:col: " of an operation, to start a message with; empty where it is not known."""
    location = location_of(op)
    return "" if location is None else f"{location}: "


def fail(op: Operation, message: str) -> NoReturn:
    """Stop the compilation because of `op`, with its place in the user's file where that is known.

    For passes: an operation made from another keeps its place when given the other's `location`.
    """
    location, message = location_of(op), message.replace(UnregisteredOp.name, name_of(op))
    raise DiagnosticException(message) if location is None else LocatedError(location, message)


_REMARKS: ContextVar[list[str] | None] = ContextVar("remarks", default=None)
_CHOSEN: ContextVar[bool] = ContextVar("chosen", default=False)

CHOSEN = "[chosen] "
"""What a remark begins with, behind the pass, that says what was done."""


@contextmanager
def remarks(*, chosen: bool = False) -> Generator[list[str]]:
    """Collects what passes say of operations that they leave as they are: `file:line:col: remark: pass: message`; with
    `chosen`, also what they do, where there was a choice: `... remark: pass: [chosen] message`."""
    tokens = _REMARKS.set(found := []), _CHOSEN.set(chosen)
    try:
        yield found
    finally:
        _REMARKS.reset(tokens[0])
        _CHOSEN.reset(tokens[1])


def remark(op: Operation, by: str, message: str) -> None:
    """Says where and why the pass `by` declines; heard by `remarks`."""
    _say(op, "remark", by, message)


def chose(op: Operation, by: str, message: str) -> None:
    """Says what the pass `by` makes of an operation, where there was a choice; heard by `remarks(chosen=True)`."""
    if _CHOSEN.get():
        _say(op, "remark", by, f"{CHOSEN}{message}")


def warn(op: Operation, by: str, message: str) -> None:
    """Says what the pass `by` left that was hardly meant to be left; heard by `remarks`, shown unasked by commands."""
    _say(op, "warning", by, message)


def is_warning(said: str) -> bool:
    """Whether a line that `remarks` collected is one of `warn`."""
    return re.match(r"(\S.*?: )?warning: ", said) is not None


def _say(op: Operation, kind: str, by: str, message: str) -> None:
    if (collected := _REMARKS.get()) is not None:
        collected.append(f"{place_of(op)}{kind}: {by}: {message}")


def culprit(root: Operation) -> Operation | None:
    """The operation whose own verifier fails, in the order in which verification visits them."""
    for op in root.walk(region_first=True):
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException:
            return op
    return None


@contextmanager
def located(module: ModuleOp) -> Generator[None]:
    """Give a verifier's complaint that leaves the block the place of the operation it is about."""
    try:
        yield
    except VerifyException as error:
        op = culprit(module)
        location = None if op is None else location_of(op)
        if op is None or location is None:
            raise
        raise _with_notes(LocatedError(location, f"{op.name}: {error}"), error) from error


def verify(module: ModuleOp) -> None:
    """Verify a module. Raises LocatedError where the operation at fault has a place in a file."""
    with located(module):
        module.verify()


def describe(error: BaseException) -> str:
    """An error as a user should read it: `file:line:col: error: message` where the place is known."""
    if isinstance(error, ParseError):
        return _describe_parse_error(error)
    text = str(error).strip()
    if isinstance(error, LocatedError) or _LOCATED.match(text):
        return text
    return f"error: {text or type(error).__name__}"


_LOCATED = re.compile(r"\S[^\n]*?:\d+:\d+: error: ")


def _describe_parse_error(error: ParseError) -> str:
    """xDSL shows the place, the line, a caret and the message; here the message comes first."""
    place, *context = error.span.print_with_context().rstrip("\n").split("\n")
    lines = [f"{place}: error: {error.msg.strip() or 'syntax error'}", *context]
    if isinstance(error, MultipleSpansParseError):
        lines += [span.print_with_context(message).rstrip("\n") for span, message in error.refs]
    return "\n".join(lines)


def _with_notes(error: LocatedError, cause: BaseException) -> LocatedError:
    for note in getattr(cause, "__notes__", ()):
        error.add_note(note)
    return error


def _check_location(span: Span, value: Attribute) -> LocationAttr:
    """The value of an alias that stands in a location."""
    if not isinstance(value, LocationAttr):
        raise ParseError(span, f"expected the alias of a location, got {span.text}, which is {value}")
    return value


@dataclass(frozen=True)
class Said:
    """A diagnostic: its kind ("error", "warning", "remark" or "note"), its text, and its place, where it has one."""

    kind: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0

    @staticmethod
    def of(kind: str, location: str, message: str) -> Said:
        """A diagnostic at "file:line:col"."""
        file, line, column = location.rsplit(":", 2)
        return Said(kind, message, file, int(line), int(column))

    @staticmethod
    def of_error(error: Exception) -> list[Said]:
        """An exception, and the notes at other places that come with it."""
        if isinstance(error, LocatedError):
            return [Said.of("error", error.location, error.message)]
        if not isinstance(error, ParseError):
            return [Said("error", str(error))]
        refs = error.refs if isinstance(error, MultipleSpansParseError) else ()
        spans = [("error", error.span, error.msg), *(("note", span, message or "") for span, message in refs)]
        return [Said.of(kind, str(span.get_location()), message) for kind, span, message in spans]

    @staticmethod
    def of_line(line: str) -> Said:
        """A line that `remarks` collected."""
        match = re.fullmatch(r"(?:(\S.*?:\d+:\d+): )?(remark|warning): (.*)", line, re.DOTALL)
        if match is None:
            raise ValueError(f"expected a remark or a warning, got '{line}'")
        return Said(match[2], match[3]) if match[1] is None else Said.of(match[2], match[1], match[3])

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.file else ""
        return f"{place}error: unexpected {self.kind}: {self.message}"


@dataclass
class _Expected:
    """A comment that expects a diagnostic on a line; None for one without a place. `column` is where `text` stands."""

    kind: str
    text: str
    pattern: re.Pattern[str]
    written: int
    column: int
    line: int | None
    met: bool = False


class ExpectedDiagnostics:
    """The diagnostics that comments of a file expect, as `mlir-opt --verify-diagnostics` reads them::

        // expected-error @below {{part of the text}}
        // expected-remark-re @+2 {{took {{[0-9]+}} steps}}

    `offset` is the number of lines of the file before the text. Source: MLIR, Diagnostics,
    SourceMgrDiagnosticVerifierHandler.
    """

    _COMMENT = re.compile(
        r"expected-(error|note|remark|warning)(-re)? *(@([+-]\d+|above|below|unknown))? *\{\{(.*)\}\}$"
    )

    def __init__(self, text: str, name: str, offset: int = 0) -> None:
        self._name = name
        self._problems: list[str] = []
        self._expected: list[_Expected] = []
        below: list[_Expected] = []
        above, last = offset, offset + text.count("\n") + 1
        for number, line in enumerate(text.split("\n"), offset + 1):
            match = self._COMMENT.search(line.removesuffix("\r"))
            if match is None:
                for expected in below:
                    expected.line = number
                below, above = [], number
                continue
            expected = self._read(match, number)
            if expected is None:
                continue
            self._expected.append(expected)
            match match[4]:
                case "unknown":
                    expected.line = None
                case "above":
                    expected.line = above
                case "below":
                    expected.line = last
                    below.append(expected)
                case _:
                    expected.line = number + int(match[4] or 0)

    def _read(self, match: re.Match[str], number: int) -> _Expected | None:
        kind, text, column = match[1], match[5], match.start() + 1
        parts = re.split(r"\{\{(.*?)\}\}", text) if match[2] else [text]
        source = "".join(f"(?:{part})" if i % 2 else re.escape(part) for i, part in enumerate(parts))
        try:
            return _Expected(kind, text, re.compile(source, re.DOTALL), number, column, number)
        except re.error as error:
            self._problems.append(f"{self._name}:{number}:{column}: error: invalid regex: {error}")
            return None

    def meet(self, said: Said) -> None:
        """Compares a diagnostic with those that are expected."""
        near: _Expected | None = None
        for expected in self._expected:
            placed = expected.line == said.line and said.file == self._name if said.file else expected.line is None
            if not placed or not expected.pattern.search(said.message):
                continue
            if expected.kind == said.kind:
                expected.met = True
                return
            near = expected
        if near is None:
            self._problems.append(str(said))
            return
        place = f"{self._name}:{near.written}:{near.column}"
        self._problems.append(
            f"{place}: error: '{said.kind}' diagnostic emitted when expecting a '{near.kind}': {said.message}"
        )

    def problems(self) -> list[str]:
        """What was said unexpectedly, then what was expected and not said."""
        missing = [
            f'{self._name}:{e.written}:{e.column}: error: expected {e.kind} "{e.text}" was not produced'
            for e in self._expected
            if not e.met
        ]
        return [*self._problems, *missing]


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
            raise _with_notes(LocatedError(where, str(error)), error) from error
        except Exception as error:
            raise self._unreadable(self.pos, error) from error

    def _embed_resources(self, module: ModuleOp) -> None:
        """Gives constants that name a resource of the text its elements; those of one without contents stay names."""
        from ..dialect.mlir.builtin import Resources, embed

        resources = self.ctx.get_dialect("builtin").get_interface(Resources)
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
