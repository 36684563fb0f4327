"""Fragments from and to memory: `warp.load`, `warp.store`, `warp.ldmatrix`.

Indices name the element at the fragment's first row and column. A fragment of role b is k x n whatever the
memory looks like; `trans` says that memory holds the transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IndexType, IntegerAttr, MemRefType, StringAttr, UnitAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..isa.moves import LoadMatrix
from ..layouts.layout import Layout, column
from .attributes import BYTE, SHARED_SPACE, FragmentType, Memory, element_row, fragment_of, memory_of, memory_space
from .matrices import in_memory, load_rows, verify_matrices
from .op_shapes import FragmentLoad, FragmentStore, flag
from .product import verify_target
from .text import BareWord


def verify_one_warp(what: str, fragment: FragmentType) -> None:
    """Checks that a warp holds a fragment alone.

    Raises:
        VerifyException: for a fragment of several warps, saying `what` takes the operation.
    """
    if (warps := 1 << len(fragment.layout.data.warp)) > 1:
        raise VerifyException(f"expected {what} that one warp holds, got that of {warps} warps {fragment}")


def verify_indices(what: str, memory: Memory, indices: Sequence[SSAValue]) -> None:
    """Checks that there is one index for each dimension of a memref of rank 2 or more."""
    rank = memory.get_num_dims()
    if rank < 2:
        raise VerifyException(f"expected {what} to have at least 2 dimensions, got {memory}")
    if len(indices) != rank:
        raise VerifyException(f"expected one index for each of the {rank} dimensions of {what}, got {len(indices)}")


def bounds(in_bounds: ArrayAttr[BoolAttr] | None) -> tuple[bool, bool]:
    """Whether rows and columns are known to lie inside the memref; both unknown when absent."""
    if in_bounds is None:
        return False, False
    flags = tuple(bool(flag) for flag in in_bounds)
    if len(flags) != 2:
        raise VerifyException(f"expected in_bounds for rows and columns, got {len(flags)} flags")
    return flags[0], flags[1]


def bounds_attribute(rows: bool, columns: bool) -> ArrayAttr[BoolAttr] | None:
    """The `in_bounds` property that says so; None when neither is known."""
    return ArrayAttr([BoolAttr.from_bool(rows), BoolAttr.from_bool(columns)]) if rows or columns else None


def _verify_element(memory: Memory, fragment: FragmentType) -> None:
    if memory.element_type != fragment.element_type:
        raise VerifyException(
            f"expected memory of the fragment's element type {fragment.element_type}, got {memory.element_type}"
        )


@irdl_op_definition
class LoadOp(FragmentLoad):
    """Reads a fragment from memory. Each lane reads its own elements.

    From global memory, elements outside the memref read as zero; `in_bounds` [rows, columns] promises that there are
    none. With `swapped`, memory holds the transpose of the fragment::

        %c = warp.load %C[%m, %n] {in_bounds = [true, false]} : memref<100x77xf32> -> !warp.fragment<...>
        %b = warp.load %Bs[%n, %k] {swapped} : memref<64x16xf64, #warp.swizzle<128>, 3> -> !warp.fragment<b, ...>
    """

    name = "warp.load"

    in_bounds = opt_prop_def(ArrayAttr[BoolAttr])
    swapped = opt_prop_def(UnitAttr)

    def __init__(
        self,
        memory: SSAValue,
        indices: Sequence[SSAValue],
        fragment: FragmentType,
        in_bounds: ArrayAttr[BoolAttr] | None = None,
        *,
        swapped: bool = False,
    ):
        super().__init__(memory, indices, fragment, {"in_bounds": in_bounds, "swapped": flag(swapped)})

    def verify_(self) -> None:
        memory, fragment = memory_of(self.memory), fragment_of(self.fragment)
        verify_indices("the memref", memory, self.indices)
        _verify_element(memory, fragment)
        bounds(self.in_bounds)
        if memory_space(memory) == SHARED_SPACE:
            self._verify_shared(fragment)
        elif self.swapped is not None:
            raise VerifyException(f"expected the transpose of a fragment in shared memory, got {memory}")

    def _verify_shared(self, fragment: FragmentType) -> None:
        if self.in_bounds is not None:
            raise VerifyException("a tile in shared memory holds all of a fragment: it has no in_bounds")
        layout, together = (
            in_memory(fragment, self.swapped is not None),
            (BYTE // min(BYTE, fragment.bits)).bit_length() - 1,
        )
        if layout.element[:together] != tuple(map(column, range(together))):
            raise VerifyException(
                f"expected the elements of a byte to lie side by side in memory, there the fragment is [{layout}]"
            )


@irdl_op_definition
class PrefetchOp(IRDLOperation):
    """Prefetches the lines of global memory from which a fragment will be loaded. It does not wait::

        warp.prefetch %C[%m, %n] {in_bounds = [true, false]} : memref<100x77xf32> as <acc, 64x64xf32, ...>

    Source: PTX ISA 9.7.9.15.
    """

    name = "warp.prefetch"

    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    in_bounds = opt_prop_def(ArrayAttr[BoolAttr])
    fragment = prop_def(FragmentType)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$memory `[` $indices `]` attr-dict `:` type($memory) `as` $fragment"

    def __init__(
        self,
        memory: SSAValue,
        indices: Sequence[SSAValue],
        fragment: FragmentType,
        in_bounds: ArrayAttr[BoolAttr] | None = None,
    ):
        super().__init__(operands=[memory, list(indices)], properties={"in_bounds": in_bounds, "fragment": fragment})

    def verify_(self) -> None:
        memory = memory_of(self.memory)
        verify_indices("the memref", memory, self.indices)
        _verify_element(memory, self.fragment)
        bounds(self.in_bounds)
        if memory_space(memory) == SHARED_SPACE:
            raise VerifyException(f"expected global memory, got {memory}")


@irdl_op_definition
class StoreOp(FragmentStore):
    """Writes a fragment to memory. Each lane writes its own elements. Elements outside the memref are not written::

    warp.store %d, %C[%m, %n] {in_bounds = [true, true]} : !warp.fragment<...>, memref<256x320xf32>
    """

    name = "warp.store"

    in_bounds = opt_prop_def(ArrayAttr[BoolAttr])

    def __init__(
        self,
        fragment: SSAValue,
        memory: SSAValue,
        indices: Sequence[SSAValue],
        in_bounds: ArrayAttr[BoolAttr] | None = None,
    ):
        super().__init__(fragment, memory, indices, {"in_bounds": in_bounds})

    def verify_(self) -> None:
        memory = memory_of(self.memory)
        verify_indices("the memref", memory, self.indices)
        _verify_element(memory, fragment_of(self.fragment))
        bounds(self.in_bounds)


def verify_shared_matrix(what: str, memory: Memory, indices: Sequence[SSAValue], fragment: FragmentType) -> None:
    """Checks the memory that matrices are moved from or to; elements that have a byte each lie in memory as bytes."""
    verify_indices("the memref", memory, indices)
    if fragment.bits == fragment.element.bits:
        _verify_element(memory, fragment)
    elif (held := element_row(memory.element_type)) is None or held.memory_bits != fragment.bits:
        raise VerifyException(
            f"expected memory of bytes for {fragment.element.name} in bytes, got {memory.element_type}"
        )
    if memory_space(memory) != SHARED_SPACE:
        raise VerifyException(f"{what} shared memory (memory space {SHARED_SPACE}), got {memory}")


@irdl_custom_directive
class MatrixCount(CustomDirective):
    """The text of a number of matrices: `x4`."""

    count: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        word = parser.parse_keyword_in(("x1", "x2", "x4"), " as the number of matrices")
        self.count.set(state, IntegerAttr(int(word[1:]), i64))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if isinstance(count := self.count.get(op), IntegerAttr):
            state.print_whitespace(printer)
            printer.print_string(f"x{count.value.data}")
            state.should_emit_space = True


@irdl_op_definition
class LdmatrixOp(FragmentLoad):
    """Reads a fragment from shared memory with `ldmatrix`, `count` matrices at a time::

        %a = warp.ldmatrix x4 %As[%s, %m, %k] : memref<4x128x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<a, ...>
        %b = warp.ldmatrix x4 trans %Bs[%stage, %k, %n] : memref<...> -> !warp.fragment<b, ...>
        %b = warp.ldmatrix x4 trans b16 %Bs[%k, %n] : memref<...xi8, 3> -> !warp.fragment<b, ...>
        %b = warp.ldmatrix x2 swapped b6x16_p32 %Bs[%n, %k] : memref<...xi8, 3> -> !warp.fragment<b, ..., bytes>

    If `count` does not divide the number of matrices of the fragment, the last load is narrower. `trans` is the
    instruction's qualifier. With `swapped`, memory holds the transpose of the fragment, so the rows of memory run along
    the fragment's columns.

    - Without `trans`, a matrix is 8 rows of 16 bytes, whatever the element type.
    - With `trans`, elements of 16 bits move in 8x8 matrices, and elements of 8 bits in 16x16 matrices.
    - With `trans b16`, narrower elements move in 8x8 matrices of 16-bit pieces. Neighbours in a row then stay together,
      and `warp.convert_layout` separates them.
    - With a packed format, `b6x16_p32` or `b4x16_p64`, 16 bytes of memory hold 16 elements of 6 or 4 bits, followed by
      padding. The fragment gets one byte for each element.

    The rows of a matrix may be at any addresses: the layout of a fragment may have other bits of the row in place of
    bits 0 to 2.

    Source: PTX ISA 9.7.14.5.15.
    """

    name = "warp.ldmatrix"

    count = prop_def(IntegerAttr[i64])
    trans = opt_prop_def(UnitAttr)
    b16 = opt_prop_def(UnitAttr)
    swapped = opt_prop_def(UnitAttr)
    packed = opt_prop_def(StringAttr)

    custom_directives: ClassVar = (MatrixCount, BareWord)
    assembly_format = (
        "custom<MatrixCount>($count) (`trans` $trans^)? (`b16` $b16^)? (`swapped` $swapped^)? custom<BareWord>($packed)"
        " $memory `[` $indices `]` attr-dict `:` type($memory) `->` type($fragment)"
    )
    FORMATS: ClassVar = {"b6x16_p32": 6, "b4x16_p64": 4}

    def __init__(
        self,
        memory: SSAValue,
        indices: Sequence[SSAValue],
        fragment: FragmentType,
        *,
        count: int = 4,
        trans: bool = False,
        b16: bool = False,
        swapped: bool = False,
        packed: str = "",
    ):
        flags = {"trans": flag(trans), "b16": flag(b16), "swapped": flag(swapped)}
        given = {"count": IntegerAttr(count, i64), "packed": StringAttr(packed) if packed else None}
        super().__init__(memory, indices, fragment, flags | given)

    def rows(self) -> tuple[LoadMatrix, ...]:
        """The ISA's rows that may be used: `count` matrices or fewer, widest first."""
        packed = "" if self.packed is None else self.packed.data
        bits = fragment_of(self.fragment).bits
        if self.b16 is not None:
            if bits > 16 or packed:
                raise VerifyException(f"b16 is for elements of at most 16 bits, unpacked, got {bits} bits")
            bits = 16
        return load_rows(bits, self.trans is not None, self.count.value.data, packed)

    def in_memory(self) -> Layout:
        """The fragment's layout over the rows and columns of memory."""
        return in_memory(fragment_of(self.fragment), self.swapped is not None)

    def verify_(self) -> None:
        memory, fragment = memory_of(self.memory), fragment_of(self.fragment)
        verify_shared_matrix("ldmatrix reads", memory, self.indices, fragment)
        self._verify_packed(memory, fragment)
        row = self.rows()[0]
        verify_matrices(row, "delivers", fragment, self.swapped is not None)
        verify_target(self, row)

    def _verify_packed(self, memory: Memory, fragment: FragmentType) -> None:
        if self.packed is None:
            return
        packed, element = self.packed.data, fragment.element
        if packed not in self.FORMATS:
            raise VerifyException(f"expected a packed format of {', '.join(self.FORMATS)}, got '{packed}'")
        if element.bits != self.FORMATS[packed] or fragment.bits == element.bits:
            raise VerifyException(
                f"{packed} is of elements of {self.FORMATS[packed]} bits that get a byte each, got {fragment}"
            )
        if (held := element_row(memory.element_type)) is None or held.bits != fragment.bits:
            raise VerifyException(f"expected memory of bytes for {element.name} in {packed}, got {memory.element_type}")
