"""The grid of a launch: its sizes, how large they may be, where it runs, and who is told how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Dim3: TypeAlias = tuple[int, int, int]

GRID_LIMIT: Dim3 = (2**31 - 1, 65535, 65535)
BLOCK_LIMIT: Dim3 = (1024, 1024, 64)
THREADS_LIMIT = 1024

DEVICES = ("auto", "interp", "cuda")
"""Where a user can have a launch run; "auto" takes a GPU if there is one that runs the target."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called now and then during an interpreted launch with the units of work done and the units there are."""
