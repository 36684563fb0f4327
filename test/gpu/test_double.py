"""Products of f64, launched many times: each launch gives the interpreter's words.

The sums of one product are read by the first of the next turn of the K loop: a wait that is missing there shows in some
launches only (`_await_sums` in `passes/to_ptx/synchronisation.py`).
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import bitwise
import numpy as np
import pytest

from warploom.runtime import compile
from warploom.runtime.cuda.driver import GpuDevice

pytestmark = pytest.mark.gpu

LAUNCHES = 100

SHAPES = ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")


class Case(NamedTuple):
    """C = A B, or C += A B, in warp tiles of so many rows and columns."""

    size: tuple[int, int, int]
    transposed: bool = False
    added: bool = False
    schedule: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        form = ("-Bt" if self.transposed else "") + ("-added" if self.added else "")
        fields = "".join(f"-{key}={value}" for key, value in self.schedule)
        return "x".join(map(str, self.size)) + form + fields

    @property
    def mlir(self) -> str:
        """The product, with a fill where nothing is added to."""
        m, n, k = self.size
        columns, shape = ("n, k", f"{n}x{k}") if self.transposed else ("k, n", f"{k}x{n}")
        a, b, c = f"memref<{m}x{k}xf64>", f"memref<{shape}xf64>", f"memref<{m}x{n}xf64>"
        fill = "" if self.added else f"linalg.fill ins(%zero : f64) outs(%C : {c})"
        return f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
  %zero = arith.constant 0.0 : f64
  {fill}
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> ({columns})>,
                                 affine_map<(m, n, k) -> (m, n)>] ins(%A, %B : {a}, {b}) outs(%C : {c})
  return
}}"""


def _tile(mma: str, rows: int, columns: int) -> tuple[tuple[str, Any], ...]:
    return (("mma", mma), ("cta", (2 * rows, 2 * columns, 16)), ("warp", (rows, columns)))


CASES = [
    *(Case((56, 176, 392), *forms) for forms in product((False, True), (False, True))),
    Case((300, 200, 500)),
    Case((51, 77, 391), transposed=True),
    *(
        Case((56, 176, 392), transposed=True, schedule=_tile(mma, 8 if mma == "m8n8k4" else 16, 8 * columns))
        for mma, columns in product(SHAPES, (1, 2, 4))
    ),
    *(Case((70, 90, 391), schedule=_tile(mma, 32, 16)) for mma in SHAPES),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_launch_gives_the_words_of_the_interpreter(case: Case, device: GpuDevice) -> None:
    if device.sm != bitwise.SM_90:
        pytest.skip(f"the interpreter is held against sm_90 only, this is {device}")
    (m, n, k), random = case.size, np.random.default_rng()
    a, b, c = (random.standard_normal(size) for size in ((m, k), (n, k) if case.transposed else (k, n), (m, n)))
    exact = a @ (b.T if case.transposed else b) + (c if case.added else 0)
    kernel = compile(case.mlir, target="sm_90a", **dict(case.schedule))
    here = c.copy() if case.added else np.full_like(c, np.nan)
    kernel(a, b, here, device="interp")
    bound = (k + 2) * 2.0**-52 * np.abs(a).sum(1).max() * np.abs(b).max()
    np.testing.assert_allclose(here, exact, rtol=0, atol=bound)
    differing = 0
    for _ in range(LAUNCHES):
        there = c.copy() if case.added else np.full_like(c, np.nan)
        kernel(a, b, there, device="cuda")
        differing += int((bitwise.words(there) != bitwise.words(here)).sum())
    assert differing == 0
