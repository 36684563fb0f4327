"""`alloca` and what goes with it: PTX ISA 9.7.17."""

from __future__ import annotations

import numpy as np

from ....dialect.ptx.rows.grammar import Bindings
from ..decode import Context, meaning
from ..machine.stacks import LEAST, grow, stack_pointer
from ..machine.state import Action, State
from ..machine.threads import BoundStep, Selection


@meaning("alloca")
def alloca(ctx: Context, bound: Bindings) -> Action:
    """Bytes of the stack, which the function gives back when it returns."""
    type, operands = bound["T"], ctx.operands
    alignment = ctx.integer(operands[2]) if len(operands) == 3 else 8
    if alignment <= 0 or alignment & (alignment - 1):
        ctx.fail(f"expected an alignment that is a power of two, got {alignment}")
    dest, sizes, layout = ctx.dest(operands[0], type), ctx.source(operands[1], type), ctx.layout
    layout.stack()

    def bind(state: State) -> BoundStep:
        out, values, pointer = dest(state), sizes(state), stack_pointer(state.banks, layout)

        def step(sel: Selection) -> None:
            lanes = sel.threads
            base = np.uint64(layout.stack_base)
            begin = pointer[lanes] + base
            gap = (np.uint64(0) - begin) % np.uint64(alignment)
            wanted = gap + -(-sel.pick(values).astype(np.int64) // LEAST * LEAST).astype(np.uint64)
            sel.put(out, grow(pointer, lanes, wanted) + base + gap)

        return step

    return bind


@meaning("stacksave", "stackrestore")
def stack_pointer_moved(ctx: Context, bound: Bindings) -> Action:
    """How far the stack is used, and the stack as it was when that was saved."""
    (operand,), type, layout = ctx.operands, bound["T"], ctx.layout
    saves = ctx.row.root == "stacksave"
    place = ctx.dest(operand, type) if saves else ctx.source(operand, type)
    layout.stack()

    def bind(state: State) -> BoundStep:
        values, pointer = place(state), stack_pointer(state.banks, layout)
        if saves:
            return lambda sel: sel.put(values, sel.pick(pointer))
        return lambda sel: sel.put(pointer, sel.pick(values))

    return bind
