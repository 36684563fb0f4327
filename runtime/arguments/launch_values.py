"""The words that the parameters of a kernel are passed in, structs among them."""

from __future__ import annotations

import ctypes
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsFloat, TypeAlias, TypeGuard, cast

import numpy as np

from ...dialect.isa.tensor_map import MAP_ALIGNMENT, SIZE, TensorMapFields
from ...dialect.ptx.text.syntax import Function, Variable
from ..base.errors import ArgumentError
from ..numerics.floats import Array
from .arrays import Argument, TensorMap, borrow, is_array
from .dtypes import DTYPES, DType

# Values with fields: their bytes, and which of them are pointers to arrays, or tensor maps.
#
# Source: PTX ISA 5.1.6.1 (`.param .align 8 .b8 p[16]`); a tuple is laid out as C lays out a struct of its items.

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


# The words that the parameters of a kernel are passed in.
#
# Source: PTX ISA 4.4.1 (kernel parameters), 5.1.6.1 (`.param` and pointer attributes).

Scalar: TypeAlias = int | float | np.generic | bytes

Encode: TypeAlias = Callable[[TensorMapFields, int], bytes]
"""The bytes of a tensor map, of its fields and the bytes of its L2 promotion."""


@dataclass(frozen=True)
class Packed:
    """The bytes of a struct, and what goes into them once addresses are known. `pointers` has offsets with the
    positions, among the values of the call, of what lies there: arrays, and structs that are `in_memory`. `maps` has
    offsets with the position of the array of the tensor map, and the map. A struct that is `in_memory` lies in global
    memory, and its address is passed."""

    data: bytes
    pointers: tuple[tuple[int, int], ...] = ()
    maps: tuple[tuple[int, int, TensorMap], ...] = ()
    in_memory: bool = False

    def filled(self, address: Callable[[int], int], encode: Encode | None = None) -> bytes:
        """The bytes of a struct with its addresses and tensor maps filled in. `address` gives the address of a
        position. `encode` makes the bytes of a map from its fields and its L2 promotion. Without it, the stored bytes
        of the map are used, which have all fields but the address."""
        data = bytearray(self.data)
        for offset, position in self.pointers:
            data[offset : offset + POINTER] = address(position).to_bytes(POINTER, "little")
        for offset, position, map_ in self.maps:
            fields = map_.fields(address(position))
            data[offset : offset + SIZE] = fields.encode() if encode is None else encode(fields, map_.l2_promotion)
        return bytes(data)

    @property
    def reached(self) -> tuple[int, ...]:
        """The positions of what its pointers and maps reach."""
        return (*(at for _, at in self.pointers), *(at for _, at, _ in self.maps))


LaunchValue: TypeAlias = Argument | Scalar | Packed


def in_memory(values: Sequence[LaunchValue]) -> list[int]:
    """The positions of the structs in global memory. Each comes after the structs that it points to."""
    positions = [i for i, value in enumerate(values) if isinstance(value, Packed) and value.in_memory]
    return sorted(positions, key=lambda i: len(reachable(values, i)))


def reachable(values: Sequence[LaunchValue], position: int) -> set[int]:
    """The position of a value, and those of all that lies behind its pointers and maps."""
    value = values[position]
    behind = value.reached if isinstance(value, Packed) else ()
    return {position}.union(*(reachable(values, at) for at in behind))


_KINDS = {"u": "u", "s": "i", "b": "u", "f": "f"}
_PTX_TYPE = re.compile(r"([usbf])(8|16|32|64)$")


def parameter_dtype(parameter: Variable) -> DType:
    """The numpy type of one word of a parameter. Raises ArgumentError for a type no argument can be passed as."""
    if parameter.type == "bf16":
        return DTYPES["bf16"]
    match = _PTX_TYPE.match(parameter.type)
    if match is None or parameter.type == "f8":
        raise ArgumentError(f"parameter {parameter.name}: nothing can be passed as .{parameter.type}")
    return np.dtype(f"{_KINDS[match[1]]}{int(match[2]) // 8}")


def values(function: Function, args: Sequence[object]) -> list[LaunchValue]:
    """The arguments as the parameters of `function` take them: arrays borrowed, the others as bytes. The arrays that
    structs point to stand behind all arguments. Raises ArgumentError naming the argument, what the parameter is, and
    what was given."""
    parameters = function.parameters
    if not isinstance(cast("object", args), Sequence):
        raise ArgumentError(f"kernel {function.name}: expected a list of arguments, got {type(args).__name__}")
    if len(args) != len(parameters):
        raise ArgumentError(_miscounted(function, args))
    passed: list[LaunchValue] = []
    behind: list[LaunchValue] = []
    for i, (parameter, arg) in enumerate(zip(parameters, args, strict=True)):
        try:
            passed.append(_value(parameter, arg, len(args), behind))
        except ArgumentError as error:
            raise ArgumentError(f"kernel {function.name}: {where(parameter, i)}: {error}") from error
    return [*passed, *behind]


def where(parameter: Variable, position: int) -> str:
    """How messages call an argument: `argument 1 (.f32 a)`."""
    return f"argument {position} ({declaration(parameter)})"


def declaration(parameter: Variable) -> str:
    """A parameter as PTX declares it, without its state space: `.u64 x`, `.align 8 .b8 p[16]`."""
    aligned = f".align {parameter.align} " if parameter.align and parameter.count is not None else ""
    extent = "" if parameter.count is None else f"[{parameter.count}]"
    return f"{aligned}.{parameter.type} {parameter.name}{extent}"


def _miscounted(function: Function, args: Sequence[object]) -> str:
    """What a kernel takes, and what was given for each."""
    names = ", ".join(declaration(p) for p in function.parameters) or "none"
    message = f"kernel {function.name}: expected {len(function.parameters)} arguments ({names}), got {len(args)}"
    if len(args) < len(function.parameters):
        missing = enumerate(function.parameters[len(args) :], len(args))
        message += f"; missing: {', '.join(where(p, i) for i, p in missing)}"
    if args:
        message += f"; given: {', '.join(described(arg) for arg in args)}"
    return message


def described(value: object) -> str:
    """A value as messages name it: `512xf32`, `int 5`, `str 'x'`."""
    if is_array(value):
        try:
            return str(borrow(value))
        except ArgumentError:
            return type(value).__name__
    if is_bytes(value):
        return f"{len(value)} bytes"
    if isinstance(value, tuple):
        return f"({', '.join(described(item) for item in cast('tuple[object, ...]', value))})"
    number = f"{type(value).__name__} {value!s}"
    return number if isinstance(value, int | float | np.generic) else f"{value!r:.60}"


def _value(parameter: Variable, arg: object, first: int, behind: list[LaunchValue]) -> LaunchValue:
    """One argument. The values behind its pointers and maps go to `behind`, whose positions count from `first`."""
    if parameter.count is None:
        if not (is_array(arg) or isinstance(arg, tuple | Struct | TensorMap)):
            return _number(parameter, arg)
        _check_pointer(parameter, cast(object, arg))
        return _pointed(cast(object, arg), first, behind)
    struct = _image(parameter, arg)
    if struct.maps and (parameter.align or 1) % MAP_ALIGNMENT:
        raise ArgumentError(
            f"a tensor map lies at a multiple of {MAP_ALIGNMENT} bytes, which .align {parameter.align or 1} does not "
            f"promise; such a parameter is .align {MAP_ALIGNMENT} .b8 map[{SIZE}]"
        )
    return _packed(struct, first, behind) if struct.pointers or struct.maps else struct.data


def _packed(struct: Image, first: int, behind: list[LaunchValue], *, in_memory: bool = False) -> Packed:
    """A struct with positions for pointers and tensor maps; the arrays and structs that these name go to `behind`."""
    pointers: list[tuple[int, int]] = []
    maps: list[tuple[int, int, TensorMap]] = []
    for offset, target in struct.pointers:
        behind.append(_pointed(target, first, behind))
        pointers.append((offset, first + len(behind) - 1))
    for offset, map_ in struct.maps:
        behind.append(map_.borrowed())
        maps.append((offset, first + len(behind) - 1, map_))
    return Packed(struct.data, tuple(pointers), tuple(maps), in_memory)


def _number(parameter: Variable, arg: object) -> Scalar:
    value = cast(Scalar, arg.value if is_ctypes(arg) and hasattr(arg, "value") else arg)
    pack(parameter, value)
    return value


def _image(parameter: Variable, arg: object) -> Image:
    """An argument for an array parameter (`.b8 p[16]`), of exactly its bytes."""
    size = (parameter.count or 0) * parameter.vector * parameter_dtype(parameter).itemsize
    if _by_value(arg, parameter, size):
        return image(arg) if is_record(arg) else Image(cast(Array, arg).tobytes())
    if is_array(arg) and size != POINTER:
        raise ArgumentError(f"expected {size} bytes, got the array {described(arg)}; {_FIELDS}")
    if not (is_array(arg) or is_struct(arg) or isinstance(arg, np.generic)):
        raise ArgumentError(f"expected {size} bytes, got {described(arg)}; {_FIELDS}")
    struct = image(cast(object, arg))
    if isinstance(arg, TensorMap) and size != SIZE:
        raise ArgumentError(
            f"a tensor map has {SIZE} bytes, the parameter {size}; pass all fields of a struct that holds a map, as in "
            f"Struct(bytes({size}), maps={{0: map}})"
        )
    if len(struct.data) != size:
        at = ", ".join(str(offset) for offset, _ in struct.pointers)
        raise ArgumentError(
            f"expected {size} bytes, got {len(struct.data)}{f' with pointers at byte {at}' if at else ''}; {_FIELDS}"
        )
    return struct


_FIELDS = (
    "pass a struct: a tuple of its fields such as (array, numpy.int32(5)), bytes, a numpy record, a ctypes structure, "
    "or Struct(bytes, {offset: array})"
)


def _by_value(arg: object, parameter: Variable, size: int) -> bool:
    """Whether an array is the bytes of a parameter, not what the parameter points to."""
    if not isinstance(arg, np.ndarray):
        return False
    array = cast(Array, arg)
    return array.nbytes == size and (is_record(array) or array.dtype == parameter_dtype(parameter))


def _check_pointer(parameter: Variable, arg: object) -> None:
    dtype = parameter_dtype(parameter)
    if dtype.itemsize != POINTER or dtype.kind == "f":
        other = "a tensor map" if isinstance(arg, TensorMap) else "a struct"
        got = f"the array {described(arg)}" if is_array(arg) else other
        raise ArgumentError(f"expected a scalar, got {got}; pointers are 64-bit parameters")


def _pointed(target: object, first: int, behind: list[LaunchValue]) -> Argument | Packed:
    """What a pointer is to: an array without gaps, or a struct in global memory."""
    if not is_array(target):
        return _packed(image(target), first, behind, in_memory=True)
    argument = borrow(target)
    if not argument.contiguous:
        raise ArgumentError(f"{argument} has gaps (strides of {argument.strides} bytes); pass a contiguous copy")
    return argument


def pack(parameter: Variable, value: Scalar) -> bytes:
    """The bytes of a parameter passed by value. An integer may be signed or unsigned, as it fits; a numpy scalar of the
    parameter's width is passed as its own bits; an array parameter (`.b8 p[128]`) takes exactly its bytes. Raises
    ArgumentError if the value does not fit the type."""
    if parameter.count is not None:
        struct = _image(parameter, value)
        if struct.pointers or struct.maps:
            raise ArgumentError(f"expected {len(struct.data)} bytes, got an array")
        return struct.data
    dtype = parameter_dtype(parameter)
    if isinstance(value, np.generic) and value.dtype.itemsize == dtype.itemsize and parameter.type[0] == "b":
        return value.tobytes()
    return packed_number(dtype, value)


def packed_number(dtype: DType, value: object) -> bytes:
    """The bytes of a number of a type. An integer may be signed or unsigned, as it fits. Raises ArgumentError for what
    is no number, or does not fit the type."""
    if dtype.kind in "ui":
        return _pack_integer(dtype, value)
    try:
        return np.array(cast(SupportsFloat, value).__float__()).astype(dtype).tobytes()
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise ArgumentError(f"expected a number, got {described(value)}") from None


def _pack_integer(dtype: DType, value: object) -> bytes:
    try:
        number = operator.index(cast(int, value))
    except TypeError:
        raise ArgumentError(f"expected an integer of {8 * dtype.itemsize} bits, got {described(value)}") from None
    bits = 8 * dtype.itemsize
    if not -(1 << bits - 1) <= number < 1 << bits:
        raise ArgumentError(f"expected an integer of {bits} bits, got {number}")
    return (number % (1 << bits)).to_bytes(dtype.itemsize, "little")


def alignment(parameter: Variable) -> int:
    """The bytes that the address passed for a pointer parameter must be a multiple of."""
    match = re.search(r"\.align\s+(\d+)", parameter.pointer)
    return int(match[1]) if match else 1


def check_alignment(parameter: Variable, address: int, position: int, needed: int) -> None:
    """Refuse an address that is no multiple of the bytes that the kernel needs. Raises ArgumentError naming the
    argument."""
    if address % needed:
        raise ArgumentError(
            f"{where(parameter, position)}: expected an address that is a multiple of {needed}, "
            f"got {address:#x}; pass an array that starts at the beginning of its allocation"
        )
