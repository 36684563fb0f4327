"""Schedules that are asked for, by fields or by a file of measured ones, and those that are worth a measurement."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, zip_longest
from itertools import combinations as subsets
from itertools import product as combinations
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from ...dialect.isa.form import Shape
from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import WARPS
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.schedule import FIELDS, Schedule, ScheduleError
from ...dialect.schedule.schedule import MIN_RING, text_of
from ..linalg.product import Product, images_of
from ..source import read_text
from . import fragments, model, needs
from .defaults import in_fixed_order, laid_out
from .fragments import UNPIPELINED, by_fragments
from .model import DRAWN, TILES, Fit
from .warpgroup import PLAIN, check_warpgroup
from .warpgroup_schedule import ROLES, schedules_by_cost, time_of
from .warpgroup_schedule import candidates as by_warpgroups

# The schedules worth trying for a product, where there is time to try them.

DEPTHS = (1, 2, 4, 8)
"""K of a CTA tile, in steps of the instruction."""

STAGES = (2, 3, 4, 5, 6)
GROUPS = (4, 8, 16)
FEW_STAGES = (4, 2)
"""The stages that are tried of a schedule with given fields."""


CHECKS: Mapping[int, Callable[[Schedule, Product, Target], None]] = {1: fragments.check, WARPS: check_warpgroup}
"""What a schedule must keep, by how many warps multiply a tile together."""


def check(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks a schedule against product and target. Raises ScheduleError, saying what does not fit."""
    CHECKS[schedule.together](schedule, product, target)


def override(chosen: Schedule, fields: Mapping[str, object], asked: Product, target: Target) -> Schedule:
    """The schedule with the fields that are given: the chosen one with as few others changed as can be, or else the
    best one for other tiles, or other instructions, that has them.

    Raises:
        ScheduleError: if they fit neither each other nor the product, whatever follows from them.
    """
    try:
        around = around_tile(chosen, fields, asked, target)
        return completed(chosen, fields, around, partial(check, product=asked, target=target))
    except ScheduleError as error:
        refused = error
    if isinstance(stages := fields.get("stages"), int) and stages > chosen.stages:
        raise refused  # small tiles have room for any number of stages, and nobody means those
    accumulate, by = str(fields.get("accumulate", chosen.accumulate)), asked_of(fields)
    every = [schedules_by_cost(asked, target, accumulate, role) for role in ROLES if by in ("", role)]
    with suppress(ScheduleError):
        if by in ("", "fragments"):
            every.append(iter(_of_fragments(asked, target, accumulate, fields)))
    with suppress(ScheduleError):
        for schedule in chain(*every):
            as_asked = schedule.multiplied == fields.get("multiplied", "ab")
            if as_asked and (tried := _tried(schedule, fields, asked, target)) is not None:
                return tried
    raise refused


def candidates(default: Schedule, product: Product, target: Target) -> list[Schedule]:
    """Every valid schedule of the search space: the default first, then the others by the cost that a model expects."""
    accumulate = default.accumulate
    of_groups = (by_warpgroups(product, target, accumulate, role) for role in ROLES)
    return list(dict.fromkeys((default, *chain(*of_groups), *_of_fragments(product, target, accumulate, {}))))


def _of_fragments(
    product: Product, target: Target, accumulate: str, fields: Mapping[str, object]
) -> Sequence[Schedule]:
    """Schedules that multiply fragments in registers, with fields that are given; none if no instruction does."""
    row = needs.instruction(product, accumulate, target)
    if row is None:
        return []
    default = in_fixed_order(by_fragments(product, target, row)[1], product)
    costs: dict[Schedule, tuple[float, ...]] = {}
    stages_tried, groups = (FEW_STAGES, (default.group,)) if fields else (STAGES, GROUPS)
    loops: list[Mapping[str, object]] = [UNPIPELINED] if fields else [UNPIPELINED, {}]
    for tile in dict.fromkeys((*model.TILES, *(model.SPARSE_TILES if product.sparsity > 1 else model.BETWEEN_TILES))):
        down = -(-product.m // tile.cta[0])
        few = product.tiles(*tile.cta)
        every = [parts for parts in (1, *model.PARTS) if parts == 1 or (parts * few <= target.sms and not fields)]
        for parts, depth, stages, group in combinations(every, DEPTHS, stages_tried, groups):
            k = depth * row.shape.k
            if k > max(row.shape.k, 2 * product.k // parts) or (group > down and group != groups[0]):
                continue
            at = {"cta": (*tile.cta, k), "warp": tile.warp, "sliced_k": tile.sliced_k, "split_k": parts}
            for loop in loops:
                asked = {**loop, **at, "stages": stages, "group": group, **fields}
                if (tried := _tried(default, asked, product, target)) is not None and tried not in costs:
                    near = abs(k - tile.k), abs(stages - default.stages), abs(group - default.group)
                    costs[tried] = (model.cost_of(product, tile, target, row, parts), *near)
    best = sorted(costs, key=lambda s: costs[s])
    return best if fields else [*dict.fromkeys((default, default.with_fields(staging=0), *best))]


def _tried(schedule: Schedule, fields: Mapping[str, object], product: Product, target: Target) -> Schedule | None:
    """The schedule with these fields; None if they do not fit."""
    with suppress(ScheduleError):
        check(changed := schedule.with_fields(**fields), product, target)
        return changed
    return None


def spread(schedules: list[Schedule], limit: int) -> list[Schedule]:
    """At most `limit` schedules: the first one, then an equal number for each tile, best first."""
    kinds: dict[object, list[Schedule]] = {}
    for schedule in schedules[1:]:
        kinds.setdefault((schedule.cta[:2], schedule.warp), []).append(schedule)
    in_turn = chain.from_iterable(zip_longest(*kinds.values()))
    return [*schedules[:1], *(schedule for schedule in in_turn if schedule is not None)][:limit]


# Fields that are given: who they say multiplies, and what follows from them.

OF_FRAGMENTS = ("warp", "sliced_k", "pack", "sync", "prefetch", "unroll", "fp8_as", "swizzle")
"""Fields that, given without an instruction, ask for fragments in registers (`mma.sync`)."""


def asked_of(fields: Mapping[str, object]) -> str:
    """Who multiplies according to the user's fields: "fragments", or warpgroups, by the operand in registers; "" if the
    fields leave it open."""
    in_registers = str(fields.get("in_registers", ""))
    if in_registers not in ("", PLAIN):
        return in_registers
    mma = fields.get("mma")
    if isinstance(mma, Shape):
        return PLAIN if mma.m >= ROWS else "fragments"
    of_warpgroups = {"in_registers", "multiplied"}.intersection(fields)
    if of_warpgroups or any(fields.get(name, PLAIN) != PLAIN for name in ("promote", "transpose")):
        return PLAIN
    rows, columns, *_ = cast("tuple[int, ...]", fields.get("cta", (0, 0)))
    small = rows % ROWS != 0 and columns % ROWS != 0
    return "fragments" if small or any(name in fields for name in OF_FRAGMENTS) else ""


TILE = ("cta", "warp", "mma")


MAX_STAGES = 4
"""Stages of a tile that is given, at most: what is chosen for others may be deeper than pays."""


# A tile that is given is one that the loop and the way to D were not chosen for, so they are chosen again, plainly.
# Other fields only move those that they contradict: of all ways to resolve that, the one that changes the fewest
# fields.


def completed(
    chosen: Schedule, fields: Mapping[str, object], around: Mapping[str, object], check_all: Callable[[Schedule], None]
) -> Schedule:
    """The schedule with the fields that are given, and those `around` that go with another tile. Raises ScheduleError
    if they fit neither each other nor what is computed, whatever else changes."""
    refused = ScheduleError("no field is left to choose")
    for following in _following(chosen, around, fields):
        try:
            schedule = chosen.with_fields(**{**around, **following, **fields})
            check_all(schedule)
        except ScheduleError as error:
            refused = refused if "stages" in following else error
        else:
            return schedule
    raise refused


def _following(
    chosen: Schedule, around: Mapping[str, object], fields: Mapping[str, object]
) -> Iterator[dict[str, object]]:
    """Changes of other fields that may make given fields fit, those of the fewest fields first, each as small as
    possible."""
    now = {name: fields.get(name, around.get(name, chosen[name])) for name in FIELDS}
    stages, by_groups = cast("int", now["stages"]), now["sync"] == "mbarrier" and chosen.together > 1
    choices: dict[str, tuple[object, ...]] = {
        "prefetch": (0,), "unroll": (stages, 0), "ctas": (0,), "staging": (0,),
        "sync": () if by_groups else ("barrier",), "split_k": (1,), "cluster": ((1, 1),),
        "partial_sums": ("memory",),
        "stages": () if "stages" in fields else tuple(range(stages - 1, MIN_RING - 1 if by_groups else 0, -1)),
    }  # fmt: skip
    free = [name for name, to in choices.items() if to and name not in fields and now[name] != to[-1]]
    for count in range(len(free) + 1):
        for names in subsets(free, count):
            for values in combinations(*(choices[name] for name in names)):
                yield dict(zip(names, values, strict=True))


def around_tile(chosen: Schedule, fields: Mapping[str, object], asked: Product, target: Target) -> Mapping[str, object]:
    """The fields that go with another tile: of warps its part for each, a plain loop, an undivided K; of warpgroups
    their part, as many stages as fit, and the staging of D."""
    changed = {name for name, value in fields.items() if value != chosen[name]}
    if chosen.together == 1:
        if changed.isdisjoint(TILE):
            return {}
        stages = min(MAX_STAGES, chosen.stages)
        return {**UNPIPELINED, "sliced_k": 1, "split_k": 1, "stages": stages, **_warp_of(fields)}
    exchanged = chosen.in_registers == "b" or fields.get("multiplied") == "ba"
    mma = fields.get("mma", _mma_of(chosen, fields, exchanged=exchanged))
    if not isinstance(mma, Shape) or changed.isdisjoint(("mma", "cta", "padded")):
        return {}
    lying = chosen.with_fields(**{name: fields[name] for name in ("transpose", "padded") if name in fields})
    seen = laid_out(asked, lying.transpose, lying.padded)
    (m, n, k), tile = chosen.cta, (mma.m, mma.n)
    cta: tuple[int, ...] = (max(m, mma.m), mma.n * mma.m // ROWS, k)
    if exchanged:
        cta, tile = (mma.n, n, k), (mma.n, ROWS)
    around: dict[str, Any] = {"cta": cta, "warp": tile, "mma": mma, "stages": MIN_RING, "split_k": 1}
    around |= {"cluster": (1, 1), "multiplied": "ab", "partial_sums": "memory"}
    around |= {"consumers": "cooperative"} if asked.block_scales else {}
    cut = chosen.with_fields(**{**around, "staging": 0, **fields})
    around["staging"] = needs.staged_part(seen, cut)[0]
    around["stages"] = needs.fitting_stages(seen, chosen.with_fields(**{**around, **fields}), target)
    return around


def _mma_of(chosen: Schedule, fields: Mapping[str, object], *, exchanged: bool) -> Shape:
    """The instruction of warpgroups for a CTA tile that is given: as wide as the tile, or as a part of it."""
    across = cast("tuple[int, ...]", fields.get("cta", chosen.cta))[0 if exchanged else 1]
    parts = -(-across // needs.MAX_GROUP_COLUMNS)
    return chosen.mma._replace(n=across // parts) if "cta" in fields else chosen.mma


def _warp_of(fields: Mapping[str, object]) -> dict[str, tuple[int, int]]:
    """The warp tile of a CTA tile that is given: that of the default tiles, or the largest of at most 64x64."""
    cta = fields.get("cta")
    if not isinstance(cta, tuple) or "warp" in fields:
        return {}
    m, n = int(cta[0]), int(cta[1])  # pyright: ignore[reportUnknownArgumentType]
    rows = next((r for r in (64, 32, 16) if m % r == 0), m)
    columns = next((c for c in (64, 32, 16, 8) if n % c == 0), n)
    return {"warp": next((t.warp for t in TILES if t.cta == (m, n) and t.sliced_k == 1), (rows, columns))}


def followed(chosen: Schedule, fields: Mapping[str, object], schedule: Schedule) -> list[str]:
    """The fields that changed because of the user's fields: `prefetch = 3 (5)`."""
    pairs = {name: (schedule[name], chosen[name]) for name in FIELDS if name not in fields}
    return [f"{name} = {now} ({before})" for name, (now, before) in pairs.items() if now != before]


def refusal(error: ScheduleError, fields: Mapping[str, object]) -> str:
    """What an error says of a schedule, with the fields that were asked for if it names none of them."""
    named = any(re.search(rf"\b{name}\b", str(error)) for name in fields)
    asked = "" if named else ", ".join(f"{name} = {text_of(value)}" for name, value in fields.items())
    return f"schedule: {error}{f'; asked for {asked}' if asked else ''}"


def key_of(product: Product) -> str:
    """What a product is, as far as its speed depends on it: `4096x4096x4096 bf16 x bf16 -> f32, B transposed`."""
    sizes = zip("mnk", (product.m, product.n, product.k), strict=True)
    size = "x".join(str(number) if product.is_known(axis) else "?" for axis, number in sizes)
    words = [f"{size} {needs.multiplied(product)}"]
    words[0] += f" -> {product.d.element.name}"
    words += [f"{o.name} transposed" for o in (product.a, product.b) if o.transposed]
    operands = product.a, product.b, product.d
    words += [f"{o.name} of images {made.key}" for o in operands if (made := images_of(o)) is not None]
    words += [f"summed {'x'.join(map(str, product.summed))} times"] if product.summed else []
    words += ["A sparse"] if product.sparsity > 1 else []
    words += product.op.words
    words += [f"scales of {product.scales[0].element.name}"] if product.scales else []
    words += [f"scales of groups of {product.group}"] if product.group else []
    words += ["added to C"] if product.c is not None else []
    words += ["with an epilogue"] if product.op.epilogue is not None else []
    return ", ".join(words)


# What was measured on devices: a JSON file that `warploom tune` writes and `warp-schedule` reads.
#
# By device, then by what a product is: sizes, element types, how the operands lie. For each the fastest schedule, and
# every one measured with its time, so that a search can go on where it stopped. A device may also have the constants of
# the model of products, fitted to what was measured there (`fitted`).

FORMAT = 1


AT = ", at "
"""What stands between a product of unknown sizes and the sizes of the arguments that it was measured with."""


class Entry(TypedDict):
    """One product on one device: the fastest schedule, and microseconds by schedule; None for one that failed."""

    best: str
    measured: dict[str, float | None]


class Device(TypedDict):
    """Measurements on one device. `target` is that of its kernels; `sms` and `timing` are what the model of products
    takes of a device, if `warploom tune --device` measured it."""

    target: str
    products: dict[str, Entry]
    sms: NotRequired[int]
    timing: NotRequired[list[float]]


@dataclass
class Tuned:
    """The contents of a file."""

    path: Path
    devices: dict[str, Device] = field(default_factory=dict[str, Device])

    @staticmethod
    def read(path: str | Path) -> Tuned:
        """Reads a file. Raises ScheduleError for a missing file, or one in another format."""
        place = Path(path)
        try:
            content = json.loads(read_text(place))
            if content["format"] != FORMAT:
                raise ScheduleError(f"tuned schedules in format {content['format']}, expected {FORMAT}")
            devices = cast("dict[str, Device]", content["devices"])
            for device in devices.values():
                entries, fit = device["products"].values(), Fit(*device.get("timing", DRAWN))
                times = [time for entry in entries for time in entry["measured"].values() if time is not None]
                whole = type(device.get("sms", 1)) is int and type(device["target"]) is str
                if not (whole and all(0 < each < math.inf for each in (device.get("sms", 1), *fit, *times))):
                    raise ValueError(device)
                for entry in entries:
                    if entry["best"] != "":
                        Schedule.parse(entry["best"])
        except ScheduleError as error:
            raise ScheduleError(f"{path}: {error}") from None
        except OSError as error:
            raise ScheduleError(f"{path}: {error.strerror or error}; `warploom tune` writes such files") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScheduleError(f"{path}: expected a file of schedules that `warploom tune` wrote") from error
        return Tuned(place, devices)

    def write(self) -> None:
        """Replaces the file at once. A write that is interrupted leaves the old file."""
        text = json.dumps({"format": FORMAT, "devices": self.devices}, indent=1) + "\n"
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, self.path)

    def device(self, device: str, target: str) -> Device:
        """The measurements on a device, created if missing. One with several measured targets has them for each."""
        measured_for = self.devices.get(device)
        name = device if measured_for is None or measured_for["target"] == target else f"{device} as {target}"
        return self.devices.setdefault(name, Device(target=target, products={}))

    def entry(self, device: str, target: str, key: str) -> Entry:
        """The entry of a product on a device, created if missing."""
        return self.device(device, target)["products"].setdefault(key, Entry(best="", measured={}))

    def measured(self, target: Target) -> Target:
        """The target as its first measured device is: with its number of multiprocessors, and its constants."""
        for device in self.devices.values():
            if device["target"] == target.name and "sms" in device and "timing" in device:
                return replace(target, sms=device["sms"], timing=tuple(device["timing"]))
        return target

    def best(self, target: str, key: str) -> Schedule | None:
        """The fastest schedule of a product on the first device of a target that has an entry for it. For dynamic sizes
        it is that of the first arguments that were measured."""
        for device in self.devices.values():
            at = next((name for name in device["products"] if name.startswith(key + AT)), key)
            entry = device["products"].get(key, device["products"].get(at))
            if device["target"] == target and entry is not None and entry["best"]:
                return Schedule.parse(entry["best"])
        return None


Timed = tuple[Product, Mapping[Schedule, float]]
"""A product, and the microseconds that it took by schedules of warpgroups."""


# The constants of the model of warpgroups, fitted to what was measured.

STEPS = (2.0, 1.25, 1.05, 1.01)
"""Factors by which constants change, one after another, as long as one change makes the fit better."""

NO_BETTER = 1e-4
"""The part by which a fit must be better to count."""

FASTEST = 2.0
"""Times beyond so many times the fastest of a product tell little of what to choose."""


def fitted(timed: Sequence[Timed], target: Target) -> tuple[Fit, float]:
    """The constants by which the model is nearest to the times, and how far from them it is: the mean distance of
    logarithms.

    What events and an empty cache add to each time is the same for all, and no part of the model. The search changes
    one constant at a time, from those of an H100 on.
    """
    near = [
        (product, schedule, taken)
        for product, times in timed
        for schedule, taken in times.items()
        if taken <= FASTEST * min(times.values())
    ]
    fit, error = DRAWN, _error(near, DRAWN, target)
    for step in STEPS:
        improves = True
        while improves:
            improves = False
            for i, factor in combinations(range(len(fit)), (step, 1 / step)):
                tried = Fit._make((*fit[:i], fit[i] * factor, *fit[i + 1 :]))
                if (off := _error(near, tried, target)) < error * (1 - NO_BETTER):
                    fit, error, improves = tried, off, True
    return fit, error


def _error(near: Sequence[tuple[Product, Schedule, float]], fit: Fit, target: Target) -> float:
    """The mean distance of the logarithms of times from the model's, beside what all times have in addition."""
    from statistics import fmean, median  # a compilation reads what was measured, and fits nothing

    there = replace(target, timing=tuple(fit))
    modelled = [time_of(product, schedule, there) / 1000 for product, schedule, _ in near]
    taken = [each[2] for each in near]
    offset = median(time - model for time, model in zip(taken, modelled, strict=True))
    pairs = zip(taken, modelled, strict=True)
    return fmean(abs(math.log(time / max(model + offset, model / 2))) for time, model in pairs)
