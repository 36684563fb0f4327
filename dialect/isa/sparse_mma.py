"""Rows of the sparse warp-level multiply-accumulate instruction: `mma.sp` and `mma.sp::ordered_metadata`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

from ..layouts.layout import Layout
from . import mma
from .form import FP8, SM_120, Granularity
from .mma import Mma
from .row import Version

# Half of each row of A is zero. The other half is stored, and metadata says where it belongs: a *chunk* of a row is
# described by four bits of metadata, and the sparsity selector says which lanes hold them. Source: PTX ISA 9.7.14.6;
# the metadata figures of 9.7.14.6.2 as bit maps.

ONE_OF_TWO, TWO_OF_FOUR, FOUR_OF_EIGHT = Granularity(1, 2), Granularity(2, 4), Granularity(4, 8, 2)

# Who holds the nibble of row r and chunk c (a column here) when the selector is f: which lane, and where in its word.
ONE_LANE = Layout.parse("f0 f1 r0 r1 r2 | c0 c1 r3", "rcf")
TWO_LANES_BY_CHUNK = Layout.parse("c2 f0 r0 r1 r2 | c0 c1 r3", "rcf")
TWO_LANES_BY_ROW = Layout.parse("r3 f0 r0 r1 r2 | c0 c1 c2", "rcf")
FOUR_LANES = Layout.parse("r3 c3 r0 r1 r2 | c0 c1 c2", "rcf")


_VARIANTS: tuple[tuple[bool, Version], ...] = ((False, (7, 1)), (True, (8, 5)))
"""Whether the metadata is ordered, and the first PTX version."""

_METADATA: Mapping[tuple[int, int], tuple[Granularity, Layout, str]] = {
    (16, 16): (TWO_OF_FOUR, ONE_LANE, "9.7.14.6.2.1"),
    (16, 32): (TWO_OF_FOUR, TWO_LANES_BY_CHUNK, "9.7.14.6.2.2"),
    (32, 16): (ONE_OF_TWO, TWO_LANES_BY_CHUNK, "9.7.14.6.2.3"),
    (32, 8): (ONE_OF_TWO, ONE_LANE, "9.7.14.6.2.4"),
    (8, 32): (TWO_OF_FOUR, TWO_LANES_BY_ROW, "9.7.14.6.2.5"),
    (8, 64): (TWO_OF_FOUR, FOUR_LANES, "9.7.14.6.2.6"),
    (4, 64): (FOUR_OF_EIGHT, TWO_LANES_BY_ROW, "9.7.14.6.2.7"),
    (4, 128): (FOUR_OF_EIGHT, FOUR_LANES, "9.7.14.6.2.8"),
}
"""By the bits of an element and K how A is sparse, who has the metadata, and the section."""


@cache
def rows() -> tuple[Mma, ...]:
    """Every form of `mma.sp` and `mma.sp::ordered_metadata`."""
    return (*_sparse_plain(), *_sparse_fp8(), *_sparse_kinds())


@cache
def granularities() -> Mapping[str, Granularity]:
    """How A is sparse in the forms without a kind, by the type of its elements."""
    return {row.a.name: row.granularity for row in rows() if row.granularity is not None and not row.kind}


def _doubled(row: Mma, ordered: bool, **others: Any) -> Mma:
    """The sparse form of twice the depth of a dense one."""
    shape = row.shape._replace(k=2 * row.shape.k)
    granularity, metadata, section = _METADATA[row.operand_bits, shape.k]
    return replace(row, shape=shape, section=section, granularity=granularity, metadata=metadata, ordered=ordered,
                   **others)  # fmt: skip


def _sparse_plain() -> Iterator[Mma]:
    """9.7.14.6.3  half precision, bf16, tf32, integers."""
    for names in ("f16", "bf16", "tf32", "s8 u8", "s4 u4"):
        dense = [row for row in mma.rows() if row.a.name in names.split() and row.shape.m == 16]
        for shape in sorted({row.shape for row in dense}):
            of_shape = [row for row in dense if row.shape == shape]
            for (ordered, ptx), row in product(_VARIANTS, of_shape):
                yield _doubled(row, ordered, ptx=ptx, sm=80)


def _sparse_fp8() -> Iterator[Mma]:
    """9.7.14.6.3  e4m3 and e5m2 in every mix; f16 sums only where `.kind::f8f6f4` has them too."""
    dense = (row for row in mma.rows() if row.a.name in FP8 and not row.kind and row.shape.k == 32)
    for row in sorted(dense, key=lambda row: (row.a.name, row.b.name, row.d.bits == 16)):
        if row.d.bits == 16:
            yield _doubled(row, True, ptx=(8, 7), sm=120, only=SM_120)
        else:
            yield from (_doubled(row, ordered, ptx=ptx) for ordered, ptx in ((False, (8, 4)), (True, (8, 5))))


def _sparse_kinds() -> Iterator[Mma]:
    """9.7.14.6.3, and 9.7.14.3, table 36. Those of 4 bits run on the first members of the family, not in all of it:
    9.7.14.6.3, Target ISA Notes."""
    for row in mma.rows():
        if row.kind:
            each = tuple((name.replace("sm_120f", "sm_121a"), version) for name, version in row.only)
            yield _doubled(row, True, only=each if row.operand_bits == 4 else row.only)
