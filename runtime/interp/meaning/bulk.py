"""Asynchronous copies, stores and reductions; clusters; `alloca`. PTX ISA 9.7.9.12, .13, .23 to .25, 9.7.13, 9.7.17."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.ptx.text.syntax import Not, Operand, Register, Symbol, bits_of
from ...numerics.floats import Array
from ..machine.decode import DTYPES, Context, meaning
from ..machine.events import AccessKind, Selection, tell_of_one
from ..machine.mbarriers import BulkCopy, Combine
from ..machine.memory import RANK_BITS, SHARED_WINDOW, Buffer, FaultError, Part, check_writable, read_parts
from ..machine.state import MIN, Action, Source, State, absent, acting, all_of, grow, stack_pointer
from .access import Locate, elementwise, identity, locate, seen_as, several, space_of, updates, vector_of, wide
from .synchronisation import Find, in_shared, objects

# Asynchronous copies to shared memory: PTX ISA 9.7.9.25.3.
#
# The source is read when the copy is issued; the bytes appear in shared memory when their group is waited for. Until
# then a thread that reads the destination sees what was there before.


@meaning("cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all", "bulk group")
def groups(ctx: Context, bound: Bindings) -> Action:
    """Closes the open group, or completes all groups but the latest ones; without a number, every copy. Bulk copies are
    complete: who looks on follows what would be read until they are waited for."""
    keep, bulk = ctx.integer(ctx.operands[0]) if ctx.operands else None, ctx.row.means == "bulk group"
    if ctx.row.means == "cp.async.commit_group" or (bulk and keep is None):
        return lambda state: lambda sel: (state.bulk_groups if bulk else state.copies).commit(sel.lanes)
    return lambda state: lambda sel: (state.bulk_groups if bulk else state.copies).wait(sel.lanes, keep)


@meaning("cp.async")
def copy(ctx: Context, bound: Bindings) -> Action:
    """4, 8 or 16 bytes, of which fewer may be read; the rest is zeros. A cache policy may follow."""
    operands = ctx.operands[: -1 if bound["H"] else None]
    size = ctx.integer(operands[2])
    read_bytes = _source_size(ctx, operands[3], size) if len(operands) == 4 else absent
    target, origin = locate(ctx, operands[0], "shared", "copy"), locate(ctx, operands[1], "global", "load")
    width, count = (size, 1) if size < 16 else (8, 2)

    def step(state: State, to: Locate, take: Locate, sizes: Callable[[], Array] | None, sel: Selection) -> None:
        (part,) = to(sel, size)
        if sizes is None:
            rows = read_parts(take(sel, size), sel.count, width, count)
        else:
            rows = _read_some(take, sel, sizes(), (size, width, count))
        state.copies.issue(sel.lanes, _landing(state, part, rows.reshape(-1, count), sel.lanes))

    return acting(step, target, origin, read_bytes)


def _landing(state: State, part: Part, rows: Array, lanes: Array | None) -> Callable[[Array], None]:
    """What writes the rows that threads (None: all) copy, of those for which the copy completes."""
    width, view = rows.itemsize * rows.shape[1], part.buffer.view(rows.itemsize, rows.shape[1])
    words = view.reshape(-1, rows.shape[1])

    def land(done: Array) -> None:
        all_rows = done.size == part.index.size
        chosen = slice(None) if all_rows else done if lanes is None else np.searchsorted(lanes, done)
        if state.observer is not None:
            state.observer.land(part.buffer, part.index[chosen] * width, width, done)
        words[part.index[chosen]] = rows[chosen]

    return land


def _source_size(ctx: Context, operand: Operand, size: int) -> Callable[[State], Callable[[], Array]]:
    """How many bytes each thread reads: as given, or none where a predicate says to ignore the source."""
    register = operand.register if isinstance(operand, Not) else operand
    if not isinstance(register, Register) or ctx.slot(register).bits != 1:
        read_size = ctx.source(operand, "u32")
        return lambda state: partial(np.asarray, read_size(state))
    source, negated = ctx.predicate(operand)

    def sizes(ignored: Array) -> Array:
        return np.where(ignored ^ negated, np.uint32(0), np.uint32(size))

    return lambda state: partial(sizes, source(state))


def _read_some(take: Locate, sel: Selection, sizes: Array, extent: tuple[int, int, int]) -> Array:
    """The first bytes of some sources; the remaining bytes are zero. Their addresses are not checked."""
    picked, (size, width, count) = sel.pick(sizes), extent
    rows = np.zeros((sel.count, count), f"u{width}")
    sel.refuse(picked > size, f"cp.async reads {{}} bytes, more than the {size} it writes", picked)
    full = sel.where(sizes == size)
    rows[picked == size] = read_parts(take(full, size), full.count, width, count).reshape(-1, count)
    partly = picked[picked < size]
    if partly.size:
        data = rows.view(np.uint8)
        for byte in range(int(partly.max())):
            places = np.flatnonzero((picked > byte) & (picked < size))
            some = sel.where((sizes > byte) & (sizes < size))
            data[places, byte] = read_parts(take(some, 1, byte), places.size, 1)
    return rows


# Asynchronous copies, stores and reductions that arrive at an mbarrier: PTX ISA 9.7.9.12, .13, .25.4 and 9.7.13.7.
#
# The source is read when the copy is issued. What arrives at an mbarrier is seen when that is looked at, which is as
# late as it may be; what goes to global memory is there at once.

_UNIT = 16
"""Addresses and sizes of bulk copies are multiples of it."""

_WORD = 8
"""Those of st.bulk."""

_SPACES = {"shared::cluster": "cluster", "shared::cta": "shared", "global": "global"}


@meaning("cp.async.bulk", "cp.reduce.async.bulk")
def bulk(ctx: Context, bound: Bindings) -> Action:
    """Many bytes by one thread; to several CTAs, or of each 16 bytes some. A reduction combines elements."""
    combine = _combination(ctx, bound, bound["D"] != "global") if "O" in bound else None
    target, source, size, *rest = ctx.operands
    to, of = _SPACES[bound["D"]], _SPACES[bound["S"]]
    put, take = locate(ctx, target, to, None), locate(ctx, source, of, None)
    sizes, place = ctx.source(size, "u32"), absent if to == "global" else objects(ctx, rest.pop(0), to)
    wanted = masks_of(ctx, rest.pop(0), bound["C"]) if bound.get("C") else absent
    if bound.get("H"):
        rest.pop(0)
    kept = ctx.source(rest.pop(0), "u16") if bound.get("K") else absent

    def step(
        state: State, destination: Locate, start: Locate, lengths: Array, barrier: Find | None, ctas: Array | None,
        masks: Array | None, sel: Selection,
    ) -> None:  # fmt: skip
        def tell(kind: AccessKind, buffer: Buffer, first: int, length: int, thread: int) -> None:
            if state.observer is not None:
                starts = np.arange(first, first + length, _UNIT)
                tell_of_one(state.observer, ctx.pc, kind, buffer, starts, _UNIT, thread)

        for one, thread in one_by_one(sel):
            length = _length(int(lengths[thread]), _UNIT, thread)
            if not length:
                continue
            data, at = _span(start, one, length)
            tell("load", data, at, length, thread)
            rows = data.data[at : at + length].copy()
            buffer, first = _span(destination, one, length)
            if barrier is None:
                tell("store", buffer, first, length, thread)
                check_writable(destination(one, _UNIT))
                _write(buffer, first, rows, combine, None if masks is None else int(masks[thread]))
                continue
            for shift in shifts(state, buffer, first, None if ctas is None else int(ctas[thread]), thread):
                tell("copy", buffer, first + shift, length, thread)
                index = barrier(one) + shift // 8
                copy = BulkCopy(ctx.pc, thread, index, buffer, first + shift, rows, combine)
                state.mbarriers.complete_later(copy, one)

    return acting(step, put, take, sizes, place, wanted, kept)


def _span(find: Locate, one: Selection, length: int) -> tuple[Buffer, int]:
    """Where the bytes of one thread begin; the last must be there as well as the first."""
    (first,), _ = find(one, _UNIT), find(one, _UNIT, length - _UNIT)
    return first.buffer, int(first.index[0]) * _UNIT


def one_by_one(sel: Selection) -> Iterator[tuple[Selection, int]]:
    """The threads that issue copies, one at a time; as a rule there is one per CTA."""
    for thread in sel.threads.tolist():
        yield Selection.of(thread, sel.total), thread


def _length(length: int, unit: int, thread: int) -> int:
    if length % unit:
        raise FaultError(f"expected a size that is a multiple of {unit}, got {length}", thread)
    return length


def _combination(ctx: Context, bound: Bindings, shared: bool) -> Combine:
    """The function that combines bytes in memory with arriving bytes."""
    seen, update = seen_as(bound["T"]), (ctx.updates or updates)(bound["O"], bound["T"])(shared)

    def combine(old: Array, new: Array) -> Array:
        come = new.view(seen)
        return np.ascontiguousarray(update(old.view(seen), come, come)).view(np.uint8)

    return combine


def _write(buffer: Buffer, first: int, rows: Array, combine: Combine | None, mask: int | None) -> None:
    """Writes bytes to global memory. A mask has one bit for each of 16 bytes and selects those that are written."""
    place = buffer.data[first : first + rows.size]
    new = rows if combine is None else combine(place, rows)
    if mask is None:
        place[...] = new
    else:
        chosen = np.tile((mask >> np.arange(_UNIT) & 1).astype(np.bool_), rows.size // _UNIT)
        place[chosen] = new[chosen]


def masks_of(ctx: Context, operand: Operand, qualifier: str) -> Source:
    """The CTAs of a cluster that a `.multicast` goes to: bits of 16, or of 32."""
    return ctx.source(operand, "u32" if qualifier.endswith("32b") else "u16")


def shifts(state: State, buffer: Buffer, first: int, ctas: int | None, thread: int) -> list[int]:
    """How far from the address given the bytes land: at the same place in each CTA of a mask."""
    if ctas is None:
        return [0]
    size, stride = state.geometry.cluster_size, buffer.size // state.geometry.ctas
    if ctas >> size:
        raise FaultError(f"expected a mask of the {size} CTAs of the cluster, got {ctas:#x}", thread)
    rank = first // stride % size
    return [(number - rank) * stride for number in range(size) if ctas >> number & 1]


# Clusters that have not begun, whose launch another takes over: PTX ISA 9.7.13.17, .18. The answer is opaque: here the
# index of the cluster's first CTA, and whether there was one.


@meaning("cancel.try")
def cancel(ctx: Context, bound: Bindings) -> Action:
    """Cancels a cluster that has not begun. The answer is 16 bytes of shared memory, here or in the whole cluster."""
    target, barrier = ctx.operands
    pc, everywhere = ctx.pc, bool(bound.get("C"))

    def step(state: State, place: Locate, find: Find, sel: Selection) -> None:
        for one, thread in one_by_one(sel):
            (part,) = place(one, _UNIT)
            at, size = int(part.index[0]) * _UNIT, state.geometry.cluster_size
            last = state.queue.cancel(size)
            answer = (
                np.zeros(4, np.uint32) if last is None else np.array([*state.geometry.cta_index(last), 1], np.uint32)
            )
            data, index = answer.view(np.uint8).reshape(1, _UNIT), find(one)
            for shift in shifts(state, part.buffer, at, (1 << size) - 1 if everywhere else None, thread):
                places = np.array([at + shift])
                tell_of_one(state.observer, pc, "copy", part.buffer, places, _UNIT, thread)
                copy = BulkCopy(pc, thread, index + shift // 8, part.buffer, places, data)
                state.mbarriers.complete_later(copy, one)

    space = space_of(bound)
    return acting(step, locate(ctx, target, space, None), objects(ctx, barrier, space))


@meaning("cancel.done")
def canceled(ctx: Context, bound: Bindings) -> Action:
    """Whether an answer names a cluster."""
    dest, answer = ctx.operands
    return elementwise(lambda low, high: high >> np.uint64(32) != 0, ctx.dest(dest, "pred"), *wide(ctx, answer))


@meaning("cancel.first")
def first_cta(ctx: Context, bound: Bindings) -> Action:
    """The index that an answer names, or one coordinate of it."""
    dest, answer = ctx.operands
    if axis := bound.get("A"):
        low, high = wide(ctx, answer)
        half, shift = {"x": (low, 0), "y": (low, 32), "z": (high, 0)}[axis[-1]]
        return elementwise(lambda value: value >> np.uint64(shift), ctx.dest(dest, "b32"), half)

    def parts(low: Array, high: Array) -> tuple[Array, ...]:
        return tuple((half >> np.uint64(shift)).astype(np.uint32) for half in (low, high) for shift in (0, 32))

    return several(parts, [ctx.dest(item, "b32") for item in ctx.items(dest)], *wide(ctx, answer))


@meaning("st.async", "red.async")
def store_async(ctx: Context, bound: Bindings) -> Action:
    """A word or a vector of each thread into shared memory of the cluster, which arrive, with as many bytes, at an
    object beside them; a reduction combines them with what is there."""
    combine = _combination(ctx, bound, True) if "O" in bound else None
    where, a, barrier = ctx.operands
    type, count = bound["T"], vector_of(bound)
    sources: list[Source] = [ctx.source(item, type) for item in ctx.items(a)]
    # An own address is one of the cluster too, and the object may be another CTA's.
    space = "generic" if space_of(bound) == "generic" else "cluster"
    width = bits_of(type) // 8
    word = np.dtype(DTYPES[type] if type == "b128" else f"u{width}")

    def step(state: State, target: Locate, find: Find, values: list[Array], sel: Selection) -> None:
        buffer = state.memory.shared.buffer
        stride = buffer.size // state.geometry.ctas
        parts = target(sel, width * count)
        start = in_shared(parts, buffer, sel, f"{ctx.instruction.opcode} writes") * width * count
        index = find(sel)
        rows = np.stack([sel.pick(v).view(word) for v in values], axis=1)
        for i, (one, thread) in enumerate(one_by_one(sel)):
            if start[i] // stride != index[i] * 8 // stride:
                raise FaultError("the mbarrier object is not in the CTA that the bytes go to", thread)
            data = np.ascontiguousarray(rows[i]).view(np.uint8)
            copy = BulkCopy(ctx.pc, thread, index[i : i + 1], buffer, int(start[i]), data, combine)
            state.mbarriers.complete_later(copy, one)

    return acting(step, locate(ctx, where, space, "copy"), objects(ctx, barrier, space), all_of(sources))


@meaning("st.bulk")
def store_bulk(ctx: Context, bound: Bindings) -> Action:
    """Zeros into shared memory of the own CTA."""
    where, size, _ = ctx.operands

    def step(state: State, find: Locate, lengths: Array, sel: Selection) -> None:
        shared = state.memory.shared.buffer
        for one, thread in one_by_one(sel):
            length = _length(int(lengths[thread]), _WORD, thread)
            if not length:
                continue
            first = int(in_shared(find(one, _WORD), shared, one, "st.bulk writes")[0]) * _WORD
            find(one, _WORD, length - _WORD)
            starts = np.arange(first, first + length, _WORD)
            tell_of_one(state.observer, ctx.pc, "store", shared, starts, _WORD, thread)
            shared.data[first : first + length] = 0

    return acting(step, locate(ctx, where, space_of(bound), None), ctx.source(size, ctx.row.operands[1].type))


# Addresses of shared memory in a cluster of CTAs: PTX ISA 9.7.9.23 and .24.


@meaning("mapa")
def mapa(ctx: Context, bound: Bindings) -> Action:
    """The address of a shared variable in another CTA of the cluster."""
    generic, type = not bound["P"], bound["T"]
    d, a, rank = ctx.operands
    if generic and isinstance(a, Symbol):
        ctx.fail("expected a generic address in a 64-bit register; others are for .shared::cluster")

    def step(state: State, out: Array, values: Array, ranks: Array, sel: Selection) -> None:
        window, offset = _in_window(sel, values, generic)
        number, size = sel.pick(ranks).astype(np.uint64), state.geometry.cluster_size
        message = f"expected a CTA from 0 to {size - 1} of the cluster, got {{}}"
        sel.refuse(number >= size, message, number)
        plain = offset & np.uint64((1 << RANK_BITS) - 1)
        sel.put(out, window + plain + (number << np.uint64(RANK_BITS)))

    return acting(step, ctx.dest(d, type), ctx.source(a, type), ctx.source(rank, "u32"))


@meaning("getctarank")
def getctarank(ctx: Context, bound: Bindings) -> Action:
    """The rank of the CTA whose shared memory an address is of."""
    generic, type = not bound["P"], bound["T"]
    d, a = ctx.operands

    def step(state: State, out: Array, values: Array, sel: Selection) -> None:
        _, offset = _in_window(sel, values, generic)
        sel.put(out, offset >> np.uint64(RANK_BITS))

    return acting(step, ctx.dest(d, "u32"), ctx.source(a, type))


def _in_window(sel: Selection, values: Array, generic: bool) -> tuple[np.uint64, Array]:
    """The base of the window of shared memory, and the offsets of addresses in it. Other addresses are a fault."""
    address = sel.pick(values).view(f"u{values.itemsize}").astype(np.uint64)
    outside = address >> np.uint64(32) != np.uint64(SHARED_WINDOW >> 32)
    sel.refuse(outside & generic, "expected an address of shared memory, got {:#x}", address)
    window = np.uint64(SHARED_WINDOW if generic else 0)
    return window, address - window


# `alloca` and what goes with it: PTX ISA 9.7.17.


@meaning("alloca")
def alloca(ctx: Context, bound: Bindings) -> Action:
    """Bytes of the stack, which the function gives back when it returns."""
    type, operands = bound["T"], ctx.operands
    alignment, layout = ctx.integer(operands[2]) if len(operands) == 3 else 8, ctx.layout

    def step(state: State, out: Array, sizes: Array, pointer: Array, sel: Selection) -> None:
        lanes, base = sel.threads, np.uint64(layout.stack_base)
        gap = (np.uint64(0) - (pointer[lanes] + base)) % np.uint64(alignment)
        wanted = gap + -(-sel.pick(sizes).astype(np.int64) // MIN * MIN).astype(np.uint64)
        sel.put(out, grow(pointer, lanes, wanted) + base + gap)

    return acting(step, ctx.dest(operands[0], type), ctx.source(operands[1], type), _stack_pointer(ctx))


@meaning("stacksave", "stackrestore")
def stack_pointer_moved(ctx: Context, bound: Bindings) -> Action:
    """How far the stack is used, and the stack as it was when that was saved."""
    (operand,), type = ctx.operands, bound["T"]
    pointer = _stack_pointer(ctx)
    if ctx.row.root == "stacksave":
        return elementwise(identity, ctx.dest(operand, type), pointer)
    return elementwise(identity, pointer, ctx.source(operand, type))


def _stack_pointer(ctx: Context) -> Source:
    """How many bytes of the stack each thread uses; there is a stack from now on."""
    ctx.layout.stack()
    return lambda state: stack_pointer(state.banks, ctx.layout)
