"""What is not compiled, handed to inductor."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .sinking import is_tensor
from .views import VIEWS


class _Compiled(torch.nn.Module):
    """A compiled function as a module."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: object) -> object:
        return self._function(*inputs)


def hand_over(module: GraphModule) -> None:
    """Lets inductor compile each part of a graph between calls of kernels, in place.

    Parts that compute nothing, but views and sizes, stay as they are.
    """
    split: Any = import_module("torch.fx.passes.split_module")
    inductor: Any = import_module("torch._inductor")
    part_of: dict[Node, int] = {}
    number = 0
    for node in module.graph.nodes:
        if node.op == "call_module":
            number += 1
            part_of[node] = number
            number += 1
        else:
            part_of[node] = number
    parts = split.split_module(module, module, part_of.__getitem__, keep_original_order=True)
    for node in parts.graph.nodes:
        if node.op == "call_module":
            part = parts.get_submodule(node.target)
            if any(n.op == "call_function" and is_tensor(n) and n.target not in VIEWS for n in part.graph.nodes):
                examples = [n.meta["val"] for n in part.graph.nodes if n.op == "placeholder"]
                parts.set_submodule(node.target, _Compiled(inductor.compile(part, examples)))
    for name, part in parts.named_children():
        module.add_submodule(name, part)
    module.graph = parts.graph
