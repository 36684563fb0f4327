"""A kernel launch as plain data, and the words its parameters are passed in.

Source: PTX ISA 4.4.1 (kernel parameters), 5.1.6.1 (`.param` and pointer attributes).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

import ml_dtypes
import numpy as np

from ..dialect.isa.tensor_map import SIZE, TensorMapFields
from ..dialect.ptx.text.syntax import Function, Variable
from .arguments.arrays import Argument, borrow, is_array
from .arguments.dtypes import DType
from .arguments.structs import POINTER, Image, image, is_bytes, is_ctypes, is_record, is_struct
from .arguments.tensor_map import EncodedMap, TensorMap
from .errors import ArgumentError
from .grid import BLOCK_LIMIT, GRID_LIMIT, THREADS_LIMIT, Dim3
from .numerics.array import Array

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


@dataclass(frozen=True)
class Word:
    """A number that a launch passes by value."""

    value: int


Contents: TypeAlias = bytes


class ScratchBuffer(NamedTuple):
    """Memory that launches share: its size, whether it is all zeros before the first of them, and what it holds then
    and afterwards if it is a constant."""

    bytes: int
    zeroed: bool = False
    data: Contents = b""

    def host(self) -> Array:
        """The buffer in the memory of the host; all ones, NaN in every floating-point type, where it holds nothing, so
        that what is read before it is written shows."""
        if self.data:
            return np.frombuffer(self.data, np.uint8).copy()
        return np.full(self.bytes, 0 if self.zeroed else 0xFF, np.uint8)


@dataclass(frozen=True)
class Shifted:
    """Memory that starts so many bytes behind the start of the array at a position."""

    position: int
    bytes: int


@dataclass(frozen=True)
class Mapped:
    """A tensor map of memory that starts so many bytes behind the start of the array at a position; its fields, for an
    array at address 0 that starts there."""

    position: int
    bytes: int
    fields: TensorMapFields


Passed: TypeAlias = int | Word | Shifted | Mapped
"""What a launch gives a parameter: the array or number at a position, a place in it, a number, a tensor map."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `arguments` are positions in the caller's arguments, places in those arrays, or numbers;
    `shared` is bytes of dynamic memory.

    `cluster` is the shape of the clusters of blocks; None leaves it to the kernel's own directives.
    """

    kernel: str
    grid: Dim3
    block: Dim3
    shared: int
    arguments: tuple[Passed, ...]
    module: str = ""
    cluster: Dim3 | None = None

    def __post_init__(self) -> None:
        for what, sizes, limits in (("grid", self.grid, GRID_LIMIT), ("block", self.block, BLOCK_LIMIT)):
            if any(not 1 <= size <= limit for size, limit in zip(sizes, limits, strict=True)):
                raise ArgumentError(f"kernel {self.kernel}: expected {what} from (1, 1, 1) to {limits}, got {sizes}")
        if self.threads > THREADS_LIMIT:
            raise ArgumentError(
                f"kernel {self.kernel}: a block has at most {THREADS_LIMIT} threads, got {self.threads}"
            )
        if not isinstance(cast("object", self.shared), int) or self.shared < 0:
            raise ArgumentError(f"kernel {self.kernel}: expected bytes of shared memory from 0 on, got {self.shared!r}")

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True)
class Plan:
    """What a call does: its launches in order, and each buffer of scratch memory they share.

    In a launch's arguments the buffers count on after the function's parameters. `dynamic` says that launches depend
    on the sizes of the arguments; a plan made without arguments is then one for sizes of 1.
    """

    launches: tuple[Launch, ...]
    scratch: tuple[ScratchBuffer, ...] = ()
    dynamic: bool = False


def dim3(value: int | Sequence[int], what: str) -> Dim3:
    """One to three sizes as three.

    Raises:
        ArgumentError: for anything else.
    """
    try:
        sizes = [operator.index(size) for size in ((value,) if isinstance(value, int) else value)]
    except TypeError:
        raise ArgumentError(f"expected {what} to be one to three integers, got {value!r}") from None
    if not 1 <= len(sizes) <= 3:
        raise ArgumentError(f"expected {what} to be one to three integers, got {value!r}")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


_KINDS = {"u": "u", "s": "i", "b": "u", "f": "f"}
_PTX_TYPE = re.compile(r"([usbf])(8|16|32|64)$")


def parameter_dtype(parameter: Variable) -> DType:
    """The numpy type of one word of a parameter.

    Raises:
        ArgumentError: for a type no argument can be passed as.
    """
    if parameter.type == "bf16":
        return np.dtype(ml_dtypes.bfloat16)
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
