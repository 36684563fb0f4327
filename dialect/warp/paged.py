"""`warp.paged`: sequences that lie in pages, as a table has the numbers of these."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, MemRefType, StridedLayoutAttr, i32, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import NoMemoryEffect
from xdsl.utils.exceptions import VerifyException

from .attributes import Memory, memory_of
from .views import strides_of


@irdl_op_definition
class PagedOp(IRDLOperation):
    """A view of memory of pages, as sequences whose pages a table has the numbers of::

        %K = warp.paged %cache by %table {along = array<i64: 1, 1, 2, 3>, table_along = array<i64: 0>, page = 0 : i64,
                                          slot = 1 : i64}
            : memref<512x64x8x128xbf16>, memref<16x32xi32> -> memref<16x2048x8x128xbf16, strided<[...]>>

    Of the memory, the dimension `page` counts pages, and `slot` the rows of a page; `along` has the dimension of the
    result for each of them. The table has the dimensions `table_along` of the result, and behind them one that counts
    the pages of a sequence. Along that of `slot` the rows of a sequence follow each other in the result. The strides of
    the result are those of sequences whose pages follow each other, and say how rows are aligned. Only attention reads
    such a view, as K or V, tile by tile, each of them in one page.
    """

    name = "warp.paged"

    memory = operand_def(MemRefType)
    table = operand_def(MemRefType)
    along = prop_def(DenseArrayBase.constr(i64))
    table_along = prop_def(DenseArrayBase.constr(i64))
    page = prop_def(IntegerAttr)
    slot = prop_def(IntegerAttr)
    result = result_def(MemRefType)

    traits = traits_def(NoMemoryEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$memory `by` $table attr-dict `:` type($memory) `,` type($table) `->` type($result)"

    def __init__(
        self,
        memory: SSAValue,
        table: SSAValue,
        along: Sequence[int],
        table_along: Sequence[int],
        page: int,
        slot: int,
    ):
        """`along` and `table_along` are the dimensions of the result, that of keys for the page and the slot."""
        super().__init__(
            operands=[memory, table],
            properties={
                "along": DenseArrayBase.from_list(i64, list(along)),
                "table_along": DenseArrayBase.from_list(i64, list(table_along)),
                "page": IntegerAttr(page, i64),
                "slot": IntegerAttr(slot, i64),
            },
            result_types=[paged_type(memory_of(memory), memory_of(table), along, table_along, page, slot)],
        )

    @property
    def loops(self) -> tuple[int, ...]:
        """The dimension of the result along each of memory."""
        return tuple(self.along.get_values())

    @property
    def dimensions(self) -> tuple[int, int]:
        """The dimensions of memory that count pages, and the rows of a page."""
        return self.page.value.data, self.slot.value.data

    @property
    def rows(self) -> int:
        """Rows of a page."""
        return memory_of(self.memory).get_shape()[self.dimensions[1]]

    def of(self, memory: SSAValue, table: SSAValue) -> PagedOp:
        """The same view of other memory."""
        return PagedOp(memory, table, self.loops, self.table_along.get_values(), *self.dimensions)

    def verify_(self) -> None:
        if self.result.type != (expected := self.of(self.memory, self.table).result.type):
            raise VerifyException(f"expected the result to be {expected}, got {self.result.type}")


def paged_type(
    memory: Memory, table: Memory, along: Sequence[int], table_along: Sequence[int], page: int, slot: int
) -> MemRefType[Attribute]:
    """The type of sequences of pages.

    Raises:
        VerifyException: for dimensions that are not those of the memory and the table, or are not known.
    """
    shape, strides, blocks = memory.get_shape(), strides_of(memory), table.get_shape()
    rank = len({*along, *table_along})
    named = [*(d for i, d in enumerate(along) if i != page), *table_along]
    fits = len(along) == len(shape) and len(table_along) == len(blocks) - 1 and page != slot
    if (
        strides is None
        or None in strides
        or not fits
        or sorted(named) != list(range(rank))
        or along[page] != along[slot]
    ):
        raise VerifyException(f"expected dimensions of the result for those of {memory} and of {table}, got {along}")
    if table.element_type != i32 or min(*shape, *blocks) < 0:
        raise VerifyException(f"expected known sizes, and a table of i32, got {memory} and {table}")
    sizes, steps = [0] * rank, [0] * rank
    for i, d in enumerate(along):
        if i != page:
            sizes[d], steps[d] = shape[i] * (blocks[-1] if i == slot else 1), strides[i] or 0
    step = (strides[page] or 0) * blocks[-1]
    for d, size in reversed(list(zip(table_along, blocks, strict=False))):
        sizes[d], steps[d] = size, step
        step *= size
    layout = StridedLayoutAttr(steps, memory.get_offset())
    return MemRefType(memory.element_type, sizes, layout, memory.memory_space)
