"""What one call costs the host, on a GPU: torch.mm, a kernel called with torch's tensors, a prepared call, a graph.

    bench/with_gpu.sh python bench/call.py --size 256 --json out.json

bf16 -> bf16, by `wgmma` with tensor maps. A figure is the least of `--rounds` means over `--calls` calls that do not
wait for the GPU, in microseconds; the products are small, so that the GPU is done before the host enqueues the next.
`rotating` calls take turns among eight sets of tensors, so that addresses are other ones each time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

from gemm import find_torch

from warploom.runtime import compile

SETS = 8


def text(size: int) -> str:
    """A product of square matrices."""
    kind = f"memref<{size}x{size}xbf16>"
    return f"""func.func @matmul(%A: {kind}, %B: {kind}, %C: {kind}) {{
  %zero = arith.constant 0.0 : bf16
  linalg.fill ins(%zero : bf16) outs(%C : {kind})
  linalg.matmul ins(%A, %B : {kind}, {kind}) outs(%C : {kind})
  return
}}"""


def microseconds(torch: Any, call: Callable[[], object], calls: int, rounds: int) -> float:
    """What the host spends on a call."""
    call()
    torch.cuda.synchronize()
    least = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        least = min(least, time.perf_counter() - start)
        torch.cuda.synchronize()
    return 1e6 * least / calls


def launched(prepared: Any) -> Callable[[], object]:
    """The driver's launch of a prepared call, and nothing else."""
    ((enqueue, arguments, _),) = prepared.launches.calls
    return lambda: enqueue(*arguments)


def calls_of(torch: Any, size: int) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    kernel = compile(text(size), target="sm_90a")
    draw = torch.Generator("cuda").manual_seed(7)
    sets = [
        [torch.randn(size, size, generator=draw, device="cuda").to(torch.bfloat16) for _ in range(3)]
        for _ in range(SETS)
    ]
    a, b, c = sets[0]
    turn = cycle(sets)
    prepared, graph = kernel.prepare(a, b, c), kernel.graph(a, b, c)
    return {
        "torch.mm": lambda: torch.mm(a, b),
        "torch.mm, out": lambda: torch.mm(a, b, out=c),
        "kernel": lambda: kernel(a, b, c),
        "kernel, rotating": lambda: kernel(*next(turn)),
        "kernel, output made": lambda: kernel(a, b),
        "prepared": prepared,
        "its launch alone": launched(prepared),
        "graph": graph,
    }


def main() -> None:
    """Prints a table; writes it as JSON where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch = find_torch("the calls that kernels are compared with")
    table = {
        name: microseconds(torch, call, args.calls, args.rounds) for name, call in calls_of(torch, args.size).items()
    }
    for name, figure in table.items():
        print(f"{name:24s} {figure:8.2f} us")
    if args.json:
        args.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "microseconds": table}, indent=1))


if __name__ == "__main__":
    main()
