"""How much of what could be tried is tried: `make test` takes samples, WARPLOOM_CONFORMANCE=full takes all of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

FULL = os.environ.get("WARPLOOM_CONFORMANCE") == "full"

Thing = TypeVar("Thing")


def every(things: Sequence[Thing], stride: int, first: int = 0) -> list[Thing]:
    """One of so many things, from some number on; all of them where all are asked for."""
    return list(things) if FULL else list(things[first % stride :: stride])
