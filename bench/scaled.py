"""Products of 8-bit floats whose blocks have scales, on a GPU: 1x128 of A, 128x128 of B.

    bench/with_gpu.sh python bench/scaled.py
    bench/with_gpu.sh python bench/scaled.py --sizes 4096x4096x7168 --schedule stages=5

Method: that of `gemm.py`; sizes are MxNxK. Floats are drawn N(0, 1) and rounded to e4m3, scales from 0.5 to 1.5. A is
row-major, B lies along K, scales of A lie along M, as cuBLAS takes them. Results are checked against the product of the
scaled matrices in float32. The peer is torch._scaled_mm on the same operands.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import gemm

from warploom.runtime import CompileError, Kernel, WarploomError, compile

SIZES = ("4096x7168x4096", "4096x4096x7168", "8192x8192x8192")
BLOCK = 128
"""Elements along k, and along n, that share a scale."""

LIMIT = 3e-3
"""Relative error in the Frobenius norm that a right kernel stays under, its result rounded to bf16."""


def text(m: int, n: int, k: int, out: str = "bf16") -> str:
    """Matrices of floats times scales, and their product."""
    a, b, d = f"memref<{m}x{k}x", f"memref<{n}x{k}x", f"memref<{m}x{n}x{out}>"
    groups, columns = k // BLOCK, n // BLOCK
    sa, sb = f"memref<{groups}x{m}xf32>", f"memref<{columns}x{groups}xf32>"
    return f"""#same = affine_map<(i, k) -> (i, k)>
#rows = affine_map<(i, k) -> (k floordiv {BLOCK}, i)>
#blocks = affine_map<(i, k) -> (i floordiv {BLOCK}, k floordiv {BLOCK})>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#d = affine_map<(m, n, k) -> (m, n)>
func.func @scaled(%A: {a}f8E4M3FN>, %SA: {sa}, %B: {b}f8E4M3FN>, %SB: {sb}, %D: {d}) {{
  %zero = arith.constant 0.0 : {out}
  %a = memref.alloc() : {a}bf16>
  %b = memref.alloc() : {b}bf16>
  linalg.generic {{indexing_maps = [#same, #rows, #same], iterator_types = ["parallel", "parallel"]}}
      ins(%A, %SA : {a}f8E4M3FN>, {sa}) outs(%a : {a}bf16>) {{
  ^bb0(%q: f8E4M3FN, %s: f32, %old: bf16):
    %wide = arith.extf %q : f8E4M3FN to f32
    %scaled = arith.mulf %wide, %s : f32
    %rounded = arith.truncf %scaled : f32 to bf16
    linalg.yield %rounded : bf16
  }}
  linalg.generic {{indexing_maps = [#same, #blocks, #same], iterator_types = ["parallel", "parallel"]}}
      ins(%B, %SB : {b}f8E4M3FN>, {sb}) outs(%b : {b}bf16>) {{
  ^bb0(%q: f8E4M3FN, %s: f32, %old: bf16):
    %wide = arith.extf %q : f8E4M3FN to f32
    %scaled = arith.mulf %wide, %s : f32
    %rounded = arith.truncf %scaled : f32 to bf16
    linalg.yield %rounded : bf16
  }}
  linalg.fill ins(%zero : {out}) outs(%D : {d})
  linalg.matmul indexing_maps = [#a, #b, #d] ins(%a, %b : {a}bf16>, {b}bf16>) outs(%D : {d})
  return
}}
"""


def measured(
    torch: Any, timer: gemm.Timer, size: tuple[int, int, int], kernels: Mapping[str, Kernel]
) -> Iterator[gemm.Row]:
    """Each kernel, and torch, on the same operands."""
    m, n, k = size
    a, b = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
    of_a, of_b = (torch.rand(shape, device="cuda") + 0.5 for shape in ((k // BLOCK, m), (n // BLOCK, k // BLOCK)))
    wide_a = a.float() * of_a.t().repeat_interleave(BLOCK, 1)
    exact = wide_a @ (b.float() * of_b.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)).t()

    def error_of(d: Any) -> float:
        return float((d.float() - exact).norm() / exact.norm())

    def row(name: str, call: Any, error: float) -> gemm.Row:
        ms = timer.milliseconds(call)
        return gemm.Row(name, "x".join(map(str, size)), "e4m3", "bf16", 2 * m * n * k / ms / 1e9, ms, error)

    for name, kernel in kernels.items():
        d = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
        arguments = a, of_a, b, of_b, d
        try:
            kernel(*arguments)
            torch.cuda.synchronize()
        except WarploomError as failed:
            print(f"{size}, {name}: {failed}", file=sys.stderr)
            continue
        if not (error := error_of(d)) <= LIMIT:
            print(f"{size}, {name}: relative error {error:.2e}", file=sys.stderr)
        yield row(name, lambda kernel=kernel, arguments=arguments: kernel(*arguments), error)

    def peer() -> Any:
        return torch._scaled_mm(a, b.t(), scale_a=of_a.t(), scale_b=of_b.t(), out_dtype=torch.bfloat16)

    try:
        yield row("torch._scaled_mm", peer, error_of(peer()))
    except RuntimeError as failed:
        print(f"{size}, torch._scaled_mm: {failed}", file=sys.stderr)


def compiled(size: tuple[int, int, int], schedules: list[str], target: str) -> dict[str, Kernel]:
    """The kernels to measure."""
    kernels: dict[str, Kernel] = {}
    for schedule in schedules:
        fields: dict[str, Any] = dict(pair.split("=") for pair in schedule.split(",")) if schedule else {}
        try:
            kernels[f"ours {schedule}".strip()] = compile(text(*size), target=target, **fields)
        except CompileError as error:
            print(f"{size}, {schedule}: {error}", file=sys.stderr)
    return kernels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES))
    parser.add_argument("--schedule", action="append", default=[], help="FIELD=VALUE,... beside the default's")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--compile-only", action="store_true", help="fill the cache of kernels, and measure nothing")
    options = parser.parse_args()
    sizes = [(m, n, k) for m, n, k in (map(int, text.split("x")) for text in options.sizes)]
    kernels = {size: compiled(size, ["", *options.schedule], options.target) for size in sizes}
    if options.compile_only:
        return
    torch = gemm.find_torch("torch._scaled_mm and the random operands")
    timer = gemm.Timer(torch, options.repeats)
    for size in sizes:
        rows = list(measured(torch, timer, size, kernels[size]))
        peer = next((row.tflops for row in rows if row.name.startswith("torch")), float("nan"))
        for row in rows:
            times = f"{1e3 * row.milliseconds:9.1f} us {row.tflops:7.1f} TFLOP/s {row.tflops / peer:6.2f}"
            print(f"{row.size:18} {row.name:60} {times} {row.relative_error:.1e}", flush=True)


if __name__ == "__main__":
    main()
