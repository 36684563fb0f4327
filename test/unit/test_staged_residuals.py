"""Matrices beside the sums of warpgroups, which tensor copies bring through stages of the ring."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from problems import problem
from products import Product, Types

from warploom.passes.diagnostics import remarks
from warploom.runtime import compile

CHECKS = "races,uninitialised,barriers,bounds,wgmma"
BF16, F16 = Types("bf16", "bf16", "bf16"), Types("f16", "f16", "f16")
MIXED, WIDE = Types("f16", "f16", "bf16"), Types("bf16", "bf16", "f32")


def tile(m: int, n: int, **others: Any) -> dict[str, Any]:
    return {"cta": (m, n, 64), "mma": f"m64n{n}k16", **others}


STAGED = [
    Product(BF16, "residual", "A B", (136, 72, 72), tile(128, 64)),  # not from tile to tile
    Product(F16, "residual", "A Bt", (136, 200, 72), tile(128, 128, stages=3, ctas=1)),  # panels below each other
    Product(BF16, "residual", "A Bt", (136, 136, 136), tile(128, 128, cluster="2x1", ctas=2)),  # B of two CTAs
    Product(BF16, "log, residual", "At B", (72, 200, 72), tile(64, 192, ctas=1)),  # a last turn that is not full
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("product", STAGED, ids=str)
def test_panels_arrive_where_they_are_read(product: Product) -> None:
    kernel, instance = product.compile("sm_90a"), problem(product, 3)
    assert "ldmatrix" in kernel.ptx
    assert "prefetch" not in kernel.ptx
    kernel(*instance.arguments, device="interp", checks=CHECKS)
    assert instance.wrong() == ""


TWO = """
#mn = affine_map<(m, n) -> (m, n)>
func.func @f(%A: $X, %B: $X, %R: $X, %S: $X, %D: $X) {
  %zero = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<256x256xf32>
  linalg.fill ins(%zero : f32) outs(%T : memref<256x256xf32>)
  linalg.matmul ins(%A, %B : $X, $X) outs(%T : memref<256x256xf32>)
  linalg.generic {indexing_maps = [#mn, #mn, #mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T, %R, %S : memref<256x256xf32>, $X, $X) outs(%D : $X) {
  ^bb0(%p: f32, %r: bf16, %s: bf16, %old: bf16):
    %both = arith.addf %r, %s : bf16
    %wide = arith.extf %both : bf16 to f32
    %sum = arith.addf %p, %wide : f32
    %y = arith.truncf %sum : f32 to bf16
    linalg.yield %y : bf16
  }
  memref.dealloc %T : memref<256x256xf32>
  return
}
""".replace("$X", "memref<256x256xbf16>")

WEIGHTS = """
#mn = affine_map<(m, n) -> (m, n)>
func.func @f(%A: $X, %W: memref<256x256xi8>, %R: $X, %D: $X) {
  %zero = arith.constant 0.0 : f32
  %B = memref.alloc() : $X
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%W : memref<256x256xi8>) outs(%B : $X) {
  ^bb0(%w: i8, %old: bf16):
    %c = arith.sitofp %w : i8 to bf16
    linalg.yield %c : bf16
  }
  %T = memref.alloc() : memref<256x256xf32>
  linalg.fill ins(%zero : f32) outs(%T : memref<256x256xf32>)
  linalg.matmul ins(%A, %B : $X, $X) outs(%T : memref<256x256xf32>)
  linalg.generic {indexing_maps = [#mn, #mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T, %R : memref<256x256xf32>, $X) outs(%D : $X) {
  ^bb0(%p: f32, %r: bf16, %old: bf16):
    %e = arith.extf %r : bf16 to f32
    %s = arith.addf %p, %e : f32
    %y = arith.truncf %s : f32 to bf16
    linalg.yield %y : bf16
  }
  memref.dealloc %T : memref<256x256xf32>
  memref.dealloc %B : $X
  return
}
""".replace("$X", "memref<256x256xbf16>")
"""Weights are multiplied from registers, as transposes, so that lanes hold columns of D."""

DECLINED: list[tuple[str, dict[str, Any], str]] = [
    (WEIGHTS, {"in_registers": "b"}, "`ldmatrix` does not read a fragment of layout"),
    (TWO, tile(128, 256, stages=3), "it would take 2 stages at a time, and 0 are left for that"),
    (Product(MIXED, "residual", "A B", (64, 128, 64)).mlir, tile(64, 128), "no tile of the ring has panels of bf16"),
    (
        Product(WIDE, "residual", "A B", (64, 64, 64)).mlir,
        tile(64, 64),
        "`ldmatrix` reads elements of 16 bits",
    ),
    (
        Product(BF16, "residual", "A B", (72, 72, 72)).mlir,
        tile(64, 64, ctas=1, consumers="pingpong"),
        "tiles of their own",
    ),
    (Product(BF16, "residual", "A Bt", (72, 76, 72)).mlir, tile(64, 64, padded="d"), "no multiples of 16 bytes"),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("mlir", "schedule", "reason"), DECLINED, ids=[reason for _, _, reason in DECLINED])
def test_what_is_left_to_lanes(mlir: str, schedule: dict[str, Any], reason: str) -> None:
    with remarks() as log:
        compile(mlir, "sm_90a", cache=False, **schedule)
    said = [one for one in log if "each lane loads what it needs" in one]
    assert len(said) == 1
    assert reason in said[0]


@pytest.mark.parametrize(("m", "n", "stages", "ctas"), [(128, 256, 3, 0), (64, 128, 3, 0), (64, 128, 5, 3)])
def test_two_matrices_come_through_stages_by_turns(m: int, n: int, stages: int, ctas: int) -> None:
    """Or the first alone, where no stages are left."""
    kernel = compile(TWO, "sm_90a", **tile(m, n, stages=stages, ctas=ctas))
    rng = np.random.default_rng(5)
    a, b, r, s = (rng.standard_normal((256, 256)).astype(ml_dtypes.bfloat16) for _ in range(4))
    d = np.full((256, 256), np.nan, ml_dtypes.bfloat16)
    kernel(a, b, r, s, d, device="interp", checks=CHECKS)
    both = (r.astype(np.float32) + s.astype(np.float32)).astype(ml_dtypes.bfloat16)
    exact = a.astype(float) @ b.astype(float) + both.astype(float)
    np.testing.assert_allclose(d.astype(float), exact, rtol=2.0**-8, atol=1e-4)
