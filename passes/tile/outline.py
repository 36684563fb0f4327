"""`warp-tile`: a matrix product becomes a kernel of CTA tiles, warp tiles and instructions, and its launch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import func, gpu, memref
from xdsl.dialects.builtin import (
    ArrayAttr,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i64,
)
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.memref import CollapseShapeOp, ExpandShapeOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import ScheduleAttr
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.partial_sums import ZEROED
from ...dialect.warp.view import DIVISIBLE, MatrixOp
from ..diagnostics import fail
from ..linalg.overlap import check_product
from ..linalg.product import Argument, Operand, Place, Product, Spread, fresh_name, read
from ..linalg.raise_matmul import raise_products
from . import raster
from .index_builder import Index, IndexBuilder
from .kernel import KernelBuilder
from .tiling import Tiling

if TYPE_CHECKING:
    from .split import Workspace

KERNELS = "kernels"
"""The name of the gpu.module that kernels are outlined into, unless something else has it."""


def _module_for_kernels(module: ModuleOp) -> gpu.ModuleOp:
    """The gpu.module that kernels go into, made when there is none."""
    for op in module.body.block.ops:
        if isinstance(op, gpu.ModuleOp):
            return op
    taken = {name.data for op in module.body.block.ops if isinstance(name := op.properties.get("sym_name"), StringAttr)}
    name = fresh_name(KERNELS, taken)
    kernels = gpu.ModuleOp(SymbolRefAttr(name), Region(Block()))
    kernels.properties["sym_name"] = StringAttr(name)
    module.body.block.add_op(kernels)
    module.attributes["gpu.container_module"] = UnitAttr()
    return kernels


class Outliner:
    """Puts the kernels of one operation into the module of kernels, and their launches in its place."""

    def __init__(self, op: Operation, module: ModuleOp) -> None:
        self.op, self.kernels = op, _module_for_kernels(module)
        self._builder = Builder(InsertPoint.before(op))
        self.index = IndexBuilder(self._builder)
        self._scratch: list[SSAValue] = []

    def scratch(self, kind: MemRefType, *, zeroed: bool = False) -> SSAValue:
        """Memory that the launches share, and only they; if `zeroed`, they find zeros there and leave zeros."""
        alloc = self._builder.insert(memref.AllocOp([], [], kind))
        if zeroed:
            alloc.attributes[ZEROED] = UnitAttr()
        self._scratch.append(alloc.memref)
        return alloc.memref

    def insert(self, op: ExpandShapeOp | CollapseShapeOp) -> SSAValue:
        """The same memory in another shape, for the launches that follow."""
        return self._builder.insert(op).result

    def launch(
        self,
        suffix: str,
        operands: Sequence[Argument],
        body: Block,
        ctas: Index,
        threads: int,
        batch: Index = 1,
    ) -> gpu.FuncOp:
        """Makes a kernel of a body whose arguments are the operands, and launches it, `ctas` for each of a batch."""
        name = self._name(suffix)
        for argument, operand in zip(body.args, operands, strict=True):
            argument.name_hint = operand.name
        types = list(body.arg_types)
        kernel = gpu.FuncOp(name, (types, []), Region(body), kernel=True, known_block_size=[threads, 1, 1])
        kernel.location = self.op.location
        divisors = [operand.divisor for operand in operands]
        if any(divisor > 1 for divisor in divisors):
            kernel.attributes[DIVISIBLE] = ArrayAttr([IntegerAttr(divisor, i64) for divisor in divisors])
        self.kernels.body.block.add_op(kernel)
        self._builder.insert(
            gpu.LaunchFuncOp(
                SymbolRefAttr(self.kernels.sym_name.data, [name]),
                self.index.values([ctas, 1, batch]),
                self.index.values([threads, 1, 1]),
                kernelOperands=[operand.value for operand in operands],
            )
        )
        return kernel

    def finish(self) -> None:
        """Frees the scratch memory and erases the operation."""
        for memory in self._scratch:
            self._builder.insert(memref.DeallocOp.get(memory))
        Rewriter.erase_op(self.op)

    def _name(self, suffix: str) -> str:
        parent = self.op.parent_op()
        if not isinstance(parent, func.FuncOp):
            what = "the product" if isinstance(self.op, MatmulOp) else self.op.name
            where = "" if parent is None else f", got it in {parent.name}; loops of the host are not lowered"
            fail(self.op, f"expected {what} directly in a func.func{where}")
        taken = {op.sym_name.data for op in self.kernels.body.block.ops if isinstance(op, gpu.FuncOp)}
        # A kernel's name stands in the text, where not every name that MLIR allows can.
        stem = re.sub(r"^(?=\d)|[^A-Za-z0-9_$]", "_", parent.sym_name.data)
        return fresh_name(f"{stem}_{suffix}" if suffix else stem, taken)


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
        from .pack import pack

        product = pack(product, schedule, outliner)
    if schedule.split_k > 1:
        from .split import split, workspace

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
                from .elementwise_kernel import tile

                tile(found, op)
            elif found.name.startswith("linalg.") and isinstance(found.parent_op(), func.FuncOp):
                fail(found, f"{found.name} has no kernel: of operations that reduce, products of matrices are lowered")
