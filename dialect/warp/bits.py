"""Bits of memory, wherever its elements begin: `warp.load_bits`, `warp.store_bits`, `warp.funnel_shift`.

Each thread moves its own. An address is a sum: the start of the memory, each index times its stride, and an offset, all
in bytes. It is a sum of 64 bits, so that a matrix may be larger than what an index counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, IndexType, IntegerAttr, IntegerType, MemRefType, i1, i32, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from .attributes import SHARED_SPACE, memory_of, memory_space

WIDTHS = (8, 16, 32)
"""Bits that are moved as one value."""

VECTORS = (1, 2, 4)
"""Values that are stored side by side at once."""

BITS = VarConstraint("Bits", base(IntegerType))


class BitsAccess(IRDLOperation):
    """What loads and stores of bits share: where in memory, and whether at all."""

    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    taken = opt_operand_def(i1)
    strides = prop_def(DenseArrayBase[IntegerType])
    offset = opt_prop_def(IntegerAttr)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())

    @property
    def terms(self) -> list[tuple[SSAValue, int]]:
        """The indices, each with its stride in bytes."""
        return [(index, int(n)) for index, n in zip(self.indices, self.strides.iter_values(), strict=True)]

    @property
    def start(self) -> int:
        """The offset in bytes."""
        return 0 if self.offset is None else self.offset.value.data

    def verify_access(self, moved: Attribute) -> None:
        """Checks the address, and the type of what is moved.

        Raises:
            VerifyException: saying what is expected.
        """
        memory = memory_of(self.memory)
        if memory_space(memory) == SHARED_SPACE:
            raise VerifyException(f"expected global memory, got {memory}")
        if len(self.strides) != len(self.indices):
            raise VerifyException(f"expected a stride for each of {len(self.indices)} indices, got {len(self.strides)}")
        if not isinstance(moved, IntegerType) or moved.bitwidth not in WIDTHS:
            raise VerifyException(f"expected integers of {', '.join(map(str, WIDTHS))} bits, got {moved}")


def _properties(strides: Sequence[int], offset: int) -> dict[str, Attribute | None]:
    held = IntegerAttr(offset, i64) if offset else None
    return {"strides": DenseArrayBase.from_list(i64, strides), "offset": held}


@irdl_op_definition
class LoadBitsOp(BitsAccess):
    """Reads as many bits as the result has, beginning at an address. If the condition after `if` is false, it reads
    nothing, and the result is zero::

        %w = warp.load_bits %A[%row, %chunk] if %inside {strides = array<i64: 66, 16>, offset = 4 : i64}
            : memref<53x33xf16> -> i32

    The address is that of %A plus 66 %row + 16 %chunk + 4 bytes. It must be a multiple of the bytes that are read.
    """

    name = "warp.load_bits"

    result = result_def(IntegerType)

    traits = traits_def(MemoryReadEffect())
    assembly_format = "$memory `[` $indices `]` (`if` $taken^)? attr-dict `:` type($memory) `->` type($result)"

    def __init__(
        self,
        memory: SSAValue,
        terms: Sequence[tuple[SSAValue, int]],
        result: IntegerType,
        *,
        offset: int = 0,
        taken: SSAValue | None = None,
    ):
        """`terms` are indices with their strides."""
        super().__init__(
            operands=[memory, [index for index, _ in terms], taken],
            properties=_properties([stride for _, stride in terms], offset),
            result_types=[result],
        )

    def verify_(self) -> None:
        self.verify_access(self.result.type)


@irdl_op_definition
class StoreBitsOp(BitsAccess):
    """Writes one, two or four values to consecutive addresses. If the condition after `if` is false, it writes
    nothing::

        warp.store_bits %w0, %w1, %w2, %w3 to %W[%number] if %taken {strides = array<i64: 16>}
            : i32, i32, i32, i32 to memref<64x64xf16>

    The address is computed as for `warp.load_bits`. It must be a multiple of the bytes that are written.
    """

    name = "warp.store_bits"

    values = var_operand_def(BITS)

    traits = traits_def(MemoryWriteEffect())
    assembly_format = (
        "$values `to` $memory `[` $indices `]` (`if` $taken^)? attr-dict `:` type($values) `to` type($memory)"
    )

    def __init__(
        self,
        values: Sequence[SSAValue],
        memory: SSAValue,
        terms: Sequence[tuple[SSAValue, int]],
        *,
        offset: int = 0,
        taken: SSAValue | None = None,
    ):
        """`terms` are indices with their strides."""
        super().__init__(
            operands=[list(values), memory, [index for index, _ in terms], taken],
            properties=_properties([stride for _, stride in terms], offset),
        )

    def verify_(self) -> None:
        if len(self.values) not in VECTORS:
            raise VerifyException(f"expected {', '.join(map(str, VECTORS))} values, got {len(self.values)}")
        self.verify_access(self.values[0].type)


@irdl_op_definition
class FunnelShiftOp(IRDLOperation):
    """Shifts two words right as one 64-bit number, and returns the lower word: `%w = warp.funnel_shift %low, %high by
    %bits`.

    The number of bits is taken modulo 32. Source: PTX ISA 9.7.8.7, `shf`.
    """

    name = "warp.funnel_shift"

    low = operand_def(i32)
    high = operand_def(i32)
    bits = operand_def(IndexType())
    result = result_def(i32)

    traits = traits_def(Pure())
    assembly_format = "$low `,` $high `by` $bits attr-dict"

    def __init__(self, low: SSAValue, high: SSAValue, bits: SSAValue):
        super().__init__(operands=[low, high, bits], result_types=[i32])
