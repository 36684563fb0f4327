"""The schedule of `warp.attention`: that of its scores, Q K^T; the one of P V follows from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from xdsl.dialects.builtin import MemRefType, f32

from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import M
from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.schedule.fields import ATTENTION
from ...dialect.schedule.schedule import FIELDS, MOST_PARTS
from ...dialect.warp.attention import AttentionOp
from ...dialect.warp.attributes import BYTE
from ..diagnostics import fail, remark
from ..linalg.product import padded
from ..linalg.read_attention import Attention
from . import needs
from .defaults import check_epilogue, in_strips
from .tensor_memory import why_no_attention
from .validity import asked_of
from .warpgroup import ROLES, why_not

HALF = 2
"""Bytes of an element of 16 bits."""

LEAST_SM = 80
"""The first target with an instruction for bf16, and with copies that run ahead."""

FIXED = tuple(field.name for field in FIELDS.values() if ATTENTION not in field.of)
"""Fields that an attention has no choice of."""

LONGEST_FOR_FRAGMENTS = 64
"""Queries up to which a warpgroup's rows would be mostly empty."""


MOST_SLICED = 32
"""Queries, or heads that share K and V, up to which warps share keys: they hold all columns of O of each."""

SLICES, SLICED_KEYS = 4, 16
"""Warps that share the keys of a tile, with 16 rows, and keys of each."""

MOST_STAGES = 8
"""Stages of K and V."""

LEAST_TURNS = 4
"""Tiles of keys that each of several CTAs has at least."""

MOST_COLUMNS, MOST_DEPTH = 256, 640
"""Columns of V, padded: a lane has registers for its part of O; and of Q and K."""

DEEP = 192
"""Columns of Q and K, padded, up to which there is shared memory for two stages of 128 keys with 128 columns of V."""

MOST_OF_BYTES = 128
"""Columns of a head of bytes, padded, by warpgroups."""

MIN_SLICE = 16
"""Columns of O that one of several warps that share keys stores, at least: a pair of base tiles."""

FULLER = 1.3
"""How many more rows three warpgroups must take than two do, so that two are better."""

IN_TURNS = 1.057
"""How many more rows three warpgroups of 64 columns must take than two in turns, so that these are faster: 450 and 439
TFLOP/s at 4096, 128 heads (H200), of 4224 and 4096 rows for each SM."""

MOST_SMS = 0.9
"""The part of the SMs that go from tile to tile, at least; else each tile has a CTA."""

PART_COLUMNS = 64
"""Columns of V whose products a warp sums together: B of more would take the registers that sums need."""


def values_schedule(schedule: Schedule, columns: int) -> Schedule:
    """The schedule of P V, with that many columns of V, by the one of Q K^T."""
    (m, n, _), rows, slices = schedule.cta, schedule.warp[0], slices_of(schedule)
    if schedule.together > 1:
        shape = schedule.mma._replace(n=columns)
        return schedule.with_fields(cta=(m, columns, n), warp=(rows, columns), mma=shape)
    width = math.gcd(columns, PART_COLUMNS) if slices == 1 else columns // slices
    return schedule.with_fields(cta=(m, columns, n), warp=(rows, width), sliced_k=slices, split_k=1)


def element_bytes(read: Attention) -> int:
    """Bytes of an element of Q, K, V and P."""
    return read.scores.a.element.bits // BYTE


def slices_of(schedule: Schedule) -> int:
    """How many warps share the keys of a tile; each has a part of them, and all columns of V."""
    return schedule.cta[1] // schedule.warp[1]


def part_types(read: Attention, schedule: Schedule, tiles: int) -> tuple[MemRefType, MemRefType]:
    """The memory for partial results of CTAs that share keys, for `tiles` tiles of O: sums of products, and for each
    row the largest score and the sum of exponentials. A row has the registers of all warps."""
    columns = padded(read.values.n)
    (rows, width), slots = values_schedule(schedule, columns).warp, tiles * schedule.split_k
    count = 1 if slices_of(schedule) > 1 else columns // width
    sums = MemRefType(f32, [slots * count, schedule.warps * rows * width])
    return sums, MemRefType(f32, [2 * slots, schedule.warps * state_elements(rows)])


def state_elements(rows: int) -> int:
    """Elements of a number for each row, as a warp holds it: four lanes have each."""
    return 4 * rows


def part_schedule(values: Schedule) -> Schedule:
    """The same for the columns of V that are summed, and stored, together."""
    (m, _, n), (_, columns) = values.cta, values.warp
    return values.with_fields(cta=(m, columns, n))


def attention_schedule(op: AttentionOp, target: Target, fields: Mapping[str, object]) -> Schedule:
    """The schedule for a target, with the fields that are given. Raises a located diagnostic if they do not fit."""
    read = Attention.of(op)
    if target.sm < LEAST_SM:
        fail(op, f"warp.attention is lowered for sm_{LEAST_SM} and later; the target is {target}")
    try:
        invariant = fields.get("batch_invariant") == "True"
        schedule = _chosen(read, target, asked_of(fields), invariant=invariant)
        schedule = with_given(schedule, fields, FIXED, "an attention has", target, partial(_shared_bytes, read))
        _check(schedule, read, target)
    except ScheduleError as error:
        fail(op, f"schedule: {error}")
    if needs.adds_in_tensor_memory(target) and (reason := _not_by_warpgroups(read, target)):
        remark(op, "warp-schedule", f"{schedule.mma} by fragments, not in tensor memory: {reason}")
    return schedule


def with_given(
    schedule: Schedule,
    fields: Mapping[str, object],
    fixed: Sequence[str],
    who_has: str,
    target: Target,
    shared_bytes: Callable[[Schedule], int],
) -> Schedule:
    """A default schedule with the fields of the user, none of which may be `fixed`. Results are not staged if the tiles
    would not fit in shared memory otherwise.

    Raises:
        ScheduleError: for another value of a fixed field.
    """
    if named := [name for name in fixed if name in fields and fields[name] != schedule[name]]:
        raise ScheduleError(f"{who_has} no choice of {', '.join(named)}")
    schedule = schedule.with_fields(**around(schedule, fields))
    too_large = "staging" not in fields and shared_bytes(schedule) > target.shared
    return schedule.with_fields(staging=0) if too_large else schedule


def _chosen(read: Attention, target: Target, by: str, *, invariant: bool) -> Schedule:
    """The default: by warpgroups where they can, and have rows enough, or the bits of a row are to be those of any
    number of rows."""
    reason = _not_by_warpgroups(read, target)
    if by in ROLES and reason:
        raise ScheduleError(f"warpgroups cannot multiply this attention: {reason}")
    rows = read.scores.m if read.scores.is_known("m") and not invariant else LONGEST_FOR_FRAGMENTS + 1
    if not reason and by != "fragments" and (by or rows > LONGEST_FOR_FRAGMENTS):
        return (_by_lanes if needs.adds_in_tensor_memory(target) else _by_warpgroups)(read, target)
    few = _by_slices(read, target) if rows <= MOST_SLICED and read.op.lse is None else None
    return few or _by_fragments(read, target)


def _not_by_warpgroups(read: Attention, target: Target) -> str:
    """Why warpgroups cannot multiply; "" if they can."""
    if reason := why_not(read.scores, target, packed=False):
        return reason
    if read.paged:
        return "K and V lie in pages"
    columns, bytes_ = padded(read.values.n), element_bytes(read) < HALF
    if bytes_ and needs.adds_in_tensor_memory(target):
        return "P of bytes lies otherwise in registers than in tensor memory"
    if bytes_ and not read.values.b.transposed:
        if read.values.dynamic or not read.scores.is_known("n"):
            return "V of bytes with a row for each key is transposed before, where its size is known"
    elif reason := needs.not_copied(read.values.b):
        return f"V {reason}"
    if bytes_ and max(columns, padded(read.scores.k)) > MOST_OF_BYTES:
        return f"sums of bytes are added in f32, and a thread has no registers for {columns} columns twice"
    fits = 64 <= columns <= MOST_COLUMNS and 64 <= padded(read.scores.k) <= MOST_COLUMNS
    return "" if fits else f"heads of {read.scores.k} and {read.values.n} columns"


def _by_lanes(read: Attention, target: Target) -> Schedule:
    """As many rows for a warpgroup as tensor memory has lanes: two warpgroups where there is a place for the scores,
    P and O of both, with as many keys as fit."""
    depth, columns = padded(read.scores.k), padded(read.values.n)
    groups = 1 if read.scores.is_known("m") and read.scores.m <= 2 * M else 2
    for count, keys in ((groups, 128), (groups, 64), (1, 128), (1, 64), (1, 32)):
        if keys == 128 and read.op.score is not None:
            continue  # whose region has no registers beside so many
        row = next(r for r in needs.warpgroup_rows(read.scores) if r.shape[:2] == (2 * M, keys) and r.d.name == "f32")
        for stages in (4, 3, 2):
            schedule = Schedule(
                cta=(count * 2 * M, keys, depth),
                warp=(2 * M, keys),
                mma=row.shape,
                stages=stages,
                consumers="cooperative",
                edges="predicated",
                ctas=_ctas(read, count * 2 * M, target),
            )
            staging = needs.staged_part(read.values, values_schedule(schedule, columns))[0]
            schedule = schedule.with_fields(staging=staging)
            fits = not why_no_attention(schedule, columns)
            if fits and _shared_bytes(read, schedule) + needs.LEFT_FOR_BARRIERS <= target.shared:
                return schedule
    raise ScheduleError(f"heads of {read.scores.k} and {read.values.n} columns take more memory than {target} has")


def _by_warpgroups(read: Attention, target: Target) -> Schedule:
    """Two warpgroups, or three where their registers hold all: 192 rows halve what is copied for each product.

    H200, TFLOP/s at 4096, full and causal, before CTAs went from tile to tile: 64 columns 450, 377 (two warpgroups 412,
    344; in turns 439, 288); 128 columns in turns 607, 410 (as it comes 570, 500); 256 columns 658, 558 (in turns 611,
    495). Where three would be mostly empty, two with fewer keys: 197 queries, 192 heads, H100, 18.3 microseconds for
    21.5. Where the last turn of three would be mostly empty, two in turns: 16 heads of 4096, H100, 160 for 167. Three
    of bytes, 128 columns, 16384, H100: 979 TFLOP/s, two in turns 915.
    """
    depth, columns = padded(read.scores.k), padded(read.values.n)
    width = max(depth, columns)
    keys = 128 if columns <= 128 and depth <= DEEP else 64
    m, of_bytes = read.scores.m, element_bytes(read) < HALF
    groups = 3 if width <= 64 or of_bytes else 2
    if groups == 3 and read.scores.is_known("m") and -(-m // (3 * M)) * 3 * M >= FULLER * -(-m // (2 * M)) * 2 * M:
        keys, groups = (128 if of_bytes else 64), 2
    in_turns = read.op.diagonal is None and (
        (128 <= width <= DEEP and columns <= 128 and groups == 2)
        or (groups == 3 and not of_bytes and _fewer_turns(read, target))
    )
    if in_turns:
        groups = 2
    row = next(r for r in needs.warpgroup_rows(read.scores) if r.shape.n == keys and r.d.name == "f32")
    schedule = Schedule(
        cta=(groups * M, keys, depth),
        warp=(M, keys),
        mma=row.shape,
        stages=3 if groups == 3 or width <= 64 else 2,
        consumers="pingpong" if in_turns else "cooperative",
        edges="predicated",
        ctas=_ctas(read, groups * M, target),
    )
    if element_bytes(read) < HALF and not read.values.b.transposed:
        schedule = schedule.with_fields(transpose="b")
    return schedule.with_fields(staging=needs.staged_part(read.values, values_schedule(schedule, columns))[0])


def _fewer_turns(read: Attention, target: Target) -> bool:
    """Whether two warpgroups in turns are faster than three because SMs have fewer rows in all."""
    if read.values.dynamic or not read.scores.is_known("m"):
        return False
    three, two = (groups * M * -(-read.tiles(groups * M) // target.sms) for groups in (3, 2))
    return three > IN_TURNS * two


def _ctas(read: Attention, rows: int, target: Target) -> int:
    """How many CTAs go from tile to tile; 0 for one each.

    With a diagonal some tiles take longer than others. Each CTA gets as many of these if all tiles of one or several
    matrices have a CTA (H200, 128 of 132 at 32 tiles of 256 columns: 622 TFLOP/s; with 132 568; with one each 580).
    """
    tiles = -(-read.scores.m // rows)
    if _keys_differ(read):
        return 0
    if not read.values.dynamic and tiles * math.prod(read.values.batch) <= target.sms:
        return 0
    if read.op.diagonal is None:
        return target.sms
    ctas = target.sms // tiles * tiles if read.scores.is_known("m") else 0
    return ctas if ctas >= MOST_SMS * target.sms else 0


def _keys_differ(read: Attention) -> bool:
    """Whether keys begin or end at other places for each tile than a diagonal says."""
    return read.op.window is not None or read.op.lengths is not None or bool(read.op.documents)


def _by_slices(read: Attention, target: Target) -> Schedule | None:
    """For few queries, which take as long as K and V are read: warps that share the keys of a tile. None where tiles of
    K or V are too wide for that.

    One CTA for each SM, whose stages take all its memory, and CTAs that share keys, as many as there are SMs for; but
    where there are more tiles than that, two CTAs, so that one begins while the other ends. H100, microseconds: 8 tiles
    of 32768 keys, 4, 8, 10 and 16 CTAs each, 61, 52, 55, 51; 512 tiles of 1024 keys, 92 by one CTA in an SM and 91 by
    two; 128 tiles of 2048, 47.5 and 50; in two parts 52.
    """
    row = needs.instruction(read.scores, "f32", target)
    depth, columns, page = padded(read.scores.k), padded(read.values.n), page_rows(read)
    rows, slices = (16, SLICES) if read.scores.m <= 16 else (32, SLICES // 2)
    keys = SLICED_KEYS if row is None else max(SLICED_KEYS, row.shape.k)
    slices = min(slices, max(1, page // keys))
    if row is None or columns < MIN_SLICE * slices or columns > MOST_COLUMNS or depth > MOST_DEPTH:
        return None
    if depth > MOST_COLUMNS or columns & columns - 1:
        slices = min(slices, SLICES // 2)  # of parts of columns that are no power of two, four are too narrow
    cta = (rows, slices * keys, depth)
    schedule = Schedule(cta=cta, warp=(rows, keys), mma=row.shape, stages=MOST_STAGES, edges="predicated")
    split = not _unsplit(read, schedule)
    slots = target.sms * (SLICES // slices)  # as many warps in each SM, also where small pages leave a CTA few
    tiles = read.tiles(rows) if split else slots + 1
    memory = target.shared * target.sms // slots // (2 if tiles > slots else 1)
    while schedule.stages > 2 and _shared_bytes(read, schedule) > memory:
        schedule = schedule.with_fields(stages=schedule.stages - 1)
    if _shared_bytes(read, schedule) > target.shared:
        return None
    turns = -(-read.scores.n // cta[1])
    return schedule.with_fields(split_k=max(1, min(slots // tiles, turns // LEAST_TURNS, MOST_PARTS)))


def _by_fragments(read: Attention, target: Target) -> Schedule:
    row = needs.instruction(read.scores, "f32", target)
    if row is None:
        raise ScheduleError(f"{target} has no mma for {read.scores.a.element.name}")
    depth, columns = padded(read.scores.k), padded(read.values.n)
    width = max(depth, columns)
    if columns > MOST_COLUMNS or depth > MOST_DEPTH:
        raise ScheduleError(
            f"heads have up to {MOST_DEPTH} columns of Q, and {MOST_COLUMNS} of V or several times as many, got "
            f"{read.scores.k} and {read.values.n}"
        )
    # At 128 columns 64 keys would spill 52 bytes, and take 3 % longer on an H200.
    rows, sizes = (16, ((8, 64), (8, 32), (4, 32), (4, 16))) if width > 128 else (32, ((4, 32 if width > 64 else 64),))
    for warps, keys in sizes:
        keys = min(keys, page_rows(read))
        schedule = Schedule(
            cta=(rows * warps, keys, depth), warp=(rows, keys), mma=row.shape, stages=2, edges="predicated"
        )
        if (taken := _shared_bytes(read, schedule)) <= target.shared:
            left = (target.shared // 2 if taken <= target.shared // 2 else target.shared) - taken
            part = in_strips(part_schedule(values_schedule(schedule, columns)), read.values, row.shape.m, left)
            return schedule.with_fields(staging=part.staging)
    raise ScheduleError(
        f"heads of {max(read.scores.k, read.values.n)} columns take more shared memory than {target} has"
    )


def around(schedule: Schedule, fields: Mapping[str, object]) -> dict[str, object]:
    """The fields given, with the warp tile and the instruction that go with another tile."""
    changed = dict(fields)
    if isinstance(cta := fields.get("cta"), tuple):
        m, n, _ = (int(size) for size in cta)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        rows = schedule.warp[0]
        changed.setdefault("warp", (rows if m % rows == 0 else 16, n))
    return changed


def _check(schedule: Schedule, read: Attention, target: Target) -> None:
    """Refuses a schedule that is not one of attention, or whose tiles take too much shared memory."""
    (m, n, k), (_, width) = schedule.cta, schedule.warp
    depth = padded(read.scores.k)
    if k != depth or (width != n and schedule.together > 1):
        raise ScheduleError(
            f"of an attention a CTA tile is as deep as Q, {depth}, and a warpgroup's tile as wide as a CTA tile; "
            f"got cta = {m}x{n}x{k}, warp = {schedule.warp[0]}x{width}"
        )
    if schedule.ctas and _keys_differ(read):
        raise ScheduleError(f"ctas = {schedule.ctas}: a tile whose keys begin or end elsewhere has a CTA of its own")
    if read.paged and page_rows(read) % n:
        raise ScheduleError(f"a tile of {n} keys is not in one of the pages of {page_rows(read)}")
    if (slices := n // width) > 1 and padded(read.values.n) < slices * MIN_SLICE:
        raise ScheduleError(f"{slices} warps that share keys store {MIN_SLICE} columns of O or more each")
    if slices > 1 and read.op.lse is not None:
        raise ScheduleError("warps that share keys store no logarithms of sums")
    if schedule.split_k > 1 and (reason := _unsplit(read, schedule)):
        raise ScheduleError(f"split_k = {schedule.split_k}: {reason}")
    if schedule.together == 1:
        check_epilogue(schedule, read.values, schedule.mma.m)
    elif needs.adds_in_tensor_memory(target) and (reason := why_no_attention(schedule, padded(read.values.n))):
        raise ScheduleError(reason)
    elif schedule.mma.m > M and not needs.adds_in_tensor_memory(target):
        raise ScheduleError(f"mma = {schedule.mma}: {target} has no instruction of {schedule.mma.m} rows")
    if schedule.own_tiles:
        raise ScheduleError(f"consumers = pingpong takes two warpgroups, which cta = {m}x{n}x{k} has not")
    if schedule.consumers == "pingpong" and schedule.stages == 1:
        raise ScheduleError(
            "consumers = pingpong takes 2 stages or more: one warpgroup waits for keys while others keep theirs"
        )
    if (needed := _shared_bytes(read, schedule)) > target.shared:
        raise ScheduleError(
            f"Q, O and {schedule.stages} stages of K and V take {needed} bytes of shared memory, {target} has "
            f"{target.shared} for a CTA; use fewer stages or a smaller tile"
        )


def page_rows(read: Attention) -> int:
    """Rows of the smallest page that K or V lies in; more than a tile has, where they lie in none."""
    return min((view.rows for view in read.paged), default=1 << 31)


def _unsplit(read: Attention, schedule: Schedule) -> str:
    """Why CTAs cannot share the keys of a tile; "" if they can."""
    if schedule.together > 1 or schedule.ctas:
        return "keys are split among warps that multiply fragments, one tile for each CTA"
    if read.op.lse is not None:
        return "the logarithms of sums are stored by the only CTA of a tile"
    if min(read.values.dynamic, default=len(read.values.batch)) < len(read.values.batch) or not read.scores.is_known(
        "m"
    ):
        return "it needs a known number of rows and matrices"
    if not read.scores.b.transposed or read.values.b.transposed:
        return "it needs K and V with a row for each key"
    return ""


def _shared_bytes(read: Attention, schedule: Schedule) -> int:
    """Shared memory of a CTA: Q's tile, the stages of K's and V's, what slices leave, and O on its way."""
    (m, n, depth), columns = schedule.cta, padded(read.values.n)
    tiles = (m * depth, *(n * width for _ in range(schedule.stages) for width in (depth, columns)))
    values = values_schedule(schedule, columns)
    values = values if schedule.together > 1 else part_schedule(values)
    sizes = [needs.whole_swizzles(element_bytes(read) * size) for size in tiles]
    if slices_of(schedule) > 1:
        warps, rows = schedule.warps, schedule.warp[0]
        sizes += [4 * warps * rows * columns, 2 * 4 * warps * state_elements(rows)]
    return needs.behind_each_other([*sizes, needs.staging_bytes(read.values, values)])
