"""Rows of `wmma.load`, `wmma.store` and `wmma.mma`. Fragments of `wmma` are opaque: the ISA does not say which lane
holds what, so there are register counts and no layouts. Source: PTX ISA 9.7.14.4."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import ClassVar

from .form import ElementType, Form, ProductForm, Shape, element_types, fragment
from .row import ADDRESS, Gone, Slot, Specific, Version

GENERIC, GLOBAL, SHARED, SHARED_CTA = "", "global", "shared", "shared::cta"
SPACES = (GENERIC, GLOBAL, SHARED, SHARED_CTA)
"""State spaces; `.shared::cta` says the same as `.shared`, from PTX 7.8."""

CTA: Version = (7, 8)

ALIGNED: Version = (6, 3)
"""From here on all must be `.aligned` (PTX ISA release notes, 6.3)."""

LAYOUTS = ("row", "col")

M16N16K16, M8N32K16, M32N8K16 = Shape(16, 16, 16), Shape(8, 32, 16), Shape(32, 8, 16)
M16N16K8, M8N8K4, M8N8K32, M8N8K128 = Shape(16, 16, 8), Shape(8, 8, 4), Shape(8, 8, 32), Shape(8, 8, 128)

_PRODUCTS = "9.7.14.4.5"
"""The section of `wmma.mma`."""

_STRIDE = Slot("stride", optional=True)


def extent(shape: Shape, role: str) -> tuple[int, int]:
    """(rows, columns) of operand "a", "b", "c" or "d"."""
    m, n, k = shape
    return {"a": (m, k), "b": (k, n)}.get(role, (m, n))


def registers(shape: Shape, role: str, element: ElementType) -> int:
    """Registers of a fragment per lane (ISA 9.7.14.4.1): the matrix spread over the warp, but 8 for A and B of f16."""
    if element.name == "f16" and role in "ab":
        return 8
    rows, columns = extent(shape, role)
    return rows * columns * element.bits // (32 * max(32, element.bits))


def default_stride(shape: Shape, role: str, layout: str) -> int:
    """Elements from one row (or, by columns, column) to the next where no stride is given (ISA 9.7.14.4.2)."""
    rows, columns = extent(shape, role)
    return columns if layout == "row" else rows


def alignment(shape: Shape, role: str, element: ElementType) -> int:
    """Bytes that the address of each row (or column) must be a multiple of (ISA 9.7.14.4.2)."""
    return registers(shape, role, element) * max(32, element.bits) // 8


@dataclass(frozen=True)
class WmmaMove(Form):
    """One form of `wmma.load`, the fragment of matrix "a", "b" or "c" from memory, or of `wmma.store`, that of "d" to
    memory."""

    role: str
    layout: str
    shape: Shape
    space: str
    type: ElementType
    ptx: Version
    sm: int
    section: str
    meaning: str
    only: Specific = ()
    gone: Gone | None = None
    aligned: str = ".aligned"

    @property
    def loads(self) -> bool:
        return self.role != "d"

    @cached_property
    def spelling(self) -> str:
        """The PTX opcode with all its qualifiers."""
        space = f".{self.space}" if self.space else ""
        words = f"{self.role}.sync{self.aligned}.{self.layout}.{self.shape}{space}.{self.type.name}"
        return f"{self.meaning}.{words}"

    @cached_property
    def operands(self) -> tuple[Slot, ...]:
        place = Slot("p", ADDRESS, self.space or "any")
        moved = fragment("r", self.type, self.registers, written=self.loads)
        return (*((moved, place) if self.loads else (place, moved)), _STRIDE)

    @property
    def registers(self) -> int:
        """Registers per lane of the fragment."""
        return registers(self.shape, self.role, self.type)


@dataclass(frozen=True)
class WmmaMma(ProductForm):
    """One form of `wmma.mma`: D = A * B + C, on fragments of the same shape, layouts and types."""

    a_layout: str = "row"
    b_layout: str = "row"
    gone: Gone | None = None
    aligned: str = ".aligned"

    FRAGMENTS: ClassVar = ""

    meaning = "wmma.mma"

    @cached_property
    def spelling(self) -> str:
        """The PTX opcode with all its qualifiers; f16 multiplicands go without saying."""
        op = f".{self.bit_op}.popc" if self.bit_op else ""
        rounding = f".{self.rounding}" if self.rounding else ""
        inputs = "" if self.a.name == "f16" else f".{self.a.name}.{self.b.name}"
        satfinite = ".satfinite" if self.satfinite else ""
        layouts = f"{self.a_layout}.{self.b_layout}"
        types = f"{self.d.name}{inputs}.{self.c.name}"
        return f"wmma.mma{op}.sync{self.aligned}.{layouts}.{self.shape}{rounding}.{types}{satfinite}"

    def registers(self, role: str) -> int:
        """Registers per lane of the fragment of operand "a", "b", "c" or "d"."""
        return registers(self.shape, role, self.element(role))

    @cached_property
    def operands(self) -> tuple[Slot, ...]:
        return self.fragments


@dataclass(frozen=True, slots=True)
class Matrices:
    """The matrices of one kind of numbers: A and B of each type in `inputs`, C and D of each type in `sums`."""

    shapes: tuple[Shape, ...]
    inputs: str
    sums: str
    ptx: Version
    sm: int
    layouts: tuple[tuple[str, str], ...] = tuple(product(LAYOUTS, LAYOUTS))
    """The layouts of A and of B that there are."""

    def layouts_of(self, role: str) -> tuple[str, ...]:
        """Those of A, or of B."""
        return tuple(layout for layout in LAYOUTS if any(pair["ab".index(role)] == layout for pair in self.layouts))


_WIDE = (M16N16K16, M8N32K16, M32N8K16)

FLOATING = (
    # 9.7.14.4.3  half precision, bf16, tf32, double precision
    Matrices(_WIDE, "f16", "f16 f32", ALIGNED, 70),
    Matrices(_WIDE, "bf16", "f32", (7, 0), 80),
    Matrices((M16N16K8,), "tf32", "f32", (7, 0), 80),
    Matrices((M8N8K4,), "f64", "f64", (7, 0), 80),
)
INTEGER = (
    # 9.7.14.4.3  integers, sub-byte integers, single bits
    Matrices(_WIDE, "s8 u8", "s32", (6, 3), 72),
    Matrices((M8N8K32,), "s4 u4", "s32", (6, 3), 75, (("row", "col"),)),
    Matrices((M8N8K128,), "b1", "s32", (6, 3), 75, (("row", "col"),)),
)


def _moves(roles: str) -> tuple[WmmaMove, ...]:
    """The loads, or of D the stores, of matrices. What two kinds of numbers have alike came with the first."""
    rows: dict[str, WmmaMove] = {}
    for kind in (*FLOATING, *INTEGER):
        for shape, role in product(kind.shapes, roles):
            layouts, names = (kind.layouts_of(role), kind.inputs) if role in "ab" else (LAYOUTS, kind.sums)
            section, meaning = ("9.7.14.4.4", "wmma.store") if role == "d" else ("9.7.14.4.3", "wmma.load")
            for layout, space, type in product(layouts, SPACES, element_types(names)):
                ptx = max(kind.ptx, CTA) if space == SHARED_CTA else kind.ptx
                row = WmmaMove(role, layout, shape, space, type, ptx, kind.sm, section, meaning)
                rows.setdefault(row.spelling, row)
    return tuple(rows.values())


@cache
def load_rows() -> tuple[WmmaMove, ...]:
    """Every form of `wmma.load`."""
    return _moves("abc")


@cache
def store_rows() -> tuple[WmmaMove, ...]:
    """Every form of `wmma.store`."""
    return _moves("d")


@cache
def mma_rows() -> tuple[WmmaMma, ...]:
    """Every form of `wmma.mma`; A and B are of one type."""
    return (*_floating(), *_integer())


def _floating() -> Iterator[WmmaMma]:
    """Half precision has D and C of different types too; double precision names the rounding."""
    for kind in FLOATING:
        roundings = ("", "rn", "rz", "rm", "rp") if kind.inputs == "f64" else ("",)
        for shape, (a, b), rounding in product(kind.shapes, kind.layouts, roundings):
            for t, d, c in product(element_types(kind.inputs), element_types(kind.sums), element_types(kind.sums)):
                row = WmmaMma(shape, t, t, c, d, kind.ptx, kind.sm, _PRODUCTS, a_layout=a, b_layout=b)
                yield replace(row, rounding=rounding) if rounding else row


def _integer() -> Iterator[WmmaMma]:
    (s32,) = element_types("s32")
    for kind in INTEGER:
        for shape, (a, b), t in product(kind.shapes, kind.layouts, element_types(kind.inputs)):
            row = WmmaMma(shape, t, t, s32, s32, kind.ptx, kind.sm, _PRODUCTS, a_layout=a, b_layout=b)
            if t.name == "b1":
                yield replace(row, bit_op="xor")
                yield replace(row, bit_op="and", ptx=(7, 1), sm=80)
            else:
                yield from (row, replace(row, satfinite=True))


@cache
def former_rows() -> tuple[WmmaMove | WmmaMma, ...]:
    """Forms of half precision that later versions dropped: without `.aligned` before 6.3, where m8n32k16 and m32n8k16
    came with 6.1; and `.satfinite`, which clamps infinities and turns NaN into +0, before 6.5."""
    satfinite = [replace(row, satfinite=True, gone=((6, 5), 0)) for row in mma_rows() if row.a.name == "f16"]
    halves = (row for row in (*load_rows(), *store_rows()) if row.ptx == ALIGNED and row.type.name in ("f16", "f32"))
    earlier = (*halves, *(row for row in mma_rows() if row.a.name == "f16"), *satfinite)
    return (
        *satfinite,
        *(
            replace(row, aligned="", gone=(ALIGNED, 0), ptx=(6, 0) if row.shape == M16N16K16 else (6, 1))
            for row in earlier
        ),
    )
