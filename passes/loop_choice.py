"""The part of a schedule that is about the K loop: how warps meet, how far copies run ahead, unrolling, persistence."""

from __future__ import annotations

from dataclasses import replace

from ..dialect.isa.product import Product as Row
from ..dialect.isa.targets import Target
from ..dialect.schedule import Schedule, ScheduleError
from ..dialect.warp.barriers import BARRIER_BYTES, BARRIER_SM
from .packing import roles, through_registers
from .product import Product

MOST_STAGES = 8
SLACK = 3
"""By how many stages the slowest warp may fall behind the fastest: H200, bf16 4096, 3 is as good as 2 and 4."""

PLAIN_LOOP: dict[str, object] = {"sync": "barrier", "ahead": 0, "unroll": 0, "ctas": 0}
"""What is chosen of the loop for tiles that are given; the default's choice is made for its own tiles."""


def decoupled(schedule: Schedule, product: Product, row: Row, target: Target, stage_bytes: int) -> Schedule:
    """The schedule with warps that wait only for what they need, and few CTAs that go from tile to tile, where it pays.

    The tensor cores and shared memory are both busy for most of a K tile, so whatever stops all warps at once costs
    time that nothing fills. With 64x64 warp tiles a step is long enough for waits at mbarriers. A stage takes
    `stage_bytes` of shared memory.
    """
    needed = -(-product.k // schedule.cta[2])
    stages = min(MOST_STAGES, target.shared // (stage_bytes + 2 * BARRIER_BYTES))
    pays = (
        schedule.warp == (64, 64)
        and schedule.slices == schedule.split_k == 1
        and row.a.bits == 16
        and 3 <= stages < needed
    )
    if not pays or product.metadata is not None or target.sm < BARRIER_SM or through_registers(product, schedule.pack):
        return schedule
    tiles = -(-product.m // schedule.cta[0]) * -(-product.n // schedule.cta[1])
    ctas = target.sms if tiles > target.sms and product.is_known("k") else 0
    unroll = 0 if needed % stages or not product.is_known("k") else stages
    ahead = max(2, stages - SLACK)
    return replace(schedule, stages=stages, sync="mbarrier", ahead=ahead, unroll=unroll, ctas=ctas)


def check_loop(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks what a schedule says of the K loop against product and target.

    Raises:
        ScheduleError: if turns do not divide the loop, or copies cannot arrive at mbarriers.
    """
    tiles = -(-product.k // (schedule.split_k * schedule.cta[2]))
    if (schedule.unroll or schedule.ctas) and not product.is_known("k"):
        raise ScheduleError(f"unroll and ctas take a K that is known, got A of {product.a.type}")
    if schedule.unroll and (tiles % schedule.unroll or not tiles):
        raise ScheduleError(f"unroll: turns of {schedule.unroll} K tiles must divide all of them, got {tiles}")
    if schedule.sync == "barrier":
        return
    if target.sm < BARRIER_SM:
        raise ScheduleError(f"sync = mbarrier: {target} has none, sm_{BARRIER_SM} and later do")
    for role, operand in (("a", product.a), ("b", product.b)):
        if product.k and operand.aligned_bits % 32 and role not in roles(schedule.pack):
            raise ScheduleError(
                f"sync = mbarrier: rows of {operand.name} are no multiple of 4 bytes, so that no asynchronous copy "
                f"moves them; pack = {role} aligns them"
            )
