"""The schedules worth trying for a product, where there is time to try them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from itertools import product as combinations

from ...dialect.isa.targets import Target
from ...dialect.schedule import Schedule, ScheduleError
from ..linalg.product import Product
from .choice import default_schedule
from .loop import UNPIPELINED
from .model import BETWEEN_TILES, PARTS, SPARSE_TILES, TILES, Tile, cost_of
from .resources import instruction
from .validity import check
from .warpgroup_ways import WAYS

DEPTHS = (1, 2, 4, 8)
"""K of a CTA tile, in steps of the instruction."""

STAGES = (2, 3, 4, 5, 6)
GROUPS = (4, 8, 16)


def candidates(product: Product, target: Target, accumulate: str = "") -> list[Schedule]:
    """Every schedule of the search space that fits, the default first, then those that the model expects more of.

    Raises:
        ScheduleError: if the target has no instruction for the product.
    """
    first = default_schedule(product, target, accumulate)
    accumulate = first.arithmetic.accumulate
    of_groups = (way.candidates(product, target, accumulate) for way in WAYS.values())
    return list(dict.fromkeys((first, *chain(*of_groups), *_of_fragments(product, target, accumulate))))


def _of_fragments(product: Product, target: Target, accumulate: str) -> list[Schedule]:
    """Schedules that multiply fragments in registers; none if no instruction does."""
    default = default_schedule(product, target, accumulate, "fragments")
    row = instruction(product, default.arithmetic.accumulate, target)
    found: dict[Schedule, tuple[float, ...]] = {}
    if row is None:
        return []
    for tile in dict.fromkeys((*TILES, *(SPARSE_TILES if product.sparsity > 1 else BETWEEN_TILES))):
        down = -(-product.m // tile.cta[0])
        few = product.tiles(*tile.cta)
        every = [parts for parts in (1, *PARTS) if parts == 1 or parts * few <= target.sms]
        for parts, depth, stages, group in combinations(every, DEPTHS, STAGES, GROUPS):
            k = depth * row.shape.k
            if k > max(row.shape.k, 2 * product.k // parts) or (group > down and group != GROUPS[0]):
                continue
            for loop in (UNPIPELINED, {}):
                tried = _schedule(default, tile, k, loop | {"stages": stages, "group": group, "split_k": parts})
                if tried is not None and tried not in found and _fits(tried, product, target):
                    near = abs(k - tile.k), abs(stages - default.loop.stages), abs(group - default.grid.group)
                    found[tried] = (cost_of(product, tile, target, row, parts), *near)
    return list(dict.fromkeys((default, default.with_fields(staging=0), *sorted(found, key=lambda s: found[s]))))


def _schedule(default: Schedule, tile: Tile, k: int, options: dict[str, object]) -> Schedule | None:
    try:
        tried = default.with_fields(cta=(*tile.cta, k), warp=tile.warp, sliced_k=tile.sliced_k)
        return tried.with_fields(**options)
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
        kinds.setdefault((schedule.tile.cta[:2], schedule.tile.warp), []).append(schedule)
    return [*schedules[:1], *_in_turn(list(kinds.values()))][:limit]


def _in_turn(lists: list[list[Schedule]]) -> Iterator[Schedule]:
    """First each list's first, then each one's second, and so on."""
    for i in range(max(map(len, lists), default=0)):
        yield from (kind[i] for kind in lists if i < len(kind))
