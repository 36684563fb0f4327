"""Rows that lie across memory, such as the columns of a matrix whose sums are the gradient of a bias: reduced in parts,
whose results a second operation reduces.

Neighbours in memory are of other rows, and lanes take those; so few rows keep few warps busy, however long they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import prod

from xdsl.builder import Builder
from xdsl.dialects import memref
from xdsl.dialects.builtin import MemRefType, f32
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.affine import FIXED, is_projection, loops_of, map_along
from ...dialect.warp.attributes import is_memory, memory_of
from ...dialect.warp.elements import IndexOp, LoopSizes, YieldOp, all_yielded
from ...dialect.warp.rows import AcrossOp, RowsOp
from ...dialect.warp.views import strides_of
from ..diagnostics import chose
from .operand import expand

LANES, WARPS = 32, 4096
"""Rows of a warp, and warps that keep a GPU busy: of those of 132 SMs half."""

LEAST_PART, MOST_PARTS = 32, 256
"""Elements of a row in a part, and parts, which few warps reduce in the end."""


class SplitRows(RewritePattern):
    """Reduces rows that lie across memory in parts."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: RowsOp, rewriter: PatternRewriter) -> None:
        along, block, sizes = op.loops - 1, op.body.block, LoopSizes()
        across = [each for each in block.ops if isinstance(each, AcrossOp)]
        if not across or not all(map(op.is_of_rows, range(len(op.outputs)))):
            return
        for value, map_ in zip(op.operands, op.maps, strict=True):
            sizes.add("", value, loops_of(map_)) if map_.results else None
        rows, length = [sizes[loop] for loop in range(along)], sizes[along]
        elements, results = _needed(each.element for each in across), _needed(all_yielded(op.body))
        along_rows = [value for value in elements if isinstance(value, BlockArgument) and _is_along(op, value)]
        long = [value for value in along_rows if len(loops_of(op.maps[value.index])) > 1]
        plain = all(map(is_projection, op.maps)) and not any(isinstance(each, IndexOp) for each in block.ops)
        once = not any(isinstance(value.owner, AcrossOp) for value in elements)
        of_rows = not any(isinstance(value, BlockArgument) and _is_along(op, value) for value in results)
        parts = _parts(prod(rows), length) if min(*rows, length) > 0 else 1
        if parts == 1 or not (plain and once and of_rows and long and all(lies_across(op, each) for each in long)):
            return
        chose(op, "warp-outline", f"rows that lie across memory are reduced in {parts} parts")
        builder = Builder(InsertPoint.before(op))
        kind = MemRefType(f32, [parts, *rows])
        sums: list[SSAValue] = [builder.insert(memref.AllocOp([], [], kind)).memref for _ in across]
        builder.insert(_of_parts(op, builder, elements, across, sums))
        rewriter.replace(op, _of_sums(op, results, across, sums))


def _is_along(op: RowsOp, argument: BlockArgument) -> bool:
    """Whether an argument of the region differs along a row."""
    return op.loops - 1 in loops_of(op.maps[argument.index])


def lies_across(op: RowsOp, argument: BlockArgument) -> bool:
    """Whether neighbours in memory, whose sizes and strides are known, are not along a row, but of other rows."""
    kind, loops = op.inputs[argument.index].type, loops_of(op.maps[argument.index])
    strides = strides_of(kind) if is_memory(kind) else None
    known = is_memory(kind) and kind.has_static_shape() and strides is not None and None not in strides
    return known and strides is not None and strides[loops.index(op.loops - 1)] != 1 and 1 in strides


def _parts(rows: int, length: int) -> int:
    """Into how many parts of the same length rows are cut: the fewest that keep a GPU busy, else the most."""
    every = [n for n in range(1, min(MOST_PARTS, length // LEAST_PART) + 1) if length % n == 0]
    return next((n for n in every if n * rows >= WARPS * LANES), every[-1] if every else 1)


def _needed(values: Iterable[SSAValue]) -> dict[SSAValue, None]:
    """What some values are made of, they among it; not what is reduced along rows."""
    needed, wanted = dict[SSAValue, None](), list(values)
    while wanted:
        value = wanted.pop()
        if value not in needed:
            needed[value] = None
            owner = value.owner
            wanted += owner.operands if isinstance(owner, Operation) and not isinstance(owner, AcrossOp) else ()
    return needed


def _region(
    op: RowsOp, needed: Collection[SSAValue], known: dict[SSAValue, SSAValue], block: Block, yielded: Sequence[SSAValue]
) -> tuple[list[int], Region]:
    """A region that makes what is yielded, in a block with arguments for what is known, and the inputs of further
    ones, which stand before those."""
    inputs = [value.index for value in needed if isinstance(value, BlockArgument)]
    known |= {op.body.block.args[i]: block.insert_arg(op.body.block.args[i].type, at) for at, i in enumerate(inputs)}
    for each in op.body.block.ops:
        wanted = any(value in needed or value in yielded for value in each.results)
        if wanted and not all(value in known for value in each.results):
            block.add_op(copy := each.clone(known))
            known |= dict(zip(each.results, copy.results, strict=True))
    block.add_op(YieldOp(*(known[value] for value in yielded)))
    return inputs, Region(block)


def _of_parts(
    op: RowsOp, builder: Builder, needed: Collection[SSAValue], across: Sequence[AcrossOp], sums: Sequence[SSAValue]
) -> RowsOp:
    """What parts of rows give: the first loop is that of parts."""
    inputs, region = _region(op, needed, {}, Block(), [each.result for each in across])
    parts, loops = memory_of(sums[0]).get_shape()[0], op.loops + 1
    values, maps = list[SSAValue](), list[AffineMap]()
    for value, map_ in ((op.inputs[i], op.maps[i]) for i in inputs):
        dims = list[int]()
        for loop in loops_of(map_):
            dims += (0, loops - 1) if loop == op.loops - 1 else [loop + (loop != FIXED)]
        if op.loops - 1 in loops_of(map_):
            shape, at = memory_of(value).get_shape(), loops_of(map_).index(op.loops - 1)
            cut = [[parts, size // parts] if d == at else [size] for d, size in enumerate(shape)]
            value = builder.insert(expand(value, cut)).result
        values.append(value)
        maps.append(map_along(loops, dims))
    maps += [map_along(loops, range(loops - 1))] * len(sums)
    made = RowsOp(values, sums, maps, region)
    made.location = op.location
    return made


def _of_sums(op: RowsOp, needed: Collection[SSAValue], across: Sequence[AcrossOp], sums: Sequence[SSAValue]) -> RowsOp:
    """What the results of parts give."""
    block = Block(arg_types=[f32] * len(sums))
    totals = [AcrossOp(each.kind.data, argument) for each, argument in zip(across, block.args, strict=True)]
    block.add_ops(totals)
    known: dict[SSAValue, SSAValue] = {each.result: total.result for each, total in zip(across, totals, strict=True)}
    inputs, region = _region(op, needed, known, block, all_yielded(op.body))
    own = map_along(op.loops, (op.loops - 1, *range(op.loops - 1)))
    maps = [*(op.maps[i] for i in inputs), *[own] * len(sums), *op.written]
    made = RowsOp([*(op.inputs[i] for i in inputs), *sums], op.outputs, maps, region)
    made.location = op.location
    return made
