"""Element types and sizes of tensors, as torch and MLIR have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from .torch_api import expression

Size: TypeAlias = Any
"""How many elements a tensor has along a dimension: an int, or an expression of sympy in sizes that only the caller
knows."""

ELEMENTS = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "i8",
    torch.bool: "i8",
}
"""The element type in memory: truth values have a byte each."""

SCALARS = {**ELEMENTS, torch.bool: "i1"}
"""The type that an element is computed in."""

FLOATS = frozenset(dtype for dtype in ELEMENTS if dtype.is_floating_point)


class UnsupportedError(Exception):
    """Something that has no form in `linalg` here; says what, and why."""


def element_of(dtype: torch.dtype) -> str:
    """The MLIR type of elements in memory.

    Raises:
        UnsupportedError: for a type that has none.
    """
    return _named(dtype, ELEMENTS)


def scalar_of(dtype: torch.dtype) -> str:
    """The MLIR type of an element as it is computed with.

    Raises:
        UnsupportedError: for a type that has none.
    """
    return _named(dtype, SCALARS)


def _named(dtype: torch.dtype, names: Mapping[torch.dtype, str]) -> str:
    if dtype not in names:
        raise UnsupportedError(f"elements of {dtype} are not lowered")
    return names[dtype]


def size_of(size: int | torch.SymInt) -> Size:
    """A size of a tensor of a graph."""
    if isinstance(size, int):
        return size
    return expression(size)


def shape_of(tensor: torch.Tensor) -> tuple[Size, ...]:
    """The sizes of a tensor of a graph."""
    return tuple(map(size_of, tensor.shape))


@dataclass(frozen=True)
class TensorValue:
    """A tensor in MLIR text: its name (`%3`), sizes and element type."""

    name: str
    shape: tuple[Size, ...]
    element: str

    @property
    def type(self) -> str:
        """`tensor<?x48xbf16>`."""
        return tensor_type(self.shape, self.element)


def tensor_type(shape: tuple[Size, ...], element: str) -> str:
    """A tensor type as MLIR writes it."""
    return f"tensor<{'x'.join([*(str(s) if isinstance(s, int) else '?' for s in shape), element])}>"


@dataclass(frozen=True)
class Value:
    """What a node of a graph computes: a tensor seen in another order of its dimensions.

    `dims` says along which dimension of the tensor each of the value's runs, None where the value repeats itself.
    Dimensions of the tensor that are not named have one element. `dtype` is torch's type of the elements.
    """

    tensor: TensorValue
    dims: tuple[int | None, ...]
    shape: tuple[Size, ...]
    dtype: torch.dtype

    @property
    def plain(self) -> bool:
        """Whether the value is the tensor as it is."""
        return self.dims == tuple(range(len(self.tensor.shape)))


@dataclass(frozen=True)
class Expression:
    """What is computed of the elements of some values, in each place of a shape: `body` takes a region's `Body` and an
    element of each value."""

    values: tuple[Value, ...]
    body: Callable[..., Any]
    shape: tuple[Size, ...]
    dtype: torch.dtype


Lowering: TypeAlias = Callable[..., Value]
"""How an operation of ATen is written: takes a `Builder`, a tensor like the result, and the operation's arguments with
values in the place of tensors."""
