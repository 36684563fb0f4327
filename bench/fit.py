"""The weights of `passes/schedule/warpgroup_schedule.py`, made again from measurements: two commands.

    bench/with_gpu.sh python bench/fit.py measure 221 60 --json times.json [--compile]
    python bench/fit.py fit bench/schedules-h100.json times.json [--update] [--keep bench/schedules-h100.json] [--write]

`measure` draws sizes as `draw.py` does, takes of each the default, schedules whose tiles are rated best and some that
the models alone like best, and times them in turns with cuBLAS (`--compile` fills the caches on all cores before).
`fit` takes such files, or those of `draw.py --json`, and needs no GPU: each row is one size on one device, whose
schedules are compared with each other alone. It says what would be chosen of what was measured, by the models alone, by
the weights that are in use, and by new ones where a size had no part in them (five parts). `--keep` writes all rows
into one file, `--write` new weights, fitted to all rows, into `warpgroup_schedule.py`.

The fit: products of two features are taken one after another, that which explains most of the weighted squares first
(orthogonal matching pursuit, Pati and others, 1993), with a ridge. Times near the best of a size weigh most. With
`--update` the products in use stay, and their weights move.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
from gemm_types import KINDS
from graphs import Size

from warploom.dialect.isa.row import Target
from warploom.dialect.isa.row import target as target_row
from warploom.dialect.schedule import Schedule
from warploom.dialect.schedule.schedule import FIELDS, text_of
from warploom.dialect.warp.matmul import MatmulOp
from warploom.passes.linalg.product import Product, read
from warploom.passes.pipeline import lower, standard_pipeline
from warploom.passes.schedule import model, needs
from warploom.passes.schedule import warpgroup_schedule as fitted
from warploom.passes.schedule.candidates import candidates
from warploom.passes.schedule.fragments import with_margin
from warploom.passes.schedule.warp_schedule import default_schedule
from warploom.passes.schedule.warpgroup_model import k_of
from warploom.passes.schedule.warpgroup_schedule import correction, features, is_rated, rated, tile_of, time_of
from warploom.passes.universe import make_context
from warploom.runtime.kernel.lowering import parse

TARGET = "sm_90a"

PARTS, TERMS = 5, 60
"""Parts of a cross-validation; products of features."""

NEAR, FAR, RIDGE, FEWEST = 0.15, 0.05, 1.0, 60
"""By how much of the best time the weight of a time falls e-fold, and the least weight; what is added to the squares of
each term; schedules that a term must be of."""

INERTIA = 1.0
"""The ridge of an update, as a part of the squares: by it fewer choices change that no new row speaks of."""

PLACE = r'(WEIGHTS = _read\(""")[^"]*("""\)\n"""[^"]*?)times of [\d,]+ schedules of [\d,]+ sizes'
"""Weights in `warpgroup_schedule.py`, and what is said of their data."""

DEVICE, OTHER_DEVICES = "H200", 0.25
"""The device that weights are for, and what a row of another one weighs: times of the best by weights of other sizes
1.030 of an H200's with 1.0, 1.029 with 0.25 and with 0.1."""

COLUMNS = 116
"""Of a line of weights."""


def modelled(product: Product, schedule: Schedule, target: Target) -> float:
    """The nanoseconds that a model gives the tile of a schedule, of which `fitted` knows the errors."""
    if schedule.together > 1:
        return time_of(product, schedule, target)
    shape = schedule.cta[:2], schedule.warp, schedule.sliced_k
    every = (*model.TILES, *model.BETWEEN_TILES)
    tile = next((each for each in every if (each.cta, each.warp, each.sliced_k) == shape), None) or tile_of(schedule)
    row = needs.instruction(product, schedule.accumulate, target)
    assert isinstance(tile, model.Tile)
    assert row is not None
    return model.nanoseconds(product, with_margin(product, tile, target, row), staged=True)


@dataclass(frozen=True)
class Row:
    """A size on a device, with its weight: microseconds of cuBLAS and by schedules, the models' nanoseconds, and what
    tiles are like."""

    size: Size
    peer: float
    times: dict[Schedule, float]
    models: list[float]
    features: list[dict[str, float]]
    weight: float = 1.0


def product_at(size: Size) -> Product:
    """The product of `draw.py` of a size."""
    module, context = parse(KINDS["bf16"].text(size, "bf16", transposed=True)), make_context()
    lower(module, context, standard_pipeline(TARGET).partition(",warp-version")[0])
    return read(next(op for op in module.walk() if isinstance(op, MatmulOp)))


def _is_told(product: Product, schedule: Schedule) -> bool:
    """Whether features say all of a schedule that its time depends on, beside what follows from its tile."""
    plain = schedule.pack == "none" and schedule.batch_invariant == "False"
    return plain and (schedule.cta[2] == k_of(product) if schedule.together > 1 else schedule.split_k == 1)


def rows_of(contents: Sequence[dict[str, Any]], target: Target) -> Iterator[Row]:
    """What files have of products that the fit is for."""
    for content in contents:
        names, weight = content.get("schedules"), 1.0 if DEVICE in content["device"] else OTHER_DEVICES
        for row in content["rows"]:
            size = tuple(row["size"])
            product = product_at(size)
            texts = {names[int(name)] if names else name: us for name, us in row["ours"].items()}
            times = {schedule: us for text, us in texts.items() if _is_told(product, schedule := Schedule.parse(text))}
            if len(times) > 1 and is_rated(product, "none", target):
                models = [modelled(product, schedule, target) for schedule in times]
                told = [features(product, tile_of(s), ns, target) for s, ns in zip(times, models, strict=True)]
                yield Row(size, row["peer"], times, models, told, weight)


class Fit:
    """Rows as a linear problem: for each schedule the logarithm of its time over the model's, and products of features,
    both relative to the weighted mean of the row."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        every = [values for row in rows for values in row.features]
        single = sorted({name for values in every for name in values})
        self.names = list(combinations_with_replacement(single, 2)) + [(name,) for name in single]
        table = {name: np.array([values.get(name, 0.0) for values in every]) for name in single}
        columns, seen = list[Any](), dict[bytes, tuple[str, ...]]()
        for names in sorted(self.names, key=len):
            column = np.prod([table[name] for name in names], axis=0)
            if np.count_nonzero(column) >= FEWEST and seen.setdefault(column.tobytes(), names) is names:
                columns.append(column)
        self.names, self.x = list(seen.values()), np.stack(columns, 1)
        self.base = np.log2([ns for row in rows for ns in row.models])
        self.y = np.log2([1000 * us for row in rows for us in row.times.values()]) - self.base
        self.starts = np.cumsum([0, *(len(row.times) for row in rows)])

    def _squares(self, which: Sequence[int]) -> tuple[Any, Any]:
        """The weighted squares of these rows, and their products with what is to be explained."""
        square, target = np.zeros((len(self.names), len(self.names))), np.zeros(len(self.names))
        for i in which:
            at, times = slice(self.starts[i], self.starts[i + 1]), np.array([*self.rows[i].times.values()])
            weights = self.rows[i].weight * (np.exp((1 - times / times.min()) / NEAR) + FAR)
            x, y = (z - weights @ z / weights.sum() for z in (self.x[at], self.y[at]))
            square += x.T * weights @ x
            target += x.T @ (weights * y)
        return square, target

    def updated(self, which: Sequence[int], used: Mapping[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
        """Weights of the same products of features as those `used`, moved to what these rows say, with a ridge."""
        places: dict[tuple[str, ...], int] = {names: i for i, names in enumerate(self.names)}
        at, before = [places[names] for names in used], np.array([*used.values()])
        square, target = self._squares(which)
        inner = square[np.ix_(at, at)]
        moved = np.linalg.solve(inner + INERTIA * np.diag(np.diag(inner)), target[at] - inner @ before)
        return dict(zip(used, map(float, before + moved), strict=True))

    def solved(self, which: Sequence[int], count: int) -> dict[tuple[str, ...], float]:
        """Weights of `count` products of features, by these rows."""
        square, target = self._squares(which)
        chosen, weights, alone = list[int](), np.zeros(0), np.diag(square)
        while len(chosen) < count:
            left, own = target - square[:, chosen] @ weights, alone.copy()
            if chosen:
                inner = square[np.ix_(chosen, chosen)] + RIDGE * np.eye(len(chosen))
                own -= np.einsum("ij,ji->i", square[:, chosen], np.linalg.solve(inner, square[chosen]))
            gains = np.where(own > 1e-3 * alone + 1, left**2 / (own + RIDGE), -1.0)
            gains[chosen] = -1.0
            chosen.append(int(gains.argmax()))
            inner = square[np.ix_(chosen, chosen)] + RIDGE * np.eye(len(chosen))
            weights = np.linalg.solve(inner, target[chosen])
        return {self.names[i]: float(weight) for i, weight in zip(chosen, weights, strict=True)}

    def ratings(self, weights: Mapping[tuple[str, ...], float]) -> list[list[float]]:
        """What weights give each schedule of each row."""
        return [
            [math.log2(ns) + correction(told, weights) for ns, told in zip(row.models, row.features, strict=True)]
            for row in self.rows
        ]

    def show(self, what: str, ratings: Sequence[Sequence[float]], least: int = 4) -> None:
        """What is chosen so of rows with at least so many schedules, beside the best of what was measured."""
        ours, best = list[float](), list[float]()
        for row, rating in zip(self.rows, ratings, strict=True):
            times = [*row.times.values()]
            if len(times) >= least:
                ours.append(row.peer / times[min(range(len(times)), key=rating.__getitem__)])
                best.append(row.peer / min(times))
        above = [sum(ratio > 0.95 for ratio in ratios) / len(ratios) for ratios in (ours, best)]
        mean, possible = statistics.geometric_mean(ours), statistics.geometric_mean(best)
        print(
            f"{what:30} {len(ours)} rows, of the best time {possible / mean:.4f}, of cuBLAS {mean:.3f}, "
            f"above 0.95 {above[0]:.1%} (the best {above[1]:.1%}), least {min(ours):.2f}"
        )


def cross_validated(
    problem: Fit, solved: Callable[[Sequence[int]], Mapping[tuple[str, ...], float]]
) -> list[list[float]]:
    """Ratings of each row by weights of rows of other sizes."""
    sizes = sorted({row.size for row in problem.rows})
    random.Random(1).shuffle(sizes)
    part = {size: i % PARTS for i, size in enumerate(sizes)}
    made = list[list[list[float]]]()
    for left_out in range(PARTS):
        which = [i for i, row in enumerate(problem.rows) if part[row.size] != left_out]
        made.append(problem.ratings(solved(which)))
    return [made[part[row.size]][i] for i, row in enumerate(problem.rows)]


def written(weights: dict[tuple[str, ...], float]) -> str:
    """Weights as `warpgroup_schedule.py` has them."""
    numbers = (re.sub(r"^(-?)0", r"\1", f"{weight:.4f}") for weight in weights.values())
    terms = [f"{'*'.join(names)} {number}" for names, number in zip(weights, numbers, strict=True)]
    lines, words = [""], " ".join(f"{term}," for term in terms).rstrip(",").split(" ")
    for word in words:
        if len(lines[-1]) + 1 + len(word) > COLUMNS:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(f"    {line}" for line in lines)


def write(problem: Fit, weights: dict[tuple[str, ...], float]) -> None:
    """Changes the weights in `warpgroup_schedule.py`, and what is said of their data."""
    place = Path(fitted.__file__)
    schedules, sizes = int(problem.starts[-1]), len({row.size for row in problem.rows})
    said = f"times of {round(schedules, -2):,} schedules of {round(sizes, -1):,} sizes"
    place.write_text(re.sub(PLACE, lambda m: f"{m[1]}\n{written(weights)}\n{m[2]}{said}", place.read_text()))


def keep(contents: Sequence[dict[str, Any]], place: Path) -> None:
    """All rows in one file, which has the text of each schedule once."""
    names, rows = dict[str, int](), list[str]()
    for content in contents:
        had = content.get("schedules")
        for row in content["rows"]:
            ours = {had[int(name)] if had else name: us for name, us in row["ours"].items()}
            numbered = {names.setdefault(text, len(names)): round(us, 3) for text, us in ours.items()}
            rows.append(json.dumps({"size": row["size"], "peer": round(row["peer"], 3), "ours": numbered}))
    devices = sorted({content["device"] for content in contents})
    schedules = ",\n".join(json.dumps(name) for name in names)
    place.write_text(
        f'{{"device": {json.dumps(", ".join(devices))}, "schedules": [\n{schedules}\n], "rows": [\n'
        + ",\n".join(rows) + "\n]}\n"
    )  # fmt: skip


def schedules_of(count: int) -> Callable[[Size], list[dict[str, Any]]]:
    """The default of a size, then as many others: three of four that are rated best, the rest by the models alone, each
    with a tile of its own."""

    def chosen(size: Size) -> list[dict[str, Any]]:
        product, target = product_at(size), target_row(TARGET)
        default, *others = (
            s for s in candidates(default_schedule(product, target), product, target) if _is_told(product, s)
        )
        staged = sorted(others, key=lambda s: -s.staging)  # as defaults are, and as the models say
        first = {tile_of(s): s for s in reversed([default, *staged])}
        models = {tile: modelled(product, s, target) for tile, s in first.items()}
        ratings = {tile: rated(product, tile, ns, target) for tile, ns in models.items()}
        tiles = [tile_of(default), *sorted(ratings, key=ratings.__getitem__)[: 3 * count // 4]]
        tiles = [*dict.fromkeys((*tiles, *sorted(models, key=models.__getitem__)))][: 1 + count]
        return [{name: text_of(first[tile][name]) for name in FIELDS} for tile in tiles]

    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("seed", type=int)
    measuring.add_argument("count", type=int)
    measuring.add_argument("--each", type=int, default=12, help="schedules of a size beside the default")
    measuring.add_argument("--compile", action="store_true", help="compile on all cores, measure nothing")
    measuring.add_argument("--seconds", type=float, default=600.0)
    measuring.add_argument("--json", type=Path)
    measuring.set_defaults(target=TARGET, repeats=5)
    fitting = commands.add_parser("fit")
    fitting.add_argument("files", type=Path, nargs="+")
    fitting.add_argument("--terms", type=int, default=TERMS)
    fitting.add_argument("--update", action="store_true", help="move the weights in use, with the same terms")
    fitting.add_argument("--keep", type=Path, help="write all rows into this file")
    fitting.add_argument("--write", action="store_true", help="write the weights where they are read")
    options = parser.parse_args()
    if options.command == "measure":
        from draw import draw, fill, run  # pyright: ignore[reportAttributeAccessIssue]: `docs/draw.py` has that name, too

        sizes, schedules = draw(options.seed, options.count, 8), schedules_of(options.each)
        if options.compile:
            fill(sizes, schedules, TARGET)
        elif options.json is None:
            sys.exit("measure: --json names the file of the times")
        else:
            run(sizes, schedules, options)
        return
    contents = [json.loads(file.read_text()) for file in options.files]
    problem = Fit([*rows_of(contents, target_row(TARGET))])
    print(f"{problem.starts[-1]} schedules of {len(problem.rows)} rows, {len(problem.names)} products of features")
    problem.show("the models alone", [row.models for row in problem.rows])
    problem.show("the weights in use", problem.ratings(fitted.WEIGHTS))

    def solved(which: Sequence[int]) -> dict[tuple[str, ...], float]:
        return problem.updated(which, fitted.WEIGHTS) if options.update else problem.solved(which, options.terms)

    problem.show(f"{options.terms} terms, cross-validated", cross_validated(problem, solved))
    weights = solved(range(len(problem.rows)))
    problem.show(f"{options.terms} terms, of all rows", problem.ratings(weights))
    print(written(weights))
    if options.keep is not None:
        keep(contents, options.keep)
    if options.write:
        write(problem, weights)


if __name__ == "__main__":
    main()
