"""Whole sparse matrices: compress, expand, prune, validate, and the 32-bit metadata words that lanes hold."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..layouts.layout import LANES
from .patterns import ANY_CODE, NIBBLES, ROWS_PER_WARP, MetadataLayout, Pattern, PatternError, SparseOperand, binary

# Whole matrices under a pattern: compress, expand, prune, and what breaks the pattern.
#
# A dense matrix is (rows, columns); its compressed form is the stored elements, (rows, chunks * pattern.stored), in
# the order in which the instructions take them, and one code per chunk, (rows, chunks) of uint8. Where the columns do
# not fill the last chunk of a row, zeros are thought to follow.
#
# Zeros are zeros by value: -0.0 is one, and becomes +0.0 where it is not stored. NaN is not zero.

Matrix = NDArray[Any]
Codes = NDArray[np.uint8]

MAGNITUDE_BITS: dict[np.dtype[Any], int] = {
    np.dtype(np.float16): 0x7FFF,
    np.dtype(ml_dtypes.bfloat16): 0x7FFF,
    np.dtype(np.float32): 0x7FFF_FFFF,
    np.dtype(np.int8): 0xFF,
    np.dtype(np.uint8): 0xFF,
    np.dtype(ml_dtypes.float8_e4m3fn): 0x7F,
    np.dtype(ml_dtypes.float8_e5m2): 0x7F,
    np.dtype(ml_dtypes.float6_e3m2fn): 0x1F,
    np.dtype(ml_dtypes.float6_e2m3fn): 0x1F,
    np.dtype(ml_dtypes.float4_e2m1fn): 0x7,
    np.dtype(ml_dtypes.int4): 0xF,
    np.dtype(ml_dtypes.uint4): 0xF,
}
"""The bits of an element that make it other than zero, by numpy type. tf32 is kept in float32."""

_BROKEN = 0xFF


class _Tables(NamedTuple):
    """What the eight bits "unit is not zero" of eight units say, and where codes put units.

    codes: (256, chunks in 8 units), or _BROKEN. places: (16, slots). legal: (256,).
    """

    codes: Codes
    places: NDArray[np.intp]
    legal: NDArray[np.bool_]


@cache
def _tables(pattern: Pattern) -> _Tables:
    mask = (1 << pattern.units) - 1
    codes = [_code_of(pattern, byte >> s & mask) for byte in range(256) for s in range(0, 8, pattern.units)]
    places = [pattern.positions(code) for code in range(16)]
    legal = [code in pattern.codes for code in range(256)]
    return _Tables(np.array(codes, np.uint8).reshape(256, -1), np.array(places, np.intp), np.array(legal))


def _code_of(pattern: Pattern, present: int) -> int:
    """The smallest ordered code that stores all units whose bit is set in `present`."""
    needed = {unit for unit in range(pattern.units) if present >> unit & 1}
    return next((code for code in pattern.ordered if needed <= set(pattern.positions(code))), _BROKEN)


def compress(dense: Matrix, pattern: Pattern) -> tuple[Matrix, Codes]:
    """The stored elements and the codes of a matrix of the pattern; `expand` is the inverse.

    Codes are ordered ones. A chunk with fewer elements than it may have stores zeros too: the ones
    that give the least code.

    Raises:
        PatternError: naming the first row and chunk that break the pattern, or the type or rank that cannot be.
    """
    units = _units(dense, pattern)
    codes = _codes(units, dense.dtype, pattern)
    broken = codes == _BROKEN
    if broken.any():
        raise PatternError(_complaint(dense, broken, pattern))
    stored = units.reshape(-1).take(_indices(codes, pattern))
    return stored.view(dense.dtype).reshape(len(dense), codes.shape[1] * pattern.stored), codes


def expand(values: Matrix, codes: Codes, pattern: Pattern, columns: int | None = None) -> Matrix:
    """The dense matrix of values and codes, with `columns` columns; None stands for those of the chunks.

    Codes need not be ordered.

    Raises:
        PatternError: naming row, chunk and value of an invalid code, or shapes that do not belong together.
    """
    _require_matrix(values)
    _require_codes(codes, pattern)
    rows, chunks = codes.shape
    if values.shape != (rows, chunks * pattern.stored):
        expected = f"{rows}x{chunks * pattern.stored}"
        raise PatternError(
            f"{rows}x{chunks} codes of {pattern} describe {expected} stored elements, got {_size(values)}"
        )
    full = chunks * pattern.chunk
    if columns is not None and (columns < 0 or -(-columns // pattern.chunk) != chunks):
        fewest = max(0, full - pattern.chunk + 1)
        raise PatternError(f"{chunks} chunks of {pattern} are {fewest} to {full} columns, got {columns}")
    stored = _as_units(values, pattern)
    units = np.zeros(rows * chunks * pattern.units, stored.dtype)
    units[_indices(codes, pattern)] = stored.reshape(rows * chunks, pattern.slots)
    return units.view(values.dtype).reshape(rows, full)[:, :columns]


def prune(dense: Matrix, pattern: Pattern) -> Matrix:
    """A copy in which each chunk keeps as many of its largest units as are stored; the others are zero.

    The size of a unit is the magnitude of its element, or the sum of both magnitudes for a pair. Of equal units the
    first stays. NaN is larger than any number.
    """
    units = _units(dense, pattern)
    sizes = _sizes(dense, pattern)
    lost = np.zeros(sizes.shape, np.uint8)
    for i in range(pattern.units):
        for j in range(i + 1, pattern.units):
            first = sizes[:, i] >= sizes[:, j]
            lost[:, j] += first
            lost[:, i] += ~first
    kept = np.where(lost.reshape(units.shape) < pattern.slots, units, units.dtype.type(0))
    return kept.view(dense.dtype)[:, : dense.shape[1]]


def _units(dense: Matrix, pattern: Pattern) -> Matrix:
    """The matrix in whole chunks, each unit as one unsigned integer: (rows, chunks * pattern.units)."""
    _require_matrix(dense)
    return _as_units(_in_chunks(dense.view(f"u{dense.dtype.itemsize}"), pattern), pattern)


def _in_chunks(matrix: Matrix, pattern: Pattern) -> Matrix:
    """The matrix with zeros after its columns up to whole chunks."""
    missing = -matrix.shape[1] % pattern.chunk
    return np.pad(matrix, ((0, 0), (0, missing))) if missing else matrix


def _as_units(values: Matrix, pattern: Pattern) -> Matrix:
    rows, columns = values.shape
    unit = f"u{values.dtype.itemsize * pattern.unit}"
    return np.ascontiguousarray(values).reshape(-1).view(unit).reshape(rows, columns // pattern.unit)


def _codes(units: Matrix, dtype: np.dtype[Any], pattern: Pattern) -> Codes:
    """The code of each chunk, or _BROKEN."""
    present = np.packbits((units & _magnitude(units, dtype)) != 0, axis=1, bitorder="little")
    chunks = units.shape[1] // pattern.units
    codes = _tables(pattern).codes.take(present, axis=0)
    return np.ascontiguousarray(codes.reshape(len(units), present.shape[1] * codes.shape[2])[:, :chunks])


def _magnitude(units: Matrix, dtype: np.dtype[Any]) -> np.unsignedinteger[Any]:
    """A mask of the bits of a unit other than signs. Its elements are of type `dtype`."""
    elements = units.dtype.itemsize // dtype.itemsize
    return units.dtype.type(sum(MAGNITUDE_BITS[dtype] << 8 * dtype.itemsize * i for i in range(elements)))


def _indices(codes: Codes, pattern: Pattern) -> NDArray[np.intp]:
    """Which of all units, counted along the rows, each slot stores: (chunks of all rows, slots)."""
    indices = _tables(pattern).places.take(codes.reshape(-1), axis=0)
    indices += np.arange(0, codes.size * pattern.units, pattern.units)[:, None]
    return indices


def _sizes(dense: Matrix, pattern: Pattern) -> NDArray[np.float32]:
    """The sum of magnitudes of each unit, NaN as infinity: (chunks of all rows, units of a chunk)."""
    sizes = np.abs(dense.astype(np.float32))
    sizes[np.isnan(sizes)] = np.inf
    sizes = _in_chunks(sizes, pattern).reshape(-1, pattern.units, pattern.unit)
    with np.errstate(over="ignore"):
        return sum((sizes[..., i] for i in range(1, pattern.unit)), sizes[..., 0])


def _complaint(dense: Matrix, broken: NDArray[np.bool_], pattern: Pattern) -> str:
    """The place and the contents of the first invalid chunk, and the number of invalid chunks."""
    places = np.argwhere(broken)
    row, chunk = (int(i) for i in places[0])
    first, last = chunk * pattern.chunk, min((chunk + 1) * pattern.chunk, dense.shape[1])
    units = _units(dense[row : row + 1, first:last], pattern)
    count = np.count_nonzero(units & _magnitude(units, dense.dtype))
    what = "non-zeros" if pattern.unit == 1 else "non-zero pairs"
    others = f"; {len(places)} chunks break the pattern" if len(places) > 1 else ""
    return (
        f"row {row}, chunk {chunk} (columns {first}..{last - 1}): {count} {what}, {pattern} allows {pattern.slots}"
        f"{others}; prune() keeps the largest"
    )


def _size(matrix: Matrix) -> str:
    return "x".join(map(str, matrix.shape)) or "a scalar"


def _described(matrix: Matrix) -> str:
    return f"{_size(matrix)} of {matrix.dtype}"


def _require_matrix(matrix: Matrix) -> None:
    if matrix.dtype not in MAGNITUDE_BITS:
        raise PatternError(f"expected elements of {', '.join(map(str, MAGNITUDE_BITS))}, got {matrix.dtype}")
    if matrix.ndim != 2:
        raise PatternError(f"expected a matrix (rows, columns), got {_described(matrix)}")


def _require_codes(codes: Codes, pattern: Pattern) -> None:
    if codes.dtype != np.uint8 or codes.ndim != 2:
        raise PatternError(f"expected codes (rows, chunks) of uint8, got {_described(codes)}")
    bad = ~_tables(pattern).legal[codes]
    if bad.any():
        row, chunk = (int(i) for i in np.argwhere(bad)[0])
        code = int(codes[row, chunk])
        why = pattern.complaint(code, ordered=False)
        raise PatternError(f"row {row}, chunk {chunk}: code {binary(code)} has no meaning under {pattern}: {why}")


# The 32-bit metadata words that lanes hold, from the codes of `matrix.compress` and back.
#
# One instruction takes a tile of `operand.m` rows and `operand.chunks` chunks. `tile_words` and `tile_codes` are about
# one tile under one selector; what the lanes of other selectors hold does not matter there, and is 0.
#
# `metadata_words` is about a matrix. Its words lie as a kernel loads them: (row tiles, column groups, threads), C
# order. A column group is `operand.selectors` consecutive tiles of a row of tiles, k ascending, tile f of the group
# being the one that selector f reads; so every bit of every word is used, and a kernel whose thread t loads word t of
# a group (128 contiguous bytes a warp) has the metadata of that many steps in one register. Thread t is lane t % 32 of
# warp t // 32: of a `wgmma.mma_async.sp`, warp w has rows 16 w to 16 w + 15 of the tile. What a last tile or group
# lacks is filled with ANY_CODE, which is legal everywhere.

Words = NDArray[np.uint32]


class MetadataError(ValueError):
    """Metadata words or codes that an instruction cannot use; the message has their position."""


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
    padded = np.pad(codes, missing, constant_values=ANY_CODE)
    down, groups = padded.shape[0] // operand.m, padded.shape[1] // across
    tiles = padded.reshape(down, operand.warps, ROWS_PER_WARP, groups, operand.selectors, operand.chunks)
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
