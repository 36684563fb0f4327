"""What the interpreter's observers cost a run that has none: this tree beside a copy without a word to them.

    python bench/unwatched.py [--rounds 7] [--before COMMIT]

The copy is made by removing, from all files of `runtime/interp`, each statement that is executed only for an observer.
Three kernels run in both by turns, each time in a process of its own; the processor time of the fastest run counts, and
the calls of functions in one run. The same for a compilation, of which neither loads what proves, judges, or watches. A
tree of git's history can take turns with both.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = """
import cProfile, json, sys, time
from warploom.runtime import compile
try:
    from warploom.runtime.reference.inputs import arrays
except ImportError:  # Before it was moved there.
    from warploom.runtime.cli.inputs import arrays
source, target = sys.argv[1:]
start = time.process_time()
kernel = compile(source, target)
compiled = time.process_time() - start
given = [arrays(kernel.function, [], 0) for _ in range(9)]
times = []
for each in given[:-1]:
    start = time.process_time()
    kernel(*each, device="interp")
    times.append(time.process_time() - start)
profile = cProfile.Profile()
profile.enable()
kernel(*given[-1], device="interp")
profile.disable()
calls = sum(entry.callcount for entry in profile.getstats())
loaded = [name for name in sys.modules if name.startswith(("warploom.runtime.proof.", "warploom.runtime.oracle."))]
print(json.dumps([compiled, min(times), calls, loaded]))
"""
KERNELS = (("matmul_bf16", "sm_80"), ("attention", "sm_90a"), ("matmul_bias_gelu", "sm_90a"))


class WithoutObservers(ast.NodeTransformer):
    """Removes `if observer is not None:` and what it guards."""

    removed = 0

    def visit_If(self, node: ast.If) -> ast.AST:
        if "observer is not None" in ast.unparse(node.test) or "landed is not None" in ast.unparse(node.test):
            self.removed += 1
            return ast.Pass()
        return self.generic_visit(node)


def stripped(folder: Path) -> int:
    """A copy of the tree without observers; how many statements it lacks."""
    for name in ("src", "dialect", "passes", "runtime"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    removed = 0
    for path in sorted((folder / "runtime" / "interp").rglob("*.py")):
        if path.parent.name in ("machine", "meaning"):
            without = WithoutObservers()
            path.write_text(ast.unparse(without.visit(ast.parse(path.read_text(encoding="utf-8")))), encoding="utf-8")
            removed += without.removed
    return removed


def exported(commit: str, folder: Path) -> Path:
    """The tree of a commit."""
    folder.mkdir()
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], check=True, input=archive)
    return folder


def measured(tree: Path, kernel: tuple[str, str]) -> tuple[float, float, int, list[str]]:
    """Seconds of a compilation and of a run, the calls of the run, and what is loaded."""
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),
        "WARPLOOM_CACHE": "off",
        "OMP_NUM_THREADS": "1",
        "WARPLOOM_CORES": "1",
    }
    words = [sys.executable, "-c", WORK, str(ROOT / "examples" / f"{kernel[0]}.mlir"), kernel[1]]
    return json.loads(subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--before", metavar="COMMIT")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        trees = {"now": ROOT, "without": Path(name) / "without"}
        print(f"{stripped(trees['without'])} statements removed")
        if asked.before:
            trees["before"] = exported(asked.before, Path(name) / "before")
        heads = [f"{what}, {tree}" for what in ("compiled", "run", "calls") for tree in trees]
        print(f"| kernel | {' | '.join(heads)} |")
        print("| --- |" + " --- |" * 3 * len(trees))
        for kernel in KERNELS:
            turns = [[measured(tree, kernel) for tree in trees.values()] for _ in range(asked.rounds)]
            sides = list(zip(*turns, strict=True))
            cells = [f"{min(turn[i] for turn in side):.3f} s" for i in (0, 1) for side in sides]
            print(f"| {', '.join(kernel)} | {' | '.join([*cells, *(str(side[0][2]) for side in sides)])} |", flush=True)
            if sides[0][0][3]:
                print(f"loaded: {', '.join(sides[0][0][3])}")


if __name__ == "__main__":
    main()
