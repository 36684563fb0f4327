"""Control flow and fences: PTX ISA 9.7.12 and 9.7.13.4."""

from __future__ import annotations

import numpy as np

from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.text.syntax import Address
from ..decode import Context, meaning
from ..errors import FaultError
from ..machine.state import Action, State
from ..machine.threads import BoundStep, Selection
from .calls import return_


@meaning("bra")
def bra(ctx: Context, bound: Bindings) -> Action:
    """To a label. The machine splits the threads where a guard holds for some only."""
    (label,) = ctx.operands
    target = ctx.label(label)
    return lambda state: lambda sel: target


@meaning("ret", "exit")
def leave(ctx: Context, bound: Bindings) -> Action:
    """The end of these threads, or of a function."""
    if ctx.frame is not None and ctx.row.root == "ret":
        return return_(ctx, ctx.frame)
    return lambda state: state.flow.exit


@meaning("trap")
def trap(ctx: Context, bound: Bindings) -> Action:
    """Ends the launch with an error."""

    def bind(state: State) -> BoundStep:
        def step(sel: Selection) -> int | None:
            thread = _first(sel)
            raise FaultError(f"the kernel executed a trap, thread {state.geometry.thread_index(thread)}", thread)

        return step

    return bind


@meaning("brkpt", "membar", "fence")
def in_order_already(ctx: Context, bound: Bindings) -> Action:
    """Steps happen one after the other, so fences have nothing to do; of some, who looks on wants the address."""
    for operand in ctx.operands:
        if isinstance(operand, Address):
            ctx.address(operand, np.uint64)
    return lambda state: lambda sel: None


def _first(sel: Selection) -> int:
    lanes = sel.lanes
    return 0 if lanes is None else int(lanes[0])
