"""PTX text as frozen records that the parser makes and the interpreter and the checker read, and the types of PTX.
Nothing here knows what an instruction means. Spellings are kept as written, so that a record prints back as the text it
came from up to white space. Source: PTX ISA, chapters 4 (Syntax) and 5 (State Spaces, Types, and Variables)."""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias

WARP_SIZE = {"WARP_SZ": 32}
IDENTIFIER = r"[A-Za-z_$%][\w$]*"
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


def operand_text(
    operand: Operand, brackets: str = "{}", spell: Callable[[Register], str] = operator.attrgetter("name")
) -> str:
    """The operand as PTX writes it, in canonical spacing. `brackets` are "()" for the lists of a call; `spell` says how
    each register is written, in textual order."""
    match operand:
        case Register():
            return spell(operand)
        case Immediate():
            return operand.text
        case Symbol():
            return f"{operand.name}+{operand.offset}" if operand.offset else operand.name
        case Address():
            offset = operand.written or (str(operand.offset) if operand.offset else "")
            return f"[{operand_text(operand.base, brackets, spell)}{f'+{offset}' if offset else ''}]"
        case Indexed():
            return f"[{', '.join([operand_text(item, brackets, spell) for item in operand.items])}]"
        case Vector():
            items = ", ".join([operand_text(item, brackets, spell) for item in operand.items])
            return f"{brackets[0]}{items}{brackets[1]}"
        case Pair():
            return f"{operand_text(operand.first, brackets, spell)}|{operand_text(operand.second, brackets, spell)}"
        case Not():
            return f"!{operand_text(operand.register, brackets, spell)}"


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


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in order, neighbours together: "0-2, 5"."""
    runs: list[list[int]] = []
    for number in sorted({int(n) for n in numbers}):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == top else f"{low}-{top}" for low, top in runs)


# Types of registers, instructions and variables. Source: PTX ISA 5.2 and 9.1 to 9.4 (type checking).

REGISTER_BITS = {
    "pred": 1,
    **{f"{kind}{bits}": bits for bits in (8, 16, 32, 64) for kind in "bus"},
    "b128": 128,
    "f16": 16,
    "f16x2": 32,
    "f32": 32,
    "f64": 64,
}
"""Width in bits of every type `.reg` may declare (5.2.1). Other formats (bf16, e4m3) live in `.b` registers."""

OPAQUE_TYPES = ("texref", "samplerref", "surfref")
"""Types of variables that no load reads (5.3)."""

ALONE = frozenset(("pred", *OPAQUE_TYPES))
"""Types that are those of no others' bits."""

PACKED_BITS = {
    "bf16": 16,
    "bf16x2": 32,
    "tf32": 32,
    "f32x2": 64,
    "u16x2": 32,
    "s16x2": 32,
    **dict.fromkeys(("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "ue8m0x2", "ue5m3x2", "s2f6x2", "e2m1x4"), 16),
    **dict.fromkeys(("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "e2m1p4x4", "ue8m0x4", "u8x4", "s8x4"), 32),
    **dict.fromkeys(("e2m1x2", "ue8m0"), 8),
    "rbits": 32,
}
"""Instruction types that no register has: they live in `.b` registers (ISA 5.2.3)."""


@lru_cache(4096)
def compatible(instruction: str, register: str, *, wider: bool = False, own: bool = True) -> bool:
    """Whether a register of one type may be an operand of an instruction type (ISA 9.1); `wider` as in 9.4.1. ptxas
    takes a register of floats for bits, and two halves for an integer, only where the operand has the type that the
    opcode names: that is `own`."""
    if not ALONE.isdisjoint((instruction, register)):
        return instruction == register
    bits, register_bits = bits_of(instruction), REGISTER_BITS[register]
    if register_bits != bits and not (wider and register_bits > bits):
        return False
    if register[0] == "b" or instruction == register:
        return True
    if instruction in PACKED_BITS:
        return register == "f16x2" and instruction[0] in "us" and instruction[1].isdigit()
    if instruction[0] == "b":
        return own or register[0] in "us"
    if instruction[0] in "us":
        return register[0] in "us" or (own and register == "f16x2")
    return False


def alike(types: Iterable[str]) -> bool:
    """Whether registers of these types may be the elements of one vector: they have one width, and one type besides
    untyped bits. Integers of either sign are one type."""
    kinds = {type for type in types if type}
    others = {"u" if type[0] in "us" else type for type in kinds if type[0] != "b"}
    return len({REGISTER_BITS[type] for type in kinds}) < 2 and len(others) < 2


def bits_of(type: str) -> int:
    """Width in bits of a type that instructions or registers have."""
    return PACKED_BITS.get(type) or REGISTER_BITS[type]
