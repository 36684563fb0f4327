"""Element types as MLIR and numpy have them, and DLPack capsules: address, shape, strides, type."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..base.errors import ArgumentError
from ..base.launch import ELEMENT_NAMES

Floats = npt.NDArray[np.float64]
DType = np.dtype[Any]

_ELEMENTS = {names.numpy: element for element, names in ELEMENT_NAMES.items()}

_PTX_NAMES = {
    **{f"u{bits}": f"ui{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"b{bits}": f"ui{bits}" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"i{bits}" for bits in (4, 8, 16, 32, 64)},
    "pred": "i1", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "ue8m0": "f8E8M0FNU",
    "e2m3": "f6E2M3FN", "e3m2": "f6E3M2FN", "e2m1": "f4E2M1FN",
}  # fmt: skip

SPELLINGS: Mapping[str, str] = {**{element: element for element in ELEMENT_NAMES}, **_ELEMENTS, **_PTX_NAMES}
"""What MLIR, numpy and PTX call an element type, and its name in MLIR."""


class _DTypes(Mapping[str, DType]):
    """The numpy types of `ELEMENT_NAMES`. Each is created on its first use, so that a run with numpy's own types does
    not import ml_dtypes."""

    def __getitem__(self, element: str) -> DType:
        return _dtype(ELEMENT_NAMES[element].numpy)

    def __iter__(self) -> Iterator[str]:
        return iter(ELEMENT_NAMES)

    def __len__(self) -> int:
        return len(ELEMENT_NAMES)


@cache
def _dtype(name: str) -> DType:
    if name == "bool" or hasattr(np, name):
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


DTYPES: Mapping[str, DType] = _DTypes()
"""The numpy type of each MLIR element type."""

PACKED = {element: 8 // names.bits for element, names in ELEMENT_NAMES.items() if names.bits < 8}
"""Elements of a byte in the memory of a kernel, of types that numpy keeps one in a byte."""


def dtype_of(element: str) -> DType:
    """The numpy type with the representation of the MLIR type `element`.

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
    """The smallest and the largest value of an integer type, including those of 4 bits and 1; None for other types."""
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


# Reading DLPack capsules: address, shape, strides and element type of a tensor that lives anywhere.
#
# numpy's own `from_dlpack` knows neither bfloat16 nor GPU memory; both are ordinary here. Source: DLPack 1.0,
# `dlpack.h` (`DLManagedTensor`, `DLManagedTensorVersioned`), and its Python specification.

CPU = 1
HOST_KINDS = (CPU, 3)
"""Device types the host can read: kDLCPU and kDLCUDAHost (pinned)."""

DEVICE_KINDS = (2, 13)
"""Device types a CUDA kernel can read: kDLCUDA and kDLCUDAManaged."""

_TYPE_CODES = {
    0: "i{}", 1: "ui{}", 2: "f{}", 4: "bf{}", 6: "bool", 7: "f8E3M4", 10: "f8E4M3FN", 12: "f8E5M2",
}  # fmt: skip
"""Element types by DLPack's codes of types; the braces stand for the bits."""


class _DLTensor(ctypes.Structure):
    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLVersioned(ctypes.Structure):
    _fields_: ClassVar = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_READ_ONLY = 1
_IMMUTABLE = ("jax", "jaxlib")
"""Packages whose arrays never change. Their exports do not say so in capsules without a version."""


@runtime_checkable
class SupportsDLPack(Protocol):
    """An object that shares its memory through DLPack."""

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


@dataclass(frozen=True)
class Tensor:
    """A borrowed tensor. `strides` counts elements; None means row-major without gaps.

    `element` is the name of the element type and `itemsize` its bytes; `owner` keeps the memory alive. `writable` is
    False where the producer says that the memory must not be written.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    element: str
    itemsize: int
    on_host: bool
    owner: object
    writable: bool = True


def read(source: SupportsDLPack, stream: int | None = None) -> Tensor:
    """Borrow `source`'s memory. `stream` is the CUDA stream the consumer will use (device memory only).

    Raises:
        ArgumentError: if the producer refuses, or its tensor has elements of a type that DLPack cannot name.
    """
    try:
        device = int(source.__dlpack_device__()[0])
        if device not in HOST_KINDS + DEVICE_KINDS:
            raise ArgumentError(f"its memory is on a device of DLPack type {device}, neither host nor CUDA")
        capsule = _export(source, None if device in HOST_KINDS else stream)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArgumentError(f"its DLPack export failed: {error}") from error
    tensor = _tensor(capsule)
    return replace(tensor, writable=False) if is_immutable(source) else tensor


def is_immutable(source: object) -> bool:
    """Whether an array is of an immutable kind, whatever its exports say."""
    return type(source).__module__.partition(".")[0] in _IMMUTABLE


def _export(source: SupportsDLPack, stream: int | None) -> object:
    """A DLPack capsule. Producers of DLPack 1.0 make a versioned one, which has a flag for read-only memory."""
    try:
        if stream is None:
            return source.__dlpack__(max_version=(1, 0))
        return source.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:
        return source.__dlpack__() if stream is None else source.__dlpack__(stream=stream)


def _tensor(capsule: object) -> Tensor:
    versioned = _is_versioned(capsule)
    pointer = _pointer(capsule, b"dltensor_versioned" if versioned else b"dltensor")
    raw = ctypes.cast(pointer, ctypes.POINTER(_DLTensor)).contents
    flags = 0
    if versioned:
        managed = ctypes.cast(pointer, ctypes.POINTER(_DLVersioned)).contents
        raw, flags = managed.tensor, int(managed.flags)
    rank = cast(int, raw.ndim)
    if raw.code not in _TYPE_CODES or raw.lanes != 1:
        raise ArgumentError(
            f"its DLPack element type (code {raw.code}, {raw.bits} bits x {raw.lanes}) is not supported"
        )
    return Tensor(
        address=(raw.data or 0) + raw.byte_offset,
        shape=tuple(raw.shape[i] for i in range(rank)),
        strides=tuple(raw.strides[i] for i in range(rank)) if raw.strides else None,
        element=_TYPE_CODES[raw.code].format(raw.bits),
        itemsize=(raw.bits + 7) // 8,
        on_host=raw.device_type in HOST_KINDS,
        owner=capsule,
        writable=not flags & _READ_ONLY,
    )


def _is_versioned(capsule: object) -> bool:
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.restype, valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
    return bool(valid(capsule, b"dltensor_versioned"))


def _pointer(capsule: object, name: bytes) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    try:
        return cast(int, get(capsule, name))
    except ValueError as error:
        raise ArgumentError(f"its DLPack export is not a 'dltensor' capsule: {error}") from error
