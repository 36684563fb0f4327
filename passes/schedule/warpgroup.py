"""Schedules of products of warpgroups, and what they need (sm_90a)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as combinations
from math import gcd, prod
from typing import Any

from ...dialect.isa.targets import Target
from ...dialect.isa.tensor_map import MOST_BOX, MOST_RANK
from ...dialect.isa.wgmma import UNIT, Wgmma
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.layouts.layout import LANES
from ...dialect.schedule import SHARED_ALIGNMENT, Schedule, ScheduleError
from ...dialect.schedule.schedule import LEAST_RING
from ...dialect.warp.attributes import BYTE
from ...dialect.warp.operands import METADATA_ROWS, metadata_span
from ...dialect.warp.synchronisation import BARRIER_BYTES
from ...dialect.warp.warpgroup import ROWS as PATTERN
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product
from .defaults import can_change, laid_out
from .model import SHORTEST_PACKED_ROW, roles, row_bytes
from .resources import group_spills, multiplied, promotes, warpgroup_rows
from .warpgroup_model import LINE, GroupTile, cost, held_columns, k_of, panel_columns, panel_of_b, tile_count, tiles_of

# What a schedule of warpgroups takes: its instruction, boxes that tensor copies move, shared memory, stages.

STAGED_BITS, STAGED_BYTES = (16, 32), 64 * LINE
"""Bits of the elements of D that tensor copies store; bytes that a warpgroup stages at a time, at most."""

BUFFERS = 2
"""Parts of D of a warpgroup that are on their way at a time: one is filled while the other is read."""

MOST_STAGES, BARRIERS = 8, 256
"""Stages beyond which more were no faster; bytes kept for mbarriers."""


def not_copied(operand: MatrixOperand) -> str:
    """Why tensor copies cannot move an operand."""
    if operand.pitch_bits % (8 * UNIT):
        return f"must have rows that are multiples of {UNIT} bytes, got {operand.type}"
    if operand.type.get_num_dims() > MOST_RANK:
        return f"must have at most {MOST_RANK} dimensions, got {operand.type}"
    if operand.element.memory_bits < 8:
        return f"must have elements of whole bytes, got {operand.type}"
    return ""


def row_of(product: Product, schedule: Schedule, target: Target) -> Wgmma:
    """The instruction of a schedule.

    Raises:
        ScheduleError: if there is none.
    """
    known = warpgroup_rows(product, exchanged=schedule.exchanged)
    rows = [r for r in known if r.d.name == schedule.accumulate and r.runs_on(target)]
    for row in rows:
        if row.shape == schedule.mma:
            return row
    near = sorted({r.shape for r in rows}, key=lambda shape: abs(shape.n - schedule.mma.n))[:3]
    raise ScheduleError(
        f"{target} has no wgmma {schedule.mma} for {multiplied(product)} accumulated in "
        f"{schedule.accumulate}; the nearest are {', '.join(map(str, sorted(near))) or 'none'}"
    )


def check_tiles(schedule: Schedule, product: Product) -> None:
    """Checks the tile of a warpgroup, and those that tensor copies move.

    Raises:
        ScheduleError: for tiles that are not the instruction's, K tiles that are no whole lines of shared memory, tiles
            of more rows than a box has, or rows of D that are not staged so.
    """
    cta = schedule.cta
    if schedule.warp != schedule.covered:
        sizes = "x".join(map(str, schedule.covered))
        raise ScheduleError(f"a warpgroup multiplies tiles of {sizes}, got warp = {schedule.warp}")
    if cta[2] * product.a.element.memory_bits // 8 % LINE:
        raise ScheduleError(f"K tiles of warpgroups are multiples of {LINE} bytes, got {cta[2]} elements")
    if max(cta) > MOST_BOX:
        raise ScheduleError(f"a tensor copy moves at most {MOST_BOX} rows, got cta = {cta}")
    if schedule.staging not in (0, rows := staged_part(product, schedule)[0]):
        raise ScheduleError(f"staging = {schedule.staging}: a warpgroup stages {rows} rows of D")


def stage_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory of one stage."""
    m, n, k = schedule.cta
    columns = held_columns(product, n)
    sizes = m * k // product.sparsity * product.a.element.memory_bits, columns * k * product.b.memory_bits
    tiles = [bits // 8 for bits in sizes]
    if product.metadata is not None:
        rows = -(-m // (METADATA_ROWS * PATTERN)) * PATTERN
        tiles.append(rows * k // metadata_span(product.a.element) * LANES * product.metadata.element.bits // 8)
    return sum(-(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT for size in tiles)


def shared_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory of a CTA: stages, their mbarriers, and D on its way."""
    barriers = 2 * schedule.stages * BARRIER_BYTES
    return schedule.stages * stage_bytes(product, schedule) + staging_bytes(product, schedule) + barriers


def staged_part(product: Product, schedule: Schedule) -> tuple[int, int]:
    """The rows and columns of D that a warpgroup stages at a time; none where tensor copies cannot store them.

    Columns are those of a panel; of a transposed instruction, whose 64 columns are one layout, all of them.
    """
    (rows, columns), bits = schedule.covered, product.d.element.bits
    panel = panel_columns(columns, bits)
    if bits not in STAGED_BITS or not panel or not_copied(product.d):
        return 0, 0
    width = columns if schedule.exchanged else panel
    return gcd(rows, STAGED_BYTES * BYTE // (width * bits)), width


def staging_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory in which each warpgroup stages rows of D."""
    if not schedule.staging:
        return 0
    staged = prod(staged_part(product, schedule)) * product.d.element.bits // BYTE
    return schedule.consumer_warps // schedule.together * BUFFERS * staged


def fitting_stages(product: Product, schedule: Schedule, target: Target) -> int:
    """As many stages as shared memory holds, and pay."""
    room = target.shared - staging_bytes(product, schedule) - BARRIERS
    return max(LEAST_RING, min(MOST_STAGES, room // stage_bytes(product, schedule)))


def schedule_of_tile(product: Product, of_d: GroupTile, accumulate: str, target: Target, **fields: Any) -> Schedule:
    """The schedule that goes with a tile, some of whose fields are given.

    As many stages as fit, for a CTA of a single tile no more than it has K tiles; CTAs that go from tile to tile where
    there are more tiles than SMs; rows of D staged where tensor copies can store them.
    """
    schedule = Schedule(
        stages=LEAST_RING,
        sync="mbarrier",
        split_k=of_d.parts,
        cluster=of_d.cluster,
        accumulate=accumulate,
        promote="f32" if promotes(product, accumulate) else "none",
        **fields,
    )
    schedule = schedule.with_fields(staging=staged_part(product, schedule)[0])
    stages = fitting_stages(product, schedule, target)
    if tile_count(product, of_d) > target.sms:
        return schedule.with_fields(stages=stages, ctas=target.sms)
    turns = -(-product.k_tiles(schedule.cta[2]) // of_d.parts)
    return schedule.with_fields(stages=min(stages, max(LEAST_RING, turns)))


# Schedules of products of warpgroups, whose operands tensor copies bring to shared memory (sm_90a).
#
# One warpgroup copies, the others multiply; so a schedule says what a tile is and how many stages there are, and
# little of the loop. What `bench/hopper.py` found on an H200: tiles of 128x256 by two warpgroups are as fast as
# cuBLAS.

LEAST_PRODUCTS, FEW_ELEMENTS = 11 << 24, 1 << 18
"""Multiply-adds below which fragments in registers are as fast, of more elements of D than so many (H200: 512 is, 576
is not; 2048x512x256 takes 7.0 microseconds by fragments, 6.5 by warpgroups)."""

LEAST_DEEP = 1 << 30
"""The same of fewer elements and a long K (H200: 256x256x8192 11.4 and 12.5 microseconds, 512x512x4096 13.2 and
12.4)."""

LEAST_BATCHED = 1 << 25
"""The same of a batch, by `mma.sync` and by `wgmma` (H200, bf16, microseconds: 16 of 96 4.8 and 4.8, 16 of 160 6.3 and
5.8, 8 of 256 6.3 and 5.7, 8 of 384 8.8 and 7.6)."""

LEAST_PACKED = 1 << 31
"""The same where operands are packed first (H200: 1281 is as fast, 1535 by a tenth faster)."""

LEAST_PADDED = 1 << 21
"""Elements of D from which its rows are worth a launch that copies them (H200: 16.8 million in odd rows of 16 bits cost
57 microseconds, a launch that copies them about 20)."""

GROUP = 16
"""Rows of tiles walked together (H200, 8192: 785 TFLOP/s with 16, 700 with 8)."""

NARROW_GROUP, NARROW = 4, 12
"""The same where there are more rows of tiles than that, and no more than so many columns (H200: 3072x768x8192 685
TFLOP/s with 4, 577 with 16; 4096x1280x1280 583 and 521; 12608x768x3072 746 and 736)."""

PLAIN, MOST_PROMOTED = "none", 192
"""No sums are promoted; columns of a warpgroup's tile with room for both sums in registers, those of 128 bytes of K and
of all of it."""

MOST_PROMOTED_BY_THREE = 128
"""The same where three warpgroups multiply, each lane of which has 160 registers (ptxas 13.0, 192x160: 204 bytes of
spills)."""


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


def prepared(product: Product) -> dict[str, str]:
    """The fields that say what is done to the operands beside the product: A and B are transposed and packed where they
    must be, and D is padded where that pays."""
    transpose = _transposed(product)
    seen = laid_out(product, transpose)
    pads = product.m * product.n >= LEAST_PADDED and can_change(product.d) and product.d.element.bits in STAGED_BITS
    padded = "d" if pads and not_copied(product.d) else PLAIN
    return {"pack": _packed(seen), "transpose": transpose, "padded": padded}


def packs(product: Product, operand: MatrixOperand) -> bool:
    """Whether tensor copies can move an operand that is packed before."""
    whole = operand.element.memory_bits >= BYTE and row_bytes(operand) >= SHORTEST_PACKED_ROW
    return whole and operand.is_compact and product.metadata is None and not product.dynamic


def _packed(product: Product) -> str:
    """The operands that must be packed, as the field `pack` names them."""
    found = "".join(role for role, operand in (("a", product.a), ("b", product.b)) if not_copied(operand))
    return found or PLAIN


def pays(product: Product, target: Target) -> bool:
    """Whether warpgroups can multiply, and are worth their start."""
    if why_not(product, target, packed=True):
        return False
    if promotes(product, "f32") and product.is_known("k") and product.depth <= k_of(product):
        return False  # a single K tile, whose short sums nothing would be added to; fragments multiply f16
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
    return product.m > ROWS and product.m * product.n * product.depth * product.matrices >= least


def warpgroup_candidates(product: Product, target: Target, accumulate: str) -> Iterator[Schedule]:
    """Schedules for warpgroups that are worth trying, those that the model likes best first."""
    for schedule in schedules_by_cost(product, target, accumulate):
        groups = dict.fromkeys((schedule.group, GROUP, 8, 4))
        for group, staging in combinations(groups, dict.fromkeys((schedule.staging, 0))):
            yield schedule.with_fields(group=group, staging=staging)


def schedules_by_cost(product: Product, target: Target, accumulate: str) -> Iterator[Schedule]:
    """A schedule for each tile of warpgroups, the cheapest first."""
    if why_not(product, target, packed=True):
        return
    rows = {r.shape.n: r for r in warpgroup_rows(product) if r.d.name == accumulate and r.runs_on(target)}
    operands = prepared(product)
    pack, padded = operands["pack"], operands["padded"]
    product = laid_out(product, operands["transpose"], padded)
    held = (tile for tile in tiles_of(product, pack, target) if tile.n in rows)
    if promotes(product, accumulate):
        held = (tile for tile in held if tile.n <= (MOST_PROMOTED if tile.m <= 2 * ROWS else MOST_PROMOTED_BY_THREE))
    fitting = (tile for tile in held if not group_spills(product, tile.m, tile.n, padded=padded != PLAIN))
    for of_d in sorted(fitting, key=lambda tile: cost(product, tile, pack, target)):
        tile = {"cta": (of_d.m, of_d.n, k_of(product)), "warp": (ROWS, of_d.n), "mma": rows[of_d.n].shape}
        group = group_of(product, of_d)
        yield schedule_of_tile(product, of_d, accumulate, target, group=group, **tile, **operands)


def group_of(product: Product, tile: GroupTile) -> int:
    """Rows of tiles that are walked together."""
    narrow = product.m > tile.m * GROUP and product.n <= tile.n * NARROW
    return NARROW_GROUP if narrow else GROUP


def check_operands(schedule: Schedule, product: Product) -> None:
    """Checks that A and B, laid out as the schedule says, are multiplied where tensor copies bring them.

    Raises:
        ScheduleError: naming the operand that is not, or the instruction.
    """
    for operand, along_k in ((product.a, not product.a.transposed), (product.b, product.b.transposed)):
        if not along_k and operand.element.bits != 16:
            raise ScheduleError(f"{operand.name} of {operand.element.name} must lie along k; or transpose it")
    panel = panel_of_b(product, schedule.cta[1])
    if not product.b.transposed and schedule.cta[1] > schedule.mma.n and schedule.mma.n % panel:
        raise ScheduleError(
            f"with B by rows warpgroups side by side take multiples of {panel} columns, got {schedule.mma}"
        )
    for role, operand in (("a", product.a), ("b", product.b)):
        if role in roles(schedule.pack) and not packs(product, operand):
            raise ScheduleError(f"packing takes a single dense matrix of static size without gaps, got {operand.type}")
        if role not in roles(schedule.pack) and (reason := not_copied(operand)):
            raise ScheduleError(f"{operand.name} {reason}; or pack it")
