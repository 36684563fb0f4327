"""PTX text under a cursor: its declarations, and the operands of its instructions, as `syntax` records."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from ...isa.row import VECTORS
from . import syntax
from .operands import DECIMAL, HEXADECIMAL, INTEGER, ConstantError, evaluate, spelled
from .syntax import IDENTIFIER, Address, Immediate, Operand, PtxSyntaxError, RegDecl, Register, Variable, Vector

_BLANKED = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/|^#[ \t]*\d[^\n]*', re.DOTALL | re.MULTILINE)
"""Comments, and what a preprocessor says of lines (4.1); strings hold none."""
_WORD = re.compile(r"\s*(\S[^\n]{0,30})")
_STATEMENT_END = re.compile(r"[^;{}]*+(?:\{[^;{}]*+\}[^;{}]*+)*+")
_SPACE = re.compile(r"\s*")


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


MAX_REGISTERS = 1 << 20
"""Registers that one declaration may make; far more than compilers do, and what memory is made for."""

UNREAD = ""
"""The type of registers whose declaration names none that there is."""

ATTRIBUTE = r"(?:\s*\.attribute\s*\(\s*(?P<{}>\.[a-z](?:[^()]|\([^()]*\))*)\))?"
VARIABLE = re.compile(
    r"\s*" + ATTRIBUTE.format("before") + r"\s*(?:\.(?P<linking>visible|extern|weak|common)\s+)?"
    r"\.(?P<space>global|shared|const|local|param|reg)(?P<cta>::\w+)?" + ATTRIBUTE.format("attribute")
    + r"(?:\s*\.align\s+(?P<align>\w+))?" + ATTRIBUTE.format("after")
    + r"(?:\s*\.v(?P<vector>[24]))?\s*\.(?P<type>\w+)"
    r"(?P<pointer>\s*\.ptr(?:\s*\.(?:global|shared|const|local|texref|surfref|samplerref))?(?:\s*\.align\s+\d+)?)?",
    re.ASCII,
)  # fmt: skip
_DECLARATOR = re.compile(
    rf"\s*(?P<name>{IDENTIFIER})\s*(?:<\s*(?P<count>\w+)\s*>)?(?P<dims>(?:\s*\[[^\]\n;]*\])*)\s*", re.ASCII
)
_BRACKET = re.compile(r"[{}(),;]")


class Cursor:
    """The text and where we are in it, and the declarations there. `errors` has those behind which reading goes on;
    others are raised."""

    def __init__(self, text: str, name: str) -> None:
        self.text = _BLANKED.sub(_blank, text) if "/" in text or "#" in text else text
        self.name = name
        self.position: int = 0
        self.line: int = 1
        self.line_at: int = 0
        self.errors: list[PtxSyntaxError] = []

    # Positions and errors

    def line_of(self, position: int) -> int:
        """The line at a position not before the last one asked for."""
        self.line += self.text.count("\n", self.line_at, position)
        self.line_at = position
        return self.line

    def column(self, position: int) -> int:
        """The column of a position, from 1."""
        return position - self.text.rfind("\n", 0, position)

    def skipped(self, position: int) -> int:
        """The first position from `position` on that is not white space."""
        space = _SPACE.match(self.text, position)
        return space.end() if space else position

    def error(self, message: str, position: int | None = None) -> PtxSyntaxError:
        at = self.position if position is None else position
        at = self.skipped(at)
        return PtxSyntaxError(self.name, self.text.count("\n", 0, at) + 1, self.column(at), message)

    def next_word(self) -> str:
        word = _WORD.match(self.text, self.position)
        return f"'{word.group(1).rstrip()}'" if word else "the end of the file"

    def expect(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.match(self.text, self.position)
        if match is None:
            raise self.error(f"expected {what}, got {self.next_word()}")
        self.position = match.end()
        return match

    def expect_text(self, text: str, what: str) -> None:
        stripped = self.skip_space()
        if not self.text.startswith(text, stripped):
            raise self.error(f"expected '{text}' {what}, got {self.next_word()}")
        self.position = stripped + len(text)

    def skip_space(self) -> int:
        self.position = self.skipped(self.position)
        return self.position

    # Going on after an error

    def note(self, message: str, position: int | None = None) -> None:
        """Appends an error to `errors`."""
        self.errors.append(self.error(message, position))

    def skip_statement(self, start: int) -> None:
        """Moves behind the `;` of the statement at `start`, or to the `}` that ends its function first."""
        match = _STATEMENT_END.match(self.text, start)
        end = match.end() if match else start
        self.position = min(max(end + (self.text[end : end + 1] != "}"), start + 1), len(self.text))

    def skip_item(self, start: int) -> None:
        """Moves behind the item at `start` outside of functions, which ends with a `;` or a block in braces."""
        text, at, depth = self.text, start, 0
        while at < len(text):
            character = text[at]
            depth += {"{": 1, "}": -1}.get(character, 0)
            at += 1
            if depth <= 0 and character in ";}":
                break
        self.position = at

    # Declarations. Source: PTX ISA, chapter 5.

    def declared(self) -> Iterator[Variable | RegDecl]:
        """The variables or registers of one statement."""
        head = self.expect(VARIABLE, "a declaration such as '.shared .align 16 .b8 name[64];'")
        line = self.line_of(self.skipped(head.start()))
        while True:
            tail = self.expect(_DECLARATOR, "the name of a variable")
            if head["space"] == "reg":
                yield self.register(head, tail, line)
            else:
                yield from self.variables(head, tail, line)
            if not self.text.startswith(",", self.skip_space()):
                break
            self.position += 1
        self.expect_text(";", "after the declaration")

    def parameter(self, text: str, offset: int) -> Variable:
        """One parameter of a function, from its text at `offset`."""
        head = VARIABLE.match(text)
        tail = head and _DECLARATOR.fullmatch(text, head.end())
        if not head or not tail or tail["count"]:
            raise self.error(f"expected a parameter such as '.param .u64 name', got '{text.strip()}'", offset)
        at = self.skipped(offset)
        return self.variable(head, tail, None, self.text.count("\n", 0, at) + 1, offset)

    def register(self, head: re.Match[str], tail: re.Match[str], line: int) -> RegDecl:
        type, count = head["type"], None if tail["count"] is None else self.number(tail["count"], tail.start("count"))
        if type not in syntax.REGISTER_BITS:
            types = ", ".join(f".{name}" for name in syntax.REGISTER_BITS)
            self.note(f"'.{type}' is not a register type; expected one of {types}", head.start("type"))
            type = UNREAD
        if count is not None and count > MAX_REGISTERS:
            raise self.error(
                f"{count} registers are declared, expected at most {MAX_REGISTERS} at once", tail.start("count")
            )
        if tail["dims"].strip():
            self.note(f"registers make no arrays, expected {tail['name']}<n>", tail.start("dims"))
        if attached := next((head[part] for part in ("linking", "before", "attribute", "after") if head[part]), ""):
            self.note(f"a register has no {attached}", head.start())
        if head["align"] and (align := self.number(head["align"], head.start("align"))).bit_count() != 1:
            self.note(f"the alignment must be a power of two, got {align}", head.start("align"))
        return RegDecl(type, tail["name"], count, line, int(head["vector"] or 1), self.column(tail.start("name")))

    def variables(self, head: re.Match[str], tail: re.Match[str], line: int) -> Iterator[Variable]:
        """The variable of one declarator, or those that `name<n>` numbers."""
        init = self.initialiser()
        variable = self.variable(head, tail, init, line)
        if tail["count"] is None:
            yield variable
            return
        if init is not None or variable.count is not None:
            raise self.error("numbered variables are no arrays, and have no initial values", tail.start())
        for number in range(self.number(tail["count"], tail.start("count"))):
            yield replace(variable, name=f"{variable.name}{number}")

    def variable(
        self, head: re.Match[str], tail: re.Match[str], init: str | None, line: int, offset: int = 0
    ) -> Variable:
        extents = tuple(
            self.extent(d.strip(), tail["name"], offset + tail.start("dims"))
            for d in re.findall(r"\[([^\]]*)\]", tail["dims"])
        )
        align = head["align"]
        return Variable(
            head["space"] + (head["cta"] or ""),
            head["type"],
            tail["name"],
            count=prod(extents) if extents else None,
            align=self.number(align, offset + head.start("align")) if align else None,
            linking=head["linking"] or "",
            vector=int(head["vector"] or 1),
            init=init,
            pointer=" ".join((head["pointer"] or "").split()),
            line=line,
            dimensions=extents if len(extents) > 1 else (),
            attribute="".join((head["before"] or head["attribute"] or head["after"] or "").split()),
            column=self.column(self.skipped(offset + head.start())),
        )

    def number(self, text: str, position: int) -> int:
        """A count or an alignment: a literal of 32 bits without a sign, as ptxas wants it."""
        value = _unsigned(text, 32)
        if value is None:
            raise self.error(f"expected a number of 32 bits such as 64, got '{text}'", position)
        return value

    def extent(self, text: str, name: str, position: int) -> int:
        """The elements of one dimension of an array, a literal of 64 bits; 0 where it is left open."""
        value = _unsigned(text or "0", 64)
        if value is None:
            raise self.error(f"variable '{name}': expected a size such as [64], got '[{text}]'", position)
        return value

    def initialiser(self) -> str | None:
        if not self.text.startswith("=", self.skip_space()):
            return None
        start, depth = self.position + 1, 0
        for mark in _BRACKET.finditer(self.text, start):
            if mark[0] == ";" or (mark[0] == "," and depth == 0):
                self.position = mark.start()
                break
            depth += {"{": 1, "(": 1, "}": -1, ")": -1, ",": 0}[mark[0]]
        return " ".join(self.text[start : self.position].split())


def _unsigned(text: str, bits: int) -> int | None:
    """A literal without a sign, if it is one of so many bits."""
    try:
        value = syntax.WARP_SIZE[text] if text in syntax.WARP_SIZE else syntax.integer(text)
    except ValueError:
        return None
    return None if text.startswith(("-", "+")) or not 0 <= value < 1 << bits else value


# Operands of a PTX instruction: text to `syntax` records, remembered by text, and records to text.
#
# Source: PTX ISA, chapters 4.3 to 4.5 (Identifiers, Constants) and 6 (Instruction Operands).

SPECIAL_VECTORS = dict.fromkeys(VECTORS, 4)

_NUMBER = rf"{HEXADECIMAL}|[+-]?(?:{DECIMAL}|{INTEGER})"
_LITERAL = re.compile(_NUMBER, re.ASCII)
_NAME = re.compile(rf"(?P<name>{IDENTIFIER}(?:\.\w+)*)(?:\s*\+\s*(?P<offset>\S.*))?", re.ASCII)
_ADDRESS = re.compile(rf"\[\s*(?P<base>{IDENTIFIER}(?:\.\w+)*|{_NUMBER})\s*(?P<offset>\+\s*-?\s*\w+)?\s*\]", re.ASCII)
_FURTHER_ADDRESS = re.compile(rf"\[\s*(?P<base>{IDENTIFIER}(?:\.\w+)*)\s*(?P<offset>\+[^\]]*)\]", re.ASCII)
"""Addresses whose offset is a constant expression."""
_LESS = re.compile(rf"\[\s*(?P<base>{IDENTIFIER}(?:\.\w+)*)\s*-\s*(?P<offset>\w+)\s*\]", re.ASCII)
"""What is written for a negative offset and is no address."""
_SIGNED_NOT_OCTAL = re.compile(r"[+-]?0\d*[89]\d*U?")
_PUNCTUATION = re.compile(r"[,{}\[\]()]")
_PIECE = re.compile(r"(?:[^,{}\[\]()]|\{[^{}\[\]()]*\}|\[[^{}\[\]()]*\]|\([^{}\[\]()]*\))+")
"""An operand whose brackets do not nest."""
_COMMENT = re.compile(r"//[^\n]*")


class OperandError(Exception):
    """Text that is not an operand, and why."""


class OperandReader:
    """Reads operand texts. `plain` are declared registers whose names do not begin with `%`. `vectors` are vector
    registers with their sizes, which are read as their parts. `symbols` are variables whose names begin with `%`."""

    def __init__(
        self,
        plain: frozenset[str] = frozenset(),
        vectors: Mapping[str, int] = SPECIAL_VECTORS,
        symbols: frozenset[str] = frozenset(),
    ) -> None:
        self.plain = plain
        self.symbols = symbols
        self.vectors = vectors
        self._lists: dict[str, tuple[Operand, ...]] = {}
        self._calls: dict[str, tuple[Operand, ...]] = {}
        self._operands: dict[str, Operand] = {}

    def read(self, text: str) -> tuple[Operand, ...]:
        """The operands of a comma-separated list. Raises OperandError if one of them is not an operand."""
        operands = self._lists.get(text)
        if operands is None:
            clean = _COMMENT.sub(" ", text) if "//" in text else text
            operands = self._lists[text] = tuple(map(self._operand, _split(clean)))
        return operands

    def read_call(self, text: str) -> tuple[Operand, ...]:
        """The operands of a `call`, whose parentheses hold lists. Raises OperandError if one of them is not an
        operand."""
        operands = self._calls.get(text)
        if operands is None:
            operands = self._calls[text] = tuple(map(self._argument, _split(_COMMENT.sub(" ", text))))
        return operands

    def _argument(self, text: str) -> Operand:
        stripped = text.strip()
        if (stripped[:1], stripped[-1:]) == ("(", ")"):
            return Vector(tuple(map(self._operand, _split(stripped[1:-1]))))
        return self._operand(stripped)

    def _operand(self, text: str) -> Operand:
        operand = self._operands.get(text)
        if operand is None:
            operand = self._operands[text] = self._parse(" ".join(text.split()))
        return operand

    def _parse(self, text: str) -> Operand:
        first = text[:1]
        if first == "{" and text[-1] == "}":
            return Vector(tuple(map(self._operand, _split(text[1:-1]))))
        if first == "[":
            return self._address(text)
        if first == "!" and _NAME.match(text[1:].lstrip()):
            return syntax.Not(self._register(text[1:].strip()))
        if first in _CONSTANT_STARTS or not text:
            return self._constant(text)
        if "|" in text:
            left, _, right = text.partition("|")
            return syntax.Pair(self._operand(left), self._operand(right))
        return self._named(text)

    def _constant(self, text: str) -> Immediate:
        """A literal as it is written; of an expression, its value."""
        if not text:
            raise OperandError("an operand is missing at a comma")
        if not _LITERAL.fullmatch(text):
            return Immediate(spelled(constant(text, f"'{text}' is not an operand")))
        if _SIGNED_NOT_OCTAL.fullmatch(text):
            raise OperandError(f"'{text}' begins with 0, so it is octal, and has digits beyond 7")
        if _DECIMAL.fullmatch(text) and math.isinf(float(text)):
            raise OperandError(f"'{text}' is beyond the numbers of 64 bits")
        return Immediate(text)

    def _named(self, text: str) -> Register | Immediate | syntax.Symbol | Vector:
        match = _NAME.fullmatch(text)
        if match is None:
            return Immediate(spelled(constant(text, f"'{text}' is not an operand")))
        name = match["name"]
        if (name[0] == "%" and name not in self.symbols) or name.partition(".")[0] in self.plain:
            if match["offset"]:
                raise OperandError(f"'{text}': an offset needs brackets around a register, as in [{name}+4]")
            base, _, part = name.partition(".")
            if base in self.vectors:
                if part:
                    return Register(f"{base}.{_PARTS.get(part, part)}")
                return Vector(tuple(Register(f"{base}.{each}") for each in "xyzw"[: self.vectors[base]]))
            return Register(name)
        if name == "WARP_SZ" and match["offset"]:
            return Immediate(spelled(constant(text, f"'{text}' is not an operand")))
        return syntax.Symbol(name, _offset(match["offset"] or "0"))

    def _register(self, text: str) -> Register:
        operand = self._named(text)
        if not isinstance(operand, Register):
            raise OperandError(f"'!{text}' negates something that is not a predicate register")
        return operand

    def _address(self, text: str) -> Address | syntax.Indexed:
        match = _ADDRESS.fullmatch(text) or _FURTHER_ADDRESS.fullmatch(text)
        if match is None:
            items = _split(text[1:-1]) if text[-1] == "]" else []
            if len(items) < 2:
                less = _LESS.fullmatch(text)
                hint = f"; an offset below zero is written [{less['base']}+-{less['offset']}]" if less else ""
                raise OperandError(f"expected an address such as [%rd1+16], got '{text}'{hint}")
            return syntax.Indexed(tuple(map(self._operand, items)))
        base = self._constant(match["base"]) if match["base"][0] in _CONSTANT_STARTS else self._named(match["base"])
        if isinstance(base, Vector):
            raise OperandError(f"expected an address such as [%rd1+16], got '{text}', whose base is a vector")
        if match["offset"] is None:
            return Address(base)
        written = match["offset"].replace(" ", "").removeprefix("+")
        value = _offset(written)
        literal = _LITERAL.fullmatch(written) and not (value and written == str(value))
        return Address(base, value, written if literal else "")


_PARTS = dict(zip("rgba", "xyzw", strict=True))
"""The other names of the parts of a vector."""

_PLAIN = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
"""What is an offset as it stands."""

_DECIMAL = re.compile(r"[+-]?[\d.]+[eE][+-]?\d+", re.ASCII)

_CONSTANT_STARTS = frozenset("0123456789.+-~!(")
"""What no name begins with."""


def constant(text: str, complaint: str) -> int | float:
    """The value of a constant expression; of text that is none, the complaint."""
    try:
        return evaluate(text)
    except ConstantError as error:
        two = "; a semicolon may be missing in it" if " " in text and "." in text else ""
        raise OperandError(str(error) if not str(error).endswith(_NO_CONSTANT) else complaint + two) from None


_NO_CONSTANT = "is not a constant expression"


def _offset(text: str) -> int:
    if _PLAIN.fullmatch(text):
        return int(text)
    value = constant(text, f"'{text}' is not an offset in bytes")
    if isinstance(value, float):
        raise OperandError(f"'{text}' is not an offset in bytes")
    return value


def _split(text: str) -> list[str]:
    """The operands of a text, split at the commas outside all brackets."""
    if "{" not in text and "(" not in text and "[" not in text:
        return text.split(",") if text.strip() else []
    pieces: list[str] = _PIECE.findall(text)
    if ",".join(pieces) == text:
        return pieces
    pieces = []
    depth = start = 0
    for match in _PUNCTUATION.finditer(text):
        character = match.group()
        if character != ",":
            depth += 1 if character in "{[(" else -1
        elif depth == 0:
            pieces.append(text[start : match.start()])
            start = match.end()
    pieces.append(text[start:])
    return pieces


def elements(variable: Variable) -> Iterator[tuple[int, str]]:
    """The initial values of a variable as they are written, each with the number of the element that it is for. The
    parts of a vector are elements. Braces nest as the dimensions do; elements without a value are zero. Source: PTX ISA
    5.4.4. Raises OperandError where the braces nest otherwise, or hold too many values."""
    parts = (variable.vector,) if variable.vector > 1 else ()
    return _spread((variable.init or "").strip(), (*variable.extents, *parts), 0, bool(parts))


def _spread(text: str, extents: Sequence[int], first: int, vector: bool) -> Iterator[tuple[int, str]]:
    """The values of an array, or of one element, from the element `first` on. The last extent of a `vector` is full."""
    braced = text[:1] == "{" and text[-1] == "}"
    if braced != bool(extents):
        what = "the initial values of an array or vector in braces" if extents else "one initial value"
        raise OperandError(f"expected {what}, got {text or 'none'}")
    if not extents:
        yield first, text
        return
    extent, *inner = extents
    values = _split(text[1:-1])
    if vector and not inner and len(values) != extent:
        raise OperandError(f"expected {extent} initial values of a vector, got {text}")
    if not extent and not values:
        raise OperandError("an array of open size has as many elements as values, got none")
    if len(values) > (extent or len(values)):
        raise OperandError(f"{len(values)} initial values for {extent} elements")
    for number, value in enumerate(values):
        yield from _spread(value.strip(), inner, first + number * math.prod(inner), vector)
