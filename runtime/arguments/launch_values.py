"""The words that the parameters of a kernel are passed in.

Source: PTX ISA 4.4.1 (kernel parameters), 5.1.6.1 (`.param` and pointer attributes).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import SupportsFloat, TypeAlias, cast

import numpy as np

from ...dialect.isa.tensor_map import MAP_ALIGNMENT, SIZE, TensorMapFields
from ...dialect.ptx.text.syntax import Function, Variable
from ..base.errors import ArgumentError
from ..numerics.floats import Array
from .arrays import DTYPES, Argument, DType, borrow, is_array
from .structs import POINTER, Image, Struct, TensorMap, image, is_bytes, is_ctypes, is_record, is_struct

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
