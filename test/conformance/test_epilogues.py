"""Epilogues at default schedules against ptxas: they assemble on each target, and nothing spills."""

from __future__ import annotations

import os

import pytest

from warploom.runtime import compile, ptxas

pytestmark = pytest.mark.skipif(
    ptxas.find() is None and not os.environ.get("CI"), reason="ptxas is not installed (extra: test)"
)

N = 4096
TEXT = f"""
#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
func.func @f(%A: memref<{N}x{N}xbf16>, %B: memref<{N}x{N}xbf16>, %bias: memref<{N}xf32>, %R: memref<{N}x{N}xf32>,
             %D: memref<{N}x{N}xbf16>) {{
  %zero = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<{N}x{N}xf32>
  linalg.fill ins(%zero : f32) outs(%T : memref<{N}x{N}xf32>)
  linalg.matmul ins(%A, %B : memref<{N}x{N}xbf16>, memref<{N}x{N}xbf16>) outs(%T : memref<{N}x{N}xf32>)
  linalg.generic {{indexing_maps = [#mn, #n, #mn, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%T, %bias, %R : memref<{N}x{N}xf32>, memref<{N}xf32>, memref<{N}x{N}xf32>) outs(%D : memref<{N}x{N}xbf16>) {{
  ^bb0(%p: f32, %b: f32, %r: f32, %old: bf16):
    %0 = arith.addf %p, %b : f32
    %1 = BODY : f32
    %2 = arith.addf %1, %r : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  }}
  return
}}
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("body", ["math.tanh %0", "math.exp %0", "math.erf %0", "math.tanh %0 fastmath<afn>"])
def test_epilogues_assemble_without_spills(body: str, target: str) -> None:
    found = ptxas.assemble(compile(TEXT.replace("BODY", body), target=target).ptx, target)
    assert all(r.spills == r.stack == 0 and r.registers <= 255 for r in found.values()), found
