"""Elementwise kernels against ptxas: they assemble on each target, and nothing spills."""

from __future__ import annotations

import os

import pytest

from warploom.runtime import compile
from warploom.runtime.cuda import ptxas

pytestmark = pytest.mark.skipif(
    ptxas.find() is None and not os.environ.get("CI"), reason="ptxas is not installed (extra: test)"
)

GELU = """
    %half = arith.constant 0.5 : f32
    %one = arith.constant 1.0 : f32
    %scale = arith.constant 0.70710678 : f32
    %0 = arith.extf %x : f16 to f32
    %1 = arith.addf %0, %w : f32
    %2 = arith.mulf %1, %scale : f32
    %3 = math.erf %2 : f32
    %4 = arith.addf %3, %one : f32
    %5 = arith.mulf %4, %1 : f32
    %6 = arith.mulf %5, %half : f32
    %7 = arith.truncf %6 : f32 to f16
    linalg.yield %7 : f16"""


def text(m: str, n: str, x_map: str) -> str:
    x = f"memref<{m}x{n}xf16>" if x_map == "m, n" else f"memref<{n}x{m}xf16>"
    maps = ", ".join(f"affine_map<(m, n) -> ({each})>" for each in (x_map, "n", "m, n"))
    return f"""func.func @f(%X: {x}, %v: memref<{n}xf32>, %Y: memref<{m}x{n}xf16>) {{
      linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}}
        ins(%X, %v : {x}, memref<{n}xf32>) outs(%Y : memref<{m}x{n}xf16>) {{
      ^bb0(%x: f16, %w: f32, %old: f16): {GELU}
      }} return }}"""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("x_map", ["m, n", "n, m"])
def test_elementwise_kernels_assemble_without_spills(target: str, x_map: str) -> None:
    for sizes in (("4096", "4096"), ("4095", "4095"), ("?", "?")):
        resources = ptxas.assemble(compile(text(*sizes, x_map), target=target).ptx, target)
        assert all(r.spills == r.stack == 0 and r.registers <= 128 for r in resources.values()), (sizes, resources)
