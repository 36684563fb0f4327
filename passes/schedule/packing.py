"""Whether to copy an operand to aligned rows first: what its rows cost the product, and what packing costs.

All in the cycles of the model in `model.py`, about a third of a nanosecond on an H200, where the numbers were
measured (`bench/NOTES.md`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...dialect.isa.targets import Target
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product
from .h200 import NARROW_COPY, PACK_BYTES_PER_CYCLE, PACK_LATENCY, REGISTER_COPY

WIDEST, WORD = 16, 4
"""Bytes of the widest access, and of the narrowest that needs no registers on its way to shared memory."""

SHORTEST_PACKED_ROW = 4
"""Bytes: `warp.pack` reads words, and only the last row of a matrix may have one that ends behind it."""


def access_bytes(operand: MatrixOperand) -> int:
    """The widest access that every row of an operand allows."""
    known = operand.aligned_bits // 8
    return min(WIDEST, known & -known) if known else WIDEST


def row_bytes(operand: MatrixOperand) -> int:
    return -(-operand.shape[1] * operand.memory_bits // 8)


def roles(pack: str) -> str:
    """The operands that a schedule packs: "", "a", "b" or "ab"."""
    return "" if pack == "none" else pack


def through_registers(product: Product, pack: str) -> bool:
    """Whether tiles of A or B pass through registers, because rows are no multiple of 4 bytes and not packed."""
    return any(access_bytes(o) < WORD for role, o in (("a", product.a), ("b", product.b)) if role not in roles(pack))


def narrow(product: Product, pack: str) -> bool:
    """Whether some asynchronous copies are narrower than the widest, each with an address of its own."""
    return any(access_bytes(o) < WIDEST for role, o in (("a", product.a), ("b", product.b)) if role not in roles(pack))


def choices(product: Product, cta: tuple[int, int], target: Target) -> Iterator[tuple[str, float]]:
    """Every `pack` that may pay for tiles of this size, with the cycles that it adds to those of aligned operands."""
    down, across = -(-product.m // cta[0]), -(-product.n // cta[1])
    sms = min(product.tiles(*cta), target.sms)
    rows_cost = {
        "a": _copy_cycles(product.a, across * product.matrices) / sms,
        "b": _copy_cycles(product.b, down * product.matrices) / sms,
    }
    useful = [
        role
        for role, operand in (("a", product.a), ("b", product.b))
        if rows_cost[role] and operand.is_compact and row_bytes(operand) >= SHORTEST_PACKED_ROW
    ]
    for pack in ("none", *useful, *(["ab"] if len(useful) == 2 else [])):
        packed = roles(pack)
        kept = sum(cost for role, cost in rows_cost.items() if role not in packed)
        yield pack, kept + _pack_cycles(product, packed, target)


def _copy_cycles(operand: MatrixOperand, times: int) -> float:
    """What narrow accesses cost all SMs together when an operand is copied `times` times."""
    width, rows = access_bytes(operand), operand.shape[0]
    if width == WIDEST:
        return 0.0
    each = REGISTER_COPY if width < WORD else NARROW_COPY
    return each * times * rows * row_bytes(operand) / max(width, operand.memory_bits // 8)


def _pack_cycles(product: Product, packed: Collection[str], target: Target) -> float:
    moved = sum(
        2 * operand.shape[0] * row_bytes(operand) * product.matrices_of(operand)
        for role, operand in (("a", product.a), ("b", product.b))
        if role in packed
    )
    return PACK_LATENCY + moved / (PACK_BYTES_PER_CYCLE * target.sms) if packed else 0.0
