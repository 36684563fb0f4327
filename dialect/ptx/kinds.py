"""The kinds of slots that hold values, read from the notation of `rows.grammar`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from .rows.grammar import Bindings, Slot


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A slot's kind with its names bound: `count` 0 is a scalar, `span` are the integers that may be literals."""

    type: str
    count: int = 0
    wider: bool = False
    address: bool = False
    special: bool = False
    pointer: bool = False
    register: bool = False
    negatable: bool = False
    parts: int = 0
    span: str = ""
    spare: bool = False
    own: bool = False
    """Whether the opcode names the type."""


def kind_of(slot: Slot, bindings: Bindings) -> ValueKind:
    """The kind of a slot, with what the qualifiers bind."""
    return _bound(slot.kind, tuple(bindings.items()))


@lru_cache(4096)
def _bound(text: str, bound: tuple[tuple[str, str], ...]) -> ValueKind:
    bindings = dict(bound)
    text, _, parts = text.partition("@")
    text, _, span = text.removesuffix(")").partition("(")
    negatable, spare = text[0] == "!", text[-1] == "_"
    text = text.rstrip("_")
    type = text.rstrip("+*%&^")
    flags, text = text[len(type) :], type.lstrip("!")
    count, star, type = text.rpartition("*")
    count = bindings.get(count, count).lstrip("v")
    doubled = type[0] == "2" and not star
    type = type.removeprefix("2") if doubled else type
    own = doubled or type in bindings or "^" in flags or (bool(star) and type[0] == "b")
    type = bindings.get(type, type)
    if doubled:
        type = f"{type[0]}{2 * int(type[1:])}"
    return ValueKind(
        type,
        int(count or 0),
        "+" in flags,
        "*" in flags,
        "%" in flags,
        "&" in flags,
        "^" in flags,
        negatable,
        int(parts or 0),
        span,
        spare,
        own,
    )
