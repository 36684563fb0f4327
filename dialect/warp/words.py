"""Fragments that lie in memory as registers hold them: words, metadata, scales.

Metadata, scales, and matrices that were packed ahead of time are kept so: nothing has to be put together.
"""

from __future__ import annotations

from abc import ABC
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

from ..isa.block_scale import SCALES_OF_WORD
from ..layouts.layout import LANES
from .attributes import SHARED_SPACE, FragmentType, Memory, element_row, fragment_of, memory_of, memory_space
from .memory import verify_indices, verify_one_warp

WORD = 32


def words_of(fragment: FragmentType) -> int:
    """32-bit words each lane holds of a fragment."""
    return fragment.registers * max(WORD, fragment.bits) // WORD


def _verify(memory: Memory, indices: Sequence[SSAValue], fragment: FragmentType, words: int, holders: int = 0) -> None:
    """Checks that rows of memory hold `words` words for each of `holders` lanes, or threads of a warpgroup: of all that
    hold the fragment unless given."""
    verify_indices("the memref", memory, indices)
    element = element_row(memory.element_type)
    if element is None or element.bits != WORD:
        raise VerifyException(f"expected memory of 32-bit words, got {memory}")
    holders = holders or fragment.layout.data.threads
    needed, given = holders * words, memory.get_shape()[-1]
    if given < needed:
        whose = "lanes" if holders == LANES else "threads"
        raise VerifyException(f"expected rows of at least {needed} words in memory, {holders} {whose}' {fragment}, "
                              f"got {given}")  # fmt: skip


class WordsLoad(IRDLOperation, ABC):
    """A fragment from the indices of memory on: operands, result and text of the loads here."""

    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    fragment = result_def(FragmentType)

    traits = traits_def(MemoryReadEffect())
    assembly_format = "$memory `[` $indices `]` attr-dict `:` type($memory) `->` type($fragment)"

    def __init__(self, memory: SSAValue, indices: Sequence[SSAValue], fragment: FragmentType):
        super().__init__(operands=[memory, list(indices)], result_types=[fragment])


@irdl_op_definition
class LoadWordsOp(WordsLoad):
    """Reads a fragment whose registers lie in memory, those of lane 0 (of a warpgroup's, of thread 0) first, from the
    indices on along the row::

        %e = warp.load_words %E[%tile, %c0] : memref<64x32xi32> -> !warp.fragment<meta, 16x8xi4, [...]>

    A register of 64 bits is two words, the lower first. All the words must lie inside the row.
    """

    name = "warp.load_words"

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
    row `%row` + i, from column `%word` on. Of a warpgroup's 64 rows warp w reads those of row `%row` + w. With `padded`
    a word of zeros, which `warp.copy` writes outside the metadata and which no ordered metadata has, is read as one
    that names elements 0 and 1 of every chunk.
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
        _verify(memory, self.indices, fragment, 1, LANES)
        if memory_space(memory) != SHARED_SPACE:
            raise VerifyException(f"expected metadata in shared memory (memory space {SHARED_SPACE}), got {memory}")
        if any(bit.axis != "r" for bit in fragment.layout.data.warp):
            raise VerifyException(f"expected metadata of 16 rows for each warp, got {fragment}")
        if fragment.role.data != "meta" or fragment.tiles[1] != 1 or fragment.tile_registers != 1:
            raise VerifyException(f"expected a fragment of metadata, one base tile wide, got {fragment}")


@irdl_op_definition
class LoadScalesOp(WordsLoad):
    """Reads the scales of A or B from a tile in shared memory, each lane a word of each base tile::

        %s = warp.load_scales %S[%stage, %row, %column] : memref<3x128x4xf8E8M0FNU, ..., 3> -> !warp.fragment<...>

    A row of memory has the scales of a row of A, or of a column of B, in the order of k. A lane gets four of them, from
    `%column` on, a multiple of four: byte-ids pick those of a step of the instruction. The base tiles of the fragment
    follow each other along m or n.
    """

    name = "warp.load_scales"

    @property
    def axis(self) -> str:
        """The axis of the fragment that the rows of memory run across: "r" for scales of A, "c" for those of B."""
        return "r" if any(bit.axis == "r" for bit in self.fragment.type.layout.data.lane) else "c"

    @property
    def what(self) -> str:
        """What has a scale for each of its blocks, in words."""
        return "rows of A" if self.axis == "r" else "columns of B"

    def verify_(self) -> None:
        memory, fragment = memory_of(self.memory), fragment_of(self.fragment)
        verify_one_warp("scales", fragment)
        verify_indices("the memref", memory, self.indices)
        if memory_space(memory) != SHARED_SPACE:
            raise VerifyException(f"expected scales in shared memory (memory space {SHARED_SPACE}), got {memory}")
        along_k = fragment.tiles[self.axis == "r"]
        if fragment.role.data != "scale" or fragment.tile_registers != 1 or along_k != 1:
            raise VerifyException(f"expected a fragment of scales, one base tile deep, got {fragment}")
        if memory.element_type != fragment.element_type:
            raise VerifyException(f"expected memory of {fragment.element_type}, got {memory}")
        if (columns := memory.get_shape()[-1]) % SCALES_OF_WORD:
            raise VerifyException(f"expected rows of whole words of {SCALES_OF_WORD} scales, got {columns} in {memory}")
