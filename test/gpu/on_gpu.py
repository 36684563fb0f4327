"""A plugin of pytest: kernels that tests run on the interpreter run on the GPU.

    PYTHONPATH=test/gpu:$PYTHONPATH python3 -m pytest -p on_gpu test/unit/test_row_kernels.py
    COMPARE=words PYTHONPATH=test/gpu:$PYTHONPATH python3 -m pytest -p on_gpu test/unit/test_row_kernels.py

The tests compare results as they always do. With `COMPARE=words`, kernels run on the interpreter too, with the matrix
arithmetic of the GPU, and both must leave the same words. What only the interpreter does stays there: reports, traces,
other arithmetic, the tests that `INTERPRETED` names, kernels for targets that this GPU does not run, and, under a tool
of compute-sanitizer that `SANITIZER` names, kernels that this tool does not follow. Kernels that run on the GPU are not
checked by the interpreter. The last line says how many launches ran on the GPU.
"""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
import pytest

from warploom.runtime import Kernel
from warploom.runtime.cuda.driver import gpu

Array = np.ndarray[Any, np.dtype[Any]]

LAUNCHED = "launched on the GPU: "

CACHE = os.environ.get("WARPLOOM_CACHE", "off")
"""Where kernels are kept, which `conftest.py` turns off."""

INTERPRETED = ("test_a_cta_that_leaves_before_the_others_are_done_is_found", "test_the_check_tells_short_sums_")
"""Tests of a planted bug, and of sums that other GPUs have."""

MMA = re.compile(r"\bmma\.")
"""An instruction of fragments in registers, dense or sparse."""
BARRIER = re.compile(r"\b(bar|barrier)\.")

_interpreted = Kernel.__call__
_launches = 0


def followed(tool: str, kernel: Kernel) -> bool:
    """Whether a tool follows all that a kernel does; `sanitizer.py` says what they do not."""
    if tool == "racecheck":
        of_fragments = "mbarrier" in kernel.ptx and MMA.search(kernel.ptx)
        return not of_fragments and not arrives_at_once(kernel.ptx)
    return tool != "initcheck" or len(kernel.launches) == 1 or not stores_in_bulk(kernel.ptx)


def arrives_at_once(ptx: str) -> bool:
    """Whether threads arrive at mbarriers that are initialised, with no barrier between the two."""
    behind = (part.partition("mbarrier.arrive") for part in ptx.split("mbarrier.init")[1:])
    return any(arrive and not BARRIER.search(between) for between, arrive, _ in behind)


def stores_in_bulk(ptx: str) -> bool:
    """Whether copies of PTX write memory that a later launch may read."""
    return any("cp.async.bulk" in line and ".global.shared" in line for line in ptx.splitlines())


def memory_of(value: object) -> Array | None:
    """All of the memory that an array is a part of, if it can be written; None of what is no array."""
    while isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray):
        value = value.base
    return value if isinstance(value, np.ndarray) and value.flags.writeable else None


def words_of(memory: list[Array], result: Any) -> list[bytes]:
    """The bytes of memory and of results that a call returned."""
    returned = result if isinstance(result, tuple) else (result,)
    return [array.tobytes() for array in (*memory, *returned) if isinstance(array, np.ndarray)]


def call(kernel: Kernel, *args: object, device: str = "auto", checks: Any = (), **options: Any) -> Any:
    """A call of a kernel, on the GPU if that is possible."""
    global _launches
    only = {"arch", "report", "trace", "progress", "max_steps"} & options.keys()
    only |= {test for test in INTERPRETED if test in os.environ["PYTEST_CURRENT_TEST"]}
    moved = device == "interp" and not only and gpu().device.runs(kernel.target)
    if not moved or not followed(os.environ.get("SANITIZER", ""), kernel):
        return _interpreted(kernel, *args, device=device, checks=checks, **options)
    _launches += len(kernel.launches)
    if os.environ.get("COMPARE") != "words":
        return _interpreted(kernel, *args, device="cuda", **options)
    memory = [array for array in map(memory_of, (*args, *options.values())) if array is not None]
    before = [array.copy() for array in memory]
    expected = words_of(memory, _interpreted(kernel, *args, device="interp", arch=gpu().device.target, **options))
    for array, saved in zip(memory, before, strict=True):
        array[...] = saved
    result = _interpreted(kernel, *args, device="cuda", **options)
    assert words_of(memory, result) == expected, "the GPU and the interpreter leave other words"
    return result


def pytest_configure() -> None:
    pytest.MonkeyPatch().setattr(Kernel, "__call__", call)
    os.environ["WARPLOOM_CACHE"] = CACHE


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands the count to the process that started this one (`-n`)."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["launches"] = _launches


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    global _launches
    _launches += node.workeroutput.get("launches", 0) if hasattr(node, "workeroutput") else 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"{LAUNCHED}{_launches}")
