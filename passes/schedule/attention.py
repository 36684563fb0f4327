"""The schedule of `warp.attention`: that of its scores, Q K^T; the one of P V follows from it."""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect.isa.targets import Target
from ...dialect.schedule import SHARED_ALIGNMENT, Schedule, ScheduleError
from ...dialect.schedule.grid import GridSchedule
from ...dialect.schedule.loop import LoopSchedule
from ...dialect.schedule.tile import TileSchedule
from ...dialect.warp.attention import AttentionOp
from ..diagnostics import fail
from ..linalg.attention import Attention, padded
from .resources import instruction

HALF = 2
"""Bytes of an element of Q, K, V and P."""

LEAST_SM = 80
"""The first target with an instruction for bf16, and with copies that run ahead."""

STAGES = 2

FIXED = ("sliced_k", "split_k", "ctas", "pack", "fp8_as", "accumulate", "edges", "unroll")
"""Fields that an attention has no choice of."""


def attention_schedule(op: AttentionOp, target: Target, given: Mapping[str, object]) -> Schedule:
    """The schedule for a target, with the fields that are given. Raises a located diagnostic if they do not fit."""
    read = Attention.of(op)
    row = instruction(read.scores, "f32", target)
    if row is None or target.sm < LEAST_SM:
        fail(op, f"warp.attention is lowered for sm_{LEAST_SM} and later; the target is {target}")
    depth, columns = padded(read.scores.k), padded(read.values.n)
    rows = 32 if max(depth, columns) <= 128 else 16
    keys = 64 if max(depth, columns) <= 128 else 32
    warps = 4 if rows == 32 else 8
    while warps > 1 and _shared((rows * warps, keys, depth), columns, STAGES) > target.shared:
        warps //= 2
    schedule = Schedule(
        TileSchedule((rows * warps, keys, depth), (rows, keys), row.shape),
        LoopSchedule(STAGES),
        grid=GridSchedule(edges="predicated"),
    )
    if named := [name for name in FIXED if name in given and given[name] != schedule[name]]:
        fail(op, f"schedule: an attention has no choice of {', '.join(named)}")
    given = dict(given)
    if (cta := given.get("cta")) is not None:
        m, n, *_ = schedule.with_fields(cta=cta, warp=(16, 16)).tile.cta
        given.setdefault("warp", (rows if m % rows == 0 else 16, n))
    try:
        schedule = schedule.with_fields(**given)
        _check(schedule, depth, columns, target)
    except ScheduleError as error:
        fail(op, f"schedule: {error}")
    return schedule


def _check(schedule: Schedule, depth: int, columns: int, target: Target) -> None:
    """Refuses a schedule that is not one of attention, or whose tiles take too much shared memory."""
    (m, n, k), (_, width) = schedule.tile.cta, schedule.tile.warp
    if k != depth or width != n or schedule.tile.together > 1:
        raise ScheduleError(
            f"of an attention a CTA tile is as deep as Q, {depth}, and a warp tile as wide as a CTA tile; "
            f"got cta = {m}x{n}x{k}, warp = {schedule.tile.warp[0]}x{width}"
        )
    if (needed := _shared((m, n, k), columns, schedule.loop.stages)) > target.shared:
        raise ScheduleError(f"the tiles take {needed} bytes of shared memory, {target} has {target.shared} for a CTA")


def _shared(cta: tuple[int, int, int], columns: int, stages: int) -> int:
    """The bytes of shared memory that the tiles of Q, K and V take."""
    m, n, depth = cta
    tiles = (m * depth, *(n * wide for _ in range(stages) for wide in (depth, columns)))
    return sum(-(-size * HALF // SHARED_ALIGNMENT) * SHARED_ALIGNMENT for size in tiles)
