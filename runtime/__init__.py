"""The runtime: the Python API, the CUDA driver, ptxas, the interpreter and the `warploom` command.

    from warploom.runtime import compile, load_ptx, check_ptx

Importing this package loads nothing heavy; each name brings in its module on first use.
Without torch, the names that need it are not in `__all__`, and asking for one is an ImportError.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..dialect.index import PUBLIC

if TYPE_CHECKING:
    from ..dialect.isa.tensor_map import PixelBox, TensorMapFields
    from ..dialect.isa.wgmma import MatrixDescriptor
    from ..dialect.ptx.check.module import Diagnostic
    from .arguments.packed import check_metadata, compress, expand, pack_weights, prune, unpack_weights
    from .arguments.structs import Struct, TensorMap
    from .base.errors import (
        ArgumentError,
        AssemblerError,
        CompileError,
        CudaError,
        DeviceUnavailableError,
        HostError,
        WarploomError,
    )
    from .base.launch import Problem
    from .interp.watch.report import LaunchReport
    from .interp.watch.timeline import LaunchTrace, TraceEvent
    from .kernel.compile import check_ptx, compile, fastest, load_kernels, load_ptx
    from .kernel.kernel import Kernel
    from .kernel.module import PtxModule
    from .lookup.explain import explain
    from .oracle.answers import JudgeFinding
    from .oracle.candidate import Launching
    from .oracle.judge import Verdict, judge
    from .proof.prove import KernelLaunch, Order, order, prove
    from .proof.question import Proof
    from .torch.backend import torch_save
    from .torch.backend import warploom as torch_backend
    from .torch.importer import torch_to_linalg
    from .torch.operators import register_torch_sharding, torch_operators
    from .torch.part import torch_load

__all__ = [
    "ArgumentError", "AssemblerError", "CompileError", "CudaError", "DeviceUnavailableError", "Diagnostic", "HostError",
    "JudgeFinding", "Kernel", "KernelLaunch", "LaunchReport", "LaunchTrace", "Launching", "MatrixDescriptor", "Order",
    "PixelBox", "Problem", "Proof", "PtxModule", "Struct", "TensorMap", "TensorMapFields", "TraceEvent", "Verdict",
    "WarploomError", "check_metadata", "check_ptx", "compile", "compress", "expand", "explain", "fastest", "judge",
    "load_kernels", "load_ptx", "order", "pack_weights", "prove", "prune", "unpack_weights",
]  # fmt: skip

if find_spec("torch"):
    __all__ += [
        "register_torch_sharding", "torch_backend", "torch_load", "torch_operators", "torch_save", "torch_to_linalg",
    ]  # fmt: skip


def __dir__() -> list[str]:
    """The public names, without modules that happen to be loaded."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> object:
    if name not in PUBLIC:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"..{PUBLIC[name]}", __name__), name)
