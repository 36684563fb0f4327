"""Products of warpgroups: `warp.wgmma` and its row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, NoneAttr, StringAttr, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    BaseAttr,
    VarConstraint,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..isa.form import ELEMENT_TYPES, IN_BYTES, ElementType, having
from ..isa.wgmma import SWIZZLES, UNIT, DescriptorError, M, MatrixDescriptor, Wgmma, doubled, of_kinds, rows
from ..layouts.layout import Layout, permuted
from ..mlir.words import irdl_op_definition
from .attributes import (
    SHARED_SPACE,
    FragmentType,
    Memory,
    SwizzleAttr,
    element_row,
    fragment_of,
    is_row_by_row,
    is_shared,
    memory_of,
)
from .matmul import scale_type
from .mma import verify_metadata
from .op_shapes import WarpOp, element_of, verify_indices

# The instruction of `warp.wgmma`: found by the types of its operands and N, and how its rows may be numbered.
#
# Source: PTX ISA 9.7.15.5 and 9.7.15.6.


def find_row(
    a: ElementType,
    b: ElementType,
    d: ElementType,
    n: int,
    m: int = M,
    *,
    satfinite: bool = False,
    sparse: bool = False,
    kind: str = "",
    scale: str = "",
) -> Wgmma:
    """The row that multiplies these element types to `n` columns of 64 rows, or of 128, which only tensor memory has;
    of a `kind`, if there is one, with scales of a type. Raises VerifyException if there is none, with the nearest types
    or N."""
    if kind:
        some = [row for row in having(of_kinds, a=a, b=b, d=d, kind=kind, scale_type=scale) if row.shape.m == m]
    else:
        some = having(rows, a=a, b=b, d=d, satfinite=satfinite, sparse=sparse, bit_op="")
    if not some:
        every = ((row, {row.a, row.b}) for row in having(rows, sparse=sparse, bit_op=""))
        types_of_rows = dict.fromkeys(f"{r.a.name} x {r.b.name} -> {r.d.name}" for r, types in every if types & {a, b})
        asked = " ".join(filter(None, (kind, f"{a.name} x {b.name} -> {d.name}", "with satfinite" * satfinite)))
        raise VerifyException(f"no wgmma multiplies {asked}; there are {', '.join(types_of_rows) or 'none of these'}")
    nearest, *others = sorted(some, key=lambda row: abs(row.shape.n - n))
    if nearest.shape.n != n:
        near = sorted(row.shape.n for row in (nearest, *others[:1]))
        raise VerifyException(
            f"wgmma of {a.name} x {b.name} -> {d.name} has no N of {n}; the nearest are {' and '.join(map(str, near))}"
        )
    return doubled(nearest) if m == 2 * M and nearest.shape.m == M else nearest


def numbered(layout: Layout, numbers: Sequence[int]) -> Layout:
    """A layout of the instruction whose row bit i is bit `numbers[i]` of the matrix's row. A product is the same
    whatever its rows are called, as long as A and D agree."""
    return permuted(layout, numbers, range(layout.columns.bit_length() - 1))


def row_numbers(layout: Layout, instruction: Layout) -> tuple[int, ...] | None:
    """The numbers with which the instruction's layout is this one; None if it is with none."""
    number_of: dict[int, int] = {}
    for ours, theirs in zip(layout.bits, instruction.bits, strict=False):
        if theirs.axis == "r":
            number_of[theirs.number] = ours.number
    numbers = tuple(number_of[i] for i in sorted(number_of))
    complete = len(layout.bits) == len(instruction.bits) and sorted(numbers) == list(range(len(numbers)))
    return numbers if complete and numbered(instruction, numbers) == layout else None


# Products of warpgroups: `warp.wgmma`.
#
# Operands are tiles in shared memory with their layout, from which the matrix descriptor follows; A may be a fragment.
# Source: PTX ISA 9.7.15.5 to 9.7.15.7.

ROWS = 8
"""Rows of the pattern of a swizzle, which a descriptor can begin at multiples of."""

PANELS = tuple(sorted(size or UNIT for size in SWIZZLES))
"""Widths of the panels of `#warp.swizzle` that a matrix descriptor expresses."""


BOX_ALIGNMENT = 128
"""Bytes that the address of a box in shared memory is a multiple of (PTX ISA 9.7.9.25.5.2), at whatever row of a
swizzle, which permutes by address (CUDA programming guide, tensor memory access)."""


def panel_of(memory: Memory, what: str) -> int:
    """The panel of a tile in bytes, as matrix descriptors and tensor copies have it: the width of its swizzle, or 16.
    Raises VerifyException for another layout, naming the nearest legal one."""
    layout = SwizzleAttr(UNIT) if isinstance(memory.layout, NoneAttr) else memory.layout
    if not isinstance(layout, SwizzleAttr):
        raise VerifyException(f"no matrix descriptor expresses the layout of {what}, {memory}; expected #warp.swizzle")
    if layout.skip or layout.bytes not in PANELS:
        near = min(PANELS, key=lambda each: abs(each - layout.bytes))
        raise VerifyException(
            f"no matrix descriptor expresses the layout of {what}, {memory}; the nearest is #warp.swizzle<{near}>"
        )
    return layout.bytes


def box_of(tile: Memory) -> tuple[int, int]:
    """The swizzle of the boxes that tensor copies move, 16 if there is none, and the bytes of a row of them: a panel of
    the tile, or what is in a row of one that lies row by row."""
    element = element_row(tile.element_type)
    if element is not None and is_row_by_row(tile):
        return UNIT, tile.get_shape()[-1] * element.memory_bits // 8
    return (width := panel_of(tile, "the tile")), width


def verify_tile(
    memory: Memory, indices: Sequence[SSAValue], what: str, *, shared_bytes: bool = False, copied: bool = False
) -> ElementType:
    """Checks a tile in shared memory that asynchronous operations access; returns its element type. Raises
    VerifyException for another memory space, elements that share a byte unless they may (`shared_bytes`), or a layout
    that no descriptor expresses, nor, if it is `copied`, a box."""
    verify_indices(what, memory, indices)
    if not is_shared(memory) or memory.get_num_dims() not in (2, 3):
        raise VerifyException(f"expected {what} to be a tile in shared memory (space {SHARED_SPACE}), got {memory}")
    element = element_row(memory.element_type)
    if element is None or (element.memory_bits < UNIT // 2 and not shared_bytes):
        raise VerifyException(f"expected {what} to have elements of whole bytes, got {memory}")
    line = memory.get_shape()[-1] * element.memory_bits // 8
    width = UNIT if copied and is_row_by_row(memory) else panel_of(memory, what)
    if line % width:
        raise VerifyException(
            f"expected {what} to have lines of whole {width}-byte panels, got {line} bytes in {memory}"
        )
    return element


def descriptor_of(memory: Memory, *, mn_major: bool) -> MatrixDescriptor:
    """The descriptor of a matrix in a tile at address 0. With `mn_major` the tile's rows run along K. Raises
    VerifyException if no descriptor can express the layout."""
    width, lines = panel_of(memory, "the operand"), memory.get_shape()[-2]
    panel, eight = lines * width, ROWS * width
    swizzle = width if width > UNIT else 0
    if mn_major:
        leading, stride = (panel, eight) if swizzle else (eight, panel)
    else:
        leading, stride = (UNIT, eight) if swizzle else (panel, eight)
    try:
        return MatrixDescriptor(0, leading, stride, swizzle)
    except DescriptorError as error:
        raise VerifyException(f"no matrix descriptor expresses {memory}: {error}") from None


@irdl_op_definition
class WgmmaOp(WarpOp):
    """D = A * B + C on tiles in shared memory, computed by the four warps of a warpgroup. D is valid after
    `warp.wait wgmma`.

    The operation is one instruction: 64 rows, the columns of C, and 32 bytes of K. The indices are those of each
    operand's first element in its tile. The tile of A is m x k, and that of B is n x k. With `mn_major_a` and
    `mn_major_b`, they are k x m and k x n, and their elements have 16 bits. With `overwrite`, D = A * B. `negate_a` and
    `negate_b` negate an operand. `satfinite` clamps integers::

        %d = warp.wgmma %As[%s, %zero, %k], %Bs[%s, %zero, %k], %c {overwrite} :
            memref<2x64x64xf16, #warp.swizzle<128>, 3>, memref<2x128x64xf16, #warp.swizzle<128>, 3>,
            !warp.fragment<acc, 64x128xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>

    A may be a fragment. Its registers must not be written before a `warp.wait wgmma` covers the product::

        %d = warp.wgmma %a, %Bs[%s, %zero, %k], %c :
            !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, ...

    With `transposed`, C and D hold their transposes: element (i, j) is in row j, column i of the fragment. The
    instruction is the same. A in registers and D may number their rows in another order than the instruction, if both
    use the same order.

    With a sparse A, the tile or the fragment has the stored elements, and the operation multiplies 64 bytes of K.
    `sparse` gives the metadata, and `selector` says which threads hold the metadata of this product::

        %d = warp.wgmma %As[%s, %zero, %k], %Bs[%s, %zero, %k], %c sparse %e {selector = 0 : i64} : ...,
            !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>

    Products of kind "f8f6f4" and "mxf8f6f4", which only tensor memory has, read elements of 6 and 4 bits from tiles of
    bytes: 16 of them begin each 16 bytes. A tile of i8 has those of 4 bits.

    Products of 128 rows, whose sums `warp-tensor-memory` puts in tensor memory, take the scales of A and B, or the
    metadata of a sparse A, as tiles in shared memory; `step` says which of the products of these tiles it is::

        %d = warp.wgmma %As[%s, %zero, %k], %Bs[%s, %zero, %k], %c with %SAs, %SBs {kind = "mxf4", step = 2 : i64} : ...

    C and D are the same registers, so no other operation may use C. Source: PTX ISA 9.7.15.5.2 and 9.7.15.6.
    """

    name = "warp.wgmma"

    T: ClassVar = VarConstraint("T", BaseAttr(FragmentType))

    a = operand_def(BaseAttr(MemRefType) | BaseAttr(FragmentType))
    a_indices = var_operand_def(IndexType())
    b = operand_def(MemRefType)
    b_indices = var_operand_def(IndexType())
    c = operand_def(T)
    e = opt_operand_def(FragmentType)
    side_operands = var_operand_def(MemRefType)
    d = result_def(T)
    kind = opt_prop_def(StringAttr)
    step = opt_prop_def(IntegerAttr)
    overwrite = opt_prop_def(UnitAttr)
    satfinite = opt_prop_def(UnitAttr)
    negate_a = opt_prop_def(UnitAttr)
    negate_b = opt_prop_def(UnitAttr)
    mn_major_a = opt_prop_def(UnitAttr)
    mn_major_b = opt_prop_def(UnitAttr)
    transposed = opt_prop_def(UnitAttr)
    selector = opt_prop_def(IntegerAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "$a (`[` $a_indices^ `]`)? `,` $b `[` $b_indices `]` `,` $c (`sparse` $e^)? (`with` $side_operands^)? "
        "attr-dict `:` "
        "type($a) `,` type($b) `,` type($c) (`,` type($e)^)? (`with` type($side_operands)^)?"
    )

    @property
    def row(self) -> Wgmma:
        """The instruction."""
        kind, sums = "" if self.kind is None else self.kind.data, self.sums
        a, b = map(element_of, (self.a, self.b))
        types = a if self.a_in_registers else multiplied(a, kind), multiplied(b, kind), sums.element
        rows, columns = sums.shape
        sparse = self.e is not None or len(self.side_operands) == 1
        satfinite = self.satfinite is not None
        scale = scale_type(self.side_operands) if len(self.side_operands) > 1 else ""
        return find_row(*types, columns, rows, satfinite=satfinite, sparse=sparse, kind=kind, scale=scale)

    @property
    def sums(self) -> FragmentType:
        """C and D as the instruction has them, 64 x N."""
        kind = fragment_of(self.c)
        if self.transposed is None:
            return kind
        (rows, columns), layout = kind.shape, kind.layout.data.transposed()
        return FragmentType.of(kind.role.data, columns, rows, kind.element_type, layout, kind.bits)

    @property
    def a_in_registers(self) -> bool:
        """Whether A is a fragment."""
        return isinstance(self.a.type, FragmentType)

    def major(self, role: str) -> bool:
        """Whether operand "a" or "b" lies along M or N."""
        return (self.mn_major_a if role == "a" else self.mn_major_b) is not None

    def tiles(self) -> Iterator[tuple[str, SSAValue, Sequence[SSAValue]]]:
        """The operands in shared memory: "a" or "b", the tile, where in it they begin."""
        if not self.a_in_registers:
            yield "a", self.a, self.a_indices
        yield "b", self.b, self.b_indices

    def verify_(self) -> None:
        for role, value, indices in self.tiles():
            verify_tile(memory_of(value), indices, f"operand {role.upper()}", shared_bytes=self.kind is not None)
        row, kind = self.row, self.sums
        numbers = row_numbers(kind.layout.data, row.layout("d"))
        if kind.role.data != "acc" or kind.shape[0] not in (M, 2 * M) or numbers is None:
            wanted = f"!warp.fragment<acc, {M}x{kind.shape[1]}x{kind.element_type}, [{row.layout('d')}]>"
            of = "the transpose of C" if self.transposed is not None else "C"
            raise VerifyException(f"expected {of} to be {wanted}, got {kind}")
        if isinstance(self.a.type, FragmentType):
            self._verify_fragment(row, self.a.type, numbers)
        elif numbers != tuple(range(len(numbers))):
            raise VerifyException(f"expected rows in their order with a tile of A, got C of {kind}")
        for role, value, _ in self.tiles():
            self._verify_operand(role, row, memory_of(value))
        if self.e is not None or self.selector is not None:
            verify_metadata(row, self.e, self.selector)
        if not row.a.is_float and (self.negate_a is not None or self.negate_b is not None):
            raise VerifyException("only floating-point operands can be negated")

    def _verify_fragment(self, row: Wgmma, kind: FragmentType, numbers: Sequence[int]) -> None:
        if self.a_indices:
            raise VerifyException("A in registers begins nowhere: expected no indices behind it")
        if self.mn_major_a is not None:
            raise VerifyException("A in registers lies along K; only a tile does not")
        wanted = FragmentType.of("a", row.shape.m, row.stored_k, kind.element_type, numbered(row.layout("a"), numbers))
        if kind != wanted:
            raise VerifyException(f"expected A in registers to be {wanted}, got {kind}")

    def _verify_operand(self, role: str, row: Wgmma, memory: Memory) -> None:
        along = self.major(role)
        extent, depth = (row.shape.m, row.stored_k) if role == "a" else (row.shape.n, row.shape.k)
        if along and role not in row.transposable(a_shared=True):
            raise VerifyException(
                f"operand {role.upper()} of {row.element(role).name} lies along K; only 16 bits do not"
            )
        has, wanted = tuple(memory.get_shape()[-2:]), (depth, extent) if along else (extent, depth)
        if any(size < least for size, least in zip(has, wanted, strict=True)):
            raise VerifyException(
                f"operand {role.upper()} of {row.shape} takes {wanted[0]}x{wanted[1]} of a tile, got {has[0]}x{has[1]}"
            )
        descriptor_of(memory, mn_major=along)


def multiplied(element: ElementType, kind: str = "") -> ElementType:
    """What elements are multiplied as: f32 in memory is tf32; bytes of a kind of floats hold 4-bit ones."""
    if kind in IN_BYTES and not element.is_float:
        return ELEMENT_TYPES["e2m1"]
    return ELEMENT_TYPES["tf32"] if element.name == "f32" else element
