"""Fields of a schedule that change how a product is computed, and not what: results are those of float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from grid import wrong
from products import Product, Types, fitted

from warploom.runtime import CompileError

F16, F64, S8 = Types("f16", "f16", "f32"), Types("f64", "f64", "f64"), Types("i8", "i8", "i32")
BF16, E4M3 = Types("bf16", "bf16", "bf16"), Types("f8E4M3FN", "f8E4M3FN", "f16")
TILE: dict[str, Any] = {"cta": (32, 32, 64), "warp": (32, 16), "stages": 2}


def form(types: Types, name: str, size: tuple[int, int, int] = (70, 40, 48), **schedule: Any) -> Product:
    tile = TILE | ({"cta": (32, 32, 16)} if types == F64 else {}) | ({"cta": (32, 32, 128)} if "sparse" in name else {})
    return replace(fitted(types, name, "A B", size), schedule=tile | schedule)


@pytest.mark.parametrize("add_c", ["first", "last"])
@pytest.mark.parametrize("staging", [0, 16])
@pytest.mark.parametrize("types", [BF16, F64, S8, E4M3], ids=str)
def test_c_is_added_first_or_last(types: Types, staging: int, add_c: str) -> None:
    assert not wrong(form(types, "added", staging=staging, add_c=add_c), "sm_90a")


@pytest.mark.parametrize("add_c", ["first", "last"])
@pytest.mark.parametrize("name", ["sparse, added", "dynamic", "tensors"])
def test_c_is_added_in_any_form(name: str, add_c: str) -> None:
    assert not wrong(form(F16, name, staging=16, add_c=add_c), "sm_90a")


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


@pytest.mark.parametrize("schedule", OTHERS, ids=str)
@pytest.mark.parametrize(("types", "name"), [(F16, "cleared"), (S8, "residual"), (F16, "sparse")], ids=str)
def test_edges_order_and_access(types: Types, name: str, schedule: dict[str, Any]) -> None:
    assert not wrong(form(types, name, **schedule), "sm_90a")


def test_a_copy_takes_an_element_at_least() -> None:
    with pytest.raises(CompileError, match="access = 4: an element of f64 takes 8 bytes"):
        form(F64, "added", access=4).compile("sm_90a")
