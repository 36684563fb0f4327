"""All the matrix instructions of warps and warpgroups by family, the rows behind a spelling, and the ISA's sections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from heapq import nsmallest
from importlib import import_module
from itertools import product
from typing import ClassVar

from ..layouts.layout import Layout
from . import mma, wgmma
from .form import SM_120, Form, Key, order_key, word
from .row import ADDRESS, VECTOR, Slot, Specific, Version

# Rows of the warp-level matrix moves: `ldmatrix`, `stmatrix`, `movmatrix`.
#
# Source: PTX ISA 9.7.14.5.15 (ldmatrix), 9.7.14.5.16 (stmatrix), 9.7.14.5.17 (movmatrix).


GENERIC, SHARED, SHARED_CTA = "", "shared", "shared::cta"
"""State spaces: `.shared::cta` says the same as `.shared`, from PTX 7.8; generic addresses must point there."""

CTA: Version = (7, 8)

BLACKWELL: Specific = tuple(sorted((*wgmma.TENSOR_MEMORY, *SM_120), key=lambda row: row[0][-1]))
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


# What the sections of PTX ISA 9.7.14 and 9.7.15 are about, for tables that are grouped as the manual is.

SECTIONS = {
    "9.7.14.4.3": "wmma.load",
    "9.7.14.4.4": "wmma.store",
    "9.7.14.4.5": "wmma.mma",
    "9.7.14.5.1": "mma m8n8k4, f16",
    "9.7.14.5.2": "mma m8n8k4, f64",
    "9.7.14.5.3": "mma m8n8k16",
    "9.7.14.5.4": "mma m8n8k32",
    "9.7.14.5.5": "mma m8n8k128",
    "9.7.14.5.6": "mma m16n8k4",
    "9.7.14.5.7": "mma m16n8k8",
    "9.7.14.5.8": "mma m16n8k16, 16 bits and wider",
    "9.7.14.5.9": "mma m16n8k16, 8 bits",
    "9.7.14.5.10": "mma m16n8k32",
    "9.7.14.5.11": "mma m16n8k64",
    "9.7.14.5.12": "mma m16n8k128",
    "9.7.14.5.13": "mma m16n8k256",
    "9.7.14.5.15": "ldmatrix",
    "9.7.14.5.16": "stmatrix",
    "9.7.14.5.17": "movmatrix",
    "9.7.14.6.2.1": "mma.sp m16n8k16, f16 and bf16",
    "9.7.14.6.2.2": "mma.sp m16n8k32, f16 and bf16",
    "9.7.14.6.2.3": "mma.sp m16n8k16, tf32",
    "9.7.14.6.2.4": "mma.sp m16n8k8, tf32",
    "9.7.14.6.2.5": "mma.sp m16n8k32, 8 bits",
    "9.7.14.6.2.6": "mma.sp m16n8k64, 8 bits",
    "9.7.14.6.2.7": "mma.sp m16n8k64, 4 bits",
    "9.7.14.6.2.8": "mma.sp m16n8k128, 4 bits",
    "9.7.15.5.2": "wgmma.mma_async",
    "9.7.15.6": "wgmma.mma_async.sp",
}
"""Titles by number, in the order of the manual."""


def order(section: str) -> tuple[int, ...]:
    """What sorts section numbers as the manual does: 9.7.14.5.9 before 9.7.14.5.10."""
    return tuple(int(part) for part in section.split("."))


# All the matrix instructions of warps and warpgroups, family by family, and the rows behind a spelling.
#
# Source: PTX ISA 9.7.14 and 9.7.15.


def _of_wmma(table: str) -> Callable[[], tuple[Form, ...]]:
    """A table of `wmma`, which few kernels have: its module is imported when one asks for it."""
    return lambda: getattr(import_module(".wmma", __package__), table)()


FAMILIES: Mapping[str, Callable[[], tuple[Form, ...]]] = {
    # 9.7.14.4
    "wmma.load": _of_wmma("load_rows"),
    "wmma.store": _of_wmma("store_rows"),
    "wmma.mma": _of_wmma("mma_rows"),
    # 9.7.14.5
    "mma": mma.rows,
    "ldmatrix": load_rows,
    "stmatrix": store_rows,
    "movmatrix": lambda: (MOVMATRIX,),
    # 9.7.14.6
    "mma.sp": mma.sparse_rows,
    # 9.7.15.5 and .6
    "wgmma.mma_async": wgmma.rows,
}
"""The rows of each instruction, by its name."""


ROOTS = frozenset(name.partition(".")[0] for name in FAMILIES)
"""The first words of these instructions."""

SPARSE = frozenset(("sp", "sp::ordered_metadata"))
"""The qualifiers of `mma.sp`, wherever they stand."""


def family(spelling: str) -> str | None:
    """The instruction of an opcode, such as "wmma.load"; None for other families."""
    first, *words = spelling.split(".")
    if first == "mma":
        return "mma.sp" if not SPARSE.isdisjoint(words) else first
    name = f"{first}.{words[0]}" if words else first
    return name if name in FAMILIES else first if first in FAMILIES else None


@cache
def _spelled(name: str, shape: str = "") -> Mapping[str, Form]:
    """The rows of a family, or those of a shape, by their spelling."""
    rows = FAMILIES[name]()
    return {row.spelling: row for row in rows if not shape or str(getattr(row, "shape", "")) == shape}


@cache
def _by_order_key(name: str) -> Mapping[Key, Form]:
    """The rows of a family, and what older PTX versions had of it besides the text, by spellings that ignore the order
    of qualifiers. Where two agree, the ISA's own row comes first."""
    former = _of_wmma("former_rows")() if name.startswith("wmma") else ()
    rows = (*(row for row in former if family(row.spelling) == name), *FAMILIES[name]())
    return {order_key(row.spelling): row for row in rows}


def find(opcode: str) -> Form | None:
    """The row of an opcode, whatever the order of its qualifiers."""
    name = family(opcode)
    if name is None:
        return None
    shape = next((word for word in opcode.split(".") if word[:1] == "m" and word[1:2].isdecimal()), "")
    return _spelled(name, shape).get(opcode) or _by_order_key(name).get(order_key(opcode))


LIKELY = 24
"""How many spellings are compared in full."""


def nearest(opcode: str, count: int = 3) -> list[str]:
    """The spellings of these families that are most like an unknown opcode, best first: of those that share most words
    with it."""
    from difflib import get_close_matches  # for messages alone

    name, root, words = family(opcode), opcode.partition(".")[0], set(opcode.split("."))
    names = [name] if name else [n for n in FAMILIES if n.partition(".")[0] == root]
    spellings = dict.fromkeys(spelling for n in names for spelling in _spelled(n))
    likely = nsmallest(LIKELY, spellings, key=lambda spelling: len(words.symmetric_difference(spelling.split("."))))
    return get_close_matches(opcode, likely, count, 0.0)
