"""Cases of captures on the interpreter."""

from __future__ import annotations

from typing import Any

import captured
import captured_tensors
import captured_warpgroups
import numpy as np
from captured_warpgroups import WarpgroupCase
from numpy.typing import NDArray

from warploom.dialect.isa.row import target
from warploom.runtime import load_ptx

TARGET = "sm_90a"
POISON = 0xDEADBEEF


def interpreted(text: str, args: list[Any], ctas: int = 1, checks: str = "") -> None:
    module = load_ptx(text)
    module.launch("k", (ctas, 1, 1), (captured_tensors.THREADS, 1, 1), args, device="interp", checks=checks or ())


def warpgroup_answers(case: WarpgroupCase, count: int) -> NDArray[Any]:
    """What the interpreter answers, as far as recordings keep it."""
    words, got = (
        captured_warpgroups.inputs(case, count),
        np.full((count, captured_warpgroups.output_words(case)), POISON, np.uint32),
    )
    program = load_ptx(captured.module([captured_warpgroups.kernel(case, "k")], target(TARGET)))
    threads = (captured_warpgroups.THREADS, 1, 1)
    program.launch("k", (count, 1, 1), threads, [np.ascontiguousarray(words), got], device="interp")
    return captured_warpgroups.kept(case, got)
