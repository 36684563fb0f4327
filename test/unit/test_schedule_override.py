"""Giving one field of a schedule changes that field, and others only where they must follow; a remark lists those."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import products
import pytest
from scheduled_functions import GATED

from warploom.dialect.isa.row import target
from warploom.dialect.schedule import FIELDS, Schedule, ScheduleError
from warploom.dialect.warp.matmul import MatmulOp
from warploom.passes.diagnostics import remarks
from warploom.passes.linalg.product import Product, read
from warploom.passes.pipeline import lower
from warploom.passes.schedule.candidates import asked_of, check, followed, override
from warploom.passes.schedule.warp_schedule import default_schedule
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, compile

SIZES = ((4096, 4096, 4096), (1000, 1000, 1000), (1024, 1024, 1024), (4095, 4095, 4095), (64, 64, 16384))
WHERE = target("sm_90")


@cache
def product(m: int, n: int, k: int, element: str) -> Product:
    """C + A * B, C of f32."""
    a, b, c = f"memref<{m}x{k}x{element}>", f"memref<{k}x{n}x{element}>", f"memref<{m}x{n}xf32>"
    text = f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{ linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}"
    module = parse_mlir(make_context(), text)
    lower(module, make_context(), "warp-raise-matmul")
    return read(next(op for op in module.walk() if isinstance(op, MatmulOp)))


@cache
def chosen(size: tuple[int, int, int]) -> Schedule:
    return default_schedule(product(*size, "bf16"), WHERE)


def overridden(size: tuple[int, int, int], **options: object) -> set[str]:
    """The fields that differ from the default's when these are given."""
    default = chosen(size)
    schedule = override(default, options, product(*size, "bf16"), WHERE)
    check(schedule, product(*size, "bf16"), WHERE)
    assert all(schedule[name] == value for name, value in options.items())
    differing = {name for name in FIELDS if schedule[name] != default[name]}
    assert {line.split(" = ")[0] for line in followed(default, options, schedule)} == differing - options.keys()
    return differing


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_field_given_as_it_is_chosen_changes_nothing(size: tuple[int, int, int]) -> None:
    for name in FIELDS:
        assert overridden(size, **{name: chosen(size)[name]}) == set()


@pytest.mark.parametrize(
    ("field", "value", "following"),
    [
        ("stages", 8, set[str]()),
        ("stages", 6, {"unroll"}),
        ("stages", 4, {"prefetch"}),
        ("stages", 2, {"prefetch", "sync"}),
        ("stages", 1, {"prefetch", "sync"}),
        ("prefetch", 3, set[str]()),
        ("unroll", 0, set[str]()),
        ("unroll", 16, set[str]()),
        ("ctas", 0, set[str]()),
        ("ctas", 132, set[str]()),
        ("sync", "barrier", set[str]()),
        ("staging", 0, set[str]()),
        ("staging", 32, {"stages", "prefetch"}),  # which take the room of a stage
        ("swizzle", 64, set[str]()),
        ("group", 4, set[str]()),
        ("split_k", 2, set[str]()),
        ("split_k", 32, {"unroll"}),
        ("pack", "b", set[str]()),
        ("order", "rows", set[str]()),
        ("edges", "predicated", set[str]()),
        ("add_c", "first", set[str]()),
        ("access", 8, set[str]()),
    ],
)
def test_what_follows_from_one_field(field: str, value: object, following: set[str]) -> None:
    """bf16 at 4096: 8 stages of 128x256x32, mbarriers, copies 5 ahead, turns of 8 K tiles, 128 CTAs, strips of 16."""
    default = chosen(SIZES[0])
    assert overridden(SIZES[0], **{field: value}) == following | ({field} if value != default[field] else set())


def test_rows_that_are_not_packed_take_other_copies() -> None:
    """At 4095 rows end at odd bytes: no asynchronous copy, so no mbarrier, where they are not packed."""
    assert chosen(SIZES[3]).pack == "ab"
    assert overridden(SIZES[3], pack="none") == {"pack", "sync"}


def test_a_tile_brings_its_own_loop() -> None:
    schedule = override(chosen(SIZES[0]), {"cta": (128, 128, 64)}, product(*SIZES[0], "bf16"), WHERE)
    assert schedule == chosen(SIZES[0]).with_fields(
        cta=(128, 128, 64), stages=4, sync="barrier", prefetch=0, unroll=0, ctas=0, staging=0
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stages": 400}, "400 stages of .* take .* KiB of shared memory"),
        ({"order": "x"}, "order must be one of serpentine, rows, got x"),
        ({"in_registers": "ab"}, "in_registers must be one of none, a, b, got ab"),
        ({"stages": 0}, "stages must be 1 to 1024"),
        ({"prefetch": 9}, "prefetch must be 0 to 7 with 8 stages, got 9"),
        ({"stages": 4, "prefetch": 4}, "prefetch must be 0 to 3 with 4 stages, got 4"),
        ({"stages": 2, "sync": "mbarrier"}, "sync = mbarrier takes at least 3 stages, got 2"),
        ({"unroll": 12}, "unroll must be a multiple of the 8 stages, got 12"),
    ],
)
def test_fields_given_that_contradict_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        override(chosen(SIZES[0]), options, product(*SIZES[0], "bf16"), WHERE)


def test_what_follows_is_a_remark() -> None:
    text = """func.func @f(%A: memref<4096x4096xbf16>, %B: memref<4096x4096xbf16>, %C: memref<4096x4096xf32>) {
      linalg.matmul ins(%A, %B : memref<4096x4096xbf16>, memref<4096x4096xbf16>) outs(%C : memref<4096x4096xf32>)
      return
    }"""
    for option, expected in (("stages=8", []), ("stages=4", ["prefetch = 0 (5)"])):
        module = parse_mlir(make_context(), text)
        with remarks() as said:
            lower(module, make_context(), f"warp-set-target{{arch=sm_90}},warp-schedule{{{option}}}")
        reasons = [re.sub(r"^\S+: remark: warp-schedule: .*\(before\): ", "", line) for line in said]
        assert reasons == expected
        assert "sync = mbarrier" in str(module)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stages": 1}, {"stages": 1, "sync": "barrier", "together": 1}),  # warpgroups take three stages or more
        ({"stages": 3}, {"stages": 3, "sync": "mbarrier", "together": 4}),
        ({"sliced_k": 4}, {"sliced_k": 4, "together": 1}),  # no default tile of this size has so many slices
        ({"cluster": (2, 1), "ctas": 66}, {"cluster": (2, 1), "together": 4}),
    ],
)
def test_fields_that_the_default_cannot_have_choose_another_schedule(
    fields: dict[str, object], expected: dict[str, object]
) -> None:
    where, asked = target("sm_90a"), product(4096, 4096, 4096, "bf16")
    default = default_schedule(asked, where, by=asked_of(fields))
    schedule = override(default, fields, asked, where)
    assert {name: getattr(schedule, name) for name in expected} == expected
    check(schedule, asked, where)


@pytest.mark.parametrize(
    ("fields", "slices"),
    [
        ({"cta": "32x64x256", "warp": "32x32", "sliced_k": 2, "split_k": 2, "stages": 2}, 2),
        ({"cta": "64x64x256", "warp": "64x64", "sliced_k": 4, "stages": 2}, 4),
    ],
)
def test_slices_divide_base_tiles_of_several_instructions(fields: dict[str, Any], slices: int) -> None:
    """Integers of 4 bits that do not lie along k change places: a base tile of sums is 32x32."""
    text = products.Product(products.Types("i4", "i4", "i32"), "added", "At B", (64, 64, 512)).mlir
    with pytest.raises(CompileError, match=f"schedule: sliced_k = {slices}, split_k = .*base tiles"):
        compile(text, "sm_80", cache=False, mma="m16n8k64", **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [("split_k = 7", "split_k = 7: it must divide K = 64"), ("ctas = 2, stages = 90", "90 stages of")],
)
def test_a_whole_schedule_fits_its_product(fields: str, message: str) -> None:
    """What a module says itself is held to what a caller's fields are."""
    whole = f"cta = 32x32x16, warp = 16x32, mma = m16n8k16, swizzle = 32, group = 1, accumulate = f32, {fields}"
    whole += "" if "stages" in whole else ", stages = 2"
    a, c = "memref<64x64xf16>", "memref<64x64xf32>"
    text = f"""func.func @f(%A: {a}, %B: {a}, %C: {c}) {{
  linalg.matmul {{warp.schedule = #warp.schedule<{whole}>}} ins(%A, %B : {a}, {a}) outs(%C : {c})
  return
}}"""
    with pytest.raises(CompileError, match=f"^<mlir>:2:3: error: schedule: {message}"):
        compile(text, "sm_80", cache=False)


def test_two_matrices_lie_side_by_side_in_tiles_of_no_whole_lines() -> None:
    """Of 88 columns each: rounding the tile up to lines would move the second one."""
    rng = np.random.default_rng()
    text = GATED.format(m=12, n=16, k=32, f="f16", body=products.GATE)
    a, b, u = (rng.standard_normal(shape).astype(np.float16) for shape in ((12, 32), (32, 16), (32, 16)))
    tile: dict[str, Any] = {"cta": (64, 176, 64), "warp": (64, 176), "mma": "m64n176k16"}
    result = np.full((12, 16), np.nan, np.float32)
    compile(text, "sm_90a", cache=False, **tile)(a, b, u, result, device="interp")
    gate, values = (a.astype(np.float64) @ each.astype(np.float64) for each in (b, u))
    np.testing.assert_allclose(result, gate / (1 + np.exp(-gate)) * values, rtol=1e-4, atol=1e-4)
