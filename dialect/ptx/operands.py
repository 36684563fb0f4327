"""Operands of a PTX instruction: text to `syntax` records, remembered by text, and records to text.

Source: PTX ISA, chapters 4.3 to 4.5 (Identifiers, Constants) and 6 (Instruction Operands).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .syntax import (
    Address,
    Immediate,
    Not,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
    integer,
)

IDENTIFIER = r"[A-Za-z_$%][\w$]*"

_NOT_OCTAL = re.compile(r"[+-]?0\d*[89]\d*U?")
_NUMBER = (
    r"[+-]?(?:0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}"
    r"|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)"
)
_ATOM = re.compile(
    rf"(?P<number>{_NUMBER})|(?P<name>{IDENTIFIER}(?:\.\w+)*)(?:\s*\+\s*(?P<offset>-?\w+))?",
    re.ASCII,
)
_ADDRESS = re.compile(
    rf"\[\s*(?P<base>{IDENTIFIER}(?:\.\w+)*|{_NUMBER})\s*(?P<offset>(?:\+\s*-?|-)\s*\w+)?\s*\]",
    re.ASCII,
)
_PUNCTUATION = re.compile(r"[,{}\[\]()]")
_PIECE = re.compile(r"(?:[^,{}\[\]()]|\{[^{}\[\]()]*\}|\[[^{}\[\]()]*\]|\([^{}\[\]()]*\))+")
"""An operand whose brackets do not nest."""
_COMMENT = re.compile(r"//[^\n]*")


class OperandError(Exception):
    """Text that is not an operand, and why."""


class OperandReader:
    """Reads operand texts; `plain` are the declared registers whose names do not begin with `%`."""

    def __init__(self, plain: frozenset[str] = frozenset()) -> None:
        self.plain = plain
        self._lists: dict[str, tuple[Operand, ...]] = {}
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

    def _operand(self, text: str) -> Operand:
        found = self._operands.get(text)
        if found is None:
            found = self._operands[text] = self._parse(" ".join(text.split()))
        return found

    def _parse(self, text: str) -> Operand:
        first, last = text[:1], text[-1:]
        if (first, last) in (("{", "}"), ("(", ")")):
            return Vector(tuple(map(self._operand, _split(text[1:-1]))))
        if first == "[":
            return self._address(text)
        if first == "!":
            return Not(self._register(text[1:].strip()))
        if "|" in text:
            left, _, right = text.partition("|")
            return Pair(self._operand(left), self._operand(right))
        return self._atom(text)

    def _atom(self, text: str) -> Register | Immediate | Symbol:
        match = _ATOM.fullmatch(text)
        if match is None:
            raise OperandError(f"'{text}' is not an operand" if text else "an operand is missing at a comma")
        if match["number"]:
            if _NOT_OCTAL.fullmatch(text):
                raise OperandError(f"'{text}' begins with 0, so it is octal, and has digits beyond 7")
            return Immediate(text)
        name = match["name"]
        if name[0] == "%" or name.partition(".")[0] in self.plain:
            if match["offset"]:
                raise OperandError(f"'{text}': an offset needs brackets around a register, as in [{name}+4]")
            return Register(name)
        return Symbol(name, _offset(match["offset"] or "0"))

    def _register(self, text: str) -> Register:
        operand = self._atom(text)
        if not isinstance(operand, Register):
            raise OperandError(f"'!{text}' negates something that is not a predicate register")
        return operand

    def _address(self, text: str) -> Address:
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise OperandError(f"expected an address such as [%rd1+16], got '{text}'")
        base = self._atom(match["base"])
        if match["offset"] is None:
            return Address(base)
        written = match["offset"].replace(" ", "").removeprefix("+")
        value = _offset(written)
        return Address(base, value, "" if value and written == str(value) else written)


def _offset(text: str) -> int:
    try:
        return integer(text)
    except ValueError:
        raise OperandError(f"'{text}' is not an offset in bytes") from None


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
        case Vector():
            items = ", ".join([operand_text(item, brackets, spell) for item in operand.items])
            return f"{brackets[0]}{items}{brackets[1]}"
        case Pair():
            return f"{operand_text(operand.first, brackets, spell)}|{operand_text(operand.second, brackets, spell)}"
        case Not():
            return f"!{operand_text(operand.register, brackets, spell)}"
