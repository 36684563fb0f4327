"""`nvvm` as MLIR prints it, which xDSL lacks: one instruction of PTX each, on values of `llvm`."""

from __future__ import annotations

from xdsl.ir import Dialect

from .nvvm_copies import COPIES
from .nvvm_matrices import MATRICES
from .nvvm_ops import EXCHANGES, PLAIN, SPECIAL_OPERATIONS, NvvmOp
from .nvvm_types import ATTRIBUTES

OPERATIONS: list[type[NvvmOp]] = [*SPECIAL_OPERATIONS.values(), *PLAIN, *EXCHANGES, *COPIES, *MATRICES]

NVVM = Dialect("nvvm", [*OPERATIONS], [*ATTRIBUTES])
