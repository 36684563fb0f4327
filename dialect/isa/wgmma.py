"""Rows of `wgmma.mma_async`, dense and `.sp`, and the descriptor of a matrix in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ..layouts.layout import LANES, Layout, accumulator, multiplicand, row
from .form import (
    F8F6F4,
    FP8,
    IN_BYTES,
    KIND_F8F6F4,
    KIND_MXF4,
    KIND_MXF4NVF4,
    KIND_MXF8F6F4,
    BlockScale,
    ProductForm,
    Shape,
    element_type,
    fragment,
    word,
)
from .row import CONSTANT, DESCRIPTOR, PREDICATE, TENSOR_MEMORY, VECTOR, Slot, Specific, Version, choice
from .sparse_mma import FOUR_LANES, ONE_OF_TWO, TWO_LANES_BY_CHUNK, TWO_OF_FOUR

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The matrix descriptor of `wgmma`: where a matrix lies in shared memory, and how, in one word of 64 bits.
#
# A matrix is made of 16-byte units. Along K (K-major) eight rows of units make a core matrix; `stride` leads to the
# next eight rows and, without a swizzle, `leading` to the next unit along K. Along M or N (MN-major) the roles change,
# as `offset` says. A swizzle of 32, 64 or 128 bytes puts so many bytes of a row side by side and permutes their units
# by bits of the address. Source: PTX ISA 9.7.15.5.1.2 (Shared Memory Matrix Layout, Matrix Descriptor Format).

UNIT = 16
"""Bytes that always stay together."""

ADDRESS_BITS = 18
"""Of a byte address in shared memory, what a descriptor holds."""

SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}
"""Bytes of a swizzle, and the code of the two highest bits."""

_FIELDS = {"address": 0, "leading": 16, "stride": 32}
_FIELD_BITS = ADDRESS_BITS - 4
_BASE_OFFSET, _BASE_BITS, _SWIZZLE = 49, 3, 62
_UNUSED = ((1 << 64) - 1) & ~(
    sum(((1 << _FIELD_BITS) - 1) << at for at in _FIELDS.values()) | 7 << _BASE_OFFSET | 3 << _SWIZZLE
)

Place = TypeVar("Place", int, "NDArray[np.int64]")


def panel_columns(columns: int, bits: int) -> int:
    """The columns of the widest panel of a swizzle that divides columns, such as those of D that a warpgroup stages at
    a time; 0 if none does."""
    return next((8 * width // bits for width in (128, 64, 32) if columns * bits % (8 * width) == 0), 0)


class DescriptorError(ValueError):
    """A word that is no descriptor, or a layout that a descriptor cannot express."""


@dataclass(frozen=True)
class MatrixDescriptor:
    """A matrix descriptor of `wgmma`. Its fields are in bytes: `swizzle` is 0 (none), 32, 64 or 128. `base_offset`
    counts rows of 128 bytes.

    Raises:
        DescriptorError: if an address or offset is not a multiple of 16 below 2^18, or for another swizzle.
    """

    address: int
    leading: int
    stride: int
    swizzle: int = 0
    base_offset: int = 0

    def __post_init__(self) -> None:
        for name in _FIELDS:
            value = int(getattr(self, name))
            if value % UNIT or not 0 <= value < 1 << ADDRESS_BITS:
                raise DescriptorError(
                    f"{name}: expected a multiple of {UNIT} bytes below {1 << ADDRESS_BITS}, got {value}"
                )
        if self.swizzle not in SWIZZLES:
            raise DescriptorError(f"expected a swizzle of 0, 32, 64 or 128 bytes, got {self.swizzle}")
        if not 0 <= self.base_offset < 1 << _BASE_BITS:
            raise DescriptorError(f"expected a base offset from 0 to 7, got {self.base_offset}")

    def encode(self) -> int:
        """The descriptor as a 64-bit word."""
        fields = sum(int(getattr(self, name)) // UNIT << at for name, at in _FIELDS.items())
        return fields | self.base_offset << _BASE_OFFSET | SWIZZLES[self.swizzle] << _SWIZZLE

    @staticmethod
    def decode(word: int) -> MatrixDescriptor:
        """The descriptor with the fields of a 64-bit word.

        Raises:
            DescriptorError: if bits are set that mean nothing.
        """
        if word & _UNUSED:
            raise DescriptorError(f"bits {word & _UNUSED:#x} of the matrix descriptor {word:#018x} mean nothing")
        fields = {name: (word >> at & (1 << _FIELD_BITS) - 1) * UNIT for name, at in _FIELDS.items()}
        swizzle = next(size for size, code in SWIZZLES.items() if code == word >> _SWIZZLE)
        return MatrixDescriptor(**fields, swizzle=swizzle, base_offset=word >> _BASE_OFFSET & 7)

    @property
    def span(self) -> int:
        """The contiguous bytes of a row before the next row begins."""
        return self.swizzle or UNIT

    @property
    def row_of_pattern(self) -> int:
        """The row of 128 bytes of the swizzle's pattern in which the matrix begins."""
        return (self.address // 128 - self.base_offset) % max(self.swizzle // 16, 1)

    def offset(self, mn: Place, k: Place, size: int, *, along_mn: bool) -> Place:
        """The offset from the start, before the swizzle, of the element of `size` bytes with index `mn` along M or N
        and index `k` along K."""
        if not along_mn:
            byte = k * size
            units = byte // UNIT * (UNIT if self.swizzle else self.leading)
            return mn % 8 * self.span + mn // 8 * self.stride + byte % UNIT + units
        byte = mn * size
        atoms, rows = (self.leading, self.stride) if self.swizzle else (self.stride, self.leading)
        return byte % self.span + byte // self.span * atoms + k % 8 * self.span + k // 8 * rows

    def swizzled(self, address: Place) -> Place:
        """The address of a byte after the swizzle. The pattern consists of rows of 128 bytes, and begins `base_offset`
        rows after a multiple of 1024 bytes."""
        mask = self.span // UNIT - 1
        return address ^ ((address >> 7) - self.base_offset & mask) << 4


# Rows of the warpgroup-level multiply-accumulate instruction, `wgmma.mma_async`, dense and `.sp`.
#
# Four warps together compute D (64 x n) = A (64 x k) * B (k x n) + D. D is in registers, B in shared memory, A in
# either; a matrix descriptor says where and how a matrix lies in shared memory (`descriptor`). Source: PTX ISA
# 9.7.15.1 to 9.7.15.6.

WARPGROUP_SM = 90
"""The first target whose warpgroups multiply: by `wgmma`, which no other has; later ones have tensor memory for it."""

M = 64
"""Rows of A and D: 16 of each warp."""

WARPS = 4
"""Warps of a warpgroup."""

ROW_BYTES = 32
"""Bytes of a row of A that one instruction takes, of a sparse A the stored ones."""

SM_90A: Specific = (("sm_90a", (8, 0)),)
_OF_WARP = (row(4), row(5))
_OF_WARP_OF_TWO = (row(5), row(6))
"""Which rows a warp of the group holds: of 64, and of 128 (`doubled`)."""

_FLOAT_N = tuple(range(8, 257, 8))
_INTEGER_N = (8, 16, 24, *range(32, 257, 16))
"""9.7.15.2: the columns of B."""


@dataclass(frozen=True)
class Wgmma(ProductForm):
    """One form of `wgmma.mma_async`: D = A * B + D by four warps; C is D."""

    FRAGMENTS: ClassVar = "ad"
    UNIT: ClassVar = "wgmma "

    @cached_property
    def spelling(self) -> str:
        """The PTX opcode with all its qualifiers."""
        end = f".{self.bit_op}.popc" if self.bit_op else ".satfinite" if self.satfinite else ""
        types = f"{self.d.name}.{self.a.name}.{self.b.name}"
        return f"wgmma.mma_async{'.sp' if self.sparse else ''}.sync.aligned.{self.shape}.{types}{end}"

    meaning = "wgmma.mma_async"

    @cached_property
    def operands(self) -> tuple[Slot, ...]:
        """d, a, b, of a sparse A the metadata e and its selector f, scale_d, signs, transpositions; A is in shared
        memory."""
        return self.signatures[0]

    @cached_property
    def signatures(self) -> tuple[tuple[Slot, ...], ...]:
        """The operands with A in shared memory, and in registers."""
        return self.operands_with(a_shared=True), self.operands_with(a_shared=False)

    def operands_with(self, *, a_shared: bool) -> tuple[Slot, ...]:
        """The operands in the order of the text."""
        register = "f16x2" if self.a.is_float else "b32"
        d = replace(fragment("d", self.d, self.registers("d"), written=True), accumulates=True)
        a = Slot("a", VECTOR, register, self.registers("a"), own=register == "b32")
        slots = [d, Slot("a", DESCRIPTOR, "b64") if a_shared else a, Slot("b", DESCRIPTOR, "b64")]
        if self.sparse:
            slots += [word("e"), Slot("f", CONSTANT, span=choice(self.selectors))]
        slots.append(Slot("scale_d", PREDICATE, "pred"))
        if self.a.is_float:
            slots += [Slot(f"scale_{role}", CONSTANT, span="1/-1") for role in "ab"]
        slots += [Slot(f"trans_{role}", CONSTANT, span="0/1") for role in self.transposable(a_shared=a_shared)]
        return tuple(slots)

    def transposable(self, *, a_shared: bool) -> str:
        """The operands that shared memory may hold along M or N: those of 16-bit elements."""
        if self.a.bits != 16:
            return ""
        return "ab" if a_shared else "b"

    def layout(self, role: str) -> Layout:
        """The fragment layout of operand "a", the stored elements, or "d" (9.7.15.5.1.1); of D for eight columns.
        Raises KeyError for B, which is never in registers."""
        alone = {"a": multiplicand(16, self.stored_k, self.a.bits), "d": accumulator(16, 8)}[role]
        if self.shape.m == M:
            return Layout(alone.lane, alone.element, _OF_WARP)
        behind = alone.element.index(row(3)) + 1
        return Layout(alone.lane, (*alone.element[:behind], row(4), *alone.element[behind:]), _OF_WARP_OF_TWO)

    def registers(self, role: str) -> int:
        """32-bit registers per lane of operand "a" or "d"."""
        if role == "a":
            return self.layout("a").elements * self.a.bits // 32
        return self.shape.m * self.shape.n * self.d.bits // (32 * LANES * WARPS)


@cache
def rows() -> tuple[Wgmma, ...]:
    """Every form of `wgmma.mma_async` and `wgmma.mma_async.sp`."""
    return (*dense_rows(), *_rows(sparse=True))


@cache
def dense_rows() -> tuple[Wgmma, ...]:
    """Every form of `wgmma.mma_async`."""
    return tuple(_rows())


def _types() -> Iterator[tuple[str, str, str, Version]]:
    """9.7.15.2  D, A, B, and the first PTX version."""
    yield from ((d, "f16", "f16", (8, 0)) for d in ("f16", "f32"))
    yield "f32", "bf16", "bf16", (8, 0)
    yield "f32", "tf32", "tf32", (8, 0)
    yield from ((d, a, b, (8, 0)) for d in ("f16", "f32") for a, b in product(FP8, repeat=2))
    yield from (("s32", a, b, (8, 0) if a == b else (8, 4)) for a, b in product(("s8", "u8"), repeat=2))
    yield "s32", "b1", "b1", (8, 0)


def _rows(*, sparse: bool = False) -> Iterator[Wgmma]:
    """9.7.15.5.2, and 9.7.15.6: a sparse one has twice the depth of a dense one."""
    ptx, section, depth = ((8, 2), "9.7.15.6", 16) if sparse else ((8, 0), "9.7.15.5.2", 8)
    four, two = (Layout(alone.lane, alone.element, _OF_WARP) for alone in (FOUR_LANES, TWO_LANES_BY_CHUNK))
    for d, a, b, since in _types():
        if sparse and a == "b1":
            continue
        left, right, result = (element_type(name) for name in (a, b, d))
        bit_op, clamped = "and" if a == "b1" else "", (False, True) if a in ("s8", "u8") else (False,)
        granularity = None if not sparse else ONE_OF_TWO if a == "tf32" else TWO_OF_FOUR
        metadata = None if not sparse else four if left.bits == 8 else two
        for n, satfinite in product(_FLOAT_N if left.is_float else _INTEGER_N, clamped):
            shape = Shape(M, n, depth * ROW_BYTES // left.bits)
            yield Wgmma(
                shape, left, right, result, result, max(since, ptx), WARPGROUP_SM, section, SM_90A, satfinite, "",
                bit_op, granularity=granularity, metadata=metadata,
            )  # fmt: skip


@cache
def doubled(row: Wgmma) -> Wgmma:
    """The row of a warpgroup's product with 128 rows, which exists in tensor memory only."""
    shape = row.shape
    return replace(row, shape=Shape(2 * shape.m, shape.n, shape.k), only=TENSOR_MEMORY, sm=100)


@cache
def of_kinds() -> tuple[Wgmma, ...]:
    """The products that name a kind, which only tensor memory has: of floats of 8, 6 and 4 bits, a byte each, alone and
    with scales of blocks, and of pairs of 4-bit ones. Those with scales have 128 rows. 9.7.16.2.1, 9.7.16.10.7."""
    ue8m0, f32 = element_type("ue8m0"), element_type("f32")
    forms = [(KIND_F8F6F4, a, b, None, m) for a, b in product(F8F6F4, repeat=2) for m in (M, 2 * M)]
    forms += [(KIND_MXF8F6F4, a, b, BlockScale(1, ue8m0), 2 * M) for a, b in product(F8F6F4, repeat=2)]
    forms += [(kind, "e2m1", "e2m1", BlockScale(2, ue8m0), 2 * M) for kind in (KIND_MXF4, KIND_MXF4NVF4)]
    forms.append((KIND_MXF4NVF4, "e2m1", "e2m1", BlockScale(4, element_type("ue4m3")), 2 * M))
    rows: list[Wgmma] = []
    for (kind, a, b, scale, m), n in product(forms, _FLOAT_N):
        left, right = element_type(a), element_type(b)
        shape = Shape(m, n, ROW_BYTES if kind in IN_BYTES else 8 * ROW_BYTES // left.bits)
        section, only = "9.7.16.10.9.1", TENSOR_MEMORY
        rows.append(Wgmma(shape, left, right, f32, f32, (8, 6), 100, section, only, kind=kind, scale=scale))
    return tuple(rows)
