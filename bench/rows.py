"""Softmax and RMS norm of rows against torch's, and against a copy of the same bytes, in one run.

    bench/with_gpu.sh python3 bench/rows.py --json out.json
    bench/with_gpu.sh python3 bench/rows.py --sizes 65536x4096 16384x8192

Operands are bf16 from a normal distribution. Before anything is timed, our result is compared with that of torch in
f32: `error` is the largest difference over the largest value. A time is the median over `--repeats` calls between two
events, after three warm-up calls, with the L2 cache flushed before each; kernels take turns. `share` is what a copy
takes over what a kernel takes: both read and write as much.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from attention import timed

from warploom.runtime import compile

EPSILON = 1e-6

SOFTMAX = """func.func @softmax(%x: memref<{m}x{n}xbf16>, %y: memref<{m}x{n}xbf16>) {{
  linalg.softmax dimension(1) ins(%x : memref<{m}x{n}xbf16>) outs(%y : memref<{m}x{n}xbf16>)
  return
}}"""

NORM = """
#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
#n = affine_map<(m, n) -> (n)>
func.func @norm(%x: memref<{m}x{n}xbf16>, %w: memref<{n}xbf16>, %y: memref<{m}x{n}xbf16>) {{
  %zero = arith.constant 0.0 : f32
  %length = arith.constant {n}.0 : f32
  %epsilon = arith.constant 1.0e-6 : f32
  %total = memref.alloc() : memref<{m}xf32>
  linalg.fill ins(%zero : f32) outs(%total : memref<{m}xf32>)
  linalg.generic {{indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]}}
      ins(%x : memref<{m}x{n}xbf16>) outs(%total : memref<{m}xf32>) {{
  ^bb0(%a: bf16, %old: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.mulf %0, %0 : f32
    %r = arith.addf %old, %1 : f32
    linalg.yield %r : f32
  }}
  linalg.generic {{indexing_maps = [#mn, #m, #n, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %total, %w : memref<{m}x{n}xbf16>, memref<{m}xf32>, memref<{n}xbf16>) outs(%y : memref<{m}x{n}xbf16>) {{
  ^bb0(%a: bf16, %sum: f32, %weight: bf16, %old: bf16):
    %0 = arith.divf %sum, %length : f32
    %1 = arith.addf %0, %epsilon : f32
    %2 = math.rsqrt %1 : f32
    %3 = arith.extf %a : bf16 to f32
    %4 = arith.mulf %3, %2 : f32
    %5 = arith.extf %weight : bf16 to f32
    %6 = arith.mulf %4, %5 : f32
    %r = arith.truncf %6 : f32 to bf16
    linalg.yield %r : bf16
  }}
  return
}}"""


def calls_of(m: int, n: int, target: str) -> dict[str, tuple[Callable[[], torch.Tensor], torch.Tensor]]:
    """Each kernel with what it must give, in f32."""
    x = torch.randn(m, n, device="cuda").bfloat16()
    weight = torch.randn(n, device="cuda").bfloat16()
    softmax, norm = (compile(text.format(m=m, n=n), target=target) for text in (SOFTMAX, NORM))
    results = [torch.full_like(x, float("nan")) for _ in range(3)]

    def ours_softmax() -> torch.Tensor:
        softmax(x, results[0])
        return results[0]

    def ours_norm() -> torch.Tensor:
        norm(x, weight, results[1])
        return results[1]

    wide = x.float()
    exact = {
        "softmax": torch.softmax(wide, -1),
        "norm": torch.nn.functional.rms_norm(wide, (n,), weight.float(), EPSILON),
    }
    return {
        "copy": (lambda: results[2].copy_(x), wide),
        "warploom softmax": (ours_softmax, exact["softmax"]),
        "torch softmax": (lambda: torch.softmax(x, -1), exact["softmax"]),
        "warploom rms_norm": (ours_norm, exact["norm"]),
        "torch rms_norm": (lambda: torch.nn.functional.rms_norm(x, (n,), weight, EPSILON), exact["norm"]),
    }


def measure(m: int, n: int, target: str, repeats: int) -> list[dict[str, object]]:
    """All kernels for one size."""
    calls = calls_of(m, n, target)
    errors = {
        name: float((call().float() - wanted).abs().max() / wanted.abs().max())
        for name, (call, wanted) in calls.items()
    }
    times = timed({name: call for name, (call, _) in calls.items()}, repeats)
    return [
        {
            "rows": m,
            "length": n,
            "name": name,
            "microseconds": round(time, 1),
            "share": round(times["copy"] / time, 3),
            "error": errors[name],
        }
        for name, time in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=["65536x4096", "65536x1024", "16384x8192"])
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.manual_seed(0)
    found: list[dict[str, object]] = []
    for size in given.sizes:
        m, n = map(int, size.split("x"))
        rows = measure(m, n, given.target, given.repeats)
        for row in rows:
            print("  ".join(f"{key} {value}" for key, value in row.items()))
        found += rows
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
