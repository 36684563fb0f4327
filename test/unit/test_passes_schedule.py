"""The schedules that `warp-schedule` chooses: they always fit, and suit the size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.dialect.isa.targets import TARGETS, Target, target
from warploom.dialect.schedule import Schedule
from warploom.passes.context import make_context, parse_mlir
from warploom.passes.product import Product, read
from warploom.passes.raise_matmul import raise_products
from warploom.passes.schedule import TILES, Tile, check, cycles, default_schedule, instruction, products

ABLE = [t for t in TARGETS.values() if t.sm >= 75]
sizes = st.one_of(st.integers(1, 300), st.integers(1, 20000), st.sampled_from([1, 16, 64, 128, 4096, 8192]))


def product(m: int, n: int, k: int, element: str = "f16") -> Product:
    a, b, c = f"memref<{m}x{k}x{element}>", f"memref<{k}x{n}x{element}>", f"memref<{m}x{n}xf32>"
    text = f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{ linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}"
    module = parse_mlir(make_context(), text)
    raise_products(module)
    return read(next(products(module)))


@given(sizes, sizes, sizes, st.sampled_from(ABLE), st.sampled_from(["f16", "bf16"]))
def test_the_default_fits(m: int, n: int, k: int, where: Target, element: str) -> None:
    if element == "bf16" and where.sm < 80:
        return
    asked = product(m, n, k, element)
    schedule = default_schedule(asked, where)
    check(schedule, asked, where)
    assert schedule.shared_bytes(16) <= where.shared
    assert schedule.mma.k == (16 if where.sm >= 80 else 8)
    steps = -(-k // schedule.cta[2])
    assert schedule.stages <= max(1, steps)


@given(sizes, sizes, sizes, st.sampled_from(ABLE))
def test_the_model_never_prefers_a_slower_tile(m: int, n: int, k: int, where: Target) -> None:
    """Where rows allow copies of 4 bytes; for other products some tiles are left out."""
    n, k = 2 * n, 2 * k
    asked = product(m, n, k)
    schedule, row = default_schedule(asked, where), instruction(asked, "f32", where)
    assert row is not None
    chosen = next(t for t in TILES if (t.cta, t.warp) == (schedule.cta[:2], schedule.warp))
    assert all(cycles(m, n, k, chosen, where, row) <= cycles(m, n, k, t, where, row) for t in TILES)


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_tiles_are_schedules(tile: Tile) -> None:
    schedule = Schedule((*tile.cta, tile.k), tile.warp, default_schedule(product(64, 64, 64), target("sm_80")).mma, 1)
    check(schedule, product(64, 64, 64), target("sm_80"))
    assert schedule.threads <= 256


def test_small_products_take_small_tiles() -> None:
    schedules = [default_schedule(product(size, size, size), target("sm_90a")) for size in (16, 256, 1024, 8192)]
    areas = [s.cta[0] * s.cta[1] for s in schedules]
    assert areas == sorted(areas)
    assert areas[0] < areas[-1] == 128 * 256
