"""A sample of the drawn `linalg` programs, and whether their evaluator would notice what it is there to notice."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from linalg_programs import difference, outcome, planted
from numpy.typing import NDArray
from program_generator import KINDS
from program_values import Reals, apply, rounded

SEED = 20_000_000
"""Programs that the default run does not draw."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_programs_give_what_their_evaluator_allows(kind: str) -> None:
    outcomes = [outcome(number, [kind]) for number in range(SEED, SEED + 4)]
    assert not [f"{o.number}: {o.reason}\n{o.text}" for o in outcomes if o.kind == "wrong"]
    assert sum(o.kind == "right" for o in outcomes) >= len(outcomes) // 2


def test_chains_of_integers_that_read_views_are_not_fused() -> None:
    """Two elementwise operations, of which the first reads a column: rows hold floats alone."""
    result = outcome(20261186785373, list(KINDS))
    assert result.kind == "right", f"{result.reason}\n{result.text}"


def test_the_largest_of_nothing_but_nan_is_no_number_of_8_bits() -> None:
    """It is minus infinity, which a type without one rounds to NaN."""
    result = outcome(77001036, list(KINDS))
    assert result.kind == "right", f"{result.reason}\n{result.text}"


def test_roundings_that_are_left_out_are_found() -> None:
    counts = [planted(number, [kind]) for kind in KINDS for number in range(SEED, SEED + 30)]
    matter, noticed = map(sum, zip(*counts, strict=True))
    assert matter >= 20
    assert noticed >= 0.85 * matter


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("f16", np.float16),
        ("bf16", ml_dtypes.bfloat16),
        ("f8E4M3FN", ml_dtypes.float8_e4m3fn),
        ("f8E5M2", ml_dtypes.float8_e5m2),
    ],
)
def test_roundings_are_those_of_other_implementations(name: str, dtype: Any) -> None:
    """All numbers of a type, what lies midway between them, and a little beside that."""
    bits = 8 * np.dtype(dtype).itemsize
    words = np.arange(1 << bits, dtype=np.uint16).astype(f"u{bits // 8}").view(dtype)
    numbers = np.unique(words[np.isfinite(words.astype(np.float32))].astype(np.float32))
    middles = (numbers[1:].astype(np.float64) + numbers[:-1]) / 2
    beyond = np.array([2 * float(numbers[-1]) - float(numbers[-2]), np.inf, -np.inf, np.nan, -0.0])
    exact = np.concatenate([numbers, middles, np.nextafter(middles.astype(np.float32), np.float32(9e9)), beyond])
    with np.errstate(all="ignore"):
        values: NDArray[np.float32] = exact.astype(np.float32)
        expected = values.astype(dtype).astype(np.float64)
    result = rounded(values.astype(np.float64), name)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.signbit(result[~np.isnan(result)]), np.signbit(expected[~np.isnan(result)]))


def test_exact_operations_allow_one_result() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(1000).astype(np.float16) for _ in range(2))
    for name, compute in (("addf", np.add), ("mulf", np.multiply), ("divf", np.divide), ("maximumf", np.maximum)):
        x, y = (Reals.points("f16", v.astype(np.float64)) for v in (a, b))
        expected, result = apply(f"arith.{name}", "f16", "", (x, y)), compute(a, b)
        assert not difference(expected, result)
        result[17] = np.nextafter(result[17], np.float16(9))
        assert "1 of 1000 wrong; at (17,)" in difference(expected, result)


def test_a_sum_is_between_those_of_any_order() -> None:
    """And what is certain is certain: NaN, infinities, and sums that are exact."""
    from program_evaluator import reduced

    rng = np.random.default_rng(1)
    values = rng.standard_normal((50, 40)).astype(np.float32)
    total = reduced("arith.addf", "f32", Reals.points("f32", values), 1, 0.0)
    for _ in range(20):
        order = rng.permutation(40)
        assert not difference(total, np.add.accumulate(values[:, order], axis=1)[:, -1])
    wrong = values.astype(np.float16).astype(np.float32).sum(axis=1)
    assert difference(total, wrong)
    special = np.array([[1, np.inf, 2], [np.inf, 1, -np.inf], [np.nan, 1, 2], [3, -1, 5]])
    exact = reduced("arith.addf", "f32", Reals.points("f32", special), 1, 0.0)
    assert not difference(exact, np.array([np.inf, np.nan, np.nan, 7.0]))
    assert difference(exact, np.array([np.inf, np.inf, np.nan, 7.0]))
    assert difference(exact, np.array([np.inf, np.nan, np.nan, np.nextafter(np.float32(7), np.float32(8))]))
