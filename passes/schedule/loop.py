"""The part of a schedule that is about the K loop: how warps meet, how far copies run ahead, unrolling, persistence."""

from __future__ import annotations

from collections.abc import Callable

from ...dialect.isa.product import ProductForm as Row
from ...dialect.isa.targets import Target
from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.warp.barriers import BARRIER_BYTES, BARRIER_SM
from ...dialect.warp.sparse import metadata_span
from ..linalg.product import Product
from .h200 import LEAST_AHEAD, LONG_STEP, LOOP_WARPS, MOST_STAGES, SLACK
from .packing import narrow, roles

UNPIPELINED: dict[str, object] = {"sync": "barrier", "prefetch": 0, "unroll": 0, "ctas": 0, "staging": 0}
"""What is chosen of the loop, and of the way behind it, for tiles that are given; the default's choice is made for its
own tiles."""


STEPS = 2
"""Steps of the instruction in a K tile of this loop: with more, addresses of unrolled stages spill (tf32, 4 steps: 254
registers and spills, 2 steps: 233); with one, fragments of the next step are moved instead of renamed."""

ROOMY = 232
"""Registers that a lane may need, by the model, beside which those of known stages and of the next tile have room:
dense tiles of 64x64 take 232 and sparse ones of 64x48 216; sparse ones of 64x64 take 264 and spill with either."""


def decoupled(
    schedule: Schedule, product: Product, row: Row, target: Target, registers: int, shared: Callable[[Schedule], int]
) -> Schedule:
    """The schedule with warps that wait only for what they need, and few CTAs that go from tile to tile, where it pays.

    The tensor cores and shared memory are both busy for most of a K tile, so whatever stops all warps at once costs
    time that nothing fills. With warp tiles of `LONG_STEP` a step is long enough for waits at mbarriers. A lane takes
    about `registers`, a CTA of a schedule `shared` bytes of shared memory.
    """
    tiles = product.tiles(*schedule.tile.cta[:2])
    # A CTA that is alone on its SM keeps its depth: more bytes on the way for each wait.
    own_depth = (*schedule.tile.cta[:2], _tile_depth(product, row))
    deep = schedule if tiles <= target.sms else schedule.with_fields(cta=own_depth)
    needed = product.k_tiles(deep.tile.cta[2])
    stage = shared(deep.with_fields(stages=1))
    limit = min(MOST_STAGES, target.shared // (stage + 2 * BARRIER_BYTES))
    known = registers <= ROOMY and product.is_known("k")
    # Known stages are worth more than many, where there are registers for them.
    stages = next((s for s in range(limit, SLACK, -1) if known and needed % s == 0), limit)
    pays = schedule.tile.warp[0] * schedule.tile.warp[1] >= LONG_STEP and schedule.tile.warps >= LOOP_WARPS
    pays = pays and schedule.tile.sliced_k == schedule.grid.split_k == 1
    if not pays or not 3 <= stages < needed or target.sm < BARRIER_SM or narrow(product, schedule.operands.pack):
        return schedule
    prefetch = min(stages - 1, max(stages - SLACK, -(-LEAST_AHEAD // stage)))
    schedule = deep.with_fields(stages=stages, sync="mbarrier", prefetch=prefetch)
    if not known:
        return schedule
    # Rows an unknown distance apart have an address each, and those of the next tile beside them spill (552 bytes).
    on = tiles > target.sms and all(o.pitch is not None for o in (product.a, product.b, product.c, product.d) if o)
    # No more CTAs than whole turns of tiles take: others would only compete for memory and power.
    ctas = -(-tiles // -(-tiles // target.sms)) if on else 0
    return schedule.with_fields(unroll=0 if needed % stages else stages, ctas=ctas)


def in_turns(schedule: Schedule, product: Product) -> Schedule:
    """The schedule with a turn of the loop for all stages, where whole turns make up K: their addresses are known then.

    What is converted in registers takes as long as memory does (H200, 16x8192x8192: 4 bits 14.4 microseconds for 14.9,
    8 bits 20.8 for 21.2).
    """
    tiles, stages = product.k_tiles(schedule.tile.cta[2]), schedule.loop.stages
    whole = product.is_known("k") and stages < tiles and tiles % stages == 0
    return schedule.with_fields(unroll=stages) if whole and not schedule.loop.unroll else schedule


def _tile_depth(product: Product, row: Row) -> int:
    """K of a tile of `STEPS` steps, or of the columns that a row of metadata words describes."""
    return max(STEPS * row.shape.k, 0 if product.metadata is None else metadata_span(row.a))


def check_loop(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks what a schedule says of the K loop against product and target.

    Raises:
        ScheduleError: if turns do not divide the loop, or copies cannot arrive at mbarriers.
    """
    tiles = -(-product.k_tiles(schedule.tile.cta[2]) // schedule.grid.split_k)
    if (schedule.loop.unroll or schedule.grid.ctas) and not product.is_known("k"):
        raise ScheduleError(f"unroll and ctas take a K that is known, got A of {product.a.type}")
    if schedule.loop.unroll and (tiles % schedule.loop.unroll or not tiles):
        raise ScheduleError(f"unroll: turns of {schedule.loop.unroll} K tiles must divide all of them, got {tiles}")
    if schedule.loop.sync == "barrier":
        return
    if target.sm < BARRIER_SM:
        raise ScheduleError(f"sync = mbarrier: {target} has none, sm_{BARRIER_SM} and later do")
    for role, operand in (("a", product.a), ("b", product.b)):
        if product.k and operand.aligned_bits % 32 and role not in roles(schedule.operands.pack):
            raise ScheduleError(
                f"sync = mbarrier: rows of {operand.name} are no multiple of 4 bytes, so that no asynchronous copy "
                f"moves them; pack = {role} aligns them"
            )
