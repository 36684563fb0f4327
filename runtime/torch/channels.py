"""Graphs with channels last in memory: convolutions of single pixels as products, and orders of dimensions moved behind
the pointwise operations that follow them, so that these are computed where the product is.

    relu(permute(view(mm), (0, 3, 1, 2)) * scale[:, None, None])
    becomes permute(view(relu(mm * scale)), (0, 3, 1, 2))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from .builder import is_pointwise
from .options import aten
from .scalars import shape_of
from .views import RESHAPES, called, is_row_major, is_tensor, sink_view, take_place

LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
"""Orders of (batch, channels, rows, columns) with the channels last, and back."""


def pixels_as_products(graph: Graph, mode: Any) -> None:
    """Replaces convolutions of single pixels by products, in place, and moves orders of dimensions behind pointwise
    operations; `mode` is torch's of the graph's fake tensors."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is aten.convolution.default and _is_of_pixels(node):
            _replace(graph, node, mode)
        elif is_pointwise(node.target) and not _sink(graph, node, mode):
            sink_view(graph, node, mode)
    graph.eliminate_dead_code()


def _example(node: Any) -> torch.Tensor:
    return node.meta["val"]


def _is_of_pixels(node: Node) -> bool:
    """Whether a convolution is a product for each pixel of an image whose channels lie together, and so of its
    result."""
    options = [list(o) if isinstance(o, Sequence) else o for o in node.args[3:]]
    if options != [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]:
        return False
    images = [_example(x) for x in (*node.args[:2], node)]
    if any(image.dim() != 4 or not all(isinstance(size, int) for size in shape_of(image)) for image in images):
        return False
    return images[1].shape[2:] == (1, 1) and all(is_row_major(image.permute(LAST)) for image in images)


def _replace(graph: Graph, node: Node, mode: Any) -> None:
    x, weight, bias = node.args[:3]
    batch, channels, height, width = shape_of(_example(node))
    inputs = shape_of(_example(weight))[1]
    with graph.inserting_before(node):

        def call(target: Any, *args: Any) -> Node:
            return called(graph, target, args, {}, mode)

        rows = call(aten.reshape.default, call(aten.permute.default, x, LAST), [batch * height * width, inputs])
        turned = call(aten.permute.default, call(aten.reshape.default, weight, [channels, inputs]), [1, 0])
        product = call(aten.mm.default, rows, turned) if bias is None else call(aten.addmm.default, bias, rows, turned)
        image = call(aten.view.default, product, [batch, height, width, channels])
        back = call(aten.permute.default, image, FIRST)
    take_place(graph, node, (product, image, back))


def _sink(graph: Graph, node: Node, mode: Any) -> bool:
    """Computes a pointwise operation before an order of dimensions of one of its operands; whether there is one."""
    operands = [x for x in node.args if isinstance(x, Node)]
    if not all(map(is_tensor, (node, *operands))) or any(isinstance(x, Node) for x in node.kwargs.values()):
        return False
    shape = shape_of(_example(node))
    same = [source for x in operands if shape_of(_example(x)) == shape and (source := _channels_last(x)) is not None]
    if not any(x.target in RESHAPES for x in same) or not all(_moves(x, shape) for x in operands):
        return False
    with graph.inserting_before(node):
        args = tuple(_moved(graph, x, shape, mode) if isinstance(x, Node) else x for x in node.args)
        computed = called(graph, node.target, args, dict(node.kwargs), mode)
        back = called(graph, aten.permute.default, (computed, FIRST), {}, mode)
    take_place(graph, node, (computed, back))
    sink_view(graph, computed, mode)
    return True


def _channels_last(node: Node) -> Node | None:
    """What an image with its channels first is an order of, if it is one."""
    places: Any = node.args[1] if node.target is aten.permute.default else ()
    return node.all_input_nodes[0] if list(places) == FIRST else None


def _moves(node: Node, shape: tuple[Any, ...]) -> bool:
    """Whether an operand has a form with the channels last that costs no copy."""
    own = shape_of(_example(node))
    if own == shape:
        return is_row_major(_example(node).permute(LAST))
    return math.prod(own) == 1 or (len(own) >= 3 and math.prod(own) == own[-3] == shape[1])


def _moved(graph: Graph, node: Node, shape: tuple[Any, ...], mode: Any) -> Node:
    own = shape_of(_example(node))
    if own == shape:
        return _channels_last(node) or called(graph, aten.permute.default, (node, LAST), {}, mode)
    return called(graph, aten.reshape.default, (node, [] if math.prod(own) == 1 else [own[-3]]), {}, mode)
