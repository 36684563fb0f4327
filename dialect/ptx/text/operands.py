"""Operands of a PTX instruction: text to `syntax` records, remembered by text, and records to text.

Source: PTX ISA, chapters 4.3 to 4.5 (Identifiers, Constants) and 6 (Instruction Operands).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..special import VECTORS
from .constant_expressions import DECIMAL, HEXADECIMAL, INTEGER, ConstantError, evaluate, spelled
from .syntax import Address, Immediate, Indexed, Not, Operand, Pair, Register, Symbol, Vector

IDENTIFIER = r"[A-Za-z_$%][\w$]*"

SPECIAL_VECTORS = dict.fromkeys(VECTORS, 4)

_NUMBER = rf"{HEXADECIMAL}|[+-]?(?:{DECIMAL}|{INTEGER})"
_LITERAL = re.compile(_NUMBER, re.ASCII)
_NAME = re.compile(rf"(?P<name>{IDENTIFIER}(?:\.\w+)*)(?:\s*\+\s*(?P<offset>\S.*))?", re.ASCII)
_ADDRESS = re.compile(
    rf"\[\s*(?P<base>{IDENTIFIER}(?:\.\w+)*|{_NUMBER})\s*(?P<offset>\+\s*-?\s*\w+)?\s*\]",
    re.ASCII,
)
_FURTHER_ADDRESS = re.compile(rf"\[\s*(?P<base>{IDENTIFIER}(?:\.\w+)*)\s*(?P<offset>\+[^\]]*)\]", re.ASCII)
"""Addresses whose offset is a constant expression."""
_LESS = re.compile(rf"\[\s*(?P<base>{IDENTIFIER}(?:\.\w+)*)\s*-\s*(?P<offset>\w+)\s*\]", re.ASCII)
"""What is written for a negative offset and is no address."""
_NOT_OCTAL = re.compile(r"[+-]?0\d*[89]\d*U?")
_PUNCTUATION = re.compile(r"[,{}\[\]()]")
_PIECE = re.compile(r"(?:[^,{}\[\]()]|\{[^{}\[\]()]*\}|\[[^{}\[\]()]*\]|\([^{}\[\]()]*\))+")
"""An operand whose brackets do not nest."""
_COMMENT = re.compile(r"//[^\n]*")


class OperandError(Exception):
    """Text that is not an operand, and why."""


class OperandReader:
    """Reads operand texts; `plain` are the declared registers whose names do not begin with `%`, `vectors` those that
    are vectors, with their sizes: such a register is read as its parts."""

    def __init__(self, plain: frozenset[str] = frozenset(), vectors: Mapping[str, int] = SPECIAL_VECTORS) -> None:
        self.plain = plain
        self.vectors = vectors
        self._lists: dict[str, tuple[Operand, ...]] = {}
        self._calls: dict[str, tuple[Operand, ...]] = {}
        self._operands: dict[str, Operand] = {}

    def read(self, text: str) -> tuple[Operand, ...]:
        """The operands of a comma-separated list.

        Raises:
            OperandError: if one of them is not an operand.
        """
        found = self._lists.get(text)
        if found is None:
            clean = _COMMENT.sub(" ", text) if "//" in text else text
            found = self._lists[text] = tuple(map(self._operand, _split(clean)))
        return found

    def read_call(self, text: str) -> tuple[Operand, ...]:
        """The operands of a `call`, whose parentheses hold lists.

        Raises:
            OperandError: if one of them is not an operand.
        """
        found = self._calls.get(text)
        if found is None:
            found = self._calls[text] = tuple(map(self._argument, _split(_COMMENT.sub(" ", text))))
        return found

    def _argument(self, text: str) -> Operand:
        stripped = text.strip()
        if (stripped[:1], stripped[-1:]) == ("(", ")"):
            return Vector(tuple(map(self._operand, _split(stripped[1:-1]))))
        return self._operand(stripped)

    def _operand(self, text: str) -> Operand:
        found = self._operands.get(text)
        if found is None:
            found = self._operands[text] = self._parse(" ".join(text.split()))
        return found

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
        if _NOT_OCTAL.fullmatch(text):
            raise OperandError(f"'{text}' begins with 0, so it is octal, and has digits beyond 7")
        return Immediate(text)

    def _named(self, text: str) -> Register | Immediate | Symbol | Vector:
        match = _NAME.fullmatch(text)
        if match is None:
            return Immediate(spelled(_value(text, f"'{text}' is not an operand")))
        name = match["name"]
        if name[0] == "%" or name.partition(".")[0] in self.plain:
            if match["offset"]:
                raise OperandError(f"'{text}': an offset needs brackets around a register, as in [{name}+4]")
            base, _, part = name.partition(".")
            if base in self.vectors:
                return Register(f"{base}.{_PARTS.get(part, part)}") if part else self._vector(base)
            return Register(name)
        if name == "WARP_SZ" and match["offset"]:
            return Immediate(spelled(_value(text, f"'{text}' is not an operand")))
        return Symbol(name, _offset(match["offset"] or "0"))

    def _vector(self, name: str) -> Vector:
        return Vector(tuple(Register(f"{name}.{part}") for part in "xyzw"[: self.vectors[name]]))

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

_CONSTANT_STARTS = frozenset("0123456789.+-~!(")
"""What no name begins with."""


def _value(text: str, complaint: str) -> int | float:
    """The value of a constant expression; of text that is none, the complaint."""
    try:
        return evaluate(text)
    except ConstantError as error:
        message = str(error)
        raise OperandError(complaint if message.endswith("is not a constant expression") else message) from None


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


def _register_name(register: Register) -> str:
    return register.name


def operand_text(operand: Operand, brackets: str = "{}", spell: Callable[[Register], str] = _register_name) -> str:
    """The operand as PTX writes it, in canonical spacing.

    `brackets` are "()" for the lists of a call; `spell` says how each register is written, in textual order.
    """
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
