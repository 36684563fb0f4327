"""Arrays that cross the border: the types of their elements, as MLIR and numpy have them, and memory borrowed from
whoever made them.

An argument is a numpy array, an object with `__cuda_array_interface__` (torch, cupy, numba) or one with `__dlpack__`
(any of them, jax, host tensors). None is copied here: an `Argument` says where the elements lie, and `binding.check`
says whether a parameter can take them.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np

from ..base.errors import ArgumentError
from ..base.launch import ELEMENT_NAMES, ScratchBuffer, describe
from ..numerics.floats import Array

DType = np.dtype[Any]

_ELEMENTS = {names.numpy: element for element, names in ELEMENT_NAMES.items()}


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


_NO_STREAM, _LEGACY_STREAM = -1, 1
"""Of an export that nobody reads: it need not wait for what its producer does; and of others."""


def is_array(value: object) -> bool:
    """Whether `value` is passed as a pointer to its elements."""
    if isinstance(value, np.ndarray | Argument):
        return True
    return not isinstance(value, np.generic) and (
        hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")
    )


def borrow(value: object, element: str = "") -> Argument:
    """An array argument as memory, without a copy, except for elements of less than a byte, which numpy keeps in a byte
    each. Booleans become bits if `element` is "i1". Raises ArgumentError if it is no array, has no memory, or its
    exporter refuses."""
    if isinstance(value, Argument):
        return value
    argument = _borrowed(value, element)
    if not argument.address and argument.nbytes:
        raise ArgumentError("it has no memory, as tensors of torch's fake mode and freed ones have none")
    return argument


def _borrowed(value: object, element: str) -> Argument:
    if isinstance(value, np.ndarray):
        return _from_numpy(cast(Array, value), element)
    if (tensor := _torch_tensor(value)) is not None:
        return tensor
    if _is_negated(value):
        raise ArgumentError("its elements are the negatives of what its memory holds; pass its resolve_neg()")
    interface = _cuda_array_interface(value)
    if interface is not None:
        return _from_cuda(value, interface)
    if isinstance(value, SupportsDLPack):
        return _of_dlpack(value, _LEGACY_STREAM)
    raise ArgumentError(
        f"expected a numpy array or an object with __cuda_array_interface__ or __dlpack__, got {type(value).__name__}"
    )


def _packed(array: Array, element: str) -> Argument:
    """A packed copy of elements of 4 bits or 1, which numpy keeps in a byte each. The first element has the lowest
    bits. Every row starts with a byte; spare bits of its last byte are zero."""
    each = PACKED[element]
    bits, (*outer, columns) = 8 // each, array.shape or (1,)
    row = -(-columns // each) * each
    padded = np.zeros((*outer, row), np.uint8)
    padded[..., :columns] = np.ascontiguousarray(array).view(np.uint8).reshape(*outer, columns) & ((1 << bits) - 1)
    parts = padded.reshape(*outer, row // each, each) << (bits * np.arange(each, dtype=np.uint8))
    packed = np.bitwise_or.reduce(parts, axis=-1)
    steps = (row * math.prod(outer[i + 1 :]) for i in range(len(outer)))
    return Argument(
        address=packed.ctypes.data,
        shape=array.shape,
        element=element,
        itemsize=1,
        strides=None if row == columns else (*steps, 1)[: array.ndim],
        on_device=False,
        writable=False,
        owner=packed,
        packed=each,
    )


def _from_numpy(array: Array, wanted: str) -> Argument:
    if array.dtype.hasobject:
        raise ArgumentError("expected an array of numbers, got one of Python objects")
    if not array.dtype.isnative:
        raise ArgumentError(
            f"expected elements in the byte order of this machine, got {array.dtype.str}; pass "
            "array.astype(array.dtype.newbyteorder('='))"
        )
    if type(array) is not np.ndarray:
        if isinstance(array, np.ma.MaskedArray):
            raise ArgumentError("expected an array without a mask, which kernels cannot read; pass array.filled()")
        array = array.view(np.ndarray)  # of numpy.matrix, views always have two dimensions
    element = element_of(array.dtype)
    if element in PACKED and (element != "i1" or wanted == "i1"):
        return _packed(array, element)
    return Argument(
        address=array.ctypes.data,
        shape=array.shape,
        element=_element(array.dtype),
        itemsize=array.dtype.itemsize,
        strides=array.strides,
        on_device=False,
        writable=bool(array.flags.writeable),
        owner=array,
    )


def _element(dtype: DType) -> str:
    """The element type of an array whose elements have at least one byte."""
    return "bool" if dtype.kind == "b" else element_of(dtype)


def _cuda_array_interface(value: object) -> Mapping[str, Any] | None:
    """The interface where the object has a usable one: torch raises for host tensors."""
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
    except (AttributeError, KeyError, RuntimeError, TypeError):
        return None
    return cast("Mapping[str, Any] | None", interface)


def _from_cuda(value: object, interface: Mapping[str, Any]) -> Argument:
    try:
        address, read_only = cast(tuple[int, bool], interface["data"])
        dtype: DType = np.dtype(interface["typestr"])
        shape = tuple(cast("tuple[int, ...]", interface["shape"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"its __cuda_array_interface__ lacks a valid data, typestr or shape: {error}") from error
    return Argument(
        address=address,
        shape=shape,
        element=(_type_of_words(value) if dtype.kind == "V" else "") or _element(dtype),
        itemsize=dtype.itemsize,
        strides=interface.get("strides"),
        on_device=True,
        writable=not read_only and not _is_immutable(value),
        owner=value,
        stream=interface.get("stream") or _torch_stream(value),
    )


def _type_of_words(value: object) -> str:
    """The element type of words whose type the CUDA array interface cannot name, from DLPack or from the name of the
    array's dtype (`torch.float8_e5m2`); "" if neither has it."""
    if isinstance(value, SupportsDLPack):
        try:
            return _of_dlpack(value, _NO_STREAM).element
        except ArgumentError:  # older torch exports no 8-bit floats
            pass
    name = str(getattr(value, "dtype", "")).rpartition(".")[2]
    return next((element for element, names in ELEMENT_NAMES.items() if names.numpy == name), "")


def _torch_of(value: object) -> Any | None:
    """The module of torch, if `value` is a tensor of it; it is never imported here."""
    torch = cast(Any, sys.modules.get("torch"))
    return torch if torch is not None and isinstance(value, torch.Tensor) else None


def _torch_stream(value: object) -> int | None:
    """The stream torch currently works on, where `value` is torch's: its interface does not tell."""
    return None if _torch_of(value) is None else current_stream(cast(Any, value).get_device())


def stream_reader(device: int) -> Callable[[], int]:
    """A function that returns the handle of torch's current CUDA stream on a device. torch must be imported."""
    torch = cast(Any, sys.modules["torch"])
    # The public way makes two objects, which takes as long as the rest of a call.
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return (lambda: int(torch.cuda.current_stream(device).cuda_stream)) if raw is None else partial(raw, device)


def current_stream(device: int) -> int:
    """The handle of torch's current CUDA stream on a device. torch must be imported."""
    return stream_reader(device)()


def memory_maker(buffer: ScratchBuffer, device: Any) -> Callable[[], Any]:
    """Allocates scratch memory on a device of torch in the order of its current stream, or returns the constant."""
    torch = cast(Any, sys.modules["torch"])
    if buffer.data:
        constant = torch.frombuffer(bytearray(buffer.data), dtype=torch.uint8).to(device)
        return lambda: constant
    kind = {"dtype": torch.uint8, "device": device}
    return partial(torch.zeros if buffer.zeroed else torch.empty, max(1, buffer.bytes), **kind)


_TORCH_ELEMENTS = {f"torch.{names.numpy}": element for element, names in ELEMENT_NAMES.items() if names.bits >= 8}
"""Element types by the names that torch has for them."""


def _torch_tensor(value: object) -> Argument | None:
    """A tensor of torch, read from its own attributes: its interfaces tell the same, ten times as slowly, and have no
    names for 8-bit floats. None for one that they have to refuse, or to explain."""
    torch = _torch_of(value)
    if torch is None or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return None
    tensor = cast(Any, value)
    element, on_device = _TORCH_ELEMENTS.get(str(tensor.dtype)), tensor.is_cuda
    if element is None or tensor.requires_grad or tensor.layout is not torch.strided or tensor.is_neg():
        return None
    if not on_device and tensor.device.type != "cpu":
        return None
    itemsize = tensor.element_size()
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # wraps others, as in torch.vmap
        return None
    return Argument(
        address=address,
        shape=tuple(tensor.shape),
        element=element,
        itemsize=itemsize,
        strides=None if tensor.is_contiguous() else tuple(itemsize * stride for stride in tensor.stride()),
        on_device=on_device,
        writable=True,
        owner=value,
        stream=_torch_stream(value) if on_device else None,
    )


def _is_negated(value: object) -> bool:
    """Whether a torch tensor has its negative bit set, such as the imaginary part of a conjugate. DLPack and the CUDA
    array interface do not show this bit."""
    return _torch_of(value) is not None and bool(cast(Any, value).is_neg())


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


def _of_dlpack(source: SupportsDLPack, stream: int) -> Argument:
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
    borrowed = _of_capsule(capsule)
    writable = borrowed.writable and not _is_immutable(source)
    return replace(borrowed, writable=writable, owner=(source, capsule), stream=used)


def _is_immutable(source: object) -> bool:
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


def _of_capsule(capsule: object) -> Argument:
    versioned = _is_versioned(capsule)
    pointer = _pointer(capsule, b"dltensor_versioned" if versioned else b"dltensor")
    raw = ctypes.cast(pointer, ctypes.POINTER(_DLTensor)).contents
    flags = 0
    if versioned:
        managed = ctypes.cast(pointer, ctypes.POINTER(_DLVersioned)).contents
        raw, flags = managed.tensor, int(managed.flags)
    rank, itemsize = cast(int, raw.ndim), (raw.bits + 7) // 8
    if raw.code not in _TYPE_CODES or raw.lanes != 1:
        raise ArgumentError(f"its DLPack element type (code {raw.code}, {raw.bits} bits x {raw.lanes}) is unsupported")
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
