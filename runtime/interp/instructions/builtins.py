"""Functions that the driver gives to kernels: `vprintf`, `__assertfail`, `malloc` and `free`.

Source: PTX Writer's Guide to Interoperability, 4 (System Calls); CUDA C++ Programming Guide, 10.34 to 10.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ....dialect.ptx.text.syntax import Operand, Symbol
from ...numerics.array import Array
from ..decode import Context
from ..errors import FaultError
from ..machine.memory import rows
from ..machine.state import Action, State
from ..machine.threads import BoundStep, Selection
from .prints import PrintValue, arguments, parse, show

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
    for what, sizes, given in (("arguments", builtin.arguments, actuals), ("results", (builtin.result,), results)):
        sizes = tuple(size for size in sizes if size)
        if len(sizes) != len(given):
            ctx.fail(f"{name} has {len(sizes)} {what}, got {len(given)}")
    reads = [_value(ctx, o, size) for o, size in zip(actuals, builtin.arguments, strict=True)]
    writes = [_result(ctx, o, builtin.result) for o in results]

    def bind(state: State) -> BoundStep:
        sources, targets = [read(state) for read in reads], [write(state) for write in writes]

        def step(sel: Selection) -> None:
            answer = builtin.run(state, sel, [source(sel) for source in sources])
            for target in targets:
                target(sel, np.zeros(sel.count, np.uint64) if answer is None else answer)

        return step

    return bind


def _value(ctx: Context, operand: Operand, size: int) -> Callable[[State], Callable[[Selection], Array]]:
    place = ctx.names.place(operand.name) if isinstance(operand, Symbol) else None
    if place is None or not place.size:
        source = ctx.source(operand, f"b{8 * size}")
        return lambda state: (lambda values: lambda sel: sel.pick(values).astype(np.uint64))(source(state))
    if place.size != size:
        ctx.fail(f"expected a .param variable of {size} bytes, got one of {place.size}")

    def bind(state: State) -> Callable[[Selection], Array]:
        data = rows(state.memory.local, place.address(state), size)
        return lambda sel: sel.pick(data).copy().view(f"u{size}").reshape(-1).astype(np.uint64)

    return bind


def _result(ctx: Context, operand: Operand, size: int) -> Callable[[State], Callable[[Selection, Array], None]]:
    place = ctx.names.place(operand.name) if isinstance(operand, Symbol) and operand.name != "_" else None
    if place is None or not place.size:
        dest = ctx.dest(operand, f"b{8 * size}")
        return lambda state: lambda sel, values: sel.put(dest(state), values.astype(f"u{size}"))
    if place.size != size:
        ctx.fail(f"expected a .param variable of {size} bytes, got one of {place.size}")

    def bind(state: State) -> Callable[[Selection, Array], None]:
        data = rows(state.memory.local, place.address(state), size)
        return lambda sel, values: sel.put(data, values.astype(f"u{size}").view(np.uint8).reshape(-1, size))

    return bind


# Memory


def _words(state: State, addresses: Array, width: int, lanes: Array) -> Array:
    """Words of `width` bytes at generic addresses of the threads `lanes`."""
    found = np.zeros(addresses.size, f"u{width}")
    for part in state.memory.memory.parts(addresses, width, lanes):
        found[... if part.chosen is None else part.chosen] = part.buffer.view(width)[part.index]
    return found


def _text(state: State, address: int, lane: int) -> bytes:
    """The bytes from a generic address to the first zero."""
    (part,) = state.memory.memory.parts(np.array([address], np.uint64), 1, np.array([lane]))
    at = int(part.index[0])
    return part.buffer.data[at : at + _LONGEST].tobytes().partition(b"\0")[0]


# The functions


def _vprintf(state: State, sel: Selection, given: Sequence[Array]) -> Array:
    """Prints what the format says. The result is the number of arguments; -1 without a format."""
    formats, places = given
    lanes, counts = sel.threads, np.full(sel.count, -1, np.int32)
    texts: list[tuple[int, int, str]] = []
    for address in np.unique(formats[formats != 0]):
        chosen = np.flatnonzero(formats == address)
        pieces = parse(_text(state, int(address), int(lanes[chosen[0]])))
        fields = list(arguments(pieces))
        counts[chosen] = len(fields)
        columns = [
            _column(state, _words(state, places[chosen] + np.uint64(at), size, lanes[chosen]), kind, lanes[chosen])
            for at, size, kind in fields
        ]
        for i, thread in enumerate(lanes[chosen].tolist()):
            warp = thread % state.warps
            cta, inner = divmod(warp, state.geometry.warps_per_cta)
            texts.append((cta, inner * 32 + thread // state.warps, show(pieces, [column[i] for column in columns])))
    state.prints.add(texts)
    return counts


def _column(state: State, words: Array, kind: str, lanes: Array) -> list[PrintValue]:
    """One argument of every thread: floats, integers, or the text that a pointer leads to."""
    if kind in "eEfFgGaA":
        return words.view(np.float64).tolist()
    if kind == "s":
        pairs = zip(words.tolist(), lanes.tolist(), strict=True)
        return [_text(state, address, lane) if address else b"(null)" for address, lane in pairs]
    return words.tolist()


def _assertfail(state: State, sel: Selection, given: Sequence[Array]) -> None:
    """Raises:
    FaultError: always, with what the assertion says.
    """
    lanes = sel.threads
    first = int(lanes[0])
    message, file, line, function = (int(values[0]) for values in given[:4])
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


def _malloc(state: State, sel: Selection, given: Sequence[Array]) -> Array:
    """Memory of the heap, one block for each thread; 0 where there is none left."""
    memory = state.memory.memory
    return np.array([memory.heap.allocate(memory, size) for size in given[0].tolist()], np.uint64)


def _free(state: State, sel: Selection, given: Sequence[Array]) -> None:
    """Raises:
    FaultError: for what is no block of the heap, or no longer.
    """
    memory = state.memory.memory
    for address, thread in zip(given[0].tolist(), sel.threads.tolist(), strict=True):
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
