"""Operands of products and copies in shared and in tensor memory. PTX ISA 9.7.16.3 to .5, .10.4 to .10.8."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

from ....dialect.isa.tensor_product import SharedDescriptor, TensorProduct
from ....dialect.isa.wgmma import UNIT, DescriptorError
from ....dialect.layouts.layout import Layout
from ....dialect.layouts.tensor_memory import LANES, multiplicand, scales
from ...numerics.floats import Array
from ..machine.copies import TensorMemory, address
from ..machine.events import AccessKind, MemoryAccess
from ..machine.memory import FaultError
from ..machine.state import State


def cta_of(state: State, thread: int) -> int:
    """The number of a thread's CTA among those in flight."""
    return thread % state.warps // state.geometry.warps_per_cta


def tell(state: State, pc: int, kind: AccessKind, cta: int, lanes: Array, columns: Array, thread: int) -> None:
    """Reports accesses of one thread to words of tensor memory, where somebody looks on."""
    if state.observer is not None:
        start = state.tensor.starts(cta, lanes, columns).reshape(-1)
        threads = np.full(start.size, thread)
        state.observer.access(MemoryAccess(pc, kind, state.tensor.buffer, start, 4, threads))


# Matrices in shared memory


@lru_cache(256)
def _places(word: int, shape: tuple[int, int], size: int, along_mn: bool) -> Array:
    """The byte addresses of the elements of `size` bytes of a matrix (k, mn)."""
    how = SharedDescriptor.decode(word)
    k, mn = (np.arange(extent, dtype=np.int64) for extent in shape)
    return how.swizzled(how.offset(mn[None], k[:, None], size, along_mn=along_mn) + how.address)


class SharedMatrices:
    """Matrices in the shared memory of CTAs, as one thread names them."""

    def __init__(self, state: State, pc: int, thread: int) -> None:
        self.state, self.pc, self.thread = state, pc, thread
        self.window = state.memory.shared

    def places(self, word: int, shape: tuple[int, int], size: int, along_mn: bool, name: str) -> Array:
        """Where the elements lie in the shared memory of a CTA.

        Raises:
            FaultError: for a word that is no descriptor, or a matrix that leaves shared memory.
        """
        try:
            places = _places(word, shape, size, along_mn)
        except DescriptorError as error:
            raise FaultError(f"operand {name}: {error}", self.thread) from None
        last = int(places.max()) + size
        if last > self.window.size:
            raise FaultError(
                f"operand {name}: the shared-memory descriptor reaches byte {last - 1:#x} of shared memory, which has "
                f"{self.window.size} bytes", self.thread, last - 1)  # fmt: skip
        return places

    def base(self, cta: int) -> int:
        """The first byte of a CTA's shared memory."""
        return int(self.window.base[cta * self.state.geometry.warps_per_cta])

    def tell(self, cta: int, places: Array, bits: int = 8) -> None:
        """Reports what will be read, where somebody looks on; of padded elements of less than 8 bits, no padding."""
        if self.state.observer is not None:
            units = np.unique(places // UNIT) * UNIT + self.base(cta)
            width = gcd(UNIT, 2 * bits)
            start = (units[:, None] + np.arange(0, min(2 * bits, UNIT), width)).reshape(-1)
            threads = np.full(start.size, self.thread)
            self.state.observer.access(MemoryAccess(self.pc, "fetch", self.window.buffer, start, width, threads))

    def elements(self, cta: int, places: Array, bits: int) -> Array:
        """Elements of so many bits. Those of less than 8, 16 in the low end of each 16 bytes, become bytes, of which
        those of 4 bits are the middle."""
        size = max(bits // 8, 1)
        places, words = places + self.base(cta), self.window.buffer.view(size)
        if bits >= 8:
            return words[places // size]
        bit = (places & UNIT - 1) * bits
        first = places - (places & UNIT - 1) + bit // 8
        pair = words[first].astype(np.uint16) | words[first + 1].astype(np.uint16) << np.uint16(8)
        code = (pair >> (bit % 8).astype(np.uint16)) & np.uint16((1 << bits) - 1)
        return (code << np.uint16(2 if bits == 4 else 0)).astype(np.uint8)


def halves(packed: Array) -> Array:
    """Bytes (k / 2, mn) of two elements of 4 bits each, as elements (k, mn)."""
    return np.stack([packed & 15, packed >> 4], axis=1).reshape(-1, *packed.shape[1:])


# Matrices in tensor memory


@lru_cache(256)
def of_result(product: TensorProduct) -> tuple[Array, Array]:
    """The lanes and columns of D (rows, n), from its address on."""
    layout, each = product.result, product.shape.n // product.parts
    lanes, places = np.empty((2, product.rows, product.shape.n), np.int64)
    for r in range(product.rows):
        for part in range(product.parts):
            lane, _ = layout.find(r=r % layout.rows, p=part)
            lanes[r, part * each : (part + 1) * each] = lane
    places[:] = np.arange(product.shape.n) % each
    return lanes, places


@lru_cache(64)
def _of_layout(
    layout: Layout, rows: int, extent: int, bits: int, axes: tuple[tuple[str, int], ...]
) -> tuple[Array, Array, Array]:
    """The lanes, columns and first bits of elements of a matrix (extent, rows) of `bits` bits each."""
    per_word, tile = 32 // bits, layout.extent("c")
    lanes, words, shift = np.empty((3, extent, rows), np.int64)
    for r in range(rows):
        for c in range(extent):
            lane, element = layout.find(r=r, c=c % tile, **dict(axes))
            lanes[c, r], (words[c, r], shift[c, r]) = lane, divmod(element + c // tile * layout.elements, per_word)
    return lanes, words, shift * bits


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """An operand in tensor memory: where its elements lie from its address on."""

    lanes: Array
    words: Array
    shift: Array
    bits: int

    def at(self, base: int) -> tuple[Array, Array]:
        """Lanes and columns for an address."""
        lane, column = address(base)
        return self.lanes + lane, self.words + column

    def read(self, tensor: TensorMemory, cta: int, base: int) -> Array:
        """The elements as words of their size."""
        lanes, places = self.at(base)
        words = tensor.words[cta, lanes, places]
        kind = {32: np.uint32, 16: np.uint16}.get(self.bits, np.uint8)
        return (words >> self.shift.astype(np.uint32) & np.uint32((1 << self.bits) - 1)).astype(kind)


@lru_cache(64)
def left_operand(product: TensorProduct) -> PackedMatrix:
    """A, (stored k, rows)."""
    op, bits = product.opcode, product.container_bits("a")
    layout = multiplicand(product.shape.m, op.group, op.stationary, op.sparse, bits)
    return PackedMatrix(*_of_layout(layout, product.rows, product.stored_k, bits, ()), bits)


@lru_cache(64)
def scale_operand(product: TensorProduct, role: str) -> PackedMatrix:
    """The scales of A (vector, rows), or of B (vector, n)."""
    vector, first = product.opcode.vector, product.scale_ids["ab".index(role)]
    if role == "a" or product.parts == 1:
        rows = product.rows if role == "a" else product.shape.n
        return _scale_places(rows, vector, first)
    half = _scale_places(product.shape.n // 2, vector, first)
    lanes = np.concatenate([half.lanes, half.lanes + LANES // 2], axis=1)
    return PackedMatrix(lanes, np.tile(half.words, 2), np.tile(half.shift, 2), 8)


def _scale_places(rows: int, vector: int, first: int) -> PackedMatrix:
    return PackedMatrix(*_of_layout(scales(rows, vector), rows, vector, 8, (("b", first // vector),)), 8)


@lru_cache(64)
def nibbles_of(product: TensorProduct) -> PackedMatrix:
    layout = product.metadata
    if layout is None:
        raise TypeError(f"{product.spelling} takes no metadata")
    return PackedMatrix(*_of_layout(layout, product.rows, layout.columns, 4, ()), 4)
