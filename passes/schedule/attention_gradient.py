"""The schedule of `warp.attention_gradient`: that of its scores; those of its other products follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import M
from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.warp.attention_gradient import AttentionGradientOp
from ..diagnostics import fail
from ..linalg.product import Product, padded
from ..linalg.read_attention import AttentionGradient
from . import needs
from .attention import (
    FIXED,
    HALF,
    LEAST_SM,
    LONGEST_FOR_FRAGMENTS,
    MOST_COLUMNS,
    part_schedule,
    values_schedule,
    with_given,
)
from .validity import asked_of
from .warpgroup import ROLES, why_not


def gradient_schedule(op: AttentionGradientOp, target: Target, given: Mapping[str, object]) -> Schedule:
    """The schedule for a target, with the fields that are given. Raises a located diagnostic if they do not fit."""
    read = AttentionGradient.of(op)
    if target.sm < LEAST_SM:
        fail(op, f"{op.name} is lowered for sm_{LEAST_SM} and later; the target is {target}")
    if any(loop in read.scores.dynamic for loop in range(read.outer, len(read.around))):
        fail(op, f"{op.name} sums over heads whose number must be known")
    try:
        schedule, fixed = _chosen_gradient(read, target, asked_of(given)), (*FIXED, "split_k", "ctas")
        who_has = "the gradients of an attention have"
        schedule = with_given(schedule, given, fixed, who_has, target, partial(_gradient_bytes, read))
        _check_gradient(schedule, read, target)
    except ScheduleError as error:
        fail(op, f"schedule: {error}")
    return schedule


def _products(read: AttentionGradient) -> list[Product]:
    return [product for product in (read.scores, read.slopes, *read.sums.values()) if product is not None]


def _columns(read: AttentionGradient) -> tuple[int, int]:
    """Columns of Q and K, and of V and dO, padded."""
    beside = read.sums["dV"].n if read.slopes is None else read.slopes.k
    return padded(read.scores.k), padded(beside)


def _chosen_gradient(read: AttentionGradient, target: Target, by: str) -> Schedule:
    """The default: by warpgroups where they can, and have rows enough."""
    reason = _gradient_not_by_warpgroups(read, target)
    if by in ROLES and reason:
        raise ScheduleError(f"warpgroups cannot multiply these gradients: {reason}")
    rows = read.scores.m if read.scores.is_known("m") else LONGEST_FOR_FRAGMENTS + 1
    if not reason and by != "fragments" and (by or rows > LONGEST_FOR_FRAGMENTS):
        return _gradient_by_warpgroups(read)
    return _gradient_by_fragments(read, target)


def _gradient_not_by_warpgroups(read: AttentionGradient, target: Target) -> str:
    """Why warpgroups cannot multiply; "" if they can."""
    if reason := why_not(read.scores, target, packed=False):
        return reason
    if needs.adds_in_tensor_memory(target):
        return "what is multiplied twice is in registers, and sums of warpgroups are in tensor memory"
    for product in _products(read)[1:]:
        if reason := needs.not_copied(product.b):
            return f"{product.b.name} {reason}"
    if read.slopes is not None and (reason := needs.not_copied(read.slopes.a)):
        return f"{read.slopes.a.name} {reason}"
    depth, beside = _columns(read)
    return "" if min(depth, beside) >= 64 and max(depth, beside) <= MOST_COLUMNS else f"heads of {depth} columns"


def _gradient_by_warpgroups(read: AttentionGradient) -> Schedule:
    """Two warpgroups; three of 64 columns.

    A thread holds its part of the sums, of s and of dp, and half of these as operands. H100, microseconds, 16384 tokens
    of 2048 columns, 4096 a sequence: dQ of 128 columns 1107 by 128 keys at a time, 1171 by 64, causal 639 and 595; of
    256 causal 692 by 48 keys, 753 by 64 and one warpgroup, 834 by 32; of 64 causal 724, by 128 keys 840.
    """
    depth, beside = _columns(read)
    width, columns = max(depth, beside), sum(padded(product.n) for product in read.sums.values())
    if columns > MOST_COLUMNS:
        raise ScheduleError(f"sums of {columns} columns take more registers than a thread has; write dK and dV alone")
    alone = len(read.sums) == 1
    groups, step, stages = 2, 64, 3
    if width <= 64:
        groups = 3
    elif width > 128:
        step, stages = 64 if read.slopes is None else 48, 2
    elif alone and read.op.diagonal is None:
        step, stages = 128, 2
    row = next(r for r in needs.warpgroup_rows(read.scores) if r.shape.n == step and r.d.name == "f32")
    schedule = Schedule(
        cta=(groups * M, step, depth),
        warp=(M, step),
        mma=row.shape,
        stages=stages,
        consumers="cooperative",
        edges="predicated",
    )
    (product, *_) = read.sums.values()
    part = needs.staged_part(product, values_schedule(schedule, padded(product.n)))
    return schedule.with_fields(staging=part[0])


def _gradient_by_fragments(read: AttentionGradient, target: Target) -> Schedule:
    row = needs.instruction(read.scores, "f32", target)
    if row is None:
        raise ScheduleError(f"{target} has no mma for {read.scores.a.element.name}")
    columns = sum(padded(product.n) for product in read.sums.values())
    if columns > MOST_COLUMNS or max(_columns(read)) > MOST_COLUMNS:
        raise ScheduleError(f"sums have up to {MOST_COLUMNS} columns, got {columns}")
    for warps, step in ((4, 32), (4, 16), (2, 16)):
        cta = (row.shape.m * warps, step, padded(read.scores.k))
        schedule = Schedule(cta=cta, warp=(row.shape.m, step), mma=row.shape, stages=2, edges="predicated")
        if _gradient_bytes(read, schedule) <= target.shared:
            return schedule
    raise ScheduleError(f"heads of {max(_columns(read))} columns take more shared memory than {target} has")


def _check_gradient(schedule: Schedule, read: AttentionGradient, target: Target) -> None:
    """Refuses a schedule that is not one of gradients, or whose tiles take too much shared memory."""
    (m, n, k), (_, width) = schedule.cta, schedule.warp
    depth, _ = _columns(read)
    if k != depth or width != n:
        raise ScheduleError(
            f"of gradients a CTA tile is as deep as Q, {depth}, and a warp's tile as wide as a CTA tile; "
            f"got cta = {m}x{n}x{k}, warp = {schedule.warp[0]}x{width}"
        )
    if schedule.own_tiles or schedule.consumers == "pingpong":
        raise ScheduleError("consumers = pingpong: warpgroups do not take turns for gradients")
    if (needed := _gradient_bytes(read, schedule)) > target.shared:
        raise ScheduleError(
            f"the tiles that stay, {schedule.stages} stages of the others and the results take {needed} bytes of "
            f"shared memory, {target} has {target.shared} for a CTA; use fewer stages or a smaller tile"
        )


def _gradient_bytes(read: AttentionGradient, schedule: Schedule) -> int:
    """Shared memory of a CTA: tiles that stay, the stages of the others, and results on their way."""
    (m, n, _), (depth, beside) = schedule.cta, _columns(read)
    stays = (depth,) if read.slopes is None else (depth, beside)
    tiles = [m * width for width in stays] + [n * width for width in (depth, beside)] * schedule.stages
    sizes = [needs.whole_swizzles(HALF * size) for size in tiles]
    for product in read.sums.values():
        values = values_schedule(schedule, padded(product.n))
        sizes.append(needs.staging_bytes(product, values if schedule.together > 1 else part_schedule(values)))
    return needs.behind_each_other(sizes) + needs.LEFT_FOR_BARRIERS
