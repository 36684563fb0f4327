"""Products with weights of 8 and 4 bits at 16 rows: the interpreter and the GPU give the same words."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import bitwise
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import compile
from warploom.runtime.cuda.driver import GpuDevice

pytestmark = pytest.mark.gpu

Array = NDArray[Any]

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}

LARGE: dict[tuple[int, bool], dict[str, Any]] = {
    (8, True): {"cta": (16, 64, 512), "warp": (16, 64), "sliced_k": 8, "stages": 3},
    (8, False): {"cta": (16, 64, 256), "warp": (16, 64), "sliced_k": 4, "stages": 4, "unroll": 4},
    (4, True): {"cta": (16, 64, 512), "warp": (16, 64), "sliced_k": 8, "stages": 4, "unroll": 4},
    (4, False): {"cta": (16, 256, 128), "warp": (16, 32), "split_k": 4, "stages": 4, "unroll": 4},
}
"""The schedules of 16x8192x8192, by bits, and whether weights are n x k."""


class Case(NamedTuple):
    """Weights of so many bits, n x k or k x n in memory, with a scale for each column, or for groups along k."""

    bits: int
    by_columns: bool
    group: int
    float_: str
    size: tuple[int, int, int]
    large: bool = False

    @property
    def schedule(self) -> dict[str, Any]:
        """The fields of the schedule that are given."""
        return LARGE[self.bits, self.by_columns] if self.large else {}

    def __str__(self) -> str:
        order, group = "nk" if self.by_columns else "kn", f"-g{self.group}" if self.group else ""
        size = "x".join(map(str, self.size))
        return f"{size}-w{self.bits}-{order}{group}-{self.float_}{'-large' if self.large else ''}"

    @property
    def scales(self) -> tuple[int, ...]:
        """The sizes of the scales."""
        _, n, k = self.size
        if not self.group:
            return (n,)
        return (n, k // self.group) if self.by_columns else (k // self.group, n)

    @property
    def mlir(self) -> str:
        """The product, whose weights an operation of their own converts."""
        (m, n, k), kind = self.size, self.float_
        axes, shape = ("n, k", f"{n}x{k}") if self.by_columns else ("k, n", f"{k}x{n}")
        along = axes.replace("k", f"k floordiv {self.group}") if self.group else "n"
        scales = "x".join(map(str, self.scales))
        a, c, w = f"memref<{m}x{k}x{kind}>", f"memref<{m}x{n}x{kind}>", f"memref<{shape}x{kind}>"
        q, s = f"memref<{shape}xi{self.bits}>", f"memref<{scales}x{kind}>"
        return f"""#w = affine_map<({axes}) -> ({axes})>
func.func @f(%A: {a}, %Q: {q}, %S: {s}, %C: {c}) {{
  %zero = arith.constant 0.0 : {kind}
  %W = memref.alloc() : {w}
  linalg.generic {{indexing_maps = [#w, affine_map<({axes}) -> ({along})>, #w],
                  iterator_types = ["parallel", "parallel"]}} ins(%Q, %S : {q}, {s}) outs(%W : {w}) {{
  ^bb0(%q: i{self.bits}, %s: {kind}, %old: {kind}):
    %0 = arith.sitofp %q : i{self.bits} to {kind}
    %1 = arith.mulf %0, %s : {kind}
    linalg.yield %1 : {kind}
  }}
  linalg.fill ins(%zero : {kind}) outs(%C : {c})
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> ({axes})>,
                                 affine_map<(m, n, k) -> (m, n)>] ins(%A, %W : {a}, {w}) outs(%C : {c})
  return
}}"""

    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """Activations, weights in memory, scales, and what float64 makes of them. Activations spread over 12 binades,
        so that every bit of the sums matters."""
        (m, n, k), half, random = self.size, 1 << self.bits - 1, np.random.default_rng()
        a = (random.standard_normal((m, k)) * 2.0 ** random.integers(-6, 6, (m, k))).astype(FLOATS[self.float_])
        q = random.integers(-half, half, (n, k) if self.by_columns else (k, n)).astype(np.int8)
        s = (random.random(self.scales) / 16 + 0.01).astype(FLOATS[self.float_])
        each = s.astype(np.float64)
        if self.group:
            each = each.repeat(self.group, 1 if self.by_columns else 0)
            each = each.T if self.by_columns else each
        exact = a.astype(np.float64) @ ((q.T if self.by_columns else q) * each)
        return a, (q[:, ::2] & 15) | (q[:, 1::2] << 4) if self.bits == 4 else q, s, exact


CASES = [
    *(Case(*kind, (16, 74, 1152)) for kind in product((8, 4), (True, False), (0, 128), FLOATS)),
    *(Case(*kind, (16, 288, 2048), large=True) for kind in product((8, 4), (True, False), (0, 128), FLOATS)),
    Case(4, True, 0, "f16", (13, 74, 1160)),
    Case(4, False, 32, "bf16", (9, 42, 352)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_interpreter_and_gpu_agree(case: Case, device: GpuDevice) -> None:
    if device.sm != bitwise.SM_90:
        pytest.skip(f"the interpreter is held against sm_90 only, this is {device}")
    (a, q, s, exact), kernel = case.arrays(), compile(case.mlir, target="sm_90a", **case.schedule)
    assert len(kernel.launches) == 1, "the product converts the weights itself"
    here, there = (np.full(exact.shape, np.nan, FLOATS[case.float_]) for _ in range(2))
    kernel(a, q, s, here, device="interp")
    kernel(a, q, s, there, device="cuda")
    bound = 1e-2 if case.float_ == "bf16" else 2e-3
    np.testing.assert_allclose(here.astype(np.float64), exact, rtol=bound, atol=bound * np.abs(exact).max())
    np.testing.assert_array_equal(bitwise.words(here), bitwise.words(there))
