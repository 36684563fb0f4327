"""Functions that a kernel calls, and those of the driver: `vprintf`, `__assertfail`, `malloc`, `free`. PTX ISA 7.1."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ....dialect.ptx.text.syntax import (
    Directive,
    Function,
    Instruction,
    Module,
    Operand,
    RegDecl,
    Scope,
    Statement,
    Symbol,
    Variable,
    instructions,
    leaves,
    statements,
)
from ...numerics.floats import Array
from .decode import Context, VariablePlace
from .events import Selection
from .memory import ARGUMENTS, DecodeError, FaultError, read_parts
from .state import Action, PrintValue, Source, State, acting, all_of, arguments, parse, show

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


def call(ctx: Context, name: str, results: Sequence[Operand], actuals: Sequence[Operand]) -> Action:
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


# Which functions a kernel calls, in which order they stand in its code, and which need a stack: PTX ISA 7.1, 9.7.12.5.
#
# A call through a register goes to any function whose address is taken somewhere in the module.

_STACK = ("alloca", "stacksave", "stackrestore")

CODE = 1 << 59
"""Where the addresses of functions begin; nothing can be read there."""


class CallError(DecodeError):
    """What is wrong with a call, and which it is."""

    def __init__(self, call: Instruction, message: str) -> None:
        super().__init__(f"{call.opcode}: {message}")
        self.call = call


@dataclass(frozen=True)
class Functions:
    """The functions of a module that have a body, by name, and those whose address is taken.

    `bodies` are in the order in which the module first declares them. `initialised` has the names in the initialisers
    of module variables.
    """

    bodies: Mapping[str, Function]
    taken: frozenset[str]
    initialised: Mapping[str, tuple[str, ...]]

    @staticmethod
    def of(module: Module) -> Functions:
        """Finds them in instructions, initialisers and `.calltargets`."""
        declared = dict.fromkeys(item.name for item in module.items if isinstance(item, Function))
        bodies = {name: module.functions[name] for name in declared if name in module.functions}
        initialised: dict[str, tuple[str, ...]] = {}
        named: set[str] = set()
        for item in module.items:
            if isinstance(item, Variable) and item.init:
                initialised[item.name] = tuple(re.findall(r"[\w$%]+", item.init))
                named.update(initialised[item.name])
            elif isinstance(item, Function):
                named.update(_taken(item.body or ()))
        taken = frozenset(name for name in named if name in bodies and not bodies[name].entry)
        return Functions(bodies, taken, initialised)

    @property
    def addresses(self) -> dict[str, int]:
        """The address of each function."""
        return {name: CODE + 16 * number for number, name in enumerate(self.bodies, 1)}

    def callees(self, function: Function) -> list[str]:
        """The functions with a body that a function calls. Raises CallError for a call of an unknown function, or of a
        kernel."""
        names: list[str] = []
        for call in instructions(function.body or ()):
            if not call.is_call:
                continue
            callee = call.call.name
            if not callee:
                names += sorted(self.taken)
            elif callee in self.bodies:
                if self.bodies[callee].entry:
                    raise CallError(call, f"'{callee}' is a kernel; only functions can be called")
                names.append(callee)
            elif callee not in BUILTINS:
                raise CallError(call, f"function '{callee}' has no body in this module")
        return list(dict.fromkeys(names))

    def in_order(self, kernel: Function) -> tuple[list[Function], frozenset[str]]:
        """The functions that a kernel calls, directly or not, callees before callers where the calls have no cycle. The
        set has the names of functions that need a stack: recursive ones, and those that allocate."""
        edges: dict[str, list[str]] = {}
        order: list[Function] = []
        self._visit(kernel, edges, order)
        stacked = {name for name, f in self.bodies.items() if any(i.root in _STACK for i in instructions(f.body or ()))}
        for name in edges:
            if name in _reachable(edges, name):
                stacked.add(name)
        return order[:-1], frozenset(stacked)

    def used(self, kernel: Function) -> tuple[list[Function], set[str]]:
        """The functions that a kernel calls or whose address it may know, directly or not, and itself, in the order of
        the module; and the names that they mention, initialisers included. Raises CallError for a call of a function
        that is not there, or of a kernel."""
        reached, seen, names = {kernel.name}, set[str](), list(self._named(kernel))
        while names:
            name = names.pop()
            if name in seen:
                continue
            seen.add(name)
            names += self.initialised.get(name, ())
            function = self.bodies.get(name)
            if function is not None and not function.entry:
                reached.add(name)
                names += self._named(function)
        return [function for name, function in self.bodies.items() if name in reached], seen

    def _named(self, function: Function) -> Iterator[str]:
        yield from self.callees(function)
        yield from _mentioned(function.body or (), frozenset(v.name for v in (*function.parameters, *function.returns)))

    def _visit(self, function: Function, edges: dict[str, list[str]], order: list[Function]) -> None:
        edges[function.name] = self.callees(function)
        for name in edges[function.name]:
            if name not in edges:
                self._visit(self.bodies[name], edges, order)
        order.append(function)


def _reachable(edges: Mapping[str, Sequence[str]], start: str) -> set[str]:
    """The functions that one calls, directly or not."""
    seen: set[str] = set()
    left = list(edges[start])
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += edges.get(name, ())
    return seen


def _mentioned(body: Sequence[Statement], hidden: frozenset[str]) -> Iterator[str]:
    """The names of operands that the body does not declare: of variables and functions of the module, and labels."""
    hidden |= {s.name for s in body if isinstance(s, Variable | RegDecl)}
    for statement in body:
        if isinstance(statement, Scope):
            yield from _mentioned(statement.body, hidden)
        elif isinstance(statement, Instruction):
            named = (leaf.name for o in statement.operands for leaf in leaves(o) if isinstance(leaf, Symbol))
            yield from (name for name in named if name not in hidden)


def _taken(body: Sequence[Statement]) -> Iterator[str]:
    """Names that stand for addresses, not for what is called."""
    for statement in statements(body):
        if isinstance(statement, Directive) and statement.text.startswith(".calltargets"):
            yield from re.findall(r"[\w$%]+", statement.text)
        elif isinstance(statement, Instruction) and not statement.is_call:
            yield from (o.name for o in statement.operands if isinstance(o, Symbol))
