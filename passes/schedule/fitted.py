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
from ..linalg.product import Product, along_k
from .defaults import SECTOR, is_plain
from .model import WIDEST, Tile, access_bytes
from .warpgroup_model import (
    EXCHANGED_STEP,
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
    time -.3826, area .0473, many*turns .0255, joined -.0992, arriving*full .1186, pairs*whole .0755, beyond*pairs
    .0266, arriving*small -.0124, area*cut .0132, eights .0410, full*parts .0190, fragments*time -.1340, area*large
    .0686, fragments*turns .0724, many*short .0406, beyond*full .0914, sliced*stored .0033, fragments*many .1272,
    eights*time -.0313, joined*whole -.0545, arriving*whole -.0438, exchanged*stored -.0012, turns*turns .0206,
    time*time .0213, area*full .0587, arriving -.0432, full*time -.0838, read*time -.0052, large .0441, aspect*aspect
    .0091, aspect*short .0245, area*short -.0143, sliced*turns -.0297, sliced*small -.0857, area*joined -.0666,
    area*fragments .0392, joined*time .0505, short*turns .0121, short*time -.0297, fours*time .0105, aspect*many .0119,
    read*short .0060, eights*turns .0249, exchanged*joined .0287, arriving*joined -.0494, beyond*fragments -.0651, fours
    -.0132, area*many -.0226, stored*tall .0156, aspect*sliced -.0673, large*read .0174, cut*time .0651, full*stored
    -.0077, eights*read -.0095, arriving*time .0018, beyond*many .0778, area*read .0200, joined*read -.0225, stored*time
    .0475, time*turns .0356, arriving*cut -.0171, area*time -.0272, full*read .0319, beyond*read -.0238, beyond*time
    .0347, fragments .0406, beyond*cut -.0172, parts .0359, full*small -.0852, parts*read -.0084, area*small -.0306,
    aspect*whole .0069, full*sliced -.0580, fragments*full .0536, large*many .0684, short*stored -.0047, area*area
    .0052, many*read .0192, arriving*read .0132, arriving*turns -.0079, shallow .0800, within -.0200, along -.0040
""")
"""Of products of features, fitted to the times of 5,200 schedules of 840 sizes, relative to those of the same size
(`bench/schedules-h100.json`). `shallow`, how much deeper than K a K tile of warpgroups is, which is copied and
multiplied as a whole, `within` and `along` (below): of 267 sizes (H200)."""

LONG_WEIGHTS = _read("""
    time -.4178, area .0702, many*turns -.0047, joined -.0971, along -.0125, shallow*shallow .0293, area*large .0563,
    read*time -.0692, within*within -.0189, area*area .0096, beyond*pairs .0409, aspect*sliced -.0410, shared*shared
    -.0004, beyond*full .0714, fragments*stored .0041, full*shallow .0879, cut*many .0589, full*time -.0093, time*time
    .0569, arriving*within .0560, fragments*time -.0428, joined*time .0252, area*turns -.0089, along*read -.0023,
    along*exchanged .0059, area*time -.0050, full*parts .0314, aspect*wide .0041, beyond*fragments -.0295, aspect*aspect
    .0091, turns*turns .0231, many*read .0396, joined*read -.0140, area*short -.0253, aspect*short .0229, read*short
    .0144, full*turns -.0355, cut*cut -.0138, stored*time .0287, pairs*whole .0589, beyond*large -.0982,
    exchanged*joined .0266, short*time -.0139, along*pairs -.0020, eights*time -.0377, cut*time .0339, area*within
    .0209, shallow*time -.0210, aspect*fragments -.0058, parts*turns -.0178, fragments*many .1025, arriving*fragments
    -.0271, many*within .0304, fours*many .0381, arriving*fours .0723, area*fours .0412, cut*fours .0153,
    arriving*beyond -.0136, parts*whole .0555, exchanged*shallow -.0542, time*wide .0068, along*wide -.0002,
    arriving*read .0149, along*arriving -.0031, along*stored -.0006, large*turns -.0237, large*wide -.0060, cut*wide
    .0028, parts*short -.0199, fragments*wide .0042, large*stored -.0117, arriving*time -.0286, arriving*large -.0677,
    many -.0459, along*time -.0015, area*read .0069, aspect*pairs -.0042, arriving*stored .0043, fours*time -.0161,
    pairs*time -.0089
""")
"""The same where all sides are long, fitted to the times of 9,900 schedules of 1,320 sizes, of which an H200's weigh
four times an H100's (`python bench/fit.py` makes them of both files). Of the time by `WEIGHTS` (H200, fresh sizes whose
tile is another): 120 that are long 0.994, 297 others 1.013; of cuBLAS below 0.90 five of 598, by `WEIGHTS` nine."""

LONG_SIDE, LONG_K = 128, 64
"""Rows and columns of D, more than which, and K, from which on, `LONG_WEIGHTS` are taken."""

NEAR, MAX_READ, THIN_READ = 1.5, 64 << 20, 512 << 20
"""How many times the least time of the model a tile may take; bytes of A and B in whole lines, where nearly all that is
larger was measured with the defaults of the models alone, and of 17 to 32 rows (H200, 17x57344x8192 1.29 times)."""

SHARED_K, MAX_ACROSS = 192, 6.0
"""Elements of K below which it counts whether rows begin within one, beside who shares in a cluster the operand that
all SMs ask for; and the power of two up to which a side of D has more tiles than the other. H200, microseconds of
112x15536x40 in tiles of 64x128: 6.6, in 2x1 6.0, in 1x2, which ask for a row of A half as often, 4.7; of 9632x192x24
9.0, 5.1, 8.3; rows of whole sectors differ less (9720x232x160 5.8, 6.3, 5.9)."""

MEAN_NS, MEAN_TURNS, MEAN_AREA, MEAN_BYTES, MAX = 8000, 16, 1 << 13, 1 << 22, 4.0
"""What features are relative to, as powers of two: nanoseconds, K tiles of a CTA, elements of a tile, bytes of A and
B. And the most of such a power beyond."""


def is_rated(product: Product, packed: str, target: Target) -> bool:
    """Whether a product is of the kind that was measured: of 16 bits (bf16, whose times f16 has) along K in rows of
    whole accesses, and of lines no more than L2 has room for, of 17 to 32 rows up to `THIN_READ`. Others,
    and all with the constants of another device (`warploom tune --device`), have the models alone."""
    along = along_k(product, "a") and along_k(product, "b") and not product.batch_invariant
    aligned = all(access_bytes(operand) == WIDEST for operand in (product.a, product.b, product.d))
    if not (along and aligned and is_plain(product, packed) and target.sm == WARPGROUP_SM and not target.timing):
        return False
    return across_lines(product, packed) or read_bytes(product) <= (THIN_READ if reads_weights(product) else MAX_READ)


def by_time(product: Product, tiles: Iterable[GroupTile], packed: str, target: Target) -> list[GroupTile]:
    """Tiles of warpgroups, the fastest first. Of convolutions in several waves whose costs are equal, those that share
    filters come first (H200, 7x7 of 64x224x224 pixels of three channels in steps of two: 272 microseconds for 348);
    tiles of one wave ask for the same at once (3x3 of 64x7x7 pixels by data: 4.8 for 4.4)."""
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
        "whole": not across_lines(product, "none"),
        "joined": groups.joined,
        "parts": groups.parts > 1 and not groups.joined,
        "pairs": together == PAIR,
        "fours": together == PAIR * PAIR,
        "eights": together > PAIR * PAIR,
    }
    if isinstance(tile, Tile):
        elements = prod(tile.warp)
        flags |= {"fragments": True, "sliced": tile.sliced_k > 1, "small": elements <= 256, "large": elements >= 2048}
    else:
        flags |= {"exchanged": tile.exchanged, "tall": tile.rows > ROWS}
        flags["short"] = tile.exchanged and tile.m % (2 * EXCHANGED_STEP) > 0
        values["shallow"] = max(0.0, log2(k_of(product) / k))
        across = max(-MAX_ACROSS, min(MAX_ACROSS, log2(n * groups.m / (m * groups.n))))
        values["shared"] = log2(wide / high) * across
        if any(operand.pitch_bits % (8 * SECTOR) for operand in (product.a, product.b)):
            values["within"] = max(0.0, log2(SHARED_K / k))
            values["along"] = values["within"] * values["shared"]
    covered = ctas // groups.parts * groups.m * groups.n
    powers = {
        "turns": k / (k_of(product) * groups.parts) / MEAN_TURNS,
        "area": groups.m * groups.n / MEAN_AREA,
        "aspect": groups.m / groups.n,
        "wide": n / m,
        "cut": groups.parts,
        "stored": m * n / (k * (m + n)),
        "read": read_bytes(product) / MEAN_BYTES,
        "arriving": (groups.m / wide + groups.n / high) * ROWS / (groups.m * groups.n),
    }
    values |= {name: 1.0 for name, holds in flags.items() if holds}
    values |= {name: max(-MAX, min(MAX, log2(value))) for name, value in powers.items()}
    return values | {"full": ctas / waves / target.sms, "beyond": min(1.0, covered / (m * n) - 1)}


def rated(product: Product, tile: GroupTile | Tile, ns: float, target: Target) -> float:
    """The logarithm of the time that is expected of a tile, to which a model gives so many nanoseconds, up to what is
    the same for all tiles of a product."""
    return log2(ns) + correction(features(product, tile, ns, target), weights_of(product.m, product.n, product.k))


def weights_of(m: int, n: int, k: int) -> Mapping[tuple[str, ...], float]:
    """The weights of a product of a size."""
    return LONG_WEIGHTS if min(m, n) > LONG_SIDE and k >= LONG_K else WEIGHTS


def correction(values: Mapping[str, float], weights: Mapping[tuple[str, ...], float]) -> float:
    """The logarithm of a time over the model's, by weights of products of features."""
    return sum(weight * prod(values.get(name, 0.0) for name in names) for names, weight in weights.items())
