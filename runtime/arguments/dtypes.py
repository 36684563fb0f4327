"""Element types as MLIR and numpy have them, borrowed memory, and what DLPack capsules say of it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..base.errors import ArgumentError
from ..base.launch import ELEMENT_NAMES, describe
from ..numerics.floats import Array

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
    """The numpy types of `ELEMENT_NAMES`, created on first use: a run with numpy's own types imports no ml_dtypes."""

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


# Memory that whoever made an array lends.


@dataclass(frozen=True)
class Argument:
    """Borrowed memory: `address` on the host or, with `on_device`, on a GPU. `element` is the MLIR name of the element
    type, `itemsize` its bytes. `strides` counts bytes (of elements that share one, elements); None means row-major
    without gaps. `stream` is the CUDA stream its producer works on, None if it did not tell. `owner` keeps the memory
    alive."""

    address: int
    shape: tuple[int, ...]
    element: str
    itemsize: int
    strides: tuple[int, ...] | None
    on_device: bool
    writable: bool
    owner: object
    stream: int | None = None
    packed: int = 1
    """Elements of a byte, where they are of less than one."""

    def __str__(self) -> str:
        return describe(self.shape, self.element)

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the end of the last one."""
        if 0 in self.shape:
            return 0
        if self.strides is None:
            return self.itemsize * math.prod(self.shape) // self.packed
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        return -(-(self.itemsize + last) // self.packed)

    @property
    def byte_strides(self) -> tuple[int, ...]:
        """Bytes from one index to the next along each dimension."""
        if self.strides is not None:
            return self.strides
        return tuple(self.itemsize * math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        if self.strides is None or 0 in self.shape:
            return True
        expected = self.itemsize
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True

    def packed_as(self, element: str, parameter: Sequence[int]) -> Argument:
        """Reinterprets bytes as packed elements, if a parameter of that shape has several in a byte; others stay."""
        each = PACKED.get(element, 1)
        if each == 1 or self.element not in ("i8", "ui8") or not parameter:
            return self
        steps = self.byte_strides
        if steps[-1:] != (1,) and self.shape[-1:] != (1,):
            return self
        columns, wanted = self.shape[-1] * each, parameter[-1]
        shape = (*self.shape[:-1], wanted if 0 <= columns - wanted < each else columns)
        strides = (*(each * step for step in steps[:-1]), 1)
        dense = self.contiguous and shape[-1] == columns
        return replace(self, shape=shape, element=element, strides=None if dense else strides, packed=each)

    def elements(self, raw: Array) -> Array:
        """The elements, as words, among the bytes from the first to the last."""
        return np.ndarray(self.shape, np.dtype(f"V{self.itemsize}"), raw.data, 0, self.strides)

    def raw(self) -> Array:
        """The bytes from the first to the last element, which are not there to be read if they are on a GPU."""
        raw: Array = np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(self.address))
        raw.flags.writeable = self.writable
        return raw

    def array(self) -> Array:
        """The host memory from the first to the last element as a numpy array of bytes; writes go to the owner. Raises
        ArgumentError if the memory is on a GPU."""
        if self.on_device:
            raise ArgumentError(f"{self} lies in GPU memory; copy it to the host first, or run with device='cuda'")
        if isinstance(self.owner, np.ndarray) and self.contiguous:
            return cast(Array, self.owner).reshape(-1).view(np.uint8)
        return self.raw()


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


def read(source: SupportsDLPack, stream: int) -> Argument:
    """Borrow `source`'s memory. `stream` is the CUDA stream the consumer will use (device memory only). Raises
    ArgumentError if the producer refuses, or its tensor has elements of a type that DLPack cannot name."""
    try:
        device = int(source.__dlpack_device__()[0])
        if device not in HOST_KINDS + DEVICE_KINDS:
            raise ArgumentError(f"its memory is on a device of DLPack type {device}, neither host nor CUDA")
        used = None if device in HOST_KINDS else stream
        capsule = _export(source, used)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArgumentError(f"its DLPack export failed: {error}") from error
    borrowed = _borrowed(capsule)
    writable = borrowed.writable and not is_immutable(source)
    return replace(borrowed, writable=writable, owner=(source, capsule), stream=used)


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


def _borrowed(capsule: object) -> Argument:
    versioned = _is_versioned(capsule)
    pointer = _pointer(capsule, b"dltensor_versioned" if versioned else b"dltensor")
    raw = ctypes.cast(pointer, ctypes.POINTER(_DLTensor)).contents
    flags = 0
    if versioned:
        managed = ctypes.cast(pointer, ctypes.POINTER(_DLVersioned)).contents
        raw, flags = managed.tensor, int(managed.flags)
    rank, itemsize = cast(int, raw.ndim), (raw.bits + 7) // 8
    if raw.code not in _TYPE_CODES or raw.lanes != 1:
        raise ArgumentError(
            f"its DLPack element type (code {raw.code}, {raw.bits} bits x {raw.lanes}) is not supported"
        )
    return Argument(
        address=(raw.data or 0) + raw.byte_offset,
        shape=tuple(raw.shape[i] for i in range(rank)),
        element=_TYPE_CODES[raw.code].format(raw.bits),
        itemsize=itemsize,
        strides=tuple(itemsize * raw.strides[i] for i in range(rank)) if raw.strides else None,
        on_device=raw.device_type not in HOST_KINDS,
        writable=not flags & _READ_ONLY,
        owner=capsule,
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
