"""PTX text to `syntax` records: modules, functions, declarations, instructions. One regular expression takes a
statement at a time, and operand texts are remembered, so that large files parse quickly. Meaning is not looked at here.
Source: PTX ISA, chapters 4 (Syntax), 5 (Variables), 7 (Functions) and 11 (Directives)."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from ..isa.row import exists
from .text import syntax
from .text.reader import ATTRIBUTE, VARIABLE, Cursor, OperandError, OperandReader, constant
from .text.syntax import IDENTIFIER, Function, Instruction, PtxSyntaxError, Register, Statement, Symbol, Variable


def parse_ptx(text: str, name: str = "<ptx>") -> syntax.Module:
    """Reads a PTX translation unit; `name` is the file's, for messages. Raises PtxSyntaxError at the first statement
    that is not PTX."""
    module, errors = read_ptx(text, name)
    if module is None or errors:
        raise errors[0]
    return module


def read_ptx(text: str, name: str = "<ptx>") -> tuple[syntax.Module | None, list[PtxSyntaxError]]:
    """A PTX translation unit without its unreadable statements, and an error for each of them. The module is None if
    the text does not name its PTX version and target."""
    reader = _Parser(text, name)
    try:
        return reader.module(), reader.errors
    except PtxSyntaxError as error:
        return None, [*reader.errors, error]


def read_prototype(text: str) -> Function:
    """The function that a `.callprototype` describes. Raises PtxSyntaxError if it is none."""
    header = text.replace(".callprototype", ".func", 1)
    match = _FUNCTION.match(header)
    if match is None or match["name"] != "_":
        raise PtxSyntaxError(
            "<ptx>", 1, 1, f"expected a prototype such as .callprototype _ (.param .b32 _);, got {text}"
        )
    return _Parser(header, "<ptx>").function(match)


_STATEMENT = re.compile(
    rf"""\s*(?:
      (?P<label>{IDENTIFIER})\s*:(?!:)
    | (?:@\s*(?P<not>!?)\s*(?P<guard>{IDENTIFIER})\s+)?
      (?P<opcode>[a-z]\w*+(?:(?:\s*+\.|::)\w++(?::\d++)?)*+)
      (?P<operands>(?:\s|(?=[{{(\[%]))[^;{{}}]*+(?:\{{[^;{{}}]*+\}}[^;{{}}]*+)*+)?;
    | //(?P<comment>[^\n]*)
    | (?P<directive>\.[a-z]\w*)
    | (?P<open>\{{)
    | (?P<close>\}})
    )""",
    re.ASCII | re.VERBOSE,
)

_SPACES = (".global", ".shared", ".const", ".local", ".param", ".reg")
_DECLARING = frozenset((*_SPACES, ".visible", ".extern", ".weak", ".common", ".attribute"))
"""First words of declarations of variables and registers."""

_HEADER = re.compile(r"\s*\.(?P<kind>version|target|address_size)\s+(?P<value>[\w.]+(?:[ \t]*,[ \t]*\w+)*)", re.ASCII)
_FUNCTION = re.compile(
    r"\s*(?:\.(?P<linking>visible|extern|weak)\s+)?\.(?P<kind>entry|func)\b"
    + ATTRIBUTE.format("attribute")
    + rf"\s*(?P<returns>\([^)]*\))?\s*(?P<name>{IDENTIFIER})\s*(?P<parameters>\([^)]*\))?",
    re.ASCII,
)
_NAMES = ("loc_intermediate", "loc", "file", "section", "pragma", "alias", "branchtargets", "calltargets",
          "callprototype")  # fmt: skip
_ORDER = ("version", "target", "address_size")
"""What a file begins with."""
_INNER = (".loc", ".branchtargets", ".calltargets", ".callprototype")
"""Directives that stand inside functions alone."""
_DIRECTIVES = tuple(f".{name}" for name in _NAMES)
_DIRECTIVE = re.compile(rf"(?:{'|'.join(map(re.escape, _DIRECTIVES))})\b", re.ASCII)
_LINE_DIRECTIVE = re.compile(r"\.loc(?:\s+\d\w*){3}(?:\s*,[^\n;]*)?|\.(?:loc|loc_intermediate|file)\b[^\n;]*", re.ASCII)
_SECTION = re.compile(r"\.section\s+[\w.$]+\s*\{[^}]*\}", re.ASCII)
_SEMICOLON_DIRECTIVE = re.compile(r'\.\w+(?:"[^"]*"|[^;{}"])*;', re.ASCII)
_ITEM = r'(?:[\w$]+|"[^"\n]*")'
_BETWEEN = re.compile(
    rf"\s*(?://[^\n]*|(?P<text>\.pragma\s[^;{{}}]*;|\.[a-z]\w*(?:\s+{_ITEM}(?:\s*,\s*{_ITEM})*)?))", re.ASCII
)
"""A directive between the header of a function and its body, or a comment there."""
_LINE_COMMENT = re.compile(r"//[^\n]*")
_ELEMENT = re.compile(rf"(?P<name>{IDENTIFIER})\s*\[(?P<index>[^\[\]]*)\]", re.ASCII)
_BY_INDEX = {"ld": True, "ldu": True, "st": True, "mov": False, "cvta": False}
"""Instructions that take an element of an array, by its index; whether they access it. Source: PTX ISA 6.4.2."""


class _Parser(Cursor):
    """The text, where we are in it, and what operand texts mean here."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name)
        self.reader = OperandReader()
        self.arrays = ChainMap[str, int]()
        """The bytes of an element, or of a part of a vector, of each array in scope."""
        self.labels: set[str] = set()
        """The labels of the function whose names are like registers."""

    # Module

    def module(self) -> syntax.Module:
        version, targets, size, version_at, target_at = (0, 0), (), 64, (1, 1), (1, 1)
        items: list[Function | Variable | syntax.Directive | syntax.Comment] = []
        preamble: tuple[syntax.Comment, ...] = ()
        stated: set[str] = set()
        while self.skip_space() < len(self.text):
            start = self.position
            if header := _HEADER.match(self.text, start):
                self.position = header.end()
                value = header["value"]
                if header["kind"] in stated and header["kind"] != "target":
                    self.note(f".{header['kind']} is stated twice", start)
                elif header["kind"] not in stated and not self.begins(header["kind"], stated, items):
                    self.note(f"expected .{header['kind']} at the beginning: .{', .'.join(_ORDER)}", start)
                stated.add(header["kind"])
                if header["kind"] == "version":
                    place = header.start("value")
                    version, version_at = self.version(value, place), (self.line_of(place), self.column(place))
                    preamble = tuple(item for item in items if isinstance(item, syntax.Comment))
                    items = items[len(preamble) :]
                elif header["kind"] == "target":
                    targets = tuple(part.strip() for part in value.split(","))
                    place = header.start("value")
                    target_at = self.line_of(place), self.column(place)
                elif value.strip() in ("32", "64"):
                    size = int(value)
                else:
                    self.note(f"expected .address_size 32 or 64, got '{value.strip()}'", header.start("value"))
            else:
                try:
                    items.extend(self.item())
                except PtxSyntaxError as error:
                    self.errors.append(error)
                    self.skip_item(start)
        if version == (0, 0) or not targets:
            missing = ".target" if version != (0, 0) else ".version"
            raise self.error(f"the file has no {missing}; PTX begins with .version, .target, .address_size", 0)
        return syntax.Module(version, targets, size, tuple(items), preamble, target_at, version_at)

    @staticmethod
    def begins(kind: str, stated: set[str], items: Iterable[object]) -> bool:
        """Whether a directive of the header stands where it may."""
        return stated == {*_ORDER[: _ORDER.index(kind)]} and all(isinstance(item, syntax.Comment) for item in items)

    def version(self, text: str, position: int) -> tuple[int, int]:
        match = re.fullmatch(r"(\d+)\.(\d+)", text)
        if match is None:
            raise self.error(f"expected a version such as 8.0, got '{text}'", position)
        version = int(match[1]), int(match[2])
        if not exists(version):
            self.note(f"there is no PTX {text}", position)
        return version

    def item(self) -> Iterator[Function | Variable | syntax.Directive | syntax.Comment]:
        start = self.position
        if self.text.startswith("//", start):
            end = self.text.find("\n", start)
            self.position = len(self.text) if end < 0 else end
            yield syntax.Comment(self.text[start + 2 : self.position].rstrip(), self.line_of(start))
        elif match := _FUNCTION.match(self.text, start):
            yield self.function(match)
        elif VARIABLE.match(self.text, start):
            for declared in self.declared():
                if isinstance(declared, syntax.RegDecl):
                    self.note("a .reg declaration must stand inside a function", start)
                else:
                    self.declare_variables((declared,))
                    yield declared
        elif self.text.startswith(_INNER, start):
            raise self.error(f"expected it inside a function, got {self.next_word()}")
        elif self.text.startswith(".", start):
            yield self.directive()
        else:
            raise self.error(f"expected a directive, a variable or a function, got {self.next_word()}")

    def directive(self) -> syntax.Directive:
        start = self.position
        word = _DIRECTIVE.match(self.text, start)
        if word is None:
            raise self.error(f"expected one of {', '.join(_DIRECTIVES)}, got {self.next_word()}")
        line = self.line_of(start)
        for pattern in (_LINE_DIRECTIVE, _SECTION, _SEMICOLON_DIRECTIVE):
            if match := pattern.match(self.text, start):
                self.position = match.end()
                return syntax.Directive(match.group().rstrip(), line)
        raise self.error(f"expected a directive that ends in ';', got {self.next_word()}")

    # Functions

    def function(self, match: re.Match[str]) -> Function:
        line = self.line_of(match.start())
        self.position = match.end()
        attribute = (f".attribute({match['attribute'].strip()})",) if match["attribute"] else ()
        directives = (*attribute, *self.function_directives())
        body = None
        parameters = self.parameters(match, "parameters")
        returns = self.parameters(match, "returns")
        registers = {v.name for v in (*parameters, *returns) if v.space == "reg" and v.name[0] != "%"}
        outer, self.arrays, self.labels = self.reader, self.arrays.new_child(), set()
        self.declare_variables((*parameters, *returns))
        if self.text.startswith(";", self.skip_space()):
            self.position += 1
        else:
            self.expect_text("{", f"to open the body of '{match['name']}', or ';' after its declaration")
            body = self.body(frozenset(registers), f"'{match['name']}'")
        if body is not None and self.labels:
            body = _branching_to(self.labels, body)
        self.reader, self.arrays = outer, self.arrays.parents
        linking = match["linking"] or ""
        return Function(match["name"], match["kind"] == "entry", parameters, body, linking, returns, directives, line)

    def function_directives(self) -> Iterator[str]:
        while match := _BETWEEN.match(self.text, self.position):
            self.position = match.end()
            if match["text"]:
                yield match["text"]

    def parameters(self, match: re.Match[str], group: Literal["parameters", "returns"]) -> tuple[Variable, ...]:
        if match[group] is None:
            return ()
        inner = _LINE_COMMENT.sub(lambda comment: " " * len(comment.group()), match[group][1:-1])
        if not inner.strip():
            return ()
        declared: list[Variable] = []
        offset = match.start(group) + 1
        for part in inner.split(","):
            declared.append(self.parameter(part, offset))
            offset += len(part) + 1
        return tuple(declared)

    def body(self, registers: frozenset[str], what: str) -> tuple[Statement, ...]:
        opened = self.position - 1
        outer, self.arrays = self.reader, self.arrays.new_child()
        if registers:
            self.declare(registers)
        statements = tuple(self.statements(opened, what))
        self.reader, self.arrays = outer, self.arrays.parents
        return statements

    def declare(self, names: frozenset[str], vectors: Mapping[str, int] = MappingProxyType({})) -> None:
        """Declares registers whose names are like symbols, and vectors. Cached operand texts become invalid."""
        reader = self.reader
        self.reader = OperandReader(reader.plain | names, {**reader.vectors, **vectors}, reader.symbols)

    def declare_variables(self, variables: Iterable[Variable]) -> None:
        """Declares arrays, and variables whose names are like those of registers."""
        variables = tuple(variables)
        sized = (v for v in variables if v.count is not None and v.type in syntax.REGISTER_BITS)
        self.arrays.update((v.name, syntax.REGISTER_BITS[v.type] // 8) for v in sized)
        names = {v.name for v in variables if v.space != "reg" and v.name[0] == "%"}
        if names:
            self.reader = OperandReader(self.reader.plain, self.reader.vectors, self.reader.symbols | names)

    def statements(self, opened: int, what: str) -> Iterator[Statement]:
        text, match_statement = self.text, _STATEMENT.match
        while True:
            match = match_statement(text, self.position)
            if match is None:
                if self.unreadable(opened, what):
                    continue
                return
            kind = match.lastgroup or ""
            if kind in ("opcode", "operands"):
                if (instruction := self.instruction(match)) is not None:
                    yield instruction
                self.position = match.end()
                continue
            start = match.start(kind)
            if kind == "close":
                self.position = match.end()
                return
            if kind == "directive":
                self.position = start
                yield from self.declaration(match["directive"])
            elif kind == "label":
                if match["label"][0] == "%":
                    self.labels.add(match["label"])
                yield syntax.Label(match["label"], self.line_of(start))
                self.position = match.end()
            elif kind == "comment":
                yield syntax.Comment(match["comment"].rstrip(), self.line_of(start))
                self.position = match.end()
            else:
                line = self.line_of(start)
                self.position = match.end()
                yield syntax.Scope(self.body(frozenset(), "the scope"), line)

    def unreadable(self, opened: int, what: str) -> bool:
        """Passes over text that is no statement; whether there was any."""
        start = self.skip_space()
        if start >= len(self.text):
            self.note(f"the '{{' of {what} is not closed", opened)
            return False
        self.note(f"expected a statement that ends in ';', got {self.next_word()}")
        self.skip_statement(start)
        return True

    def declaration(self, word: str) -> Iterator[Statement]:
        start = self.position
        try:
            if word in _DECLARING:
                plain: set[str] = set()
                vectors: dict[str, int] = {}
                for declared in self.declared():
                    if isinstance(declared, syntax.RegDecl):
                        plain.update(name for name in declared.names() if name[0] != "%")
                        if declared.vector > 1:
                            vectors.update(dict.fromkeys(declared.names(), declared.vector))
                    else:
                        self.declare_variables((declared,))
                    yield declared
                if plain or vectors:
                    self.declare(frozenset(plain), vectors)
            else:
                yield self.directive()
        except PtxSyntaxError as error:
            self.errors.append(error)
            self.skip_statement(start)

    # Instructions

    def instruction(self, match: re.Match[str]) -> Instruction | None:
        start, opcode = match.start("opcode"), "".join(match["opcode"].split())
        guard = syntax.Guard(match["guard"], match["not"] == "!") if match["guard"] else None
        at = match.start("guard") - 1 - len(match["not"]) if guard else start
        text = match["operands"]
        try:
            operands = self.operands(opcode, text) if text else ()
        except OperandError as error:
            self.note(f"{opcode}: {error}", start)
            return None
        column = at - self.text.rfind("\n", 0, at)
        return Instruction(opcode, operands, guard, self.line_of(at), column)

    def operands(self, opcode: str, text: str) -> tuple[syntax.Operand, ...]:
        """The operands of an instruction. Raises OperandError if one of them is not an operand."""
        root = syntax.root_of(opcode)
        read = self.reader.read_call if root == "call" else self.reader.read
        try:
            return read(text)
        except OperandError:
            if root not in _BY_INDEX or "[" not in text:
                raise
            plain = _without_indices(text, self.arrays, accessed=_BY_INDEX[root])
            if plain == text:
                raise
            return read(plain)


def _without_indices(text: str, arrays: Mapping[str, int], *, accessed: bool) -> str:
    """The text with elements of arrays as addresses: `[g+8]` for `g[2]` where memory is `accessed`, else `g+8`.
    `arrays` have the bytes of an element, in arrays of vectors of a part. Source: PTX ISA 6.4.2. Raises OperandError if
    the name is of no array, or the index is no constant."""

    def address(match: re.Match[str]) -> str:
        name, index = match["name"], match["index"]
        if name not in arrays:
            raise OperandError(f"'{match[0]}': no array '{name}' is declared")
        number = constant(index, f"'{match[0]}': expected a constant index; compute the address, as in [%rd1+4]")
        if isinstance(number, float):
            raise OperandError(f"'{match[0]}': expected an integer as index")
        place = f"{name}+{arrays[name] * number}" if number else name
        return f"[{place}]" if accessed else place

    return _ELEMENT.sub(address, text)


def _branching_to(labels: Collection[str], body: Sequence[Statement]) -> tuple[Statement, ...]:
    """A body whose branches name labels that are called like registers."""

    def branching(statement: Statement) -> Statement:
        if isinstance(statement, syntax.Scope):
            return statement._replace(body=_branching_to(labels, statement.body))
        if not isinstance(statement, Instruction) or statement.root != "bra":
            return statement
        operands = (Symbol(o.name) if isinstance(o, Register) and o.name in labels else o for o in statement.operands)
        return statement._replace(operands=tuple(operands))

    return tuple(map(branching, body))
