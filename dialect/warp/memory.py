"""Fragments from and to memory, each lane its own elements: `warp.load`, `warp.store`, `warp.prefetch`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IndexType, MemRefType, UnitAttr
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
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..layouts.layout import Layout, column
from .attributes import BYTE, SHARED_SPACE, FragmentType, Memory, fragment_of, memory_of, memory_space
from .op_shapes import FragmentLoad, FragmentStore, flag

# Indices name the element at the fragment's first row and column. A fragment of role b is k x n whatever the memory
# looks like; `swapped` says that memory holds the transpose.


def in_memory(fragment: FragmentType, swapped: bool) -> Layout:
    """The fragment's layout over the rows and columns of memory, which holds the transposed matrix if `swapped`."""
    layout = fragment.layout.data
    return layout.transposed() if swapped else layout


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


def verify_element(memory: Memory, fragment: FragmentType) -> None:
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
        verify_element(memory, fragment)
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
        verify_element(memory, self.fragment)
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
        verify_element(memory, fragment_of(self.fragment))
        bounds(self.in_bounds)
