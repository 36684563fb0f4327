"""One table of element types: as MLIR spells them, and as numpy has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError
from .elements import ELEMENT_BITS

Floats = npt.NDArray[np.float64]
DType = np.dtype[Any]

NUMPY_NAMES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
    "f8E8M0FNU": "float8_e8m0fnu",
    "f6E2M3FN": "float6_e2m3fn",
    "f6E3M2FN": "float6_e3m2fn",
    "f4E2M1FN": "float4_e2m1fn",
    "i1": "bool",
    "i4": "int4",
    "ui4": "uint4",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "ui8": "uint8",
    "ui16": "uint16",
    "ui32": "uint32",
    "ui64": "uint64",
}
"""MLIR element type, as MLIR spells it, to the name of the type of the same words that numpy or ml_dtypes has; signless
integers read as signed."""

_ELEMENTS = {name: element for element, name in NUMPY_NAMES.items()}

_PTX_NAMES = {
    **{f"u{bits}": f"ui{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"b{bits}": f"ui{bits}" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"i{bits}" for bits in (4, 8, 16, 32, 64)},
    "pred": "i1", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "ue8m0": "f8E8M0FNU",
    "e2m3": "f6E2M3FN", "e3m2": "f6E3M2FN", "e2m1": "f4E2M1FN",
}  # fmt: skip

SPELLINGS: Mapping[str, str] = {**{element: element for element in NUMPY_NAMES}, **_ELEMENTS, **_PTX_NAMES}
"""What MLIR, numpy and PTX call an element type, and its name in MLIR."""


class _DTypes(Mapping[str, DType]):
    """The types of `NUMPY_NAMES`, each made when it is asked for: a run with numpy's own waits for no ml_dtypes."""

    def __getitem__(self, element: str) -> DType:
        return _dtype(NUMPY_NAMES[element])

    def __iter__(self) -> Iterator[str]:
        return iter(NUMPY_NAMES)

    def __len__(self) -> int:
        return len(NUMPY_NAMES)


@cache
def _dtype(name: str) -> DType:
    if name == "bool" or hasattr(np, name):
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


DTYPES: Mapping[str, DType] = _DTypes()
"""The numpy type of each MLIR element type."""

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
    import ml_dtypes

    limits = ml_dtypes.iinfo(dtype)
    return int(limits.min), int(limits.max)


@cache
def element_of(dtype: DType) -> str:
    """The MLIR name of a numpy type; numpy's own name where MLIR has none."""
    element = _ELEMENTS.get(dtype.name, "")
    return element if element and DTYPES[element] == dtype else str(dtype)
