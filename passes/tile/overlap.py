"""Launches of gradients that overlap: CTAs of one fill the SMs that the last CTAs of the other leave.

H100, 128 columns, 4096: two launches of 2048 CTAs each, one for each SM, leave half of the last turns of both idle.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from xdsl.dialects import memref
from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.gpu import FuncOp, LaunchFuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import SymbolTable

from ...dialect.mlir.nvvm_emitted import GRID_ACTION, GridDependencyOp
from ...dialect.warp.attention import AttentionGradientOp
from ...dialect.warp.op_shapes import is_pure
from ..linalg.operand import root
from ..patterns import constant_value
from .tiling import schedule_of


class _GradientLaunch(NamedTuple):
    """The launch of a kernel of gradients, and the memory that it reads or writes, and that it writes."""

    launch: LaunchFuncOp
    kernel: FuncOp
    memories: set[SSAValue]
    written: set[SSAValue]

    @staticmethod
    def of(launch: LaunchFuncOp, kernel: FuncOp) -> _GradientLaunch | None:
        """None for another kernel, for one by fragments, and for CTAs whose number only the call knows."""
        op = next((op for op in kernel.body.block.ops if isinstance(op, AttentionGradientOp)), None)
        if op is None or schedule_of(op).together == 1 or not constant_value(launch.gridSizeX):
            return None
        roots = [root(value) for value in launch.kernelOperands]
        written = {of for of, argument in zip(roots, kernel.body.block.args, strict=True) if argument in op.outputs}
        return _GradientLaunch(launch, kernel, set(roots), written)

    def is_apart(self, other: _GradientLaunch) -> bool:
        """Whether neither writes what the other reads or writes."""
        return self.written.isdisjoint(other.memories) and other.written.isdisjoint(self.memories)

    def may_follow(self, launch: LaunchFuncOp, kernel: FuncOp) -> bool:
        """Whether another launch before it may as well come first: it only loads what both have."""
        pairs = zip(map(root, launch.kernelOperands), kernel.body.block.args, strict=True)
        uses = (use for of, argument in pairs if of in self.memories for use in argument.uses)
        return all(isinstance(use.operation, memref.LoadOp) for use in uses)


def overlap(block: Block) -> None:
    """Lets launches of gradients in a block begin before the one ahead ends, if they do not depend on each other.

    A kernel lets the next one begin when all its CTAs have begun, and the next one waits at its end: what follows finds
    both finished. Launches between the two that look for keys of documents come first.
    """
    run = list[_GradientLaunch]()
    for op in list(block.ops):
        if isinstance(op, LaunchFuncOp):
            run = _with(run, op, cast("FuncOp", SymbolTable.lookup_symbol(op, op.kernel)))
        elif not is_pure(op) and not isinstance(op, memref.AllocOp | memref.DeallocOp):
            run = []


def _with(run: list[_GradientLaunch], launch: LaunchFuncOp, kernel: FuncOp) -> list[_GradientLaunch]:
    """The launches that may run at once when one more is launched."""
    made = _GradientLaunch.of(launch, kernel)
    if made is None:
        return run if all(each.may_follow(launch, kernel) for each in run) else []
    if not run or not all(made.is_apart(each) for each in run):
        return [made]
    between, first = run[-1].launch.next_op, run[0].launch
    while between is not None and between is not launch:
        op, between = between, between.next_op
        if not isinstance(op, memref.DeallocOp):
            op.detach()
            Rewriter.insert_op(op, InsertPoint.before(first))
    for each, kind in ((run[-1], "launch_dependents"), (made, "wait")):
        control = GridDependencyOp.create(properties={"kind": GRID_ACTION(StringAttr(kind))})
        body = each.kernel.body.block
        at = InsertPoint.at_start(body) if kind != "wait" else InsertPoint.before(cast("Operation", body.last_op))
        Rewriter.insert_op(control, at)
    return [*run, made]
