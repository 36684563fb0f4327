"""Which nodes of a graph are compiled together, and why others are left."""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from ...dialect.schedule.schedule import FEW_ROWS
from .attention import arguments_of, results_of
from .builder import CONVERSIONS, SCANS, SYMBOLIC, is_pointwise, is_scan_of_rows, name_of, why_not
from .importer import CONSTANTS, HANDLERS, REDUCTIONS
from .options import NO_FORM, aten, expression, is_attention, is_gradient, is_operator, layer_of, pytree, sympy
from .products import PRODUCTS
from .scalars import ELEMENTS, FACTORS, HALVES, ROOTS, shape_of
from .views import RESHAPES, SPLITS, VIEWS, has_no_gaps, is_row_major, is_tensor, sized_input, unpacking

NARROW = (torch.float8_e4m3fn, torch.float8_e5m2)
"""Types that numbers are not converted to in kernels, for targets before sm_89 cannot."""

STORED = (torch.int8, torch.uint8)
"""Types of weights in memory that a kernel converts while it loads them."""

MAX, NAME_LENGTH = 48, 64
"""Nodes that a cluster has at most, and characters of a kernel's name."""


@dataclass(frozen=True)
class Cluster:
    """Nodes in the order of the graph; the last one's result is used elsewhere. `weights` are those of them that
    convert an operand of the product, `sizes` inputs of the graph of which only the sizes are read. One that is
    `joined` of several has a result of each."""

    nodes: tuple[Node, ...]
    weights: tuple[Node, ...] = ()
    sizes: tuple[Node, ...] = ()
    joined: tuple[Cluster, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Nodes whose tensors the cluster reads."""
        read = (pytree.tree_leaves(arguments_of(n)) if is_attention(n) else n.all_input_nodes for n in self.nodes)
        own = (x for operands in read for x in operands if is_tensor(x) and x not in self.nodes)
        return tuple(dict.fromkeys((*own, *self.sizes)))

    @property
    def core(self) -> Node:
        """The node that multiplies: a product, or an attention; without one, the last."""
        return next((node for node in self.nodes if is_product(node) or is_attention(node)), self.last)

    @property
    def product(self) -> Cluster:
        """The product alone; an attention, or a cluster without a product, as it is."""
        return Cluster((self.core,)) if is_product(self.core) else self

    @property
    def products(self) -> tuple[Node, ...]:
        return tuple(filter(is_product, self.nodes))

    @property
    def last(self) -> Node:
        return self.nodes[-1]

    @property
    def results(self) -> tuple[Node, ...]:
        """The nodes whose results are used outside: the last one, or those of an attention."""
        joined = tuple(part.last for part in self.joined)
        return joined or (results_of(self.core) if is_attention(self.core) else (self.last,))

    @property
    def structure(self) -> str:
        """What it computes, and of which tensors: equal parts of a model have the same."""
        nodes = (*self.inputs, *self.nodes)
        numbers = {node: f"%{number}" for number, node in enumerate(nodes)}
        calls = [(str(n.target), map_arg((n.args, n.kwargs), lambda x: numbers.get(x, x.name))) for n in self.nodes]
        values = pytree.tree_leaves([n.meta["val"] for n in nodes])
        kinds = [(x.dtype, *x.shape, *x.stride()) if isinstance(x, torch.Tensor) else x for x in values]
        return f"{calls} {kinds} {[numbers[n] for n in self.results]}"

    @property
    def operations(self) -> list[str]:
        """The names of the model's operations, of one that was taken apart once, such as `native_layer_norm`."""
        if is_attention(self.core):
            return ["attention gradients" if is_gradient(self.core) else "attention"]
        names = list[str]()
        for node in (n for n in self.nodes if n.target not in VIEWS and n.target is not operator.getitem):
            origin = node.meta.get("original_aten")
            name = name_of(origin if is_operator(origin) and not is_product(node) else node.target)
            names += [name] if name == name_of(node.target) or names[-1:] != [name] else []
        return [name.strip("_") for name in names]

    @property
    def label(self) -> str:
        """What profilers show: the layer, the operations, the type and the sizes of the result, for a product with its
        depth, such as `layers.0.mlp: mm+silu+mul bf16 8192x28672x4096`."""
        result, core = self.results[0].meta["val"], self.core
        inner = core.all_input_nodes[-1].meta["val"].shape[-2:-1] if is_product(core) else ()
        sizes = "x".join(map(str, (*result.shape, *inner)))
        return f"{layer_of(self.last) or 'model'}: {'+'.join(self.operations)} {ELEMENTS[result.dtype]} {sizes}"

    @property
    def name(self) -> str:
        """The name of its kernel in profilers: the operations and the type of the result, such as
        `addmm_gelu_bfloat16`. Equal parts of a graph share a kernel, so the name does not tell them apart."""
        dtype = str(self.results[0].meta["val"].dtype).removeprefix("torch.")
        operations = re.sub(r"\W", "_", "_".join(self.operations))
        return f"{operations[: NAME_LENGTH - len(dtype) - 1]}_{dtype}"


def is_product(node: Node) -> bool:
    """Whether a node multiplies matrices."""
    return node.op == "call_function" and node.target in PRODUCTS


def clusters(graph: Graph) -> Iterator[Cluster]:
    """The clusters of a graph, each with as many nodes as it can have; none has a node of another."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    taken: set[Node] = set()
    for node in graph.nodes:
        if is_attention(node) and (results := results_of(node)):
            taken |= {node, *results}
            seen = {view for operand in node.all_input_nodes for view in _parted(operand)}
            yield Cluster(tuple(sorted({*seen, node, *results}, key=order.__getitem__)))
        elif is_product(node) and node not in taken:
            members = _grown(node, taken, order)
            taken |= {x for x in members if x is node or not is_product(x)}
            yield Cluster(tuple(sorted(members, key=order.__getitem__)))


def cones(last: Node, taken: Collection[Node], order: Mapping[Node, int]) -> Iterator[Cluster]:
    """Clusters without a product that end at a node, the largest first. They contain only nodes that its result
    needs."""
    if last.target in CONSTANTS or not _is_lowered(last, last) or not has_no_gaps(last.meta["val"]):
        return
    for also in ((*REDUCTIONS, *VIEWS, *CONSTANTS), (*CONSTANTS,), None):
        members, queue = {last}, [last]
        while queue and len(members) < MAX and also is not None:
            for node in queue.pop(0).all_input_nodes:
                fits = node.target in also or (is_pointwise(node.target) and (VIEWS.keys() & also or _like(node, last)))
                if fits and node not in taken and members.issuperset(node.users) and _is_lowered(node, last):
                    members.add(node)
                    queue.append(node)
        cluster = Cluster(tuple(sorted(members, key=order.__getitem__)))
        if cluster.inputs:
            yield cluster


def _like(node: Node, other: Node) -> bool:
    return is_tensor(node) and shape_of(node.meta["val"]) == shape_of(other.meta["val"])


def _is_lowered(node: Node, last: Node) -> bool:
    """Whether a node other than a product has its own lowering on the device of `last`."""
    if node.op != "call_function" or not is_tensor(node) or is_attention(node) or is_product(node):
        return False
    result = node.meta["val"]
    kinds = result.device == last.meta["val"].device and result.dtype in ELEMENTS and result.dtype not in NARROW
    if not kinds or 0 in shape_of(result) or (node.target in SCANS and not is_scan_of_rows(node)):
        return False
    return not obstacle(node) if is_pointwise(node.target) else node.target in HANDLERS and not _reads_elsewhere(node)


def narrowed(cluster: Cluster) -> Cluster:
    """The cluster without a final conversion to a wider type, which the reader of the result can do."""
    nodes = cluster.nodes
    while len(nodes) > 1 and _widens(nodes[-1]) and nodes[-2] in nodes[-1].all_input_nodes:
        nodes = nodes[:-1]
    return replace(cluster, nodes=nodes)


def _parted(node: Node) -> list[Node]:
    """The views that make a node a part of a tensor with strided rows. A kernel then reads the part in place."""
    views: list[Node] = []
    if not is_tensor(node) or has_no_gaps(node.meta["val"]):
        return views
    while node.target in VIEWS or (node.target is operator.getitem and node.all_input_nodes[0].target in SPLITS):
        views += [node] if node.target in VIEWS else [node, node.all_input_nodes[0]]
        node = views[-1].all_input_nodes[0]
    return views if node.op != "get_attr" and is_tensor(node) and has_no_gaps(node.meta["val"]) else []


def with_weights(cluster: Cluster, taken: Collection[Node]) -> Cluster:
    """The cluster with the conversions of its operands from 8-bit integers, unless they are taken."""
    operands = cluster.core.all_input_nodes if is_product(cluster.core) else ()
    weights = tuple(dict.fromkeys(node for operand in operands for node in _converting(operand, taken)))
    return Cluster((*weights, *cluster.nodes), weights)


def joined(parts: Sequence[Cluster], order: Mapping[Node, int]) -> dict[Cluster, Cluster]:
    """For parts that multiply one A of few rows by inputs of the graph, or by views of such: the cluster of all
    these."""
    groups = defaultdict[Any, list[Cluster]](list)
    for part in parts:
        if len(part.products) == 1 and part.core.target in (aten.mm.default, aten.addmm.default):
            a = part.core.args[-2]
            groups[a] += [part] if all(x is a or _is_given(x) for x in part.inputs) else []
    together = dict[Cluster, Cluster]()
    for a, several in groups.items():
        rows = shape_of(a.meta["val"])[0]
        if len(several) > 1 and isinstance(rows, int) and rows <= FEW_ROWS:
            nodes = sorted((node for part in several for node in part.nodes), key=order.__getitem__)
            weights = tuple(node for part in several for node in part.weights)
            together |= dict.fromkeys(several, Cluster(tuple(nodes), weights, joined=tuple(several)))
    return together


def _is_given(node: Node) -> bool:
    """Whether a node is an input of the graph, or a view of one."""
    return node.op == "placeholder" or (node.target in VIEWS and all(map(_is_given, node.all_input_nodes)))


def _converting(node: Node, taken: Collection[Node]) -> list[Node]:
    """The conversion of 8-bit integers to floats that ends at a node, with arithmetic and transpositions after it, and
    with what unpacks the integers from halves of bytes. Empty if other nodes use a part of it."""
    if node.op != "call_function" or not is_tensor(node) or len(node.users) != 1 or node in taken:
        return []
    operands = [x for x in node.all_input_nodes if is_tensor(x)]
    shown = node.target is aten.permute.default or node.target in RESHAPES
    if not shown and (not is_pointwise(node.target) or obstacle(node)):
        return []
    if node.target in CONVERSIONS:
        kinds = operands[0].meta["val"].dtype, node.meta["val"].dtype
        return [*unpacking(operands[0]), node] if kinds[0] in STORED and kinds[1] in HALVES else []
    same = operands[:1] if shown else [x for x in operands if _like(x, node)]
    before = [n for x in same for n in _converting(x, taken)]
    return [*before, node] if before else []


def _grown(product: Node, taken: set[Node], order: Mapping[Node, int]) -> set[Node]:
    """The product and the most pointwise operations behind it of which only the last one's result is used elsewhere."""
    core, closed, members = product, {product}, {product, *_halves(product)}
    if product.target is aten.convolution.default and len(product.users) == 1:  # what follows has the channels last
        members |= {user for user in product.users if user.target is aten.permute.default}
    product = max(members, key=order.__getitem__)
    queue = sorted({user for node in members for user in node.users} - members, key=order.__getitem__)
    while queue and len(members) < MAX:
        node = queue.pop(0)
        if node in members or node in taken or not follows(node, product):
            continue
        members |= {node, *_second(node, core, members | {node} | taken)}
        queue = sorted({*queue, *node.users}, key=order.__getitem__)
        if [x for x in members if not members.issuperset(x.users)] == [node]:
            closed = _with_operands(members, taken)
    return closed


def _with_operands(members: set[Node], taken: set[Node]) -> set[Node]:
    """The cluster with operands that only it reads, and with conversions of others to wider types: it reads in their
    place what is converted, as a gradient of gelu does, which multiplies a converted operand several times."""
    cluster, queue = set(members), [operand for node in members for operand in node.all_input_nodes]
    while queue:
        operand = queue.pop()
        readers = cluster.intersection(operand.users)
        own = operand not in taken and len(readers) == len(operand.users)
        fits = all(not is_product(x) and follows(operand, x) for x in readers)
        wider = _widens(operand) and not taken.issuperset((operand, *operand.all_input_nodes))
        if operand not in cluster and fits and (own or wider):
            cluster.add(operand)
            queue += operand.all_input_nodes
    return cluster


def _widens(node: Node) -> bool:
    """Whether a node converts to a type of more bytes."""
    sizes = [x.meta["val"].dtype.itemsize for x in (*node.all_input_nodes, node)] if node.target in CONVERSIONS else ()
    return bool(sizes) and sizes[0] < sizes[-1]


def _second(node: Node, product: Node, others: set[Node]) -> set[Node]:
    """Another product of the same A that only a node reads, whose matrix lies in memory: both can be one kernel."""
    is_plain = product.target is aten.mm.default and _is_given(product.all_input_nodes[-1])
    if not is_plain or any(map(is_product, others & {*node.all_input_nodes})):
        return set()
    pairs = (x for x in node.all_input_nodes if x.target is product.target and len(x.users) == 1 and x not in others)
    alike = (x for x in pairs if x.args[0] is product.args[0] and _like(x, product))
    return {*[x for x in alike if _is_given(x.all_input_nodes[-1])][:1]}


def _halves(product: Node) -> set[Node]:
    """The views of the halves of the columns of a product's result, such as a gate and what it multiplies, if these are
    all that is read of it."""
    split = next(iter(product.users), product)
    halves = [*split.users]
    if split.target not in SPLITS or len(product.users) != 1 or len(halves) != 2 or not all(map(is_tensor, halves)):
        return set()
    first, second = (shape_of(half.meta["val"]) for half in halves)
    return {split, *halves} if first == second and 2 * first[-1] == shape_of(product.meta["val"])[-1] else set()


def follows(node: Node, product: Node) -> bool:
    """Whether a node computes each element of its result where a product computes one, in f32: what is computed in f64
    takes registers from the accumulators."""
    own = is_pointwise(node.target) and _is_lowered(node, product) and _like(node, product)
    is_power = own and name_of(node.target) == "pow" and node.args[1] not in (*ROOTS, *FACTORS)
    return own and not is_power and is_row_major(node.meta["val"])


def why_left(node: Node, rest: str) -> str:
    """Why a node is in no cluster."""
    if is_product(node):
        return "its result has no elements"
    if rest != "inductor" and _reads_elsewhere(node):
        return ELSEWHERE
    if not is_pointwise(node.target):
        return "neither a product of matrices nor pointwise: inductor's kernels" if rest == "inductor" else NO_FORM
    if (dtype := node.meta["val"].dtype) in NARROW:
        return f"conversions to {dtype} are left to torch, for targets before sm_89 have none"
    if rest == "inductor":
        return "pointwise work between products, which inductor fuses"
    return obstacle(node) or "its result has gaps in memory, or no elements"


OBSTACLE = "warploom_obstacle"
"""What a node remembers of itself: clusters that grow ask again and again."""

ELSEWHERE = "it takes a tensor that lies elsewhere, or a number that follows from no size of an input"


def obstacle(node: Node) -> str:
    """Why a pointwise node has no form here that computes it where its tensor lies, "" if it has one."""
    if OBSTACLE not in node.meta:
        device, values = node.meta["val"].device, [x.meta.get("val") for x in node.all_input_nodes]
        sizes = {size for x in values if isinstance(x, SYMBOLIC) for size in sympy.sympify(expression(x)).free_symbols}
        is_static = all(sized_input(node.graph, size, device) for size in sizes)
        there = is_static and all(isinstance(x, (torch.Tensor, *SYMBOLIC)) for x in values)
        node.meta[OBSTACLE] = why_not(node) if there and not _reads_elsewhere(node) else ELSEWHERE
    return node.meta[OBSTACLE]


def _reads_elsewhere(node: Node) -> bool:
    """Whether a node reads a tensor on another device, as a tensor on a GPU may have an index on the host."""
    return len({x.meta["val"].device for x in (node, *node.all_input_nodes) if is_tensor(x)}) > 1
