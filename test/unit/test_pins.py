"""The PTX of pinned kernels is what it was: a sample, and all of those that are kept whole. `pins.py` compares all."""

from __future__ import annotations

import pins
import pytest
from products import FORMS, LIES, TYPES, Product

EVERY = pins.pinned()
EACH = 11
"""Of how many kernels one is tested: a prime, so that all targets, forms and sizes come up."""


def sample() -> list[pins.Pinned]:
    """The small ones, and some of the others."""
    whole, others = ([kernel for kernel in EVERY if bool(kernel.whole) is kept] for kept in (True, False))
    return [*whole, *others[::EACH]]


@pytest.mark.parametrize("kernel", sample(), ids=str)
def test_text_is_what_is_pinned(kernel: pins.Pinned) -> None:
    changed = pins.difference(kernel, pins.recorded())
    assert not changed, f"{changed}\nif that is meant: python test/pins.py --rewrite, and name it in the commit"


def test_every_type_form_target_and_way_to_lie_is_pinned() -> None:
    products = [kernel.product for kernel in EVERY if isinstance(kernel.product, Product)]
    assert {product.types for product in products} >= set(TYPES)
    assert {product.form for product in products} == set(FORMS)
    assert {product.lies for product in products} == set(LIES)
    assert {kernel.target for kernel in EVERY} == set(pins.TARGETS)


def test_what_is_recorded_are_these_kernels_and_no_others() -> None:
    assert list(pins.recorded()) == [str(kernel) for kernel in EVERY]
    assert {path.name for path in pins.PINS.glob("*.ptx")} == {pins.file_of(k).name for k in EVERY if k.whole}
    for kernel in EVERY:
        if kernel.whole:
            assert pins.digest(pins.file_of(kernel).read_text(encoding="utf-8")) == pins.recorded()[str(kernel)]


def test_a_change_of_one_instruction_is_found() -> None:
    kernel = next(kernel for kernel in EVERY if kernel.whole)
    known = {str(kernel): pins.digest(kernel.text().replace("add.s32", "sub.s32", 1))}
    assert pins.difference(kernel, known).startswith(f"{kernel}: its text changed")
    assert pins.difference(kernel, {}) == f"{kernel}: is not pinned"


def test_normalised_text_keeps_what_a_gpu_sees() -> None:
    text = ".reg .b32 %r<9>;\n  mov.u32 %r7, %tid.x; // one\n\n  add.s32 %r3, %r7, 1;\n  st.global.u32 [%rd7], %r3;\n"
    assert pins.normalised(text) == "  mov.u32 %r0, %tid.x;\n  add.s32 %r1, %r0, 1;\n  st.global.u32 [%rd0], %r1;\n"
    assert pins.normalised(text.replace("%r7, 1", "%r3, 1")) != pins.normalised(text)
