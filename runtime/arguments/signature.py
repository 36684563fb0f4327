"""What a host function is called with: its parameters, which of them it writes, which sizes must agree.

Nothing here needs numpy until an argument is there.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.errors import ArgumentError
from ..base.launch import Problem, describe

if TYPE_CHECKING:
    from xdsl.ir.affine import AffineMap

    from .dtypes import DType


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
    def dtype(self) -> DType:
        """The numpy type of the elements."""
        from .dtypes import dtype_of

        return dtype_of(self.element)

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
