"""How many processes a launch may take, and whether its kernel can run in several."""

from __future__ import annotations

import os
import sys

from ...dialect.ptx.text.syntax import Register
from .machine.flow import CLOCKS
from .machine.kernel import DecodedKernel
from .machine.memory import InterpreterError

CORES = "WARPLOOM_CORES"
"""The environment variable with the number of processes; 1 for none beside this one."""


def cores() -> int:
    """How many processes a launch may take: one where they cannot be forked.

    Raises:
        InterpreterError: if the environment variable is no number of processes.
    """
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return 1
    if text := os.environ.get(CORES, ""):
        if not (text.isdecimal() and int(text)):
            raise InterpreterError(f"{CORES}: expected a number of processes from 1 on, got '{text}'")
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def independent(kernel: DecodedKernel) -> bool:
    """Whether nothing in a kernel lets a CTA see what another does, or counts time."""
    read = (operand for d in kernel.code for operand in d.source.operands if isinstance(operand, Register))
    return not any(d.traits.between_ctas for d in kernel.code) and not any(r.name in CLOCKS for r in read)
