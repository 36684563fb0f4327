"""The table of parameters: what it knows, from where, and what it refuses."""

from __future__ import annotations

import pytest

from warploom.dialect.isa import mma, sparse_mma, tensor_product, wgmma, wmma
from warploom.dialect.isa.form import element_type, having
from warploom.dialect.isa.row import TARGETS
from warploom.runtime.interp import arithmetic
from warploom.runtime.numerics.product import ALGORITHMS, ROWS, family

FORMS = (*mma.rows(), *sparse_mma.rows(), *wmma.mma_rows(), *wgmma.rows(), *tensor_product.products())
(HALF,) = having(mma.rows, shape=mma.Shape(16, 8, 16), a=element_type("f16"), d=element_type("f32"))
FP8 = next(r for r in mma.rows() if r.a.name == "e4m3" and r.d.name == "f32" and not r.kind)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
def test_every_form_that_a_target_has_is_computed(target: str) -> None:
    for row in FORMS:
        if row.runs_on(TARGETS[target]):
            assert arithmetic(target, row).algorithm in ALGORITHMS


def test_every_row_says_what_it_rests_on_and_is_used() -> None:
    assert all(core.evidence for core in ROWS)
    used = {arithmetic(t, r) for t, row in TARGETS.items() for r in FORMS if r.runs_on(row)}
    assert used == set(ROWS)
    assert {core.sm for core in ROWS if core.confirmed} == {90}


def test_every_row_says_who_compared_it_with_a_gpu() -> None:
    assert all((core.compared == "the tests") == core.confirmed for core in ROWS)
    assert all(core.compared == "no one" for core in ROWS if core.evidence.startswith("assumed"))
    compared = {core.compared for core in ROWS}
    assert compared == {"the tests", "test/public_words.py", "the models' authors", "no one"}


def test_a_target_has_the_arithmetic_of_the_nearest_older_one() -> None:
    assert arithmetic("sm_86", HALF) is arithmetic("sm_80", HALF)
    assert arithmetic("sm_103a", HALF) is arithmetic("sm_100", HALF)
    assert arithmetic("sm_90a", HALF).confirmed
    assert "MMA-Sim" in arithmetic("sm_100", HALF).evidence
    assert (arithmetic("sm_89", FP8).block, arithmetic("sm_120a", FP8).block) == (16, 32)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no arithmetic of mma.sync.*e4m3.* is known for sm_80; the oldest is sm_89"):
        arithmetic("sm_80", FP8)
    with pytest.raises(ValueError, match="unknown target 'hopper'; a target is written like sm_90a"):
        arithmetic("hopper", HALF)


def test_families() -> None:
    families = {family(row) for row in FORMS}
    assert families == {core.family for core in ROWS}


def test_fused_sums_are_exact_in_f64() -> None:
    for core in ROWS:
        assert core.algorithm in ALGORITHMS, core
        if core.algorithm in ("fused", "widened"):
            assert core.block * 4 * 2**core.fraction <= 2**52, core
            assert core.fraction <= 26, core
