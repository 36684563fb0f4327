"""Functions, of the module and of the driver, and jumps through tables: PTX ISA 7.1, 9.7.12.4 to .6.

A function stands once in the code of each kernel that calls it, with registers and memory of its own in every thread;
one that may be called while it runs saves them on a stack. A hidden register holds where the thread goes back to.
Functions stand before their callers, so that threads that went in are done before those that did not go further.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NoReturn, TypeAlias

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.ptx.instructions import find
from ....dialect.ptx.text.syntax import CallParts, Operand, Register, Symbol, operand_text
from ...numerics.floats import Array
from .decode import DTYPES, Context, Formal, Frame, VariablePlace, meaning
from .events import BoundStep, Selection
from .memory import ARGUMENTS, FaultError, read_parts, thread_of
from .state import (
    Action,
    CallStack,
    PrintValue,
    RegisterSlot,
    Source,
    State,
    StorageLayout,
    acting,
    all_of,
    arguments,
    parse,
    show,
)

# Functions of the driver: `vprintf`, `__assertfail`, `malloc`, `free`.
#
# Source: PTX Writer's Guide to Interoperability, 4 (System Calls); CUDA C++ Programming Guide, 10.34 to 10.36.

Run: TypeAlias = Callable[[State, Selection, Sequence[Array]], "Array | None"]
"""What a function does for the selected threads: arguments as uint64, one value for each; what it returns."""

_LONGEST = 1 << 16
"""Bytes after which a text without an end is cut."""


@dataclass(frozen=True)
class Builtin:
    """A function of the driver: bytes of its arguments and of its result, and what it does."""

    arguments: tuple[int, ...]
    result: int
    run: Run


def builtin(ctx: Context, name: str, results: Sequence[Operand], actuals: Sequence[Operand]) -> Action:
    """A call of a function of the driver."""
    builtin = BUILTINS[name]
    for what, sizes, operands in (("arguments", builtin.arguments, actuals), ("results", (builtin.result,), results)):
        sizes = tuple(size for size in sizes if size)
        if len(sizes) != len(operands):
            ctx.fail(f"{name} has {len(sizes)} {what}, got {len(operands)}")
    reads = [_value(ctx, o, size, ctx.source) for o, size in zip(actuals, builtin.arguments, strict=True)]
    writes = [_value(ctx, o, builtin.result, ctx.dest) for o in results]

    def step(state: State, sources: list[Array], targets: list[Array], sel: Selection) -> None:
        answer = builtin.run(state, sel, [sel.pick(source).astype(np.uint64) for source in sources])
        for target in targets:
            sel.put(target, np.zeros(sel.count, np.uint64) if answer is None else answer)

    return acting(step, all_of(reads), all_of(writes))


def _value(ctx: Context, operand: Operand, size: int, take: Callable[[Operand, str], Source]) -> Source:
    """An argument or a result of `size` bytes: a `.param` variable, or the source that `take` makes of the operand."""
    place = ctx.names.places.get(operand.name) if isinstance(operand, Symbol) and operand.name != "_" else None
    if place is None or not place.size:
        return take(operand, f"b{8 * size}")
    if place.size != size:
        ctx.fail(f"expected a .param variable of {size} bytes, got one of {place.size}")
    return parameter_word(place, size)


def parameter_bytes(place: VariablePlace | None, size: int) -> Source:
    """The bytes of a function's parameter, a row for each thread."""

    def read(state: State) -> Array:
        local, start = state.memory.local, (place.address(state) if place else 0) - ARGUMENTS
        return local.buffer.data.reshape(local.base.size, -1)[:, start : start + size]

    return read


def parameter_word(place: VariablePlace | None, size: int) -> Source:
    """A parameter of 1, 2, 4 or 8 bytes, as a word of each thread."""
    read = parameter_bytes(place, size)
    return lambda state: read(state).view(f"u{size}")[:, 0]


# Memory


def _text(state: State, address: int, lane: int) -> bytes:
    """The bytes from a generic address to the first zero."""
    (part,) = state.memory.memory.parts(np.array([address], np.uint64), 1, np.array([lane]))
    at = int(part.index[0])
    return part.buffer.data[at : at + _LONGEST].tobytes().partition(b"\0")[0]


# The functions


def _vprintf(state: State, sel: Selection, values: Sequence[Array]) -> Array:
    """Prints what the format says. The result is the number of arguments; -1 without a format."""
    formats, places = values
    lanes, counts = sel.threads, np.full(sel.count, -1, np.int32)
    texts: list[tuple[int, int, str]] = []
    for address in np.unique(formats[formats != 0]):
        chosen = np.flatnonzero(formats == address)
        pieces = parse(_text(state, int(address), int(lanes[chosen[0]])))
        fields = list(arguments(pieces))
        counts[chosen] = len(fields)
        columns = [_column(state, places[chosen] + np.uint64(at), n, kind, lanes[chosen]) for at, n, kind in fields]
        for i, thread in enumerate(lanes[chosen].tolist()):
            warp = thread % state.warps
            cta, inner = divmod(warp, state.geometry.warps_per_cta)
            texts.append((cta, inner * 32 + thread // state.warps, show(pieces, [column[i] for column in columns])))
    state.prints.add(texts)
    return counts


def _column(state: State, addresses: Array, size: int, kind: str, lanes: Array) -> list[PrintValue]:
    """One argument of `size` bytes of every thread: floats, integers, or the text that a pointer leads to."""
    words = read_parts(state.memory.memory.parts(addresses, size, lanes), addresses.size, size)
    if kind in "eEfFgGaA":
        return words.view(np.float64).tolist()
    if kind == "s":
        pairs = zip(words.tolist(), lanes.tolist(), strict=True)
        return [_text(state, address, lane) if address else b"(null)" for address, lane in pairs]
    return words.tolist()


def _assertfail(state: State, sel: Selection, arguments: Sequence[Array]) -> None:
    """Always raises FaultError, with what the assertion says."""
    lanes = sel.threads
    first = int(lanes[0])
    message, file, line, function = (int(values[0]) for values in arguments[:4])
    text, where, name = (_one_line(_text(state, at, first)) for at in (message, file, function))
    others = f"; {sel.count - 1} other threads fail here, too" if sel.count > 1 else ""
    raise FaultError(
        f"assertion `{text}` failed at {where}:{line} in {name}, thread {state.geometry.thread_index(first)}{others}",
        first,
    )


def _one_line(text: bytes) -> str:
    """A text of a kernel as an error can show it: what cannot be printed is written out."""
    shown = text.decode(errors="replace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def _malloc(state: State, sel: Selection, values: Sequence[Array]) -> Array:
    """Memory of the heap, one block for each thread; 0 where there is none left."""
    memory = state.memory.memory
    return np.array([memory.heap.allocate(memory, size) for size in values[0].tolist()], np.uint64)


def _free(state: State, sel: Selection, values: Sequence[Array]) -> None:
    """Raises FaultError for what is no block of the heap, or no longer."""
    memory = state.memory.memory
    for address, thread in zip(values[0].tolist(), sel.threads.tolist(), strict=True):
        if address and not memory.heap.release(memory, address):
            message = f"free of {address:#x}, which malloc has not given, or which is free already"
            raise FaultError(message, thread, address)


BUILTINS: Mapping[str, Builtin] = MappingProxyType({
    "vprintf": Builtin((8, 8), 4, _vprintf),
    "__assertfail": Builtin((8, 8, 4, 8, 8), 0, _assertfail),
    "malloc": Builtin((8,), 8, _malloc),
    "free": Builtin((8,), 0, _free),
})  # fmt: skip
"""By name. A module that defines a function of the name itself has its own."""


# Functions of the module.

CALL = find("call")[0][0]
"""The row of all calls."""

RETURN = "call.return"
"""The second part of a call: what the function returns is copied."""

RESULT = 16
"""What the place of the result of an unknown function is aligned to."""

RESULT_BYTES = 256
"""The largest such result."""

BoundMove: TypeAlias = Callable[[Selection], Callable[[], None]]
"""Reads the values of some threads, and says how to write them."""

Move: TypeAlias = Callable[[State], BoundMove]


# Instructions


def _check_counts(ctx: Context, frame: Frame, results: Sequence[Operand], arguments: Sequence[Operand]) -> None:
    for what, formals, operands in (("arguments", frame.parameters, arguments), ("results", frame.results, results)):
        if len(formals) != len(operands):
            ctx.fail(f"{frame.name} has {len(formals)} {what}, got {len(operands)}")


@meaning("call")
def call(ctx: Context, bound: Bindings) -> Action:
    """Copies the arguments, and goes to the function."""
    parts = ctx.instruction.call
    if isinstance(parts.target, Register):
        return _through_register(ctx)
    frame = ctx.frames.get(parts.name)
    if parts.following or (frame is None and parts.name not in BUILTINS):
        ctx.fail("expected (results), a function of this module and (arguments)")
    if frame is None:
        return builtin(ctx, parts.name, parts.results, parts.arguments)
    _check_counts(ctx, frame, parts.results, parts.arguments)
    return _enter(ctx, frame, parts.arguments)


def finish(ctx: Context) -> Action:
    """The second part of a call: copies the results."""
    ctx.row = CALL
    parts = ctx.instruction.call
    if isinstance(parts.target, Register):
        return _results_through_register(ctx)
    frame = ctx.frames.get(parts.name)
    if frame is None:
        return lambda state: lambda sel: None
    formals = [_passed(ctx.layout, f) for f in frame.results] if frame.passes else frame.results
    return _all([_out(ctx, formal, o) for formal, o in zip(formals, parts.results, strict=True)])


def _enter(ctx: Context, frame: Frame, arguments: Sequence[Operand]) -> Action:
    """Goes into a function. Arguments are read before its frame is a new one: the caller may be the function itself."""
    moves = [_into(ctx, formal, o) for formal, o in zip(frame.parameters, arguments, strict=True)]
    following = ctx.pc + 1

    def step(state: State, moves: list[BoundMove], back: Array, stack: CallStack | None, sel: Selection) -> int:
        writes = [move(sel) for move in moves]
        if stack is not None:
            stack.push(sel)
        for write in writes:
            write()
        back[... if sel.mask is None else sel.lanes] = following
        return frame.entry

    return acting(step, all_of(moves), _register(frame.back, "b32"), partial(call_stack, frame))


def call_stack(frame: Frame, state: State) -> CallStack | None:
    """The call stack of a function that keeps a frame for each call; None for other functions."""
    if frame.stack is None:
        return None
    if frame.name not in state.stacks:
        state.stacks[frame.name] = CallStack(frame.stack, state.banks, state.memory.local)
    return state.stacks[frame.name]


def _all(moves: Sequence[Move]) -> Action:
    def step(state: State, moves: list[BoundMove], sel: Selection) -> None:
        for move in moves:
            move(sel)()

    return acting(step, all_of(moves))


class _Candidates:
    """The functions that a call through a register may reach, by address, with the results and arguments of the call:
    those that fit of which the address is taken, whether `.callprototype` or `.calltargets` stands behind."""

    def __init__(self, ctx: Context) -> None:
        self.parts = ctx.instruction.call
        self.fitting = {
            address: frame
            for name, frame in ctx.frames.items()
            if frame.passes and (address := _address(ctx, name)) is not None and _fits(ctx, frame, self.parts)
        }


def _results_through_register(ctx: Context) -> Action:
    """The results of a call through a register, where any function that fits leaves them."""
    called = _Candidates(ctx)
    frame = next(iter(called.fitting.values()), None)
    formals = frame.results if frame else ()
    pairs = zip(formals, called.parts.results, strict=bool(frame))
    return _all([_out(ctx, _passed(ctx.layout, formal), o) for formal, o in pairs])


def _through_register(ctx: Context) -> Action:
    called = _Candidates(ctx)
    parts = called.parts
    if (target := parts.target) is None or len(parts.following) > 1:
        ctx.fail("expected (results), the address of a function, (arguments) and a label of functions")
    entries = [_enter(ctx, frame, parts.arguments) for frame in called.fitting.values()]

    def step(state: State, values: Array, entered: list[BoundStep], sel: Selection) -> int:
        frames, parts = list(called.fitting), sel.by_value(values)
        for part, address in parts:
            if address not in called.fitting:
                _no_function(address, part, called.fitting)
        for part, address in parts:
            entered[frames.index(address)](part)
        return state.flow.part([(part, called.fitting[address].entry) for part, address in parts])

    return acting(step, ctx.source(target, "u64"), all_of(entries))


def _address(ctx: Context, name: str) -> int | None:
    """The address of a function."""
    place = ctx.names.places.get(name)
    return place.code if place is not None and place.code else None


def _fits(ctx: Context, frame: Frame, call: CallParts) -> bool:
    """Whether a function's parameters and results have the sizes of a call's arguments and results."""
    pairs = [(frame.parameters, call.arguments), (frame.results, call.results)]
    if any(len(formals) != len(operands) for formals, operands in pairs):
        return False
    return all(_size(ctx, o) in (0, f.size) for pair in pairs for f, o in zip(*pair, strict=True))


def _size(ctx: Context, operand: Operand) -> int:
    """Bytes of a `.param` variable; 0 for what is none."""
    place = ctx.names.places.get(operand.name) if isinstance(operand, Symbol) else None
    return place.size if place else 0


def _no_function(address: int, sel: Selection, fitting: Mapping[int, Frame]) -> NoReturn:
    functions = ", ".join(f"{frame.name} at {at:#x}" for at, frame in fitting.items()) or "none"
    what = "a null pointer" if not address else f"{address:#x}"
    raise FaultError(
        f"{what} is the address of no function with these arguments (known: {functions})",
        thread_of(0, sel.lanes),
        address,
    )


def _passed(layout: StorageLayout, formal: Formal) -> Formal:
    """A result where callers find it that do not know the function."""
    start = layout.results or 0
    size = formal.size or (1 if formal.slot is None else max(1, formal.slot.bits // 8))
    return Formal(formal.variable, size, VariablePlace("param", lambda _: ARGUMENTS + start, size))


def return_(ctx: Context, frame: Frame) -> Action:
    """Back to the callers."""
    moves = [_result(frame, formal, ctx.layout) for formal in frame.results] if frame.passes else []

    def step(state: State, moves: list[BoundMove], back: Array, stack: CallStack | None, sel: Selection) -> int:
        for move in moves:
            move(sel)()
        ways = sel.by_value(back)
        if stack is not None:
            stack.pop(sel)
        return state.flow.part(ways)

    return acting(step, all_of(moves), _register(frame.back, "b32"), partial(call_stack, frame))


def _result(frame: Frame, formal: Formal, layout: StorageLayout) -> Move:
    """Moves a result to the place where callers through a register expect it."""
    target = _passed(layout, formal)
    if formal.slot is None:
        return _move(_bytes(formal), _bytes(target))
    type = f"b{8 * target.size}" if formal.slot.bits > 1 else "pred"
    return _move(_register(formal.slot, type), _word(target))


def _into(ctx: Context, formal: Formal, actual: Operand) -> Move:
    """An argument: from a variable or a value to where the function finds it."""
    if formal.slot is not None:
        ctx.writes.append(formal.slot)
    return _move(*_ends(ctx, formal, actual, ctx.source))


def _out(ctx: Context, formal: Formal, actual: Operand) -> Move:
    """A result: from where the function left it to a variable or a register."""
    if formal.slot is not None:
        ctx.reads.append(formal.slot)
    return _move(*reversed(_ends(ctx, formal, actual, ctx.dest)))


def _ends(
    ctx: Context, formal: Formal, actual: Operand, take: Callable[[Operand, str], Source]
) -> tuple[Source, Source]:
    """The caller's and the function's place of a value that is passed; `take` gives what the caller has."""
    if formal.slot is not None:
        return take(actual, formal.variable.type), _register(formal.slot, formal.variable.type)
    if (place := _argument(ctx, formal, actual)) is None:
        return take(actual, f"b{8 * formal.size}"), _word(formal)
    return parameter_bytes(place, formal.size), _bytes(formal)


def _argument(ctx: Context, formal: Formal, actual: Operand) -> VariablePlace | None:
    """The `.param` variable that stands for a parameter; None for a register or a literal."""
    place = ctx.names.places.get(actual.name) if isinstance(actual, Symbol) and actual.name != "_" else None
    if place is not None and (not place.size or place.size != formal.size):
        what = f"{place.size} bytes" if place.size else "something else"
        ctx.fail(f"expected a .param variable of {formal.size} bytes for {formal.variable.name}, got {what}")
    if place is None and formal.size not in (1, 2, 4, 8):
        ctx.fail(
            f"expected a .param variable of {formal.size} bytes for {formal.variable.name}, got {operand_text(actual)}"
        )
    return place


def _register(slot: RegisterSlot, type: str) -> Source:
    return lambda state: state.banks[slot.bits][slot.index].view(DTYPES[type])


def _bytes(formal: Formal) -> Source:
    return parameter_bytes(formal.place, formal.size)


def _word(formal: Formal) -> Source:
    return parameter_word(formal.place, formal.size)


def _move(source: Source, dest: Source) -> Move:
    def bind(state: State) -> BoundMove:
        values, out = source(state), dest(state)
        return lambda sel: partial(sel.put, out, sel.pick(values).copy())

    return bind


@meaning("brx")
def jump(ctx: Context, bound: Bindings) -> Action:
    """`brx.idx`: a branch to one of several labels."""
    index, table = ctx.operands
    names = ctx.names.tables.get(table.name) if isinstance(table, Symbol) else None
    if not names:
        ctx.fail(f"expected a label of .branchtargets, got {operand_text(table)}")
    targets = [ctx.label(Symbol(name)) for name in names]

    def step(state: State, values: Array, sel: Selection) -> int:
        picked = sel.pick(values)
        sel.refuse(picked >= len(targets), f"expected an index from 0 to {len(targets) - 1}, got {{}}", picked)
        return state.flow.part([(some, targets[one]) for some, one in sel.by_value(values)])

    return acting(step, ctx.source(index, "u32"))
