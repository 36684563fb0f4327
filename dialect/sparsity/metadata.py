"""The 32-bit metadata words that lanes hold, from the codes of `matrix.compress` and back.

One instruction takes a tile of `operand.m` rows and `operand.chunks` chunks. `tile_words` and `tile_codes` are about
one tile under one selector; what the lanes of other selectors hold does not matter there, and is 0.

`metadata_words` is about a matrix. Its words lie as a kernel loads them: (row tiles, column groups,
threads), C order. A column group is `operand.selectors` consecutive tiles of a row of tiles, k ascending, tile f of the
group being the one that selector f reads; so every bit of every word is used, and a kernel whose thread t
loads word t of a group (128 contiguous bytes a warp) has the metadata of that many steps in one register.
Thread t is lane t % 32 of warp t // 32: of a `wgmma.mma_async.sp`, warp w has rows 16 w to 16 w + 15 of the tile.
What a last tile or group lacks is filled with ANY_CODE, which is legal everywhere.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..layouts.layout import LANES
from .matrix import Codes
from .operands import NIBBLES, ROWS_PER_WARP, MetadataLayout, SparseOperand
from .patterns import ANY_CODE, binary

Words = NDArray[np.uint32]


class MetadataError(ValueError):
    """Metadata words or codes that an instruction cannot take; the message says where."""


class _Places(NamedTuple):
    """What each nibble of each lane describes: arrays (32, 8)."""

    selector: NDArray[np.intp]
    row: NDArray[np.intp]
    chunk: NDArray[np.intp]


@cache
def _places(layout: MetadataLayout) -> _Places:
    places = [[layout.position(lane, nibble) for nibble in range(NIBBLES)] for lane in range(LANES)]
    return _Places(*np.array(places, np.intp).transpose(2, 0, 1))


def tile_words(codes: Codes, operand: SparseOperand, selector: int = 0) -> Words:
    """The words of the threads for one tile, (operand.threads,), from its codes, (operand.m, operand.chunks).

    Raises:
        MetadataError: on codes of another shape, or a selector the operand does not have.
    """
    _require_selector(operand, selector)
    if codes.dtype != np.uint8 or codes.shape != (operand.m, operand.chunks):
        raise MetadataError(
            f"{operand} takes a tile of {operand.m}x{operand.chunks} codes of uint8, got {_described(codes)}"
        )
    group = np.zeros((operand.m, operand.selectors, operand.chunks), np.uint8)
    group[:, selector] = codes
    return metadata_words(group.reshape(operand.m, -1), operand)[0, 0]


def tile_codes(words: Words, operand: SparseOperand, selector: int = 0) -> Codes:
    """The inverse of `tile_words`: what the lanes of `selector` say, (operand.m, operand.chunks).

    Raises:
        MetadataError: on words of another shape, or a selector the operand does not have.
    """
    _require_selector(operand, selector)
    if words.dtype != np.uint32 or words.shape != (operand.threads,):
        raise MetadataError(f"{operand} has {operand.threads} words of uint32, got {_described(words)}")
    group = metadata_codes(words.reshape(1, 1, -1), operand)
    return group.reshape(operand.m, operand.selectors, operand.chunks)[:, selector]


def metadata_words(codes: Codes, operand: SparseOperand) -> Words:
    """The words of a matrix, (row tiles, column groups, operand.threads), from its codes, (rows, chunks).

    Raises:
        MetadataError: if the codes are not a matrix of uint8 that fit a nibble.
    """
    if codes.dtype != np.uint8 or codes.ndim != 2:
        raise MetadataError(f"expected codes (rows, chunks) of uint8, got {_described(codes)}")
    if (codes > 0xF).any():
        row, chunk = (int(i) for i in np.argwhere(codes > 0xF)[0])
        raise MetadataError(f"row {row}, chunk {chunk}: expected a nibble, got {codes[row, chunk]}")
    across = operand.selectors * operand.chunks
    missing = ((0, -codes.shape[0] % operand.m), (0, -codes.shape[1] % across))
    whole = np.pad(codes, missing, constant_values=ANY_CODE)
    down, groups = whole.shape[0] // operand.m, whole.shape[1] // across
    tiles = whole.reshape(down, operand.warps, ROWS_PER_WARP, groups, operand.selectors, operand.chunks)
    at = _places(operand.metadata)
    nibbles = tiles.transpose(0, 3, 1, 4, 2, 5)[:, :, :, at.selector, at.row, at.chunk]
    packed = np.ascontiguousarray(nibbles[..., 0::2] | nibbles[..., 1::2] << 4)
    return packed.view("<u4").astype(np.uint32, copy=False).reshape(down, groups, operand.threads)


def metadata_codes(words: Words, operand: SparseOperand, rows: int | None = None, chunks: int | None = None) -> Codes:
    """The inverse of `metadata_words`: the codes, (rows, chunks); all that the words hold if None.

    Raises:
        MetadataError: on words of another shape, or that hold less than rows x chunks.
    """
    if words.dtype != np.uint32 or words.ndim != 3 or words.shape[2] != operand.threads:
        raise MetadataError(
            f"{operand} has words (row tiles, column groups, {operand.threads}) of uint32, got {_described(words)}"
        )
    at, (down, groups) = _places(operand.metadata), words.shape[:2]
    tiles = np.empty((down, groups, operand.warps, operand.selectors, ROWS_PER_WARP, operand.chunks), np.uint8)
    tiles[:, :, :, at.selector, at.row, at.chunk] = _nibbles(words).reshape(down, groups, operand.warps, LANES, NIBBLES)
    height, width = down * operand.m, groups * operand.selectors * operand.chunks
    kept = (height if rows is None else rows, width if chunks is None else chunks)
    if not 0 <= kept[0] <= height or not 0 <= kept[1] <= width:
        raise MetadataError(f"{_size(words)} words hold {height}x{width} codes of {operand}, not {kept[0]}x{kept[1]}")
    return tiles.transpose(0, 2, 4, 1, 3, 5).reshape(height, width)[: kept[0], : kept[1]]


def illegal_nibbles(
    words: Words, operand: SparseOperand, selector: int | None = None, ordered: bool = False
) -> NDArray[np.intp]:
    """Where nibbles have no meaning: an array (count, words.ndim + 1) of indices into `words` and the nibble number.

    `words` is (..., operand.threads). With a selector only the lanes it names are looked at, with None
    all. `ordered` asks for what `mma.sp::ordered_metadata` takes.

    Raises:
        MetadataError: on words of another shape, or a selector the operand does not have.
    """
    if words.dtype != np.uint32 or not words.ndim or words.shape[-1] != operand.threads:
        raise MetadataError(f"{operand} has words (..., {operand.threads}) of uint32, got {_described(words)}")
    legal = np.isin(np.arange(16), operand.pattern.legal(operand.needs_order(ordered)))
    bad = ~legal[_nibbles(words)]
    if selector is not None:
        _require_selector(operand, selector)
        contributes = np.isin(np.arange(LANES), operand.metadata.lanes(selector))
        bad &= np.tile(contributes, operand.warps)[:, None]
    return np.argwhere(bad)


def validate_words(words: Words, operand: SparseOperand, selector: int | None = None, ordered: bool = False) -> None:
    """Says which lane and nibble has a value with no meaning, if one does; arguments as for `illegal_nibbles`.

    Raises:
        MetadataError: such as "lane 5, nibble 3 (row 1, chunk 3): 0b0101 of word 0x44445444 ...". Of words of a
            matrix, (row tiles, column groups, threads), row and chunk are those of the matrix.
    """
    bad = illegal_nibbles(words, operand, selector, ordered)
    if not len(bad):
        return
    *tile, thread, nibble = (int(i) for i in bad[0])
    word = int(words[(*tile, thread)])
    code = word >> 4 * nibble & 0xF
    why = operand.pattern.complaint(code, operand.needs_order(ordered))
    others = f"; {len(bad)} nibbles have none" if len(bad) > 1 else ""
    raise MetadataError(
        f"{_where(operand, tile, thread, nibble)}: {binary(code)} of word 0x{word:08x} has no meaning "
        f"for {operand}: {why}{others}"
    )


def _where(operand: SparseOperand, tile: list[int], thread: int, nibble: int) -> str:
    """A nibble by lane, and what it describes."""
    warp, lane = divmod(thread, LANES)
    selector, row, chunk = operand.metadata.position(lane, nibble)
    row += warp * ROWS_PER_WARP
    at = f"warp {warp}, " * (operand.warps > 1)
    if len(tile) == 2:
        at = f"row tile {tile[0]}, column group {tile[1]}, {at}"
        row += tile[0] * operand.m
        chunk += (tile[1] * operand.selectors + selector) * operand.chunks
    elif tile:
        at = f"words {tile}, {at}"
    return f"{at}lane {lane}, nibble {nibble} (row {row}, chunk {chunk})"


def _nibbles(words: Words) -> Codes:
    """The eight nibbles of each word, lowest first, as a last axis."""
    octets = np.ascontiguousarray(words, "<u4").reshape(-1).view(np.uint8)
    nibbles = np.empty((octets.size, 2), np.uint8)
    nibbles[:, 0], nibbles[:, 1] = octets & 0xF, octets >> 4
    return nibbles.reshape(*words.shape, NIBBLES)


def _require_selector(operand: SparseOperand, selector: int) -> None:
    if not 0 <= selector < operand.selectors:
        raise MetadataError(
            f"the sparsity selector of {operand} must be in 0..{operand.selectors - 1}, got {selector}"
            if operand.selectors > 1
            else f"the sparsity selector of {operand} must be 0, got {selector}"
        )


def _size(array: NDArray[Any]) -> str:
    return "x".join(map(str, array.shape)) or "a scalar"


def _described(array: NDArray[Any]) -> str:
    return f"{_size(array)} of {array.dtype}"
