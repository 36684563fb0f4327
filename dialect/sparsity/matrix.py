"""Whole matrices under a pattern: compress, expand, prune, and what breaks the pattern.

A dense matrix is (rows, columns); its compressed form is the stored elements, (rows, chunks * pattern.stored), in
the order in which the instructions take them, and one code per chunk, (rows, chunks) of uint8. Where the columns do not
fill the last chunk of a row, zeros are thought to follow.

Zeros are zeros by value: -0.0 is one, and becomes +0.0 where it is not stored. NaN is not zero.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .patterns import Pattern, PatternError, binary

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
    """The least ordered code that stores all units whose bit is set in `present`."""
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
    """The dense matrix of `columns` columns (the chunks' own number if None) that values and codes stand for.

    Codes need not be ordered.

    Raises:
        PatternError: naming row, chunk and value of a code with no meaning, or shapes that do not belong together.
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
    """A copy in which only the largest units of each chunk are left, as many as are stored; the others are zero.

    The size of an element is its magnitude, that of a pair the sum of both; of equals the first stays.
    NaN is larger than any number.
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
    return _as_units(_whole(dense.view(f"u{dense.dtype.itemsize}"), pattern), pattern)


def _whole(matrix: Matrix, pattern: Pattern) -> Matrix:
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
    """The bits that make a unit other than zero, its elements being of type `dtype`."""
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
    sizes = _whole(sizes, pattern).reshape(-1, pattern.units, pattern.unit)
    with np.errstate(over="ignore"):
        return sum((sizes[..., i] for i in range(1, pattern.unit)), sizes[..., 0])


def _complaint(dense: Matrix, broken: NDArray[np.bool_], pattern: Pattern) -> str:
    """Where the first broken chunk is and what it has, and how many there are."""
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


def _names(types: tuple[np.dtype[Any], ...]) -> str:
    return ", ".join(map(str, types))


def _require_matrix(matrix: Matrix) -> None:
    if matrix.dtype not in MAGNITUDE_BITS:
        raise PatternError(f"expected elements of {_names(tuple(MAGNITUDE_BITS))}, got {matrix.dtype}")
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
