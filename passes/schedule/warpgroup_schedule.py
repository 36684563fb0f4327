"""The schedules of products of warpgroups, the fastest first: what their model says, and what a fit says of its errors.

The errors depend on what tiles are like more than on any constant of the models, and differ by tenths where the times
of the better tiles differ by hundredths. So the logarithm of a time is corrected by a sum of products of two features,
of fragments as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import product as combinations
from math import gcd, log2, prod
from typing import Any

from ...dialect.isa.form import FP8
from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import WARPGROUP_SM, Wgmma
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.schedule import Schedule, ScheduleError, roles
from ...dialect.schedule.schedule import MIN_RING
from ...dialect.warp.attributes import BYTE
from ...dialect.warp.elements import M
from ..linalg.operand import WIDEST
from ..linalg.product import Product, along_k
from . import needs
from .defaults import SECTOR, can_slice, first_fitting, is_plain, laid_out, matrices, unknown_pitches
from .model import Tile, laying_out
from .warpgroup import (
    COOPERATIVE,
    MAX_PROMOTED,
    PLAIN,
    check_warpgroup,
    must_turn,
    prepared,
    split_operands,
    why_no_pairs,
    why_not,
)
from .warpgroup_model import (
    BY_WARPS,
    FEW_ROWS,
    GROUP,
    MANY_WEIGHTS,
    PAIR,
    GroupTile,
    across_lines,
    at_once,
    cost,
    group_of,
    has_small_groups,
    k_of,
    nanoseconds,
    read_bytes,
    reads_weights,
    tile_count,
    tiles_of,
    tiles_of_blocks,
)


def _read(text: str) -> dict[tuple[str, ...], float]:
    terms = (term.split() for term in text.split(","))
    return {tuple(names.split("*")): float(weight) for names, weight in terms}


WEIGHTS = _read("""
    time -.5226, many*turns .0356, area .0735, joined -.1391, along*full -.0057, shallow*shallow -.0152, area*area
    .0129, area*fragments .0096, fragments*time -.0473, beyond*full .0934, shared*shared -.0004, full*time -.0469,
    cut*many .0988, area*cut .0313, beyond*pairs .0396, aspect*fragments -.0141, joined*time .0223, fragments*turns
    -.0081, full*shallow .1182, beyond*fragments -.0826, along*exchanged .0059, arriving*fragments -.0752, arriving*full
    .0335, area*turns .0027, arriving*shallow .0447, aspect*wide .0039, aspect*aspect .0095, arriving*beyond -.0096,
    fours*time -.0023, along*pairs -.0049, arriving*fours .0487, exchanged*joined .0298, aspect*exchanged .0122,
    area*exchanged -.0086, shallow*shared .0021, along*shared -.0005, area*time -.0022, fours*many .0431,
    exchanged*shallow -.0748, turns*turns .0403, time*turns -.0583, time*time .0417, cut*cut -.0163, cut*full .0339,
    fragments*many .0971, shallow*time -.0427, many*shallow .0538, fragments .0714, area*shallow .0305, eights*time
    -.0181, area*fours .0254, area*joined -.0113, beyond*cut -.0168, cut*fours .0197, arriving -.0272, arriving*cut
    .0178, along*along .0001, pairs*time -.0074, pairs .0125, aspect*turns -.0016
""")
"""Of products of features, fitted to the times of 12,700 schedules of 2,010 sizes, relative to those of the same size,
of which an H200's weigh four times an H100's (`python bench/fit.py` moves them by both files)."""

NEAR, MAX_READ, THIN_READ = 1.5, 64 << 20, 512 << 20
"""How many times the least time of the model a tile may take; bytes of A and B in whole lines, where nearly all that is
larger was measured with the defaults of the models alone, and of 17 to 32 rows."""

SHARED_K, MAX_ACROSS = 192, 6.0
"""Elements of K below which it counts whether rows begin within one, beside who shares in a cluster the operand that
all SMs ask for; and the power of two up to which a side of D has more tiles than the other."""

MEAN_NS, MEAN_TURNS, MEAN_AREA, MAX = 8000, 16, 1 << 13, 4.0
"""What features are relative to, as powers of two: nanoseconds, K tiles of a CTA, elements of a tile. And the most of
such a power beyond."""


def is_rated(product: Product, packed: str, target: Target) -> bool:
    """Whether a product is of the kind that was measured: of 16 bits (bf16, whose times f16 has) along K in rows of
    whole accesses, and of lines no more than L2 has room for, of 17 to 32 rows up to `THIN_READ`. Others,
    and all with the constants of another device (`warploom tune --device`), have the models alone."""
    along = along_k(product, "a") and along_k(product, "b") and not product.batch_invariant
    aligned = all(operand.access_bytes == WIDEST for operand in (product.a, product.b, product.d))
    if not (along and aligned and is_plain(product, packed) and target.sm == WARPGROUP_SM and not target.timing):
        return False
    return across_lines(product, packed) or read_bytes(product) <= (THIN_READ if reads_weights(product) else MAX_READ)


def by_time(product: Product, tiles: Iterable[GroupTile], packed: str, target: Target) -> list[GroupTile]:
    """Tiles of warpgroups, the fastest first. Of convolutions in several waves whose costs are equal, those that share
    filters come first; tiles of one wave ask for the same at once."""
    costs = {tile: cost(product, tile, packed, target) for tile in tiles}
    several = {tile for tile in costs if product.convolves and tile_count(product, tile) > at_once(tile, target)}
    order = sorted(costs, key=lambda tile: (costs[tile], -tile.cluster[0] if tile in several else 0))
    if not order or not is_rated(product, packed, target):
        return order
    near = [tile for tile in order if costs[tile] <= NEAR * costs[order[0]]]
    ratings = {tile: rated(product, tile, nanoseconds(costs[tile], target), target) for tile in near}
    return [*sorted(near, key=ratings.__getitem__), *order[len(near) :]]


def tile_of(schedule: Schedule) -> GroupTile | Tile:
    """The tile of a schedule."""
    if schedule.together == 1:
        return Tile(schedule.cta[:2], schedule.warp, schedule.cta[2], schedule.sliced_k)
    return GroupTile.of(schedule)


def features(product: Product, tile: GroupTile | Tile, ns: float, target: Target) -> dict[str, float]:
    """What times depend on beside the model's nanoseconds; what is 0 is left out."""
    m, n, k, values = product.m, product.n, product.k, {"time": log2(ns / MEAN_NS)}
    groups = tile if isinstance(tile, GroupTile) else GroupTile(*tile.cta)
    (high, wide), together = groups.cluster, prod(groups.cluster)
    ctas = product.tiles(groups.m * high, groups.n * wide) * together * groups.parts
    waves = -(-ctas // (at_once(groups, target) if tile is groups else target.sms))
    flags = {
        "many": waves > 1,
        "joined": groups.joined,
        "pairs": together == PAIR,
        "fours": together == PAIR * PAIR,
        "eights": together > PAIR * PAIR,
    }
    if isinstance(tile, Tile):
        flags["fragments"] = True
    else:
        flags["exchanged"] = tile.exchanged
        values["shallow"] = max(0.0, log2(k_of(product) / k))
        across = max(-MAX_ACROSS, min(MAX_ACROSS, log2(n * groups.m / (m * groups.n))))
        values["shared"] = log2(wide / high) * across
        if any(operand.pitch_bits % (8 * SECTOR) for operand in (product.a, product.b)):
            values["along"] = max(0.0, log2(SHARED_K / k)) * values["shared"]
    covered = ctas // groups.parts * groups.m * groups.n
    powers = {
        "turns": k / (k_of(product) * groups.parts) / MEAN_TURNS,
        "area": groups.m * groups.n / MEAN_AREA,
        "aspect": groups.m / groups.n,
        "wide": n / m,
        "cut": groups.parts,
        "arriving": (groups.m / wide + groups.n / high) * ROWS / (groups.m * groups.n),
    }
    values |= {name: 1.0 for name, holds in flags.items() if holds}
    values |= {name: max(-MAX, min(MAX, log2(value))) for name, value in powers.items()}
    return values | {"full": ctas / waves / target.sms, "beyond": min(1.0, covered / (m * n) - 1)}


def rated(product: Product, tile: GroupTile | Tile, ns: float, target: Target) -> float:
    """The logarithm of the time that is expected of a tile, to which a model gives so many nanoseconds, up to what is
    the same for all tiles of a product."""
    return log2(ns) + correction(features(product, tile, ns, target), WEIGHTS)


def correction(values: Mapping[str, float], weights: Mapping[tuple[str, ...], float]) -> float:
    """The logarithm of a time over the model's, by weights of products of features."""
    return sum(weight * prod(values.get(name, 0.0) for name in names) for names, weight in weights.items())


def fills_sms(product: Product, target: Target) -> bool:
    """Whether tiles of weights of few rows leave at most a quarter of the SMs idle, or fragments would read scales of
    groups in global memory."""
    narrow, wide = (product.tiles(ROWS, columns) for columns in (ROWS, 2 * ROWS))
    tiles = narrow if narrow <= target.sms else wide
    apart = product.group > 0 and product.k // product.group % 8 > 0
    return apart or 4 * tiles >= 3 * -(-tiles // target.sms) * target.sms


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


MIN_PACKED = 1 << 31
"""Multiply-adds of a product of dynamic sizes from which on it is faster to copy its operands to aligned rows first."""

MAX_PROMOTED_BY_THREE = 128
"""`MAX_PROMOTED` where three warpgroups multiply (ptxas 13.0, 192x160: 204 bytes of spills)."""

ROLES = ("b", "a", PLAIN)
"""Values of `in_registers`, the operand that warpgroups have there, if any."""

MIN_ROWS, MIN_ALONG_K, MIN_ALONG_N = 64, 1 << 32, 1 << 29
"""Rows of D, and multiply-adds, from which on integers of B that lie along K or along N are converted faster so. Of 8
bits along K 64 rows are too few."""

TURNED_NS, LATE_NS = 0.016, 600
"""Nanoseconds of an element that a launch transposes, if elements of K are stored one at a time; and by how much later
warpgroups end than the model says with an operand in registers, and with up to `MIN_RING` K tiles but of 16 bits."""

MIN_STAGES, MIN_WIDTH = 4, 32
"""With an operand in registers: stages without which copies are not far enough ahead, of promoted sums for each line of
K; columns of the narrowest instruction."""


def may_pay(product: Product, target: Target, role: str) -> bool:
    """Whether products of warpgroups with this operand in registers may be the fastest: times say if they are, but of
    integers that are converted, and where fragments give other sums, or none."""
    if why_not(product, target, role):
        return False
    if product.convolves or product.variant.kind or product.block_scales:
        return role == PLAIN  # fragments do not multiply them
    if product.second is not None:
        return product.m > 32  # fragments have both sums of an element in one lane in fewer tiles
    if product.batch_invariant and needs.sums_differ(product):
        return True  # one kind of instruction for every m
    if role == PLAIN:
        if needs.promotes(product, "f32", target) and product.is_known("k") and product.depth <= k_of(product):
            return False  # a single K tile, whose short sums nothing would be added to; fragments multiply f16
        short = bool(product.dynamic) and product.m <= ROWS
        few = product.ends is None and (short or reads_weights(product, above=0))
        return not few or (product.m > BY_WARPS and is_rated(product, PLAIN, target))
    operand, _ = split_operands(product, role)
    if operand.packed or (operand.stored is not None and operand.element.bits == BYTE):
        return True  # nothing else reads it
    if group_spills(product, GroupTile(MIN_WIDTH, MIN_WIDTH, in_registers=role)):
        return False
    if operand.stored is None:
        return not (role == "b" and unknown_pitches(product))
    if can_slice(product, role) and (product.m <= BY_WARPS or product.group):
        large = product.n * product.k >= MANY_WEIGHTS + (product.m <= FEW_ROWS)
        return large and (product.m > BY_WARPS or fills_sms(product, target))
    least = MIN_ALONG_K if product.b.transposed else MIN_ALONG_N
    rows = MIN_ROWS + (product.b.transposed and product.b.memory_bits == BYTE)
    return product.m >= rows and _products(product) >= least


def is_compared(product: Product) -> bool:
    """Whether times say if warpgroups are faster than fragments: not of what fragments do not multiply, or with other
    sums, of groups, of two B, of converted integers, of few rows by many weights, nor of sparse 8-bit floats."""
    alone = product.convolves or product.variant.kind or product.block_scales or product.ends is not None
    alone = alone or product.second or product.b.stored or (product.sparsity > 1 and product.a.element.name in FP8)
    return not (alone or reads_weights(product) or (product.batch_invariant and needs.sums_differ(product)))


def _products(product: Product) -> int:
    return product.m * product.n * product.depth * product.matrices


def declined(product: Product, target: Target) -> str:
    """Why an operand of a product that is large enough is not changed in registers of warpgroups, which the target has;
    empty if one is, or none need be."""
    operands = zip("ba", (product.b, product.a), strict=True)
    changed = [role for role, operand in operands if operand.stored is not None or must_turn(product, role)]
    if not changed:
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


def group_spills(product: Product, tile: GroupTile, *, padded: bool = False) -> bool:
    """Whether ptxas spills in the epilogue of warpgroups: of 128 rows beside more than 160 columns; with any of
    `FUNCTIONS`, by three that multiply `by_halves`, beside results of 32 bits of an A in registers, and beside more
    than 224 rows of D of a B in registers, with a logarithm and a matrix 128; with these two, beside 256 columns where
    rows of D are `padded`; and beside 256 columns of such an A where the distance of rows is unknown."""
    costly, width = needs.functions(product), tile.width
    crowded = "math.log" in costly and bool(matrices(product))
    if tile.in_registers == "a":
        return product.d.element.bits > needs.SHORT and (bool(costly) or (bool(product.dynamic) and width > 224))
    if tile.in_registers == "b":
        return bool(costly) and width > (128 if crowded else 224)
    if product.op.epilogue is not None and tile.rows > ROWS:
        return width > 160
    return (bool(costly) and tile.by_halves) or (padded and width == needs.MAX_GROUP_COLUMNS and crowded)


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
    fitting = (tile for tile in tiles if not group_spills(product, tile, padded=operands["padded"] != PLAIN))
    for tile in by_time(product, fitting, operands["pack"], target):
        schedule = schedule_of_tile(product, tile, rows[_sides(product, tile, rows)], accumulate, target, operands)
        lines = (tile.depth if promoted else 1) * needs.fitting_stages(product, schedule, target)
        if (role == PLAIN or lines >= MIN_STAGES) and needs.shared_bytes(product, schedule) <= target.shared:
            yield schedule


def time_of(product: Product, schedule: Schedule, target: Target) -> float:
    """The nanoseconds that the model expects of a schedule of warpgroups, and of launches that change operands."""
    seen, turned = laid_out(product, schedule.transpose, schedule.padded), roles(schedule.transpose)
    tile = GroupTile.of(schedule)._replace(depth=schedule.cta[2] // k_of(seen))
    taken = nanoseconds(cost(seen, tile, schedule.pack, target), target)
    if schedule.transpose == schedule.pack == schedule.padded == PLAIN:
        return taken
    elements = sum(prod(o.shape) for role, o in (("a", product.a), ("b", product.b)) if role in turned)
    one_by_one = TURNED_NS * elements * (1 / gcd(product.k, WIDEST) - 1 / WIDEST)
    before = laying_out(product, schedule.transpose, PLAIN, target) + one_by_one
    return taken + before + laying_out(seen, schedule.pack, schedule.padded, target)


def expected(product: Product, schedule: Schedule, ns: float, target: Target) -> float:
    """The nanoseconds that are expected of a schedule to which a model gives `ns`, with what is known of its errors."""
    if is_rated(product, schedule.pack, target):
        return 2 ** rated(product, tile_of(schedule), ns, target)
    few = product.a.element.bits != 16 and product.k_tiles(schedule.cta[2]) <= MIN_RING
    return ns + LATE_NS * (schedule.together > 1) * (few + (schedule.in_registers != PLAIN))


FRAGMENTS_PER_NS = 1700
"""Multiply-adds of 16 bits of an SM in a nanosecond, which the model of fragments nowhere exceeds."""


def outpaces(product: Product, schedule: Schedule, target: Target) -> bool:
    """Whether a schedule of warpgroups ends before fragments could have multiplied."""
    per_ns = FRAGMENTS_PER_NS * target.sms * (1.5 if product.sparsity > 1 else 1.0)
    return _products(product) * product.a.element.bits / 16 / per_ns > time_of(product, schedule, target)


def by_warpgroups(product: Product, target: Target, accumulate: str, asked: str) -> Schedule | None:
    """The schedule of warpgroups that the model likes best; None if none may pay.

    `asked` is the operand in registers that is asked for, or empty. Raises ScheduleError if warpgroups cannot multiply
    the product as is asked for.
    """
    if asked == PLAIN and product.b.stored is not None:
        asked = "b"
    tried = [asked] if asked else [role for role in ROLES if may_pay(product, target, role)]
    every = [
        first_fitting(
            schedules_by_cost(product, target, accumulate, role),
            partial(check_warpgroup, product=product, target=target),
        )
        for role in tried
    ]
    times = {each: expected(product, each, time_of(product, each, target), target) for each in every if each}
    chosen = min(times, key=times.__getitem__, default=None)
    if asked and chosen is None:
        with_operand = "" if asked == PLAIN else f" with in_registers = {asked}"
        reason = why_not(product, target, asked) or f"{target} has none accumulated in {accumulate}"
        raise ScheduleError(f"warpgroups cannot multiply this product{with_operand}: {reason}")
    return chosen
