"""A sample of the grid: products of every type and form on the interpreter against numpy. `grid.py` runs all of it."""

from __future__ import annotations

import grid
import pytest
from problems import problem
from products import EPILOGUES, FORMS, LIES, TYPES, Product

EACH = 29
"""Of how many cases one is tested: a prime, so that all types, forms, ways to lie and sizes come up."""

MAX = 2_000_000
"""Multiply-adds of a product in the sample: larger ones take seconds."""


def sample() -> list[tuple[Product, str]]:
    small = [case for case in grid.cases(1, seed=3) if case[0].size[0] * case[0].size[1] * case[0].size[2] < MAX]
    return small[::EACH]


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("product", "target"), sample(), ids=str)
def test_results_are_numpys(product: Product, target: str) -> None:
    assert grid.wrong(product, target) == ""


def test_every_type_form_and_way_to_lie_comes_up() -> None:
    every = [product for product, _ in grid.cases(3)]
    seen = {(p.types, p.form, p.lies) for p in every}
    assert {(types, lies) for types, _, lies in seen} == {(types, lies) for types in TYPES for lies in LIES}
    assert {form for _, form, _ in seen} == set(FORMS)
    assert any(0 in p.size for p in every)
    assert max(max(p.size) for p in every) == 300


@pytest.mark.parametrize("form", ["added", "strided", *EPILOGUES])
def test_what_is_wrong_is_found(form: str) -> None:
    """One element that is off by the least it can be, and one word written into a gap."""
    asked = problem(Product(TYPES[3], form, "A B", (8, 8, 16)))
    result = asked.arguments[asked.output]
    result[...] = asked.value
    assert asked.wrong() == ""
    result[3, 5] += 2 * asked.bound[3, 5] + 0.1
    assert asked.wrong().startswith("1 of 64 are wrong, first (3, 5)")
    if asked.gaps is not None:
        result[...] = asked.value
        asked.gaps[0][-1] = 0
        assert "written beside C" in asked.wrong()
