"""Which nodes of a graph are compiled together: a product, and pointwise operations on its result alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from .layouts import is_row_major
from .pointwise import is_pointwise, obstacle
from .products import PRODUCTS
from .sinking import is_tensor
from .types import ELEMENTS, shape_of

NARROW = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
"""Types that numbers are converted to otherwise in kernels: they saturate, where torch's become NaN."""


@dataclass(frozen=True)
class Cluster:
    """Nodes in the order of the graph; the last one's result is used elsewhere."""

    nodes: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Nodes whose tensors the cluster reads."""
        found = (x for node in self.nodes for x in node.all_input_nodes if is_tensor(x) and x not in self.nodes)
        return tuple(dict.fromkeys(found))

    @property
    def product(self) -> Cluster:
        """The product alone."""
        return Cluster((next(filter(is_product, self.nodes)),))

    @property
    def last(self) -> Node:
        return self.nodes[-1]


def is_product(node: Node) -> bool:
    """Whether a node multiplies matrices."""
    return node.op == "call_function" and node.target in PRODUCTS


def clusters(graph: Graph) -> Iterator[Cluster]:
    """The clusters of a graph, each with as many nodes as it can have; none has a node of another."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    taken: set[Node] = set()
    for node in graph.nodes:
        if is_product(node) and node not in taken:
            members = _grown(node, taken)
            taken |= members
            yield Cluster(tuple(sorted(members, key=order.__getitem__)))


def _grown(product: Node, taken: set[Node]) -> set[Node]:
    members, last = {product}, product
    while len(last.users) == 1:
        user = next(iter(last.users))
        if user in taken or not follows(user, product):
            break
        members |= {user, *_beside(user, members | taken)}
        last = user
    return members


def follows(node: Node, product: Node) -> bool:
    """Whether a node computes each element of its result where a product computes one."""
    result, other = node.meta.get("val"), product.meta["val"]
    if node.op != "call_function" or not is_pointwise(node.target) or not isinstance(result, torch.Tensor):
        return False
    if shape_of(result) != shape_of(other) or result.dtype not in ELEMENTS or result.dtype in NARROW:
        return False
    place = result.device == other.device and is_row_major(result)
    return place and _known(node, other.device) and not obstacle(node)


def why_left(node: Node) -> str:
    """Why a node is in no cluster."""
    if is_product(node):
        return "its result has no elements"
    if not is_pointwise(node.target):
        return "no product of matrices"
    dtype = node.meta["val"].dtype
    if dtype in NARROW:
        return f"kernels saturate what they convert to {dtype}, torch does not"
    return obstacle(node) or "it is no operation on the result of a compiled product alone"


def _known(node: Node, device: torch.device) -> bool:
    """Whether what a node takes beside tensors on a device, or numbers in them, is known while compiling."""
    return all(is_tensor(x) and x.meta["val"].device == device for x in node.all_input_nodes)


def _beside(node: Node, others: set[Node]) -> Sequence[Node]:
    """Pointwise operations that only another operand of a node takes."""
    found: list[Node] = []
    for operand in node.all_input_nodes:
        if operand not in others and len(operand.users) == 1 and follows(operand, node):
            found += [operand, *_beside(operand, others)]
    return found
