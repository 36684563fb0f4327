"""What attention need not read: masks that follow from no input, as models of `transformers` write a causal mask as a
tensor, and copies of keys and values."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from .attention import ATTENTIONS, arguments_of, is_attention
from .options import aten, is_operator
from .scalars import shape_of
from .views import is_tensor

MAX_ELEMENTS = 1 << 26
"""Elements of a tensor that is computed to know a mask."""


def simplify_masks(graph: Graph) -> None:
    """Removes masks, in place, that keep all keys, and makes attention causal whose mask is just that: a kernel then
    reads no mask, and no keys that it drops. Masks that follow from an input stay."""
    values, kinds = dict[Node, torch.Tensor | None](), dict[Node, str]()
    modes: Any = import_module("torch.utils._python_dispatch")._disable_current_modes
    for node in filter(is_attention, graph.nodes):
        own = arguments_of(node)
        name = next((n for n in ("attn_mask", "attn_bias") if is_tensor(own.get(n))), "")
        if not name or own["is_causal"] or len(kept := shape_of(own[name].meta["val"])) < 2:
            continue
        if (mask := own[name]) not in kinds:
            with modes(), torch.no_grad():
                kinds[mask] = _kind(_value(mask, values))
        sizes = [shape_of(own[n].meta["val"])[-2] for n in ("query", "key")]
        if kinds[mask] == "all" or (kinds[mask] == "causal" and [*kept[-2:]] == sizes and sizes[0] == sizes[1]):
            _set(node, name, None)
            _set(node, "is_causal", kinds[mask] == "causal")
    graph.eliminate_dead_code()


def read_in_place(graph: Graph) -> None:
    """Removes copies of keys and values, in place, where attention can read what is copied: rows without gaps."""
    for node in graph.nodes:
        for x in (arguments_of(node)[name] for name in ("key", "value") if node.target in ATTENTIONS):
            if x.target is aten.clone.default and x.args[0].meta["val"].stride()[-1] == 1:
                node.replace_input_with(x, x.args[0])
    graph.eliminate_dead_code()


def _kind(mask: torch.Tensor | None) -> str:
    """Whether a mask keeps all keys, or those of causal attention, or "" for others: it is true where it keeps a key,
    or is a number that is added, of which the least ones drop a key."""
    if mask is None:
        return ""
    mask = mask.as_strided([n if step else 1 for n, step in zip(mask.shape, mask.stride(), strict=True)], mask.stride())
    kept = mask if mask.dtype == torch.bool else mask == 0
    if bool(kept.all()):
        return "all"
    dropped = ~kept if mask.dtype == torch.bool else mask <= torch.finfo(mask.dtype).min
    is_causal = bool((kept | dropped).all()) and bool((kept == torch.ones_like(kept).tril()).all())
    return "causal" if is_causal else ""


def _value(node: Node, values: dict[Node, torch.Tensor | None]) -> torch.Tensor | None:
    """What a node computes, where that follows from no input; `values` are those of other nodes."""
    stack = [node]
    while stack:
        top = stack[-1]
        if top.op == "get_attr":  # a number that torch made a tensor of
            own = getattr(top.graph.owning_module, str(top.target), None)
            values[stack.pop()] = own if type(own) is torch.Tensor else None
            continue
        missing = [x for x in top.all_input_nodes if x not in values]
        if top in values or not _is_fixed(top) or any(values.get(x, top) is None for x in top.all_input_nodes):
            values.setdefault(stack.pop(), None)
        elif missing:
            stack += missing
        else:
            args, kwargs = map_arg((top.args, top.kwargs), values.__getitem__)
            values[stack.pop()] = cast("Any", top.target)(*args, **kwargs)
    return values[node]


def _is_fixed(node: Node) -> bool:
    """Whether a node is an operation that makes one tensor of static size without random numbers."""
    if not (node.op == "call_function" and is_operator(node.target) and is_tensor(node)):
        return False
    sizes = shape_of(node.meta["val"])
    random = torch.Tag.nondeterministic_seeded in cast("Any", node.target).tags
    is_small = node.target is aten.expand.default or node.meta["val"].numel() <= MAX_ELEMENTS
    return not random and all(isinstance(n, int) for n in sizes) and is_small


def _set(node: Node, name: str, value: bool | None) -> None:
    """Changes an argument of an operation by its name."""
    schema = cast("Any", node.target)._schema.arguments
    place = next(number for number, each in enumerate(schema) if each.name == name)
    if schema[place].kwarg_only:
        node.update_kwarg(name, value)
        return
    missing = [each.default_value for each in schema[len(node.args) : place + 1]]
    node.args = (*node.args, *missing)
    node.update_arg(place, value)
