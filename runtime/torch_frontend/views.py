"""Views: operations that show the elements of a tensor in another order, in another shape, or some of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from .builder import Builder, plain
from .torch_api import aten, prims, sympy
from .types import Lowering, Size, TensorValue, UnsupportedError, Value, shape_of, size_of, tensor_type


def _permute(builder: Builder, like: torch.Tensor, value: Value, order: Sequence[int]) -> Value:
    positions = [d % len(value.shape) for d in order]
    return _reordered(value, positions)


def _transpose(builder: Builder, like: torch.Tensor, value: Value, first: int, second: int) -> Value:
    rank = len(value.shape)
    order = list(range(rank))
    if rank:
        order[first % rank], order[second % rank] = order[second % rank], order[first % rank]
    return _reordered(value, order)


def _turned(builder: Builder, like: torch.Tensor, value: Value) -> Value:
    return _reordered(value, range(len(value.shape))[::-1])


def _reordered(value: Value, order: Sequence[int]) -> Value:
    dims, shape = tuple(value.dims[d] for d in order), tuple(value.shape[d] for d in order)
    return replace(value, dims=dims, shape=shape)


def _expand(builder: Builder, like: torch.Tensor, value: Value, sizes: object) -> Value:
    shape = shape_of(like)
    more = len(shape) - len(value.shape)
    dims = [None] * more + [
        None if before != after else dimension
        for dimension, before, after in zip(value.dims, value.shape, shape[more:], strict=True)
    ]
    return replace(value, dims=tuple(dims), shape=shape)


def _unsqueeze(builder: Builder, like: torch.Tensor, value: Value, where: int) -> Value:
    at = where % (len(value.shape) + 1)
    dims, shape = list(value.dims), list(value.shape)
    dims.insert(at, None)
    shape.insert(at, 1)
    return replace(value, dims=tuple(dims), shape=tuple(shape))


def _squeeze(builder: Builder, like: torch.Tensor, value: Value, where: int | Sequence[int] | None = None) -> Value:
    rank = len(value.shape)
    asked = range(rank) if where is None else [where] if isinstance(where, int) else where
    dropped = {d % rank for d in asked if rank and value.shape[d % rank] == 1}
    kept = [d for d in range(rank) if d not in dropped]
    return _reordered(value, kept)


def _reshape(builder: Builder, like: torch.Tensor, value: Value, *_: object, **__: object) -> Value:
    return reshape(builder, value, shape_of(like))


def reshape(builder: Builder, value: Value, shape: tuple[Size, ...]) -> Value:
    """The value in another shape, its elements in row-major order.

    Raises:
        UnsupportedError: for sizes of which the one do not visibly divide the others.
    """
    if shape == value.shape:
        return value
    tensor = builder.dense(value)
    groups = _groups(tensor.shape, shape)
    middle = tuple(_product(tensor.shape[d] for d in before) for before, _ in groups)
    if middle != tensor.shape:
        tensor = builder.reshaped(tensor, middle, [list(before) for before, _ in groups])
    if middle != shape:
        tensor = builder.reshaped(tensor, shape, [list(after) for _, after in groups])
    return plain(tensor, value.dtype)


def _product(sizes: Any) -> Size:
    return math.prod(sizes)


def _groups(before: tuple[Size, ...], after: tuple[Size, ...]) -> list[tuple[range, range]]:
    """The smallest runs of dimensions of two shapes that hold equally many elements; none of the runs is empty, unless
    one of the shapes has no dimensions."""
    if not before or not after:
        return []
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        start, other = i, j
        i, j = i + 1, j + 1
        left, right = before[start], after[other]
        while left != right:
            grow_left = _divides(left, right)
            if grow_left and i < len(before):
                left, i = left * before[i], i + 1
            elif not grow_left and j < len(after):
                right, j = right * after[j], j + 1
            else:
                raise UnsupportedError(f"a view of {before} as {after} is not lowered")
        groups.append((range(start, i), range(other, j)))
    if groups:
        (first, second) = groups.pop()
        groups.append((range(first.start, len(before)), range(second.start, len(after))))
    return groups


def _divides(left: Size, right: Size) -> bool:
    """Which of two numbers of elements is to grow: whether the first is the smaller one."""
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    quotient: Any = sympy.sympify(right) / sympy.sympify(left)
    return bool(quotient > 1) if quotient.is_number else sympy.denom(quotient) == 1


def _slice(
    builder: Builder,
    like: torch.Tensor,
    value: Value,
    dim: int = 0,
    start: int | None = None,
    end: object = None,
    step: int = 1,
) -> Value:
    shape = shape_of(like)
    if shape == value.shape:
        return value
    at, size = dim % len(shape), value.shape[dim % len(shape)]
    first = start or 0
    if not isinstance(size, int):
        raise UnsupportedError("a slice along a dimension of unknown size is not lowered")
    return _part(builder, value, at, first + size if first < 0 else min(first, size), shape[at], step)


def _select(builder: Builder, like: torch.Tensor, value: Value, dim: int, index: int) -> Value:
    at = dim % len(value.shape)
    size = value.shape[at]
    if index < 0 and not isinstance(size, int):
        raise UnsupportedError("an index that is not known is not lowered")
    part = _part(builder, value, at, index + size if index < 0 else index, 1, 1)
    return _squeeze(builder, like, part, at)


def _part(builder: Builder, value: Value, at: int, start: int, count: Size, step: int) -> Value:
    """Some of the elements along one dimension."""
    dimension = value.dims[at]
    shape = (*value.shape[:at], count, *value.shape[at + 1 :])
    if dimension is None:
        return replace(value, shape=shape)
    whole = value.tensor
    sizes = (*whole.shape[:dimension], count, *whole.shape[dimension + 1 :])
    offsets = ", ".join(str(start if d == dimension else 0) for d in range(len(sizes)))
    steps = ", ".join(str(step if d == dimension else 1) for d in range(len(sizes)))
    listed = ", ".join(str(size) if isinstance(size, int) else builder.index(size) for size in sizes)
    kind = tensor_type(sizes, whole.element)
    text = f"tensor.extract_slice {whole.name}[{offsets}] [{listed}] [{steps}] : {whole.type} to {kind}"
    return replace(value, tensor=TensorValue(builder.emit(text, "t"), sizes, whole.element), shape=shape)


def _broadcast(builder: Builder, like: torch.Tensor, value: Value, sizes: object, places: Sequence[int]) -> Value:
    """Dimension i of the value becomes dimension `places[i]`, the others are new."""
    shape = shape_of(like)
    dims: list[int | None] = [None] * len(shape)
    for place, dimension, size in zip(places, value.dims, value.shape, strict=True):
        dims[place] = dimension if size == shape[place] else None
    return replace(value, dims=tuple(dims), shape=shape)


def part_of_split(builder: Builder, value: Value, parts: Sequence[torch.Tensor], index: int, dim: int = 0) -> Value:
    """One of the parts that a tensor is split into along a dimension; each is like one of `parts`."""
    at = dim % len(value.shape)
    sizes = [size_of(part.shape[at]) for part in parts]
    if not all(isinstance(size, int) for size in sizes[:index]):
        raise UnsupportedError("a split at places that are not known is not lowered")
    return _part(builder, value, at, sum(sizes[:index]), sizes[index], 1)


SPLITS = frozenset({aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default})
"""Operations with several results, each a part of their operand."""


def _same(builder: Builder, like: torch.Tensor, value: Value, **_: object) -> Value:
    """A copy, or the tensor itself: values are never written to."""
    return value


VIEWS: Mapping[object, Lowering] = {
    aten.clone.default: _same,
    aten.alias.default: _same,
    aten.detach.default: _same,
    aten.lift_fresh_copy.default: _same,
    prims.broadcast_in_dim.default: _broadcast,
    aten.permute.default: _permute,
    aten.transpose.int: _transpose,
    aten.t.default: _turned,
    aten.numpy_T.default: _turned,
    aten.expand.default: _expand,
    aten.unsqueeze.default: _unsqueeze,
    aten.squeeze.default: _squeeze,
    aten.squeeze.dim: _squeeze,
    aten.squeeze.dims: _squeeze,
    aten.view.default: _reshape,
    aten.reshape.default: _reshape,
    aten._unsafe_view.default: _reshape,
    aten.flatten.using_ints: _reshape,
    aten.unflatten.int: _reshape,
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
}
"""What shows the elements of a tensor otherwise."""
