"""Functions and jumps through tables: PTX ISA 7.1, 9.7.12.4 to .6.

A function stands once in the code of each kernel that calls it, with registers and memory of its own in every thread:
as none calls itself, a thread is in a function once at most. A hidden register holds where the thread goes back to.
Functions stand before their callers, so that threads that went in are done before those that did not go further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ...dialect.ptx.syntax import Function, Instruction, Operand, Scope, Statement, Symbol, Vector
from .builtins import BUILTINS
from .builtins import call as builtin
from .decode import Context, Formal, Frame, Place, Slot, describe, opcode
from .errors import DecodeError, FaultError
from .memory import rows
from .state import LEFT, Action, Array, Selection, Source, State, Step
from .words import DTYPES, Modifiers

RETURN = "call.return"
"""The second part of a call: what the function returns is copied."""

Move: TypeAlias = Callable[[State], Callable[[Selection], None]]


class CallError(DecodeError):
    """What is wrong with a call, and which it is."""

    def __init__(self, call: Instruction, message: str) -> None:
        super().__init__(f"{call.opcode}: {message}")
        self.call = call


def in_order(kernel: Function, functions: Mapping[str, Function]) -> list[Function]:
    """The functions that a kernel calls, directly or not, callees first.

    Raises:
        CallError: for a function that is not there, or that calls itself.
    """
    done: list[Function] = []
    _visit(kernel, functions, (), done)
    return done[:-1]


def _visit(function: Function, functions: Mapping[str, Function], path: tuple[str, ...], done: list[Function]) -> None:
    path = (*path, function.name)
    for call in _calls(function.body or ()):
        callee = _name(call)
        if callee is None:
            raise CallError(call, "a call through a register is not supported")
        if callee in path:
            raise CallError(call, f"recursion is not supported ({' -> '.join((*path, callee))})")
        if callee not in functions and callee in BUILTINS:
            continue
        if callee not in functions:
            raise CallError(call, f"function '{callee}' has no body in this module")
        if functions[callee].entry:
            raise CallError(call, f"'{callee}' is a kernel; only functions can be called")
        if functions[callee] not in done:
            _visit(functions[callee], functions, path, done)
    done.append(function)


def _calls(body: Sequence[Statement]) -> Iterator[Instruction]:
    for statement in body:
        if isinstance(statement, Scope):
            yield from _calls(statement.body)
        elif isinstance(statement, Instruction) and statement.opcode.partition(".")[0] == "call":
            yield statement


def _name(call: Instruction) -> str | None:
    """The function a call names."""
    first = [o for o in call.operands[:2] if not isinstance(o, Vector)][:1]
    return first[0].name if first and isinstance(first[0], Symbol) else None


def has_results(call: Instruction) -> bool:
    """Whether there is something to copy when a function is done."""
    return bool(call.operands) and isinstance(call.operands[0], Vector) and bool(call.operands[0].items)


# Instructions


def _parts(ctx: Context) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """The results and the arguments of `(results), name, (arguments)`, of which each list may be missing."""
    lists = [o if isinstance(o, Vector) else None for o in ctx.operands]
    results = lists[0] if lists and lists[0] is not None else Vector(())
    at = int(bool(lists) and lists[0] is not None)
    arguments = lists[at + 1] if len(lists) == at + 2 else Vector(())
    if arguments is None or not at < len(lists) <= at + 2:
        ctx.fail("expected (results), a function of this module and (arguments)")
    return results.items, arguments.items


def _check_counts(ctx: Context, frame: Frame, results: Sequence[Operand], arguments: Sequence[Operand]) -> None:
    """Refuses more or fewer than the function has."""
    for what, formals, given in (
        ("arguments", frame.parameters, arguments),
        ("results", frame.results, results),
    ):
        if len(formals) != len(given):
            ctx.fail(f"{frame.name} has {len(formals)} {what}, got {len(given)}")


@opcode("call")
def call(ctx: Context, m: Modifiers) -> Action:
    """Copies the arguments and goes to the function; afterwards, copies its results."""
    results, arguments = _parts(ctx)
    returns, name = m.one("return"), _name(ctx.instruction) or ""
    m.drop("uni")
    frame = ctx.frames.get(name)
    if frame is None and name in BUILTINS:
        return (lambda state: lambda sel: None) if returns else builtin(ctx, name, results, arguments)
    if frame is None:
        ctx.fail("expected (results), a function of this module and (arguments)")
    _check_counts(ctx, frame, results, arguments)
    if returns:
        moves = [_out(ctx, formal, o) for formal, o in zip(frame.results, results, strict=True)]
        return _all(moves, None, 0)
    moves = [_into(ctx, formal, o) for formal, o in zip(frame.parameters, arguments, strict=True)]
    return _all(moves, frame, ctx.pc + 1)


def _all(moves: Sequence[Move], frame: Frame | None, following: int) -> Action:
    def bind(state: State) -> Step:
        bound = [move(state) for move in moves]
        back = None if frame is None else state.banks[32][frame.back.index]

        def step(sel: Selection) -> int | None:
            for move in bound:
                move(sel)
            if frame is None or back is None:
                return None
            back[... if sel.mask is None else sel.lanes] = following
            return frame.entry

        return step

    return bind


def return_(frame: Frame) -> Action:
    """Back to the callers."""

    def bind(state: State) -> Step:
        back, flow = state.banks[32][frame.back.index], state.flow

        def step(sel: Selection) -> int:
            targets = np.unique(sel.pick(back))
            if targets.size == 1:
                return int(targets[0])
            for target in targets:
                flow.go(int(target), flow.mask(sel.where(back == target)))
            return LEFT

        return step

    return bind


def _into(ctx: Context, formal: Formal, actual: Operand) -> Move:
    """An argument: from a variable or a value to where the function finds it."""
    if formal.slot is not None:
        ctx.writes.append(formal.slot)
        return _move_values(ctx.source(actual, formal.variable.type), _register(formal.slot, formal.variable.type))
    place = _argument(ctx, formal, actual)
    if place is None:
        return _store(ctx.source(actual, f"b{8 * formal.size}"), formal)
    return _copy(place, formal.place, formal.size)


def _out(ctx: Context, formal: Formal, actual: Operand) -> Move:
    """A result: from where the function left it to a variable or a register."""
    if formal.slot is not None:
        ctx.reads.append(formal.slot)
        return _move_values(_register(formal.slot, formal.variable.type), ctx.dest(actual, formal.variable.type))
    place = _argument(ctx, formal, actual)
    if place is None:
        return _load(formal, ctx.dest(actual, f"b{8 * formal.size}"))
    return _copy(formal.place, place, formal.size)


def _argument(ctx: Context, formal: Formal, actual: Operand) -> Place | None:
    """The `.param` variable that stands for a parameter; None for a register or a literal."""
    place = ctx.names.place(actual.name) if isinstance(actual, Symbol) and actual.name != "_" else None
    if place is not None and (not place.size or place.size != formal.size):
        what = f"{place.size} bytes" if place.size else "something else"
        ctx.fail(f"expected a .param variable of {formal.size} bytes for {formal.variable.name}, got {what}")
    if place is None and formal.size not in (1, 2, 4, 8):
        ctx.fail(
            f"expected a .param variable of {formal.size} bytes for {formal.variable.name}, got {describe(actual)}"
        )
    return place


def _register(slot: Slot, type: str) -> Source:
    return lambda state: state.banks[slot.bits][slot.index].view(DTYPES[type])


def _move_values(source: Source, dest: Source) -> Move:
    def bind(state: State) -> Callable[[Selection], None]:
        values, out = source(state), dest(state)
        return lambda sel: sel.put(out, sel.pick(values))

    return bind


def _rows(state: State, place: Place | None, size: int) -> Array:
    return rows(state.memory.local, place.address(state) if place else 0, size)


def _copy(origin: Place | None, target: Place | None, size: int) -> Move:
    def bind(state: State) -> Callable[[Selection], None]:
        source, out = _rows(state, origin, size), _rows(state, target, size)
        return lambda sel: sel.put(out, sel.pick(source))

    return bind


def _store(source: Source, formal: Formal) -> Move:
    def bind(state: State) -> Callable[[Selection], None]:
        values, out = source(state), _rows(state, formal.place, formal.size)
        return lambda sel: sel.put(out, sel.pick(values).copy().view(np.uint8).reshape(-1, formal.size))

    return bind


def _load(formal: Formal, dest: Source) -> Move:
    def bind(state: State) -> Callable[[Selection], None]:
        out, source = dest(state), _rows(state, formal.place, formal.size)
        return lambda sel: sel.put(out, sel.pick(source).copy().view(out.dtype).reshape(-1))

    return bind


@opcode("brx")
def jump(ctx: Context, m: Modifiers) -> Action:
    """To one of several labels."""
    m.expect("idx")
    m.drop("uni")
    index, table = ctx.take(2)
    names = ctx.names.table(table.name) if isinstance(table, Symbol) else None
    if not names:
        ctx.fail(f"expected a label of .branchtargets, got {describe(table)}")
    targets = [ctx.label(Symbol(name)) for name in names]
    source = ctx.source(index, "u32")

    def bind(state: State) -> Step:
        values, flow = source(state), state.flow

        def step(sel: Selection) -> int:
            chosen = np.unique(sel.pick(values))
            if int(chosen[-1]) >= len(targets):
                beyond = sel.where(values >= len(targets)).lanes
                message = f"expected an index from 0 to {len(targets) - 1}, got {int(chosen[-1])}"
                raise FaultError(message, 0 if beyond is None else int(beyond[0]))
            if chosen.size == 1:
                return targets[int(chosen[0])]
            for one in chosen:
                flow.go(targets[int(one)], flow.mask(sel.where(values == one)))
            return LEFT

        return step

    return bind
