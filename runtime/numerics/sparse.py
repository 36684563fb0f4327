"""Structured sparsity: the metadata of `mma.sp`, and a stored A put where it belongs.

Source: PTX ISA 9.7.14.6.1 and .2; the layouts of metadata are those of the rows of `dialect.isa.mma_sp`.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ...dialect.isa.mma_sp import Granularity, MmaSparse
from ...dialect.isa.wgmma import Wgmma
from ...dialect.layouts.layout import Layout
from .array import Array


class NibbleError(ValueError):
    """A nibble of metadata that names no elements, or one element twice; `thread` has it, lane by lane."""

    def __init__(self, message: str, thread: int) -> None:
        super().__init__(message)
        self.thread = thread


@cache
def _places(layout: Layout, selector: int) -> tuple[Array, Array]:
    """The lane and the place in its word of each nibble: arrays (chunks, rows)."""
    found = [
        [layout.find(r=r, c=c, f=selector) for r in range(layout.rows)] for c in range(layout.columns)
    ]  # fmt: skip
    lanes, nibbles = np.moveaxis(np.array(found), -1, 0)
    return lanes, nibbles.astype(np.uint32)


def columns(row: MmaSparse | Wgmma, words: Array, selector: int) -> Array:
    """Which column of A each stored element belongs to: (k / 2, m, warps), for metadata words (32 lanes, warps), or of
    warpgroups (128 threads, groups).

    Raises:
        NibbleError: for a nibble that names no elements, or one element twice.
        ValueError: if A is not sparse.
    """
    if row.metadata is None or row.granularity is None:
        raise ValueError(f"{row.spelling} takes no metadata")
    lanes, nibbles = _places(row.metadata, selector)
    codes = words[lanes] >> (nibbles * np.uint32(4))[..., None] & np.uint32(0xF)
    legal = np.zeros(16, np.bool_)
    legal[list(row.codes)] = True
    good = legal[codes]
    if not good.all():
        chunk, r, warp = (int(i[0]) for i in np.nonzero(~good))
        raise NibbleError(
            f"metadata 0b{int(codes[chunk, r, warp]):04b} for chunk {chunk} of row {r} of A means nothing; "
            f"expected one of {', '.join(f'0b{code:04b}' for code in row.codes)}",
            int(lanes[chunk, r]) * words.shape[-1] + warp,
        )
    offsets = _offsets(row.granularity)[codes]
    start = np.arange(len(codes)) * row.granularity.chunk
    found = offsets + start[:, None, None, None]
    return np.moveaxis(found, -1, 1).reshape(-1, *codes.shape[1:])


@cache
def _offsets(granularity: Granularity) -> Array:
    """Where in its chunk each stored element lies, by nibble: (16, stored)."""
    table = np.zeros((16, granularity.stored), np.intp)
    for code in range(16):
        indices = (code & 3, code >> 2)
        if granularity.chunk == 2:
            table[code] = indices[0] >> 1
        else:
            table[code] = [i * granularity.group + j for i in indices for j in range(granularity.group)]
    return table


def spread(stored: Array, where: Array, depth: int) -> Array:
    """Stored elements (k / 2, m, warps) at their columns of a matrix of `depth` columns; zeros elsewhere."""
    full = np.zeros((depth, *stored.shape[1:]), stored.dtype)
    np.put_along_axis(full, where, stored, axis=0)
    return full
