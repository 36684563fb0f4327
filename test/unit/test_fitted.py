"""Tiles that a fit rates: of which products, and that `bench/fit.py` finds the terms that times have."""

from __future__ import annotations

import random
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from warploom.dialect.isa.row import target
from warploom.dialect.schedule import Schedule, roles
from warploom.passes.linalg.product import Product
from warploom.passes.schedule import warpgroup_schedule as fitted
from warploom.passes.schedule.warp_schedule import default_schedule
from warploom.passes.schedule.warpgroup_model import GroupTile, cost
from warploom.passes.schedule.warpgroup_schedule import schedules_by_cost
from warploom.runtime.cli.tune_report import product_of
from warploom.runtime.kernel.lowering import parse

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

fit: Any = import_module("fit")
Layer: Any = import_module("convolutions").Layer
HOPPER = target("sm_90a")


def product(element: str, size: tuple[int, int, int], op: str = "matmul_transpose_b", out: str = "") -> Product:
    m, n, k = size
    b = (n, k) if op == "matmul_transpose_b" else (k, n)
    types = f"memref<{m}x{k}x{element}>, memref<{b[0]}x{b[1]}x{element}>", f"memref<{m}x{n}x{out or element}>"
    text = f"""func.func @f(%A: {types[0].split(", ")[0]}, %B: {types[0].split(", ")[1]}, %D: {types[1]}) {{
      %zero = arith.constant 0.0 : {out or element}
      linalg.fill ins(%zero : {out or element}) outs(%D : {types[1]})
      linalg.{op} ins(%A, %B : {types[0]}) outs(%D : {types[1]})
      return
    }}"""
    return product_of(parse(text), "sm_90a")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (("bf16", (808, 1240, 520)), True),
        (("f16", (808, 1240, 520)), True),
        (("bf16", (808, 1240, 520), "matmul"), False),
        (("bf16", (808, 1240, 517)), False),
        (("bf16", (808, 1240, 520), "matmul_transpose_b", "f32"), False),
        (("f8E4M3FN", (808, 1248, 528), "matmul_transpose_b", "bf16"), False),
        (("bf16", (8192, 8192, 8192)), False),
        (("bf16", (24, 28672, 4096)), True),
        (("bf16", (16, 28672, 4096)), False),
        (("bf16", (17, 57344, 8192)), False),
    ],
)
def test_what_is_rated(case: tuple[str, tuple[int, int, int]], expected: bool) -> None:
    assert fitted.is_rated(product(*case), "none", HOPPER) == expected


def test_f16_has_the_schedule_of_bf16() -> None:
    for size in ((808, 1240, 520), (24, 5000, 1032), (3000, 96, 72)):
        of_f16, of_bf16 = (default_schedule(product(element, size), HOPPER) for element in ("f16", "bf16"))
        assert of_f16 == of_bf16


@pytest.mark.parametrize(("rows", "columns", "k"), [(17, 28672, 8192), (24, 5120, 8192), (32, 4096, 14336)])
def test_warpgroups_multiply_17_to_32_rows_by_many_weights(rows: int, columns: int, k: int) -> None:
    more, few = (default_schedule(product("bf16", (m, columns, k)), HOPPER) for m in (rows, 16))
    assert more.together > 1
    assert few.together == 1


def test_convolutions_share_and_walk_tiles_as_products_do() -> None:
    layers = Layer("", 2, 640, 32, 640, 3, 1, 1), Layer("", 2, 320, 128, 4, 3, 1, 1), Layer("", 8, 3, 224, 64, 7, 2, 3)
    small = Layer("", 64, 128, 7, 32, 3, 1, 1, by="data")
    square, narrow, colours, one_wave = (
        default_schedule(product_of(parse(each.text()), "sm_90a"), HOPPER) for each in (*layers, small)
    )
    assert square.ctas == 0
    assert 0.5 <= square.group**2 * square.cta[0] / (8 * square.cta[1]) <= 2  # a wave of tiles is nearly a square
    assert narrow.cta[1] == 16  # all others copy rows of filters that there are not
    assert colours.cluster == (2, 1)  # two tiles of pixels share the filter, whose rows begin within lines
    assert one_wave.cluster == (1, 1)


@pytest.mark.parametrize("size", [(12048, 400, 13368), (544, 8880, 15112), (12416, 392, 1360)])
def test_what_one_wave_of_192x208_covers_is_no_two_waves(size: tuple[int, int, int]) -> None:
    schedule = default_schedule(of := product("bf16", size), HOPPER)
    (m, n, _), (down, across) = schedule.cta, schedule.cluster
    ctas = of.tiles(m * down, n * across) * down * across * schedule.split_k
    assert ctas <= HOPPER.sms
    assert schedule.warp[1] == 2 * schedule.mma.n  # three warpgroups have no registers for one instruction of 208


def test_few_columns_or_rows_get_tiles_with_few_rows_of_boxes_beyond() -> None:
    for m, n, k in ((10224, 8, 10784), (9080, 8, 12600), (11776, 16, 16368), (152, 13224, 4984)):
        schedule = default_schedule(product("bf16", (m, n, k)), HOPPER)
        (high, wide), (rows, columns, _) = schedule.cluster, schedule.cta
        assert max(0, columns - n) / high + max(0, rows - m) / wide <= 16, (m, n, k, schedule)


def test_rows_of_boxes_beyond_cost_less_where_ctas_share_them() -> None:
    narrow, within = product("bf16", (10224, 8, 10784)), product("bf16", (10224, 96, 10784))
    tiles = [GroupTile(128, 96, cluster=(high, 1)) for high in (1, 2, 4)]
    costs = [cost(narrow, tile, "none", HOPPER) for tile in tiles]
    assert costs[0] > costs[1] > costs[2] > cost(narrow, GroupTile(128, 16), "none", HOPPER)
    assert costs[0] > cost(within, tiles[0], "none", HOPPER)


def test_tiles_come_in_the_order_of_their_ratings() -> None:
    of = product("bf16", (1432, 880, 11392))
    every = [*schedules_by_cost(of, HOPPER, "f32", "none")]
    models = [fit.modelled(of, schedule, HOPPER) for schedule in every]
    ratings = [fitted.rated(of, fitted.tile_of(s), ns, HOPPER) for s, ns in zip(every, models, strict=True)]
    near = [rating for rating, ns in zip(ratings, models, strict=True) if ns <= fitted.NEAR * min(models)]
    assert len(near) > 10
    assert near == ratings[: len(near)] == sorted(near)


def rows(terms: dict[tuple[str, ...], float], source: random.Random) -> list[Any]:
    """Sizes with eight schedules each, whose times are a model's but for these terms, and one in fifty."""
    made = list[Any]()
    for i in range(150):
        told = [{name: source.uniform(-2, 2) for name in ("one", "two", "three", "four")} for _ in range(8)]
        models = [source.uniform(4000, 40000) for _ in told]
        noise, common = 0.02, source.uniform(0.5, 2)
        times = [
            common * ns / 1000 * 2 ** (fitted.correction(values, terms) + source.uniform(-noise, noise))
            for ns, values in zip(models, told, strict=True)
        ]
        schedules = [Schedule.parse(f"{PLAIN}, group = {j + 1}") for j in range(8)]
        made.append(fit.Row((8 * i + 8, 64, 64), 10.0, dict(zip(schedules, times, strict=True)), models, told))
    return made


PLAIN = "cta = 64x64x64, warp = 32x32, mma = m16n8k16, stages = 3, swizzle = 128, accumulate = f32"


def test_a_fit_finds_the_terms_of_times() -> None:
    terms = {("one",): 0.3, ("one", "two"): -0.2, ("three", "three"): 0.15}
    problem = fit.Fit(rows(terms, random.Random()))
    weights = problem.solved(range(100), len(terms))
    assert {tuple(sorted(names)): weight for names, weight in weights.items()} == pytest.approx(
        {tuple(sorted(names)): weight for names, weight in terms.items()}, abs=0.02
    )
    moved = problem.updated(range(100), {**weights, ("one",): 0.0})
    assert 0.1 < moved["one",] < 0.2  # half of the way, by the ridge
    unseen = problem.ratings(weights)[100:]
    for row, ratings in zip(problem.rows[100:], unseen, strict=True):
        times = [*row.times.values()]
        assert times[ratings.index(min(ratings))] <= 1.2 * min(times)


def test_weights_are_read_as_they_are_written() -> None:
    weights = {("time",): -0.4627, ("area", "full"): 10.05, ("many", "turns"): 0.0354, ("cut", "cut"): -0.0073}
    assert fitted._read(fit.written(weights)) == weights  # pyright: ignore[reportPrivateUsage]
    text = Path(fitted.__file__).read_text()
    blocks = re.findall(r'WEIGHTS = _read\("""\n([^"]*)\n"""\)', text)
    assert [fit.written(fitted.WEIGHTS)] == blocks


def test_what_is_read_once_is_not_packed() -> None:
    """A launch that packs A would write and read once more what one column of tiles reads."""
    few, many = (default_schedule(product("bf16", (3904, n, 13446)), HOPPER) for n in (52, 5200))
    assert ("a" in roles(few.pack), "a" in roles(many.pack)) == (False, True)


@pytest.mark.parametrize("size", [(244, 9668, 19), (3284, 969, 21), (14455, 224, 15)])
def test_a_short_k_is_not_packed_and_its_d_is_stored_in_strips(size: tuple[int, int, int]) -> None:
    schedule = default_schedule(product("bf16", size), HOPPER)
    assert (schedule.together, schedule.pack) == (1, "none")
    assert schedule.staging > 0
