"""Products whose rows begin anywhere, from copies with aligned rows. Here, small ones count as large."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from unaligned import ANYWHERE, CASES, TYPES, Case, drawn

from warploom.passes.schedule import version
from warploom.runtime import Kernel, compile

DEPTH, MIN = 40, 1 << 10


@cache
def compiled(case: Case) -> Kernel:
    """The kernel of a case, with the versions that its calls have asked for so far."""
    return case.compiled()


@pytest.fixture(autouse=True)
def _few_products_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "COPIED_DEPTH", DEPTH)
    monkeypatch.setattr(version, "MIN_PACKED", MIN)


def along(loops: str, array: Any, first: str) -> Any:
    """A float64 array with the loop `first`, if it has it, as its rows."""
    values = array.astype(np.float64)
    if len(loops) == 1:
        return values[:, None] if loops == first else values
    return values if loops[0] in (first, "0") else values.T


def bound(case: Case) -> float:
    """Of the sum of all magnitudes: the result's rounding, or that of what is multiplied or summed."""
    coarse = {"f32": 2.0**-9, "f8E4M3FN": 2.0**-11}.get(case.element, 0.0)
    return max(coarse, {"bf16": 2.0**-8, "f16": 2.0**-10, "f32": 2.0**-17, "f64": 2.0**-46, "i32": 0.0}[case.result])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_copies_give_the_product(case: Case) -> None:
    """Elements of four bytes and more gain by it only where warpgroups multiply; constants of `arith` have no sign."""
    kernel = compiled(case)
    a, b, *more, d = case.operands(np.random.default_rng(7))
    terms = [along(*pair, "m") for pair in zip(case.added, more, strict=True)] + [d.astype(np.float64)] * case.onto_d
    x, y = along(case.a, a, "m"), along(case.b, b, "k")
    assert len(kernel.called_with(a, b, *more, d).launches) == case.launches
    kernel(a, b, *more, d, device="interp", checks="all")
    expected, size = x @ y, np.abs(x) @ np.abs(y)
    for term in terms:
        expected, size = expected + term, size + np.abs(term)
    assert (np.abs(d.astype(np.float64) - expected) <= bound(case) * size).all()


def test_each_call_has_copies_of_its_size() -> None:
    kernel = compiled(Case("bf16", "f32", "sm_90a"))
    rng = np.random.default_rng(8)
    for m, n, k in ((70, 51, 45), (131, 70, 9), (70, 51, 45)):
        a, b, d = drawn(rng, (m, k), "bf16"), drawn(rng, (k, n), "bf16"), np.full((m, n), np.nan, np.float32)
        kernel(a, b, d, device="interp")
        x, y = a.astype(np.float64), b.astype(np.float64)
        assert (np.abs(d - x @ y) <= (k + 3) * 2.0**-23 * (np.abs(x) @ np.abs(y))).all()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("case", "m", "n", "k", "launches"),
    [
        (Case("bf16", "f32", "sm_90a"), 3, 5, DEPTH + 1, 6),
        (Case("bf16", "f32", "sm_90a"), 300, 51, DEPTH - 1, 1),
        (Case("bf16", "f32", "sm_90a", static="nk"), 64, 51, 45, 1),
        (Case("bf16", "f32", "sm_90a", static="nk"), 65, 51, 45, 5),
        (Case("f32", "f32", "sm_90a", b="nk"), 64, 51, 45, 1),
        (Case("f32", "f32", "sm_90a", b="nk"), 65, 3, 5, 1),
        (Case("f32", "f32", "sm_90a", b="nk"), 65, 51, 5, 6),
    ],
)
def test_copies_are_made_where_they_are_faster(case: Case, m: int, n: int, k: int, launches: int) -> None:
    """In place of loads element by element along a long K, unless a few rows have a kernel of their own; else for
    warpgroups alone, if there is enough to multiply."""
    sizes = {"m": m, "n": n, "k": k}
    a, b, d = (
        np.zeros([sizes[loop] for loop in loops], TYPES[kind])
        for loops, kind in ((case.a, case.element), (case.b, case.element), ("mn", case.result))
    )
    assert len(compiled(case).called_with(a, b, d).launches) == launches


def test_no_other_kernel_is_made_where_copies_are_always_faster() -> None:
    case = Case("bf16", "f32", "sm_90a", static="mnk", layout=ANYWHERE)
    kernel = case.compiled()
    assert len([schedule for schedule in kernel.schedules.values() if schedule]) == 1
    a, b, d = case.operands(np.random.default_rng(11))
    kernel(a, b, d, device="interp")
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert (np.abs(d - x @ y) <= 50 * 2.0**-23 * (np.abs(x) @ np.abs(y))).all()


def test_a_matrix_in_two_places_is_not_copied() -> None:
    """As both factors it would be rounded along other loops in each."""
    text = """func.func @f(%A: memref<?x?xbf16>, %D: memref<?x?xf32>) {
      %zero = arith.constant 0.0 : f32
      linalg.fill ins(%zero : f32) outs(%D : memref<?x?xf32>)
      linalg.matmul ins(%A, %A : memref<?x?xbf16>, memref<?x?xbf16>) outs(%D : memref<?x?xf32>)
      return
    }"""
    kernel = compile(text, target="sm_90a")
    a, d = drawn(np.random.default_rng(9), (67, 67), "bf16"), np.full((67, 67), np.nan, np.float32)
    assert len(kernel.called_with(a, d).launches) == 1
    kernel(a, d, device="interp")
    x = a.astype(np.float64)
    assert (np.abs(d - x @ x) <= 70 * 2.0**-23 * (np.abs(x) @ np.abs(x))).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("loops", ["bmk,bkn->bmn", "bmk,kn->bmn", "bkm,kbn->mbn", "smk,skn->mn"])
def test_batches_and_further_sums_are_copied_whole(loops: str) -> None:
    sizes = {"b": 3, "s": 2, "m": 67, "n": 51, "k": 45}
    a, b, d = along = loops.replace("->", ",").split(",")
    order = ", ".join(loop for loop in "bsmnk" if loop in loops)
    maps = ", ".join(f"affine_map<({order}) -> ({', '.join(each)})>" for each in along)
    kinds = [f"memref<{'?x' * len(each)}{kind}>" for each, kind in zip(along, ("bf16", "bf16", "f32"), strict=True)]
    kernel = compile(
        f"""func.func @f(%A: {kinds[0]}, %B: {kinds[1]}, %D: {kinds[2]}) {{
          %zero = arith.constant 0.0 : f32
          linalg.fill ins(%zero : f32) outs(%D : {kinds[2]})
          linalg.contract indexing_maps = [{maps}] ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%D : {kinds[2]})
          return
        }}""",
        target="sm_90a",
    )
    rng = np.random.default_rng(10)
    x, y = (drawn(rng, tuple(sizes[loop] for loop in each), "bf16") for each in (a, b))
    result = np.full([sizes[loop] for loop in d], np.nan, np.float32)
    assert len(kernel.called_with(x, y, result).launches) == 6
    kernel(x, y, result, device="interp", checks="all")
    exact, size = (np.einsum(loops, of(x), of(y)) for of in (np.float64, lambda v: np.abs(v.astype(np.float64))))
    assert (np.abs(result - exact) <= 100 * 2.0**-23 * size).all()


def test_bytes_beside_a_product_are_copied_too() -> None:
    text = """func.func @f(%A: memref<?x?xf16>, %B: memref<?x?xf16>, %X: memref<?xi8>, %D: memref<?x?xf32>) {
      %zero = arith.constant 0.0 : f32
      linalg.fill ins(%zero : f32) outs(%D : memref<?x?xf32>)
      linalg.matmul ins(%A, %B : memref<?x?xf16>, memref<?x?xf16>) outs(%D : memref<?x?xf32>)
      linalg.generic {indexing_maps = [affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
        iterator_types = ["parallel", "parallel"]} ins(%X : memref<?xi8>) outs(%D : memref<?x?xf32>) {
      ^bb0(%x: i8, %d: f32):
        %y = arith.uitofp %x : i8 to f32
        %s = arith.addf %y, %d : f32
        linalg.yield %s : f32
      }
      return
    }"""
    kernel = compile(text, target="sm_90a")
    rng = np.random.default_rng(12)
    a, b = drawn(rng, (66, 51), "f16"), drawn(rng, (51, 43), "f16")
    x = rng.integers(0, 2, 43).astype(np.int8)
    d = np.full((66, 43), np.nan, np.float32)
    assert len(kernel.called_with(a, b, x, d).launches) == 8
    kernel(a, b, x, d, device="interp", checks="all")
    exact = a.astype(np.float64) @ b.astype(np.float64) + x
    assert (np.abs(d - exact) <= 2.0**-14 * (1 + np.abs(exact))).all()
