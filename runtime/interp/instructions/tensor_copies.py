"""Copies of boxes of tensors between global and shared memory: PTX ISA 9.7.9.25.5.

The map is read from memory when the copy is issued, and so is the source. What goes to shared memory arrives when its
mbarrier is looked at, which is as late as it may be; what goes to global memory is there at once.
"""

from __future__ import annotations

import numpy as np

from ....dialect.isa.descriptor import UNIT
from ....dialect.isa.tensor_map import TensorMapFields
from ....dialect.ptx.rows.grammar import Bindings
from ...numerics.array import Array
from ..decode import Context, meaning
from ..errors import FaultError
from ..machine.memory import Part, check_writable
from ..machine.state import Action, State
from ..machine.threads import BoundStep, Selection
from ..observers.events import AccessKind, MemoryAccess
from .access import locate, space_of
from .atomics import seen_as, updates
from .bulk import one_by_one, shifts
from .mbarrier import objects
from .tensor_boxes import Box, BoxOperand, Home

_NAN = 0x7FF7
"""What fills floating-point elements outside the tensor, 16 bits at a time, as an H200 does it."""

_TF32_NAN = np.uint32(0x7FFFE000)


# Loads


@meaning("tensor.load")
def load(ctx: Context, bound: Bindings) -> Action:
    """A box to shared memory, of this CTA or of those of the cluster that a mask names."""
    target, where, barrier, *rest = ctx.operands
    offsets = rest.pop(0) if bound["MODE"] == "im2col" else None
    mask = ctx.source(rest[0], "u16") if bound.get("C") else None
    operand = BoxOperand.of(ctx, where, bound["MODE"], offsets)
    space = space_of(bound)
    put, arrive, pc = locate(ctx, target, space, None), objects(ctx, barrier, space), ctx.pc

    def bind(state: State) -> BoundStep:
        read, place, find = operand.bind(state), put(state), arrive(state)
        masks = mask(state) if mask else None

        def step(sel: Selection) -> None:
            for one, thread in one_by_one(sel):
                box = read(thread)
                (part,) = place(one, UNIT)
                home = Home(state, int(part.index[0]) * UNIT, thread, box.fields.extent)
                data = _read(state, box, pc, thread)
                units = box.units(home.address) + home.base
                wanted, index = None if masks is None else int(masks[thread]), find(one)
                for shift in shifts(state, part.buffer, home.base, wanted, thread):
                    if state.observer is not None:
                        by = np.full(units.size, thread)
                        state.observer.access(MemoryAccess(pc, "copy", part.buffer, units + shift, UNIT, by))
                    state.mbarriers.complete_later(index + shift // 8, one, part.buffer, units + shift, data)

        return step

    return bind


def _read(state: State, box: Box, pc: int, thread: int) -> Array:
    """The bytes of a box, unit by unit: (units, 16)."""
    fields, size = box.fields, box.fields.element.size
    addresses, inside = box.elements()
    fill = int.from_bytes(_NAN.to_bytes(2, "little") * (size // 2), "little") if fields.nan_fill else 0
    found = np.full(addresses.shape, fill, f"u{size}")
    values = np.empty(np.count_nonzero(inside), found.dtype)
    for part in _parts(state, addresses[inside], size, thread):
        values[... if part.chosen is None else part.chosen] = part.buffer.view(size)[part.index]
    _tell(state, pc, "load", box, thread)
    found[inside] = _converted(fields.element.name, values)
    return found.view(np.uint8).reshape(-1, UNIT)


def _parts(state: State, addresses: Array, width: int, thread: int) -> tuple[Part, ...]:
    return state.memory.memory.parts(addresses.astype(np.uint64), width, np.full(addresses.size, thread))


def _tell(state: State, pc: int, kind: AccessKind, box: Box, thread: int, values: Array | None = None) -> None:
    """Reports what a thread accesses in global memory: units that lie in the tensor whole, elements of the others.
    `values` are the elements that it stores, (rows, fastest)."""
    if state.observer is None:
        return
    size = box.fields.element.size
    each = UNIT // size
    addresses, inside = (found.reshape(-1, each) for found in box.elements())
    words = None if values is None else values.reshape(-1, each)
    whole: Array = np.logical_and.reduce(inside, axis=1)
    rest = inside & ~whole[:, None]
    for found, chosen, width in ((addresses[whole, 0], whole, UNIT), (addresses[rest], rest, size)):
        data = None if words is None else np.ascontiguousarray(words[chosen]).view(np.uint8).reshape(-1, width)
        for part in _parts(state, found, width, thread) if found.size else ():
            some = data if data is None or part.chosen is None else data[part.chosen]
            by = np.full(part.index.size, thread)
            state.observer.access(MemoryAccess(pc, kind, part.buffer, part.index * width, width, by, some))


def _converted(type: str, words: Array) -> Array:
    """What a load makes of the words of a tensor: `tf32` is rounded to nearest even. An H200 flushes nothing, not with
    `.ftz` either."""
    if not type.startswith("tf32"):
        return words
    rounded = words + np.uint32(0xFFF) + (words >> np.uint32(13) & np.uint32(1)) & np.uint32(0xFFFFE000)
    return np.where((words & np.uint32(0x7FFFFFFF)) > 0x7F800000, _TF32_NAN, rounded)


# Stores and reductions


@meaning("tensor.store")
def store(ctx: Context, bound: Bindings) -> Action:
    """A box from shared memory; what lies outside the tensor is not written. With an operation it is combined."""
    operand = BoxOperand.of(ctx, ctx.operands[0], bound["MODE"])
    take, operation, pc = locate(ctx, ctx.operands[1], "shared", None), bound.get("OP", ""), ctx.pc

    def bind(state: State) -> BoundStep:
        read, place = operand.bind(state), take(state)

        def step(sel: Selection) -> None:
            for one, thread in one_by_one(sel):
                box = read(thread)
                _check_stored(box, thread)
                (part,) = place(one, UNIT)
                home = Home(state, int(part.index[0]) * UNIT, thread, box.fields.extent)
                units = box.units(home.address) + home.base
                if state.observer is not None:
                    state.observer.access(
                        MemoryAccess(pc, "load", part.buffer, units, UNIT, np.full(units.size, thread))
                    )
                _write(state, box, part.buffer.view(8, 2)[units // UNIT], operation, pc, thread)

        return step

    return bind


def _check_stored(box: Box, thread: int) -> None:
    """Refuses boxes that an H200 stores nowhere."""
    if min(box.start) < 0:
        message = f"a store begins at the negative coordinate {min(box.start)}: an illegal instruction on the GPU"
        raise FaultError(message, thread)
    if box.leaves_image:
        raise FaultError("a store has pixels beside the image: an illegal instruction on the GPU", thread)


def _write(state: State, box: Box, units: Array, operation: str, pc: int, thread: int) -> None:
    fields, size = box.fields, box.fields.element.size
    addresses, inside = box.elements()
    elements = np.ascontiguousarray(units).view(f"u{size}").reshape(addresses.shape)
    values, parts = elements[inside], _parts(state, addresses[inside], size, thread)
    check_writable(parts)
    _tell(state, pc, "store", box, thread, None if operation else elements)
    for part in parts:
        new = values if part.chosen is None else values[part.chosen]
        view = part.buffer.view(size)
        if not operation:
            view[part.index] = new
            continue
        type = _type(fields, operation, thread)
        seen = seen_as(type)
        view = view.view(seen)
        view[part.index] = updates(operation, type)(False)(view[part.index], new.view(seen), new.view(seen))


_BITWISE = ("and", "or", "xor")

_OPERATIONS = {
    "add": ("u32", "s32", "u64", "f32", "f16", "bf16"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",),
    "dec": ("u32",),
    **dict.fromkeys(_BITWISE, ("u32", "s32", "u64")),
}
"""The element types of a map that an operation takes; the bitwise ones are those that an H200 does not refuse."""


def _type(fields: TensorMapFields, operation: str, thread: int) -> str:
    """The type that a reduction works on."""
    name = fields.element.name.removesuffix(".ftz")
    if name not in _OPERATIONS[operation]:
        raise FaultError(f"{operation} takes {', '.join(_OPERATIONS[operation])}, the map has {name}", thread)
    return f"b{8 * fields.element.size}" if operation in _BITWISE else name


@meaning("tensor.unmodelled")
def unmodelled(ctx: Context, bound: Bindings) -> Action:
    """Raises:
    DecodeError: always.
    """
    ctx.fail("the interpreter runs tile and im2col mode; im2col::w, gathered rows and pairs of CTAs it does not")


@meaning("tensor.prefetch")
def prefetch(ctx: Context, bound: Bindings) -> Action:
    """A hint, of which the map is looked at."""
    offsets = ctx.operands[1] if bound["MODE"] == "im2col" else None
    operand = BoxOperand.of(ctx, ctx.operands[0], bound["MODE"], offsets)

    def bind(state: State) -> BoundStep:
        read = operand.bind(state)

        def step(sel: Selection) -> None:
            for _, thread in one_by_one(sel):
                read(thread)

        return step

    return bind
