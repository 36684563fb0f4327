"""The scales of a `warp.matmul`: how many there are, and of which types."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from ..isa.mma import Variant, blocks
from ..isa.types import ELEMENT_TYPES
from .attributes import SCALES, element_row, memory_of

STORED_AS = {held: scale for scale, held in SCALES.items()}
"""The type of scales that memory of another type holds."""


def scale_type(scales: Sequence[SSAValue]) -> str:
    """The ISA's name of the type of scales; empty where there are none, or of no type that it knows."""
    row = element_row(memory_of(scales[0]).element_type) if scales else None
    return "" if row is None else STORED_AS.get(row.name, row.name)


def verify_scaling(variant: Variant, scales: Sequence[SSAValue]) -> None:
    """Checks that there are scales for a kind that has some, of a type that it takes.

    Raises:
        VerifyException: saying what the kind takes.
    """
    if not (scales or variant.kind):
        return
    legal = [v.scale_type for v in blocks() if v.kind == variant.kind]
    if not scales:
        if legal:
            raise VerifyException(f"expected scales of A and B for kind {variant.kind}")
        return
    kinds = dict.fromkeys(v.kind for v in blocks())
    if not legal:
        raise VerifyException(f"expected a kind for scales, {', '.join(kinds)}; got '{variant.kind}'")
    if len(scales) != 2:
        raise VerifyException(f"expected scales of A and of B, got {len(scales)} operands")
    first, second = (memory_of(value).element_type for value in scales)
    if first != second:
        raise VerifyException(f"expected scales of A and B of one type, got {first} and {second}")
    if variant.scale_type not in legal:
        raise VerifyException(f"expected scales of {' or '.join(map(_stored, legal))} for {variant.kind}, got {first}")


def verify_scale_shape(variant: Variant, name: str, scales: SSAValue, sizes: Sequence[int]) -> None:
    """Checks that there is a scale for each block of a row of A, or of a column of B.

    `sizes` are those of the batch, of rows or columns, and of k, below 0 where they are not known.

    Raises:
        VerifyException: saying how many are expected.
    """
    (*rows, k), block, shape = sizes, blocks()[variant], memory_of(scales).get_shape()
    expected = (*rows, -(-k // block) if k >= 0 else -1)
    pairs = zip(shape, expected, strict=False)
    if len(shape) != len(expected) or any(known != size and min(known, size) >= 0 for known, size in pairs):
        text, what = "x".join("?" if size < 0 else str(size) for size in expected), {"A": "row", "B": "column"}[name]
        raise VerifyException(
            f"expected {text} scales of {name}, one for each {block} elements of a {what}, got {scales.type}"
        )


def _stored(scale: str) -> str:
    """The MLIR type that holds scales of a type."""
    return ELEMENT_TYPES[SCALES.get(scale, scale)].mlir
