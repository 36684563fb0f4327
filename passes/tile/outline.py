"""`warp-tile`: a matrix product becomes a kernel of CTA tiles, warp tiles and instructions, and its launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Block, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import ScheduleAttr
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.view import MatrixOp
from ..diagnostics import fail
from ..linalg.operand import Operand, Place, Spread
from ..linalg.overlap import check_product
from ..linalg.product import Product, read
from ..linalg.raise_matmul import raise_products
from . import elementwise_kernel, raster
from .index_builder import Index, IndexBuilder
from .kernel import KernelBuilder
from .outliner import Outliner
from .pack import pack
from .split import Workspace, split, workspace
from .tiling import Tiling


def views_of(
    index: IndexBuilder, product: Product, batch: Sequence[Index], arguments: Mapping[SSAValue, SSAValue]
) -> dict[Place, SSAValue]:
    """The matrices of this CTA in memory that is more, or lies otherwise, than one matrix row by row."""
    given = (product.a, product.b, *product.scales, product.c, product.d, *product.epilogue_operands)
    operands = [o for o in given if isinstance(o, Operand | Spread) and not o.is_whole]
    if not operands:
        return {}
    at, views = raster.batch_index(index, batch), dict[Place, SSAValue]()
    for operand in operands:
        if operand.place not in views:
            indices = index.values([at[loop] for loop in operand.batch])
            view = index.insert(MatrixOp(arguments[operand.value], indices, *operand.dimensions)).matrix
            views[operand.place] = view
    return views


def _tile(matmul: MatmulOp, module: ModuleOp) -> None:
    attribute = matmul.attributes.get(ScheduleAttr.name)
    if not isinstance(attribute, ScheduleAttr):
        fail(matmul, "expected a schedule on the product; run warp-schedule first")
    check_product(matmul, matmul)
    schedule, product = attribute.data, read(matmul)
    outliner = Outliner(matmul, module)
    if schedule.pack != "none":
        product = pack(product, schedule, outliner)
    if schedule.split_k > 1:
        shared = workspace(product, schedule, outliner)
        _outline(split(product, schedule, outliner), schedule, outliner, shared)
    else:
        _outline(product, schedule, outliner)
    outliner.finish()


def _outline(product: Product, schedule: Schedule, outliner: Outliner, workspace: Workspace | None = None) -> None:
    """The kernel that multiplies, and its launch; with room for sums that CTAs share, if they do."""
    operands = [*product.memories, *(() if workspace is None else workspace.arguments)]
    body = Block(arg_types=[operand.value.type for operand in operands])
    arguments = {operand.value: argument for operand, argument in zip(operands, body.args, strict=True)}
    inside, index = IndexBuilder(Builder(InsertPoint.at_end(body))), outliner.index
    extents = raster.Extents.of(inside, product, arguments)
    views = views_of(inside, product, extents.batch, arguments)
    held = (
        None
        if workspace is None
        else replace(workspace, parts=arguments[workspace.parts], counters=arguments[workspace.counters])
    )
    KernelBuilder(Tiling(product, schedule, arguments, views), body, extents, held).build()
    extents = raster.Extents.of(index, product, {memory.value: memory.value for memory in product.memories})
    ctas = raster.ctas(index, extents, schedule)
    batch = reduce(index.mul, extents.batch, 1)
    kernel = outliner.launch("", operands, body, ctas, schedule.threads, batch)
    kernel.attributes[ScheduleAttr.name] = ScheduleAttr(schedule)


@dataclass(frozen=True)
class TilePass(ModulePass):
    """Outlines every scheduled product into a `gpu.func` over warp fragments, and launches it; so every elementwise
    operation of `linalg` that is left, `linalg.fill` and `linalg.copy` among them.

    Products still in `linalg` are raised first.
    """

    name = "warp-tile"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
        for found in list(op.walk()):
            if isinstance(found, MatmulOp):
                _tile(found, op)
            elif isinstance(found, LinalgStructuredOperation):
                elementwise_kernel.tile(found, op)
            elif found.name.startswith("linalg.") and isinstance(found.parent_op(), func.FuncOp):
                fail(found, f"{found.name} has no kernel: of operations that reduce, products of matrices are lowered")
