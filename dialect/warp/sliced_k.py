"""Sums over warps that share a tile of a product: `warp.sum_sliced_k`."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, MemRefType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from .attributes import SHARED_SPACE, FragmentType, fragment_of, memory_of, memory_space

LANES = 32


@irdl_op_definition
class SumSlicedKOp(IRDLOperation):
    """Adds the partial sums of the slices of a CTA. Each slice gets a part of the total.

    The warps of a CTA form `slices` groups of equal size, one after the other. Warps at the same position in their
    groups hold partial sums of the same matrix. Slice 0 gets the first rows of the matrix, slice 1 the next rows, and
    so on. If the matrix is one base tile high, they get columns instead. The number of slices is a power of two. All
    slices add in the same order, a binary tree over the slices. The result is deterministic and does not depend on
    the slice that gets the element::

        %part = warp.sum_sliced_k %acc via %s : !warp.fragment<acc, 64x64xf32, [...]>, memref<4x2048xf32, 3>
                                              -> !warp.fragment<acc, 32x64xf32, [...]>

    The scratch memory has a row for each warp that gets a part, with space for the sums of the other slices. All
    threads of the CTA execute the operation, which contains a barrier. There must be another barrier before the memory
    is used again.

    If there are more slices than base tiles, the first slices get one base tile each. The result of the other slices
    must not be used::

        %part = warp.sum_sliced_k %acc via %s {slices = 16 : i64} : !warp.fragment<acc, 16x64xf32, [...]>,
                                  memref<8x1920xf32, 3> -> !warp.fragment<acc, 16x8xf32, [...]>
    """

    name = "warp.sum_sliced_k"

    input = operand_def(FragmentType)
    scratch = operand_def(MemRefType)
    part = result_def(FragmentType)
    more = opt_prop_def(IntegerAttr, prop_name="slices")

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$input `via` $scratch attr-dict `:` type($input) `,` type($scratch) `->` type($part)"

    def __init__(self, value: SSAValue, scratch: SSAValue, slices: int):
        whole = fragment_of(value)
        part = part_of(whole, slices)
        more = IntegerAttr(slices, i64) if slices > whole.registers // part.registers else None
        super().__init__(operands=[value, scratch], properties={"slices": more}, result_types=[part])

    @property
    def parts(self) -> int:
        """Into how many parts the fragment is divided."""
        return fragment_of(self.input).registers // fragment_of(self.part).registers

    @property
    def slices(self) -> int:
        """How many slices hold sums."""
        return self.parts if self.more is None else self.more.value.data

    def verify_(self) -> None:
        whole, part, scratch = fragment_of(self.input), fragment_of(self.part), memory_of(self.scratch)
        if part.registers * self.parts != whole.registers or part != part_of(whole, self.slices):
            raise VerifyException(f"expected the rows of {whole} in equal parts, got {part}")
        if self.more is not None and self.slices <= self.parts:
            raise VerifyException(f"expected more slices than the {self.parts} parts of {whole}, got {self.slices}")
        shape = scratch.get_shape()
        expected = part.registers * LANES * (self.slices - 1)
        if memory_space(scratch) != SHARED_SPACE or len(shape) != 2 or shape[1] != expected or shape[0] % self.parts:
            raise VerifyException(
                f"expected shared memory with a row of {expected} registers for each warp of {self.slices} slices, "
                f"got {scratch}"
            )


def part_of(whole: FragmentType, slices: int) -> FragmentType:
    """The part of a fragment that one slice gets: rows of base tiles, or columns where there is one row of them; a base
    tile where there are more slices than those, a multiple of them.

    Raises:
        VerifyException: if the number of slices is no power of two, or the base tiles do not come out even.
    """
    if slices.bit_count() != 1:
        raise VerifyException(f"expected a power of two of slices, got {slices}")
    (down, across), (rows, columns) = whole.tiles, whole.shape
    if down % slices == 0:
        rows //= slices
    elif down == 1 and across % slices == 0:
        columns //= slices
    elif slices > (base := max(down, across)) and min(down, across) == 1 and slices % base == 0:
        rows, columns = rows // down, columns // across
    else:
        raise VerifyException(f"the {down} x {across} base tiles of {whole} cannot be divided among {slices} slices")
    return FragmentType.of(whole.role.data, rows, columns, whole.element_type, whole.layout.data, whole.container.data)
