"""`warp.epilogue`: what becomes of the sums of a product on their way to D."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IndexType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    ParsePropInAttrDict,
    base,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from .attributes import FragmentType, in_place_of, memory_of
from .cta_tile import CtaTileType
from .endings import WithEpilogue
from .loops import LoopSizes, M, N, loops_of
from .memory import bounds, verify_indices
from .text import TypeOfOptional

ALONG = ((M, N), (M,), (N,), ())
"""The loops of a matrix like D, of a vector along the rows or the columns of D, and of a number."""


@irdl_op_definition
class EpilogueOp(WithEpilogue):
    """Stores the sums of a product to D, beginning at a row and a column, and rounds them to the type of D::

        warp.epilogue %sum into %D[%m, %n] {in_bounds = [true, true]} : !warp.cta_tile<64x64xf32>, memref<256x320xf32>

    With `plus %C`, C is added first. C has the layout of D. An epilogue, which `warp.pointwise` defines, takes the
    sums, rounded to the type of its element, and yields the elements of D. Its loops are the rows and the columns of D.
    An operand of the epilogue is a matrix like D, a vector along its rows or columns, or a number::

        %biased = warp.pointwise %bias maps [affine_map<(m, n) -> (n)>] : memref<320xf32> (%x: f32, %b: f32) {...}
        warp.epilogue %sum plus %C into %D[%m, %n] through %biased
          : !warp.fragment<acc, ...>, memref<256x320xbf16> plus memref<256x320xbf16>

    Elements outside D are not stored. `in_bounds` [rows, columns] promises that there are none.

    The sums are those of a CTA or, after `warp-distribute`, of a warp. `warp.schedule` determines how a warp stores
    them. `warp-epilogue` expands the operation.
    """

    name = "warp.epilogue"

    sums = operand_def(base(CtaTileType) | base(FragmentType))
    at = var_operand_def(IndexType())
    in_bounds = opt_prop_def(ArrayAttr[BoolAttr])

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    custom_directives: ClassVar = (TypeOfOptional,)
    assembly_format = (
        "$sums (`plus` $c^)? `into` $d `[` $at `]` (`through` $through^)? attr-dict"
        " `:` type($sums) `,` type($d) custom<TypeOfOptional>(`plus`, type($c))"
    )

    def __init__(
        self,
        sums: SSAValue,
        d: SSAValue,
        at: Sequence[SSAValue],
        *,
        c: SSAValue | None = None,
        in_bounds: ArrayAttr[BoolAttr] | None = None,
        through: SSAValue | None = None,
    ):
        super().__init__(operands=[sums, list(at), c, d, through], properties={"in_bounds": in_bounds})

    def of_warp(self, sums: SSAValue, at: Sequence[SSAValue]) -> EpilogueOp:
        """The same of a warp's part of the sums, a fragment, which begins elsewhere."""
        found = EpilogueOp(sums, self.d, at, c=self.c, in_bounds=self.in_bounds, through=self.through)
        return in_place_of(self, found)

    def matrices(self) -> list[SSAValue]:
        """The epilogue's operands that are matrices."""
        return [value for value, map_ in self.placed_operands if loops_of(map_) == (M, N)]

    def verify_(self) -> None:
        verify_indices("D", memory_of(self.d), self.at)
        bounds(self.in_bounds)
        self.verify_stored(len(self.at), (M, N), LoopSizes())
        for number, (_, map_) in enumerate(self.placed_operands):
            if loops_of(map_) not in ALONG:
                raise VerifyException(f"expected epilogue operand {number} by rows and columns as D is, got {map_}")
