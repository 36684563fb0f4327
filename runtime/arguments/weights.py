"""Quantised weights in the order in which warpgroups multiply them: `pack_weights`, `unpack_weights`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dialect.warp.stored import PACKED
from ..base.errors import ArgumentError

Array = NDArray[Any]


def pack_weights(weights: Array, bits: int) -> Array:
    """Weights (N, K) of 4 or 8 bits, one in each byte, in the order of `PACKED`: N / 64 x K / 64 (of 8 bits, K / 32)
    blocks of 2048 bytes.

    Raises:
        ArgumentError: for other bits, or sizes that are no multiples of a block's.
    """
    rows, columns, places = packed_order(bits)
    if weights.ndim != 2 or weights.shape[0] % rows or weights.shape[1] % columns:
        raise ArgumentError(f"expected weights of multiples of {rows} x {columns}, got {weights.shape}")
    blocks = np.ascontiguousarray(weights).view(np.uint8).reshape(-1, rows, weights.shape[1] // columns, columns)
    blocks = blocks.transpose(0, 2, 1, 3).reshape(*blocks.shape[::2], -1)[..., places]
    return np.ascontiguousarray(blocks[..., ::2] & 15 | blocks[..., 1::2] << 4 if bits == 4 else blocks)


def unpack_weights(packed: Array, bits: int, *, signed: bool = False) -> Array:
    """The weights (N, K) that `pack_weights` has packed, one in each byte.

    Raises:
        ArgumentError: for other bits, or an array of other blocks.
    """
    rows, columns, places = packed_order(bits)
    if packed.ndim != 3 or packed.shape[-1] * 8 != rows * columns * bits:
        raise ArgumentError(f"expected blocks of {rows * columns * bits // 8} bytes, got {packed.shape}")
    held = packed.view(np.uint8)
    if bits == 4:
        held = np.stack([held & 15, held >> 4], -1).reshape(*held.shape[:2], -1)
    blocks = np.empty_like(held)
    blocks[..., places] = held
    down, across = held.shape[:2]
    found = blocks.reshape(down, across, rows, columns).transpose(0, 2, 1, 3).reshape(down * rows, across * columns)
    if not signed:
        return found
    return (found ^ (1 << bits - 1)).astype(np.int8) - np.int8(8) if bits == 4 else found.view(np.int8)


def packed_order(bits: int) -> tuple[int, int, Array]:
    """Rows and columns of a block, and which of its elements, row by row, is where."""
    if (layout := PACKED.get(bits)) is None:
        raise ArgumentError(f"expected weights of {' or '.join(map(str, PACKED))} bits, got {bits}")
    numbers, columns = np.arange(layout.rows * layout.columns), layout.columns
    places = np.zeros_like(numbers)
    for at, bit in enumerate((*layout.element, *layout.lane, *layout.warp)):
        places |= (numbers >> at & 1) * (1 << bit.number) * (columns if bit.axis == "r" else 1)
    return layout.rows, columns, places
