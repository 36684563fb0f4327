"""A schedule with some fields given: these change, and what must follow from them; everything else stays as chosen.

A tile that is given is one that the loop and the way to D were not chosen for, so they are chosen again, plainly. Other
fields only move those that they contradict: of all ways to resolve that, the one that changes the fewest fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product

from ...dialect.isa.targets import Target
from ...dialect.schedule import NAMES, Schedule, ScheduleError
from ..linalg.product import Product
from .loop import UNPIPELINED
from .model import TILES
from .validity import check
from .warpgroup_override import around_given

TILE = ("cta", "warp", "mma")

MOST_STAGES = 4
"""Stages of a tile that is given, at most: what is chosen for others may be deeper than pays."""


def override(chosen: Schedule, given: Mapping[str, object], asked: Product, target: Target) -> Schedule:
    """The schedule with the fields that are given.

    Raises:
        ScheduleError: if they fit neither each other nor the product, whatever follows from them.
    """
    if chosen.tile.together > 1:
        return _checked(chosen, around_given(chosen, given, asked, target), asked, target)
    changed = {name: value for name, value in given.items() if value != chosen[name]}
    if any(name in changed for name in TILE):
        return _checked(chosen, _around_tile(given, chosen), asked, target)
    for following in _following(chosen, given):
        try:
            return _checked(chosen, {**following, **given}, asked, target)
        except ScheduleError:
            continue
    return _checked(chosen, {**UNPIPELINED, **given}, asked, target)


def followed(chosen: Schedule, given: Mapping[str, object], schedule: Schedule) -> list[str]:
    """The fields that are others than chosen without being given: `prefetch = 3 (5)`."""
    pairs = {name: (schedule[name], chosen[name]) for name in NAMES if name not in given}
    return [f"{name} = {now} ({before})" for name, (now, before) in pairs.items() if now != before]


def one_group(given: Mapping[str, object], schedule: Schedule, asked: Product) -> str:
    """What to say of a `group` that is given and has more rows of CTA tiles than there are; "" otherwise."""
    (rows, _, _), (high, _) = schedule.tile.cta, schedule.grid.cluster
    down = -(-asked.m // (rows * high)) * high
    if "group" not in given or not asked.is_known("m") or schedule.grid.group <= down:
        return ""
    return f"group = {schedule.grid.group}: the rows of CTA tiles are {down}, which make one group"


def _checked(chosen: Schedule, changes: Mapping[str, object], asked: Product, target: Target) -> Schedule:
    schedule = chosen.with_fields(**changes)
    check(schedule, asked, target)
    return schedule


def _following(chosen: Schedule, given: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """What other fields may become, the fewest first; each as near to what it is as can be."""
    stages = given.get("stages", chosen.loop.stages)
    choices: dict[str, tuple[object, ...]] = {
        "prefetch": (0,), "unroll": (stages, 0), "ctas": (0,), "staging": (0,), "sync": ("barrier",),
        "stages": tuple(range(chosen.loop.stages - 1, 0, -1)),
    }  # fmt: skip
    free = [name for name, to in choices.items() if to and name not in given and chosen[name] != to[-1]]
    for count in range(len(free) + 1):
        for names in combinations(free, count):
            for values in product(*(choices[name] for name in names)):
                yield dict(zip(names, values, strict=True))


def _around_tile(given: Mapping[str, object], chosen: Schedule) -> dict[str, object]:
    """The fields given with what goes with another tile: its warp tile, a plain loop, no slices or parts of K."""
    options = {**UNPIPELINED, "sliced_k": 1, "split_k": 1, "stages": min(MOST_STAGES, chosen.loop.stages), **given}
    cta = given.get("cta")
    if isinstance(cta, tuple) and "warp" not in given:
        m, n = int(cta[0]), int(cta[1])  # pyright: ignore[reportUnknownArgumentType]
        known = next((t.warp for t in TILES if t.cta == (m, n) and t.sliced_k == 1), None)
        options["warp"] = known or _fitting_warp(m, n)
    return options


def _fitting_warp(m: int, n: int) -> tuple[int, int]:
    """The largest warp tile of at most 64x64 that divides a CTA tile."""
    rows = next((r for r in (64, 32, 16) if m % r == 0), m)
    columns = next((c for c in (64, 32, 16, 8) if n % c == 0), n)
    return rows, columns
