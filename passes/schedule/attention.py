"""The schedules of `warp.attention` and `warp.attention_gradient`: that of their scores, Q K^T; those of the other
products follow from it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import WARPGROUP_SM, M
from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.schedule.schedule import ATTENTION, FIELDS, MAX_PARTS
from ...dialect.warp.attention import AttentionGradientOp, AttentionOp
from ...dialect.warp.attributes import BYTE
from ..diagnostics import fail, remark
from ..linalg.product import Product, padded
from ..linalg.read_attention import MAX_COLUMNS, MAX_DEPTH, Attention, AttentionGradient
from . import needs
from .candidates import asked_of, completed, refusal
from .defaults import check_epilogue, in_strips
from .warpgroup import why_no_attention, why_not
from .warpgroup_schedule import ROLES

MIN_SM = 80
"""The first target with an instruction for bf16, and with copies that run ahead."""

FIXED = tuple(field.name for field in FIELDS.values() if ATTENTION not in field.of)
"""Fields that an attention has no choice of."""

LONGEST_FOR_FRAGMENTS = 64
"""Queries up to which a warpgroup's rows would be mostly empty."""

MAX_SLICED = 32
"""Queries, or heads that share K and V, up to which warps share keys: they hold all columns of O of each."""

LANES_OF_ROW = 4
"""Lanes of a warp that hold the number of a row, each for the columns that it has."""

SLICES, SLICED_KEYS = 4, 16
"""Warps that share the keys of a tile, with 16 rows, and keys of each."""

MAX_STAGES, MIN_TURNS = 8, 4
"""Stages of K and V; tiles of keys that each of several CTAs has at least."""

DEEP = 192
"""Columns of Q and K, padded, up to which there is shared memory for two stages of 128 keys with 128 columns of V."""

MAX_OF_BYTES = 128
"""Columns of a head of bytes, padded, by warpgroups."""

MIN_SLICE = 16
"""Columns of O that one of several warps that share keys stores, at least: a pair of base tiles."""

SHORT, FULLER = 2048, 1.3
"""Columns of scores up to which one warpgroup makes gradients; of more, CTAs of 64 rows would read tiles too often.
How many more rows three warpgroups must take than two do, so that two are better."""

MAX_REGISTERS = 224
"""Registers of a thread for sums and what a turn computes (`_registers`), of 240, beyond which 64 keys at a time spill:
with a bias of each score 172 bytes and more, 56 by 48 keys (ptxas 13.0)."""

MORE_ROWS = 1.057
"""How many more rows three warpgroups of 64 columns must take in an SM than two, so that these are faster."""

LONG = 8192
"""Keys beyond which warpgroups take turns for bytes with a diagonal."""

WIDE_KEYS = 4096
"""Known keys from which two warpgroups take 256 of bytes at a time where nothing masks scores."""

FEW_TURNS = 512
"""Keys up to which two warpgroups do not take turns."""

MAX_SMS = 0.9
"""The part of the SMs that go from tile to tile, at least; else each tile has a CTA."""

PART_COLUMNS = 64
"""Columns of V whose products a warp sums together: B of more would take the registers that sums need."""


def values_schedule(schedule: Schedule, columns: int) -> Schedule:
    """The schedule of P V with `columns` columns of V, from that of Q K^T."""
    (m, n, _), rows, slices = schedule.cta, schedule.warp[0], slices_of(schedule)
    if schedule.together > 1:
        return schedule.with_fields(cta=(m, columns, n), warp=(rows, columns), mma=schedule.mma._replace(n=columns))
    width = math.gcd(columns, PART_COLUMNS) if slices == 1 else columns // slices
    return schedule.with_fields(cta=(m, columns, n), warp=(rows, width), sliced_k=slices, split_k=1)


def slices_of(schedule: Schedule) -> int:
    """How many warps share the keys of a tile; each has a part of them, and all columns of V."""
    return schedule.cta[1] // schedule.warp[1]


def part_schedule(values: Schedule) -> Schedule:
    """The schedule of those columns of V that are summed and stored together."""
    (m, _, n), (_, columns) = values.cta, values.warp
    return values.with_fields(cta=(m, columns, n))


def attention_schedule(op: AttentionOp | AttentionGradientOp, target: Target, fields: Mapping[str, object]) -> Schedule:
    """The schedule of an attention for a target, with the given fields. Raises a located diagnostic if they do not
    fit."""
    if target.sm < MIN_SM:
        fail(op, f"{op.name} is lowered for sm_{MIN_SM} and later; the target is {target}")
    asked = ForwardScores.of(op) if isinstance(op, AttentionOp) else GradientScores.of(op)
    try:
        chosen = asked.chosen(target, asked_of(fields), invariant=fields.get("batch_invariant") == "True")
        if named := [name for name in asked.fixed if name in fields and fields[name] != chosen[name]]:
            raise ScheduleError(f"{asked.kind} has no choice of {', '.join(named)}")
        schedule = completed(chosen, fields, _warp_of(chosen, fields), partial(asked.check, target=target))
    except ScheduleError as error:
        fail(op, refusal(error, fields))
    if schedule.together == 1 and not asked_of(fields) and (reason := asked.declined(target)):
        remark(op, "warp-schedule", f"{schedule.mma} by fragments, not {reason}")
    return schedule


def _warp_of(chosen: Schedule, fields: Mapping[str, object]) -> dict[str, object]:
    """The warp tile that goes with a CTA tile that is given."""
    if not isinstance(cta := fields.get("cta"), tuple):
        return {}
    m, n, _ = (int(size) for size in cta)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return {"warp": (chosen.warp[0] if m % chosen.warp[0] == 0 else 16, n)}


@dataclass(frozen=True)
class ScheduledScores(ABC):
    """The scores of an attention or of its gradients, and what a kernel keeps in shared memory for them: `stays` has
    the columns, padded, of tiles of rows that stay there, `steps` those of the tiles of a stage, of which `copied` are
    no part of another one, `results` the products whose sums are staged."""

    scores: Product
    stays: Sequence[int]
    steps: Sequence[int]
    copied: Sequence[int]
    results: Sequence[Product]

    fixed: ClassVar[Sequence[str]] = FIXED
    kind: ClassVar[str]
    shares_keys: ClassVar[bool] = False

    @abstractmethod
    def own_objection(self, target: Target) -> str:
        """Why warpgroups cannot multiply what is beside the scores; "" if they can."""

    @abstractmethod
    def by_warpgroups(self, target: Target) -> Schedule:
        """The default by warpgroups."""

    @abstractmethod
    def by_fragments(self, target: Target, rows: int) -> Schedule:
        """The default by fragments, for so many rows."""

    @property
    def of_bytes(self) -> bool:
        """Whether elements of Q, K, V and P are bytes."""
        return self.scores.a.element.bits == BYTE

    def objection(self, target: Target) -> str:
        """Why warpgroups cannot multiply; "" if they can."""
        fits = all(64 <= width <= MAX_COLUMNS for width in self.steps)
        columns = " and ".join(map(str, self.steps))
        heads = "" if fits else f"heads of {columns} columns; expected 33 to {MAX_COLUMNS}"
        return why_not(self.scores, target, packed=False) or self.own_objection(target) or heads

    def declined(self, target: Target) -> str:
        """Where warpgroups, which the target has, do not multiply, of rows enough for them, and why; "" if they do."""
        few = self.scores.is_known("m") and self.scores.m <= LONGEST_FOR_FRAGMENTS
        if few or not needs.has_warpgroups(self.scores, target) or not (reason := self.objection(target)):
            return ""
        return f"{'in tensor memory' if needs.adds_in_tensor_memory(target) else 'by warpgroups'}: {reason}"

    def chosen(self, target: Target, by: str, *, invariant: bool) -> Schedule:
        """The default: by warpgroups where they can, and have rows enough, or the bits of a row are to be those of any
        number of rows."""
        asks = by in ROLES or (not by and target.sm >= WARPGROUP_SM)
        reason = self.objection(target) if asks else ""
        if by in ROLES and reason:
            raise ScheduleError(f"warpgroups cannot multiply {self.kind} like this: {reason}")
        few = self.scores.m if self.scores.is_known("m") and not invariant else LONGEST_FOR_FRAGMENTS + 1
        by_groups = asks and not reason and (by or few > LONGEST_FOR_FRAGMENTS)
        return self.by_warpgroups(target) if by_groups else self.by_fragments(target, few)

    def first_fitting(self, sizes: Sequence[tuple[int, int, int]], target: Target) -> Schedule:
        """The first CTA tile of so many warps, of so many rows and keys, that fits in shared memory."""
        row = needs.instruction(self.scores, "f32", target)
        if row is None:
            raise ScheduleError(f"{target} has no mma for {self.scores.a.element.name}")
        for warps, rows, keys in sizes:
            cta = (rows * warps, keys, self.steps[0])
            schedule = Schedule(cta=cta, warp=(rows, keys), mma=row.shape, stages=2, edges="predicated")
            if self.shared_bytes(schedule) <= target.shared:
                return schedule
        raise ScheduleError(f"heads of {max(self.steps)} columns take more shared memory than {target} has")

    def of_groups(self, keys: int, groups: int, stages: int, rows: int = M) -> Schedule:
        """The schedule of so many warpgroups, of so many rows each."""
        every = needs.warpgroup_rows(self.scores)
        row = next(r for r in every if r.shape[:2] == (rows, keys) and r.d.name == "f32")
        cta = (groups * rows, keys, self.steps[0])
        return Schedule(cta=cta, warp=(rows, keys), mma=row.shape, stages=stages, edges="predicated")

    def staged(self, schedule: Schedule) -> Schedule:
        """The schedule whose warpgroups stage results where tensor copies can store them."""
        (product, *_) = self.results
        return schedule.with_fields(staging=needs.staged_part(product, values_schedule(schedule, padded(product.n)))[0])

    def check(self, schedule: Schedule, target: Target) -> None:
        """Refuses a schedule that is not one of scores, or whose tiles take too much shared memory."""
        (m, n, k), (rows, width), depth = schedule.cta, schedule.warp, padded(self.scores.k)
        if k != depth or (width != n and (schedule.together > 1 or not self.shares_keys)):
            raise ScheduleError(
                f"a CTA tile is as deep as Q, {depth}, and a warp's or a warpgroup's tile as wide as a CTA tile; "
                f"got cta = {m}x{n}x{k}, warp = {rows}x{width}"
            )
        if schedule.own_tiles:
            raise ScheduleError(f"consumers = pingpong takes two warpgroups, which cta = {m}x{n}x{k} has not")
        if (needed := self.shared_bytes(schedule)) > target.shared:
            raise ScheduleError(
                f"the tiles that stay, {schedule.stages} stages of the others and the results take {needed} bytes of "
                f"shared memory, {target} has {target.shared} for a CTA; use fewer stages or a smaller tile"
            )

    def shared_bytes(self, schedule: Schedule) -> int:
        """Shared memory of a CTA: tiles that stay, the stages of the others, what slices leave, and results on their
        way."""
        (m, n, _), warps, rows = schedule.cta, schedule.warps, schedule.warp[0]
        tiles = [m * width for width in self.stays] + [n * width for width in self.copied] * schedule.stages
        sizes = [needs.whole_swizzles(size * self.scores.a.element.bits // BYTE) for size in tiles]
        if slices_of(schedule) > 1:
            sizes += [4 * warps * rows * self.steps[-1], 2 * 4 * warps * LANES_OF_ROW * rows]
        for product in self.results:
            values = values_schedule(schedule, padded(product.n))
            sizes.append(needs.staging_bytes(product, values if schedule.together > 1 else part_schedule(values)))
        return needs.behind_each_other(sizes)


@dataclass(frozen=True)
class ForwardScores(ScheduledScores):
    """The scores of an attention."""

    read: Attention

    kind = "an attention"
    shares_keys = True

    @staticmethod
    def of(op: AttentionOp) -> ForwardScores:
        """Those of an operation."""
        read = Attention.of(op)
        depth, columns = padded(read.scores.k), padded(read.values.n)
        copied = (depth, columns) if op.of_keys is None else (depth,)
        return ForwardScores(read.scores, (depth,), (depth, columns), copied, (read.values,), read)

    def own_objection(self, target: Target) -> str:
        read, of_bytes = self.read, self.of_bytes
        if of_bytes and needs.adds_in_tensor_memory(target):
            return "P of bytes lies otherwise in registers than in tensor memory"
        if of_bytes and not read.values.b.transposed:
            if read.values.dynamic or not read.scores.is_known("n"):
                return "V of bytes with a row for each key is transposed before, where its size is known"
        elif reason := needs.not_copied(read.values.b):
            return f"{read.values.b.name} {reason}"
        if of_bytes and max(self.steps) > MAX_OF_BYTES:
            return f"sums of bytes are added in f32, and a thread has no registers for {self.steps[-1]} columns twice"
        return ""

    def _by_lanes(self, target: Target) -> Schedule:
        """As many rows for a warpgroup as tensor memory has lanes: two warpgroups where there is a place for the
        scores, P and O of both, with as many keys as fit."""
        read, columns = self.read, self.steps[-1]
        groups = 1 if read.scores.is_known("m") and read.scores.m <= 2 * M else 2
        for count, keys in ((groups, 128), (groups, 64), (1, 128), (1, 64), (1, 32)):
            if keys == 128 and read.op.score is not None:
                continue  # whose region has no registers beside so many
            for stages in (4, 3, 2):
                schedule = self.of_groups(keys, count, stages, 2 * M)
                schedule = self.staged(schedule.with_fields(ctas=_ctas(read, count * 2 * M, target)))
                fits = not why_no_attention(schedule, columns)
                if fits and self.shared_bytes(schedule) + needs.LEFT_FOR_BARRIERS <= target.shared:
                    return schedule
        raise ScheduleError(f"heads of {read.scores.k} and {read.values.n} columns take more memory than {target} has")

    def by_warpgroups(self, target: Target) -> Schedule:
        """Two warpgroups, or three where their registers hold all: 192 rows halve what is copied for each product.
        Where three would be mostly empty, two with fewer keys; where their last turn would be, with a diagonal, two."""
        if needs.adds_in_tensor_memory(target):
            return self._by_lanes(target)
        read, (depth, columns), m = self.read, self.steps, self.read.scores.m
        width, n = max(self.steps), read.scores.n if read.scores.is_known("n") else LONG
        keys, groups = 128 if columns <= 128 and depth <= DEEP else 64, 3 if width <= 64 or self.of_bytes else 2
        if groups == 3 and read.scores.is_known("m") and -(-m // (3 * M)) * 3 * M >= FULLER * -(-m // (2 * M)) * 2 * M:
            keys, groups = (128 if self.of_bytes else 64), 2
        diagonal, long = read.op.diagonal is not None, self.of_bytes and n > LONG
        if groups == 3 and diagonal and not self.of_bytes and _fewer_turns(read, target):
            groups = 2
        masked = diagonal or read.keys_differ or bool(read.op.functions)
        if groups == 3 and self.of_bytes and not masked and n >= WIDE_KEYS:
            keys, groups = 256, 2
        in_turns = n > FEW_TURNS and (not diagonal or long if groups == 3 or self.of_bytes else width >= 128)
        schedule = self.of_groups(keys, groups, 3 if groups == 3 or width <= 64 else 2)
        schedule = schedule.with_fields(
            consumers="pingpong" if in_turns else "cooperative",
            ctas=_ctas(read, groups * M, target),
            transpose="b" if self.of_bytes and not read.values.b.transposed else "none",
        )
        return self.staged(schedule)

    def _by_slices(self, target: Target) -> Schedule | None:
        """For few queries: warps that share the keys of a tile. None where tiles of K or V are too wide for that.

        One CTA for each SM, whose stages take all its memory, and CTAs that share keys, as many as there are SMs for;
        but where there are more tiles than that, two CTAs, so that one begins while the other ends.
        """
        row = needs.instruction(self.scores, "f32", target)
        read, (depth, columns), page = self.read, self.steps, self.read.page_rows
        rows, slices = (16, SLICES) if read.scores.m <= 16 else (32, SLICES // 2)
        keys = SLICED_KEYS if row is None else max(SLICED_KEYS, row.shape.k)
        slices = min(slices, max(1, page // keys))
        if row is None or columns < MIN_SLICE * slices or columns > MAX_COLUMNS or depth > MAX_DEPTH:
            return None
        if depth > MAX_COLUMNS or columns & columns - 1:
            slices = min(slices, SLICES // 2)  # of parts of columns that are no power of two, four are too narrow
        slots = target.sms * (SLICES // slices)  # as many warps in each SM, also where small pages leave a CTA few
        if read.op.of_keys is not None and rows == row.shape.m:
            slices = 1
        cta = (rows, slices * keys, depth)
        schedule = Schedule(cta=cta, warp=(rows, keys), mma=row.shape, stages=MAX_STAGES, edges="predicated")
        split = not why_no_shared_keys(read, schedule)
        tiles = read.tiles(rows) if split else slots + 1
        memory = target.shared * target.sms // slots // (2 if tiles > slots else 1)
        while schedule.stages > 2 and self.shared_bytes(schedule) > memory:
            schedule = schedule.with_fields(stages=schedule.stages - 1)
        if self.shared_bytes(schedule) > target.shared:
            return None
        return schedule.with_fields(split_k=self._parts(schedule, slots))

    def _parts(self, schedule: Schedule, slots: int) -> int:
        """How many CTAs share the keys of a tile, where so many run at once."""
        if why_no_shared_keys(self.read, schedule):
            return 1
        turns, tiles = -(-self.read.scores.n // schedule.cta[1]), self.read.tiles(schedule.cta[0])
        return max(1, min(slots // tiles, turns // MIN_TURNS, MAX_PARTS))

    def by_fragments(self, target: Target, rows: int) -> Schedule:
        """For few queries warps that share keys; else four or eight with rows of their own, and as many keys at a time
        as fit."""
        if rows <= MAX_SLICED and self.read.op.lse is None and (few := self._by_slices(target)) is not None:
            return few
        read, (depth, columns) = self.read, self.steps
        if columns > MAX_COLUMNS or depth > MAX_DEPTH:
            raise ScheduleError(
                f"heads have up to {MAX_DEPTH} columns of Q, and {MAX_COLUMNS} of V or several times as many, got "
                f"{read.scores.k} and {read.values.n}"
            )
        # At 128 columns 64 keys would spill 52 bytes, and take 3 % longer on an H200.
        narrow = ((4, 32, 32 if max(self.steps) > 64 else 64),)
        sizes = ((8, 16, 64), (8, 16, 32), (4, 16, 32), (4, 16, 16)) if max(self.steps) > 128 else narrow
        paged = [(warps, m, min(keys, read.page_rows)) for warps, m, keys in sizes]
        schedule = self.first_fitting(paged, target)
        taken = self.shared_bytes(schedule)
        left = (target.shared // 2 if taken <= target.shared // 2 else target.shared) - taken
        part = in_strips(part_schedule(values_schedule(schedule, columns)), read.values, schedule.mma.m, left)
        same_bits = rows == LONGEST_FOR_FRAGMENTS + 1  # as for any other number of rows
        return schedule.with_fields(staging=part.staging, split_k=1 if same_bits else self._parts(schedule, target.sms))

    def check(self, schedule: Schedule, target: Target) -> None:
        read, (_, n, _), slices = self.read, schedule.cta, slices_of(schedule)
        if schedule.ctas and read.keys_differ:
            raise ScheduleError(f"ctas = {schedule.ctas}: a tile whose keys begin or end elsewhere has its own CTA")
        if read.paged and read.page_rows % n:
            raise ScheduleError(f"a tile of {n} keys is not in one of the pages of {read.page_rows}")
        if slices > 1 and self.steps[-1] < slices * MIN_SLICE:
            raise ScheduleError(f"{slices} warps that share keys store {MIN_SLICE} columns of O or more each")
        if slices > 1 and read.op.lse is not None:
            raise ScheduleError("warps that share keys store no logarithms of sums")
        if schedule.split_k > 1 and (reason := why_no_shared_keys(read, schedule)):
            raise ScheduleError(f"split_k = {schedule.split_k}: {reason}")
        if schedule.together == 1:
            check_epilogue(schedule, read.values, schedule.mma.m)
        elif needs.adds_in_tensor_memory(target) and (reason := why_no_attention(schedule, self.steps[-1])):
            raise ScheduleError(reason)
        elif schedule.mma.m > M and not needs.adds_in_tensor_memory(target):
            raise ScheduleError(f"mma = {schedule.mma}: {target} has no instruction of {schedule.mma.m} rows")
        if schedule.consumers == "pingpong" and schedule.stages == 1:
            raise ScheduleError(
                "consumers = pingpong takes 2 stages or more: P V runs while P of the next keys is computed"
            )
        super().check(schedule, target)


@dataclass(frozen=True)
class GradientScores(ScheduledScores):
    """The scores of the gradients of an attention."""

    read: AttentionGradient

    kind = "the gradient of an attention"
    fixed = (*FIXED, "split_k", "ctas")

    @staticmethod
    def of(op: AttentionGradientOp) -> GradientScores:
        """Those of an operation. Raises a located diagnostic if the heads that it sums over are not counted."""
        read = AttentionGradient.of(op)
        if any(loop in read.scores.dynamic for loop in range(read.outer, len(read.around))):
            fail(op, f"{op.name} sums over heads whose number must be known")
        if any(loop >= read.outer for documents in read.documents for loop in documents.batch):
            fail(op, f"{op.name} sums over heads that have documents of their own")
        results = tuple(read.sums.values())
        steps = padded(read.scores.k), padded(results[0].n if read.slopes is None else read.slopes.k)
        if max(columns := sum(padded(product.n) for product in results), *steps) > MAX_COLUMNS:
            fail(op, f"{op.name} has sums of up to {MAX_COLUMNS} columns, got {columns}; write dK and dV alone")
        return GradientScores(read.scores, steps[: 1 if read.slopes is None else 2], steps, steps, results, read)

    def own_objection(self, target: Target) -> str:
        if needs.adds_in_tensor_memory(target):
            return "what is multiplied twice is in registers, and sums of warpgroups are in tensor memory"
        slopes = () if self.read.slopes is None else (self.read.slopes.b, self.read.slopes.a)
        operands = (*slopes, *(product.b for product in self.results))
        reasons = ((operand.name, needs.not_copied(operand)) for operand in operands)
        return next((f"{name} {reason}" for name, reason in reasons if reason), "")

    def by_warpgroups(self, target: Target) -> Schedule:
        """Two warpgroups; of 64 columns three, or one where sequences are short: then several CTAs share an SM. A
        thread holds its part of the sums, of s and of dp, and half of these as operands."""
        width, groups, keys, stages = max(self.steps), 2, 64, 3
        if width <= 64:
            static, n = self.scores.is_known("n"), self.scores.n
            groups, stages = (1, 2) if static and n <= SHORT else (3, 3)
            keys = 80 if groups == 1 < len(self.results) and -n % 80 <= -n % 64 else 64
        elif width > 128:
            keys, stages = 64 if self.read.slopes is None else 48, 2
        elif self._registers(keys) > MAX_REGISTERS:
            keys = 48
        return self.staged(self.of_groups(keys, groups, stages))

    def _registers(self, keys: int) -> int:
        """Registers of a thread, one for two columns in f32: sums, and of a turn s, dp, what functions read of
        matrices, and operands of 16 bits."""
        of_turn = keys * (2 + self.read.op.score_matrices) + keys * len(self.results) // 2
        return (sum(padded(product.n) for product in self.results) + of_turn) // 2

    def by_fragments(self, target: Target, rows: int) -> Schedule:
        return self.first_fitting([(4, 16, 32), (4, 16, 16), (2, 16, 16)], target)

    def check(self, schedule: Schedule, target: Target) -> None:
        if schedule.consumers == "pingpong":
            raise ScheduleError("consumers = pingpong: warpgroups do not take turns for gradients")
        super().check(schedule, target)

    def shared_bytes(self, schedule: Schedule) -> int:
        return super().shared_bytes(schedule) + needs.LEFT_FOR_BARRIERS


def _fewer_turns(read: Attention, target: Target) -> bool:
    """Whether two warpgroups are faster than three because SMs have fewer rows in all."""
    if read.values.dynamic or not read.scores.is_known("m"):
        return False
    three, two = (groups * M * -(-read.tiles(groups * M) // target.sms) for groups in (3, 2))
    return three > MORE_ROWS * two


def _ctas(read: Attention, rows: int, target: Target) -> int:
    """How many CTAs go from tile to tile; 0 for one each.

    With a diagonal some tiles take longer than others. Each CTA gets as many of these if all tiles of one or several
    matrices have a CTA.
    """
    tiles = -(-read.scores.m // rows)
    if read.keys_differ or (not read.values.dynamic and tiles * math.prod(read.values.batch) <= target.sms):
        return 0
    if read.op.diagonal is None:
        return target.sms
    ctas = target.sms // tiles * tiles if read.scores.is_known("m") else 0
    return ctas if ctas >= MAX_SMS * target.sms else 0


def why_no_shared_keys(read: Attention, schedule: Schedule) -> str:
    """Why CTAs cannot share the keys of a tile; "" if they can."""
    if schedule.together > 1 or schedule.ctas or read.op.ends is not None:
        return "keys are split among warps that multiply fragments, one tile for each CTA"
    if read.op.lse is not None:
        return "the logarithms of sums are stored by the only CTA of a tile"
    outer = len(read.values.batch)
    if min(read.values.dynamic, default=outer) < outer or not read.scores.is_known("m"):
        return "it needs a known number of rows and matrices"
    if not read.scores.b.transposed or read.values.b.transposed:
        return "it needs K and V with a row for each key"
    return ""
