"""Words of memory: fragments as registers hold them, and bits wherever elements begin."""

from __future__ import annotations

import math
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

from ..layouts.layout import LANES
from .attributes import SHARED_SPACE, FragmentType, Memory, element_row, fragment_of, memory_of, memory_space
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


# Bits of memory, wherever its elements begin: `warp.load_bits`, `warp.store_bits`, `warp.funnel_shift`.
#
# Each thread moves its own. An address is a sum: the start of the memory, each index times its stride, and an offset,
# all in bytes. It is a sum of 64 bits, so that a matrix may be larger than what an index counts.

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
