"""Graphs of ATen operations as functions of `linalg` on tensors."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from . import pointwise
from .builder import Builder
from .products import PRODUCTS
from .reductions import CONSTANTS, REDUCTIONS
from .scalars import Body, ElementValue
from .torch_api import leaves
from .types import Lowering, TensorValue, UnsupportedError, Value, element_of, shape_of
from .views import SPLITS, VIEWS, part_of_split

HANDLERS: Mapping[object, Lowering] = {**VIEWS, **PRODUCTS, **REDUCTIONS, **CONSTANTS}


def is_size(node: Node) -> bool:
    """Whether a node computes a number from sizes, which are read from the results that they are of."""
    return not isinstance(node.meta.get("val"), torch.Tensor)


@dataclass
class Importer:
    """Nodes of a graph as operations of a function. `values` are what they compute."""

    builder: Builder = field(default_factory=Builder)
    values: dict[Node, Value] = field(default_factory=dict[Node, Value])

    def argument(self, node: Node, name: str) -> None:
        """Makes what a node computes an argument of the function."""
        example = node.meta["val"]
        self.values[node] = self.builder.argument(name, shape_of(example), example.dtype)

    def run(self, node: Node) -> None:
        """Appends what a node does.

        Raises:
            UnsupportedError: naming the operation, if there is no form for it.
        """
        if node.op != "call_function":
            raise UnsupportedError(f"{node.op} {node.target} is not lowered")
        if is_size(node):
            return
        if node.target is operator.getitem:
            self.values[node] = self._part(*node.args)
            return
        args, kwargs = map_arg((node.args, node.kwargs), self._resolved)
        try:
            self.values[node] = self._lowered(node, args, kwargs)
        except UnsupportedError as error:
            raise UnsupportedError(f"{node.target}: {error}") from error

    def _part(self, source: Any, index: Any) -> Value:
        """One of the results of an operation that has several."""
        if source.target not in SPLITS:
            raise UnsupportedError(f"{source.target}: there is no form of it in linalg here")
        value, _, *dim = source.args
        return part_of_split(self.builder, self.values[value], source.meta["val"], index, *dim, **source.kwargs)

    def _resolved(self, node: Node) -> Any:
        return self.values[node] if node in self.values else node.meta.get("val")

    def _lowered(self, node: Node, args: Any, kwargs: dict[str, Any]) -> Value:
        like = node.meta["val"]
        element_of(like.dtype)
        handler = HANDLERS.get(node.target)
        if handler is not None:
            return handler(self.builder, like, *args, **{k: v for k, v in kwargs.items() if k not in PLACES})
        if not pointwise.is_pointwise(node.target):
            raise UnsupportedError("there is no form of it in linalg here")
        tensors = [x for x in leaves((args, kwargs)) if isinstance(x, Value)]
        placed = {k: v for k, v in kwargs.items() if k not in PLACES or v is None}

        def body(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
            return pointwise.compute(node.target, args, placed, inside, elements, like.dtype)

        return self.builder.generic(tensors, shape_of(like), like.dtype, body)

    def results(self, nodes: Iterable[Node]) -> list[TensorValue]:
        """The tensors that a function returns: each once, and none of its own arguments."""
        taken = {tensor.name for tensor in self.builder.arguments}
        found: list[TensorValue] = []
        for node in nodes:
            value = self.values[node]
            copied = not value.plain or value.tensor.name in taken
            tensor = self.builder.copied(value).tensor if copied else value.tensor
            taken.add(tensor.name)
            found.append(tensor)
        return found


PLACES = ("layout", "device", "pin_memory", "memory_format", "non_blocking")
"""Arguments of operations that say where tensors lie, which `linalg` on tensors does not."""
