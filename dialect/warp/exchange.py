"""Fragments whose elements change lanes: `warp.stmatrix`, `warp.movmatrix`, `warp.exchange`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, MemRefType, UnitAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from ..isa.moves import MOVMATRIX, StoreMatrix
from ..layouts.layout import LANES, Layout, column, row
from .attributes import (
    SHARED_SPACE,
    FragmentType,
    LayoutAttr,
    Memory,
    element_row,
    fragment_of,
    memory_of,
    memory_space,
)
from .memory import MatrixCount, matrices, store_rows, verify_matrices, verify_one_warp, verify_shared_matrix
from .op_shapes import FragmentChange, FragmentStore, flag, verify_target

# Fragments to shared memory, and transposed within the warp: `warp.stmatrix`, `warp.movmatrix`.


@irdl_op_definition
class StmatrixOp(FragmentStore):
    """Writes a fragment to shared memory with `stmatrix`, `count` matrices at a time::

        warp.stmatrix x4 %d, %Ds[%m, %n] : !warp.fragment<acc, ...>, memref<128x64xf16, #warp.swizzle<128>, 3>
        warp.stmatrix x2 trans %d, %Ds[%n, %m] : ...

    The words are those of `warp.ldmatrix`. With `trans`, elements of 16 bits move in 8x8 matrices and those of 8 bits
    in matrices that are 8x16 in memory.

    Source: PTX ISA 9.7.14.5.16.
    """

    name = "warp.stmatrix"

    count = prop_def(IntegerAttr[i64])
    trans = opt_prop_def(UnitAttr)
    swapped = opt_prop_def(UnitAttr)

    custom_directives: ClassVar = (MatrixCount,)
    assembly_format = (
        "custom<MatrixCount>($count) (`trans` $trans^)? (`swapped` $swapped^)? $fragment `,` $memory `[` $indices `]`"
        " attr-dict `:` type($fragment) `,` type($memory)"
    )

    def __init__(
        self,
        fragment: SSAValue,
        memory: SSAValue,
        indices: Sequence[SSAValue],
        *,
        count: int = 4,
        trans: bool = False,
        swapped: bool = False,
    ):
        given = {"count": IntegerAttr(count, i64), "trans": flag(trans), "swapped": flag(swapped)}
        super().__init__(fragment, memory, indices, given)

    def rows(self) -> tuple[StoreMatrix, ...]:
        """The ISA's rows that may be used: `count` matrices or fewer, widest first."""
        return store_rows(fragment_of(self.fragment).bits, self.trans is not None, self.count.value.data)

    def verify_(self) -> None:
        memory, fragment = memory_of(self.memory), fragment_of(self.fragment)
        verify_shared_matrix("stmatrix writes", memory, self.indices, fragment)
        row = self.rows()[0]
        verify_matrices(row, "takes", fragment, self.swapped is not None)
        verify_target(self, row)


@irdl_op_definition
class MovmatrixOp(FragmentChange):
    """Converts a matrix to another layout: it transposes each 8x8 block of 16-bit elements among the lanes::

        %b = warp.movmatrix %c : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
                              to !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>

    Source: PTX ISA 9.7.14.5.17.
    """

    name = "warp.movmatrix"

    def blocks(self) -> list[tuple[int, int]]:
        """For each 8x8 block: the register of the operand that holds it, and that of the result.

        Raises:
            VerifyException: if one of the layouts does not consist of such blocks.
        """
        source, result = fragment_of(self.input), fragment_of(self.fragment)
        if source.layout.data.warp != result.layout.data.warp:
            raise VerifyException(
                f"expected fragments that the same warps hold, got [{source.layout.data}] to [{result.layout.data}]"
            )
        before, after = MOVMATRIX.source, MOVMATRIX.layout
        if source.layout.data.lane != before.lane:
            before, after = after, before
        held, wanted = matrices(source, False, before), matrices(result, False, after)
        natural = (0, 1, 2)
        if held is None or wanted is None or any(m.rows != natural for m in (*held, *wanted)):
            raise VerifyException(
                f"{MOVMATRIX.spelling} moves 8x8 blocks between layouts [{MOVMATRIX.source}] and [{MOVMATRIX.layout}], "
                f"got [{source.layout.data}] to [{result.layout.data}]"
            )
        place = {(m.row, m.column): m.registers[0] for m in held}
        return [(place[m.row, m.column], m.registers[0]) for m in wanted]

    def verify_(self) -> None:
        source, result = fragment_of(self.input), fragment_of(self.fragment)
        if source.bits != 16:
            raise VerifyException(f"movmatrix moves elements of 16 bits, got {source.element.name}")
        if (source.shape, source.element_type) != (result.shape, result.element_type):
            raise VerifyException(f"expected only role and layout to change, got {source} to {result}")
        self.blocks()
        verify_target(self, MOVMATRIX)


# Fragments whose elements change lanes by way of shared memory: `warp.exchange`, and the operations that it becomes,
# `warp.own_row`, `warp.store_banked`, `warp.load_banked`.

WIDEST = 16
"""Bytes of the widest access of a lane."""

BANKS = 128
"""Bytes that shared memory moves at once; a warp's part of scratch memory is a multiple of it."""


@irdl_op_definition
class ExchangeOp(IRDLOperation):
    """Moves the elements of a fragment to other lanes, through shared memory::

        %rows = warp.exchange %acc via %s : !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>,
                memref<8x1024xf32, 3> -> !warp.fragment<acc, 16x64xf32, [c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3]>

    The scratch memory has a row for each warp of the CTA, as large as the fragment. The lanes of a warp wait for each
    other before they write, and again before they read. They do not wait for other warps. `warp-expand` expands the
    operation. Elements have 16, 32 or 64 bits, and the base tile of the result is a multiple of the operand's.
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
        _verify_moved(source, result)
        needed, room = _needed(source), _row_bytes(scratch, 2)
        if room < needed or room % BANKS:
            raise VerifyException(
                f"expected shared memory with a row of {needed} bytes, or more in multiples of {BANKS}, for each warp, "
                f"got {scratch}"
            )


@irdl_op_definition
class OwnRowOp(IRDLOperation):
    """The executing warp's row of scratch memory, which has one row for each warp of the CTA::

        %mine = warp.own_row %s : memref<8x1024xf32, 3> -> memref<1024xf32, 3>

    The address is computed at this operation, and takes no registers before it.
    """

    name = "warp.own_row"

    scratch = operand_def(MemRefType)
    row = result_def(MemRefType)

    traits = traits_def(Pure())
    assembly_format = "$scratch attr-dict `:` type($scratch) `->` type($row)"

    def __init__(self, scratch: SSAValue):
        kind = memory_of(scratch)
        row = MemRefType(kind.element_type, kind.get_shape()[1:], memory_space=kind.memory_space)
        super().__init__(operands=[scratch], result_types=[row])

    def verify_(self) -> None:
        scratch, row = memory_of(self.scratch), memory_of(self.row)
        if not _row_bytes(scratch, 2) or scratch.get_shape()[1:] != row.get_shape() or not _row_bytes(row, 1):
            raise VerifyException(f"expected a row of shared memory that has one for each warp, got {row} of {scratch}")


class BankedOp(IRDLOperation):
    """Moves a fragment between registers and a row of scratch memory, where it lies as two layouts want it.

    A base tile of the layout that is read lies row by row, tile after tile, so that lanes read 16 bytes each and 128
    together. Bits of the row that lanes differ in when they write, and that stand above the lowest 128 bytes, are XORed
    into bits of the address that no other lane's bit uses, so that lanes never meet at a bank.
    """

    other = prop_def(LayoutAttr)

    @property
    def mine(self) -> SSAValue:
        """The row of scratch memory."""
        raise TypeError(f"{type(self).__name__} has no memory")

    @property
    def moved(self) -> tuple[FragmentType, FragmentType]:
        """The fragment as it is written, and as it is read."""
        raise TypeError(f"{type(self).__name__} moves no fragment")

    def verify_(self) -> None:
        written, read = self.moved
        _verify_moved(written, read)
        needed, room = _needed(written), _row_bytes(memory_of(self.mine), 1)
        if room < needed or room % BANKS:
            raise VerifyException(f"expected {needed} bytes or more of shared memory, got {self.mine.type}")


@irdl_op_definition
class StoreBankedOp(BankedOp):
    """Writes a fragment to a row of scratch memory, from which `warp.load_banked` reads it in the layout `other`::

    warp.store_banked %acc, %mine {other = #warp.layout<c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3>}
      : !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<1024xf32, 3>
    """

    name = "warp.store_banked"

    fragment = operand_def(FragmentType)
    row = operand_def(MemRefType)

    traits = traits_def(MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$fragment `,` $row attr-dict `:` type($fragment) `,` type($row)"

    def __init__(self, fragment: SSAValue, row: SSAValue, read_as: Layout):
        super().__init__(operands=[fragment, row], properties={"other": LayoutAttr(read_as)})

    @property
    def mine(self) -> SSAValue:
        return self.row

    @property
    def moved(self) -> tuple[FragmentType, FragmentType]:
        written = fragment_of(self.fragment)
        return written, written.with_layout(self.other.data)


@irdl_op_definition
class LoadBankedOp(BankedOp):
    """Reads a fragment that `warp.store_banked` wrote from a fragment in the layout `other`::

    %rows = warp.load_banked %mine {other = #warp.layout<c1 c2 r0 r1 r2 | c0 r3>}
      : memref<1024xf32, 3> -> !warp.fragment<acc, 16x64xf32, [c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3]>
    """

    name = "warp.load_banked"

    row = operand_def(MemRefType)
    fragment = result_def(FragmentType)

    traits = traits_def(MemoryReadEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$row attr-dict `:` type($row) `->` type($fragment)"

    def __init__(self, row: SSAValue, fragment: FragmentType, written_as: Layout):
        super().__init__(operands=[row], properties={"other": LayoutAttr(written_as)}, result_types=[fragment])

    @property
    def mine(self) -> SSAValue:
        return self.row

    @property
    def moved(self) -> tuple[FragmentType, FragmentType]:
        read = fragment_of(self.fragment)
        return read.with_layout(self.other.data), read


def _row_bytes(memory: Memory, rank: int) -> int:
    """Bytes of a row of shared memory of a rank; 0 of other memory."""
    shape, held = memory.get_shape(), element_row(memory.element_type)
    is_shared = memory_space(memory) == SHARED_SPACE and len(shape) == rank
    return shape[-1] * held.bits // 8 if is_shared and held is not None else 0


def _needed(fragment: FragmentType) -> int:
    """Bytes of scratch memory that a fragment takes."""
    return max(BANKS, math.prod(fragment.shape) * fragment.bits // 8)


def _verify_moved(source: FragmentType, result: FragmentType) -> None:
    """Checks that a fragment can go from one layout to another in scratch memory."""
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
