"""The runtime: the Python API, the CUDA driver, ptxas, the interpreter and the `warploom` command.

    from warploom.runtime import compile, load_ptx, check_ptx

Importing this package loads nothing heavy; each name brings in its module on first use.
Without torch, the names that need it are not in `__all__`, and asking for one is an ImportError.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..dialect.isa.descriptor import MatrixDescriptor
    from ..dialect.isa.pixel_box import PixelBox
    from ..dialect.isa.tensor_map import TensorMapFields
    from .arguments.structs import Struct
    from .arguments.tensor_map import TensorMap
    from .check.ptx import Diagnostic, check_ptx
    from .compiler import compile, load_kernels
    from .errors import (
        ArgumentError,
        AssemblerError,
        CompileError,
        CudaError,
        DeviceUnavailableError,
        HostError,
        WarploomError,
    )
    from .kernel import Kernel
    from .launch_report import LaunchReport
    from .launch_trace import LaunchTrace, TraceEvent
    from .lookup.explain import explain
    from .module import PtxModule, load_ptx
    from .problem import Problem
    from .sparse import check_metadata, compress, expand, prune
    from .torch_frontend.backend import warploom as torch_backend
    from .torch_frontend.export import torch_to_linalg
    from .torch_frontend.operators import torch_operators
    from .torch_frontend.sharding import register_torch_sharding

_HOMES = {
    "ArgumentError": ".errors",
    "AssemblerError": ".errors",
    "CompileError": ".errors",
    "CudaError": ".errors",
    "DeviceUnavailableError": ".errors",
    "Diagnostic": ".check.ptx",
    "HostError": ".errors",
    "Kernel": ".kernel",
    "MatrixDescriptor": "..dialect.isa.descriptor",
    "LaunchReport": ".launch_report",
    "LaunchTrace": ".launch_trace",
    "PixelBox": "..dialect.isa.pixel_box",
    "Problem": ".problem",
    "PtxModule": ".module",
    "TensorMap": ".arguments.tensor_map",
    "TensorMapFields": "..dialect.isa.tensor_map",
    "Struct": ".arguments.structs",
    "TraceEvent": ".launch_trace",
    "WarploomError": ".errors",
    "check_metadata": ".sparse",
    "check_ptx": ".check.ptx",
    "compress": ".sparse",
    "compile": ".compiler",
    "expand": ".sparse",
    "explain": ".lookup.explain",
    "load_kernels": ".compiler",
    "load_ptx": ".module",
    "prune": ".sparse",
    "register_torch_sharding": ".torch_frontend.sharding",
    "torch_backend": ".torch_frontend.backend",
    "torch_operators": ".torch_frontend.operators",
    "torch_to_linalg": ".torch_frontend.export",
}

__all__ = [
    "ArgumentError",
    "AssemblerError",
    "CompileError",
    "CudaError",
    "DeviceUnavailableError",
    "Diagnostic",
    "HostError",
    "Kernel",
    "LaunchReport",
    "LaunchTrace",
    "MatrixDescriptor",
    "PixelBox",
    "Problem",
    "PtxModule",
    "Struct",
    "TensorMap",
    "TensorMapFields",
    "TraceEvent",
    "WarploomError",
    "check_metadata",
    "check_ptx",
    "compile",
    "compress",
    "expand",
    "explain",
    "load_kernels",
    "load_ptx",
    "prune",
]

if find_spec("torch"):
    __all__ += ["register_torch_sharding", "torch_backend", "torch_operators", "torch_to_linalg"]


def __dir__() -> list[str]:
    """What a user may want: no modules that happen to be loaded."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name], __name__), name)
