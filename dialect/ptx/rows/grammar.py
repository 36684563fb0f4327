"""The row: one line that says how an instruction is spelled, what operands it takes, and since when.

A spelling is text with groups:
- `{.a,.b}`: one of these qualifiers, or none; `.{a,b}`: one of them;
- `.T{u32,s32}`: one of them, which binds `T` for the operands; `{V=.v2,.v4}`: an optional one that binds `V`.

Operands are `name:kind`, separated by commas; a name that begins with `d` is written, others are read;
`?name:kind` may be left out. Kinds:
- a type, or a bound name: a register of that type or, if read, a literal; `2T` is twice as wide;
- `T+`: the register may be wider (ISA 9.4.1); `T*`: anything `mov` reads; `!pred`: may be negated;
- `4*b32`, `V*T`: a vector (`V*T` is a scalar where `V` is absent);
- `d|p:T`: may be followed by `|p`; `d||p:T` must be;
- `[]`: an address; `imm`, `imm(4/8/16)`: a literal; `label`; `_`: a result that must be discarded;
- `...`: whatever follows;
- `select(0/2;0/1)`: `{byte-id, thread-id}`, each a register or one of these literals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod

from ...isa.targets import Target, Version
from ..syntax import Operand

Bindings = dict[str, str]


@dataclass(frozen=True, slots=True)
class Slot:
    """One operand of a row, as its `name:kind` says.

    `destination` is for a result whose name does not begin with d; `braces` lets one register stand in braces.
    """

    name: str
    kind: str
    optional: bool = False
    pair: str = ""
    destination: bool = False
    braces: bool = False

    @property
    def written(self) -> bool:
        return self.destination or self.name[0] == "d"

    @staticmethod
    def parse(text: str) -> Slot:
        """Reads `?name:kind` or `d|p:kind`.

        Raises:
            ValueError: if the text is not of that form.
        """
        match = re.fullmatch(r"(\??)(\w+)(?:(\|\|?)\w+)?:(\S+)", text.strip())
        if match is None:
            raise ValueError(f"expected an operand such as d:T, got '{text}'")
        # Where `.v2` may stand, a single register may too be written in braces, as Triton does.
        return Slot(match[2], match[4], bool(match[1]), match[3] or "", braces=match[4].startswith("V*"))


@dataclass(frozen=True)
class Row:
    """One instruction, with its variants. `ptx` and `sm` are the first version and target number that have it.

    `meaning` names what the interpreter does for it; the opcode's first word where nothing else is said.
    """

    spelling: str
    operands: str
    section: str
    ptx: Version = (1, 0)
    sm: int = 0
    meaning: str = ""

    def unavailable(self, target: Target, version: Version) -> str | None:
        """Why the target does not have it in this PTX version, such as "needs PTX 7.0"; None if it has."""
        if target.sm < self.sm:
            return f"needs sm_{self.sm} or later"
        return "needs PTX {}.{}".format(*self.ptx) if version < self.ptx else None

    def since(self, target: Target) -> Version | None:
        """The first PTX version in which the target has it; None if it never has."""
        return self.ptx if target.sm >= self.sm else None

    def problem(self, operands: Sequence[Operand]) -> str | None:
        """What is wrong with operands that fit the slots, beyond their kinds and types."""
        return None

    @property
    def means(self) -> str:
        """The name under which the interpreter finds what the row does."""
        return self.meaning or self.root

    @property
    def root(self) -> str:
        """The opcode up to its first qualifier."""
        return re.split(r"[.{]", self.spelling, maxsplit=1)[0]

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(map(Slot.parse, self.operands.split(","))) if self.operands else ()

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("".join(piece.pattern for piece in pieces(self.spelling)))

    def match(self, opcode: str) -> Bindings | None:
        """What the qualifiers of an opcode bind, if it is one of this row's spellings."""
        found = self._pattern.fullmatch(opcode)
        return None if found is None else {k: v.lstrip(".") for k, v in found.groupdict("").items()}

    @property
    def size(self) -> int:
        """How many spellings the row has."""
        return prod(len(piece.alternatives) for piece in pieces(self.spelling))

    def spellings(self) -> list[str]:
        """Every spelling, the plainest first; large for rows of many independent qualifiers."""
        return ["".join(parts) for parts in product(*(piece.alternatives for piece in pieces(self.spelling)))]

    def samples(self) -> list[str]:
        """Spellings in which each alternative of each group stands at least once, the other groups being plain."""
        choices = [piece.alternatives for piece in pieces(self.spelling)]
        plain = [alternatives[0] for alternatives in choices]
        varied = [
            "".join((*plain[:i], alternative, *plain[i + 1 :]))
            for i, alternatives in enumerate(choices)
            for alternative in alternatives[1:]
        ]
        return ["".join(plain), *varied]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a spelling: what it may be, and the regular expression of that."""

    alternatives: tuple[str, ...]
    name: str = ""

    @property
    def pattern(self) -> str:
        choice = "|".join(map(re.escape, self.alternatives))
        return f"(?P<{self.name}>{choice})" if self.name else f"(?:{choice})"


_GROUP = re.compile(r"\.(?P<name>[A-Z]\w*)?\{(?P<needed>[^}]*)\}|\{(?:(?P<bind>[A-Z]\w*)=)?(?P<optional>[^}]*)\}")


@lru_cache(1024)
def pieces(spelling: str) -> tuple[Piece, ...]:
    """The parts of a row's spelling in order."""
    parts: list[Piece] = []
    at = 0
    for match in _GROUP.finditer(spelling):
        parts.append(Piece((spelling[at : match.start()],)))
        if match["needed"] is not None:
            alternatives = tuple(f".{word.strip()}" for word in match["needed"].split(","))
            parts.append(Piece(alternatives, match["name"] or ""))
        else:
            words = tuple(word.strip() for word in match["optional"].split(","))
            parts.append(Piece(("", *words), match["bind"] or ""))
        at = match.end()
    parts.append(Piece((spelling[at:],)))
    return tuple(parts)


def row(spelling: str, operands: str, section: str, *, ptx: Version = (1, 0), sm: int = 0, meaning: str = "") -> Row:
    """A row; see the module's text for the grammar."""
    return Row(spelling, operands, section, ptx, sm, meaning)
