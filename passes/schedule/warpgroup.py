"""Schedules of products of warpgroups, and what they need (sm_90a)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product as combinations
from math import prod
from typing import Any

from ...dialect.isa.row import Target
from ...dialect.isa.tensor_map import MAX_BOX
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.isa.wgmma import Wgmma
from ...dialect.schedule import Schedule, ScheduleError, roles
from ...dialect.schedule.schedule import MIN_RING
from ...dialect.warp.attributes import BYTE
from ...dialect.warp.elements import M
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product, along_k, images_of, shared_bits
from . import needs
from .defaults import can_change, can_exchange, can_slice, is_ragged, laid_out, unknown_pitches
from .fitted import by_time, fills_sms, is_rated
from .model import WORD, not_packed
from .tensor_memory import why_no_pairs
from .warpgroup_model import (
    BY_WARPS,
    FEW_ROWS,
    GROUP,
    LINE,
    MANY_WEIGHTS,
    GroupTile,
    at_once,
    cost,
    group_of,
    has_small_groups,
    k_of,
    nanoseconds,
    panel_of_b,
    reads_weights,
    tile_count,
    tiles_of,
    tiles_of_blocks,
)

# What a schedule of warpgroups takes: its instruction, boxes that tensor copies move, shared memory, stages.


def row_of(product: Product, schedule: Schedule, target: Target) -> Wgmma:
    """The instruction of a schedule. Raises ScheduleError if there is none."""
    candidates = needs.warpgroup_rows(product, exchanged=schedule.exchanged)
    rows = [r for r in candidates if r.d.name == schedule.accumulate and needs.by_warpgroups(r, target)]
    for row in rows:
        if row.shape == schedule.mma:
            return row
    near = sorted({r.shape for r in rows}, key=lambda shape: abs(shape.n - schedule.mma.n))[:3]
    raise ScheduleError(
        f"{target} has no wgmma {schedule.mma} for {needs.multiplied(product)} accumulated in "
        f"{schedule.accumulate}; the nearest are {', '.join(map(str, sorted(near))) or 'none'}"
    )


def check_tiles(schedule: Schedule, product: Product) -> None:
    """Checks the tile of a warpgroup, and the tiles that tensor copies move. Raises ScheduleError if tiles do not match
    the instruction, K tiles are no whole lines of shared memory, tiles have more rows than a box, or rows of D cannot
    be staged so."""
    cta = schedule.cta
    rows, columns = schedule.covered
    tiles = [(rows, columns)]
    if can_pair(product, schedule):  # one instruction after the other
        tiles += [(2 * rows, columns), *[(rows, 2 * columns)][bool(product.block_scales) :]]
    if schedule.warp not in tiles:
        sizes = "x".join(map(str, schedule.covered))
        raise ScheduleError(f"a warpgroup multiplies tiles of {sizes}, got warp = {schedule.warp}")
    if cta[2] * shared_bits(product, product.a) // 8 % LINE:
        raise ScheduleError(f"K tiles of warpgroups are multiples of {LINE} bytes, got {cta[2]} elements")
    along = along_k(product, "a") and (product.b.packed or along_k(product, "b"))
    if max(cta[:2] if along else cta) > MAX_BOX:
        raise ScheduleError(f"a tensor copy moves at most {MAX_BOX} rows, got cta = {cta}")
    if schedule.staging not in (0, rows := needs.staged_part(product, schedule)[0]):
        raise ScheduleError(f"staging = {schedule.staging}: a warpgroup stages {rows} rows of D")
    if not schedule.staging and images_of(product.d):
        raise ScheduleError(f"staging = 0: tensor copies alone store pixels with others between them; use {rows}")


def can_pair(product: Product, schedule: Schedule) -> bool:
    """Whether a warpgroup may multiply tiles of twice its instruction's rows, or columns where blocks have no scales,
    one half after the other."""
    plain = can_exchange(product) and not schedule.exchanged and schedule.in_registers == PLAIN
    return bool(product.block_scales) or (plain and schedule.mma.m == ROWS and schedule.promote == PLAIN)


def schedule_of_tile(
    product: Product, tile: GroupTile, row: Wgmma, accumulate: str, target: Target, operands: Mapping[str, Any]
) -> Schedule:
    """The schedule of a tile, with as many stages as fit, for a CTA of a single tile no more than it has K tiles; CTAs
    that go from tile to tile where there are more than run at once; rows of D staged where tensor copies can store
    them. `operands` are the fields that say how A and B are prepared."""
    schedule = Schedule(
        cta=(tile.m, tile.n, tile.depth * k_of(product)),
        warp=(tile.m, ROWS) if tile.transposed else (max(tile.rows, row.shape.m), tile.n * ROWS // row.shape.m),
        mma=row.shape,
        stages=MIN_RING,
        group=group_of(product, tile, target),
        accumulate=accumulate,
        split_k=tile.parts,
        sync="mbarrier",
        promote="f32" if needs.promotes(product, accumulate, target) else PLAIN,
        cluster=tile.cluster,
        in_registers=tile.in_registers,
        multiplied="ba" if tile.exchanged else "ab",
        sliced_k=tile.slices,
        partial_sums="cluster" if tile.joined else "memory",
        consumers="pingpong" if _takes_turns(product, tile) else COOPERATIVE,
        **operands,
    )
    schedule = schedule.with_fields(staging=needs.staged_part(product, schedule)[0])
    stages = needs.fitting_stages(product, schedule, target)
    if tile.slices == 1 and (tile_count(product, tile) > (ctas := at_once(tile, target)) or product.op.grouped == M):
        parts = max(tile.parts, _tail_parts(product, schedule, ctas))
        if (product.blocks[1] or product.b.stored) and product.op.grouped is None and not product.dynamic:
            # As many turns, by fewer.
            count = tile_count(product, tile)
            ctas = -(-count // (-(-count // ctas) * tile.together)) * tile.together
        return schedule.with_fields(stages=stages, ctas=ctas, split_k=parts)
    turns = -(-product.k_tiles(schedule.cta[2]) // tile.parts)
    return schedule.with_fields(stages=min(stages, max(MIN_RING, turns)))


def _takes_turns(product: Product, tile: GroupTile) -> bool:
    """Whether consumers take turns: those of small groups, whose tiles are their own, and those that scale many sums
    of blocks."""
    small = tile.m == ROWS and product.op.grouped == M and has_small_groups(product)
    return small or (bool(product.blocks[1]) and tile.rows > ROWS)


TAIL_PARTS, LONG_TAIL, MANY_TURNS = 4, 96, 16
"""Parts of K of tiles of groups that are left behind the last full turn of CTAs, where tiles have so many K tiles, and
turns are fewer."""


def _tail_parts(product: Product, schedule: Schedule, ctas: int) -> int:
    """Parts of K of tiles that are left of groups of rows, whose ends say how many these are."""
    plain = product.c is product.second is None and not (product.initial or product.batch_invariant)
    plain = plain and product.op.grouped == M and product.is_known("k") and not schedule.own_tiles
    long = product.k_tiles(schedule.cta[2]) >= LONG_TAIL and product.tiles(*schedule.cta[:2]) < MANY_TURNS * ctas
    return TAIL_PARTS if plain and long else 1


MIN_PRODUCTS, FEW_ELEMENTS = 11 << 24, 1 << 18
"""Multiply-adds below which fragments in registers are as fast, of more elements of D than so many (H200: 512 is, 576
is not; 2048x512x256 takes 7.0 microseconds by fragments, 6.5 by warpgroups)."""

MIN_DEEP = 1 << 30
"""The same of fewer elements and a long K (H200, us: 256x256x8192 11.4 and 12.5, 512x512x4096 13.2 and 12.4)."""

MIN_BATCHED = 1 << 25
"""The same of a batch, by `mma.sync` and by `wgmma` (H200, us: 16 of 96 4.8 and 4.8, 8 of 384 8.8 and 7.6)."""

MIN_PACKED = 1 << 31
"""The same where operands are packed first (H200: 1281 is as fast, 1535 by a tenth faster)."""

MIN_PADDED = 1 << 21
"""Elements of D whose rows are worth a launch that copies them (H200: 16.8 million in odd rows cost 57 us, it 20)."""

COOPERATIVE = "cooperative"
"""Warpgroups multiply parts of one tile."""

PLAIN, MAX_PROMOTED = "none", 192
"""No sums are promoted; columns of a warpgroup's tile with room for both sums in registers, those of 128 bytes of K and
of all of it."""

MAX_PROMOTED_BY_THREE = 128
"""`MAX_PROMOTED` where three warpgroups multiply (ptxas 13.0, 192x160: 204 bytes of spills)."""

ROLES = ("b", "a", PLAIN)
"""Values of `in_registers`, the operand that warpgroups have there, if any. Of several that pay the first is chosen."""

OTHER = {"a": "b", "b": "a"}

MIN_ROWS, MIN_ALONG_K, MIN_ALONG_N = 64, 1 << 32, 1 << 29
"""Rows of D, and multiply-adds, from which on integers of B that lie along K or along N are converted faster so. Of 8
bits along K 64 rows are too few."""

MIN_STAGES, MIN_WIDTH = 4, 32
"""With an operand in registers: stages without which copies are not far enough ahead, of promoted sums for each line of
K; columns of the narrowest instruction."""


def why_not(product: Product, target: Target, role: str = PLAIN, *, packed: bool = True) -> str:
    """Why warpgroups cannot multiply a product, with this operand in registers; empty if they can.

    With `packed` operands may be packed or transposed first.
    """
    side_operands = product.scales or ((product.metadata,) if product.metadata is not None else ())
    in_blocks = needs.adds_in_tensor_memory(target) and bool(side_operands)
    if in_blocks and product.batch and (product.dynamic or any(o.dimensions[0] < len(o.batch) for o in side_operands)):
        return "scales and metadata of a batch are copied of matrices behind each other, of known size"
    if not needs.has_warpgroups(product, target, exchanged=role == "b"):
        return f"{target} has no wgmma for {needs.multiplied(product)}"
    if product.summed and not product.convolves:
        return "it is summed over several loops"
    if product.second is not None and role != PLAIN:
        return "a B of two matrices is multiplied where it lies"
    if role != PLAIN and needs.adds_in_tensor_memory(target):
        return f"{target} multiplies operands in registers by mma.sync alone"
    if product.block_scales and (role != PLAIN or product.blocks[2] != k_of(product)):
        return f"scales are for {k_of(product)} elements along k at a time, got {product.blocks[2]}"
    if role != PLAIN and (reason := _stays_in_memory(product, role)):
        return reason
    for name, operand in (("a", product.a), ("b", product.b)):
        if name in roles(_transposed(product, role)):
            if product.second is not None or not (packed and can_change(operand)):
                return f"{operand.name} of {operand.element.name} must lie along k"
        elif (reason := needs.not_boxed(product, operand)) and not (
            product.second is None and role == PLAIN and packed and packs(product, operand)
        ):
            return f"{operand.name} {reason}"
    if role != PLAIN and _both(product, role)[0].stored is None and needs.promotes(product, "f32", target):
        return "sums of 8-bit floats would be short; promote = none, or fastmath<afn> on the addition, allows that"
    return ""


def _stays_in_memory(product: Product, role: str) -> str:
    """Why an operand is not multiplied from registers; empty if it can be."""
    operand, _ = _both(product, role)
    if operand.stored is None and not _turns(product, role):
        lies = "along k " * along_k(product, role)
        return f"{operand.name} of {operand.element.name} {lies}is multiplied where it lies"
    if operand.packed:
        return ""
    if operand.stored is not None and operand.stored.element.bits < BYTE and not along_k(product, role):
        return f"integers of {operand.stored.element.bits} bits in rows along n are not converted for warpgroups"
    if product.group and not (operand.stored is not None and operand.stored.rounded and along_k(product, role)):
        return "the sums of groups that have scales are not those of warpgroups"
    return "A is sparse" if product.metadata is not None else ""


def _both(product: Product, role: str) -> tuple[MatrixOperand, MatrixOperand]:
    """The operand in registers and the other one."""
    return (product.a, product.b) if role == "a" else (product.b, product.a)


def _turns(product: Product, role: str) -> bool:
    """Whether an operand must lie along K, as all but elements of 16 bits must, and does not."""
    operand, _ = _both(product, role)
    return not along_k(product, role) and operand.element.bits != 16


def _transposed(product: Product, role: str) -> str:
    """The operands that must be transposed by a launch, as the field `transpose` has them. `role` is the operand in
    registers."""
    return "".join(each for each in "ab" if each != role and _turns(product, each)) or PLAIN


def prepared(product: Product, role: str, target: Target) -> dict[str, str]:
    """The fields of launches before and after the product: A and B are transposed and packed if necessary, and D is
    padded if that pays, and neither tensor copies nor lanes side by side can store it."""
    transpose = _transposed(product, role)
    if role != PLAIN:
        return {"transpose": transpose, "pack": PLAIN, "padded": PLAIN}
    large = product.m * product.n * WORD >= MIN_PADDED * min(WORD, product.d.access_bytes)
    pads = large and product.second is None and product.d.element.bits in needs.STAGED_BITS
    apart = needs.not_copied(product.d) and (needs.adds_in_tensor_memory(target) or not is_ragged(product))
    padded = "d" if pads and apart and can_change(product.d) else PLAIN
    return {"transpose": transpose, "pack": _packed(laid_out(product, transpose)), "padded": padded}


def packs(product: Product, operand: MatrixOperand) -> bool:
    """Whether tensor copies can move an operand that is packed before."""
    movable = (operand.element.memory_bits >= BYTE or bool(product.variant.kind)) and not not_packed(operand)
    return movable and product.metadata is None and not product.dynamic


def _packed(product: Product) -> str:
    """The operands that must be packed, as the field `pack` names them."""
    return "".join(role for role, o in (("a", product.a), ("b", product.b)) if needs.not_boxed(product, o)) or PLAIN


def pays(product: Product, target: Target, role: str) -> bool:
    """Whether products of warpgroups with this operand in registers are faster than the alternatives: fragments, where
    each row of tiles converts all of B again, and a separate launch that transposes the operand. If both operands must
    be transposed, the launch takes the smaller one."""
    if why_not(product, target, role):
        return False
    if product.convolves or product.variant.kind:
        return role == PLAIN  # of kinds no mma.sync is left where there is tensor memory
    transpose = _transposed(product, role)
    if product.second is not None:
        return product.m > 32  # fragments have both sums of an element in one lane in fewer tiles
    if product.batch_invariant and needs.sums_differ(product):
        return True  # one kind of instruction for every m
    if role == PLAIN:
        if needs.promotes(product, "f32", target) and product.is_known("k") and product.depth <= k_of(product):
            return False  # a single K tile, whose short sums nothing would be added to; fragments multiply f16
        compared = is_compared(product) or (reads_weights(product) and is_rated(product, PLAIN, target))
        return compared or is_large(product, laid_out=transpose != PLAIN or _packed(product) != PLAIN)
    operand, other = _both(product, role)
    if operand.packed or (operand.stored is not None and operand.element.bits == BYTE):
        return True  # nothing else reads it
    if needs.group_spills(product, GroupTile(MIN_WIDTH, MIN_WIDTH, in_registers=role)):
        return False
    if operand.stored is None:
        moved = transpose != PLAIN
        sizes = [prod(each.shape) * each.memory_bits for each in (operand, other)]
        larger = moved and sizes[1] > sizes[0] and not why_not(product, target, OTHER[role])
        return is_large(product, laid_out=moved) and not larger and not (role == "b" and unknown_pitches(product))
    if can_slice(product, role) and (product.m <= BY_WARPS or product.group):
        large = product.n * product.k >= MANY_WEIGHTS + (product.m <= FEW_ROWS)
        return large and (product.m > BY_WARPS or fills_sms(product, target))
    least = MIN_ALONG_K if product.b.transposed else MIN_ALONG_N
    rows = MIN_ROWS + (product.b.transposed and product.b.memory_bits == BYTE)
    return product.m >= rows and _products(product) >= least


def is_compared(product: Product) -> bool:
    """Whether a model says if warpgroups are faster than fragments, of a product that is not large: of single ones of
    16-bit floats as they lie."""
    if product.batch or product.summed or product.dynamic or product.second or product.convolves:
        return False
    plain = product.sparsity == 1 and product.b.stored is None and not reads_weights(product, above=0)
    return plain and product.a.element.bits == product.b.element.bits == 16


def _products(product: Product) -> int:
    return product.m * product.n * product.depth * product.matrices


def is_large(product: Product, *, laid_out: bool) -> bool:
    """Whether a product is large enough for warpgroups and fills most of a tile's rows. `laid_out` says that launches
    before it rearrange operands."""
    if laid_out:
        least = MIN_PACKED
    elif product.ends is not None or product.block_scales:
        return True
    elif product.batch:
        least = MIN_BATCHED
    else:
        least = MIN_PRODUCTS if product.m * product.n > FEW_ELEMENTS else MIN_DEEP
    return product.m > ROWS and _products(product) >= least


def declined(product: Product, target: Target) -> str:
    """Why an operand of a product that is large enough is not changed in registers of warpgroups, which the target has;
    empty if one is, or none need be."""
    if not (changed := [role for role in "ba" if _both(product, role)[0].stored is not None or _turns(product, role)]):
        return ""
    possible = needs.has_warpgroups(product, target, exchanged="b" in changed)
    if not possible or product.metadata is not None or product.m < MIN_ROWS or _products(product) < MIN_ALONG_N:
        return ""
    apart = "rows beside the sums are an unknown distance apart"
    is_apart = product.b.stored is None and unknown_pitches(product)
    reasons = {each: why_not(product, target, each) or (apart if each == "b" and is_apart else "") for each in changed}
    role, reason = next(iter(reasons.items()))
    return f"{role.upper()} in registers: {reason}" if all(reasons.values()) else ""


def _sides(product: Product, tile: GroupTile, rows: Mapping[tuple[int, int], Wgmma]) -> tuple[int, int]:
    """The rows and columns of a warpgroup's instruction: 128 rows and half of the columns if there is such a row,
    otherwise 64 rows, and half of the columns where three warpgroups have no registers for an instruction of all. Two
    products that share A stay in one warpgroup."""
    doubled = 2 * ROWS, tile.n // 2
    if tile.m == 2 * ROWS and tile.in_registers == PLAIN and product.second is None and doubled in rows:
        return doubled
    return ROWS, tile.width // (2 if tile.by_halves else 1)


MAX_ADDED = 128
"""Columns of the sums of a warpgroup, of 128 rows: with both of a tile of 128x256 ptxas 13.5 spills nothing."""


def _in_tensor_memory(
    product: Product, tiles: Iterable[GroupTile], rows: Mapping[tuple[int, int], Wgmma], target: Target
) -> Iterator[GroupTile]:
    """The tiles to consider for tensor memory, in pairs of CTAs where these multiply together; each of a pair copies
    half of B."""
    for tile in tiles:
        high, wide = _sides(product, tile, rows)
        if (product.scales or product.metadata is not None) and high != tile.m:
            continue
        if product.metadata is not None:
            tile = tile._replace(depth=2)
        if tile.exchanged or tile.cluster != (1, 1) or tile.m > 2 * ROWS or wide > MAX_ADDED:
            continue  # of 192 rows there is no instruction
        pairs = high == tile.m and tile.parts == 1 and product.m > tile.m
        pairs = pairs and target.sms % 2 == 0 and product.op.grouped is None
        yield tile._replace(cluster=(2, 1)) if pairs and not why_no_pairs(product, tile.m, tile.n) else tile


def candidates(product: Product, target: Target, accumulate: str, role: str) -> Iterator[Schedule]:
    """Schedules of warpgroups with this operand in registers, by the cost that the model expects."""
    for schedule in schedules_by_cost(product, target, accumulate, role, measured=True):
        groups = dict.fromkeys((schedule.group, GROUP, 8, 4) if role == PLAIN else (schedule.group,))
        stagings = dict.fromkeys((schedule.staging, 0) if role == PLAIN else (schedule.staging,))
        for group, staging in combinations(groups, stagings):
            yield schedule.with_fields(group=group, staging=staging)


def schedules_by_cost(
    product: Product, target: Target, accumulate: str, role: str, *, measured: bool = False
) -> Iterator[Schedule]:
    """A schedule for each tile, the cheapest first; of more tiles where they are to be `measured`."""
    if why_not(product, target, role):
        return
    every = needs.warpgroup_rows(product, exchanged=role == "b")
    rows = {r.shape[:2]: r for r in every if r.d.name == accumulate and needs.by_warpgroups(r, target)}
    operands = prepared(product, role, target)
    product = laid_out(product, operands["transpose"], operands["padded"])
    every_tile = tiles_of(product, operands["pack"], target, role, measured=measured)
    tiles = [tile for tile in every_tile if _sides(product, tile, rows) in rows]
    if promoted := needs.promotes(product, accumulate, target):
        tiles = [t for t in tiles if t.width <= (MAX_PROMOTED if t.groups <= 2 else MAX_PROMOTED_BY_THREE)]
    if needs.adds_in_tensor_memory(target):
        tiles = list(_in_tensor_memory(product, tiles, rows, target))
    if product.blocks[1]:
        tiles = tiles_of_blocks(product, tiles, target)
    if product.b.packed or (promoted and role == "b"):
        # A single warpgroup converts while the tensor cores wait.
        tiles = [t for t in tiles if t.groups > 1 or tile_count(product, t) <= target.sms] or tiles
    if has_small_groups(product):
        tiles = [t for t in tiles if (t.m, t.n) == (ROWS, needs.MAX_GROUP_COLUMNS)] or tiles
    if product.products > 1 and product.m <= ROWS and product.n * product.k >= MANY_WEIGHTS:  # for which they wait
        tiles = [tile._replace(depth=2) for tile in tiles if tile.n <= 2 * ROWS] or tiles
    fitting = (tile for tile in tiles if not needs.group_spills(product, tile, padded=operands["padded"] != PLAIN))
    for tile in by_time(product, fitting, operands["pack"], target):
        schedule = schedule_of_tile(product, tile, rows[_sides(product, tile, rows)], accumulate, target, operands)
        lines = (tile.depth if promoted else 1) * needs.fitting_stages(product, schedule, target)
        if (role == PLAIN or lines >= MIN_STAGES) and needs.shared_bytes(product, schedule) <= target.shared:
            yield schedule


def time_of(product: Product, schedule: Schedule, target: Target) -> float:
    """The nanoseconds that the model expects of a schedule of warpgroups, without launches that change operands."""
    return nanoseconds(cost(product, GroupTile.of(schedule), schedule.pack, target), target)


def by_warpgroups(product: Product, target: Target, accumulate: str, asked: str) -> Schedule | None:
    """The schedule of warpgroups that the model likes best; None if none pays.

    `asked` is the operand in registers that is asked for, or empty. Raises ScheduleError if warpgroups cannot multiply
    the product as is asked for.
    """
    if asked == PLAIN and product.b.stored is not None:
        asked = "b"
    role = asked or next((role for role in ROLES if pays(product, target, role)), "")
    chosen = next(schedules_by_cost(product, target, accumulate, role), None) if role else None
    if asked and chosen is None:
        with_operand = "" if asked == PLAIN else f" with in_registers = {asked}"
        reason = why_not(product, target, asked) or f"{target} has none accumulated in {accumulate}"
        raise ScheduleError(f"warpgroups cannot multiply this product{with_operand}: {reason}")
    return chosen


def check_operands(schedule: Schedule, product: Product) -> None:
    """Checks that A and B, laid out as the schedule says, are multiplied where tensor copies bring them, or in
    registers. Raises ScheduleError, naming the operand that is not, the field that does not fit, or the instruction."""
    role = schedule.in_registers
    if schedule.multiplied != "ab" and not (role == PLAIN and schedule.mma.m == ROWS and can_exchange(product)):
        raise ScheduleError("multiplied = ba takes two dense operands in shared memory, no blocks, images, or second B")
    if role != PLAIN:
        _check_in_registers(schedule, product, role)
    if turned := [_both(product, each)[0] for each in "ab" if each != role and _turns(product, each)]:
        raise ScheduleError(f"{turned[0].name} of {turned[0].element.name} must lie along k; or transpose it")
    if role == PLAIN:
        _check_in_shared_memory(schedule, product)


def _check_in_registers(schedule: Schedule, product: Product, role: str) -> None:
    in_registers, (_, other) = f"{role.upper()} in registers", _both(product, role)
    if schedule.consumers != COOPERATIVE:
        raise ScheduleError(f"consumers = {schedule.consumers}: with {in_registers} none take turns")
    takes = {"transpose": OTHER[role]} if other.element.bits != 16 else {}
    for name in ("pack", "transpose", "padded"):
        if (value := schedule[name]) not in (PLAIN, takes.get(name)):
            raise ScheduleError(f"{name} = {value}: {in_registers} takes operands as they lie")


def _check_in_shared_memory(schedule: Schedule, product: Product) -> None:
    panel, columns = panel_of_b(product, schedule.cta[1]), schedule.covered[1]
    shared = schedule.mma.m > ROWS  # one instruction has the columns of all
    if not (product.b.transposed or shared) and schedule.cta[1] > columns and columns % panel:
        raise ScheduleError(
            f"with B by rows warpgroups side by side take multiples of {panel} columns, got {schedule.mma}"
        )
    for role, operand in (("a", product.a), ("b", product.b)):
        if role in roles(schedule.pack) and not packs(product, operand):
            raise ScheduleError(f"packing takes a single dense matrix of static size without gaps, got {operand.type}")
        if role not in roles(schedule.pack) and (reason := needs.not_boxed(product, operand)):
            raise ScheduleError(f"{operand.name} {reason}; or pack it")
