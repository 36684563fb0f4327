"""Matrices that the warps of a CTA hold together: `!warp.cta_tile`, and what makes one, `warp.cta_constant` and
`warp.cta_load`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, IndexType, IntAttr, IntegerAttr, MemRefType
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import ConstantLike, MemoryReadEffect, Pure
from xdsl.utils.exceptions import VerifyException

from .attributes import element_row, known_element, memory_of
from .elementwise import verify_value
from .memory import bounds, verify_indices


@irdl_attr_definition
class CtaTileType(ParametrizedAttribute, TypeAttribute):
    """A matrix in the registers of the warps of a CTA: `!warp.cta_tile<128x64xf32>`.

    The type does not say which warp and which lane hold which elements. `warp-distribute` decides that.
    """

    name = "warp.cta_tile"

    rows: IntAttr
    columns: IntAttr
    element_type: TypeAttribute

    @staticmethod
    def of(rows: int, columns: int, element_type: TypeAttribute) -> CtaTileType:
        return CtaTileType(IntAttr(rows), IntAttr(columns), element_type)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows.data, self.columns.data

    def verify(self) -> None:
        if min(self.shape) <= 0:
            raise VerifyException(f"expected a tile of one row and column or more, got {self.shape}")
        known_element(self.element_type)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            shape, element_type = parser.parse_ranked_shape()
            if len(shape) != 2:
                parser.raise_error(f"expected a tile of rank 2, got rank {len(shape)}")
        return [IntAttr(shape[0]), IntAttr(shape[1]), element_type]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.rows.data}x{self.columns.data}x")
            printer.print_attribute(self.element_type)


@irdl_op_definition
class CtaConstantOp(IRDLOperation):
    """A tile with the same value everywhere: `%z = warp.cta_constant 0.0 : f32 -> !warp.cta_tile<128x64xf32>`."""

    name = "warp.cta_constant"

    value = prop_def(base(FloatAttr) | base(IntegerAttr))
    tile = result_def(CtaTileType)

    traits = traits_def(Pure(), ConstantLike())
    assembly_format = "$value attr-dict `->` type($tile)"

    def __init__(self, value: FloatAttr | IntegerAttr, tile: CtaTileType):
        super().__init__(properties={"value": value}, result_types=[tile])

    def verify_(self) -> None:
        verify_value(self.value, "tile", self.tile.type.element_type)


@irdl_op_definition
class CtaLoadOp(IRDLOperation):
    """Reads a tile of global memory that begins at a row and a column, and converts its elements to the tile's type::

        %c = warp.cta_load %C[%m, %n] {in_bounds = [true, false]} : memref<100x77xbf16> -> !warp.cta_tile<64x64xf32>

    Elements outside the memref are read as zero. `in_bounds` [rows, columns] promises that there are none.
    """

    name = "warp.cta_load"

    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    in_bounds = opt_prop_def(ArrayAttr[BoolAttr])
    tile = result_def(CtaTileType)

    traits = traits_def(MemoryReadEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$memory `[` $indices `]` attr-dict `:` type($memory) `->` type($tile)"

    def __init__(
        self, memory: SSAValue, indices: Sequence[SSAValue], tile: CtaTileType, in_bounds: ArrayAttr[BoolAttr] | None
    ):
        super().__init__(operands=[memory, list(indices)], properties={"in_bounds": in_bounds}, result_types=[tile])

    def verify_(self) -> None:
        memory = memory_of(self.memory)
        verify_indices("the memref", memory, self.indices)
        bounds(self.in_bounds)
        if element_row(memory.element_type) is None:
            raise VerifyException(f"expected elements of a type that matrix instructions know, got {memory}")
