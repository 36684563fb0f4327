"""Structs and tensor maps as arguments: their bytes, and which of them are pointers to arrays, or tensor maps."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

import numpy as np

from ...dialect.isa.tensor_map import ELEMENTS, MAP_ALIGNMENT, SIZE, Element, PixelBox, TensorMapError, TensorMapFields
from ..base.errors import ArgumentError
from ..base.launch import map_element
from ..numerics.floats import Array
from .arrays import Argument, borrow, is_array

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


# Structs. Source: PTX ISA 5.1.6.1 (`.param .align 8 .b8 p[16]`); a tuple is laid out as C lays out a struct of it.

POINTER = 8
"""Bytes of a pointer, and what its address in a struct is a multiple of."""

_CTYPES = (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._SimpleCData)  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True)
class Struct:
    """Bytes, a numpy record, a ctypes structure or a tuple, with pointers and tensor maps inserted.

    `pointers` maps the offset of a pointer in bytes, or the name of its field, to what it points to: an array, a tensor
    map or another struct. `maps` maps the offset of 128 bytes, or the name of such a field, to a tensor map. The name
    of a field in a nested struct has dots::

        Struct(bytes(24), {0: a, 16: b})
        Struct(record, {"x.data": a})
        Struct(bytes(384), {0: c}, maps={64: TensorMap(a, (64, 64))})
    """

    data: object
    pointers: Mapping[int | str, object] = field(default_factory=dict[int | str, object])
    maps: Mapping[int | str, TensorMap] = field(default_factory=dict[int | str, TensorMap])


@dataclass(frozen=True)
class Image:
    """The bytes of a struct with pointers and tensor maps as 0; by offset the maps, and what pointers lead to."""

    data: bytes
    alignment: int = 1
    pointers: tuple[tuple[int, object], ...] = ()
    maps: tuple[tuple[int, TensorMap], ...] = ()


def is_struct(value: object) -> bool:
    """Whether a value has fields or is raw bytes."""
    return is_bytes(value) or isinstance(value, tuple | Struct | TensorMap | np.void) or is_ctypes(value)


def is_bytes(value: object) -> TypeGuard[bytes]:
    """Whether a value is raw bytes, of whatever kind."""
    return isinstance(value, bytes | bytearray | memoryview)


def is_ctypes(value: object) -> TypeGuard[Any]:
    """Whether a value is a ctypes number, array or structure."""
    return isinstance(value, _CTYPES)


def image(value: object) -> Image:
    """The bytes and pointers of a value. Raises ArgumentError for a field of unknown width or an unknown type, or a
    pointer where there is no room for it."""
    if isinstance(value, Struct):
        return _with_pointers(value)
    if isinstance(value, tuple):
        return _fields(cast("tuple[object, ...]", value))
    if isinstance(value, TensorMap):
        return Image(bytes(SIZE), MAP_ALIGNMENT, maps=((0, value),))
    if is_bytes(value):
        return Image(bytes(value))
    if is_ctypes(value):
        return Image(bytes(value), ctypes.alignment(value))
    if isinstance(value, np.generic) or is_record(value):
        return _numpy(cast(Any, value))
    if is_array(value):
        return Image(bytes(POINTER), POINTER, ((0, value),))
    if isinstance(value, bool | int | float):
        raise ArgumentError(f"a field {value!r} has no width; write numpy.int32({value!r}) or another type of numpy")
    raise ArgumentError(f"expected a field of a struct (an array, a number of numpy, bytes), got {_kind(value)}")


def is_record(value: object) -> bool:
    """Whether a value is a numpy array of one value with fields, not an array of values."""
    if not isinstance(value, np.ndarray):
        return False
    array = cast(Array, value)
    return array.dtype.names is not None and array.ndim == 0


def _numpy(value: np.generic | Array) -> Image:
    if value.dtype.hasobject:
        raise ArgumentError(f"a record of type {value.dtype} holds Python objects; make its pointers 'u8' fields")
    return Image(value.tobytes(), value.dtype.alignment)


def _fields(items: tuple[object, ...]) -> Image:
    data, pointers, maps, alignment = b"", (), (), 1
    for item in items:
        part = image(item)
        data += bytes(-len(data) % part.alignment)
        pointers += tuple((len(data) + at, target) for at, target in part.pointers)
        maps += tuple((len(data) + at, map_) for at, map_ in part.maps)
        data += part.data
        alignment = max(alignment, part.alignment)
    return Image(data + bytes(-len(data) % alignment), alignment, pointers, maps)


def _with_pointers(struct: Struct) -> Image:
    base = image(struct.data)
    data, pointers, maps, alignment = bytearray(base.data), dict(base.pointers), dict(base.maps), base.alignment
    for place, target in struct.pointers.items():
        if not (is_array(target) or is_struct(target)):
            raise ArgumentError(
                f"expected an array, a tensor map or a struct for the pointer {place!r}, got {_kind(target)}"
            )
        pointers[_cleared(data, struct.data, place, POINTER, "pointer")] = target
    for place, map_ in struct.maps.items():
        if not isinstance(cast("object", map_), TensorMap):
            raise ArgumentError(f"expected a tensor map at {place!r}, got {_kind(map_)}")
        offset = _cleared(data, struct.data, place, SIZE, "tensor map")
        if offset % MAP_ALIGNMENT:
            raise ArgumentError(f"a tensor map lies at a multiple of {MAP_ALIGNMENT} bytes, got byte {offset}")
        maps[offset], alignment = map_, max(alignment, MAP_ALIGNMENT)
    return Image(bytes(data), alignment, tuple(pointers.items()), tuple(maps.items()))


def _cleared(data: bytearray, struct: object, place: int | str, size: int, what: str) -> int:
    """The offset of a pointer or a map in the bytes of a struct, which are zero there from now on."""
    offset = place if isinstance(place, int) else _offset(struct, place, size, what)
    if not 0 <= offset <= len(data) - size:
        raise ArgumentError(f"a {what} at byte {offset} does not lie in the {len(data)} bytes of the struct")
    data[offset : offset + size] = bytes(size)
    return offset


def _offset(data: object, path: str, wanted: int, what: str) -> int:
    """Where a field of a record or a ctypes structure begins, named by the path to it: `x.data`."""
    kind: Any = cast(Any, type(data)) if is_ctypes(data) else getattr(data, "dtype", None)
    offset = 0
    for name in path.split("."):
        field_type = _field(kind, name)
        if field_type is None:
            raise ArgumentError(f"{_kind(data)} has no field '{path}'; name one, or its offset in bytes")
        kind, offset = field_type[0], offset + field_type[1]
    size = ctypes.sizeof(kind) if isinstance(kind, type) else kind.itemsize
    if size != wanted:
        raise ArgumentError(f"the field '{path}' has {size} bytes, a {what} has {wanted}")
    return offset


def _field(kind: Any, name: str) -> tuple[Any, int] | None:
    """The type of a field and its offset; None if there is none."""
    if isinstance(kind, np.dtype):
        fields = cast("Mapping[str, tuple[Any, int]]", kind.fields or {})
        return (fields[name][0], int(fields[name][1])) if name in fields else None
    declared = {entry[0]: entry[1] for entry in getattr(kind, "_fields_", ())}
    return (declared[name], int(getattr(kind, name).offset)) if name in declared else None


def _kind(value: object) -> str:
    return type(value).__name__
