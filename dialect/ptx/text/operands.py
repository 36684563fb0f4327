"""Operands to and from text, and constant expressions. Source: PTX ISA 4.5."""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from ...isa.row import VECTORS
from .syntax import WARP_SIZE, Address, Immediate, Indexed, Not, Operand, Pair, Register, Symbol, Variable, Vector

# Constant expressions: their values as 64-bit numbers with or without a sign, or as floats. Source: PTX ISA 4.5.
#
# Where the text leaves it open, a value is what ptxas 13.0 gives it: `%` is taken without signs, `~` gives a number
# without a sign, shifts count modulo 64, and `a ? b : c` has the sign of what it chooses.

INTEGER = r"0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?"
DECIMAL = r"\d*\.\d+(?:[eE][+-]?\d+)?|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+"
DOUBLE = r"0[dD][0-9a-fA-F]{16}"
HEXADECIMAL = rf"0[fF][0-9a-fA-F]{{8}}|{DOUBLE}"
"""Floats by their bits: only those of 64 bits may have a sign, or be part of an expression."""

_WORD_MASK = (1 << 64) - 1
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>(?:{DOUBLE}|{DECIMAL}|{INTEGER})(?![\w.]))|(?P<name>WARP_SZ\b)|\(\s*\.(?P<cast>[su]64)\s*\)"
    r"|(?P<mark><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%!~<>&^|?:()]))",
    re.ASCII,
)
_NOT_OCTAL = re.compile(r"0\d*[89]\d*U?")


class ConstantError(Exception):
    """Text that is not a constant expression, or one without a value, and why."""


class Constant(NamedTuple):
    """A value: an integer of 64 bits, or a float."""

    value: int | float
    unsigned: bool = False

    @staticmethod
    def of(value: int, *, unsigned: bool) -> Constant:
        """An integer, reduced to 64 bits."""
        word = value & _WORD_MASK
        return Constant(word if unsigned or word < 1 << 63 else word - (1 << 64), unsigned)


@lru_cache(65536)
def evaluate(text: str) -> int | float:
    """The value of a constant expression, such as 16 of `(1<<4)`. Raises ConstantError if it is none, mixes floats with
    integers, divides by zero, or nests too deeply."""
    try:
        return _Reader(text).complete().value
    except RecursionError:
        raise ConstantError(f"the constant expression '{text[:40]}...' nests too deeply") from None


def literal(text: str) -> Constant:
    """The value of one literal without a sign: of an integer, or a float in decimal or of 64 bits. Raises ConstantError
    for digits beyond 7 of an octal one."""
    if _NOT_OCTAL.fullmatch(text):
        raise ConstantError(f"'{text}' begins with 0, so it is octal, and has digits beyond 7")
    value = Immediate(text).value
    if isinstance(value, float):
        return Constant(value)
    return Constant.of(value, unsigned=text[-1] == "U" or value >= 1 << 63)


def spelled(value: int | float) -> str:
    """A literal of this value. Integers are signed, so that they fit types narrower than 64 bits."""
    if isinstance(value, int):
        return str(value - (1 << 64) if value >= 1 << 63 else value)
    return repr(value) if math.isfinite(value) else f"0d{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_BINARY: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: a != 0 or b != 0},
    {"&&": lambda a, b: a != 0 and b != 0},
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    {"<<": lambda a, b: a << (b & 63), ">>": lambda a, b: a >> (b & 63)},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _truncated, "%": operator.mod},
)
"""The operators of integers, the weakest first."""

_FLOATS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": lambda a, b: a / b if b else math.copysign(math.inf, a) * math.copysign(1, b) if a else math.nan,
}  # fmt: skip
_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))
_TRUTHS = _COMPARISONS | {"||", "&&"}


class _Reader:
    """Recursive descent over the tokens of an expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.token = self._next()

    def _next(self) -> re.Match[str] | None:
        match = _TOKEN.match(self.text, self.at)
        if match is None and self.text[self.at :].strip():
            raise self._error()
        self.at = match.end() if match else len(self.text)
        return match

    def _error(self) -> ConstantError:
        return ConstantError(f"'{self.text.strip()}' is not a constant expression")

    def _take(self, *marks: str) -> str | None:
        """The next token, if it is one of these marks."""
        mark = self.token["mark"] if self.token else None
        if mark is None or mark not in marks:
            return None
        self.token = self._next()
        return mark

    def complete(self) -> Constant:
        value = self.conditional()
        if self.token is not None:
            raise self._error()
        return value

    def conditional(self) -> Constant:
        condition = self.binary(0)
        if not self._take("?"):
            return condition
        chosen = self.conditional()
        if not self._take(":"):
            raise self._error()
        other = self.conditional()
        return chosen if self._integer(condition).value else other

    def binary(self, level: int) -> Constant:
        if level == len(_BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while mark := self._take(*_BINARY[level]):
            left = self._apply(mark, _BINARY[level][mark], left, self.binary(level + 1))
        return left

    def unary(self) -> Constant:
        if self.token is not None and self.token["cast"]:
            unsigned = self.token["cast"] == "u64"
            self.token = self._next()
            return Constant.of(int(self._integer(self.unary()).value), unsigned=unsigned)
        mark = self._take("-", "+", "!", "~")
        if mark is None:
            return self.primary()
        operand = self.unary()
        if isinstance(operand.value, float) and mark in "+-":
            return Constant(-operand.value if mark == "-" else operand.value)
        value = int(self._integer(operand).value)
        if mark == "!":
            return Constant(int(not value))
        return Constant.of({"-": -value, "+": value, "~": ~value}[mark], unsigned=operand.unsigned or mark == "~")

    def primary(self) -> Constant:
        token = self.token
        if token is None:
            raise self._error()
        if self._take("("):
            value = self.conditional()
            if not self._take(")"):
                raise self._error()
            return value
        if token["number"] is None and token["name"] is None:
            raise self._error()
        self.token = self._next()
        return literal(token["number"]) if token["number"] else Constant(WARP_SIZE[token["name"]])

    def _integer(self, constant: Constant) -> Constant:
        if isinstance(constant.value, float):
            raise ConstantError(f"'{self.text.strip()}' has a float where an integer is expected")
        return constant

    def _apply(self, mark: str, compute: Callable[[int, int], int], a: Constant, b: Constant) -> Constant:
        if isinstance(a.value, float) and isinstance(b.value, float):
            return self._floats(mark, a.value, b.value)
        unsigned = a.unsigned or (b.unsigned and mark not in ("<<", ">>")) or mark == "%"
        left, right = (Constant.of(int(self._integer(c).value), unsigned=unsigned).value for c in (a, b))
        if mark in "/%" and not right:
            raise ConstantError(f"'{self.text.strip()}' divides by zero")
        return Constant.of(int(compute(int(left), int(right))), unsigned=unsigned and mark not in _TRUTHS)

    def _floats(self, mark: str, a: float, b: float) -> Constant:
        if mark in _FLOATS:
            return Constant(_FLOATS[mark](a, b))
        if mark in _COMPARISONS:
            return Constant(int(_BINARY[5 if mark in _BINARY[5] else 6][mark](a, b)))  # pyright: ignore[reportArgumentType]
        raise ConstantError(f"'{self.text.strip()}' has floats on both sides of {mark}")


# Operands of a PTX instruction: text to `syntax` records, remembered by text, and records to text.
#
# Source: PTX ISA, chapters 4.3 to 4.5 (Identifiers, Constants) and 6 (Instruction Operands).

IDENTIFIER = r"[A-Za-z_$%][\w$]*"

SPECIAL_VECTORS = dict.fromkeys(VECTORS, 4)

_NUMBER = rf"{HEXADECIMAL}|[+-]?(?:{DECIMAL}|{INTEGER})"
_LITERAL = re.compile(_NUMBER, re.ASCII)
_NAME = re.compile(rf"(?P<name>{IDENTIFIER}(?:\.\w+)*)(?:\s*\+\s*(?P<offset>\S.*))?", re.ASCII)
_ADDRESS = re.compile(rf"\[\s*(?P<base>{IDENTIFIER}(?:\.\w+)*|{_NUMBER})\s*(?P<offset>\+\s*-?\s*\w+)?\s*\]", re.ASCII)
_FURTHER_ADDRESS = re.compile(rf"\[\s*(?P<base>{IDENTIFIER}(?:\.\w+)*)\s*(?P<offset>\+[^\]]*)\]", re.ASCII)
"""Addresses whose offset is a constant expression."""
_LESS = re.compile(rf"\[\s*(?P<base>{IDENTIFIER}(?:\.\w+)*)\s*-\s*(?P<offset>\w+)\s*\]", re.ASCII)
"""What is written for a negative offset and is no address."""
_ELEMENT = re.compile(rf"(?P<name>{IDENTIFIER})\s*\[(?P<index>[^\[\]]*)\]", re.ASCII)
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

    @staticmethod
    def without_indices(text: str, arrays: Mapping[str, int], *, accessed: bool) -> str:
        """The text with elements of arrays as addresses: `[g+8]` for `g[2]` where memory is `accessed`, else `g+8`.
        `arrays` have the bytes of an element, in arrays of vectors of a part. Source: PTX ISA 6.4.2. Raises
        OperandError if the name is of no array, or the index is no constant."""

        def address(match: re.Match[str]) -> str:
            name, index = match["name"], match["index"]
            if name not in arrays:
                raise OperandError(f"'{match[0]}': no array '{name}' is declared")
            number = _value(index, f"'{match[0]}': expected a constant index; compute the address, as in [%rd1+4]")
            if isinstance(number, float):
                raise OperandError(f"'{match[0]}': expected an integer as index")
            place = f"{name}+{arrays[name] * number}" if number else name
            return f"[{place}]" if accessed else place

        return _ELEMENT.sub(address, text)

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
            return Not(self._register(text[1:].strip()))
        if first in _CONSTANT_STARTS or not text:
            return self._constant(text)
        if "|" in text:
            left, _, right = text.partition("|")
            return Pair(self._operand(left), self._operand(right))
        return self._named(text)

    def _constant(self, text: str) -> Immediate:
        """A literal as it is written; of an expression, its value."""
        if not text:
            raise OperandError("an operand is missing at a comma")
        if not _LITERAL.fullmatch(text):
            return Immediate(spelled(_value(text, f"'{text}' is not an operand")))
        if _SIGNED_NOT_OCTAL.fullmatch(text):
            raise OperandError(f"'{text}' begins with 0, so it is octal, and has digits beyond 7")
        if _DECIMAL.fullmatch(text) and math.isinf(float(text)):
            raise OperandError(f"'{text}' is beyond the numbers of 64 bits")
        return Immediate(text)

    def _named(self, text: str) -> Register | Immediate | Symbol | Vector:
        match = _NAME.fullmatch(text)
        if match is None:
            return Immediate(spelled(_value(text, f"'{text}' is not an operand")))
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
            return Immediate(spelled(_value(text, f"'{text}' is not an operand")))
        return Symbol(name, _offset(match["offset"] or "0"))

    def _register(self, text: str) -> Register:
        operand = self._named(text)
        if not isinstance(operand, Register):
            raise OperandError(f"'!{text}' negates something that is not a predicate register")
        return operand

    def _address(self, text: str) -> Address | Indexed:
        match = _ADDRESS.fullmatch(text) or _FURTHER_ADDRESS.fullmatch(text)
        if match is None:
            items = _split(text[1:-1]) if text[-1] == "]" else []
            if len(items) < 2:
                less = _LESS.fullmatch(text)
                hint = f"; an offset below zero is written [{less['base']}+-{less['offset']}]" if less else ""
                raise OperandError(f"expected an address such as [%rd1+16], got '{text}'{hint}")
            return Indexed(tuple(map(self._operand, items)))
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

_DECIMAL = re.compile(r"[+-]?[\d.]+[eE][+-]?\d+", re.ASCII)

_CONSTANT_STARTS = frozenset("0123456789.+-~!(")
"""What no name begins with."""


def _value(text: str, complaint: str) -> int | float:
    """The value of a constant expression; of text that is none, the complaint."""
    try:
        return evaluate(text)
    except ConstantError as error:
        two = "; a semicolon may be missing in it" if " " in text and "." in text else ""
        raise OperandError(str(error) if not str(error).endswith(_NO_CONSTANT) else complaint + two) from None


_NO_CONSTANT = "is not a constant expression"


def _offset(text: str) -> int:
    value = _value(text, f"'{text}' is not an offset in bytes")
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


MASKED_VALUE = re.compile(r"(?P<mask>\d\w*)\s*\((?P<inner>.*)\)", re.ASCII)
"""An initial value that is the byte of an address that a mask leaves: `0xFF00(x)`."""
ADDRESS_VALUE = re.compile(
    rf"(?:generic\s*\(\s*(?P<generic>{IDENTIFIER})\s*\)|(?P<name>{IDENTIFIER}))(?:\s*\+(?P<offset>.+))?", re.ASCII
)
"""One that is an address: `x`, `x+8`, `generic(x)`."""


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
