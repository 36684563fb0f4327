"""Check an installed Warploom from the outside: its commands, its entry point, its Python functions.

    python installed.py EXAMPLES

Takes nothing but the standard library and the package's own dependencies, and must be run outside a
checkout, so that what is imported is what was installed. Prints one line a check; exits 1 at the first
that fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

PASSES = (
    "warp-set-target{arch=sm_90a},warp-fold-fill,warp-schedule,warp-outline,warp-tile,warp-pipeline,convert-warp-to-ptx"
)

PYTHON_API = """
import sys
import numpy as np
from ml_dtypes import bfloat16
from warploom.runtime import compile

kernel = compile(open(sys.argv[1]).read(), target="sm_90a")
a, b, c = np.ones((100, 53), bfloat16), np.ones((53, 77), bfloat16), np.full((100, 77), 2, np.float32)
kernel(a, b, c, device="interp")
print("every element is", set(c.ravel().tolist()))
"""


def command(name: str) -> str:
    """The path of a command that was installed beside this interpreter."""
    return str(Path(sysconfig.get_path("scripts")) / name)


def check(what: str, arguments: list[str], expected: str) -> None:
    """Run a command and exit with its output unless it succeeds and prints `expected`."""
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode or expected not in done.stdout or "Traceback" in done.stderr:
        sys.exit(
            f"FAIL {what}: {' '.join(arguments)}\n{done.stdout}{done.stderr}"
            f"exit code {done.returncode}; expected to find: {expected}"
        )
    print(f"ok   {what}")


def main() -> None:
    os.environ["WARPLOOM_CACHE"] = "off"
    examples = Path(sys.argv[1]).resolve()
    matmul, odd, empty = str(examples / "matmul.mlir"), str(examples / "matmul_bf16.mlir"), "empty.mlir"
    Path(empty).write_text("builtin.module {}\n")
    check("warploom-opt to PTX", [command("warploom-opt"), matmul, "-p", PASSES, "-t", "ptx"], "wgmma.mma_async")
    check("warploom-opt --list-passes", [command("warploom-opt"), "--list-passes"], "warp-tile")
    check("xdsl-opt knows the passes", [command("xdsl-opt"), empty, "-p", "warp-set-target{arch=sm_80}"], "sm_80")
    check("warploom run", [command("warploom"), "run", odd, "--device", "interp", "--check"], "check")
    check("python -m warploom", [sys.executable, "-m", "warploom", "isa", "--family", "mma"], "m16n8k16")
    check("Python API", [sys.executable, "-c", PYTHON_API, odd], "every element is {55.0}")


if __name__ == "__main__":
    main()
