"""Reductions along dimensions, and tensors of one number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

from .builder import Builder, plain
from .scalars import RULES, Body, ElementValue
from .torch_api import aten, prims
from .types import Lowering, UnsupportedError, Value, element_of, shape_of


def _filled(builder: Builder, like: torch.Tensor, first: object, number: object = None, **_: object) -> Value:
    given = number if number is not None else first
    if not isinstance(given, int | float):
        raise UnsupportedError("a tensor filled with a number that is not known is not lowered")
    return plain(builder.filled(shape_of(like), element_of(like.dtype), given), like.dtype)


def _constant(number: float) -> Lowering:
    def handler(builder: Builder, like: torch.Tensor, *_: object, **__: object) -> Value:
        return plain(builder.filled(shape_of(like), element_of(like.dtype), number), like.dtype)

    return handler


def _axes(dims: Sequence[int] | int | None, rank: int) -> list[int]:
    asked = [dims] if isinstance(dims, int) else dims
    return sorted(d % rank for d in asked) if asked else list(range(rank))


def _kept(value: Value, axes: Sequence[int], rank: int, keepdim: bool) -> Value:
    """A reduced value with a dimension of one element in the place of each that was reduced, if these are kept."""
    dims, shape = list(value.dims), list(value.shape)
    for axis in axes if keepdim else ():
        dims.insert(axis, None)
        shape.insert(axis, 1)
    return Value(value.tensor, tuple(dims), tuple(shape), value.dtype)


def _reduction(rule: str, start: float) -> Lowering:
    """A sum, a maximum, a minimum; sums of 16-bit floats are kept in f32 and rounded once."""

    def handler(
        builder: Builder,
        like: torch.Tensor,
        value: Value,
        dims: Sequence[int] | int | None = None,
        keepdim: bool = False,
        **_: object,
    ) -> Value:
        narrow = value.dtype in (torch.float16, torch.bfloat16)
        wide = torch.float32 if rule == "add" and narrow else like.dtype
        axes = _axes(dims, len(value.shape))
        widened = value if value.dtype == wide else _converted(builder, value, wide)

        def body(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
            return RULES[rule](inside, list(elements))

        found = builder.reduce(widened, axes, start, body)
        found = found if wide == like.dtype else _converted(builder, found, like.dtype)
        return _kept(found, axes, len(value.shape), keepdim)

    return handler


def _converted(builder: Builder, value: Value, dtype: torch.dtype) -> Value:
    return builder.generic([value], value.shape, dtype, lambda body, elements: body.convert(elements[0], dtype))


def _count(value: Value, axes: Sequence[int]) -> int:
    """How many elements lie along some dimensions."""
    sizes = [value.shape[axis] for axis in axes]
    if not all(isinstance(size, int) for size in sizes):
        raise UnsupportedError("a mean along a dimension of unknown size is not lowered")
    return math.prod(cast("list[int]", sizes))


def _scaled(builder: Builder, value: Value, factor: float) -> Value:
    return builder.generic([value], value.shape, value.dtype, lambda body, x: RULES["mul"](body, [x[0], factor]))


def _mean(
    builder: Builder, like: torch.Tensor, value: Value, dims: Any = None, keepdim: bool = False, **_: object
) -> Value:
    count = _count(value, _axes(dims, len(value.shape)))
    return _scaled(builder, _reduction("add", 0.0)(builder, like, value, dims, keepdim), 1 / count)


def _variance(
    builder: Builder, like: torch.Tensor, value: Value, dims: Sequence[int] | None, correction: float = 1, **_: object
) -> Value:
    """The mean of squared distances from the mean; the divisor is less by `correction`."""
    axes = _axes(dims, len(value.shape))
    mean = _kept(_mean(builder, like, value, dims), axes, len(value.shape), keepdim=True)
    count = _count(value, axes)

    def squared(body: Body, elements: Sequence[ElementValue]) -> ElementValue:
        distance = RULES["sub"](body, list(elements))
        return RULES["mul"](body, [distance, distance])

    squares = builder.generic([value, mean], value.shape, value.dtype, squared)
    total = _reduction("add", 0.0)(builder, like, squares, dims)
    return _scaled(builder, total, 1 / max(0.0, count - correction) if count > correction else math.inf)


CONSTANTS: Mapping[object, Lowering] = {
    aten.full.default: _filled,
    aten.full_like.default: _filled,
    aten.scalar_tensor.default: _filled,
    aten.zeros.default: _constant(0),
    aten.zeros_like.default: _constant(0),
    aten.ones.default: _constant(1),
    aten.ones_like.default: _constant(1),
}
"""Tensors of one number."""

REDUCTIONS: Mapping[object, Lowering] = {
    aten.sum.dim_IntList: _reduction("add", 0.0),
    aten.sum.default: _reduction("add", 0.0),
    prims.sum.default: _reduction("add", 0.0),
    aten.amax.default: _reduction("maximum", -math.inf),
    aten.amin.default: _reduction("minimum", math.inf),
    aten.any.dim: _reduction("bitwise_or", 0),
    aten.any.default: _reduction("bitwise_or", 0),
    aten.mean.dim: _mean,
    aten.mean.default: _mean,
    prims.var.default: _variance,
}
"""Operations that take elements along some dimensions together."""
