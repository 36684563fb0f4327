"""Products with an epilogue on a GPU, against the plain product of the same types in the same run.

    bench/with_gpu.sh python bench/epilogue.py --sizes 4096 8192 --json out.json

Method as in `gemm.py`: every kernel is checked against float64 before it is timed, here on the first rows; and at a
small size its words must be those of the interpreter. The plain product is timed before and after each, and the share
is of the mean of the two. `approximate` is the same epilogue with `fastmath<afn>` on its function. PyTorch runs the
product and the bias as one kernel of cuBLAS (`torch.addmm`) and gelu as another.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from gemm import Row, Timer, find_torch, parse_size, product_launch, report
from gemm_types import KINDS

from warploom.runtime import compile

KIND = "bf16"
ROWS_CHECKED = 512
ERROR_LIMIT = 1e-2
SMALL = (192, 320, 72)

FUSED = """
#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
func.func @f(%A: memref<{m}x{k}xbf16>, %B: memref<{k}x{n}xbf16>, %bias: memref<{n}xf32>, %R: memref<{m}x{n}xbf16>,
             %D: memref<{m}x{n}xbf16>) {{
  %zero = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<{m}x{n}xf32>
  linalg.fill ins(%zero : f32) outs(%T : memref<{m}x{n}xf32>)
  linalg.matmul ins(%A, %B : memref<{m}x{k}xbf16>, memref<{k}x{n}xbf16>) outs(%T : memref<{m}x{n}xf32>)
  linalg.generic {{indexing_maps = [#mn, #n, #mn, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%T, %bias, %R : memref<{m}x{n}xf32>, memref<{n}xf32>, memref<{m}x{n}xbf16>) outs(%D : memref<{m}x{n}xbf16>) {{
  ^bb0(%p: f32, %b: f32, %e: bf16, %old: bf16):
    {body}
    %y = arith.truncf %r : f32 to bf16
    linalg.yield %y : bf16
  }}
  memref.dealloc %T : memref<{m}x{n}xf32>
  return
}}
"""

BIAS = "%x = arith.addf %p, %b : f32"
GELU_TANH = f"""{BIAS}
    %c0 = arith.constant 0.7978845608028654 : f32
    %c1 = arith.constant 0.044715 : f32
    %half = arith.constant 0.5 : f32
    %one = arith.constant 1.0 : f32
    %0 = arith.mulf %x, %x : f32
    %1 = arith.mulf %0, %c1 : f32
    %2 = math.fma %1, %x, %x : f32
    %3 = arith.mulf %2, %c0 : f32
    %4 = math.tanh %3 FAST : f32
    %5 = arith.addf %4, %one : f32
    %6 = arith.mulf %x, %half : f32
    %r = arith.mulf %6, %5 : f32"""
GELU_ERF = f"""{BIAS}
    %c0 = arith.constant 0.7071067811865476 : f32
    %half = arith.constant 0.5 : f32
    %one = arith.constant 1.0 : f32
    %0 = arith.mulf %x, %c0 : f32
    %1 = math.erf %0 FAST : f32
    %2 = arith.addf %1, %one : f32
    %3 = arith.mulf %x, %half : f32
    %r = arith.mulf %3, %2 : f32"""
RELU = f"""{BIAS}
    %floor = arith.constant 0.0 : f32
    %r = arith.maximumf %x, %floor : f32"""

RESIDUAL = f"""{BIAS}
    %wide = arith.extf %e : bf16 to f32
    %r = arith.addf %x, %wide : f32"""


def gelu_tanh(torch: Any, x: Any, residual: Any = None) -> Any:
    return torch.nn.functional.gelu(x, approximate="tanh")


def gelu_erf(torch: Any, x: Any, residual: Any = None) -> Any:
    return torch.nn.functional.gelu(x)


EPILOGUES: dict[str, tuple[str, Callable[[Any, Any, Any], Any]]] = {
    "bias, residual": (RESIDUAL, lambda torch, x, residual: x + residual),
    "bias, relu": (RELU, lambda torch, x, residual: x.relu()),
    "bias, gelu (tanh)": (GELU_TANH.replace(" FAST", ""), gelu_tanh),
    "approximate": (GELU_TANH.replace("FAST", "fastmath<afn>"), gelu_tanh),
    "bias, gelu (erf)": (GELU_ERF.replace(" FAST", ""), gelu_erf),
}
"""The body of each epilogue, and what it computes of the sum with the bias, and of a residual."""


def text(size: tuple[int, int, int], body: str) -> str:
    m, n, k = size
    return FUSED.format(m=m, n=n, k=k, body=body)


def same_words(torch: Any, body: str, target: str, schedule: dict[str, Any]) -> bool:
    """Whether GPU and interpreter agree bit for bit, at a small size."""
    m, n, k = SMALL
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    bias, residual = rng.standard_normal(n).astype(np.float32), rng.standard_normal((m, n)).astype(ml_dtypes.bfloat16)
    kernel = compile(text(SMALL, body), target=target, **schedule)
    words: list[Any] = []
    for device in ("cuda", "interp"):
        d = np.full((m, n), np.nan, ml_dtypes.bfloat16)
        kernel(a, b, bias, residual, d, device=device)
        words.append(d.view(np.uint16))
    return bool((words[0] == words[1]).all())


def measure(torch: Any, timer: Timer, size: tuple[int, int, int], target: str, schedule: dict[str, Any]) -> list[Row]:
    """The plain product, each epilogue, and PyTorch's kernels for bias and gelu."""
    m, n, k = size
    label, operations = f"{m}x{n}x{k}", 2 * m * n * k
    a, b = (torch.randn(*shape, device="cuda").bfloat16() for shape in ((m, k), (k, n)))
    bias = torch.randn(n, device="cuda")
    residual, d = torch.randn(m, n, device="cuda").bfloat16(), torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    exact = a[:ROWS_CHECKED].double() @ b.double()

    def kernel(name: str, mlir: str, expected: Any, *arrays: Any) -> tuple[Callable[[], object], Row]:
        d.fill_(float("nan"))
        compiled = compile(mlir, target=target, **schedule)
        call = compiled.prepare(*arrays)
        call()
        call.wait()
        error = float((d[:ROWS_CHECKED].double() - expected).norm() / expected.norm())
        if not error < ERROR_LIMIT or bool(d.isnan().any()):
            raise SystemExit(f"{name} at {label}: relative error {error:.2e}, the limit is {ERROR_LIMIT:.0e}")
        number, chosen = product_launch(compiled)
        return call, Row(name, label, KIND, KIND, 0.0, 0.0, error, str(chosen), call.kernels[number].registers)

    def timed(row: Row, call: Callable[[], object]) -> Row:
        row.milliseconds = timer.milliseconds(call)
        row.tflops = operations / row.milliseconds / 1e9
        return row

    plain, row = kernel("plain", KINDS[KIND].text((m, n, k), KIND, transposed=False), exact, a, b, d)
    rows = [timed(row, plain)]
    for name, (body, function) in EPILOGUES.items():
        expected = function(torch, exact + bias.double(), residual[:ROWS_CHECKED].double())
        call, row = kernel(name, text(size, body), expected, a, b, bias, residual, d)
        before, _, after = timer.milliseconds(plain), timed(row, call), timer.milliseconds(plain)
        words = "same words as the interpreter" if same_words(torch, body, target, schedule) else "OTHER WORDS"
        row.schedule = f"{(before + after) / 2 / row.milliseconds:.3f} of plain, {words}; {row.schedule}"
        rows.append(row)
    narrow = bias.bfloat16()
    torch_row = Row("PyTorch bias, gelu", label, KIND, KIND, 0.0, 0.0)
    rows.append(timed(torch_row, lambda: gelu_tanh(torch, torch.addmm(narrow, a, b))))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[(4096,) * 3, (8192,) * 3])
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--schedule", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch = find_torch("events and to check results")
    timer = Timer(torch, options.repeats)
    schedule = dict(pair.split("=", 1) for pair in options.schedule)
    rows = [row for size in options.sizes for row in measure(torch, timer, size, options.target, schedule)]
    report(torch, rows, options.json)


if __name__ == "__main__":
    main()
