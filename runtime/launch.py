"""A kernel launch as plain data, and the words its parameters are passed in.

Source: PTX ISA 4.4.1 (kernel parameters), 5.1.6.1 (`.param` and pointer attributes).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

import ml_dtypes
import numpy as np

from ..dialect.ptx.syntax import Function, Variable
from .arrays import Argument, Array, DType, borrow, is_array
from .errors import ArgumentError

Dim3: TypeAlias = tuple[int, int, int]
Scalar: TypeAlias = int | float | np.generic | bytes
Value: TypeAlias = Argument | Scalar

GRID_LIMIT: Dim3 = (2**31 - 1, 65535, 65535)
BLOCK_LIMIT: Dim3 = (1024, 1024, 64)
THREADS_LIMIT = 1024


@dataclass(frozen=True)
class Word:
    """A number that a launch passes by value."""

    value: int


class Buffer(NamedTuple):
    """Scratch memory that launches share: its size, and whether it is all zeros before the first of them."""

    bytes: int
    zeroed: bool = False


@dataclass(frozen=True)
class Shifted:
    """Memory that starts so many bytes behind the start of the array at a position."""

    position: int
    bytes: int


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
    arguments: tuple[int | Word | Shifted, ...]
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
        if self.shared < 0:
            raise ArgumentError(f"kernel {self.kernel}: shared memory must not be negative, got {self.shared} bytes")

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


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


def values(function: Function, args: Sequence[object]) -> list[Value]:
    """The arguments as the parameters of `function` take them: arrays borrowed, scalars checked.

    Raises:
        ArgumentError: naming the argument.
    """
    parameters = function.parameters
    if len(args) != len(parameters):
        names = ", ".join(f".{p.type} {p.name}" for p in parameters) or "none"
        raise ArgumentError(f"kernel {function.name}: expected {len(parameters)} arguments ({names}), got {len(args)}")
    return [_value(p, arg, i) for i, (p, arg) in enumerate(zip(parameters, args, strict=True))]


def _value(parameter: Variable, arg: object, position: int) -> Value:
    where = f"argument {position} ({parameter.name})"
    try:
        if parameter.count is None and is_array(arg):
            return _pointer(parameter, arg)
        value = cast(Array, arg).tobytes() if isinstance(arg, np.ndarray) else cast(Scalar, arg)
        pack(parameter, value)
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from error
    return value


def _pointer(parameter: Variable, arg: object) -> Argument:
    if parameter_dtype(parameter).itemsize != 8:
        raise ArgumentError(f"expected a scalar .{parameter.type}, got an array; pointers are 64-bit parameters")
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
    dtype = parameter_dtype(parameter)
    if parameter.count is not None:
        return _pack_array(parameter, dtype, value)
    if isinstance(value, np.generic) and value.dtype.itemsize == dtype.itemsize and parameter.type[0] == "b":
        return value.tobytes()
    if dtype.kind in "ui":
        return _pack_integer(parameter, dtype, value)
    if not isinstance(value, int | float | np.generic):
        raise ArgumentError(f"expected a number for .{parameter.type}, got {type(value).__name__}")
    return np.array(float(value)).astype(dtype).tobytes()


def _pack_integer(parameter: Variable, dtype: DType, value: object) -> bytes:
    try:
        number = operator.index(cast(int, value))
    except TypeError:
        raise ArgumentError(f"expected an integer for .{parameter.type}, got {value!r}") from None
    bits = 8 * dtype.itemsize
    if not -(1 << bits - 1) <= number < 1 << bits:
        raise ArgumentError(f"expected an integer of {bits} bits for .{parameter.type}, got {number}")
    return (number % (1 << bits)).to_bytes(dtype.itemsize, "little")


def _pack_array(parameter: Variable, dtype: DType, value: Scalar) -> bytes:
    data = value if isinstance(value, bytes) else None
    expected = (parameter.count or 0) * dtype.itemsize
    if data is None or len(data) != expected:
        got = type(value).__name__ if data is None else f"{len(data)} bytes"
        raise ArgumentError(f"expected the {expected} bytes of .{parameter.type} {parameter.name}[], got {got}")
    return data


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
            f"argument {position} ({parameter.name}): expected an address that is a multiple of {needed}, "
            f"got {address:#x}; pass an array that starts at the beginning of its allocation"
        )
