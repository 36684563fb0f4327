"""Actions of instructions that compute each thread's result from that thread's operands alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeAlias, cast

import numpy as np

from ....dialect.isa.row import Bindings
from ...numerics.array import Array
from ...numerics.floats import ArrayFunction
from ..machine.decode import Context, meaning
from ..machine.events import BoundStep, Selection
from ..machine.state import Action, Source, State

Computation: TypeAlias = Callable[[Context, Bindings], ArrayFunction]
"""What an instruction computes: a function of its operands, each as an array of the type that the row gives it."""


def computes(*names: str) -> Callable[[Computation], Computation]:
    """Enters the computation of the rows of these names, as `meaning` enters an action. The row says which operands
    there are and of which types; the result is cast to the type of the first, which is written."""

    def enter(computation: Computation) -> Computation:
        @meaning(*names)
        @wraps(computation)
        def action(ctx: Context, bound: Bindings) -> Action:
            dest, *sources = operands(ctx, bound)
            return elementwise(computation(ctx, bound), dest, *sources)

        return computation

    return enter


def operands(ctx: Context, bound: Bindings) -> list[Source]:
    """The operands, as the row says: what they are, and of which types."""
    sources: list[Source] = []
    for slot, operand in zip(ctx.row.signature(bound, len(ctx.operands)), ctx.operands, strict=False):
        take = ctx.dest if slot.written else ctx.source
        sources += [take(item, slot.type, wide=slot.wider) for item in ctx.items(operand)]
    return sources


def elementwise(function: ArrayFunction, dest: Source, *sources: Source) -> Action:
    """dest = function(*sources) for each selected thread. Others may be computed too, but are not written."""

    def bind(state: State) -> BoundStep:
        out = dest(state)
        values = [source(state) for source in sources]
        compute = cast(Callable[..., Any], function)
        whole = _whole(compute, out, values)

        def step(sel: Selection) -> None:
            if sel.mask is None:
                whole()
            elif sel.sparse:
                out[sel.lanes] = compute(*[v[sel.lanes] for v in values])
            else:
                np.copyto(out, compute(*values), where=sel.mask, casting="unsafe")

        return step

    return bind


def _whole(function: Callable[..., Any], out: Array, values: list[Array]) -> Callable[[], None]:
    """The operation on all threads, with as little around it as possible."""
    kinds = [v.dtype for v in values]
    if isinstance(function, np.ufunc) and all(k == out.dtype for k in kinds):
        # By keyword: minimum and maximum take no positional third argument from numpy 2.5 on.
        return lambda: function(*values, out=out)
    if len(values) == 1:
        (only,) = values
        return lambda: np.copyto(out, function(only), casting="unsafe")
    return lambda: np.copyto(out, function(*values), casting="unsafe")


def several(function: ArrayFunction, dests: Sequence[Source], *sources: Source) -> Action:
    """The same with several results, all computed before any is written."""

    def bind(state: State) -> BoundStep:
        outs = [dest(state) for dest in dests]
        values = [source(state) for source in sources]
        compute = cast(Callable[..., tuple[Any, ...]], function)

        def step(sel: Selection) -> None:
            results = compute(*[sel.pick(v) for v in values])
            for out, result in zip(outs, results, strict=True):
                sel.put(out, result)

        return step

    return bind


def identity(value: Array) -> Array:
    """What a move computes."""
    return value
