"""`nvvm` as MLIR prints it, which xDSL lacks: one instruction of PTX each, on values of `llvm`."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from xdsl.ir import Dialect
from xdsl.irdl import IRDLOperation

from . import nvvm_copies, nvvm_matrices, nvvm_ops
from .nvvm_types import ATTRIBUTES


def _operations(module: ModuleType) -> Iterator[type[IRDLOperation]]:
    """The operations that a module defines."""
    for value in vars(module).values():
        named = isinstance(value, type) and issubclass(value, nvvm_ops.NvvmOp) and "name" in vars(value)
        if named and value is not nvvm_ops.NvvmOp:
            yield value


OPERATIONS: list[type[IRDLOperation]] = [
    *nvvm_ops.SPECIAL_OPERATIONS.values(),
    *nvvm_ops.PLAIN,
    *(op for module in (nvvm_ops, nvvm_copies, nvvm_matrices) for op in _operations(module)),
]

NVVM = Dialect("nvvm", [*OPERATIONS], [*ATTRIBUTES])
