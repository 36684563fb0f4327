"""Rows of the sparse warp-level multiply-accumulate instruction, `mma.sp` and `mma.sp::ordered_metadata`.

Half of each row of A is zero. The other half is stored, and metadata says where it belongs: a *chunk* of a row is
described by four bits of metadata, and the sparsity selector says which lanes hold them.
Source: PTX ISA 9.7.14.6; the metadata figures of 9.7.14.6.2 as bit maps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from ..layouts.layout import Layout
from . import block_scale
from .block_scale import BlockScale
from .form import CONSTANT, SCALAR, FormOperand
from .product import KIND_F8F6F4, KIND_MXF4, KIND_MXF4NVF4, KIND_MXF8F6F4, SM_120, ProductForm, Shape, fragment_layout
from .targets import Specific, Version
from .types import ElementType, element_type, element_types

ORDERED_CODES = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
"""9.7.14.6.1: the nibbles that name two different elements (or pairs) of a chunk, the lower index first."""

ANY_CODES = tuple(code for code in range(16) if code & 3 != code >> 2)
"""The nibbles that name two different elements (or pairs): what `mma.sp` takes besides the ordered ones."""

ONE_OF_TWO_CODES = (0b0100, 0b1110)
"""9.7.14.6.1, tf32: the nibble of element 0 and that of element 1 of a chunk of two."""


@dataclass(frozen=True, slots=True)
class Granularity:
    """How A is sparse: of each `chunk` elements of a row, `stored` are; they come in groups of `group`."""

    stored: int
    chunk: int
    group: int = 1

    def __str__(self) -> str:
        return f"{self.stored}:{self.chunk}" + (" in pairs" if self.group == 2 else "")

    def codes(self, ordered: bool) -> tuple[int, ...]:
        """The legal nibbles, with or without `::ordered_metadata`."""
        if self.chunk == 2:
            return ONE_OF_TWO_CODES
        return ORDERED_CODES if ordered else ANY_CODES


ONE_OF_TWO, TWO_OF_FOUR, FOUR_OF_EIGHT = Granularity(1, 2), Granularity(2, 4), Granularity(4, 8, 2)

# Who holds the nibble of row r and chunk c (a column here) when the selector is f: which lane, and where in its word.
ONE_LANE = Layout.parse("f0 f1 r0 r1 r2 | c0 c1 r3", "rcf")
TWO_LANES_BY_CHUNK = Layout.parse("c2 f0 r0 r1 r2 | c0 c1 r3", "rcf")
TWO_LANES_BY_ROW = Layout.parse("r3 f0 r0 r1 r2 | c0 c1 c2", "rcf")
FOUR_LANES = Layout.parse("r3 c3 r0 r1 r2 | c0 c1 c2", "rcf")


@dataclass(frozen=True, slots=True)
class MmaSparse(ProductForm):
    """One form of `mma.sp`: D = A * B + C by one warp, A being stored without half of its elements.

    `granularity` says how A is sparse and `metadata` who holds which nibble; `ordered` whether the spelling has
    `::ordered_metadata`, which wants the indices of a chunk in increasing order. The rest is as in `Mma`.
    """

    shape: Shape
    a: ElementType
    b: ElementType
    c: ElementType
    d: ElementType
    ptx: Version
    sm: int
    section: str
    granularity: Granularity
    metadata: Layout
    ordered: bool
    only: Specific = ()
    satfinite: bool = False
    kind: str = ""
    scale: BlockScale | None = None

    def __post_init__(self) -> None:
        self.check_registers()
        if (self.metadata.rows, self.metadata.columns * self.granularity.chunk) != (self.shape.m, self.shape.k):
            raise ValueError(f"{self.spelling}: the metadata must describe the {self.shape.m}x{self.shape.k} matrix A")

    @property
    def spelling(self) -> str:
        """The PTX opcode with all its qualifiers."""
        variant = "::ordered_metadata" if self.ordered else ""
        return f"mma.sp{variant}.sync.aligned.{self.shape}.row.col{self.qualifiers}"

    @property
    def operands(self) -> tuple[FormOperand, ...]:
        """d, a, b, c, the metadata e and its selector f, and the scales with their selectors."""
        sparse = (FormOperand("e", SCALAR), FormOperand("f", CONSTANT))
        return (*self.fragments, *sparse, *(block_scale.OPERANDS if self.scale else ()))

    @property
    def selectors(self) -> range:
        """The legal values of the sparsity selector f."""
        return range(self.metadata.extent("f"))

    @property
    def codes(self) -> tuple[int, ...]:
        """The nibbles of metadata that mean something."""
        return self.granularity.codes(self.ordered)

    def layout(self, role: str) -> Layout:
        """The fragment layout of operand "a", "b", "c" or "d"; that of A is over the m x k/2 stored elements."""
        m, n, k = self.shape
        return fragment_layout(role, m, n, k // 2 if role == "a" else k, self.container_bits(role))


@cache
def rows() -> tuple[MmaSparse, ...]:
    """Every form of `mma.sp` and `mma.sp::ordered_metadata`."""
    return (*_floating(), *_integer(), *_fp8(), *_f8f6f4(), *_scaled())


_VARIANTS: tuple[tuple[bool, Version], ...] = ((False, (7, 1)), (True, (8, 5)))
"""Whether the metadata is ordered, and the first PTX version."""

_F8F6F4 = "e4m3 e5m2 e3m2 e2m3 e2m1"


def _floating() -> Iterator[MmaSparse]:
    """9.7.14.6.3  half precision, bf16, tf32."""
    for (shape, name, accumulators, granularity, metadata, section), (ordered, ptx) in product(
        (
            (Shape(16, 8, 16), "f16", "f16 f32", TWO_OF_FOUR, ONE_LANE, "9.7.14.6.2.1"),
            (Shape(16, 8, 32), "f16", "f16 f32", TWO_OF_FOUR, TWO_LANES_BY_CHUNK, "9.7.14.6.2.2"),
            (Shape(16, 8, 16), "bf16", "f32", TWO_OF_FOUR, ONE_LANE, "9.7.14.6.2.1"),
            (Shape(16, 8, 32), "bf16", "f32", TWO_OF_FOUR, TWO_LANES_BY_CHUNK, "9.7.14.6.2.2"),
            (Shape(16, 8, 8), "tf32", "f32", ONE_OF_TWO, ONE_LANE, "9.7.14.6.2.4"),
            (Shape(16, 8, 16), "tf32", "f32", ONE_OF_TWO, TWO_LANES_BY_CHUNK, "9.7.14.6.2.3"),
        ),
        _VARIANTS,
    ):
        t = element_type(name)
        for acc in element_types(accumulators):
            yield MmaSparse(shape, t, t, acc, acc, ptx, 80, section, granularity, metadata, ordered)


def _integer() -> Iterator[MmaSparse]:
    """9.7.14.6.3  integers: any mix of signs; `.satfinite` clamps the sum instead of wrapping it."""
    (s32,) = element_types("s32")
    for (shape, names, granularity, metadata, section), (ordered, ptx) in product(
        (
            (Shape(16, 8, 32), "s8 u8", TWO_OF_FOUR, TWO_LANES_BY_ROW, "9.7.14.6.2.5"),
            (Shape(16, 8, 64), "s8 u8", TWO_OF_FOUR, FOUR_LANES, "9.7.14.6.2.6"),
            (Shape(16, 8, 64), "s4 u4", FOUR_OF_EIGHT, TWO_LANES_BY_ROW, "9.7.14.6.2.7"),
            (Shape(16, 8, 128), "s4 u4", FOUR_OF_EIGHT, FOUR_LANES, "9.7.14.6.2.8"),
        ),
        _VARIANTS,
    ):
        for a, b, satfinite in product(element_types(names), element_types(names), (False, True)):
            yield MmaSparse(
                shape, a, b, s32, s32, ptx, 80, section, granularity, metadata, ordered, satfinite=satfinite
            )  # fmt: skip


def _byte(a: ElementType, b: ElementType, acc: ElementType, ptx: Version, sm: int, ordered: bool = True,
          only: Specific = (), kind: str = "", scale: BlockScale | None = None) -> MmaSparse:  # fmt: skip
    """m16n8k64 with elements in bytes."""
    section = "9.7.14.6.2.6"
    return MmaSparse(Shape(16, 8, 64), a, b, acc, acc, ptx, sm, section, TWO_OF_FOUR, FOUR_LANES, ordered, only,
                     kind=kind, scale=scale)  # fmt: skip


def _fp8() -> Iterator[MmaSparse]:
    """9.7.14.6.3  e4m3 and e5m2 in every mix; f16 sums only where `.kind::f8f6f4` has them too."""
    f16, f32 = element_types("f16 f32")
    for a, b in product(element_types("e4m3 e5m2"), repeat=2):
        yield _byte(a, b, f32, (8, 4), 89, ordered=False)
        yield _byte(a, b, f32, (8, 5), 89)
        yield _byte(a, b, f16, (8, 7), 120, only=SM_120)


def _f8f6f4() -> Iterator[MmaSparse]:
    """9.7.14.6.3  `.kind::f8f6f4`: five types in every mix, one element to a byte."""
    for (a, b), acc in product(product(element_types(_F8F6F4), repeat=2), element_types("f16 f32")):
        yield _byte(a, b, acc, (8, 7), 120, only=SM_120, kind=KIND_F8F6F4)


SM_120A_121A: Specific = (("sm_120a", (8, 7)), ("sm_121a", (8, 8)))
"""9.7.14.6.3, Target ISA Notes: where sparse mxf4 and mxf4nvf4 run."""


def _scaled() -> Iterator[MmaSparse]:
    """9.7.14.3, table 36  block scaling; only mxf4nvf4 has to name the number of scales."""
    f32, e2m1, ue8m0, ue4m3 = element_types("f32 e2m1 ue8m0 ue4m3")
    for (a, b), written in product(product(element_types(_F8F6F4), repeat=2), (False, True)):
        scale = BlockScale(1, ue8m0, written)
        yield _byte(a, b, f32, (8, 7), 120, only=SM_120, kind=KIND_MXF8F6F4, scale=scale)
    for kind, scale in (
        (KIND_MXF4, BlockScale(2, ue8m0, written=False)),
        (KIND_MXF4, BlockScale(2, ue8m0)),
        (KIND_MXF4NVF4, BlockScale(2, ue8m0)),
        (KIND_MXF4NVF4, BlockScale(4, ue4m3)),
    ):
        yield MmaSparse(Shape(16, 8, 128), e2m1, e2m1, f32, f32, (8, 7), 120, "9.7.14.6.2.8", FOUR_OF_EIGHT,
                        FOUR_LANES, True, SM_120A_121A, kind=kind, scale=scale)  # fmt: skip


@cache
def later_rows() -> tuple[MmaSparse, ...]:
    """What PTX 9.1 adds, which the tables, of the last version that is checked against an assembler, do not have."""
    f32, e2m1, ue8m0 = element_types("f32 e2m1 ue8m0")
    only: Specific = (("sm_120a", (9, 1)), ("sm_121a", (9, 1)))
    return (
        MmaSparse(Shape(16, 8, 128), e2m1, e2m1, f32, f32, (9, 1), 120, "9.7.14.6.2.8", FOUR_OF_EIGHT, FOUR_LANES, True,
                  only, kind=KIND_MXF4NVF4, scale=BlockScale(4, ue8m0)),
    )  # fmt: skip
