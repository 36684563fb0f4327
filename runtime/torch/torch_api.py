"""What is used of torch without types or public names, and its sparse matrices compressed on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, cast

import ml_dtypes
import torch
from torch.fx import Graph, GraphModule

from ...dialect.isa.types import ELEMENT_TYPES
from ...dialect.layouts.layout import LANES
from ...dialect.warp.operands import METADATA_ROWS, metadata_span
from ..arguments.sparse import compress
from ..base.errors import ArgumentError
from ..numerics.array import Array

# What is used of torch that has no types, or is not among its public names.

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
    module: Any = import_module("torch._decomp")
    return dict(module.decomposition_table if operators is None else module.get_decompositions(operators))


def traced(function: Callable[..., object], tensors: Sequence[torch.Tensor], table: dict[Any, Any]) -> Graph:
    """The graph of operators that a function calls, with some of them decomposed."""
    proxy_tensor: Any = import_module("torch.fx.experimental.proxy_tensor")
    module: GraphModule = proxy_tensor.make_fx(function, decomposition_table=table)(*tensors)
    module.graph.eliminate_dead_code()
    return module.graph


def expression(size: Any) -> Any:
    """What a size that torch knows by a symbol is: a number, or an expression of sympy."""
    number = size.node.maybe_as_int()
    return size.node.expr if number is None else number


# Sparse matrices of torch: compressed on the host.

WORDS = {torch.bfloat16: ml_dtypes.bfloat16, torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn}
"""numpy's types of elements that torch does not pass to it."""

SPARSE_ELEMENTS = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "tf32",
    torch.int8: "s8",
    torch.float8_e4m3fn: "e4m3",
}
"""What the ISA calls the types that a sparse matrix can have."""


def metadata_shape(rows: int, columns: int, dtype: torch.dtype) -> tuple[int, int]:
    """The sizes of the metadata of a sparse matrix.

    Raises:
        ArgumentError: for elements that no instruction takes.
    """
    if dtype not in SPARSE_ELEMENTS:
        raise ArgumentError(f"there is no sparse matrix of {dtype}; expected {', '.join(map(str, SPARSE_ELEMENTS))}")
    return -(-rows // METADATA_ROWS), -(-columns // metadata_span(ELEMENT_TYPES[SPARSE_ELEMENTS[dtype]])) * LANES


def compressed(dense: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The stored elements and the metadata of a matrix with half of its elements zero; see `runtime.compress`.

    Raises:
        ArgumentError: if it breaks the pattern, naming the place.
    """
    values, metadata = compress(_array(dense.detach().cpu().contiguous()))
    stored = from_numpy(values.view(f"i{values.itemsize}")).view(dense.dtype)
    return stored.to(dense.device), from_numpy(metadata).to(dense.device)


def _array(tensor: torch.Tensor) -> Array:
    if tensor.dtype not in WORDS:
        return tensor.numpy()
    integer = torch.int16 if tensor.element_size() == 2 else torch.int8
    return tensor.view(integer).numpy().view(WORDS[tensor.dtype])
