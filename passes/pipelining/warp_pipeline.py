"""`warp-pipeline`: which loops are pipelined, and why others stay as they are."""

from __future__ import annotations

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from ...dialect.effects import is_pure
from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import ScheduleAttr
from ..diagnostics import remark
from ..tile.index_builder import IndexBuilder, constant_value
from .copy_loop import CopyLoop, DeclinedError, copies_of, decline, read
from .pipeliner import Pipeliner


def _pipeline(loop: scf.ForOp, schedule: Schedule) -> None:
    """Pipelines one loop.

    Raises:
        DeclinedError: naming the operation for which it stays as it is.
    """
    source, tiles = read(loop), loop.parent_op()
    step, lower, upper = (constant_value(value) for value in (loop.step, loop.lb, loop.ub))
    if step is None or lower != 0:
        decline(loop, "its step must be a constant, and it must start at the constant 0")
    count = -(-(upper or 0) // step)
    if schedule.loop.unroll and (upper is None or not count or count % schedule.loop.unroll):
        decline(loop, f"unroll = {schedule.loop.unroll} takes a known multiple of as many turns")
    if not isinstance(tiles, scf.ForOp):
        index = IndexBuilder(Builder(InsertPoint.before(loop)))
        Pipeliner(source, schedule, index, step, count, schedule.loop.tiles_ahead).rewrite()
        return
    if not count:
        decline(loop, "in a loop over tiles it must have turns, of a number that is known")
    _check_tiles(source, tiles)
    index = IndexBuilder(Builder(InsertPoint.before(tiles)))
    Pipeliner(source, schedule, index, step, count, min(schedule.loop.tiles_ahead, count)).rewrite_tiles(tiles)


def _check_tiles(source: CopyLoop, tiles: scf.ForOp) -> None:
    """A loop around may go from tile to tile, when the next tile's copies can be started in the one before."""
    body = tiles.body.block
    if tiles.iter_args:
        decline(tiles, "the loop around hands on values, and the copies of a turn start in the one before")
    if any(isinstance(op, scf.ForOp) and op is not source.loop for op in body.ops):
        decline(tiles, "the loop around has another loop, and the copies of a turn start in the one before")
    wanted = [leaf for copy in source.copies for i in (copy.source, *copy.indices) for leaf in source.leaves(i)]
    while wanted:
        op = wanted.pop().owner
        if isinstance(op, Operation) and op.parent is body:
            if not is_pure(op):
                decline(op, f"copies of the next tile start before {op.name} of its turn")
            wanted += op.operands


class PipelinePass(ModulePass):
    """Pipelines loops that copy tiles to shared memory: copies run ahead of the products, in as many stages as the
    schedule says.

    It rewrites loops that copy tiles, wait at a barrier, and compute with fragments of them, such as those of
    `warp-tile`. It does not change other loops; `warploom-opt --remarks` says why.
    """

    name = "warp-pipeline"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for kernel in [o for o in op.walk() if isinstance(o, gpu.FuncOp)]:
            loops = [o for o in kernel.walk() if isinstance(o, scf.ForOp) and copies_of(o)]
            schedule = kernel.attributes.get(ScheduleAttr.name)
            for loop in loops:
                try:
                    if not isinstance(schedule, ScheduleAttr):
                        decline(loop, f"the kernel has no {ScheduleAttr.name}, which says how many stages there are")
                    if schedule.data.loop.stages == 1:
                        decline(loop, "stages = 1, so that no copy can run ahead")
                    _pipeline(loop, schedule.data)
                except DeclinedError as declined:
                    remark(declined.op, self.name, f"copies do not run ahead: {declined.reason}")
