"""Fragments whose elements change lanes by way of shared memory: `warp.exchange`."""

from __future__ import annotations

import math

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..layouts.layout import LANES, Layout, column, row
from .attributes import SHARED_SPACE, FragmentType, element_row, fragment_of, memory_of, memory_space
from .memory import verify_one_warp

WIDEST = 16
"""Bytes of the widest access of a lane."""

BANKS = 128
"""Bytes that shared memory moves at once; a warp's part of scratch memory is a multiple of it."""


@irdl_op_definition
class ExchangeOp(IRDLOperation):
    """The same matrix with its elements in other lanes, by way of shared memory::

        %rows = warp.exchange %acc via %s : !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>,
                memref<8x1024xf32, 3> -> !warp.fragment<acc, 16x64xf32, [c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3]>

    The scratch memory has a row for each warp of the CTA, with room for the fragment; how the fragment lies there is
    not said. Only lanes of one warp meet: the operation waits for those before it writes, and before it reads.
    Elements are of 16, 32 or 64 bits, and a base tile of the result is a multiple of one of the operand.
    """

    name = "warp.exchange"

    input = operand_def(FragmentType)
    scratch = operand_def(MemRefType)
    fragment = result_def(FragmentType)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$input `via` $scratch attr-dict `:` type($input) `,` type($scratch) `->` type($fragment)"

    def __init__(self, value: SSAValue, scratch: SSAValue, layout: Layout):
        super().__init__(operands=[value, scratch], result_types=[fragment_of(value).with_layout(layout)])

    def verify_(self) -> None:
        source, result, scratch = fragment_of(self.input), fragment_of(self.fragment), memory_of(self.scratch)
        if source.with_layout(result.layout.data) != result:
            raise VerifyException(f"expected only the layout to change, got {source} to {result}")
        if source.bits not in (16, 32, 64):
            raise VerifyException(f"expected elements of 16, 32 or 64 bits, got {source.element.name}")
        for fragment in (source, result):
            verify_one_warp("a fragment", fragment)
        before, after = source.layout.data, result.layout.data
        if after.rows % before.rows or after.columns % before.columns:
            raise VerifyException(
                f"expected base tiles of the result to consist of base tiles of the operand, got "
                f"{after.rows}x{after.columns} and {before.rows}x{before.columns}"
            )
        shape, held = scratch.get_shape(), element_row(scratch.element_type)
        room = shape[1] * held.bits // 8 if len(shape) == 2 and held is not None else 0
        needed = max(BANKS, math.prod(source.shape) * source.bits // 8)
        if memory_space(scratch) != SHARED_SPACE or room < needed or room % BANKS:
            raise VerifyException(
                f"expected shared memory with a row of {needed} bytes, or more in multiples of {BANKS}, for each warp, "
                f"got {scratch}"
            )


def in_lines(kind: FragmentType) -> Layout:
    """The layout in which a warp's accesses to a row-major matrix are widest.

    A lane holds 16 bytes side by side, lanes follow each other along a row, then down. Where the columns are no power
    of two, their largest such part.
    """
    (rows, columns), bits = kind.shape, kind.bits
    down, across = ((size & -size).bit_length() - 1 for size in (rows, columns))
    lanes = LANES.bit_length() - 1
    own = min((8 * WIDEST // bits).bit_length() - 1, across, down + across - lanes)
    further = [*(column(i) for i in range(own, across)), *(row(i) for i in range(down))]
    return Layout(tuple(further[:lanes]), (*(column(i) for i in range(own)), *further[lanes:]))
