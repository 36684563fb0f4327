"""Reads of sequences in pages, as `linalg` has them: a table has the number of the page that an element is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import i32, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import GenericOp, IndexOp
from xdsl.dialects.memref import LoadOp
from xdsl.ir import Operation, SSAValue

from ...dialect.mlir.affine import Nest, loops_of, strides_of
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import shape_of
from ...dialect.warp.views import MatrixOp, PagedOp
from ..patterns import constant_value

if TYPE_CHECKING:
    from xdsl.dialects.tensor import ExtractOp

MIN_ROWS = 16
"""Rows of a page, a power of two: what an instruction multiplies of K and V at once."""

QUOTIENTS = (arith.DivUIOp, arith.DivSIOp, arith.FloorDivSIOp)
REMAINDERS = (arith.RemUIOp, arith.RemSIOp)


class Gather(NamedTuple):
    """An operation that gathers all elements of sequences, `cache[table[..., n / rows], n % rows, ...]`, from a cache
    and a table. The other fields are those of `warp.paged`."""

    cache: SSAValue
    table: SSAValue
    along: list[int]
    table_along: list[int]
    page: int
    slot: int

    def view(self, cache: SSAValue, table: SSAValue) -> PagedOp:
        """The sequences, of memory and of a table in memory."""
        return PagedOp(cache, table, self.along, self.table_along, self.page, self.slot)


class Quotient(NamedTuple):
    """A loop, and the constant that its number is divided by."""

    loop: int
    by: int


def gather_of(op: LinalgStructuredOperation) -> Gather | None:
    """The pages that an operation reads, if it does nothing else; else None."""
    from xdsl.dialects.tensor import ExtractOp

    nest = Nest.of(op)
    in_order = loops_of(op.get_indexing_maps().data[-1].data) == tuple(range(nest.loops))
    if nest.summed or not in_order or len(nest.yielded) != 1:
        return None
    read = nest.yielded[0].owner
    if not isinstance(read, ExtractOp):
        return None
    along, slots, pages = list[int](), dict[int, Quotient](), dict[int, tuple[ExtractOp, Quotient]]()
    for place, index in enumerate(read.indices):
        if (loop := _loop(index)) is not None:
            along.append(loop)
        elif (slot := _quotient(index, REMAINDERS)) is not None:
            slots[place] = slot
            along.append(slot.loop)
        elif (page := _page(index)) is not None:
            pages[place] = page
            along.append(page[1].loop)
        else:
            return None
    if len(slots) != 1 or len(pages) != 1:
        return None
    ((slot, rows),), ((page, (table, block)),) = slots.items(), pages.items()
    others = [loop for index in table.indices[:-1] if (loop := _loop(index)) is not None]
    size = shape_of(read.tensor)[slot]
    if rows != block or rows.by != size or size < MIN_ROWS or size & size - 1:
        return None
    if len(others) != len(table.indices) - 1:
        return None
    return Gather(read.tensor, table.tensor, along, others, page, slot)


def rows_of(op: Operation) -> PagedOp | None:
    """The view that reads the rows an operation gathers, `out[i, k] = memory[table[i], k]`, if it does nothing else;
    else None. It is not inserted yet."""
    nest = Nest.of(op) if isinstance(op, GenericOp) else None
    if nest is None or nest.loops != 2 or nest.summed or len(nest.yielded) != 1 or nest.writes[0].loops != (0, 1):
        return None
    read = nest.yielded[0].owner
    if not isinstance(read, LoadOp) or len(read.indices) != 2 or _loop(read.indices[1]) != 1:
        return None
    cast = read.indices[0].owner
    tables = [each for each in nest.reads if each.loops == (0,) and isinstance(cast, arith.IndexCastOp)
              and each.element is cast.input]  # fmt: skip
    kinds = memory_of(read.memref), *(memory_of(each.value) for each in tables)
    plain = len(tables) == 1 and all((strides_of(kind) or (None,))[-1] == 1 for kind in kinds)
    if not plain or kinds[1].element_type not in (i32, i64):
        return None
    return PagedOp(read.memref, tables[0].value, [0, 1], [], 0)


def _loop(index: SSAValue) -> int | None:
    """The loop whose number an index is."""
    return index.owner.dim.value.data if isinstance(index.owner, IndexOp) else None


def _quotient(index: SSAValue, kinds: tuple[type, ...]) -> Quotient | None:
    """What is divided, if an index is a quotient, or a remainder, of a kind."""
    op = index.owner
    if not isinstance(op, (*QUOTIENTS, *REMAINDERS)) or not isinstance(op, kinds):
        return None
    loop, by = _loop(op.lhs), constant_value(op.rhs)
    return None if loop is None or by is None else Quotient(loop, by)


def _page(index: SSAValue) -> tuple[ExtractOp, Quotient] | None:
    """The read of the table that an index is the result of, and the number of the page in its sequence."""
    from xdsl.dialects.tensor import ExtractOp

    cast = index.owner
    read = cast.input.owner if isinstance(cast, arith.IndexCastOp) else None
    block = _quotient(read.indices[-1], QUOTIENTS) if isinstance(read, ExtractOp) and read.indices else None
    return (read, block) if isinstance(read, ExtractOp) and block is not None else None


def erase_pages(values: Sequence[SSAValue]) -> None:
    """Erases views of pages, and matrices of them, that no operation of the module uses."""
    memories = [value.owner.memory for value in values if isinstance(value.owner, MatrixOp)]
    for op in dict.fromkeys(value.owner for value in (*values, *memories)):
        paged = op.memory.owner if isinstance(op, MatrixOp) else op
        users = [use.operation for result in op.results for use in result.uses] if isinstance(op, Operation) else []
        if isinstance(op, MatrixOp | PagedOp) and isinstance(paged, PagedOp) and not any(user.parent for user in users):
            # What was read of the attention may still know of them.
            op.detach()
            op.erase(safe_erase=False)
