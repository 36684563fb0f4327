"""Rows of the moves of matrices of a warp, `ldmatrix`, `stmatrix`, `movmatrix`: PTX ISA 9.7.14.5.15 to .17."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import ClassVar

from ..layouts.layout import Layout
from .form import SM_120, Form, word
from .row import ADDRESS, VECTOR, Slot, Specific, Version
from .wgmma import TENSOR_MEMORY

GENERIC, SHARED, SHARED_CTA = "", "shared", "shared::cta"
"""State spaces: `.shared::cta` says the same as `.shared`, from PTX 7.8; generic addresses must point there."""

CTA: Version = (7, 8)

BLACKWELL: Specific = tuple(sorted((*TENSOR_MEMORY, *SM_120), key=lambda row: row[0][-1]))
"""Where shapes and types of bytes run (9.7.14.5.15, .16), and other things that came with sm_100 and sm_120."""


def blackwell(since: Version) -> Specific:
    """The targets of `BLACKWELL`, each from its own PTX version or from `since`, whichever is later."""
    return tuple((name, max(version, since)) for name, version in BLACKWELL)


NIBBLES: Specific = tuple((name, (9, 4)) for name in ("sm_90a", "sm_100f", "sm_110f", "sm_120f"))
"""Where integers of 4 bits become those of 8."""

# One matrix, rows being rows in memory and columns elements of such a row; `.trans` makes of it what is across.
_PAIRS = Layout.parse("c1 c2 r0 r1 r2 | c0")
_PAIRS_ACROSS = _PAIRS.transposed()
_BYTES = Layout.parse("c2 c3 r0 r1 r2 | c0 c1")
_BYTES_ACROSS_16 = Layout.parse("r2 r3 c0 c1 c2 | r0 r1 c3")
_BYTES_ACROSS_8 = Layout.parse("r1 r2 c0 c1 c2 | r0 c3")


def registers(name: str, count: int, *, written: bool = False) -> Slot:
    """An operand of `count` 32-bit registers in braces."""
    return Slot(name, VECTOR, count=count, written=written, own=True)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class _Matrices(Form):
    """`count` matrices of rows of 16 bytes between shared memory and registers, one after the other."""

    count: int
    transpose: bool
    ptx: Version
    sm: int
    section: str
    shape: str = "m8n8"
    type: str = "b16"
    space: str = SHARED
    only: Specific = ()
    source: str = ""

    ROOT: ClassVar[str]
    MOVES: ClassVar[str]
    BYTES: ClassVar[tuple[Layout, Layout]]
    """The layouts of matrices of bytes, as they are and transposed."""

    def __post_init__(self) -> None:
        if self.count not in (1, 2, 4):
            raise ValueError(f"{self.ROOT} {self.MOVES} 1, 2 or 4 matrices, got {self.count}")

    @cached_property
    def spelling(self) -> str:
        """The PTX opcode with all its qualifiers."""
        words = ("trans" if self.transpose else "", self.space, self.type, self.source)
        return ".".join((f"{self.ROOT}.sync.aligned.{self.shape}.x{self.count}", *filter(None, words)))

    @property
    def layout(self) -> Layout:
        """Where the elements of one matrix are, rows being rows in memory and columns elements in a row."""
        return ((_PAIRS, _PAIRS_ACROSS) if self.type == "b16" else self.BYTES)[self.transpose]

    @property
    def addresses(self) -> int:
        """How many lanes, from lane 0, give the address of a row."""
        return self.count * self.layout.rows

    @property
    def element_bits(self) -> int:
        """The width of an element in a register."""
        return 16 if self.type == "b16" else 8

    @property
    def registers(self) -> int:
        """32-bit registers per lane of all the matrices."""
        return self.count * self.layout.elements * self.element_bits // 32


@dataclass(frozen=True)
class LoadMatrix(_Matrices):
    """One form of `ldmatrix`: `count` matrices of rows of 16 bytes from shared memory. For 8-row matrices lane 8*j + i
    gives the address of row i of matrix j, for 16-row ones lane 16*j + i. The matrices arrive one after the other in
    `registers` registers of each lane. `source` is how elements of less than a byte are packed in memory: `b6x16_p32`
    or `b4x16_p64`, 16 of them and as much padding as fills 16 bytes."""

    ptx: Version = (6, 5)
    sm: int = 75
    section: str = "9.7.14.5.15"

    ROOT, MOVES = "ldmatrix", "loads"
    BYTES = (_BYTES, _BYTES_ACROSS_16)

    @property
    def memory_bits(self) -> int:
        """The width of an element in memory."""
        return {"b6x16_p32": 6, "b4x16_p64": 4, "s4": 4}.get(self.source, self.element_bits)

    @property
    def layouts(self) -> Mapping[str, Layout]:
        return {"d": self.layout}

    @cached_property
    def operands(self) -> tuple[Slot, ...]:
        return (registers("d", self.registers, written=True), Slot("p", ADDRESS, self.space or "any"))


@dataclass(frozen=True)
class StoreMatrix(_Matrices):
    """One form of `stmatrix`: `count` matrices to shared memory, one register each. Lane 8*j + i gives the address of
    row i of matrix j. The columns of a 16x8 matrix of bytes are what become the 8 rows in memory, of 16 bytes each."""

    ptx: Version = (7, 8)
    sm: int = 90
    section: str = "9.7.14.5.16"

    ROOT, MOVES = "stmatrix", "stores"
    BYTES = (_BYTES_ACROSS_8, _BYTES_ACROSS_8)

    @property
    def layouts(self) -> Mapping[str, Layout]:
        return {"r": self.layout}

    @cached_property
    def operands(self) -> tuple[Slot, ...]:
        return (Slot("p", ADDRESS, self.space or "any"), registers("r", self.registers))


@dataclass(frozen=True)
class MoveMatrix(Form):
    """`movmatrix`: transposes an 8x8 matrix of 16-bit elements from register to register."""

    ptx: Version = (7, 8)
    sm: int = 75
    section: str = "9.7.14.5.17"
    only: Specific = ()

    @cached_property
    def spelling(self) -> str:
        """The PTX opcode with all its qualifiers."""
        return "movmatrix.sync.aligned.m8n8.trans.b16"

    @property
    def source(self) -> Layout:
        """Where the elements of the matrix are before."""
        return _PAIRS

    @property
    def layout(self) -> Layout:
        """Where the elements of the matrix are after, by their rows and columns before."""
        return _PAIRS_ACROSS

    @property
    def layouts(self) -> Mapping[str, Layout]:
        return {"a": self.source, "d": self.layout}

    @cached_property
    def operands(self) -> tuple[Slot, ...]:
        return (word("d", written=True), word("a"))


LDMATRIX: tuple[LoadMatrix, ...] = tuple(LoadMatrix(n, t) for t in (False, True) for n in (1, 2, 4))
"""The forms that the passes load fragments with. `load_rows()` has all of the instruction."""

_SPACES = (GENERIC, SHARED, SHARED_CTA)


def _since(space: str, ptx: Version) -> Version:
    return max(ptx, CTA) if space == SHARED_CTA else ptx


@cache
def load_rows() -> tuple[LoadMatrix, ...]:
    """Every form of `ldmatrix`, those of `LDMATRIX` first."""
    section, ptx = "9.7.14.5.15", (8, 6)
    return (
        *LDMATRIX,
        # 8x8, 16-bit elements
        *(
            LoadMatrix(n, t, _since(space, (6, 5)), space=space)
            for space, t, n in product((GENERIC, SHARED_CTA), (False, True), (1, 2, 4))
        ),
        # 16x16, bytes
        *(
            LoadMatrix(n, True, ptx, 100, section, "m16n16", "b8", space=space, only=BLACKWELL)
            for space, n in product(_SPACES, (1, 2))
        ),
        # 16x16 and 8x16, elements of 6 and 4 bits, each delivered in a byte
        *(
            LoadMatrix(n, shape == "m16n16", ptx, 100, section, shape, "b8x16", space, BLACKWELL, source)
            for source, space, (shape, counts) in product(
                ("b6x16_p32", "b4x16_p64"), _SPACES, (("m16n16", (1, 2)), ("m8n16", (1, 2, 4)))
            )
            for n in counts
        ),
        # 8x16, integers of 4 bits, each delivered in a byte
        *(
            LoadMatrix(n, False, (9, 4), 90, section, "m8n16", "s8", space, NIBBLES, "s4")
            for space, n in product(_SPACES, (1, 2, 4))
        ),
    )


@cache
def store_rows() -> tuple[StoreMatrix, ...]:
    """Every form of `stmatrix`."""
    return (
        # 8x8, 16-bit elements
        *(
            StoreMatrix(n, t, _since(space, (7, 8)), space=space)
            for space, t, n in product(_SPACES, (False, True), (1, 2, 4))
        ),
        # 16x8, bytes
        *(
            StoreMatrix(n, True, (8, 6), 100, "9.7.14.5.16", "m16n8", "b8", space, BLACKWELL)
            for space, n in product(_SPACES, (1, 2, 4))
        ),
    )


MOVMATRIX = MoveMatrix()
