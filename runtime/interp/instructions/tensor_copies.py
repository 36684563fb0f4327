"""Copies of boxes of tensors between global and shared memory: PTX ISA 9.7.9.25.5, in tile mode.

The map is read from memory, 128 bytes, when the copy is issued, and so is the source. What goes to shared memory
arrives when its mbarrier is looked at, which is as late as it may be; what goes to global memory is there at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ....dialect.isa.descriptor import UNIT, MatrixDescriptor
from ....dialect.isa.tensor_map import SIZE, TensorMapError, TensorMapFields
from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.text.syntax import Immediate, Indexed, Operand, Register, Symbol
from ...numerics.array import Array
from ..decode import Context, meaning
from ..errors import FaultError
from ..machine.memory import check_writable
from ..machine.state import Action, Source, State
from ..machine.threads import BoundStep, Selection
from ..observers.events import MemoryAccess
from .access import locate
from .atomics import seen_as, updates
from .bulk import one_by_one, shifts
from .mbarrier import objects

ALIGNMENT = 128
"""Bytes that addresses in shared memory are multiples of."""

_NAN = 0x7FF7
"""What fills floating-point elements outside the tensor, 16 bits at a time, as an H200 does it."""

_TF32_NAN = np.uint32(0x7FFFE000)


@dataclass(frozen=True)
class _Box:
    """The operand `[map, {c0, ...}]`: whose address and where the box begins, fastest dimension first."""

    address: Source
    coordinates: tuple[Source, ...]

    @staticmethod
    def of(ctx: Context, operand: Operand, rank: int) -> _Box:
        if not isinstance(operand, Indexed) or len(operand.items) != 2:
            ctx.fail("expected a tensor map and coordinates, such as [%rd1, {%r1, %r2}]")
        base, where = operand.items
        if not isinstance(base, Register | Symbol | Immediate):
            ctx.fail("expected the address of a tensor map")
        return _Box(ctx.source(base, "u64"), tuple(ctx.source(c, "b32") for c in ctx.items(where)))

    def bind(self, state: State) -> Callable[[int], tuple[TensorMapFields, tuple[int, ...]]]:
        """Reads the map and the coordinates of a thread."""
        addresses, starts = self.address(state), [c(state) for c in self.coordinates]

        def read(thread: int) -> tuple[TensorMapFields, tuple[int, ...]]:
            fields = _fields(state, int(addresses[thread]), thread)
            if len(fields.sizes) != len(starts):
                raise FaultError(f"the tensor map has {len(fields.sizes)} dimensions, the copy {len(starts)}", thread)
            where = tuple(int(s[thread].view(np.int32)) for s in starts)
            if where[0] * fields.element.size % UNIT:
                raise FaultError(
                    f"the box begins {where[0] * fields.element.size} bytes along the fastest dimension, which is no "
                    f"multiple of {UNIT}: an illegal instruction on the GPU", thread,
                )  # fmt: skip
            return fields, where

        return read


def _fields(state: State, address: int, thread: int) -> TensorMapFields:
    if address % 64:
        raise FaultError(f"a tensor map lies at a multiple of 64 bytes, got {address:#x}", thread)
    places = np.arange(address, address + SIZE, 8, dtype=np.uint64)
    words = np.empty(places.size, np.uint64)
    for part in state.memory.memory.parts(places, 8, np.full(places.size, thread)):
        words[... if part.chosen is None else part.chosen] = part.buffer.view(8)[part.index]
    try:
        return _decoded(words.tobytes())
    except TensorMapError as error:
        raise FaultError(str(error), thread) from None


@lru_cache(256)
def _decoded(data: bytes) -> TensorMapFields:
    return TensorMapFields.decode(data)


# Where the elements of a box lie


def _global(fields: TensorMapFields, start: tuple[int, ...]) -> tuple[Array, Array]:
    """The addresses of the elements of a box, (rows, fastest), and which of them lie in the tensor."""
    counts = fields.copied
    address = np.full(1, fields.address, np.int64)
    inside = np.ones(1, np.bool_)
    for axis in range(len(counts) - 1, 0, -1):
        at = start[axis] + np.arange(counts[axis], dtype=np.int64) * fields.steps[axis]
        address = (address[:, None] + at * fields.strides[axis - 1]).reshape(-1)
        inside = (inside[:, None] & (at >= 0) & (at < fields.sizes[axis])).reshape(-1)
    along = start[0] + np.arange(counts[0], dtype=np.int64)
    return (
        address[:, None] + along * fields.element.size,
        inside[:, None] & (along >= 0) & (along < fields.sizes[0]),
    )


def _swizzled(address: int, fields: TensorMapFields) -> Array:
    """The addresses in shared memory of the units of a box, whose place without a swizzle begins at `address`."""
    row = np.arange(0, fields.copied[0] * fields.element.size, UNIT, dtype=np.int64)
    rows = np.arange(address, address + fields.extent, fields.pitch, dtype=np.int64)
    return MatrixDescriptor(0, 0, 0, fields.swizzle).swizzled((rows[:, None] + row).reshape(-1))


class _Home:
    """The shared memory of a CTA, by its addresses."""

    def __init__(self, state: State, at: int, thread: int, size: int) -> None:
        window = state.memory.shared
        stride = window.buffer.size // state.geometry.ctas
        self.base, self.address = at // stride * stride, at % stride
        self.stride = stride
        if self.address % ALIGNMENT:
            raise FaultError(
                f"misaligned shared access: address {self.address:#x} is not a multiple of {ALIGNMENT}", thread,
                self.address,
            )  # fmt: skip
        if self.address + size > window.size:
            raise FaultError(
                f"shared access out of bounds: {size} bytes at address {self.address:#x}, of {window.size} bytes",
                thread, self.address,
            )  # fmt: skip


# Loads


@meaning("tensor.load")
def load(ctx: Context, bound: Bindings) -> Action:
    """A box to shared memory, of this CTA or of those of the cluster that a mask names."""
    operands = list(ctx.operands)
    target, where, barrier = operands[:3]
    multicast = bool(bound.get("C"))
    mask = ctx.source(operands[3], "u16") if multicast else None
    box = _Box.of(ctx, where, int(bound["D"][0]))
    space = "shared" if "shared::cta" in ctx.instruction.opcode else "cluster"
    put, arrive, pc = locate(ctx, target, space, None), objects(ctx, barrier, space), ctx.pc

    def bind(state: State) -> BoundStep:
        read, place, find = box.bind(state), put(state), arrive(state)
        masks = mask(state) if mask else None

        def step(sel: Selection) -> None:
            for one, thread in one_by_one(sel):
                fields, start = read(thread)
                (part,) = place(one, UNIT)
                home = _Home(state, int(part.index[0]) * UNIT, thread, fields.extent)
                data = _read(state, fields, start, thread)
                units = _swizzled(home.address, fields) + home.base
                wanted, index = None if masks is None else int(masks[thread]), find(one)
                for shift in shifts(state, part.buffer, home.base, wanted, thread):
                    if state.observer is not None:
                        by = np.full(units.size, thread)
                        state.observer.access(MemoryAccess(pc, "copy", part.buffer, units + shift, UNIT, by))
                    state.mbarriers.complete_later(index + shift // 8, one, part.buffer, units + shift, data)

        return step

    return bind


def _read(state: State, fields: TensorMapFields, start: tuple[int, ...], thread: int) -> Array:
    """The bytes of a box, unit by unit: (units, 16)."""
    size = fields.element.size
    addresses, inside = _global(fields, start)
    fill = int.from_bytes(_NAN.to_bytes(2, "little") * (size // 2), "little") if fields.nan_fill else 0
    found = np.full(addresses.shape, fill, f"u{size}")
    wanted = addresses[inside].astype(np.uint64)
    values = np.empty(wanted.size, found.dtype)
    for part in state.memory.memory.parts(wanted, size, np.full(wanted.size, thread)):
        values[... if part.chosen is None else part.chosen] = part.buffer.view(size)[part.index]
    found[inside] = _converted(fields.element.name, values)
    return found.view(np.uint8).reshape(-1, UNIT)


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
    box = _Box.of(ctx, ctx.operands[0], int(bound["D"][0]))
    take, operation, pc = locate(ctx, ctx.operands[1], "shared", None), bound.get("OP", ""), ctx.pc

    def bind(state: State) -> BoundStep:
        read, place = box.bind(state), take(state)

        def step(sel: Selection) -> None:
            for one, thread in one_by_one(sel):
                fields, start = read(thread)
                if min(start) < 0:
                    message = (
                        f"a store begins at the negative coordinate {min(start)}: an illegal instruction on the GPU"
                    )
                    raise FaultError(message, thread)
                (part,) = place(one, UNIT)
                home = _Home(state, int(part.index[0]) * UNIT, thread, fields.extent)
                units = _swizzled(home.address, fields) + home.base
                if state.observer is not None:
                    state.observer.access(
                        MemoryAccess(pc, "load", part.buffer, units, UNIT, np.full(units.size, thread))
                    )
                _write(state, fields, start, part.buffer.view(8, 2)[units // UNIT], operation, thread)

        return step

    return bind


def _write(
    state: State, fields: TensorMapFields, start: tuple[int, ...], units: Array, operation: str, thread: int
) -> None:
    size = fields.element.size
    addresses, inside = _global(fields, start)
    values = np.ascontiguousarray(units).view(f"u{size}").reshape(addresses.shape)[inside]
    wanted = addresses[inside].astype(np.uint64)
    parts = state.memory.memory.parts(wanted, size, np.full(wanted.size, thread))
    check_writable(parts)
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


_OPERATIONS = {
    "add": ("u32", "s32", "u64", "f32", "f16", "bf16"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",),
    "dec": ("u32",),
}
"""The element types of a map that an operation takes; the bitwise ones take those of 32 and 64 bits."""


def _type(fields: TensorMapFields, operation: str, thread: int) -> str:
    """The type that a reduction works on."""
    name = fields.element.name.removesuffix(".ftz")
    if operation in _OPERATIONS:
        if name not in _OPERATIONS[operation]:
            raise FaultError(f"{operation} takes {', '.join(_OPERATIONS[operation])}, the map has {name}", thread)
        return name
    if fields.element.size not in (4, 8):
        raise FaultError(f"{operation} takes elements of 32 or 64 bits, the map has {name}", thread)
    return f"b{8 * fields.element.size}"


@meaning("tensor.unmodelled")
def unmodelled(ctx: Context, bound: Bindings) -> Action:
    """Raises:
    DecodeError: always.
    """
    ctx.fail("the interpreter copies boxes of tensors in tile mode, for one CTA or by multicast; this mode it does not")


@meaning("tensor.map")
def edited(ctx: Context, bound: Bindings) -> Action:
    """Raises:
    DecodeError: always.
    """
    ctx.fail("tensor maps are made by the host here: the interpreter does not replace their fields")


@meaning("tensor.prefetch")
def prefetch(ctx: Context, bound: Bindings) -> Action:
    """A hint, of which the map is looked at."""
    box = _Box.of(ctx, ctx.operands[0], int(bound["D"][0]))

    def bind(state: State) -> BoundStep:
        read = box.bind(state)

        def step(sel: Selection) -> None:
            for _, thread in one_by_one(sel):
                read(thread)

        return step

    return bind
