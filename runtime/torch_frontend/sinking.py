"""Views behind what follows them: an operation on the elements of a view of a product becomes one on the product.

    view(addmm(...), (b, s, n)) -> gelu         becomes         addmm(...) -> gelu -> view(..., (b, s, n))

so that it can be computed where the product is. A product of batches that torch made one, with copies of what is
broadcast, becomes one of all its batches again.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.fx import Graph, Node

from .layouts import is_row_major
from .pointwise import is_pointwise
from .torch_api import aten
from .types import Size, shape_of

RESHAPES = frozenset({aten.view.default, aten._unsafe_view.default, aten.reshape.default})


def is_tensor(value: object) -> bool:
    """Whether an argument is a node that computes a tensor."""
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)


def sink_views(graph: Graph, mode: Any) -> None:
    """Moves views in a graph behind pointwise operations, in place; `mode` is torch's of the graph's fake tensors."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.bmm.default:
            _unfold(graph, node, mode)
        elif node.op == "call_function" and is_pointwise(node.target):
            _sink(graph, node, mode)
        elif node.op == "call_function" and node.target in RESHAPES:
            _shorten(node)
    graph.eliminate_dead_code()


def _shorten(node: Node) -> None:
    """Replaces a view of a view by what it is a view of, where it has the same shape."""
    source: Any = node.args[0]
    while source.op == "call_function" and source.target in RESHAPES:
        source = source.args[0]
        if shape_of(source.meta["val"]) == shape_of(node.meta["val"]):
            node.replace_all_uses_with(source)
            return


def _sink(graph: Graph, node: Node, mode: Any) -> None:
    operands: list[Any] = [x for x in node.args if is_tensor(x)]
    if not isinstance(node.meta.get("val"), torch.Tensor) or any(is_tensor(x) for x in node.kwargs.values()):
        return
    view = next((x for x in operands if x.target in RESHAPES and _shape(x) == _shape(node)), None)
    if view is None:
        return
    base = view.args[0]
    inner, outer = _shape(base), _shape(view)
    common = _common(inner, outer)
    size = _one_unknown(inner)
    if not common or size is None or not all(_moves(x, outer, common) for x in operands):
        return
    with graph.inserting_before(node):
        moved = {x: _moved(graph, x, base, outer, size, mode) for x in operands}
        args = tuple(moved.get(x, x) if isinstance(x, Node) else x for x in node.args)
        computed = _called(graph, node.target, args, dict(node.kwargs), mode)
        back = _called(graph, aten.view.default, (computed, view.args[1]), {}, mode)
    for fresh in (computed, back):
        fresh.meta = {**{k: v for k, v in node.meta.items() if k != "val"}, "val": fresh.meta["val"]}
    node.replace_all_uses_with(back)
    graph.erase_node(node)


def _shape(node: Node) -> tuple[Size, ...]:
    return shape_of(node.meta["val"])


def _common(inner: tuple[Size, ...], outer: tuple[Size, ...]) -> int:
    """How many of the last dimensions a tensor and its view share, where the others of the tensor are one."""
    common = 0
    while common < min(len(inner), len(outer)) and inner[-1 - common] == outer[-1 - common]:
        common += 1
    return common if len(inner) - common <= 1 else 0


def _one_unknown(shape: tuple[Size, ...]) -> list[int] | None:
    """A shape as an argument of a view: with -1 for the one size that is no number."""
    unknown = [size for size in shape if not isinstance(size, int)]
    return [size if isinstance(size, int) else -1 for size in shape] if len(unknown) <= 1 else None


def _moves(node: Node, outer: tuple[Size, ...], common: int) -> bool:
    """Whether an operand can take the place of itself among dimensions that are one."""
    shape = _shape(node)
    if shape == outer:
        return node.target in RESHAPES or is_row_major(node.meta["val"])
    return len(shape) <= common


def _moved(graph: Graph, node: Node, base: Node, outer: tuple[Size, ...], size: list[int], mode: Any) -> Node:
    if _shape(node) != outer:
        return node
    inner = _shape(base)
    if node.target in RESHAPES and _shape(source := node.all_input_nodes[0]) == inner:
        return source
    return _called(graph, aten.reshape.default, (node, size), {}, mode)


def _called(graph: Graph, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Any) -> Node:
    """A new node, with an example of what it computes."""
    node = graph.call_function(target, args, kwargs)
    examples = [_examples(x) for x in args]
    with mode:
        node.meta["val"] = target(*examples, **kwargs)
    return node


def _examples(argument: Any) -> Any:
    if isinstance(argument, Node):
        return argument.meta["val"]
    return list(map(_examples, cast("list[Any]", argument))) if isinstance(argument, list) else argument


def _unfold(graph: Graph, node: Node, mode: Any) -> None:
    """`view(bmm(view(expand(a)), view(expand(b))))` as the product of a and b."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    if user is None or user.target not in RESHAPES:
        return
    result, a, b = _shape(user), _unfolded(node.args[0]), _unfolded(node.args[1])
    if a is None or b is None or len(result) < 4 or result[-2:] != _shape(node)[-2:]:
        return
    batches = [_shape(x)[:-2] for x in (a, b)]
    if any(len(batch) > len(result) - 2 for batch in batches):
        return
    with graph.inserting_before(user):
        product = graph.call_function(aten.matmul.default, (a, b))
    with mode:
        found = torch.matmul(a.meta["val"], b.meta["val"])
    if shape_of(found) != result:
        graph.erase_node(product)
        return
    product.meta = {**user.meta, "val": found}
    user.replace_all_uses_with(product)


def _unfolded(node: Any) -> Node | None:
    """What an operand of a product was before its batches were made one; None if they never were more."""
    if node.target not in RESHAPES:
        return None
    source = node.args[0]
    if _shape(source)[-2:] != _shape(node)[-2:]:
        return None
    while source.target in (aten.clone.default, aten.expand.default):
        source = source.args[0]
    return source


__all__ = ["RESHAPES", "is_tensor", "sink_views"]
