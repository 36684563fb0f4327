"""Granularities of structured sparsity, keyed by element type and kind.

A row of matrix A is cut into chunks. Of each chunk half of the elements are stored, and one nibble of
metadata says which. Source: PTX ISA 9.7.14.6.1 and 9.7.15.6.1 (Sparse matrix storage).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from ..isa import mma_sp
from ..isa.mma_sp import Granularity


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


ONE_OF_TWO = _pattern(mma_sp.ONE_OF_TWO, index_bits=4)
TWO_OF_FOUR = _pattern(mma_sp.TWO_OF_FOUR, index_bits=2)
FOUR_OF_EIGHT = _pattern(mma_sp.FOUR_OF_EIGHT, index_bits=2)

ANY_CODE = 0b0100
"""A code that every pattern takes: the first half of a chunk. What describes zeros may use it."""


_BY_NAME = {pattern.name: pattern for pattern in (ONE_OF_TWO, TWO_OF_FOUR, FOUR_OF_EIGHT)}

PATTERNS: dict[tuple[str, str], Pattern] = {
    (row.a.name, row.kind): _BY_NAME[str(row.granularity)] for row in mma_sp.rows()
}
"""By element type and `.kind` ("" for none), as the rows of `mma.sp` have it."""


def pattern_of(element: str, kind: str = "") -> Pattern:
    """The granularity of A with elements of PTX type `element` under `.kind::kind` ("" for none).

    Raises:
        PatternError: naming the types that have one.
    """
    if (element, kind) in PATTERNS:
        return PATTERNS[element, kind]
    known = ", ".join(e + (f" (.kind::{k})" if k else "") for e, k in PATTERNS)
    under = f" under .kind::{kind}" if kind else ""
    raise PatternError(f"no sparse matrix A has elements of type '{element}'{under}; known: {known}")
