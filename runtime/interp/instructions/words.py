"""The dotted words of an opcode: types, and modifiers that are taken one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ..errors import DecodeError

DTYPES: dict[str, type[np.generic]] = {
    "pred": np.bool_,
    **{f"b{n}": getattr(np, f"uint{n}") for n in (8, 16, 32, 64)},
    **{f"u{n}": getattr(np, f"uint{n}") for n in (8, 16, 32, 64)},
    **{f"s{n}": getattr(np, f"int{n}") for n in (8, 16, 32, 64)},
    "b128": np.complex128,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": np.uint16,
    "f16x2": np.uint32,
    "bf16x2": np.uint32,
    "f32x2": np.uint64,
    "u16x2": np.uint32,
    "s16x2": np.uint32,
}
"""How the bits of each type are seen: bf16 and packed types as words, 128 bits as what numpy has that is as wide."""

INTEGERS = frozenset(f"{s}{n}" for s in "us" for n in (16, 32, 64))
BITS = frozenset(("b8", "b16", "b32", "b64"))
PAIRS = frozenset(("u16x2", "s16x2"))
FLOATS = frozenset(("f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "f32x2"))

_WIDTH = re.compile(r"[a-z]+(\d+)(x2)?")


def integer_range(type: str) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    bits = width_of(type)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if type[0] == "s" else (0, (1 << bits) - 1)


def width_of(type: str) -> int:
    """Bits of a type; a predicate has 1.

    Raises:
        DecodeError: for a type registers cannot have here.
    """
    if type == "pred":
        return 1
    match = _WIDTH.fullmatch(type)
    if match is None or type not in DTYPES:
        raise DecodeError(f"type .{type} is not supported")
    return int(match[1]) * (2 if match[2] else 1)


class Modifiers:
    """The dotted words after the first of an opcode, taken one by one."""

    def __init__(self, opcode: str) -> None:
        self.root, *self.words = opcode.replace("::", ".::").split(".")
        self.words = _join_scoped(self.words)

    def one(self, *choices: str) -> str:
        """The first word, removed, if it is one of `choices`; otherwise ""."""
        if self.words and self.words[0] in choices:
            return self.words.pop(0)
        return ""

    def expect(self, *choices: str) -> str:
        """The first word, removed.

        Raises:
            DecodeError: if it is not one of `choices`.
        """
        found = self.one(*choices)
        if not found:
            got = f".{self.words[0]}" if self.words else "none"
            raise DecodeError(f"{self.root}: expected .{' or .'.join(choices)}, got {got}")
        return found

    def flag(self, word: str) -> bool:
        """Whether `word` is among the words; it is removed."""
        if word in self.words:
            self.words.remove(word)
            return True
        return False

    def drop(self, *words: str) -> None:
        """Removes words that do not change what is computed."""
        self.words = [w for w in self.words if w not in words]

    def type(self, *choices: str) -> str:
        """The first word, removed: a type.

        Raises:
            DecodeError: if it is not among `choices` (all types, if none are given).
        """
        if not self.words or self.words[0] not in (choices or DTYPES):
            got = f".{self.words[0]}" if self.words else "none"
            known = ", ".join(f".{c}" for c in choices)
            raise DecodeError(
                f"{self.root}: type {got} is not supported" + (f"; expected one of {known}" if known else "")
            )
        return self.words.pop(0)

    def last_type(self, choices: Sequence[str] | frozenset[str]) -> str:
        """The last word, removed: the type of most instructions."""
        if not self.words or self.words[-1] not in choices:
            got = f".{self.words[-1]}" if self.words else "none"
            raise DecodeError(f"{self.root}: type {got} is not supported")
        return self.words.pop()

    def done(self) -> None:
        """Raises:
        DecodeError: naming the words nobody took.
        """
        if self.words:
            raise DecodeError(f"{self.root}: modifier .{'.'.join(self.words)} is not supported")


def _join_scoped(words: Sequence[str]) -> list[str]:
    """`L1`, `::no_allocate` are one word."""
    joined: list[str] = []
    for word in words:
        if word.startswith("::") and joined:
            joined[-1] += word
        else:
            joined.append(word)
    return joined
