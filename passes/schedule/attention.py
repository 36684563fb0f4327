"""The schedule of `warp.attention`: that of its scores, Q K^T; the one of P V follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...dialect.isa.targets import Target
from ...dialect.isa.wgmma import M
from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.schedule.fields import ATTENTION
from ...dialect.schedule.schedule import FIELDS
from ...dialect.warp.attention import AttentionOp
from ..diagnostics import fail
from ..linalg.attention import Attention, padded
from . import needs
from .defaults import check_epilogue, in_strips
from .validity import asked_of
from .warpgroup import ROLES, why_not

HALF = 2
"""Bytes of an element of Q, K, V and P."""

LEAST_SM = 80
"""The first target with an instruction for bf16, and with copies that run ahead."""

FIXED = tuple(field.name for field in FIELDS.values() if ATTENTION not in field.of)
"""Fields that an attention has no choice of."""

LONGEST_FOR_FRAGMENTS = 64
"""Queries up to which a warpgroup's rows would be mostly empty."""


PART_COLUMNS = 64
"""Columns of V whose products a warp sums together: B of more would take the registers that sums need."""


def values_schedule(schedule: Schedule, columns: int) -> Schedule:
    """The schedule of P V, with that many columns of V, by the one of Q K^T."""
    (m, n, _), rows = schedule.cta, schedule.warp[0]
    if schedule.together > 1:
        shape = schedule.mma._replace(n=columns)
        return schedule.with_fields(cta=(m, columns, n), warp=(rows, columns), mma=shape)
    return schedule.with_fields(cta=(m, columns, n), warp=(rows, math.gcd(columns, PART_COLUMNS)))


def part_schedule(values: Schedule) -> Schedule:
    """The same for the columns of V that are summed, and stored, together."""
    (m, _, n), (_, columns) = values.cta, values.warp
    return values.with_fields(cta=(m, columns, n))


def attention_schedule(op: AttentionOp, target: Target, given: Mapping[str, object]) -> Schedule:
    """The schedule for a target, with the fields that are given. Raises a located diagnostic if they do not fit."""
    read = Attention.of(op)
    if target.sm < LEAST_SM:
        fail(op, f"warp.attention is lowered for sm_{LEAST_SM} and later; the target is {target}")
    try:
        invariant = given.get("batch_invariant") == "True"
        schedule = _chosen(read, target, asked_of(given), invariant=invariant)
        if named := [name for name in FIXED if name in given and given[name] != schedule[name]]:
            raise ScheduleError(f"an attention has no choice of {', '.join(named)}")
        schedule = schedule.with_fields(**_around(schedule, given))
        if "staging" not in given and _shared_bytes(read, schedule) > target.shared:
            schedule = schedule.with_fields(staging=0)
        _check(schedule, read, target)
    except ScheduleError as error:
        fail(op, f"schedule: {error}")
    return schedule


def _chosen(read: Attention, target: Target, by: str, *, invariant: bool) -> Schedule:
    """The default: by warpgroups where they can, and have rows enough, or the bits of a row are to be those of any
    number of rows."""
    reason = _not_by_warpgroups(read, target)
    if by in ROLES and reason:
        raise ScheduleError(f"warpgroups cannot multiply this attention: {reason}")
    rows = read.scores.m if read.scores.is_known("m") and not invariant else LONGEST_FOR_FRAGMENTS + 1
    if not reason and by != "fragments" and (by or rows > LONGEST_FOR_FRAGMENTS):
        return _by_warpgroups(read, target)
    return _by_fragments(read, target)


def _not_by_warpgroups(read: Attention, target: Target) -> str:
    """Why warpgroups cannot multiply; "" if they can."""
    if reason := why_not(read.scores, target, packed=False):
        return reason
    if reason := needs.not_copied(read.values.b):
        return f"V {reason}"
    columns = padded(read.values.n)
    return "" if 64 <= columns <= 256 and padded(read.scores.k) >= 64 else f"heads of {read.values.n} columns"


def _by_warpgroups(read: Attention, target: Target) -> Schedule:
    """Two warpgroups, or three where their registers hold all: 192 rows halve what is copied for each product.

    H200, TFLOP/s at 4096, full and causal, before CTAs went from tile to tile: 64 columns 450, 377 (two warpgroups 412,
    344; in turns 439, 288); 128 columns in turns 607, 410 (as it comes 570, 500); 256 columns 658, 558 (in turns 611,
    495).
    """
    depth, columns = padded(read.scores.k), padded(read.values.n)
    width = max(depth, columns)
    keys, groups = 128 if width <= 128 else 64, 3 if width <= 64 else 2
    row = next(r for r in needs.warpgroup_rows(read.scores) if r.shape.n == keys and r.d.name == "f32")
    turns = "pingpong" if width == 128 and read.op.diagonal is None else "cooperative"
    schedule = Schedule(
        cta=(groups * M, keys, depth),
        warp=(M, keys),
        mma=row.shape,
        stages=3 if width <= 64 else 2,
        consumers=turns,
        edges="predicated",
        ctas=_ctas(read, groups * M, target),
    )
    return schedule.with_fields(staging=needs.staged_part(read.values, values_schedule(schedule, columns))[0])


def _ctas(read: Attention, rows: int, target: Target) -> int:
    """How many CTAs go from tile to tile; 0 for one each.

    With a diagonal some tiles take longer than others. Each CTA gets as many of these if all tiles of one or several
    matrices have a CTA (H200, 128 of 132 at 32 tiles of 256 columns: 622 TFLOP/s; with 132 568; with one each 580).
    """
    tiles = -(-read.scores.m // rows)
    if not read.values.dynamic and tiles * math.prod(read.values.batch) <= target.sms:
        return 0
    if read.op.diagonal is None:
        return target.sms
    return target.sms // tiles * tiles if read.scores.is_known("m") else 0


def _by_fragments(read: Attention, target: Target) -> Schedule:
    row = needs.instruction(read.scores, "f32", target)
    if row is None:
        raise ScheduleError(f"{target} has no mma for {read.scores.a.element.name}")
    depth, columns = padded(read.scores.k), padded(read.values.n)
    width = max(depth, columns)
    # At 128 columns 64 keys would spill 52 bytes, and take 3 % longer on an H200.
    rows, sizes = (16, ((8, 64), (8, 32), (4, 32), (4, 16))) if width > 128 else (32, ((4, 32 if width > 64 else 64),))
    for warps, keys in sizes:
        schedule = Schedule(
            cta=(rows * warps, keys, depth), warp=(rows, keys), mma=row.shape, stages=2, edges="predicated"
        )
        if (held := _shared_bytes(read, schedule)) <= target.shared:
            room = (target.shared // 2 if held <= target.shared // 2 else target.shared) - held
            part = in_strips(part_schedule(values_schedule(schedule, columns)), read.values, row.shape.m, room)
            return schedule.with_fields(staging=part.staging)
    raise ScheduleError(f"heads of {read.values.n} columns take more shared memory than {target} has")


def _around(schedule: Schedule, given: Mapping[str, object]) -> dict[str, object]:
    """The fields given, with the warp tile and the instruction that go with another tile."""
    changed = dict(given)
    if isinstance(cta := given.get("cta"), tuple):
        m, n, _ = (int(size) for size in cta)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        rows = schedule.warp[0]
        changed.setdefault("warp", (rows if m % rows == 0 else 16, n))
    return changed


def _check(schedule: Schedule, read: Attention, target: Target) -> None:
    """Refuses a schedule that is not one of attention, or whose tiles take too much shared memory."""
    (m, n, k), (_, width) = schedule.cta, schedule.warp
    depth = padded(read.scores.k)
    if k != depth or width != n:
        raise ScheduleError(
            f"of an attention a CTA tile is as deep as Q, {depth}, and a warp tile as wide as a CTA tile; "
            f"got cta = {m}x{n}x{k}, warp = {schedule.warp[0]}x{width}"
        )
    if schedule.together == 1:
        check_epilogue(schedule, read.values, schedule.mma.m)
    if schedule.own_tiles:
        raise ScheduleError(f"consumers = pingpong takes two warpgroups, which cta = {m}x{n}x{k} has not")
    if (needed := _shared_bytes(read, schedule)) > target.shared:
        raise ScheduleError(
            f"Q, O and {schedule.stages} stages of K and V take {needed} bytes of shared memory, {target} has "
            f"{target.shared} for a CTA; use fewer stages or a smaller tile"
        )


def _shared_bytes(read: Attention, schedule: Schedule) -> int:
    """Shared memory of a CTA: Q's tile, the stages of K's and V's, and O on its way."""
    (m, n, depth), columns = schedule.cta, padded(read.values.n)
    tiles = (m * depth, *(n * width for _ in range(schedule.stages) for width in (depth, columns)))
    values = values_schedule(schedule, columns)
    values = values if schedule.together > 1 else part_schedule(values)
    sizes = [needs.whole_swizzles(HALF * size) for size in tiles]
    return needs.behind_each_other([*sizes, needs.staging_bytes(read.values, values)])
