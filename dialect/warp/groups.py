"""Groups of rows whose ends memory has: `warp.find_group`, `warp.group`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, i32, i64
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import NoMemoryEffect
from xdsl.utils.exceptions import VerifyException

from ..mlir.affine import loops_of
from .attributes import memory_of
from .elements import OPERAND_LOOPS, K, LoopSizes, M, loops_around

# Groups of rows: the first one has rows 0 to `ends[0]`, the next one those from there to `ends[1]`, and so on. What
# reads their ends may be computed anywhere, and again: nothing writes them while a kernel runs.


@irdl_op_definition
class FindGroupOp(IRDLOperation):
    """The group that a tile belongs to, and the number of the group's first tile. The tiles of a group are `rows` rows
    high, as many as cover its rows, and `across` lie side by side::

        %group, %first = warp.find_group %ends[%tile] rows 128 x %across : memref<8xi32>

    For a number behind the last tile, the group is as many as there are groups, and the first tile as many as there are
    tiles.
    """

    name = "warp.find_group"

    ends = operand_def(MemRefType)
    tile = operand_def(IndexType())
    across = operand_def(IndexType())
    rows = prop_def(IntegerAttr[i64])
    group = result_def(IndexType())
    first = result_def(IndexType())

    traits = traits_def(NoMemoryEffect())
    assembly_format = "$ends `[` $tile `]` `rows` $rows `x` $across attr-dict `:` type($ends)"

    def __init__(self, ends: SSAValue, tile: SSAValue, rows: int, across: SSAValue):
        super().__init__(
            operands=[ends, tile, across],
            properties={"rows": IntegerAttr(rows, i64)},
            result_types=[IndexType(), IndexType()],
        )

    def verify_(self) -> None:
        verify_ends(self.ends)
        if self.rows.value.data < 1:
            raise VerifyException(f"expected tiles of a row or more, got {self.rows.value.data}")


@irdl_op_definition
class GroupOp(IRDLOperation):
    """The first row of a group, and how many it has: `%begin, %rows = warp.group %ends[%group] : memref<8xi32>`.

    Behind the last group, there are none.
    """

    name = "warp.group"

    ends = operand_def(MemRefType)
    group = operand_def(IndexType())
    begin = result_def(IndexType())
    rows = result_def(IndexType())

    traits = traits_def(NoMemoryEffect())
    assembly_format = "$ends `[` $group `]` attr-dict `:` type($ends)"

    def __init__(self, ends: SSAValue, group: SSAValue):
        super().__init__(operands=[ends, group], result_types=[IndexType(), IndexType()])

    def verify_(self) -> None:
        verify_ends(self.ends)


def verify_ends(ends: SSAValue) -> None:
    """Checks memory with the ends of groups.

    Raises:
        VerifyException: for anything but one number of 32 bits for each of some groups.
    """
    kind = memory_of(ends)
    if kind.element_type != i32 or kind.get_num_dims() != 1 or kind.get_shape()[0] < 1:
        raise VerifyException(f"expected the ends of groups as a vector of i32 of static size, got {kind}")


def grouped_loop(maps: Sequence[AffineMap]) -> int:
    """The loop of a product with groups, M or K, whose indices belong to them: K if D runs along the groups."""
    return K if 0 in loops_of(maps[2]) else M


def verify_groups(ends: SSAValue, maps: Sequence[AffineMap], sizes: LoopSizes) -> None:
    """Checks the maps of A, B and D of a product with groups of rows, or of k.

    Raises:
        VerifyException: naming the operand whose map is wrong.
    """
    verify_ends(ends)
    alone = "B" if grouped_loop(maps) == M else "D"
    for name, loops, map_ in zip("ABD", OPERAND_LOOPS, maps, strict=True):
        if bool(loops_around(name, loops, map_, 1)) != (name == alone):
            raise VerifyException(f"expected {alone} alone to be indexed by d0, the group, got {name} along {map_}")
    sizes.add("the ends of groups", ends, (0,))
