"""Addresses of shared memory in a cluster of CTAs: PTX ISA 9.7.9.23 and .24."""

from __future__ import annotations

import numpy as np

from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.text.syntax import Symbol
from ....dialect.ptx.types import bits_of
from ...numerics.array import Array
from ..decode import Context, meaning
from ..errors import FaultError
from ..machine.memory import RANK_BITS, SHARED_WINDOW
from ..machine.state import Action, State
from ..machine.threads import BoundStep, Selection


@meaning("mapa")
def mapa(ctx: Context, bound: Bindings) -> Action:
    """The address of a shared variable in another CTA of the cluster."""
    generic, type = not bound["P"], bound["T"]
    d, a, rank = ctx.operands
    if generic and isinstance(a, Symbol):
        ctx.fail("expected a generic address in a 64-bit register; others are for .shared::cluster")
    dest, source, ranks = ctx.dest(d, type), ctx.source(a, type), ctx.source(rank, "u32")
    word = np.dtype(f"u{bits_of(type) // 8}")

    def bind(state: State) -> BoundStep:
        out, values, numbers = dest(state), source(state), ranks(state)
        most = state.geometry.cluster_size

        def step(sel: Selection) -> None:
            address, number = sel.pick(values).view(word).astype(np.uint64), sel.pick(numbers).astype(np.uint64)
            _check_rank(number, most, sel)
            window = np.uint64(SHARED_WINDOW if generic else 0)
            if generic and not np.all(_in_shared(address)):
                _fail_first(~_in_shared(address), sel, "expected an address of shared memory, got {:#x}", address)
            plain = address - window & np.uint64((1 << RANK_BITS) - 1)
            sel.put(out, window + plain + (number << np.uint64(RANK_BITS)))

        return step

    return bind


@meaning("getctarank")
def getctarank(ctx: Context, bound: Bindings) -> Action:
    """The rank of the CTA whose shared memory an address is of."""
    generic, type = not bound["P"], bound["T"]
    d, a = ctx.operands
    dest, source = ctx.dest(d, "u32"), ctx.source(a, type)
    word = np.dtype(f"u{bits_of(type) // 8}")

    def bind(state: State) -> BoundStep:
        out, values = dest(state), source(state)

        def step(sel: Selection) -> None:
            address = sel.pick(values).view(word).astype(np.uint64)
            if generic and not np.all(_in_shared(address)):
                _fail_first(~_in_shared(address), sel, "expected an address of shared memory, got {:#x}", address)
            sel.put(out, address - np.uint64(SHARED_WINDOW if generic else 0) >> np.uint64(RANK_BITS))

        return step

    return bind


def _in_shared(address: Array) -> Array:
    return address >> np.uint64(32) == np.uint64(SHARED_WINDOW >> 32)


def _check_rank(number: Array, most: int, sel: Selection) -> None:
    if int(number.max(initial=0)) >= most:
        _fail_first(number >= most, sel, f"expected a CTA from 0 to {most - 1} of the cluster, got {{}}", number)


def _fail_first(bad: Array, sel: Selection, message: str, values: Array) -> None:
    first = int(np.flatnonzero(bad)[0])
    raise FaultError(message.format(int(values[first])), first if sel.lanes is None else int(sel.lanes[first]))
