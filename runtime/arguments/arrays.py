"""Arrays that cross the border: arguments borrowed from whoever made them.

An argument is a numpy array, an object with `__cuda_array_interface__` (torch, cupy, numba) or one
with `__dlpack__` (any of them, jax, host tensors). None is copied here: an `Argument` says where
the elements lie, and `fitting.check` says whether a parameter can take them.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from ...dialect.isa.tensor_map import ELEMENTS, Element, PixelBox, TensorMapError, TensorMapFields
from ..base.errors import ArgumentError
from ..base.launch import ELEMENT_NAMES, ScratchBuffer, map_element
from ..numerics.floats import Array
from . import dtypes
from .dtypes import PACKED, Argument, DType, element_of

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
    if isinstance(value, dtypes.SupportsDLPack):
        return dtypes.read(value, _LEGACY_STREAM)
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
        writable=not read_only and not dtypes.is_immutable(value),
        owner=value,
        stream=interface.get("stream") or _torch_stream(value),
    )


def _type_of_words(value: object) -> str:
    """The element type of words whose type the CUDA array interface cannot name, from DLPack or from the name of the
    array's dtype (`torch.float8_e5m2`); "" if neither has it."""
    if isinstance(value, dtypes.SupportsDLPack):
        try:
            return dtypes.read(value, _NO_STREAM).element
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


# Tensor maps as arguments: which array a kernel's tensor copies reach, and the box that one of them moves.
#
# Names and limits are those of the driver's `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col`; dimensions are in
# numpy's order, slowest first.


PROMOTIONS = (0, 64, 128, 256)


@dataclass(frozen=True)
class TensorMap:
    """A tensor map of an array. Pass it for a parameter `.param .align 64 .b8 map[128]`, as a field of a struct, or for
    a pointer to a map, such as `.param .u64 map`.

    - `box`: the extents of the box that one copy moves, in elements, with the slowest dimension first. With a
      `PixelBox` the map is one of im2col mode. Its corners are in numpy's order as well: D, H, W.
    - `swizzle`: 0, 32, 64 or 128 bytes.
    - `element_strides`: for each dimension a step n; every n-th element of the box is copied.
    - `fill`: "zero" or "nan", the value that is read where the box lies outside of the array.
    - `l2_promotion`: 0, 64, 128 or 256 bytes. It changes only the speed.
    - `type`: the name of an element type, if it is not that of the array (`tf32`, `u8`, ...). An array of bytes has
      packed elements of `b4x16`, `b4x16_p64` or `b6x16_p32`.

    Raises:
        ArgumentError: if the driver would refuse the map; the message has the limit.
    """

    array: object
    box: Sequence[int] | PixelBox
    swizzle: int = 0
    element_strides: Sequence[int] | None = None
    interleave: int = 0
    fill: str = "zero"
    l2_promotion: int = 0
    type: str = ""

    def __post_init__(self) -> None:
        if self.fill not in ("zero", "nan"):
            raise ArgumentError(f"expected fill to be 'zero' or 'nan', got {self.fill!r}")
        if self.l2_promotion not in PROMOTIONS:
            raise ArgumentError(f"expected l2_promotion to be 0, 64, 128 or 256, got {self.l2_promotion!r}")
        if not isinstance(self.box, PixelBox):
            _check_integers("box", self.box)
        if self.element_strides is not None:
            _check_integers("element_strides", self.element_strides)
        self.fields(0)

    def borrowed(self) -> Argument:
        """The array."""
        return borrow(self.array)

    def element(self) -> Element:
        """The element type.

        Raises:
            ArgumentError: if maps have no such element type.
        """
        name = self.type or self.borrowed().element
        element = next((e for e in ELEMENTS if e.name == name), None) if self.type else map_element(name)
        if element is None:
            names = ", ".join(e.name for e in ELEMENTS)
            raise ArgumentError(f"a tensor map has no elements of type {name}; known: {names}")
        return element

    def fields(self, address: int) -> TensorMapFields:
        """The fields of the map for an array at this address.

        Raises:
            ArgumentError: if the driver would refuse the map.
        """
        array, element = self.borrowed(), self.element()
        # Of elements of less than a byte an array has the bytes.
        size = 1 if element.together > 1 else element.size
        if array.itemsize != size:
            raise ArgumentError(f"elements of {element.name} have {size} bytes, those of {array} {array.itemsize}")
        *strides, last = array.byte_strides or (size,)
        if last != size and array.shape[-1:] != (1,):
            raise ArgumentError(f"the last dimension of {array} must be contiguous, got a stride of {last} bytes")
        steps, sizes = self.element_strides or (1,) * len(array.shape), list(reversed(array.shape))
        if size < element.size and sizes:
            sizes[0] = sizes[0] * element.together // element.size
        box = self.box.reversed() if isinstance(self.box, PixelBox) else tuple(reversed(self.box))
        try:
            return TensorMapFields(
                address, element, tuple(sizes), tuple(reversed(strides)), box,
                tuple(reversed(steps)), self.swizzle, self.interleave, self.fill == "nan",
            )  # fmt: skip
        except TensorMapError as error:
            raise ArgumentError(f"tensor map of {array}: {error} (dimensions count from the fastest)") from None


def _check_integers(name: str, numbers: object) -> None:
    try:
        for number in cast("Sequence[int]", numbers):
            operator.index(number)
    except TypeError:
        raise ArgumentError(f"expected {name} to be a sequence of integers, got {numbers!r}") from None
