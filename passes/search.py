"""The schedules worth trying for a product, where there is time to try them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product as combinations

from ..dialect.isa.targets import Target
from ..dialect.schedule import Schedule, ScheduleError
from .product import Product
from .schedule import SPARSE_TILES, TILES, check, cycles, default_schedule, instruction

DEPTHS = (1, 2, 4, 8)
"""K of a CTA tile, in steps of the instruction."""

STAGES = (2, 3, 4, 5, 6)
GROUPS = (4, 8, 16)


def candidates(product: Product, target: Target, accumulate: str = "") -> list[Schedule]:
    """Every schedule of the search space that fits, the default first, then those that the model expects more of.

    Raises:
        ScheduleError: if the target has no instruction for the product.
    """
    default = default_schedule(product, target, accumulate)
    row = instruction(product, default.accumulate, target)
    found: dict[Schedule, tuple[float, ...]] = {}
    if row is None:
        return [default]
    m, n, k = product.m, product.n, product.k
    for tile in dict.fromkeys((*TILES, *(SPARSE_TILES if product.sparsity > 1 else ()))):
        for depth, stages, group in combinations(DEPTHS, STAGES, GROUPS):
            if depth * row.shape.k > max(row.shape.k, 2 * k) or (group > -(-m // tile.cta[0]) and group != GROUPS[0]):
                continue
            tried = _schedule(default, tile.cta, tile.warp, depth * row.shape.k, stages, group)
            if tried is not None and _fits(tried, product, target):
                near = abs(tried.cta[2] - tile.k), abs(stages - default.stages), abs(group - default.group)
                found[tried] = (cycles(m, n, k, tile, target, row), *near)
    return list(dict.fromkeys((default, *sorted(found, key=lambda s: found[s]))))


def _schedule(
    default: Schedule, cta: tuple[int, int], warp: tuple[int, int], k: int, stages: int, group: int
) -> Schedule | None:
    try:
        return replace(default, cta=(*cta, k), warp=warp, stages=stages, group=group)
    except ScheduleError:
        return None


def _fits(schedule: Schedule, product: Product, target: Target) -> bool:
    try:
        check(schedule, product, target)
    except ScheduleError:
        return False
    return True


def spread(schedules: list[Schedule], limit: int) -> list[Schedule]:
    """At most `limit` of the schedules: the first, and of each kind of tile as many as of the others, best first."""
    kinds: dict[object, list[Schedule]] = {}
    for schedule in schedules[1:]:
        kinds.setdefault((schedule.cta[:2], schedule.warp), []).append(schedule)
    return [*schedules[:1], *_in_turn(list(kinds.values()))][:limit]


def _in_turn(lists: list[list[Schedule]]) -> Iterator[Schedule]:
    """First each list's first, then each one's second, and so on."""
    for i in range(max(map(len, lists), default=0)):
        yield from (kind[i] for kind in lists if i < len(kind))
