"""The words that the parameters of a kernel are passed in.

Source: PTX ISA 4.4.1 (kernel parameters), 5.1.6.1 (`.param` and pointer attributes).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np

from ...dialect.isa.tensor_map import SIZE, TensorMapFields
from ...dialect.ptx.text.syntax import Function, Variable
from ..errors import ArgumentError
from ..numerics.array import Array
from .arrays import Argument, borrow, is_array
from .dtypes import DTYPES, DType
from .structs import POINTER, Image, image, is_bytes, is_ctypes, is_record, is_struct
from .tensor_map import EncodedMap, TensorMap

Scalar: TypeAlias = int | float | np.generic | bytes


@dataclass(frozen=True)
class Packed:
    """The bytes of a struct passed by value, and where addresses of arrays go into them: offsets, with the positions
    of the arrays among the values of the call."""

    data: bytes
    pointers: tuple[tuple[int, int], ...]

    def filled(self, address: Callable[[int], int]) -> bytes:
        """The bytes with the addresses of the arrays, by position, put in."""
        data = bytearray(self.data)
        for offset, position in self.pointers:
            data[offset : offset + POINTER] = address(position).to_bytes(POINTER, "little")
        return bytes(data)


@dataclass(frozen=True)
class PackedMap(Packed):
    """A tensor map, whose bytes follow from the address of its array."""

    map: TensorMap | EncodedMap

    def filled(self, address: Callable[[int], int]) -> bytes:
        """The bytes for an array of this address, as far as their fields are known."""
        return self.fields(address).encode()

    def fields(self, address: Callable[[int], int]) -> TensorMapFields:
        """What the map says of the array at its address."""
        ((_, position),) = self.pointers
        return self.map.fields(address(position))


LaunchValue: TypeAlias = Argument | Scalar | Packed


_KINDS = {"u": "u", "s": "i", "b": "u", "f": "f"}
_PTX_TYPE = re.compile(r"([usbf])(8|16|32|64)$")


def parameter_dtype(parameter: Variable) -> DType:
    """The numpy type of one word of a parameter.

    Raises:
        ArgumentError: for a type no argument can be passed as.
    """
    if parameter.type == "bf16":
        return DTYPES["bf16"]
    match = _PTX_TYPE.match(parameter.type)
    if match is None or parameter.type == "f8":
        raise ArgumentError(f"parameter {parameter.name}: nothing can be passed as .{parameter.type}")
    return np.dtype(f"{_KINDS[match[1]]}{int(match[2]) // 8}")


def values(function: Function, args: Sequence[object]) -> list[LaunchValue]:
    """The arguments as the parameters of `function` take them: arrays borrowed, the others as bytes. The arrays that
    structs point to stand behind all arguments.

    Raises:
        ArgumentError: naming the argument, what the parameter is, and what was given.
    """
    parameters = function.parameters
    if not isinstance(cast("object", args), Sequence):
        raise ArgumentError(f"kernel {function.name}: expected a list of arguments, got {type(args).__name__}")
    if len(args) != len(parameters):
        raise ArgumentError(_miscounted(function, args))
    found: list[LaunchValue] = []
    behind: list[Argument] = []
    for i, (parameter, arg) in enumerate(zip(parameters, args, strict=True)):
        try:
            found.append(_value(parameter, arg, len(args), behind))
        except ArgumentError as error:
            raise ArgumentError(f"kernel {function.name}: {where(parameter, i)}: {error}") from error
    return [*found, *behind]


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
        message += f"; given: {', '.join(given(arg) for arg in args)}"
    return message


def given(value: object) -> str:
    """A value as messages name it: `512xf32`, `int 5`, `str 'x'`."""
    if is_array(value):
        try:
            return str(borrow(value))
        except ArgumentError:
            return type(value).__name__
    if is_bytes(value):
        return f"{len(value)} bytes"
    if isinstance(value, tuple):
        return f"({', '.join(given(item) for item in cast('tuple[object, ...]', value))})"
    return f"{type(value).__name__} {value!s}" if _is_number(value) else f"{value!r:.60}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.generic)


def _value(parameter: Variable, arg: object, first: int, behind: list[Argument]) -> LaunchValue:
    """One argument; arrays in it go to `behind`, of which the positions count from `first`."""
    if isinstance(arg, TensorMap | EncodedMap):
        return _map(parameter, arg, first, behind)
    if parameter.count is None:
        return _pointer(parameter, arg) if is_array(arg) else _number(parameter, arg)
    found = _image(parameter, arg)
    if not found.pointers:
        return found.data
    places: list[tuple[int, int]] = []
    for offset, array in found.pointers:
        places.append((offset, first + len(behind)))
        behind.append(_whole(array))
    return Packed(found.data, tuple(places))


def _map(parameter: Variable, arg: TensorMap | EncodedMap, first: int, behind: list[Argument]) -> PackedMap:
    size = (parameter.count or 1) * parameter_dtype(parameter).itemsize
    if size != SIZE or (parameter.align or 1) % 64:
        raise ArgumentError(
            f"a tensor map takes a parameter of {SIZE} bytes at a multiple of 64, .align 64 .b8 map[128]"
        )
    behind.append(arg.borrowed() if arg.memory is None else borrow(arg.memory))
    return PackedMap(b"", ((0, first + len(behind) - 1),), arg)


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
        raise ArgumentError(f"expected {size} bytes, got the array {given(arg)}; {_FIELDS}")
    if not (is_array(arg) or is_struct(arg) or _is_numpy(arg)):
        raise ArgumentError(f"expected {size} bytes, got {given(arg)}; {_FIELDS}")
    found = image(arg)
    if len(found.data) != size:
        at = ", ".join(str(offset) for offset, _ in found.pointers)
        raise ArgumentError(
            f"expected {size} bytes, got {len(found.data)}{f' with pointers at byte {at}' if at else ''}; {_FIELDS}"
        )
    return found


_FIELDS = (
    "pass a struct: a tuple of its fields such as (array, numpy.int32(5)), bytes, a numpy record, a ctypes structure, "
    "or Struct(bytes, {offset: array})"
)


def _is_numpy(value: object) -> bool:
    """Whether a value is one number or record of numpy."""
    return isinstance(value, np.generic)


def _by_value(arg: object, parameter: Variable, size: int) -> bool:
    """Whether an array is the bytes of a parameter, not what the parameter points to."""
    if not isinstance(arg, np.ndarray):
        return False
    array = cast(Array, arg)
    return array.nbytes == size and (is_record(array) or array.dtype == parameter_dtype(parameter))


def _pointer(parameter: Variable, arg: object) -> Argument:
    dtype = parameter_dtype(parameter)
    if dtype.itemsize != POINTER or dtype.kind == "f":
        raise ArgumentError(f"expected a scalar, got the array {given(arg)}; pointers are 64-bit parameters")
    return _whole(arg)


def _whole(arg: object) -> Argument:
    argument = borrow(arg)
    if not argument.contiguous:
        raise ArgumentError(f"{argument} has gaps (strides of {argument.strides} bytes); pass a contiguous copy")
    return argument


def pack(parameter: Variable, value: Scalar) -> bytes:
    """The bytes of a parameter passed by value.

    An integer may be signed or unsigned, as it fits; a numpy scalar of the parameter's width is
    passed as its own bits; an array parameter (`.b8 p[128]`) takes exactly its bytes.

    Raises:
        ArgumentError: if the value does not fit the type.
    """
    if parameter.count is not None:
        found = _image(parameter, value)
        if found.pointers:
            raise ArgumentError(f"expected {len(found.data)} bytes, got an array")
        return found.data
    dtype = parameter_dtype(parameter)
    if isinstance(value, np.generic) and value.dtype.itemsize == dtype.itemsize and parameter.type[0] == "b":
        return value.tobytes()
    if dtype.kind in "ui":
        return _pack_integer(dtype, value)
    if not isinstance(value, int | float | np.generic):
        raise ArgumentError(f"expected a number, got {given(value)}")
    return np.array(float(value)).astype(dtype).tobytes()


def _pack_integer(dtype: DType, value: object) -> bytes:
    try:
        number = operator.index(cast(int, value))
    except TypeError:
        raise ArgumentError(f"expected an integer of {8 * dtype.itemsize} bits, got {given(value)}") from None
    bits = 8 * dtype.itemsize
    if not -(1 << bits - 1) <= number < 1 << bits:
        raise ArgumentError(f"expected an integer of {bits} bits, got {number}")
    return (number % (1 << bits)).to_bytes(dtype.itemsize, "little")


def alignment(parameter: Variable) -> int:
    """The bytes that the address passed for a pointer parameter must be a multiple of."""
    match = re.search(r"\.align\s+(\d+)", parameter.pointer)
    return int(match[1]) if match else 1


def check_alignment(parameter: Variable, address: int, position: int) -> None:
    """Refuse an address the kernel was not compiled for.

    Raises:
        ArgumentError: naming the argument.
    """
    needed = alignment(parameter)
    if address % needed:
        raise ArgumentError(
            f"{where(parameter, position)}: expected an address that is a multiple of {needed}, "
            f"got {address:#x}; pass an array that starts at the beginning of its allocation"
        )
