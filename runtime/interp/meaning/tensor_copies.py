"""Copies of boxes of tensors, and tensor maps that a kernel edits. PTX ISA 9.7.9.25.5, 9.7.9.26."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.isa.tensor_map import (
    MAP_ALIGNMENT,
    ORDERED,
    SIZE,
    Edit,
    EditError,
    PixelBox,
    TensorMapError,
    TensorMapFields,
    edits,
    problem_of_copy,
)
from ....dialect.isa.wgmma import UNIT, MatrixDescriptor
from ....dialect.ptx.text.syntax import Immediate, Indexed, Operand
from ...numerics import floats
from ...numerics.floats import Array
from ..machine.decode import Context, Updates, meaning
from ..machine.events import AccessKind, Selection, TileUnits, tell, tell_of_one
from ..machine.mbarriers import BulkCopy
from ..machine.memory import Buffer, FaultError, Part, check_writable, read_parts, write_parts
from ..machine.state import Action, State, absent, acting
from .access import Locate, locate, seen_as, space_of, updates
from .bulk import masks_of, one_by_one, shifts
from .synchronisation import Find, objects

# Where a copy of a box of a tensor reads and writes: the map, the coordinates, global and shared memory.
#
# A map is 128 bytes in memory, which are read when a copy is issued. In im2col mode the box is one of pixels: PTX ISA
# 5.5.4.

ALIGNMENT = 128
"""Bytes that addresses in shared memory are multiples of."""


class Box(NamedTuple):
    """A box that a thread copies: the map, the first coordinates, and the offsets of im2col pixels from the filter's
    corner; fastest dimension first. `rows` are the rows of a gather or scatter."""

    fields: TensorMapFields
    start: tuple[int, ...]
    offsets: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()

    def elements(self) -> tuple[Array, Array]:
        """The addresses of the elements copied together, (rows, fastest), and which of them lie in the tensor."""
        fields, box = self.fields, self.fields.box
        rows, inside = self._pixels(box) if isinstance(box, PixelBox) else self._rows()
        together = fields.element.together
        along = self.start[0] // together + np.arange(fields.copied[0], dtype=np.int64)
        within = (along >= 0) & (along < fields.sizes[0] // together)
        return rows[:, None] + along * fields.element.size, inside[:, None] & within

    def words(self) -> tuple[Array, Array, int]:
        """The same of the words of what is copied together, and the bytes of each."""
        (addresses, inside), size = self.elements(), self.fields.element.size
        if self.fields.element.together == 1:
            return addresses, inside, size
        addresses = addresses[..., None] + np.arange(0, size, 4)
        return addresses.reshape(len(addresses), -1), np.repeat(inside, size // 4, axis=1), 4

    def _rows(self) -> tuple[Array, Array]:
        """The addresses of rows along the fastest dimension, and a mask of those inside of the tensor."""
        fields, counts = self.fields, self.fields.copied
        address, inside = np.full(1, fields.address, np.int64), np.ones(1, np.bool_)
        for axis in range(len(counts) - 1, 0, -1):
            step = np.arange(counts[axis], dtype=np.int64) * fields.steps[axis]
            at = np.array(self.rows, np.int64) if self.rows else self.start[axis] + step
            address = (address[:, None] + at * fields.strides[axis - 1]).reshape(-1)
            inside = (inside[:, None] & (at >= 0) & (at < fields.sizes[axis])).reshape(-1)
        return address, inside

    def _pixels(self, box: PixelBox) -> tuple[Array, Array]:
        fields, at = self.fields, self._pixel_coordinates(box)
        inside: Array = np.logical_and.reduce((at >= 0) & (at < np.array(fields.sizes[1:])), axis=1)
        return fields.address + at @ np.array(fields.strides), inside

    def _pixel_coordinates(self, box: PixelBox) -> Array:
        """Of each pixel the coordinates in the image, then the number of the image."""
        corners = np.array(list(box.corners(self.fields.sizes, self.fields.steps, self.start[1:])), np.int64)
        return corners + np.array([*self.offsets, *[0] * (corners.shape[1] - len(self.offsets))])

    @property
    def leaves_image(self) -> bool:
        """Whether a pixel of the box lies outside of its image."""
        if not isinstance(box := self.fields.box, PixelBox):
            return False
        at = self._pixel_coordinates(box)[:, :-1]
        return bool(((at < 0) | (at >= np.array(self.fields.sizes[1:-1]))).any())

    def units(self, address: int) -> Array:
        """The addresses in shared memory of the units of the box, whose place without a swizzle begins at `address`."""
        fields = self.fields
        row = np.arange(0, fields.copied[0] * fields.element.shared, UNIT, dtype=np.int64)
        rows = np.arange(address, address + fields.extent, fields.pitch, dtype=np.int64)
        return MatrixDescriptor(0, 0, 0, fields.swizzle).swizzled((rows[:, None] + row).reshape(-1))


ReadBox: TypeAlias = Callable[[int], Box]
"""The box that a thread names."""


class BoxOperand:
    """The operand `[map, {c0, ...}]`: whose address and where the box begins, fastest dimension first; for a copy in
    im2col mode also `{o0, ...}`. A gather or scatter names a column and four rows. What replaces `fields` of the map:
    the address, the sizes, the low parts of strides, and their high parts. Raises DecodeError for an operand of another
    kind."""

    def __init__(self, ctx: Context, operand: Operand, mode: str, offsets: Operand | None = None) -> None:
        if not isinstance(operand, Indexed):
            ctx.fail("expected a tensor map and coordinates, such as [%rd1, {%r1, %r2}]")
        base, *fields, where = operand.items
        by = [] if offsets is None else [ctx.source(o, "u16") for o in ctx.items(offsets)]
        self.offsets = by if mode in ("im2col", "im2col_no_offs") else None
        self.coordinates = [ctx.source(c, "b32") for c in ctx.items(where)]
        self.of_rows = mode in ("tile::gather4", "tile::scatter4")
        types = ("u64", "u16", "u32", "u16")
        self.fields = [[ctx.source(i, t) for i in ctx.items(f)] for f, t in zip(fields, types, strict=False)]
        self.address = ctx.source(base, "u64")

    def bind(self, state: State) -> ReadBox:
        """Reads the map, the coordinates and the offsets of a thread."""
        addresses, starts = self.address(state), [c(state) for c in self.coordinates]
        offsets = None if self.offsets is None else [o(state) for o in self.offsets]
        replaced = [[source(state) for source in field] for field in self.fields]

        def read(thread: int) -> Box:
            fields = _fields(state, int(addresses[thread]), thread)
            start = tuple(int(s[thread].view(np.int32)) for s in starts)
            if replaced:
                fields = _replaced(fields, [[int(w[thread]) for w in words] for words in replaced], start, thread)
            by = None if offsets is None else tuple(int(o[thread]) for o in offsets)
            start, rows = ((start[0], 0), start[1:]) if self.of_rows else (start, ())
            if problem := problem_of_copy(fields, start, by):
                raise FaultError(problem, thread)
            return Box(_of_rows(fields, len(rows), thread) if rows else fields, start, by or (), rows)

        return read


def _fields(state: State, address: int, thread: int) -> TensorMapFields:
    if address % MAP_ALIGNMENT:
        raise FaultError(f"a tensor map lies at a multiple of {MAP_ALIGNMENT} bytes, got {address:#x}", thread)
    places = np.arange(address, address + SIZE, 8, dtype=np.uint64)
    words = read_parts(_parts(state, places, 8, thread), places.size, 8)
    try:
        return _decoded(words.tobytes())
    except TensorMapError as error:
        raise FaultError(str(error), thread) from None


def _replaced(fields: TensorMapFields, values: list[list[int]], start: tuple[int, ...], thread: int) -> TensorMapFields:
    """The fields with an address, and with sizes and strides where they are given. PTX ISA 9.4, 9.7.10.28.5.2. That 128
    KiB from the address on can be read is not looked at. Raises FaultError for fields that no map has, or a box that
    does not begin at 0 in a tensor of other sizes."""
    (address,), *shape = values
    try:
        if not shape:
            return replace(fields, address=address)
        sizes, low, high = (*shape, [], [0])[:3]
        if any(start):
            raise FaultError(f"a copy whose operands have the sizes of the tensor begins at 0, got {start}", thread)
        strides = tuple((part + ((high[0] >> 4 * i & 15) << 32)) << 4 for i, part in enumerate(low))
        return replace(fields, address=address, sizes=tuple(size & 0xFF for size in sizes), strides=strides)
    except TensorMapError as error:
        raise FaultError(str(error), thread) from None


def _of_rows(fields: TensorMapFields, rows: int, thread: int) -> TensorMapFields:
    """The fields of a copy of `rows` rows by a map whose box has one row."""
    box = fields.box
    if isinstance(box, PixelBox) or box[1:] != (1,):
        has = "pixels" if isinstance(box, PixelBox) else box[1]
        raise FaultError(f"a copy of rows takes a box of one row, the tensor map has {has}", thread)
    return replace(fields, box=(box[0], rows))


_decoded = lru_cache(256)(TensorMapFields.decode)


def units_of(state: State, box: Box, place: Locate, one: Selection, thread: int) -> tuple[Buffer, Array, int]:
    """Where a box lies in shared memory: the buffer, its units there, and where its CTA's part begins."""
    (part,), window, size = place(one, UNIT), state.memory.shared, box.fields.extent
    address = int(part.index[0]) * UNIT % (window.buffer.size // state.geometry.ctas)
    base = int(part.index[0]) * UNIT - address
    if address % ALIGNMENT:
        text = f"misaligned shared access: address {address:#x} is not a multiple of {ALIGNMENT}"
        raise FaultError(text, thread, address)
    if address + size > window.size:
        text = f"shared access out of bounds: {size} bytes at address {address:#x}, of {window.size} bytes"
        raise FaultError(text, thread, address)
    return part.buffer, box.units(address) + base, base


# Copies of boxes of tensors between global and shared memory: PTX ISA 9.7.9.25.5.
#
# The map is read from memory when the copy is issued, and so is the source. What goes to shared memory arrives when
# its mbarrier is looked at, which is as late as it may be; what goes to global memory is there at once.

# Loads


@meaning("tensor.load")
def load(ctx: Context, bound: Bindings) -> Action:
    """Loads a box to shared memory of this CTA, or of the CTAs of the cluster in a mask. With `.cta_group::2`, the
    mbarrier is in the same CTA of each destination's pair as in the issuing CTA's own pair."""
    target, where, barrier, *rest = ctx.operands
    offsets = rest.pop(0) if bound["MODE"] == "im2col" else None
    ctas = masks_of(ctx, rest[0], bound["C"]) if bound.get("C") else absent
    operand = BoxOperand(ctx, where, bound["MODE"], offsets)
    space, pc, pairs = space_of(bound), ctx.pc, bound.get("G") == "cta_group::2"

    def step(state: State, read: ReadBox, place: Locate, find: Find, masks: Array | None, sel: Selection) -> None:
        for one, thread in one_by_one(sel):
            box = read(thread)
            buffer, units, base = units_of(state, box, place, one, thread)
            data, moved = _read(state, box, pc, thread), box.fields.moved_bytes
            wanted, index = None if masks is None else int(masks[thread]), find(one)
            for shift in shifts(state, buffer, base, wanted, thread):
                tile = TileUnits(box.fields, (units + shift).reshape(prod(box.fields.copied[1:]), -1) // UNIT)
                tell_of_one(state.observer, pc, "copy", buffer, units + shift, UNIT, thread, tile=tile)
                at = _of_pair(state, index, base, shift, thread) if pairs else index + shift // 8
                copy = BulkCopy(pc, thread, at, buffer, units + shift, data, transferred=moved)
                state.mbarriers.complete_later(copy, one)

    return acting(step, operand.bind, locate(ctx, target, space, None), objects(ctx, barrier, space), ctas)


def _of_pair(state: State, index: Array, base: int, shift: int, thread: int) -> Array:
    """The mbarrier of a box that is copied `shift` bytes away from the CTA whose shared memory begins at `base`."""
    words = state.memory.shared.buffer.size // state.geometry.ctas // 8
    own, named = base // 8 // words, int(index[0]) // words
    if own // 2 != named // 2:
        raise FaultError("expected the mbarrier of a copy with .cta_group::2 in its own pair of CTAs", thread)
    return index + ((base + shift) // 8 // words // 2 - own // 2) * 2 * words


def _read(state: State, box: Box, pc: int, thread: int) -> Array:
    """The bytes of a box, unit by unit: (units, 16)."""
    fields, (addresses, inside, size) = box.fields, box.words()
    fill = int.from_bytes(floats.OUTSIDE.to_bytes(2, "little") * (size // 2), "little") if fields.nan_fill else 0
    words = np.full(addresses.shape, fill, f"u{size}")
    values = read_parts(_parts(state, addresses[inside], size, thread), int(np.count_nonzero(inside)), size)
    _tell(state, pc, "load", box, thread)
    words[inside] = _converted(fields.element.name, values)
    data = words.view(np.uint8)
    if fields.element.expands:
        groups = data.reshape(-1, fields.element.size)
        data = np.pad(groups, ((0, 0), (0, UNIT - fields.element.size)), constant_values=_PADDING)
    return data.reshape(-1, UNIT)


_PADDING = 0xA5
"""What the interpreter leaves in padding, which the text leaves undefined (5.5.1.1)."""


def _parts(state: State, addresses: Array, width: int, thread: int) -> tuple[Part, ...]:
    return state.memory.memory.parts(addresses.astype(np.uint64), width, np.full(addresses.size, thread))


def _tell(state: State, pc: int, kind: AccessKind, box: Box, thread: int, values: Array | None = None) -> None:
    """Reports the accesses of a thread to global memory: in whole units where these are inside the tensor, else by
    element. `values` are the stored elements, (rows, fastest)."""
    if state.observer is None:
        return
    addresses, inside, size = box.words()
    each = UNIT // size
    addresses, inside = addresses.reshape(-1, each), inside.reshape(-1, each)
    words = None if values is None else values.reshape(-1, each)
    complete: Array = np.logical_and.reduce(inside, axis=1)
    rest = inside & ~complete[:, None]
    for chosen_, chosen, width in ((addresses[complete, 0], complete, UNIT), (addresses[rest], rest, size)):
        data = None if words is None else np.ascontiguousarray(words[chosen]).view(np.uint8).reshape(-1, width)
        for part in _parts(state, chosen_, width, thread) if chosen_.size else ():
            some = None if data is None else part.of(data)
            tell_of_one(state.observer, pc, kind, part.buffer, part.index * width, width, thread, some)


def _converted(type: str, words: Array) -> Array:
    """The words of a loaded tensor; `tf32` rounds to nearest even. An H200 flushes nothing, even with `.ftz`."""
    return floats.tf32(words) if type.startswith("tf32") else words


# Stores and reductions


@meaning("tensor.store")
def store(ctx: Context, bound: Bindings) -> Action:
    """Stores or reduces a box from shared memory. Parts outside of the tensor are not written."""
    operand = BoxOperand(ctx, ctx.operands[0], bound["MODE"])
    operation, pc, of = bound.get("OP", ""), ctx.pc, ctx.updates or updates

    def step(state: State, read: ReadBox, place: Locate, sel: Selection) -> None:
        for one, thread in one_by_one(sel):
            box = read(thread)
            _check_stored(box, thread)
            buffer, units, _ = units_of(state, box, place, one, thread)
            tell_of_one(state.observer, pc, "load", buffer, units, UNIT, thread)
            _write(state, box, buffer.view(8, 2)[units // UNIT], (operation, of), pc, thread)

    return acting(step, operand.bind, locate(ctx, ctx.operands[1], "shared", None))


def _check_stored(box: Box, thread: int) -> None:
    """Refuses boxes that an H200 stores nowhere, and those of padded elements: no store takes `.b4x16_p64`
    (9.7.9.25.5.1), and that of `.b6p2x16` is not modelled."""
    if box.fields.element.expands:
        raise FaultError(f"a store takes no elements of {box.fields.element.name}", thread)
    if min(box.start) < 0:
        message = f"a store begins at the negative coordinate {min(box.start)}: an illegal instruction on the GPU"
        raise FaultError(message, thread)
    if box.leaves_image:
        raise FaultError("a store has pixels beside the image: an illegal instruction on the GPU", thread)


def _write(state: State, box: Box, units: Array, reduction: tuple[str, Updates], pc: int, thread: int) -> None:
    fields, size, (operation, of) = box.fields, box.fields.element.size, reduction
    addresses, inside = box.elements()
    elements = np.ascontiguousarray(units).view(f"u{size}").reshape(addresses.shape)
    values, parts = elements[inside], _parts(state, addresses[inside], size, thread)
    check_writable(parts)
    _tell(state, pc, "store", box, thread, None if operation else elements)
    for part in parts:
        new = part.of(values)
        view = part.buffer.view(size)
        if not operation:
            view[part.index] = new
            continue
        type = _type(fields, operation, thread)
        seen = seen_as(type)
        view = view.view(seen)
        view[part.index] = of(operation, type)(False)(view[part.index], new.view(seen), new.view(seen))


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
    name = fields.element.name.removesuffix(".ftz")
    if name not in _OPERATIONS[operation]:
        raise FaultError(f"{operation} takes {', '.join(_OPERATIONS[operation])}, the map has {name}", thread)
    return f"b{8 * fields.element.size}" if operation in _BITWISE else name


@meaning("tensor.prefetch")
def prefetch(ctx: Context, bound: Bindings) -> Action:
    """A hint, of which the map is looked at."""
    offsets = ctx.operands[1] if bound["MODE"] == "im2col" else None
    operand = BoxOperand(ctx, ctx.operands[0], bound["MODE"], offsets)

    def step(state: State, read: ReadBox, sel: Selection) -> None:
        for _, thread in one_by_one(sel):
            read(thread)

    return acting(step, operand.bind)


# Tensor maps that a kernel makes of others: PTX ISA 9.7.9.26, 9.7.13.16.
#
# The bytes are changed where they lie; whether other threads, or the asynchronous proxy, see it in time is not looked
# at.


@meaning("tensor.replace")
def replace_now(ctx: Context, bound: Bindings) -> Action:
    """Another value for one field of a map in global or shared memory."""
    field = bound["FIELD"]
    where, *more = ctx.operands
    ordinal = ctx.integer(more.pop(0)) if field in ORDERED else 0
    _check(ctx, field, ordinal, more[0])

    def step(state: State, find: Locate, values: Array, sel: Selection) -> None:
        for one, thread in one_by_one(sel):
            _aligned(find(one, UNIT)[0], thread)
            for edit in edits(field, ordinal, int(values[thread])):
                _write_edit(state, ctx.pc, find, one, edit)

    return acting(step, locate(ctx, where, space_of(bound), None), ctx.source(more[0], bound["T"]))


def _check(ctx: Context, field: str, ordinal: int, value: Operand) -> None:
    try:
        edits(field, ordinal, ctx.integer(value) if isinstance(value, Immediate) else 0)
    except EditError as error:
        ctx.fail(str(error))


def _aligned(part: Part, thread: int) -> None:
    if int(part.index[0]) * UNIT % MAP_ALIGNMENT:
        raise FaultError(f"a tensor map lies at a multiple of {MAP_ALIGNMENT} bytes", thread)


def _write_edit(state: State, pc: int, find: Locate, one: Selection, edit: Edit) -> None:
    (part,) = parts = find(one, 4, edit.byte)
    check_writable(parts)
    view = part.buffer.view(4)
    word = (view[part.index] & np.uint32(~edit.mask & 0xFFFFFFFF)) | np.uint32(edit.bits)
    tell(state.observer, pc, "load", parts, 4, one)
    tell(state.observer, pc, "store", parts, 4, one, word)
    view[part.index] = word


@meaning("tensor.copy map")
def copy(ctx: Context, bound: Bindings) -> Action:
    """A map from shared to global memory, once by each warp."""
    target, origin, _ = ctx.operands

    def step(state: State, into: Locate, of: Locate, sel: Selection) -> None:
        warps: set[int] = set()
        for one, thread in one_by_one(sel):
            if thread % state.warps in warps:
                continue
            warps.add(thread % state.warps)
            for shift in range(0, SIZE, UNIT):
                source, parts = of(one, UNIT, shift), into(one, UNIT, shift)
                _aligned(into(one, UNIT)[0], thread)
                check_writable(parts)
                words = read_parts(source, 1, 8, 2)
                tell(state.observer, ctx.pc, "load", source, UNIT, one)
                tell(state.observer, ctx.pc, "store", parts, UNIT, one, words)
                write_parts(parts, words)

    return acting(step, locate(ctx, target, "global", None), locate(ctx, origin, "shared", None))
