"""The values that a run makes, by number; and how the bytes of registers and memory say which value they are part of.

A shadow word stands beside each word of data. Byte j of a value of number n has the code 8 n + j, of 32 bits; one that
belongs to no value has 0, and is what it is. A code is kept in four planes of a byte each: so each plane has as many
bytes as the data, and what moves data moves the planes alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from ...dialect.isa.form import element_type
from ..numerics import floats
from ..numerics.floats import Array
from ..numerics.fused_sum import small_values
from . import field
from .field import Residues, embedded

PLANES = 4
_STEP = 8
"""Codes of a value: it has at most so many bytes."""


TermOperand: TypeAlias = tuple[Array, Array]
"""Values by number, 0 where there is none, and what they are in the run."""


@dataclass(frozen=True)
class Term:
    """How values came to be: an instruction, and its operands in order. Of matrix products the operands are C (m, n,
    warps), and `a` (k, m, warps) and `b` (k, n, warps)."""

    label: str
    operands: Sequence[TermOperand]
    a: TermOperand | None = None
    b: TermOperand | None = None
    symmetric: bool = False

    def of(self, at: int, shape: tuple[int, ...]) -> list[tuple[int, float]]:
        """The operands of the value of a flat index: of products C, then elements of A and B by turns."""
        place = np.unravel_index(at, shape)
        operands: list[tuple[int, float]] = []
        for index, shown in self.operands:
            index, shown = np.broadcast_to(index, shape), np.broadcast_to(shown, shape)
            operands.append((int(index[place]), float(shown[place])))
        if self.a is not None and self.b is not None:
            for k in range(len(self.a[0])):
                for (index, shown), axis in ((self.a, 0), (self.b, 1)):
                    element = (k, place[axis], place[2])
                    operands.append((int(index[element]), float(shown[element])))
        return operands


class Table:
    """Numbers by index, from 1 on; index 0 stands for no value.

    `kind` is the floating-point type that a value was made in, as its number in `KINDS`; `root` is the value that one
    was computed from alone, or itself, `origin` the key of the only value of the function that is its origin, or 0.
    `unknown` marks what depends on bits of data, and `shown` is what values are in the run. With `ordered`, `terms`
    keeps how each came to be, and `tree` has words that are equal for equal trees of instructions. `named` are the
    constants of the function, which others may stand for. Of words that follow from the byte of their root alone,
    `by_byte` has what they are for each: rows of 256, the first for words that do not, the second for the byte itself.
    """

    def __init__(self, *, ordered: bool = False) -> None:
        self.size = 1
        self.ordered = ordered
        self.named: tuple[float, ...] = ()
        self.terms: list[tuple[int, tuple[int, ...], Term]] = []
        self._tree = np.zeros(1024, np.uint64)
        self._residues = np.zeros((4, 1024), np.uint32)
        self._exact = np.ones(1024, np.bool_)
        self._kind = np.zeros(1024, np.uint8)
        self.root = np.zeros(1024, np.int64)
        self.origin = np.zeros(1024, np.uint64)
        self.unknown = np.zeros(1024, np.bool_)
        self.shown = np.zeros(1024, np.float64)
        self._row = np.zeros(1024, np.int64)
        self.by_byte = np.stack([np.zeros(256, np.uint64), np.arange(256, dtype=np.uint64)])

    def add(
        self, numbers: Residues, kind: str, shown: Array | float = np.nan, root: Array | None = None,
        term: Term | None = None, origin: Array | None = None, unknown: Array | bool = False, row: Array | int = 0,
    ) -> Array:  # fmt: skip
        """Values for numbers of any shape; `shown` is what they are in the run, `origin` the key of the one number of
        the function that each was computed from, `unknown` which depend on bits that were computed with, `row` those of
        `by_byte`. Returns their indices."""
        shape = numbers.exact.shape
        count = numbers.exact.size
        first, self.size = self.size, self.size + count
        self._grow()
        span = slice(first, self.size)
        self._residues[:, span] = numbers.residues.reshape(4, -1)
        self._exact[span] = numbers.exact.reshape(-1)
        self._kind[span] = KINDS.index(kind)
        self.shown[span] = shown.reshape(-1) if isinstance(shown, np.ndarray) else shown
        self.unknown[span] = unknown.reshape(-1) if isinstance(unknown, np.ndarray) else unknown
        if origin is not None:
            self.origin[span] = np.broadcast_to(origin, shape).reshape(-1)
        self._row[span] = row
        own = np.arange(first, self.size)
        self.root[span] = own if root is None else np.where(root.reshape(-1) > 0, root.reshape(-1), own)
        if self.ordered:
            words = numbers.key if term is None else self._trees(term, shape)
            self._tree[span] = np.broadcast_to(words, shape).reshape(-1)
            if term is not None:
                self.terms.append((first, shape, term))
        return own.reshape(shape)

    def tree(self, operand: TermOperand) -> Array:
        """Words that say by which instructions values were made of what."""
        index, shown = operand
        bits = np.ascontiguousarray(np.broadcast_to(shown, index.shape), np.float64).view(np.uint64)
        return np.where(index > 0, self._tree[index], field.word("constant", bits))

    def _trees(self, term: Term, shape: tuple[int, ...]) -> Array:
        words = [self.tree(operand) for operand in term.operands]
        if term.symmetric:
            words[:2] = [np.minimum(*words[:2]), np.maximum(*words[:2])]
        words_ = field.word(term.label, *words)
        if term.a is not None and term.b is not None:
            a, b = self.tree(term.a), self.tree(term.b)
            for k in range(len(a)):
                words_ = field.word("times", words_, a[k][:, None], b[k][None])
        return words_

    def _grow(self) -> None:
        if self.size <= len(self._exact):
            return
        capacity = max(self.size, 2 * len(self._exact))
        for name in ("_residues", "_exact", "_kind", "root", "origin", "unknown", "shown", "_tree", "_row"):
            old: Array = getattr(self, name)
            new = np.zeros((*old.shape[:-1], capacity), old.dtype)
            new[..., : old.shape[-1]] = old
            setattr(self, name, new)

    def numbers(self, index: Array) -> Residues:
        """The numbers of values."""
        return Residues(self._residues.take(index, axis=1).astype(np.uint64), self._exact[index])

    def word(self, index: Array) -> Array:
        """Words that are equal for equal values: of their numbers or, with `ordered`, of their trees."""
        return self._tree[index] if self.ordered else self.numbers(index).key

    def numbers_or(self, index: Array, concrete: Array) -> Residues:
        """The residues of values, and of floating-point numbers where there is no value."""
        numbers, none = self.numbers(index), index == 0
        if none.any():
            plain = embedded(concrete[none], self.named)
            numbers.residues[:, none], exact = plain.residues, numbers.exact.copy()
            exact[none] = True
            return Residues(numbers.residues, exact)
        return numbers

    def read_as(self, index: Array, kind: str) -> Array:
        """Values read as another type. A value of a type with a different representation becomes an unknown value."""
        same = [KINDS.index(made) for made in ALIKE.get(kind, (kind,)) if made in KINDS]
        other = (index > 0) & ~np.isin(self._kind[index], same)
        if not other.any():
            return index
        old, index = index[other], index.copy()
        made = field.hashed(f"read as {kind}", self.word(old), self._kind[old].astype(np.uint64))
        index[other] = self.add(made, "bits", root=self.root[old], unknown=True)
        return index

    def is_kind(self, index: Array, kind: str) -> Array:
        """A mask of the values that were made in a type."""
        return self._kind[index] == KINDS.index(kind)

    def byte_of(self, codes: Array) -> Array:
        """Of words with byte codes (words, bytes), the one-byte value that determines the word alone, or 0."""
        index = (codes >> np.uint64(3)).astype(np.int64)
        root = np.where(codes == 0, -1, np.where(self._row_of(index) > 0, self.root[index], 0))
        maximum = root.max(axis=1, initial=0)
        return np.where(((root == maximum[:, None]) | (root < 0)).all(axis=1), maximum, 0)

    def tried(self, codes: Array, byte: int) -> Array:
        """The bytes with codes, the value of one byte that they follow from being `byte`."""
        row = self._row_of((codes >> np.uint64(3)).astype(np.int64))
        return self.by_byte[row, byte] >> np.uint64(8) * (codes & np.uint64(7)) & np.uint64(0xFF)

    def _row_of(self, index: Array) -> Array:
        itself = (self.root[index] == index) & np.isin(self._kind[index], EIGHT)
        return np.where(itself, 1, self._row[index])

    def converted(self, words: Array, root: Array) -> tuple[Array, Array]:
        """The rows of words (words, 256) by the byte of a value, and the values of those that are its number in another
        type, or that number times a power of 2."""
        each, which = np.unique(words, axis=0, return_inverse=True)
        row, index = which.reshape(-1) + len(self.by_byte), np.zeros(root.size, np.int64)
        self.by_byte = np.concatenate([self.by_byte, each])
        pairs: list[list[int]] = np.unique(np.stack([which.reshape(-1), self._kind[root]], axis=1), axis=0).tolist()
        for number, kind in pairs:
            if (same := _conversion(each[number], KINDS[kind])) is not None:
                mine = (which.reshape(-1) == number) & (self._kind[root] == kind)
                numbers = field.multiply(self.numbers(root[mine]), embedded(np.array(same[1])))
                index[mine] = self.add(numbers, same[0], np.nan, root[mine], row=row[mine])
        return row, index

    def show(self, index: Array, shown: Array) -> None:
        """Sets the values in the run of numbers that were added without them."""
        late = (index > 0) & np.isnan(self.shown[index])
        if late.any():
            self.shown[index[late]] = shown[late]


ALIKE = {"f32": ("f32", "tf32"), "tf32": ("f32", "tf32"), "ue4m3": ("ue4m3", "e4m3")}
"""Types of values that are the same numbers in another; of each other type it is itself."""
KINDS = ("bits", "f64", "f32", "tf32", "f16", "bf16", "e4m3", "e5m2", "ue8m0", "ue4m3", "s32")


EIGHT = tuple(KINDS.index(kind) for kind in ("e4m3", "e5m2", "ue8m0"))
"""Types of 8 bits."""


# Codes in planes.

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _ones(width: int) -> int:
    return int.from_bytes(b"\1" * width, "little")


def _ramp(width: int) -> int:
    return int.from_bytes(bytes(range(width)), "little")


def planes_of(index: Array, width: int) -> Array:
    """The words (planes, ...) of values of `width` bytes."""
    kind = _WORDS[width]
    code = index.astype(np.uint64) * np.uint64(_STEP)
    planes = np.empty((PLANES, *index.shape), kind)
    for k in range(PLANES):
        planes[k] = (code >> np.uint64(8 * k) & np.uint64(0xFF)).astype(kind) * kind(_ones(width))
    planes[0] += np.where(index > 0, kind(_ramp(width)), kind(0))
    return planes


class Codes(NamedTuple):
    """Of words: the index of their values, 0 for none; the first byte in these; which words mix several parts."""

    value: Array
    first: Array
    mixed: Array


def codes_of(planes: Array) -> Codes:
    """What words are, by their planes (planes, ...)."""
    width = planes.dtype.itemsize
    kind = _WORDS[width]
    low = planes & kind(0xFF)
    code = byte_codes(low)
    present: Array = np.logical_or.reduce(planes != 0, axis=0)
    low *= kind(_ones(width))
    low[0] += present * kind(_ramp(width))
    complete: Array = np.logical_and.reduce(planes == low, axis=0)
    index = (code >> np.uint64(3)).astype(np.int64)
    return Codes(
        np.where(complete, index, 0), np.where(complete, code & np.uint64(7), 0).astype(np.int64), present & ~complete
    )


# The elements that registers and memory hold: their values by number, or what they are.


WIDTHS = {"f64": 8, "f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "ue8m0": 1}
"""Bytes of the floating-point types that values have in registers."""


def element_of(type: str) -> tuple[str, int]:
    """The type of one element, and how many a register has."""
    scalar, x, count = type.rpartition("x")
    return (scalar, int(count)) if x and count.isdigit() and scalar in WIDTHS else (type, 1)


def elements(words: Array, scalar: str, count: int) -> list[Array]:
    """The elements of registers, from the low end, as f64; of integers the integer."""
    if scalar not in WIDTHS:
        return [words.astype(np.float64)]
    width = WIDTHS[scalar]
    kind = np.dtype(f"u{width}")
    columns = words.view(kind).reshape(words.size, -1)[:, :count]
    name = "f32" if scalar == "tf32" else scalar
    if width == 1:
        table = small_values(element_type(scalar)).astype(np.float64)
        return [table[columns[:, i] & (len(table) - 1)] for i in range(count)]
    return [floats.value(np.ascontiguousarray(columns[:, i]), name) for i in range(count)]


def indices(table: Table, planes: Array, words: Array, scalar: str, count: int) -> list[Array]:
    """The values of the elements of registers by their planes (planes, threads). An element that is made of parts of
    several values is a value of its own, of which nothing is known."""
    width = WIDTHS.get(scalar, planes.dtype.itemsize)
    kind = np.dtype(f"u{width}")
    split = planes.view(kind).reshape(PLANES, planes.shape[1], -1)
    raw = words.view(kind).reshape(words.size, -1)
    indices_: list[Array] = []
    for i in range(count):
        mine, word = np.ascontiguousarray(split[:, :, i]), np.ascontiguousarray(raw[:, i])
        codes = codes_of(mine)
        index = codes.value.copy()
        odd = codes.mixed | (codes.first > 0)
        halves = np.zeros(odd.shape, np.bool_)
        if odd.any() and scalar in ("f32", "tf32"):
            upper = upper_half(table, mine, word)
            index, halves = np.where(upper > 0, upper, index), upper > 0
        if odd.any() and scalar == "bf16":
            halves = (codes.first == 2) & ~codes.mixed & table.is_kind(index, "f32")
        odd &= ~halves
        if odd.any():
            index[odd] = _of_parts(table, mine[:, odd], word[odd])
        indices_.append(np.where(halves, index, table.read_as(np.where(halves, 0, index), scalar)))
    return indices_


def _of_parts(table: Table, planes: Array, words: Array) -> Array:
    """The values of words by those of their bytes: the byte itself if only one has a value, else an unknown one."""
    made = table.add(field.hashed("bits", signature(table, planes, words)), "bits", unknown=True)
    codes = byte_codes(_split(planes))
    root = np.zeros(words.size, np.int64) if table.ordered else table.byte_of(codes)
    if (single := root > 0).any():
        own = np.ascontiguousarray(words[single]).view(np.uint8).reshape(-1, words.itemsize).astype(np.uint64)
        shifts = np.arange(0, 8 * words.itemsize, 8, dtype=np.uint64)
        tried = [np.where(codes[single] > 0, table.tried(codes[single], byte), own) for byte in range(256)]
        _, index = table.converted(np.stack([(each << shifts).sum(axis=1) for each in tried], axis=1), root[single])
        made[single] = np.where(index > 0, index, made[single])
    return made


def upper_half(table: Table, planes: Array, words: Array) -> Array:
    """The bf16 in the upper halves of f32 words whose lower halves are zero; 0 for other words."""
    halves = np.ascontiguousarray(planes).view(np.uint16).reshape(*planes.shape, 2)
    low, upper = (np.ascontiguousarray(halves[..., i]) for i in range(2))
    codes = codes_of(upper)
    plain = ~low.any(axis=0) & ~codes.mixed & (codes.first == 0) & table.is_kind(codes.value, "bf16")
    bare = np.ascontiguousarray(words).view(np.uint16).reshape(*words.shape, 2)[..., 0] == 0
    return np.where(plain & bare, codes.value, 0)


def signature(table: Table, planes: Array, words: Array) -> Array:
    """A word per element that identifies its bytes: by values and places that they come from, or by themselves."""
    raw = np.ascontiguousarray(words).view(np.uint8).reshape(words.size, -1)
    words_ = np.zeros(words.size, np.uint64)
    for byte, codes in enumerate(byte_codes(_split(planes)).T):
        key = table.word((codes >> np.uint64(3)).astype(np.int64)) + (codes & np.uint64(7))
        key = np.where(codes == 0, raw[:, byte].astype(np.uint64), key)
        words_ = field.word("byte", words_, key)
    return words_


def byte_codes(planes: Array) -> Array:
    """The codes of bytes, by their planes (planes, ...)."""
    code = planes[0].astype(np.uint64)
    for k in range(1, PLANES):
        code |= planes[k].astype(np.uint64) << np.uint64(8 * k)
    return code


def _split(planes: Array) -> Array:
    """The planes (planes, words, bytes) of the bytes of words."""
    return np.ascontiguousarray(planes).view(np.uint8).reshape(PLANES, planes.shape[1], -1)


def _conversion(words: Array, kind: str) -> tuple[str, float] | None:
    """The type as whose numbers words are those of the 256 bytes of a type of 8 bits, times a factor: a power of 2."""
    (expected,) = elements(np.arange(256, dtype=np.uint8), kind, 1)
    finite = np.isfinite(expected)
    for type in ("f32", "f16", "bf16"):
        if int(words.max()) >> 8 * WIDTHS[type]:
            continue
        (result,) = elements(words.astype(f"u{WIDTHS[type]}"), type, 1)
        factor = float(result[finite].max() / expected[finite].max())
        if np.frexp(factor)[0] == 0.5 and np.array_equal(result[finite], expected[finite] * factor):
            return type, factor
    return None
