"""Convolutions of sequences, as models of sound have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch.fx import Graph, Node

from .builder import is_pointwise
from .options import aten
from .scalars import HALVES, shape_of
from .views import FIRST, LAST, is_row_major, replace_by

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
    image, taps = (
        aten.clone(x.permute(SWAPPED), memory_format=torch.contiguous_format)[None].permute(FIRST),
        weight.unsqueeze(2),
    )
    moves = [1, *steps], [0, *padding], [1, *dilations]
    taps = aten.clone(taps, memory_format=torch.channels_last)
    image = aten.convolution(image, taps, *(bias or [None]), *moves, False, [0, 0], groups)
    image = image.contiguous(memory_format=torch.channels_last)
    for node in nodes[1:]:
        image = cast("Any", node.target)(*(image if isinstance(one, Node) else one for one in node.args), **node.kwargs)
    rows = image.permute(LAST).squeeze(0).permute(SWAPPED)
    return aten.clone(rows, memory_format=torch.contiguous_format) if back else rows
