"""Asynchronous copies of many bytes by one thread: PTX ISA 9.7.9.25.4, without tensors.

The source is read when the copy is issued. What arrives at an mbarrier is seen when that is looked at, which is as late
as it may be; what goes to global memory is there at once.
"""

from __future__ import annotations

import numpy as np

from .access import Locate, locate, order
from .decode import Context
from .errors import FaultError
from .mbarrier import objects
from .memory import Buffer, check_writable
from .observer import Access, Kind
from .state import Action, Array, Selection, State, Step
from .words import Modifiers

_UNIT = 16
"""Addresses and sizes are multiples of it."""


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
            for thread in (np.arange(sel.total) if sel.lanes is None else sel.lanes).tolist():
                one = Selection(np.arange(sel.total) == thread, sel.total)
                length = int(lengths[thread])
                if length % _UNIT:
                    raise FaultError(f"expected a size that is a multiple of {_UNIT}, got {length}", thread)
                if not length:
                    continue
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
