"""Schedules that a user gives: measured ones from a file, and fields that replace chosen ones."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from math import prod
from pathlib import Path
from typing import TypedDict, cast

from ...dialect.isa.form import Shape
from ...dialect.isa.targets import Target
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.schedule import NAMES, Schedule, ScheduleError
from ...dialect.schedule.schedule import LEAST_RING
from ..linalg.product import Product
from ..source import read_text
from .defaults import UNPIPELINED, laid_out
from .model import TILES
from .needs import multiplied, staged_part
from .validity import check
from .warpgroup import PLAIN, fitting_stages

# Schedules that were measured to be the fastest: a JSON file that `warploom tune` writes and `warp-schedule` reads.
#
# By device, then by what the product is: sizes, element types, how the operands lie. For each the fastest schedule,
# and every one measured with its time, so that a search can go on where it stopped.

FORMAT = 1

AT = ", at "
"""What stands between a product of unknown sizes and the sizes of the arguments that it was measured with."""


class Entry(TypedDict):
    """One product on one device: the fastest schedule, and microseconds by schedule; None for one that failed."""

    best: str
    measured: dict[str, float | None]


class Device(TypedDict):
    """What was measured on one device; `target` is what kernels for it are compiled for."""

    target: str
    products: dict[str, Entry]


@dataclass
class Tuned:
    """The contents of a file."""

    path: Path
    devices: dict[str, Device] = field(default_factory=dict[str, Device])

    @staticmethod
    def read(path: str | Path) -> Tuned:
        """Reads a file.

        Raises:
            ScheduleError: for a file that is not there, or no such JSON.
        """
        place = Path(path)
        try:
            held = json.loads(read_text(place))
            if held["format"] != FORMAT:
                raise ScheduleError(f"{path}: tuned schedules in format {held['format']}, expected {FORMAT}")
            devices = cast("dict[str, Device]", held["devices"])
            for entry in (e for d in devices.values() for e in d["products"].values()):
                Schedule.parse(entry["best"])
        except ScheduleError:
            raise
        except OSError as error:
            raise ScheduleError(f"{path}: {error.strerror or error}; `warploom tune` writes such files") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScheduleError(f"{path}: expected a file of schedules that `warploom tune` wrote") from error
        return Tuned(place, devices)

    def write(self) -> None:
        """Writes the file as a whole, so that one that is interrupted leaves the last."""
        whole = json.dumps({"format": FORMAT, "devices": self.devices}, indent=1) + "\n"
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text(whole, encoding="utf-8")
        os.replace(beside, self.path)

    def entry(self, device: str, target: str, key: str) -> Entry:
        """The entry of a product on a device, made when there is none. A device for which several targets were measured
        has an entry for each."""
        known = self.devices.get(device)
        name = device if known is None or known["target"] == target else f"{device} as {target}"
        held = self.devices.setdefault(name, Device(target=target, products={}))
        return held["products"].setdefault(key, Entry(best="", measured={}))

    def best(self, target: str, key: str) -> Schedule | None:
        """The fastest schedule of a product on the first device of a target that has one; of one of unknown sizes, that
        with the first arguments that it was measured with."""
        for device in self.devices.values():
            at = next((name for name in device["products"] if name.startswith(key + AT)), key)
            entry = device["products"].get(key, device["products"].get(at))
            if device["target"] == target and entry is not None and entry["best"]:
                return Schedule.parse(entry["best"])
        return None


def key_of(product: Product) -> str:
    """What a product is, as far as its speed depends on it: `4096x4096x4096 bf16 x bf16 -> f32, B transposed`."""
    sizes = zip("mnk", (product.m, product.n, product.k), strict=True)
    size = "x".join(str(number) if product.is_known(axis) else "?" for axis, number in sizes)
    words = [f"{size} {multiplied(product)}"]
    words[0] += f" -> {product.d.element.name}"
    words += [f"{o.name} transposed" for o in (product.a, product.b) if o.transposed]
    words += [f"summed {'x'.join(map(str, product.summed))} times"] if product.summed else []
    words += ["A sparse"] if product.sparsity > 1 else []
    words += product.op.words
    words += [f"scales of {product.scales[0].element.name}"] if product.scales else []
    words += [f"scales of groups of {product.group}"] if product.group else []
    words += ["added to C"] if product.c is not None else []
    words += ["with an epilogue"] if product.op.epilogue is not None else []
    return ", ".join(words)


# Fields that are given for warpgroups: who they say multiplies, and what goes with another tile.

OF_FRAGMENTS = ("cta", "warp", "sliced_k", "pack", "sync", "prefetch", "unroll", "fp8_as", "swizzle")
"""Fields that, given without an instruction, ask for fragments in registers (`mma.sync`)."""


def asked_of(given: Mapping[str, object]) -> str:
    """Who is to multiply, of fields that are given: "fragments", or warpgroups, by the operand that they have in
    registers; empty if they leave it open."""
    in_registers = str(given.get("in_registers", ""))
    if in_registers not in ("", PLAIN):
        return in_registers
    mma = given.get("mma")
    if isinstance(mma, Shape):
        return PLAIN if mma.m == ROWS else "fragments"
    if in_registers or any(given.get(name, PLAIN) != PLAIN for name in ("promote", "transpose")):
        return PLAIN
    return "fragments" if any(name in given for name in OF_FRAGMENTS) else ""


def around_given(chosen: Schedule, given: Mapping[str, object], product: Product, target: Target) -> dict[str, object]:
    """The fields given with what goes with another tile of warpgroups: its stages, and how D is staged."""
    changed = {name: given[name] for name in ("transpose", "padded") if name in given}
    mma, lying = given.get("mma", chosen.mma), chosen.with_fields(**changed)
    seen = laid_out(product, lying.transpose, lying.padded)
    given = _settled(chosen, given)
    if not isinstance(mma, Shape) or all(
        given.get(name, chosen[name]) == chosen[name] for name in ("mma", "cta", "padded")
    ):
        return dict(given)
    (m, n, k), tile = chosen.cta, (ROWS, mma.n)
    cta: tuple[int, ...] = (m, mma.n, k)
    if chosen.exchanged:
        cta, tile = (mma.n, n, k), (mma.n, ROWS)
    around = {"cta": cta, "warp": tile, "mma": mma, "stages": LEAST_RING, "split_k": 1, "cluster": (1, 1)}
    cut = chosen.with_fields(**{**around, "staging": 0, **given})
    around["staging"] = staged_part(seen, cut)[0]
    around["stages"] = fitting_stages(seen, chosen.with_fields(**{**around, **given}), target)
    return {**around, **given}


def _settled(chosen: Schedule, given: Mapping[str, object]) -> dict[str, object]:
    """The fields given, with no clusters where they do not come out even in the CTAs, and a whole K for consumers with
    tiles of their own."""
    around: dict[str, object] = {}
    if isinstance(ctas := given.get("ctas"), int) and ctas % prod(chosen.cluster):
        around["cluster"] = (1, 1)
    if given.get("consumers", chosen.consumers) != "cooperative":
        around["split_k"] = 1
    return {**around, **given}


# A schedule with some fields given: these change, and what must follow from them; everything else stays as chosen.
#
# A tile that is given is one that the loop and the way to D were not chosen for, so they are chosen again, plainly.
# Other fields only move those that they contradict: of all ways to resolve that, the one that changes the fewest
# fields.

TILE = ("cta", "warp", "mma")

MOST_STAGES = 4
"""Stages of a tile that is given, at most: what is chosen for others may be deeper than pays."""


def override(chosen: Schedule, given: Mapping[str, object], asked: Product, target: Target) -> Schedule:
    """The schedule with the fields that are given.

    Raises:
        ScheduleError: if they fit neither each other nor the product, whatever follows from them.
    """
    if chosen.together > 1:
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
    (rows, _, _), (high, _) = schedule.cta, schedule.cluster
    down = -(-asked.m // (rows * high)) * high
    if "group" not in given or not asked.is_known("m") or schedule.group <= down:
        return ""
    return f"group = {schedule.group}: the rows of CTA tiles are {down}, which make one group"


def _checked(chosen: Schedule, changes: Mapping[str, object], asked: Product, target: Target) -> Schedule:
    schedule = chosen.with_fields(**changes)
    check(schedule, asked, target)
    return schedule


def _following(chosen: Schedule, given: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """What other fields may become, the fewest first; each as near to what it is as can be."""
    stages = given.get("stages", chosen.stages)
    choices: dict[str, tuple[object, ...]] = {
        "prefetch": (0,), "unroll": (stages, 0), "ctas": (0,), "staging": (0,), "sync": ("barrier",),
        "stages": tuple(range(chosen.stages - 1, 0, -1)),
    }  # fmt: skip
    free = [name for name, to in choices.items() if to and name not in given and chosen[name] != to[-1]]
    for count in range(len(free) + 1):
        for names in combinations(free, count):
            for values in product(*(choices[name] for name in names)):
                yield dict(zip(names, values, strict=True))


def _around_tile(given: Mapping[str, object], chosen: Schedule) -> dict[str, object]:
    """The fields given with what goes with another tile: its warp tile, a plain loop, no slices or parts of K."""
    options = {**UNPIPELINED, "sliced_k": 1, "split_k": 1, "stages": min(MOST_STAGES, chosen.stages), **given}
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
