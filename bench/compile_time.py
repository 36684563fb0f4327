"""How long MLIR text takes to become PTX text: in a fresh process, and in one that has done it before.

    python bench/compile_time.py --repeats 5 --json out.json
    python bench/compile_time.py --every                        # each product that gemm.py, epilogue.py, sparse.py time
    python bench/compile_time.py --triton                       # and what Triton takes for a product

A fresh process is timed from outside, its parts from inside; what the parts leave is the start of Python. It reads
modules as bytecode, which pip writes when it installs a package; here an earlier process that is not timed writes it,
into a folder of its own. Times are medians. With --triton, a bf16 product is compiled by Triton too, from nothing (an
empty cache) and down to machine code; beside it ours, with the time ptxas takes for the same step where ptxas is
installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

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


class Source(NamedTuple):
    """MLIR text, and what is asked of the standard pipeline."""

    text: str
    tf32: bool = False
    schedule: Mapping[str, str] = MappingProxyType({})


def every() -> dict[str, Source]:
    """The products whose speed `gemm.py`, `epilogue.py` and `sparse.py` measure, at 4096 and 4095."""
    import numpy as np
    from epilogue import EPILOGUES
    from epilogue import text as fused
    from gemm_types import KINDS
    from sparse import ON_HOST, OUTPUTS, Problem

    from warploom.runtime import compress, prune

    sources: dict[str, Source] = {}
    for name, kind in KINDS.items():
        for n, out, transposed in product((4096, 4095), kind.outputs, (False, True)):
            label = f"{name} -> {out}, {n}, B by {'columns' if transposed else 'rows'}"
            sources[label] = Source(kind.text((n, n, n), out, transposed), kind.tf32, kind.fields)
    for name, (body, _) in EPILOGUES.items():
        sources[f"bf16 and {name}, 4096"] = Source(fused((4096, 4096, 4096), body))
    for name, out in OUTPUTS.items():
        kind, dense = KINDS[name], np.random.default_rng().integers(1, 9, (4096, 4096))
        metadata = compress(prune(dense.astype(ON_HOST[kind.torch])))[1]
        problem = Problem((4096, 4096, 4096), kind, out, True, (None, None, metadata, None))
        sources[f"sparse {name} -> {out}, 4096"] = Source(problem.text, kind.tf32, kind.fields)
    return sources


def compile_once(source: Source, target: str) -> Parts:
    """Seconds of each phase of one compilation; the imports are a phase of the first."""
    start = time.perf_counter()
    from warploom.dialect.ptx.ops import ModuleOp, print_ptx
    from warploom.passes.pipeline import lower, standard_pipeline
    from warploom.passes.universe import make_context, parse_mlir

    parts: Parts = {"import": time.perf_counter() - start}
    start = time.perf_counter()
    context = make_context()
    module = parse_mlir(context, source.text)
    parts["parse"] = time.perf_counter() - start
    pipeline = standard_pipeline(target, source.schedule, tf32=source.tf32)
    lower(module, context, pipeline, parts.__setitem__)
    start = time.perf_counter()
    for op in module.walk():
        if isinstance(op, ModuleOp):
            print_ptx(op)
    parts["print"] = time.perf_counter() - start
    return parts


def fresh(source: Source, target: str) -> Parts:
    """One compilation in a process of its own; "total" is seen from outside."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--child", "--target", target],
        input=json.dumps([source.text, source.tf32, dict(source.schedule)]),
        capture_output=True,
        text=True,
        check=True,
    )
    total = time.perf_counter() - start
    return {**json.loads(done.stdout), "total": total}


@contextmanager
def bytecode() -> Iterator[None]:
    """Processes started meanwhile keep the bytecode of modules in a folder, whatever the environment says."""
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        yield
    os.environ.clear()
    os.environ.update(environment)


def medians(runs: list[Parts]) -> Parts:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def measure(source: Source, target: str, repeats: int) -> dict[str, Parts]:
    """Median parts of fresh and warm compilations."""
    fresh(source, target)
    cold = [fresh(source, target) for _ in range(repeats)]
    compile_once(source, target)
    warm = [compile_once(source, target) for _ in range(repeats)]
    for run in warm:
        run["total"] = sum(run.values())
    return {"fresh": medians(cold), "warm": medians(warm)}


def triton_from_nothing(target: str) -> Parts:
    """One compilation by Triton in a process of its own, with an empty cache."""
    script = Path(__file__).with_name("triton_compile.py")
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, script, "".join(filter(str.isdigit, target))],
            capture_output=True,
            text=True,
            env={**os.environ, "TRITON_CACHE_DIR": cache},
        )
        total = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"error: Triton does not compile here: {done.stderr.strip().splitlines()[-1]}")
    return {**json.loads(done.stdout), "total": total}


def assembling(text: str, target: str) -> float | None:
    """Seconds that ptxas takes for the kernel; None without ptxas."""
    from warploom.runtime import compile
    from warploom.runtime.cuda import ptxas

    if ptxas.find() is None:
        return None
    ptx = compile(text, target=target).ptx
    start = time.perf_counter()
    ptxas.assemble(ptx, target)
    return time.perf_counter() - start


def compare_with_triton(target: str, repeats: int) -> dict[str, Parts]:
    """Triton's time and ours for one bf16 product, both from a fresh process to machine code."""
    text = MLIR.format(n=4096).replace("f16", "bf16")
    fresh(Source(text), target)
    ours = medians([fresh(Source(text), target) for _ in range(repeats)])
    seconds = assembling(text, target)
    if seconds is not None:
        ours = {**ours, "ptxas": seconds, "total": ours["total"] + seconds}
    triton_from_nothing(target)
    return {"warploom": ours, "triton": medians([triton_from_nothing(target) for _ in range(repeats)])}


def show(name: str, kind: str, parts: Parts) -> None:
    shown = ", ".join(f"{part} {1000 * seconds:.0f}" for part, seconds in parts.items() if part != "total")
    print(f"{name:40} {kind:8} {1000 * parts['total']:5.0f} ms  ({shown})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--every", action="store_true", help="each product whose speed the other benchmarks measure")
    parser.add_argument("--triton", action="store_true", help="compare with Triton, which must be installed")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(compile_once(Source(*json.load(sys.stdin)), options.target)))
        return
    texts = {"examples/matmul.mlir": EXAMPLE.read_text(), "4096": MLIR.format(n=4096), "4095": MLIR.format(n=4095)}
    sources = every() if options.every else {name: Source(text) for name, text in texts.items()}
    with bytecode():
        results = {name: measure(source, options.target, options.repeats) for name, source in sources.items()}
        if options.triton:
            results["bf16, machine code"] = compare_with_triton(options.target, options.repeats)
    for name, kinds in results.items():
        for kind, parts in kinds.items():
            show(name, kind, parts)
    for kind in ("fresh", "warm") if options.every else ():
        longest = max(results, key=lambda name: results[name][kind]["total"])
        show(f"longest: {longest}", kind, results[longest][kind])
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
