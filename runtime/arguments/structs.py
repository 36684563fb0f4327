"""Parameters that are passed by value and have fields: their bytes, and which of them are pointers to arrays.

Source: PTX ISA 5.1.6.1 (`.param .align 8 .b8 p[16]`); a tuple is laid out as C lays out a struct of its items.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

import numpy as np

from ..errors import ArgumentError
from ..numerics.array import Array
from .arrays import is_array

POINTER = 8
"""Bytes of a pointer, and what its address in a struct is a multiple of."""

_CTYPES = (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._SimpleCData)  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True)
class Struct:
    """A parameter passed by value, with pointers inserted: bytes, a numpy record, a ctypes structure or a tuple.

    `pointers` maps the offset of a pointer in bytes, or the name of its field, to an array. The name of a field in a
    nested struct has dots::

        Struct(bytes(24), {0: a, 16: b})
        Struct(record, {"x.data": a})
    """

    data: object
    pointers: Mapping[int | str, object] = field(default_factory=dict[int | str, object])


@dataclass(frozen=True)
class Image:
    """The bytes of a struct, in which pointers are 0, and the arrays they are to point to, by offset."""

    data: bytes
    alignment: int = 1
    pointers: tuple[tuple[int, object], ...] = ()

    def moved(self, offset: int) -> tuple[tuple[int, object], ...]:
        """The pointers, counted from the beginning of a struct that this one lies in."""
        return tuple((offset + at, array) for at, array in self.pointers)


def is_struct(value: object) -> bool:
    """Whether a value has fields or is raw bytes."""
    return is_bytes(value) or isinstance(value, tuple | Struct | np.void) or is_ctypes(value)


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
    data, pointers, alignment = b"", (), 1
    for item in items:
        part = image(item)
        data += bytes(-len(data) % part.alignment)
        pointers += part.moved(len(data))
        data += part.data
        alignment = max(alignment, part.alignment)
    return Image(data + bytes(-len(data) % alignment), alignment, pointers)


def _with_pointers(struct: Struct) -> Image:
    base = image(struct.data)
    data, pointers = bytearray(base.data), dict(base.pointers)
    for place, array in struct.pointers.items():
        offset = place if isinstance(place, int) else _offset(struct.data, place)
        if not is_array(array):
            raise ArgumentError(f"expected an array for the pointer {place!r}, got {_kind(array)}")
        if not 0 <= offset <= len(data) - POINTER:
            raise ArgumentError(f"a pointer at byte {offset} does not lie in the {len(data)} bytes of the struct")
        data[offset : offset + POINTER] = bytes(POINTER)
        pointers[offset] = array
    return Image(bytes(data), base.alignment, tuple(pointers.items()))


def _offset(data: object, path: str) -> int:
    """Where a field of a record or a ctypes structure begins, named by the way to it: `x.data`."""
    kind: Any = cast(Any, type(data)) if is_ctypes(data) else getattr(data, "dtype", None)
    offset = 0
    for name in path.split("."):
        found = _field(kind, name)
        if found is None:
            raise ArgumentError(f"{_kind(data)} has no field '{path}'; name one, or its offset in bytes")
        kind, offset = found[0], offset + found[1]
    size = ctypes.sizeof(kind) if isinstance(kind, type) else kind.itemsize
    if size != POINTER:
        raise ArgumentError(f"the field '{path}' has {size} bytes, a pointer has {POINTER}")
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
