"""Products whose sizes only a call knows, on a GPU: one kernel for all of them, kernels of each size, and cuBLAS.

    bench/with_gpu.sh python bench/dynamic.py --sizes 4096 1000 16x8192x8192 --json out.json

bf16 -> bf16. `?` is compiled once, with every size, stride and offset dynamic; `M ?` with only M dynamic; `static` for
each size. `? shifted` is the first of these, called with an A that begins one element behind a multiple of 16 bytes, so
that it takes its other version. Kernels take turns with cuBLAS, with the L2 cache flushed before each launch; a figure
is the median of `--repeats`, in microseconds. `call` is what an ordinary call of `?` costs the host.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemm import ERROR_LIMIT, Timer, find_torch, parse_size, relative_error
from gemm_types import KINDS, output

from warploom.runtime import Kernel, compile

TYPE = "bf16"
CALLS = 200


ANYWHERE = ", strided<[?, 1], offset: ?>"
"""The layout of rows at any distance that begin at any element."""


def compiled(m: object, n: object, k: object, layout: str = "") -> Kernel:
    """The kernel of a product whose sizes are numbers or `?`."""
    a, b, c = (f"memref<{rows}x{columns}x{TYPE}{layout}>" for rows, columns in ((m, k), (k, n), (m, n)))
    return compile(
        f"""func.func @matmul(%A: {a}, %B: {b}, %C: {c}) {{
  %zero = arith.constant 0.0 : {TYPE}
  linalg.fill ins(%zero : {TYPE}) outs(%C : {c})
  linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c})
  return
}}""",
        target="sm_90a",
    )


def microseconds_of_a_call(torch: Any, call: Callable[[], object]) -> float:
    """What the host spends on a call that does not wait for the GPU."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    spent = time.perf_counter() - start
    torch.cuda.synchronize()
    return 1e6 * spent / CALLS


def measure(torch: Any, timer: Timer, size: tuple[int, int, int], dynamic: Kernel) -> dict[str, float]:
    """Each kernel's time on the same operands, checked."""
    m, n, k = size
    a, b, c = KINDS[TYPE].draw(torch, (m, k)), KINDS[TYPE].draw(torch, (k, n)), output(torch, (m, n), TYPE)
    shifted = torch.empty(m * k + 1, device="cuda", dtype=a.dtype)[1:].view(m, k).copy_(a)
    kernels = {"?": dynamic, "M ?": compiled("?", n, k), "static": compiled(m, n, k), "? shifted": dynamic}
    calls: dict[str, Callable[[], object]] = {}
    for name, kernel in kernels.items():
        c.copy_(output(torch, (m, n), TYPE))
        call = kernel.prepare(shifted if "shifted" in name else a, b, c)
        call()
        call.wait()
        if not (error := relative_error(torch, a, b, c)) <= ERROR_LIMIT[TYPE]:
            raise SystemExit(f"{size}, {name}: relative error {error:.2e}")
        calls[name] = call
    calls["cuBLAS"] = lambda: torch.matmul(a, b)
    calls["cuBLAS shifted"] = lambda: torch.matmul(shifted, b)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(timer.repeats + 3):
        for name, call in calls.items():
            milliseconds = timer.once(call)
            if turn >= 3:
                times[name].append(1000 * milliseconds)
    rows = {name: statistics.median(milliseconds) for name, milliseconds in times.items()}
    rows["call"] = microseconds_of_a_call(torch, lambda: dynamic(a, b, c))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", nargs="+", type=parse_size, default=[parse_size(s) for s in ("4096", "1000", "1001")]
    )
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch = find_torch("operands and the peer")
    timer, dynamic, static = (
        Timer(torch, options.repeats),
        compiled("?", "?", "?", ANYWHERE),
        dict[str, dict[str, float]](),
    )
    for size in options.sizes:
        rows = static["x".join(map(str, size))] = measure(torch, timer, size, dynamic)
        if len(static) == 1:
            print("| | " + " | ".join(rows) + " |\n| --- |" + " ---: |" * len(rows))
        print(
            f"| {'x'.join(map(str, size))} | " + " | ".join(f"{value:.1f}" for value in rows.values()) + " |",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(static, indent=1))


if __name__ == "__main__":
    main()
