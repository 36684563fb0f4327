"""Asynchronous copies of many bytes by one thread: PTX ISA 9.7.9.25.4, without tensors.

The source is read when the copy is issued. What arrives at an mbarrier is seen when that is looked at, which is as late
as it may be; what goes to global memory is there at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...dialect.ptx.rows.grammar import Bindings
from .access import Locate, locate, order
from .atomics import combining
from .decode import Context, meaning
from .errors import FaultError
from .mbarrier import objects
from .memory import Buffer, check_writable
from .observer import Access, Kind
from .state import Action, Array, Selection, State, Step
from .words import Modifiers

_UNIT = 16
"""Addresses and sizes are multiples of it."""


@meaning("cp.reduce.bulk")
def reduce_bulk(ctx: Context, bound: Bindings) -> Action:
    """`cp.reduce.async.bulk` into global memory: each word of the source is combined with one there."""
    operation, type = bound["OP"], bound["T"]
    target, source, size = ctx.operands[:3]
    if operation in ("min", "max") and type in ("f16", "bf16"):
        ctx.fail(f".{operation}.{type} is not supported")
    put, take = locate(ctx, target, "global", None), locate(ctx, source, "shared", None)
    sizes, pc = ctx.source(size, "u32"), ctx.pc
    seen, update = combining(operation, type, type == "f32")

    def bind(state: State) -> Step:
        destination, start, lengths = put(state), take(state), sizes(state)

        def step(sel: Selection) -> None:
            for one, length in _each(sel, lengths):
                data, at = _span(start, one, length, state, pc, "load")
                buffer, first = _span(destination, one, length, state, pc, "atomic")
                check_writable(destination(one, _UNIT))
                words = data.data[at : at + length].view(seen)
                into = buffer.data[first : first + length].view(seen)
                into[:] = update(into.copy(), words.copy(), words)

        return step

    return bind


def _each(sel: Selection, lengths: Array) -> Iterator[tuple[Selection, int]]:
    """The threads one by one, with what they copy, if that is anything.

    Raises:
        FaultError: for a size that is no multiple of 16 bytes.
    """
    for thread in (np.arange(sel.total) if sel.lanes is None else sel.lanes).tolist():
        length = int(lengths[thread])
        if length % _UNIT:
            raise FaultError(f"expected a size that is a multiple of {_UNIT}, got {length}", thread)
        if length:
            yield Selection(np.arange(sel.total) == thread, sel.total), length


def bulk(ctx: Context, m: Modifiers) -> Action:
    """`cp.async.bulk` and its groups; `bulk` is taken."""
    if m.one("commit_group"):
        ctx.take(0)
        return lambda state: lambda sel: None
    if m.one("wait_group"):
        m.one("read")
        ctx.integer(ctx.take(1)[0])
        return lambda state: lambda sel: None
    if m.words[:1] in (["tensor"], ["prefetch"]):
        ctx.fail("tensor copies and prefetches are not supported")
    to, origin = m.expect("shared::cluster", "shared::cta", "global"), m.expect("global", "shared::cta")
    arrives = m.expect("mbarrier::complete_tx::bytes", "bulk_group") != "bulk_group"
    if arrives == (to == "global"):
        ctx.fail("copies to shared memory complete at an mbarrier, those to global memory in a bulk group")
    policy = order(m)
    target, source, size, *rest = ctx.take(3 + arrives + policy)
    target_space = {"shared::cluster": "cluster", "shared::cta": "shared"}.get(to, to)
    put = locate(ctx, target, target_space, None)
    take = locate(ctx, source, "global" if origin == "global" else "shared", None)
    sizes = ctx.source(size, "u32")
    place = objects(ctx, rest[0], target_space) if arrives else None
    pc = ctx.pc

    def bind(state: State) -> Step:
        destination, start, lengths = put(state), take(state), sizes(state)
        barrier = place(state) if place else None

        def step(sel: Selection) -> None:
            for one, length in _each(sel, lengths):
                data, at = _span(start, one, length, state, pc, "load")
                rows = data.data[at : at + length].copy()
                buffer, first = _span(destination, one, length, state, pc, "copy" if arrives else "store")
                if barrier is None:
                    check_writable(destination(one, _UNIT))
                    buffer.data[first : first + length] = rows
                else:
                    state.mbarriers.complete_later(barrier(one), one, buffer, first, rows)

        return step

    return bind


def _span(find: Locate, one: Selection, length: int, state: State, pc: int, kind: Kind) -> tuple[Buffer, int]:
    """Where the bytes of one thread begin; the last must be there as well as the first."""
    (first,), (last,) = find(one, _UNIT), find(one, _UNIT, length - _UNIT)
    start = int(first.index[0]) * _UNIT
    if state.observer is not None:
        starts = np.arange(start, start + length, _UNIT)
        threads: Array = np.full(starts.size, one.lanes)
        state.observer.access(Access(pc, kind, last.buffer, starts, _UNIT, threads))
    return first.buffer, start
