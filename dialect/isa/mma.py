"""Rows of the warp-level multiply-accumulate instructions: `mma.sync`, `mma.sp` and `mma.sp::ordered_metadata`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Any, NamedTuple

from ..layouts.layout import LANES, Layout
from .form import (
    F8F6F4,
    FP8,
    KIND_F8F6F4,
    KIND_MXF4,
    KIND_MXF4NVF4,
    KIND_MXF8F6F4,
    SM_120,
    BlockScale,
    Granularity,
    ProductForm,
    Shape,
    element_type,
    element_types,
    fragment_layout,
    word,
)
from .row import CONSTANT, Slot, Specific, Version, choice

# Rows of the dense warp-level multiply-accumulate instruction, `mma.sync`.
#
# To add a shape, add a row: verifier, fragment types, spelling, parser, interpreter and tables follow. Source: PTX ISA
# 9.7.14.5.14 (mma), with the fragments of 9.7.14.5.1 to 9.7.14.5.13.

_FOUR_PRODUCTS = {
    # 9.7.14.5.1  four lanes and the four that are 16 further on compute product q
    "a.row": Layout.parse("r0 r1 q0 q1 r2 | c0 c1", "rcq"),
    "a.col": Layout.parse("c0 c1 q0 q1 r2 | r0 r1", "rcq"),
    "b.row": Layout.parse("r0 r1 q0 q1 c2 | c0 c1", "rcq"),
    "b.col": Layout.parse("c0 c1 q0 q1 c2 | r0 r1", "rcq"),
    "f16": Layout.parse("r0 r1 q0 q1 r2 | c0 c1 c2", "rcq"),
    "f32": Layout.parse("r0 c1 q0 q1 r2 | c0 r1 c2", "rcq"),
}


@dataclass(frozen=True)
class Mma(ProductForm):
    """One form of `mma.sync`, `mma.sp` or `mma.sp::ordered_metadata`: D = A * B + C by one warp."""

    a_layout: str = "row"
    b_layout: str = "col"

    @cached_property
    def spelling(self) -> str:
        """The PTX opcode with all its qualifiers."""
        sparse = "" if not self.sparse else ".sp::ordered_metadata" if self.ordered else ".sp"
        before = ".satfinite" if self.satfinite else f".kind::{self.kind}" if self.kind else ""
        before += self.scale.qualifiers if self.scale else ""
        types = ".".join(element.name for element in (self.d, self.a, self.b, self.c))
        after = f".{self.scale.type.name}" if self.scale else f".{self.rounding}" if self.rounding else ""
        after += f".{self.bit_op}.popc" if self.bit_op else ""
        return f"mma{sparse}.sync.aligned.{self.shape}.{self.a_layout}.{self.b_layout}{before}.{types}{after}"

    @property
    def products(self) -> int:
        """How many products of this shape one warp computes: 4 for m8n8k4 in f16, else 1."""
        return 4 if self.shape == (8, 8, 4) and self.a.bits == 16 else 1

    @cached_property
    def operands(self) -> tuple[Slot, ...]:
        """d, a, b, c, of a sparse A the metadata e and its selector f, and the scales with their selectors."""
        sparse = (word("e", braces=True), Slot("f", CONSTANT, span=choice(self.selectors))) if self.sparse else ()
        return (*self.fragments, *sparse, *(self.scale.operands if self.scale else ()))

    def _lane_bits(self, role: str) -> int:
        """Bits of an operand in a lane. Each element is in one lane."""
        m, n, k = self.shape
        elements = {"a": m * self.stored_k, "b": k * n}.get(role, m * n) * self.products // LANES
        return elements * self.container_bits(role)

    def registers(self, role: str) -> int:
        return self._lane_bits(role) // max(32, self.element(role).bits)

    def layout(self, role: str) -> Layout:
        """The fragment layout of operand "a", "b", "c" or "d"; axis `q` is the product where there are four. That of a
        sparse A is over the m x k/2 stored elements."""
        if self.products > 1:
            key = {"a": f"a.{self.a_layout}", "b": f"b.{self.b_layout}"}.get(role) or self.element(role).name
            return _FOUR_PRODUCTS[key]
        m, n, k = self.shape
        return fragment_layout(role, m, n, self.stored_k if role == "a" else k, self.container_bits(role))


def _forms(shape: str, operands: str, accumulators: str, *, ptx: Version, sm: int, section: str) -> tuple[Mma, ...]:
    """Rows of one shape: every multiplicand type (the same for A and B) with every accumulator type (the same for C and
    D)."""
    return tuple(
        Mma(Shape.parse(shape), t, t, acc, acc, ptx, sm, section)
        for t, acc in product(element_types(operands), element_types(accumulators))
    )


ROWS: tuple[Mma, ...] = (
    # 9.7.14.5.7  m16n8k8
    *_forms("m16n8k8", "f16", "f16 f32", ptx=(6, 5), sm=75, section="9.7.14.5.7"),
    *_forms("m16n8k8", "bf16", "f32", ptx=(7, 0), sm=80, section="9.7.14.5.7"),
    # 9.7.14.5.8  m16n8k16, floating point
    *_forms("m16n8k16", "f16", "f16 f32", ptx=(7, 0), sm=80, section="9.7.14.5.8"),
    *_forms("m16n8k16", "bf16", "f32", ptx=(7, 0), sm=80, section="9.7.14.5.8"),
)
"""The forms that most kernels have, made with the module. `rows()` has all of the instruction."""


class Variant(NamedTuple):
    """The qualifiers that distinguish forms with equal element types: the `op` of `op.popc`, `.kind`, the type of the
    scales."""

    bit_op: str = ""
    kind: str = ""
    scale_type: str = ""


PLAIN = Variant()


@cache
def rows() -> tuple[Mma, ...]:
    """Every form of `mma.sync`, those of `ROWS` first."""
    return (*ROWS, *_m8n8k4_f16(), *_tf32(), *_f64(), *_integer(), *_single_bit(), *_fp8(), *_f8f6f4(), *_scaled())


def _m8n8k4_f16() -> Iterator[Mma]:
    """9.7.14.5.1  m8n8k4, four products: any layouts; D is f32 if C is."""
    f16, f32 = element_types("f16 f32")
    shape, layouts = Shape(8, 8, 4), ("row", "col")
    for a_layout, b_layout, (d, c) in product(layouts, layouts, ((f16, f16), (f32, f16), (f32, f32))):
        yield Mma(shape, f16, f16, c, d, (6, 4), 70, "9.7.14.5.1", a_layout=a_layout, b_layout=b_layout)


def _tf32() -> Iterator[Mma]:
    tf32, f32 = element_types("tf32 f32")
    # 9.7.14.5.6  m16n8k4
    yield Mma(Shape(16, 8, 4), tf32, tf32, f32, f32, (7, 0), 80, "9.7.14.5.6")
    # 9.7.14.5.7  m16n8k8
    yield Mma(Shape(16, 8, 8), tf32, tf32, f32, f32, (7, 0), 80, "9.7.14.5.7")


def _f64() -> Iterator[Mma]:
    """9.7.14.5.14  double precision, with the rounding of its additions: to nearest even unless another is named."""
    (f64,) = element_types("f64")
    for shape, ptx, sm, section in (
        (Shape(8, 8, 4), (7, 0), 80, "9.7.14.5.2"),
        (Shape(16, 8, 4), (7, 8), 90, "9.7.14.5.6"),
        (Shape(16, 8, 8), (7, 8), 90, "9.7.14.5.7"),
        (Shape(16, 8, 16), (7, 8), 90, "9.7.14.5.8"),
    ):
        for rounding in ("", "rn", "rz", "rm", "rp"):
            yield Mma(shape, f64, f64, f64, f64, ptx, sm, section, rounding=rounding)


def _integer() -> Iterator[Mma]:
    """9.7.14.5.14  integers: any mix of signs; `.satfinite` clamps the sum instead of wrapping it."""
    (s32,) = element_types("s32")
    for shape, names, ptx, sm, section in (
        (Shape(8, 8, 16), "s8 u8", (6, 5), 75, "9.7.14.5.3"),
        (Shape(16, 8, 16), "s8 u8", (7, 0), 80, "9.7.14.5.9"),
        (Shape(16, 8, 32), "s8 u8", (7, 0), 80, "9.7.14.5.10"),
        (Shape(8, 8, 32), "s4 u4", (6, 5), 75, "9.7.14.5.4"),
        (Shape(16, 8, 32), "s4 u4", (7, 0), 80, "9.7.14.5.10"),
        (Shape(16, 8, 64), "s4 u4", (7, 0), 80, "9.7.14.5.11"),
    ):
        for a, b, satfinite in product(element_types(names), element_types(names), (False, True)):
            yield Mma(shape, a, b, s32, s32, ptx, sm, section, satfinite=satfinite)


def _single_bit() -> Iterator[Mma]:
    """9.7.14.5.14  single bit: the number of ones in the xor, or the and, of a row and a column."""
    b1, s32 = element_types("b1 s32")
    for shape, sm, section in (
        (Shape(8, 8, 128), 75, "9.7.14.5.5"),
        (Shape(16, 8, 128), 80, "9.7.14.5.12"),
        (Shape(16, 8, 256), 80, "9.7.14.5.13"),
    ):
        yield Mma(shape, b1, b1, s32, s32, (7, 0), sm, section, bit_op="xor")
        yield Mma(shape, b1, b1, s32, s32, (7, 1), max(sm, 80), section, bit_op="and")


def _fp8() -> Iterator[Mma]:
    """9.7.14.5.14  e4m3 and e5m2 in every mix; C and D are alike."""
    f16, f32 = element_types("f16 f32")
    for (a, b), (shape, section), acc in product(
        product(element_types("e4m3 e5m2"), repeat=2),
        ((Shape(16, 8, 16), "9.7.14.5.9"), (Shape(16, 8, 32), "9.7.14.5.10")),
        (f16, f32),
    ):
        ptx = (8, 4) if shape.k == 32 and acc == f32 else (8, 7)
        yield Mma(shape, a, b, acc, acc, ptx, 89, section)


def _f8f6f4() -> Iterator[Mma]:
    """9.7.14.5.14  `.kind::f8f6f4`: five types in every mix, one element to a byte."""
    for (a, b), acc in product(product(map(element_type, F8F6F4), repeat=2), element_types("f16 f32")):
        yield Mma(Shape(16, 8, 32), a, b, acc, acc, (8, 7), 120, "9.7.14.5.10", SM_120, kind=KIND_F8F6F4)


def _scaled() -> Iterator[Mma]:
    """9.7.14.3, table 36  block scaling; only mxf4nvf4 has to name the number of scales."""
    f32, e2m1, ue8m0, ue4m3 = element_types("f32 e2m1 ue8m0 ue4m3")
    byte, nibble = Shape(16, 8, 32), Shape(16, 8, 64)
    for (a, b), written in product(product(map(element_type, F8F6F4), repeat=2), (False, True)):
        scale = BlockScale(1, ue8m0, written)
        yield Mma(byte, a, b, f32, f32, (8, 7), 120, "9.7.14.5.10", SM_120, kind=KIND_MXF8F6F4, scale=scale)
    for kind, scale in (
        (KIND_MXF4, BlockScale(2, ue8m0, written=False)),
        *((kind, BlockScale(2, ue8m0)) for kind in (KIND_MXF4, KIND_MXF4NVF4)),
        (KIND_MXF4NVF4, BlockScale(4, ue4m3)),
    ):
        yield Mma(nibble, e2m1, e2m1, f32, f32, (8, 7), 120, "9.7.14.5.11", SM_120, kind=kind, scale=scale)
    only: Specific = (("sm_120a", (9, 1)), ("sm_120f", (9, 1)))
    yield Mma(nibble, e2m1, e2m1, f32, f32, (9, 1), 120, "9.7.14.5.11", only, kind=KIND_MXF4NVF4,
              scale=BlockScale(4, ue8m0))  # fmt: skip


def of_types(a: str, b: str, variant: Variant = PLAIN) -> tuple[Mma, ...]:
    """The rows of a variant for these types that accumulate in the type of the result and have no other qualifiers."""
    return _of_types().get((a, b, variant), ())


def pairs(variant: Variant = PLAIN) -> tuple[tuple[str, str], ...]:
    """The pairs of element types that a variant multiplies."""
    return tuple((a, b) for a, b, of_pair in _of_types() if of_pair == variant)


@cache
def _of_types() -> dict[tuple[str, str, Variant], tuple[Mma, ...]]:
    table: dict[tuple[str, str, Variant], tuple[Mma, ...]] = {}
    for row in rows():
        others = row.satfinite or row.rounding or (row.a_layout, row.b_layout) != ("row", "col")
        if not others and row.c == row.d and row.products == 1 and (row.scale is None or row.scale.written):
            variant = Variant(row.bit_op, row.kind, row.scale.type.name if row.scale else "")
            key = row.a.name, row.b.name, variant
            table[key] = (*table.get(key, ()), row)
    return table


@cache
def blocks() -> dict[Variant, int]:
    """For each variant with scales, the number of elements along k that share a scale."""
    scaled = {variant: lengths[0] for (_, _, variant), lengths in _of_types().items() if variant.scale_type}
    return {variant: row.shape.k // row.scale.vector for variant, row in scaled.items() if row.scale}


# Rows of the sparse warp-level multiply-accumulate instruction, `mma.sp` and `mma.sp::ordered_metadata`.
#
# Half of each row of A is zero. The other half is stored, and metadata says where it belongs: a *chunk* of a row is
# described by four bits of metadata, and the sparsity selector says which lanes hold them. Source: PTX ISA 9.7.14.6;
# the metadata figures of 9.7.14.6.2 as bit maps.

ONE_OF_TWO, TWO_OF_FOUR, FOUR_OF_EIGHT = Granularity(1, 2), Granularity(2, 4), Granularity(4, 8, 2)

# Who holds the nibble of row r and chunk c (a column here) when the selector is f: which lane, and where in its word.
ONE_LANE = Layout.parse("f0 f1 r0 r1 r2 | c0 c1 r3", "rcf")
TWO_LANES_BY_CHUNK = Layout.parse("c2 f0 r0 r1 r2 | c0 c1 r3", "rcf")
TWO_LANES_BY_ROW = Layout.parse("r3 f0 r0 r1 r2 | c0 c1 c2", "rcf")
FOUR_LANES = Layout.parse("r3 c3 r0 r1 r2 | c0 c1 c2", "rcf")


_VARIANTS: tuple[tuple[bool, Version], ...] = ((False, (7, 1)), (True, (8, 5)))
"""Whether the metadata is ordered, and the first PTX version."""

_METADATA: Mapping[tuple[int, int], tuple[Granularity, Layout, str]] = {
    (16, 16): (TWO_OF_FOUR, ONE_LANE, "9.7.14.6.2.1"),
    (16, 32): (TWO_OF_FOUR, TWO_LANES_BY_CHUNK, "9.7.14.6.2.2"),
    (32, 16): (ONE_OF_TWO, TWO_LANES_BY_CHUNK, "9.7.14.6.2.3"),
    (32, 8): (ONE_OF_TWO, ONE_LANE, "9.7.14.6.2.4"),
    (8, 32): (TWO_OF_FOUR, TWO_LANES_BY_ROW, "9.7.14.6.2.5"),
    (8, 64): (TWO_OF_FOUR, FOUR_LANES, "9.7.14.6.2.6"),
    (4, 64): (FOUR_OF_EIGHT, TWO_LANES_BY_ROW, "9.7.14.6.2.7"),
    (4, 128): (FOUR_OF_EIGHT, FOUR_LANES, "9.7.14.6.2.8"),
}
"""By the bits of an element and K how A is sparse, who has the metadata, and the section."""


@cache
def sparse_rows() -> tuple[Mma, ...]:
    """Every form of `mma.sp` and `mma.sp::ordered_metadata`."""
    return (*_sparse_plain(), *_sparse_fp8(), *_sparse_kinds())


@cache
def granularities() -> Mapping[str, Granularity]:
    """How A is sparse in the forms without a kind, by the type of its elements."""
    return {row.a.name: row.granularity for row in sparse_rows() if row.granularity is not None and not row.kind}


def _doubled(row: Mma, ordered: bool, **others: Any) -> Mma:
    """The sparse form of twice the depth of a dense one."""
    shape = row.shape._replace(k=2 * row.shape.k)
    granularity, metadata, section = _METADATA[row.operand_bits, shape.k]
    return replace(row, shape=shape, section=section, granularity=granularity, metadata=metadata, ordered=ordered,
                   **others)  # fmt: skip


def _sparse_plain() -> Iterator[Mma]:
    """9.7.14.6.3  half precision, bf16, tf32, integers."""
    for names in ("f16", "bf16", "tf32", "s8 u8", "s4 u4"):
        dense = [row for row in rows() if row.a.name in names.split() and row.shape.m == 16]
        for shape in sorted({row.shape for row in dense}):
            of_shape = [row for row in dense if row.shape == shape]
            for (ordered, ptx), row in product(_VARIANTS, of_shape):
                yield _doubled(row, ordered, ptx=ptx, sm=80)


def _sparse_fp8() -> Iterator[Mma]:
    """9.7.14.6.3  e4m3 and e5m2 in every mix; f16 sums only where `.kind::f8f6f4` has them too."""
    dense = (row for row in rows() if row.a.name in FP8 and not row.kind and row.shape.k == 32)
    for row in sorted(dense, key=lambda row: (row.a.name, row.b.name, row.d.bits == 16)):
        if row.d.bits == 16:
            yield _doubled(row, True, ptx=(8, 7), sm=120, only=SM_120)
        else:
            yield from (_doubled(row, ordered, ptx=ptx) for ordered, ptx in ((False, (8, 4)), (True, (8, 5))))


def _sparse_kinds() -> Iterator[Mma]:
    """9.7.14.6.3, and 9.7.14.3, table 36. Those of 4 bits run on the first members of the family, not in all of it:
    9.7.14.6.3, Target ISA Notes."""
    for row in rows():
        if row.kind:
            each = tuple((name.replace("sm_120f", "sm_121a"), version) for name, version in row.only)
            yield _doubled(row, True, only=each if row.operand_bits == 4 else row.only)
