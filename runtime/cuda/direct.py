"""The driver's functions of a launch, called without the objects that cuda-bindings makes for each argument and result.

Source: CUDA Driver API, sections Execution Control (`CUlaunchConfig`), Tensor Map Object Management and Context
Management.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

LIBRARY = "libcuda.so.1"
"""The driver, which cuda-bindings has loaded."""


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig`; `sizes` are those of the grid and of the block."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 6),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


class Direct:
    """Functions of the driver on addresses and handles as numbers; each returns the driver's code, 0 for success."""

    def __init__(self, library: Any) -> None:
        self.launch = library.cuLaunchKernelEx  # (config, kernel, parameters, extra)
        self.launch.argtypes = (ctypes.c_void_p,) * 4
        self.move = library.cuTensorMapReplaceAddress  # (map, address)
        self.move.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._current = library.cuCtxGetCurrent
        self._current.argtypes = (ctypes.c_void_p,)

    def context(self) -> int:
        """The handle of the context of the calling thread; 0 for none."""
        handle = ctypes.c_void_p()
        self._current(ctypes.addressof(handle))
        return handle.value or 0


@cache
def direct(driver: Any) -> Direct | None:
    """The functions of the driver that a module has loaded; None for a module other than cuda-bindings'."""
    if not getattr(driver, "__name__", "").startswith("cuda.bindings") or not sys.platform.startswith("linux"):
        return None
    try:
        return Direct(ctypes.CDLL(LIBRARY))
    except (OSError, AttributeError):
        return None
