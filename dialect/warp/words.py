"""Words of memory: fragments as registers hold them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import IndexType, MemRefType, i1
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    result_def,
    traits_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..layouts.layout import LANES
from .attributes import FragmentType, Memory, element_row, fragment_of, memory_of
from .memory import verify_indices
from .op_shapes import FragmentLoad, FragmentStore

# Fragments that lie in memory as registers hold them.
#
# Matrices that were packed ahead of time are kept so: nothing has to be put together.

WORD = 32


def words_of(fragment: FragmentType) -> int:
    """32-bit words each lane holds of a fragment."""
    return fragment.registers * max(WORD, fragment.bits) // WORD


def verify_words(
    memory: Memory, indices: Sequence[SSAValue], fragment: FragmentType, words: int, holders: int = 0
) -> None:
    """Checks that rows of memory hold `words` words for each of `holders` lanes, or threads of a warpgroup: of all that
    hold the fragment unless given.

    Raises:
        VerifyException: if they are of other elements, or shorter.
    """
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


@irdl_op_definition
class LoadWordsOp(FragmentLoad):
    """Reads the registers of a fragment from a row of memory, beginning at the indices. The registers of lane 0 come
    first (those of thread 0, if a warpgroup holds the fragment)::

        %e = warp.load_words %E[%tile, %c0] : memref<64x32xi32> -> !warp.fragment<meta, 16x8xi4, [...]>

    A register of 64 bits is two words, the lower first. All the words must lie inside the row.
    """

    name = "warp.load_words"

    def verify_(self) -> None:
        verify_words(memory_of(self.memory), self.indices, self.fragment.type, words_of(self.fragment.type))


@irdl_op_definition
class StoreWordsOp(FragmentStore):
    """Writes the registers of a fragment as `warp.load_words` reads them: `warp.store_words %d, %D[%i, %j] :
    !warp.fragment<...>, memref<...>`."""

    name = "warp.store_words"

    def verify_(self) -> None:
        fragment = fragment_of(self.fragment)
        verify_words(memory_of(self.memory), self.indices, fragment, words_of(fragment))


# Fragments in memory as registers hold them: `warp.store_registers`, `warp.load_registers`.
#
# Each access of a warp is of whole lines: the first 16 bytes of lane 0, of lane 1, and so on, then the next 16 bytes
# of lane 0; of fewer where the registers of a lane do not come out even. Which element lies where, only the layout
# says.

VECTOR_BYTES = 16
"""The most that a lane moves at once."""

WORD_BYTES = 4


def register_bytes(fragment: FragmentType) -> int:
    """Bytes of each register of a fragment."""
    return max(WORD_BYTES, fragment.bits // 8)


def together(fragment: FragmentType) -> int:
    """Registers that a lane moves at once."""
    return math.gcd(fragment.registers, VECTOR_BYTES // register_bytes(fragment))


def fragment_bytes(fragment: FragmentType) -> int:
    """Bytes of a warp's registers of a fragment."""
    return LANES * fragment.registers * register_bytes(fragment)


def _verify(memory: SSAValue, fragment: FragmentType) -> None:
    kind, needed = memory_of(memory), fragment_bytes(fragment)
    element, shape = element_row(kind.element_type), kind.get_shape()
    if len(shape) != 2 or element is None or element.memory_bits < 8:
        raise VerifyException(f"expected memory of 2 dimensions and whole bytes, got {kind}")
    if 0 <= shape[1] * element.memory_bits // 8 < needed:
        raise VerifyException(f"expected rows of at least {needed} bytes, a warp's registers of {fragment}, got {kind}")


@irdl_op_definition
class StoreRegistersOp(IRDLOperation):
    """Writes a warp's registers to a row of memory, beginning at a column. With `if`, it writes only if the condition
    is true::

        warp.store_registers %part, %s[%row, %column] if %others : !warp.fragment<acc, 32x64xf32, [...]>,
                                                                   memref<4x2048xf32, 3>

    The column is a multiple of 16 bytes. In shared memory the rows are contiguous.
    """

    name = "warp.store_registers"

    fragment = operand_def(FragmentType)
    memory = operand_def(MemRefType)
    row = operand_def(IndexType())
    column = operand_def(IndexType())
    taken = opt_operand_def(i1)

    traits = traits_def(MemoryWriteEffect())
    assembly_format = (
        "$fragment `,` $memory `[` $row `,` $column `]` (`if` $taken^)? attr-dict `:` type($fragment) `,` type($memory)"
    )

    def __init__(
        self, fragment: SSAValue, memory: SSAValue, row: SSAValue, column: SSAValue, taken: SSAValue | None = None
    ):
        super().__init__(operands=[fragment, memory, row, column, taken])

    def verify_(self) -> None:
        _verify(self.memory, fragment_of(self.fragment))


@irdl_op_definition
class LoadRegistersOp(IRDLOperation):
    """Reads the registers that `warp.store_registers` wrote: `%x = warp.load_registers %s[%i, %j] : memref<...> ->
    !warp...`."""

    name = "warp.load_registers"

    memory = operand_def(MemRefType)
    row = operand_def(IndexType())
    column = operand_def(IndexType())
    fragment = result_def(FragmentType)

    traits = traits_def(MemoryReadEffect())
    assembly_format = "$memory `[` $row `,` $column `]` attr-dict `:` type($memory) `->` type($fragment)"

    def __init__(self, memory: SSAValue, row: SSAValue, column: SSAValue, fragment: FragmentType):
        super().__init__(operands=[memory, row, column], result_types=[fragment])

    def verify_(self) -> None:
        _verify(self.memory, self.fragment.type)
