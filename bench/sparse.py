"""Products with a sparse A on a GPU: our kernels, cuSPARSELt, the dense product, and the peak of `mma.sp`, in one run.

    bench/with_gpu.sh python bench/sparse.py --sizes 8192 --types bf16 --json out.json

Method as in `gemm.py`, and TFLOP/s count the zeros too: 2*M*N*K operations. A is pruned on the host to the two
largest of each four; cuSPARSELt (through torch) compresses the same A for itself. Its call is bound by the host at
small sizes, so it is timed inside a CUDA graph. The result is checked against float64 before anything is timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from gemm import ERROR_LIMIT, Row, Timer, find_torch, parse_size, peak, product_launch, relative_error, report
from peaks import sparse_row

from warploom.runtime import compile, compress, prune

MLIR = """
func.func @matmul(%A: memref<{m}x{h}x{t}>, %E: memref<{r}x{w}xi32>, %B: memref<{k}x{n}x{t}>, %C: memref<{m}x{n}x{o}>) {{
  %zero = arith.constant {zero} : {o}
  linalg.fill ins(%zero : {o}) outs(%C : memref<{m}x{n}x{o}>)
  linalg.matmul {{warp.metadata = 1}} ins(%A, %B : memref<{m}x{h}x{t}>, memref<{k}x{n}x{t}>)
    outs(%C : memref<{m}x{n}x{o}>)
  return
}}
"""

MLIR_TRANSPOSED = """
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @matmul(%A: memref<{m}x{h}x{t}>, %E: memref<{r}x{w}xi32>, %B: memref<{n}x{k}x{t}>, %C: memref<{m}x{n}x{o}>) {{
  %zero = arith.constant {zero} : {o}
  linalg.fill ins(%zero : {o}) outs(%C : memref<{m}x{n}x{o}>)
  linalg.matmul indexing_maps = [#a, #b, #c] {{warp.metadata = 1}}
    ins(%A, %B : memref<{m}x{h}x{t}>, memref<{n}x{k}x{t}>) outs(%C : memref<{m}x{n}x{o}>)
  return
}}
"""

KINDS = ("bf16", "f16", "s8")


def graphed(torch: Any, call: Callable[[], object]) -> Callable[[], object]:
    """A call captured in a CUDA graph, so that the host's part of it is not timed."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def operands(torch: Any, m: int, n: int, k: int, kind: str, transposed: bool) -> tuple[Any, Any, Any, Any]:
    """(A with zeros, what is stored of it, its metadata, B), B as n x k if transposed."""
    shape = (n, k) if transposed else (k, n)
    if kind == "s8":
        dense = torch.randint(-128, 128, (m, k), dtype=torch.int8, device="cuda")
        b = torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
        pruned = prune(dense.cpu().numpy())
    else:
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[kind]
        held = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[kind]
        dense = torch.randn(m, k, device="cuda").to(dtype)
        b = torch.randn(*shape, device="cuda").to(dtype)
        pruned = prune(dense.view(torch.int16).cpu().numpy().view(held))
    values, metadata = compress(pruned)

    def up(array: Any) -> Any:
        words = array.view(np.int16) if array.dtype.itemsize == 2 else array
        moved = torch.from_numpy(np.ascontiguousarray(words)).cuda()
        return moved.view(dense.dtype) if array.dtype.itemsize == 2 else moved

    return up(pruned), up(values), up(metadata), b


def product(
    torch: Any, timer: Timer, size: tuple[int, int, int], kind: str, target: str, schedule: dict[str, Any],
    transposed: bool, peers: bool,
) -> list[Row]:  # fmt: skip
    """Our kernel, and if `peers` cuSPARSELt and the dense product, on the same operands."""
    m, n, k = size
    a, values, metadata, b = operands(torch, m, n, k, kind, transposed)
    out = "i32" if kind == "s8" else "f32"
    c = torch.full((m, n), -1 if kind == "s8" else float("nan"), device="cuda",
                   dtype=torch.int32 if kind == "s8" else torch.float32)  # fmt: skip
    rows, words = metadata.shape
    text = MLIR_TRANSPOSED if transposed else MLIR
    element = "i8" if kind == "s8" else kind
    zero = "0" if kind == "s8" else "0.0"
    mlir = text.format(m=m, n=n, k=k, h=k // 2, r=rows, w=words, t=element, o=out, zero=zero)
    kernel = compile(mlir, target=target, **schedule)
    call = kernel.prepare(values, metadata, b, c)
    call()
    call.wait()
    error = relative_error(torch, a, b.T if transposed else b, c)
    limit = 0.0 if kind == "s8" else ERROR_LIMIT["f32"]
    if not error <= limit:
        raise SystemExit(f"{m}x{n}x{k} sparse {kind}: relative error {error:.2e}, the limit is {limit:.0e}")
    label, operations = f"{m}x{n}x{k}", 2 * m * n * k
    ours = timer.milliseconds(call)
    number, chosen = product_launch(kernel)
    shown = f"{chosen}{', B transposed' if transposed else ''}"
    found = [Row("warploom mma.sp", label, kind, out, operations / ours / 1e9, ours, error, shown,
                 call.kernels[number].registers)]  # fmt: skip
    if not peers:
        return found
    packed = torch._cslt_compress(a)
    right = b.T if transposed else b
    wide = {"out_dtype": torch.int32} if kind == "s8" else {}
    best = torch._cslt_sparse_mm_search(packed, right, **wide)
    theirs = timer.milliseconds(graphed(torch, lambda: torch._cslt_sparse_mm(packed, right, alg_id=best, **wide)))
    found.append(Row("cuSPARSELt", label, kind, out if wide else kind, operations / theirs / 1e9, theirs))
    if kind != "s8":
        dense = timer.milliseconds(lambda: torch.matmul(a, right))
        found.append(Row("cuBLAS, dense", label, kind, kind, operations / dense / 1e9, dense))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[(8192,) * 3])
    parser.add_argument("--types", nargs="+", default=["bf16"], choices=KINDS)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--transposed", action="store_true", help="B as n x k")
    parser.add_argument(
        "--sweep", action="append", default=[], metavar="'KEY=VALUE KEY=VALUE'", help="one more schedule"
    )
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch = find_torch("cuSPARSELt and for events")
    timer = Timer(torch, options.repeats)
    schedules = [{}, *(dict(pair.split("=", 1) for pair in words.split()) for words in options.sweep)]
    rows: list[Row] = []
    for kind in options.types:
        rows.append(peak(torch, timer, sparse_row(kind), kind, options.target))
        for size in options.sizes:
            for i, schedule in enumerate(schedules):
                try:
                    rows += product(
                        torch, timer, size, kind, options.target, schedule, options.transposed, peers=i == 0
                    )
                except Exception as error:  # one schedule that does not fit should not end the others
                    if i == 0:
                        raise
                    print(f"{schedule}: {error}", file=sys.stderr)
    report(torch, rows, options.json)


if __name__ == "__main__":
    main()
