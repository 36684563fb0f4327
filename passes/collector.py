"""Python's cyclic garbage collector, which has nothing to collect while a module is lowered."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def paused() -> Generator[None]:
    """Keeps the collector from running, if it would.

    Operations, values and uses refer to each other in cycles and live until the module goes. The collector walks all of
    them again and again as more come: half of the time of a large kernel.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
