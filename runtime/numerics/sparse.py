"""Sparse matrices as instructions take them: pruned, compressed and expanded, and the metadata words of threads.

A row of A is cut into chunks, as the `Granularity` of an instruction's row says. Of each chunk half of the elements are
stored, and one nibble of metadata, its code, says which. Source: PTX ISA 9.7.14.6.1 and 9.7.15.6.1.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...dialect.isa.form import Granularity, ProductForm
from ...dialect.layouts.layout import LANES, Layout
from .floats import Array

# Whole matrices of a granularity: compress, expand, prune, and what breaks it.
#
# A dense matrix is (rows, columns); its compressed form is the stored elements, (rows, chunks * stored), in the order
# in which the instructions take them, and one code per chunk, (rows, chunks) of uint8. Elements are stored in units: of
# one, or of a pair of neighbours. Where the columns do not fill the last chunk of a row, zeros are thought to follow.
#
# Zeros are zeros by value: -0.0 is one, and becomes +0.0 where it is not stored. NaN is not zero.

Matrix = NDArray[Any]
Codes = NDArray[np.uint8]

ANY_CODE = 0b0100
"""A code that every granularity takes: the first half of a chunk. What describes zeros may use it."""

_BROKEN = 0xFF


class SparsityError(ValueError):
    """A matrix, codes or metadata words that are not of the granularity; the message says where. Types and shapes are
    those that `compress` and `expand` pass: of matrices a type that `mma.sp` takes, of codes uint8, of words uint32."""


@cache
def _magnitude_bits(dtype: np.dtype[Any]) -> int:
    """The bits of an element that make it other than zero: all but the sign of a float. tf32 is kept in float32."""
    from ml_dtypes import finfo, iinfo  # which instructions do not need

    is_float = "float" in dtype.name
    limits = cast("Any", finfo if is_float else iinfo)(dtype)
    return (1 << limits.bits - is_float) - 1


def positions(how: Granularity, code: int) -> tuple[int, ...]:
    """Which units of a chunk the stored units are, by a code with a meaning or without one. Indices count quarters of a
    chunk. Where halves are stored (1:2) the nibble has the index of both quarters of one: 0b0100 is quarters 0 and 1,
    unit 0; 0b1110 is quarters 2 and 3, unit 1."""
    indices = (code & 3, code >> 2)
    return indices if how.slots == 2 else (indices[0] >> 1,)


def complaint(how: Granularity, code: int, ordered: bool) -> str | None:
    """Why a code has no meaning, for `::ordered_metadata` if `ordered`, and what has; None if it has one."""
    legal = how.codes(ordered)
    if code in legal:
        return None
    expected = f"expected one of {', '.join(map(_binary, legal))}"
    if how.slots == 1:
        return expected
    first, second = positions(how, code)
    if first == second:
        return f"index {first} is there twice; {expected}"
    swapped = _binary(second | first << 2)
    return (
        f"indices must increase from the lowest bits, got {first}, {second}; "
        f"{swapped} with the stored elements exchanged says the same"
    )


def _binary(code: int) -> str:
    """A nibble as the manual writes it: 0b0100."""
    return f"0b{code:04b}"


@cache
def _codes_of(how: Granularity) -> Codes:
    """What the eight bits "unit is not zero" of eight units say: codes, or _BROKEN, (256, chunks in 8 units)."""
    mask = (1 << how.units) - 1
    codes = [_code_of(how, byte >> s & mask) for byte in range(256) for s in range(0, 8, how.units)]
    return np.array(codes, np.uint8).reshape(256, -1)


@cache
def _units_of(how: Granularity) -> NDArray[np.intp]:
    """Where codes put units: (16, slots)."""
    return np.array([positions(how, code) for code in range(16)], np.intp)


def _code_of(how: Granularity, present: int) -> int:
    """The smallest ordered code that stores all units whose bit is set in `present`."""
    needed = {unit for unit in range(how.units) if present >> unit & 1}
    return next((code for code in how.codes(ordered=True) if needed <= set(positions(how, code))), _BROKEN)


def stored_of(dense: Matrix, how: Granularity) -> tuple[Matrix, Codes]:
    """The stored elements and the codes of a matrix of the granularity; `dense_of` is the inverse. Codes are ordered
    ones. A chunk with fewer elements than it may have stores zeros too: the ones that give the least code. Raises
    SparsityError naming the first row and chunk that break it, or the rank that cannot be."""
    units = _units(dense, how)
    codes = _codes(units, dense.dtype, how)
    broken = codes == _BROKEN
    if broken.any():
        raise SparsityError(_broken(dense, broken, how))
    stored = units.reshape(-1).take(_indices(codes, how))
    return stored.view(dense.dtype).reshape(len(dense), codes.shape[1] * how.stored), codes


def dense_of(values: Matrix, codes: Codes, how: Granularity) -> Matrix:
    """The dense matrix of values and codes, in whole chunks. Codes need not be ordered. Raises SparsityError naming
    row, chunk and value of an invalid code, or shapes that do not belong together."""
    bad = ~np.isin(np.arange(256), how.codes(ordered=False))[codes]
    if bad.any():
        row, chunk = (int(i) for i in np.argwhere(bad)[0])
        code = int(codes[row, chunk])
        why = complaint(how, code, ordered=False)
        raise SparsityError(f"row {row}, chunk {chunk}: code {_binary(code)} has no meaning under {how}: {why}")
    rows, chunks = codes.shape
    if values.shape != (rows, chunks * how.stored):
        expected = f"{rows}x{chunks * how.stored}"
        raise SparsityError(f"{rows}x{chunks} codes of {how} describe {expected} stored elements, got {_size(values)}")
    stored = _as_units(values, how)
    units = np.zeros(rows * chunks * how.units, stored.dtype)
    units[_indices(codes, how)] = stored.reshape(rows * chunks, how.slots)
    return units.view(values.dtype).reshape(rows, chunks * how.chunk)


def pruned(dense: Matrix, how: Granularity) -> Matrix:
    """A copy in which each chunk keeps as many of its largest units as are stored; the others are zero. The size of a
    unit is the magnitude of its element, or the sum of both magnitudes for a pair. Of equal units the first stays. NaN
    is larger than any number."""
    units = _units(dense, how)
    sizes = _sizes(dense, how)
    lost = np.zeros(sizes.shape, np.uint8)
    for i in range(how.units):
        for j in range(i + 1, how.units):
            first = sizes[:, i] >= sizes[:, j]
            lost[:, j] += first
            lost[:, i] += ~first
    kept = np.where(lost.reshape(units.shape) < how.slots, units, units.dtype.type(0))
    return kept.view(dense.dtype)[:, : dense.shape[1]]


def _units(dense: Matrix, how: Granularity) -> Matrix:
    """The matrix in whole chunks, each unit as one unsigned integer: (rows, chunks * units)."""
    if dense.ndim != 2:
        raise SparsityError(f"expected a matrix (rows, columns), got {_size(dense)} of {dense.dtype}")
    return _as_units(_in_chunks(dense.view(f"u{dense.dtype.itemsize}"), how), how)


def _in_chunks(matrix: Matrix, how: Granularity) -> Matrix:
    """The matrix with zeros after its columns up to whole chunks."""
    missing = -matrix.shape[1] % how.chunk
    return np.pad(matrix, ((0, 0), (0, missing))) if missing else matrix


def _as_units(values: Matrix, how: Granularity) -> Matrix:
    rows, columns = values.shape
    unit = f"u{values.dtype.itemsize * how.group}"
    return np.ascontiguousarray(values).reshape(-1).view(unit).reshape(rows, columns // how.group)


def _codes(units: Matrix, dtype: np.dtype[Any], how: Granularity) -> Codes:
    """The code of each chunk, or _BROKEN."""
    present = np.packbits((units & _magnitude(units, dtype)) != 0, axis=1, bitorder="little")
    chunks = units.shape[1] // how.units
    codes = _codes_of(how).take(present, axis=0)
    return np.ascontiguousarray(codes.reshape(len(units), present.shape[1] * codes.shape[2])[:, :chunks])


def _magnitude(units: Matrix, dtype: np.dtype[Any]) -> np.unsignedinteger[Any]:
    """A mask of the bits of a unit other than signs. Its elements are of type `dtype`."""
    elements = units.dtype.itemsize // dtype.itemsize
    return units.dtype.type(sum(_magnitude_bits(dtype) << 8 * dtype.itemsize * i for i in range(elements)))


def _indices(codes: Codes, how: Granularity) -> NDArray[np.intp]:
    """Which of all units, counted along the rows, each slot stores: (chunks of all rows, slots)."""
    indices = _units_of(how).take(codes.reshape(-1), axis=0)
    indices += np.arange(0, codes.size * how.units, how.units)[:, None]
    return indices


def _sizes(dense: Matrix, how: Granularity) -> NDArray[np.float32]:
    """The sum of magnitudes of each unit, NaN as infinity: (chunks of all rows, units of a chunk)."""
    sizes = np.abs(dense.astype(np.float32))
    sizes[np.isnan(sizes)] = np.inf
    sizes = _in_chunks(sizes, how).reshape(-1, how.units, how.group)
    with np.errstate(over="ignore"):
        return sum((sizes[..., i] for i in range(1, how.group)), sizes[..., 0])


def _broken(dense: Matrix, broken: NDArray[np.bool_], how: Granularity) -> str:
    """The place and the contents of the first invalid chunk, and the number of invalid chunks."""
    places = np.argwhere(broken)
    row, chunk = (int(i) for i in places[0])
    first, last = chunk * how.chunk, min((chunk + 1) * how.chunk, dense.shape[1])
    units = _units(dense[row : row + 1, first:last], how)
    count = np.count_nonzero(units & _magnitude(units, dense.dtype))
    what = "non-zeros" if how.group == 1 else "non-zero pairs"
    others = f"; {len(places)} chunks break the pattern" if len(places) > 1 else ""
    return (
        f"row {row}, chunk {chunk} (columns {first}..{last - 1}): {count} {what}, {how} allows {how.slots}"
        f"{others}; prune() keeps the largest"
    )


def _size(matrix: Matrix) -> str:
    return "x".join(map(str, matrix.shape)) or "a scalar"


# The 32-bit metadata words that threads hold, from codes and back.
#
# The words of a matrix lie as a kernel loads them: (row tiles, column groups, threads), C order. A tile is the A of one
# instruction; a column group is as many consecutive tiles of a row of tiles as there are selectors, k ascending, tile f
# of the group being the one that selector f reads; so every bit of every word is used, and a kernel whose thread t
# loads word t of a group (128 contiguous bytes a warp) has the metadata of that many steps in one register. What a last
# tile or group lacks is filled with ANY_CODE, which is legal everywhere.

Words = NDArray[np.uint32]

MMA_SP, WGMMA_SP = "mma.sp", "wgmma.mma_async.sp"
"""The instructions that take a sparse A: of one warp, and of the four of a warpgroup."""

NIBBLES = 8
"""Codes in a word."""


@cache
def _places(layout: Layout) -> tuple[NDArray[np.intp], ...]:
    """What each nibble of each thread describes, (threads, 8): selectors, rows and chunks."""
    places = [[layout.coordinates(t, nibble) for nibble in range(NIBBLES)] for t in range(layout.threads)]
    return tuple(np.array([[at[axis] for at in of] for of in places], np.intp) for axis in "frc")


def _metadata(row: ProductForm) -> tuple[Layout, Granularity]:
    """Who has the metadata of a sparse A, and how A is sparse."""
    if row.metadata is None or row.granularity is None:
        raise SparsityError(f"{row.spelling} has no sparse A")
    return row.metadata, row.granularity


def _named(row: ProductForm) -> str:
    """An instruction, without the columns of B that warpgroups may choose."""
    kind, (m, _, k) = f" .kind::{row.kind}" if row.kind else "", row.shape
    name = f"{WGMMA_SP} m{m}nNk{k}" if _metadata(row)[0].warp else f"{MMA_SP} {row.shape}"
    return f"{name} {row.a.name}{kind}"


def metadata_words(codes: Codes, row: ProductForm) -> Words:
    """The words of a matrix, (row tiles, column groups, threads), from its codes, (rows, chunks)."""
    layout, _ = _metadata(row)
    selectors, m, chunks = len(row.selectors), layout.rows, layout.columns
    missing = ((0, -codes.shape[0] % m), (0, -codes.shape[1] % (selectors * chunks)))
    padded = np.pad(codes, missing, constant_values=ANY_CODE)
    down, groups = padded.shape[0] // m, padded.shape[1] // (selectors * chunks)
    tiles = padded.reshape(down, m, groups, selectors, chunks).transpose(0, 2, 3, 1, 4)
    nibbles = tiles[:, :, *_places(layout)]
    packed = np.ascontiguousarray(nibbles[..., 0::2] | nibbles[..., 1::2] << 4)
    return packed.view("<u4").astype(np.uint32, copy=False).reshape(down, groups, layout.threads)


def metadata_codes(words: Words, row: ProductForm, rows: int, chunks: int) -> Codes:
    """The inverse of `metadata_words`: the codes, (rows, chunks). Raises SparsityError on words that hold less."""
    layout, _ = _metadata(row)
    down, groups = words.shape[:2]
    tiles = np.empty((down, groups, len(row.selectors), layout.rows, layout.columns), np.uint8)
    tiles[:, :, *_places(layout)] = _nibbles(words)
    height, width = down * layout.rows, groups * len(row.selectors) * layout.columns
    if rows > height or chunks > width:
        raise SparsityError(f"{_size(words)} words hold {height}x{width} codes of {_named(row)}, not {rows}x{chunks}")
    return tiles.transpose(0, 3, 1, 2, 4).reshape(height, width)[:rows, :chunks]


def validate_words(words: Words, row: ProductForm) -> None:
    """Says which thread and nibble of the words of a matrix has a value that `::ordered_metadata` does not take, if one
    does.

    Raises:
        SparsityError: such as "row tile 0, column group 1, lane 5, nibble 3 (row 1, chunk 3): 0b0101 of word ...".
    """
    layout, how = _metadata(row)
    bad = np.argwhere(~np.isin(np.arange(16), how.codes(ordered=True))[_nibbles(words)])
    if not len(bad):
        return
    down, group, thread, nibble = (int(i) for i in bad[0])
    word, at = int(words[down, group, thread]), layout.coordinates(thread, nibble)
    code, (warp, lane) = word >> 4 * nibble & 0xF, divmod(thread, LANES)
    where = f"warp {warp}, lane {lane}" if layout.warp else f"lane {lane}"
    chunk = (group * len(row.selectors) + at["f"]) * layout.columns + at["c"]
    others = f"; {len(bad)} nibbles have none" if len(bad) > 1 else ""
    raise SparsityError(
        f"row tile {down}, column group {group}, {where}, nibble {nibble} (row {down * layout.rows + at['r']}, chunk "
        f"{chunk}): {_binary(code)} of word 0x{word:08x} has no meaning for {_named(row)}: "
        f"{complaint(how, code, ordered=True)}{others}"
    )


def _nibbles(words: Words) -> Codes:
    """The eight nibbles of each word, lowest first, as a last axis."""
    octets = np.ascontiguousarray(words, "<u4").reshape(-1).view(np.uint8)
    nibbles = np.empty((octets.size, 2), np.uint8)
    nibbles[:, 0], nibbles[:, 1] = octets & 0xF, octets >> 4
    return nibbles.reshape(*words.shape, NIBBLES)


# What instructions read: which columns of A the stored elements are, by the metadata words of one selector.


class NibbleError(ValueError):
    """A nibble of metadata that names no elements, or one element twice; `thread` has it, lane by lane."""

    def __init__(self, message: str, thread: int) -> None:
        super().__init__(message)
        self.thread = thread


@cache
def _nibbles_of(layout: Layout, selector: int) -> tuple[Array, Array]:
    """The lane and the place in its word of each nibble: arrays (chunks, rows)."""
    coordinates = [
        [layout.find(r=r, c=c, f=selector) for r in range(layout.rows)] for c in range(layout.columns)
    ]  # fmt: skip
    lanes, nibbles = np.moveaxis(np.array(coordinates), -1, 0)
    return lanes, nibbles.astype(np.uint32)


def columns(row: ProductForm, words: Array, selector: int) -> Array:
    """Which column of A each stored element belongs to: (k / 2, m, warps), for metadata words (32 lanes, warps), or of
    warpgroups (128 threads, groups). Raises NibbleError for a nibble that names no elements, or one element twice;
    ValueError if A is not sparse."""
    layout, how = _metadata(row)
    lanes, nibbles = _nibbles_of(layout, selector)
    codes = words[lanes] >> (nibbles * np.uint32(4))[..., None] & np.uint32(0xF)
    good = np.isin(np.arange(16), row.codes)[codes]
    if not good.all():
        chunk, r, warp = (int(i[0]) for i in np.nonzero(~good))
        raise NibbleError(
            f"metadata {_binary(codes[chunk, r, warp])} for chunk {chunk} of row {r} of A means nothing; "
            f"expected one of {', '.join(map(_binary, row.codes))}",
            int(lanes[chunk, r]) * words.shape[-1] + warp,
        )
    offsets = _offsets(how)[codes]
    start = np.arange(len(codes)) * how.chunk
    places = offsets + start[:, None, None, None]
    return np.moveaxis(places, -1, 1).reshape(-1, *codes.shape[1:])


@cache
def _offsets(how: Granularity) -> Array:
    """Where in its chunk each stored element lies, by nibble: (16, stored)."""
    return (_units_of(how)[..., None] * how.group + np.arange(how.group)).reshape(16, how.stored)
