"""Fragments that lie in memory as registers hold them.

Matrices that were packed ahead of time are kept so: nothing has to be put together.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue
from xdsl.irdl import (
    irdl_op_definition,
)
from xdsl.utils.exceptions import VerifyException

from ..layouts.layout import LANES
from .attributes import FragmentType, Memory, element_row, fragment_of, memory_of
from .memory import verify_indices
from .op_shapes import FragmentLoad, FragmentStore

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
