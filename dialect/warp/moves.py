"""Fragments to shared memory, and transposed within the warp: `warp.stmatrix`, `warp.movmatrix`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, UnitAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    opt_prop_def,
    prop_def,
)
from xdsl.utils.exceptions import VerifyException

from ..isa.moves import MOVMATRIX, StoreMatrix
from .attributes import fragment_of, memory_of
from .matrices import matrices, store_rows, verify_matrices
from .memory import MatrixCount, verify_shared_matrix
from .op_shapes import FragmentChange, FragmentStore, flag
from .product import verify_target


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
