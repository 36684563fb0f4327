"""Fragments that lie in memory as registers hold them: `warp.load_words`, `warp.store_words`, `warp.load_metadata`.

Metadata, scales, and matrices that were packed ahead of time are kept so: nothing has to be put together.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IndexType, MemRefType, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..layout import LANES
from .attributes import SHARED_SPACE, FragmentType, Memory, element_row, fragment_of, memory_of, memory_space
from .memory import verify_indices

WORD = 32


def words_of(fragment: FragmentType) -> int:
    """32-bit words each lane holds of a fragment."""
    return fragment.registers * max(WORD, fragment.bits) // WORD


def _verify(memory: Memory, indices: Sequence[SSAValue], fragment: FragmentType, words: int) -> None:
    """Checks that rows of memory hold `words` words for each lane."""
    verify_indices("the memref", memory, indices)
    element = element_row(memory.element_type)
    if element is None or element.bits != WORD:
        raise VerifyException(f"expected memory of 32-bit words, got {memory}")
    needed, given = LANES * words, memory.get_shape()[-1]
    if given < needed:
        raise VerifyException(f"expected rows of at least {needed} words in memory, {LANES} lanes' {fragment}, "
                              f"got {given}")  # fmt: skip


@irdl_op_definition
class LoadWordsOp(IRDLOperation):
    """Reads a fragment whose registers lie in memory, those of lane 0 first, from the indices on along the row::

        %e = warp.load_words %E[%tile, %c0] : memref<64x32xi32> -> !warp.fragment<meta, 16x8xi4, [...]>

    A register of 64 bits is two words, the lower first. All the words must lie inside the row.
    """

    name = "warp.load_words"

    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    fragment = result_def(FragmentType)

    traits = traits_def(MemoryReadEffect())
    assembly_format = "$memory `[` $indices `]` attr-dict `:` type($memory) `->` type($fragment)"

    def __init__(self, memory: SSAValue, indices: Sequence[SSAValue], fragment: FragmentType):
        super().__init__(operands=[memory, list(indices)], result_types=[fragment])

    def verify_(self) -> None:
        _verify(memory_of(self.memory), self.indices, self.fragment.type, words_of(self.fragment.type))


@irdl_op_definition
class StoreWordsOp(IRDLOperation):
    """Writes what `warp.load_words` reads: `warp.store_words %d, %D[%i, %j] : !warp.fragment<...>, memref<...>`."""

    name = "warp.store_words"

    fragment = operand_def(FragmentType)
    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())

    traits = traits_def(MemoryWriteEffect())
    assembly_format = "$fragment `,` $memory `[` $indices `]` attr-dict `:` type($fragment) `,` type($memory)"

    def __init__(self, fragment: SSAValue, memory: SSAValue, indices: Sequence[SSAValue]):
        super().__init__(operands=[fragment, memory, list(indices)])

    def verify_(self) -> None:
        _verify(memory_of(self.memory), self.indices, fragment_of(self.fragment), words_of(fragment_of(self.fragment)))


@irdl_op_definition
class LoadMetadataOp(IRDLOperation):
    """Reads the metadata of a sparse A from a tile in shared memory, each lane its word of each base tile::

        %e = warp.load_metadata %Es[%stage, %row, %word] : memref<4x8x32xi32, ..., 3> -> !warp.fragment<...>

    A row of memory has the words of 16 rows of A, 32 together, those of lane 0 first; base tile i of the fragment is in
    row `%row` + i, from column `%word` on. With `padded` a word of zeros, which `warp.copy` writes outside the
    metadata and which no ordered metadata has, is read as one that names elements 0 and 1 of every chunk.
    """

    name = "warp.load_metadata"

    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    padded = opt_prop_def(UnitAttr)
    fragment = result_def(FragmentType)

    traits = traits_def(MemoryReadEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$memory `[` $indices `]` attr-dict `:` type($memory) `->` type($fragment)"

    def __init__(self, memory: SSAValue, indices: Sequence[SSAValue], fragment: FragmentType, *, padded: bool = False):
        super().__init__(
            operands=[memory, list(indices)],
            properties={"padded": UnitAttr() if padded else None},
            result_types=[fragment],
        )

    def verify_(self) -> None:
        memory, fragment = memory_of(self.memory), fragment_of(self.fragment)
        _verify(memory, self.indices, fragment, 1)
        if memory_space(memory) != SHARED_SPACE:
            raise VerifyException(f"expected metadata in shared memory (memory space {SHARED_SPACE}), got {memory}")
        if fragment.role.data != "meta" or fragment.tiles[1] != 1 or fragment.tile_registers != 1:
            raise VerifyException(f"expected a fragment of metadata, one base tile wide, got {fragment}")
