"""`warp-tile`: a matrix product becomes a kernel of CTA tiles, warp tiles and instructions, and its launch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, func, gpu
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, SymbolRefAttr, UnitAttr, i32
from xdsl.ir import Block, Region
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import ScheduleAttr
from ...dialect.warp.matmul import MatmulOp
from ..diagnostics import fail
from ..index_builder import IndexBuilder
from ..product import Product, fresh_name, read
from ..raise_matmul import raise_products
from . import raster
from .kernel import KernelBuilder
from .tiling import Tiling

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


def _launch(product: Product, schedule: Schedule, kernel: SymbolRefAttr) -> None:
    """Replaces a product by the launch of its kernel."""
    builder = Builder(InsertPoint.before(product.op))
    index = IndexBuilder(builder)
    shared = builder.insert(arith.ConstantOp(IntegerAttr(schedule.shared_bytes(product.a.element.bits), i32))).result
    down, across = raster.grid(product, schedule)
    launch = gpu.LaunchFuncOp(
        kernel,
        index.values([down * across, 1, 1]),
        index.values([schedule.threads, 1, 1]),
        kernelOperands=[memory.value for memory in product.memories],
        dynamicSharedMemorySize=shared,
    )
    builder.insert(launch)
    Rewriter.erase_op(product.op)


def _tile(matmul: MatmulOp, module: ModuleOp) -> None:
    attribute = matmul.attributes.get(ScheduleAttr.name)
    if not isinstance(attribute, ScheduleAttr):
        fail(matmul, "expected a schedule on the product; run warp-schedule first")
    schedule, product = attribute.data, read(matmul)
    parent = matmul.parent_op()
    if not isinstance(parent, func.FuncOp):
        fail(matmul, "expected the product directly in a func.func")
    kernels = _module_for_kernels(module)
    taken = {op.sym_name.data for op in kernels.body.block.ops if isinstance(op, gpu.FuncOp)}
    # A kernel's name stands in the text, where not every name that MLIR allows can.
    name = fresh_name(re.sub(r"^(?=\d)|[^A-Za-z0-9_$]", "_", parent.sym_name.data), taken)
    types = [memory.type for memory in product.memories]
    body = Block(arg_types=types)
    for argument, memory in zip(body.args, product.memories, strict=True):
        argument.name_hint = memory.name
    kernel = gpu.FuncOp(name, (types, []), Region(body), kernel=True, known_block_size=[schedule.threads, 1, 1])
    kernel.attributes[ScheduleAttr.name] = attribute
    kernel.location = matmul.location
    memories = (memory.value for memory in product.memories)
    KernelBuilder(Tiling(product, schedule, dict(zip(memories, body.args, strict=True))), body).build()
    kernels.body.block.add_op(kernel)
    _launch(product, schedule, SymbolRefAttr(kernels.sym_name.data, [name]))


@dataclass(frozen=True)
class TilePass(ModulePass):
    """Outlines every scheduled product into a `gpu.func` over warp fragments, and launches it.

    Products still in `linalg` are raised first.
    """

    name = "warp-tile"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
        for matmul in [o for o in op.walk() if isinstance(o, MatmulOp)]:
            _tile(matmul, op)
