"""A plugin of pytest: kernels that tests run on the interpreter run on the GPU.

    PYTHONPATH=test/gpu:$PYTHONPATH python3 -m pytest -p on_gpu test/unit/test_row_kernels.py

The tests compare results as they always do. What only the interpreter does stays there: reports, traces, other
arithmetic, kernels for targets that this GPU does not run, and, under a tool of compute-sanitizer that `SANITIZER`
names, kernels that this tool does not follow. Checks of the interpreter are left out. The last line says how many
launches ran on the GPU.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from warploom.runtime import Kernel
from warploom.runtime.cuda.driver import gpu

LAUNCHED = "launched on the GPU: "

CACHE = os.environ.get("WARPLOOM_CACHE", "off")
"""Where kernels are kept, which `conftest.py` turns off."""

_interpreted = Kernel.__call__
_launches = 0


def followed(tool: str, kernel: Kernel) -> bool:
    """Whether a tool follows all that a kernel does; `sanitizer.py` says what they do not."""
    if tool == "racecheck":
        return "mma.sync" not in kernel.ptx or "mbarrier" not in kernel.ptx
    return tool != "initcheck" or len(kernel.launches) == 1 or not stores_in_bulk(kernel.ptx)


def stores_in_bulk(ptx: str) -> bool:
    """Whether copies of PTX write memory that a later launch may read."""
    return any("cp.async.bulk" in line and ".global.shared" in line for line in ptx.splitlines())


def call(kernel: Kernel, *args: object, device: str = "auto", checks: Any = (), **options: Any) -> Any:
    """A call of a kernel, on the GPU if that is possible."""
    global _launches
    only = {"arch", "report", "trace", "progress", "max_steps"} & options.keys()
    moved = device == "interp" and not only and gpu().device.runs(kernel.target)
    if not moved or not followed(os.environ.get("SANITIZER", ""), kernel):
        return _interpreted(kernel, *args, device=device, checks=checks, **options)
    _launches += len(kernel.launches)
    return _interpreted(kernel, *args, device="cuda", **options)


def pytest_configure() -> None:
    Kernel.__call__ = call
    os.environ["WARPLOOM_CACHE"] = CACHE


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"{LAUNCHED}{_launches}")
