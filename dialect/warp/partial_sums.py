"""Sums that CTAs share: each leaves its own in memory, and the one that comes last adds them up.

Nobody waits. `warp.store_part` writes what a CTA has, `warp.arrive_last` counts it in and tells the last one that it
is, and `warp.add_parts` reads what all wrote, always in the same order, so that the bits do not depend on who was
last.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, MemRefType, i1
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from .attributes import SHARED_SPACE, FragmentType, Memory, fragment_of, memory_of, memory_space
from .synchronisation import verify_counters


def _verify_parts(memory: Memory, fragment: FragmentType) -> None:
    """Checks that rows of memory can hold a CTA's fragments: those of whole warps."""
    shape = memory.get_shape()
    if memory_space(memory) == SHARED_SPACE or len(shape) != 2 or min(shape) < 1:
        raise VerifyException(f"expected a row for each part in global memory, of 2 known dimensions, got {memory}")
    elements, (rows, columns) = shape[1], fragment.shape
    if memory.element_type != fragment.element_type or elements % (rows * columns):
        raise VerifyException(
            f"expected rows of memory that hold a {rows}x{columns} fragment of {fragment.element_type} for each warp, "
            f"got {memory}"
        )


@irdl_op_definition
class StorePartOp(IRDLOperation):
    """Writes the fragments of all warps of a CTA to a row of memory, in an order that only `warp.add_parts` knows::

    warp.store_part %acc, %parts[%slot] : !warp.fragment<acc, 64x64xf32, [...]>, memref<64x16384xf32>
    """

    name = "warp.store_part"

    fragment = operand_def(FragmentType)
    memory = operand_def(MemRefType)
    slot = operand_def(IndexType())

    traits = traits_def(MemoryWriteEffect())
    assembly_format = "$fragment `,` $memory `[` $slot `]` attr-dict `:` type($fragment) `,` type($memory)"

    def __init__(self, fragment: SSAValue, memory: SSAValue, slot: SSAValue):
        super().__init__(operands=[fragment, memory, slot])

    def verify_(self) -> None:
        _verify_parts(memory_of(self.memory), fragment_of(self.fragment))


@irdl_op_definition
class ArriveLastOp(IRDLOperation):
    """Counts the CTAs that execute it, and returns whether this CTA is the last of `of`. The last one sets the counter
    to zero again::

        %last = warp.arrive_last %counters[%tile] of %parts : memref<64xi32>

    The last CTA sees the earlier writes of all these CTAs. All threads of a CTA execute the operation, which contains
    two barriers. The counter must be zero at first.
    """

    name = "warp.arrive_last"

    counters = operand_def(MemRefType)
    number = operand_def(IndexType())
    of = operand_def(IndexType())
    last = result_def(i1)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$counters `[` $number `]` `of` $of attr-dict `:` type($counters)"

    def __init__(self, counters: SSAValue, number: SSAValue, of: SSAValue):
        super().__init__(operands=[counters, number, of], result_types=[i1])

    def verify_(self) -> None:
        verify_counters(memory_of(self.counters))


@irdl_op_definition
class AddPartsOp(IRDLOperation):
    """Adds partial sums to the fragments, in order: those that `warp.store_part` wrote to `count` rows of memory,
    beginning at row `first`::

    %sum = warp.add_parts %start, %parts[%first] x %count : !warp.fragment<acc, ...>, memref<64x16384xf32>
    """

    name = "warp.add_parts"

    input = operand_def(FragmentType)
    memory = operand_def(MemRefType)
    first = operand_def(IndexType())
    count = operand_def(IndexType())
    fragment = result_def(FragmentType)

    traits = traits_def(MemoryReadEffect())

    def __init__(self, value: SSAValue, memory: SSAValue, first: SSAValue, count: SSAValue):
        super().__init__(operands=[value, memory, first, count], result_types=[value.type])

    assembly_format = (
        "$input `,` $memory `[` $first `]` `x` $count attr-dict `:` type($input) `,` type($memory) `->` type($fragment)"
    )

    def verify_(self) -> None:
        if self.input.type != self.fragment.type:
            raise VerifyException(f"expected the sum to be {self.input.type}, got {self.fragment.type}")
        _verify_parts(memory_of(self.memory), fragment_of(self.input))
