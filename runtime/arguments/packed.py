"""Operands in the order in which kernels read them: sparse matrices with their metadata, and quantised weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import cast

import numpy as np

from ...dialect.isa import sparse_mma, wgmma
from ...dialect.isa.form import BY_MLIR_NAME, ELEMENT_TYPES, ElementType, Granularity, ProductForm
from ...dialect.warp.stored import PACKED
from ..base.errors import ArgumentError
from ..numerics.floats import Array
from ..numerics.sparse import (
    MMA_SP,
    NIBBLES,
    WGMMA_SP,
    SparsityError,
    dense_of,
    metadata_codes,
    metadata_words,
    pruned,
    stored_of,
    validate_words,
)
from .arrays import element_of

# The sparse operand of a product: pruning and compressing it on the host.
#
#     a = prune(a)                          # of each four neighbours in a row, the two largest stay
#     values, metadata = compress(a)        # what a kernel with a sparse A takes
#     kernel(values, metadata, b, c)
#
# The places of the words of metadata are those of `mma.sp`, or those of `wgmma.mma_async.sp` where `instruction` says
# so.


@cache
def _deepest(instruction: str) -> Mapping[str, ProductForm]:
    """The deepest form of an instruction for each type of A, without a kind."""
    rows: tuple[ProductForm, ...] = sparse_mma.rows() if instruction == MMA_SP else wgmma.rows()
    deepest: dict[str, ProductForm] = {}
    for row in rows:
        if row.sparse and not row.kind and row.shape.k >= deepest.get(row.a.name, row).shape.k:
            deepest[row.a.name] = row
    return deepest


def sparse_row(element: str, instruction: str = MMA_SP) -> tuple[ProductForm, Granularity]:
    """The deepest form of an instruction for a sparse A with elements of an MLIR type, and how A is sparse; f32 are
    multiplied as tf32. Raises ArgumentError if there is no such instruction, or it does not take them."""
    return _row_of(ELEMENT_TYPES["tf32"] if element == "f32" else BY_MLIR_NAME[element], instruction)


def _row_of(element: ElementType, instruction: str) -> tuple[ProductForm, Granularity]:
    if instruction not in (MMA_SP, WGMMA_SP):
        raise ArgumentError(f"expected the instruction {MMA_SP} or {WGMMA_SP}, got {instruction!r}")
    if (row := _deepest(instruction).get(element.name)) is None:
        names = ", ".join(_deepest(instruction))
        raise ArgumentError(f"{instruction} takes no sparse matrix of {element.name}; it takes {names}")
    return row, sparse_mma.granularities()[element.name]


def prune(dense: Array) -> Array:
    """A copy of a dense matrix (rows, columns) in which all but the largest elements of each chunk are zero.

    f16, bf16 and 8-bit types keep 2 of 4, f32 (multiplied as tf32) 1 of 2, i4 two neighbouring pairs of four.

    Raises:
        ArgumentError: if the array is not a matrix of a type that `mma.sp` takes.
    """
    try:
        return pruned(dense, sparse_mma.granularities()[_element(dense).name])
    except SparsityError as error:
        raise ArgumentError(f"cannot prune: {error}") from error


def compress(dense: Array, instruction: str = MMA_SP) -> tuple[Array, Array]:
    """Compress a sparse matrix to its stored elements, (rows, columns / 2), and its metadata, (rows / 16, words) of
    int32.

    A row of metadata describes 16 rows of the matrix. It has 32 words, one for each lane, for 64 columns of f16, bf16
    and 8-bit types, 32 columns of f32, or 128 columns of i4. Both sizes are rounded up. For `wgmma.mma_async.sp`, a row
    of metadata describes 64 rows, (rows / 64, words), and has 128 words, one for each thread of a warpgroup, for the
    same number of columns.

    Raises:
        ArgumentError: if the array is not a matrix of such a type, has columns that are not whole chunks, or breaks
            the pattern, naming the first place.
    """
    row, how = _row_of(_element(dense), instruction)
    if dense.ndim == 2 and dense.shape[1] % how.chunk:
        raise ArgumentError(f"cannot compress: {dense.shape[1]} columns are no whole chunks of {how.chunk}")
    try:
        values, codes = stored_of(dense, how)
    except SparsityError as error:
        raise ArgumentError(f"cannot compress: {error}") from error
    words = metadata_words(codes, row)
    return values, words.reshape(len(words), -1).view(np.int32)


def expand(values: Array, metadata: Array, instruction: str = MMA_SP) -> Array:
    """The dense matrix (rows, columns) of values and metadata that `compress` made for the same instruction.

    Raises:
        ArgumentError: for arrays that do not belong together, or invalid codes.
    """
    row, how = _row_of(_element(values), instruction)
    try:
        codes = metadata_codes(_words(metadata, row), row, len(values), values.shape[1] // how.stored)
        return dense_of(values, codes, how)
    except ValueError as error:
        raise ArgumentError(f"cannot expand: {error}") from error


def _words(metadata: Array, row: ProductForm) -> Array:
    """Metadata as the words of each thread."""
    threads = 0 if row.metadata is None else row.metadata.threads
    return np.ascontiguousarray(metadata).view(np.uint32).reshape(len(metadata), -1, threads)


def check_metadata(words: Array, element: str, instruction: str = MMA_SP) -> None:
    """Check metadata in the form that `compress` makes, (rows / 16 or 64, words) of int32, for elements of an MLIR
    type.

    Raises:
        ArgumentError: naming the first invalid word, such as one that was never written.
    """
    row, _ = sparse_row(element, instruction)
    try:
        validate_words(_words(words, row), row)
    except ValueError as error:
        raise ArgumentError(f"metadata that means nothing: {error}; runtime.compress makes metadata") from error


def random_metadata(shape: tuple[int, ...], element: str, generator: np.random.Generator) -> Array:
    """Metadata for `mma.sp`, (rows / 16, words) of int32, for elements of an MLIR type: each code one with a meaning.
    Raises ArgumentError for a type that `mma.sp` does not take."""
    legal = sparse_row(element)[1].codes(ordered=True)
    nibbles = generator.choice(np.array(legal, np.uint32), (*shape, NIBBLES))
    return np.bitwise_or.reduce(nibbles << (4 * np.arange(NIBBLES, dtype=np.uint32)), axis=-1).view(np.int32)


def _element(array: Array) -> ElementType:
    """The ISA's type that elements are multiplied as. Raises ArgumentError for what is no numpy array, or has elements
    that `mma.sp` does not take."""
    if not isinstance(cast("object", array), np.ndarray):
        raise ArgumentError(f"expected a numpy array, got {type(array).__name__}")
    name = element_of(array.dtype)
    row = ELEMENT_TYPES["tf32"] if name == "f32" else BY_MLIR_NAME.get(name)
    if row is None or row.name not in sparse_mma.granularities():
        raise ArgumentError(f"mma.sp takes no sparse matrix of {name}")
    return row


# Quantised weights in the order in which warpgroups multiply them: `pack_weights`, `unpack_weights`.


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
    words = packed.view(np.uint8)
    if bits == 4:
        words = np.stack([words & 15, words >> 4], -1).reshape(*words.shape[:2], -1)
    blocks = np.empty_like(words)
    blocks[..., places] = words
    down, across = words.shape[:2]
    rows_ = blocks.reshape(down, across, rows, columns).transpose(0, 2, 1, 3).reshape(down * rows, across * columns)
    if not signed:
        return rows_
    return (rows_ ^ (1 << bits - 1)).astype(np.int8) - np.int8(8) if bits == 4 else rows_.view(np.int8)


def packed_order(bits: int) -> tuple[int, int, Array]:
    """Rows and columns of a block, and which of its elements, row by row, is where."""
    if (layout := PACKED.get(bits)) is None:
        raise ArgumentError(f"expected weights of {' or '.join(map(str, PACKED))} bits, got {bits}")
    numbers, columns = np.arange(layout.rows * layout.columns), layout.columns
    places = np.zeros_like(numbers)
    for at, bit in enumerate((*layout.element, *layout.lane, *layout.warp)):
        places |= (numbers >> at & 1) * (1 << bit.number) * (columns if bit.axis == "r" else 1)
    return layout.rows, columns, places
