"""Rewrites of graphs of inference: masks and copies that attention need not read, and convolutions of sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any, cast

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from .attention import ATTENTIONS, arguments_of, is_attention
from .builder import is_pointwise
from .options import aten, is_operator
from .scalars import HALVES, shape_of
from .views import FIRST, LAST, is_row_major, is_tensor, replace_by

MAX_ELEMENTS = 1 << 26
"""Elements of a tensor that is computed to know a mask."""

DROPS = -65504.0
"""What torch adds for cuDNN where a mask is false, in bf16 -65536; other masks have less there."""

MASKS = "attn_mask", "attn_bias"
"""What operations call them."""


def simplify_masks(graph: Graph) -> None:
    """Removes masks, in place, that keep all keys, and makes attention causal whose mask is just that: a kernel then
    reads no mask, and no keys that it drops. Masks that follow from an input stay."""
    modes, attentions = import_module("torch.utils._python_dispatch"), list(filter(is_attention, graph.nodes))
    with modes._disable_current_modes(), torch.no_grad():
        values = _fixed(graph, (x for node in attentions for x in map(arguments_of(node).get, MASKS)))
        kinds = {node: _kind(mask) for node, mask in values.items()}
    for node in attentions:
        own = arguments_of(node)
        name = next((n for n in MASKS if own.get(n) in kinds), "")
        if not name or own["is_causal"] or len(kept := shape_of(own[name].meta["val"])) < 2:
            continue
        rows, keys = (shape_of(own[n].meta["val"])[-2] for n in ("query", "key"))
        if (keeps := kinds[own[name]]) == "all" or (keeps == "causal" and kept[-2:] == (rows, keys) and rows == keys):
            schema = node.target._schema.arguments
            passed = {each.name: x for each, x in zip(schema, node.args, strict=False)} | node.kwargs
            passed |= {name: None, "is_causal": keeps == "causal"}
            node.args = tuple(passed.get(each.name, each.default_value) for each in schema if not each.kwarg_only)
            node.kwargs = {each.name: passed[each.name] for each in schema if each.kwarg_only and each.name in passed}
    graph.eliminate_dead_code()


def read_in_place(graph: Graph) -> None:
    """Removes copies of keys and values, in place, where attention can read what is copied: rows without gaps."""
    for node in graph.nodes:
        for x in (arguments_of(node)[name] for name in ("key", "value") if node.target in ATTENTIONS):
            if x.target is aten.clone.default and x.args[0].meta["val"].stride()[-1] == 1:
                node.replace_input_with(x, x.args[0])
    graph.eliminate_dead_code()


def _fixed(graph: Graph, masks: Iterable[object]) -> dict[Node, torch.Tensor]:
    """The values of those masks that follow from no input."""
    values, read = dict[Node, torch.Tensor](), {x for x in masks if isinstance(x, Node)}
    sought = {*read}
    for node in reversed(graph.nodes):
        read.update(node.all_input_nodes if node in read else ())
    for node in graph.nodes:
        if node in read and _is_fixed(node) and values.keys() >= {*node.all_input_nodes}:
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            of_module = node.op == "get_attr"  # a number that torch made a tensor of
            values[node] = getattr(graph.owning_module, node.target) if of_module else node.target(*args, **kwargs)
    return {node: x for node, x in values.items() if node in sought}


def _kind(mask: torch.Tensor) -> str:
    """Whether a mask keeps all keys, or those of causal attention, or "" for others: it is true where it keeps a key,
    or is a number that is added, of which those up to `DROPS` drop a key."""
    mask = mask.as_strided([n if step else 1 for n, step in zip(mask.shape, mask.stride(), strict=True)], mask.stride())
    kept = mask if mask.dtype == torch.bool else mask == 0
    if bool(kept.all()):
        return "all"
    dropped = ~kept if mask.dtype == torch.bool else mask <= DROPS
    is_causal = bool((kept | dropped).all()) and bool((kept == torch.ones_like(kept).tril()).all())
    return "causal" if is_causal else ""


def _is_fixed(node: Node) -> bool:
    """Whether a node is a constant, or an operation that makes one tensor of static size without random numbers."""
    if node.op == "get_attr":
        return type(getattr(node.graph.owning_module, str(node.target), None)) is torch.Tensor
    if not (node.op == "call_function" and is_operator(node.target) and is_tensor(node)):
        return False
    sizes = shape_of(node.meta["val"])
    random = torch.Tag.nondeterministic_seeded in cast("Any", node.target).tags
    is_small = node.target is aten.expand.default or node.meta["val"].numel() <= MAX_ELEMENTS
    return not random and all(isinstance(n, int) for n in sizes) and is_small


SWAPPED = [0, 2, 1]
"""The order of (batch, channels, places) with the channels last, and back."""


def sequences_as_images(graph: Graph) -> None:
    """Makes convolutions of sequences, in place, those of an image whose rows they are, with the channels last, which
    kernels here are for. What is computed of the result alone, such as gelu, is computed there. cuDNN moves the
    channels of sequences last and back, and has slow kernels for groups."""
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        if _is_of_sequences(node):
            *_, last = followers = [node, *_followers(node)]
            back = is_row_major(last.meta["val"])
            if back or is_row_major(last.meta["val"], SWAPPED):
                replace_by(graph, last, partial(_of_images, followers, back), *node.all_input_nodes)
    graph.eliminate_dead_code()


def _is_of_sequences(node: Node) -> bool:
    """Whether a convolution is of sequences of static sizes, of 16-bit floats whose channels fill 16 bytes or have a
    filter each."""
    weight: Any = node.args[1]
    sizes, (_, channels, *taps), like = shape_of(node.meta["val"]), shape_of(weight.meta["val"]), node.meta["val"]
    alone = channels == 1 and node.args[8] == sizes[1]
    return len(taps) == 1 and not node.args[6] and like.dtype in HALVES and (alone or channels % 8 == 0)


def _followers(node: Node) -> Iterator[Node]:
    """The pointwise operations behind a node that read nothing else, one behind the other."""
    while len(node.users) == 1:
        (node,) = node.users
        if not (is_pointwise(node.target) and len(node.all_input_nodes) == 1 and node.meta["val"].dtype in HALVES):
            return
        yield node


def _of_images(nodes: Sequence[Node], back: bool, x: torch.Tensor, weight: torch.Tensor, *bias: torch.Tensor) -> Any:
    """What a convolution of sequences and what follows it compute, by images; `back` moves channels first."""
    _, _, _, steps, padding, dilations, *_, groups = cast("Any", nodes[0].args)
    image = aten.clone(x.permute(SWAPPED), memory_format=torch.contiguous_format)[None].permute(FIRST)
    moves = [1, *steps], [0, *padding], [1, *dilations]
    taps = aten.clone(weight.unsqueeze(2), memory_format=torch.channels_last)
    image = aten.convolution(image, taps, *(bias or [None]), *moves, False, [0, 0], groups)
    image = image.contiguous(memory_format=torch.channels_last)
    for node in nodes[1:]:
        image = cast("Any", node.target)(*(image if isinstance(one, Node) else one for one in node.args), **node.kwargs)
    rows = image.permute(LAST).squeeze(0).permute(SWAPPED)
    return aten.clone(rows, memory_format=torch.contiguous_format) if back else rows
