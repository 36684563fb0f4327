"""Reads of sequences in pages, and of rows, as `linalg` has them: a table has the number of the page, or the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import i32, i64
from xdsl.dialects.linalg.ops import GenericOp, IndexOp
from xdsl.dialects.memref import AllocOp, DeallocOp, LoadOp, SubviewOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.affine import Nest, strides_of
from ...dialect.warp.attention import AttentionOp
from ...dialect.warp.attributes import Memory, memory_of
from ...dialect.warp.views import PagedOp
from ..diagnostics import remark
from ..patterns import constant_value, operations_between, rewrite_pattern
from .memory_uses import roots_of, touched, uses_of
from .operand import drop_unused, part_of, root

MIN_ROWS = 16
"""Rows of a page, a power of two: what an instruction multiplies of K and V at once."""

NO_PAGES = (
    f"expected cache[table[..., n / rows], n % rows, ...] of known sizes, rows a power of two from {MIN_ROWS} on, "
    "each other index a loop's own number"
)

QUOTIENTS = (arith.DivUIOp, arith.DivSIOp, arith.FloorDivSIOp)
REMAINDERS = (arith.RemUIOp, arith.RemSIOp)


class Quotient(NamedTuple):
    """A loop, and the constant that its number is divided by."""

    loop: int
    by: int


def pages_of(op: Operation) -> PagedOp | None:
    """The view that reads the sequences an operation gathers, `cache[table[..., n / rows], n % rows, ...]`, if it does
    nothing else; else None. It is not inserted yet."""
    nest = Nest.of(op) if isinstance(op, GenericOp) else None
    if nest is None or nest.summed or len(nest.yielded) != 1 or nest.writes[0].loops != tuple(range(nest.loops)):
        return None
    read = nest.yielded[0].owner
    if not isinstance(read, LoadOp):
        return None
    along, slots, pages = list[int](), dict[int, Quotient](), dict[int, tuple[LoadOp, Quotient]]()
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
    every = sorted([*(loop for place, loop in enumerate(along) if place != page), *others])
    kinds = memory_of(read.memref), memory_of(table.memref)
    size, is_static = kinds[0].get_shape()[slot], min(each for kind in kinds for each in kind.get_shape()) >= 0
    if not is_static or rows != block or rows.by != size or size < MIN_ROWS or size & size - 1:
        return None
    if every != list(range(nest.loops)) or len(others) != len(table.indices) - 1:
        return None
    return PagedOp(read.memref, table.memref, along, others, page, slot)


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


class Gathered(NamedTuple):
    """Memory that one operation gathers for another one alone: the first one, and the view that reads the same."""

    gather: Operation
    view: PagedOp

    @staticmethod
    def of(
        op: Operation, memory: SSAValue, read: Callable[[Operation], PagedOp | None], *parts: Operation
    ) -> Gathered | None:
        """What an operand of `op` is gathered by, where `read` has a view for it. `parts` may use it too. Where it has
        none, and a table names pages, a remark says so."""
        users = {use.operation for use in memory.uses if not isinstance(use.operation, DeallocOp)} - {op, *parts}
        gather = users.pop() if isinstance(memory.owner, AllocOp) and len(users) == 1 else None
        view = None if gather is None else read(gather)
        if gather is not None and view is None and read is pages_of and _names_pages(gather):
            remark(gather, "warp-fuse-attention", f"it gathers keys before: {NO_PAGES}")
        return None if gather is None or view is None else Gathered(gather, view)

    def objection(self, op: Operation, memory: SSAValue, *parts: SubviewOp) -> str:
        """Why `op` does not read the view, or columns of it, in place of the memory and of parts; "" if it does."""
        *others, every = memory_of(self.view.result).get_shape()
        sizes, page = memory_of(self.view.memory).get_shape(), self.view.page.value.data
        whole = self.view.loops[page] == len(others) or min(sizes) < 0
        for kind in map(memory_of, (memory, *(part.result for part in parts))):
            *around, columns = kind.get_shape()
            plain = strides_of(kind) == strides_of(memory_of(memory)) and kind.get_offset() is not None
            if around != others or columns > every or (whole and columns < every) or not plain:
                return "it leaves out rows that a table names, or columns of memory of unknown size"
        between, sources = operations_between(self.gather, op), {root(self.view.memory), root(self.view.table)}
        memories = [None] if between is None else [*map(touched, between)]
        written = roots_of(use.value for use in (uses_of(op) or ([], []))[1])
        apart = (touches is not None and sources.isdisjoint(touches[1]) for touches in memories)
        return "" if sources.isdisjoint(written) and all(apart) else "what it reads may be overwritten"

    def replace(self, op: Operation, memory: SSAValue, *parts: SubviewOp) -> None:
        """Lets `op` read the view, or columns of it, in place of the memory and of `parts` of it."""
        Rewriter.insert_op(self.view, InsertPoint.before(op))
        Rewriter.erase_op(self.gather)
        for value in (*(part.result for part in parts), memory):
            value.replace_all_uses_with(self._columns(op, memory_of(value)))
            drop_unused(value)
        drop_unused(self.view.result)

    def _columns(self, op: Operation, kind: Memory) -> SSAValue:
        """The view as `op` reads it: of each row as many columns as memory of this type has, from its offset on."""
        cache, table, at = self.view.memory, self.view.table, self.view.loops.index(kind.get_num_dims() - 1)
        shape, width = memory_of(cache).get_shape(), kind.get_shape()[-1]
        if memory_of(self.view.result).get_shape()[-1] == width:
            return self.view.result
        start = [(kind.get_offset() or 0) if i == at else 0 for i in range(len(shape))]
        part = part_of(cache, start, [*shape[:at], width, *shape[at + 1 :]])
        view = self.view.of(part.result, table)
        Rewriter.insert_op([part, view], InsertPoint.before(op))
        return view.result


@rewrite_pattern
def read_pages(op: AttentionOp, rewriter: PatternRewriter) -> None:
    """Lets an attention read K and V, or V that is columns of K, in the pages that operations gather them from."""
    for memory in dict.fromkeys((op.k, op.v)):
        parts = [part for part in [op.v.owner] if isinstance(part, SubviewOp) and part.source is memory]
        parts = parts if op.v.has_one_use() else []
        gathered = None if op.tile else Gathered.of(op, memory, pages_of, *parts)
        if gathered is not None and (reason := gathered.objection(op, memory, *parts)):
            remark(gathered.gather, "warp-fuse-attention", f"it gathers keys before: {reason}")
            gathered.view.erase()
        elif gathered is not None:
            gathered.replace(op, memory, *parts)
            rewriter.has_done_action = True


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


def _page(index: SSAValue) -> tuple[LoadOp, Quotient] | None:
    """The read of the table that an index is the result of, and the number of the page in its sequence."""
    cast = index.owner
    read = cast.input.owner if isinstance(cast, arith.IndexCastOp) else None
    block = _quotient(read.indices[-1], QUOTIENTS) if isinstance(read, LoadOp) and read.indices else None
    return (read, block) if isinstance(read, LoadOp) and block is not None else None


def _names_pages(op: Operation) -> bool:
    """Whether an operation reads one element of a page that a table names."""
    nest = Nest.of(op) if isinstance(op, GenericOp) else None
    read = nest.yielded[0].owner if nest is not None and len(nest.yielded) == 1 else None
    return isinstance(read, LoadOp) and any(_page(index) is not None for index in read.indices)
