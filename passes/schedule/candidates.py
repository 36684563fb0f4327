"""The schedule of a product that the model likes best, and the schedules that are worth a measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest
from itertools import product as combinations
from math import prod
from operator import itemgetter
from typing import Any, TypeGuard

from ...dialect.isa import mma
from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.isa.form import ProductForm as Row
from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import WARPGROUP_SM
from ...dialect.schedule import Schedule, ScheduleError, roles
from ...dialect.schedule.schedule import MAX_REGISTERS
from ...dialect.warp.operands import metadata_span
from ..linalg.operand import WIDEST
from ..linalg.product import Product, block
from . import model, needs, warpgroup
from .defaults import LANES as LANES_LOAD
from .defaults import ROOMY, STRIP, UNPIPELINED, decoupled, in_strips, in_turns, is_ragged
from .fitted import is_rated, rated, tile_of
from .model import Tile
from .validity import around_tile, asked_of, check, completed, unsplit
from .warpgroup import PLAIN, by_warpgroups, is_compared, is_large, time_of, why_not
from .warpgroup_model import SHORT_K


def depth(
    product: Product, tile: Tile, row: Row, target: Target, *, odd: bool = False, parts: int = 1
) -> tuple[int, int]:
    """(K of the CTA tile, stages): as deep as pays, limited by k and by shared memory.

    A CTA that is alone on its SM must keep memory busy by itself: `IN_FLIGHT` bytes. If there are several waves, two
    CTAs share an SM where their tiles allow it. One stage more than there are K tiles loads all of them at once. The
    product may be one of `parts` of another's K.
    """
    step, k = row.shape.k if product.metadata is None else metadata_span(row.a), product.k
    narrowest = row.operand_bits if product.b.stored is None else product.b.memory_bits
    step = tile.sliced_k * max(step, needs.CHUNK_BITS // narrowest, block(product) * SCALES_OF_WORD)
    pays = _deepest(product, tile, row, target, odd=odd)
    deepest = 1 << (max(step, min(pays, -(-k // step) * step)) - 1).bit_length()
    alone = _alone(product, tile, target)
    multiplying = model.cycles(product, product.depth, tile, target, row)
    hungry = 2 * parts * model.memory_cycles(product, tile, target) > multiplying
    wanted = model.IN_FLIGHT if hungry else model.IN_FLIGHT_FROM_L2
    if product.b.stored is not None:
        wanted = model.IN_FLIGHT_CONVERTED
    shared = target.shared if alone or _resident(tile, row) == 1 else target.shared // 2
    if product.dynamic and row.operand_bits == 64:
        step = max(step, 16)  # with tiles of 8 ptxas stops at 128 registers on sm_120, and spills 4 bytes
    if product.dynamic and odd:
        deepest = step  # elements are copied one by one, each from an address that takes registers: more would spill
    elif None in (product.a.pitch, product.b.pitch, product.d.pitch):
        deepest = min(deepest, 2 * step)  # so does each row that is an unknown distance from the next
    is_widest = min(product.a.access_bytes, product.b.access_bytes) == WIDEST
    if across := bool(product.dynamic) and row.operand_bits < 16 and product.a.transposed and is_widest:
        deepest = step  # ptxas stops at 128 registers on sm_89 and sm_100a, and spills up to 48 bytes
    for cta_k in (deepest, deepest // 2, deepest // 4):
        if cta_k < step:
            break
        needed = max(1, product.k_tiles(cta_k))
        stage, sums = _stage(product, tile, row, cta_k)
        fit = (shared - sums) // stage
        limit = min(model.MAX_STAGES, max(4, 1 + -(-wanted // stage))) if alone and not across else 4
        if min(limit, fit) >= min(3, needed):
            return cta_k, min(limit, fit, needed + 1)
    stage, sums = _stage(product, tile, row, step)
    # Copies that nothing hides are worse than an SM for each CTA (sm_89, sparse f16: one stage spilled, too).
    return step, min(2, max(1, (target.shared - sums) // stage))


def _stage(product: Product, tile: Tile, row: Row, cta_k: int) -> tuple[int, int]:
    """Bytes of a stage of a tile, and of the sums of its slices."""
    one, two = (_schedule_of(tile, cta_k, row, stages=stages) for stages in (1, 2))
    # two small stages may lie where one does, which begins where a swizzle does
    stage = needs.shared_bytes(product, two) - needs.shared_bytes(product, one) or sum(needs.stage_bytes(product, one))
    return stage, needs.shared_bytes(product, one) - stage


def _schedule_of(tile: Tile, cta_k: int, row: Row, **fields: Any) -> Schedule:
    return Schedule(cta=(*tile.cta, cta_k), warp=tile.warp, mma=row.shape, sliced_k=tile.sliced_k, **fields)


def _alone(product: Product, tile: Tile, target: Target) -> bool:
    """Whether every CTA has an SM of its own."""
    return product.tiles(*tile.cta) <= target.sms


def _resident(tile: Tile, row: Row) -> int:
    """CTAs per SM: two if their accumulators and tiles fit."""
    return 1 if tile.cta[0] * tile.cta[1] * row.d.bits > 128 * 128 * 32 else 2


def _deepest(product: Product, tile: Tile, row: Row, target: Target, *, odd: bool) -> int:
    """The largest useful K of a tile, in elements. `odd` says that a tile passes through registers on its way to shared
    memory."""
    deepest = tile.k * 16 // row.operand_bits
    if row.operand_bits < 16 and odd:
        return tile.k // 2  # bytes are copied one by one, each with a predicate and an address of its own
    if model.as_halves(row, target) and product.sparsity > 1:
        return row.shape.k  # what ptxas makes of more steps spills
    if row.operand_bits == 8:
        return min(deepest, 64 * product.sparsity)  # deeper ones spill on sm_89 what leads to the edges of C
    if row.operand_bits == 4:
        return min(deepest, 64 if needs.nibbles_widened(row, target) else 128)  # the same
    if row.operand_bits == 64 and min(product.a.access_bytes, product.b.access_bytes) < WIDEST:
        return min(deepest, 16)  # each of the narrower copies has an address of its own
    return max(deepest, model.WIDE_K) if row.operand_bits > 16 else deepest


def default_schedule(product: Product, target: Target, accumulate: str = "", by: str = "") -> Schedule:
    """The schedule that the model prefers. `accumulate` defaults to the widest type.

    `by` selects the instructions (`asked_of`): "fragments", or a kind of warpgroup product. By default warpgroups
    multiply if they can and it pays.

    Raises:
        ScheduleError: if the target has no instruction for the product's element types.
    """
    accumulate = accumulate or max((r.d for r in needs.rows_of(product)), key=lambda d: d.bits).name
    schedule = _chosen(product, target, accumulate, by)
    if not product.batch_invariant:
        return schedule
    return schedule.with_fields(batch_invariant="True", add_c="auto" if product.c is None else "first")


def _chosen(product: Product, target: Target, accumulate: str, by: str) -> Schedule:
    alone = by == "fragments" or not (by or target.sm >= WARPGROUP_SM)
    groups = None if alone else by_warpgroups(product, target, accumulate, by)
    if groups is not None:
        # What few tiles read takes longer to pack than to multiply as it lies.
        large = groups.pack == PLAIN and is_large(product, laid_out=groups.padded != PLAIN)
        large = not is_compared(product) or (product.k > SHORT_K and large)
        if by or large or groups.in_registers != PLAIN:
            return groups
    row = needs.instruction(product, accumulate, target)
    if row is None:
        what = f"{needs.multiplied(product)} accumulated in {accumulate}{_instead(product, accumulate)}"
        if product.variant.kind and needs.has_warpgroups(product, target):
            what += f"; in tensor memory: {why_not(product, target)}"
        raise ScheduleError(f"{target} has {_lowered_to(product, target, accumulate)} {what}")
    cost, fragments = _by_fragments(product, target, accumulate, row)
    packing = model.pack_cycles(product, fragments.pack, target)
    taken = model.nanoseconds(product, cost - packing, staged=bool(fragments.staging))
    taken += model.laying_out(product, fragments.pack, PLAIN, target)
    if groups is None:
        return fragments
    before = model.laying_out(product, groups.pack, groups.padded, target)
    times = [(groups, time_of(product, groups, target) + before), (fragments, taken)]
    if is_rated(product, groups.pack, target):
        times = [(each, rated(product, tile_of(each), ns, target)) for each, ns in times]
    return min(times, key=itemgetter(1))[0]


def _by_fragments(product: Product, target: Target, accumulate: str, row: Row) -> tuple[float, Schedule]:
    """The schedule of fragments that the model likes best, and its cost."""
    every = model.SPARSE_TILES if product.sparsity > 1 else (*model.TILES, *model.BETWEEN_TILES)
    every = every if product.b.stored is None else (*model.WEIGHT_TILES, *every)
    every = every if product.second is None else (*model.PAIRED_TILES, *every)
    fitting = [t for t in every if _fits(t, product, row, target)]
    tiles = [t for t in fitting if not _mostly_beyond(product, t)] or fitting
    # Copies through registers need some themselves, which warp tiles of 64x64 do not leave.
    strip = STRIP if is_ragged(product) else STRIP // 2
    is_fitted = target.sm == WARPGROUP_SM and is_rated(product, PLAIN, target)
    by_lanes = model.by_lanes(product)
    costs = [(tile, with_margin(product, tile, target, row)) for tile in tiles]
    covered = [product.tiles(*tile.cta) * prod(tile.cta) for tile in tiles]  # elements, those beyond the end of D, too

    def order(tile: Tile, cost: float) -> float:
        if is_fitted:
            return rated(product, tile, model.nanoseconds(product, cost, staged=True), target)
        stores_late = tile.warp[1] % strip > 0 or _resident(tile, row) == 1
        return (cost + by_lanes * stores_late) // model.COST_STEP * model.COST_STEP

    ways = [
        (order(tile, cost + extra), covered[i], _width(product, tile, pack), i, cost + extra, tile, pack)
        for i, (tile, cost) in enumerate(costs)
        for pack, extra in model.choices(product, tile, target)
        if tile.warp != (64, 64) or not (model.copies_below(model.WORD, product, pack) or _apart(product, row))
    ]
    if not ways:
        raise ScheduleError(f"mma.sync multiplies {needs.multiplied(product)} as they are stored here in no tile")
    *_, cost, tile, pack = min(ways)
    cost, parts, product, tile = _parts(product, tiles, cost, tile, row, target)
    cta_k, stages = depth(product, tile, row, target, odd=model.copies_below(model.WORD, product, pack), parts=parts)
    fp8_as = "f16" if model.widened(product, row, target) else "none"
    schedule = _schedule_of(
        tile, cta_k, row, stages=stages, split_k=parts, pack=pack, fp8_as=fp8_as, accumulate=accumulate
    )
    needed = needs.lane_registers(tile.warp, row) + needs.overhead(product, tile, row, target)
    schedule = decoupled(schedule, product, row, target, needed, partial(needs.shared_bytes, product))
    if tile in model.WEIGHT_TILES:
        schedule = in_turns(schedule, product)
    if product.sparsity > 1 and needed > ROOMY:
        return cost, schedule  # which has no registers left for what changes lanes
    rows = needs.arrangement(product, row, schedule.warp).accumulator.rows
    return cost, in_strips(schedule, product, rows, _free_bytes(product, schedule, tile, row, target))


def with_margin(product: Product, tile: Tile, target: Target, row: Row) -> float:
    """The cost of a tile of fragments, and more where the model is known to say too little."""
    cost = model.cost_of(product, tile, target, row)
    if product.m * product.n > product.k * (product.m + product.n):
        short = model.SHORT_ROWS.get(tile.warp[1], 1.0) if product.k <= model.STORING_K else 1.0
        cost *= model.TALL_STORES if tile.cta == model.TALL else short
    between = model.BETWEEN_MARGIN if tile in model.BETWEEN_TILES else 1.0
    return cost * model.WEIGHT_TILES.get(tile, between)


def _free_bytes(product: Product, schedule: Schedule, tile: Tile, row: Row, target: Target) -> int:
    """Shared memory that the stages leave, of an SM's half where two CTAs share one."""
    alone = _resident(tile, row) == 1 or _alone(product, tile, target)
    used = needs.whole_swizzles(needs.shared_bytes(product, schedule))
    return (target.shared if alone else target.shared // 2) - used


def _width(product: Product, tile: Tile, pack: str) -> int:
    """Decides between a tile and its mirror image. Wide tiles are one percent better, except for a B whose rows are no
    multiple of 128 bytes."""
    whole_lines = "b" in roles(pack) or product.b.aligned_bits % 1024 == 0
    return -tile.cta[1] if whole_lines else tile.cta[1]


def _parts(
    product: Product, tiles: Sequence[Tile], uncut: float, tile: Tile, row: Row, target: Target
) -> tuple[float, int, Product, Tile]:
    """The cost, the number of parts of K, the product of a part, and its tile. `uncut` is the cost with an
    undivided K."""
    best = (uncut, 1, product, tile)
    for parts in model.PARTS:
        if unsplit(product, parts):
            continue
        part = replace(product, k=product.k // parts)
        for small in tiles:
            ctas, narrowest = parts * product.tiles(*small.cta), min(product.a.access_bytes, product.b.access_bytes)
            if ctas > target.sms or part.k % small.k or narrowest < WIDEST:
                continue
            cost = model.cost_of(product, small, target, row, parts)
            if cost < best[0]:
                best = (cost, parts, part, small)
    return best


def _fits(tile: Tile, product: Product, row: Row, target: Target) -> bool:
    """Whether a tile is legal for the product, and its kernel gets the registers that it needs."""
    try:
        ways = needs.arrangement(product, row, tile.warp)
    except ScheduleError:
        return False
    if model.unpaired(product, tile, row.shape.n):
        return False
    # Slices are for few tiles: beside another CTA their sums would take the room of stages.
    plain = (row.operand_bits, row.d.bits, product.sparsity) == (16, 32, 1)
    if tile.sliced_k > 1 and not (plain and not product.batch_invariant and _alone(product, tile, target)):
        return False
    base = ways.accumulator
    grouped = bool(product.b.stored and product.group) and (product.b.memory_bits, product.b.transposed) == (8, False)
    for_weights = tile in model.SLICES_BEYOND["groups" if grouped else "columns"]
    sliced = tile.sliced_k * base.rows * base.columns > tile.warp[0] * tile.warp[1]
    if not for_weights and (tile in chain(*model.SLICES_BEYOND.values()) or (sliced and not grouped)):
        return False
    if tile in model.BETWEEN_TILES and (needs.functions(product) or not plain):
        return False
    # The loop with barriers, and a B that each lane loads for itself, take more.
    sparse = product.sparsity > 1 and tile.warps >= model.LOOP_WARPS and ways.b.how != LANES_LOAD
    tight = needs.even(product, tile) and target.sm < 100 and (sparse or row.operand_bits == 64)
    spare = needs.ADDRESSING_REGISTERS - needs.MIN_ADDRESSING_REGISTERS if tight else 0
    needed = needs.lane_registers(tile.warp, row, emulated=_emulated(product, row, target))
    return needed + needs.overhead(product, tile, row, target) - spare <= MAX_REGISTERS


def _mostly_beyond(product: Product, tile: Tile) -> bool:
    """Whether half of a tile lies beyond the end of each matrix of a batch."""
    beyond = tile.cta[0] >= 2 * max(product.m, 16) or tile.cta[1] >= 2 * max(product.n, 16)
    return product.matrices > 1 and beyond


def _emulated(product: Product, row: Row, target: Target) -> bool:
    """Whether ptxas replaces this instruction by others whose operands take more registers."""
    sparse = model.as_halves(row, target) and product.sparsity > 1
    return sparse or model.bits_twice(row, target) or needs.nibbles_widened(row, target)


def _apart(product: Product, row: Row) -> bool:
    """Whether each lane loads single elements of A and B whose rows have dynamic pitches. The addresses then need the
    registers that warp tiles of 64x64 would take."""
    return row.operand_bits >= 32 and None in (product.a.pitch, product.b.pitch)


def _lowered_to(product: Product, target: Target, accumulate: str) -> str:
    """The beginning of a message for a target that lacks `mma` for the product: none at all, or none that products are
    lowered to."""
    kinds = (product.a.element.name, product.b.element.name, accumulate)
    rows = (r for r in mma.rows() if r.products > 1 and target.sm >= r.sm)
    small = {str(r.shape) for r in rows if (r.a.name, r.b.name, r.d.name) == kinds}
    return f"only mma {', '.join(small)}, which products are not lowered to, for" if small else "no mma for"


def _instead(product: Product, accumulate: str) -> str:
    """The targets that have an instruction for the product, or the accumulator types that exist."""
    rows = needs.rows_of(product)
    lowest = min((r.sm for r in rows if r.d.name == accumulate), default=None)
    if lowest is None:
        return f"; it is accumulated in {' or '.join(sorted({r.d.name for r in rows}))}"
    first = min(rows, key=lambda r: r.sm)
    return f"; {first.requirement()} has one" if first.only else f"; sm_{lowest} and later have one"


# The schedules worth trying for a product, where there is time to try them.

DEPTHS = (1, 2, 4, 8)
"""K of a CTA tile, in steps of the instruction."""

STAGES = (2, 3, 4, 5, 6)
GROUPS = (4, 8, 16)
FEW_STAGES = (4, 2)
"""The stages that are tried of a schedule with given fields."""


def override(chosen: Schedule, fields: Mapping[str, object], asked: Product, target: Target) -> Schedule:
    """The schedule with the fields that are given: the chosen one with as few others changed as can be, or else the
    best one for other tiles, or other instructions, that has them.

    Raises:
        ScheduleError: if they fit neither each other nor the product, whatever follows from them.
    """
    if not fields and _is_valid(chosen, asked, target):
        return chosen
    try:
        around = around_tile(chosen, fields, asked, target)
        return completed(chosen, fields, around, partial(check, product=asked, target=target))
    except ScheduleError as error:
        refused = error
    if isinstance(stages := fields.get("stages"), int) and stages > chosen.stages:
        raise refused  # small tiles have room for any number of stages, and nobody means those
    accumulate, by = str(fields.get("accumulate", chosen.accumulate)), asked_of(fields)
    in_registers = [role for role in warpgroup.ROLES if by in ("", role)]
    every = [warpgroup.schedules_by_cost(asked, target, accumulate, role) for role in in_registers]
    with suppress(ScheduleError):
        if by in ("", "fragments"):
            every.append(iter(_of_fragments(asked, target, accumulate, fields)))
    with suppress(ScheduleError):
        for schedule in chain(*every):
            as_asked = schedule.multiplied == fields.get("multiplied", "ab")
            if as_asked and _is_valid(tried := _with_fields(schedule, fields), asked, target):
                return tried
    raise refused


def candidates(product: Product, target: Target, accumulate: str = "") -> list[Schedule]:
    """Every valid schedule of the search space: the default first, then the others by the cost that the model expects.

    Raises:
        ScheduleError: if the target has no instruction for the product.
    """
    first = default_schedule(product, target, accumulate)
    accumulate = first.accumulate
    of_groups = (warpgroup.candidates(product, target, accumulate, role) for role in warpgroup.ROLES)
    return list(dict.fromkeys((first, *chain(*of_groups), *_of_fragments(product, target, accumulate, {}))))


def _of_fragments(
    product: Product, target: Target, accumulate: str, fields: Mapping[str, object]
) -> Sequence[Schedule]:
    """Schedules that multiply fragments in registers, with fields that are given; none if no instruction does."""
    row = needs.instruction(product, accumulate, target)
    if row is None:
        return []
    default = default_schedule(product, target, accumulate, "fragments")
    costs: dict[Schedule, tuple[float, ...]] = {}
    stages_tried, groups = (FEW_STAGES, (default.group,)) if fields else (STAGES, GROUPS)
    loops: list[Mapping[str, object]] = [UNPIPELINED] if fields else [UNPIPELINED, {}]
    for tile in dict.fromkeys((*model.TILES, *(model.SPARSE_TILES if product.sparsity > 1 else model.BETWEEN_TILES))):
        down = -(-product.m // tile.cta[0])
        few = product.tiles(*tile.cta)
        every = [parts for parts in (1, *model.PARTS) if parts == 1 or (parts * few <= target.sms and not fields)]
        for parts, depth, stages, group in combinations(every, DEPTHS, stages_tried, groups):
            k = depth * row.shape.k
            if k > max(row.shape.k, 2 * product.k // parts) or (group > down and group != groups[0]):
                continue
            at = {"cta": (*tile.cta, k), "warp": tile.warp, "sliced_k": tile.sliced_k, "split_k": parts}
            for loop in loops:
                tried = _with_fields(default, {**loop, **at, "stages": stages, "group": group, **fields})
                if tried not in costs and _is_valid(tried, product, target):
                    near = abs(k - tile.k), abs(stages - default.stages), abs(group - default.group)
                    costs[tried] = (model.cost_of(product, tile, target, row, parts), *near)
    best = sorted(costs, key=lambda s: costs[s])
    return best if fields else [*dict.fromkeys((default, default.with_fields(staging=0), *best))]


def _with_fields(schedule: Schedule, fields: Mapping[str, object]) -> Schedule | None:
    try:
        return schedule.with_fields(**fields)
    except ScheduleError:
        return None


def _is_valid(schedule: Schedule | None, product: Product, target: Target) -> TypeGuard[Schedule]:
    if schedule is None:
        return False
    try:
        check(schedule, product, target)
    except ScheduleError:
        return False
    return True


def spread(schedules: list[Schedule], limit: int) -> list[Schedule]:
    """At most `limit` schedules: the first one, then an equal number for each tile, best first."""
    kinds: dict[object, list[Schedule]] = {}
    for schedule in schedules[1:]:
        kinds.setdefault((schedule.cta[:2], schedule.warp), []).append(schedule)
    in_turn = chain.from_iterable(zip_longest(*kinds.values()))
    return [*schedules[:1], *(schedule for schedule in in_turn if schedule is not None)][:limit]
