"""Products of every type and form at their default schedules against ptxas: on every target that has the instruction
they assemble, and nothing spills.

A sample; `make conformance` takes every type and form on every target, each with another size and another way for A and
B to lie.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from products import FORMS, LIES, TYPES, Product, Types, fitted
from samples import every

from warploom.runtime.cuda import ptxas

pytestmark = pytest.mark.skipif(
    ptxas.find() is None and not os.environ.get("CI"), reason="ptxas is not installed (extra: test)"
)

TARGETS = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
SIZES = ((4096, 4096, 4096), (1000, 1000, 1000), (4095, 4095, 4095), (100, 100, 100))
"""From which different tiles follow: many, fewer than there are SMs, in odd rows, and few."""

ANY = (LIES[0], SIZES[0])

EACH = 73
"""Of how many cases one is tested: a prime, so that all types, forms, targets and sizes come up."""


def cases() -> Iterator[tuple[Product, str]]:
    """Every type and form on every target; sizes and the ways that A and B lie go round."""
    turn = 0
    for number, types in enumerate(TYPES):
        for form in FORMS:
            for target in TARGETS:
                places = [fitted(types, form, lies, size) for size in SIZES for lies in LIES]
                legal = [product for product in places if product.legal and product.runs_on(target)]
                if legal:
                    yield legal[(turn * 5 + number) % len(legal)], target
                    turn += 1


def chosen() -> list[tuple[Product, str]]:
    return every(list(cases()), EACH)


def problem(product: Product, target: str) -> str:
    """What ptxas says against a product; "" if nothing."""
    kernel = product.compile(target)
    for name, used in ptxas.assemble(kernel.ptx, target).items():
        if used.spills or used.stack:
            return f"{name}: {used} with {kernel.schedule}"
    return ""


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("product", "target"), chosen(), ids=str)
def test_default_schedules_assemble_without_spills(product: Product, target: str) -> None:
    assert problem(product, target) == ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("types", "form", "lies", "target"),
    [
        ("f16 f16 f16 f16", "gelu by tanh", "At Bt", "sm_80"),
        ("f16 f16 f16 f16", "gelu by tanh", "A Bt", "sm_89"),
        ("bf16 bf16 bf16", "log, residual", "At B", "sm_103a"),
        ("f8E4M3FN f8E5M2 bf16", "log, residual", "A Bt", "sm_103a"),
        ("f8E5M2 f8E5M2 bf16", "log, residual", "At B", "sm_100a"),
    ],
)
def test_those_that_spilled_do_not(types: str, form: str, lies: str, target: str) -> None:
    """Strips with functions in one block, and 64 sums of a lane of tensor memory at a time."""
    assert problem(Product(Types(*types.split()), form, lies, SIZES[2]), target) == ""


@pytest.mark.parametrize(
    ("types", "form", "lies", "size", "target"),
    [
        ("f16 f16 f16", "log, residual", "A B", 4095, "sm_90"),
        ("f16 f16 f32", "tensors", "A Bt", 1000, "sm_87"),
        ("f16 f16 f16", "residual", "At B", 4095, "sm_87"),
        ("f32 f32 f32", "residual", "At Bt", 4096, "sm_89"),
        ("f32 f32 f32", "tensors", "A B", 4096, "sm_80"),
        ("f8E4M3FN f8E4M3FN f32", "generic", "At B", 4096, "sm_89"),
    ],
)
def test_persistent_ctas_do_not_spill(types: str, form: str, lies: str, size: int, target: str) -> None:
    """A further matrix, or widened operands, beside which the next tile had no registers."""
    assert problem(Product(Types(*types.split()), form, lies, (size, size, size)), target) == ""


def test_every_type_and_form_comes_up_on_every_target_that_has_it() -> None:
    every = [(product.types, product.form, target) for product, target in cases()]
    assert len(every) == len(set(every))
    assert {form for _, form, _ in every} == set(FORMS)
    assert {(types, target) for types, _, target in every} == {
        (types, target) for types in TYPES for target in TARGETS if Product(types, "added", *ANY).runs_on(target)
    }
