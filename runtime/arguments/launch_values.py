"""The words that the parameters of a kernel are passed in.

Source: PTX ISA 4.4.1 (kernel parameters), 5.1.6.1 (`.param` and pointer attributes).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import numpy as np

from ...dialect.isa.tensor_map import MAP_ALIGNMENT, SIZE, TensorMapFields
from ...dialect.ptx.text.syntax import Function, Variable
from ..errors import ArgumentError
from ..numerics.array import Array
from .arrays import Argument, borrow, is_array
from .dtypes import DTYPES, DType
from .structs import POINTER, Image, Struct, image, is_bytes, is_ctypes, is_map, is_record, is_struct
from .tensor_map import EncodedMap, TensorMap

Scalar: TypeAlias = int | float | np.generic | bytes

Encode: TypeAlias = Callable[[TensorMapFields, int], bytes]
"""The bytes of a tensor map, of its fields and the bytes of its L2 promotion."""


@dataclass(frozen=True)
class Packed:
    """The bytes of a struct, and what goes into them once addresses are known.

    `pointers` has offsets with the positions, among the values of the call, of what lies there: arrays, and structs
    that are `in_memory`. `maps` has offsets with the position of the array of the tensor map, and the map. A struct
    that is `in_memory` lies in global memory, and its address is passed.
    """

    data: bytes
    pointers: tuple[tuple[int, int], ...] = ()
    maps: tuple[tuple[int, int, TensorMap | EncodedMap], ...] = ()
    in_memory: bool = False

    def filled(self, address: Callable[[int], int], encode: Encode | None = None) -> bytes:
        """The bytes with the addresses of what lies at positions, and the tensor maps of arrays there, put in.

        `encode` makes the bytes of a map from its fields and the bytes of its L2 promotion; without it they are those
        whose fields are known.
        """
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
    """The positions of the structs that lie in global memory, each behind those that it points to."""
    positions = [i for i, value in enumerate(values) if isinstance(value, Packed) and value.in_memory]
    return sorted(positions, key=lambda i: len(reachable(values, i)))


def reachable(values: Sequence[LaunchValue], position: int) -> set[int]:
    """The position of a value, and those of all that lies behind its pointers and maps."""
    value = values[position]
    behind = value.reached if isinstance(value, Packed) else ()
    return {position}.union(*(reachable(values, at) for at in behind))


def packed_struct(packed: Packed, values: Mapping[int, object]) -> Struct:
    """A struct again, with what stands at the positions of its pointers and maps."""
    return Struct(
        packed.data,
        {offset: values[at] for offset, at in packed.pointers},
        {offset: replace(map_, memory=values[at]) for offset, at, map_ in packed.maps},
    )


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
    behind: list[LaunchValue] = []
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


def _value(parameter: Variable, arg: object, first: int, behind: list[LaunchValue]) -> LaunchValue:
    """One argument; what lies behind its pointers and maps goes to `behind`, whose positions count from `first`."""
    if parameter.count is None:
        if is_array(arg):
            return _pointer(parameter, arg)
        if not (is_map(arg) or isinstance(arg, tuple | Struct)):
            return _number(parameter, arg)
        _check_pointer(parameter, cast(object, arg))
        return _packed(image(cast(object, arg)), first, behind, in_memory=True)
    found = _image(parameter, arg)
    if found.maps and (parameter.align or 1) % MAP_ALIGNMENT:
        raise ArgumentError(
            f"a tensor map lies at a multiple of {MAP_ALIGNMENT} bytes, which .align {parameter.align or 1} does not "
            f"promise; such a parameter is .align {MAP_ALIGNMENT} .b8 map[{SIZE}]"
        )
    return _packed(found, first, behind) if found.pointers or found.maps else found.data


def _packed(found: Image, first: int, behind: list[LaunchValue], *, in_memory: bool = False) -> Packed:
    """A struct whose pointers and maps are positions; arrays and structs that they reach go to `behind`."""
    pointers: list[tuple[int, int]] = []
    maps: list[tuple[int, int, TensorMap | EncodedMap]] = []
    for offset, target in found.pointers:
        behind.append(_whole(target) if is_array(target) else _packed(image(target), first, behind, in_memory=True))
        pointers.append((offset, first + len(behind) - 1))
    for offset, map_ in found.maps:
        behind.append(map_.borrowed() if map_.memory is None else borrow(map_.memory))
        maps.append((offset, first + len(behind) - 1, map_))
    return Packed(found.data, tuple(pointers), tuple(maps), in_memory)


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
    if is_map(arg) and size != SIZE:
        raise ArgumentError(
            f"a tensor map has {SIZE} bytes, the parameter {size}; pass all fields of a struct that holds a map, as in "
            f"Struct(bytes({size}), maps={{0: map}})"
        )
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
    _check_pointer(parameter, arg)
    return _whole(arg)


def _check_pointer(parameter: Variable, arg: object) -> None:
    dtype = parameter_dtype(parameter)
    if dtype.itemsize != POINTER or dtype.kind == "f":
        got = f"the array {given(arg)}" if is_array(arg) else "a tensor map" if is_map(arg) else "a struct"
        raise ArgumentError(f"expected a scalar, got {got}; pointers are 64-bit parameters")


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
        if found.pointers or found.maps:
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
