"""Convolutions of sequences, as models of sound have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch.fx import Graph, Node

from .builder import is_pointwise
from .options import aten
from .scalars import HALVES, shape_of
from .views import FIRST, LAST, called, has_channels_last, is_row_major, take_place

SWAPPED = [0, 2, 1]
"""The order of (batch, channels, places) with the channels last, and back."""


def sequences_as_images(graph: Graph) -> None:
    """Makes convolutions of sequences, in place, those of an image whose rows they are, with the channels last, which
    kernels here are for. What is computed of the result alone, such as gelu, is computed there. cuDNN moves the
    channels of sequences last and back, and has slow kernels for groups."""
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        if _is_of_sequences(node):
            followers = [node, *_followers(node)]
            back = is_row_major(followers[-1].meta["val"])
            if back or is_row_major(followers[-1].meta["val"], SWAPPED):
                with graph.inserting_before(followers[-1]):
                    take_place(graph, followers[-1], list(_of_images(graph, followers, back)))
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


def _of_images(graph: Graph, nodes: list[Node], back: bool) -> Iterator[Node]:
    """New nodes in the place of a convolution of sequences and of what follows it; `back` moves channels first."""
    x, weight, bias, steps, padding, dilations, _, _, groups = cast("Any", nodes[0].args)
    yield (rows := called(graph, aten.permute.default, x, SWAPPED))
    yield (rows := called(graph, aten.clone.default, rows, memory_format=torch.contiguous_format))
    yield (image := called(graph, aten.unsqueeze.default, rows, 0))
    yield (image := called(graph, aten.permute.default, image, FIRST))
    yield (taps := called(graph, aten.unsqueeze.default, weight, 2))
    yield (taps := called(graph, aten.clone.default, taps, memory_format=torch.channels_last))
    moves = [1, *steps], [0, *padding], [1, *dilations]
    yield (image := called(graph, nodes[0].target, image, taps, bias, *moves, False, [0, 0], groups))
    if not has_channels_last(image.meta["val"]):
        yield (image := called(graph, aten.clone.default, image, memory_format=torch.channels_last))
    for node in nodes[1:]:
        args = [image if one is node.all_input_nodes[0] else one for one in node.args]
        yield (image := called(graph, node.target, *args, **node.kwargs))
    yield (image := called(graph, aten.permute.default, image, LAST))
    yield (rows := called(graph, aten.squeeze.dim, image, 0))
    yield (rows := called(graph, aten.permute.default, rows, SWAPPED))
    if back:
        yield called(graph, aten.clone.default, rows, memory_format=torch.contiguous_format)
