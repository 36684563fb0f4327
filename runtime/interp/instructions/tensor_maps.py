"""Tensor maps that a kernel makes of others: PTX ISA 9.7.9.27, 9.7.13.16.1.

The bytes are changed where they lie; whether other threads, or the asynchronous proxy, see it in time is not looked at.
"""

from __future__ import annotations

import numpy as np

from ....dialect.isa.descriptor import UNIT
from ....dialect.isa.tensor_map import MAP_ALIGNMENT, SIZE
from ....dialect.isa.tensor_map_edits import ORDERED, Edit, EditError, edits
from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.text.syntax import Immediate, Operand
from ..decode import Context, meaning
from ..errors import FaultError
from ..machine.memory import Part, check_writable
from ..machine.state import Action, State
from ..machine.threads import BoundStep, Selection
from ..observers.events import tell
from .access import Locate, locate, space_of
from .bulk import one_by_one


@meaning("tensor.replace")
def replace(ctx: Context, bound: Bindings) -> Action:
    """Another value for one field of a map in global or shared memory."""
    field = bound["FIELD"]
    where, *more = ctx.operands
    ordinal = ctx.integer(more.pop(0)) if field in ORDERED else 0
    _check(ctx, field, ordinal, more[0])
    place, value = locate(ctx, where, space_of(bound), None), ctx.source(more[0], bound["T"])

    def bind(state: State) -> BoundStep:
        find, values = place(state), value(state)

        def step(sel: Selection) -> None:
            for one, thread in one_by_one(sel):
                _aligned(find(one, UNIT)[0], thread)
                for edit in edits(field, ordinal, int(values[thread])):
                    _write(state, ctx.pc, find, one, edit)

        return step

    return bind


@meaning("tensor.replace later")
def replace_later(ctx: Context, bound: Bindings) -> Action:
    """Raises:
    DecodeError: always.
    """
    ctx.fail("the interpreter has the tensor maps of sm_90a, which have no such field or value")


def _check(ctx: Context, field: str, ordinal: int, value: Operand) -> None:
    try:
        edits(field, ordinal, ctx.integer(value) if isinstance(value, Immediate) else 0)
    except EditError as error:
        ctx.fail(str(error))


def _aligned(part: Part, thread: int) -> None:
    if int(part.index[0]) * UNIT % MAP_ALIGNMENT:
        raise FaultError(f"a tensor map lies at a multiple of {MAP_ALIGNMENT} bytes", thread)


def _write(state: State, pc: int, find: Locate, one: Selection, edit: Edit) -> None:
    (part,) = parts = find(one, 4, edit.byte)
    check_writable(parts)
    view = part.buffer.view(4)
    word = (view[part.index] & np.uint32(~edit.mask & 0xFFFFFFFF)) | np.uint32(edit.bits)
    tell(state.observer, pc, "load", parts, 4, one)
    tell(state.observer, pc, "store", parts, 4, one, word)
    view[part.index] = word


@meaning("tensor.copy map")
def copy(ctx: Context, bound: Bindings) -> Action:
    """A map from shared to global memory, once by each warp."""
    target, source, _ = ctx.operands
    put, take = locate(ctx, target, "global", None), locate(ctx, source, "shared", None)

    def bind(state: State) -> BoundStep:
        into, of = put(state), take(state)

        def step(sel: Selection) -> None:
            warps: set[int] = set()
            for one, thread in one_by_one(sel):
                if thread % state.warps in warps:
                    continue
                warps.add(thread % state.warps)
                for shift in range(0, SIZE, UNIT):
                    held, parts = of(one, UNIT, shift), into(one, UNIT, shift)
                    _aligned(into(one, UNIT)[0], thread)
                    check_writable(parts)
                    words = held[0].buffer.view(8, 2)[held[0].index]
                    tell(state.observer, ctx.pc, "load", held, UNIT, one)
                    tell(state.observer, ctx.pc, "store", parts, UNIT, one, words)
                    parts[0].buffer.view(8, 2)[parts[0].index] = words

        return step

    return bind
