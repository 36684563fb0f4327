"""Moves, loads, stores, address conversion, and atomic operations. PTX ISA 9.7.9, 9.7.13.6 and .7."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from itertools import pairwise
from operator import is_
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.ptx.text.syntax import Address, Immediate, Not, Operand, Symbol, Vector, bits_of
from ...numerics import floats
from ...numerics.floats import Array, ArrayFunction
from ..machine.decode import DTYPES, Context, constant, meaning
from ..machine.events import AccessKind, BoundStep, Selection, tell
from ..machine.memory import LOCAL_WINDOW, PARAM_WINDOW, RANK_BITS, SHARED_WINDOW, Part, check_writable, write_parts
from ..machine.state import Action, Source, State, acting, all_of

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
        compute_all = _on_all_threads(compute, out, values)

        def step(sel: Selection) -> None:
            if sel.mask is None:
                compute_all()
            elif sel.sparse:
                out[sel.lanes] = compute(*[v[sel.lanes] for v in values])
            else:
                np.copyto(out, compute(*values), where=sel.mask, casting="unsafe")

        return step

    return bind


def _on_all_threads(function: Callable[..., Any], out: Array, values: list[Array]) -> Callable[[], None]:
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
    """The value of a move."""
    return value


# Moves: PTX ISA 9.7.9.3 and .4.


@meaning("mov")
def mov(ctx: Context, bound: Bindings) -> Action:
    """A register, a constant, an address, or the complement of a predicate."""
    d, a = ctx.operands
    function, source = (np.invert, a.register) if isinstance(a, Not) else (identity, a)
    return elementwise(function, ctx.dest(d, bound["T"]), ctx.source(source, bound["T"]))


@meaning("mov.vector")
def mov_vector(ctx: Context, bound: Bindings) -> Action:
    """Each element of a vector."""
    every = operands(ctx, bound)
    half = len(every) // 2

    def unchanged(*values: Array) -> tuple[Array, ...]:
        return values

    return several(unchanged, every[:half], *every[half:])


def wide(ctx: Context, operand: Operand, *, written: bool = False) -> list[Source]:
    """The two halves of a register of 128 bits."""
    slot = ctx.slot(operand)
    (ctx.writes if written else ctx.reads).append(slot)
    return [lambda state, i=i: state.banks[128][slot.index].view(np.uint64)[i::2] for i in range(2)]


@meaning("mov.b128")
def mov_wide(ctx: Context, bound: Bindings) -> Action:
    """128 bits: a register or a literal, or two registers of 64 or four of 32, into the same."""

    def halves(operand: Operand, *, written: bool) -> list[Source]:
        if isinstance(operand, Vector):
            take, items = ctx.dest if written else ctx.source, ctx.items(operand)
            return [take(item, f"b{128 // len(items)}") for item in items]
        if isinstance(operand, Immediate) and not written:
            return [ctx.source(operand, "b64"), constant(np.uint64(ctx.integer(operand) >> 64 & (1 << 64) - 1))]
        return wide(ctx, operand, written=written)

    targets, sources = halves(ctx.operands[0], written=True), halves(ctx.operands[1], written=False)

    def moved(*parts: Array) -> tuple[Array, ...]:
        columns = np.stack([np.ascontiguousarray(part) for part in parts], axis=1).view(f"u{16 // len(targets)}")
        return tuple(columns[:, i].copy() for i in range(len(targets)))

    return several(moved, targets, *sources)


@meaning("mov.unpack")
def unpack(ctx: Context, bound: Bindings) -> Action:
    """The parts of a register."""
    *parts, register = operands(ctx, bound)
    dtype = np.dtype(f"u{bits_of(bound['T']) // len(parts) // 8}")

    def split(value: Array) -> tuple[Array, ...]:
        columns = np.ascontiguousarray(value).view(dtype).reshape(-1, len(parts))
        return tuple(columns[:, i].copy() for i in range(len(parts)))

    return several(split, parts, register)


@computes("mov.pack")
def pack(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Registers as the parts of a wider one."""
    word = np.dtype(DTYPES[bound["T"]])

    def join(*parts: Array) -> Array:
        result = cast(Array, parts[0].astype(word))
        for i, value in enumerate(parts[1:], 1):
            result |= np.left_shift(value.astype(word), np.array(8 * word.itemsize // len(parts) * i, word))
        return result

    return join


# Loads, stores, address conversion: PTX ISA 9.7.9.
#
# Memory order is that of the machine: steps happen one after the other, so that every ordering and caching modifier
# already holds.

_OWN_NAMES = {"": "generic", "const": "global", "shared::cluster": "cluster"}
_WINDOWS = {"cluster": SHARED_WINDOW, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
_ADDRESSES = {"shared": np.uint32, "cluster": np.uint32, "local": np.uint32}
"""Spaces whose addresses have 32 bits; in those of parameters, functions' own begin above."""


class Locate(Protocol):
    """Where an address operand leads."""

    def __call__(self, sel: Selection, width: int, shift: int = 0) -> tuple[Part, ...]:
        """The accesses of some threads, of `width` bytes each, `shift` bytes further on."""
        ...


def space_of(bound: Bindings) -> str:
    """The state space of a row's P: "generic" without one, "cluster" for `.shared::cluster`, "global" for constants."""
    written = bound.get("P", "")
    return _OWN_NAMES.get(written) or written.partition("::")[0]


def vector_of(bound: Bindings) -> int:
    """The number of elements of a row's vector; 1 without one."""
    return int(bound.get("V", "")[1:] or 1)


def locate(ctx: Context, operand: Operand, space: str, kind: AccessKind | None) -> Callable[[State], Locate]:
    """Computes the places of `[base+offset]` in a space. `kind` is what observers are told; None if otherwise."""
    if isinstance(operand, Address) and isinstance(operand.base, Symbol):
        space = _space_of_symbol(ctx, operand.base, space)
    everywhere = space in ("global", "generic")
    address = ctx.address(operand, np.uint64 if everywhere else _ADDRESSES.get(space, np.int64))

    def bind(state: State) -> Locate:
        read = address(state)
        home = state.memory.memory if everywhere else getattr(state.memory, space)

        def parts(sel: Selection, width: int, shift: int = 0) -> tuple[Part, ...]:
            addresses = read(sel)
            return home.parts(addresses + addresses.dtype.type(shift) if shift else addresses, width, sel.lanes)

        def told(sel: Selection, width: int, shift: int = 0) -> tuple[Part, ...]:
            found = parts(sel, width, shift)
            if kind is not None:
                tell(state.observer, ctx.pc, kind, found, width, sel)
            return found

        return parts if state.observer is None or kind is None else told

    return bind


def _space_of_symbol(ctx: Context, symbol: Symbol, space: str) -> str:
    """A variable's own space, where the instruction is generic; they must not disagree."""
    own = ctx.place(symbol).space
    if space == "cluster" and own == "shared":
        return space
    if space not in ("generic", own):
        ctx.fail(f"'{symbol.name}' is in .{own} memory, the instruction is for .{space}")
    return own


@meaning("ld")
def load(ctx: Context, bound: Bindings) -> Action:
    """One word or a vector; a wider register gets the word extended. A cache policy may follow."""
    space, type, count = space_of(bound), bound["T"], vector_of(bound)
    d, where = ctx.operands[:2]
    dests = [ctx.dest(item, type, wide=True) for item in ctx.items(d)]
    width, dtype = bits_of(type) // 8, DTYPES[type]

    def step(state: State, outs: list[Array], find: Locate, sel: Selection) -> None:
        for part in find(sel, width * count):
            values = part.buffer.view(width, count).take(part.index, axis=0).view(dtype)
            _deliver(outs, sel, part, values)

    return acting(step, all_of(dests), locate(ctx, where, space, "load"))


def _deliver(outs: list[Array], sel: Selection, part: Part, values: Array) -> None:
    columns = [values] if len(outs) == 1 else [values[:, i] for i in range(len(outs))]
    if part.chosen is None:
        for out, column in zip(outs, columns, strict=True):
            sel.put(out, column)
        return
    threads = part.chosen if sel.lanes is None else sel.lanes[part.chosen]
    for out, column in zip(outs, columns, strict=True):
        out[threads] = column


@meaning("st")
def store(ctx: Context, bound: Bindings) -> Action:
    """One word or a vector; of a wider register, the low bits. A cache policy may follow."""
    space, type = space_of(bound), bound["T"]
    where, a = ctx.operands[:2]
    named = where.base if isinstance(where, Address) and isinstance(where.base, Symbol) else None
    if space == "param" and named is not None and not ctx.place(named).size:
        ctx.fail("kernel parameters cannot be written")
    place = locate(ctx, where, space, None)
    width = bits_of(type) // 8
    word = DTYPES[f"b{width * 8}"]
    read = f"b{width * 8}" if type[0] != "f" else type
    pieces = [(shift, [ctx.source(item, read, wide=True) for item in items])
              for shift, items in _stored(ctx.items(a), width)]  # fmt: skip

    def bind(state: State) -> BoundStep:
        words, find = [(shift, [s(state).view(word) for s in sources]) for shift, sources in pieces], place(state)
        watched = state.observer is not None

        def step(sel: Selection) -> None:
            for shift, values in words:
                size = len(values)
                parts = find(sel, width * size, shift)
                check_writable(parts)
                picked = [sel.pick(v) for v in values]
                rows = picked[0] if size == 1 else np.stack(picked, axis=1)
                if watched:
                    tell(state.observer, ctx.pc, "store", parts, width * size, sel, rows)
                write_parts(parts, rows)

        return step

    return bind


def _stored(items: Sequence[Operand], width: int) -> list[tuple[int, Sequence[Operand]]]:
    """The parts that a store writes, each with its byte offset. Without `_` among the items there is one part; with it,
    each other item is a part of its own."""
    if Symbol("_") not in items:
        return [(0, items)]
    return [(i * width, (item,)) for i, item in enumerate(items) if item != Symbol("_")]


@computes("cvta", "cvta.to")
def convert_address(ctx: Context, bound: Bindings) -> ArrayFunction:
    """A space's own address as a generic one, or the reverse. Global and constant addresses are generic already."""
    if bound["T"] != "u64":
        ctx.fail("addresses are 64-bit here; expected .u64")
    window = np.uint64(_WINDOWS.get(space_of(bound), 0))
    change: np.ufunc = np.subtract if ctx.row.means == "cvta.to" else np.add
    return (lambda v: change(v, window)) if window else identity


@meaning("isspacep")
def isspacep(ctx: Context, bound: Bindings) -> Action:
    """`isspacep`: whether a generic address is in a state space. `.shared` is the CTA's own shared memory."""
    space = space_of(bound)
    window = np.uint64(_WINDOWS.get(space, 0))

    def inside(address: Array) -> Array:
        if not window:
            return address < np.uint64(SHARED_WINDOW)
        return (address >= window) & (address < window * np.uint64(2))

    def own(address: Array, rank: Array) -> Array:
        return inside(address) & ((address - window) >> np.uint64(RANK_BITS) == rank)

    dest, source = operands(ctx, bound)
    if space != "shared":
        return elementwise(inside, dest, source)
    return elementwise(own, dest, source, lambda state: state.geometry.rank().astype(np.uint64))


@meaning("hint")
def nothing_to_do(ctx: Context, bound: Bindings) -> Action:
    """An instruction that affects only time and caches."""
    return lambda state: lambda sel: None


@meaning("createpolicy")
def createpolicy(ctx: Context, bound: Bindings) -> Action:
    """A cache policy: a number that no instruction interprets."""
    dest: Source = ctx.dest(ctx.operands[0], "b64")
    return lambda state: lambda sel: sel.put(dest(state), np.zeros(sel.count, np.uint64))


# Atomic operations on memory: PTX ISA 9.7.13.6 and 9.7.13.7.
#
# Threads that meet at one address take turns: those of lane 0 first, warp after warp, then those of lane 1.

Update: TypeAlias = Callable[[Array, Array, Array], Array]
"""The new words, of the old words and the one or two operands."""

_INTEGER: dict[str, Update] = {
    "and": lambda old, b, _: old & b,
    "or": lambda old, b, _: old | b,
    "xor": lambda old, b, _: old ^ b,
    "cas": lambda old, b, c: np.where(old == b, c, old),
    "exch": lambda old, b, _: b,
    "inc": lambda old, b, _: np.where(old >= b, np.uint32(0), old + np.uint32(1)),
    "dec": lambda old, b, _: np.where((old == 0) | (old > b), b, old - np.uint32(1)),
    "min": lambda old, b, _: np.minimum(old, b),
    "max": lambda old, b, _: np.maximum(old, b),
    "add": lambda old, b, _: old + b,
}


def _same(old: Array, b: Array) -> Array:
    """Whether words of 128 bits are equal."""
    words = (np.ascontiguousarray(value).view(np.uint64).reshape(-1, 2) for value in (old, b))
    return (next(words) == next(words)).all(axis=1)


_WIDE: dict[str, Update] = {"cas": lambda old, b, c: np.where(_same(old, b), c, old), "exch": lambda old, b, _: b}


def _float_extreme(operation: str, type: str) -> Update:
    """The lesser or the greater; of a number and a NaN the number, and -0 is less than +0."""
    pick = {"min": floats.smaller, "max": floats.larger}[operation]
    return lambda old, b, _: floats.rounded(pick(floats.value(old, type), floats.value(b, type)), type)


def _float_add(type: str, flush: bool) -> Update:
    """A sum rounded once; in global memory, f32 flushes subnormals."""

    def add(old: Array, b: Array, _: Array) -> Array:
        x, y = floats.value(old, type), floats.value(b, type)
        if not flush:
            return floats.rounded(floats.sum_odd(x, y) if type != "f64" else x + y, type)
        total = floats.rounded(floats.sum_odd(floats.flush(x, type), floats.flush(y, type)), type)
        return floats.flush(total.view(np.float32), type).view(np.uint32)

    return add


@meaning("atomic")
def atomic(ctx: Context, bound: Bindings) -> Action:
    """Reads, combines and writes back; `atom` returns what was there. Of a vector, each part by itself."""
    type, count, returns = bound["T"], vector_of(bound), ctx.row.root == "atom"
    operands = list(ctx.operands)
    results = ctx.items(operands.pop(0)) if returns else ()
    dests = [ctx.dest(item, type) for item in (results * count if len(results) < count else results)]
    place = locate(ctx, operands.pop(0), space_of(bound), "atomic")
    inputs = operands[: 1 + (bound["O"] == "cas")]
    sources = [[ctx.source(item, type) for item in ctx.items(o)] for o in inputs]
    seen, width, combine = seen_as(type), bits_of(type) // 8, updates(bound["O"], type)

    def step(state: State, find: Locate, outs: list[Array], *operands: Any) -> None:
        *values, sel = operands
        parts = find(sel, width * count)
        check_writable(parts)
        if count > 1:
            in_shared = partial(is_, state.memory.shared.buffer)
            sel.refuse_parts(parts, in_shared, "vectors are reduced in global memory alone")
        for i in range(count):
            picked = [sel.pick(items[i].view(seen)) for items in values]
            old = np.empty(sel.count, seen)
            for part in parts:
                update = combine(part.buffer is state.memory.shared.buffer)
                index = part.index if count == 1 else part.index * count + i
                _update(Part(part.buffer, index, part.chosen), old, picked, update)
            if outs:
                sel.put(outs[i].view(seen), old)

    return acting(step, place, all_of(dests), *map(all_of, sources))


def seen_as(type: str) -> np.dtype[Any]:
    """The numpy type that an update uses for words of a type: integers as they are, all others as bits."""
    return np.dtype(DTYPES[type] if type[0] in "us" or type == "b128" else f"u{bits_of(type) // 8}")


def updates(operation: str, type: str) -> Callable[[bool], Update]:
    """What an operation does in shared memory (True) and in global memory (False)."""
    if type == "b128":
        return lambda shared: _WIDE[operation]
    if not type.startswith(("f", "bf")):
        return lambda shared: _INTEGER[operation]
    scalar = type.removesuffix("x2")

    def of_floats(shared: bool) -> Update:
        add = operation == "add"
        update = _float_add(scalar, type == "f32" and not shared) if add else _float_extreme(operation, scalar)
        return update if scalar == type else cast(Update, floats.on_parts(update, np.uint16))

    return of_floats


def _update(part: Part, old: Array, operands: list[Array], update: Update) -> None:
    """Applies the update to one buffer, and keeps the old words."""
    view = part.buffer.view(old.itemsize).view(old.dtype)
    places = np.arange(old.size) if part.chosen is None else part.chosen
    for turn in _turns(part.index):
        where, who = part.index[turn], places[turn]
        before = view[where]
        view[where] = update(before, operands[0][who], operands[-1][who])
        old[who] = before


def _turns(index: Array) -> Iterator[Array]:
    """The accesses in rounds, so that within a round no two are to the same place."""
    ranked = np.argsort(index, kind="stable")
    sorted_index = index[ranked]
    starts = np.concatenate([[True], sorted_index[1:] != sorted_index[:-1]])
    first = np.maximum.accumulate(np.where(starts, np.arange(index.size), 0))
    rank = np.arange(index.size) - first
    by_rank = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[by_rank], np.arange(int(rank.max(initial=0)) + 2))
    for low, top in pairwise(bounds):
        yield ranked[by_rank[low:top]]
