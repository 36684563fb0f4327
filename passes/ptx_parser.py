"""PTX text to `syntax` records.

One regular expression takes a statement at a time, and operand texts are remembered, so that
large files parse quickly. Meaning is not looked at here.
Source: PTX ISA, chapters 4 (Syntax), 5 (Variables), 7 (Functions) and 11 (Directives).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from ..dialect.ptx.operands import IDENTIFIER, OperandError, OperandReader
from ..dialect.ptx.syntax import (
    Comment,
    Directive,
    Function,
    Guard,
    Instruction,
    Label,
    Module,
    RegDecl,
    Scope,
    Statement,
    Variable,
    integer,
)
from ..dialect.ptx.types import REGISTER_BITS

MOST_REGISTERS = 1 << 20
"""Registers that one declaration may make; far more than compilers do, and what memory is made for."""


class PtxSyntaxError(Exception):
    """Text that is not PTX. `line` and `column` count from 1."""

    def __init__(self, file: str, line: int, column: int, message: str) -> None:
        # What is quoted from the text may run over lines; a message does not.
        message = " ".join(message.split())
        super().__init__(file, line, column, message)
        self.file = file
        self.line = line
        self.column = column
        self.message = message

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: error: {self.message}"


def parse_ptx(text: str, name: str = "<ptx>") -> Module:
    """Reads a PTX translation unit; `name` is the file's, for messages.

    Raises:
        PtxSyntaxError: at the first statement that is not PTX.
    """
    return _Parser(text, name).module()


_BLANKED = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)

_STATEMENT = re.compile(
    rf"""\s*(?:
      (?P<label>{IDENTIFIER})\s*:(?!:)
    | (?:@(?P<not>!?)\s*(?P<guard>{IDENTIFIER})\s+)?
      (?P<opcode>[a-z]\w*+(?:(?:\.|::)\w++)*+)
      (?P<operands>(?:\s|(?=[{{(\[%]))[^;{{}}]*+(?:\{{[^;{{}}]*+\}}[^;{{}}]*+)*+)?;
    | //(?P<comment>[^\n]*)
    | (?P<directive>\.[a-z]\w*)
    | (?P<open>\{{)
    | (?P<close>\}})
    )""",
    re.ASCII | re.VERBOSE,
)

_STATE_SPACES = frozenset((".global", ".shared", ".const", ".local", ".param"))
_LINKING = frozenset((".visible", ".extern", ".weak", ".common"))

_VARIABLE = re.compile(
    r"\s*(?:\.(?P<linking>visible|extern|weak|common)\s+)?\.(?P<space>global|shared|const|local|param|reg)(?P<cta>::\w+)?"
    r"(?:\s*\.align\s+(?P<align>\d+))?(?:\s*\.v(?P<vector>[24]))?\s*\.(?P<type>\w+)"
    r"(?P<pointer>\s*\.ptr(?:\s*\.(?:global|shared|const|local|param))?(?:\s*\.align\s+\d+)?)?",
    re.ASCII,
)
_DECLARATOR = re.compile(
    rf"\s*(?P<name>{IDENTIFIER})\s*(?:<\s*(?P<count>\d+)\s*>)?(?P<dims>(?:\s*\[\s*\w*\s*\])*)\s*", re.ASCII
)
_HEADER = re.compile(r"\s*\.(?P<kind>version|target|address_size)\s+(?P<value>[\w.]+(?:[ \t]*,[ \t]*\w+)*)", re.ASCII)
_FUNCTION = re.compile(
    rf"\s*(?:\.(?P<linking>visible|extern|weak)\s+)?\.(?P<kind>entry|func)\b\s*(?P<returns>\([^)]*\))?\s*(?P<name>{IDENTIFIER})\s*(?P<parameters>\([^)]*\))?",
    re.ASCII,
)
_LINE_DIRECTIVE = re.compile(r"\.(?:loc|file)\b[^\n;]*", re.ASCII)
_SECTION = re.compile(r"\.section\s+[\w.$]+\s*\{[^}]*\}", re.ASCII)
_SEMICOLON_DIRECTIVE = re.compile(r'\.\w+(?:"[^"]*"|[^;{}"])*;', re.ASCII)
_BETWEEN = re.compile(r"\s*(?P<text>\.[a-z]\w*(?:\s+[\w$]+(?:\s*,\s*\w+)*)?)", re.ASCII)
_LINE_COMMENT = re.compile(r"//[^\n]*")
_INITIALISER_END = re.compile(r"[^,;{}()]*+(?:\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*+\}|\([^()]*+\)|[^,;{}()]*+)*+", re.ASCII)
_WORD = re.compile(r"\s*(\S[^\n]{0,30})")


def _spaces(match: re.Match[str]) -> str:
    return " " * len(match.group())


def _blank(match: re.Match[str]) -> str:
    """White space of the same shape for a comment, unless a `//` comment has its line to itself."""
    text = match.group()
    if text[0] == '"':
        return text
    if text[1] == "/":
        start = match.string.rfind("\n", 0, match.start()) + 1
        if not match.string[start : match.start()].strip():
            return text
    return "".join("\n" if c == "\n" else " " for c in text)


class _Parser:
    """The text, where we are in it, and what operand texts mean here."""

    def __init__(self, text: str, name: str) -> None:
        self.text = _BLANKED.sub(_blank, text) if "/" in text else text
        self.name = name
        self.position: int = 0
        self.line: int = 1
        self.line_at: int = 0
        self.reader = OperandReader()

    # Positions and errors

    def line_of(self, position: int) -> int:
        """The line at a position not before the last one asked for."""
        self.line += self.text.count("\n", self.line_at, position)
        self.line_at = position
        return self.line

    def error(self, message: str, position: int | None = None) -> PtxSyntaxError:
        at = self.position if position is None else position
        at += len(self.text[at:]) - len(self.text[at:].lstrip())
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        return PtxSyntaxError(self.name, line, column, message)

    def found(self) -> str:
        word = _WORD.match(self.text, self.position)
        return f"'{word.group(1).rstrip()}'" if word else "the end of the file"

    def expect(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.match(self.text, self.position)
        if match is None:
            raise self.error(f"expected {what}, got {self.found()}")
        self.position = match.end()
        return match

    def expect_text(self, text: str, what: str) -> None:
        stripped = self.skip_space()
        if not self.text.startswith(text, stripped):
            raise self.error(f"expected '{text}' {what}, got {self.found()}")
        self.position = stripped + len(text)

    def skip_space(self) -> int:
        text, position = self.text, self.position
        while position < len(text) and text[position].isspace():
            position += 1
        self.position = position
        return position

    # Module

    def module(self) -> Module:
        version, targets, size = (0, 0), (), 64
        items: list[Function | Variable | Directive | Comment] = []
        preamble: tuple[Comment, ...] = ()
        while self.skip_space() < len(self.text):
            if header := _HEADER.match(self.text, self.position):
                self.position = header.end()
                value = header["value"]
                if header["kind"] == "version":
                    version = self.version(value, header.start("value"))
                    preamble = tuple(item for item in items if isinstance(item, Comment))
                    items = items[len(preamble) :]
                elif header["kind"] == "target":
                    targets = tuple(part.strip() for part in value.split(","))
                elif value.strip() in ("32", "64"):
                    size = int(value)
                else:
                    raise self.error(f"expected .address_size 32 or 64, got '{value.strip()}'", header.start("value"))
            else:
                items.extend(self.item())
        if version == (0, 0) or not targets:
            missing = ".target" if version != (0, 0) else ".version"
            raise self.error(
                f"the file has no {missing} directive; PTX begins with .version, .target, .address_size", 0
            )
        return Module(version, targets, size, tuple(items), preamble)

    def version(self, text: str, position: int) -> tuple[int, int]:
        match = re.fullmatch(r"(\d+)\.(\d+)", text)
        if match is None:
            raise self.error(f"expected a version such as 8.0, got '{text}'", position)
        return int(match[1]), int(match[2])

    def item(self) -> Iterator[Function | Variable | Directive | Comment]:
        start = self.position
        if self.text.startswith("//", start):
            end = self.text.find("\n", start)
            self.position = len(self.text) if end < 0 else end
            yield Comment(self.text[start + 2 : self.position].rstrip(), self.line_of(start))
        elif match := _FUNCTION.match(self.text, start):
            yield self.function(match)
        elif _VARIABLE.match(self.text, start):
            for declared in self.variables():
                if isinstance(declared, RegDecl):
                    raise self.error("a .reg declaration must stand inside a function", start)
                yield declared
        elif self.text.startswith(".", start):
            yield self.directive()
        else:
            raise self.error(f"expected a directive, a variable or a function, got {self.found()}")

    def directive(self) -> Directive:
        start = self.position
        line = self.line_of(start)
        for pattern in (_LINE_DIRECTIVE, _SECTION, _SEMICOLON_DIRECTIVE):
            if match := pattern.match(self.text, start):
                self.position = match.end()
                return Directive(match.group().rstrip(), line)
        raise self.error(f"expected a directive that ends in ';', got {self.found()}")

    # Functions

    def function(self, match: re.Match[str]) -> Function:
        line = self.line_of(match.start())
        self.position = match.end()
        directives = tuple(self.function_directives())
        body = None
        parameters = self.parameters(match, "parameters")
        returns = self.parameters(match, "returns")
        registers = {v.name for v in (*parameters, *returns) if v.space == "reg" and v.name[0] != "%"}
        if self.text.startswith(";", self.skip_space()):
            self.position += 1
        else:
            self.expect_text("{", f"to open the body of '{match['name']}', or ';' after its declaration")
            body = self.body(frozenset(registers), f"'{match['name']}'")
        linking = match["linking"] or ""
        return Function(match["name"], match["kind"] == "entry", parameters, body, linking, returns, directives, line)

    def function_directives(self) -> Iterator[str]:
        while match := _BETWEEN.match(self.text, self.position):
            self.position = match.end()
            yield match["text"]

    def parameters(self, match: re.Match[str], group: Literal["parameters", "returns"]) -> tuple[Variable, ...]:
        if match[group] is None:
            return ()
        inner = _LINE_COMMENT.sub(_spaces, match[group][1:-1])
        if not inner.strip():
            return ()
        declared: list[Variable] = []
        offset = match.start(group) + 1
        for part in inner.split(","):
            declared.append(self.parameter(part, offset))
            offset += len(part) + 1
        return tuple(declared)

    def parameter(self, text: str, offset: int) -> Variable:
        head = _VARIABLE.match(text)
        tail = head and _DECLARATOR.fullmatch(text, head.end())
        if not head or not tail:
            raise self.error(f"expected a parameter such as '.param .u64 name', got '{text.strip()}'", offset)
        return self.variable(head, tail, None, self.text.count("\n", 0, offset) + 1)

    def body(self, registers: frozenset[str], what: str) -> tuple[Statement, ...]:
        opened = self.position - 1
        outer = self.reader
        if registers:
            self.declare(registers)
        statements = tuple(self.statements(opened, what))
        self.reader = outer
        return statements

    def declare(self, names: frozenset[str]) -> None:
        """Registers called like symbols: what is remembered of operand texts no longer holds."""
        self.reader = OperandReader(self.reader.plain | names)

    def statements(self, opened: int, what: str) -> Iterator[Statement]:
        text, match_statement = self.text, _STATEMENT.match
        while True:
            match = match_statement(text, self.position)
            if match is None:
                raise self.statement_error(opened, what)
            kind = match.lastgroup or ""
            start = match.start(kind) if kind != "operands" else match.start("opcode")
            if kind == "close":
                self.position = match.end()
                return
            if kind in ("opcode", "operands"):
                yield self.instruction(match)
                self.position = match.end()
            elif kind == "directive":
                self.position = start
                yield from self.declaration(match["directive"])
            elif kind == "label":
                yield Label(match["label"], self.line_of(start))
                self.position = match.end()
            elif kind == "comment":
                yield Comment(match["comment"].rstrip(), self.line_of(start))
                self.position = match.end()
            else:
                line = self.line_of(start)
                self.position = match.end()
                yield Scope(self.body(frozenset(), "the scope"), line)

    def statement_error(self, opened: int, what: str) -> PtxSyntaxError:
        if self.skip_space() >= len(self.text):
            return self.error(f"the '{{' of {what} is not closed", opened)
        return self.error(f"expected a statement that ends in ';', got {self.found()}")

    def declaration(self, word: str) -> Iterator[Statement]:
        if word in _STATE_SPACES or word in _LINKING or word == ".reg":
            yield from self.variables()
        else:
            yield self.directive()

    # Variables and registers

    def variables(self) -> Iterator[Variable | RegDecl]:
        head = self.expect(_VARIABLE, "a declaration such as '.shared .align 16 .b8 name[64];'")
        line = self.line_of(head.start())
        plain: set[str] = set()
        while True:
            tail = self.expect(_DECLARATOR, "the name of a variable")
            if head["space"] == "reg":
                declared = self.register(head, tail, line)
                plain.update(name for name in declared.names() if name[0] != "%")
                yield declared
            else:
                yield self.variable(head, tail, self.initialiser(), line)
            if not self.text.startswith(",", self.skip_space()):
                break
            self.position += 1
        self.expect_text(";", "after the declaration")
        if plain:
            self.declare(frozenset(plain))

    def register(self, head: re.Match[str], tail: re.Match[str], line: int) -> RegDecl:
        if head["type"] not in REGISTER_BITS:
            known = ", ".join(f".{name}" for name in REGISTER_BITS)
            raise self.error(f"'.{head['type']}' is not a register type; expected one of {known}", head.start("type"))
        count = None if tail["count"] is None else int(tail["count"])
        if count is not None and count > MOST_REGISTERS:
            raise self.error(
                f"{count} registers are declared, expected at most {MOST_REGISTERS} at once", tail.start("count")
            )
        return RegDecl(head["type"], tail["name"], count, line, int(head["vector"] or 1))

    def variable(self, head: re.Match[str], tail: re.Match[str], init: str | None, line: int) -> Variable:
        extents = tuple(self.extent(d.strip(), tail["name"]) for d in re.findall(r"\[([^\]]*)\]", tail["dims"]))
        count = None
        for extent in extents:
            count = extent * (1 if count is None else count)
        align = head["align"]
        return Variable(
            head["space"] + (head["cta"] or ""),
            head["type"],
            tail["name"],
            count=count,
            align=int(align) if align else None,
            linking=head["linking"] or "",
            vector=int(head["vector"] or 1),
            init=init,
            pointer=" ".join((head["pointer"] or "").split()),
            line=line,
            dimensions=extents if len(extents) > 1 else (),
        )

    def extent(self, text: str, name: str) -> int:
        """The elements of one dimension of an array; 0 where it is left open."""
        try:
            return integer(text) if text else 0
        except ValueError:
            raise self.error(f"variable '{name}': expected a size such as [64], got '[{text}]'") from None

    def initialiser(self) -> str | None:
        if not self.text.startswith("=", self.skip_space()):
            return None
        start = self.position + 1
        end = _INITIALISER_END.match(self.text, start)
        self.position = end.end() if end else start
        return " ".join(self.text[start : self.position].split())

    # Instructions

    def instruction(self, match: re.Match[str]) -> Instruction:
        start = match.start("opcode")
        guard = Guard(match["guard"], match["not"] == "!") if match["guard"] else None
        at = match.start("guard") - 1 - len(match["not"]) if guard else start
        operand_text = match["operands"]
        try:
            operands = self.reader.read(operand_text) if operand_text else ()
        except OperandError as error:
            raise self.error(f"{match['opcode']}: {error}", start) from None
        column = at - self.text.rfind("\n", 0, at)
        return Instruction(match["opcode"], operands, guard, self.line_of(at), column)
