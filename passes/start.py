"""Where commands start: what takes time to import is imported where an interrupt is caught."""

from __future__ import annotations

import sys
from importlib import import_module

INTERRUPTED = 130
"""Exit code of a command that was interrupted, as shells have it."""


def start(module: str) -> int:
    """Imports a module by its full name, runs its `main`, and returns the exit code."""
    try:
        return import_module(module).main() or 0
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return INTERRUPTED


def main() -> int:
    """`warploom-opt`."""
    return start(f"{__package__}.opt")
