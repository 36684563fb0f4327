"""Kernels and their launches, rewritten together: grids, arguments, the loop over K."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import FunctionType, ModuleOp, SymbolRefAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from ...dialect.gpu import LaunchFuncOp
from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import ScheduleAttr
from ...dialect.warp.copy import CopyOp
from ...dialect.warp.tensor_maps import EncodeTensorMapOp, TensorMapType
from ..diagnostics import fail
from ..linalg.extents import divisor_of
from .index_builder import Index, IndexBuilder, constant_value
from .outliner import Outliner, promise


class LaunchedKernel:
    """A kernel with a schedule, and its launch. What changes of the launch is written by `finish`."""

    def __init__(self, op: gpu.LaunchFuncOp, kernel: gpu.FuncOp, schedule: Schedule, module: ModuleOp) -> None:
        self.op, self.kernel, self.schedule = op, kernel, schedule
        self.host = Outliner(op, module)
        self.grid: list[Index] = [op.gridSizeX, op.gridSizeY, op.gridSizeZ]
        self.operands = list(op.kernelOperands)
        self.threads: Index = self.host.index.known(op.blockSizeX)
        self.divisors = list(map(divisor_of, kernel.body.block.args))

    @property
    def body(self) -> Block:
        """The kernel's block."""
        return self.kernel.body.block

    def loop(self) -> scf.ForOp | None:
        """The loop over K of a kernel that `warp-tile` has made, unless it is in a loop over tiles already."""
        loops = (op for op in self.body.ops if isinstance(op, scf.ForOp))
        return next((loop for loop in loops if any(isinstance(op, CopyOp) for op in loop.body.block.ops)), None)

    def block_id(self) -> SSAValue | None:
        """The number of the CTA's tile."""
        ids = (op for op in self.body.ops if isinstance(op, gpu.BlockIdOp))
        return next((op.result for op in ids if op.dimension.data == gpu.DimensionEnum.X), None)

    def insert(self, at: int, value: SSAValue, name: str) -> BlockArgument:
        """Gives the kernel one more argument before the one with the number `at`."""
        self.operands.insert(at, value)
        argument = self.body.insert_arg(value.type, at)
        argument.name_hint = name
        self.divisors.insert(at, 1)
        return argument

    def replace(self, argument: BlockArgument, copies: Sequence[CopyOp], value: SSAValue, name: str) -> BlockArgument:
        """Lets copies read another argument in place of one, which goes if nobody needs it any more."""
        new = self.insert(argument.index, value, name)
        for copy in copies:
            copy.operands[0] = new
        self.drop_unused(argument)
        return new

    def tensor_map(self, memory: BlockArgument, order: Sequence[int], kind: TensorMapType) -> BlockArgument:
        """A further argument: the tensor map of the memory of another one, which the host encodes before the launch."""
        encoded = self.host.index.insert(EncodeTensorMapOp(self.operands[memory.index], order, kind)).map
        return self.insert(len(self.operands), encoded, f"{memory.name_hint or 'memory'}_map")

    def drop_unused(self, argument: BlockArgument) -> None:
        """Takes an argument away that nobody needs any more."""
        if not argument.uses:
            del self.operands[argument.index], self.divisors[argument.index]
            self.body.erase_arg(argument)

    def inside(self, index: IndexBuilder, value: SSAValue) -> Index:
        """A number of the host, which follows from operands of the launch, computed in the kernel."""
        if (known := constant_value(value)) is not None:
            return known
        if value in self.operands:
            return self.body.args[self.operands.index(value)]
        op = value.owner
        if not isinstance(op, Operation):
            fail(self.op, "expected a grid that follows from the operands of the launch")
        given = {operand: index.value(self.inside(index, operand)) for operand in op.operands}
        return index.insert(op.clone(given)).results[0]

    def finish(self) -> None:
        """Puts the launch as it is now in place of the old one."""
        self.kernel.function_type = FunctionType.from_lists([argument.type for argument in self.body.args], [])
        promise(self.kernel, self.divisors)
        threads = (self.host.index.value(self.threads), self.op.blockSizeY, self.op.blockSizeZ)
        grid = self.host.index.values(self.grid)
        new = LaunchFuncOp(self.op.kernel, grid, threads, kernelOperands=self.operands)
        new.location = self.op.location
        self.host.index.insert(new)
        self.host.finish()


def launches(module: ModuleOp) -> Iterator[LaunchedKernel]:
    """The launches of kernels that have a schedule."""
    kernels: dict[SymbolRefAttr, gpu.FuncOp] = {}
    for op in module.walk():
        if isinstance(op, gpu.FuncOp) and isinstance(within := op.parent_op(), gpu.ModuleOp):
            kernels[SymbolRefAttr(within.sym_name.data, [op.sym_name.data])] = op
    for op in [op for op in module.walk() if isinstance(op, gpu.LaunchFuncOp)]:
        kernel = kernels.get(op.kernel)
        schedule = None if kernel is None else kernel.attributes.get(ScheduleAttr.name)
        if kernel is not None and isinstance(schedule, ScheduleAttr):
            yield LaunchedKernel(op, kernel, schedule.data, module)
