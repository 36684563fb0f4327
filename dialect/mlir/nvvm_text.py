"""Which instruction of PTX an operation of `nvvm` is, as one line that is read in both directions.

    cp.async.{modifier}.shared.global [dst@shared], [src@global], {size}, cpSize?

In an opcode:
- `{name}`: the word of a property; `{name/a=x/b=y}`: what stands for each word; `{name?/=.x}`: where it is set;
- `{@name}`: the state space of a pointer, `{#name}`: how many operands `name` is;
- `{name?=.x}`: where the operand is there; `{name#i32=.x}`: where it has this type.

Operands are names of operands and results, `name@space` of a pointer as a number; `name?` may be left out, as may
`name=text`, for which the text stands then;
`[name]` is an address in the space of its pointer, `[name@space]` in that space, `[name, {names}]` a place in a tensor;
`(name)` a vector: several operands, or the parts of a struct; `{name}` the number that a property is; others are text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from xdsl.dialects.builtin import BoolAttr, IntAttr, IntegerAttr, UnitAttr, i1
from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation, OpDef

from .nvvm_types import MatrixShapeAttr, ShapeAttr, SizesAttr, WordAttr

WORD, SPACE, COUNT, PRESENT, TYPED = "word", "space", "count", "present", "typed"
"""Kinds of pieces of an opcode."""

VALUE, ADDRESS, TENSOR, VECTOR = "value", "address", "tensor", "vector"
CONSTANT, TEXT, ELECTED = "constant", "text", "elected"
"""Kinds of operands."""


@dataclass(frozen=True)
class TextPiece:
    """A part of an opcode: text, or what follows from a property or an operand called `name`."""

    kind: str
    name: str
    texts: Mapping[str, str]
    optional: bool = False

    @property
    def pattern(self) -> str:
        """The regular expression of the text that may stand."""
        match self.kind:
            case "text":
                return re.escape(self.name)
            case "space":
                return rf"(?P<{self.name}__space>(\.global|\.shared(::c\w+)?|\.local|\.const)?)"
            case "count":
                return rf"(?P<{self.name}__count>\d+)"
            case "word" if not self.texts:
                return rf"(?P<{self.name}>[a-z\d][\w:]*(\.b[46]x16_p\d\d)?|L\d)"
            case _:
                words = "|".join(map(re.escape, self.texts.values()))
                suffix = "" if self.kind == WORD else "__given"
                return rf"(?P<{self.name}{suffix}>{words}){'?' if self.optional else ''}"


@dataclass(frozen=True)
class TextPlace:
    """An operand: see the kinds. `more` are the coordinates of a tensor, or what stands where the operand is left out;
    `space` is that of a pointer."""

    kind: str
    name: str
    more: str = ""
    optional: bool = False
    space: str = ""


@dataclass(frozen=True)
class Template:
    """The instruction of an operation."""

    pieces: tuple[TextPiece, ...]
    places: tuple[TextPlace, ...]
    pattern: re.Pattern[str]

    @property
    def root(self) -> str:
        """The first word of the opcode."""
        return self.pieces[0].name.partition(".")[0]


@cache
def template(text: str) -> Template:
    """Reads the line."""
    opcode, _, operands = text.partition(" ")
    pieces = tuple(map(_piece, filter(None, re.split(r"(\{[^}]*\})", opcode))))
    places = tuple(map(_place, re.findall(r"\[[^\]]*\]|[^,\s]+", operands)))
    return Template(pieces, places, re.compile("".join(piece.pattern for piece in pieces)))


def _piece(text: str) -> TextPiece:
    if text[0] != "{":
        return TextPiece("text", text, {})
    text = text[1:-1]
    if text[0] in "@#":
        return TextPiece(SPACE if text[0] == "@" else COUNT, text[1:], {})
    name, *words = text.split("/")
    if words:
        return TextPiece(WORD, name.rstrip("?"), dict(word.split("=") for word in words), name[-1] == "?")
    for mark, kind in (("?=", PRESENT), ("#i32=", TYPED)):
        if mark in text:
            name, _, spelled = text.partition(mark)
            return TextPiece(kind, name, {"": spelled}, optional=True)
    return TextPiece(WORD, text, {})


def _place(text: str) -> TextPlace:
    if match := re.fullmatch(r"\[(\w+), \{(\w+)\}\]", text):
        return TextPlace(TENSOR, match[1], match[2])
    if match := re.fullmatch(r"\[(\w+)(?:@([\w:]+))?\]", text):
        return TextPlace(ADDRESS, match[1], space=match[2] or "")
    if match := re.fullmatch(r"([{(])(\w+)[})]", text):
        return TextPlace(CONSTANT if match[1] == "{" else VECTOR, match[2])
    if match := re.fullmatch(r"_\|(\w+)", text):
        return TextPlace(ELECTED, match[1])
    if match := re.fullmatch(r"([A-Za-z]\w*)(?:@([\w:]+))?(\?|=(\w+))?", text):
        return TextPlace(VALUE, match[1], match[4] or "", bool(match[3]), match[2] or "")
    return TextPlace(TEXT, text)


# Properties and their texts.


def spelled(attribute: Attribute | None) -> str:
    """What an opcode says of a property: "" where it is not set; a flag that is set has the word ""."""
    match attribute:
        case WordAttr():
            return attribute.word.data
        case SizesAttr():
            return str(attribute)
        case IntegerAttr() if attribute.type == i1:
            return "true" if attribute.value.data else "false"
        case IntegerAttr():
            return str(attribute.value.data)
        case _:
            return ""


def property_of(definition: OpDef, name: str, text: str) -> Attribute:
    """A property of an operation from its text.

    Raises:
        ValueError: if the operation has no such word.
    """
    (base,) = definition.properties[name].constr.get_bases() or {UnitAttr}
    if issubclass(base, WordAttr):
        if text not in base.WORDS:
            raise ValueError(f"{definition.name} has no {name} = {text}")
        return base.of(text)
    if issubclass(base, SizesAttr):
        numbers = map(int, re.findall(r"\d+", text))
        kind = ShapeAttr if base is ShapeAttr else MatrixShapeAttr
        return kind.new([IntAttr(number) for number in numbers])
    if base is UnitAttr:
        return UnitAttr()
    if text in ("true", "false"):
        return BoolAttr.from_bool(text == "true")
    return IntegerAttr(int(text), 64 if name == "group" and "wgmma" in definition.name else 32)


def templates(operations: Sequence[type[IRDLOperation]]) -> dict[str, list[tuple[type[IRDLOperation], Template]]]:
    """The operations that have an instruction, by the first word of its opcode."""
    by_root: dict[str, list[tuple[type[IRDLOperation], Template]]] = {}
    for op in operations:
        text = getattr(op, "PTX", "")
        if text:
            made = template(text)
            by_root.setdefault(made.root, []).append((op, made))
    return by_root
