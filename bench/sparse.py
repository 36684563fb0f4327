"""Products with a sparse A on a GPU: our kernels, cuSPARSELt, the dense product, and the peak of `mma.sp`, in one run.

    bench/with_gpu.sh python bench/sparse.py --sizes 8192 --types bf16 --json out.json

Method as in `gemm.py`, and TFLOP/s count the zeros too: 2*M*N*K operations. A is pruned on the host to the two
largest of each four; cuSPARSELt (through torch) compresses the same A for itself. Its call is bound by the host at
small sizes, so it is timed inside a CUDA graph. The result is checked against float64 before anything is timed.
C is of the type that the library gives, which `--out` changes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from gemm import (
    ERROR_LIMIT,
    TF32_ERROR,
    Row,
    Timer,
    find_torch,
    parse_size,
    peak,
    product_launch,
    relative_error,
    report,
)
from gemm_types import KINDS as DENSE
from gemm_types import Kind, output
from peaks import sparse_row

from warploom.runtime import CompileError, compile, compress, prune

MLIR = """
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> {axes}>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @matmul(%A: memref<{m}x{h}x{t}>, %E: memref<{r}x{w}xi32>, %B: memref<{b}x{t}>, %C: memref<{m}x{n}x{o}>) {{
  %zero = arith.constant {zero} : {o}
  linalg.fill ins(%zero : {o}) outs(%C : memref<{m}x{n}x{o}>)
  linalg.matmul indexing_maps = [#a, #b, #c] {{warp.metadata = 1}}
    ins(%A, %B : memref<{m}x{h}x{t}>, memref<{b}x{t}>) outs(%C : memref<{m}x{n}x{o}>)
  return
}}
"""

OUTPUTS = {"bf16": "bf16", "f16": "f16", "tf32": "f32", "s8": "i32", "e4m3": "bf16"}
"""The types that are measured, and what the library gives of each."""

ON_HOST = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32, "int8": np.int8,
           "float8_e4m3fn": ml_dtypes.float8_e4m3fn}  # fmt: skip
"""The types of arrays that are pruned, by torch's names."""


@dataclass(frozen=True)
class Problem:
    """A product: A with its zeros, what is stored of it, its metadata, B as n x k if transposed."""

    size: tuple[int, int, int]
    kind: Kind
    out: str
    transposed: bool
    operands: tuple[Any, Any, Any, Any]

    @staticmethod
    def draw(torch: Any, size: tuple[int, int, int], kind: Kind, out: str, transposed: bool) -> Problem:
        """Random operands; A keeps the largest of each chunk."""
        m, n, k = size
        dense, b = kind.draw(torch, (m, k)), kind.draw(torch, (n, k) if transposed else (k, n))
        words = getattr(torch, f"int{8 * dense.element_size()}")
        pruned = prune(dense.view(words).cpu().numpy().view(ON_HOST[kind.torch]))
        values, metadata = compress(pruned)

        def up(array: Any) -> Any:
            words = np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}")
            return torch.from_numpy(words).cuda().view(dense.dtype)

        encoded = torch.from_numpy(metadata).cuda()
        return Problem(size, kind, out, transposed, (up(pruned), up(values), encoded, b))

    @property
    def text(self) -> str:
        """The product in MLIR, from zero."""
        (m, n, k), (rows, words) = self.size, self.operands[2].shape
        b, axes = (f"{n}x{k}", "(n, k)") if self.transposed else (f"{k}x{n}", "(k, n)")
        zero = "0" if self.out.startswith("i") else "0.0"
        return MLIR.format(m=m, n=n, h=k // 2, r=rows, w=words, t=self.kind.mlir, b=b, axes=axes, o=self.out, zero=zero)

    @property
    def right(self) -> Any:
        """B as k x n."""
        return self.operands[3].T if self.transposed else self.operands[3]


def graphed(torch: Any, call: Callable[[], object]) -> Callable[[], object]:
    """A call captured in a CUDA graph, so that the host's part of it is not timed."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def ours(torch: Any, timer: Timer, name: str, problem: Problem, target: str, schedule: dict[str, Any]) -> Row:
    """Our kernel, checked."""
    (m, n, k), kind, (dense, values, metadata, b) = problem.size, problem.kind, problem.operands
    c = output(torch, (m, n), problem.out)
    kernel = compile(problem.text, target=target, tf32=kind.tf32, **{**kind.fields, **schedule})
    call = kernel.prepare(values, metadata, b, c)
    call()
    call.wait()
    error = relative_error(torch, dense, problem.right, c)
    if not error <= ERROR_LIMIT[problem.out] + (TF32_ERROR if kind.tf32 else 0):
        raise SystemExit(f"{m}x{n}x{k} sparse {name}, {schedule}: relative error {error:.2e}")
    ms = timer.milliseconds(call)
    number, chosen = product_launch(kernel)
    shown = f"B by {'columns' if problem.transposed else 'rows'}, {chosen}"
    registers = call.kernels[number].registers
    return Row("warploom", f"{m}x{n}x{k}", name, problem.out, 2 * m * n * k / ms / 1e9, ms, error, shown, registers)


def peers(torch: Any, timer: Timer, name: str, problem: Problem) -> list[Row]:
    """cuSPARSELt with the best algorithm that it finds, and the dense product of the library."""
    (m, n, k), (dense, _, _, b), right = problem.size, problem.operands, problem.right
    label, operations = f"{m}x{n}x{k}", 2 * m * n * k
    wide = {"out_dtype": getattr(torch, {"s8": "int32", "e4m3": "bfloat16"}[name])} if name in ("s8", "e4m3") else {}
    rows: list[Row] = []
    try:
        packed = torch._cslt_compress(dense)
        best = torch._cslt_sparse_mm_search(packed, right, **wide)
        call = graphed(torch, lambda: torch._cslt_sparse_mm(packed, right, alg_id=best, **wide))
        ms = timer.milliseconds(call)
        rows.append(Row("cuSPARSELt", label, name, OUTPUTS[name], operations / ms / 1e9, ms))
    except RuntimeError as error:  # of types that it does not take
        print(f"cuSPARSELt, {label} {name}: {error}", file=sys.stderr)
    by_columns = b if problem.transposed else b.t().contiguous()
    ms = timer.milliseconds(problem.kind.peer(torch, dense, right, by_columns, OUTPUTS[name]))
    rows.append(Row(f"{problem.kind.peer_name}, dense", label, name, OUTPUTS[name], operations / ms / 1e9, ms))
    return rows


def measured(
    torch: Any, timer: Timer, name: str, problem: Problem, target: str, schedules: Sequence[dict[str, Any]]
) -> list[Row]:
    """Our kernels, one for each schedule, and the peers."""
    rows: list[Row] = []
    for schedule in schedules:
        try:
            rows.append(ours(torch, timer, name, problem, target, schedule))
        except CompileError as error:
            print(f"{name}, {schedule}: {error}", file=sys.stderr)
    return rows + peers(torch, timer, name, problem)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[(8192,) * 3])
    parser.add_argument("--types", nargs="+", default=["bf16"], choices=OUTPUTS)
    parser.add_argument("--out", help="element type of C where the type has it")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--transposed", action="store_true", help="B as n x k; always of types that libraries take so")
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
    for name in options.types:
        kind = DENSE[name]
        out = options.out if options.out in kind.outputs else OUTPUTS[name]
        rows.append(peak(torch, timer, sparse_row(kind.isa), name, options.target))
        for size in options.sizes:
            transposed = options.transposed or kind.by_columns or kind.tf32
            problem = Problem.draw(torch, size, kind, out, transposed)
            rows += measured(torch, timer, name, problem, options.target, schedules)
    report(torch, rows, options.json)


if __name__ == "__main__":
    main()
