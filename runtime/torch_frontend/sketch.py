"""Kernels of single operators, made for the tensors of a call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from .options import BackendOptions
from .region import Region, check_precision, kernel_for, write

SMALL = 64
"""Up to so many rows a kernel is made for their number; one of more rows serves any number of them."""


class TensorLayout(NamedTuple):
    """What a kernel depends on of a tensor; with `dynamic`, the first size is not part of it but an example."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dynamic: bool = False


def call(target: Any, *args: Any, rows: int | None = None) -> torch.Tensor:
    """What an operator computes of tensors on the CPU or a GPU, in one kernel.

    `rows` is the number of an argument whose first size is the number of the result's rows.

    Raises:
        CompileError: if it is not lowered for these tensors.
    """
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    key = tuple(_layout(x, i == rows) if isinstance(x, torch.Tensor) else x for i, x in enumerate(args))
    options = BackendOptions()
    check_precision(tensors, drops_bits=options.drops_bits)
    return _region(target, key, tensors[0].device, options.drops_bits)(*tensors)


def _layout(tensor: torch.Tensor, rows: bool) -> TensorLayout:
    shape = tuple(tensor.shape)
    if not rows or shape[0] <= SMALL or not tensor.is_contiguous():
        return TensorLayout(tensor.dtype, shape, tensor.stride())
    example = (SMALL + 1, *shape[1:])
    return TensorLayout(tensor.dtype, example, torch.empty(example, device="meta").stride(), dynamic=True)


@cache
def _region(target: Any, key: Sequence[Any], device: torch.device, tf32: bool) -> Region:
    fake: Any = import_module("torch._subclasses.fake_tensor")
    symbolic: Any = import_module("torch.fx.experimental.symbolic_shapes")
    graph, mode = Graph(), fake.FakeTensorMode(shape_env=symbolic.ShapeEnv())
    args = [_input(graph, mode, x) if isinstance(x, TensorLayout) else x for x in key]
    node = graph.call_function(target, tuple(args))
    with mode:
        node.meta["val"] = target(*(x.meta["val"] if isinstance(x, Node) else x for x in args))
    written = write([node], [x for x in args if isinstance(x, Node)])
    return Region(written, kernel_for(written.text, device, BackendOptions(tf32=tf32)))


def _input(graph: Graph, mode: Any, layout: TensorLayout) -> Node:
    symbolic: Any = import_module("torch.fx.experimental.symbolic_shapes")
    kinds = [symbolic.DimDynamic.STATIC] * len(layout.shape)
    if layout.dynamic:
        kinds[0] = symbolic.DimDynamic.DYNAMIC
    node = graph.placeholder("input")
    whole = torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device="meta")
    node.meta["val"] = mode.from_tensor(whole, symbolic_context=symbolic.StatelessSymbolicContext(kinds))
    return node
