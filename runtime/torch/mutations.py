"""Inputs that a graph changes: the change happens in place where nothing needs the old elements.

torch writes `cache.index_copy_(0, at, rows)` as a copy of the cache with the rows in it, and a copy back. This makes
one operation in place of both.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from .torch_api import aten, is_operator
from .views import VIEWS, is_tensor

SCATTERS: Mapping[object, tuple[Any, int]] = {
    aten.slice_scatter.default: (aten.slice.Tensor, 4),
    aten.select_scatter.default: (aten.select.int, 2),
}
"""Operations that replace a part of a tensor: the view that is this part, and how many arguments say which it is."""


def reinplace(graph: Graph) -> int:
    """Replaces copies of changed inputs by changes in place; how many there were."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    copies = [node for node in graph.nodes if node.op == "call_function" and node.target == aten.copy_.default]
    return sum(_reinplaced(graph, copy, order) for copy in copies)


def _reinplaced(graph: Graph, copy: Node, order: Mapping[Node, int]) -> bool:
    target, changed = copy.args[:2]
    if not (isinstance(target, Node) and isinstance(changed, Node) and target.op == "placeholder"):
        return False
    if changed.op != "call_function" or not changed.args or changed.args[0] is not target:
        return False
    if not _alike(target, changed) or _used_after(target, order[changed], copy, order):
        return False
    change = _in_place(changed)
    if change is None:
        return False
    with graph.inserting_before(changed):
        change(graph).meta = dict(changed.meta)
    copy.replace_all_uses_with(target)
    changed.replace_all_uses_with(target)
    graph.erase_node(copy)
    graph.erase_node(changed)
    return True


def _alike(target: Node, changed: Node) -> bool:
    """Whether what is copied back has the sizes and the type of the input, so that the copy converts nothing."""
    first, second = target.meta["val"], changed.meta["val"]
    return is_tensor(changed) and first.dtype == second.dtype and first.shape == second.shape


def _used_after(target: Node, place: int, copy: Node, order: Mapping[Node, int]) -> bool:
    """Whether an operation behind a place reads the old elements: the input, or what may be a view of it."""
    aliases, queue = {target}, [target]
    while queue:
        for user in queue.pop().users:
            if user is copy or user in aliases:
                continue
            if order[user] > place:
                return True
            if user.target in VIEWS or user.target in (operator.getitem, aten.alias.default, aten.detach.default):
                aliases.add(user)
                queue.append(user)
    return False


def _in_place(changed: Node) -> Callable[[Graph], Node] | None:
    """What writes the change that an operation computes into its first argument; None where there is no such form."""
    target: Any = changed.target
    args: tuple[Any, ...] = changed.args
    kwargs = dict(changed.kwargs)
    if target in SCATTERS:
        view, count = SCATTERS[target]
        source, where = args[1], args[2 : 2 + count]

        def replaced(graph: Graph) -> Node:
            part = graph.call_function(view, (args[0], *where), kwargs)
            part.meta = dict(source.meta)
            return graph.call_function(aten.copy_.default, (part, source))

        return replaced
    if not is_operator(target) or torch.Tag.pointwise in target.tags:
        return None
    name, _, overload = str(target).removeprefix("aten.").partition(".")
    packet = getattr(aten, f"{name}_", None)
    if packet is None or overload not in packet.overloads():
        return None
    return lambda graph: graph.call_function(getattr(packet, overload), args, kwargs)
