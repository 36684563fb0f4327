"""Asynchronous copies to shared memory: PTX ISA 9.7.9.25.3.

The source is read when the copy is issued; the bytes appear in shared memory when their group is waited for. Until
then a thread that reads the destination sees what was there before.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.text.syntax import Not, Operand, Register
from ...numerics.array import Array
from ..decode import Context, meaning
from ..errors import FaultError
from ..machine.memory import Part
from ..machine.state import Action, State
from ..machine.threads import BoundStep, Selection
from .access import Locate, locate


@meaning("cp.async.commit_group")
def commit_group(ctx: Context, bound: Bindings) -> Action:
    """Closes the open group."""
    return lambda state: lambda sel: state.copies.commit(sel)


@meaning("cp.async.wait_group")
def wait_group(ctx: Context, bound: Bindings) -> Action:
    """Completes all groups but the latest."""
    keep = ctx.integer(ctx.operands[0])
    return lambda state: lambda sel: state.copies.wait(sel, keep)


@meaning("cp.async.wait_all")
def wait_all(ctx: Context, bound: Bindings) -> Action:
    """Completes every copy."""
    return lambda state: lambda sel: state.copies.wait(sel, None)


@meaning("cp.async")
def copy(ctx: Context, bound: Bindings) -> Action:
    """4, 8 or 16 bytes, of which fewer may be read; the rest is zeros. A cache policy may follow."""
    operands = ctx.operands[: -1 if bound["H"] else None]
    size = ctx.integer(operands[2])
    given = _source_size(ctx, operands[3], size) if len(operands) == 4 else None
    target, origin = locate(ctx, operands[0], "shared", "copy"), locate(ctx, operands[1], "global", "load")
    width, count = (size, 1) if size < 16 else (8, 2)

    def bind(state: State) -> BoundStep:
        to, take = target(state), origin(state)
        sizes = given(state) if given else None

        def step(sel: Selection) -> None:
            (part,) = to(sel, size)
            rows = np.zeros((part.index.size, count), f"u{width}")
            if sizes is None:
                _read(rows.reshape(-1, count), take(sel, size), width, count, None)
            else:
                _read_some(rows, take, sel, sizes(), size)
            state.copies.add(part.buffer, part.index, rows, sel)

        return step

    return bind


def _source_size(ctx: Context, operand: Operand, size: int) -> Callable[[State], Callable[[], Array]]:
    """How many bytes each thread reads: as given, or none where a predicate says to ignore the source."""
    register = operand.register if isinstance(operand, Not) else operand
    if not isinstance(register, Register) or ctx.slot(register).bits != 1:
        given = ctx.source(operand, "u32")

        def as_given(state: State) -> Callable[[], Array]:
            values = given(state)
            return lambda: values

        return as_given
    source, negated = ctx.predicate(operand)

    def bind(state: State) -> Callable[[], Array]:
        ignored = source(state)
        return lambda: np.where(ignored ^ negated, np.uint32(0), np.uint32(size))

    return bind


def _read(rows: Array, parts: tuple[Part, ...], width: int, count: int, places: Array | None) -> None:
    """Fills rows, or those at `places`."""
    for part in parts:
        chosen = part.chosen if places is None else places if part.chosen is None else places[part.chosen]
        values = part.buffer.view(width, count).take(part.index, axis=0).reshape(-1, count)
        rows[... if chosen is None else chosen] = values


def _read_some(rows: Array, take: Locate, sel: Selection, sizes: Array, size: int) -> None:
    """Reads only the first bytes of some sources; the rest stays zero. What is not read may lie anywhere."""
    picked = sel.pick(sizes)
    if int(picked.max(initial=0)) > size:
        first = int(np.flatnonzero(picked > size)[0])
        thread = first if sel.lanes is None else int(sel.lanes[first])
        raise FaultError(f"cp.async reads {int(picked[first])} bytes, more than the {size} it writes", thread)
    whole = sel.where(sizes == size)
    _read(rows, take(whole, size), rows.itemsize, rows.shape[1], np.flatnonzero(picked == size))
    some = np.flatnonzero((picked > 0) & (picked < size))
    if some.size:
        data = rows.view(np.uint8)
        for byte in range(int(picked[some].max())):
            places = np.flatnonzero((picked > byte) & (picked < size))
            _read(data[:, byte : byte + 1], take(sel.where((sizes > byte) & (sizes < size)), 1, byte), 1, 1, places)
