"""The part of a schedule that is about the way to D: whether elements change lanes in shared memory before."""

from __future__ import annotations

from ...dialect.isa.types import ELEMENT_TYPES
from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.warp.exchange import BANKS
from ..linalg.operand import MatrixOperand, Spread
from ..linalg.product import Product
from .packing import WIDEST, access_bytes

SECTOR, LINE = 32, 128
"""Bytes of memory that are stored together, and that one store can reach without further ones."""


NARROWEST = 16
"""Bits of the narrowest elements that change lanes."""


ADDED = ("f16", "f32")
"""Types of sums that C can be added to at the end."""


def exchanged_rows(schedule: Schedule) -> int:
    """Rows of a warp tile at a time that change lanes; none of a warpgroup's, which tensor copies store."""
    return schedule.epilogue.staging if schedule.tile.together == 1 else 0


def adds_last(product: Product, schedule: Schedule) -> bool:
    """Whether C is added to the sums strip by strip: loaded in whole lines, and under the strip before, it costs less
    than as lanes hold it, before the first K tile. Neither a sparse product nor one of 8-bit floats, which are
    widened, has registers for it then, nor an epilogue with matrices of its own. `add_c` may say otherwise. Partial
    sums meet before C is added."""
    whole, add_c = schedule.tile.sliced_k == schedule.grid.split_k == 1, schedule.epilogue.add_c
    if product.c is None or not whole or add_c != "auto":
        return product.c is not None and whole and add_c == "last"
    roomy = product.sparsity == 1 and not (product.a.element.is_float and product.a.element.bits < NARROWEST)
    staged = bool(exchanged_rows(schedule)) and schedule.arithmetic.accumulate in ADDED
    return staged and roomy and not matrices(product)


def matrices(product: Product) -> list[MatrixOperand | Spread]:
    """The epilogue's operands that are matrices."""
    return [operand for operand in product.epilogue_operands if isinstance(operand, MatrixOperand | Spread)]


def changes_lanes_first(schedule: Schedule, *, loads: bool, bits: int) -> bool:
    """Whether the sums change lanes, before the epilogue, so that it loads matrices in whole lines too, if it `loads`
    any, or makes bytes of them, of `bits`; otherwise what it makes of them does, which may be narrower."""
    return bool(exchanged_rows(schedule)) and (loads or bits < NARROWEST)


def strip_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory in which a CTA's warps have room for a strip each."""
    sums = ELEMENT_TYPES[schedule.arithmetic.accumulate]
    loads, bits = adds_last(product, schedule) or bool(matrices(product)), product.d.element.bits
    bits = sums.bits if changes_lanes_first(schedule, loads=loads, bits=bits) else bits
    return schedule.tile.warps * max(BANKS, schedule.epilogue.staging * schedule.tile.warp[1] * bits // 8)


def in_strips(schedule: Schedule, product: Product, rows: int, room: int) -> Schedule:
    """The schedule with strips of `rows` rows, those of a base tile of accumulators, where they pay.

    Four lanes hold eight neighbours of a row of D. Of 16 bits those are half a sector of memory, which costs more than
    a whole one, of 8 bits a quarter: strips pay if a warp's rows fill a sector. Of 32 bits they are a sector, but a
    store of a warp touches eight lines, which is what the load/store pipe counts: strips pay if rows fill a line. All
    that only in the `room` bytes of shared memory that are left, for a stage less would cost more; and not beside
    several matrices of an epilogue, which leave no registers.
    """
    strips, bits = schedule.with_fields(staging=rows), product.d.element.bits
    # Lanes go along as many columns as a power of two in them says.
    together = schedule.tile.warp[1] & -schedule.tile.warp[1]
    pays = together * bits // 8 >= (SECTOR if bits <= NARROWEST else LINE)
    fits = access_bytes(product.d) == WIDEST and strip_bytes(product, strips) <= room and len(matrices(product)) <= 1
    return strips if pays and fits else schedule


def check_epilogue(schedule: Schedule, product: Product, rows: int) -> None:
    """Checks a schedule's way to D against the product and base tiles of accumulators of `rows` rows.

    Raises:
        ScheduleError: if strips are no multiples of those, or C is added where partial sums meet.
    """
    check_c(schedule, product)
    if schedule.epilogue.staging % rows:
        raise ScheduleError(
            f"staging must be a multiple of the {rows} rows of a base tile, got {schedule.epilogue.staging}"
        )


def check_c(schedule: Schedule, product: Product) -> None:
    """Refuses to say when C is added where partial sums meet: it is added there."""
    add_c, partial = schedule.epilogue.add_c, max(schedule.tile.sliced_k, schedule.grid.split_k) > 1
    if add_c != "auto" and partial and product.c is not None:
        raise ScheduleError(f"add_c = {add_c}: of a K that is sliced or split, C is added where partial sums meet")
