"""How long MLIR text takes to become PTX text: in a fresh process, and in one that has done it before.

    python bench/compile_time.py --repeats 5 --json out.json

A fresh process is timed from outside, its parts from inside; what the parts leave is the start of Python.
Times are medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples" / "matmul.mlir"

MLIR = """
func.func @matmul(%A: memref<{n}x{n}xf16>, %B: memref<{n}x{n}xf16>, %C: memref<{n}x{n}xf32>) {{
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<{n}x{n}xf32>)
  linalg.matmul ins(%A, %B : memref<{n}x{n}xf16>, memref<{n}x{n}xf16>) outs(%C : memref<{n}x{n}xf32>)
  return
}}
"""

Parts = dict[str, float]


def compile_once(text: str, target: str) -> Parts:
    """Seconds of each phase of one compilation; the imports are a phase of the first."""
    start = time.perf_counter()
    from warploom.dialect.ptx.ops import ModuleOp
    from warploom.passes.context import make_context, parse_mlir
    from warploom.passes.pipeline import lower, standard_pipeline
    from warploom.passes.ptx_printer import print_ptx

    parts: Parts = {"import": time.perf_counter() - start}
    start = time.perf_counter()
    context = make_context()
    module = parse_mlir(context, text)
    parts["parse"] = time.perf_counter() - start
    lower(module, context, standard_pipeline(target), parts.__setitem__)
    start = time.perf_counter()
    for op in module.walk():
        if isinstance(op, ModuleOp):
            print_ptx(op)
    parts["print"] = time.perf_counter() - start
    return parts


def fresh(text: str, target: str) -> Parts:
    """One compilation in a process of its own; "total" is seen from outside."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--child", "--target", target],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    total = time.perf_counter() - start
    return {**json.loads(done.stdout), "total": total}


def medians(runs: list[Parts]) -> Parts:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def measure(text: str, target: str, repeats: int) -> dict[str, Parts]:
    """Median parts of fresh and warm compilations."""
    cold = [fresh(text, target) for _ in range(repeats)]
    compile_once(text, target)
    warm = [compile_once(text, target) for _ in range(repeats)]
    for run in warm:
        run["total"] = sum(run.values())
    return {"fresh": medians(cold), "warm": medians(warm)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(compile_once(sys.stdin.read(), options.target)))
        return
    inputs = {"examples/matmul.mlir": EXAMPLE.read_text(), "4096": MLIR.format(n=4096), "4095": MLIR.format(n=4095)}
    results = {name: measure(text, options.target, options.repeats) for name, text in inputs.items()}
    for name, kinds in results.items():
        for kind, parts in kinds.items():
            shown = ", ".join(f"{part} {1000 * seconds:.0f}" for part, seconds in parts.items() if part != "total")
            print(f"{name:22} {kind:5} {1000 * parts['total']:5.0f} ms  ({shown})")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
