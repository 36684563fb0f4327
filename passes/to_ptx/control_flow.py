"""Loops and barriers: `scf.for`, `gpu.barrier`, and the end of a kernel."""

from __future__ import annotations

from xdsl.dialects import gpu, scf
from xdsl.ir import Block, SSAValue

from .fragments import Fragment
from .kernel import KernelLowering
from .loops import only_use_is_here
from .operands import IndexValue
from .registry import lowers


@lowers(gpu.BarrierOp)
def _barrier(lowering: KernelLowering, op: gpu.BarrierOp) -> None:
    lowering.emitter.emit("bar.sync", 0)


@lowers(gpu.ReturnOp)
def _finish(lowering: KernelLowering, op: gpu.ReturnOp) -> None:
    lowering.emitter.emit("ret")


@lowers(scf.ForOp)
def _loop(lowering: KernelLowering, op: scf.ForOp) -> None:
    """A counted loop; its variables are registers that each turn sets anew."""
    lower, upper, step = lowering.indices((op.lb, op.ub, op.step))
    block, loops = op.body.block, lowering.loops
    initial = [_loop_variable(lowering, value, op) for value in op.iter_args]
    with lowering.emitter.loop():
        counter, variables = loops.enter(lower, step, initial)
        with loops.turns(counter, lower, upper, step, _what(block)):
            lowering.values |= dict(zip(block.args, (counter, *variables), strict=True))
            lowering.block(block)
            loops.next_turn(
                variables, [_yielded(lowering, v) for v in block.ops.last.operands] if block.ops.last else []
            )
    lowering.values |= dict(zip(op.results, loops.after(variables), strict=True))


def _yielded(lowering: KernelLowering, value: SSAValue) -> Fragment | IndexValue:
    held = lowering.values[value]
    return held if isinstance(held, list) else lowering.scalar(value)


def _loop_variable(lowering: KernelLowering, value: SSAValue, loop: scf.ForOp) -> Fragment | IndexValue:
    """The initial value; of a fragment, registers that the loop may overwrite."""
    held = _yielded(lowering, value)
    if isinstance(held, list) and not only_use_is_here(value, loop):
        fresh = lowering.fresh(value.type)
        lowering.fragments.copy(held, fresh)
        return fresh
    return held


def _what(body: Block) -> str:
    """What a loop counts, for a comment."""
    if any(isinstance(op, scf.ForOp) for op in body.ops):
        return "tile"
    return "part" if any(op.name == "warp.load_registers" for op in body.ops) else "K"


@lowers(scf.YieldOp)
def _yield(lowering: KernelLowering, op: scf.YieldOp) -> None:
    """The loop or branch around it says what becomes of it."""
