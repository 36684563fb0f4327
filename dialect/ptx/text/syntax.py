"""PTX text as frozen records that the parser makes and the interpreter and the checker read; text under a cursor.
Nothing here knows what an instruction means. Spellings are kept as written, so that a record prints back as the text it
came from up to white space. Source: PTX ISA, chapters 4 (Syntax) and 5 (State Spaces, Types, and Variables)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

WARP_SIZE = {"WARP_SZ": 32}
_COUNT = re.compile(r"0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|0[0-7]*U?|[1-9][0-9]*U?")


@dataclass(frozen=True, slots=True)
class Register:
    """A declared register or a special one, as spelled: `%r1`, `%p0`, `%tid.x`, `%v.y`."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A literal as spelled: `16`, `-1`, `0xFF`, `0f3F800000` (f32 bits), `0d...` (f64 bits), `1.5`."""

    text: str

    @cached_property
    def value(self) -> int | float:
        """The literal's value; a float for `0f`, `0d` and decimal-point literals."""
        text = self.text
        if text[:2] in ("0f", "0F"):
            return struct.unpack("<f", struct.pack("<I", int(f"0x{text[2:]}", 0)))[0]
        if text[:2] in ("0d", "0D"):
            return struct.unpack("<d", struct.pack("<Q", int(f"0x{text[2:]}", 0)))[0]
        digits = text.lstrip("+-")
        if digits[:2] not in ("0x", "0X") and any(c in digits for c in ".eE"):
            return float(text)
        return integer(text)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A label, variable, parameter or function name; `name+offset` is an address in a `mov`."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """`[base+offset]`; the offset is in bytes, and `written` its text where that is not its plain decimal form."""

    base: Register | Symbol | Immediate
    offset: int = 0
    written: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Indexed:
    """`[map, {x, y}]`, `[texture, sampler, {x, y}]`: an opaque object, and where in it, in brackets."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, ...}`; in a `call`, the lists `(a, b)`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`a|b`: a destination and its predicate, as `setp` and `shfl` write them."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """`!p`: a predicate read negated."""

    register: Register


Operand: TypeAlias = Register | Immediate | Symbol | Address | Indexed | Vector | Pair | Not


def leaves(operand: Operand) -> Iterator[Register | Immediate | Symbol]:
    """The registers, literals and symbols of an operand, in the order of the text."""
    match operand:
        case Vector(items) | Indexed(items):
            for item in items:
                yield from leaves(item)
        case Pair(first, second):
            yield from (*leaves(first), *leaves(second))
        case Address(leaf) | Not(leaf):
            yield leaf
        case _:
            yield operand


class Guard(NamedTuple):
    """`@p` or `@!p`."""

    register: str
    negated: bool = False


class Instruction(NamedTuple):
    """One statement `@guard opcode operands;`. `opcode` is the whole dotted spelling."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: Guard | None = None
    line: int = 0
    column: int = 0

    @property
    def root(self) -> str:
        """The first word of the opcode."""
        return root_of(self.opcode)

    @property
    def is_call(self) -> bool:
        """Whether the operands are lists in parentheses."""
        return self.root == "call"

    @property
    def call(self) -> CallParts:
        """The operands of a call."""
        operands = list(self.operands)
        results, target = _listed_first(operands), operands.pop(0) if operands else None
        return CallParts(results, target, _listed_first(operands), tuple(operands))


class CallParts(NamedTuple):
    """`(results), target, (arguments)`, and what follows them. Each may be missing."""

    results: tuple[Operand, ...]
    target: Operand | None
    arguments: tuple[Operand, ...]
    following: tuple[Operand, ...]

    @property
    def name(self) -> str:
        """The function that it names; "" for a call through a register."""
        return self.target.name if isinstance(self.target, Symbol) else ""


def _listed_first(operands: list[Operand]) -> tuple[Operand, ...]:
    """Takes the list that operands begin with; none if they begin with something else."""
    if not (operands and isinstance(first := operands[0], Vector)):
        return ()
    del operands[0]
    return first.items


def root_of(opcode: str) -> str:
    """The first word of an opcode."""
    return opcode.partition(".")[0]


class Label(NamedTuple):
    name: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class RegDecl:
    """`.reg .type name<count>;`; count None declares the one register `name`. `type` has no dot. `vector` is 2 or 4 for
    `.reg .v2 .f32 name;`, whose parts are `name.x` and on."""

    type: str
    name: str
    count: int | None = None
    line: int = 0
    vector: int = 1
    column: int = field(default=1, compare=False)

    def names(self) -> tuple[str, ...]:
        """The registers declared: `%r<3>` declares %r0, %r1, %r2."""
        return (self.name,) if self.count is None else tuple(f"{self.name}{i}" for i in range(self.count))


@dataclass(frozen=True, slots=True)
class Variable:
    """A declaration in a state space: `.extern .shared .align 16 .b8 name[count] = init;`.

    `space` is "shared", "global", "const", "local" or "param" (module or function scope);
    `count` is None for a scalar, 0 for an array of unknown size `[]`; `init` is the text after `=`.
    `linking` is "", "extern", "visible" or "weak"; `vector` is 1, 2 or 4.
    `pointer` keeps the parameter attributes (`.ptr .global .align 16`) as written, or ""; `attribute` what stands in
    `.attribute(...)`, such as ".managed".
    `dimensions` are the extents of an array of two or more dimensions, whose product is `count`.
    """

    space: str
    type: str
    name: str
    count: int | None = None
    align: int | None = None
    linking: str = ""
    vector: int = 1
    init: str | None = None
    pointer: str = ""
    line: int = 0
    dimensions: tuple[int, ...] = ()
    attribute: str = ""
    column: int = field(default=1, compare=False)

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of an array, the first of which is 0 where it is left open; none of a scalar."""
        return self.dimensions or (() if self.count is None else (self.count,))

    def __str__(self) -> str:
        """As PTX declares it, without the semicolon."""
        words = [f".{self.linking}"] if self.linking else []
        words.append(f".{self.space}")
        if self.attribute:
            words.append(f".attribute({self.attribute})")
        if self.align is not None:
            words.append(f".align {self.align}")
        if self.vector != 1:
            words.append(f".v{self.vector}")
        words.append(f".{self.type}")
        if self.pointer:
            words.append(self.pointer)
        words.append(self.name + "".join(f"[{d or ''}]" for d in self.extents))
        return " ".join(words) + (f" = {self.init}" if self.init is not None else "")


class Directive(NamedTuple):
    """Any other directive, kept as text (`.loc 1 2 3`, `.pragma "nounroll";`)."""

    text: str
    line: int = 0


class Comment(NamedTuple):
    """A `//` comment on a line of its own. Other comments are white space."""

    text: str
    line: int = 0


class Scope(NamedTuple):
    """`{ ... }` inside a function: its declarations end with it."""

    body: tuple[Statement, ...]
    line: int = 0


Statement: TypeAlias = Instruction | Label | RegDecl | Variable | Directive | Comment | Scope


def statements(body: Sequence[Statement]) -> Iterator[Instruction | Label | RegDecl | Variable | Directive | Comment]:
    """The statements of a body and of the scopes inside it, in the order of the text; no scope itself."""
    for statement in body:
        if isinstance(statement, Scope):
            yield from statements(statement.body)
        else:
            yield statement


def instructions(body: Sequence[Statement]) -> Iterator[Instruction]:
    """The instructions among `statements`."""
    return (statement for statement in statements(body) if isinstance(statement, Instruction))


class Function(NamedTuple):
    """`.entry` (kernel) or `.func`. `directives` are those between header and body, as written
    (".maxntid 256, 1, 1"). `body` is None for a declaration."""

    name: str
    entry: bool
    parameters: tuple[Variable, ...]
    body: tuple[Statement, ...] | None
    linking: str = ""
    returns: tuple[Variable, ...] = ()
    directives: tuple[str, ...] = ()
    line: int = 0

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """The numbers of the first directive with a name; None without one, or if other arguments follow."""
        text = next((text for text in self.directives if text.split()[0] == name), None)
        return None if text is None else directive_numbers(text)


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX translation unit. `version` is (major, minor); `targets` is e.g. ("sm_90a",). `preamble` holds the comments
    before `.version`."""

    version: tuple[int, int]
    targets: tuple[str, ...]
    address_size: int
    items: tuple[Function | Variable | Directive | Comment, ...]
    preamble: tuple[Comment, ...] = ()
    target_at: tuple[int, int] = field(default=(1, 1), compare=False)
    """Line and column of what `.target` says."""
    version_at: tuple[int, int] = field(default=(1, 1), compare=False)
    """Line and column of what `.version` says."""

    @property
    def functions(self) -> dict[str, Function]:
        """Functions with a body, by name."""
        return {f.name: f for f in self.items if isinstance(f, Function) and f.body is not None}


def integer(text: str) -> int:
    """The value of a PTX integer literal: decimal, 0x hexadecimal, 0b binary, leading-0 octal, optional U."""
    sign, digits = (-1, text[1:]) if text[:1] == "-" else (1, text.lstrip("+"))
    digits = digits.rstrip("U")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    return sign * int(digits.replace("_", "."), 8 if octal else 0)  # Python has _ between digits


def directive_numbers(text: str) -> tuple[int, ...] | None:
    """The numbers that follow a directive such as `.maxntid 16, 0x10`; None if it has other arguments."""
    words = re.split(r"[\s,]+", text)[1:]
    are_numbers = all(word in WARP_SIZE or _COUNT.fullmatch(word) for word in words)
    return tuple(WARP_SIZE.get(word) or integer(word) for word in words) if are_numbers else None


_LISTED = re.compile(r"([\w$%]+)(?:\s*<\s*(\w+)\s*>)?", re.ASCII)


def listed(text: str) -> tuple[str, ...]:
    """The names of a list such as `.branchtargets L0, M<2>;`, which names L0, M0 and M1. Raises ValueError if it is no
    list of names."""
    directive, *names = text.rstrip(";").split(maxsplit=1)
    matches = [_LISTED.fullmatch(name.strip()) for name in "".join(names).split(",")]
    spellings: list[str] = []
    for match in matches:
        if match is None or match[1][0].isdigit():
            raise ValueError(f"expected names as in {directive} a, b;, got {text}")
        spellings += [match[1]] if match[2] is None else [f"{match[1]}{number}" for number in range(integer(match[2]))]
    return tuple(spellings)


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


class Cursor:
    """The text and where we are in it. `errors` has those behind which reading goes on; others are raised."""

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


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in order, neighbours together: "0-2, 5"."""
    runs: list[list[int]] = []
    for number in sorted({int(n) for n in numbers}):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == top else f"{low}-{top}" for low, top in runs)
