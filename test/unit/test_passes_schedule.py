"""The schedules that `warp-schedule` chooses: they always fit, and suit the size."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warploom.dialect.isa.row import KIB, TARGETS, Target, target
from warploom.dialect.schedule import Schedule
from warploom.dialect.warp.attributes import ScheduleAttr
from warploom.dialect.warp.matmul import MatmulOp
from warploom.passes.linalg.product import Product, read
from warploom.passes.pipeline import lower
from warploom.passes.schedule.candidates import check
from warploom.passes.schedule.fragments import with_margin
from warploom.passes.schedule.model import BETWEEN_TILES, COST_STEP, TILES, Tile
from warploom.passes.schedule.needs import instruction, shared_bytes, slice_bytes
from warploom.passes.schedule.warp_schedule import default_schedule
from warploom.passes.universe import make_context, parse_mlir

ABLE = [t for t in TARGETS.values() if t.sm >= 75]
sizes = st.one_of(st.integers(1, 300), st.integers(1, 20000), st.sampled_from([1, 16, 64, 128, 4096, 8192]))


def product(m: int, n: int, k: int, element: str = "f16", result: str = "f32", *, by_rows: bool = True) -> Product:
    sides, name = (f"{k}x{n}", "matmul") if by_rows else (f"{n}x{k}", "matmul_transpose_b")
    a, b, c = f"memref<{m}x{k}x{element}>", f"memref<{sides}x{element}>", f"memref<{m}x{n}x{result}>"
    text = f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{ linalg.{name} ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}"
    ctx = make_context()
    module = parse_mlir(ctx, text)
    lower(module, ctx, "warp-raise-matmul{tf32=true}")
    return read(next(op for op in module.walk() if isinstance(op, MatmulOp)))


@given(sizes, sizes, sizes, st.sampled_from(ABLE), st.sampled_from(["f16", "bf16"]))
@example(1024, 1408, 128, target("sm_90a"), "f16")
def test_the_default_fits(m: int, n: int, k: int, where: Target, element: str) -> None:
    if element == "bf16" and where.sm < 80:
        return
    asked = product(m, n, k, element)
    schedule = default_schedule(asked, where)
    check(schedule, asked, where)
    if schedule.together == 1:  # of warpgroups `check` has looked at it
        assert shared_bytes(asked, schedule) <= where.shared
    assert schedule.mma.k == (16 if where.sm >= 80 else 8)
    steps = -(-k // (schedule.split_k * schedule.cta[2]))
    if not schedule.ctas:  # those that go from tile to tile fill stages for the next one
        assert schedule.stages <= max(steps + 1, 3 if schedule.together > 1 else 0)


def test_shared_memory_holds_each_operand_from_a_multiple_of_a_kibibyte() -> None:
    asked = product(256, 256, 256)
    shape = default_schedule(asked, target("sm_80")).mma
    plain = Schedule(cta=(128, 48, 16), warp=(32, 24), mma=shape, stages=3)
    assert shared_bytes(asked, plain) == (12 + 4.5) * KIB
    assert shared_bytes(asked, plain.with_fields(cta=(16, 48, 16), warp=(16, 24))) == (2 + 4.5) * KIB
    sliced = plain.with_fields(cta=(128, 48, 32), sliced_k=2)
    assert shared_bytes(asked, sliced) == (24 + 9 + slice_bytes(sliced) / KIB) * KIB


@given(sizes, sizes, sizes, st.sampled_from(ABLE))
@example(1, 2, 125, target("sm_75"))
@example(7425, 321, 1, target("sm_75"))
@example(1665, 193, 17, target("sm_87"))
def test_the_model_never_prefers_a_slower_tile(m: int, n: int, k: int, where: Target) -> None:
    """Where rows allow copies of 16 bytes; for other products packing and slower copies count too."""
    n, k = 8 * n, 8 * k
    asked = product(m, n, k)
    schedule, row = default_schedule(asked, where, by="fragments"), instruction(asked, "f32", where)
    assert row is not None
    what = schedule.cta[:2], schedule.warp, schedule.sliced_k
    chosen = next(t for t in (*TILES, *BETWEEN_TILES) if (t.cta, t.warp, t.sliced_k) == what)
    if schedule.split_k == 1:
        unsliced = [t for t in TILES if t.sliced_k == 1]
        best = min(with_margin(asked, tile, where, row) for tile in unsliced)
        assert with_margin(asked, chosen, where, row) <= best + COST_STEP
    assert schedule.pack == "none"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_tiles_are_schedules(tile: Tile) -> None:
    shape = default_schedule(product(64, 64, 64), target("sm_80")).mma
    schedule = Schedule(cta=(*tile.cta, tile.k), warp=tile.warp, mma=shape, sliced_k=tile.sliced_k, stages=1)
    check(schedule, product(64, 64, 64), target("sm_80"))
    assert schedule.threads <= 256


@pytest.mark.parametrize(
    ("element", "result", "size", "arch", "depth"),
    [
        ("bf16", "f32", 4096, "sm_90", 32),
        ("i8", "i32", 4096, "sm_90", 64),
        ("i8", "i32", 4096, "sm_80", 64),
        ("f32", "f32", 4096, "sm_90", 16),
        ("f64", "f64", 4096, "sm_90", 0),
        ("i8", "i32", 4104, "sm_90", 0),
        ("f16", "f32", 4096, "sm_75", 0),
    ],
)
def test_warps_of_large_tiles_meet_at_mbarriers(element: str, result: str, size: int, arch: str, depth: int) -> None:
    """Not those of f64, whose tiles are small, nor where copies are narrow, 8 bytes for rows of 4104."""
    asked = product(size, size, size, element, result)
    schedule = default_schedule(asked, target(arch))
    check(schedule, asked, target(arch))
    if not depth:
        assert (schedule.sync, schedule.unroll, schedule.ctas) == ("barrier", 0, 0)
        return
    assert (schedule.sync, schedule.cta[2]) == ("mbarrier", depth)
    assert schedule.cta[2] == 2 * schedule.mma.k
    assert schedule.stages >= 3
    tiles, sms = size // schedule.cta[0] * (size // schedule.cta[1]), target(arch).sms
    assert schedule.ctas <= sms
    assert -(-tiles // schedule.ctas) == -(-tiles // sms)
    assert schedule.unroll == (0 if size // depth % schedule.stages else schedule.stages)


@pytest.mark.parametrize(("size", "waves"), [(1536, 1), (1920, 1), (2560, 2), (3328, 3), (4096, 4), (8192, 16)])
def test_tiles_fill_their_waves(size: int, waves: int) -> None:
    """No size takes a wave for a few tiles where others fill the waves better."""
    where, schedule = target("sm_90"), default_schedule(product(size, size, size), target("sm_90"))
    tiles = -(-size // schedule.cta[0]) * -(-size // schedule.cta[1])
    assert -(-tiles // where.sms) == waves
    assert size * size / (schedule.cta[0] * schedule.cta[1] * where.sms) > 0.7 * waves


@pytest.mark.parametrize("size", [(10192, 10696, 32), (14456, 9048, 16)])
def test_wide_tiles_store_more_than_they_read(size: tuple[int, int, int]) -> None:
    assert default_schedule(product(*size), target("sm_90")).cta[:2] == (128, 256)


@pytest.mark.parametrize("size", [(392, 4744, 32), (6664, 136, 48), (120, 12488, 48)])
def test_warps_store_whole_lines_of_large_results(size: tuple[int, int, int]) -> None:
    """H100, B along K, microseconds by warps of 48 columns and the best: 6.0 and 4.3, 4.5 and 3.7, 5.2 and 4.8."""
    assert default_schedule(product(*size, "bf16", "bf16"), target("sm_90a"), by="fragments").warp[1] == 64


def test_small_products_take_small_tiles() -> None:
    schedules = [default_schedule(product(size, size, size), target("sm_90")) for size in (16, 256, 1024, 8192)]
    areas = [s.cta[0] * s.cta[1] for s in schedules]
    assert areas == sorted(areas)
    assert areas[0] < areas[-1] == 128 * 256


@pytest.mark.parametrize(
    ("size", "pack"),
    [
        ((4096, 4096, 4096), "none"),
        ((4095, 4095, 4095), "ab"),
        ((4095, 4096, 4095), "a"),
        ((4096, 4095, 4096), "b"),
        ((2046, 2046, 2046), "ab"),
        ((127, 127, 127), "none"),
        ((4095, 4095, 1), "none"),
    ],
)
def test_operands_are_packed_where_many_tiles_read_them(size: tuple[int, int, int], pack: str) -> None:
    assert default_schedule(product(*size), target("sm_90")).pack == pack


@pytest.mark.parametrize(
    ("size", "together"), [((10, 31, 511), 1), ((39, 1212, 535), 1), ((89, 34, 2194), 4), ((17, 24, 2610), 4)]
)
def test_packing_costs_as_much_before_fragments_as_before_warpgroups(size: tuple[int, int, int], together: int) -> None:
    """H200, microseconds so, and as chosen when it did not: 4.2 and 4.7, 7.6 and 7.7, 6.5 and 7.5, 5.9 and 7.9."""
    schedule = default_schedule(product(*size, "bf16", "bf16", by_rows=False), target("sm_90a"))
    assert (schedule.pack, schedule.together) == ("ab", together)


@pytest.mark.parametrize(
    ("size", "split"),
    [
        ((128, 128, 8192), True),
        ((64, 64, 16384), True),
        ((512, 512, 512), False),
        ((1024, 1024, 1024), False),
        ((128, 128, 8191), False),
    ],
)
def test_k_is_cut_where_it_is_long_and_tiles_are_few(size: tuple[int, int, int], split: bool) -> None:
    schedule, m, n = default_schedule(product(*size), target("sm_90")), size[0], size[1]
    assert (schedule.split_k > 1) == split
    assert schedule.split_k * -(-m // schedule.cta[0]) * -(-n // schedule.cta[1]) <= 132


def test_where_memory_binds_a_cta_keeps_more_on_the_way() -> None:
    def in_flight(size: tuple[int, int, int]) -> int:
        schedule = default_schedule(product(*size), target("sm_90"))
        m, n, k = schedule.cta
        return (schedule.stages - 1) * (m + n) * k * 2

    assert in_flight((16, 8192, 8192)) >= 64 * KIB <= in_flight((128, 16384, 4096))
    assert in_flight((1024, 1024, 1024)) < in_flight((128, 16384, 4096))


def test_a_tile_other_than_chosen_comes_without_slices() -> None:
    text = """builtin.module attributes {warp.target = #warp.target<sm_90>} {
      func.func @f(%A: memref<1024x1024xf16>, %B: memref<1024x1024xf16>, %C: memref<1024x1024xf32>) {
        linalg.matmul ins(%A, %B : memref<1024x1024xf16>, memref<1024x1024xf16>) outs(%C : memref<1024x1024xf32>)
        return
      } }"""
    chosen: list[Schedule] = []
    for options in ("", "{cta=64,128,32}", "{cta=64,128,64 warp=64,64 sliced_k=2}"):
        ctx = make_context()
        module = parse_mlir(ctx, text)
        lower(module, ctx, f"warp-schedule{options}")
        attribute = next(op for op in module.walk() if isinstance(op, MatmulOp)).attributes[ScheduleAttr.name]
        assert isinstance(attribute, ScheduleAttr)
        chosen.append(attribute.data)
    assert [s.sliced_k for s in chosen] == [2, 1, 2]
    assert chosen[1].warp == (32, 64)
