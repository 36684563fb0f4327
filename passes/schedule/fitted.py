"""Which tiles a product of rows along K gets: what the two models say, and what a fit says of their errors.

The errors depend on what tiles are like more than on any constant of the models, and differ by tenths where the times
of the better tiles differ by hundredths. So the logarithm of a time is corrected by a sum of products of two features.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd, log2, prod

from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import WARPGROUP_SM
from ...dialect.schedule import Schedule
from ..linalg.product import Product, along_k
from .defaults import is_plain
from .model import WIDEST, Tile, access_bytes
from .warpgroup_model import (
    EXCHANGED_STEP,
    LINE,
    PAIR,
    ROWS,
    GroupTile,
    across_lines,
    at_once,
    cost,
    k_of,
    nanoseconds,
    read_bytes,
)


def _read(text: str) -> dict[tuple[str, ...], float]:
    terms = (term.split() for term in text.split(","))
    return {tuple(names.split("*")): float(weight) for names, weight in terms}


WEIGHTS = _read("""
    time -.3280, area .0549, many*turns .0216, joined -.0940, arriving*pitch -.0445, beyond*pairs .0279, full*full
    .0443, large*time -.0875, arriving*large -.0459, ctas*eights -.0500, joined*whole -.0299, arriving*cut -.0186,
    small*stored .0095, aspect*aspect .0106, beyond*pitch -.0273, arriving*full .0912, ctas*stored -.0112, full*time
    -.0971, ctas*time .0248, arriving*whole .0649, eights*time -.0185, pitch*time -.0360, area*area .0123, area*arriving
    .0084, exchanged*joined .0283, ctas*turns -.0038, aspect*many .0140, full*short -.0268, pairs*pitch .0292,
    fours*pitch .0336, large*read .0352, full*large .0005, large*many .1271, sliced*stored .0196, beyond*fours .0357,
    aspect*sliced -.0763, ctas*sliced -.0336, area*large .0979, large*turns .0386, ctas*pairs -.0108, eights*pitch
    .0403, ctas*cut -.0036, cut*cut -.0088, ctas*many .0598, area*full .0710, eights .0476, arriving -.0384, turns*turns
    .0114, stored*time .0382, cut*time .0750, time*turns .0669, read*time -.0351, large .1370, pairs .0135,
    arriving*groups -.0153, full*parts .0435, ctas*fragments .0246, fragments*time -.0608, fragments*turns .0239,
    area*sliced .0155
""")
"""Of products of features, fitted to the times of 5,300 schedules of 1,120 sizes, relative to those of the same size
(`python bench/fit.py` makes them of `bench/schedules-h100.json`)."""

NEAR, MOST_READ = 1.5, 96 << 20
"""How many times the least time of the model a tile may take; bytes of A and B in whole lines, where nearly all that is
larger was measured with the defaults of the models alone."""

MEAN_NS, MEAN_TURNS, MEAN_AREA, MEAN_BYTES, MEAN_PITCH, MOST = 8000, 16, 1 << 13, 1 << 22, 256, 4.0
"""What features are relative to, as powers of two: nanoseconds, K tiles of a CTA, elements of a tile, bytes of A and B,
bits that the place of each row of A is a multiple of. And the most of such a power beyond."""


def is_rated(product: Product, packed: str, target: Target) -> bool:
    """Whether a product is of the kind that was measured: of 16 bits (bf16, whose times f16 has) along K in rows of
    whole accesses, and of lines no more than L2 has room for. Others, and all with the constants of another device
    (`warploom tune --device`), have the models alone."""
    along = along_k(product, "a") and along_k(product, "b") and not product.batch_invariant
    aligned = all(access_bytes(operand) == WIDEST for operand in (product.a, product.b, product.d))
    if not (along and aligned and is_plain(product, packed) and target.sm == WARPGROUP_SM and not target.timing):
        return False
    return across_lines(product, packed) or read_bytes(product) <= MOST_READ


def by_time(product: Product, tiles: Iterable[GroupTile], packed: str, target: Target) -> list[GroupTile]:
    """Tiles of warpgroups, the fastest first."""
    costs = {tile: cost(product, tile, packed, target) for tile in tiles}
    order = sorted(costs, key=costs.__getitem__)
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
        flags |= {"exchanged": tile.exchanged, "tall": tile.rows > ROWS, "groups": tile.groups > 2}
        flags["short"] = tile.exchanged and tile.m % (2 * EXCHANGED_STEP) > 0
    covered = ctas // groups.parts * groups.m * groups.n
    powers = {
        "turns": k / (k_of(product) * groups.parts) / MEAN_TURNS,
        "area": groups.m * groups.n / MEAN_AREA,
        "aspect": groups.m / groups.n,
        "cut": groups.parts,
        "ctas": ctas / target.sms,
        "pitch": gcd(product.a.pitch_bits, 8 * LINE) / MEAN_PITCH,
        "stored": m * n / (k * (m + n)),
        "read": read_bytes(product) / MEAN_BYTES,
        "arriving": (groups.m / wide + groups.n / high) * ROWS / (groups.m * groups.n),
    }
    values |= {name: 1.0 for name, holds in flags.items() if holds}
    values |= {name: max(-MOST, min(MOST, log2(value))) for name, value in powers.items()}
    return values | {"full": ctas / waves / target.sms, "beyond": min(1.0, covered / (m * n) - 1)}


def rated(product: Product, tile: GroupTile | Tile, ns: float, target: Target) -> float:
    """The logarithm of the time that is expected of a tile, to which a model gives so many nanoseconds, up to what is
    the same for all tiles of a product."""
    return log2(ns) + correction(features(product, tile, ns, target), WEIGHTS)


def correction(values: Mapping[str, float], weights: Mapping[tuple[str, ...], float]) -> float:
    """The logarithm of a time over the model's, by weights of products of features."""
    return sum(weight * prod(values.get(name, 0.0) for name in names) for names, weight in weights.items())
