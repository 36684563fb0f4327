"""What is used of torch that has no types, or is not among its public names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule

from ..numerics.array import Array

_pytree: Any = import_module("torch.utils._pytree")
_ops: Any = import_module("torch._ops")
sympy: Any = import_module("sympy")

library: Any = torch.library
aten: Any = torch.ops.aten
prims: Any = torch.ops.prims


def from_numpy(array: Array) -> torch.Tensor:
    """A tensor that shares an array's memory."""
    return cast("Any", torch).from_numpy(array)


def leaves(tree: object) -> list[Any]:
    """The values in nested tuples, lists and dictionaries."""
    return list(_pytree.tree_leaves(tree))


def flatten(tree: object) -> tuple[list[Any], Any]:
    """The values in nested tuples, lists and dictionaries, and how they were nested."""
    return _pytree.tree_flatten(tree)


def unflatten(values: Iterable[object], nesting: object) -> Any:
    """The converse of `flatten`."""
    return _pytree.tree_unflatten(list(values), nesting)


def is_operator(target: object) -> bool:
    """Whether the target of a node is an operator of torch, such as `torch.ops.aten.mm.default`."""
    return isinstance(target, _ops.OpOverload)


def decompositions(operators: Sequence[object] | None = None) -> dict[Any, Any]:
    """How torch writes operators in simpler ones; all that it knows, if none are named."""
    found: Any = import_module("torch._decomp")
    return dict(found.decomposition_table if operators is None else found.get_decompositions(operators))


def traced(function: Callable[..., object], tensors: Sequence[torch.Tensor], table: dict[Any, Any]) -> Graph:
    """The graph of operators that a function calls, with some of them decomposed."""
    proxy_tensor: Any = import_module("torch.fx.experimental.proxy_tensor")
    found: GraphModule = proxy_tensor.make_fx(function, decomposition_table=table)(*tensors)
    found.graph.eliminate_dead_code()
    return found.graph


def expression(size: Any) -> Any:
    """What a size that torch knows by a symbol is: a number, or an expression of sympy."""
    known = size.node.maybe_as_int()
    return size.node.expr if known is None else known
