"""SwiGLU as one kernel, silu(A B1^T) * (A B2^T), beside the product alone, of A and both weights, and cuBLAS.

    bench/with_gpu.sh python bench/swiglu.py --rows 16 2048 8192 --json swiglu.json

bf16, Llama 3 8B's gate and up by default. Method as in `draw.py`: graphs of launches over operands that take turns. The
`product alone` writes both products, without the activation; `torch` is `torch.mm` alone, and with silu and the product
of halves as PyTorch computes them, a kernel each.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gemm import find_torch
from gemm_types import KINDS
from graphs import Graphs

from warploom.runtime import CompileError, Kernel, compile

LIMIT = 1e-2

TEXT = """
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#e = affine_map<(m, n) -> (m, n)>
func.func @swiglu(%A: {a}, %B1: {b}, %B2: {b}, %D: {d}) {{
  %zero = arith.constant 0.0 : f32
  %gate = memref.alloc() : {sums}
  %up = memref.alloc() : {sums}
  linalg.fill ins(%zero : f32) outs(%gate : {sums})
  linalg.matmul indexing_maps = [#a, #b, #c] ins(%A, %B1 : {a}, {b}) outs(%gate : {sums})
  linalg.fill ins(%zero : f32) outs(%up : {sums})
  linalg.matmul indexing_maps = [#a, #b, #c] ins(%A, %B2 : {a}, {b}) outs(%up : {sums})
  linalg.generic {{indexing_maps = [#e, #e, #e], iterator_types = ["parallel", "parallel"]}}
      ins(%gate, %up : {sums}, {sums}) outs(%D : {d}) {{
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %one = arith.constant 1.0 : f32
    %negative = arith.negf %x : f32
    %exponential = math.exp %negative : f32
    %below = arith.addf %one, %exponential : f32
    %silu = arith.divf %x, %below : f32
    %product = arith.mulf %silu, %y : f32
    %rounded = arith.truncf %product : f32 to bf16
    linalg.yield %rounded : bf16
  }}
  return
}}"""


def text(rows: int, columns: int, depth: int) -> str:
    """The function, of weights of so many rows each."""
    a, b, d = (f"memref<{m}x{n}xbf16>" for m, n in ((rows, depth), (columns, depth), (rows, columns)))
    return TEXT.format(a=a, b=b, d=d, sums=f"memref<{rows}x{columns}xf32>")


def kernels(size: tuple[int, int, int], sweep: Sequence[str]) -> dict[str, Kernel]:
    """The kernel with the default schedule and others, and the product alone."""
    rows, columns, depth = size
    made = {"default": compile(text(*size), target="sm_90a")}
    for words in sweep:
        try:
            fields: dict[str, Any] = dict(pair.split("=", 1) for pair in words.split())
            made[words] = compile(text(*size), target="sm_90a", **fields)
        except CompileError as error:
            print(f"{size}: {str(error).splitlines()[0]}", file=sys.stderr)
    alone = KINDS["bf16"].text((rows, 2 * columns, depth), "bf16", transposed=True)
    return made | {"product alone": compile(alone, target="sm_90a")}


def measured(torch: Any, bench: Graphs, size: tuple[int, int, int], sweep: Sequence[str]) -> dict[str, float]:
    """Microseconds of a launch of each."""
    rows, columns, depth = size
    alone = rows, 2 * columns, depth
    sets = bench.sets(alone)
    outs = [torch.full((rows, columns), float("nan"), device="cuda", dtype=torch.bfloat16) for _ in sets]
    calls: dict[str, list[Callable[[], object]]] = {}
    with torch.cuda.stream(bench.stream):
        for name, kernel in kernels(size, sweep).items():
            pairs = [(a, w[:columns], w[columns:], out) for (a, w, _), out in zip(sets, outs, strict=True)]
            pool = sets if name == "product alone" else pairs
            calls[name] = [kernel.prepare(*operands) for operands in pool]
            if name != "product alone":
                check(torch, calls[name][0], *pairs[0])
        calls["torch.mm alone"] = [lambda a=a, w=w, out=out: torch.mm(a, w.t(), out=out) for a, w, out in sets]
        calls["torch.mm, silu, product"] = [lambda a=a, w=w: _by_torch(torch, a, w, columns) for a, w, _ in sets]
        for some in calls.values():
            some[0]()
            some[1]()
        bench.stream.synchronize()
        times = bench.microseconds([bench.graph(alone, some) for some in calls.values()])
    return dict(zip(calls, times, strict=True))


def _by_torch(torch: Any, a: Any, w: Any, columns: int) -> Any:
    both = torch.mm(a, w.t())
    return torch.nn.functional.silu(both[:, :columns]) * both[:, columns:]


def check(torch: Any, call: Callable[[], object], a: Any, first: Any, second: Any, out: Any) -> None:
    """Compares the first rows with float64, and looks for what nothing wrote."""
    out.fill_(float("nan"))
    call()
    torch.cuda.synchronize()
    some = a[:64].double()
    gate, up = some @ first.double().t(), some @ second.double().t()
    expected = gate * torch.sigmoid(gate) * up
    error = float((out[:64].double() - expected).norm() / expected.norm())
    if not (error <= LIMIT and bool(out.isfinite().all())):
        raise SystemExit(f"{tuple(out.shape)}: relative error {error:.2e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 2048, 8192])
    parser.add_argument("--columns", type=int, default=14336)
    parser.add_argument("--depth", type=int, default=4096)
    parser.add_argument("--sweep", action="append", default=[], metavar="'KEY=VALUE KEY=VALUE'")
    parser.add_argument("--compile", action="store_true", help="compile, measure nothing")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes = [(rows, options.columns, options.depth) for rows in options.rows]
    if options.compile:
        from warploom.runtime.cuda.driver import gpu

        for kernel in (kernel for size in sizes for kernel in kernels(size, options.sweep).values()):
            gpu().load(kernel.ptx)
        return
    torch = find_torch("cuBLAS and for events")
    bench, table = Graphs(torch, 9), dict[str, dict[str, float]]()
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}; microseconds, and of the product alone")
    for size in sizes:
        times = table["x".join(map(str, size))] = measured(torch, bench, size, options.sweep)
        for name, time in times.items():
            print(f"{size[0]:>6} rows  {name[:60]:60} {time:9.1f}  {times['product alone'] / time:5.3f}")
    if options.json is not None:
        options.json.write_text(json.dumps({"device": torch.cuda.get_device_name(0), "rows": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
