"""What compiling and interpreting cost in two states of the project, which take turns on one machine.

    git worktree add ../before COMMIT
    python bench/side_by_side.py ../before --repeats 5

Times are of the processor, user and system, which others on the machine change least: medians, in milliseconds. A fresh
process compiles once; a warm one has done it before. Each state has its bytecode in a folder of its own, which a first
run fills. Memory is the largest that a process held, in MB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path

HERE = Path(__file__).parent.parent
FOLDERS = ("dialect", "passes", "runtime")
PRODUCTS = (("256x320x192", "sm_80"), ("4096x4096x4096", "sm_80"), ("4095x4095x4095", "sm_80"),
            ("256x320x192", "sm_90a"), ("4096x4096x4096", "sm_90a"), ("4095x4095x4095", "sm_90a"))  # fmt: skip
INTERPRETED = ("128x128x128", "256x256x256", "512x512x512")
TILED = {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3}

SETTINGS = {"WARPLOOM_CACHE": "off", "WARPLOOM_CORES": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Nothing is kept from one process to the next, and each computes by itself."""

CHILD = """
import json, resource, statistics, sys, time
from warploom.runtime import compile
size, target, turns, schedule = json.loads(sys.argv[1])
m, n, k = map(int, size.split("x"))
a, b, c = f"memref<{m}x{k}xf16>", f"memref<{k}x{n}xf16>", f"memref<{m}x{n}xf32>"
text = f'''func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : {c})
  linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c})
  return
}}'''
def once():
    return compile(text, target=target, **(schedule or {}))
kernel = once()
if schedule is not None:
    import numpy as np
    x, y = np.ones((m, k), np.float16), np.ones((k, n), np.float16)
    z = np.zeros((m, n), np.float32)
    def once():
        kernel(x, y, z, device="interp")
    once()
times = []
for _ in range(turns):
    start = time.process_time()
    once()
    times.append(1000 * (time.process_time() - start))
print(json.dumps([statistics.median(times) if times else 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def package(checkout: Path, folder: Path) -> str:
    """A folder from which Python imports the package of a checkout."""
    (folder / "warploom").mkdir(parents=True)
    # An installed package would come before a folder without this file, whatever the order of the path.
    (folder / "warploom" / "__init__.py").touch()
    for name in FOLDERS:
        (folder / "warploom" / name).symlink_to((checkout / name).resolve())
    return str(folder)


def run(path: str, size: str, target: str, turns: int, schedule: object = None) -> tuple[float, float, float]:
    """Milliseconds of a process and of a turn in it, and its memory."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps([size, target, turns, schedule])],
        env={**kept, **SETTINGS, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": f"{path}/bytecode"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"error: {done.stderr.strip().splitlines()[-1]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    warm, memory = json.loads(done.stdout)
    return cpu_seconds, warm, memory


def show(what: str, runs: Sequence[Sequence[float]]) -> None:
    """A line: each state's median."""
    print(f"| {what} | " + " | ".join(f"{statistics.median(run):.0f}" for run in runs) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the other state")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        paths = [package(tree, Path(scratch) / str(i)) for i, tree in enumerate((options.before, HERE))]
        for path, (size, target) in product(paths, PRODUCTS):
            run(path, size, target, 0)
        for size, target in PRODUCTS:
            fresh = [[run(path, size, target, 0) for path in paths] for _ in range(options.repeats)]
            warm = [[run(path, size, target, 5) for path in paths] for _ in range(options.repeats)]
            show(f"{size} for {target}, fresh", [[one[0] for one in state] for state in zip(*fresh, strict=True)])
            show(f"{size} for {target}, warm", [[one[1] for one in state] for state in zip(*warm, strict=True)])
            show(f"{size} for {target}, MB", [[one[2] for one in state] for state in zip(*fresh, strict=True)])
        for size in INTERPRETED:
            turns = [[run(path, size, "sm_80", 5, TILED) for path in paths] for _ in range(options.repeats)]
            show(f"interpreted, {size}", [[one[1] for one in state] for state in zip(*turns, strict=True)])
            show(f"interpreted, {size}, MB", [[one[2] for one in state] for state in zip(*turns, strict=True)])


if __name__ == "__main__":
    main()
