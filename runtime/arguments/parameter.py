"""Parameters of host functions: what an argument must be. Nothing here needs numpy until an argument is there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dtypes import DType


@dataclass(frozen=True)
class Parameter:
    """One parameter of a host function: an array, or a scalar where `shape` is None.

    `strides` count elements, None for any number of them; without them the array is row-major without gaps. Extents
    below 0 may be any, but `divisor` must divide those along which elements are neighbours, and strides of any number.
    """

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
    def taken(self) -> set[tuple[object, ...]]:
        """What arguments were that the parameter takes: `check` looks at each kind once."""
        return set()


def describe(shape: tuple[int, ...] | None, element: str) -> str:
    """A shape and element type as MLIR writes them: `192x320xf16`."""
    return "x".join([*("?" if extent < 0 else str(extent) for extent in shape or ()), element])
