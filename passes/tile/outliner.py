"""Where kernels go: each operation's into the module of kernels, with launches in the operation's place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects import func, gpu, memref, scf
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
from xdsl.dialects.memref import CollapseShapeOp, ExpandShapeOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.gpu import FuncOp, LaunchFuncOp
from ...dialect.gpu import ModuleOp as GpuModuleOp
from ...dialect.warp.attributes import ZEROED
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operand_forms import drop_forms
from ...dialect.warp.view import DIVISIBLE
from ..diagnostics import fail
from ..linalg.operand import KernelArgument
from ..linalg.product import fresh_name
from .index_builder import Index, IndexBuilder

KERNELS = "kernels"
"""The name of the gpu.module that kernels are outlined into, unless something else has it."""


def _module_for_kernels(module: ModuleOp) -> gpu.ModuleOp:
    """The gpu.module that kernels go into, made when there is none."""
    for op in module.body.block.ops:
        if isinstance(op, gpu.ModuleOp):
            return op
    taken = {name.data for op in module.body.block.ops if isinstance(name := op.properties.get("sym_name"), StringAttr)}
    name = fresh_name(KERNELS, taken)
    kernels = GpuModuleOp(SymbolRefAttr(name), Region(Block()))
    kernels.properties["sym_name"] = StringAttr(name)
    module.body.block.add_op(kernels)
    module.attributes["gpu.container_module"] = UnitAttr()
    return kernels


def promise(kernel: gpu.FuncOp, divisors: Sequence[int]) -> None:
    """Says of a kernel's arguments what divides their dynamic sizes and strides, if there is anything to say."""
    if any(divisor > 1 for divisor in divisors):
        kernel.attributes[DIVISIBLE] = ArrayAttr([IntegerAttr(divisor, i64) for divisor in divisors])


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
        operands: Sequence[KernelArgument],
        body: Block,
        ctas: Index,
        threads: int,
    ) -> gpu.FuncOp:
        """Makes a kernel of a body whose arguments are the operands, and launches it."""
        name = self._name(suffix)
        for argument, operand in zip(body.args, operands, strict=True):
            argument.name_hint = operand.name
        types = list(body.arg_types)
        kernel = FuncOp(name, (types, []), Region(body), kernel=True, known_block_size=[threads, 1, 1])
        kernel.location = self.op.location
        promise(kernel, [operand.divisor for operand in operands])
        self.kernels.body.block.add_op(kernel)
        self._builder.insert(
            LaunchFuncOp(
                SymbolRefAttr(self.kernels.sym_name.data, [name]),
                self.index.values([ctas, 1, 1]),
                self.index.values([threads, 1, 1]),
                kernelOperands=[operand.value for operand in operands],
            )
        )
        return kernel

    def finish(self) -> None:
        """Frees the scratch memory and erases the operation."""
        for memory in self._scratch:
            self._builder.insert(memref.DeallocOp.get(memory))
        operands = list(self.op.operands)
        Rewriter.erase_op(self.op)
        drop_forms(operands)

    def _name(self, suffix: str) -> str:
        parent = self.op.parent_op()
        while isinstance(parent, scf.ForOp | scf.IfOp) and not parent.results:
            parent = parent.parent_op()
        if not isinstance(parent, func.FuncOp):
            what = "the product" if isinstance(self.op, MatmulOp) else self.op.name
            where = "" if parent is None else f", got it in {parent.name}"
            fail(self.op, f"expected {what} in a func.func, or in scf.for and scf.if that carry no values{where}")
        taken = {op.sym_name.data for op in self.kernels.body.block.ops if isinstance(op, gpu.FuncOp)}
        # A kernel's name stands in the text, where not every name that MLIR allows can.
        stem = re.sub(r"^(?=\d)|[^A-Za-z0-9_$]", "_", parent.sym_name.data)
        return fresh_name(f"{stem}_{suffix}" if suffix else stem, taken)
