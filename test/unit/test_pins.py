"""The PTX and the results of pinned kernels are what they were: a sample, and the PTX of all that are kept whole.
`pins.py` compares all."""

from __future__ import annotations

from dataclasses import replace

import pins
import pytest
from products import FORMS, LIES, TYPES, Product

from warploom.runtime import Kernel

EVERY = pins.pinned()
EACH = 11
"""Of how many kernels one is tested: a prime, so that all targets, forms and sizes come up."""


RUN = 41
"""Of how many kernels one is run."""


def sample() -> list[pins.Pinned]:
    """The small ones, and some of the others."""
    complete, others = ([kernel for kernel in EVERY if bool(kernel.text_name) is kept] for kept in (True, False))
    return [*complete, *others[::EACH]]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kernel", sample(), ids=str)
def test_text_is_what_is_pinned(kernel: pins.Pinned) -> None:
    changed = pins.difference(kernel, pins.recorded())
    assert not changed, f"{changed}\nif that is meant: python test/pins.py --rewrite, and name it in the commit"


def test_every_type_form_target_and_way_to_lie_is_pinned() -> None:
    products = [kernel.source for kernel in EVERY if isinstance(kernel.source, Product)]
    assert {product.types for product in products} >= set(TYPES)
    assert {product.form for product in products} == set(FORMS)
    assert {product.lies for product in products} == set(LIES)
    assert {kernel.target for kernel in EVERY} >= set(pins.TARGETS)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kernel", pins.runnable(EVERY)[::RUN], ids=str)
def test_results_are_what_is_pinned(kernel: pins.Pinned) -> None:
    changed = pins.difference_of_words(kernel, pins.recorded(pins.WORDS))
    assert not changed, f"{changed}\nif only the order of sums changed: python test/pins.py --words --rewrite"


class Altered(pins.Pinned):
    """A kernel with another function in its PTX."""

    def compile(self) -> Kernel:
        kernel = super().compile()
        assert "ex2.approx" in kernel.ptx
        return replace(kernel, ptx=kernel.ptx.replace("ex2.approx", "lg2.approx"))


def test_results_that_changed_are_compared_with_float64() -> None:
    softmax = next(kernel for kernel in EVERY if str(kernel.source) == "softmax")
    other = {str(softmax): "0" * 16}
    assert pins.difference_of_words(softmax, other).endswith("its results changed, within the bound of their rounding")
    assert pins.difference_of_words(softmax, {}).endswith("its results are not pinned")
    altered = Altered(softmax.source, softmax.target)
    assert "its results changed and are wrong" in pins.difference_of_words(altered, pins.recorded(pins.WORDS))


def test_a_smaller_product_has_the_schedule_of_the_large_one_and_its_remainders() -> None:
    large = Product(pins.BF16, "cleared", "A B", (4095, 4096, 4095))
    small = pins.smaller(large, "sm_90a")
    assert max(small.size) <= 700
    assert [size % 64 for size in small.size] == [size % 64 for size in large.size]
    tiles = [
        next((s.cta, s.warp, s.mma, s.sliced_k, s.order, s.in_registers) for s in each.compile("sm_90a").schedule if s)
        for each in (large, small)
    ]
    assert tiles[0] == tiles[1]


def test_what_is_recorded_are_these_kernels_and_no_others() -> None:
    assert list(pins.recorded()) == [str(kernel) for kernel in EVERY]
    assert list(pins.recorded(pins.WORDS)) == [str(kernel) for kernel in pins.runnable(EVERY)]
    assert {path.name for path in pins.PINS.glob("*.ptx")} == {pins.file_of(k).name for k in EVERY if k.text_name}
    for kernel in EVERY:
        if kernel.text_name:
            assert pins.digest(pins.file_of(kernel).read_text(encoding="utf-8")) == pins.recorded()[str(kernel)]


def test_a_change_of_one_instruction_is_found() -> None:
    kernel = next(kernel for kernel in EVERY if kernel.text_name)
    pinned = {str(kernel): pins.digest(kernel.text().replace("add.s32", "sub.s32", 1))}
    assert pins.difference(kernel, pinned).startswith(f"{kernel}: its text changed")
    assert pins.difference(kernel, {}) == f"{kernel}: is not pinned"


def test_normalised_text_keeps_what_a_gpu_sees() -> None:
    text = ".reg .b32 %r<9>;\n  mov.u32 %r7, %tid.x; // one\n\n  add.s32 %r3, %r7, 1;\n  st.global.u32 [%rd7], %r3;\n"
    assert pins.normalised(text) == "  mov.u32 %r0, %tid.x;\n  add.s32 %r1, %r0, 1;\n  st.global.u32 [%rd0], %r1;\n"
    assert pins.normalised(text.replace("%r7, 1", "%r3, 1")) != pins.normalised(text)
