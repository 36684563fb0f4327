"""Which tiles a product of rows along K gets: what the two models say, and what a fit says of their errors.

The errors depend on what tiles are like more than on any constant of the models, and differ by tenths where the times
of the better tiles differ by hundredths. So the logarithm of a time is corrected by a sum of products of two features.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log2, prod

from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import WARPGROUP_SM
from ...dialect.schedule import Schedule
from ..linalg.operand import WIDEST
from ..linalg.product import Product, along_k
from .defaults import SECTOR, is_plain
from .model import Tile
from .warpgroup_model import (
    PAIR,
    ROWS,
    GroupTile,
    across_lines,
    at_once,
    cost,
    k_of,
    nanoseconds,
    read_bytes,
    reads_weights,
    tile_count,
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
