"""`gpu-kernel-outlining`: the body of each `gpu.launch` becomes a kernel, as upstream's pass of that name does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xdsl.dialects import arith, func, gpu
from xdsl.dialects.builtin import (
    FunctionType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.gpu import (
    BlockDimOp,
    BlockIdOp,
    FuncOp,
    GridDimOp,
    LaunchFuncOp,
    ReturnOp,
    ThreadIdOp,
)
from ...dialect.mlir.launch import ATTRIBUTIONS, DIMENSIONS, LaunchOp, TerminatorOp
from ...dialect.mlir.launch import ModuleOp as KernelModuleOp
from ..diagnostics import fail
from ..linalg.product import fresh_name
from ..patterns import PatternPass, constant_value

NUMBERS = (BlockIdOp, ThreadIdOp, GridDimOp, BlockDimOp)
"""What the arguments of a body are, three of each."""


class OutlineLaunch(RewritePattern):
    """Moves the body of a launch to a kernel; values from outside become arguments, constants are computed again."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: LaunchOp, rewriter: PatternRewriter) -> None:
        if op.clusterSizeX is not None:
            fail(op, "a gpu.launch with clusters is not outlined; mlir-opt -gpu-kernel-outlining does it")
        module, function = op.get_toplevel_object(), op.parent_op()
        while function is not None and not isinstance(function, func.FuncOp):
            function = function.parent_op()
        if not isinstance(module, ModuleOp) or function is None:
            fail(op, "expected gpu.launch in a function of a module")
        names = {each.sym_name.data for each in module.body.block.ops if isinstance(each, KernelModuleOp | func.FuncOp)}
        stem = fresh_name(f"{function.sym_name.data}_kernel", names)
        captured = [value for value in dict.fromkeys(_captured(op)) if not isinstance(value.owner, arith.ConstantOp)]
        kernel = _kernel(op, stem, captured, rewriter)
        launch = LaunchFuncOp(
            SymbolRefAttr(stem, [stem]),
            op.sizes[:DIMENSIONS],
            op.sizes[DIMENSIONS : 2 * DIMENSIONS],
            kernelOperands=captured,
            dynamicSharedMemorySize=op.dynamicSharedMemorySize,
            asyncDependencies=op.asyncDependencies,
            async_launch=op.asyncToken is not None,
        )
        launch.location = op.location
        container = KernelModuleOp.build(properties={"sym_name": StringAttr(stem)}, regions=[Region(Block([kernel]))])
        rewriter.insert(container, InsertPoint.at_end(module.body.block))
        rewriter.replace(op, [launch], list(launch.results))
        module.attributes["gpu.container_module"] = UnitAttr()


def _captured(op: LaunchOp) -> Iterator[SSAValue]:
    """The values of outside that operations of the body use."""
    for inner in op.body.walk():
        for value in inner.operands:
            block = value.owner if isinstance(value.owner, Block) else value.owner.parent
            if block is not None and not op.body.is_ancestor(block):
                yield value


def _kernel(op: LaunchOp, name: str, captured: list[SSAValue], rewriter: PatternRewriter) -> FuncOp:
    """The kernel that does what the body of a launch does."""
    workgroup, private = op.memory
    old, *others = op.body.blocks
    block = Block(arg_types=[value.type for value in (*captured, *workgroup, *private)])
    for value, argument in zip((*captured, *workgroup, *private), block.args, strict=True):
        argument.name_hint = value.name_hint
    inside: dict[SSAValue, SSAValue] = dict(zip(captured, block.args, strict=False))
    for value in dict.fromkeys(_captured(op)):
        if value not in inside and isinstance(value.owner, Operation):
            again = value.owner.clone()
            block.add_op(again)
            inside[value] = again.results[0]
    for number, argument in enumerate(old.args[: len(NUMBERS) * DIMENSIONS]):
        if argument.uses:
            dimension = gpu.DimensionAttr(list(gpu.DimensionEnum)[number % DIMENSIONS])
            which = NUMBERS[number // DIMENSIONS](dimension)
            block.add_op(which)
            argument.replace_all_uses_with(which.results[0])
    for value, argument in zip((*workgroup, *private), block.args[len(captured) :], strict=True):
        value.replace_all_uses_with(argument)
    for inner in op.body.walk():
        for index, value in enumerate(inner.operands):
            if value in inside:
                inner.operands[index] = inside[value]
    for inner in list(old.ops):
        inner.detach()
        block.add_op(inner)
    for other in others:
        op.body.detach_block(other)
    for last in [each.last_op for each in (block, *others)]:
        if isinstance(last, TerminatorOp):
            rewriter.replace(last, ReturnOp([]))
    sizes = [constant_value(size) for size in op.sizes[DIMENSIONS : 2 * DIMENSIONS]]
    kernel = FuncOp(
        name, FunctionType.from_lists([value.type for value in captured], []), Region([block, *others]), kernel=True,
        known_block_size=[size for size in sizes if size is not None] if None not in sizes else None,
    )  # fmt: skip
    if workgroup:
        kernel.attributes[ATTRIBUTIONS] = IntegerAttr(len(workgroup), i64)
    kernel.location = op.location
    return kernel


class OutlineLaunchesPass(PatternPass):
    """Makes a kernel of the body of each `gpu.launch`, in a `gpu.module` of its own, and launches that."""

    name = "gpu-kernel-outlining"
    needs: ClassVar = (LaunchOp.name,)
    patterns = (OutlineLaunch,)
