"""Granularities of structured sparsity, and the metadata layout of A of each sparse instruction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import comb

from ..isa import mma
from ..isa.form import Granularity
from ..layouts.layout import LANES, Bit

# Granularities of structured sparsity, keyed by element type and kind.
#
# A row of matrix A is cut into chunks. Of each chunk half of the elements are stored, and one nibble of metadata says
# which. Source: PTX ISA 9.7.14.6.1 and 9.7.15.6.1 (Sparse matrix storage).


class PatternError(ValueError):
    """An element type, matrix or code that is not of the pattern; the message says where."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One granularity: `stored` of `chunk` consecutive elements of a row are stored.

    Elements are stored in units of `unit` neighbours. A chunk's nibble holds one index of `index_bits` bits
    for each stored unit, the first lowest. `codes` are the nibbles with a meaning; `ordered` those
    that `::ordered_metadata` takes, where indices increase.
    """

    name: str
    chunk: int
    stored: int
    unit: int
    index_bits: int
    codes: tuple[int, ...]
    ordered: tuple[int, ...]
    section: str = "9.7.14.6.1"

    def __post_init__(self) -> None:
        if 2 * self.stored != self.chunk or self.stored % self.unit or self.index_bits * self.slots != 4:
            raise ValueError(f"{self.name}: a nibble must place half of a chunk")
        ordered, places = ({self.positions(code) for code in codes} for codes in (self.ordered, self.codes))
        if len(ordered) != comb(self.units, self.slots) or any(list(p) != sorted(p) for p in ordered):
            raise ValueError(f"{self.name}: the ordered codes must be the increasing choices of units, once each")
        if not ordered <= places or any(len(set(p)) < self.slots for p in places):
            raise ValueError(f"{self.name}: a code must place different units")

    @property
    def units(self) -> int:
        """Units of a chunk: what an index counts."""
        return self.chunk // self.unit

    @property
    def slots(self) -> int:
        """StoredIntegers units of a chunk."""
        return self.stored // self.unit

    def positions(self, code: int) -> tuple[int, ...]:
        """Which units of the chunk the stored units are, by the nibble `code`, legal or not.

        Indices count quarters of a chunk. Where halves are stored (1:2) the nibble has the index of
        both quarters of one: 0b0100 is quarters 0 and 1, unit 0; 0b1110 is quarters 2 and 3, unit 1.
        """
        indices = (code & 3, code >> 2)
        return indices if self.slots == 2 else (indices[0] >> 1,)

    def legal(self, ordered: bool) -> tuple[int, ...]:
        """The codes with a meaning, for `::ordered_metadata` if `ordered`."""
        return self.ordered if ordered else self.codes

    def complaint(self, code: int, ordered: bool) -> str | None:
        """Why the nibble `code` has no meaning, and what has; None if it has one."""
        legal = self.legal(ordered)
        if code in legal:
            return None
        expected = f"expected one of {', '.join(map(binary, legal))}"
        if code > 0xF:
            return f"it is more than a nibble; {expected}"
        if self.slots == 1:
            return expected
        first, second = self.positions(code)
        if first == second:
            return f"index {first} is there twice; {expected}"
        swapped = binary(second | first << 2)
        return (
            f"indices must increase from the lowest bits, got {first}, {second}; "
            f"{swapped} with the stored elements exchanged says the same"
        )

    def illegal(self, word: int, ordered: bool) -> tuple[tuple[int, int], ...]:
        """The nibbles of a 32-bit metadata word that have no meaning: pairs (nibble number, code)."""
        nibbles = ((q, word >> 4 * q & 0xF) for q in range(8))
        return tuple((q, code) for q, code in nibbles if code not in self.legal(ordered))

    def __str__(self) -> str:
        return self.name


def binary(code: int) -> str:
    """A nibble as the manual writes it: 0b0100."""
    return f"0b{code:04b}"


def _pattern(granularity: Granularity, index_bits: int) -> Pattern:
    return Pattern(
        str(granularity),
        granularity.chunk,
        granularity.stored,
        granularity.group,
        index_bits,
        codes=granularity.codes(ordered=False),
        ordered=granularity.codes(ordered=True),
    )


ONE_OF_TWO = _pattern(mma.ONE_OF_TWO, index_bits=4)
TWO_OF_FOUR = _pattern(mma.TWO_OF_FOUR, index_bits=2)
FOUR_OF_EIGHT = _pattern(mma.FOUR_OF_EIGHT, index_bits=2)

ANY_CODE = 0b0100
"""A code that every pattern takes: the first half of a chunk. What describes zeros may use it."""


_BY_NAME = {pattern.name: pattern for pattern in (ONE_OF_TWO, TWO_OF_FOUR, FOUR_OF_EIGHT)}

PATTERNS: dict[tuple[str, str], Pattern] = {
    (row.a.name, row.kind): _BY_NAME[str(row.granularity)] for row in mma.sparse_rows()
}
"""By element type and `.kind` ("" for none), as the rows of `mma.sp` have it."""


def pattern_of(element: str, kind: str = "") -> Pattern:
    """The granularity of A with elements of PTX type `element` under `.kind::kind` ("" for none).

    Raises:
        PatternError: naming the types that have one.
    """
    if (element, kind) in PATTERNS:
        return PATTERNS[element, kind]
    types = ", ".join(e + (f" (.kind::{k})" if k else "") for e, k in PATTERNS)
    under = f" under .kind::{kind}" if kind else ""
    raise PatternError(f"no sparse matrix A has elements of type '{element}'{under}; known: {types}")


# Sparse operands as rows: the granularity and the metadata layout of A of each sparse instruction.
#
# The layout of metadata is linear over bits, like a fragment (`warploom.dialect.layouts.layout`), so it is one line::
#
#     c2 f0 r0 r1 r2 | c0 c1 r3        f16, m16n8k32
#
# Left of the bar are the 5 bits of the lane, right of it the 3 bits of the number of a nibble of its word, least
# significant first. `r3` is bit 3 of the row of A, `c2` bit 2 of the chunk in that row, `f0` bit 0 of the sparsity
# selector: with selector f, only lanes with those bits contribute.
#
# Sources: the text of PTX ISA 9.7.14.6.1 and 9.7.15.6.1 for selectors, the figures of 9.7.14.6.2 for places.

ROWS_PER_WARP = 16
NIBBLES = 8


@dataclass(frozen=True)
class MetadataLayout:
    """A bijection from (lane, nibble) to (selector, row, chunk) of the 16 rows that a warp works on.

    Raises:
        ValueError: unless there are 5 lane bits, 3 nibble bits, 16 rows, and each bit of the selector,
            row and chunk is carried once.
    """

    lane: tuple[Bit, ...]
    nibble: tuple[Bit, ...]

    def __post_init__(self) -> None:
        if len(self.lane) != 5 or len(self.nibble) != 3:
            raise ValueError(f"metadata has 5 lane bits and 3 nibble bits, '{self}' does not")
        for axis in "frc":
            numbers = sorted(bit.number for bit in self.lane + self.nibble if bit.axis == axis)
            if numbers != list(range(len(numbers))) or (axis == "r" and len(numbers) != 4):
                raise ValueError(f"'{self}' must carry each bit of axis {axis} once, and 4 bits of the row")

    @staticmethod
    def parse(text: str) -> MetadataLayout:
        """Reads the notation `c2 f0 r0 r1 r2 | c0 c1 r3`."""
        if not re.fullmatch(r"(\s*[frc]\d+)+\s*\|(\s*[frc]\d+)+\s*", text):
            raise ValueError(f"expected a metadata layout 'c2 f0 r0 r1 r2 | c0 c1 r3', got '{text}'")
        lane, nibble = (tuple(Bit(w[0], int(w[1:])) for w in half.split()) for half in text.split("|"))
        return MetadataLayout(lane, nibble)

    def __str__(self) -> str:
        return " | ".join(" ".join(map(str, half)) for half in (self.lane, self.nibble))

    @cached_property
    def selectors(self) -> int:
        """How many values the sparsity selector has: 0 to this, exclusive."""
        return self._size("f")

    @cached_property
    def chunks(self) -> int:
        """Chunks of a row of one instruction's A."""
        return self._size("c")

    def _size(self, axis: str) -> int:
        return 1 << sum(bit.axis == axis for bit in self.lane + self.nibble)

    def position(self, lane: int, nibble: int) -> tuple[int, int, int]:
        """(selector, row, chunk) of a nibble of a lane's word."""
        place = {"f": 0, "r": 0, "c": 0}
        for bits, value in ((self.lane, lane), (self.nibble, nibble)):
            for i, bit in enumerate(bits):
                place[bit.axis] |= (value >> i & 1) << bit.number
        return place["f"], place["r"], place["c"]

    def inverse(self) -> dict[tuple[int, int, int], tuple[int, int]]:
        """From (selector, row, chunk) to (lane, nibble)."""
        places = ((lane, nibble) for lane in range(LANES) for nibble in range(NIBBLES))
        return {self.position(*place): place for place in places}

    def lanes(self, selector: int) -> tuple[int, ...]:
        """The lanes that contribute metadata under this selector."""
        return tuple(lane for lane in range(LANES) if self.position(lane, 0)[0] == selector)


# one thread of four: T0, T1, T2 or T3; a word is 4 chunks of rows g and g + 8
SINGLE = MetadataLayout.parse(str(mma.ONE_LANE))
# a pair of threads, T0, T1 or T2, T3; a word is 4 chunks of rows g and g + 8
PAIR_16 = MetadataLayout.parse(str(mma.TWO_LANES_BY_CHUNK))
# all four threads
ALL_8 = MetadataLayout.parse(str(mma.FOUR_LANES))


@dataclass(frozen=True, slots=True)
class SparseOperand:
    """Matrix A of one sparse instruction: m x k logical elements, of which k / 2 a row are stored.

    `m` is 16 for `mma.sp` (a warp) and 64 for `wgmma.mma_async.sp` (four warps, 16 rows each). `kind` is the
    `.kind::` qualifier or "". `ordered_only` says that the text gives a meaning to ordered codes alone.
    """

    m: int
    k: int
    element: str
    kind: str
    metadata: MetadataLayout
    section: str
    ordered_only: bool = False
    pattern: Pattern = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", PATTERNS[self.element, self.kind])
        if self.metadata.chunks * self.pattern.chunk != self.k:
            raise ValueError(f"{self}: {self.metadata.chunks} chunks of {self.pattern.chunk} are not {self.k} columns")

    @property
    def instruction(self) -> str:
        return "mma.sp" if self.m == ROWS_PER_WARP else "wgmma.mma_async.sp"

    @property
    def warps(self) -> int:
        """Warps that share the operand, 16 rows each."""
        return self.m // ROWS_PER_WARP

    @property
    def threads(self) -> int:
        """Threads with a metadata word."""
        return self.warps * LANES

    @property
    def chunks(self) -> int:
        """Chunks of one row."""
        return self.metadata.chunks

    @property
    def selectors(self) -> int:
        """How many values the sparsity selector may take: 0 to this, exclusive."""
        return self.metadata.selectors

    def needs_order(self, ordered: bool) -> bool:
        """Whether indices must increase, in the `::ordered_metadata` form if `ordered`."""
        return ordered or self.ordered_only

    def __str__(self) -> str:
        n = "n8" if self.m == ROWS_PER_WARP else "nN"
        kind = f" .kind::{self.kind}" if self.kind else ""
        return f"{self.instruction} m{self.m}{n}k{self.k} {self.element}{kind}"


def _of_mma_sp() -> Iterator[SparseOperand]:
    """The A of each row of `mma.sp`, once. Every kind but none has the `::ordered_metadata` form alone."""
    seen: set[tuple[int, str, str]] = set()
    for row in mma.sparse_rows():
        key = (row.shape.k, row.a.name, row.kind)
        if key not in seen:
            seen.add(key)
            layout = MetadataLayout.parse(str(row.metadata))
            yield SparseOperand(row.shape.m, *key, layout, row.section, ordered_only=bool(row.kind))


def _of_wgmma(k: int, elements: str, metadata: MetadataLayout) -> Iterator[SparseOperand]:
    return (SparseOperand(64, k, element, "", metadata, "9.7.15.6.1") for element in elements.split())


ROWS: tuple[SparseOperand, ...] = (
    *_of_mma_sp(),
    # 9.7.15.6.1  m64nNk32, k16 and k64
    *_of_wgmma(32, "f16 bf16", PAIR_16),
    *_of_wgmma(16, "tf32", PAIR_16),
    *_of_wgmma(64, "e4m3 e5m2 s8 u8", ALL_8),
)

Key = tuple[int, int, str, str]
BY_KEY: dict[Key, SparseOperand] = {(r.m, r.k, r.element, r.kind): r for r in ROWS}


class UnknownOperandError(ValueError):
    """No sparse instruction has such a matrix A."""


def sparse_operand(m: int, k: int, element: str, kind: str = "") -> SparseOperand:
    """The row of a sparse A of m x k elements of PTX type `element`, under `.kind::kind` ("" for none).

    Raises:
        UnknownOperandError: naming the rows most like it.
    """
    if (m, k, element, kind) in BY_KEY:
        return BY_KEY[m, k, element, kind]
    near = sorted(ROWS, key=lambda r: (r.element != element) + (r.kind != kind) + (r.k != k) + 2 * (r.m != m))
    under = f" under .kind::{kind}" if kind else ""
    raise UnknownOperandError(
        f"no sparse instruction takes A of {m}x{k} {element}{under}; the nearest are {', '.join(map(str, near[:3]))}"
    )
