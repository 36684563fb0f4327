"""Copies of boxes between tensors in global memory and tiles in shared memory: `warp.tensor_load`, `warp.tensor_store`.

One thread of the CTA issues a copy, the first unless `by` names another, or that thread of each warpgroup.
Source: PTX ISA 9.7.9.25.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, UnitAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..isa.wgmma import UNIT
from .attributes import Memory, memory_of, same_words
from .cta import RingType
from .op_shapes import flag
from .synchronisation import BarriersType
from .tensor_maps import TensorMapType, moved_as
from .warpgroup import box_bytes, panel_of, verify_tile


def _verify_box(kind: TensorMapType, coordinates: Sequence[SSAValue], tile: Memory, at: Sequence[SSAValue]) -> None:
    """Whether a box fits where it is to go, or come from.

    Raises:
        VerifyException: saying which would.
    """
    verify_tile(tile, at, "the tile", shared_bytes=True)
    if len(coordinates) != kind.rank:
        raise VerifyException(f"expected {kind.rank} coordinates for a box of {kind}, got {len(coordinates)}")
    if not same_words(kind.element_type, moved_as(tile.element_type)):
        raise VerifyException(f"expected a tile of elements of {kind.element_type}, got {tile}")
    width, size, swizzle = panel_of(tile, "the tile"), kind.element.memory_bits // 8, kind.swizzle.data
    if (swizzle or UNIT) != width:
        nearest = f"#warp.swizzle<{swizzle or UNIT}>"
        raise VerifyException(f"a copy of {kind} writes {nearest}, which is not the layout of {tile}")
    *others, along = kind.shape
    if box_bytes(tile) % (along * size) or along * size < width:
        raise VerifyException(
            f"a box of {along} elements ({along * size} bytes) along the fastest dimension does not fit panels of "
            f"{width} bytes; {width // size} elements do"
        )
    lines, has = prod(others), tile.get_shape()[-2]
    if lines > has:
        raise VerifyException(f"a box of {lines} rows does not fit a tile of {has} rows")


@irdl_op_definition
class TensorLoadOp(IRDLOperation):
    """Copies a box of a tensor to a tile in shared memory. The coordinates of the box are given slowest first. An
    mbarrier counts its bytes, that of a number or that of a stage of a ring::

        warp.tensor_load %map[%m, %k] to %As[%s, %zero, %zero], %full[%s] {by = 128 : i64} :
            !warp.tensor_map<64x64xf16, swizzle 128> to memref<2x64x64xf16, #warp.swizzle<128>, 3>, !warp.barriers<2>

    A box is as wide as one panel of the tile, and is written at the indices of the tile. With `multicast`, the box is
    copied to each CTA of the cluster whose bit is set in a mask. It goes to the same address in each CTA, and the same
    mbarrier of each CTA counts its bytes::

        warp.tensor_load %map[%m, %k] to %As[%s, %zero, %zero], %full[%s] multicast %mask : ...

    In im2col mode the coordinates are those of the first channel of the pixel at which the filter's corner is, and
    `offsets` are the place of the pixel in the filter::

        warp.tensor_load %map[%n, %y, %x, %k] offsets[%r, %s] to %As[%stage, %zero, %zero], %full[%stage] : ...

    Source: PTX ISA 9.7.9.25.5.2.
    """

    name = "warp.tensor_load"

    map = operand_def(TensorMapType)
    coordinates = var_operand_def(IndexType())
    offsets = var_operand_def(IndexType())
    tile = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    barriers = operand_def(base(BarriersType) | base(RingType))
    number = operand_def(IndexType())
    mask = opt_operand_def(IndexType())
    by = opt_prop_def(IntegerAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())

    def __init__(
        self,
        map: SSAValue,
        coordinates: Sequence[SSAValue],
        tile: SSAValue,
        indices: Sequence[SSAValue],
        barriers: SSAValue,
        number: SSAValue,
        by: int = 0,
        mask: SSAValue | None = None,
        offsets: Sequence[SSAValue] = (),
    ):
        super().__init__(
            operands=[map, list(coordinates), list(offsets), tile, list(indices), barriers, number, mask],
            properties={"by": IntegerAttr(by, i64) if by else None},
        )

    assembly_format = (
        "$map `[` $coordinates `]` (`offsets` `[` $offsets^ `]`)? "
        "`to` $tile `[` $indices `]` `,` $barriers `[` $number `]` (`multicast` $mask^)? "
        "attr-dict `:` type($map) `to` type($tile) `,` type($barriers)"
    )

    def verify_(self) -> None:
        if isinstance(kind := self.map.type, TensorMapType):
            _verify_box(kind, self.coordinates, memory_of(self.tile), self.indices)
            if len(self.offsets) != (expected := max(0, kind.im2col.data - 2)):
                raise VerifyException(f"expected {expected} offsets for a box of {kind}, got {len(self.offsets)}")


@irdl_op_definition
class TensorStoreOp(IRDLOperation):
    """Copies a tile, or the part of it that begins at the indices, to a box of a tensor. The copy is complete after
    `warp.wait bulk`::

        warp.tensor_store %Cs[%zero, %zero] to %map[%m, %n] :
            memref<64x32xf32, #warp.swizzle<128>, 3> to !warp.tensor_map<64x32xf32, swizzle 128>

    If ordinary stores wrote the tile, a `warp.fence async_proxy` and a barrier must come first.

    Source: PTX ISA 9.7.9.25.5.2.
    """

    name = "warp.tensor_store"

    tile = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    map = operand_def(TensorMapType)
    coordinates = var_operand_def(IndexType())
    by = opt_prop_def(IntegerAttr)
    each_warpgroup = opt_prop_def(UnitAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    assembly_format = "$tile `[` $indices `]` `to` $map `[` $coordinates `]` attr-dict `:` type($tile) `to` type($map)"

    def __init__(
        self,
        tile: SSAValue,
        indices: Sequence[SSAValue],
        map: SSAValue,
        coordinates: Sequence[SSAValue],
        *,
        each_warpgroup: bool = False,
    ):
        super().__init__(
            operands=[tile, list(indices), map, list(coordinates)], properties={"each_warpgroup": flag(each_warpgroup)}
        )

    def verify_(self) -> None:
        if isinstance(kind := self.map.type, TensorMapType):
            _verify_box(kind, self.coordinates, memory_of(self.tile), self.indices)
