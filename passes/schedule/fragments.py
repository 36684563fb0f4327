"""Products by `mma.sync`: the tile that the model likes best, what follows from it, and what a schedule must keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any

from xdsl.dialects.builtin import f32
from xdsl.utils.exceptions import VerifyException

from ...dialect.isa.form import FP8, SCALES_OF_WORD
from ...dialect.isa.form import ProductForm as Row
from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import WARPGROUP_SM
from ...dialect.layouts.layout import Layout
from ...dialect.schedule import Schedule, ScheduleError, roles
from ...dialect.schedule.schedule import MAX_REGISTERS
from ...dialect.warp.attributes import BYTE, FragmentType
from ...dialect.warp.mma import part_of
from ...dialect.warp.operands import metadata_span
from ...dialect.warp.synchronisation import BARRIER_BYTES, BARRIER_SM
from ..linalg.operand import WIDEST
from ..linalg.product import Product, block
from . import model, needs
from .defaults import LANES as LANES_LOAD
from .defaults import STRIP, check_epilogue, first_fitting, in_strips, is_ragged, matrices
from .model import (
    LONG_STEP,
    LOOP_WARPS,
    MAX_STAGES,
    MIN_AHEAD,
    SLACK,
    Tile,
    as_halves,
    bits_twice,
    copies_below,
    not_packed,
    unpaired,
    unsplit,
)
from .warpgroup_schedule import is_rated, rated

UNPIPELINED: dict[str, object] = {"sync": "barrier", "prefetch": 0, "unroll": 0, "ctas": 0, "staging": 0}
"""What is chosen of the loop, and of the way behind it, for tiles that are given; the default's choice is made for its
own tiles."""

STEPS = 2
"""Steps of the instruction in a K tile of this loop: with more, addresses of unrolled stages spill (tf32, 4 steps: 254
registers and spills, 2 steps: 233); with one, fragments of the next step are moved instead of renamed."""

ROOMY = 232
"""Registers that a lane may need, by the model, beside which those of known stages and of the next tile have room:
dense tiles of 64x64 take 232 and sparse ones of 64x48 216; sparse ones of 64x64 take 264 and spill with either."""


def decoupled(schedule: Schedule, product: Product, row: Row, target: Target, registers: int) -> Schedule:
    """The schedule with mbarriers between warps and with persistent CTAs, if that pays; else the same schedule.

    Tensor cores and shared memory are both busy for most of a K tile, so time in which all warps wait is lost. With
    warp tiles of `LONG_STEP`, a step is long enough to hide waits at mbarriers. A lane takes about `registers`.
    """
    tiles = product.tiles(*schedule.cta[:2])
    # A CTA that is alone on its SM keeps its depth: more bytes on the way for each wait.
    own_k = max(STEPS * row.shape.k, 0 if product.metadata is None else metadata_span(row.a))
    deep = schedule if tiles <= target.sms else schedule.with_fields(cta=(*schedule.cta[:2], own_k))
    needed = product.k_tiles(deep.cta[2])
    stage = needs.shared_bytes(product, deep.with_fields(stages=1))
    limit = min(MAX_STAGES, target.shared // (stage + 2 * BARRIER_BYTES))
    fits = registers <= ROOMY and product.is_known("k")
    # Known stages are worth more than many, where there are registers for them.
    stages = next((s for s in range(limit, SLACK, -1) if fits and needed % s == 0), limit)
    pays = schedule.warp[0] * schedule.warp[1] >= LONG_STEP and schedule.warps >= LOOP_WARPS
    pays = pays and schedule.sliced_k == schedule.split_k == 1
    if not pays or not 3 <= stages < needed or target.sm < BARRIER_SM or copies_below(WIDEST, product, schedule.pack):
        return schedule
    prefetch = min(stages - 1, max(stages - SLACK, -(-MIN_AHEAD // stage)))
    schedule = deep.with_fields(stages=stages, sync="mbarrier", prefetch=prefetch)
    if not fits:
        return schedule
    # Rows an unknown distance apart have an address each, and those of the next tile beside them spill (552 bytes).
    # So do they beside those of a matrix that is not D, or beside operands that are widened, in tiles of `ROOMY`.
    beside = product.c is not None and (product.c.value is not product.d.value or schedule.fp8_as != "none")
    # Where the next tile of groups lies, their ends say: its copies cannot start in the turn before.
    on = (
        tiles > target.sms
        and (registers < ROOMY or not (beside or matrices(product)))
        and product.ends is None
        and all(o.pitch is not None for o in (product.a, product.b, product.c, product.d) if o)
    )
    # No more CTAs than whole turns of tiles take: others would only compete for memory and power.
    ctas = -(-tiles // -(-tiles // target.sms)) if on else 0
    return schedule.with_fields(unroll=0 if needed % stages else stages, ctas=ctas)


def in_turns(schedule: Schedule, product: Product) -> Schedule:
    """The schedule with the loop over K unrolled by its stages if K is a multiple of them, so that the addresses of
    stages are constants: kernels that convert operands in registers then run at the memory's speed."""
    tiles, stages = product.k_tiles(schedule.cta[2]), schedule.stages
    divides = product.is_known("k") and stages < tiles and tiles % stages == 0
    return schedule.with_fields(unroll=stages) if divides and not schedule.unroll else schedule


def check_loop(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks what a schedule says of the K loop against product and target. Raises ScheduleError if turns do not divide
    the loop, or copies cannot arrive at mbarriers."""
    tiles = -(-product.k_tiles(schedule.cta[2]) // schedule.split_k)
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


def by_fragments(product: Product, target: Target, row: Row) -> tuple[float, Schedule]:
    """The schedule of fragments that the model likes best of those that fit, and its cost."""
    every = model.SPARSE_TILES if product.sparsity > 1 else (*model.TILES, *model.BETWEEN_TILES)
    every = every if product.b.stored is None else (*model.WEIGHT_TILES, *every)
    every = every if product.second is None else (*model.PAIRED_TILES, *every)
    fitting = [t for t in every if _fits(t, product, row, target)]
    tiles = [t for t in fitting if not _mostly_beyond(product, t)] or fitting
    # Copies through registers need some themselves, which warp tiles of 64x64 do not leave.
    strip = STRIP if is_ragged(product) else STRIP // 2
    is_fitted = target.sm == WARPGROUP_SM and is_rated(product, "none", target)
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
    offers = (_of_tile(product, tiles, cost, tile, pack, row, target) for *_, cost, tile, pack in sorted(ways))
    best = first_fitting(offers, lambda offered: check(offered[1], product, target))
    if best is None:
        raise ScheduleError(f"mma.sync multiplies {needs.multiplied(product)} as they are stored here in no tile")
    return best


def _of_tile(
    product: Product, tiles: Sequence[Tile], cost: float, tile: Tile, pack: str, row: Row, target: Target
) -> tuple[float, Schedule]:
    """The schedule of a tile, or of another one of `tiles` in parts of K that costs less, and its cost."""
    cost, parts, product, tile = _parts(product, tiles, cost, tile, row, target)
    cta_k, stages = depth(product, tile, row, target, odd=model.copies_below(model.WORD, product, pack), parts=parts)
    fp8_as = "f16" if model.widened(product, row, target) else "none"
    schedule = _schedule_of(
        tile, cta_k, row, stages=stages, split_k=parts, pack=pack, fp8_as=fp8_as, accumulate=row.d.name
    )
    needed = needs.lane_registers(tile.warp, row) + needs.overhead(product, tile, row, target)
    schedule = decoupled(schedule, product, row, target, needed)
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
        if model.unsplit(product, parts):
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


# What a schedule must keep.


def check(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks a schedule of fragments against product and target. Raises ScheduleError if the instruction does not exist
    there, or shared memory or registers do not suffice."""
    if product.convolves:
        raise ScheduleError(f"mma = {schedule.mma}: tensor copies read images for warpgroups; use m64nNk16")
    if product.block_scales:
        raise ScheduleError(f"scales of blocks are for products of warpgroups, got mma = {schedule.mma}")
    acc = schedule.accumulate
    rows = [r for r in needs.rows_of(product) if r.d.name == acc and r.runs_on(target)]
    row = next((r for r in rows if r.shape == schedule.mma), None)
    if row is None:
        have = ", ".join(str(r.shape) for r in rows)
        wanted = f"mma {schedule.mma} for {needs.multiplied(product)} accumulated in {acc}"
        raise ScheduleError(f"{target} has no {wanted}; it has {have or 'none'}")
    ways = needs.arrangement(product, row, schedule.warp)
    narrowest = row.operand_bits if product.b.stored is None else product.b.memory_bits
    if schedule.cta[2] % (multiple := schedule.sliced_k * max(row.shape.k, needs.CHUNK_BITS // narrowest)):
        cut = f" for {schedule.sliced_k} slices" if schedule.sliced_k > 1 else ""
        raise ScheduleError(
            f"{needs.multiplied(product)} takes K tiles of multiples of {multiple}{cut}, got {schedule.cta[2]}"
        )
    _check_kind(schedule, product, row)
    if schedule.split_k > 1 and (reason := unsplit(product, schedule.split_k)):
        raise ScheduleError(f"split_k = {schedule.split_k}: {reason}")
    _check_slices(schedule, ways.accumulator)
    if schedule.split_k > 1 and schedule.pack != "none":
        raise ScheduleError(f"split_k takes operands as they lie, not with pack = {schedule.pack}")
    needs.check_shared(schedule, product, target)
    _check_registers(schedule, row, target)
    check_loop(schedule, product, target)
    check_epilogue(schedule, product, ways.accumulator.rows)
    _check_packing(schedule, product)


def _check_kind(schedule: Schedule, product: Product, row: Row) -> None:
    """Checks a schedule against what element types, sparse and scaled products need."""
    cta, slices, fp8_as = schedule.cta, schedule.sliced_k, schedule.fp8_as
    access, element = schedule.access, max((row.a, row.b), key=lambda e: e.memory_bits)
    if (size := element.memory_bits // BYTE) > access:
        raise ScheduleError(f"access = {access}: an element of {element.name} takes {size} bytes")
    if product.metadata is not None and cta[2] % (span := metadata_span(row.a)):
        raise ScheduleError(f"metadata comes for {span} columns of A at a time, got a CTA tile of {cta}")
    if product.metadata is not None and slices > 1:
        raise ScheduleError(f"a sparse product is not cut into slices, got {slices}")
    if fp8_as != "none" and (product.sparsity > 1 or row.a.name not in FP8):
        what = "of a sparse product" if product.sparsity > 1 else f"of {needs.multiplied(product)}"
        raise ScheduleError(f"fp8_as = {fp8_as}: operands that are dense 8-bit floats are widened, not those {what}")
    if product.scales and cta[2] % (words := block(product) * SCALES_OF_WORD):
        raise ScheduleError(f"scales come for {words} elements along k at a time, got a CTA tile of {cta}")
    if product.group and (run := max(cta[2] // slices, product.group)) % min(cta[2] // slices, product.group):
        raise ScheduleError(
            f"a warp multiplies whole groups, or parts of one: {cta[2] // slices} elements along k and groups of "
            f"{product.group} fill no {run}"
        )
    if product.scales and slices > 1:
        raise ScheduleError(f"a scaled product is not cut into slices, got {slices}")
    if reason := unpaired(product, schedule, row.shape.n):
        raise ScheduleError(f"{reason}; got {cta} with warp = {schedule.warp}, {slices} slices")


def _check_slices(schedule: Schedule, sums: Layout) -> None:
    """Refuses slices that do not divide the base tiles of a warp tile, which may be of several instructions."""
    if (slices := schedule.sliced_k) == 1:
        return
    try:
        part_of(FragmentType.of("acc", *schedule.warp, f32, sums), slices, all_get=schedule.split_k > 1)
    except VerifyException as error:
        raise ScheduleError(f"sliced_k = {slices}, split_k = {schedule.split_k}: {error}") from error


def _check_packing(schedule: Schedule, product: Product) -> None:
    for role, operand in (("a", product.a), ("b", product.b)):
        if role in roles(schedule.pack) and (reason := not_packed(operand)):
            raise ScheduleError(f"pack = {schedule.pack}: {reason}")
    if product.second is not None and "b" in roles(schedule.pack):
        raise ScheduleError(f"pack = {schedule.pack}: B is two matrices")


def _check_registers(schedule: Schedule, row: Row, target: Target) -> None:
    (m, n), buffers = schedule.warp, 1 if schedule.stages == 1 else 2
    emulated = (as_halves(row, target) and schedule.fp8_as == "none") or bits_twice(row, target)
    lane = needs.lane_registers(schedule.warp, row, buffers, emulated=emulated)
    lane -= needs.ADDRESSING_REGISTERS - needs.MIN_ADDRESSING_REGISTERS
    if lane > MAX_REGISTERS:
        raise ScheduleError(
            f"a warp tile of {m}x{n} takes about {lane} registers a lane, there are {MAX_REGISTERS}; "
            f"use a smaller warp tile"
        )
    if lane * schedule.threads > target.registers:
        raise ScheduleError(
            f"{schedule.warps} warps of {m}x{n} take about {lane * schedule.threads} registers, an SM of {target} "
            f"has {target.registers}; use fewer warps or a smaller warp tile"
        )
