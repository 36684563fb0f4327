"""Constants of a module, as a call hands them to its kernels."""

from __future__ import annotations

from typing import cast

import numpy as np
from xdsl.dialects import memref
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr

from ...passes.diagnostics import place_of
from ...passes.linalg.constants import contents
from ..arguments.arrays import borrow
from ..arguments.dtypes import DTYPES
from ..base.errors import HostError
from ..base.launch import memory_bytes
from ..numerics.floats import Array


def elements_of(op: memref.GetGlobalOp) -> Array:
    """The elements of the constant memory that an operation gets.

    Raises:
        HostError: if it is not constant, or its elements are of a type that kernels do not have.
    """
    value, kind = contents(op), str(op.memref.type.element_type)
    if not isinstance(value, DenseIntOrFPElementsAttr):
        raise HostError(f"{place_of(op)}{op.name}: {value}")
    if kind not in DTYPES:
        raise HostError(f"{place_of(op)}{op.name}: expected elements of {', '.join(DTYPES)}, got {kind}")
    dtype, data = DTYPES[kind], value.data.data
    if len(data) == len(value) * dtype.itemsize and dtype.kind != "b":
        return np.frombuffer(data, dtype).reshape(op.memref.type.get_shape())
    return np.array(value.get_values()).astype(dtype).reshape(op.memref.type.get_shape())


def bytes_of(op: memref.GetGlobalOp) -> bytes:
    """The bytes of the constant memory that an operation gets, as kernels read them.

    Raises:
        HostError: as `elements_of`, and for rows that end within a byte.
    """
    elements = elements_of(op)
    borrowed = borrow(elements)
    data = cast(Array, borrowed.owner).tobytes() if borrowed.packed > 1 else elements.tobytes()
    if len(data) != memory_bytes(str(op.memref.type.element_type), elements.size):
        raise HostError(f"{place_of(op)}{op.name}: expected rows of whole bytes, got {op.memref.type}")
    return data
