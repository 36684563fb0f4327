"""What a CTA copies together: `warp.copy`, `warp.pack`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from .attributes import SHARED_SPACE, Memory, element_row, memory_of, memory_space, same_words
from .matrices import verify_indices
from .op_shapes import bounds, flag

# Copies by all threads of a CTA: tiles from global to shared memory, and whole matrices to aligned rows.
#
# `warp.copy`, `warp.pack`.

SPREAD = "b4x16_p64"
"""The format in which `warp.copy` lays out elements of 4 bits that are to have a byte each (PTX ISA 9.7.14.5.15)."""


@irdl_op_definition
class CopyOp(IRDLOperation):
    """Copies the tile at `source[indices]` to shared memory. Each thread of the CTA copies a part.

    The tile is the last two dimensions of the destination, or of their rows part number i of n, with `part` [i, n]. The
    leading dimensions are indexed, for example by the stage of a pipeline. Elements outside the source are written as
    zero; `in_bounds` [rows, columns] promises that there are none. All threads of the CTA execute the copy, and see the
    tile after a `gpu.barrier`. The bits are copied unchanged: f32 to a tile of tf32, or i8 to a tile of ui8. With
    `async`, the copy is in flight until a `warp.wait cp_async` covers its `warp.commit cp_async`. With `until`, rows of
    the source from this index on are not read, as if they were outside of it. With `packed`, elements of 4 bits are
    written in the format that `ldmatrix` reads: 16 elements in the first half of each 16 bytes. The type of the tile
    then has a byte for each element::

        warp.copy %A[%m, %k] to %As[%stage] {async} : memref<256x192xf16> to memref<4x128x64xf16, #warp.swizzle<128>, 3>
        warp.copy %A[%m, %k] to %As[] {packed = "b4x16_p64"} : memref<256x192xf4E2M1FN> to memref<128x64xi8, ..., 3>
    """

    name = "warp.copy"

    source = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    destination = operand_def(MemRefType)
    stage = var_operand_def(IndexType())
    until = opt_operand_def(IndexType())
    is_async = opt_prop_def(UnitAttr, prop_name="async")
    in_bounds = opt_prop_def(ArrayAttr[BoolAttr])
    part = opt_prop_def(DenseArrayBase.constr(i64))
    packed = opt_prop_def(StringAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    assembly_format = (
        "$source `[` $indices `]` `to` $destination `[` $stage `]` (`until` $until^)? attr-dict"
        " `:` type($source) `to` type($destination)"
    )

    def __init__(
        self,
        source: SSAValue,
        indices: Sequence[SSAValue],
        destination: SSAValue,
        stage: Sequence[SSAValue] = (),
        *,
        is_async: bool = False,
        in_bounds: ArrayAttr[BoolAttr] | None = None,
        packed: str = "",
        part: tuple[int, int] = (0, 1),
        until: SSAValue | None = None,
    ):
        super().__init__(
            operands=[source, list(indices), destination, list(stage), until],
            properties={
                "async": flag(is_async),
                "in_bounds": in_bounds,
                "part": DenseArrayBase.from_list(i64, part) if part != (0, 1) else None,
                "packed": StringAttr(packed) if packed else None,
            },
        )

    @property
    def place(self) -> tuple[int, int]:
        """Which part of the rows of the tile is copied, and of how many."""
        number, count = (0, 1) if self.part is None else self.part.get_values()
        return number, count

    def verify_(self) -> None:
        source, destination = memory_of(self.source), memory_of(self.destination)
        number, count = self.place
        if not 0 <= number < count or destination.get_shape()[-2] % count:
            raise VerifyException(f"expected a part of the rows of {destination}, got number {number} of {count}")
        verify_indices("the source", source, self.indices)
        if memory_space(destination) != SHARED_SPACE:
            raise VerifyException(f"expected a destination in shared memory (space {SHARED_SPACE}), got {destination}")
        rank = destination.get_num_dims()
        if rank != 2 + len(self.stage):
            raise VerifyException(
                f"expected a destination of {len(self.stage)} stage index(es) and a tile, got rank {rank}"
            )
        if self.packed is not None:
            self._verify_packed(self.packed.data, source, destination)
        elif not same_words(source.element_type, destination.element_type):
            raise VerifyException(
                f"expected source and destination of one element type, got {source.element_type} "
                f"and {destination.element_type}"
            )
        rows, _ = bounds(self.in_bounds)
        if self.until is not None and rows:
            raise VerifyException("expected rows that may be out of bounds with `until`, got in_bounds = [true, ...]")

    @staticmethod
    def _verify_packed(packed: str, source: Memory, destination: Memory) -> None:
        from_, to = element_row(source.element_type), element_row(destination.element_type)
        if packed != SPREAD:
            raise VerifyException(f"expected a packed format of {SPREAD}, got '{packed}'")
        if from_ is None or to is None or (from_.bits, to.bits) != (4, 8):
            raise VerifyException(
                f"{packed} is of elements of 4 bits in a tile of bytes, got {source} to {destination}"
            )


@irdl_op_definition
class PackOp(IRDLOperation):
    """Copies a matrix to a larger one in global memory, with longer or more rows. The additional elements are zero.

    The CTAs of a grid share the work. Each copies part number `%share` of `shares` parts::

        warp.pack %A to %W share %cta {shares = 512 : i64} : memref<4095x4095xbf16> to memref<4096x4096xbf16>
    """

    name = "warp.pack"

    source = operand_def(MemRefType)
    destination = operand_def(MemRefType)
    share = operand_def(IndexType())
    shares = prop_def(IntegerAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$source `to` $destination `share` $share attr-dict `:` type($source) `to` type($destination)"

    def __init__(self, source: SSAValue, destination: SSAValue, share: SSAValue, shares: int):
        super().__init__(operands=[source, destination, share], properties={"shares": IntegerAttr(shares, i64)})

    def verify_(self) -> None:
        source, destination = memory_of(self.source), memory_of(self.destination)
        if self.shares.value.data < 1:
            raise VerifyException(f"expected at least one share, got {self.shares.value.data}")
        if source.element_type != destination.element_type:
            raise VerifyException(f"expected matrices of one element type, got {source} and {destination}")
        if source.get_num_dims() != 2 or destination.get_num_dims() != 2:
            raise VerifyException(f"expected matrices of rank 2, got {source} and {destination}")
        if any(to < size for size, to in zip(source.get_shape(), destination.get_shape(), strict=True)):
            raise VerifyException(f"expected room for all of {source}, got {destination}")
