"""Where a copy of a box of a tensor reads and writes: the map, the coordinates, global and shared memory.

A map is 128 bytes in memory, which are read when a copy is issued. In im2col mode the box is one of pixels: PTX ISA
5.5.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ....dialect.isa.descriptor import UNIT, MatrixDescriptor
from ....dialect.isa.pixel_box import PixelBox, most_offset
from ....dialect.isa.tensor_map import MAP_ALIGNMENT, SIZE, TensorMapError, TensorMapFields
from ....dialect.ptx.text.syntax import Immediate, Indexed, Operand, Register, Symbol
from ...numerics.array import Array
from ..decode import Context
from ..errors import FaultError
from ..machine.state import Source, State

ALIGNMENT = 128
"""Bytes that addresses in shared memory are multiples of."""


class Box(NamedTuple):
    """A box that a thread copies: what the map says, where the box begins, and how far behind the filter's corner its
    pixels lie; fastest dimension first."""

    fields: TensorMapFields
    start: tuple[int, ...]
    offsets: tuple[int, ...] = ()

    def elements(self) -> tuple[Array, Array]:
        """The addresses of the elements, (rows, fastest), and which of them lie in the tensor."""
        fields, box = self.fields, self.fields.box
        rows, inside = self._pixels(box) if isinstance(box, PixelBox) else self._rows()
        along = self.start[0] + np.arange(fields.copied[0], dtype=np.int64)
        return (
            rows[:, None] + along * fields.element.size,
            inside[:, None] & (along >= 0) & (along < fields.sizes[0]),
        )

    def _rows(self) -> tuple[Array, Array]:
        """Where rows along the fastest dimension begin, and which lie in the tensor."""
        fields, counts = self.fields, self.fields.copied
        address, inside = np.full(1, fields.address, np.int64), np.ones(1, np.bool_)
        for axis in range(len(counts) - 1, 0, -1):
            at = self.start[axis] + np.arange(counts[axis], dtype=np.int64) * fields.steps[axis]
            address = (address[:, None] + at * fields.strides[axis - 1]).reshape(-1)
            inside = (inside[:, None] & (at >= 0) & (at < fields.sizes[axis])).reshape(-1)
        return address, inside

    def _pixels(self, box: PixelBox) -> tuple[Array, Array]:
        """The same of pixels."""
        fields, at = self.fields, self._pixel_coordinates(box)
        inside: Array = np.logical_and.reduce((at >= 0) & (at < np.array(fields.sizes[1:])), axis=1)
        return fields.address + at @ np.array(fields.strides), inside

    def _pixel_coordinates(self, box: PixelBox) -> Array:
        """Of each pixel the coordinates in the image, then the number of the image."""
        corners = np.array(list(box.corners(self.fields.sizes, self.fields.steps, self.start[1:])), np.int64)
        return corners + np.array([*self.offsets, *[0] * (corners.shape[1] - len(self.offsets))])

    @property
    def leaves_image(self) -> bool:
        """Whether some pixel lies beside its image."""
        if not isinstance(box := self.fields.box, PixelBox):
            return False
        at = self._pixel_coordinates(box)[:, :-1]
        return bool(((at < 0) | (at >= np.array(self.fields.sizes[1:-1]))).any())

    def units(self, address: int) -> Array:
        """The addresses in shared memory of the units of the box, whose place without a swizzle begins at `address`."""
        fields = self.fields
        row = np.arange(0, fields.copied[0] * fields.element.size, UNIT, dtype=np.int64)
        rows = np.arange(address, address + fields.extent, fields.pitch, dtype=np.int64)
        return MatrixDescriptor(0, 0, 0, fields.swizzle).swizzled((rows[:, None] + row).reshape(-1))


@dataclass(frozen=True)
class BoxOperand:
    """The operand `[map, {c0, ...}]`: whose address and where the box begins, fastest dimension first; for a copy in
    im2col mode also `{o0, ...}`."""

    address: Source
    coordinates: tuple[Source, ...]
    offsets: tuple[Source, ...] | None

    @staticmethod
    def of(ctx: Context, operand: Operand, mode: str, offsets: Operand | None = None) -> BoxOperand:
        """From a decoded instruction, whose row binds the mode.

        Raises:
            DecodeError: for an operand of another kind.
        """
        if not isinstance(operand, Indexed) or len(operand.items) != 2:
            ctx.fail("expected a tensor map and coordinates, such as [%rd1, {%r1, %r2}]")
        base, where = operand.items
        if not isinstance(base, Register | Symbol | Immediate):
            ctx.fail("expected the address of a tensor map")
        by = () if offsets is None else tuple(ctx.source(o, "u16") for o in ctx.items(offsets))
        pixels = mode in ("im2col", "im2col_no_offs")
        coordinates = tuple(ctx.source(c, "b32") for c in ctx.items(where))
        return BoxOperand(ctx.source(base, "u64"), coordinates, by if pixels else None)

    def bind(self, state: State) -> Callable[[int], Box]:
        """Reads the map, the coordinates and the offsets of a thread."""
        addresses, starts = self.address(state), [c(state) for c in self.coordinates]
        offsets = None if self.offsets is None else [o(state) for o in self.offsets]

        def read(thread: int) -> Box:
            fields = _fields(state, int(addresses[thread]), thread)
            start = tuple(int(s[thread].view(np.int32)) for s in starts)
            by = None if offsets is None else tuple(int(o[thread]) for o in offsets)
            if problem := _problem(fields, start, by):
                raise FaultError(problem, thread)
            return Box(fields, start, by or ())

        return read


def _fields(state: State, address: int, thread: int) -> TensorMapFields:
    if address % MAP_ALIGNMENT:
        raise FaultError(f"a tensor map lies at a multiple of {MAP_ALIGNMENT} bytes, got {address:#x}", thread)
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


def _problem(fields: TensorMapFields, start: tuple[int, ...], offsets: tuple[int, ...] | None) -> str | None:
    """Why a copy cannot begin there; `offsets` is None for one in tile mode."""
    box = fields.box
    if len(fields.sizes) != len(start):
        return f"the tensor map has {len(fields.sizes)} dimensions, the copy {len(start)}"
    if fields.interleave:
        return f"the interpreter copies no interleaved tensors; the map has an interleave of {fields.interleave} bytes"
    if isinstance(box, PixelBox) is (offsets is None):
        modes = ("tile", "im2col") if offsets is None else ("im2col", "tile")
        return f"the copy is one of {modes[0]} mode, the tensor map of {modes[1]} mode"
    if start[0] * fields.element.size % UNIT:
        return (
            f"the box begins {start[0] * fields.element.size} bytes along the fastest dimension, which is no "
            f"multiple of {UNIT}: an illegal instruction on the GPU"
        )
    return _pixel_problem(box, fields.sizes, start, offsets or ()) if isinstance(box, PixelBox) else None


def _pixel_problem(
    box: PixelBox, sizes: tuple[int, ...], start: tuple[int, ...], offsets: tuple[int, ...]
) -> str | None:
    most = most_offset(len(sizes))
    for by in offsets:
        if by > most:
            return f"expected an im2col offset of 0 to {most} for {len(sizes)} dimensions, got {by}"
    for axis, (at, first, last) in enumerate(zip(start[1:], box.lower, box.last(sizes), strict=False), 1):
        if not first <= at <= last:
            return (
                f"coordinate {axis} is outside of the bounding box of the tensor map: {at}, expected {first} to {last}"
            )
    return None


class Home:
    """The shared memory of a CTA, by its addresses, where a box of so many bytes begins at byte `at` of the buffer."""

    def __init__(self, state: State, at: int, thread: int, size: int) -> None:
        window = state.memory.shared
        stride = window.buffer.size // state.geometry.ctas
        self.base, self.address = at // stride * stride, at % stride
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
