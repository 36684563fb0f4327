"""Fields of a schedule that change how a product is computed, and not what: results are those of float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from grid import wrong
from orders import ALONE, VALUES, pairs
from products import Product, Types, fitted

from warploom.dialect.warp.matmul import MatmulOp
from warploom.passes.linalg.product import read
from warploom.passes.pipeline import lower, standard_pipeline
from warploom.passes.tile.tiling import Tiling, schedule_of
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, compile

F16, F64, S8 = Types("f16", "f16", "f32"), Types("f64", "f64", "f64"), Types("i8", "i8", "i32")
BF16, E4M3 = Types("bf16", "bf16", "bf16"), Types("f8E4M3FN", "f8E4M3FN", "f16")
TILE: dict[str, Any] = {"cta": (32, 32, 64), "warp": (32, 16), "stages": 2}


def form(types: Types, name: str, size: tuple[int, int, int] = (70, 40, 48), **schedule: Any) -> Product:
    tile = TILE | ({"cta": (32, 32, 16)} if types == F64 else {}) | ({"cta": (32, 32, 128)} if "sparse" in name else {})
    return replace(fitted(types, name, "A B", size), schedule=tile | schedule)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("add_c", ["first", "last"])
@pytest.mark.parametrize("staging", [0, 16])
@pytest.mark.parametrize("types", [BF16, F64, S8, E4M3], ids=str)
def test_c_is_added_first_or_last(types: Types, staging: int, add_c: str) -> None:
    assert not wrong(form(types, "added", staging=staging, add_c=add_c), "sm_90a")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("add_c", ["first", "last"])
@pytest.mark.parametrize("name", ["sparse, added", "dynamic", "tensors"])
def test_c_is_added_in_any_form(name: str, add_c: str) -> None:
    assert not wrong(form(F16, name, staging=16, add_c=add_c), "sm_90a")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", [{"sliced_k": 2}, {"split_k": 2}], ids=str)
def test_c_is_added_where_partial_sums_meet(schedule: dict[str, Any]) -> None:
    assert not wrong(form(F16, "cleared", add_c="last", **schedule), "sm_90a")
    with pytest.raises(CompileError, match="add_c = last: of a K that is sliced or split, C is added where partial"):
        form(F16, "added", add_c="last", **schedule).compile("sm_90a")


OTHERS: list[dict[str, Any]] = [
    {"edges": "predicated"},
    {"order": "rows", "access": 8},
    {"access": 4, "stages": 4, "sync": "mbarrier"},
    {"edges": "predicated", "order": "rows", "access": 8, "ctas": 2, "staging": 16},
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("schedule", OTHERS, ids=str)
@pytest.mark.parametrize(("types", "name"), [(F16, "cleared"), (S8, "residual"), (F16, "sparse")], ids=str)
def test_edges_order_and_access(types: Types, name: str, schedule: dict[str, Any]) -> None:
    assert not wrong(form(types, name, **schedule), "sm_90a")


def test_a_copy_takes_an_element_at_least() -> None:
    with pytest.raises(CompileError, match="access = 4: an element of f64 takes 8 bytes"):
        form(F64, "added", access=4).compile("sm_90a")


TWICE = """func.func @f(%A: memref<7x530xf16>, %B: memref<530x264xf16>, %C: memref<530x264xf16>, %D: memref<7x264xf32>,
    %E: memref<7x264xf32>) {
  linalg.matmul ins(%A, %B : memref<7x530xf16>, memref<530x264xf16>) outs(%D : memref<7x264xf32>)
  linalg.matmul ins(%A, %C : memref<7x530xf16>, memref<530x264xf16>) outs(%E : memref<7x264xf32>)
  return
}"""


@pytest.mark.parametrize(("registers", "kernels"), [(0, 1), (96, 2)])
def test_products_with_a_bound_on_registers_have_kernels_of_their_own(registers: int, kernels: int) -> None:
    """Products of few rows would share a launch, whose kernel has no schedule."""
    schedule = {"cta": (16, 64, 64), "warp": (16, 32), "sliced_k": 2, "split_k": 1, "staging": 0}
    kernel = compile(TWICE, target="sm_90", registers=registers, cache=False, **schedule)
    assert (kernel.ptx.count(".entry"), kernel.ptx.count(".maxnreg 96")) == (kernels, kernels if registers else 0)


HALVES = Types("f16", "f16", "f16")
TILES: dict[str, Any] = {"cta": (64, 64, 32), "warp": (32, 32)}
NARROW: dict[str, Any] = {"cta": (32, 48, 32), "warp": (16, 48)}
GROUPS: dict[str, Any] = {"cta": (64, 64, 64), "mma": "m64n64k16"}


def tiling(case: Product, target: str) -> Tiling:
    """The product of a function with the schedule that it gets."""
    ctx = make_context()
    module = parse_mlir(ctx, case.mlir)
    before, _, _ = standard_pipeline(target, case.schedule).partition(",warp-lay-out")
    lower(module, ctx, before)
    (op,) = (o for o in module.walk() if isinstance(o, MatmulOp))
    return Tiling(read(op), schedule_of(op))


LAST_STARTS: list[tuple[Product, str, tuple[int | None, int | None]]] = [
    (Product(F16, "cleared", "A B", (100, 200, 96), TILES), "sm_80", (36, 136)),
    (Product(F16, "cleared", "At Bt", (100, 200, 96), TILES), "sm_80", (36, 136)),
    (Product(F16, "cleared", "A B", (100, 200, 104), TILES), "sm_80", (36, 136)),
    # Whole tiles, and matrices of less than one.
    (Product(F16, "cleared", "A B", (128, 192, 96), TILES), "sm_80", (None, None)),
    (Product(F16, "cleared", "A B", (48, 64, 96), TILES), "sm_80", (None, None)),
    (Product(F16, "cleared", "A B", (65, 50, 96), TILES), "sm_80", (1, None)),
    (Product(F16, "cleared", "A B", (100, 200, 96), {**TILES, "edges": "predicated"}), "sm_80", (None, None)),
    (Product(F16, "dynamic", "A B", (100, 200, 96), TILES), "sm_80", (None, None)),
    # D that is read, and others beside it.
    (Product(F16, "added", "A B", (100, 200, 96), TILES), "sm_80", (None, None)),
    (Product(F16, "residual", "A B", (100, 200, 96), TILES), "sm_80", (36, 136)),
    # Metadata comes for whole tiles of rows, packed operands in whole tiles of rows along M or N.
    (Product(F16, "sparse", "A B", (100, 200, 96), {**TILES, "cta": (64, 64, 64)}), "sm_80", (None, 136)),
    (Product(F16, "cleared", "A B", (100, 200, 96), {**TILES, "pack": "ab"}), "sm_80", (36, None)),
    (Product(F16, "cleared", "At Bt", (100, 200, 96), {**TILES, "pack": "ab"}), "sm_80", (None, 136)),
    (Product(F16, "cleared", "At B", (100, 200, 96), {**TILES, "pack": "a"}), "sm_80", (None, 136)),
    (Product(F16, "cleared", "At B", (100, 200, 96), {**TILES, "pack": "b"}), "sm_80", (36, None)),
    # A gelu shares a reciprocal by 64 neighbours along N, in 16 bits and where it is known.
    (Product(HALVES, "gelu by tanh", "A B", (100, 200, 96), TILES), "sm_90a", (36, None)),
    (Product(HALVES, "gelu by tanh", "A B", (100, 192, 96), {**TILES, "cta": (64, 128, 32)}), "sm_90a", (36, 64)),
    (Product(HALVES, "gelu by tanh", "A B", (64, 112, 96), NARROW), "sm_90a", (None, 64)),
    (Product(HALVES, "gelu by tanh", "A B", (100, 200, 96), TILES), "sm_80", (36, 136)),
    (Product(F16, "gelu by tanh", "A B", (100, 200, 96), TILES), "sm_90a", (36, 136)),
    # Boxes begin at multiples of 16 bytes: of operands along their rows, and of a D that is staged.
    (Product(HALVES, "cleared", "A Bt", (100, 200, 128), GROUPS), "sm_90a", (36, 136)),
    (Product(HALVES, "cleared", "At B", (104, 200, 128), GROUPS), "sm_90a", (40, 136)),
    (Product(F16, "cleared", "A Bt", (99, 100, 128), {**GROUPS, "staging": 64}), "sm_90a", (35, 36)),
    (Product(HALVES, "cleared", "A Bt", (99, 100, 128), {**GROUPS, "staging": 0}), "sm_90a", (35, 36)),
    (Product(F16, "cleared", "A Bt", (99, 102, 128), {**GROUPS, "staging": 0}), "sm_90a", (35, 38)),
]  # fmt: skip
"""Products, targets, and where the last tiles along M and N start that are moved inside; None where none is."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("case", "target", "expected"), LAST_STARTS, ids=str)
def test_where_the_last_tile_starts(case: Product, target: str, expected: tuple[int | None, int | None]) -> None:
    case_tiling = tiling(case, target)
    assert (case_tiling.last_start("m"), case_tiling.last_start("n")) == expected
    assert case_tiling.last_start("k") is None
    complete = [size % step == 0 for size, step in zip(case.size[:2], case_tiling.schedule.cta, strict=False)]
    if case.form != "dynamic":
        assert (case_tiling.inside("m"), case_tiling.inside("n")) == tuple(
            even or start is not None for even, start in zip(complete, expected, strict=True)
        )


def test_every_field_is_tried_in_all_orders_of_warps() -> None:
    changed = {name for kernel in pairs() for name in (*VALUES, *ALONE) if f"{name}=" in str(kernel)}
    assert changed == {*VALUES, *ALONE}
