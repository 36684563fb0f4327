"""The part of a schedule that is about the way to D: whether elements change lanes in shared memory before."""

from __future__ import annotations

from dataclasses import replace

from ..dialect.schedule import Schedule, ScheduleError
from ..dialect.warp.exchange import BANKS
from .packing import WIDEST, access_bytes
from .product import Product

BITS = (16, 32, 64)
"""Elements that can change lanes."""

SECTOR, LINE = 32, 128
"""Bytes of memory that are stored together, and that one store can reach without further ones."""


def strip_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory in which a CTA's warps have room for a strip each."""
    return schedule.warps * max(BANKS, schedule.strip * schedule.warp[1] * product.d.element.bits // 8)


def in_strips(schedule: Schedule, product: Product, rows: int, room: int) -> Schedule:
    """The schedule with strips of `rows` rows, those of a base tile of accumulators, where they pay.

    Four lanes hold eight neighbours of a row of D. Of 16 bits those are half a sector of memory, which costs more than
    a whole one: strips pay if a warp's rows fill a sector. Of 32 bits they are a sector, but a store of a warp touches
    eight lines, which is what the load/store pipe counts: strips pay if rows fill a line. All that only in the `room`
    bytes of shared memory that are left, for a stage less would cost more.
    """
    strips, bits = replace(schedule, strip=rows), product.d.element.bits
    if bits not in BITS or access_bytes(product.d) < WIDEST:
        return schedule
    pays = schedule.warp[1] * bits // 8 >= (SECTOR if bits == BITS[0] else LINE)
    return strips if pays and strip_bytes(product, strips) <= room else schedule


def check_strip(schedule: Schedule, product: Product, rows: int) -> None:
    """Checks a schedule's strips against a product whose accumulators have base tiles of `rows` rows.

    Raises:
        ScheduleError: if they are no multiples of those, or of elements that are not exchanged.
    """
    if schedule.strip % rows:
        raise ScheduleError(f"strips consist of base tiles of {rows} rows, got strip = {schedule.strip}")
    if schedule.strip and product.d.element.bits not in BITS:
        raise ScheduleError(
            f"strip = {schedule.strip}: elements of 16, 32 and 64 bits change lanes in shared memory, "
            f"got {product.d.type}"
        )
