"""A sparse A: `warp.sparse`, an operand of products, and `warp.load_metadata`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import MemRefType, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
)
from xdsl.utils.exceptions import VerifyException

from ..isa.mma import Variant
from ..isa.types import ELEMENT_TYPES, ElementType
from ..layouts.layout import LANES
from .attributes import SHARED_SPACE, FragmentType, fragment_of, memory_of, memory_space
from .op_shapes import FragmentLoad, flag
from .operand_forms import MEMORY, OperandForm, OperandType, form_of
from .words import verify_words

SPARSITY = 2
"""Elements of a sparse A for each stored one, in every pattern of `mma.sp` (PTX ISA 9.7.14.6)."""

METADATA_ROWS, NIBBLES = 16, 8
"""Rows of a sparse A that one word of each lane describes, and codes in a word."""


def metadata_span(element: ElementType) -> int:
    """Columns of a sparse A that the metadata words of a warp describe, 16 rows of them (PTX ISA 9.7.14.6.1)."""
    from ..sparsity.patterns import pattern_of

    chunks = LANES * NIBBLES // METADATA_ROWS
    return chunks * pattern_of(element.name).chunk


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
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$memory `,` $metadata attr-dict `:` type($memory) `,` type($metadata)"

    def __init__(self, memory: SSAValue, metadata: SSAValue, *, padded: bool = False):
        super().__init__(
            operands=[memory, metadata],
            properties={"padded": flag(padded)},
            result_types=[OperandType(memory_of(memory))],
        )

    @property
    def sparsity(self) -> int:
        return SPARSITY

    def of(self, memory: SSAValue, beside: Sequence[SSAValue]) -> SparseOp:
        (metadata,) = beside
        return SparseOp(memory, metadata, padded=self.padded is not None)

    def verify_(self) -> None:
        if str(memory_of(self.metadata).element_type) != "i32":
            raise VerifyException(f"expected the metadata of A as words of i32, got {self.metadata.type}")

    def verify_sizes(
        self, side: str, multiplied: str, variant: Variant, sizes: Sequence[int], order: Sequence[int]
    ) -> None:
        from ..sparsity.patterns import PatternError

        if len(sizes) != len(shape := memory_of(self.metadata).get_shape()) or min(*sizes, *shape) < 0:
            return
        try:
            span = metadata_span(ELEMENT_TYPES[multiplied])
        except PatternError:
            return  # f32, before it is said that it is multiplied as tf32
        rows, k = sizes
        words = -(-rows // METADATA_ROWS), -(-k // span) * LANES
        if shape != words:
            raise VerifyException(
                f"expected metadata of {words[0]}x{words[1]} words for a sparse A of {rows}x{k} {multiplied}, got "
                f"{self.metadata.type}"
            )


def metadata_of(a: SSAValue) -> SSAValue | None:
    """The metadata of an A that is sparse."""
    form = form_of(a)
    return form.metadata if isinstance(form, SparseOp) else None


@irdl_op_definition
class LoadMetadataOp(FragmentLoad):
    """Reads the metadata of a sparse A from a tile in shared memory. Each lane reads its word of each base tile::

        %e = warp.load_metadata %Es[%stage, %row, %word] : memref<4x8x32xi32, ..., 3> -> !warp.fragment<...>

    A row of memory has the words for 16 rows of A, in groups of 32 words: one for each lane, in the order of the lanes.
    Base tile i of the fragment is in row `%row` + i, from column `%word` on. If a warpgroup holds the fragment, warp w
    of it reads row `%row` + w. `warp.copy` writes zeros outside the metadata, and ordered metadata has no word of
    zeros. With `padded`, a word of zeros is read as one that names elements 0 and 1 of every chunk.
    """

    name = "warp.load_metadata"

    padded = opt_prop_def(UnitAttr)

    def __init__(self, memory: SSAValue, indices: Sequence[SSAValue], fragment: FragmentType, *, padded: bool = False):
        super().__init__(memory, indices, fragment, {"padded": flag(padded)})

    def verify_(self) -> None:
        memory, fragment = memory_of(self.memory), fragment_of(self.fragment)
        verify_words(memory, self.indices, fragment, 1, LANES)
        if memory_space(memory) != SHARED_SPACE:
            raise VerifyException(f"expected metadata in shared memory (memory space {SHARED_SPACE}), got {memory}")
        if any(bit.axis != "r" for bit in fragment.layout.data.warp):
            raise VerifyException(f"expected metadata of 16 rows for each warp, got {fragment}")
        if fragment.role.data != "meta" or fragment.tiles[1] != 1 or fragment.tile_registers != 1:
            raise VerifyException(f"expected a fragment of metadata, one base tile wide, got {fragment}")
