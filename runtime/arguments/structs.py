"""Values with fields: their bytes, and which of them are pointers to arrays, or tensor maps.

Source: PTX ISA 5.1.6.1 (`.param .align 8 .b8 p[16]`); a tuple is laid out as C lays out a struct of its items.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

import numpy as np

from ...dialect.isa.tensor_map import MAP_ALIGNMENT, SIZE
from ..errors import ArgumentError
from ..numerics.array import Array
from .arrays import is_array
from .tensor_map import EncodedMap, TensorMap

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
    maps: Mapping[int | str, TensorMap | EncodedMap] = field(default_factory=dict[int | str, TensorMap | EncodedMap])


@dataclass(frozen=True)
class Image:
    """The bytes of a struct, in which pointers and tensor maps are 0, and by offset what the pointers are to point to
    and the maps."""

    data: bytes
    alignment: int = 1
    pointers: tuple[tuple[int, object], ...] = ()
    maps: tuple[tuple[int, TensorMap | EncodedMap], ...] = ()


def is_struct(value: object) -> bool:
    """Whether a value has fields or is raw bytes."""
    return is_bytes(value) or isinstance(value, tuple | Struct | np.void) or is_map(value) or is_ctypes(value)


def is_map(value: object) -> TypeGuard[TensorMap | EncodedMap]:
    """Whether a value is a tensor map."""
    return isinstance(value, TensorMap | EncodedMap)


def is_bytes(value: object) -> TypeGuard[bytes]:
    """Whether a value is raw bytes, of whatever kind."""
    return isinstance(value, bytes | bytearray | memoryview)


def is_ctypes(value: object) -> TypeGuard[Any]:
    """Whether a value is one of ctypes: a number, an array or a structure of such."""
    return isinstance(value, _CTYPES)


def image(value: object) -> Image:
    """The bytes and pointers of a value.

    Raises:
        ArgumentError: for a field of unknown width or an unknown type, or a pointer where there is no room for it.
    """
    if isinstance(value, Struct):
        return _with_pointers(value)
    if isinstance(value, tuple):
        return _fields(cast("tuple[object, ...]", value))
    if is_map(value):
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
        if not is_map(map_):
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
        found = _field(kind, name)
        if found is None:
            raise ArgumentError(f"{_kind(data)} has no field '{path}'; name one, or its offset in bytes")
        kind, offset = found[0], offset + found[1]
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
