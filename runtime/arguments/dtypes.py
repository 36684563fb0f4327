"""One table of element types: as MLIR spells them, and as numpy has them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError
from .elements import ELEMENT_BITS

Floats = npt.NDArray[np.float64]
DType = np.dtype[Any]

DTYPES: Mapping[str, DType] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "f8E8M0FNU": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f6E2M3FN": np.dtype(ml_dtypes.float6_e2m3fn),
    "f6E3M2FN": np.dtype(ml_dtypes.float6_e3m2fn),
    "f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn),
    "i1": np.dtype(np.bool_),
    "i4": np.dtype(ml_dtypes.int4),
    "ui4": np.dtype(ml_dtypes.uint4),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "ui8": np.dtype(np.uint8),
    "ui16": np.dtype(np.uint16),
    "ui32": np.dtype(np.uint32),
    "ui64": np.dtype(np.uint64),
}
"""MLIR element type, as MLIR spells it, to the numpy type of the same words; signless integers read as signed."""

PACKED = {name: 8 // bits for name, bits in ELEMENT_BITS.items() if bits < 8}
"""Elements of a byte in the memory of a kernel, of types that numpy keeps one in a byte."""


def dtype_of(element: str) -> DType:
    """The numpy type whose words are those of the MLIR type `element`.

    Raises:
        ArgumentError: naming the known types.
    """
    if element not in DTYPES:
        raise ArgumentError(f"no numpy type for element type {element}; known: {', '.join(DTYPES)}")
    return DTYPES[element]


def rounded(values: Floats, dtype: DType) -> Floats:
    """Values as a type holds them; integers modulo their width."""
    if dtype.kind in "iu":
        span = 2.0 ** (8 * dtype.itemsize)
        return values - span * np.floor((values - np.iinfo(dtype).min) / span)
    with np.errstate(over="ignore"):
        return values.astype(dtype).astype(np.float64)


def integer_limits(dtype: DType) -> tuple[int, int] | None:
    """The least and the greatest value of an integer type, those of 4 bits and 1 included; None for other types."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind not in "iu" and dtype not in (DTYPES["i4"], DTYPES["ui4"]):
        return None
    limits = ml_dtypes.iinfo(dtype)
    return int(limits.min), int(limits.max)


@cache
def element_of(dtype: DType) -> str:
    """The MLIR name of a numpy type; numpy's own name where MLIR has none."""
    return next((name for name, known in DTYPES.items() if known == dtype), str(dtype))
