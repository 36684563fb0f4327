"""Operands of products that are more than elements in memory: scaled, sparse and paired ones, and those of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, UnitAttr, f32, i32, i64
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.traits import NoMemoryEffect
from xdsl.utils.exceptions import VerifyException

from ..isa.form import ELEMENT_TYPES, ElementType
from ..isa.mma import Variant, blocks
from ..isa.sparse_mma import granularities
from ..layouts.layout import LANES
from ..mlir.affine import loops_of
from ..mlir.words import irdl_op_definition
from .attributes import Memory, memory_of
from .elements import OPERAND_LOOPS, K, LoopSizes, M, loops_around
from .op_shapes import MEMORY, OperandForm, WarpOp


@irdl_op_definition
class ScaledOp(OperandForm):
    """An A whose rows are divided into blocks with scales, or a B whose columns are::

        %a = warp.scaled %A, %SA : memref<256x128xf4E2M1FN>, memref<256x4xf8E8M0FNU>
        %b = warp.scaled %B, %SB : memref<320x128xf4E2M1FN>, memref<320x4xf8E8M0FNU>
        warp.matmul mxf4 e2m1 x e2m1 %a, %b init 0.0 : f32 into %D maps [...] : !warp.operand<...>, ...

    The scales are a matrix with a row for each row of A, or for each column of B, after the dimensions of the batch.
    The kind of the product and the type of the scales determine how many elements along k share a scale (PTX ISA
    9.7.14.3). Scales of f8E4M3FN are read without their sign, as ue4m3.

    Of 8-bit floats, scales of f32, which no instruction takes, may be of blocks of any size::

        %a = warp.scaled %A, %SA : memref<256x512xf8E4M3FN>, memref<256x4xf32>
        %b = warp.scaled %B, %SB : memref<384x512xf8E4M3FN>, memref<3x4xf32>
        warp.matmul e4m3 x e4m3 %a, %b init 0.0 : f32 into %D maps [...] : !warp.operand<...>, ...

    They are a matrix with rows along those of A, or the columns of B, and columns along k; with `across` it lies the
    other way. How many there are says how large a block is. The kernel adds the products of blocks along k, and
    multiplies each sum with the scales of both blocks.
    """

    name = "warp.scaled"

    memory = operand_def(MEMORY)
    scales = operand_def(MemRefType)
    across = opt_prop_def(UnitAttr)

    assembly_format = "$memory `,` $scales attr-dict `:` type($memory) `,` type($scales)"

    @property
    def of_any_blocks(self) -> bool:
        """Whether the kernel multiplies sums with the scales, and not an instruction."""
        return memory_of(self.scales).element_type == f32

    @property
    def blocks(self) -> tuple[int, int]:
        """How many blocks of any size there are along the rows of A, or the columns of B, and along k."""
        own, k = memory_of(self.scales).get_shape()[:: -1 if self.across is not None else 1]
        return own, k

    def verify_sizes(
        self, side: str, multiplied: str, variant: Variant, sizes: Sequence[int], order: Sequence[int]
    ) -> None:
        if self.of_any_blocks:
            self._verify_blocks(side, sizes)
            return
        (*rows, k), block, shape = sizes, blocks()[variant], memory_of(self.scales).get_shape()
        expected = (*rows, -(-k // block) if k >= 0 else -1)
        pairs = zip(shape, expected, strict=False)
        if len(shape) != len(expected) or any(length != size and min(length, size) >= 0 for length, size in pairs):
            text = "x".join("?" if size < 0 else str(size) for size in expected)
            what = "row" if side == "A" else "column"
            raise VerifyException(
                f"expected {text} scales of {side}, one for each {block} elements of a {what}, got {self.scales.type}"
            )

    def _verify_blocks(self, side: str, sizes: Sequence[int]) -> None:
        if len(sizes) != 2 or memory_of(self.scales).get_num_dims() != 2:
            raise VerifyException(f"expected a matrix of scales of f32 for one {side}, got {self.scales.type}")
        for size, count in zip(sizes, self.blocks, strict=True):
            if min(size, count) >= 0 and (count < 1 or size % count):
                raise VerifyException(f"expected scales of equal blocks of {side}, got {count} along {size} elements")


SPARSITY = 2
"""Elements of a sparse A for each stored one, in every pattern of `mma.sp` (PTX ISA 9.7.14.6)."""

METADATA_ROWS, NIBBLES = 16, 8
"""Rows of a sparse A that one word of each lane describes, and codes in a word."""


def metadata_span(element: ElementType) -> int:
    """Columns of a sparse A that the metadata words of a warp describe, 16 rows of them (PTX ISA 9.7.14.6.1)."""
    return LANES * NIBBLES // METADATA_ROWS * granularities()[element.name].chunk


@irdl_op_definition
class SparseOp(OperandForm):
    """A sparse A, m x k, of which m x k/2 elements are stored. The metadata gives their positions::

        %sparse = warp.sparse %A, %E : memref<256x96xf16>, memref<16x96xi32>
        warp.matmul f16 x f16 %sparse, %B init 0.0 : f32 into %D : !warp.operand<memref<256x96xf16>>, ...

    The metadata is made of words of `mma.sp::ordered_metadata`. 32 words, one for each lane, describe 16 rows and 32 to
    128 columns. `warploom.runtime.compress` makes the elements and the metadata. With `padded`, for a tile in shared
    memory, the product may read metadata beyond the part that was copied.
    """

    name = "warp.sparse"

    memory = operand_def(MEMORY)
    metadata = operand_def(MemRefType)
    padded = opt_prop_def(UnitAttr)

    SIDES: ClassVar = "A"
    assembly_format = "$memory `,` $metadata attr-dict `:` type($memory) `,` type($metadata)"

    @property
    def sparsity(self) -> int:
        return SPARSITY

    def verify_(self) -> None:
        if str(memory_of(self.metadata).element_type) != "i32":
            raise VerifyException(f"expected the metadata of A as words of i32, got {self.metadata.type}")

    def verify_sizes(
        self, side: str, multiplied: str, variant: Variant, sizes: Sequence[int], order: Sequence[int]
    ) -> None:
        if len(sizes) != len(shape := memory_of(self.metadata).get_shape()) or min(*sizes, *shape) < 0:
            return
        if multiplied not in granularities():
            return  # f32, before it is said that it is multiplied as tf32
        span = metadata_span(ELEMENT_TYPES[multiplied])
        *others, rows, k = sizes
        words = *others, -(-rows // METADATA_ROWS), -(-k // span) * LANES
        if shape != words:
            wanted, of = ("x".join(map(str, numbers)) for numbers in (words, sizes))
            raise VerifyException(
                f"expected metadata of {wanted} words for a sparse A of {of} {multiplied}, got {self.metadata.type}"
            )


def lie_alike(first: Memory, second: Memory) -> bool:
    """Whether two matrices have the same shape, element type and strides."""
    kinds = [(kind.element_type, kind.get_shape(), kind.get_strides()) for kind in (first, second)]
    return kinds[0] == kinds[1] and kinds[0][-1] is not None


@irdl_op_definition
class PairedOp(OperandForm):
    """A B of two matrices that lie alike. A is multiplied by both, and the epilogue takes an element of each product::

        %gate_and_up = warp.paired %B1, %B2 : memref<512x64xbf16>, memref<512x64xbf16>
        %swiglu = warp.pointwise (%x: f32, %y: f32) { ... }
        warp.matmul bf16 x bf16 %A, %gate_and_up init 0.0 : f32 into %D through %swiglu : memref<...>, ...

    A tile of B has columns of the first matrix, then as many of the second, so that a lane has the sums of both for an
    element of D.
    """

    name = "warp.paired"

    first = operand_def(MEMORY)
    second = operand_def(MemRefType)

    SIDES: ClassVar = "B"
    assembly_format = "$first `,` $second attr-dict `:` type($first) `,` type($second)"

    def verify_(self) -> None:
        if not lie_alike(*map(memory_of, self.operands)):
            raise VerifyException(f"expected two matrices that lie alike, got {self.first.type} and {self.second.type}")


# Groups of rows: the first one has rows 0 to `ends[0]`, the next one those from there to `ends[1]`, and so on. What
# reads their ends may be computed anywhere, and again: nothing writes them while a kernel runs.


@irdl_op_definition
class FindGroupOp(WarpOp):
    """The group that a tile belongs to, and the number of the group's first tile. The tiles of a group are `rows` rows
    high, as many as cover its rows, and `across` lie side by side::

        %group, %first = warp.find_group %ends[%tile] rows 128 x %across : memref<8xi32>

    For a number behind the last tile, the group is as many as there are groups, and the first tile as many as there are
    tiles.
    """

    name = "warp.find_group"

    ends = operand_def(MemRefType)
    tile = operand_def(IndexType())
    rows = prop_def(IntegerAttr[i64])
    across = operand_def(IndexType())
    group = result_def(IndexType())
    first = result_def(IndexType())

    traits = traits_def(NoMemoryEffect())
    assembly_format = "$ends `[` $tile `]` `rows` $rows `x` $across attr-dict `:` type($ends)"

    def verify_(self) -> None:
        verify_ends(self.ends)
        if self.rows.value.data < 1:
            raise VerifyException(f"expected tiles of a row or more, got {self.rows.value.data}")


def verify_ends(ends: SSAValue) -> None:
    """Checks memory with the ends of groups. Raises VerifyException for anything but one number of 32 bits for each of
    some groups."""
    kind = memory_of(ends)
    if kind.element_type != i32 or kind.get_num_dims() != 1 or kind.get_shape()[0] < 1:
        raise VerifyException(f"expected the ends of groups as a vector of i32 of static size, got {kind}")


def grouped_loop(maps: Sequence[AffineMap]) -> int:
    """The loop of a product with groups, M or K, whose indices belong to them: K if D runs along the groups."""
    return K if 0 in loops_of(maps[2]) else M


def verify_groups(ends: SSAValue, maps: Sequence[AffineMap], sizes: LoopSizes) -> None:
    """Checks the maps of A, B and D of a product with groups of rows, or of k. Raises VerifyException naming the
    operand whose map is wrong."""
    verify_ends(ends)
    alone = "B" if grouped_loop(maps) == M else "D"
    for name, loops, map_ in zip("ABD", OPERAND_LOOPS, maps, strict=True):
        if bool(loops_around(name, loops, map_, 1)) != (name == alone):
            raise VerifyException(f"expected {alone} alone to be indexed by d0, the group, got {name} along {map_}")
    sizes.add("the ends of groups", ends, (0,))
