"""Products of few tiles and a long K: the `split_k` of a schedule.

K is cut into equal parts, and the product of each part is one of a batch, so that there are `split_k` times as many
CTAs. They write their sums to scratch memory; a second kernel adds them up, in the order of the parts, so that every
run gives the same bits.
"""

from __future__ import annotations

from dataclasses import replace

from xdsl.builder import Builder
from xdsl.dialects import gpu
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, MemRefType, i64
from xdsl.dialects.memref import ExpandShapeOp
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import InsertPoint

from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.warp.attributes import type_of_element
from ...dialect.warp.elementwise import ElementwiseOp, Kind
from ...dialect.warp.memory import LoadOp, bounds_attribute
from ...dialect.warp.view import MatrixOp
from ..diagnostics import fail
from ..index_builder import IndexBuilder
from ..product import Argument, Operand, Product
from ..schedule import arrangement
from . import raster
from .epilogue import Epilogue
from .outline import Outliner, views_of
from .tiling import Tiling

WARPS = 4
"""Warps of a CTA that adds up parts, side by side; their tiles are small, so that there are many."""


def split(product: Product, schedule: Schedule, outliner: Outliner) -> Product:
    """The product of each part of K, as a batch that goes to scratch memory."""
    parts = schedule.split_k
    row = Tiling(product, schedule, {}).row
    element = row.element("c")
    kind = MemRefType(type_of_element(element), [parts, product.m, product.n])
    sums = Operand("parts", outliner.scratch(kind), kind, type_of_element(element), element, False, (1, 2), (0,))
    return replace(
        product,
        a=_cut(product.a, 0 if product.a.transposed else 1, parts, outliner),
        b=_cut(product.b, 1 if product.b.transposed else 0, parts, outliner),
        c=None,
        d=sums,
        initial=0.0,
        element_type=sums.element_type,
        extras=(),
        k=product.k // parts,
        batch=(parts,),
        partial=True,
    )


def _cut(operand: Operand, along: int, parts: int, outliner: Outliner) -> Operand:
    """The operand with K, its dimension `along`, as two: the part, and the place in it."""
    shape = list(operand.shape)
    shape[along : along + 1] = [parts, shape[along] // parts]
    kind = MemRefType(operand.element_type, shape)
    groups = [[0, 1], [2]] if along == 0 else [[0], [1, 2]]
    expand = ExpandShapeOp.create(
        operands=[operand.value],
        properties={
            "reassociation": ArrayAttr(ArrayAttr(IntegerAttr(d, i64) for d in group) for group in groups),
            "static_output_shape": DenseArrayBase.from_list(i64, shape),
        },
        result_types=[kind],
    )
    dimensions = (1, 2) if along == 0 else (0, 2)
    return replace(
        operand, value=outliner.insert(expand), type=kind, dimensions=dimensions, batch=(0,)
    )  # fmt: skip


def add_up(product: Product, sums: Operand, schedule: Schedule, outliner: Outliner) -> None:
    """The kernel that adds the parts to what the product starts from, and its launch."""
    small = _small(product, schedule)
    operands: dict[SSAValue, Argument] = {
        o.value: o for o in (sums, product.c, product.d, *product.extras) if o is not None
    }
    body = Block(arg_types=[value.type for value in operands])
    arguments: dict[SSAValue, SSAValue] = dict(zip(operands, body.args, strict=True))
    index = IndexBuilder(Builder(InsertPoint.at_end(body)))
    extents = raster.Extents.of(index, product, arguments)
    tiling = Tiling(product, small, arguments, views_of(index, product, extents.batch, arguments))
    epilogue = Epilogue(tiling)
    m, n = raster.cta_origin(index, extents, small, raster.cta_number(index))
    m, n = (raster.moved_inside(index, tiling, axis, at) for axis, at in (("m", m), ("n", n)))
    warp_m, warp_n = raster.warp_origin(index, small)
    m, n = index.add(m, warp_m), index.add(n, warp_n)
    where, inside = index.values([m, n]), bounds_attribute(tiling.inside("m"), tiling.inside("n"))
    kind = epilogue.in_order(tiling.fragment("acc"))
    total = epilogue.regrouped(index, epilogue.initial(index, m, n), kind.layout.data)
    for part in range(schedule.split_k):
        matrix = index.insert(MatrixOp(arguments[sums.value], index.values([part]), 1, 2)).matrix
        loaded = index.insert(LoadOp(matrix, where, kind, inside)).fragment
        total = index.insert(ElementwiseOp(Kind.Add, total, loaded)).fragment
    epilogue.finish(index, total, m, n)
    index.insert(gpu.ReturnOp([]))
    ctas = outliner.index.mul(*raster.grid(outliner.index, extents, small))
    outliner.launch("sum", list(operands.values()), body, ctas, small.threads)


def _small(product: Product, schedule: Schedule) -> Schedule:
    """The schedule of the kernel that adds up: the smallest warp tiles in which accumulators can lie."""
    row = Tiling(product, schedule, {}).row
    for rows, columns in ((16, 8), (16, 16), (16, 32), (32, 32)):
        try:
            arrangement(product, row, (rows, columns))
            return Schedule(
                (rows, WARPS * columns, row.shape.k), (rows, columns), row.shape, 1, accumulate=schedule.accumulate
            )
        except ScheduleError:
            continue
    fail(product.op, f"schedule: no kernel adds up {schedule.split_k} parts of K")
