"""Pointwise operations of ATen: decomposed by torch into primitive ones, which are computed on one element."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from .scalars import RULES, Body, ElementOrNumber, ElementValue
from .torch_api import aten, decompositions, flatten, is_operator, leaves, prims, traced, unflatten
from .types import Expression, Size, TensorValue, UnsupportedError, Value, element_of, scalar_of, shape_of

CONVERSIONS = frozenset({aten._to_copy.default, prims.convert_element_type.default})
"""Conversions of elements, which torch does not tag as pointwise."""

PLACES = ("layout", "device", "pin_memory", "memory_format", "non_blocking")
"""Arguments of operations that say where tensors lie, which `linalg` on tensors does not."""

EXAMPLE_SIZE = 7
"""How many elements the tensors have that an operation is decomposed with."""


class TensorLike(NamedTuple):
    """What the decomposition of an operation depends on of a tensor."""

    dtype: torch.dtype
    number: bool
    """Whether it has no dimensions, and so less say in the type of the result."""


Given: TypeAlias = Any
"""An argument of an operation: a number, a type, a sequence of these, or a `Value`."""


def is_pointwise(target: Any) -> bool:
    """Whether an operation computes each element from those of its operands in the same place."""
    if not is_operator(target) or target._schema.is_mutable:
        return False
    return (
        torch.Tag.pointwise in target.tags
        or target in CONVERSIONS
        or (target.namespace == "prims" and name_of(target) in RULES)
    )


def name_of(target: object) -> str:
    """`add` of `torch.ops.prims.add.default`."""
    return str(target).split(".")[1]


def expression(
    target: Any, args: Sequence[Given], kwargs: dict[str, Given], shape: tuple[Size, ...], dtype: torch.dtype
) -> Expression:
    """A pointwise operation as what it computes of the elements of values."""
    parts = [x for x in leaves((args, kwargs)) if isinstance(x, Value | Expression)]
    values = [v for x in parts for v in (x.values if isinstance(x, Expression) else [x])]
    placed = {k: v for k, v in kwargs.items() if k not in PLACES or v is None}

    def body(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
        left = list(elements)
        computed: list[ElementValue] = []
        for part in parts:
            count = len(part.values) if isinstance(part, Expression) else 1
            own, left = left[:count], left[count:]
            computed.append(part.body(inside, own) if isinstance(part, Expression) else own[0])
        return compute(target, args, placed, inside, computed, dtype)

    return Expression(tuple(values), body, shape, dtype)


def compute(
    target: Any,
    args: Sequence[Given],
    kwargs: dict[str, Given],
    body: Body,
    elements: Sequence[ElementValue],
    dtype: torch.dtype,
) -> ElementValue:
    """Appends what a pointwise operation does to elements, those of the values and expressions among its arguments in
    order; the result is of `dtype`.

    Raises:
        UnsupportedError: naming what is not lowered.
    """
    if target in CONVERSIONS:
        return body.convert(elements[0], dtype)
    flat, spec = flatten((tuple(args), kwargs))
    if any(isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool | Node) for x in flat):
        raise UnsupportedError(f"{target} takes a number that depends on sizes")
    key = tuple(TensorLike(x.dtype, not x.shape) if isinstance(x, Value | Expression) else x for x in flat)
    graph = _decomposed(target, key, tuple(map(type, key)), spec)
    known: dict[Node, ElementOrNumber] = {}
    inputs = iter(elements)
    for node in graph.nodes:
        if node.op == "placeholder":
            known[node] = next(inputs)
        elif node.op == "output":
            (result,) = leaves(node.args)
            return body.convert(_operand(known[result], body, dtype), dtype)
        else:
            known[node] = _primitive(node, known, body)
    raise AssertionError("a graph ends with its output")


def _operand(value: ElementOrNumber, body: Body, dtype: torch.dtype) -> ElementValue:
    return value if isinstance(value, ElementValue) else body.number(value, scalar_of(dtype))


def _primitive(node: Node, known: dict[Node, ElementOrNumber], body: Body) -> ElementOrNumber:
    name = name_of(node.target)
    given = [known[x] if isinstance(x, Node) else x for x in node.args]
    if name in ("full_like", "full", "scalar_tensor"):
        return cast("float", given[0] if name == "scalar_tensor" else given[1])
    if name in ("broadcast_in_dim", "view_of", "clone", "empty_strided", "empty_like", "device_put"):
        return given[0] if isinstance(given[0], ElementValue | float | int | bool) else 0.0
    if name == "convert_element_type":
        dtype = cast("torch.dtype", given[1])
        return body.convert(_operand(cast("ElementOrNumber", given[0]), body, dtype), dtype)
    if name not in RULES:
        raise UnsupportedError(f"{node.target} is not lowered")
    operands = [x for x in given if isinstance(x, ElementValue | float | int | bool)]
    if not any(isinstance(x, ElementValue) for x in operands):
        raise UnsupportedError(f"{node.target} of constants is not lowered")
    return RULES[name](body, operands)


def obstacle(node: Node) -> str:
    """Why a pointwise node has no form here, "" if it has one."""
    try:
        args, kwargs = map_arg((node.args, node.kwargs), _stood_for)
        found = expression(node.target, cast("Any", args), cast("Any", kwargs), (), node.meta["val"].dtype)
        body = Body()
        found.body(body, [body.loaded(f"%{i}", value.dtype) for i, value in enumerate(found.values)])
    except UnsupportedError as error:
        return str(error)
    return ""


def _stood_for(node: Node) -> Any:
    example = node.meta["val"]
    if not isinstance(example, torch.Tensor):
        return example
    element = element_of(example.dtype)
    return Value(TensorValue("%", (), element), (None,) * example.ndim, shape_of(example), example.dtype)


@cache
def _decomposed(target: Any, key: tuple[Given, ...], kinds: tuple[type, ...], spec: Any) -> Graph:
    """What an operation is in primitive ones, with an argument for each tensor of the key; `kinds` tell 1 from 1.0."""
    likes = [x for x in key if isinstance(x, TensorLike)]

    def call(*tensors: torch.Tensor) -> object:
        given = iter(tensors)
        args, kwargs = unflatten((next(given) if isinstance(x, TensorLike) else x for x in key), spec)
        return target(*args, **kwargs)

    tensors = [torch.empty([] if x.number else [EXAMPLE_SIZE], dtype=x.dtype, device="meta") for x in likes]
    return traced(call, tensors, decompositions())
