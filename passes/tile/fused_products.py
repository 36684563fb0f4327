"""One kernel of several products, each of which reads rows of what the one before made.

A CTA computes the same rows of all of them: all CTA tiles of the first product in these rows, one after another, then
those of the next one. What a product makes lies in global memory, and the CTA that reads it has written it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from xdsl.builder import Builder
from xdsl.dialects import scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.gpu import BarrierOp, ReturnOp
from ...dialect.schedule.fields import text_of
from ...dialect.warp.attributes import ScheduleAttr
from ...dialect.warp.matmul import MatmulOp
from ..diagnostics import fail
from ..linalg.operand import each_once, root
from ..linalg.product import read
from ..patterns import IndexBuilder, operations_between
from .outline import Inside, TiledProduct, cta_number, moved_inside
from .tiling import Outliner, Tiling, schedule_of

SHARED_FIELDS = ("stages", "sync", "prefetch", "unroll")
"""Fields that a kernel has one value of."""

PLAIN_FIELDS = {"split_k": 1, "ctas": 0, "pack": "none", "cluster": (1, 1)}
"""Fields that would make other launches, or other CTAs, of a product."""


def outline_together(ops: Sequence[MatmulOp]) -> None:
    """Puts one kernel and its launch in the place of products with a schedule, in the order of the operations. Raises a
    located diagnostic for products that cannot share a kernel."""
    products = [TiledProduct(read(op), schedule_of(op)) for op in ops]
    for one in products:
        _check(one)
    for before, after in pairwise(products):
        _check_pair(before, after)
    last = products[-1]
    outliner, schedule = Outliner(last.op), last.schedule
    operands = each_once([operand for one in products for operand in one.memories])
    body = Block(arg_types=[operand.value.type for operand in operands])
    arguments: dict[SSAValue, SSAValue] = dict(zip((o.value for o in operands), body.args, strict=True))
    index = IndexBuilder(Builder(InsertPoint.at_end(body)))
    number = cta_number(index)
    for one in products:
        tiling = Tiling(one.product, one.schedule)
        row = moved_inside(index, tiling, "m", index.mul(number, schedule.cta[0]))
        turn = Block(arg_types=[IndexType()])
        begin, end, step = index.values([0, one.product.n, one.schedule.cta[1]])
        inside = index.at(Builder(InsertPoint.at_end(turn)))
        column = moved_inside(inside, tiling, "n", turn.args[0])
        seen = Inside.of(inside, one.op.epilogue, one.product.operands, arguments, (), 0)
        inside.insert(one.at(inside, seen, (row, column)))
        inside.insert(BarrierOp())
        inside.insert(scf.YieldOp())
        index.insert(scf.ForOp(begin, end, step, [], turn))
    index.insert(ReturnOp([]))
    ctas = outliner.index.ceildiv(last.product.m, schedule.cta[0])
    kernel = outliner.launch("", operands, body, ctas, schedule.threads)
    kernel.attributes[ScheduleAttr.name] = ScheduleAttr(schedule)
    outliner.finish()
    for one in products[:-1]:
        Outliner(one.op).finish()


def _check(one: TiledProduct) -> None:
    """Refuses a product that a CTA cannot compute rows of."""
    product, schedule, op = one.product, one.schedule, one.op
    if schedule.together > 1:
        fail(op, f"products that share a kernel are multiplied by mma.sync, got mma = {schedule.mma}")
    if product.dynamic or product.batch or product.summed or product.ends is not None:
        fail(op, "expected a product of static sizes, and of one matrix, to share a kernel with others")
    if product.m % schedule.cta[0] and schedule.edges == "inside":
        rows = f"{product.m} rows are no multiple of {schedule.cta[0]}"
        fail(op, f"{rows}, and two CTAs would compute the same ones; edges = predicated leaves tiles where they are")
    for name, plain in PLAIN_FIELDS.items():
        if schedule[name] != plain:
            fail(op, f"expected {name} = {text_of(plain)} of products that share a kernel, got {schedule[name]}")


def _check_pair(before: TiledProduct, after: TiledProduct) -> None:
    """Refuses products of which the second does not read rows of what the first made as its A, and only so."""
    a, b, op = before.product, after.product, after.op
    if (rows := after.schedule.cta[0]) != before.schedule.cta[0] or after.schedule.threads != before.schedule.threads:
        one, other = before.schedule, after.schedule
        fail(op, f"expected CTAs of as many rows and threads as those of the product before, {one.cta[0]} and "
             f"{one.threads}, got {rows} and {other.threads}")  # fmt: skip
    for name in SHARED_FIELDS:
        if before.schedule[name] != after.schedule[name]:
            fail(op, f"expected {name} = {before.schedule[name]}, as the product before, got {after.schedule[name]}")
    made = a.d.value
    if b.a.value is not made or b.a.transposed or a.d.transposed or a.m != b.m or a.n != b.k:
        fail(op, "expected A to be what the product before it in the kernel made, row by row")
    if any(operand.value is made for operand in b.operands if operand is not b.a):
        fail(op, "expected a product to read what the one before it in the kernel made as A alone")
    memories = {root(operand.value) for operand in before.memories}
    between = operations_between(before.op, after.op)
    if between is None:
        fail(op, "expected the products of a kernel in the order in which they stand in their block")
    for each in between:
        if any(root(value) in memories for inner in each.walk() for value in inner.operands):
            fail(each, f"{each.name} is between products that share a kernel, and uses their memory")
