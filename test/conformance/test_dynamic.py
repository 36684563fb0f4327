"""Default schedules of products of unknown sizes against ptxas: nothing spills."""

from __future__ import annotations

import os

import pytest

from warploom.runtime import compile
from warploom.runtime.cuda import ptxas

pytestmark = pytest.mark.skipif(
    ptxas.find() is None and not os.environ.get("CI"), reason="ptxas is not installed (extra: test)"
)

CASES = (
    ("bf16", "f32", "4096x4096", "4096x?", "4096x?", 8),
    ("bf16", "f32", "?x?", "?x?", "?x?", 1),
    ("f8E4M3FN", "bf16", "?x?", "?x?", "?x?", 16),
    ("f32", "f32", "?x?", "?x?", "?x?", 1),
    ("i8", "i32", "?x4096", "4096x?", "?x?", 16),
    ("bf16", "f32", "?x4096", "4096x4096", "?x4096", 1),
)
"""Types of A and B and of C, their shapes, and what is promised to divide them."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_unknown_sizes_do_not_spill(case: tuple[str, str, str, str, str, int]) -> None:
    kind, result, *shapes, divisor = case
    a, b, c = (f"memref<{shape}x{each}>" for shape, each in zip(shapes, (kind, kind, result), strict=True))
    promise = f"{{warp.divisible = {divisor} : i64}}"
    text = f"""func.func @f(%A: {a} {promise}, %B: {b} {promise}, %C: {c} {promise}) {{
      linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}"""
    resources = ptxas.assemble(compile(text, tf32=kind == "f32").ptx, "sm_90a")
    assert all(r.spills == r.stack == 0 for r in resources.values()), resources
