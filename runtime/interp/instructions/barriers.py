"""Barriers of a CTA, a warp and a cluster: PTX ISA 9.7.13.1 to .3."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NoReturn

import numpy as np

from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.text.syntax import Immediate, Operand
from ...numerics.array import Array
from ..decode import Context, meaning
from ..errors import FaultError
from ..machine.flow import Complete
from ..machine.state import Action, Source, State
from ..machine.threads import LANES, LEFT, BoundStep, Selection

_MOST = 15


@meaning("bar.sync")
def bar_sync(ctx: Context, bound: Bindings) -> Action:
    """Threads come to a barrier of the CTA, and wait for the others."""
    return _arrival(ctx, ctx.operands, True, None)


@meaning("bar.arrive")
def bar_arrive(ctx: Context, bound: Bindings) -> Action:
    """Threads come to a barrier of the CTA, and go on."""
    return _arrival(ctx, ctx.operands, False, None)


@meaning("bar.red")
def bar_red(ctx: Context, bound: Bindings) -> Action:
    """A question to all threads of the barrier, which all get the answer."""
    d, *operands, c = ctx.operands
    source, negated = ctx.predicate(c)
    return _arrival(ctx, operands, True, _Answer(bound["O"], ctx.dest(d, bound["T"]), source, negated))


class _Answer:
    """What `bar.red` writes when the barrier is complete."""

    def __init__(self, mode: str, dest: Source, source: Source, negated: bool) -> None:
        self.mode = mode
        self.dest = dest
        self.source = source
        self.negated = negated

    def bind(self, state: State) -> Complete:
        """What to do with the mask of all that arrived."""
        out, values, cta, ctas = self.dest(state), self.source(state), state.geometry.cta(), state.geometry.ctas

        def complete(arrived: Array) -> None:
            yes = np.bincount(cta[arrived & (values ^ self.negated)], minlength=ctas)
            everyone = np.bincount(cta[arrived], minlength=ctas)
            answer = {"popc": yes, "and": yes == everyone, "or": yes > 0}[self.mode]
            out[arrived] = answer[cta[arrived]]

        return complete


def _arrival(ctx: Context, operands: Sequence[Operand], wait: bool, answer: _Answer | None) -> Action:
    """Threads come to a barrier: operands are its number and how many threads it takes."""
    number = ctx.source(operands[0], "u32")
    if len(operands) == 2 and isinstance(operands[1], Immediate):
        _check_count(ctx.integer(operands[1]), ctx.fail)
    count = ctx.source(operands[1], "u32") if len(operands) == 2 else None
    pc = ctx.pc

    def bind(state: State) -> BoundStep:
        flow, numbers = state.flow, number(state)
        counts = None if count is None else count(state)
        complete = answer.bind(state) if answer else None

        def step(sel: Selection) -> int | None:
            parts = list(_alike(sel, numbers, counts))
            if len(parts) == 1:
                part, one, expected = parts[0]
                return flow.arrive(part, one, pc, expected, wait, complete)
            for part, one, expected in parts:
                if flow.arrive(part, one, pc, expected, wait, complete) is None:
                    flow.go(pc + 1, flow.mask(part))
            return LEFT

        return step

    return bind


def _alike(sel: Selection, numbers: Array, counts: Array | None) -> Iterator[tuple[Selection, int, int]]:
    """Threads that name the same barrier and the same number of threads, with both."""
    for one in _values(sel, numbers):
        if one > _MOST:
            _fault(sel.where(numbers == one), f"expected a barrier from 0 to {_MOST}, got {one}")
        part = sel if _same(sel, numbers) else sel.where(numbers == one)
        if counts is None:
            yield part, one, 0
            continue
        for count in _values(part, counts):
            some = part if _same(part, counts) else part.where(counts == count)
            _check_count(count, partial(_fault, some))
            yield some, one, count


def _check_count(count: int, fail: Callable[[str], NoReturn]) -> None:
    if count <= 0 or count % LANES:
        fail(f"expected a number of threads that is a positive multiple of {LANES}, got {count}")


def _fault(sel: Selection, message: str) -> NoReturn:
    raise FaultError(message, _first(sel))


def _same(sel: Selection, values: Array) -> bool:
    picked = sel.pick(values)
    return bool((picked == picked[0]).all())


def _values(sel: Selection, values: Array) -> list[int]:
    picked = sel.pick(values)
    return [int(picked[0])] if _same(sel, values) else [int(v) for v in np.unique(picked)]


@meaning("barrier.cluster.arrive")
def cluster_arrive(ctx: Context, bound: Bindings) -> Action:
    """These threads come to the cluster's barrier, and go on."""
    return lambda state: state.cluster_barrier.arrive


@meaning("barrier.cluster.wait")
def cluster_wait(ctx: Context, bound: Bindings) -> Action:
    """These threads wait until all of the cluster have come."""
    pc = ctx.pc

    def bind(state: State) -> BoundStep:
        barrier = state.cluster_barrier
        return lambda sel: barrier.wait(sel, pc)

    return bind


def _first(sel: Selection) -> int:
    return 0 if sel.lanes is None else int(sel.lanes[0])
