"""Schedules of products of warpgroups, whose operands tensor copies bring to shared memory (sm_90a).

One warpgroup copies, the others multiply; so a schedule says what a tile is and how many stages there are, and little
of the loop. What `bench/hopper.py` found on an H200: tiles of 128x256 by two warpgroups are as fast as cuBLAS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product as combinations
from math import prod

from ...dialect.isa.descriptor import UNIT
from ...dialect.isa.product import Shape
from ...dialect.isa.targets import Target
from ...dialect.isa.tensor_map import MOST_BOX, MOST_RANK
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.isa.wgmma import Wgmma
from ...dialect.layouts.layout import LANES
from ...dialect.schedule import SHARED_ALIGNMENT, Schedule, ScheduleError
from ...dialect.schedule.arithmetic import ArithmeticSchedule
from ...dialect.schedule.epilogue import EpilogueSchedule
from ...dialect.schedule.grid import GridSchedule
from ...dialect.schedule.loop import LEAST_RING, LoopSchedule
from ...dialect.schedule.operands import OperandSchedule
from ...dialect.schedule.tile import TileSchedule
from ...dialect.warp.attributes import BYTE
from ...dialect.warp.barriers import BARRIER_BYTES
from ...dialect.warp.sparse import METADATA_ROWS, metadata_span
from ...dialect.warp.warpgroup import ROWS as PATTERN
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product
from .laid_out import can_change, laid_out
from .packing import SHORTEST_PACKED_ROW, roles, row_bytes
from .register_overhead import group_spills
from .resources import multiplied, warpgroup_rows
from .warpgroup_model import LINE, GroupTile, cost, held_columns, k_of, panel_columns, tile_count, tiles_of

LEAST_PRODUCTS, FEW_ELEMENTS = 11 << 24, 1 << 18
"""Multiply-adds below which fragments in registers are as fast, of more elements of D than so many (H200: 512 is, 576
is not; 2048x512x256 takes 7.0 microseconds by fragments, 6.5 by warpgroups)."""

LEAST_DEEP, LEAST_BATCHED = 1 << 30, 1 << 29
"""The same of fewer elements and a long K (H200: 256x256x8192 11.4 and 12.5 microseconds, 512x512x4096 13.2 and 12.4);
and of a batch."""

LEAST_PACKED = 1 << 31
"""The same where operands are packed first (H200: 1281 is as fast, 1535 by a tenth faster)."""

LEAST_PADDED, STAGED_BITS = 1 << 21, (16, 32)
"""Elements of D from which its rows are worth a launch that copies them; bits of those that tensor copies store. (H200:
16.8 million in odd rows of 16 bits cost 57 microseconds, a launch that copies them about 20.)"""

MOST_STAGES, BARRIERS, GROUP = 8, 256, 16
"""Stages beyond which more were no faster; bytes kept for mbarriers; rows of tiles walked together (H200, 8192: 785
TFLOP/s with 16, 700 with 8)."""

NARROW_GROUP, NARROW = 4, 12
"""The same where there are more rows of tiles than that, and no more than so many columns (H200: 3072x768x8192 685
TFLOP/s with 4, 577 with 16; 4096x1280x1280 583 and 521; 12608x768x3072 746 and 736)."""

BUFFERS = 2
"""Panels of D of a warpgroup that are on their way at a time: one is filled while the other is read."""

PLAIN, MOST_PROMOTED = "none", 192
"""No sums are promoted; columns of a warpgroup's tile with room for both sums in registers, those of 128 bytes of K and
of all of it."""

FOLLOWING = ("cta", "warp", "mma", "stages", "ctas", "group", "staging", "split_k", "cluster")
"""Fields that depend on the tile."""

OF_FRAGMENTS = ("cta", "warp", "sliced_k", "pack", "sync", "prefetch", "unroll", "fp8_as", "swizzle")
"""Fields that, given without an instruction, ask for fragments in registers (`mma.sync`)."""


def asked_of(given: Mapping[str, object]) -> str:
    """Who is to multiply, of fields that are given: "fragments", "warpgroups", "exchanged" for warpgroups with B in
    registers, or "" if they leave it open."""
    if given.get("in_registers", PLAIN) != PLAIN:
        return "exchanged"
    mma = given.get("mma")
    if isinstance(mma, Shape):
        return "warpgroups" if mma.m == ROWS else "fragments"
    if any(given.get(name, PLAIN) != PLAIN for name in ("promote", "transpose")) or "in_registers" in given:
        return "warpgroups"
    return "fragments" if any(name in given for name in OF_FRAGMENTS) else ""


def around_given(chosen: Schedule, given: Mapping[str, object], product: Product, target: Target) -> dict[str, object]:
    """The fields given with what goes with another tile of warpgroups: its stages, and how D is staged. Sums that are
    promoted take another tile where the one chosen has too many."""
    changed = {name: given[name] for name in ("transpose", "padded") if name in given}
    mma, seen = given.get("mma", chosen.tile.mma), laid_out(product, chosen.with_fields(**changed).operands)
    if given.get("promote", PLAIN) != PLAIN and "mma" not in given and chosen.tile.mma.n > MOST_PROMOTED:
        every = _by_cost(product, target, chosen.arithmetic.accumulate)
        narrow = next(schedule for schedule in every if schedule.tile.mma.n <= MOST_PROMOTED)
        return {name: narrow[name] for name in FOLLOWING} | around_given(narrow, given, product, target)
    given = _settled(chosen, given)
    if not isinstance(mma, Shape) or all(
        given.get(name, chosen[name]) == chosen[name] for name in ("mma", "cta", "padded")
    ):
        return dict(given)
    cta = given.get("cta", (chosen.tile.cta[0], mma.n, chosen.tile.cta[2]))
    around = {"cta": cta, "warp": (ROWS, mma.n), "mma": mma, "staging": staged_rows(seen, mma.n), "stages": LEAST_RING}
    around |= {"split_k": 1, "cluster": (1, 1)}
    tried = chosen.with_fields(**{**around, **given})
    return {**around, "stages": fitting_stages(seen, tried, target), **given}


def _settled(chosen: Schedule, given: Mapping[str, object]) -> dict[str, object]:
    """The fields given, with no clusters where they do not come out even in the CTAs, and a whole K for consumers with
    tiles of their own."""
    around: dict[str, object] = {}
    if isinstance(ctas := given.get("ctas"), int) and ctas % prod(chosen.grid.cluster):
        around["cluster"] = (1, 1)
    if given.get("consumers", chosen.loop.consumers) != "cooperative":
        around["split_k"] = 1
    return {**around, **given}


def why_not(product: Product, target: Target, *, packed: bool = False) -> str:
    """Why warpgroups cannot multiply a product; empty if they can. With `packed` operands may be packed first."""
    rows = warpgroup_rows(product)
    if not any(row.runs_on(target) for row in rows):
        return f"{target} has no wgmma for {multiplied(product)}"
    if product.summed:
        return "it is summed over several loops"
    for role, operand in (("a", product.a), ("b", product.b)):
        transposed = role in roles(_transposed(product))
        if transposed and not (packed and can_change(operand)):
            return f"{operand.name} of {operand.element.name} must lie along k"
        if not transposed and (reason := not_copied(operand)) and not (packed and packs(product, operand)):
            return f"{operand.name} {reason}"
    return ""


def _transposed(product: Product) -> str:
    """The operands that must lie otherwise, as the field `transpose` names them: those that do not lie along K, of
    elements that have not 16 bits."""
    lie = (("a", product.a, not product.a.transposed), ("b", product.b, product.b.transposed))
    return "".join(role for role, o, along_k in lie if not along_k and o.element.bits != 16) or PLAIN


def prepared(product: Product) -> OperandSchedule:
    """What is done to the operands beside the product: A and B are transposed and packed where they must be, and D is
    padded where that pays."""
    transposed = OperandSchedule(transpose=_transposed(product))
    seen = laid_out(product, transposed)
    pads = product.m * product.n >= LEAST_PADDED and can_change(product.d) and product.d.element.bits in STAGED_BITS
    padded = "d" if pads and not_copied(product.d) else PLAIN
    return OperandSchedule(_packed(seen), transpose=transposed.transpose, padded=padded)


def packs(product: Product, operand: MatrixOperand) -> bool:
    """Whether tensor copies can move an operand that is packed before."""
    whole = operand.element.memory_bits >= BYTE and row_bytes(operand) >= SHORTEST_PACKED_ROW
    return whole and operand.is_compact and product.metadata is None and not product.dynamic


def _packed(product: Product) -> str:
    """The operands that must be packed, as the field `pack` names them."""
    found = "".join(role for role, operand in (("a", product.a), ("b", product.b)) if not_copied(operand))
    return found or PLAIN


def not_copied(operand: MatrixOperand) -> str:
    """Why tensor copies cannot move an operand."""
    if operand.pitch_bits % (8 * UNIT):
        return f"must have rows that are multiples of {UNIT} bytes, got {operand.type}"
    if operand.type.get_num_dims() > MOST_RANK:
        return f"must have at most {MOST_RANK} dimensions, got {operand.type}"
    if operand.element.memory_bits < 8:
        return f"must have elements of whole bytes, got {operand.type}"
    return ""


def check_boxes(schedule: Schedule, product: Product) -> None:
    """Checks the tiles that tensor copies move.

    Raises:
        ScheduleError: for K tiles that are no whole lines of shared memory, or tiles of more rows than a box has.
    """
    cta = schedule.tile.cta
    if cta[2] * product.a.element.memory_bits // 8 % LINE:
        raise ScheduleError(f"K tiles of warpgroups are multiples of {LINE} bytes, got {cta[2]} elements")
    if max(cta) > MOST_BOX:
        raise ScheduleError(f"a tensor copy moves at most {MOST_BOX} rows, got cta = {cta}")


def row_of(product: Product, schedule: Schedule, target: Target) -> Wgmma:
    """The instruction of a schedule.

    Raises:
        ScheduleError: if there is none.
    """
    known = warpgroup_rows(product, exchanged=schedule.tile.exchanged)
    rows = [r for r in known if r.d.name == schedule.arithmetic.accumulate and r.runs_on(target)]
    for row in rows:
        if row.shape == schedule.tile.mma:
            return row
    near = sorted({r.shape for r in rows}, key=lambda shape: abs(shape.n - schedule.tile.mma.n))[:3]
    raise ScheduleError(
        f"{target} has no wgmma {schedule.tile.mma} for {multiplied(product)} accumulated in "
        f"{schedule.arithmetic.accumulate}; the nearest are {', '.join(map(str, sorted(near))) or 'none'}"
    )


def stage_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory of one stage."""
    m, n, k = schedule.tile.cta
    columns = held_columns(product, n)
    sizes = m * k // product.sparsity * product.a.element.memory_bits, columns * k * product.b.memory_bits
    tiles = [bits // 8 for bits in sizes]
    if product.metadata is not None:
        rows = -(-m // (METADATA_ROWS * PATTERN)) * PATTERN
        tiles.append(rows * k // metadata_span(product.a.element) * LANES * product.metadata.element.bits // 8)
    return sum(-(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT for size in tiles)


def shared_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory of a CTA: stages, their mbarriers, and D on its way."""
    barriers = 2 * schedule.loop.stages * BARRIER_BYTES
    return schedule.loop.stages * stage_bytes(product, schedule) + staging_bytes(product, schedule) + barriers


def staging_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory in which each warpgroup stages rows of D."""
    if not schedule.epilogue.staging:
        return 0
    bits = product.d.element.bits
    panel = ROWS * panel_columns(schedule.tile.mma.n, bits) * bits // 8
    return schedule.consumers // schedule.tile.together * BUFFERS * panel


def staged_rows(product: Product, columns: int) -> int:
    """The rows of D that are staged: those of a warpgroup where tensor copies can store them, else none."""
    bits = product.d.element.bits
    return ROWS if bits in STAGED_BITS and panel_columns(columns, bits) and not not_copied(product.d) else 0


def pays(product: Product) -> bool:
    """Whether warpgroups are worth their start."""
    return is_large(product, laid_out=_transposed(product) != PLAIN or _packed(product) != PLAIN)


def is_large(product: Product, *, laid_out: bool) -> bool:
    """Whether there is enough to multiply, and a tile's rows are not mostly empty; with launches before that lay out
    operands, or without."""
    if laid_out:
        least = LEAST_PACKED
    elif product.batch:
        least = LEAST_BATCHED
    else:
        least = LEAST_PRODUCTS if product.m * product.n > FEW_ELEMENTS else LEAST_DEEP
    return product.m > ROWS and product.m * product.n * product.depth * prod(product.batch) >= least


def warpgroup_schedule(product: Product, target: Target, accumulate: str) -> Schedule | None:
    """The schedule for warpgroups that the model likes best; None if they cannot multiply the product."""
    return next(iter(_by_cost(product, target, accumulate)), None)


def warpgroup_candidates(product: Product, target: Target, accumulate: str) -> Iterator[Schedule]:
    """Schedules for warpgroups that are worth trying, those that the model likes best first."""
    for schedule in _by_cost(product, target, accumulate):
        for group, staging in combinations((GROUP, 8, 4), dict.fromkeys((schedule.epilogue.staging, 0))):
            yield schedule.with_fields(group=group, staging=staging)


def _by_cost(product: Product, target: Target, accumulate: str) -> list[Schedule]:
    """A schedule for each tile of warpgroups, the cheapest first."""
    rows = {r.shape.n: r for r in warpgroup_rows(product) if r.d.name == accumulate and r.runs_on(target)}
    if why_not(product, target, packed=True):
        return []
    operands = prepared(product)
    product = laid_out(product, operands)
    held = (tile for tile in tiles_of(product, operands.pack, target) if tile.n in rows)
    padded = operands.padded != "none"
    fitting = (tile for tile in held if not group_spills(product, tile.m, tile.n, padded=padded))
    tiles = sorted(fitting, key=lambda tile: cost(product, tile, operands.pack, target))
    return [_schedule(product, operands, tile, rows[tile.n], target) for tile in tiles]


def _schedule(product: Product, operands: OperandSchedule, tile: GroupTile, row: Wgmma, target: Target) -> Schedule:
    schedule = Schedule(
        TileSchedule((tile.m, tile.n, k_of(product)), (ROWS, tile.n), row.shape),
        LoopSchedule(LEAST_RING, sync="mbarrier"),
        grid=GridSchedule(_group(product, tile), tile.parts, cluster=tile.cluster),
        epilogue=EpilogueSchedule(staged_rows(product, tile.n)),
        operands=operands,
        arithmetic=ArithmeticSchedule(row.d.name),
    )
    whole = tile_count(product, tile) > target.sms and not product.batch
    stages = fitting_stages(product, schedule, target)
    if not whole:
        # A CTA of a single tile has as many stages to fill as K tiles.
        stages = min(stages, max(LEAST_RING, -(-product.k_tiles(schedule.tile.cta[2]) // tile.parts)))
    return schedule.with_fields(stages=stages, ctas=target.sms if whole else 0)


def _group(product: Product, tile: GroupTile) -> int:
    """Rows of tiles that are walked together."""
    narrow = product.m > tile.m * GROUP and product.n <= tile.n * NARROW
    return NARROW_GROUP if narrow else GROUP


def fitting_stages(product: Product, schedule: Schedule, target: Target) -> int:
    """As many stages as shared memory holds, and pay."""
    room = target.shared - staging_bytes(product, schedule) - BARRIERS
    return max(LEAST_RING, min(MOST_STAGES, room // stage_bytes(product, schedule)))
