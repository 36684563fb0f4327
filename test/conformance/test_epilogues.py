"""Epilogues at default schedules against ptxas: they assemble on each target, and nothing spills.

A sample has each function, each type and each target; `make conformance` takes all of their combinations.
"""

from __future__ import annotations

import os
from itertools import product

import pytest
from samples import every

from warploom.runtime import compile
from warploom.runtime.cuda import ptxas

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


BODIES = ("math.tanh %0", "math.exp %0", "math.erf %0", "math.tanh %0 fastmath<afn>")
TARGETS = ("sm_80", "sm_90a", "sm_120a")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("body", "target"), every([*product(BODIES, TARGETS)], 2))
def test_epilogues_assemble_without_spills(body: str, target: str) -> None:
    resources = ptxas.assemble(compile(TEXT.replace("BODY", body), target=target).ptx, target)
    assert all(r.spills == r.stack == 0 and r.registers <= 255 for r in resources.values()), resources


TWO = f"""
#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
func.func @f(%A: memref<{N}x{N}xbf16>, %B: memref<{N}x{N}xbf16>, %scale: memref<{N}xf32>, %R: memref<{N}x{N}xKIND>,
             %S: memref<{N}x{N}xKIND>, %D: memref<{N}x{N}xf32>) {{
  linalg.matmul ins(%A, %B : memref<{N}x{N}xbf16>, memref<{N}x{N}xbf16>) outs(%D : memref<{N}x{N}xf32>)
  linalg.generic {{indexing_maps = [#m, #mn, #mn, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%scale, %R, %S : memref<{N}xf32>, memref<{N}x{N}xKIND>, memref<{N}x{N}xKIND>)
      outs(%D : memref<{N}x{N}xf32>) {{
  ^bb0(%m: f32, %r: KIND, %s: KIND, %p: f32):
    %0 = math.tanh %p : f32
    %1 = EXTEND %r
    %2 = EXTEND %s
    %3 = math.fma %0, %m, %1 : f32
    %4 = math.log %3 : f32
    %5 = arith.mulf %4, %2 : f32
    linalg.yield %5 : f32
  }}
  return
}}
"""
"""C added, then two matrices."""


KINDS = (("bf16", "arith.extf %r : bf16 to f32"), ("f32", "math.absf %r : f32"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "target"), every([*product(KINDS, TARGETS[:2])], 3))
def test_two_matrices_beside_the_sums_do_not_spill(kind: tuple[str, str], target: str) -> None:
    element, extend = kind
    opcode, _, types = extend.partition(" %r ")
    text = TWO.replace("KIND", element)
    for name in "rs":
        text = text.replace(f"EXTEND %{name}", f"{opcode} %{name} {types}")
    (used,) = ptxas.assemble(compile(text, target=target).ptx, target).values()
    assert used.spills == used.stack == 0
