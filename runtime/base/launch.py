"""What is called and how, as plain data without numpy: parameters of functions, launches, grids, element types."""

from __future__ import annotations

import operator
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from ...passes.source import InputError, begins_as_ptx, decode
from .errors import ArgumentError, WarploomError

if TYPE_CHECKING:
    from xdsl.ir.affine import AffineMap

    from ...dialect.isa.row import Target
    from ...dialect.isa.tensor_map import Element, TensorMapFields
    from ..numerics.floats import Array


# The grid of a launch: its sizes, how large they may be, where it runs, and who is told how far it is.

Dim3: TypeAlias = tuple[int, int, int]

GRID_LIMIT: Dim3 = (2**31 - 1, 65535, 65535)
BLOCK_LIMIT: Dim3 = (1024, 1024, 64)
THREADS_LIMIT = 1024

DEVICES = ("auto", "interp", "cuda")
"""Where a user can have a launch run; "auto" takes a GPU if there is one that runs the target."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called now and then during an interpreted launch with the units of work done and the units there are."""


class Problem(NamedTuple):
    """A matrix product, C (m, n) += A (m, k) * B (k, n), or a batch of them."""

    m: int
    n: int
    k: int
    batch: int = 1

    @staticmethod
    def parse(text: str) -> Problem:
        """Reads `512x512x256`, or `8x512x512x256` for a batch of 8.

        Raises:
            ArgumentError: if the text is not of that form.
        """
        sizes = [int(size) for size in text.split("x") if re.fullmatch(r"[0-9]{1,18}", size)]
        if len(sizes) != text.count("x") + 1 or len(sizes) not in (3, 4) or 0 in sizes:
            raise ArgumentError(f"expected the sizes of a product as MxNxK, such as 512x512x256, got '{text}'")
        return Problem(*sizes[-3:], *sizes[:-3])

    @property
    def multiply_adds(self) -> int:
        return self.batch * self.m * self.n * self.k

    def __str__(self) -> str:
        return f"{f'{self.batch}x' if self.batch > 1 else ''}{self.m}x{self.n}x{self.k}"


# Element types that arrays can have: bits in memory, and what numpy, torch and tensor maps call them.


class ElementNames(NamedTuple):
    """The names of one element type. `bits` is its size in memory. `numpy` is the type of equal words in numpy,
    ml_dtypes and torch. `map` is the type in a tensor map, which has 8-bit floats as bytes; "" if maps have none."""

    bits: int
    numpy: str
    map: str = ""


ELEMENT_NAMES = {
    "f16": ElementNames(16, "float16", "f16"),
    "bf16": ElementNames(16, "bfloat16", "bf16"),
    "f32": ElementNames(32, "float32", "f32"),
    "f64": ElementNames(64, "float64", "f64"),
    "f8E4M3FN": ElementNames(8, "float8_e4m3fn", "u8"),
    "f8E5M2": ElementNames(8, "float8_e5m2", "u8"),
    "f8E8M0FNU": ElementNames(8, "float8_e8m0fnu", "u8"),
    "f6E2M3FN": ElementNames(8, "float6_e2m3fn", "u8"),
    "f6E3M2FN": ElementNames(8, "float6_e3m2fn", "u8"),
    "f4E2M1FN": ElementNames(4, "float4_e2m1fn"),
    "i1": ElementNames(1, "bool"),
    "i4": ElementNames(4, "int4"),
    "ui4": ElementNames(4, "uint4"),
    "i8": ElementNames(8, "int8", "u8"),
    "i16": ElementNames(16, "int16", "u16"),
    "i32": ElementNames(32, "int32", "s32"),
    "i64": ElementNames(64, "int64", "s64"),
    "ui8": ElementNames(8, "uint8", "u8"),
    "ui16": ElementNames(16, "uint16", "u16"),
    "ui32": ElementNames(32, "uint32", "u32"),
    "ui64": ElementNames(64, "uint64", "u64"),
}
"""Element types by MLIR's names. Signless integers read as signed; elements of 6 bits take a byte each."""


def memory_bytes(element: str, count: int) -> int:
    """Bytes of `count` elements in the memory of a kernel."""
    return -(-count * ELEMENT_NAMES[element].bits // 8)


def describe(shape: tuple[int, ...] | None, element: str) -> str:
    """A shape and element type as MLIR writes them: `192x320xf16`."""
    return "x".join([*("?" if extent < 0 else str(extent) for extent in shape or ()), element])


def map_element(kind: str) -> Element | None:
    """The element type of a tensor map for an MLIR type, or tf32; None without one."""
    from ...dialect.isa.tensor_map import ELEMENTS

    name = ELEMENT_NAMES[kind].map if kind in ELEMENT_NAMES else kind
    return next((e for e in ELEMENTS if e.name == name), None)


# What a host function is called with: its parameters, which of them it writes, which sizes must agree.


@dataclass(frozen=True)
class Parameter:
    """One parameter of a host function: an array, or a scalar where `shape` is None. `strides` count elements, None for
    any number of them; without them the array is row-major without gaps. Extents below 0 may be any, but `divisor` must
    divide those along which elements are neighbours, and strides of any number."""

    name: str
    element: str
    shape: tuple[int, ...] | None
    strides: tuple[int | None, ...] | None = None
    divisor: int = 1

    def __str__(self) -> str:
        return f"{describe(self.shape, self.element)}{self.layout}"

    def takes_shape(self, shape: tuple[int, ...]) -> bool:
        """Whether extents are as expected, where one is."""
        if self.shape is None or len(self.shape) != len(shape):
            return False
        return all(wanted < 0 or wanted == extent for wanted, extent in zip(self.shape, shape, strict=True))

    @property
    def layout(self) -> str:
        """The strides as MLIR writes them; empty for an array without gaps."""
        if self.strides is None:
            return ""
        return f", strided<[{', '.join('?' if s is None else str(s) for s in self.strides)}]>"

    @cached_property
    def accepted_kinds(self) -> set[tuple[object, ...]]:
        """The kinds of arguments that the parameter has accepted. `check` examines each kind once."""
        return set()


class Metadata(NamedTuple):
    """An argument with the metadata of a sparse matrix: its position, the element type and the position of the matrix,
    -1 if it is no argument, and how many of its rows share one of the metadata."""

    position: int
    element: str
    of: int
    rows: int


class Signature(NamedTuple):
    """A host function as its caller sees it. `written` are the positions of arguments the function writes, `filled` of
    those it overwrites before it reads them. `products` are the matrix products among its operations, in order; those
    of unknown size are not among them. `ties` are sets of (position, dimension) whose extents must agree. `sparse` are
    the metadata of sparse matrices. `computed` has, for the last parameters, their extents by those of the others, of
    which an index is one."""

    name: str
    parameters: tuple[Parameter, ...]
    written: frozenset[int]
    filled: frozenset[int]
    products: tuple[Problem, ...] = ()
    ties: tuple[frozenset[tuple[int, int]], ...] = ()
    sparse: tuple[Metadata, ...] = ()
    computed: tuple[AffineMap, ...] = ()

    def __str__(self) -> str:
        return f"@{self.name}({', '.join(f'%{p.name}: {p}' for p in self.parameters)})"

    def argument(self, position: int) -> str:
        """How messages call an argument: `argument 1 (%B)`."""
        return f"argument {position} (%{self.parameters[position].name})"


def position_of(name: str, parameters: Sequence[Parameter]) -> int:
    """The position of the parameter that a user calls `name`: a number, `%A` or `A`. Raises ArgumentError naming the
    parameters there are."""
    if name.isdecimal() and int(name) < len(parameters):
        return int(name)
    for i, parameter in enumerate(parameters):
        if name.removeprefix("%") == parameter.name:
            return i
    names = ", ".join(f"{i} or %{p.name}" for i, p in enumerate(parameters)) or "none"
    raise ArgumentError(f"no argument '{name}'; there are {names}")


def extents(
    function: Signature, shapes_: Mapping[int, tuple[int, ...]], numbers: Mapping[int, Any] = MappingProxyType({})
) -> list[tuple[int, ...]]:
    """The shape of each parameter, from its type, `shapes_`, one that it is tied to, or what computes it, of which
    `numbers` are too. Unknown sizes are negative."""
    shapes = [list(shapes_.get(i, p.shape or ())) for i, p in enumerate(function.parameters)]
    for tie in function.ties:
        extent = next((shapes[i][d] for i, d in sorted(tie) if shapes[i][d] >= 0), -1)
        for i, d in tie:
            shapes[i][d] = max(shapes[i][d], extent)
    if function.computed:
        first, sizes = len(shapes) - len(function.computed), list[int]()
        for i, parameter in enumerate(function.parameters[:first]):
            is_index = parameter.shape is None and parameter.element == "i64"
            sizes += shapes[i] if parameter.shape is not None else [_whole(numbers.get(i)) if is_index else 0]
        if min(sizes, default=0) >= 0:
            shapes[first:] = [[max(0, n) for n in map_.eval(sizes, [])] for map_ in function.computed]
    return [tuple(shape) for shape in shapes]


def _whole(number: Any) -> int:
    """An index that was passed; -1 for anything else, which is refused later."""
    try:
        return operator.index(number)
    except TypeError:
        return -1


@dataclass(frozen=True)
class Word:
    """A number that a launch passes by value."""

    value: int


Contents: TypeAlias = bytes


class ScratchBuffer(NamedTuple):
    """Memory that launches of a call share: its size, whether it starts as zeros, its contents if it is a constant."""

    bytes: int
    zeroed: bool = False
    data: Contents = b""

    def host(self) -> Array:
        """The buffer on the host; all ones without contents, NaN in every float type, so that reads of it show."""
        import numpy as np

        if self.data:
            return np.frombuffer(self.data, np.uint8).copy()
        return np.full(self.bytes, 0 if self.zeroed else 0xFF, np.uint8)


@dataclass(frozen=True)
class Shifted:
    """Memory that starts `bytes` bytes after the start of the array at `position`."""

    position: int
    bytes: int


@dataclass(frozen=True)
class Mapped:
    """A tensor map of the memory that starts `bytes` bytes after the start of the array at `position`. `fields` are
    those of a map with that memory at address 0."""

    position: int
    bytes: int
    fields: TensorMapFields


Passed: TypeAlias = int | Word | Shifted | Mapped
"""What a launch gives a parameter: the array or number at a position, a place in it, a number, a tensor map."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `arguments` are positions in the caller's arguments, places in those arrays, or numbers;
    `shared` is bytes of dynamic memory. `cluster` is the shape of the clusters of blocks; None leaves it to the
    kernel's own directives."""

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


class Plan(NamedTuple):
    """What a call does: its launches in order, and each buffer of scratch memory they share. In a launch's arguments
    the buffers count on after the function's parameters. `dynamic` says that launches depend on the sizes of the
    arguments; a plan made without arguments is then one for sizes of 1."""

    launches: tuple[Launch, ...]
    scratch: tuple[ScratchBuffer, ...] = ()
    dynamic: bool = False


def dim3(value: int | Sequence[int], what: str) -> Dim3:
    """One to three sizes as three. Raises ArgumentError for anything else."""
    try:
        sizes = [operator.index(size) for size in ((value,) if isinstance(value, int) else value)]
    except TypeError:
        raise ArgumentError(f"expected {what} to be one to three integers, got {value!r}") from None
    if not 1 <= len(sizes) <= 3:
        raise ArgumentError(f"expected {what} to be one to three integers, got {value!r}")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


# Reading source files, with errors fit to read.

STDIN = "-"
"""The path that stands for standard input."""


def read_mlir(path: str) -> str:
    """The text of an MLIR file, or of standard input. Raises WarploomError as `read_source`, or if the name does not
    end in .mlir."""
    if path != STDIN and not path.endswith((".mlir", ".mlirbc")):
        raise WarploomError(f"{path}: expected a file ending in .mlir, or {STDIN} for standard input")
    return read_source(path)


def read_source(path: str | Path) -> str:
    """The text of an MLIR or PTX file. The path `-` is standard input. Raises WarploomError naming the file, if it
    cannot be read or is no text."""
    language = "PTX" if Path(path).suffix == ".ptx" else "MLIR"
    try:
        data = sys.stdin.buffer.read() if str(path) == STDIN else Path(path).read_bytes()
        return decode(data, str(path), language)
    except OSError as error:
        raise WarploomError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # a path with a zero byte
        raise WarploomError(f"{str(path)!r}: {error}") from error
    except InputError as error:
        raise WarploomError(str(error)) from error


def is_ptx(path: str | Path, text: str) -> bool:
    """Whether a file is PTX: by the ending of its name, and standard input by how it begins."""
    return begins_as_ptx(text) if str(path) == STDIN else Path(path).suffix == ".ptx"


def known_target(name: str, option: str = "") -> Target:
    """The row of a target, which an option may have named. Raises ArgumentError naming the option and the known
    targets."""
    from ...dialect.isa.row import UnknownTargetError, target

    try:
        return target(name)
    except UnknownTargetError as error:
        raise ArgumentError(f"{option}: {error}" if option else str(error)) from None


CORES = "WARPLOOM_CORES"
"""The environment variable with the number of processes; 1 for none beside this one."""


def cores() -> int:
    """How many processes a launch may take: one where they cannot be forked. Raises ArgumentError if the environment
    variable is no number of processes."""
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return 1
    if text := os.environ.get(CORES, ""):
        if not (text.isdecimal() and int(text)):
            raise ArgumentError(f"{CORES}: expected a number of processes from 1 on, got '{text}'")
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Output: TypeAlias = Callable[[str], object]
"""Takes the text that an interpreted kernel prints."""

Checks: TypeAlias = str | Sequence[str]
"""What the interpreter looks for: names of `interp.checks.CHECKS` or "all", several in a sequence or with commas."""


@dataclass(frozen=True)
class Options:
    """What only the interpreter does: the arithmetic of another target, checks, reports, traces, a limit of steps,
    an `Observer` of the interpreter that looks on, and a `WarpOrder` in which the warps run at first.

    Raises:
        ArgumentError: for a limit below 1, or a target that there is not.
    """

    arch: str | None = None
    checks: Checks = ()
    report: bool = False
    max_steps: int | None = None
    output: Output | None = None
    trace: bool = False
    observer: Any = None
    order: Any = None

    def __post_init__(self) -> None:
        limit = cast("object", self.max_steps)
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise ArgumentError(f"expected max_steps to be an integer from 1 on, got {limit!r}")
        if self.arch is not None:
            known_target(self.arch, "arch")

    @property
    def unsupported_options(self) -> list[str]:
        """Why a GPU does not do what these options ask for."""
        arch = [] if self.arch is None else [f"arch='{self.arch}' is arithmetic for device='interp'; a GPU has its own"]
        asked = {
            "checks are made": self.checks,
            "a report is made": self.report,
            "a trace is made": self.trace,
            "steps are counted": self.max_steps is not None,
        }
        return arch + [f"{what} by the interpreter; pass device='interp'" for what, value in asked.items() if value]

    def on(self, device: str) -> str:
        """The device: the interpreter, where an option needs it."""
        needed = self.arch or self.checks or self.report or self.trace or self.max_steps or self.observer
        return "interp" if needed else device


DEFAULT = Options()
