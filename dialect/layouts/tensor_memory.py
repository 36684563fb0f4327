"""Tensor memory: where matrices lie among its lanes and columns, and what loads and copies move. PTX ISA 9.7.16.

Tensor memory of a CTA has 128 lanes of columns of 32 bits. A layout here is one of `layout`, whose threads are the
lanes, 32 of each warp, and whose elements are the columns, or what is packed in them::

    r0 r1 r2 r3 r4 | c0 c1 c2 | r5 r6     D of 128 rows: row r in lane r, column c in column c
    r0 r1 r2 r3 h0 | c0 c1 c2 | r4 r5     D of 64 rows: 16 lanes of each warp, those of half h

Sources: PTX ISA 9.7.16.2, .5, .8, .9, .10; CUTLASS's traits, from which tests make the same places again.
"""

from __future__ import annotations

from functools import cache

from .layout import Layout

LANES = 128
COLUMNS = 512
"""Of the tensor memory of a CTA."""


def _layout(text: str) -> Layout:
    return Layout.parse(text, "rcxhp")


# Loads and stores: the threads of a warp, their registers, and 32 lanes. 9.7.16.8.1

MOVES = {
    "32x32b": _layout("r0 r1 r2 r3 r4 |"),
    "16x64b": _layout("r3 c0 r0 r1 r2 |"),
    "16x128b": _layout("c0 c1 r0 r1 r2 | r3"),
    "16x256b": _layout("c1 c2 r0 r1 r2 | c0 r3"),
    "16x32bx2": _layout("r0 r1 r2 r3 p0 |"),
}
"""Which lane (row) and column each thread's registers of one repetition hold; `p` is the part that is split off."""

# Copies: the rows of a matrix in shared memory that each lane gets. 9.7.16.9.1

COPIES = {
    "128x256b": _layout("r0 r1 r2 r3 r4 | c0 c1 c2 | r5 r6"),
    "128x128b": _layout("r0 r1 r2 r3 r4 | c0 c1 | r5 r6"),
    "64x128b.warpx2::02_13": _layout("r0 r1 r2 r3 r4 | c0 c1 | r5 x0"),
    "64x128b.warpx2::01_23": _layout("r0 r1 r2 r3 r4 | c0 c1 | x0 r5"),
    "32x128b.warpx4": _layout("r0 r1 r2 r3 r4 | c0 c1 | x0 x1"),
    "4x256b": _layout("h0 h1 h2 h3 h4 | c0 c1 c2 | r0 r1"),
}

# Operands of products. 9.7.16.10.5

_RESULTS = {
    (128, 1, False): _layout("r0 r1 r2 r3 r4 | c0 c1 c2 | r5 r6"),
    (64, 1, False): _layout("r0 r1 r2 r3 h0 | c0 c1 c2 | r4 r5"),
    (128, 1, True): _layout("r0 r1 r2 r3 r4 | c0 c1 c2 | r5 r6"),
    (64, 1, True): _layout("r0 r1 r2 r3 r4 | c0 c1 c2 | r5 p0"),
    (32, 1, True): _layout("r0 r1 r2 r3 r4 | c0 c1 c2 | p0 p1"),
    (256, 2, False): _layout("r0 r1 r2 r3 r4 | c0 c1 c2 | r5 r6"),
    (128, 2, False): _layout("r0 r1 r2 r3 r4 | c0 c1 c2 | r5 p0"),
}
"""By M, the CTAs, and whether B stays (`.ws`): D, of each CTA its own rows; the columns in parts, of each eight."""

_HALVES = _RESULTS[64, 1, False]


@cache
def result(m: int, group: int, stationary: bool, sparse: bool) -> Layout:
    """D: eight columns of each part of it. Where a pair of CTAs multiplies, each has m / 2 of the rows. Raises KeyError
    if no product has such a D."""
    return _HALVES if (m, group, sparse) == (128, 2, True) else _RESULTS[m, group, stationary]


@cache
def multiplicand(m: int, group: int, stationary: bool, sparse: bool, bits: int) -> Layout:
    """A: words of a column each with elements of `bits` bits, on the lanes of D's rows; copies where D is in parts."""
    place = result(m, group, stationary, sparse)
    packed = " ".join(f"c{i}" for i in range((32 // bits).bit_length() - 1))
    words = str(place).replace("p", "x").split("|")
    return _layout(f"{words[0]} | {packed} | {words[2]}")


@cache
def scales(rows: int, vector: int) -> Layout:
    """The scales of `rows` rows of A, or columns of B: bytes, `vector` of a row side by side, in four copies. Other
    scales lie in the rest of a word: `b` of those is the byte-id, in steps of `vector`."""
    along = " ".join(
        [f"c{i}" for i in range(vector.bit_length() - 1)] + [f"b{i}" for i in range(3 - vector.bit_length())]
    )
    groups = " ".join(f"r{i}" for i in range(5, max(5, (rows - 1).bit_length())))
    return Layout.parse(f"r0 r1 r2 r3 r4 | {along} {groups} | x0 x1", "rcxb")


SCALES_BLOCK = _layout("r0 r1 r2 r3 r4 | c0 c1 r5 r6")
"""A block of 128 rows of four scales in shared memory, as lines of 16 bytes for 32 lanes: `32x128b.warpx4` copies it to
four columns of those. 9.7.16.9.1."""

METADATA_BLOCK = _layout("c2 c3 c4 c0 r0 | c1 c5 | r1 r2")
"""A block of eight rows of 64 words of metadata, each row for 16 rows of a sparse A as `mma.sp` takes it (9.7.14.6.2),
as lines of 16 bytes for 128 lanes: `128x128b` copies it to four columns."""


_METADATA = {
    (128, 16): "r0 r1 r2 c2 r4 | c0 c1 r3 | r5 r6",
    (128, 32): "r0 r1 r2 c2 r4 | c0 c1 r3 | r5 r6",
    (128, 8): "r0 r1 r2 r3 r4 | c0 c1 c2 c3 | r5 r6",
}


@cache
def metadata(m: int, group: int, stationary: bool, bits: int) -> Layout:
    """The nibbles of a sparse A's metadata, by row and chunk. A column holds those of two rows for elements of at least
    16 bits; for narrower elements, two columns hold those of one row."""
    rows = m // group
    text = _METADATA[128, min(max(bits, 8), 32)]
    if rows == 64:
        text = text.replace("r5 r6", "r5 x0") if stationary else text.replace("r4 |", "h0 |").replace("r5 r6", "r4 r5")
    if rows == 32:
        text = text.replace("r5 r6", "x0 x1")
    return _layout(text)
