"""Graphs of ATen operations as functions of `linalg` on tensors."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from . import pointwise
from .builder import Builder
from .products import PRODUCTS
from .reductions import CONSTANTS, REDUCTIONS
from .types import Expression, Lowering, TensorValue, UnsupportedError, Value, element_of, shape_of
from .views import SPLITS, VIEWS, part_of_split

HANDLERS: Mapping[object, Lowering] = {**VIEWS, **PRODUCTS, **REDUCTIONS, **CONSTANTS}


def is_size(node: Node) -> bool:
    """Whether a node computes a number from sizes, which are read from the results that they are of."""
    return not isinstance(node.meta.get("val"), torch.Tensor)


@dataclass
class Importer:
    """Nodes of a graph as operations of a function. `values` are what they compute; pointwise nodes that are `inlined`
    are computed where they are used, by a pointwise node of the same shape: a copy too, which is a view elsewhere."""

    builder: Builder = field(default_factory=Builder)
    values: dict[Node, Value] = field(default_factory=dict[Node, Value])
    inlined: frozenset[Node] = frozenset()
    expressions: dict[Node, Expression] = field(default_factory=dict[Node, Expression])

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
            self._lower(node, args, kwargs)
        except UnsupportedError as error:
            raise UnsupportedError(f"{node.target}: {error}") from error

    def _part(self, source: Any, index: Any) -> Value:
        """One of the results of an operation that has several."""
        if source.target not in SPLITS:
            raise UnsupportedError(f"{source.target}: there is no form of it in linalg here")
        value, _, *dim = source.args
        return part_of_split(self.builder, self.values[value], source.meta["val"], index, *dim, **source.kwargs)

    def _resolved(self, node: Node) -> Any:
        if node in self.expressions:
            return self.expressions[node]
        return self.values[node] if node in self.values else node.meta.get("val")

    def _lower(self, node: Node, args: Any, kwargs: dict[str, Any]) -> None:
        like = node.meta["val"]
        element_of(like.dtype)
        handler = HANDLERS.get(node.target)
        if handler is not None and self.expressions.keys().isdisjoint(node.all_input_nodes):
            given = {k: v for k, v in kwargs.items() if k not in pointwise.PLACES}
            self.values[node] = handler(self.builder, like, *args, **given)
        elif pointwise.is_pointwise(node.target):
            found = pointwise.expression(node.target, args, kwargs, shape_of(like), like.dtype)
            if node in self.inlined:
                self.expressions[node] = found
            else:
                self.values[node] = self.builder.generic(found.values, found.shape, found.dtype, found.body)
        else:
            raise UnsupportedError("there is no form of it in linalg here")

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
